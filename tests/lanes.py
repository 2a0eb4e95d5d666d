"""How `make test` hands tests to the workers of pytest-xdist."""

from __future__ import annotations

import faulthandler
import os
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# A second JVM, with its Python workers, takes 60 s of a processor to begin, and then waits less.
_JVMS = 2
_SPARK = "spark: "
# How many tests a worker knows before it is told more.
_KNOWN = 3
# How many calls of each thread the report of a worker's death names.
_CALLS = 8


def has_session(item: pytest.Item) -> bool:
    """Tell whether a test uses the Spark session of its worker, not only those of its own."""
    marker = item.get_closest_marker("spark")
    return marker is not None and "own" not in marker.args


def order(items: list[pytest.Item], lane: Path, worker: str) -> None:
    """Put tests with the Spark session first, and name them in a file; quick ones come last.

    The quick ones fill what time is left. xdist knows tests by their names alone, and the groups
    that it has for this are lost with pytest 9.2.
    """
    marks = ("spark", "slow")
    items.sort(
        key=lambda item: [not has_session(item), *(not item.get_closest_marker(m) for m in marks)]
    )
    new = lane.with_suffix(f".{worker}")
    new.write_text("\n".join(item.nodeid for item in items if has_session(item)))
    new.replace(lane)


def compile_share(config: Any) -> None:
    """Import all test modules, from another one on in each worker.

    In a new clone most of the time of collecting tests goes into compiling them. So each worker
    compiles its share first and keeps it, and finds those of the others compiled.
    """
    worker = config.workerinput
    modules = sorted(Path(__file__).parent.rglob("test_*.py"))
    first = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for module in modules[first:] + modules[:first]:
        with suppress(BaseException):  # collecting will tell
            import_module(".".join(module.relative_to(config.rootpath).with_suffix("").parts))


class Priority:
    """Only what the workers with Spark leave of the processors is for the other.

    They often wait for a stream or a process. The other fills these gaps: there is one worker more
    than there are processors.
    """

    def __init__(self) -> None:
        self._is_decided = False

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if not self._is_decided and not has_session(item):
            os.nice(5)
        self._is_decided = True


class Stacks:
    """Where the threads of a worker are when a test hangs or a library crashes.

    They go into a file: its report names them, and the worker itself can tell nothing any more.
    """

    def __init__(self, lane: Path, worker: str) -> None:
        self._file = lane.with_suffix(f".{worker}.stacks").open("w")
        faulthandler.enable(self._file)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if limit := float(item.config.getini("faulthandler_timeout") or 0):
            faulthandler.dump_traceback_later(limit, file=self._file, exit=True)


def stacks_of(lane: Path, worker: str) -> str:
    """The last calls of each thread of a worker that ended, in one line; the newest call first."""
    path = lane.with_suffix(f".{worker}.stacks")
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    threads = []
    for thread in re.split(r"^(?:Current t|T)hread .*", text, flags=re.MULTILINE):
        calls = re.findall(r'File ".*?([^/]+)", line (\d+) in (.+)', thread)[:_CALLS]
        threads.append(" < ".join(f"{name} ({file}:{line})" for file, line, name in calls))
    return "; ".join(f"thread {one}" for one in threads[::-1] if one)


class Lanes(LoadScopeScheduling):
    """Tests come by modules to any worker, those with the Spark session to two, each with a JVM.

    A test whose worker died has failed; the others run.
    """

    def __init__(self, config: Any, log: Any, lane: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # the order of the tests is that of the work
        self._lane = lane
        self._spark: set[str] | None = None
        self._jvms: list[Any] = []

    def _split_scope(self, nodeid: str) -> str:
        if self._spark is None:
            self._spark = set(self._lane.read_text().split("\n"))
            self._lane.unlink()
        module = nodeid.partition("::")[0]
        return f"{_SPARK}{module}" if nodeid in self._spark else module

    def _next_for(self, node: Any) -> str | None:
        """The waiting module that a worker takes next.

        Modules with like names use the same parts of Spark, and each JVM takes a second of a
        processor or more to begin with one. So the first JVM begins with the first modules, and
        the second with the last.
        """
        self._jvms = [one for one in self._jvms if one in self.assigned_work]
        place = self._jvms.index(node) if node in self._jvms else len(self._jvms)
        spark = [one for one in self.workqueue if _SPARK in one]
        if spark and place < _JVMS:
            return spark[-1 if place else 0]
        return next((one for one in self.workqueue if _SPARK not in one), None)

    def _assign_work_unit(self, node: Any) -> None:
        scope = self._next_for(node) or next(iter(self.workqueue))
        self.workqueue.move_to_end(scope, last=False)
        if _SPARK in scope and node not in self._jvms:
            self._jvms.append(node)
        super()._assign_work_unit(node)

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
        # A worker begins a test when it knows the next one, or that there is none.
        while not node.shutting_down:
            if self._next_for(node) is None:
                node.shutdown()
            elif self._pending_of(self.assigned_work[node]) < _KNOWN:
                self._assign_work_unit(node)
            else:
                return
