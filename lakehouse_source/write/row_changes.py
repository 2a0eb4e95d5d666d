"""Verb. Rows of existing files are deleted or moved: deletion vectors of one commit.

A statement knows the rows by their positions in the files of the version that it is based on.
Before the commit, the vectors are made for that version and written. Under the lock they are
compared with the vectors that are live by then. Rows that other commits deleted meanwhile are
added to them, and a row that both changed is a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.catalog.writer import CatalogTransaction
from lakehouse_source.deletion.puffin import PuffinFile
from lakehouse_source.deletion.vector import Positions
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.failpoints import reach
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    FileRecord,
    TransactionRecord,
)
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.parquet.names import vector_file_name
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.storage import Storage
from lakehouse_source.write.conflicts import Change, Isolation, change_of

# The catalog keeps a copy of smaller blobs, which travel with scan tasks.
SMALL_BLOB_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Positions of the rows of one data file that a statement takes out of it.

    `updated` are the rows that the statement writes anew elsewhere, `deleted` the others.
    """

    deleted: Positions
    updated: Positions

    @property
    def all(self) -> Positions:
        return self.deleted | self.updated


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a statement does to the rows of the version that it is based on.

    `touched` is by the paths of the data files, and so is `file_ids`, as far as the ids are
    known. `inserted` counts rows that are in no old file. A row of an added file conflicts
    where it may match `condition`, if `isolation` says that added files are checked.
    """

    touched: Mapping[str, TouchedRows]
    inserted: int = 0
    condition: PredicateSet | None = None
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE
    file_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A data file with touched rows. `before` is its vector in the base version.

    `replaced`: the file's other rows are written anew, and the file is removed.
    """

    file: FileRecord
    before: DeletionVector | None
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

    `vectors` are those of the files that stay, by file id.
    """

    changes: RowChanges
    files: tuple[FileChange, ...]
    vectors: Mapping[int, DeletionVector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppliedRows:
    """What the changes come to at the version that is committed.

    `removed` are files of which no row is left or whose rows were written anew; `vectors` are
    the new vectors of other files, and `rows_by_vectors` counts the rows that these delete.
    `deleted` and `updated` count rows that no other commit takes out, `copied` the rows that
    were written anew without a change.
    """

    removed: tuple[FileRecord, ...]
    vectors: Mapping[int, DeletionVector]
    rows_by_vectors: int
    deleted: int
    updated: int
    copied: int


class RowConflict(Exception):
    """Another commit changed a row, or removed its file. The caller knows the versions."""


class RewriteOutdated(Exception):
    """A file whose rows were written anew has another vector now, or another schema is in force."""


def find_changes(
    reader: CatalogReader,
    changes: RowChanges,
    dataset_id: int,
    base_version: int,
    storage: Storage,
) -> list[FileChange]:
    """The changes of each touched file of the base version.

    Raises:
        CorruptDatasetError: a file is not one of the version, or a vector cannot be read.
    """
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
        rows, before = changes.touched[file.path], vectors.get(file.id)
        mine = rows.all
        if mine and mine.max() >= file.row_count:
            raise CorruptDatasetError(
                path=file.path,
                reason=f"row {mine.max():,} is changed, and it has {file.row_count:,} rows",
            )
        after = mine | _deleted(before, file, storage)
        if mine:
            found.append(FileChange(file, before, rows, after))
    return found


def write_vectors(
    positions: Mapping[int, tuple[FileRecord, Positions]], write_id: str, storage: Storage
) -> dict[int, DeletionVector]:
    """Write one Puffin file with the vectors of files, by file id. It is durable afterwards.

    Raises:
        StorageError
    """
    if not positions:
        return {}
    puffin = PuffinFile()
    blobs = {id: puffin.add(file.path, rows) for id, (file, rows) in positions.items()}
    content = puffin.finish()
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
        )
        for id, blob in blobs.items()
    }


def apply_rows(
    tx: CatalogTransaction,
    record: DatasetRecord,
    prepared: PreparedRows,
    base_version: int,
    newer: Sequence[TransactionRecord],
    write_id: str,
    storage: Storage,
) -> AppliedRows:
    """Fit the changes to the version in force, under the dataset's lock.

    `newer` are the commits since the base version.

    Raises:
        RowConflict: another commit changed one of the rows, or removed a file of them.
        RewriteOutdated: as its docstring says.
    """
    merged: dict[int, Positions] = {}
    taken: dict[int, Positions] = {}
    if newer and prepared.files:
        merged, taken = _merged(tx, record, prepared, base_version, newer, storage)
    vectors = prepared.vectors
    removed = [one.file for one in prepared.files if one.replaced]
    deleted = updated = 0
    by_vectors = 0
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
    if merged:
        vectors = write_vectors(stay, write_id, storage)
    return AppliedRows(
        tuple(removed),
        {id: vectors[id] for id in stay},
        by_vectors,
        deleted,
        updated,
        sum(one.file.row_count - len(one.after) for one in prepared.files if one.replaced),
    )


def _merged(
    tx: CatalogTransaction,
    record: DatasetRecord,
    prepared: PreparedRows,
    base_version: int,
    newer: Sequence[TransactionRecord],
    storage: Storage,
) -> tuple[dict[int, Positions], dict[int, Positions]]:
    """The positions of files with another vector now, and of these the rows that others took."""
    ids = [one.file.id for one in prepared.files]
    live = tx.live_among(ids)
    since: dict[int, list[tuple[int, DeletionVector]]] = {}
    for found in tx.vectors_since(ids, base_version):
        since.setdefault(found.file_id, []).append((found.version, found.vector))
    only_deletes = {one.version for one in newer if change_of(one.operation) is Change.DELETE}
    merged: dict[int, Positions] = {}
    taken: dict[int, Positions] = {}
    for one in prepared.files:
        file = one.file
        if file.id not in live:
            raise RowConflict(f"{file.path} was removed, and this write changes rows of it")
        if file.id not in since:
            continue
        if one.replaced:
            raise RewriteOutdated
        before = _deleted(one.before, file, storage)
        now = before
        moved = Positions()  # rows that another commit wrote anew
        for version, vector in since[file.id]:
            after = _deleted(vector, file, storage)
            if version not in only_deletes:
                moved |= after - now
            now = after
        theirs = now - before
        both = (one.rows.updated & theirs) | (one.rows.deleted & moved)
        if both:
            raise RowConflict(f"{len(both):,} rows of {file.path} were changed by both commits")
        merged[file.id] = one.after | now
        taken[file.id] = theirs
    return merged, taken


def _deleted(vector: DeletionVector | None, file: FileRecord, storage: Storage) -> Positions:
    return deleted_rows(vector, file.path, file.row_count, storage)
