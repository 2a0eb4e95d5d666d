"""Verb. Tags: names of versions, which expiry keeps."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.arguments import text
from lakehouse_source.catalog.base import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import (
    check_readable,
    existing,
    no_such_reference,
    version_number,
)

_LONGEST = 255


def tag(catalog: Catalog, address: Address, name: str, version: int) -> None:
    """Give a tag to a version."""
    _check(name)

    def give(tx: CatalogTransaction) -> None:
        # Under the lock: no expiry removes the version at the same time.
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        check_readable(record, address.uri, version, tx)
        if not tx.set_tag(record.id, name, version) and tx.tags(record.id)[name] != version:
            raise InvalidOptionError(
                option="tag",
                value=name,
                reason=f"is that of version {tx.tags(record.id)[name]}. Drop it first: "
                "dataset.drop_tag(name).",
            )

    in_transaction(catalog, address.uri, "", give, resolve=False)


def tags(catalog: Catalog, address: Address, reader: CatalogReader) -> Mapping[str, int]:
    """The versions that have a tag, by tag, the oldest version first."""
    record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
    return reader.tags(record.id)


def drop_tag(catalog: Catalog, address: Address, name: str) -> None:
    """Remove a tag.

    Raises:
        VersionNotFoundError: the dataset has no such tag.
    """

    def drop(tx: CatalogTransaction) -> int:
        record = existing(tx.dataset(address.key), address.uri, catalog.redacted_url)
        if not tx.drop_tag(record.id, name):
            raise no_such_reference(record, address.uri, f"tag {name!r}")
        return record.id

    def is_dropped(tx: CatalogTransaction, dataset_id: int) -> bool:
        return name not in tx.tags(dataset_id)

    in_transaction(catalog, address.uri, "", drop, carried_out=is_dropped, resolve=False)


def _check(name: str) -> None:
    reason = None
    if not text("tag", name).strip() or len(name) > _LONGEST or "\0" in name:
        reason = f"must be a text of 1 to {_LONGEST} characters without NUL."
    elif version_number(name) is not None:
        reason = "reads like the number of a version."
    if reason is not None:
        raise InvalidOptionError(option="tag", value=name, reason=reason)
