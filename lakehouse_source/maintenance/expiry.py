"""Verb. Expires old versions: they can be neither read nor restored any more.

No file is deleted here. Files that only expired versions contain are marked with the time
of the expiry, by the database's clock. Vacuum counts its retention from that time, so that
a reader that planned just before the expiry still finds its files.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lakehouse_source.arguments import number_of_seconds, whole_number
from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.logs import VACUUM
from lakehouse_source.maintenance.reports import ExpiryReport
from lakehouse_source.model import DatasetRecord
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import existing

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
        number_of_seconds("keep_seconds", keep_seconds, _LONGEST_SECONDS)
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
