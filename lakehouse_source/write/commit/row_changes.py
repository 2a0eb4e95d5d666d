"""Verb. Rows of existing files are deleted or moved: the deletion vectors of one commit.

A statement knows the rows by their positions in the files of the version that it is based on.
Before the commit, the vectors are made for that version and written. Under the lock they are fitted
to changes that other commits made meanwhile (`apply_rows`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.deletion import Positions, PuffinFile
from lakehouse_source.errors import CorruptDatasetError, StorageError
from lakehouse_source.failpoints import reach
from lakehouse_source.language import BoundPredicate, PredicateSet
from lakehouse_source.model import (
    DeletionVector,
    FileMetadata,
    FileRecord,
    ScanTask,
    TransactionRecord,
)
from lakehouse_source.parquet.names import vector_file_name
from lakehouse_source.parquet.open_file import deleted_rows
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.read.snapshot import History, Snapshot
from lakehouse_source.storage import Storage, split_shared
from lakehouse_source.write.commit.conflicts import Change, Collision, Isolation, change_of
from lakehouse_source.write.commit.key_search import KeyFiles, KeySearch

# The catalog keeps a copy of smaller blobs, which travel with scan tasks.
SMALL_BLOB_BYTES = 4096
# So many local files of together so many bytes are read under the lock of the dataset, and vectors
# of so many rows are written. It takes less time than to begin the transaction again and to wait
# for the lock once more.
_FEW_FILES = 16
_FEW_BYTES = 256 * 1024
_FEW_POSITIONS = 1000


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Positions of the rows of one data file that a statement takes out of it.

    `updated` are the rows that the statement rewrites elsewhere, `deleted` the others.
    """

    deleted: Positions
    updated: Positions

    @property
    def all(self) -> Positions:
        return self.deleted | self.updated


