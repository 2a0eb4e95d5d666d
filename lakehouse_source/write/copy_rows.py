"""Verb. Rows of existing files are written to new files as they are, with their identities."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from lakehouse_source.model import DeletionVector, FileMetadata, FilePlace, FileRecord, ScanTask
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.parquet.spec import ReadSpec, WriteSpec
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.metadata_columns import hidden_columns
from lakehouse_source.storage import Storage


def copy_rows(
    spec: WriteSpec,
    snapshot: Snapshot,
    files: Iterable[tuple[FileRecord, DeletionVector | None]],
    storage: Storage,
    watch: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
) -> list[FileMetadata]:
    """Write the rows of files to new ones, in order, without those that a vector marks.

    The hidden columns keep the identity of each row and the version that last changed it.
    `spec` has the schema of the snapshot. `watch` sees the batches go by.

    Raises:
        StorageError, CorruptDatasetError
    """
    texts = snapshot.partition_texts()
    tasks = tuple(
        ScanTask(
            path=file.path,
            size_bytes=file.size_bytes,
            file_row_count=file.row_count,
            row_count=file.row_count,
            byte_count=file.size_bytes,
            schema_version=file.schema_version,
            row_groups=None,
            partitions=texts(file),
            filtered=False,
            deleted=deleted,
            place=FilePlace(file.id, file.first_row_id, file.version),
        )
        for file, deleted in files
    )
    if not tasks:
        return []
    hidden = hidden_columns(snapshot.schema)
    read = ReadSpec(
        uri=spec.uri,
        schema=pa.schema([*snapshot.schema, *hidden]),
        columns=(*snapshot.schema.names, *(column.name for column in hidden)),
        partition_by=snapshot.partition_by,
        file_schemas=snapshot.file_schemas,
    )
    tables = read_all(read, tasks, storage)
    batches = (batch for table in tables for batch in table.to_batches())
    return write_files(replace(spec, must_match=None, moved_rows=True), watch(batches), storage)
