"""Passes over all files of a dataset, a page at a time: their sizes, ranges and partitions.

The records of all files may not fit into memory. The caller keeps a few numbers per file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakehouse_source.catalog.sql.history_reader import within_int64
from lakehouse_source.catalog.sql.session import Row, Session
from lakehouse_source.catalog.sql.statements import LIVE, TAGGED
from lakehouse_source.model import DatasetRecord

PAGE = 50_000

# The rest of a version, and then the later versions, in the order of the index of versions: a page
# begins where the page before ended. If the database sorts, it sorts only the files of one version.
_FILE = "SELECT f.id, f.file_size_bytes, f.row_count, f.schema_version, f.version FROM files AS f"
_REST = (
    f"{_FILE} WHERE f.dataset_id = ? AND f.version = ? AND f.id > ? "
    "AND (f.removed_version IS NULL OR f.removed_version > ?) ORDER BY f.id LIMIT ?"
)
_LATER = f"{_FILE} WHERE {LIVE} AND f.version > ? ORDER BY f.version, f.id LIMIT ?"
_PARTITIONS = (
    "SELECT p.file_id, p.key, p.value FROM files AS f JOIN partitions AS p ON p.file_id = f.id "
    f"WHERE {LIVE} AND f.id BETWEEN ? AND ? ORDER BY p.file_id, p.key"
)
# In the order of the primary key: a page begins after the last row of the page before.
_BOUNDS = (
    "SELECT level, upper, lower, file_id FROM column_bounds "
    "WHERE dataset_id = ? AND column_id = ? AND (level, upper, lower, file_id) > (?, ?, ?, ?) "
    "ORDER BY level, upper, lower, file_id LIMIT ?"
)
# A file that was restored has several rows: it is freed when no row needs it. A vacuum frees files
# of class 0; an expiry of old versions and then a vacuum free files of class 1.
_OLD_BYTES = f"""SELECT class, count(*), sum(size) FROM (
    SELECT max(CASE WHEN removed_version IS NULL THEN 2
            WHEN {TAGGED.format("files")} THEN 2
            WHEN removed_version > ? THEN 1 ELSE 0 END) AS class,
        max(file_size_bytes) AS size
    FROM files WHERE dataset_id = ? GROUP BY file_path) AS each_file
    WHERE class < 2 GROUP BY class"""
_ANY_REMOVED = "SELECT 1 FROM files WHERE dataset_id = ? AND removed_version IS NOT NULL LIMIT 1"


class SweepReader:
    """Passes over all files of a dataset, which one transaction makes."""

    _session: Session

    def sweep_files(self, dataset_id: int, version: int) -> Iterator[list[Row]]:
        """Id, bytes, rows, schema version and version of each live file, by version and id."""
        version, begun, last = within_int64(version), -1, -1
        while True:
            page = self._session.query(_REST, (dataset_id, begun, last, version, PAGE))
            if len(page) < PAGE:
                page += self._session.query(
                    _LATER, (dataset_id, version, version, begun, PAGE - len(page))
                )
            if page:
                yield page
            if len(page) < PAGE:
                return
            last, begun = page[-1][0], page[-1][4]

    def sweep_partitions(self, dataset_id: int, version: int, first: int, last: int) -> list[Row]:
        """File id, key and value of each partition value of the live files with ids in a range."""
        version = within_int64(version)
        return self._session.query(_PARTITIONS, (dataset_id, version, version, first, last))

    def sweep_bounds(self, dataset_id: int, column_id: int) -> Iterator[list[Row]]:
        """Of each row of the index, of any file: level, upper key, lower key and file."""
        after: Sequence[object] = (-1, b"", b"", -1)
        while True:
            page = self._session.query(_BOUNDS, (dataset_id, column_id, *after, PAGE))
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1]

    def old_files(self, dataset: DatasetRecord) -> tuple[tuple[int, int], tuple[int, int]]:
        """Files and bytes that only expired versions have, and that only older versions have."""
        if not self._session.query(_ANY_REMOVED, (dataset.id,)):
            return (0, 0), (0, 0)
        rows = self._session.query(_OLD_BYTES, (dataset.oldest_version, dataset.id))
        found = {int(kind): (int(count), int(size)) for kind, count, size in rows}
        return found.get(0, (0, 0)), found.get(1, (0, 0))
