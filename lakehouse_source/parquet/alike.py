"""Edge. Reads small files that are like a file that was read before, each at one go.

A dataset with many small commits has many files of the same columns. The ordinary way of `reader`
takes 0.5 ms for such a file: to check the footer, to find each column by its id, to give it the
dataset's type. All this follows from the file's schema. So what was found for one file is kept, and
a file of the same schema takes 0.2 ms. Whatever is not as in that file is left to the ordinary way,
which says what is wrong where something is.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakehouse_source.errors import PlakeError
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.checked_footer import open_alike
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.open_file import OpenFile, leaf_paths
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.schema.fields import field_id, is_metadata, is_nested
from lakehouse_source.storage import Storage

# Larger files are decoded in threads, and their footers are kept.
SMALL_FILE_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class _Known:
    """The schema of a file, and the paths and names of the columns that are read of it."""

    schema: pa.Schema
    paths: list[str] | None
    names: list[str]


class AlikeFiles:
    """Reads whole small files whose columns are stored as the dataset has them."""

    def __init__(self, spec: ReadSpec, target: pa.Schema, output_schema: pa.Schema) -> None:
        self._spec = spec
        self._target = target
        self._output_schema = output_schema
        self._known: dict[int, _Known] = {}  # by the schema version

    def learn(
        self, task: ScanTask, file: OpenFile, stored: pa.Table, fields: list[pa.Field]
    ) -> None:
        """Keep what was found for a file: the fields that it stores, and their table."""
        if not self._may_be(task):
            return
        sources = {field_id(field): field.name for field in fields}
        for field in self._target:
            name = sources.get(field_id(field))
            if name is None or is_metadata(field) or is_nested(field.type):
                return
            if (
                field.name in self._spec.partition_by
                or stored.schema.field(name).type != field.type
            ):
                return
        names = [sources[field_id(field)] for field in self._target]
        schema = file.parquet.schema_arrow
        paths = None if names == schema.names else [p for one in fields for p in leaf_paths(one)]
        self._known[task.schema_version] = _Known(schema, paths, names)

    def read(self, task: ScanTask, storage: Storage) -> pa.Table | None:
        """The rows of the file of a task; None: it has to be read in the ordinary way."""
        known = self._known.get(task.schema_version)
        if known is None or not self._may_be(task):
            return None
        try:
            with storage.open_input(task.path) as file:
                data = file.read(task.size_bytes + 1)
            if len(data) != task.size_bytes:
                return None
            verify = self._spec.verify_checksums
            parquet = open_alike(data, known.schema, task.file_row_count, verify_checksums=verify)
            if parquet is None:
                return None
            stored = parquet.read_row_group(0, columns=known.paths, use_threads=False)
        except (PlakeError, pa.ArrowException, OSError, ValueError, LookupError, OverflowError):
            return None
        columns = [stored.column(name) for name in known.names]
        if stored.num_rows != task.file_row_count or any(
            not field.nullable and column.null_count for field, column in zip(self._target, columns)
        ):
            return None
        return pa.Table.from_arrays(columns, schema=self._output_schema)

    def _may_be(self, task: ScanTask) -> bool:
        spec = self._spec
        return (
            task.size_bytes <= SMALL_FILE_BYTES
            and task.deleted is None
            and task.row_groups in (None, (0,))
            and (spec.predicate is None or not task.filtered)
            and not spec.verify_files
            and len(self._target) > 0
            and not is_foreign(task.path)
        )
