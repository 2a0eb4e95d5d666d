"""Pure. The order of rows by which a dataset is clustered.

For one column this is the column's order: NULL first, NaN last, -0.0 as 0.0. For several columns
this is the order of the Hilbert curve through the ranks of the values. A value's rank is its place
among at most `BOUNDARIES` values, which divide a sample of the column into equal parts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.layout.curve import hilbert_keys

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
