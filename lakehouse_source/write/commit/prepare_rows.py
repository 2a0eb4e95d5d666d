"""Verb. Before the transaction of a commit that changes rows: writes vectors, rewrites files.

A file with few rows left is not worth a deletion vector: these rows are written to a new file in
the same commit, with their identities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion.vector import Positions, encode
from lakehouse_source.failpoints import reach
from lakehouse_source.model import DeletionVector, FileMetadata
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.base_version import base_snapshot
from lakehouse_source.write.commit.conflicts import committed_first
from lakehouse_source.write.commit.copy_rows import copy_rows
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.prerecord import PreparedCommit, prepare_files
from lakehouse_source.write.commit.row_changes import (
    FileChange,
    PreparedRows,
    RowChanges,
    TouchedRows,
    find_changes,
    write_vectors,
)

REWRITE_THRESHOLD = 0.3


def prepare_rows(
    catalog: Catalog,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    rows: RowChanges,
    written: list[FileMetadata],
    *,
    rewrite: bool = True,
) -> PreparedCommit:
    """Write the deletion vectors of a commit, and the rows of files that are not worth one.

    Appends to `written` each file that it writes. Without `rewrite`, and where the schema changed
    between the base version and the beginning of the write, every file that keeps a row gets a
    vector.
    """
    storage = Storage(staged.spec.uri)
    with catalog.read() as reader:
        if reader.transaction_by_write_id(staged.write_id) is not None:
            # The commit finds this under the lock too.
            return prepare_files(staged, files, (), {}, PreparedRows(rows, ()))
        snapshot = base_snapshot(reader, staged)
        erased = snapshot.dataset.properties.erased_version
        if erased > staged.base_version:
            # The positions that were read belong to files that are gone.
            now = snapshot.dataset.current_version
            raise staged.conflict(now, committed_first(erased, "erase"))
        changes = find_changes(reader, rows, snapshot.dataset.id, snapshot.version, storage)
        read_files = list[FileChange]()
        if rows.read:
            read = {path: TouchedRows(Positions(), one) for path, one in rows.read.items()}
            read_files = find_changes(
                reader, replace(rows, touched=read), snapshot.dataset.id, snapshot.version, storage
            )
    reach("changed files found")
    threshold = snapshot.dataset.properties.layout.rewrite_threshold
    if threshold is None:
        threshold = REWRITE_THRESHOLD
    # The rows are written with the columns of the base version, but recorded with those of the
    # version at which the write began, which may be newer.
    if rewrite and _has_columns_of(staged.spec.schema, snapshot.schema):
        changes = [
            replace(one, replaced=not one.is_empty and _share(one) > threshold) for one in changes
        ]
        replaced = [one for one in changes if one.replaced]
        written += _write_anew(staged, snapshot, replaced, storage)
    moved = tuple(written)
    reach("rows written anew")
    stay = {
        one.file.id: (one.file, one.after)
        for one in changes
        if not one.replaced and not one.is_empty
    }
    vectors = write_vectors(stay, staged.write_id, storage)
    for vector in list(vectors.values())[:1]:
        # One file holds all of them. `abort` has to know it.
        written.append(FileMetadata(vector.path, 0, vector.size_bytes, pa.schema([]), ()))
    positions = {one.file.id: one.after for one in changes if one.file.id in stay}
    prepared = PreparedRows(rows, tuple(changes), vectors, positions, read_files=tuple(read_files))
    return prepare_files(staged, (*files, *moved), (), {}, prepared)


def _has_columns_of(schema: pa.Schema, other: pa.Schema) -> bool:
    """Tell whether a schema has each column of another schema, unchanged."""
    mine = {field.name: field for field in schema}
    return all(
        field.name in mine and mine[field.name].equals(field, check_metadata=True)
        for field in other
    )


def _share(change: FileChange) -> float:
    """The share of a file's rows that are deleted."""
    return len(change.after) / change.file.row_count


def _write_anew(
    staged: StagedWrite, snapshot: Snapshot, changes: Sequence[FileChange], storage: Storage
) -> list[FileMetadata]:
    """Write the remaining rows of files to new files."""
    if not changes:
        return []
    kept = []
    for one in changes:
        blob = encode(one.after)
        kept.append((one.file, DeletionVector("", len(blob), 0, len(blob), len(one.after), blob)))
    spec = replace(staged.spec, schema=snapshot.schema)
    return copy_rows(spec, snapshot, kept, storage)
