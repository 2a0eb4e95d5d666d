"""Pure. The layout of rows: their order by several columns, and how far files overlap.

Works on Arrow arrays. Knows neither files nor the catalog.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# --- The Hilbert curve through a grid of two to four columns.
#
# Cells that follow each other on the curve are neighbours in the grid, so rows that lie together on
# it have similar values in every column.
#
# Source: J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).


def hilbert_keys(cells: Sequence[pa.Array], bits: int) -> pa.Array:
    """The places on the curve of cells of a cube with 2^`bits` cells along each side.

    `cells` has the coordinates, an array of integers for each dimension, at least two. The result
    are integers of 64 bits: `bits` is at most 14, and times the number of dimensions below 64.
    """
    axes = [cell.cast(_NARROW) for cell in cells]
    last = len(axes) - 1
    for bit in range(bits - 1, 0, -1):
        below = _number((1 << bit) - 1)
        for place in range(len(axes)):
            is_set = _bit(axes[place], bit)
            swapped = pc.bit_wise_and(pc.bit_wise_xor(axes[0], axes[place]), below)
            swapped = pc.multiply(swapped, pc.bit_wise_xor(is_set, _number(1)))
            axes[0] = pc.bit_wise_xor(axes[0], swapped)
            axes[place] = pc.bit_wise_xor(axes[place], swapped)
            axes[0] = pc.bit_wise_xor(axes[0], pc.multiply(is_set, below))
    for place in range(1, len(axes)):
        axes[place] = pc.bit_wise_xor(axes[place], axes[place - 1])
    turned = pc.multiply(axes[0], _number(0))
    for bit in range(bits - 1, 0, -1):
        below = _number((1 << bit) - 1)
        turned = pc.bit_wise_xor(turned, pc.multiply(_bit(axes[last], bit), below))
    spread = _spread(bits, len(axes))
    key = None
    for axis in axes:
        mine = spread.take(pc.bit_wise_xor(axis, turned))
        key = mine if key is None else pc.bit_wise_or(pc.shift_left(key, 1), mine)
    return key


# Coordinates are short, so that the processor works on many at once.
_NARROW = pa.int16()


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, _NARROW)


def _bit(numbers: pa.Array, bit: int) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(numbers, _number(bit)), _number(1))


@lru_cache
def _spread(bits: int, dimensions: int) -> pa.Array:
    """Each coordinate with as many zeros behind each of its bits as there are other dimensions."""
    return pa.array(
        [
            sum((value >> bit & 1) << bit * dimensions for bit in range(bits))
            for value in range(1 << bits)
        ],
        pa.int64(),
    )


# --- The order of rows by which a dataset is clustered.
#
# For one column this is the column's order: NULL first, NaN last, -0.0 as 0.0. For several columns
# this is the order of the Hilbert curve through the ranks of the values. A value's rank is its
# place among at most `BOUNDARIES` values, which divide a sample of the column into equal parts.


MOST_COLUMNS = 4
_BITS = 10
# Rank 0 is NULL, so that all ranks have 10 bits.
BOUNDARIES = (1 << _BITS) - 2
_LOWEST = -(1 << 63)


def comparable(column: pa.Array) -> pa.Array:
    """Integers or bytes that compare as the values do; NULL stays NULL.

    Different values may become equal: decimals of more than 15 digits. The order of two values is
    never reversed.
    """
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return comparable(column.dictionary_decode())
    if pa.types.is_decimal(type_) or pa.types.is_floating(type_):
        return _of_floats(pc.cast(column, pa.float64(), safe=False))
    if pa.types.is_boolean(type_):
        return column.cast(pa.int64())
    if type_ == pa.uint64():
        return pc.bit_wise_xor(column.view(pa.int64()), _LOWEST)
    if pa.types.is_integer(type_):
        return column.cast(pa.int64())
    if pa.types.is_temporal(type_):
        return column.view(pa.int32() if type_.bit_width == 32 else pa.int64()).cast(pa.int64())
    return column.cast(pa.large_binary())


def _of_floats(column: pa.Array) -> pa.Array:
    """The bits of a double; the bits of a negative double are inverted."""
    bits = pc.add(column, 0.0).view(pa.int64())  # -0.0 + 0.0 is 0.0
    ordered = pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, (1 << 63) - 1), bits)
    return pc.if_else(pc.is_nan(column), pa.scalar((1 << 63) - 1, pa.int64()), ordered)


def boundaries(sample: pa.Array, most: int = BOUNDARIES) -> pa.Array:
    """At most `count` distinct values that divide a sample of `comparable` into equal parts."""
    values = sample.drop_null()
    values = values.take(pc.sort_indices(values))
    count = min(most, len(values))
    places = [(2 * number + 1) * len(values) // (2 * count) for number in range(count)]
    return pc.unique(values.take(pa.array(places, pa.int64())))


def places(values: pa.Array, among: pa.Array, *, after_equal: bool) -> pa.Array:
    """The number of the ascending boundary that follows each value; NULL stays NULL.

    A value that equals a boundary stands after the boundary, or before it.
    """
    side = "right" if after_equal else "left"
    if hasattr(pc, "search_sorted"):
        return pc.search_sorted(among, values, side=side).cast(pa.int64())
    # For PyArrow 24 and 25: computed from the ranks among the distinct values of both.
    both = pa.concat_arrays([among, values])
    ranks = pc.rank(both, tiebreaker="dense").cast(pa.int64())
    steps = ranks.slice(0, len(among))
    own = ranks.slice(len(among)).to_pylist()
    find, known = (bisect_right if after_equal else bisect_left), steps.to_pylist()
    found = pa.array([find(known, rank) for rank in own], pa.int64())
    return pc.if_else(pc.is_valid(values), found, None)


@dataclass(frozen=True, slots=True)
class Curve:
    """An order by several columns: the boundaries of each column, which give ranks to values."""

    boundaries: tuple[pa.Array, ...]

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> Curve:
        """The order for rows, from a sample of their columns."""
        return cls(tuple(boundaries(comparable(column)) for column in columns))

    def keys(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The place on the curve of each row."""
        ranks = []
        for column, among in zip(columns, self.boundaries):
            rank = pc.add(places(comparable(column), among, after_equal=True), 1)
            ranks.append(pc.fill_null(rank, 0))
        return hilbert_keys(ranks, _BITS)


