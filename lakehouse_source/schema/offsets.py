"""Pure. Gives empty arrays the offsets that PyArrow reads without checking that they exist.

Arrow's format lets an array without values have no buffer of offsets, and the Arrow library of
Spark 4.1 sends such arrays inside lists that are all empty. `nbytes` of PyArrow 26 crashes on such
arrays.

Source: Arrow columnar format, "Variable-size list layout" (legacy arrays of length 0).
"""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.schema.fields import is_nested
from lakehouse_source.schema.nested_arrays import parts, with_parts

_TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


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
    type_ = array.type
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    if len(array) == 0 and (is_list or pa.types.is_map(type_) or type_ in _TEXTS):
        offsets = array.buffers()[1]
        if offsets is None or offsets.size == 0:
            return pa.array([], type_)
    if array.offset or not is_nested(type_):
        return array
    given = parts(array)
    completed = [_completed(child) for child in given]
    if all(child is one for child, one in zip(completed, given)):
        return array
    return with_parts(array, type_, completed)
