"""Edge. Reads from the catalog, in one snapshot: files, and all that `HistoryReader` reads."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.catalog.sql import records
from lakehouse_source.catalog.sql import search as searching
from lakehouse_source.catalog.sql import statements as sql
from lakehouse_source.catalog.sql.history_reader import within_int64
from lakehouse_source.catalog.sql.removal import ExpiryReader
from lakehouse_source.catalog.sql.statements import LIVE, TAGGED, Session
from lakehouse_source.catalog.sql.write_states import WriteStateReader
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    FileBounds,
    FileRecord,
    RemovedFile,
    RowGroupMetadata,
    VectorRecord,
)
from lakehouse_source.pruning.keys import Search

# --- Passes over all files of a dataset, a page at a time: their sizes, ranges and partitions.
#
# The records of all files may not fit into memory. The caller keeps a few numbers per file.


PAGE = 50_000

# The rest of a version, and then the later versions, in the order of the index of versions: a page
# begins where the page before ended. If the database sorts, it sorts only the files of one version.
_FILE = "SELECT f.id, f.file_size_bytes, f.row_count, f.schema_version, f.version FROM files AS f"
_REST = (
    f"{_FILE} WHERE f.dataset_id = ? AND f.version = ? AND f.id > ? "
    "AND (f.removed_version IS NULL OR f.removed_version > ?) ORDER BY f.id LIMIT ?"
)
_LATER = f"{_FILE} WHERE {LIVE} AND f.version > ? ORDER BY f.version, f.id LIMIT ?"
_FILE_COLUMNS = [
    (name, pa.int64())
    for name in ("id", "file_size_bytes", "row_count", "schema_version", "version")
]
_FILES_BY_VALUE = "SELECT p.key, p.value, {join_texts}(CAST(p.file_id AS TEXT), ',') FROM"
_PARTITIONS = (
    f"{_FILES_BY_VALUE} files AS f JOIN partitions AS p ON p.file_id = f.id "
    f"WHERE {LIVE} AND f.id BETWEEN ? AND ? GROUP BY p.key, p.value"
)
# Looking each file up takes five times as long as reading the values of all files, also of others.
_ALL_PARTITIONS = (
    f"{_FILES_BY_VALUE} partitions AS p WHERE p.file_id BETWEEN ? AND ? GROUP BY p.key, p.value"
)
_MOST_OTHERS = 4
# In the order of the primary key: a page begins after the last row of the page before.
_KEY = "level, upper, lower, file_id"
_BOUNDS = f"FROM column_bounds WHERE dataset_id = ? AND column_id = ? AND ({_KEY}) > (?, ?, ?, ?)"
_PAGE_END = f"SELECT {_KEY} {_BOUNDS} ORDER BY {_KEY} LIMIT 1 OFFSET ?"
_BOUNDS_PAGE = f"{_BOUNDS} AND ({_KEY}) <= (?, ?, ?, ?)"
_BOUNDS_COLUMNS = [("file_id", pa.int64()), ("lower", pa.binary()), ("upper", pa.binary())]
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

    def sweep_files(self, dataset_id: int, version: int) -> Iterator[list[pa.Array]]:
        """Id, bytes, rows, schema version and version of each live file.

        A page has files that follow those of the page before by version and id; within a page
        they have any order.
        """
        import pyarrow.compute as pc

        version, begun, last = within_int64(version), -1, -1
        while True:
            page = self._files_page(_REST, (dataset_id, begun, last, version, PAGE))
            left = PAGE - len(page[0])
            if left:
                more = self._files_page(_LATER, (dataset_id, version, version, begun, left))
                page = [pa.concat_arrays(both) for both in zip(page, more)]
            if len(page[0]):
                yield page
            if len(page[0]) < PAGE:
                return
            ids, versions = page[0], page[4]
            begun = pc.max(versions).as_py()
            last = pc.max(ids.filter(pc.equal(versions, begun))).as_py()

    def _files_page(self, statement: str, values: Sequence[int]) -> list[pa.Array]:
        return self._session.columns(_FILE_COLUMNS, f"FROM ({statement}) AS page", values)

    def sweep_partitions(
        self, dataset_id: int, version: int, ids: pa.Array
    ) -> Iterator[tuple[str, str | None, pa.Array]]:
        """Key, value and files of each partition value of some live files, and of other files."""
        import pyarrow.compute as pc

        version, first, last = within_int64(version), pc.min(ids).as_py(), pc.max(ids).as_py()
        statement = _ALL_PARTITIONS
        values: tuple[int, ...] = (first, last)
        if last - first > _MOST_OTHERS * len(ids):
            statement, values = _PARTITIONS, (dataset_id, version, version, *values)
        for key, value, found in self._session.query(statement, values):
            texts = pc.split_pattern(pa.array([found], pa.large_string()), ",").flatten()
            yield key, value, pc.cast(texts, pa.int64())

    def sweep_bounds(self, dataset_id: int, column_id: int) -> Iterator[list[pa.Array]]:
        """Of each row of the index, of any file, in any order: file, lower key and upper key."""
        column = (dataset_id, column_id)
        after: Sequence[object] = (-1, b"", b"", -1)
        while ends := self._session.query(_PAGE_END, (*column, *after, PAGE - 1)):
            yield self._session.columns(_BOUNDS_COLUMNS, _BOUNDS_PAGE, (*column, *after, *ends[0]))
            after = ends[0]
        yield self._session.columns(_BOUNDS_COLUMNS, _BOUNDS, (*column, *after))

    def old_files(self, dataset: DatasetRecord) -> tuple[tuple[int, int], tuple[int, int]]:
        """Files and bytes that only expired versions have, and that only older versions have."""
        if not self._session.query(_ANY_REMOVED, (dataset.id,)):
            return (0, 0), (0, 0)
        rows = self._session.query(_OLD_BYTES, (dataset.oldest_version, dataset.id))
        found = {int(kind): (int(count), int(size)) for kind, count, size in rows}
        return found.get(0, (0, 0)), found.get(1, (0, 0))


_PATHS_AT_ONCE = 1000

# Returns records of files, by id, for some of the requested ids.
KnownRecords: TypeAlias = Callable[[Sequence[int]], Mapping[int, FileRecord]]


@dataclass(frozen=True, slots=True)
class DatasetChanges:
    """What commits added to a dataset and took out of it.

    `vectors` has deletion vectors by version, by file id; `removed_files` and `removed_vectors`
    have file ids by version.
    """

    files: list[FileRecord]
    vectors: dict[int, dict[int, DeletionVector]]
    removed_files: dict[int, list[int]]
    removed_vectors: dict[int, list[int]]


class CatalogReader(ExpiryReader, WriteStateReader, SweepReader):
    """One snapshot of the catalog; it ends with the `with` block that gave it."""

    # --- files

    def files(
        self, dataset_id: int, version: int, search: Search | None = None
    ) -> list[FileRecord]:
        """The files live at a version, ordered by version and id; `search` selects some of them."""
        version = within_int64(version)
        if search is None:
            return self._files(sql.FILES, (dataset_id, version, version))
        found = searching.compile_search(self._session, dataset_id, search)
        return self._files(
            sql.files_found(found.statement), (*found.values, dataset_id, version, version)
        )

    def small_files(self, dataset_id: int, size_bytes: int) -> list[FileRecord]:
        """The files of the newest version below this size, ordered by version and id."""
        return self._files(sql.SMALL_FILES, (dataset_id, within_int64(size_bytes)))

    def files_by_id(self, file_ids: Sequence[int]) -> list[FileRecord]:
        """Files, live or not, ordered by version and id."""
        if not file_ids:
            return []
        return self._files(sql.FILES_BY_ID, (self._session.id_list(file_ids),))

    def file_ids(self, dataset_id: int, version: int, search: Search | None) -> list[int]:
        """The ids of the files that `iter_files` gives."""
        values: tuple[Any, ...] = (dataset_id, *[within_int64(version)] * 2)
        statement = sql.FILE_IDS
        if search is not None:
            found = searching.compile_search(self._session, dataset_id, search)
            statement, values = sql.file_ids_found(found.statement), (*found.values, *values)
        return [row[0] for row in self._session.query(statement, values)]

    def iter_files(
        self,
        dataset_id: int,
        version: int,
        search: Search | None,
        at_once: int,
        *,
        without: Search | None = None,
        known: KnownRecords | None = None,
    ) -> Iterator[list[FileRecord]]:
        """The records that `files` lists, in lists of at most `at_once`.

        One query gives the first list. For the others only ids are held in memory. With `without`
        the files that `count_certain_rows` counts are left out. `known` gives records, by id, that
        the caller has already: these are not made again.
        """
        values: tuple[Any, ...] = (dataset_id, *[within_int64(version)] * 2)
        first, every = sql.FIRST_FILES, sql.FILE_IDS
        if search is not None:
            found = searching.compile_search(self._session, dataset_id, search)
            others = None if without is None else searching.compile_certain(without)
            condition = "TRUE" if others is None else f"NOT {others.statement}"
            values = (*found.values, *values, *(() if others is None else others.values))
            first = sql.first_files_found(found.statement, condition)
            every = sql.file_ids_found(found.statement, condition)
        files = self._files(first, (*values, at_once), known)
        yield files
        if len(files) < at_once:
            return
        ids = array("q", (row[0] for row in self._session.query(every, values)))
        for start in range(at_once, len(ids), at_once):
            some = ids[start : start + at_once]
            yield self._files(sql.FILES_BY_ID, (self._session.id_list(some),), known)

    def count_certain_rows(
        self, dataset_id: int, version: int, search: Search, certain: Search
    ) -> int:
        """The rows of files that `search` finds and whose bounds are within those of `certain`.

        All bounds of each column are within one range, and no value of the column is NULL. Deleted
        rows are not counted.
        """
        condition = searching.compile_certain(certain)
        if condition is None:
            return 0
        found = searching.compile_search(self._session, dataset_id, search)
        version = within_int64(version)
        # The version comes first, because the part about deleted rows comes first in the statement.
        values = (version, version, *found.values, dataset_id, version, version)
        values += condition.values
        rows = self._session.query(sql.sum_rows_found(found.statement, condition.statement), values)
        return int(rows[0][0])

    def count_files(self, dataset_id: int, version: int, search: Search) -> int:
        """How many files are live at a version and found by `search`."""
        version = within_int64(version)
        found = searching.compile_search(self._session, dataset_id, search)
        values = (*found.values, dataset_id, version, version)
        return int(self._session.query(sql.count_found(found.statement), values)[0][0])

    def live_paths(self, dataset_id: int, version: int) -> dict[str, int]:
        """The ids of the files of a version, by their paths."""
        version = within_int64(version)
        return dict(self._session.query(sql.LIVE_PATHS, (dataset_id, version, version)))

    def removed_files(self, dataset_id: int, paths: Sequence[str]) -> list[RemovedFile]:
        """What is known of files at these paths that a version of a dataset removed.

        For a branch, versions of its dataset up to its base are versions of the branch too.
        """
        found = []
        for start in range(0, len(paths), _PATHS_AT_ONCE):
            some = paths[start : start + _PATHS_AT_ONCE]
            values = (dataset_id, dataset_id, *some)
            rows = self._session.query(sql.removed_files(len(some)), values)
            found += [RemovedFile(*row) for row in rows]
        return found

    def rewritten_paths(
        self, dataset_id: int, moving: Sequence[str], keeping: Sequence[str]
    ) -> set[str]:
        """Files that a rewrite removed whose rows are all in the newest version, in other files.

        `moving` are the operations that rewrite files, and `keeping` all those that remove no row.
        """
        values = (dataset_id, *moving, dataset_id, *keeping)
        statement = sql.rewritten_paths(len(moving), len(keeping))
        rows = self._session.query(statement, values)
        return {str(path) for (path,) in rows}

    def files_added_since(self, dataset_id: int, version: int) -> list[FileRecord]:
        """Every file that was added after a version, even if it was removed later."""
        return self._files(sql.FILES_ADDED_SINCE, (dataset_id, within_int64(version)))

    def files_following(
        self,
        dataset_id: int,
        version: int,
        file_id: int,
        through: int,
        limit: int,
        *,
        live_at: int | None = None,
    ) -> list[FileRecord]:
        """The first files that versions up to `through` added and that follow a file.

        Files are ordered by the version that added them and by id. Removed files are included; with
        `live_at` only files that this version has are.
        """
        version = within_int64(version)
        values = (dataset_id, version, within_int64(through), version, within_int64(file_id))
        if live_at is None:
            return self._files(sql.FILES_FOLLOWING, (*values, limit))
        live_at = within_int64(live_at)
        return self._files(sql.LIVE_FILES_FOLLOWING, (*values, live_at, limit))

    def vectors(self, file_ids: Sequence[int], version: int) -> dict[int, DeletionVector]:
        """The deletion vectors of files that are live at a version, by file id."""
        if not file_ids:
            return {}
        version = within_int64(version)
        values = (self._session.id_list(file_ids), version, version)
        rows = self._session.query(sql.VECTORS_OF_FILES, values)
        return {row[0]: records.vector_record(row).vector for row in rows}

    def checksums(self, file_ids: Sequence[int]) -> dict[int, bytes]:
        """The SHA-256 of files, by id; a file whose bytes plake did not write has none."""
        if not file_ids:
            return {}
        rows = self._session.query(sql.CHECKSUMS, (self._session.id_list(file_ids),))
        return {row[0]: records.stored_bytes(row[1]) for row in rows}

    def live_among(self, file_ids: Sequence[int]) -> set[int]:
        """The files that the newest version has."""
        rows = self._session.query(sql.LIVE_AMONG, (self._session.id_list(file_ids),))
        return {row[0] for row in rows}

    def all_vectors(self, dataset_id: int, version: int) -> list[VectorRecord]:
        """The deletion vectors that are live at a version, ordered by file id."""
        version = within_int64(version)
        rows = self._session.query(sql.VECTORS, (dataset_id, version, version))
        return [records.vector_record(row) for row in rows]

    def changes_since(
        self, dataset_id: int, version: int, through: int | None = None
    ) -> DatasetChanges:
        """What the commits after a version added to a dataset and took out of it.

        Up to the version `through`; None: up to the newest one.
        """
        last = 2**63 - 1 if through is None else through
        values = (dataset_id, within_int64(version), within_int64(last))
        changes = DatasetChanges(self._files(sql.FILES_ADDED_BETWEEN, values), {}, {}, {})
        for row in self._session.query(sql.VECTORS_ADDED_BETWEEN, values):
            found = records.vector_record(row)
            changes.vectors.setdefault(found.version, {})[found.file_id] = found.vector
        for removed, statement in (
            (changes.removed_files, sql.FILES_REMOVED_BETWEEN),
            (changes.removed_vectors, sql.VECTORS_REMOVED_BETWEEN),
        ):
            for removed_version, file_id in self._session.query(statement, values):
                removed.setdefault(removed_version, []).append(file_id)
        return changes

    def vectors_since(self, file_ids: Sequence[int], version: int) -> list[VectorRecord]:
        """The deletion vectors that files got after a version, oldest first for each file."""
        if not file_ids:
            return []
        values = (self._session.id_list(file_ids), within_int64(version))
        rows = self._session.query(sql.VECTORS_SINCE, values)
        return [records.vector_record(row) for row in rows]

    def row_groups(
        self, file_ids: Sequence[int], *, statistics: bool = True
    ) -> dict[int, list[RowGroupMetadata]]:
        """The row groups of files, ordered by index; there is an entry for every requested id.

        Without `statistics` they hold counts and sizes only.
        """
        result: dict[int, list[RowGroupMetadata]] = {file_id: [] for file_id in file_ids}
        statement = sql.ROW_GROUPS if statistics else sql.BARE_ROW_GROUPS
        if result:
            for row in self._session.query(statement, (self._session.id_list(result),)):
                result[row[0]].append(records.row_group(row[1:]))
        return result

    def file_bounds(
        self, file_ids: Sequence[int], column_ids: Sequence[int]
    ) -> dict[int, dict[int, FileBounds]]:
        """The bounds of columns over whole files in the search index: by file id, by column id."""
        result: dict[int, dict[int, FileBounds]] = {}
        if file_ids and column_ids:
            ids = self._session.id_list
            values = (ids(file_ids), ids(column_ids))
            for file_id, *bounds in self._session.query(sql.FILE_BOUNDS, values):
                result.setdefault(file_id, {})[bounds[0]] = FileBounds(*bounds)
        return result

    # --- what an erasure asks

    def readable_files(self, dataset: DatasetRecord) -> list[tuple[FileRecord, int | None]]:
        """The file rows of all readable versions, each with the version that removed the file."""
        rows = self._session.query(sql.READABLE_FILES, (dataset.id, dataset.oldest_version))
        partitions = self._partitions(row[0] for row in rows)
        return [
            (records.file_record(row, partitions.get(row[0])), removed) for *row, removed in rows
        ]

    def readable_vectors(self, dataset: DatasetRecord) -> list[tuple[VectorRecord, int | None]]:
        """The vectors of all readable versions, each with the version that replaced it."""
        rows = self._session.query(sql.READABLE_VECTORS, (dataset.id, dataset.oldest_version))
        return [(records.vector_record(row), removed) for *row, removed in rows]

    # --- rows to records

    def _files(
        self, statement: str, values: Sequence[Any], known: KnownRecords | None = None
    ) -> list[FileRecord]:
        rows = self._session.query(statement, values)
        have = {} if known is None else known([row[0] for row in rows])
        partitions = self._partitions(row[0] for row in rows if row[0] not in have)
        return [
            have.get(row[0]) or records.file_record(row, partitions.get(row[0])) for row in rows
        ]

    def _partitions(self, file_ids: Iterable[int]) -> dict[int, dict[str, str | None]]:
        ids = list(file_ids)
        result: dict[int, dict[str, str | None]] = {}
        if ids:
            for file_id, key, value in self._session.query(
                sql.PARTITIONS, (self._session.id_list(ids),)
            ):
                result.setdefault(file_id, {})[key] = value
        return result