def row_keys(columns: Sequence[pa.Array], curve: Curve | None) -> pa.Array:
    """The sort key of rows, NULL first: values that compare, or places on a curve."""
    if curve is None:
        return comparable(columns[0])
    return curve.keys(columns)


def sorted_places(columns: Sequence[pa.Array], curve: Curve | None) -> pa.Array:
    """The places of the rows in their order; equal rows keep their order.

    For one column without a curve, decimals of any length have their exact order.
    """
    if curve is None and pa.types.is_decimal(columns[0].type):
        keys = columns[0]
    else:
        keys = row_keys(columns, curve)
    order = pc.sort_indices(keys)  # stable, NULL last
    rest = len(keys) - keys.null_count
    return pa.concat_arrays([order.slice(rest), order.slice(0, rest)])


# --- How far the ranges of files overlap.
#
# The depth of a point is the number of files whose ranges hold the point, both ends included: a
# query for this value has to read this many files. The depth of a table is the average over the
# ends of its files' ranges.


# The most points at which files with ranges of several columns are counted; there are fewer if
# comparing all files with each point would take long.
MOST_POINTS = 1000
_COMPARISONS = 50_000_000
_WORD = 8  # bytes of an integer
_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


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
    begins, ends = _apart(lower, upper, groups)
    begins.sort()
    ends.sort()
    # A range holds a point if it begins up to there and does not end before.
    at_begins, at_ends = (
        np.searchsorted(begins, points, "right") - np.searchsorted(ends, points, "left")
        for points in (begins, ends)
    )
    return Depth(
        count,
        (int(at_begins.sum()) + int(at_ends.sum())) / (2 * count),
        int(max(at_begins.max(), at_ends.max())),
        _histogram(pa.array(at_begins), pa.repeat(pa.scalar(1, pa.int64()), count)),
    )


def _apart(lower: pa.Array, upper: pa.Array, groups: pa.Array | None) -> tuple[_Numbers, _Numbers]:
    """Both ends of ranges as integers that compare as the ends do, those of each group apart."""
    both = _numbers(lower, upper) or _numbered(*ranks(lower, upper))
    if groups is None:
        return both
    least, own = min(one.min() for one in both), groups.to_numpy().astype(np.uint64)
    span = int(max(one.max() for one in both) - least) + 1
    if span * (int(own.max()) + 1) >= 1 << 64:
        both = _numbered(*ranks(*map(pa.array, both)))
        least, span = np.uint64(0), 2 * len(lower) + 1
    own *= np.uint64(span)
    own -= least
    for one in both:
        one += own
    return both


def _numbered(lower: pa.Array, upper: pa.Array) -> tuple[_Numbers, _Numbers]:
    return np.array(lower, np.uint64), np.array(upper, np.uint64)


def _numbers(lower: pa.Array, upper: pa.Array) -> tuple[_Numbers, _Numbers] | None:
    """Byte keys as integers, which are sorted in a tenth of the time.

    None: the keys are too long, or have different lengths.
    """
    sizes = {
        size
        for one in (lower, upper)
        for size in pc.min_max(pc.binary_length(one)).as_py().values()
    }
    if len(sizes) > 1 or 0 in sizes:
        return None
    (size,) = sizes
    found, prefixes = [], set()
    for one in (lower, upper):
        data = np.frombuffer(one.buffers()[2], np.uint8)[one.offset * size :]
        data = data[: len(one) * size].reshape(-1, size)
        apart = max(0, size - _WORD)
        if (data[:, :apart] != data[0, :apart]).any():
            return None
        prefixes.add(bytes(data[0, :apart]))
        words = np.zeros((len(one), _WORD), np.uint8)
        words[:, _WORD + apart - size :] = data[:, apart:]
        found.append(words.view(">u8").ravel().astype(np.uint64))
    return (found[0], found[1]) if len(prefixes) == 1 else None


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


