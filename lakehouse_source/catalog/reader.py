"""Reading from the catalog, in one consistent snapshot."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog import search as searching
from lakehouse_source.catalog import statements as sql
from lakehouse_source.catalog import write_states
from lakehouse_source.catalog.places import is_dataset_at
from lakehouse_source.catalog.session import Row, Session
from lakehouse_source.catalog.write_states import WriteState, WriteStatus
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError
from lakehouse_source.model import (
    DatasetProperties,
    DatasetRecord,
    ExpiredFile,
    FileRecord,
    RowGroupMetadata,
    Search,
    TransactionRecord,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_LARGEST = 2**63 - 1


def to_datetime(microseconds: int) -> datetime:
    """The instant (UTC) of a catalog timestamp."""
    return _EPOCH + microseconds * _MICROSECOND


def to_microseconds(instant: datetime) -> int:
    """The catalog timestamp of an instant.

    Raises:
        InvalidOptionError: the datetime has no zone.
    """
    if instant.utcoffset() is None:
        raise InvalidOptionError(
            option="timestamp", value=instant, reason="has no time zone; give it one."
        )
    return (instant - _EPOCH) // _MICROSECOND


def _within_int64(number: int) -> int:
    # Versions come from users. One that no database can hold gives the same answer as the
    # nearest one that it can: nothing, or everything.
    return max(-_LARGEST - 1, min(_LARGEST, number))


@dataclass(frozen=True, slots=True)
class Description:
    """A dataset, all of its schemas by their version, and the summary of one version."""

    dataset: DatasetRecord
    schemas: dict[int, pa.Schema]
    summary: dict[str, Any]


# Asks for a write's id and a dataset's key.
CURRENT = sql.current(write_states.STATE_OF)


def _schema_version(row: Row) -> int:
    return row[7] or 0


@dataclass(frozen=True, slots=True)
class Current:
    """A dataset at its newest version, the schema in force, and the state of a write.

    `schema_version` is that at which the schema came into force. Before the first version
    it is 0 and `schema` is None. `write_state` is
    None where the write is unknown or committed.
    """

    dataset: DatasetRecord
    schema_version: int
    schema: pa.Schema | None
    write_state: WriteState | None


class CatalogReader:
    """One snapshot of the catalog; it ends with the `with` block that gave it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # --- datasets and their history

    def dataset(self, base_uri: str) -> DatasetRecord | None:
        """The dataset at a base URI, or `.` for that around the catalog's own folder.

        A dataset in a local folder is found by every path that leads there, also where
        the catalog has it under another one. The record says under which it has it.
        """
        return self._one_dataset(sql.DATASET, base_uri)

    def description(self, base_uri: str, version: int | None = None) -> Description | None:
        """The dataset at a base URI and one version (default: the newest), in one query.

        The summary is empty where there is no such version.
        """
        wanted = None if version is None else _within_int64(version)
        rows = self._rows_of(
            base_uri, lambda key: self._session.query(sql.DESCRIPTION, (wanted, key))
        )
        if not rows:
            return None
        summary = rows[0][6]
        return Description(
            self._dataset_record(rows[0][:6]),
            {row[7]: self._schema(row[8]) for row in sorted(rows, key=_schema_version) if row[7]},
            {} if summary is None else self._document(summary),
        )

    def current(self, base_uri: str, write_id: str = "") -> Current | None:
        """What a write needs to know of the dataset at a base URI, in one query."""
        rows = self._rows_of(base_uri, lambda key: self._session.query(CURRENT, (write_id, key)))
        return self._current(rows)

    def datasets(self) -> list[DatasetRecord]:
        """All datasets, in the order in which they were registered."""
        return [self._dataset_record(row) for row in self._session.query(sql.DATASETS)]

    def schema_at(self, dataset_id: int, version: int) -> tuple[int, pa.Schema]:
        """The schema in force at a version, and the version at which it came into force."""
        rows = self._session.query(sql.SCHEMA_AT, (dataset_id, _within_int64(version)))
        if not rows:
            raise CorruptDatasetError(
                path=self._session.redacted_url,
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

    def transactions_since(self, dataset_id: int, version: int) -> list[TransactionRecord]:
        """What was committed after a version, oldest first."""
        return self._transactions(sql.TRANSACTIONS_SINCE, dataset_id, _within_int64(version))

    def transaction(self, dataset_id: int, version: int) -> TransactionRecord | None:
        """The commit that made a version."""
        return self._one_transaction(sql.TRANSACTION, dataset_id, _within_int64(version))

    def transaction_by_write_id(self, write_id: str) -> TransactionRecord | None:
        """The commit of a write, in any dataset; None where it is not committed."""
        return self._one_transaction(sql.TRANSACTION_BY_WRITE_ID, write_id)

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

    def iter_files(
        self, dataset_id: int, version: int, search: Search | None, at_once: int
    ) -> Iterator[list[FileRecord]]:
        """The records that `files` lists, in lists of at most `at_once`.

        One query gives the first list. For the others only ids are held in memory.
        """
        values: tuple[Any, ...] = (dataset_id, *[_within_int64(version)] * 2)
        first, every = sql.FIRST_FILES, sql.FILE_IDS
        if search is not None:
            found = searching.compile_search(self._session, dataset_id, search)
            values = (*found.values, *values)
            first = sql.first_files_found(found.statement)
            every = sql.file_ids_found(found.statement)
        files = self._files(first, (*values, at_once))
        yield files
        if len(files) < at_once:
            return
        ids = array("q", (row[0] for row in self._session.query(every, values)))
        for start in range(at_once, len(ids), at_once):
            some = ids[start : start + at_once]
            yield self._files(sql.FILES_BY_ID, (self._session.id_list(some),))

    def count_files(self, dataset_id: int, version: int, search: Search) -> int:
        """How many files are live at a version and found by `search`."""
        version = _within_int64(version)
        found = searching.compile_search(self._session, dataset_id, search)
        values = (*found.values, dataset_id, version, version)
        return int(self._session.query(sql.count_found(found.statement), values)[0][0])

    def files_added_since(self, dataset_id: int, version: int) -> list[FileRecord]:
        """Every file that was added after a version, those removed since then too."""
        return self._files(sql.FILES_ADDED_SINCE, (dataset_id, _within_int64(version)))

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
        """The paths of files of readable versions, and the paths in all file rows."""
        readable: set[str] = set()
        known: set[str] = set()
        for path, removed_version in self._session.query(sql.ALL_PATHS, (dataset.id,)):
            known.add(path)
            if removed_version is None or removed_version > dataset.oldest_version:
                readable.add(path)
        return readable, known

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
        """The first key in the catalog that means the same local folder."""
        for (registered,) in self._session.query(sql.LOCAL_DATASETS):
            if is_dataset_at(registered, base_uri, self._session.catalog_path):
                found: str = registered
                return found
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
        identity, name, base_uri, current_version, properties, oldest = row
        try:
            parsed = DatasetProperties.from_json(self._document(properties))
        except TypeError as exc:
            raise CorruptDatasetError(
                path=self._session.redacted_url,
                reason=f"the properties of dataset {base_uri} cannot be read: {exc}",
            ) from exc
        return DatasetRecord(identity, name, base_uri, current_version, parsed, oldest)

    def _one_transaction(self, statement: str, *values: Any) -> TransactionRecord | None:
        records = self._transactions(statement, *values)
        return records[0] if records else None

    def _transactions(self, statement: str, *values: Any) -> list[TransactionRecord]:
        return self._transaction_records(self._session.query(statement, values))

    def _transaction_records(self, rows: Iterable[Row]) -> list[TransactionRecord]:
        return [
            TransactionRecord(
                version,
                to_datetime(timestamp),
                operation,
                self._document(metadata),
                self._document(summary),
                write_id,
                txn_app_id,
                txn_version,
            )
            for (
                version, timestamp, operation, metadata, summary, write_id, txn_app_id,
                txn_version,
            ) in rows
        ]  # fmt: skip

    def _files(self, statement: str, values: Sequence[Any]) -> list[FileRecord]:
        rows = self._session.query(statement, values)
        partitions = self._partitions(row[0] for row in rows)
        nothing: dict[str, str | None] = {}
        return [
            FileRecord(
                identity,
                path,
                size_bytes,
                row_count,
                schema_version,
                version,
                partitions.get(identity, nothing),
                bool(stats_complete),
            )
            for (
                identity, path, size_bytes, row_count, schema_version, version, stats_complete,
            ) in rows
        ]  # fmt: skip

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
        try:
            return pa.ipc.read_schema(pa.py_buffer(raw))
        except (pa.ArrowException, OSError, TypeError) as exc:
            raise CorruptDatasetError(
                path=self._session.redacted_url, reason=f"a schema cannot be read: {exc}"
            ) from exc

    def _document(self, text: str) -> dict[str, Any]:
        try:
            document = json.loads(text)
        except ValueError as exc:
            raise CorruptDatasetError(
                path=self._session.redacted_url, reason=f"a JSON document cannot be read: {exc}"
            ) from exc
        if not isinstance(document, dict):
            raise CorruptDatasetError(
                path=self._session.redacted_url, reason="a JSON document is not an object"
            )
        return document
