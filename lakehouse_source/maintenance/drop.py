"""Verb. A dataset ends: its rows leave the catalog, and its files the store.

One transaction hides the dataset. Then its files are deleted, and then its rows. A crash in
between leaves a dataset that nobody can read; `finish_drops` takes up where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.locate import folder_around
from lakehouse_source.catalog.places import OWN_KEY
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.maintenance.vacuum import remove_empty_folders
from lakehouse_source.maintenance.vacuum_plan import (
    folder_prefixes,
    is_in_place,
    nested_datasets,
)
from lakehouse_source.model import DatasetRecord
from lakehouse_source.parquet.names import is_foreign, is_vector_file
from lakehouse_source.storage import Storage, StorageLocation


def finish_drops(catalog: Catalog, storage_options: Mapping[str, Any] | None = None) -> int:
    """Delete the files and the rows of datasets that were dropped; answers how many datasets.

    Files that plake did not write stay, as do those of other datasets in the same folder.

    Raises:
        StorageError: a file cannot be deleted. The dataset stays dropped; call again.
    """
    with catalog.read() as reader:
        dropped = reader.dropped_datasets()
    for record in dropped:
        _delete_files(catalog, record, storage_options)

        def forget(tx: CatalogTransaction, record: DatasetRecord = record) -> None:
            tx.forget_dataset(record.id)

        in_transaction(catalog, record.base_uri, "", forget, resolve=False)
    return len(dropped)


def _delete_files(
    catalog: Catalog, record: DatasetRecord, storage_options: Mapping[str, Any] | None
) -> None:
    """Delete the files that plake wrote for a dataset, orphans among them."""
    uri = record.base_uri
    if uri == OWN_KEY:
        uri = folder_around(catalog) or uri
    storage = Storage(StorageLocation.of(uri, storage_options))
    with catalog.read() as reader:
        inside = nested_datasets(reader, uri)
        prefixes = folder_prefixes(record, reader.schemas(record.id))
    for found in storage.files():
        ours = not is_foreign(found.path) or is_vector_file(found.path)
        placed = is_in_place(found.path, prefixes)
        if ours and placed and not found.path.startswith(tuple(inside)):
            storage.delete(found.path)
    remove_empty_folders(storage, prefixes)
