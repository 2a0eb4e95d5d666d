"""Pure. Files as lines, from the least to the greatest value, and how many hold a value.

Up to `MOST_EACH` files are drawn one by one. More files are gathered into cells: a cell has the
colour of the first group with a file in the cell, and is darker, the more files it holds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TypeAlias

import pyarrow as pa

from lakehouse_source.model import Ordinal
from lakehouse_source.pictures.markup import Markup, element, joined, shortened
from lakehouse_source.pictures.page import (
    INNER,
    LEFT,
    TOP,
    Figure,
    Group,
    across,
    bar,
    bottom_axis,
    drawing,
    left_axis,
)
from lakehouse_source.pictures.scale import Scale, counted, scale_of, value_text

MOST_EACH = 300
SHARED = " Many files share a cell: it has the colour of the first kind in it."
Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str | int | None]]]
ASKED = Group("asked", "values that the condition asks for")
_ROWS, _COLUMNS = 96, 200
_LEVELS = 4
_TABLE_BINS = 24
_THINNEST = 4.0
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Column:
    """A column's range in each of some files.

    `lower` and `upper` are None if unknown; `files` are the places of the files, without files that
    have no value of the column. `asked` are the ranges that a condition asks for.
    """

    name: str
    type: pa.DataType
    files: Sequence[int]
    lower: Sequence[Ordinal | None]
    upper: Sequence[Ordinal | None]
    condition: Sequence[tuple[Ordinal | None, Ordinal | None]] = ()

    def scale(self) -> Scale:
        """The axis of the column, as wide as the files' ranges."""
        values = [*self.lower, *self.upper]
        # The values of the condition also need a place among texts.
        values += [end for both in self.condition for end in both if isinstance(end, bytes)]
        return scale_of(self.type, (one for one in values if one is not None))

    def condition_spans(self, scale: Scale) -> list[tuple[float, float]]:
        """The places on an axis of the values that the condition asks for."""
        found = []
        for low, high in self.condition[:MOST_EACH]:
            first = 0.0 if low is None else scale.place(low) - scale.half
            last = 1.0 if high is None else scale.place(high) + scale.half
            if last > 0.0 and first < 1.0:  # else the range is beside the files
                found.append((max(first, 0.0), min(last, 1.0)))
        return found

    def text(self, place: int) -> str:
        """The range of one of the files."""
        low, high = (value_text(one[place], self.type) for one in (self.lower, self.upper))
        return shortened(f"{low} to {high}" if low != high else low, _LONGEST)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a picture: the group of each; and names and rows, if there are few files."""

    groups: Sequence[Group]
    group_of: Sequence[int]
    names: Sequence[str] | None = None

    def legend(self) -> list[Group]:
        """The groups that have files, with their numbers of files."""
        counts = [0] * len(self.groups)
        for one in self.group_of:
            counts[one] += 1
        return [
            Group(group.colour, f"{group.text}: {count:,} {'file' if count == 1 else 'files'}")
            for group, count in zip(self.groups, counts)
            if count
        ]

    def label(self, file: int) -> str:
        """The text about a file that is shown under the pointer."""
        name = f"file {file + 1}" if self.names is None else self.names[file]
        return f"{shortened(name, 100)}\n{self.groups[self.group_of[file]].text}"


@dataclass(frozen=True, slots=True)
class Placed:
    """The ranges of a column on its axis, between 0 and 1."""

    low: list[float]
    high: list[float]


def placed_on(scale: Scale, column: Column) -> Placed:
    """The ranges of a column on an axis; an unknown end is at the axis' end."""
    return Placed(
        [0.0 if one is None else scale.place(one) - scale.half for one in column.lower],
        [1.0 if one is None else scale.place(one) + scale.half for one in column.upper],
    )


def intervals(files: Files, column: Column) -> Figure:
    """Each file as a line from its least to its greatest value of a column."""
    scale = column.scale()
    placed = placed_on(scale, column)
    order = sorted(range(len(column.files)), key=lambda at: (placed.low[at], placed.high[at]))
    each = len(order) <= MOST_EACH
    height = min(360.0, max(60.0, 9.0 * len(order)))
    drawn = _lines if each else _cells
    headers, rows = (
        _each_file(files, column, order) if each else _parts_of_range(files, column, placed)
    )
    missing = len(files.group_of) - len(order)
    return Figure(
        f"Files over {shortened(column.name, 60)}",
        ("One line a file, from its" if each else f"{len(order):,} files from their")
        + " least to "
        + ("its" if each else "their")
        + " greatest value, ordered by the least."
        + (" Texts are at equal distances." if _is_ranked(column) else "")
        + ("" if each else SHARED)
        + (f" {missing:,} files hold no value of it and are not drawn." if missing else ""),
        [*files.legend(), *([ASKED] if column.condition else [])],
        drawing(
            f"{len(order):,} files by their range of {shortened(column.name, 60)}",
            height,
            _condition_marks(column, scale, height),
            bottom_axis(scale.ticks(INNER), height, shortened(column.name, 80)),
            drawn(files, column, placed, order, height),
        ),
        headers,
        rows,
    )


def _is_ranked(column: Column) -> bool:
    return any(isinstance(end, bytes) for end in (*column.lower, *column.upper))


