"""Changes to the catalog, inside one database transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa

from lakehouse_source.catalog.committer import committer as committing
from lakehouse_source.catalog.committer import system_user
from lakehouse_source.catalog.qualified_names import DEFAULT_NAMESPACE
from lakehouse_source.catalog.sql import records as to_rows
from lakehouse_source.catalog.sql import statements as sql
from lakehouse_source.catalog.sql import write_states
from lakehouse_source.catalog.sql.history_reader import CURRENT, Current, repeating
from lakehouse_source.catalog.sql.iceberg import IcebergChanges
from lakehouse_source.catalog.sql.leases import LaneChanges, LeaseChanges
from lakehouse_source.catalog.sql.names import NameChanges
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.records import to_datetime
from lakehouse_source.catalog.sql.refs import (
    FORGET_BRANCH,
    CloneChanges,
    ConsumerChanges,
    TagChanges,
)
from lakehouse_source.catalog.sql.removal import ErasureChanges, ExpiryChanges
from lakehouse_source.catalog.sql.statements import Row, Statement
from lakehouse_source.catalog.sql.write_states import (
    COMMIT,
    FENCED,
    FenceChanges,
    WriteState,
    WriteStateChanges,
    refuse_fenced,
)
from lakehouse_source.errors import CommitConflictError, InvalidOptionError
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    FileBounds,
    FileMetadata,
    TransactionRecord,
)
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.pruning.keys import UNBOUNDED_LOWER, UNBOUNDED_UPPER

NOTHING_TOLD: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Claim:
    """The state of a write, which nobody else changes until the transaction ends.

    `done` is its commit, where it is committed already; `repeated` is the commit that it repeats
    by its idempotency pair. Nobody adds one while the dataset is locked.
    """

    state: WriteState
    done: TransactionRecord | None
    repeated: TransactionRecord | None = None


@dataclass(frozen=True, slots=True)
class LockedDataset:
    """A dataset under its lock, its last commit, and the claim on a write.

    `schema` is the one in force and its version, None where it is the one known before.
    """

    dataset: DatasetRecord
    last: TransactionRecord | None
    schema: tuple[int, pa.Schema] | None
    claim: Claim


class CatalogTransaction(
    CatalogReader,
    TagChanges,
    ConsumerChanges,
    CloneChanges,
    ExpiryChanges,
    ErasureChanges,
    FenceChanges,
    LeaseChanges,
    WriteStateChanges,
    LaneChanges,
):
    """One database transaction: all of it is committed when its `with` block ends well."""

    # --- datasets

    def register_dataset(self, base_uri: str, name: str) -> DatasetRecord:
        """The dataset at a base URI, made (at version 0) where there was none."""
        values = (to_rows.without_nul(name, "name"), to_rows.without_nul(base_uri, "path"))
        record = self.dataset(base_uri)
        if record is None:
            # Another writer may be making it under another spelling of its folder, which no key
            # of the database shows. Who makes a dataset locks this row first.
            self.names.find_namespace(DEFAULT_NAMESPACE)
            record = self.dataset(base_uri)
        if record is None:
            self._session.execute(sql.REGISTER_DATASET, values)
            record = self.dataset(base_uri)
        if record is None:
            raise InvalidOptionError(
                option="path",
                value=base_uri,
                reason="holds a dataset that was dropped and whose files are being deleted, or "
                "are those of clones too. Call finish_drops() of the catalog, then write again, "
                "or choose another folder.",
            )
        return record

    def set_claimed(self, dataset_id: int) -> None:
        """Note that the folder of a dataset is this catalog's own."""
        self._session.execute(sql.SET_CLAIMED, (dataset_id,))

    def set_managed(self, dataset_id: int) -> None:
        """Note that plake chose the location of a dataset, before its first version."""
        self._session.execute(sql.SET_MANAGED, (dataset_id,))

    def drop_dataset(self, dataset_id: int) -> None:
        """Hide a dataset from all readers and writers, until `forget_dataset` removes it."""
        self._session.execute(sql.DROP_DATASET, (dataset_id,))

    def forget_dataset(self, dataset_id: int) -> None:
        """Remove all rows of a dataset that was dropped and has no files any more."""
        self._end_writes(dataset_id)
        self._session.execute(FORGET_BRANCH, (dataset_id,))
        for statement in sql.FORGET_DATASET:
            self._session.execute(statement, (dataset_id,))
        self._session.execute(sql.FORGET_DATASET_ROW, (dataset_id,))

    @cached_property  # asks for the fence once
    def names(self) -> NameChanges:
        """The names of datasets, which this transaction may change."""
        refuse_fenced(self.fence(), self._session.redacted_url)
        return NameChanges(self._session)

    @property
    def iceberg(self) -> IcebergChanges:
        """The files for readers of Iceberg, which this transaction may record."""
        return IcebergChanges(self._session)

    def lock_dataset(self, base_uri: str) -> DatasetRecord | None:
        """Lock a dataset until the transaction ends; answer its newest committed state."""
        return self._one_dataset(sql.DATASET_LOCKED, base_uri)

    def lock_for(
        self, seen: Current, write_id: str, pair: tuple[str, int] | None = None
    ) -> LockedDataset | None:
        """Lock a dataset that was read before, to commit a write with its idempotency pair.

        One round trip gives everything that a commit usually asks under the lock.
        """
        identity = seen.dataset.id
        datasets, *claim, last, schemas = self._session.query_all(
            [
                # First: later statements see all that was committed before the lock was granted.
                (sql.DATASET_LOCKED, (seen.dataset.base_uri,)),
                *_claiming(write_id, identity, pair),
                (sql.TRANSACTIONS, (identity, 1)),
                (sql.SCHEMA_AFTER, (identity, seen.schema_version)),
            ]
        )
        if not datasets:
            return None
        return LockedDataset(
            self._dataset_record(datasets[0]),
            next(iter(self._transaction_records(last)), None),
            (schemas[0][0], self._schema(schemas[0][1])) if schemas else None,
            self._claim(identity, claim, pair),
        )

    def set_properties(self, dataset_id: int, properties: DatasetProperties) -> None:
        """Replace the dataset's properties."""
        document = to_rows.json_text(properties.to_json(), "properties")
        self._session.execute(sql.SET_PROPERTIES, (document, dataset_id))

    # --- one commit

    def insert_schema(self, dataset_id: int, version: int, schema: pa.Schema) -> None:
        """Record the schema that comes into force at a version."""
        raw = schema.serialize().to_pybytes()
        self._session.execute(sql.INSERT_SCHEMA, (dataset_id, version, raw))

    def insert_transaction(
        self,
        dataset_id: int,
        version: int,
        operation: str,
        metadata: Mapping[str, Any],
        summary: Mapping[str, int],
        write_id: str,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        *,
        claim: Claim | None = None,
        new_rows: int = 0,
        committer: Mapping[str, str] = NOTHING_TOLD,
    ) -> datetime:
        """Take the next version; answer its commit time, by the database's clock.

        `claim` is that of `lock_for`; by default the write is claimed here. `new_rows` counts
        the rows of new files: so many identities are taken. `committer` is what the writer tells
        of itself beside what this process is.

        Raises:
            CommitConflictError: the dataset is not at the version before, the write is
                fenced, or the write or its idempotency pair is committed already.
        """
        pair = to_rows.idempotency_pair(txn_app_id, txn_version)
        values = (
            to_rows.without_nul(operation, "operation"),
            to_rows.json_text(metadata, "commit_metadata"),
            to_rows.json_text(summary, "summary"),
            to_rows.without_nul(write_id, "write_id"),
            *(pair or (None, None)),
            system_user(),
            to_rows.json_text(committing(committer), "committer"),
        )
        if claim is None:
            answers = self._session.query_all(_claiming(write_id, dataset_id, pair))
            claim = self._claim(dataset_id, answers, pair)
        repeated = _repetition(write_id, claim, pair)
        if repeated is not None:
            raise self._conflict(dataset_id, version, repeated)
        here = (dataset_id, version)
        self._session.send(sql.ADVANCE, (version, new_rows, dataset_id, version - 1))
        self._session.send(sql.INSERT_TRANSACTION, (*here, dataset_id, *values, *here, *here))
        self.finish_pending(write_id)  # the row of `transactions` is its state now
        inserted = self._session.query(sql.TIMESTAMP_OF, (write_id,))
        if not inserted:
            raise self._conflict(dataset_id, version, "another commit came first")
        return to_datetime(inserted[0][0])

    def current_with_new_file_ids(
        self, base_uri: str, files: int
    ) -> tuple[Current | None, list[int]]:
        """A dataset at its newest version, and ids for so many new files; locks nothing."""
        found, ids = self._session.query_all(
            [(CURRENT, ("", base_uri)), (sql.NEW_FILE_IDS, (max(1, files),))]
        )
        current = self._current(found) if found else self.current(base_uri)
        return current, sorted(row[0] for row in ids)[:files]

    def reserve_file_ids(self, count: int) -> list[int]:
        """Ids that no file has or gets, unless the caller gives it one of them."""
        ids = sorted(row[0] for row in self._session.query(sql.NEW_FILE_IDS, (count,)))
        for statement in self._session.dialect.keep_file_ids:
            self._session.execute(statement, (ids[-1],))
        return ids

    def record_file_metadata(
        self,
        dataset: DatasetRecord,
        version: int,
        file_metadatas: Sequence[FileMetadata],
        *,
        schema_version: int,
        bounds: Callable[[FileMetadata], Iterable[FileBounds]],
        ids: Sequence[int] = (),
        first_row_ids: Sequence[int] | None = None,
    ) -> list[int]:
        """Record files added at a version: files, row groups, partitions and bounds.

        `FileMetadata.partitions` holds each value as a JSON text, or None for
        NULL. `bounds` gives a file's rows of the search index. It may be called under
        the dataset's lock, so it should only look up what was computed before.
        `ids` are those of `current_with_new_file_ids`; by default the files get new ones. The
        answer is the ids. `first_row_ids` are given for files that the dataset had before. The
        rows of others get the next identities of `dataset`.
        """
        if not file_metadatas:
            return []
        if not ids:
            found = self._session.query(sql.NEW_FILE_IDS, (len(file_metadatas),))
            ids = sorted(row[0] for row in found)
        numbered = list(zip(ids, file_metadatas))
        firsts = first_row_ids
        if firsts is None:
            counts = (file.row_count for file in file_metadatas)
            firsts = list(accumulate(counts, initial=dataset.next_row_id))
        insert = self._session.insert
        rows = to_rows.of_files(dataset.id, version, schema_version, numbered, firsts)
        insert("files", sql.FILE_COLUMNS, rows)
        insert("row_groups", sql.ROW_GROUP_COLUMNS, to_rows.of_row_groups(numbered))
        insert("partitions", sql.PARTITION_COLUMNS, to_rows.of_partitions(numbered))
        index_rows = ((file_id, row) for file_id, file in numbered for row in bounds(file))
        insert("column_bounds", sql.BOUNDS_COLUMNS, to_rows.of_bounds(dataset.id, index_rows))
        return list(ids)

    def move_files(self, version: int, rows: int, file_ids: Iterable[int]) -> None:
        """Change the version of files that this transaction recorded.

        The identities of their rows go up by `rows`, which others took meanwhile.
        """
        self._session.send(sql.MOVE_FILES, (version, rows, self._session.id_list(file_ids)))

    def forget_files(self, file_ids: Iterable[int]) -> None:
        """Remove the rows of files, with their row groups, partitions and bounds."""
        ids = sorted(set(file_ids))
        statements = sql.FORGET_FILES[-1:] if self._session.dialect.cascades else sql.FORGET_FILES
        for start in range(0, len(ids), 1000):
            some = self._session.id_list(ids[start : start + 1000])
            for statement in statements:
                self._session.execute(statement, (some,))

    def remove_files(self, dataset_id: int, version: int, file_ids: Iterable[int]) -> None:
        """Mark files as removed at a version; earlier versions keep them.

        Raises:
            CommitConflictError: one of them is not a live file of the dataset.
        """
        ids = set(file_ids)
        if not ids:
            return
        values = (version, dataset_id, self._session.id_list(sorted(ids)))
        removed = self._session.execute(sql.REMOVE_FILES, values)
        if removed != len(ids):
            raise self._conflict(
                dataset_id,
                version,
                f"{len(ids) - removed} of the {len(ids)} files to remove are not live",
            )
        self._session.send(sql.REMOVE_VECTORS, values)

    def set_vectors(
        self, dataset_id: int, version: int, vectors: Mapping[int, DeletionVector | None]
    ) -> None:
        """Replace the deletion vectors of live files at a version; None: no row is deleted.

        Earlier versions keep the vectors that they have.
        """
        if not vectors:
            return
        ids = self._session.id_list(sorted(vectors))
        self._session.send(sql.REMOVE_VECTORS, (version, dataset_id, ids))
        rows = to_rows.of_vectors(dataset_id, version, vectors)
        if rows:
            self._session.insert("deletion_vectors", sql.VECTOR_COLUMNS, rows)

    def invalidate_bounds(self, dataset_id: int, column_id: int) -> None:
        """Let every file match any search over a column, whose keys get a new encoding."""
        values = (UNBOUNDED_LOWER, UNBOUNDED_UPPER, dataset_id, column_id)
        self._session.execute(sql.INVALIDATE_BOUNDS, values)

    def delete_bounds(self, dataset_id: int, column_ids: Iterable[int]) -> None:
        """Delete the index rows of columns that leave the index."""
        for column_id in column_ids:
            self._session.execute(sql.DELETE_BOUNDS, (dataset_id, column_id))

    def insert_bounds(self, dataset_id: int, rows: Iterable[tuple[int, FileBounds]]) -> None:
        """Insert index rows of files that are recorded already, each with the file's id."""
        self._session.insert(
            "column_bounds", sql.BOUNDS_COLUMNS, to_rows.of_bounds(dataset_id, rows)
        )

    # --- inside

    def _query(self, statement: str, values: Sequence[Any]) -> list[Row]:
        # Whoever begins a change looks at its dataset: a fence is told before the work is done.
        rows, ((fence,),) = self._session.query_all([(statement, values), FENCED])
        refuse_fenced(fence, self._session.redacted_url)
        return rows

    def _claim(
        self, dataset_id: int, answers: Sequence[Sequence[Row]], pair: tuple[str, int] | None
    ) -> Claim:
        """What the answers to `_claiming` say."""
        _, states, done, *repeats = answers
        repeated = None if pair is None else self._repeated_by(dataset_id, pair, *repeats)
        records = self._transaction_records(done)
        if records:
            return Claim(WriteState.COMMITTED, records[0], repeated)
        return Claim(write_states.claimed(states, self._session.redacted_url), None, repeated)

    def _conflict(self, dataset_id: int, version: int, reason: str) -> CommitConflictError:
        rows = self._session.query(sql.DATASET_BY_ID, (dataset_id,))
        base_uri, current = (rows[0][2], rows[0][3]) if rows else ("?", 0)
        return CommitConflictError(
            dataset=base_uri, base_version=version - 1, current_version=current, reason=reason
        )


def _claiming(write_id: str, dataset_id: int, pair: tuple[str, int] | None) -> list[Statement]:
    return [
        *write_states.claim(write_id, dataset_id),
        (sql.TRANSACTION_BY_WRITE_ID, (write_id,)),
        *([] if pair is None else repeating(dataset_id, pair)),
    ]


def _repetition(write_id: str, claim: Claim, pair: tuple[str, int] | None) -> str | None:
    """Why a write may not be committed (again), or None where it may."""
    if claim.done is not None:
        return f"write {write_id} was committed already, as version {claim.done.version}"
    if claim.state not in COMMIT.before:
        return f"write {write_id} was given up; it cannot be committed"
    done = claim.repeated
    # A branch that is put back gets the commits of an application out of their order.
    if pair is None or done is None or done.txn_version != pair[1]:
        return None
    app_id, number = pair
    return (
        f"transaction {number} of application {app_id!r} was committed already, "
        f"as version {done.version}"
    )
