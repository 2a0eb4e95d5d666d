"""Door. Decimals of up to 18 digits in Spark's form: a long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def decimals_to_longs(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with the named decimal columns as int64: their digits without the scale.

    The columns must have at most 18 digits. Shares no memory with the batch.
    """
    for name in names:
        index = batch.schema.get_field_index(name)
        decimals = batch.column(index)
        # A decimal has 16 bytes, the lower 8 first. Up to 18 digits fit into the lower 8, and
        # the upper 8 repeat the sign.
        halves = np.frombuffer(decimals.buffers()[1], np.int64)
        start, size = 2 * decimals.offset, len(decimals)
        lower = np.ascontiguousarray(halves[start : start + 2 * size : 2])
        validity = decimals.is_valid().buffers()[1] if decimals.null_count else None
        longs = pa.Array.from_buffers(pa.int64(), size, [validity, pa.py_buffer(lower)])
        field = pa.field(name, pa.int64(), batch.schema.field(index).nullable)
        batch = batch.set_column(index, field, longs)
    return batch
