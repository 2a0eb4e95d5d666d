"""Pure. How many files hold a value, along the range of a column."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from lakehouse_source.model import Ordinal
from lakehouse_source.pictures.frame import (
    INNER,
    LEFT,
    TOP,
    Figure,
    Group,
    bottom_axis,
    drawing,
    left_axis,
)
from lakehouse_source.pictures.markup import Markup, element, shortened
from lakehouse_source.pictures.ranges import Column, Placed, cell, placed_on
from lakehouse_source.pictures.scale import Scale, counted, value_text

_BINS = 480
_TABLE_ROWS = 24


def overlap(title: str, caption: str, series: Sequence[tuple[Group, Column]]) -> Figure:
    """How many files hold a value, for each series; the axis fits the first series."""
    column = series[0][1]
    scale = column.scale()
    counts = [_Counts(placed_on(scale, one)) for _, one in series]
    levels = [one.highest() for one in counts]
    up = counted(max(levels[0], default=0))
    height = 120.0
    most = [max(one, default=0) for one in levels]
    told = [f"{group.text}: at most {high:,}" for (group, _), high in zip(series, most)]
    return Figure(
        title,
        caption,
        [replace(group, text=text) for (group, _), text in zip(series, told)],
        drawing(
            f"{title}: {', '.join(told)}",
            height,
            left_axis(up, height),
            bottom_axis(scale.ticks(INNER), height, shortened(column.name, 80)),
            *(_steps(one, up, height, g.colour) for one, (g, _) in zip(levels, series)),
        ),
        ("value", *(group.text for group, _ in series)),
        [
            (value_text(value, column.type), *(one.holding(scale.place(value)) for one in counts))
            for value in _some(column)
        ],
    )


def _some(column: Column) -> list[Ordinal]:
    """Some ends of the ranges, evenly spread."""
    ends = sorted({end for end in (*column.lower, *column.upper) if end is not None})
    count = min(len(ends), _TABLE_ROWS)
    return [ends[number * (len(ends) - 1) // max(1, count - 1)] for number in range(count)]


class _Counts:
    """How many ranges hold each place of the axis. A range includes its ends."""

    def __init__(self, placed: Placed) -> None:
        self._begins, self._ends = sorted(placed.low), sorted(placed.high)

    def holding(self, at: float) -> int:
        """How many ranges hold a place."""
        return bisect_right(self._begins, at) - bisect_left(self._ends, at)

    def highest(self) -> list[int]:
        """The greatest number in each of several equal parts of the axis."""
        begins, ends = self._begins, self._ends
        found = [0] * _BINS
        begun = ended = reached = 0
        for at in sorted({*begins, *ends}):
            part = cell(at, _BINS)
            for between in range(reached, part + 1):  # as many as after the point before
                found[between] = max(found[between], begun - ended)
            while begun < len(begins) and begins[begun] <= at:
                begun += 1
            found[part] = max(found[part], begun - ended)
            while ended < len(ends) and ends[ended] <= at:
                ended += 1
            reached = part
        return found


def _steps(levels: Sequence[int], up: Scale, height: float, colour: str) -> Markup:
    base, wide = TOP + height, INNER / _BINS
    path, x = [f"M{LEFT:g} {base:g}"], LEFT
    for level, run in groupby(levels):
        x += len(list(run)) * wide
        path.append(f"V{base - up.place(level) * height:.1f}H{x:.1f}")
    return element("path", d=f"{''.join(path)}V{base:g}z", class_=colour)
