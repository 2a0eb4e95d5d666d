"""Verb. A commit of metadata alone: a schema or properties, while no file is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import uuid6

from lakehouse_source.catalog.base import Catalog, CatalogTransaction, in_transaction, is_committed
from lakehouse_source.errors import CommitConflictError
from lakehouse_source.iceberg.metadata import export_if_wanted
from lakehouse_source.model import DatasetRecord, WriteResult
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot, existing
from lakehouse_source.write.commit import conflicts
from lakehouse_source.write.commit.apply import summary
from lakehouse_source.write.commit.conflicts import Change, Collision, Verdict
from lakehouse_source.write.commit.transaction import TransactionCatalog


@dataclass(frozen=True, slots=True)
class NewMetadata:
    """The state of a dataset after a change.

    `details` are for the history. Without `schema` the schema in force stays.
    """

    details: Mapping[str, Any]
    properties: DatasetProperties
    schema: pa.Schema | None = None


# Gets the locked dataset and the schema in force. None: there is nothing to change.
MetadataChange: TypeAlias = Callable[
    [CatalogTransaction, DatasetRecord, pa.Schema], NewMetadata | None
]


def commit_metadata(
    catalog: Catalog, address: Address, base: Snapshot, operation: str, change: MetadataChange
) -> WriteResult:
    """Commit a change that was asked for when the dataset was at `base`.

    `change` is called under the lock of the dataset, and again if the transaction is repeated.
    If nothing changes, no version is committed.

    Raises:
        CommitConflictError: a newer commit changed the schema or the properties.
        CommitUnknownError: the catalog was lost during the commit.
    """
    write_id = str(uuid6.uuid7())

    def apply_change(tx: CatalogTransaction) -> WriteResult:
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        _check_conflicts(tx, record, base, address.uri)
        schema_version, schema = tx.schema_at(record.id, record.current_version)
        new = change(tx, record, schema)
        if new is None:
            return WriteResult(record.current_version, 0, 0, schema_version)
        version = record.current_version + 1
        if new.schema is not None:
            tx.insert_schema(record.id, version, new.schema)
            schema_version = version
        tx.set_properties(record.id, new.properties)
        counts = summary(tx, record, (), ())
        tx.insert_transaction(record.id, version, operation, new.details, counts, write_id)
        return WriteResult(version, 0, 0, schema_version)

    return commit_version(catalog, address, write_id, apply_change, base.version)


def commit_version(
    catalog: Catalog,
    address: Address,
    write_id: str,
    work: Callable[[CatalogTransaction], WriteResult],
    base_version: int | None = None,
    *,
    alone: bool = False,
) -> WriteResult:
    """Commit a version that has no new files, now or with the transaction that the catalog is.

    The version is exported where it is another one than the base. `alone`: in a transaction, others
    must not commit to the dataset until it ends.
    """
    if isinstance(catalog, TransactionCatalog):
        waiting = catalog.add(address.key, address.uri, write_id, work, alone=alone)
        below = copy(address)
        below.catalog = catalog.database
        catalog.after(lambda database: export_if_wanted(database, below))
        return waiting
    done = is_committed(address.key, write_id)
    result = in_transaction(catalog, address.uri, write_id, work, carried_out=done)
    if result.version != base_version:
        export_if_wanted(catalog, address)
    return result


def conflict(
    uri: str, record: DatasetRecord, base: Snapshot, collision: Collision
) -> CommitConflictError:
    """The error of a change that was asked for at `base` and can no longer be made."""
    return conflicts.conflict(uri, base.version, record.current_version, collision)


def _check_conflicts(
    tx: CatalogTransaction, record: DatasetRecord, base: Snapshot, uri: str
) -> None:
    """Check that no commit since `base` conflicts with a change of the schema or properties."""
    if record.id != base.dataset.id:
        raise conflict(uri, record, base, Collision("the dataset was removed and made again"))
    if record.current_version == base.version:
        return
    commits = tx.all_since(record, base.version)
    if commits is None:
        raise conflict(uri, record, base, conflicts.FORGOTTEN)
    for newer in commits:
        theirs = conflicts.change_of(newer.operation)
        if theirs is None or conflicts.verdict(Change.SCHEMA, theirs) is Verdict.CONFLICT:
            did = conflicts.committed_first(newer.version, newer.operation)
            raise conflict(uri, record, base, did)
