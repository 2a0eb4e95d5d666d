"""Edge. Files for readers of Iceberg: their records in the catalog. All SQL about them.

A row is inserted, marked as expired, and deleted once a vacuum has deleted its files. Rows of an
older erasure, or of another location of the dataset, are no longer used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakehouse_source.catalog.sql.records import document, to_datetime
from lakehouse_source.catalog.sql.statements import Row, Session
from lakehouse_source.model import DatasetRecord

SNAPSHOT = "snapshot"
METADATA = "metadata"

_ROW = (
    "SELECT i.file_path, i.version, i.kind, i.erased_version, i.location, i.document_json, "
    "i.expired_at FROM iceberg_files AS i WHERE i.dataset_id = ?"
)
_ALL = f"{_ROW} ORDER BY i.version, i.file_path"
_NEAREST = (
    f"{_ROW} AND i.kind = 'snapshot' AND i.version <= ? AND i.erased_version = ? "
    "AND i.location = ? AND i.expired_at IS NULL ORDER BY i.version DESC, i.file_path LIMIT 1"
)
_LISTED = (
    "SELECT i.version, i.file_path, i.document_json FROM iceberg_files AS i "
    "WHERE i.dataset_id = ? AND i.kind = ? AND i.erased_version = ? AND i.location = ? "
    "AND i.expired_at IS NULL ORDER BY i.version, i.file_path DESC"
)
_TAGGED = (
    "EXISTS (SELECT 1 FROM dataset_tags AS g WHERE g.dataset_id = iceberg_files.dataset_id "
    "AND g.version = iceberg_files.version)"
)
_EXPIRE = (
    "UPDATE iceberg_files SET expired_at = {now} WHERE dataset_id = ? AND version < ? "
    f"AND expired_at IS NULL AND NOT {_TAGGED}"
)
_FORGET = "DELETE FROM iceberg_files WHERE dataset_id = ? AND file_path = ?"
_COLUMNS = (
    "dataset_id", "file_path", "version", "kind", "erased_version", "location", "document_json"
)  # fmt: skip
# Keys of files that were removed, or replaced, after a version: (version that added it, id).
_FILES_GONE = (
    "SELECT f.version, f.id FROM files AS f WHERE f.dataset_id = ? AND f.removed_version > ? "
    "AND f.removed_version <= ? AND f.version <= ?"
)
_VECTORS_GONE = (
    "SELECT x.version, x.file_id FROM deletion_vectors AS x WHERE x.dataset_id = ? "
    "AND x.removed_version > ? AND x.removed_version <= ? AND x.version <= ?"
)
_LIVE = "{0}.version <= ? AND ({0}.removed_version IS NULL OR {0}.removed_version > ?)"
_FILE_KEYS = (
    "SELECT f.version, f.id FROM files AS f WHERE f.dataset_id = ? AND f.version > ? "
    f"AND {_LIVE.format('f')} AND f.row_count > 0 ORDER BY f.version, f.id"
)
_VECTOR_KEYS = (
    "SELECT x.version, x.file_id FROM deletion_vectors AS x WHERE x.dataset_id = ? "
    f"AND x.version > ? AND {_LIVE.format('x')} ORDER BY x.version, x.file_id"
)


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A row of `iceberg_files`. `document` of a snapshot has its manifests."""

    path: str
    version: int
    kind: str
    erased_version: int
    location: str
    document: Mapping[str, Any]
    expired_at: datetime | None

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the row keeps: its own file, and those of a snapshot's manifests."""
        manifests = self.document.get("manifests", ())
        named = [str(one[key]) for one in manifests for key in ("path", "puffin") if one.get(key)]
        return (self.path, *named)


# The version that added a file or wrote a vector, and the id of the file.
Key = tuple[int, int]


class IcebergFiles:
    """Reads the catalog's records of files for readers of Iceberg."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self, dataset_id: int) -> list[IcebergFile]:
        """Every row of a dataset, ordered by version."""
        return [self._file(row) for row in self._session.query(_ALL, (dataset_id,))]

    def nearest(self, dataset: DatasetRecord, version: int, location: str) -> IcebergFile | None:
        """The snapshot of the greatest version up to the given one."""
        values = (dataset.id, version, dataset.properties.erased_version, location)
        rows = self._session.query(_NEAREST, values)
        return self._file(rows[0]) if rows else None

    def listed(
        self, dataset: DatasetRecord, kind: str, location: str
    ) -> dict[int, tuple[str, Mapping[str, Any]]]:
        """Path and document of each version's first row of a kind, by version."""
        values = (dataset.id, kind, dataset.properties.erased_version, location)
        return {
            version: (path, document(text, self._session.redacted_url))
            for version, path, text in self._session.query(_LISTED, values)
        }

    def gone(self, dataset_id: int, since: int, version: int, *, vectors: bool) -> list[Key]:
        """Files, or vectors, that version `since` has and version `version` lacks."""
        statement = _VECTORS_GONE if vectors else _FILES_GONE
        rows = self._session.query(statement, (dataset_id, since, version, since))
        return [(row[0], row[1]) for row in rows]

    def keys(self, dataset_id: int, after: int, version: int, *, vectors: bool) -> list[Key]:
        """Files with rows, or vectors, of a version, ordered, if added after another version."""
        statement = _VECTOR_KEYS if vectors else _FILE_KEYS
        rows = self._session.query(statement, (dataset_id, after, version, version))
        return [(row[0], row[1]) for row in rows]

    def _file(self, row: Row) -> IcebergFile:
        path, version, kind, erased, location, text, expired = row
        parsed = document(text, self._session.redacted_url)
        moment = None if expired is None else to_datetime(expired)
        return IcebergFile(path, version, kind, erased, location, parsed, moment)


class IcebergChanges(IcebergFiles):
    """Records files for readers of Iceberg, in a transaction that writes."""

    def insert(
        self,
        dataset: DatasetRecord,
        path: str,
        version: int,
        kind: str,
        location: str,
        content: Mapping[str, Any],
    ) -> None:
        """Record a file that was written."""
        text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
        erased = dataset.properties.erased_version
        row = (dataset.id, path, version, kind, erased, location, text)
        self._session.insert("iceberg_files", _COLUMNS, [row])

    def expire(self, dataset_id: int, oldest_version: int) -> None:
        """Let the files of versions below a version expire now, except those of tagged versions."""
        self._session.execute(_EXPIRE, (dataset_id, oldest_version))

    def forget(self, dataset_id: int, paths: Iterable[str]) -> None:
        """Remove rows whose files were deleted."""
        for path in paths:
            self._session.execute(_FORGET, (dataset_id, path))
