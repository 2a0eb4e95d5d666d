"""Edge. Files that Arrow cannot scan as they are, converted by plake into Parquet in memory.

They are converted when a dataset is made, not when a scan opens them. Otherwise a file system in
Python would convert them on Arrow's threads, which needs Python's lock. `Scanner.to_reader` of
PyArrow 26 holds this lock while it waits for these threads: sometimes for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.storage import Storage


def converted(spec: ReadSpec, task: ScanTask, storage: Storage) -> Iterator[pa.Buffer]:
    """The row groups of a task as files with all columns of a version except partition columns.

    The columns have the names, types and defaults of the version that is read.
    """
    names = tuple(name for name in spec.schema.names if name not in spec.partition_by)
    whole = replace(spec, columns=names, predicate=None)
    for table in read_task(whole, replace(task, filtered=False), storage):
        sink = pa.BufferOutputStream()
        # Without statistics, so that nothing is pruned.
        pq.write_table(table, sink, write_statistics=False)
        yield sink.getvalue()
