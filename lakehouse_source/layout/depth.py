"""Pure. How far the ranges of files overlap.

The depth of a point is the number of files whose ranges hold the point, both ends included: a query
for this value has to read this many files. The depth of a table is the average over the ends of its
files' ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

# The most points at which files with ranges of several columns are counted; there are fewer if
# comparing all files with each point would take long.
MOST_POINTS = 1000
_COMPARISONS = 50_000_000


@dataclass(frozen=True, slots=True)
class Depth:
    """The overlap of files: the average depth, the greatest one, and the files of each depth.

    `histogram` has, for the depths 1, 2, 4, 8 and so on, how many files begin (with several
    columns: lie) at a point of at most this depth and of more than half of it.
    """

    files: int = 0
    average: float = 0.0
    most: int = 0
    histogram: Mapping[int, int] = field(default_factory=dict)


def depth_of_ranges(lower: pa.Array, upper: pa.Array, groups: pa.Array | None = None) -> Depth:
    """The depth of ranges from `lower` to `upper`; ranges of different groups never overlap.

    No lower end is above its upper end. `groups` are integers.
    """
    count = len(lower)
    if not count:
        return Depth()
    # Ranks are grouped and sorted, not the keys of the index: these are bytes, which take several
    # times the time and memory.
    ends = _ranked(lower, upper)
    if groups is not None:
        apart = pc.multiply(groups, 2 * count + 1)
        ends = pc.add(ends, pa.concat_arrays([apart, apart]))
        del apart
    order = pc.array_sort_indices(ends)
    ends = ends.take(order)
    # The last end at each point says how many ranges begin and end up to there.
    others = pc.not_equal(ends.slice(1), ends.slice(0, 2 * count - 1))
    last = pa.concat_arrays([others, pa.repeat(pa.scalar(True), 1)])
    del ends, others
    begun = pc.cumulative_sum(pc.less(order, count).cast(pa.int64()))
    places = pc.indices_nonzero(last)
    begun = begun.take(places)
    ended = pc.subtract(pc.add(places.cast(pa.int64()), 1), begun)
    del order, places, last
    begins, ending = pc.subtract(begun, _before(begun)), pc.subtract(ended, _before(ended))
    depths = pc.subtract(begun, _before(ended))
    weighted = pc.multiply(depths, pc.add(begins, ending))
    return Depth(
        count,
        pc.sum(weighted).as_py() / (2 * count),
        pc.max(depths).as_py(),
        _histogram(depths, begins),
    )


def _before(sums: pa.Array) -> pa.Array:
    """For each point, the sum at the point before."""
    return pa.concat_arrays([pa.array([0], pa.int64()), sums.slice(0, len(sums) - 1)])


def depth_of_boxes(
    columns: Sequence[tuple[pa.Array, pa.Array]], groups: pa.Array | None = None
) -> Depth:
    """The depth of files with a range of each of several columns.

    The point of a file is the middle of its ranges. At most `MOST_POINTS` files, evenly spread, are
    used for `histogram` and `average`.
    """
    count = len(columns[0][0])
    if not count:
        return Depth()
    ranked = [ranks(lower, upper) for lower, upper in columns]
    points = max(1, min(count, MOST_POINTS, _COMPARISONS // count))
    chosen = pa.array([position * count // points for position in range(points)], pa.int64())
    middles = [
        pc.shift_right(pc.add(low, high), 1).take(chosen).to_pylist() for low, high in ranked
    ]
    own = [None] * points if groups is None else groups.take(chosen).to_pylist()
    found = []
    for group, *middle in zip(own, *middles):
        held = None if group is None else pc.equal(groups, group)
        for (low, high), at in zip(ranked, middle):
            both = pc.and_(pc.less_equal(low, at), pc.greater_equal(high, at))
            held = both if held is None else pc.and_(held, both)
        found.append(pc.sum(held).as_py())
    depths = pa.array(found, pa.int64())
    ones = pa.repeat(pa.scalar(1, pa.int64()), points)
    return Depth(count, sum(found) / points, max(found), _histogram(depths, ones))


def ranks(lower: pa.Array, upper: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both ends of ranges as integers that compare as the ends do."""
    found = _ranked(lower, upper)
    return found.slice(0, len(lower)), found.slice(len(lower))


def _ranked(lower: pa.Array, upper: pa.Array) -> pa.Array:
    return pc.rank(pa.chunked_array([lower, upper]), tiebreaker="dense").view(pa.int64())


def _histogram(depths: pa.Array, weights: pa.Array) -> dict[int, int]:
    """The number of files by depth; the keys are powers of two."""
    power = pc.ceil(pc.log2(pc.cast(depths, pa.float64())))
    table = pa.table({"power": pc.cast(power, pa.int64()), "files": weights})
    summed = table.group_by("power").aggregate([("files", "sum")]).sort_by("power").to_pylist()
    return {2 ** row["power"]: row["files_sum"] for row in summed if row["files_sum"]}