# --- Which files of a partition to sort together, so that few files hold the same value.
#
# Files of one sort, whose ranges do not overlap, are a run. A value is in about one file of each
# run, so the number of runs that hold the value counts. If more than `MOST_RUNS` runs hold it, the
# smallest of them are sorted into one. A larger run is included if it is at most `SIZE_RATIO` times
# as large as the smaller ones together: rows then move to growing runs, and are rewritten few
# times. With 40 overlapping appends of equal size, each row is rewritten 2.6 times.
#
# Source: for the trade between runs and rewrites, Mathieu, Staelin, Young, Yousefi, "Bigtable merge
# compaction" (2014), and RocksDB's universal compaction.


MOST_RUNS = 4
SIZE_RATIO = 1.5
# Runs are counted at values of this many files without a run, and of this many other files.
_POINTS = 500


@dataclass(frozen=True, slots=True)
class PlacedFiles:
    """Files of one partition, each with its bytes, run, and ranges of the clustering columns.

    `runs` are equal for files of one run, and negative for a file without a run. `lower` and
    `upper` have an array of integers for each column.
    """

    sizes: Sequence[int]
    runs: Sequence[int]
    lower: Sequence[pa.Array]
    upper: Sequence[pa.Array]

    def holding(self, point: Sequence[int]) -> pa.Array:
        """Whether each file's ranges hold a value of each column."""
        held = None
        for low, high, at in zip(self.lower, self.upper, point):
            both = pc.and_(pc.less_equal(low, at), pc.greater_equal(high, at))
            held = both if held is None else pc.and_(held, both)
        return held


def merges(files: PlacedFiles) -> Iterator[list[int]]:
    """Sets of files to sort together, as places; the deepest overlap comes first.

    The sets are disjoint. If they leave overlap, another look after the sort finds it.
    """
    bytes_of: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for place, run in enumerate(files.runs):
        bytes_of[run] = bytes_of.get(run, 0) + files.sizes[place]
        members.setdefault(run, []).append(place)
    counted = []
    for point in _points(files):
        count = pc.sum(files.holding(point)).as_py()
        if count > MOST_RUNS:
            counted.append((count, point))
    taken: set[int] = set()
    for _, point in sorted(counted, reverse=True):
        places = pc.indices_nonzero(files.holding(point)).to_pylist()
        runs = {files.runs[place] for place in places if place not in taken}
        if len(runs) <= MOST_RUNS:
            continue
        ascending = sorted(runs, key=lambda run: (bytes_of[run], run))
        chosen = _chosen(ascending, bytes_of)
        found = _overlapping(files, chosen, members, taken)
        taken.update(found)
        yield found


def _chosen(ascending: Sequence[int], bytes_of: dict[int, int]) -> Sequence[int]:
    """The smallest runs, so that at most `MOST_RUNS` are left, and runs of similar size."""
    count = len(ascending) - MOST_RUNS + 1
    size = sum(bytes_of[run] for run in ascending[:count])
    while count < len(ascending) and bytes_of[ascending[count]] <= SIZE_RATIO * size:
        size += bytes_of[ascending[count]]
        count += 1
    return ascending[:count]


def _overlapping(
    files: PlacedFiles, chosen: Sequence[int], members: dict[int, list[int]], taken: set[int]
) -> list[int]:
    """The files of the chosen runs; of the largest run, only files that overlap the others."""
    *smaller, largest = chosen
    found = [place for run in smaller for place in members[run] if place not in taken]
    own = [place for place in members[largest] if place not in taken]
    inside = pa.repeat(pa.scalar(True), len(own))
    for low, high in zip(files.lower, files.upper):
        least, most = pc.min(low.take(found)).as_py(), pc.max(high.take(found)).as_py()
        beside = pc.and_(
            pc.less_equal(low.take(own), most), pc.greater_equal(high.take(own), least)
        )
        inside = pc.and_(inside, beside)
    return sorted([*found, *(place for place, is_in in zip(own, inside.to_pylist()) if is_in)])


def _points(files: PlacedFiles) -> list[tuple[int, ...]]:
    """The lower corner and the middle of files; files without a run, which overlap, come first."""
    single = [place for place, run in enumerate(files.runs) if run < 0]
    others = [place for place, run in enumerate(files.runs) if run >= 0]
    chosen = pa.array([*_each_place(single), *_each_place(others)], pa.int64())
    lower = [low.take(chosen) for low in files.lower]
    middle = [
        pc.shift_right(pc.add(low.take(chosen), high.take(chosen)), 1)
        for low, high in zip(files.lower, files.upper)
    ]
    corners = zip(*(one.to_pylist() for one in lower))
    return list(dict.fromkeys([*corners, *zip(*(one.to_pylist() for one in middle))]))


def _each_place(places: Sequence[int]) -> list[int]:
    count = min(len(places), _POINTS)
    return [places[number * len(places) // count] for number in range(count)]
