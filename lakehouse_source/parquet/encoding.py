"""Edge. Decides from the first rows of a file how its columns are encoded.

Measured on row groups of 131,072 rows under zstd (one column each: milliseconds
of CPU to write, to read, kilobytes):

    values in the row group        dictionary       without
    1,000 different whole numbers    6   3   170    16   6   270
    20,000                          12   4   320    10   4   480  delta
    all different                   44   7  1100    12   4   730  delta
    ascending numbers               39   9   390     4   3     1  delta
    20,000 different floats         17   4   310    18   6   420
    all different                   63   9  1240     9   6   990
    20,000 different texts          27  14   300    27  14   380
    all different                   43  18   770    31  16   660

So a column gets a dictionary if each value occurs about five times. Whole numbers, dates and
timestamps without a dictionary are written as differences, which Spark reads as fast as plain ones.
Arrow's own choice, a dictionary for every column until the dictionary is too large, took twice the
time, and the files were a quarter larger.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse_source.schema.fields import Leaf, leaves
from lakehouse_source.schema.ordinal import domain

# Rows in the sample, evenly spread: neighbours in sorted rows are alike and would mislead.
SAMPLE_ROWS = 8192
# A dictionary pays when each value occurs at least this many times.
TIMES = 5


def encodings(rows: pa.Table, schema: pa.Schema) -> dict[str, Any]:
    """The options of `pq.ParquetWriter` that fit the columns, judged by the first row group."""
    sample = rows.take(_spread(rows.num_rows))
    scale = rows.num_rows / max(1, sample.num_rows)
    dictionary: list[str] = []
    differences: dict[str, str] = {}
    paths = _paths(schema)
    times = Counter(paths)
    for leaf, path in zip(leaves(schema), paths):
        # A column `a.b` has the same path as field `b` of a struct `a`, so both get the same
        # encoding. A dictionary suits every type.
        if leaf.in_list or times[path] > 1 or _repeats(sample, leaf, scale):
            dictionary.append(path)
        elif _counts(leaf.type):
            differences[path] = "DELTA_BINARY_PACKED"
    return {"use_dictionary": dictionary, "column_encoding": differences or None}


def _repeats(sample: pa.Table, leaf: Leaf, scale: float) -> bool:
    """Tell from a sample whether values repeat often enough in all rows for a dictionary."""
    column = sample.column(leaf.path[0])
    for name in leaf.path[1:]:
        column = pc.struct_field(column, pc.field(name))
    values = len(column) - column.null_count
    try:
        distinct = pc.count_distinct(column).as_py()
    except pa.ArrowNotImplementedError:
        return True
    if values == 0:
        return True
    # The expected number of distinct values in the sample, if all rows together hold `most` values
    # equally often.
    most = values * scale / TIMES
    return bool(distinct <= max(1.0, most * -math.expm1(-values / most)))


def _counts(type_: pa.DataType) -> bool:
    return domain(type_).kind in ("int", "date", "timestamp", "time", "duration")


@lru_cache(maxsize=16)
def _spread(rows: int) -> pa.Array:
    # Not `pa.array`: it imports pandas, which takes longer than a small write.
    positions = array("q", range(0, rows, max(1, rows // SAMPLE_ROWS)))
    return pa.Array.from_buffers(pa.int64(), len(positions), [None, pa.py_buffer(positions)])


@lru_cache(maxsize=64)
def _paths(schema: pa.Schema) -> tuple[str, ...]:
    """The Parquet paths of the leaves, in schema order."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema):
        pass
    stored = pq.ParquetFile(sink.getvalue()).schema
    return tuple(stored.column(i).path for i in range(len(stored)))
