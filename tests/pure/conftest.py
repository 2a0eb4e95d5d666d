"""Counts the examples that property tests ran: `make property` promises a number."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

_COUNTS: dict[str, int] = {}


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    yield
    told = getattr(item, "hypothesis_statistics", "")
    if call.when == "call" and told:
        _COUNTS[item.name] = sum(int(n) for n in re.findall(r"(\d+) passing", told))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _COUNTS or os.environ.get("HYPOTHESIS_PROFILE") != "property":
        return
    terminalreporter.section("examples of properties")
    for name, count in sorted(_COUNTS.items()):
        terminalreporter.line(f"{count:>9,}  {name}")
    terminalreporter.line(f"{sum(_COUNTS.values()):>9,}  together")
