"""Door. The writes of DELETE, UPDATE and MERGE: executors collect places of rows and write rows.

Each row of such a write has an operation: it is deleted, updated or inserted. A deleted or updated
row has the file and the position where it is stored. A task sends the driver the positions, as
bitmaps, and the files that it wrote with updated and inserted rows. The driver unites the bitmaps
of all tasks and commits them and the files as one version. The base of the commit is the version
that the statement read, not the newest version when the write begins, because commits between the
two must not be missed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from lakehouse_source.deletion import Positions, positions_of
from lakehouse_source.errors import AmbiguousMergeError, PlakeError
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.schema.fields import FILE, POSITION, ROW, hidden_columns, unused_names
from lakehouse_source.spark.protocol.vocabulary import Row
from lakehouse_source.spark.session.workers import acknowledge, freeze_gc
from lakehouse_source.spark.writing.frame_writers import (
    FilesWritten,
    Followed,
    PlakeWriter,
    of_task,
    seen_in_task,
    shortened,
)

if TYPE_CHECKING:
    from lakehouse_source.write.commit.options import StagedWrite
    from lakehouse_source.write.commit.row_changes import RowChanges, TouchedRows

# Values of `Row.OPERATION`. Spark has other values, which this kind of write does not get.
DELETED, UPDATED, INSERTED = 1, 2, 3


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The names of a statement's columns besides those of the dataset.

    `row_id` is the name of an updated row's identity in the rows, `hidden` its name in files. With
    `added` there are no such columns, and every row is new.
    """

    file: str
    position: str
    row_id: str
    hidden: str
    added: bool = False

    @classmethod
    def of(cls, schema: pa.Schema, *, added: bool = False) -> RowColumns:
        """The names for a dataset of a schema."""
        file, position, row = unused_names((FILE, POSITION, ROW), schema.names)
        return cls(file.name, position.name, row.name, hidden_columns(schema)[0].name, added)


@dataclass(frozen=True)
class RowsChanged(FilesWritten):
    """What one task attempt found and wrote. Bitmaps are serialised, by path."""

    deleted: Mapping[str, bytes]
    updated: Mapping[str, bytes]
    inserted: int


@dataclass
class _Found:
    """What one task collects while its rows are written."""

    deleted: dict[str, Positions] = field(default_factory=dict)
    updated: dict[str, Positions] = field(default_factory=dict)
    inserted: int = 0


