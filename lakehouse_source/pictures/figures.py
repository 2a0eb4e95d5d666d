"""Pure. Bars for parts of a whole, and files as rectangles over the ranges of two columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

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
from lakehouse_source.pictures.scale import CHARACTER, Scale, Tick, counted, size_text

# --- Bars: the part of a whole that is read, sizes of files, and what each version changed.


_MOST_VERSIONS = 80


@dataclass(frozen=True, slots=True)
class Share:
    """The size of something, and the part that is read."""

    name: str
    total: int
    read: int
    is_bytes: bool = False

    def text(self) -> str:
        """Both figures, and the share."""
        show = size_text if self.is_bytes else "{:,}".format
        share = 100 * self.read / self.total if self.total else 0.0
        shown = f"{share:.0f} %" if share >= 10 or not share else f"{share:.2g} %"
        return f"{show(self.read)} of {show(self.total)} ({shown})"


def shares(title: str, caption: str, some: Sequence[Share]) -> Figure:
    """A bar for each whole, and in it the part that is read."""
    step, thick, left, wide = 34.0, 14.0, 110.0, 500.0
    parts = []
    for number, one in enumerate(some):
        y = TOP + number * step
        share = one.read / one.total if one.total else 0.0
        label = f"{one.name}: {one.text()} to read"
        parts += [
            element("text", one.name, x=left - 10, y=y + 12, text_anchor="end"),
            bar(left, y, wide, thick, "rest", label),
            bar(left, y, max(share * wide, 2.0 if one.read else 0.0), thick, "read", label),
            element("text", one.text(), x=left + wide + 12, y=y + 12, class_="strong"),
        ]
    return Figure(
        title,
        caption,
        (),
        drawing(title, len(some) * step - 54, *parts),
        ("", "total", "to read", "left out"),
        [(one.name, one.total, one.read, one.total - one.read) for one in some],
    )


def sizes(files: Sequence[int], of_first: Sequence[bool], first: Group, others: Group) -> Figure:
    """The number of files by size; in each bar the files that `of_first` marks are below."""
    powers = [max(0, (size - 1).bit_length()) if size > 0 else 0 for size in files]
    low, high = min(powers, default=0), max(powers, default=0)
    width = 1 if high - low < 16 else 2
    count = (high - low) // width + 1
    found = [[0, 0] for _ in range(count)]
    for power, is_first in zip(powers, of_first):
        found[(power - low) // width][0 if is_first else 1] += 1
    height = 150.0
    up = counted(1.14 * max((sum(one) for one in found), default=1))  # room for numbers above
    slot = INNER / max(count, 6)
    start = LEFT + (INNER - slot * count) / 2
    parts = [left_axis(up, height)]
    rows: list[tuple[str, int, int]] = []
    every = max(1, round(70 / slot))  # labels side by side
    for number, (mine, other) in enumerate(found):
        limit = f"up to {size_text(2 ** (low + width * (number + 1) - 1))}"
        x, total = start + number * slot, mine + other
        rows.append((limit, mine, other))
        tall, lower = up.place(total) * height, up.place(mine) * height
        label = f"{limit}: {total:,} files"
        parts += [
            bar(x + 4, TOP + height - tall, slot - 8, tall - lower, others.colour, label),
            bar(x + 4, TOP + height - lower, slot - 8, lower, first.colour, label),
        ]
        middle = x + slot / 2
        if total and (slot > 50 or count <= 12):
            y = TOP + height - tall - 4
            parts.append(
                element("text", f"{total:,}", x=middle, y=max(y, 10), text_anchor="middle")
            )
        if number % every == 0:
            short = limit.removeprefix("up to ")
            parts.append(
                element("text", short, x=middle, y=TOP + height + 17, text_anchor="middle")
            )
    base = TOP + height
    parts += [
        element("line", x1=LEFT, x2=LEFT + INNER, y1=base, y2=base, class_="axis"),
        element("text", "at most so large", x=LEFT + INNER / 2, y=base + 34,
                text_anchor="middle", class_="name"),
    ]  # fmt: skip
    totals = [sum(column) for column in zip(*found)] or [0, 0]
    legend = [
        Group(one.colour, f"{one.text}: {number:,} {'file' if number == 1 else 'files'}")
        for one, number in zip((first, others), totals)
        if number
    ]
    return Figure(
        "Sizes of files",
        f"{len(files):,} files by their bytes.",
        legend,
        drawing(f"{len(files):,} files by their sizes", height + 6, *parts),
        ("size", first.text, others.text),
        rows,
    )


@dataclass(frozen=True, slots=True)
class Version:
    """What a commit did. `live` counts the rows after the commit; None: unknown."""

    version: int
    at: datetime
    operation: str
    added: int
    removed: int
    live: int | None


def versions(commits: Sequence[Version]) -> Figure:
    """Rows that each commit added and removed, and those of the version; the oldest first."""
    bins = _binned(commits)
    height, gap, above = 210.0, 26.0, 70.0
    live = [max((one.live or 0 for one in some), default=0) for some in bins]
    added = [sum(one.added for one in some) for some in bins]
    removed = [sum(one.removed for one in some) for some in bins]
    slot = INNER / max(len(bins), 1)
    up = counted(max(live, default=1))
    down = counted(max([*added, *removed, 1]))
    half = (height - above - gap) / 2
    middle = TOP + above + gap + half
    parts = [
        bottom_axis(_when(bins, slot), height, "version and time (UTC)"),
        left_axis(up, above),
        element("text", "rows of the version", x=LEFT, y=TOP - 1, class_="name"),
        element("line", x1=LEFT, x2=LEFT + INNER, y1=TOP + above, y2=TOP + above, class_="axis"),
        element("text", "rows added and removed", x=LEFT, y=TOP + above + gap - 7, class_="name"),
        _both_ways(down.ticks(half), half, middle),
    ]
    for number, some in enumerate(bins):
        x, thick = LEFT + number * slot, min(46.0, slot * 0.72)
        x += (slot - thick) / 2
        plus, minus, all_rows = added[number], removed[number], live[number]
        label = _label(some, plus, minus)
        tall = up.place(all_rows) * above
        parts += [
            bar(x, TOP + above - tall, thick, tall, "rest", f"{label}\n{all_rows:,} rows"),
            bar(
                x, middle - down.place(plus) * half, thick, down.place(plus) * half, "added", label
            ),
            bar(x, middle, thick, down.place(minus) * half, "removed", label),
        ]
    parts.append(element("line", x1=LEFT, x2=LEFT + INNER, y1=middle, y2=middle, class_="axis"))
    return Figure(
        "Versions",
        f"{len(commits):,} commits, the oldest on the left"
        + ("." if len(bins) == len(commits) else f", gathered into {len(bins)} bars."),
        [Group("added", f"rows added: {sum(added):,}"),
         Group("removed", f"rows removed: {sum(removed):,}"),
         Group("rest", "rows of the version")],
        drawing(
            f"Rows that {len(commits):,} commits added and removed",
            height,
            *parts,
        ),
        ("version", "time (UTC)", "operation", "rows added", "rows removed", "rows"),
        [
            (str(one.version), f"{one.at:%Y-%m-%d %H:%M:%S}", one.operation, one.added,
             one.removed, one.live)
            for one in reversed(commits)
        ],
    )  # fmt: skip


def _binned(commits: Sequence[Version]) -> list[Sequence[Version]]:
    count = min(len(commits), _MOST_VERSIONS)
    edges = [number * len(commits) // count for number in range(count)] if count else []
    return [commits[a:b] for a, b in zip(edges, [*edges[1:], len(commits)])]


def _label(some: Sequence[Version], plus: int, minus: int) -> str:
    first, last = some[0], some[-1]
    name = f"version {first.version}" if len(some) == 1 else (
        f"versions {first.version} to {last.version}"
    )  # fmt: skip
    done = first.operation if len(some) == 1 else f"{len(some):,} commits"
    return f"{name}, {last.at:%Y-%m-%d %H:%M:%S}\n{done}\n+{plus:,} −{minus:,} rows"


def _both_ways(ticks: Sequence[Tick], half: float, middle: float) -> Markup:
    parts = []
    for tick in ticks:
        for sign in (-1, 1) if tick.at else (1,):
            y = middle + sign * tick.at * half
            parts += [
                element("line", x1=LEFT, x2=LEFT + INNER, y1=y, y2=y, class_="grid"),
                element("text", tick.text, x=LEFT - 8, y=y + 4, text_anchor="end"),
            ]
    return joined(*parts)


def _when(bins: Sequence[Sequence[Version]], slot: float) -> list[Tick]:
    """The version and time of as many bars as have room side by side."""
    found: list[Tick] = []
    reached = -INNER
    for number, some in enumerate(bins):
        one = some[-1]
        text = f"{one.version} · {one.at:%Y-%m-%d %H:%M}"
        at = (number + 0.5) * slot
        half = len(text) * CHARACTER / 2
        begin = min(max(across(at / INNER) - half, 2.0), LEFT + INNER)
        if begin > reached + 14:
            found.append(Tick(at / INNER, text))
            reached = begin + 2 * half
    return found


# --- Files as rectangles: the range of one column by the range of another.


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
        [*files.legend(), *([ASKED] if across_.condition and upward.condition else [])],
        drawing(
            f"{len(both):,} files by {first} and {second}",
            height,
            _upright_axis(scales[1], height, second),
            bottom_axis(scales[0].ticks(INNER), height, first),
            *_condition_marks(columns, scales, height),
            drawn,
        ),
        headers,
        rows,
    )


def _condition_marks(
    columns: tuple[Column, Column], scales: tuple[Scale, Scale], height: float
) -> Iterator[Markup]:
    """The area with the values of both columns that the condition asks for."""
    sides, ups = (one.condition_spans(scale) for one, scale in zip(columns, scales))
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
