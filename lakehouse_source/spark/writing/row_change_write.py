"""Door. The writes of DELETE, UPDATE and MERGE: executors collect places of rows and write rows.

Each row of such a write has an operation: it is deleted, updated or inserted. A deleted or updated
row has the file and the position where it is stored. A task sends the driver the positions, as
bitmaps, and the files that it wrote with updated and inserted rows. The driver unites the bitmaps
of all tasks and commits them and the files as one version. The base of the commit is the version
that the statement read, not the newest version when the write begins, because commits between the
two must not be missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructField, StructType

from lakehouse_source.deletion.vector import Positions, positions_of
from lakehouse_source.errors import (
    AmbiguousMergeError,
    CommitConflictError,
    InvalidOptionError,
    PlakeError,
    SchemaMismatchError,
)
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.given_schema import dataframe_schema
from lakehouse_source.schema.metadata_columns import (
    FILE,
    POSITION,
    ROW,
    hidden_columns,
    unused_names,
)
from lakehouse_source.spark.protocol.vocabulary import Command, Row, Statement
from lakehouse_source.spark.reading.decode_conditions import decode_supported
from lakehouse_source.spark.session.freeze_gc import freeze_gc
from lakehouse_source.spark.session.options import (
    BASE_VERSION,
    OF_ROW_CHANGES,
    ROW_CHANGES,
    STATEMENT_OPTIONS,
    Options,
)
from lakehouse_source.spark.session.secrets import conceal
from lakehouse_source.spark.session.static_configuration import catalog_of_query
from lakehouse_source.spark.session.storage_options import check_no_secrets, split_storage_options
from lakehouse_source.spark.types.spark_types import spark_schema
from lakehouse_source.spark.writing.commit_options import commit_options, file_options
from lakehouse_source.spark.writing.session_settings import Followed, seen_in_task
from lakehouse_source.spark.writing.task_files import restored, shortened
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.conflicts import Change, Isolation
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.row_changes import RowChanges, TouchedRows
from lakehouse_source.write.layout.after_commit import compact_after
from lakehouse_source.write.statements.row_statement import TouchedFiles, isolation_of

# Values of `Row.OPERATION`. Spark has other values, which this kind of write does not get.
DELETED, UPDATED, INSERTED = 1, 2, 3

CHANGES = {
    Command.DELETE: Change.DELETE,
    Command.UPDATE: Change.UPDATE,
    Command.MERGE: Change.MERGE,
}


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
class RowsChanged(WriterCommitMessage):
    """What one task attempt found and wrote. Bitmaps are serialised, by path.

    Only the messages of successful attempts reach the driver.
    """

    files: tuple[FileMetadata, ...]
    deleted: Mapping[str, bytes]
    updated: Mapping[str, bytes]
    inserted: int
    session: Mapping[str, str] | None  # `seen_in_task`


@dataclass
class _Found:
    """What one task collects while its rows are written."""

    deleted: dict[str, Positions] = field(default_factory=dict)
    updated: dict[str, Positions] = field(default_factory=dict)
    inserted: int = 0


def _asked(given: Options) -> dict[str, Any]:
    """The statement that options of a write name.

    Raises:
        InvalidOptionError
    """
    command, version = given.text(ROW_CHANGES), given.number(BASE_VERSION)
    if command not in CHANGES:
        raise InvalidOptionError(
            option=ROW_CHANGES, value=command, reason="is no change of rows.", known=CHANGES
        )
    if version is None:
        raise InvalidOptionError(
            option=BASE_VERSION, reason="is missing: the version on which the change was decided."
        )
    return {Statement.COMMAND: command, Statement.VERSION: version}


def begin_statement(
    options: Mapping[str, str],
    told: Mapping[str, Any] | None,
    schema: StructType,
    session: Followed,
) -> RowChangeWriter:
    """Begin the write of a statement. `schema` has the columns of its rows.

    `told`: the planner extension's message about the statement; without it, the options are used.

    Raises:
        InvalidOptionError: an option is not one of a statement's.
        SchemaMismatchError: rows that are written lack columns of the dataset.
        CommitConflictError: the dataset's schema has changed.
    """
    others, storage = split_storage_options(options)
    known = STATEMENT_OPTIONS if told is not None else (*STATEMENT_OPTIONS, *OF_ROW_CHANGES)
    given = Options(others, known, "changing rows of")
    statement = _asked(given) if told is None else told
    path = given.path()
    check_no_secrets(path, storage)
    change = CHANGES[statement[Statement.COMMAND]]
    base_version = statement[Statement.VERSION]
    added = statement.get(Statement.ADDED, False)
    chosen = replace(commit_options(given), row_change=change, layout=file_options(given))
    isolation = isolation_of(given.text("isolation") or Isolation.WRITE_SERIALIZABLE.value)
    address = Address(path, catalog_of_query(given.text("catalog")), storage)
    with address.open() as catalog:
        with catalog.read() as reader:
            newest = address.snapshot(catalog, reader)
            base = address.snapshot(catalog, reader, base_version)
        if change is not Change.DELETE:
            if not base.schema.equals(newest.schema, check_metadata=True):
                raise CommitConflictError(
                    dataset=address.uri,
                    base_version=base.version,
                    current_version=newest.version,
                    reason="another commit changed the schema",
                )
            _check_columns(base, schema, added)
        incoming = dataframe_schema(without_metadata(newest.schema))
        staged = begin(catalog, address, incoming, chosen, base=base.seen)
    # A DELETE or UPDATE changes all rows that it reads; a MERGE may leave some alone.
    rescans = statement.get(Statement.RESCANS, True)
    condition = None
    everything = rescans and isolation is Isolation.SERIALIZABLE
    if statement.get(Statement.CONDITION) and not everything:
        condition = decode_supported(tuple(statement[Statement.CONDITION]), base.schema)
    return RowChangeWriter(
        staged,
        address.uri,
        given.text("catalog"),
        RowColumns.of(base.schema, added=added),
        condition,
        isolation,
        reads_known=change is not Change.MERGE and not rescans,
        session=session,
    )


def _check_columns(snapshot: Snapshot, rows: StructType, added: bool) -> None:
    """Check that the rows have all columns of the dataset, with its types.

    A view can have fewer columns, or other types. A rewritten row would lose the rest.
    """
    names = RowColumns.of(snapshot.schema)
    beside = () if added else (Row.OPERATION, names.file, names.position, names.row_id)
    found = {one.name: one for one in rows.fields if one.name not in beside}
    for wanted in spark_schema(snapshot.schema).fields:
        column = found.pop(wanted.name, None)
        if column is None or _shown(column) != _shown(wanted):
            raise SchemaMismatchError(
                column=wanted.name,
                expected=_shown(wanted),
                got=None if column is None else _shown(column),
                dataset=snapshot.uri,
                reason="is in the dataset with another type, or whole where the view shows a part",
                hint="Make the view or frame of all columns, without a schema and the option "
                "'columns': a rewritten row would lose the rest.",
            )
    if found:
        raise SchemaMismatchError(
            column=next(iter(found)), dataset=snapshot.uri, reason="is not in the dataset"
        )


def _shown(column: StructField) -> str:
    return str(column.dataType.simpleString())


class RowChangeWriter(DataSourceArrowWriter):
    """Writes the rows of one statement. Spark pickles it, as it does `PlakeWriter`."""

    def __init__(
        self,
        staged: StagedWrite,
        path: str,
        catalog: str | None,
        columns: RowColumns,
        condition: PredicateSet | None,
        isolation: Isolation,
        *,
        reads_known: bool,
        session: Followed,
    ) -> None:
        self.staged = staged
        self.path = path
        self.catalog = conceal(catalog)
        self.columns = columns
        self.condition = condition
        self.isolation = isolation
        self.reads_known = reads_known
        self.session = session

    @property
    def spec(self) -> WriteSpec:
        """How new files are written. Updated rows bring their identities."""
        return replace(self.staged.spec, moved_rows=not self.columns.added)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_gc()
        found = _Found()
        rows = self._rows(iterator, found)
        files: Sequence[FileMetadata] = ()
        if self.staged.options.change is Change.DELETE:
            for batch in rows:
                raise AssertionError(f"a DELETE writes {batch.num_rows} rows")
        else:
            files = write_files(self.spec, rows)
        return RowsChanged(
            shortened(files),
            _serialized(found.deleted),
            _serialized(found.updated),
            found.inserted,
            seen_in_task(),
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
        parts = [one for one in messages if isinstance(one, RowsChanged)]
        files = self._files(parts)
        self.session.applied(self.staged, (one.session for one in parts))
        with Address(self.path, catalog_of_query(self.catalog)).open() as catalog:
            try:
                touched = _united(parts)
            except PlakeError as failure:
                abort(catalog, self.staged, files, failure=failure)
                raise
            if not touched and not files:
                abort(catalog, self.staged, ())  # the statement changes nothing
                return
            inserted = sum(part.inserted for part in parts)
            changes = RowChanges(
                touched,
                inserted,
                self.condition,
                self.isolation,
                read={} if self.reads_known else None,
            )
            result = commit(catalog, self.staged, files, changes)
            compact_after(catalog, self.staged, result)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        parts = [one for one in messages if isinstance(one, RowsChanged)]
        with Address(self.path, catalog_of_query(self.catalog)).open() as catalog:
            abort(catalog, self.staged, self._files(parts))

    def _files(self, parts: Sequence[RowsChanged]) -> list[FileMetadata]:
        return restored((file for part in parts for file in part.files), self.spec.file_schema)


def _serialized(found: Mapping[str, Positions]) -> dict[str, bytes]:
    for positions in found.values():
        positions.run_optimize()
    return {path: positions.serialize() for path, positions in found.items()}


def _united(parts: Sequence[RowsChanged]) -> dict[str, TouchedRows]:
    """The rows that all tasks deleted or updated, by path of their file.

    Raises:
        AmbiguousMergeError: two tasks change the same row, and at least one does not delete it.
    """
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
