"""Edge. What leaves the catalog: expired versions and their files, and erased rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakehouse_source.catalog.sql import records
from lakehouse_source.catalog.sql import statements as sql
from lakehouse_source.catalog.sql.history_reader import HistoryReader
from lakehouse_source.catalog.sql.iceberg import IcebergChanges
from lakehouse_source.catalog.sql.records import to_datetime
from lakehouse_source.catalog.sql.statements import DATASET_BY_ID, TAGGED, Session
from lakehouse_source.catalog.sql.write_states import BEGAN_BEFORE
from lakehouse_source.model import (
    DatasetRecord,
    ExpiredFile,
    FileBounds,
    FileMetadata,
    VectorRecord,
)

# --- What no readable version has any more, until a vacuum has deleted it. All SQL about it.


_SET_OLDEST = "UPDATE datasets SET oldest_version = ? WHERE id = ? AND oldest_version < ?"
_EXPIRE_FILES = (
    "UPDATE files SET expired_at = {now} WHERE dataset_id = ? AND removed_version <= ? "
    f"AND expired_at IS NULL AND NOT {TAGGED.format('files')}"
)
_EXPIRE_VECTORS = (
    "UPDATE deletion_vectors SET expired_at = {now} WHERE dataset_id = ? "
    "AND removed_version <= ? AND expired_at IS NULL "
    f"AND NOT {TAGGED.format('deletion_vectors')}"
)
_EXPIRED_FILES = (
    "SELECT id, file_path, file_size_bytes, expired_at FROM files "
    f"WHERE dataset_id = ? AND removed_version <= ? AND NOT {TAGGED.format('files')} ORDER BY id"
)
_EXPIRED_VECTORS = (
    "SELECT 0, file_path, max(file_size_bytes), max(expired_at) FROM deletion_vectors "
    f"WHERE dataset_id = ? AND removed_version <= ? AND NOT {TAGGED.format('deletion_vectors')} "
    "GROUP BY file_path ORDER BY file_path"
)
_ALL_PATHS = (
    f"SELECT file_path, removed_version, {TAGGED.format('files')} FROM files WHERE dataset_id = ?"
)
_VECTOR_PATHS = (
    f"SELECT file_path, removed_version, {TAGGED.format('deletion_vectors')} "
    "FROM deletion_vectors WHERE dataset_id = ?"
)
_FORGET_VECTORS = (
    "DELETE FROM deletion_vectors WHERE dataset_id = ? AND removed_version <= ? "
    f"AND file_path = ? AND NOT {TAGGED.format('deletion_vectors')}"
)
# What nothing asks about any more. Kept are commits that have a tag; those whose files or deletion
# vectors are in the catalog, so that a vacuum knows whose they are; those that began a schema, at
# which streams end, with the first of all, which identifies the dataset; those after the first
# removal of a file that is in the catalog (see `rewritten_paths`); the last number of each
# application before these; and those after the begin of a write that goes on, which will be
# checked against them.
_COMMITS_TO_FORGET = (
    "SELECT t.version FROM transactions AS t JOIN (SELECT d.id, coalesce((SELECT min("
    "r.removed_version) FROM files AS r WHERE r.dataset_id = d.id AND r.removed_version > 0 "
    "AND r.removed_version < d.oldest_version), d.oldest_version) AS kept FROM datasets AS d "
    "WHERE d.id = ?) AS o ON t.dataset_id = o.id "
    "WHERE t.version < o.kept AND t.timestamp <= {now} - ? "
    f"AND NOT {BEGAN_BEFORE} "
    "AND NOT EXISTS (SELECT 1 FROM files AS f "
    "WHERE f.dataset_id = t.dataset_id AND f.version = t.version) "
    "AND t.version NOT IN (SELECT v.version FROM deletion_vectors AS v WHERE v.dataset_id = ?) "
    "AND NOT EXISTS (SELECT 1 FROM dataset_tags AS g "
    "WHERE g.dataset_id = t.dataset_id AND g.version = t.version) "
    "AND t.version NOT IN (SELECT s.version FROM schema_versions AS s WHERE s.dataset_id = ?) "
    "AND (t.txn_app_id IS NULL OR EXISTS (SELECT 1 FROM transactions AS n "
    "WHERE n.dataset_id = t.dataset_id AND n.txn_app_id = t.txn_app_id "
    "AND n.txn_version > t.txn_version AND n.version < o.kept)) ORDER BY t.version"
)
_FORGET_COMMITS = "DELETE FROM transactions WHERE dataset_id = ? AND version {among}"


class ExpiryReader(HistoryReader):
    """What has expired, which one transaction reads."""

    def expired_files(self, dataset: DatasetRecord) -> list[ExpiredFile]:
        """The file rows that belong to no readable version, ordered by id.

        Another row with the same path may belong to one.
        """
        return self._expired(_EXPIRED_FILES, dataset)

    def paths(self, dataset: DatasetRecord) -> tuple[set[str], set[str]]:
        """The paths of files of readable versions, and all paths that the catalog has.

        Data files and the Puffin files of deletion vectors are among them.
        """
        readable: set[str] = set()
        known: set[str] = set()
        for statement in (_ALL_PATHS, _VECTOR_PATHS):
            for path, removed, is_tagged in self._session.query(statement, (dataset.id,)):
                known.add(path)
                if removed is None or removed > dataset.oldest_version or is_tagged:
                    readable.add(path)
        return readable, known

    def expired_vectors(self, dataset: DatasetRecord) -> list[ExpiredFile]:
        """The Puffin files with a vector that no readable version contains, ordered by path.

        A file may hold other vectors that a readable version contains. The ids are 0.
        """
        return self._expired(_EXPIRED_VECTORS, dataset)

    def _expired(self, statement: str, dataset: DatasetRecord) -> list[ExpiredFile]:
        rows = self._session.query(statement, (dataset.id, dataset.oldest_version))
        # A file that a tag held, which was dropped since the last vacuum, expires now.
        now = self.now()
        return [
            ExpiredFile(identity, path, size_bytes, now if at is None else to_datetime(at))
            for identity, path, size_bytes, at in rows
        ]

    def commits_to_forget(self, dataset_id: int, retention_seconds: float) -> list[int]:
        """The expired versions whose commits nothing needs, if older than this."""
        values = (dataset_id, round(retention_seconds * 1_000_000), dataset_id, dataset_id)
        return [row[0] for row in self._session.query(_COMMITS_TO_FORGET, values)]


class ExpiryChanges(ExpiryReader):
    """What expires or is forgotten, by one transaction."""

    def expire(self, dataset_id: int, oldest_version: int) -> None:
        """Make versions below `oldest_version` unreadable; files of these alone expire now.

        Those with a tag stay readable, and so do their files. The caller holds the dataset's
        lock. The oldest version never goes down.
        """
        self._session.execute(_SET_OLDEST, (oldest_version, dataset_id, oldest_version))
        oldest = self._session.query(DATASET_BY_ID, (dataset_id,))[0][5]
        self._session.execute(_EXPIRE_FILES, (dataset_id, oldest))
        self._session.execute(_EXPIRE_VECTORS, (dataset_id, oldest))
        IcebergChanges(self._session).expire(dataset_id, oldest)

    def forget_vectors(self, dataset: DatasetRecord, paths: Iterable[str]) -> None:
        """Remove the rows of expired vectors in Puffin files that were deleted."""
        for path in paths:
            values = (dataset.id, dataset.oldest_version, path)
            self._session.execute(_FORGET_VECTORS, values)

    def forget_commits(self, dataset_id: int, versions: Sequence[int]) -> None:
        """Remove commits of `commits_to_forget` from the history."""
        values = (dataset_id, self._session.id_list(versions))
        self._session.execute(_FORGET_COMMITS, values)


# --- Erasure: rows of the catalog that are committed already change. All SQL about it.
#
# Files keep their ids, versions, partitions and the identities of their rows.


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
        for row in records.of_files(dataset_id, 0, 0, numbered, [0] * len(numbered)):
            values = (*(row[place] for place in places), row[0])
            self._session.execute(f"UPDATE files SET {assigned} WHERE id = ?", values)
        for start in range(0, len(numbered), 1000):
            ids = self._session.id_list([file_id for file_id, _ in numbered[start : start + 1000]])
            for statement in _ERASED_FROM_FILES:
                self._session.execute(statement, (ids,))
        insert = self._session.insert
        insert("row_groups", sql.ROW_GROUP_COLUMNS, records.of_row_groups(numbered))
        insert("column_bounds", sql.BOUNDS_COLUMNS, records.of_bounds(dataset_id, bounds))

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
            for row in records.of_vectors(dataset_id, one.version, {one.file_id: one.vector})
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
        document = records.json_text(summary, "summary")
        self._session.execute(_SET_SUMMARY, (document, dataset_id, version))

    def correct_metadata(self, dataset_id: int, version: int, metadata: Mapping[str, Any]) -> None:
        """Replace what was noted about a commit."""
        document = records.json_text(metadata, "commit_metadata")
        self._session.execute(_SET_METADATA, (document, dataset_id, version))
