"""Verb. What commits changed: files and positions of the rows, and rows by their identities.

Runs on the driver: it reads the catalog, and deletion vectors that the catalog has no copy of.

A commit took away the rows of the files that it removed, and the rows that a new deletion vector
marks and the vector before did not mark. It brought the rows of the files that it added, and the
rows that a new vector (of a restore) no longer marks. A compaction changes no row and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate, groupby

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.sql.reader import CatalogReader, DatasetChanges
from lakehouse_source.deletion import Positions, as_array, encode, positions_of
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import (
    DeletionVector,
    FileRecord,
    RowGroupMetadata,
    ScanTask,
    TransactionRecord,
)
from lakehouse_source.parquet.open_file import deleted_rows
from lakehouse_source.parquet.read_write_specs import ReadSpec, Where
from lakehouse_source.parquet.reader import read_all, read_each
from lakehouse_source.read.plan import plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.arrow_arrays import empty, equal_rows
from lakehouse_source.schema.fields import ROW, VERSION, unused_names
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
    columns. `spec` reads two more columns at the end, whose names are `hidden`: the identity of a
    row, and the version that changed the row last. `narrow_spec` reads them if they are needed;
    `identity_spec` reads only these two.
    """

    spec: ReadSpec
    narrow_spec: ReadSpec
    identity_spec: ReadSpec
    hidden: tuple[str, str]
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


def plan_changes(
    reader: CatalogReader,
    newest: Snapshot,
    pairs: Sequence[tuple[int, int]],
    columns: Sequence[str],
    where: PredicateSet,
    uri: Where,
    *,
    with_identities: bool = True,
) -> FeedPlan:
    """Plan to read `columns` of what differs between the versions of each pair.

    The rows are in the schema of `newest`. Without identities these are read only where images of
    an update are to be paired.

    Raises:
        InvalidPredicateError, StorageError, CorruptDatasetError
    """
    touched = _between(reader, newest, pairs)
    return _plan(reader, newest, touched, columns, where, uri, with_identities)


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
    with_identities: bool = True,
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
    # Nobody reads identities that nothing is paired by.
    paired = with_identities or any(before and after for _, before, after in pairs)
    read, identify = (
        plan(
            reader,
            snapshot,
            read_uri=uri,
            predicates=condition,
            columns=wanted,
            metadata=hidden,
            files=some,
        )
        for wanted, condition, some in (
            ([*schema.names, *names], where, files),
            (names, None, files if paired else ()),
        )
    )
    in_part = list({part.file.id for part in parts if part.positions is not None})
    groups = reader.row_groups(in_part, statistics=False)
    tasks, identities = (
        {task.place.id: task for task in one.tasks if task.place is not None}
        for one in (read, identify)
    )

    def side(some: Sequence[_Part]) -> Side:
        return Side(_tasks(some, tasks, groups), _tasks(some, identities, groups))

    changed = tuple(Changed(version, side(before), side(after)) for version, before, after in pairs)
    # Making these columns takes a tenth of the time of reading a small file.
    narrow = replace(read.spec, columns=(*columns, *(names if with_identities else ())))
    return FeedPlan(read.spec, narrow, identify.spec, (names[0], names[1]), changed)


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
    strange = {id for ids in marked.values() for id in ids if id not in known}
    if strange:
        raise CorruptDatasetError(
            path="the catalog", reason=f"it has vectors of files that it lacks: {min(strange)}"
        )
    for key, one in found.items():
        gone = {file.id for file in (*one.added, *one.removed)}
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


# --- The rows that a commit changed: deleted, inserted, or updated, by their identities.
#
# A row that a commit took away and brought again is an update if its values differ. If they do not,
# nothing is told of it. Rows whose identity and version of the last change are the same were only
# moved: their values are not compared.


