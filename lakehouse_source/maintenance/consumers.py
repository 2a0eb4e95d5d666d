"""Verb. Consumers: named readers of the change feed, for which expiry keeps versions."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.arguments import text, whole_number
from lakehouse_source.catalog.base import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import InvalidOptionError, VersionNotFoundError
from lakehouse_source.model import Consumer, DatasetRecord, SeenVersion
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import (
    check_same,
    checked_version,
    existing,
    no_such_reference,
)

KEEP_SECONDS = 30 * 24 * 3600
_LONGEST_NAME = 255
_LONGEST_SECONDS = 100 * 365 * 24 * 3600


def add_consumer(
    catalog: Catalog,
    address: Address,
    name: str,
    version: int,
    keep_seconds: int,
    seen: SeenVersion | None = None,
) -> None:
    """Add a consumer that has read the changes up to a version.

    `seen` is the version that the caller has open, as in `advance_consumer`.

    Raises:
        DatasetNotFoundError
        VersionNotFoundError: the version does not exist, or later versions were expired.
        InvalidOptionError: the dataset has a consumer of this name, or an argument is wrong.
    """
    _check(name)
    if not 1 <= whole_number("keep_seconds", keep_seconds) <= _LONGEST_SECONDS:
        raise InvalidOptionError(
            option="keep_seconds",
            value=keep_seconds,
            reason=f"must be a number of seconds from 1 to {_LONGEST_SECONDS}.",
        )

    def add(tx: CatalogTransaction) -> None:
        # Under the lock, so that no expiry removes the later versions at the same time.
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        _check_history(tx, record, address.uri, seen)
        _check_position(record, address.uri, version)
        if tx.add_consumer(record.id, name, version, keep_seconds):
            return
        found = tx.consumers(record.id)[name]
        if (found.version, found.keep_seconds) != (version, keep_seconds):
            raise InvalidOptionError(
                option="consumer",
                value=name,
                reason=f"has read version {found.version}. Drop it first: "
                "dataset.drop_consumer(name).",
            )

    in_transaction(catalog, address.uri, "", add, resolve=False)


def advance_consumer(
    catalog: Catalog, address: Address, name: str, version: int, seen: SeenVersion | None = None
) -> None:
    """Note that a consumer has read the changes up to a version; its time starts again.

    `seen` is the version that the caller has open: what it calls `version` is of that history.

    Raises:
        DatasetNotFoundError
        VersionNotFoundError: there is no such consumer or version, later versions were expired, or
            the catalog was put back to a backup.
        InvalidOptionError: the consumer has read a later version.
    """

    def advance(tx: CatalogTransaction) -> None:
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        _check_history(tx, record, address.uri, seen)
        found = consumer(tx, record, address.uri, name)
        _check_position(record, address.uri, version)
        if version < found.version:
            raise InvalidOptionError(
                option="version",
                value=version,
                reason=f"is before version {found.version}, which consumer {name!r} has read. To "
                "read changes again, name their versions; or drop the consumer and add it.",
            )
        tx.advance_consumer(record.id, name, version)

    in_transaction(catalog, address.uri, "", advance, resolve=False)


def consumers(catalog: Catalog, address: Address, reader: CatalogReader) -> Mapping[str, Consumer]:
    """The consumers of a dataset, by name.

    Raises:
        DatasetNotFoundError
    """
    record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
    return reader.consumers(record.id)


def consumer(reader: CatalogReader, record: DatasetRecord, uri: str, name: str) -> Consumer:
    """The consumer of a dataset with this name.

    Raises:
        VersionNotFoundError: there is no such consumer.
    """
    found = reader.consumers(record.id).get(text("consumer", name))
    if found is None:
        raise no_such_reference(record, uri, f"consumer {name!r}")
    return found


def drop_consumer(catalog: Catalog, address: Address, name: str) -> None:
    """Remove a consumer.

    Raises:
        DatasetNotFoundError
        VersionNotFoundError: the dataset has no such consumer.
    """

    def drop(tx: CatalogTransaction) -> int:
        record = existing(tx.dataset(address.key), address.uri, catalog.redacted_url)
        if not tx.drop_consumer(record.id, text("consumer", name)):
            raise no_such_reference(record, address.uri, f"consumer {name!r}")
        return record.id

    def is_dropped(tx: CatalogTransaction, dataset_id: int) -> bool:
        return name not in tx.consumers(dataset_id)

    in_transaction(catalog, address.uri, "", drop, carried_out=is_dropped, resolve=False)


def _check_history(
    reader: CatalogReader, record: DatasetRecord, uri: str, seen: SeenVersion | None
) -> None:
    if seen is not None:
        check_same(record, uri, seen, reader.write_id_of(record.id, seen.version))


def _check_position(record: DatasetRecord, uri: str, version: int) -> None:
    """Check that the changes after a version can be read; 0: no change was read yet."""
    oldest, newest = record.oldest_version, record.current_version
    first = 0 if oldest == 1 else oldest
    if not first <= checked_version(version) <= newest:
        raise VersionNotFoundError(
            dataset=uri,
            requested=f"version {version}",
            first=oldest,
            last=newest,
            expired=0 <= version < oldest,
        )


def _check(name: str) -> None:
    if not text("consumer", name).strip() or len(name) > _LONGEST_NAME or "\0" in name:
        raise InvalidOptionError(
            option="consumer",
            value=name,
            reason=f"must be a text of 1 to {_LONGEST_NAME} characters without NUL.",
        )
