"""Pure. Which rows of two tables have the same values, as a reader would print them.

NULL is equal to NULL and NaN to NaN. -0.0 and 0.0 are different values. Columns may be nested.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.schema.fields import children
from lakehouse_source.schema.nested_arrays import entries

_BITS = {pa.float16(): pa.uint16(), pa.float32(): pa.uint32(), pa.float64(): pa.uint64()}


def equal_rows(left: pa.Table, right: pa.Table) -> pa.BooleanArray:
    """For each row: whether both tables have the same values.

    The tables have equal schemas and equally many rows.
    """
    found = _constant(True, left.num_rows)
    for mine, theirs in zip(left.columns, right.columns):
        found = pc.and_(found, _equal(_one(mine), _one(theirs)))
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


def _constant(value: bool, count: int) -> pa.BooleanArray:
    return pa.nulls(count, pa.bool_()).fill_null(value)


def _equal(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    type_ = left.type
    if isinstance(type_, pa.BaseExtensionType):
        return _equal(left.storage, right.storage)
    if pa.types.is_null(type_):
        return _constant(True, len(left))
    both_null = pc.and_(left.is_null(), right.is_null())
    return pc.or_(both_null, pc.and_(_same_validity(left, right), _values_equal(left, right)))


def _same_validity(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    return pc.equal(left.is_valid(), right.is_valid())


def _values_equal(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """As `_equal`, for rows where neither is NULL; other rows get any value except NULL."""
    t, type_ = pa.types, left.type
    if t.is_struct(type_):
        found = _constant(True, len(left))
        for number in range(type_.num_fields):
            found = pc.and_(
                found,
                _equal(pc.struct_field(left, [number]), pc.struct_field(right, [number])),
            )
        return found
    if children(type_):
        return _lists_equal(entries(left), entries(right))
    if t.is_floating(type_):
        left, right = _as_bits(left), _as_bits(right)
    return pc.fill_null(pc.equal(left, right), False)


def _as_bits(values: pa.Array) -> pa.Array:
    """The bits of floats, with the same bits for every NaN."""
    nan = pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.is_nan(values), nan, values).view(_BITS[values.type])


def _lists_equal(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    lengths = [pc.fill_null(pc.list_value_length(one), -1) for one in (left, right)]
    same_length = pc.equal(*lengths)
    if not pc.any(same_length).as_py():
        return same_length
    mine, theirs = left.filter(same_length), right.filter(same_length)
    items = _equal(mine.flatten(), theirs.flatten())
    # Items of a list are equal if as many items differ up to its end as up to its begin.
    differing = pc.cumulative_sum(pc.invert(items).cast(pa.int64()))
    zero = pa.array([0], pa.int64())
    counts = pa.concat_arrays([zero, differing])
    sizes = pc.if_else(mine.is_valid(), pc.list_value_length(mine), 0).cast(pa.int64())
    ends = pc.cumulative_sum(sizes)
    begins = pc.subtract(ends, sizes)
    equal = pc.equal(counts.take(begins), counts.take(ends))
    # Back to the places of all rows.
    places = pc.subtract(pc.cumulative_sum(same_length.cast(pa.int64())), 1)
    return pc.and_(same_length, equal.take(pc.max_element_wise(places, 0)))
