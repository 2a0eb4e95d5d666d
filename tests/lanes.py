"""How `make test` hands tests to the workers of pytest-xdist."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


def order(items: list[pytest.Item], lane: Path, worker: str) -> None:
    """Put tests with Spark first, and name them in a file; quick ones come last.

    The quick ones fill what time is left. xdist knows tests by their names alone, and the groups
    that it has for this are lost with pytest 9.2.
    """
    items.sort(key=lambda item: [not item.get_closest_marker(name) for name in ("spark", "slow")])
    new = lane.with_suffix(f".{worker}")
    new.write_text("\n".join(item.nodeid for item in items if item.get_closest_marker("spark")))
    new.replace(lane)


class Priority:
    """Only what the worker with Spark leaves of the processors is for the others.

    It has the longest way to go, and often waits for a stream or a process. The others fill these
    gaps: there is one worker more than there are processors.
    """

    def __init__(self) -> None:
        self._is_decided = False

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if not self._is_decided and item.get_closest_marker("spark") is None:
            os.nice(5)
        self._is_decided = True


class Lanes(LoadScopeScheduling):
    """All tests with Spark are for one worker, and the others come by modules to any.

    A test whose worker died has failed; the others run.
    """

    def __init__(self, config: Any, log: Any, lane: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # the order of the tests is that of the work
        self._lane = lane
        self._spark: set[str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._spark is None:
            self._spark = set(self._lane.read_text().split("\n"))
            self._lane.unlink()
        return "spark" if nodeid in self._spark else nodeid.partition("::")[0]

    def remove_node(self, node: Any) -> str | None:
        # xdist would run the test again that ended its worker.
        for tests in self.assigned_work[node].values():
            for test, is_done in tests.items():
                if not is_done:
                    tests[test] = True
                    super().remove_node(node)
                    return test
        return super().remove_node(node)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:
            return  # it replaces a worker, and asks when it has collected its tests
        super()._reschedule(node)
        # A worker begins a test when it knows the next one, or that there is none.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
