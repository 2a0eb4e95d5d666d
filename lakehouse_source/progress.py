"""Edge. What is told of running work: lines of loggers named `plake.…`, and bars on a terminal.

The loggers take no secret: catalogs and errors are redacted before they come here.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

# A bar that nobody asked for is shown only for work that takes longer than this.
SHOWN_AFTER_SECONDS = 1.0


def counted(
    items: Iterable[T],
    progress: bool | None,
    *,
    label: str,
    unit: str,
    total: int | None = None,
    size: Callable[[T], int] = lambda _item: 1,
) -> Iterator[T]:
    """The items, with a bar that grows by `size(item)` units after each item.

    Args:
        progress: True shows the bar, False does not. None shows it where standard error is a
            terminal, once the work has taken `SHOWN_AFTER_SECONDS`.
        label: what is done, before the bar.
        unit: the name of what is counted, in the plural.
        total: how many units there will be, None where that is not known.
    """
    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    if progress is False or (progress is None and not has_terminal):
        yield from items
        return
    started = monotonic()
    done = 0
    bar = _bar(label, unit, total, done) if progress else None
    try:
        for item in items:
            yield item
            done += size(item)
            if bar is not None:
                bar.update(size(item))
            elif monotonic() - started >= SHOWN_AFTER_SECONDS:
                bar = _bar(label, unit, total, done)
    finally:
        if bar is not None:
            bar.close()


def _bar(label: str, unit: str, total: int | None, done: int) -> Any:
    # Here and not above: tqdm takes longer to import than most writes take.
    from tqdm import tqdm

    return tqdm(
        desc=label, total=total, initial=done, unit=f" {unit}", unit_scale=True, leave=False
    )


PLAN = logging.getLogger("plake.plan")
COMMIT = logging.getLogger("plake.commit")
COMPACT = logging.getLogger("plake.compact")
VACUUM = logging.getLogger("plake.vacuum")


def milliseconds(since: float) -> float:
    """The time since `time.perf_counter()` returned `since`."""
    return 1000 * (time.perf_counter() - since)
