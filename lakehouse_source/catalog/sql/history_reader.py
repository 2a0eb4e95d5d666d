"""Reading datasets, their schemas and their commits from the catalog, in one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog.same_place import is_dataset_at
from lakehouse_source.catalog.sql import records, write_states
from lakehouse_source.catalog.sql import statements as sql
from lakehouse_source.catalog.sql.iceberg import IcebergFiles
from lakehouse_source.catalog.sql.leases import LeaseReader
from lakehouse_source.catalog.sql.names import Names
from lakehouse_source.catalog.sql.records import Description, to_datetime, to_microseconds
from lakehouse_source.catalog.sql.refs import BranchReader, CloneReader, ConsumerReader, TagReader
from lakehouse_source.catalog.sql.statements import Row, Session, Statement
from lakehouse_source.catalog.sql.write_states import WriteState
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError
from lakehouse_source.model import DatasetRecord, TransactionRecord
from lakehouse_source.storage import split_branch, with_branch

_LARGEST = 2**63 - 1
# Its values are the id of a write and the key of a dataset.
CURRENT = sql.current(write_states.STATE_OF)


@dataclass(frozen=True, slots=True)
class Current:
    """A dataset at its newest version, the schema in force, and the state of a write.

    `schema_version` is the version at which the schema came into force. Before the first version
    it is 0 and `schema` is None. `write_state` is None if the write is unknown or committed.
    `is_claimed`: the catalog owns the folder of the dataset. `write_id` is that of the newest
    version.
    """

    dataset: DatasetRecord
    schema_version: int
    schema: pa.Schema | None
    write_state: WriteState | None
    is_claimed: bool
    write_id: str | None


class HistoryReader(TagReader, ConsumerReader, BranchReader, CloneReader, LeaseReader):
    """What the catalog has about datasets, besides their files."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.redacted_url = session.redacted_url

    def dataset(self, base_uri: str) -> DatasetRecord | None:
        """The dataset at a base URI; `.` is the dataset in whose folder the catalog is.

        A dataset in a local folder is found by every path that leads there, even if the catalog has
        it under another path. The record has the catalog's path.
        """
        return self._one_dataset(sql.DATASET, base_uri)

    def description(self, base_uri: str, version: int | None = None) -> Description | None:
        """The dataset at a base URI and one version (default: the newest), in one query.

        The summary is empty if there is no such version. Equal rows give the same object.
        """
        wanted = None if version is None else within_int64(version)
        rows = self._rows_of(
            base_uri, lambda key: self._session.query(sql.DESCRIPTION, (wanted, key))
        )
        if not rows:
            return None
        return records.description(tuple(rows), self.redacted_url)

    def current(self, base_uri: str, write_id: str = "") -> Current | None:
        """What a write needs to know of the dataset at a base URI, in one query."""
        rows = self._rows_of(base_uri, lambda key: self._query(CURRENT, (write_id, key)))
        return self._current(rows)

    def datasets(self) -> list[DatasetRecord]:
        """All datasets except branches, in the order in which they were registered."""
        return [self._dataset_record(row) for row in self._session.query(sql.DATASETS)]

    def taken_uris(self, prefix: str) -> set[str]:
        """The URIs with a prefix where a dataset is, or where a dropped dataset still has files."""
        return {row[0] for row in self._session.query(sql.TAKEN_URIS, (len(prefix), prefix))}

    def dropped_datasets(self) -> list[DatasetRecord]:
        """Datasets that were dropped and whose files are still to be deleted."""
        return [self._dataset_record(row) for row in self._session.query(sql.DROPPED_DATASETS)]

    @property
    def names(self) -> Names:
        """The names of datasets."""
        return Names(self._session)

    @property
    def iceberg(self) -> IcebergFiles:
        """The files for readers of Iceberg."""
        return IcebergFiles(self._session)

    def schema_at(self, dataset_id: int, version: int) -> tuple[int, pa.Schema]:
        """The schema in force at a version, and the version at which it came into force."""
        rows = self._session.query(sql.SCHEMA_AT, (dataset_id, within_int64(version)))
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
        count = _LARGEST if limit is None else within_int64(limit)
        return self._transactions(sql.TRANSACTIONS, dataset_id, count)

    def transactions_since(
        self, dataset_id: int, version: int, limit: int | None = None
    ) -> list[TransactionRecord]:
        """What was committed after a version, oldest first, at most `limit` commits."""
        version = within_int64(version)
        if limit is None:
            return self._transactions(sql.TRANSACTIONS_SINCE, dataset_id, version)
        return self._transactions(sql.FIRST_TRANSACTIONS_SINCE, dataset_id, version, limit)

    def all_since(self, dataset: DatasetRecord, version: int) -> list[TransactionRecord] | None:
        """What was committed after a version, oldest first; None: vacuum has removed a part."""
        found = self.transactions_since(dataset.id, version)
        return found if len(found) == dataset.current_version - version else None

    def transaction(self, dataset_id: int, version: int) -> TransactionRecord | None:
        """The commit that made a version."""
        return self._one_transaction(sql.TRANSACTION, dataset_id, within_int64(version))

    def transaction_by_write_id(self, write_id: str) -> TransactionRecord | None:
        """The commit of a write, in any dataset; None: the write is not committed."""
        return self._one_transaction(sql.TRANSACTION_BY_WRITE_ID, write_id)

    def write_id_of(self, dataset_id: int, version: int) -> str | None:
        """The id of the write that made a version; None: there is no such version."""
        rows = self._session.query(sql.WRITE_ID_OF, (dataset_id, within_int64(version)))
        return rows[0][0] if rows else None

    def transaction_by_txn(
        self, dataset_id: int, app_id: str, txn_version: int
    ) -> TransactionRecord | None:
        """The commit with an idempotency pair."""
        return self._one_transaction(
            sql.TRANSACTION_BY_TXN, dataset_id, app_id, within_int64(txn_version)
        )

    def repeated(self, dataset_id: int, app_id: str, txn_version: int) -> TransactionRecord | None:
        """The commit that a write repeats: its application committed this number or a later one.

        The commit with the same number, or else the last commit.

        Raises:
            InvalidOptionError: the application's id belongs to another login.
        """
        pair = app_id, txn_version
        return self._repeated_by(
            dataset_id, pair, *self._session.query_all(repeating(dataset_id, pair))
        )

    def pairs_after(self, dataset_id: int, version: int) -> dict[str, int]:
        """The highest number of each application among the commits after a version."""
        return dict(self._session.query(sql.PAIRS_AFTER, (dataset_id, within_int64(version))))

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

    # --- rows to records

    def _one_dataset(self, statement: str, base_uri: str) -> DatasetRecord | None:
        rows = self._rows_of(base_uri, lambda key: self._query(statement, (key,)))
        return self._dataset_record(rows[0]) if rows else None

    def _query(self, statement: str, values: Sequence[Any]) -> list[Row]:
        return self._session.query(statement, values)

    def _rows_of(self, base_uri: str, ask: Callable[[str], list[Row]]) -> list[Row]:
        """The result of a query about a dataset, however its folder is spelled.

        The given spelling is tried first and costs nothing more. Other spellings are tried only if
        it finds no dataset: the dataset is new, or missing.
        """
        rows = ask(base_uri)
        if not rows:
            registered = self._registered_as(base_uri)
            if registered is not None:
                rows = ask(registered)
        return rows

    def _registered_as(self, base_uri: str) -> str | None:
        """The first key in the catalog for the same local folder and the same branch."""
        folder, branch = split_branch(base_uri)
        for (registered,) in self._session.query(sql.LOCAL_DATASETS):
            if is_dataset_at(registered, folder, self._session.catalog_path):
                return with_branch(registered, branch)
        return None

    def _current(self, rows: Sequence[Row]) -> Current | None:
        if not rows:
            return None
        *record, schema_version, raw, state, is_claimed, write_id = rows[0]
        return Current(
            self._dataset_record(record),
            schema_version or 0,
            None if raw is None else self._schema(raw),
            None if state is None else WriteState(state),
            bool(is_claimed),
            write_id,
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

    def _repeated_by(
        self, dataset_id: int, pair: tuple[str, int], same: Iterable[Row], last: Iterable[Row]
    ) -> TransactionRecord | None:
        """The result of the queries of `repeating`."""
        for record in self._transaction_records([*same, *last]):
            if record.txn_version is not None and record.txn_version >= pair[1]:
                self._check_application(dataset_id, pair[0])
                return record
        return None

    def _check_application(self, dataset_id: int, app_id: str) -> None:
        """Check that a write is no repetition of what another login committed under its id.

        The id of an application belongs to the login that used it first, and to its members.
        """
        found = self._session.query(sql.LOGINS_OF_APPLICATION, (dataset_id, app_id))
        others = sorted(str(login) for login, is_mine in found if is_mine is not None)
        if others and not any(is_mine for _login, is_mine in found):
            raise InvalidOptionError(
                option="txn_app_id",
                value=app_id,
                reason=f"belongs to the login {others[0]!r}, which used it first. Choose another "
                f"id, or let the owner of the database run GRANT {others[0]} TO the login of this "
                "program.",
            )

    def _schema(self, raw: bytes) -> pa.Schema:
        return records.schema(raw, self.redacted_url)


def repeating(dataset_id: int, pair: tuple[str, int]) -> list[Statement]:
    """The queries for the commit that a write with an idempotency pair repeats."""
    app_id, txn_version = pair
    return [
        (sql.TRANSACTION_BY_TXN, (dataset_id, app_id, within_int64(txn_version))),
        (sql.LAST_OF_APPLICATION, (dataset_id, app_id)),
    ]


def within_int64(number: int) -> int:
    """The nearest number that a database can hold.

    Versions come from users. Every number beyond the limit gives the same result as the limit:
    nothing, or everything.
    """
    return max(-_LARGEST - 1, min(_LARGEST, number))
