"""Pure. Gives empty arrays the offsets that PyArrow reads without checking that they exist.

Arrow's format lets an array without values have no buffer of offsets, and the Arrow library of
Spark 4.1 sends such arrays inside lists that are all empty. `nbytes` of PyArrow 26 crashes on such
arrays.

Source: Arrow columnar format, "Variable-size list layout" (legacy arrays of length 0).
"""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.schema.fields import is_nested


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, where every array with offsets has a buffer of them."""
    if batch.num_rows and not any(is_nested(field.type) for field in batch.schema):
        return batch  # a column of a batch with rows has offsets
    given = batch.columns
    columns = [_completed(column) for column in given]
    if all(column is one for column, one in zip(columns, given)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _completed(array: pa.Array) -> pa.Array:
    type_, t = array.type, pa.types
    is_list = t.is_list(type_) or t.is_large_list(type_)
    has_offsets = is_list or t.is_map(type_) or _is_text(type_)
    if len(array) == 0 and has_offsets:
        offsets = array.buffers()[1]
        if offsets is None or offsets.size == 0:
            return pa.array([], type_)
    if array.offset or not is_nested(type_):
        return array
    if t.is_struct(type_):
        children = [array.field(i) for i in range(type_.num_fields)]
    elif t.is_map(type_):
        entries = [type_.key_field, type_.item_field]
        children = [pa.StructArray.from_arrays([array.keys, array.items], fields=entries)]
    elif is_list or t.is_fixed_size_list(type_):
        children = [array.values]
    else:
        return array
    completed = [_completed(child) for child in children]
    if all(child is given for child, given in zip(completed, children)):
        return array
    own_buffers = array.buffers()[: 2 if has_offsets else 1]
    return pa.Array.from_buffers(
        type_, len(array), own_buffers, array.null_count, 0, children=completed
    )


def _is_text(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(type_)
        or t.is_binary(type_)
        or t.is_large_string(type_)
        or t.is_large_binary(type_)
    )