class Kind(Enum):
    """What the feed tells of a row. The values are those of Delta and of Spark."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"


def changed_rows(
    plan: FeedPlan, parts: Sequence[Changed], storage: Storage
) -> Iterator[tuple[Changed, Kind, pa.Table]]:
    """The rows that parts of a plan changed, with the columns of `plan.spec_of(part)`.

    The images of an update before and after it come one after the other. The images before
    updates are held in memory, and the identities of rows that were moved.
    """
    for is_paired, several in groupby(parts, lambda part: part.is_paired):
        if not is_paired:
            yield from _unpaired_rows(plan, tuple(several), storage)
            continue
        for part in several:
            for kind, rows in _paired_rows(plan, part, storage):
                yield part, kind, rows


def _unpaired_rows(
    plan: FeedPlan, parts: tuple[Changed, ...], storage: Storage
) -> Iterator[tuple[Changed, Kind, pa.Table]]:
    """As `changed_rows`. The files of all parts are read side by side: there may be thousands."""
    tasks: list[ScanTask] = []
    parts_of: dict[int, tuple[Changed, Kind]] = {}
    for part in parts:
        for kind, side in ((Kind.DELETE, part.before), (Kind.INSERT, part.after)):
            tasks += side.tasks
            parts_of |= {id(task): (part, kind) for task in side.tasks}
    for task, rows in read_each(plan.narrow_spec, tasks, storage):
        yield *parts_of[id(task)], rows


def _paired_rows(
    plan: FeedPlan, part: Changed, storage: Storage
) -> Iterator[tuple[Kind, pa.Table]]:
    moved = _Moved.of(plan.identity_spec, part, storage)
    spec = plan.spec_of(part)
    befores: list[pa.Table] = []
    for table in _rows(spec, part.before, storage):
        alone, updated = moved.split(table)
        if alone.num_rows:
            yield Kind.DELETE, alone
        if updated.num_rows:
            befores.append(updated)
    before = pa.concat_tables([empty(spec.output_schema), *befores])
    ids = _identities(before).combine_chunks()
    met = Positions()
    for table in _rows(spec, part.after, storage):
        alone, updated = moved.split(table)
        if alone.num_rows:
            yield Kind.INSERT, alone
        if not updated.num_rows:
            continue
        places = pc.index_in(_identities(updated), value_set=ids)
        # The condition can hold for one image of a row and not for the other.
        lonely = _filter(updated, pc.is_null(places))
        both = _filter(updated, pc.is_valid(places))
        met |= positions_of(_identities(both))
        images = _taken(before, pc.drop_null(places).combine_chunks())
        differs = pc.invert(equal_rows(_values(images), _values(both)))
        for kind, rows in (
            (Kind.UPDATE_PREIMAGE, _filter(images, differs)),
            (Kind.UPDATE_POSTIMAGE, _filter(both, differs)),
            (Kind.UPDATE_POSTIMAGE, lonely),
        ):
            if rows.num_rows:
                yield kind, rows
    left = _filter(before, pc.invert(_is_among(_identities(before), met)))
    if left.num_rows:
        yield Kind.UPDATE_PREIMAGE, left


class _Moved:
    """Rows that a commit took away and brought again, by their identities.

    `kept` are those that nothing changed, `updated` the others.
    """

    def __init__(self, kept: Positions, updated: Positions) -> None:
        self.kept = kept
        self._updated = updated

    @classmethod
    def of(cls, spec: ReadSpec, part: Changed, storage: Storage) -> _Moved:
        if not part.is_paired:
            return cls(Positions(), Positions())
        before, after = part.before.identities, part.after.identities
        gone = list(read_all(spec, before, storage))
        taken = pa.concat_tables([empty(spec.output_schema), *gone])
        brought = _wanted(spec, after, positions_of(taken.column(0)), storage)
        if not brought.num_rows:
            return cls(Positions(), Positions())
        both = positions_of(brought.column(0))
        # A row that was only moved was changed last by a commit that the rows taken away know.
        old = _filter(brought, pc.less_equal(brought.column(1), pc.max(taken.column(1))))
        places = pc.index_in(old.column(0), value_set=taken.column(0))
        same = pc.equal(taken.column(1).take(places), old.column(1))
        kept = positions_of(old.column(0).filter(same))
        return cls(kept, both - kept)

    def split(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows that have no counterpart, and those that may have been updated."""
        if not (self.kept or self._updated):
            return table, table.slice(0, 0)
        ids = _identities(table)
        updated = _is_among(ids, self._updated)
        alone = pc.invert(pc.or_(updated, _is_among(ids, self.kept)))
        return _filter(table, alone), _filter(table, updated)


def _rows(spec: ReadSpec, side: Side, storage: Storage) -> Iterator[pa.Table]:
    return read_all(spec, side.tasks, storage)


def _wanted(
    spec: ReadSpec, tasks: tuple[ScanTask, ...], wanted: Positions, storage: Storage
) -> pa.Table:
    """Identities and versions of those rows whose identity is wanted."""
    tables = read_all(spec, tasks, storage)
    found = [_filter(table, _is_among(table.column(0), wanted)) for table in tables]
    return pa.concat_tables([empty(spec.output_schema), *found])


def _is_among(ids: pa.ChunkedArray, wanted: Positions) -> pa.ChunkedArray | pa.Array:
    """Which of the identities are wanted."""
    among = positions_of(ids) & wanted
    if len(among) in (0, len(ids)):
        return pa.repeat(pa.scalar(len(among) > 0), len(ids))
    return pc.is_in(ids, value_set=as_array(among))


def _filter(table: pa.Table, mask: pa.ChunkedArray | pa.Array) -> pa.Table:
    """The rows that a mask marks. Mostly these are all or none, and nothing is copied."""
    marked = pc.sum(mask).as_py() or 0
    if marked == table.num_rows:
        return table
    return table.filter(mask) if marked else table.slice(0, 0)


def _taken(table: pa.Table, places: pa.Array) -> pa.Table:
    """The rows at some places. Mostly these follow each other, and nothing is copied."""
    first = places[0].as_py() if len(places) else 0
    if places.equals(pa.arange(first, first + len(places)).cast(places.type)):
        return table.slice(first, len(places))
    return table.take(places)


def _identities(table: pa.Table) -> pa.ChunkedArray:
    return table.column(table.num_columns - 2)


def _values(table: pa.Table) -> pa.Table:
    return table.select(range(table.num_columns - 2))


def last_versions(
    plan: FeedPlan, ids: Positions, storage: Storage
) -> Iterator[tuple[int, Positions]]:
    """The version of the last commit that changed each of these rows, and did not only move it."""
    left = ids.copy()
    for part in reversed(plan.parts):
        if not left:
            return
        found = Positions()
        for tasks in (part.before.identities, part.after.identities):
            for table in read_all(plan.identity_spec, tasks, storage):
                found |= positions_of(table.column(0))
        found &= left
        if found:
            found -= _Moved.of(plan.identity_spec, part, storage).kept
        if found:
            yield part.version, found
            left -= found
