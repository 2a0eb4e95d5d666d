"""Verb. The folder of a dataset: which branches share it, where its files are, which it owns.

`OwnFiles` is the gate before every deletion: rows of a catalog name files, and who may write rows
of one dataset may not have the files of another one deleted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from lakehouse_source.catalog import CatalogReader, CatalogTransaction
from lakehouse_source.catalog.same_place import OWN_KEY
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import DatasetRecord
from lakehouse_source.parquet.names import is_iceberg_file, is_vector_file, own_name
from lakehouse_source.read.address import Address
from lakehouse_source.schema.partitions import partition_columns_at, partition_folder
from lakehouse_source.storage import (
    Storage,
    StorageLocation,
    local_path,
    split_branch,
    with_branch,
)

NOT_OURS = "not a name that plake gives"
ELSEWHERE = "not where this dataset puts files"
OTHER_DATASET = "another dataset's"

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


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Which files, of those that a dataset's rows or its folder name, it may delete.

    `nested` are the folders of other datasets inside that of the dataset, relative to it.
    `around` are the names of the files of datasets in whose folders it is.
    """

    prefixes: Sequence[FolderPrefixes]
    nested: tuple[str, ...]
    around: frozenset[str]

    @classmethod
    def of(cls, reader: CatalogReader, datasets: Sequence[DatasetRecord], uri: str) -> OwnFiles:
        """The gate of a dataset, which comes first in `datasets`, and its branches.

        Raises:
            CorruptDatasetError: its URI is not spelled as plake spells it, or a dataset that was
                registered before is in the same folder.
        """
        parents: dict[str, str] = {}
        own = datasets[0]
        if own.base_uri != OWN_KEY and StorageLocation.of(own.base_uri).uri != own.base_uri:
            raise _no_folder_of_its_own(uri, "plake spells its folder otherwise")
        place = _place(uri, parents)
        nested: list[str] = []
        around: set[str] = set()
        for other in reader.datasets():
            if other.id == own.id or split_branch(other.base_uri)[1] is not None:
                continue
            there = _place(other.base_uri, parents)
            if there == place and other.id < own.id:
                raise _no_folder_of_its_own(uri, f"it is that of {other.base_uri}")
            if there.startswith(place + "/"):
                nested += dict.fromkeys((there, unquote(there)))
            elif place.startswith(there + "/"):
                around.update(_name(path) for path in reader.paths(other)[1])
        inside = len(place) + 1
        below = tuple(f"{one[inside:]}/" for one in nested if one.startswith(place + "/"))
        return cls(folder_prefixes(reader, datasets), below, frozenset(around))

    def is_others(self, path: str) -> bool:
        """Tell whether another dataset has the file, or the folder that it is in."""
        return path.startswith(self.nested) or _name(path) in self.around

    def refusal(self, path: str, *, recorded: bool = False) -> str | None:
        """Why a file is not deleted; None: the dataset may delete it, if no version needs it.

        `recorded`: a row names it, maybe in a partition folder of a branch that was dropped.
        """
        if own_name(path) is None:
            return NOT_OURS
        if self.is_others(path):
            return OTHER_DATASET
        *folders, name = path.split("/")
        in_partition = recorded and name.endswith(".parquet") and all("=" in one for one in folders)
        return None if in_partition or is_in_place(path, self.prefixes) else ELSEWHERE


def _no_folder_of_its_own(uri: str, why: str) -> CorruptDatasetError:
    return CorruptDatasetError(
        path=uri, reason=f"the catalog names it as the folder of a dataset, but {why}. "
        "Nothing was deleted",
    )  # fmt: skip


def _place(uri: str, parents: dict[str, str]) -> str:
    """Where a URI leads, without the links of a local path. `parents`: folders seen before."""
    folder = local_path(uri)
    if folder is None:
        return uri.rstrip("/")
    parent, name = os.path.split(folder.rstrip("/"))
    if parent not in parents:  # the tables of a catalog are in few folders
        parents[parent] = os.path.realpath(parent)
    path = os.path.join(parents[parent], name)
    return os.path.realpath(path) if os.path.islink(path) else path


def _name(path: str) -> str:
    return path.rpartition("/")[2]


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
