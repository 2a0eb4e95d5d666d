"""Verb. Rows of existing files are written to new files as they are, with their identities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice

import pyarrow as pa

from lakehouse_source.model import DeletionVector, FileMetadata, FileRecord, ScanTask
from lakehouse_source.parquet.read_ahead import in_order
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import read_all, read_task
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.metadata_columns import hidden_columns
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.sorted_rows import curve_of, sorted_rows

# A sample for the order: its files, and the rows of each file (up to twice as many).
_SAMPLE_FILES = 64
_SAMPLE_ROWS = 2_000
# Decoded rows that wait to be sorted.
_READ_AHEAD_BYTES = 64 * 1024 * 1024


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
        """Write the rows, in the order of the clustering columns where `spec` names some.

        `watch` sees the batches go by.
        """
        if self.spec.cluster_by:
            return self._write_sorted(storage, watch)
        tables = read_all(self.read, self.tasks, storage)
        batches = (batch for table in tables for batch in table.to_batches())
        return write_files(self.spec, watch(batches), storage)

    def _write_sorted(
        self,
        storage: Storage,
        watch: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    ) -> list[FileMetadata]:
        paths = self.spec.cluster_by
        tables_of_sample = list(self._sample(storage))
        sample = pa.concat_tables(tables_of_sample) if tables_of_sample else None
        curve = curve_of(sample, paths)
        tables = read_all(self.read, self.tasks, storage, buffer_bytes=_READ_AHEAD_BYTES)
        watched = watch(batch for table in tables for batch in table.to_batches())
        rows = (pa.Table.from_batches([batch]) for batch in watched)
        with closing(sorted_rows(rows, paths, curve, sample)) as ordered:
            # All rows are read here. Then parts of them are sorted while the writer works.
            first = list(islice(ordered, 1))
            with closing(
                in_order([ordered], iter, width=1, buffer_bytes=_READ_AHEAD_BYTES)
            ) as others:
                sorted_tables = chain(first, (table for _, table in others))
                batches = (batch for table in sorted_tables for batch in table.to_batches())
                spec = replace(self.spec, cluster_by=(), ordered_by=paths)
                return write_files(spec, batches, storage)

    def _sample(self, storage: Storage) -> Iterator[pa.Table]:
        """Some rows of some files, evenly spread."""
        names = tuple(dict.fromkeys(path[0] for path in self.spec.cluster_by))
        read = replace(self.read, columns=names)
        step = -(-len(self.tasks) // _SAMPLE_FILES)
        for task in self.tasks[::step]:
            every = max(1, task.row_count // _SAMPLE_ROWS)
            for table in read_task(read, task, storage):
                chosen = pa.array(range(0, table.num_rows, every), pa.int64())
                yield table.take(chosen)


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
    tasks = tuple(ScanTask.whole(file, texts(file), deleted) for file, deleted in files)
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
    """Write the rows of files to new ones, as `copy_of` tells."""
    copy = copy_of(spec, snapshot, files)
    return copy.write(storage) if copy.tasks else []