class TouchedFiles:
    """Gathers the rows that a statement takes out of files, by path."""

    def __init__(self) -> None:
        self._rows: dict[str, TouchedRows] = {}

    def delete(self, path: str, positions: Positions) -> None:
        """Add rows that are deleted."""
        if positions:
            self._of(path).deleted.update(positions)

    def update(self, path: str, positions: Positions) -> None:
        """Add rows that are rewritten elsewhere."""
        if positions:
            self._of(path).updated.update(positions)

    def _of(self, path: str) -> TouchedRows:
        return self._rows.setdefault(path, TouchedRows(Positions(), Positions()))

    @property
    def found(self) -> dict[str, TouchedRows]:
        return self._rows


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a statement does to the rows of the version that it is based on.

    `touched` and `file_ids` are by the paths of the data files; `file_ids` has the known ids only.
    `inserted` counts rows that are in no old file. If `isolation` checks added files, a row of an
    added file conflicts if it may match `condition`. `read` are rows, by path, that this statement
    leaves alone but that other commits must not have changed; None: they are unknown. `assigned`
    are the columns in which rows differ from those that they replace; None: any, or rows are new.
    Where `compared` names columns, a row of the base version with the values that a new row has in
    all of them is replaced by it. `keys` are keys of the dataset: each row that satisfies
    `condition` has one of them; None: this is not known.
    """

    touched: Mapping[str, TouchedRows]
    inserted: int = 0
    condition: PredicateSet | None = None
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE
    file_ids: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, Positions] | None = field(default_factory=dict)
    assigned: frozenset[str] | None = None
    compared: frozenset[str] = frozenset()
    keys: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class FileChange:
    """A data file with touched rows. `before` are its deleted rows in the base version.

    `replaced`: the file's other rows are rewritten, and the file is removed.
    """

    file: FileRecord
    before: Positions
    rows: TouchedRows
    after: Positions
    replaced: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether no row of the file is left."""
        return len(self.after) == self.file.row_count


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The changes to rows of a write that lacks only its database transaction.

    `read_files` are the files of `RowChanges.read`; their read rows stand as updated ones.
    `vectors` are the vectors of the files that stay, by file id, and `positions` the rows that
    these vectors delete. `read` are vectors of other commits that were read from storage.
    `under_lock`: storage may be used under the lock of the dataset; `quickly`: for what takes less
    time than to wait for the lock again. `looked_into` has files that others added, by path, and
    whether one of their rows satisfies the condition of the statement. `history` is that of the
    base version, under which what is known of files is kept.
    """

    changes: RowChanges
    files: tuple[FileChange, ...]
    vectors: Mapping[int, DeletionVector] = field(default_factory=dict)
    positions: Mapping[int, Positions] = field(default_factory=dict)
    read: Mapping[DeletionVector, Positions] = field(default_factory=dict)
    under_lock: bool = False
    quickly: bool = False
    read_files: tuple[FileChange, ...] = ()
    looked_into: Mapping[str, bool] = field(default_factory=dict)
    history: History | None = None

    def may_use(self, storage: Storage, needed: StorageNeeded) -> bool:
        """Tell whether what is needed is done within the transaction."""
        return self.under_lock or (self.quickly and needed.is_quick(storage))


def find_changes(
    reader: CatalogReader,
    changes: RowChanges,
    dataset_id: int,
    base_version: int,
    storage: Storage,
) -> list[FileChange]:
    """The changes of each touched file of the base version."""
    if changes.touched.keys() <= changes.file_ids.keys():
        files = reader.files_by_id([changes.file_ids[path] for path in changes.touched])
    else:
        files = reader.files(dataset_id, base_version)
    by_path = {file.path: file for file in files}
    unknown = [path for path in changes.touched if path not in by_path]
    if unknown:
        raise CorruptDatasetError(
            path=unknown[0], reason=f"rows of it are changed, and version {base_version} lacks it"
        )
    touched = [by_path[path] for path in sorted(changes.touched)]
    vectors = reader.vectors([file.id for file in touched], base_version)
    found = []
    for file in touched:
        rows = changes.touched[file.path]
        mine = rows.all
        if mine and mine.max() >= file.row_count:
            raise CorruptDatasetError(
                path=file.path,
                reason=f"row {mine.max():,} is changed, and it has {file.row_count:,} rows",
            )
        before = deleted_rows(vectors.get(file.id), file.path, file.row_count, storage)
        after = mine | before
        if mine:
            found.append(FileChange(file, before, rows, after))
    return found


def write_vectors(
    positions: Mapping[int, tuple[FileRecord | FileMetadata, Positions]],
    write_id: str,
    storage: Storage,
) -> dict[int, DeletionVector]:
    """Write one Puffin file with the vectors of files, by file id. It is durable afterwards."""
    if not positions:
        return {}
    puffin = PuffinFile()
    blobs = {
        id: puffin.add(split_shared(file.path)[1], rows) for id, (file, rows) in positions.items()
    }
    content = puffin.finish()
    sha256 = hashlib.sha256(content).digest()
    path = vector_file_name(write_id)
    with storage.open_output(path) as sink, storage.errors(path):
        sink.write(content)
    reach("vectors written")
    storage.sync_file(path)
    storage.sync_folders([path])
    reach("vectors synced")
    return {
        id: DeletionVector(
            path,
            len(content),
            blob.offset,
            blob.length,
            blob.cardinality,
            content[blob.offset : blob.offset + blob.length]
            if blob.length <= SMALL_BLOB_BYTES
            else None,
            sha256,
        )
        for id, blob in blobs.items()
    }


# --- Changes of rows are fitted to the version in force, under the lock of the dataset.
#
# The deletion vectors of a statement are compared with those that are live now. Rows that other
# commits deleted meanwhile are added, and a row that both changed is a conflict. Storage is read
# and written without the lock, so that no other commit waits for it: the transaction ends with
# `StorageNeeded`, and the commit begins again when storage has answered.


VectorsSince = Mapping[int, Sequence[tuple[int, DeletionVector]]]


@dataclass(frozen=True, slots=True)
class AppliedRows:
    """The effect of the changes on the version that is committed.

    `removed` are files that have no row left, or whose rows were rewritten; `vectors` are the new
    vectors of other files, and `rows_by_vectors` counts the rows that these delete. `deleted` and
    `updated` count rows that no other commit takes out; `copied` counts the rows that were
    rewritten without a change.
    """

    removed: tuple[FileRecord, ...]
    vectors: Mapping[int, DeletionVector]
    rows_by_vectors: int
    deleted: int
    updated: int
    copied: int


class RowConflict(Exception):
    """Another commit changed a row, or removed its file. The caller knows the versions."""

    def __init__(self, collision: Collision) -> None:
        super().__init__(collision.facts["reason"])
        self.collision = collision


class RewriteOutdated(Exception):
    """A rewritten file has another vector now, or another schema is in force."""


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """Files of other commits: whether one of their rows satisfies the condition of a statement.

    `search` has the keys of which each such row has one, and `files` has the files with what this
    process knows of their keys.
    """

    spec: ReadSpec
    tasks: tuple[ScanTask, ...]
    search: KeySearch | None = None
    files: KeyFiles | None = None

    @classmethod
    def with_keys(
        cls,
        reader: CatalogReader,
        snapshot: Snapshot,
        bound: BoundPredicate,
        files: Sequence[FileRecord],
        search: KeySearch,
        storage: Storage,
    ) -> AddedFiles:
        """Those of some files that may have a key. No storage is read."""
        known = KeyFiles(reader, snapshot, bound, files)
        may = search.among_known(storage, known.files, snapshot.file_schemas)
        texts, vectors = snapshot.partition_texts(), dict[int, DeletionVector]()
        if snapshot.has_vectors and may:
            vectors = reader.vectors([file.record.id for file in may], snapshot.version)
        spec = ReadSpec(
            uri=storage.location,
            schema=snapshot.schema,
            columns=(),
            partition_by=snapshot.partition_by,
            file_schemas=snapshot.file_schemas,
            predicate=None if bound.always_true else bound,
        )
        records = [file.record for file in may]
        tasks = (ScanTask.whole(one, texts(one), vectors.get(one.id), True) for one in records)
        return cls(spec, tuple(tasks), search, known)

    def look_into(self, storage: Storage) -> dict[str, bool]:
        """For each file by path, whether it has such a row."""
        spec, tasks = self.spec, self.tasks
        found = {task.path: False for task in tasks}
        if self.search is not None and self.files is not None:
            mine = [file for file in self.files.files if file.record.path in found]
            with suppress(StorageError):  # of a file that is read below
                left = self.search.left(storage, self.search.within(mine), spec.file_schemas)
                paths = {file.record.path for file, _ in left}
                tasks = tuple(task for task in tasks if task.path in paths)
            self.files.keep()
            spec = replace(spec, asks_filters=False)
        for task in tasks:
            try:
                found[task.path] = any(True for _ in read_task(spec, task, storage))
            except StorageError:  # a vacuum has deleted it: any row may have been in it
                found[task.path] = True
        return found


@dataclass(eq=False)
class StorageNeeded(Exception):
    """Vectors of other commits are not read yet, or merged vectors (by file id) not written yet.

    Or it is not known whether files that others added have rows of the statement's condition.
    """

    unread: Sequence[tuple[FileRecord, DeletionVector]] = ()
    unwritten: Mapping[int, tuple[FileRecord, Positions]] = field(default_factory=dict)
    added: AddedFiles | None = None

    def is_quick(self, storage: Storage) -> bool:
        """Tell whether the lock of the dataset may be held meanwhile.

        Vectors that are not in the catalog are large.
        """
        if self.unread or not storage.is_local:
            return False
        if self.added is None:
            return sum(len(rows) for _, rows in self.unwritten.values()) <= _FEW_POSITIONS
        sizes = [task.size_bytes for task in self.added.tasks]
        return len(sizes) <= _FEW_FILES and sum(sizes) <= _FEW_BYTES


def with_storage(
    prepared: PreparedRows, needed: StorageNeeded, write_id: str, storage: Storage
) -> PreparedRows:
    """Read and write the vectors that are needed to apply the changes, and look into files."""
    if needed.added is not None:
        found = needed.added.look_into(storage)
        return replace(prepared, looked_into={**prepared.looked_into, **found})
    read = {
        vector: deleted_rows(vector, file.path, file.row_count, storage)
        for file, vector in needed.unread
    }
    if not needed.unwritten:
        return replace(prepared, read={**prepared.read, **read})
    return replace(
        prepared,
        read={**prepared.read, **read},
        vectors=write_vectors(needed.unwritten, write_id, storage),
        positions={id: rows for id, (_, rows) in needed.unwritten.items()},
    )


def apply_rows(
    tx: CatalogReader,
    prepared: PreparedRows,
    base_version: int,
    newer: Sequence[TransactionRecord],
    storage: Storage,
) -> AppliedRows:
    """Fit the changes to the version in force, under the dataset's lock.

    `newer` are the commits since the base version.

    Raises:
        RewriteOutdated, StorageNeeded: as their docstrings say.
    """
    merged: dict[int, Positions] = {}
    taken: dict[int, Positions] = {}
    if newer and prepared.read_files:
        read = replace(prepared, files=prepared.read_files)
        try:
            _merged(tx, read, base_version, newer, storage)
        except RowConflict as error:
            matched = replace(
                error.collision, text=error.collision.text + ": this one matched them"
            )
            raise RowConflict(matched) from None
    if newer and prepared.files:
        merged, taken = _merged(tx, prepared, base_version, newer, storage)
    removed = [one.file for one in prepared.files if one.replaced]
    deleted = updated = by_vectors = 0
    stay: dict[int, tuple[FileRecord, Positions]] = {}
    for one in prepared.files:
        theirs = taken.get(one.file.id, Positions())
        deleted += len(one.rows.deleted - theirs)
        updated += len(one.rows.updated)
        if one.replaced:
            continue
        after = merged.get(one.file.id, one.after)
        if len(after) == one.file.row_count:
            removed.append(one.file)
        else:
            stay[one.file.id] = (one.file, after)
            by_vectors += len(one.rows.all - theirs)
    if any(prepared.positions[id] != rows for id, (_, rows) in stay.items()):
        raise StorageNeeded(unwritten=stay)
    return AppliedRows(
        tuple(removed),
        {id: prepared.vectors[id] for id in stay},
        by_vectors,
        deleted,
        updated,
        sum(one.file.row_count - len(one.after) for one in prepared.files if one.replaced),
    )


def _merged(
    tx: CatalogReader,
    prepared: PreparedRows,
    base_version: int,
    newer: Sequence[TransactionRecord],
    storage: Storage,
) -> tuple[dict[int, Positions], dict[int, Positions]]:
    """The positions of files that have another vector now, and the rows that others deleted."""
    since = _vectors_since(tx, prepared.files, base_version)
    unread = [
        (one.file, vector)
        for one in prepared.files
        for _, vector in since.get(one.file.id, ())
        if vector.blob is None and vector not in prepared.read
    ]
    if unread:
        raise StorageNeeded(unread=unread)
    only_deletes = {one.version for one in newer if change_of(one.operation) is Change.DELETE}
    merged: dict[int, Positions] = {}
    taken: dict[int, Positions] = {}
    for one in prepared.files:
        file, before = one.file, one.before
        if file.id not in since:
            continue
        now = before
        moved = Positions()  # rows that another commit rewrote
        for version, vector in since[file.id]:
            known = prepared.read.get(vector)
            # Without `known` the catalog has a copy of the vector: storage is not read.
            after = (
                deleted_rows(vector, file.path, file.row_count, storage) if known is None else known
            )
            if version not in only_deletes:
                moved |= after - now
            now = after
        theirs = now - before
        both = (one.rows.updated & theirs) | (one.rows.deleted & moved)
        if both:
            text = "{rows:,} rows of {path} were changed by both commits"
            newest = since[file.id][-1][0]
            raise RowConflict(Collision(text, newest, path=file.path, rows=len(both)))
        merged[file.id] = one.after | now
        taken[file.id] = theirs
    return merged, taken


def _vectors_since(
    tx: CatalogReader, files: Sequence[FileChange], base_version: int
) -> VectorsSince:
    """The vectors that other commits gave to files since a version, by file id."""
    ids = [one.file.id for one in files]
    live = tx.live_among(ids)
    since: dict[int, list[tuple[int, DeletionVector]]] = {}
    for found in tx.vectors_since(ids, base_version):
        since.setdefault(found.file_id, []).append((found.version, found.vector))
    for one in files:
        if one.file.id not in live:
            text = "{path} was removed, and this write changes rows of it"
            raise RowConflict(Collision(text, path=one.file.path))
        if one.replaced and one.file.id in since:
            raise RewriteOutdated
    return since