def _condition_marks(column: Column, scale: Scale, height: float) -> Markup:
    """The values that the condition asks for, as bands behind the files."""
    spans = ((across(first), across(last)) for first, last in column.condition_spans(scale))
    return joined(*(bar(a - 1.5, TOP, b - a + 3, height, "asked") for a, b in spans))


def _lines(
    files: Files, column: Column, placed: Placed, order: Sequence[int], height: float
) -> Markup:
    step = height / max(1, len(order))
    thick = min(10.0, max(0.8, step * 0.72))
    parts = []
    for number, at in enumerate(order):
        x, end = across(placed.low[at]), across(placed.high[at])
        width = max(_THINNEST, end - x)
        file = column.files[at]
        y = TOP + number * step + (step - thick) / 2
        label = f"{files.label(file)}\n{shortened(column.name, 60)}: {column.text(at)}"
        colour = files.groups[files.group_of[file]].colour
        parts.append(bar(min(x, LEFT + INNER - width), y, width, thick, colour, label))
    return joined(*parts)


def _cells(
    files: Files, column: Column, placed: Placed, order: Sequence[int], height: float
) -> Markup:
    """Rows of consecutive files, each row cut into cells."""
    count = len(order)
    tall = height / _ROWS
    held_by_rows = []
    for row in range(_ROWS):
        some = order[row * count // _ROWS : (row + 1) * count // _ROWS]
        held = [[0] * (_COLUMNS + 1) for _ in files.groups]
        for at in some:
            first, last = (cell(one[at], _COLUMNS) for one in (placed.low, placed.high))
            mine = held[files.group_of[column.files[at]]]
            mine[first] += 1
            mine[last + 1] -= 1
        held_by_rows.append([list(accumulate(one[:-1])) for one in held])
    most = max(sum(counts) for held in held_by_rows for counts in zip(*held))
    rows = [winners(held, most) for held in held_by_rows]
    return painted(files.groups, rows, INNER / _COLUMNS, tall)


def cell(at: float, count: int) -> int:
    """The number of the equal part that holds a place between 0 and 1."""
    return min(count - 1, int(at * count))


def winners(held: Sequence[Sequence[int]], most: int) -> list[tuple[int, int] | None]:
    """The first group in each cell, and the cell's darkness; None: the cell is empty."""
    found: list[tuple[int, int] | None] = []
    for counts in zip(*held):
        all_of_it = sum(counts)
        if not all_of_it:
            found.append(None)
            continue
        group = next(number for number, one in enumerate(counts) if one)
        found.append((group, min(_LEVELS - 1, all_of_it * _LEVELS // (most + 1))))
    return found


def painted(
    groups: Sequence[Group],
    rows: Sequence[Sequence[tuple[int, int] | None]],
    wide: float,
    tall: float,
) -> Markup:
    """Cells as one path for each colour and darkness: many cells take few bytes."""
    paths: dict[tuple[int, int], list[str]] = {}
    for number, row in enumerate(rows):
        x = 0
        for value, run in groupby(row):
            length = len(list(run))
            if value is not None:
                paths.setdefault(value, []).append(f"M{x} {number}h{length}v1h-{length}z")
            x += length
    drawn = [
        element("path", d="".join(path), class_=f"{groups[group].colour} level{level}")
        for (group, level), path in sorted(paths.items(), reverse=True)
    ]
    return element(
        "g", *drawn, transform=f"translate({LEFT:g} {TOP:g}) scale({wide:.4f} {tall:.4f})"
    )


def _each_file(files: Files, column: Column, order: Sequence[int]) -> Table:
    """The range of each file and what happens to it."""
    return ("file", "least value", "greatest value", "what happens"), [
        (
            "" if files.names is None else files.names[column.files[at]],
            value_text(column.lower[at], column.type),
            value_text(column.upper[at], column.type),
            files.groups[files.group_of[column.files[at]]].text,
        )
        for at in order
    ]


def _parts_of_range(files: Files, column: Column, placed: Placed) -> Table:
    """How many files of each group begin in each part of the range."""
    begun = [[0] * len(files.groups) for _ in range(_TABLE_BINS)]
    least: list[Ordinal | None] = [None] * _TABLE_BINS
    greatest: list[Ordinal | None] = [None] * _TABLE_BINS
    for at, file in enumerate(column.files):
        part = cell(placed.low[at], _TABLE_BINS)
        begun[part][files.group_of[file]] += 1
        value = column.lower[at]
        if value is not None:
            low, high = least[part], greatest[part]
            least[part] = value if low is None else min(low, value)
            greatest[part] = value if high is None else max(high, value)
    headers = ("least value from", "to", *(group.text for group in files.groups))
    return headers, [
        (
            value_text(least[part], column.type),
            value_text(greatest[part], column.type),
            *begun[part],
        )
        for part in range(_TABLE_BINS)
        if any(begun[part])
    ]


# --- How many files hold a value, along the range of a column.


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
    texts = [f"{group.text}: at most {high:,}" for (group, _), high in zip(series, most)]
    return Figure(
        title,
        caption,
        [replace(group, text=text) for (group, _), text in zip(series, texts)],
        drawing(
            f"{title}: {', '.join(texts)}",
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
