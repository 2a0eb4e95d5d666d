"""Verb. Whether the keys of rows that a commit adds are new: a PRIMARY KEY or UNIQUE is checked.

The key columns of the new files are read back, whoever wrote these, and compared with each other
and with the rows of the dataset that the commit leaves. Where the writer saw that keys ascend, all
are different, and they are read only if a file of the dataset may have one. The catalog's index and
bounds tell which files may hold a key; bloom filters and page indexes tell which pages, and only
key columns are read of these. Under the lock the same is asked of the files that others added
meanwhile. Rows that the same commit takes out hold no key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.constraints import Constraint, ascending_ends
from lakehouse_source.deletion import positions_of
from lakehouse_source.errors import constraint_sql
from lakehouse_source.language.functions.rows import flat
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    FileMetadata,
    FileRecord,
    ScanTask,
    TransactionRecord,
)
from lakehouse_source.parquet.bloom import Places
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import READ_BUFFER_BYTES, in_order, read_all, read_task
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.read.snapshot import Snapshot, open_snapshot
from lakehouse_source.schema.fields import (
    POSITION,
    unused_names,
    with_metadata_columns,
)
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.apply import is_committed
from lakehouse_source.write.commit.begin import base_snapshot
from lakehouse_source.write.commit.conflicts import (
    FORGOTTEN,
    PUT_BACK,
    Change,
    change_of,
    changes_rows,
    checks_added,
)
from lakehouse_source.write.commit.key_search import (
    ANY_PLACE,
    MOST_VALUES,
    ROWS_PER_KEY,
    KeyFile,
    KeyFiles,
    KeySearch,
    files_with_bounds,
)
from lakehouse_source.write.commit.prerecord import PreparedCommit
from lakehouse_source.write.commit.rewrite import SORTED_BYTES
from lakehouse_source.write.commit.stored_rows import (
    ROW,
    THEIRS,
    Join,
    first_repeated,
    read_new_files,
    row_at,
)

# Rows of the dataset that are compared with the new ones at a time.
_COMPARED_ROWS = 262_144
# How often others' files are read without the lock. After that they are read under the lock, so
# that other commits cannot starve this one.
_TRIES_WITHOUT_LOCK = 4
# Of files with up to so many rows all keys are remembered, once one was looked for in the file.
_REMEMBERED_ROWS = 131_072


Item = TypeVar("Item")


class KeysOutdated(Exception):
    """Others added files that may hold a key of `keys`, and that are not read under the lock."""

    def __init__(self, keys: NewKeys) -> None:
        super().__init__("keys were not compared with files that others added")
        self.keys = keys


# --- The keys of one constraint among the rows of a commit.


@dataclass(frozen=True, slots=True)
class _LookUp:
    """Where rows of the dataset may have a key of new rows: how to read them, file by file.

    `files` come with the places of their keys in `search`; without, any key may be there.
    """

    key: _Key
    join: Join
    snapshot: Snapshot
    spec: ReadSpec
    files: list[tuple[KeyFile, Places]]
    kept: KeyFiles | None
    vectors: Mapping[int, DeletionVector]
    search: KeySearch | None
    position: str


class _Key:
    """The keys of new rows under one constraint. They stay in memory where they are few."""

    def __init__(
        self, constraint: Constraint, spec: WriteSpec, files: Sequence[FileMetadata]
    ) -> None:
        self.constraint = constraint
        self.schema = spec.schema
        self.join = Join.of(constraint.unique, spec.schema)
        self._storage = Storage(spec.uri)
        self._read, self._tasks = read_new_files(spec, files, constraint.unique)
        first, *others = constraint.unique
        self._ascending = [None if others else file.ascending.get(first) for file in files]
        self.is_read = False
        self._held: list[pa.Table] | None = None
        self.rows = 0
        self.ends: dict[str, pa.Array] = {}

    def check_alone(self) -> None:
        """Check that no two of the new rows have one key. Where they ascend, none is read."""
        ends = _together(self._ascending)
        if ends is not None:
            self.ends = {self.constraint.unique[0]: ends}
            self.rows = sum(task.row_count for task in self._tasks)
            return
        found = first_repeated(self._keys(self.join, first_time=True))
        if found is not None:
            raise self.constraint.violation_of(self.shown(found), "another row of this commit")

    def read(self) -> bool:
        """Read keys that ascend; False: they were read before."""
        if self.is_read:
            return False
        deque(self._keys(self.join, first_time=True), maxlen=0)
        return True

    def shown(self, place: int) -> str:
        """A new row, as errors show it."""
        return row_at(self._read, self._tasks, self._storage, place, self.constraint.unique)

    def _keys(self, join: Join, first_time: bool = False) -> Iterator[pa.Table]:
        if first_time:
            self.is_read, self._held, self.rows = True, [], 0
        known = not first_time and self._held is not None
        tables = self._held or () if known else read_all(self._read, self._tasks, self._storage)
        begin, size = 0, 0
        for table in tables:
            keys = join.keys(table, begin=begin)
            begin += table.num_rows
            if first_time:
                size += table.nbytes
                self._note(table, keep=size <= SORTED_BYTES)
                self.rows += keys.num_rows
            yield keys

    def _note(self, table: pa.Table, *, keep: bool) -> None:
        if not keep:
            self._held = None
        elif self._held is not None:
            self._held.append(table)
        for name in self.constraint.unique:
            values = flat(table.column(name))
            if name in self.ends:
                values = pa.concat_arrays([self.ends[name], values])
            least = pc.min_max(values)
            self.ends[name] = pa.array([least["min"], least["max"]], values.type).drop_null()

    def keys(self, join: Join) -> pa.Table:
        """All keys, with the places of their rows."""
        return pa.concat_tables(self._keys(join))

    def search(self, schema: pa.Schema) -> KeySearch | None:
        """The keys to look for in files under a schema; None: they are many, or of other types."""
        if self._held is None or self.rows > MOST_VALUES:
            return None
        return KeySearch.of(pa.concat_tables(self._held).drop_null(), schema)


def _together(ascending: Sequence[pa.Array | None]) -> pa.Array | None:
    """The least and the greatest key of files; None: their keys do not ascend together."""
    found = [ends for ends in ascending if ends is not None]
    if len(found) < len(ascending):
        return None
    order = pc.sort_indices(pa.concat_arrays([ends[:1] for ends in found])).to_pylist()
    return ascending_ends(pa.concat_arrays([found[at] for at in order]))


class NewKeys:
    """The keys of the rows that a commit adds, and the version up to which they were compared."""

    def __init__(
        self, commit: PreparedCommit, constraints: Sequence[Constraint], files: int
    ) -> None:
        staged, new = commit.staged, commit.encoded[:files]
        self._staged = staged
        self._storage = Storage(staged.spec.uri)
        self._keys = [_Key(one, staged.spec, new) for one in constraints]
        # Those that are compared with what others commit meanwhile.
        self._newer_keys = self._keys
        # Rows of the dataset that the commit takes out: by position, condition or partition.
        self._touched = {} if commit.rows is None else commit.rows.changes.touched
        self._compared = set() if commit.rows is None else {*commit.rows.changes.compared}
        changes = None if commit.rows is None else commit.rows.changes
        self._given = None if changes is None else changes.keys
        if changes is not None and checks_added(staged.options.change, changes.isolation):
            # A row of others with one of these keys satisfies the condition of the statement.
            self._newer_keys = [one for one in self._keys if not self._is_compared(one)]
        self._condition = staged.options.overwrite_where
        self._partitions: set[tuple[str | None, ...]] = set()
        if staged.options.dynamic_partitions:
            names = staged.spec.partition_by
            self._partitions = {tuple(file.partitions[name] for name in names) for file in new}
        self._seen = staged.base
        self._tries = 0

    def check(self, catalog: Catalog) -> None:
        """Compare the keys with each other, and with the rows that the dataset has.

        Raises:
            ConstraintViolationError: two rows have one key.
        """
        for key in self._keys:
            # Keys that are looked for in the dataset have to be read.
            looked_for = key in self._newer_keys or not self._is_compared(key)
            if looked_for or not self._differ(key):
                key.check_alone()
        staged = self._staged
        left = [one for one in self._keys if not self._is_compared(one)]
        if staged.options.change is Change.OVERWRITE or staged.base_version == 0 or not left:
            return
        while True:
            with catalog.read() as reader:
                if staged.options.change is Change.APPEND:
                    snapshot = open_snapshot(reader, staged.key, staged.uri, "")
                else:  # what the commit takes out is known of this version
                    snapshot = base_snapshot(reader, staged)
                found = self._look_ups(reader, snapshot, None, left)
                if found and is_committed(reader, snapshot.dataset, staged):
                    return
            if not [one for one in found if one.key.read()]:
                break
        for one in found:
            self._compare(one, None)
        self._seen = snapshot.seen

    def _is_compared(self, key: _Key) -> bool:
        """Tell whether the statement found each row with one of the keys, and replaces it."""
        return self._compared == {*key.constraint.unique}

    def _differ(self, key: _Key) -> bool:
        """Tell whether the statement brought rows whose keys all differ.

        Where the keys are compared, each new row has that of another of them.
        """
        given = self._given
        if given is None or given.column_names != [*key.constraint.unique]:
            return False
        return first_repeated([key.join.keys(given)]) is None

    def under_lock(self) -> NewKeys:
        """The same keys, for which others' files are always read under the lock."""
        self._tries = _TRIES_WITHOUT_LOCK
        return self

    def check_newer(
        self,
        tx: CatalogReader,
        record: DatasetRecord,
        newer: Sequence[TransactionRecord],
        own: Collection[int],
    ) -> None:
        """Compare the keys with what others committed since, under the lock of the dataset.

        `newer` are the commits since the write began, `own` the ids of the commit's own files.

        Raises:
            KeysOutdated: files have to be read; see `check_again`.
            CommitConflictError: another commit has one of the keys.
        """
        staged = self._staged
        if staged.options.change is Change.OVERWRITE:
            return
        if self._seen.version > record.current_version:
            raise staged.conflict(record.current_version, PUT_BACK)
        since = [one for one in newer if one.version > self._seen.version]
        found = self._newer(tx, record, since, own)
        if found and self._tries < _TRIES_WITHOUT_LOCK:
            raise KeysOutdated(self)
        for one in found:
            self._compare(one, since)

    def check_again(self, catalog: Catalog) -> None:
        """Compare the keys with what others committed since, without the lock."""
        self._tries += 1
        staged = self._staged
        for key in self._keys:
            key.read()
        with catalog.read() as reader:
            snapshot = open_snapshot(reader, staged.key, staged.uri, "")
            if is_committed(reader, snapshot.dataset, staged):
                return
            since = reader.all_since(snapshot.dataset, self._seen.version)
            if since is None:
                raise staged.conflict(snapshot.version, FORGOTTEN)
            found = self._newer(reader, snapshot.dataset, since, ())
        for one in found:
            self._compare(one, since)
        self._seen = snapshot.seen

    def _newer(
        self,
        reader: CatalogReader,
        record: DatasetRecord,
        since: Sequence[TransactionRecord],
        own: Collection[int],
    ) -> list[_LookUp]:
        """Where rows that others committed may have one of the keys."""
        changes = [change_of(one.operation) for one in since]
        if not self._newer_keys or not any(one is None or changes_rows(one) for one in changes):
            return []
        snapshot = open_snapshot(reader, self._staged.key, self._staged.uri, "")
        if any(one.operation == "restore" for one in since) or None in changes:
            # Rows returned that were gone.
            return self._look_ups(reader, snapshot, None, self._newer_keys)
        # A rewrite adds no row: its rows are in files that were compared, or in other added files.
        moved = {one.version for one, did in zip(since, changes) if did is Change.REWRITE}
        added = [
            file
            for file in reader.files_added_since(record.id, self._seen.version)
            if file.id not in own and file.version not in moved
        ]
        return self._look_ups(reader, snapshot, added, self._newer_keys) if added else []

    def _look_ups(
        self,
        reader: CatalogReader,
        snapshot: Snapshot,
        files: Sequence[FileRecord] | None,
        keys: Sequence[_Key],
    ) -> list[_LookUp]:
        required = snapshot.dataset.properties.constraints
        found = []
        for key in keys:
            own = required.get(key.constraint.name)
            if own is None or own.expression != key.constraint.expression or not key.rows:
                continue
            one = self._look_up(reader, snapshot, files, key)
            if one.files:
                found.append(one)
        return found

    def _look_up(
        self,
        reader: CatalogReader,
        snapshot: Snapshot,
        files: Sequence[FileRecord] | None,
        key: _Key,
    ) -> _LookUp:
        unique = key.constraint.unique
        join = key.join
        if not snapshot.schema.equals(key.schema):
            join = Join(unique, snapshot.schema, key.schema)
        (position,) = unused_names((POSITION,), snapshot.schema.names)
        columns = dict.fromkeys(unique)
        if self._condition is not None:
            columns |= dict.fromkeys(self._condition.bind(snapshot.schema).columns)
        if self._touched:
            columns[position.name] = None

        bound = join.sought(key.ends, ends=True).bind(snapshot.schema)
        kept = KeyFiles(reader, snapshot, bound) if files is None else None
        known = (
            files_with_bounds(reader, snapshot, bound, files or ()) if kept is None else kept.files
        )
        if self._partitions:
            texts = snapshot.partition_texts()
            known = [file for file in known if texts(file.record) not in self._partitions]
        search = key.search(snapshot.schema) if known else None
        if search is not None:
            found = search.within(known)
        else:
            if files is not None or key.is_read:
                known = [one for one in known if evaluate(bound, one.bounds.__getitem__).may_match]
            found = [(file, ANY_PLACE) for file in known]
        vectors: Mapping[int, DeletionVector] = {}
        if snapshot.has_vectors:
            vectors = reader.vectors([file.record.id for file, _ in found], snapshot.version)
        spec = ReadSpec(
            uri=self._staged.spec.uri,
            schema=with_metadata_columns(snapshot.schema, [*columns], (position,)),
            columns=tuple(columns),
            partition_by=snapshot.partition_by,
            file_schemas=snapshot.file_schemas,
            predicate=None if bound.always_true else bound,
        )
        return _LookUp(key, join, snapshot, spec, found, kept, vectors, search, position.name)

    def _compare(self, one: _LookUp, since: Sequence[TransactionRecord] | None) -> None:
        """Read rows that may have a key; `since` are the commits that may have added them."""
        place = self._first_match(one)
        if place is None:
            return
        shown, constraint = one.key.shown(place), one.key.constraint
        if since is None:
            raise constraint.violation_of(shown, "a row of the dataset")
        text = f"constraint {constraint.name!r}, {constraint_sql(constraint.expression)}: a row "
        text += f"with the key of the row with {shown} was committed meanwhile"
        raise self._staged.conflict(one.snapshot.version, text)

    def _first_match(self, one: _LookUp) -> int | None:
        """The place of the first new row whose key a row of the dataset has."""
        mine: pa.Table | None = None
        first: int | None = None
        held: list[pa.Table] = []

        def match() -> None:
            nonlocal first, mine
            theirs = pa.concat_tables(held).combine_chunks()  # from many files, of few rows each
            held.clear()
            mine = one.key.keys(one.join) if mine is None else mine
            names = mine.column_names[:-1]
            if len(names) == 1:  # a tenth of the time of a join
                both = mine.filter(pc.is_in(mine.column(0), value_set=flat(theirs.column(0))))
            else:
                both = mine.join(theirs.select(names), names, join_type="left semi")
            if both.num_rows:
                least = pc.min(both.column(ROW)).as_py()
                first = least if first is None else min(first, least)

        for task, table in self._read(one):
            held.append(one.join.keys(self._staying(one, task, table), THEIRS))
            if sum(table.num_rows for table in held) > max(_COMPARED_ROWS, one.key.rows):
                match()
        if sum(table.num_rows for table in held):
            match()
        return first

    def _read(self, one: _LookUp) -> Iterator[tuple[ScanTask, pa.Table]]:
        reads = self._narrowed(one)
        found = _at_once(reads, lambda read: read_task(*read, self._storage))
        for (_, task), table in found:
            yield task, table

    def _narrowed(self, one: _LookUp) -> list[tuple[ReadSpec, ScanTask]]:
        """How to read the files that may have a key; where these are few, only their rows."""
        spec, search, schema = one.spec, one.search, one.snapshot.schema
        texts, vectors = one.snapshot.partition_texts(), one.vectors

        def whole(file: FileRecord, filtered: bool) -> ScanTask:
            return ScanTask.whole(file, texts(file), vectors.get(file.id), filtered)

        if search is None:
            return [(spec, whole(file.record, True)) for file, _ in one.files]
        reads = []
        left = search.left(self._storage, one.files, spec.file_schemas)
        if search.is_numeric and not self._touched and self._condition is None:
            self._remember(one, [file for file, _ in left])
            left = search.among(left)
        if one.kept is not None:
            one.kept.keep()
        for file, places in left:
            if len(places) * ROWS_PER_KEY > file.record.row_count:
                reads.append((spec, whole(file.record, False)))
            else:
                keys = search.keys.take(places)
                values = {name: flat(pc.unique(keys[name])) for name in keys.column_names}
                bound = one.join.sought(values, ends=False).bind(schema)
                narrow = replace(spec, predicate=None if bound.always_true else bound)
                reads.append((narrow, whole(file.record, True)))
        return reads

    def _remember(self, one: _LookUp, files: Sequence[KeyFile]) -> None:
        """Read all keys of small files, of which few are needed: the next commits need others."""
        assert one.search is not None
        texts = one.snapshot.partition_texts()
        new = [f for f in files if f.values is None and f.record.row_count <= _REMEMBERED_ROWS]
        spec = replace(one.spec, columns=one.key.constraint.unique, predicate=None)
        found: dict[int, list[pa.Array]] = {file.record.id: [] for file in new}
        tasks = [ScanTask.whole(file.record, texts(file.record), None) for file in new]
        reads = list(zip(new, tasks))
        for (file, _), table in _at_once(
            reads, lambda read: read_task(spec, read[1], self._storage)
        ):
            found[file.record.id].append(flat(table.column(0)))
        for file in new:
            one.search.remember(file, found[file.record.id])

    def _staying(self, one: _LookUp, task: ScanTask, table: pa.Table) -> pa.Table:
        """The rows that the commit does not take out."""
        touched = self._touched.get(task.path)
        if touched is not None:
            positions = table.column(one.position)
            gone = positions_of(positions) & touched.all
            if gone:
                gone_too = pc.is_in(positions, value_set=pa.array(gone, pa.int64()))
                table = table.filter(pc.invert(gone_too))
        if self._condition is not None:
            replaced = matching_mask(table, self._condition.bind(one.snapshot.schema))
            table = table.filter(pc.invert(pc.fill_null(replaced, False)))
        return table


def _at_once(
    reads: Sequence[Item], open_stream: Callable[[Item], Iterator[pa.Table]]
) -> Iterator[tuple[Item, pa.Table]]:
    if not reads:
        return iter(())
    width = min(len(reads), max(2, pa.cpu_count()))
    return in_order(reads, open_stream, width=width, buffer_bytes=READ_BUFFER_BYTES)


def new_keys(commit: PreparedCommit, files: int) -> NewKeys | None:
    """The keys of a commit whose first `files` files have new rows; None: none is to be checked."""
    staged = commit.staged
    assigned = None if commit.rows is None else commit.rows.changes.assigned
    constraints = [
        one
        for one in staged.spec.constraints
        if one.unique and (assigned is None or not assigned.isdisjoint(one.unique))
    ]
    if not constraints or not files or staged.options.change in (Change.DELETE, Change.REWRITE):
        return None
    return NewKeys(commit, constraints, files)
