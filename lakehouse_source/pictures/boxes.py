"""Pure. Files as rectangles: the range of one column by the range of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from lakehouse_source.pictures.frame import (
    INNER,
    LEFT,
    TOP,
    Figure,
    across,
    bar,
    bottom_axis,
    drawing,
)
from lakehouse_source.pictures.markup import Markup, element, joined, shortened
from lakehouse_source.pictures.ranges import (
    ASKED,
    MOST_EACH,
    SHARED,
    Column,
    Files,
    Placed,
    Table,
    cell,
    painted,
    placed_on,
    winners,
)
from lakehouse_source.pictures.scale import Scale

_GRID = (96, 48)


def boxes(files: Files, across_: Column, upward: Column) -> Figure:
    """Each file as a rectangle: its range of one column by its range of another."""
    columns = across_, upward
    known = {file: at for at, file in enumerate(upward.files)}
    both = [(at, known[file]) for at, file in enumerate(across_.files) if file in known]
    scales = across_.scale(), upward.scale()
    placed = placed_on(scales[0], across_), placed_on(scales[1], upward)
    height = 340.0
    first, second = (shortened(one.name, 40) for one in columns)
    if len(both) <= MOST_EACH:
        drawn = joined(*_rectangles(files, columns, placed, both, height))
        shared, (headers, rows) = "", _each_file(files, columns, both)
    else:
        drawn = _grid(files, across_, placed, both, height)
        shared, (headers, rows) = SHARED, _counts(files, across_, both)
    return Figure(
        f"Files over {first} and {second}",
        f"A rectangle is a file: its values of {first} from left to right, those of {second} "
        f"upwards. Small rectangles that do not overlap prune well by both.{shared}",
        [*files.legend(), *([ASKED] if across_.asked and upward.asked else [])],
        drawing(
            f"{len(both):,} files by {first} and {second}",
            height,
            _upright_axis(scales[1], height, second),
            bottom_axis(scales[0].ticks(INNER), height, first),
            *_asked(columns, scales, height),
            drawn,
        ),
        headers,
        rows,
    )


def _asked(
    columns: tuple[Column, Column], scales: tuple[Scale, Scale], height: float
) -> Iterator[Markup]:
    """The area with the values of both columns that the condition asks for."""
    sides, ups = (one.asked_on(scale) for one, scale in zip(columns, scales))
    if len(sides) * len(ups) <= MOST_EACH:
        for left, right in sides:
            for low, high in ups:
                x, y = across(left) - 2, TOP + (1 - high) * height - 2
                wide, tall = (right - left) * INNER + 4, (high - low) * height + 4
                yield bar(x, y, wide, tall, "asked")


def _upright_axis(scale: Scale, height: float, name: str) -> Markup:
    parts = []
    for tick in scale.ticks(height * 3):  # texts one above the other
        y = TOP + height - tick.at * height
        parts += [
            element("line", x1=LEFT, x2=LEFT + INNER, y1=y, y2=y, class_="grid"),
            element("text", shortened(tick.text, 10), x=LEFT - 8, y=y + 4, text_anchor="end"),
        ]
    middle = TOP + height / 2
    turned = f"rotate(-90 10 {middle:g})"
    label = element("text", name, x=10, y=middle, text_anchor="middle", class_="name",
                    transform=turned)  # fmt: skip
    return joined(*parts, label)


def _rectangles(
    files: Files,
    columns: tuple[Column, Column],
    placed: tuple[Placed, Placed],
    both: Sequence[tuple[int, int]],
    height: float,
) -> Iterator[Markup]:
    # Files of the first group are drawn last, above the others.
    def group(one: tuple[int, int]) -> int:
        return files.group_of[columns[0].files[one[0]]]

    for at, other in sorted(both, key=group, reverse=True):
        left, right = placed[0].low[at], placed[0].high[at]
        low, high = placed[1].low[other], placed[1].high[other]
        file = columns[0].files[at]
        label = "\n".join(
            [
                files.label(file),
                f"{shortened(columns[0].name, 40)}: {columns[0].text(at)}",
                f"{shortened(columns[1].name, 40)}: {columns[1].text(other)}",
            ]
        )
        yield bar(
            min(across(left), LEFT + INNER - 3),
            min(TOP + (1 - high) * height, TOP + height - 3),
            max(3.0, (right - left) * INNER),
            max(3.0, (high - low) * height),
            f"box {files.groups[files.group_of[file]].colour}",
            label,
        )


def _grid(
    files: Files,
    column: Column,
    placed: tuple[Placed, Placed],
    both: Sequence[tuple[int, int]],
    height: float,
) -> Markup:
    wide, tall = _GRID
    held = [[[0] * (wide + 1) for _ in range(tall + 1)] for _ in files.groups]
    x, y = placed
    for at, other in both:
        mine = held[files.group_of[column.files[at]]]
        left, right = cell(x.low[at], wide), cell(x.high[at], wide) + 1
        bottom, top = (tall - 1 - cell(one[other], tall) for one in (y.low, y.high))
        mine[top][left] += 1
        mine[top][right] -= 1
        mine[bottom + 1][left] -= 1
        mine[bottom + 1][right] += 1
    summed = []
    for mine in held:
        columns = [list(accumulate(one)) for one in zip(*mine)]  # downwards
        summed.append([list(accumulate(one)) for one in zip(*columns)])
    most = max(sum(one[row][at] for one in summed) for row in range(tall) for at in range(wide))
    rows = [winners([one[row][:wide] for one in summed], most) for row in range(tall)]
    return painted(files.groups, rows, INNER / wide, height / tall)


def _each_file(
    files: Files, columns: tuple[Column, Column], both: Sequence[tuple[int, int]]
) -> Table:
    """Both ranges of each file and what happens to it."""
    first, second = columns
    return ("file", first.name, second.name, "what happens"), [
        (
            "" if files.names is None else files.names[first.files[at]],
            first.text(at),
            second.text(other),
            files.groups[files.group_of[first.files[at]]].text,
        )
        for at, other in both
    ]


def _counts(files: Files, column: Column, both: Sequence[tuple[int, int]]) -> Table:
    """The number of files of each group."""
    counts = [0] * len(files.groups)
    for at, _ in both:
        counts[files.group_of[column.files[at]]] += 1
    rows = [(count, group.text) for count, group in zip(counts, files.groups) if count]
    return ("files", "what happens"), rows
