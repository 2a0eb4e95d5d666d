"""Verb. Expires old versions: they can be neither read nor restored. Consumers keep theirs.

No file is deleted here. Files that only expired versions contain are marked with the time
of the expiry, by the database's clock. Vacuum counts its retention from that time, so that
a reader that planned just before the expiry still finds its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from lakehouse_source.arguments import name_text, number_of_seconds, text, whole_number
from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.base import CatalogReader, in_transaction
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.maintenance.reports import ExpiryReport
from lakehouse_source.model import Consumer, DatasetRecord, SeenVersion
from lakehouse_source.progress import VACUUM
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import (
    check_same,
    checked_version,
    existing,
    no_such_reference,
    no_such_version,
)

_LONGEST_SECONDS = 100 * 365 * 24 * 3600


def expire_versions(
    catalog: Catalog,
    address: Address,
    *,
    keep_seconds: float | None = None,
    keep_last: int | None = None,
) -> ExpiryReport:
    """Expire the versions that are older than both limits, never the newest one.

    A version that has a tag stays; its tag keeps no other version. A consumer keeps the version
    that it has read, and all later ones.
    """
    if keep_seconds is None and keep_last is None:
        raise InvalidOptionError(
            option="keep_seconds", reason="or keep_last says what to keep: give one or both."
        )
    if keep_seconds is not None:
        keep_seconds = number_of_seconds("keep_seconds", keep_seconds, _LONGEST_SECONDS)
    if keep_last is not None and whole_number("keep_last", keep_last) < 1:
        raise InvalidOptionError(
            option="keep_last", value=keep_last, reason="must be at least 1: the newest stays."
        )

    def expire(tx: CatalogTransaction) -> ExpiryReport:
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        wanted = _oldest_kept(tx, record, keep_seconds, keep_last)
        waiting = _waiting(tx, record, wanted)
        oldest = max(record.oldest_version, min([wanted, *waiting.values()]))
        tagged = set(tx.tags(record.id).values())
        before = {file.id for file in tx.expired_files(record)}
        tx.expire(record.id, oldest)
        expired = [
            file
            for file in tx.expired_files(replace(record, oldest_version=oldest))
            if file.id not in before
        ]
        return ExpiryReport(
            dataset=address.uri,
            expired=tuple(v for v in range(record.oldest_version, oldest) if v not in tagged),
            oldest_version=oldest,
            newest_version=record.current_version,
            files=len(expired),
            size_bytes=sum(file.size_bytes for file in expired),
            consumers=tuple(waiting),
        )

    def is_expired(tx: CatalogTransaction, report: ExpiryReport) -> bool:
        record = tx.lock_dataset(address.key)
        return record is not None and record.oldest_version >= report.oldest_version

    done = in_transaction(catalog, address.uri, "", expire, carried_out=is_expired, resolve=False)
    VACUUM.info("%s: versions before %d are expired", address.uri, done.oldest_version)
    return done


def _waiting(tx: CatalogTransaction, record: DatasetRecord, oldest: int) -> dict[str, int]:
    """The first version that each consumer still needs, if it has not read version `oldest` yet.

    The rows that a commit took away are in the version before it, so a consumer needs the version
    that it has read.
    """
    now = tx.now()
    return {
        name: max(1, one.version)
        for name, one in tx.consumers(record.id).items()
        if one.expires_at > now and max(1, one.version) < oldest
    }


def _oldest_kept(
    tx: CatalogTransaction,
    record: DatasetRecord,
    keep_seconds: float | None,
    keep_last: int | None,
) -> int:
    newest = record.current_version
    limits = [newest]
    if keep_last is not None:
        limits.append(newest - keep_last + 1)
    if keep_seconds is not None:
        # The version that was the newest at that moment stays too: a read as of a timestamp just
        # after it needs this version.
        moment = tx.now() - timedelta(seconds=keep_seconds)
        limits.append(tx.version_at(record.id, moment) or 1)
    return max(record.oldest_version, min(limits))


# --- Consumers: named readers of the change feed, for which expiry keeps versions.


KEEP_SECONDS = 30 * 24 * 3600


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
    name_text("consumer", name)
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
        raise no_such_version(record, uri, version, expired=0 <= version < oldest)
