"""Verb. Tags: names of versions, which expiry keeps."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.catalog.base import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import (
    DatasetNotFoundError,
    InvalidOptionError,
    VersionNotFoundError,
)
from lakehouse_source.model import DatasetRecord
from lakehouse_source.read.address import Address

_LONGEST = 255


def tag(catalog: Catalog, address: Address, name: str, version: int) -> None:
    """Give a tag to a version.

    Raises:
        DatasetNotFoundError, VersionNotFoundError
        InvalidOptionError: the dataset has the tag already, or the name is none.
    """
    _check(name)

    def give(tx: CatalogTransaction) -> None:
        # Under the lock: no expiry removes the version at the same time.
        record = tx.lock_dataset(address.key)
        if record is None or record.current_version == 0:
            raise DatasetNotFoundError(dataset=address.uri, catalog=catalog.redacted_url)
        if not record.oldest_version <= version <= record.current_version:
            raise VersionNotFoundError(
                dataset=address.uri,
                requested=f"version {version}",
                first=record.oldest_version,
                last=record.current_version,
                expired=1 <= version < record.oldest_version,
            )
        if not tx.set_tag(record.id, name, version) and tx.tags(record.id)[name] != version:
            raise InvalidOptionError(
                option="tag",
                value=name,
                reason=f"is that of version {tx.tags(record.id)[name]}. Drop it first: "
                "dataset.drop_tag(name).",
            )

    in_transaction(catalog, address.uri, "", give, resolve=False)


def tags(catalog: Catalog, address: Address, reader: CatalogReader) -> Mapping[str, int]:
    """The versions that have a tag, by tag, the oldest version first.

    Raises:
        DatasetNotFoundError
    """
    return reader.tags(_record(catalog, address, reader).id)


def drop_tag(catalog: Catalog, address: Address, name: str) -> None:
    """Remove a tag.

    Raises:
        DatasetNotFoundError
        VersionNotFoundError: the dataset has no such tag.
    """

    def drop(tx: CatalogTransaction) -> None:
        record = _record(catalog, address, tx)
        if not tx.drop_tag(record.id, name):
            raise VersionNotFoundError(
                dataset=address.uri,
                requested=f"tag {name!r}",
                first=record.oldest_version,
                last=record.current_version,
            )

    in_transaction(catalog, address.uri, "", drop, resolve=False)


def _record(catalog: Catalog, address: Address, reader: CatalogReader) -> DatasetRecord:
    record = reader.dataset(address.key)
    if record is None or record.current_version == 0:
        raise DatasetNotFoundError(dataset=address.uri, catalog=catalog.redacted_url)
    return record


def _check(name: str) -> None:
    reason = None
    if not name.strip() or len(name) > _LONGEST or "\0" in name:
        reason = f"must be a text of 1 to {_LONGEST} characters without NUL."
    elif name.strip().lstrip("+-").isdecimal():
        reason = "reads like the number of a version."
    if reason is not None:
        raise InvalidOptionError(option="tag", value=name, reason=reason)
