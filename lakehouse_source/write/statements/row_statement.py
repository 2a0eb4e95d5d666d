"""Verb. What DELETE, UPDATE and MERGE in Python have in common: condition, begin, rows, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion import Positions, positions_of
from lakehouse_source.errors import (
    InvalidExpressionError,
    InvalidOptionError,
    InvalidPredicateError,
)
from lakehouse_source.language import Expression, PredicateSet, Scope, conjuncts, require_condition
from lakehouse_source.language.expression import at_one_time
from lakehouse_source.language.nodes import Name, Node, mapped
from lakehouse_source.model import (
    ChangeResult,
    FileMetadata,
    FileRecord,
    ScanTask,
    TransactionRecord,
    WriteResult,
)
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_each
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import POSITION, ROW, unused_names, without_metadata
from lakehouse_source.schema.merge import dataframe_schema
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.apply import committed_before
from lakehouse_source.write.commit.begin import base_snapshot, begin_after
from lakehouse_source.write.commit.commit import abort, commit, report_skipped
from lakehouse_source.write.commit.conflicts import SCHEMA_CHANGED, Change, conflict, isolation_of
from lakehouse_source.write.commit.key_search import KeyFiles, KeySearch
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.row_changes import RowChanges, TouchedRows
from lakehouse_source.write.commit.transaction import TransactionCatalog
from lakehouse_source.write.layout import compact_after
from lakehouse_source.write.rows import heartbeat_of, with_heartbeat

# --- The condition of a statement on one table: it may name the table, and has one time.


def row_condition(where: Any, schema: pa.Schema, scope: Scope) -> PredicateSet:
    """A condition on the rows of a schema, in any form that scans take.

    In SQL, names may begin with the scope's name of the table.

    Raises:
        InvalidPredicateError: it is not a condition.
    """
    found = PredicateSet.of_change(where)
    try:
        found.bind(schema)
    except InvalidPredicateError as error:
        if not isinstance(where, str):
            raise
        try:
            return of_expression(Expression.parse(where), schema, scope)
        except InvalidExpressionError:
            raise error from None
    return PredicateSet(at_one_time(found.root, scope))


def of_expression(condition: Expression, schema: pa.Schema, scope: Scope) -> PredicateSet:
    """The same as `row_condition`, for an expression."""
    require_condition(condition.bind(scope))
    found = PredicateSet.of(None)
    for term in conjuncts(condition):
        part = as_predicate(term, schema, scope)
        if part is None:
            raise InvalidExpressionError(reason="it is not a condition on rows", text=str(term))
        found = found & part
    return found


def as_predicate(term: Expression, schema: pa.Schema, scope: Scope) -> PredicateSet | None:
    """A condition on one table as scans understand it; None where they do not."""
    root = _unqualified(term.root, scope)
    try:
        part = PredicateSet(at_one_time(root, scope))
        part.bind(schema, scope.timezone)
    except (InvalidPredicateError, InvalidExpressionError):
        return None
    return part


def _unqualified(node: Node, scope: Scope) -> Node:
    """The node without qualifiers in names: scans have one table and no qualifier."""

    def bare(part: Node) -> Node:
        if not isinstance(part, Name):
            return part
        return Name(tuple(field.name for field in scope.find(part).path))

    return mapped(node, bare)


_FURTHER = ("commit_metadata", "expected_version", "txn_app_id", "txn_version")


# Rows of small files are handed on together, up to this many: steps for each file's few rows would
# take longer than to read them.
_ROWS_TOGETHER = 4096
_BYTES_TOGETHER = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of data files: their columns, and where they are.

    `table` has the columns that were asked for, and those named `position` and `row_id`. `files`
    has for each row the place of its file in `paths`.
    """

    paths: tuple[str, ...]
    files: pa.Array
    table: pa.Table
    position: str
    row_id: str

    @property
    def row_ids(self) -> pa.ChunkedArray:
        return self.table.column(self.row_id)

    def take(self, rows: pa.Array) -> FoundRows:
        """Some of the rows, by their places in `table`."""
        return replace(self, table=self.table.take(rows), files=self.files.take(rows))

    def positions(self) -> Iterator[tuple[str, Positions]]:
        """The positions of the rows, file by file."""
        positions = self.table.column(self.position)
        for number in pc.unique(self.files).to_pylist():
            mine = positions.filter(pc.equal(self.files, number))
            yield self.paths[number], positions_of(mine)


