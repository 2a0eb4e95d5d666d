"""Pure. How far the ranges of files overlap.

The depth of a point is how many files' ranges hold it, both ends included: so many files a query
for that value has to read. The depth of a table is the average over the ends of its files' ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

# Points at which files with ranges of several columns are counted: at most so many, and fewer
# where the comparisons of all files with each would take long.
MOST_POINTS = 1000
_COMPARISONS = 50_000_000


@dataclass(frozen=True, slots=True)
class Depth:
    """The overlap of files: the average depth, the greatest one, and the files of each depth.

    `histogram` has, by depths 1, 2, 4, 8 and so on, how many files begin (with several columns:
    lie) at a point of at most that depth and of more than half of it.
    """

    files: int = 0
    average: float = 0.0
    most: int = 0
    histogram: Mapping[int, int] = field(default_factory=dict)


def depth_of_ranges(lower: pa.Array, upper: pa.Array, groups: pa.Array | None = None) -> Depth:
    """The depth of ranges from `lower` to `upper`; those of different groups never overlap.

    No lower end is above its upper end. `groups` are integers.
    """
    count = len(lower)
    if not count:
        return Depth()
    ones, zeros = (pa.repeat(pa.scalar(value, pa.int64()), count) for value in (1, 0))
    groups = zeros if groups is None else groups
    ends = pa.table(
        {
            "group": pa.chunked_array([groups, groups]),
            "at": pa.chunked_array([lower, upper]),
            "begins": pa.chunked_array([ones, zeros]),
            "ends": pa.chunked_array([zeros, ones]),
        }
    )
    del ones, zeros
    points = ends.group_by(["group", "at"]).aggregate([("begins", "sum"), ("ends", "sum")])
    points = points.sort_by([("group", "ascending"), ("at", "ascending")])
    del ends
    begins, ending = points["begins_sum"], points["ends_sum"]
    before = pc.subtract(pc.cumulative_sum(ending), ending)
    depths = pc.subtract(pc.cumulative_sum(begins), before)
    weighted = pc.multiply(depths, pc.add(begins, ending))
    return Depth(
        count,
        pc.sum(weighted).as_py() / (2 * count),
        pc.max(depths).as_py(),
        _histogram(depths, begins),
    )


def depth_of_boxes(
    columns: Sequence[tuple[pa.Array, pa.Array]], groups: pa.Array | None = None
) -> Depth:
    """The depth of files with a range of each of several columns.

    The point of a file is the middle of its ranges. At most `MOST_POINTS` files are taken, evenly
    spread; `histogram` and `average` are of these.
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
    found = pc.rank(pa.concat_arrays([lower, upper]), tiebreaker="dense").cast(pa.int64())
    return found.slice(0, len(lower)), found.slice(len(lower))


def _histogram(depths: pa.Array, weights: pa.Array) -> dict[int, int]:
    """How many files have which depth; the keys are powers of two."""
    power = pc.ceil(pc.log2(pc.cast(depths, pa.float64())))
    table = pa.table({"power": pc.cast(power, pa.int64()), "files": weights})
    summed = table.group_by("power").aggregate([("files", "sum")]).sort_by("power").to_pylist()
    return {2 ** row["power"]: row["files_sum"] for row in summed if row["files_sum"]}
