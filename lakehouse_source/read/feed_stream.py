"""Verb. How far a batch of a stream of changes gets, and what it reads: whole commits.

Positions, schemas and limits are those of streams of rows (`read/changes.py`): the rows of a
snapshot come first, as rows that were inserted, and then what each commit changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import TransactionRecord
from lakehouse_source.parquet.read_write_specs import Where
from lakehouse_source.read.changes import AppendedFiles, starting_position
from lakehouse_source.read.feed import Feed, expired_changes, feed_schema
from lakehouse_source.read.feed_plan import (
    FeedPlan,
    commits_that_change_rows,
    plan_changes,
    plan_snapshot,
)
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.streaming import (
    Admission,
    Effect,
    Limits,
    Position,
    Rules,
    batch_start,
    effect_of,
)

# How many commits are planned at once: enough for most batches.
_COMMITS_AT_ONCE = 100


def starting_change(
    reader: CatalogReader,
    newest: Snapshot,
    current: int,
    version: int | str | None,
    timestamp: datetime | None,
    fail_on_data_loss: bool,
) -> Position:
    """Where a new stream of changes begins; see `starting_position`.

    Raises:
        VersionNotFoundError: the changes of the version were expired.
    """
    found = starting_position(reader, newest, current, version, timestamp, fail_on_data_loss)
    if found.snapshot is None and found.version <= current and fail_on_data_loss:
        first = reader.transaction(newest.dataset.id, found.version)
        if first is None or _is_lost(newest, first):
            raise expired_changes(newest, found.version)
    return found


def _is_lost(newest: Snapshot, commit: TransactionRecord) -> bool:
    """Tell whether rows that a commit changed may be gone, because the version before was expired.

    Version 1 has no version before it, and a commit that only appends took no rows away.
    """
    oldest, effect = newest.dataset.oldest_version, effect_of(commit)
    if effect is Effect.NOTHING:
        return False
    kept = commit.version == 1 or effect is Effect.APPENDS
    return commit.version < oldest or (commit.version == oldest and not kept)


class ChangedRows(AppendedFiles):
    """What a stream of changes reads, at the moment of one snapshot of the catalog.

    A commit is never divided among batches. `columns` may name the identity of a row too.
    """

    def __init__(
        self,
        reader: CatalogReader,
        newest: Snapshot,
        schema_version: int,
        columns: Sequence[str] | None,
        where: PredicateSet,
        fail_on_data_loss: bool,
        uri: Where,
    ) -> None:
        # No commit is refused for what it did to rows.
        rules = Rules(True, True, fail_on_data_loss)
        super().__init__(reader, newest, schema_version, columns, where, rules)
        self._newest = newest
        self._location = uri
        self._schema = feed_schema(self._snapshot.schema, columns)

    # --- how far a batch gets

    def advance(self, start: Position, limits: Limits, through: int) -> tuple[Position, bool]:
        """As for a stream of rows; a batch consists of whole commits, at least one."""
        if start.snapshot is not None:
            return super().advance(start, limits, through)
        admission = Admission(limits)
        position = start
        while position.version <= through:
            last = min(through, position.version + _COMMITS_AT_ONCE - 1)
            last, versions, refusal = self._readable(position, last)
            for part in self._planned(sorted(versions)).parts:
                tasks = [*part.before.tasks, *part.after.tasks]
                files = len({task.path for task in tasks})
                if not admission.has_room_for(files):
                    return Position(part.version), True
                admission.take(sum(task.byte_count for task in tasks), files)
            position = Position(last + 1)
            if refusal is not None:
                if not admission.files:
                    raise refusal
                break
        return position, admission.files > 0

    def _is_read(self, commit: TransactionRecord) -> bool:
        return effect_of(commit) is not Effect.NOTHING and not _is_lost(self._newest, commit)

    def _is_lost(self, commit: TransactionRecord) -> bool:
        return _is_lost(self._newest, commit)

    # --- what a batch reads

    def feed(self, start: Position, end: Position, columns: Sequence[str]) -> Feed:
        """The changes of a batch that begins after `start` and ends with `end`.

        Raises:
            StreamSchemaError, StreamDataLossError: a commit between the two cannot be read.
        """
        start = batch_start(start, end)
        if start.snapshot is not None:
            plan = self._plan_of_snapshot(start, end, columns)
            found = [self._reader.transaction(self._dataset.id, start.snapshot)]
        else:
            last = end.version - 1
            plan = self._planned(self._versions(start, last), columns)
            found = list(
                commits_that_change_rows(self._reader, self._dataset.id, start.version, last)
            )
        names = [name for name in self._schema.names[:-3] if name in columns]
        fields = [*map(self._schema.field, names), *list(self._schema)[-3:]]
        return Feed(
            dataset=self._uri,
            start=start.version,
            end=end.version,
            columns=tuple(names),
            schema=pa.schema(fields),
            dataset_schema=self._snapshot.schema,
            plan=plan,
            per_commit=plan,
            timestamps={one.version: one.timestamp for one in found if one is not None},
            updates=True,
        )

    def _versions(self, start: Position, through: int) -> list[int]:
        """The versions whose changes are read; every commit up to `through` can be read."""
        versions: set[int] = set()
        position = start
        while position.version <= through:
            last, found, refusal = self._readable(position, through)
            if refusal is not None:
                raise refusal
            versions |= found
            position = Position(last + 1)
        return sorted(versions)

    def _planned(self, versions: Sequence[int], columns: Sequence[str] | None = None) -> FeedPlan:
        own = self._own(self._schema.names if columns is None else columns)
        snapshot, where = self._snapshot, self._where
        commits = [(version - 1, version) for version in versions]
        return plan_changes(self._reader, snapshot, commits, own, where, self._location)

    def _plan_of_snapshot(self, start: Position, end: Position, columns: Sequence[str]) -> FeedPlan:
        version = start.snapshot
        assert version is not None
        files = self._without_lost(self._of_snapshot(start, end), start, self._location)
        vectors = self._reader.vectors([file.id for file in files], version)
        if version < self._dataset.oldest_version:
            vectors = {**self._later_vectors(files, version), **vectors}
        return plan_snapshot(
            self._reader,
            self._snapshot,
            version,
            files,
            vectors,
            self._own(columns),
            self._where,
            self._location,
        )

    def _own(self, columns: Sequence[str]) -> list[str]:
        """The columns that files have, without metadata columns."""
        return [name for name in columns if name in self._snapshot.schema.names]
