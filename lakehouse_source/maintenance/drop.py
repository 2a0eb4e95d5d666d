"""Verb. A dataset ends: its rows leave the catalog, and its files the store.

One transaction hides the dataset. Then its files are deleted, and then its rows. A crash in
between leaves a dataset that nobody can read; `finish_drops` deletes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.locate import folder_around
from lakehouse_source.catalog.places import OWN_KEY
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import CatalogUnavailableError, PlakeError, StorageError
from lakehouse_source.maintenance.vacuum import remove_empty_folders
from lakehouse_source.maintenance.vacuum_plan import (
    folder_prefixes,
    is_in_place,
    lock_branches,
    nested_datasets,
)
from lakehouse_source.model import DatasetRecord
from lakehouse_source.parquet.names import own_name
from lakehouse_source.storage import (
    Storage,
    StorageLocation,
    local_path,
    redact_uri,
    split_branch,
)


def drop_dataset(tx: CatalogTransaction, base_uri: str) -> None:
    """Hide a dataset and its branches from all readers and writers."""
    record = tx.lock_dataset(base_uri)
    if record is not None:
        for one in (record, *lock_branches(tx, record)):
            tx.drop_dataset(one.id)


def finish_drops(catalog: Catalog, storage_options: Mapping[str, Any] | None = None) -> int:
    """Delete the files and the rows of datasets that were dropped; answers how many datasets.

    Files that plake did not write stay, as do those of other datasets in the same folder. Where
    a store refuses, the other datasets are deleted before the error is raised.

    Raises:
        StorageError: files cannot be deleted. Their datasets stay dropped; call again.
        InvalidOptionError: the store of a dataset does not know a storage option.
    """
    with catalog.read() as reader:
        dropped = reader.dropped_datasets()
    failed: dict[str, PlakeError] = {}
    for record in sorted(dropped, key=_is_branch):
        key = split_branch(record.base_uri)[0]
        try:
            if not _is_branch(record):
                _delete_files(catalog, record, _branches(dropped, record), storage_options)
        except CatalogUnavailableError:
            raise
        except PlakeError as error:
            failed[key] = error
        if key in failed:
            continue  # branches too: the next call finds files by their partition columns

        def forget(tx: CatalogTransaction, record: DatasetRecord = record) -> None:
            tx.forget_dataset(record.id)

        in_transaction(catalog, record.base_uri, "", forget, resolve=False)
    errors = list(failed.values())
    if len(errors) > 1:
        raise StorageError(
            path=", ".join(redact_uri(key) for key in failed),
            reason="; ".join(map(str, errors)),
        ) from errors[0]
    if errors:
        raise errors[0]
    return len(dropped)


def _delete_files(
    catalog: Catalog,
    record: DatasetRecord,
    branches: Sequence[DatasetRecord],
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Delete the files that plake wrote for a dataset and its branches, orphans among them."""
    uri = record.base_uri
    if uri == OWN_KEY:
        uri = folder_around(catalog) or uri
    is_local = local_path(uri) is not None
    storage = Storage(StorageLocation.of(uri, None if is_local else storage_options))
    with catalog.read() as reader:
        inside = nested_datasets(reader, uri)
        prefixes = [
            one
            for each in (record, *branches)
            for one in folder_prefixes(each, reader.schemas(each.id))
        ]
    listed = list(storage.files())
    with catalog.read() as reader:
        # Asked after the listing: once another process has forgotten the dataset, a new one may
        # have files here.
        if all(one.id != record.id for one in reader.dropped_datasets()):
            return
    for found in listed:
        ours = own_name(found.path) is not None
        placed = is_in_place(found.path, prefixes)
        if ours and placed and not found.path.startswith(tuple(inside)):
            storage.delete(found.path)
    remove_empty_folders(storage, prefixes)


def _is_branch(record: DatasetRecord) -> bool:
    return split_branch(record.base_uri)[1] is not None


def _branches(dropped: Iterable[DatasetRecord], record: DatasetRecord) -> list[DatasetRecord]:
    """The branches of a dropped dataset, which were dropped with it or before."""
    return [
        one
        for one in dropped
        if _is_branch(one) and split_branch(one.base_uri)[0] == record.base_uri
    ]
