"""Reading from the catalog, in one consistent snapshot."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.catalog import branches as dataset_branches
from lakehouse_source.catalog import records, write_states
from lakehouse_source.catalog import search as searching
from lakehouse_source.catalog import statements as sql
from lakehouse_source.catalog import tags as dataset_tags
from lakehouse_source.catalog.branches import Branch
from lakehouse_source.catalog.names import Names
from lakehouse_source.catalog.places import is_dataset_at
from lakehouse_source.catalog.records import Description, to_datetime, to_microseconds
from lakehouse_source.catalog.session import Row, Session
from lakehouse_source.catalog.write_states import WriteState, WriteStatus
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    ExpiredFile,
    FileBounds,
    FileRecord,
    RowGroupMetadata,
    Search,
    TransactionRecord,
    VectorRecord,
)
from lakehouse_source.storage import split_branch, with_branch

_LARGEST = 2**63 - 1


def _within_int64(number: int) -> int:
    # Versions come from users. A number that no database can hold gives the same answer as the
    # nearest number that it can hold: nothing, or everything.
    return max(-_LARGEST - 1, min(_LARGEST, number))


# Gives records of files, by id, for some of the ids that it is asked for.
KnownRecords: TypeAlias = Callable[[Sequence[int]], Mapping[int, FileRecord]]
# Its values are the id of a write and the key of a dataset.
CURRENT = sql.current(write_states.STATE_OF)


@dataclass(frozen=True, slots=True)
class Current:
    """A dataset at its newest version, the schema in force, and the state of a write.

    `schema_version` is the version at which the schema came into force. Before the first version
    it is 0 and `schema` is None. `write_state` is None where the write is unknown or committed.
    """

    dataset: DatasetRecord
    schema_version: int
    schema: pa.Schema | None
    write_state: WriteState | None


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


class CatalogReader:
    """One snapshot of the catalog; it ends with the `with` block that gave it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.redacted_url = session.redacted_url

    # --- datasets and their history

    def dataset(self, base_uri: str) -> DatasetRecord | None:
        """The dataset at a base URI; `.` is the dataset in whose folder the catalog is.

        A dataset in a local folder is found by every path that leads there, also where
        the catalog has it under another one. The record says under which it has it.
        """
        return self._one_dataset(sql.DATASET, base_uri)

    def description(self, base_uri: str, version: int | None = None) -> Description | None:
        """The dataset at a base URI and one version (default: the newest), in one query.

        The summary is empty if there is no such version. The answer for equal rows is one
        object.
        """
        wanted = None if version is None else _within_int64(version)
        rows = self._rows_of(
            base_uri, lambda key: self._session.query(sql.DESCRIPTION, (wanted, key))
        )
        if not rows:
            return None
        return records.description(tuple(rows), self.redacted_url)

    def current(self, base_uri: str, write_id: str = "") -> Current | None:
        """What a write needs to know of the dataset at a base URI, in one query."""
        rows = self._rows_of(base_uri, lambda key: self._session.query(CURRENT, (write_id, key)))
        return self._current(rows)

    def datasets(self) -> list[DatasetRecord]:
        """All datasets but branches, in the order in which they were registered."""
        return [self._dataset_record(row) for row in self._session.query(sql.DATASETS)]

    def taken_uris(self, prefix: str) -> set[str]:
        """The URIs with a prefix at which a dataset is, or was dropped and still has files."""
        return {row[0] for row in self._session.query(sql.TAKEN_URIS, (len(prefix), prefix))}

    def dropped_datasets(self) -> list[DatasetRecord]:
        """Datasets that were dropped and whose files are still to be deleted."""
        return [self._dataset_record(row) for row in self._session.query(sql.DROPPED_DATASETS)]

    @property
    def names(self) -> Names:
        """The names of datasets."""
        return Names(self._session)

    def tags(self, dataset_id: int) -> Mapping[str, int]:
        """The versions that have a tag, by tag, the oldest version first."""
        return dataset_tags.tags(self._session, dataset_id)

    def branches(self, dataset_id: int) -> Mapping[str, Branch]:
        """The branches of a dataset, by name."""
        return dataset_branches.branches(self._session, dataset_id)

    def schema_at(self, dataset_id: int, version: int) -> tuple[int, pa.Schema]:
        """The schema in force at a version, and the version at which it came into force."""
        rows = self._session.query(sql.SCHEMA_AT, (dataset_id, _within_int64(version)))
        if not rows:
            raise CorruptDatasetError(
                path=self.redacted_url,
                reason=f"dataset {dataset_id} has no schema for version {version}",
            )
        return rows[0][0], self._schema(rows[0][1])

    def schemas(self, dataset_id: int) -> dict[int, pa.Schema]:
        """Every schema that the dataset ever had, by the version at which it came into force."""
        rows = self._session.query(sql.SCHEMAS, (dataset_id,))
        return {version: self._schema(raw) for version, raw in rows}

    def transactions(self, dataset_id: int, limit: int | None = None) -> list[TransactionRecord]:
        """The history, newest first."""
        count = _LARGEST if limit is None else _within_int64(limit)
        return self._transactions(sql.TRANSACTIONS, dataset_id, count)

    def transactions_since(
        self, dataset_id: int, version: int, limit: int | None = None
    ) -> list[TransactionRecord]:
        """What was committed after a version, oldest first, at most `limit` commits."""
        version = _within_int64(version)
        if limit is None:
            return self._transactions(sql.TRANSACTIONS_SINCE, dataset_id, version)
        return self._transactions(sql.FIRST_TRANSACTIONS_SINCE, dataset_id, version, limit)

    def transaction(self, dataset_id: int, version: int) -> TransactionRecord | None:
        """The commit that made a version."""
        return self._one_transaction(sql.TRANSACTION, dataset_id, _within_int64(version))

    def transaction_by_write_id(self, write_id: str) -> TransactionRecord | None:
        """The commit of a write, in any dataset; None where it is not committed."""
        return self._one_transaction(sql.TRANSACTION_BY_WRITE_ID, write_id)

    def write_id_of(self, dataset_id: int, version: int) -> str | None:
        """The id of the write that made a version; None: there is no such version."""
        rows = self._session.query(sql.WRITE_ID_OF, (dataset_id, version))
        return rows[0][0] if rows else None

    def transaction_by_txn(
        self, dataset_id: int, app_id: str, txn_version: int
    ) -> TransactionRecord | None:
        """The commit with an idempotency pair."""
        return self._one_transaction(
            sql.TRANSACTION_BY_TXN, dataset_id, app_id, _within_int64(txn_version)
        )

    def last_txn_version(self, dataset_id: int, app_id: str) -> int | None:
        """The highest `txn_version` that an application committed."""
        rows = self._session.query(sql.LAST_TXN_VERSION, (dataset_id, app_id))
        return rows[0][0] if rows else None

    def version_at(self, dataset_id: int, timestamp: datetime) -> int | None:
        """The last version committed at or before an instant."""
        rows = self._session.query(sql.VERSION_AT, (dataset_id, to_microseconds(timestamp)))
        return rows[0][0] if rows else None

    def first_version_from(self, dataset_id: int, timestamp: datetime) -> int | None:
        """The first version committed at or after an instant."""
        rows = self._session.query(sql.FIRST_VERSION_FROM, (dataset_id, to_microseconds(timestamp)))
        return rows[0][0] if rows else None

    def now(self) -> datetime:
        """The database's clock, which gives all timestamps of the catalog."""
        return to_datetime(self._session.query(sql.NOW)[0][0])

    # --- files

    def files(
        self, dataset_id: int, version: int, search: Search | None = None
    ) -> list[FileRecord]:
        """The files live at a version, ordered by version and id; with `search`, those it finds."""
        version = _within_int64(version)
        if search is None:
            return self._files(sql.FILES, (dataset_id, version, version))
        found = searching.compile_search(self._session, dataset_id, search)
        return self._files(
            sql.files_found(found.statement), (*found.values, dataset_id, version, version)
        )

    def small_files(self, dataset_id: int, size_bytes: int) -> list[FileRecord]:
        """The files of the newest version that are smaller, ordered by version and id."""
        return self._files(sql.SMALL_FILES, (dataset_id, _within_int64(size_bytes)))

    def files_by_id(self, file_ids: Sequence[int]) -> list[FileRecord]:
        """Files, live or not, ordered by version and id."""
        if not file_ids:
            return []
        return self._files(sql.FILES_BY_ID, (self._session.id_list(file_ids),))

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

        One query gives the first list. For the others only ids are held in memory. With
        `without` the files that `count_certain_rows` counts are left out. `known` gives the
        records that the caller has already, by id: they are not made again.
        """
        values: tuple[Any, ...] = (dataset_id, *[_within_int64(version)] * 2)
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

        All bounds of a column are within one range, and no value of it is NULL. Deleted rows
        are not counted.
        """
        condition = searching.compile_certain(certain)
        if condition is None:
            return 0
        found = searching.compile_search(self._session, dataset_id, search)
        version = _within_int64(version)
        # The version comes first: the part of the statement about deleted rows does.
        values = (version, version, *found.values, dataset_id, version, version)
        values += condition.values
        rows = self._session.query(sql.sum_rows_found(found.statement, condition.statement), values)
        return int(rows[0][0])

    def count_files(self, dataset_id: int, version: int, search: Search) -> int:
        """How many files are live at a version and found by `search`."""
        version = _within_int64(version)
        found = searching.compile_search(self._session, dataset_id, search)
        values = (*found.values, dataset_id, version, version)
        return int(self._session.query(sql.count_found(found.statement), values)[0][0])

    def live_paths(self, dataset_id: int, version: int) -> dict[str, int]:
        """The ids of the files of a version, by their paths."""
        version = _within_int64(version)
        return dict(self._session.query(sql.LIVE_PATHS, (dataset_id, version, version)))

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
        """Every file that was added after a version, those removed since then too."""
        return self._files(sql.FILES_ADDED_SINCE, (dataset_id, _within_int64(version)))

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

        Files are ordered by the version that added them and by id. Removed ones are among them;
        with `live_at` only those that this version has.
        """
        version = _within_int64(version)
        values = (dataset_id, version, _within_int64(through), version, _within_int64(file_id))
        if live_at is None:
            return self._files(sql.FILES_FOLLOWING, (*values, limit))
        live_at = _within_int64(live_at)
        return self._files(sql.LIVE_FILES_FOLLOWING, (*values, live_at, limit))

    def vectors(self, file_ids: Sequence[int], version: int) -> dict[int, DeletionVector]:
        """The deletion vectors of files that are live at a version, by file id."""
        if not file_ids:
            return {}
        version = _within_int64(version)
        values = (self._session.id_list(file_ids), version, version)
        rows = self._session.query(sql.VECTORS_OF_FILES, values)
        return {row[0]: records.vector_record(row).vector for row in rows}

    def live_among(self, file_ids: Sequence[int]) -> set[int]:
        """Those of the files that the newest version has."""
        rows = self._session.query(sql.LIVE_AMONG, (self._session.id_list(file_ids),))
        return {row[0] for row in rows}

    def all_vectors(self, dataset_id: int, version: int) -> list[VectorRecord]:
        """The deletion vectors that are live at a version, ordered by file id."""
        version = _within_int64(version)
        rows = self._session.query(sql.VECTORS, (dataset_id, version, version))
        return [records.vector_record(row) for row in rows]

    def changes_since(self, dataset_id: int, version: int) -> DatasetChanges:
        """What the commits after a version added to a dataset and took out of it."""
        values = (dataset_id, _within_int64(version))
        changes = DatasetChanges(self._files(sql.FILES_ADDED_SINCE, values), {}, {}, {})
        for row in self._session.query(sql.VECTORS_ADDED_SINCE, values):
            found = records.vector_record(row)
            changes.vectors.setdefault(found.version, {})[found.file_id] = found.vector
        for removed, statement in (
            (changes.removed_files, sql.FILES_REMOVED_SINCE),
            (changes.removed_vectors, sql.VECTORS_REMOVED_SINCE),
        ):
            for removed_version, file_id in self._session.query(statement, values):
                removed.setdefault(removed_version, []).append(file_id)
        return changes

    def vectors_since(self, file_ids: Sequence[int], version: int) -> list[VectorRecord]:
        """The deletion vectors that files got after a version, oldest first for each file."""
        if not file_ids:
            return []
        values = (self._session.id_list(file_ids), _within_int64(version))
        rows = self._session.query(sql.VECTORS_SINCE, values)
        return [records.vector_record(row) for row in rows]

    def row_groups(
        self, file_ids: Sequence[int], *, statistics: bool = True
    ) -> dict[int, list[RowGroupMetadata]]:
        """The row groups of files, ordered by index; an entry for every id asked for.

        Without `statistics` they hold counts and sizes only.
        """
        result: dict[int, list[RowGroupMetadata]] = {file_id: [] for file_id in file_ids}
        statement = sql.ROW_GROUPS if statistics else sql.BARE_ROW_GROUPS
        if result:
            for row in self._session.query(statement, (self._session.id_list(result),)):
                result[row[0]].append(RowGroupMetadata(*row[1:]))
        return result

    def file_bounds(
        self, file_ids: Sequence[int], column_ids: Sequence[int]
    ) -> dict[int, dict[int, FileBounds]]:
        """What the search index has of columns over whole files: by file id, by column id."""
        result: dict[int, dict[int, FileBounds]] = {}
        if file_ids and column_ids:
            ids = self._session.id_list
            values = (ids(file_ids), ids(column_ids))
            for file_id, *bounds in self._session.query(sql.FILE_BOUNDS, values):
                result.setdefault(file_id, {})[bounds[0]] = FileBounds(*bounds)
        return result

    # --- what vacuum asks

    def expired_files(self, dataset: DatasetRecord) -> list[ExpiredFile]:
        """The file rows that belong to no readable version, ordered by id.

        Another row with the same path may belong to one.
        """
        rows = self._session.query(sql.EXPIRED_FILES, (dataset.id, dataset.oldest_version))
        return [
            ExpiredFile(identity, path, size_bytes, to_datetime(expired_at or 0))
            for identity, path, size_bytes, expired_at in rows
        ]

    def paths(self, dataset: DatasetRecord) -> tuple[set[str], set[str]]:
        """The paths of files of readable versions, and all paths that the catalog has.

        Data files and the Puffin files of deletion vectors are among them.
        """
        readable: set[str] = set()
        known: set[str] = set()
        for statement in (sql.ALL_PATHS, sql.VECTOR_PATHS):
            for path, removed_version in self._session.query(statement, (dataset.id,)):
                known.add(path)
                if removed_version is None or removed_version > dataset.oldest_version:
                    readable.add(path)
        return readable, known

    def expired_vectors(self, dataset: DatasetRecord) -> list[ExpiredFile]:
        """The Puffin files with a vector that no readable version contains, ordered by path.

        A file may hold other vectors that a readable version contains. The ids are 0.
        """
        rows = self._session.query(sql.EXPIRED_VECTORS, (dataset.id, dataset.oldest_version))
        return [
            ExpiredFile(0, path, size_bytes, to_datetime(expired_at or 0))
            for path, size_bytes, expired_at in rows
        ]

    def write_states(self, write_ids: Iterable[str]) -> dict[str, WriteStatus]:
        """What became of writes; those that this catalog does not know are left out."""
        return write_states.states(self._session, write_ids)

    def silent_writes(self, seconds: float) -> dict[str, WriteState]:
        """Writes that may still commit, without a heartbeat for so long by the database's clock."""
        return write_states.silent(self._session, seconds)

    # --- rows to records

    def _one_dataset(self, statement: str, base_uri: str) -> DatasetRecord | None:
        rows = self._rows_of(base_uri, lambda key: self._session.query(statement, (key,)))
        return self._dataset_record(rows[0]) if rows else None

    def _rows_of(self, base_uri: str, ask: Callable[[str], list[Row]]) -> list[Row]:
        """The answer to a question about a dataset, however its folder is spelled.

        The spelling that is asked for comes first and costs nothing more. The others are
        tried only where there is no such dataset: it is about to be made, or missing.
        """
        rows = ask(base_uri)
        if not rows:
            registered = self._registered_as(base_uri)
            if registered is not None:
                rows = ask(registered)
        return rows

    def _registered_as(self, base_uri: str) -> str | None:
        """The first key in the catalog that means the same local folder, and the same branch."""
        folder, branch = split_branch(base_uri)
        for (registered,) in self._session.query(sql.LOCAL_DATASETS):
            if is_dataset_at(registered, folder, self._session.catalog_path):
                return with_branch(registered, branch)
        return None

    def _current(self, rows: Sequence[Row]) -> Current | None:
        if not rows:
            return None
        *record, schema_version, raw, state = rows[0]
        return Current(
            self._dataset_record(record),
            schema_version or 0,
            None if raw is None else self._schema(raw),
            None if state is None else WriteState(state),
        )

    def _dataset_record(self, row: Sequence[Any]) -> DatasetRecord:
        return records.dataset_record(row, self.redacted_url)

    def _one_transaction(self, statement: str, *values: Any) -> TransactionRecord | None:
        records = self._transactions(statement, *values)
        return records[0] if records else None

    def _transactions(self, statement: str, *values: Any) -> list[TransactionRecord]:
        return self._transaction_records(self._session.query(statement, values))

    def _transaction_records(self, rows: Iterable[Row]) -> list[TransactionRecord]:
        return records.transaction_records(rows, self.redacted_url)

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

    def _schema(self, raw: bytes) -> pa.Schema:
        return records.schema(raw, self.redacted_url)
