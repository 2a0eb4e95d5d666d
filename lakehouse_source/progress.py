"""Edge. Progress bars on a terminal, for work that may take long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def is_shown(progress: bool | None) -> bool:
    """Tell whether to show a bar: as asked, else where standard error is a terminal."""
    if progress is not None:
        return progress
    return sys.stderr is not None and sys.stderr.isatty()


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
        progress: True shows the bar, False does not, None shows it on a terminal.
        label: what is done, before the bar.
        unit: the name of what is counted, in the plural.
        total: how many units there will be, None where that is not known.
    """
    if not is_shown(progress):
        yield from items
        return
    # Here and not above: tqdm takes longer to import than most writes take.
    from tqdm import tqdm

    with tqdm(desc=label, total=total, unit=f" {unit}", unit_scale=True, leave=False) as bar:
        for item in items:
            yield item
            bar.update(size(item))
