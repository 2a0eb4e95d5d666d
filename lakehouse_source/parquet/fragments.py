"""Edge. Scan tasks as `ParquetFileFragment`s for engines that scan Arrow datasets.

A fragment carries its promise in `partition_expression`: it must hold for every
row, because engines use it to skip the fragment.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.reader import ReadSpec
from lakehouse_source.partitioning import partition_value
from lakehouse_source.storage import Storage


def fragment(spec: ReadSpec, task: ScanTask, storage: Storage) -> ds.ParquetFileFragment:
    """The row groups of a task as a fragment with its partition values as promise."""
    return ds.ParquetFileFormat().make_fragment(
        storage.path(task.path),
        filesystem=storage.filesystem,
        partition_expression=_promise(spec, task),
        row_groups=task.row_groups,
        file_size=task.size_bytes,
    )


def _promise(spec: ReadSpec, task: ScanTask) -> pc.Expression | None:
    promise: pc.Expression | None = None
    for name, text in zip(spec.partition_by, task.partitions):
        type_ = spec.schema.field(name).type
        column = pc.field((name,))
        term = column.is_null() if text is None else column == partition_value(text, type_)
        promise = term if promise is None else promise & term
    return promise
