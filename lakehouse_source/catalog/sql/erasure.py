"""Erasure: rows of the catalog that are committed already change. All SQL about it.

Files keep their ids, versions, partitions and the identities of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakehouse_source.catalog.sql import statements as sql
from lakehouse_source.catalog.sql import to_rows
from lakehouse_source.catalog.sql.session import Session
from lakehouse_source.model import FileBounds, FileMetadata, VectorRecord

_ERASED_FROM_FILES = (
    "DELETE FROM column_bounds WHERE file_id {among}",
    "DELETE FROM row_groups WHERE file_id {among}",
)
# A vacuum deletes the file; see `branches`, where files expire in the same way.
_INSERT_EXPIRED = (
    "INSERT INTO files (dataset_id, version, removed_version, schema_version, file_path, "
    "file_size_bytes, row_count, is_tombstoned, expired_at) "
    "VALUES (?, 0, 0, 0, ?, ?, 0, TRUE, {now})"
)
_FORGET_VECTOR_FILES = "DELETE FROM deletion_vectors WHERE dataset_id = ? AND file_path = ?"
_SET_SUMMARY = "UPDATE transactions SET summary_json = ? WHERE dataset_id = ? AND version = ?"
_SET_METADATA = "UPDATE transactions SET metadata_json = ? WHERE dataset_id = ? AND version = ?"
# Columns of `files` that tell where and when a file is, and which rows it has.
_FIXED_FILE_COLUMNS = ("id", "dataset_id", "version", "schema_version", "first_row_id")


class ErasureChanges:
    """What one transaction may change of what is committed already."""

    _session: Session

    def replace_files(
        self,
        dataset_id: int,
        files: Mapping[int, FileMetadata],
        bounds: Iterable[tuple[int, FileBounds]],
    ) -> None:
        """Let rows of `files`, by id, name other files with fewer of the same rows.

        They keep their versions, partitions and first identities. `bounds` are all their index
        rows.
        """
        changing = [one for one in sql.FILE_COLUMNS if one not in _FIXED_FILE_COLUMNS]
        places = [sql.FILE_COLUMNS.index(name) for name in changing]
        assigned = ", ".join(f"{name} = ?" for name in changing)
        numbered = list(files.items())
        for row in to_rows.of_files(dataset_id, 0, 0, numbered, [0] * len(numbered)):
            values = (*(row[place] for place in places), row[0])
            self._session.execute(f"UPDATE files SET {assigned} WHERE id = ?", values)
        for start in range(0, len(numbered), 1000):
            ids = self._session.id_list([file_id for file_id, _ in numbered[start : start + 1000]])
            for statement in _ERASED_FROM_FILES:
                self._session.execute(statement, (ids,))
        insert = self._session.insert
        insert("row_groups", sql.ROW_GROUP_COLUMNS, to_rows.of_row_groups(numbered))
        insert("column_bounds", sql.BOUNDS_COLUMNS, to_rows.of_bounds(dataset_id, bounds))

    def replace_vectors(
        self,
        dataset_id: int,
        paths: Iterable[str],
        vectors: Iterable[tuple[VectorRecord, int | None]],
    ) -> None:
        """Forget all vectors in some Puffin files; record others, with when each was replaced."""
        for path in paths:
            self._session.execute(_FORGET_VECTOR_FILES, (dataset_id, path))
        rows = [
            (*row, removed)
            for one, removed in vectors
            for row in to_rows.of_vectors(dataset_id, one.version, {one.file_id: one.vector})
        ]
        if rows:
            columns = (*sql.VECTOR_COLUMNS, "removed_version")
            self._session.insert("deletion_vectors", columns, rows)

    def expire_paths(self, dataset_id: int, paths: Mapping[str, int]) -> None:
        """Let files that no row names any more be deleted by a vacuum; their sizes by path."""
        for path, size_bytes in paths.items():
            self._session.execute(_INSERT_EXPIRED, (dataset_id, path, size_bytes))

    def correct_summary(self, dataset_id: int, version: int, summary: Mapping[str, int]) -> None:
        """Replace the summary of a commit."""
        document = to_rows.json_text(summary, "summary")
        self._session.execute(_SET_SUMMARY, (document, dataset_id, version))

    def correct_metadata(self, dataset_id: int, version: int, metadata: Mapping[str, Any]) -> None:
        """Replace what was noted about a commit."""
        document = to_rows.json_text(metadata, "commit_metadata")
        self._session.execute(_SET_METADATA, (document, dataset_id, version))