class RowChangeWriter(PlakeWriter):
    """Writes the rows of one statement.

    `changes`: what is known of the rows before any is found. `has_rows`: not so of a DELETE.
    `evolves`: the dataset gets other columns, also where no row changes.
    """

    def __init__(
        self,
        staged: StagedWrite,
        path: str,
        catalog: str | None,
        columns: RowColumns,
        changes: RowChanges,
        session: Followed,
        *,
        has_rows: bool,
        evolves: bool = False,
    ) -> None:
        super().__init__(staged, path, catalog, session)
        self.columns = columns
        self.changes = pickle.dumps(changes)
        self.has_rows = has_rows
        self.evolves = evolves

    @property
    def spec(self) -> WriteSpec:
        """How new files are written. Updated rows bring their identities."""
        return replace(self.begun.spec, moved_rows=not self.columns.added)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        acknowledge()
        from lakehouse_source.parquet.writer import write_files

        freeze_gc()
        found = _Found()
        rows = self._rows(iterator, found)
        files: Sequence[FileMetadata] = ()
        if self.has_rows:
            files = write_files(of_task(self.spec), rows)
        else:
            for batch in rows:
                raise AssertionError(f"a DELETE writes {batch.num_rows} rows")
        return RowsChanged(
            shortened(files),
            seen_in_task(),
            _serialized(found.deleted),
            _serialized(found.updated),
            found.inserted,
        )

    def _rows(self, batches: Iterable[pa.RecordBatch], found: _Found) -> Iterator[pa.RecordBatch]:
        """The rows to write. Puts the places of the other rows into `found`."""
        columns = self.columns
        for batch in batches:
            if columns.added:
                found.inserted += batch.num_rows
                yield batch
                continue
            operation = batch.column(Row.OPERATION)
            counts = {
                one["values"]: one["counts"] for one in pc.value_counts(operation).to_pylist()
            }
            if counts.keys() - {DELETED, UPDATED, INSERTED}:
                raise AssertionError(f"Spark asks for operations {sorted(counts)} on rows")
            found.inserted += counts.get(INSERTED, 0)
            if DELETED in counts:
                marked = batch.filter(pc.equal(operation, DELETED))
                for path, positions, _ in self._places(marked):
                    found.deleted.setdefault(path, Positions()).update(positions)
            if UPDATED in counts:
                marked = batch.filter(pc.equal(operation, UPDATED))
                for path, positions, count in self._places(marked):
                    if len(positions) < count:
                        raise AmbiguousMergeError(key=f"_file = {path!r}")
                    _add_once(found.updated.setdefault(path, Positions()), positions, path)
            if counts.keys() - {DELETED}:
                yield self._written(batch.filter(pc.not_equal(operation, DELETED)))

    def _written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of the dataset, and the identity of the row."""
        columns = self.columns
        beside = (Row.OPERATION, columns.file, columns.position, columns.row_id)
        kept = [name for name in batch.schema.names if name not in beside]
        arrays = [batch.column(name) for name in kept]
        return pa.RecordBatch.from_arrays(
            [*arrays, batch.column(columns.row_id)],
            schema=pa.schema(
                [
                    *(batch.schema.field(name) for name in kept),
                    pa.field(columns.hidden, pa.int64()),
                ]
            ),
        )

    def _places(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Positions, int]]:
        """The places of rows, by file, and how many rows have them."""
        paths = batch.column(self.columns.file).dictionary_encode()
        order = pc.sort_indices(paths.indices)
        positions = batch.column(self.columns.position).take(order)
        runs = pc.run_end_encode(paths.indices.take(order))
        start = 0
        for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist()):
            mine = positions_of(positions.slice(start, end - start))
            yield paths.dictionary[code].as_py(), mine, end - start
            start = end

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from lakehouse_source.spark.writing.on_driver import abort, address_of, commit_in

        freeze_gc()
        parts = [one for one in messages if isinstance(one, RowsChanged)]
        files, staged = self._files(messages), self.staged
        self.session.applied(staged, (one.session for one in parts))
        with address_of(self.path, self.catalog).open() as catalog:
            try:
                touched = _united(parts)
            except PlakeError as failure:
                abort(catalog, staged, files, failure=failure)
                raise
            if not touched and not files and not self.evolves:
                abort(catalog, staged, ())  # the statement changes nothing
                return
            known: RowChanges = pickle.loads(self.changes)
            inserted = sum(part.inserted for part in parts)
            commit_in(catalog, staged, files, replace(known, touched=touched, inserted=inserted))


def _serialized(found: Mapping[str, Positions]) -> dict[str, bytes]:
    for positions in found.values():
        positions.run_optimize()
    return {path: positions.serialize() for path, positions in found.items()}


def _united(parts: Sequence[RowsChanged]) -> dict[str, TouchedRows]:
    """The rows that all tasks deleted or updated, by path of their file.

    Raises:
        AmbiguousMergeError: two tasks change the same row, and at least one does not delete it.
    """
    from lakehouse_source.write.commit.row_changes import TouchedFiles

    touched = TouchedFiles()
    updated: dict[str, Positions] = {}
    for part in parts:
        for path, blob in part.updated.items():
            _add_once(updated.setdefault(path, Positions()), Positions.deserialize(blob), path)
        for path, blob in part.deleted.items():
            touched.delete(path, Positions.deserialize(blob))
    for path, positions in updated.items():
        touched.update(path, positions)
    for path, rows in touched.found.items():
        _check_once(rows.deleted & rows.updated, path)
    return touched.found


def _add_once(known: Positions, positions: Positions, path: str) -> None:
    """Add positions of updated rows; none may be present already."""
    _check_once(known & positions, path)
    known.update(positions)


def _check_once(twice: Positions, path: str) -> None:
    if twice:
        raise AmbiguousMergeError(key=f"_file = {path!r} and _pos = {twice[0]}")
