"""Verb. The folder of a dataset: which branches share it, and where its files are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from lakehouse_source.catalog import CatalogReader, CatalogTransaction
from lakehouse_source.model import DatasetRecord
from lakehouse_source.parquet.names import is_iceberg_file, is_vector_file
from lakehouse_source.read.address import Address
from lakehouse_source.schema.partitions import partition_columns_at, partition_folder
from lakehouse_source.storage import Storage, with_branch

# For each level of partition folders, the prefixes that a folder's name may have.
FolderPrefixes: TypeAlias = tuple[tuple[str, ...], ...]


def newest_versions(reader: CatalogReader, address: Address) -> dict[int, int]:
    """The newest versions of a dataset and its branches, by their ids in the catalog."""
    record = reader.dataset(address.key)
    if record is None:
        return {}
    branches = reader.branches(record.id).values()
    return {record.id: record.current_version} | {one.dataset_id: one.version for one in branches}


def lock_branches(tx: CatalogTransaction, record: DatasetRecord) -> list[DatasetRecord]:
    """Lock the branches of a locked dataset; return their newest committed states."""
    found = [tx.lock_dataset(with_branch(record.base_uri, name)) for name in tx.branches(record.id)]
    return [branch for branch in found if branch is not None]


def nested_datasets(reader: CatalogReader, uri: str) -> list[str]:
    """The folders of other datasets inside that of a dataset, relative to it, each with a `/`.

    Listed files have the names that folders have in storage. URIs of most stores are encoded, so
    that a folder `k=1` is `k%3D1` there: both spellings are returned.
    """
    inside = uri.rstrip("/") + "/"
    below = [
        one.base_uri.removeprefix(inside)
        for one in reader.datasets()
        if one.base_uri.startswith(inside)
    ]
    return [f"{path}/" for one in below for path in dict.fromkeys((one, unquote(one)))]


def is_in_place(path: str, layouts: Sequence[FolderPrefixes]) -> bool:
    """Tell whether a file with a name of plake is in a folder where the dataset puts such files.

    Files elsewhere may belong to another dataset, even one that only another catalog knows.
    """
    if is_iceberg_file(path):
        return True
    *folders, name = path.split("/")
    if is_vector_file(name):
        # Deletion vectors of all partitions are in one file, in the dataset's own folder.
        return not folders
    if name.endswith((".avro", ".json")):
        return False
    return any(len(folders) == len(one) and _begin_with(folders, one) for one in layouts)


def _begin_with(folders: Sequence[str], levels: FolderPrefixes) -> bool:
    """Tell whether each folder's name has a prefix that its level allows."""
    return all(folder.startswith(prefixes) for folder, prefixes in zip(folders, levels))


def folder_prefixes(
    reader: CatalogReader, datasets: Sequence[DatasetRecord]
) -> list[FolderPrefixes]:
    """Where files of datasets may be: for each set of partition columns that they ever had.

    A partition column gives one beginning for each name that it ever had.
    """
    found = (one for each in datasets for one in _prefixes(each, reader.schemas(each.id)))
    return list(dict.fromkeys(found))


def _prefixes(record: DatasetRecord, schemas: Mapping[int, pa.Schema]) -> list[FolderPrefixes]:
    if not schemas:
        return [()]
    newest = schemas[max(schemas)]
    # A dataset may have had other partition columns before it was replaced as a whole.
    since: dict[int, list[tuple[str, ...]]] = {}
    for version, schema in schemas.items():
        names = partition_columns_at(record.properties, version, schema, newest)
        end = next((end for end, _ in record.properties.partitioned_before if version < end), 0)
        since.setdefault(end, []).append(names)
    return [
        tuple(
            tuple({partition_folder({name: None}).partition("=")[0] + "=" for name in level})
            for level in zip(*then)
        )
        for then in since.values()
    ]


def remove_empty_folders(storage: Storage, prefixes: Sequence[FolderPrefixes]) -> int:
    """Remove the empty partition folders of a dataset on a local disk; returns how many."""
    if not any(prefixes):
        return 0
    removed = 0
    for folder in storage.local_folders():
        parts = folder.split("/")
        ours = any(len(parts) <= len(levels) and _begin_with(parts, levels) for levels in prefixes)
        # It fails where a writer has just created a file in it.
        removed += ours and storage.remove_local_folder(folder)
    return removed
