"""Pure. Finds values that Arrow's safe cast changes without an error.

Arrow itself checks integers, decimals, times and units of timestamps. It does not check whether a
float is rounded to a narrower one, or a moment is cut to its day. Such casts are only needed for a
file that is read under an older schema: its rows were written after a promotion, and a restore took
the promotion back.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.schema.fields import children
from lakehouse_source.schema.nested_arrays import entries


def changed_value(column: pa.ChunkedArray, done: pa.ChunkedArray) -> pa.Scalar | None:
    """The first value of a column that the cast changes; None: there is none."""
    if not _may_change(column.type, done.type):
        return None
    return _changed(column.combine_chunks(), done.combine_chunks())


def _may_change(source: pa.DataType, target: pa.DataType) -> bool:
    t = pa.types
    below = {child.name: child.type for child in children(source)}
    if below:
        return any(
            _may_change(below[child.name], child.type)
            for child in children(target)
            if child.name in below
        )
    if t.is_floating(source) and t.is_floating(target):
        return bool(target.bit_width < source.bit_width)
    return bool(t.is_timestamp(source) and t.is_date(target))


def _changed(before: pa.Array, after: pa.Array) -> pa.Scalar | None:
    if pa.types.is_struct(before.type):
        # Leaves out the values of fields under a NULL struct.
        mine = dict(zip((f.name for f in before.type), before.flatten()))
        pairs = [(mine.get(f.name), one) for f, one in zip(after.type, after.flatten())]
    elif children(before.type):
        pairs = [(entries(before).flatten(), entries(after).flatten())]
    else:
        return _changed_leaf(before, after) if _may_change(before.type, after.type) else None
    found = (_changed(one, other) for one, other in pairs if one is not None)
    return next((value for value in found if value is not None), None)


def _changed_leaf(before: pa.Array, after: pa.Array) -> pa.Scalar | None:
    back = after.cast(before.type)
    differ = pc.not_equal(before, back)
    if pa.types.is_floating(before.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(before), pc.is_nan(back)))
    at = pc.index(differ, True).as_py()
    return before[at] if at >= 0 else None
