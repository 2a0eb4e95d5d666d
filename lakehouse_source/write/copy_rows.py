"""Verb. Rows of existing files are written to new files as they are, with their identities."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from lakehouse_source.model import DeletionVector, FileMetadata, FilePlace, FileRecord, ScanTask
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.parquet.spec import ReadSpec, WriteSpec
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.metadata_columns import hidden_columns
from lakehouse_source.storage import Storage


@dataclass(frozen=True, slots=True)
class Copy:
    """Rows to write to new files: which, and how they are read and written. Picklable."""

    spec: WriteSpec
    read: ReadSpec
    tasks: tuple[ScanTask, ...]

    def write(
        self,
        storage: Storage,
        watch: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
    ) -> list[FileMetadata]:
        """Write the rows. `watch` sees the batches go by.

        Raises:
            StorageError, CorruptDatasetError
        """
        tables = read_all(self.read, self.tasks, storage)
        batches = (batch for table in tables for batch in table.to_batches())
        return write_files(self.spec, watch(batches), storage)


def copy_of(
    spec: WriteSpec,
    snapshot: Snapshot,
    files: Iterable[tuple[FileRecord, DeletionVector | None]],
) -> Copy:
    """The copy of the rows of files, in order, without those that a vector marks.

    The hidden columns keep the identity of each row and the version that last changed it.
    `spec` has the schema of the snapshot.
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
    hidden = hidden_columns(snapshot.schema)
    read = ReadSpec(
        uri=spec.uri,
        schema=pa.schema([*snapshot.schema, *hidden]),
        columns=(*snapshot.schema.names, *(column.name for column in hidden)),
        partition_by=snapshot.partition_by,
        file_schemas=snapshot.file_schemas,
    )
    return Copy(replace(spec, must_match=None, moved_rows=True), read, tasks)


def copy_rows(
    spec: WriteSpec,
    snapshot: Snapshot,
    files: Iterable[tuple[FileRecord, DeletionVector | None]],
    storage: Storage,
) -> list[FileMetadata]:
    """Write the rows of files to new ones, as `copy_of` tells.

    Raises:
        StorageError, CorruptDatasetError
    """
    copy = copy_of(spec, snapshot, files)
    return copy.write(storage) if copy.tasks else []
