"""Verb. Where the rows are that commits changed: their files and positions.

Runs on the driver: it reads the catalog, and deletion vectors that the catalog has no copy of.

A commit took away the rows of the files that it removed, and the rows that a new deletion vector
marks and the vector before did not mark. It brought the rows of the files that it added, and the
rows that a new vector (of a restore) no longer marks. A compaction changes no row and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader, DatasetChanges
from lakehouse_source.deletion.vector import Positions, encode
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import (
    DeletionVector,
    FileRecord,
    RowGroupMetadata,
    ScanTask,
    TransactionRecord,
)
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.parquet.read_write_specs import ReadSpec, Where
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.metadata_columns import ROW, VERSION, unused_names
from lakehouse_source.storage import Storage
from lakehouse_source.streaming import Effect, effect_of


@dataclass(frozen=True, slots=True)
class Side:
    """The rows that a commit took away, or those that it brought.

    `tasks` read the rows that satisfy the condition; `identities` read the identity and the version
    of all the rows.
    """

    tasks: tuple[ScanTask, ...] = ()
    identities: tuple[ScanTask, ...] = ()


@dataclass(frozen=True, slots=True)
class Changed:
    """The rows that a commit, or a range of commits, took away and brought."""

    version: int
    before: Side
    after: Side

    @property
    def is_paired(self) -> bool:
        """Tell whether the same rows may have been both taken away and brought."""
        return bool(self.before.identities and self.after.identities)


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What a feed reads; its parts are in the order of their versions.

    For tasks of `Side.tasks`, `spec` reads all columns of the dataset, and `narrow_spec` the wanted
    columns. Both read two more columns at the end: the identity of a row, and the version that
    changed the row last. `identity_spec` reads only these two.
    """

    spec: ReadSpec
    narrow_spec: ReadSpec
    identity_spec: ReadSpec
    parts: tuple[Changed, ...]

    def spec_of(self, part: Changed) -> ReadSpec:
        """How rows of a part are read: all columns if images of an update are to be compared."""
        return self.spec if part.is_paired else self.narrow_spec


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a file: those that `deleted` does not mark; of these, `positions` (None: all)."""

    file: FileRecord
    deleted: DeletionVector | None = None
    positions: Positions | None = None


@dataclass(slots=True)
class _Touched:
    """The files between two versions: added, removed, and marked by another vector."""

    since: int
    version: int
    added: list[FileRecord] = field(default_factory=list)
    removed: list[FileRecord] = field(default_factory=list)
    marked: list[FileRecord] = field(default_factory=list)
    vectors_before: Mapping[int, DeletionVector] = field(default_factory=dict)
    vectors_after: Mapping[int, DeletionVector] = field(default_factory=dict)


def commits_that_change_rows(
    reader: CatalogReader, dataset_id: int, start: int, end: int
) -> list[TransactionRecord]:
    """The commits `start` to `end` that did not only move rows or change the schema."""
    found = reader.transactions_since(dataset_id, start - 1, end - start + 1)
    return [one for one in found if one.version <= end and effect_of(one) is not Effect.NOTHING]


def plan_commits(
    reader: CatalogReader,
    newest: Snapshot,
    versions: Sequence[int],
    columns: Sequence[str],
    where: PredicateSet,
    uri: Where,
) -> FeedPlan:
    """Plan to read `columns` of what each of these commits changed, in the schema of `newest`.

    Raises:
        InvalidPredicateError, StorageError, CorruptDatasetError
    """
    touched = _between(reader, newest, [(version - 1, version) for version in versions])
    return _plan(reader, newest, touched, columns, where, uri)


def plan_net(
    reader: CatalogReader,
    newest: Snapshot,
    since: int,
    columns: Sequence[str],
    where: PredicateSet,
    uri: Where,
) -> FeedPlan:
    """Plan to read `columns` of what differs between `newest` and the version `since`.

    Raises:
        InvalidPredicateError, StorageError, CorruptDatasetError
    """
    touched = _between(reader, newest, [(since, newest.version)])
    return _plan(reader, newest, touched, columns, where, uri)


def plan_snapshot(
    reader: CatalogReader,
    newest: Snapshot,
    version: int,
    files: Sequence[FileRecord],
    vectors: Mapping[int, DeletionVector],
    columns: Sequence[str],
    where: PredicateSet,
    uri: Where,
) -> FeedPlan:
    """Plan to read `columns` of files of a version, as if that version had brought their rows.

    Raises:
        InvalidPredicateError, StorageError, CorruptDatasetError
    """
    touched = _Touched(version, version, added=list(files), vectors_after=vectors)
    return _plan(reader, newest, [touched], columns, where, uri)


def _plan(
    reader: CatalogReader,
    newest: Snapshot,
    touched: Sequence[_Touched],
    columns: Sequence[str],
    where: PredicateSet,
    uri: Where,
) -> FeedPlan:
    storage = Storage(uri)
    pairs = [(one.version, _before(one, storage), _after(one, storage)) for one in touched]
    parts = [part for _, *both in pairs for some in both for part in some]
    files = list({part.file.id: part.file for part in parts}.values())
    # A column that a file lacks is NULL in its rows, even if a later schema forbids NULL.
    schema = pa.schema([one.with_nullable(True) for one in newest.schema], newest.schema.metadata)
    snapshot = replace(newest, schema=schema, has_vectors=False)
    hidden = unused_names((ROW, VERSION), schema.names)
    names = [column.name for column in hidden]
    read, identify = (
        plan(
            reader,
            snapshot,
            read_uri=uri,
            predicates=condition,
            columns=wanted,
            metadata=hidden,
            files=files,
        )
        for wanted, condition in (([*schema.names, *names], where), (names, None))
    )
    in_part = list({part.file.id for part in parts if part.positions is not None})
    groups = reader.row_groups(in_part, statistics=False)
    tasks, identities = (_by_file(one.tasks) for one in (read, identify))

    def side(some: Sequence[_Part]) -> Side:
        return Side(_tasks(some, tasks, groups), _tasks(some, identities, groups))

    changed = tuple(Changed(version, side(before), side(after)) for version, before, after in pairs)
    narrow = replace(read.spec, columns=(*columns, *names))
    return FeedPlan(read.spec, narrow, identify.spec, changed)


def _by_file(tasks: Sequence[ScanTask]) -> dict[int, ScanTask]:
    return {task.place.id: task for task in tasks if task.place is not None}


def _between(
    reader: CatalogReader, newest: Snapshot, ranges: Sequence[tuple[int, int]]
) -> list[_Touched]:
    """The files in which two versions differ, for each pair of versions. Pairs do not overlap."""
    if not ranges:
        return []
    changes = reader.changes_since(newest.dataset.id, ranges[0][0], ranges[-1][1])
    removed_at = {id: version for version, ids in changes.removed_files.items() for id in ids}
    marked_at = _marked(changes)
    known = {file.id: file for file in changes.files}
    others = {*removed_at, *(id for ids in marked_at.values() for id in ids)} - set(known)
    known |= {file.id: file for file in reader.files_by_id(sorted(others))}
    # A file from before all of these versions is in each of them, until it is removed.
    last = ranges[-1][1]
    places = {version: one for one in ranges for version in range(one[0] + 1, one[1] + 1)}
    found = {one: _Touched(*one) for one in ranges}
    for id, file in known.items():
        added_in = places.get(file.version)
        removed_in = places.get(removed_at.get(id, last + 1))
        if added_in == removed_in:
            continue
        if added_in is not None:
            found[added_in].added.append(file)
        if removed_in is not None:
            found[removed_in].removed.append(file)
    marked: dict[tuple[int, int], set[int]] = {}
    for version, ids in marked_at.items():
        if version in places:
            marked.setdefault(places[version], set()).update(ids)
    for key, one in found.items():
        gone = {file.id for file in (*one.added, *one.removed)}
        strange = marked.get(key, set()) - known.keys()
        if strange:
            raise CorruptDatasetError(
                path="the catalog", reason=f"it has vectors of files that it lacks: {min(strange)}"
            )
        within = (known[id] for id in sorted(marked.get(key, set()) - gone))
        one.marked = [file for file in within if file.version <= key[0]]
        if newest.has_vectors:
            before = [file.id for file in (*one.removed, *one.marked)]
            after = [file.id for file in (*one.added, *one.marked)]
            one.vectors_before = reader.vectors(before, key[0])
            one.vectors_after = reader.vectors(after, key[1])
    return list(found.values())


def _marked(changes: DatasetChanges) -> dict[int, set[int]]:
    """Ids of files whose vector a version added or took away."""
    found: dict[int, set[int]] = {}
    for version, vectors in changes.vectors.items():
        found.setdefault(version, set()).update(vectors)
    for version, ids in changes.removed_vectors.items():
        found.setdefault(version, set()).update(ids)
    return found


def _before(one: _Touched, storage: Storage) -> list[_Part]:
    parts = [_Part(file, one.vectors_before.get(file.id)) for file in one.removed]
    return parts + _differing(one.marked, one.vectors_after, one.vectors_before, storage)


def _after(one: _Touched, storage: Storage) -> list[_Part]:
    parts = [_Part(file, one.vectors_after.get(file.id)) for file in one.added]
    return parts + _differing(one.marked, one.vectors_before, one.vectors_after, storage)


def _differing(
    files: Sequence[FileRecord],
    marking: Mapping[int, DeletionVector],
    other: Mapping[int, DeletionVector],
    storage: Storage,
) -> list[_Part]:
    """The rows of files that `marking` marks and `other` does not."""
    parts = []
    for file in files:
        more, fewer = (
            deleted_rows(vectors.get(file.id), file.path, file.row_count, storage)
            for vectors in (marking, other)
        )
        rows = more - fewer
        if rows:
            parts.append(_Part(file, positions=rows))
    return parts


def _tasks(
    parts: Sequence[_Part],
    tasks: Mapping[int, ScanTask],
    groups: Mapping[int, Sequence[RowGroupMetadata]],
) -> tuple[ScanTask, ...]:
    found = []
    for part in parts:
        task = tasks.get(part.file.id)
        if task is None:
            continue  # no row of the file satisfies the condition
        if part.positions is None:
            found.append(replace(task, deleted=part.deleted))
            continue
        only = _only(task, part.positions, groups[part.file.id])
        if only is not None:
            found.append(only)
    return tuple(found)


def _only(
    task: ScanTask, positions: Positions, groups: Sequence[RowGroupMetadata]
) -> ScanTask | None:
    """The task, reading only these rows of its file.

    None: the task's row groups have no such row.
    """
    starts = list(accumulate((group.row_count for group in groups), initial=0))
    kept = [
        group
        for group, start in zip(groups, starts)
        if (task.row_groups is None or group.index in task.row_groups)
        and positions.range_cardinality(start, start + group.row_count)
    ]
    if not kept:
        return None
    others = Positions()
    others.add_range(0, task.file_row_count)
    others -= positions
    vector = None
    if others:
        blob = encode(others)
        vector = DeletionVector("", 0, 0, len(blob), len(others), blob)
    return replace(
        task,
        row_groups=tuple(group.index for group in kept),
        row_count=sum(group.row_count for group in kept),
        byte_count=sum(group.compressed_byte_size for group in kept),
        deleted=vector,
    )