class RowStatement:
    """One statement over a dataset at the version that is the newest when it begins.

    `extend` adds the columns to a schema that the statement brings along.

    Raises:
        DatasetNotFoundError, InvalidOptionError
        CommitConflictError: the dataset is not at `expected_version`, or its schema changed.
    """

    def __init__(
        self,
        catalog: Catalog,
        address: Address,
        change: Change,
        isolation: str,
        given: Mapping[str, Any],
        *,
        extend: Callable[[pa.Schema], pa.Schema] | None = None,
    ) -> None:
        self.isolation = isolation_of(isolation)
        if isinstance(catalog, TransactionCatalog) and catalog.isolation is not None:
            self.isolation = catalog.isolation
        for name in given:
            if name not in _FURTHER:
                raise InvalidOptionError(option=name, reason="is unknown.", known=_FURTHER)
        with catalog.read() as reader:
            snapshot = address.snapshot(catalog, reader)
        options = WriteOptions(
            row_change=change,
            schema_merge=extend is not None,
            **{**given, "commit_metadata": dict(given.get("commit_metadata") or {})},
        )
        wanted = snapshot.schema if extend is None else extend(snapshot.schema)
        incoming = dataframe_schema(without_metadata(wanted))
        self.catalog = catalog
        self.staged: StagedWrite = begin_after(catalog, address, snapshot, incoming, options)
        self.files: list[FileMetadata] = []
        self._file_ids: dict[str, int] = {}
        self.snapshot: Snapshot = snapshot
        if snapshot.seen != self.staged.base:  # another commit came in between
            try:
                with catalog.read() as reader:
                    self.snapshot = base_snapshot(reader, self.staged)
                if extend is not None and self.snapshot.schema_version != snapshot.schema_version:
                    # The merged schema would undo a drop or a NOT NULL of that commit.
                    now = self.snapshot.version
                    raise conflict(address.uri, snapshot.version, now, SCHEMA_CHANGED)
            except BaseException as failure:
                self.give_up(failure)
                raise
        self.storage = Storage(self.staged.spec.uri)

    def tasks(
        self, where: PredicateSet, columns: Sequence[str], keys: pa.Table | None = None
    ) -> tuple[ReadSpec, tuple[ScanTask, ...], tuple[str, str]]:
        """How to read the rows of a condition: `columns`, and where the rows are.

        The names of the last two columns are those of `FoundRows`. With `keys`, files are left out
        that have none of them.
        """
        position, row = unused_names((POSITION, ROW), self.snapshot.schema.names)
        files = None if keys is None else self._files_of(where, keys)
        with self.catalog.read() as reader:
            found = plan(
                reader,
                self.snapshot,
                read_uri=self.staged.spec.uri,
                predicates=where,
                columns=[*columns, position.name, row.name],
                metadata=(position, row),
                files=files,
            )
        self._file_ids |= {task.path: task.place.id for task in found.tasks if task.place}
        spec = found.spec if files is None else replace(found.spec, asks_filters=False)
        return spec, found.tasks, (position.name, row.name)

    def _files_of(self, where: PredicateSet, keys: pa.Table) -> list[FileRecord] | None:
        """The files that may have one of the keys; None: all that may have rows of the condition.

        Most files are ruled out by their bloom filters, so only few are planned.
        """
        snapshot = self.snapshot
        search = None if snapshot.history is None else KeySearch.of(keys, snapshot.schema)
        if search is None:
            return None
        with self.catalog.read() as reader:
            known = KeyFiles(reader, snapshot, where.bind(snapshot.schema))
        if len(known.files) < 2:
            return [file.record for file in known.files]
        may = search.within(known.files)
        left = search.left(self.storage, may, snapshot.file_schemas) if may else []
        known.keep()
        return [file.record for file, _ in left]

    def rows(
        self, where: PredicateSet, columns: Sequence[str], keys: pa.Table | None = None
    ) -> Iterator[FoundRows]:
        """The rows of a condition, few at a time: of one row group, or of several small ones."""
        spec, tasks, names = self.tasks(where, columns, keys)
        held: list[tuple[str, pa.Table]] = []
        rows = size = 0

        def together() -> FoundRows:
            tables = [table for _, table in held]
            counts = np.repeat(np.arange(len(held)), [table.num_rows for table in tables])
            whole = tables[0] if len(held) == 1 else pa.concat_tables(tables).combine_chunks()
            return FoundRows(tuple(path for path, _ in held), pa.array(counts), whole, *names)

        for task, table in self.read(spec, list(_row_groups(tasks))):
            rows, size = rows + table.num_rows, size + table.nbytes
            if held and (rows > _ROWS_TOGETHER or size > _BYTES_TOGETHER):
                yield together()
                held.clear()
                rows, size = table.num_rows, table.nbytes
            if table.num_rows:
                held.append((task.path, table))
        if held:
            yield together()

    def read(
        self, spec: ReadSpec, tasks: Sequence[ScanTask]
    ) -> Iterator[tuple[ScanTask, pa.Table]]:
        """The rows of tasks. The catalog is told meanwhile that the statement goes on."""
        found = read_each(spec, tasks, self.storage)
        return with_heartbeat(found, heartbeat_of(self.catalog, self.staged))

    def write(self, batches: Iterator[pa.RecordBatch], *, moved_rows: bool) -> None:
        """Write rows to new files. Moved rows have the hidden columns too."""
        spec = replace(self.staged.spec, moved_rows=moved_rows)
        self.files += write_files(spec, batches, self.storage)

    def commit(
        self,
        touched: Mapping[str, TouchedRows],
        *,
        inserted: int = 0,
        condition: PredicateSet | None = None,
        read: Mapping[str, Positions] | None = None,
        **known: Any,
    ) -> ChangeResult:
        """Commit the statement, or give it up where it changes nothing.

        `known` are `RowChanges.assigned`, `compared` and `keys`.
        """
        if not touched and not self.files:
            self.give_up(None)
            return self._repeated() or ChangeResult(self.staged.base_version)
        changes = RowChanges(
            touched, inserted, condition, self.isolation, self._file_ids, read or {}, **known
        )
        result = commit(self.catalog, self.staged, self.files, changes)
        compact_after(self.catalog, self.staged, result)
        return _result_of(result)

    def _repeated(self) -> ChangeResult | None:
        """The result of the commit that this statement repeats, by its idempotency pair."""
        with self.catalog.read() as reader:
            done = committed_before(reader, self.snapshot.dataset, self.staged.options)
        if done is None:
            return None
        report_skipped(self.staged, done.version)
        return replace(_result_of(done), skipped=True)

    def give_up(self, failure: BaseException | None) -> None:
        """Delete the files that were written; the statement cannot be committed any more."""
        abort(self.catalog, self.staged, self.files, failure=failure)


_COUNTS = (
    *("rows_deleted", "rows_updated", "rows_inserted"),
    *("files_added", "files_removed", "vectors_written"),
)


def _result_of(done: TransactionRecord | WriteResult) -> ChangeResult:
    counts = {name: done.summary.get(name, 0) for name in _COUNTS}
    skipped = isinstance(done, WriteResult) and done.skipped
    return ChangeResult(done.version, **counts, skipped=skipped)


def _row_groups(tasks: Iterable[ScanTask]) -> Iterator[ScanTask]:
    """The tasks, each for one row group: a task that is read ahead is in memory whole."""
    for task in tasks:
        for group in task.row_groups or ():
            yield replace(task, row_groups=(group,))
