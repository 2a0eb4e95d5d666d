"""Verb. What DELETE, UPDATE and MERGE in Python have in common: begin, find rows, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion.vector import Positions
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import (
    ChangeResult,
    FileMetadata,
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
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.given_schema import dataframe_schema
from lakehouse_source.schema.metadata_columns import POSITION, ROW, unused_names
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.apply import committed_before
from lakehouse_source.write.commit.base_version import base_snapshot, begin_after
from lakehouse_source.write.commit.commit import abort, commit, tell_skipped
from lakehouse_source.write.commit.conflicts import SCHEMA_CHANGED, Change, conflict, isolation_of
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.row_changes import RowChanges, TouchedRows
from lakehouse_source.write.layout.after_commit import compact_after
from lakehouse_source.write.rows.stage import heartbeat_of, with_heartbeat

_FURTHER = ("commit_metadata", "expected_version", "txn_app_id", "txn_version")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of one data file: their columns, and where they are.

    `table` has the columns that were asked for, and those named `position` and `row_id`.
    """

    path: str
    table: pa.Table
    position: str
    row_id: str

    @property
    def positions(self) -> pa.ChunkedArray:
        return self.table.column(self.position)

    @property
    def row_ids(self) -> pa.ChunkedArray:
        return self.table.column(self.row_id)

    def filter(self, mask: pa.Array) -> FoundRows:
        """The rows that a mask marks."""
        return replace(self, table=self.table.filter(mask))

    def take(self, rows: pa.Array) -> FoundRows:
        """Some of the rows, by their places in `table`."""
        return replace(self, table=self.table.take(rows))


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
        self, where: PredicateSet, columns: Sequence[str]
    ) -> tuple[ReadSpec, tuple[ScanTask, ...], tuple[str, str]]:
        """How to read the rows of a condition: `columns`, and where the rows are.

        The names of the last two columns are those of `FoundRows`.
        """
        position, row = unused_names((POSITION, ROW), self.snapshot.schema.names)
        with self.catalog.read() as reader:
            found = plan(
                reader,
                self.snapshot,
                read_uri=self.staged.spec.uri,
                predicates=where,
                columns=[*columns, position.name, row.name],
                metadata=(position, row),
            )
        self._file_ids |= {task.path: task.place.id for task in found.tasks if task.place}
        return found.spec, found.tasks, (position.name, row.name)

    def rows(self, where: PredicateSet, columns: Sequence[str]) -> Iterator[FoundRows]:
        """The rows of a condition, row group by row group, so that few rows are in memory."""
        spec, tasks, names = self.tasks(where, columns)
        for task, table in self.read(spec, list(_row_groups(tasks))):
            if table.num_rows:
                yield FoundRows(task.path, table, *names)

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
    ) -> ChangeResult:
        """Commit the statement, or give it up where it changes nothing."""
        if not touched and not self.files:
            self.give_up(None)
            return self._repeated() or ChangeResult(self.staged.base_version)
        changes = RowChanges(
            touched, inserted, condition, self.isolation, self._file_ids, read or {}
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
        tell_skipped(self.staged, done.version)
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
