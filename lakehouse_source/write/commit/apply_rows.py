"""Verb. Changes of rows are fitted to the version in force, under the lock of the dataset.

The deletion vectors of a statement are compared with those that are live now. Rows that other
commits deleted meanwhile are added, and a row that both changed is a conflict. Storage is read and
written without the lock, so that no other commit waits for it: the transaction ends with
`StorageNeeded`, and the commit begins again when storage has answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.deletion.vector import Positions
from lakehouse_source.model import DeletionVector, FileRecord, TransactionRecord
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.conflicts import Change, Collision, change_of
from lakehouse_source.write.commit.row_changes import FileChange, PreparedRows, write_vectors

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


@dataclass(eq=False)
class StorageNeeded(Exception):
    """Vectors of other commits are not read yet, or merged vectors (by file id) not written yet."""

    unread: Sequence[tuple[FileRecord, DeletionVector]] = ()
    unwritten: Mapping[int, tuple[FileRecord, Positions]] = field(default_factory=dict)


def with_storage(
    prepared: PreparedRows, needed: StorageNeeded, write_id: str, storage: Storage
) -> PreparedRows:
    """Read and write the vectors that are needed to apply the changes."""
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
    tx: CatalogTransaction,
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
    tx: CatalogTransaction,
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
    tx: CatalogTransaction, files: Sequence[FileChange], base_version: int
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
