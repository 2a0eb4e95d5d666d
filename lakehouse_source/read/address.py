"""Verb. Where a dataset is, and which catalog knows it."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from lakehouse_source.arguments import path_text
from lakehouse_source.catalog import Catalog, open_catalog
from lakehouse_source.catalog.base import check_not_foreign, check_origin
from lakehouse_source.catalog.locate import VARIABLE, is_default_catalog, uri_of
from lakehouse_source.catalog.qualified_names import QualifiedName, check_name, parse_name, quoted
from lakehouse_source.catalog.same_place import OWN_KEY, default_catalog_path, is_dataset_at
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError
from lakehouse_source.model import DatasetRecord, SeenVersion
from lakehouse_source.read.snapshot import Snapshot, open_snapshot
from lakehouse_source.storage import (
    Storage,
    StorageLocation,
    local_path,
    split_branch,
    with_branch,
)

CatalogLike: TypeAlias = "str | Catalog | None"
PathLike: TypeAlias = "str | os.PathLike[str]"
# How many folders `key=value` one in another are looked into for Parquet files.
_LEVELS = 4


def name_of(given: str, catalog: CatalogLike) -> QualifiedName | None:
    """The name that a text may be; None: it is no name, or there is no catalog of names."""
    folder = split_branch(given.strip())[0]
    has_catalog = catalog is not None or bool(os.environ.get(VARIABLE))
    if not has_catalog or "/" in folder or ":" in folder or folder in ("", ".", "..", "~"):
        return None
    try:
        return parse_name(folder)
    except InvalidOptionError:
        return None


def _uri_of_name(given: str, name: QualifiedName, catalog: CatalogLike) -> str | None:
    """The URI of the dataset with this name; None: no dataset has the name."""
    folder, branch = split_branch(given.strip())
    try:
        opened = open_catalog(catalog, dataset_uri=folder, create=False)
    except DatasetNotFoundError:
        return None  # the catalog does not exist yet
    try:
        with opened.read() as reader:
            found = reader.names.find(name)
            is_view = found is None and reader.names.view(name) is not None
        if is_view:
            raise InvalidOptionError(
                option="dataset",
                value=given,
                reason=f"is a view. Spark SQL reads it; give a table, or a folder as './{folder}'.",
            )
        if found is None:
            return None
        uri = uri_of(opened, found.base_uri)
        return None if uri is None else with_branch(uri, branch)
    except DatasetNotFoundError:
        return None
    finally:
        if opened is not catalog:
            opened.release()


def new_location(catalog: Catalog, key: QualifiedName, location: PathLike | None = None) -> str:
    """Where a new dataset is made: as asked for, or in a folder that no dataset has."""
    if location is not None:
        return path_text("location", location)
    warehouse = catalog.warehouse
    if warehouse is None:
        raise InvalidOptionError(
            option="location",
            reason=f"is missing for {quoted(key)}, and the catalog has no warehouse. Give "
            "location=, or open the catalog with warehouse= (option 'warehouse' in Spark).",
        )
    check_name(key)
    folder = "/".join((warehouse.rstrip("/"), *(quote(part, safe="") for part in key)))
    with catalog.read() as reader:
        # Some disks take names for one that differ in case only.
        taken = {uri.lower() for uri in reader.taken_uris(folder)}
    # A dataset that was renamed, or dropped without its files, keeps its folder.
    number, uri = 1, folder
    while uri.lower() in taken:
        number += 1
        uri = f"{folder}-{number}"
    return type(warehouse)(uri)


def refuse_what_reads_like_a_name(given: str) -> None:
    """Refuse to make a dataset in a folder `sales.orders`: the caller means the name of a table."""
    if "." in given.strip(".") and "/" not in given and ":" not in given:
        raise InvalidOptionError(
            option="path",
            value=given,
            reason="looks like a name, but is not one in the catalog. Create the dataset by "
            "open_catalog(…).create_dataset(name, …) or CREATE TABLE first, or write "
            f"'./{given}' for a folder.",
        )


def _holds_parquet(uri: str) -> bool:
    """Tell whether a local folder, or one that it begins with, has a Parquet file."""
    folder = local_path(uri)
    for _ in range(_LEVELS if folder is not None else 0):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return False
        if any(name.endswith(".parquet") for name in names):
            return True
        below = next((name for name in names if "=" in name and not name.startswith(".")), None)
        if below is None:
            return False
        folder = os.path.join(str(folder), below)
    return False


class Address:
    """Where a dataset is: its location in a store, its canonical URI, its key in a catalog.

    The URI and the key of a branch end with its name; its location is that of the dataset.

    In the catalog that is inside the dataset's own folder the key is `.`, so that the
    folder can be moved or copied as a whole. Every spelling of that catalog's URL gives this key.
    For other spellings of a dataset's folder, see `CatalogReader.dataset`.
    """

    def __init__(
        self,
        dataset_uri: PathLike,
        catalog: CatalogLike,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.location = StorageLocation.of(dataset_uri, storage_options)
        branch = split_branch(path_text("path", dataset_uri).strip())[1]
        self.uri = with_branch(self.location.uri, branch)
        self.catalog = catalog
        folder = OWN_KEY if is_default_catalog(catalog, self.uri) else self.location.uri
        self.key = with_branch(folder, branch)
        # What was given, where it may be a name, and no dataset has the name.
        self.unknown_name: str | None = None

    @classmethod
    def named(
        cls,
        given: PathLike,
        catalog: CatalogLike,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Address:
        """The address of what a user gave: a folder, a URI, or a name in the catalog.

        A text without a slash is a name if the catalog has the name; `./orders` is always a folder.
        """
        name = name_of(given, catalog) if isinstance(given, str) else None
        found = None if name is None else _uri_of_name(str(given), name, catalog)
        address = cls(given if found is None else found, catalog, storage_options)
        if found is None and name is not None:
            address.unknown_name = str(given)
        return address

    @classmethod
    def registered(cls, where: StorageLocation | str, key: str, catalog: Catalog) -> Address:
        """The address of a dataset that an open catalog has under a key."""
        address = cls(".", catalog)
        address.location = (
            where if isinstance(where, StorageLocation) else StorageLocation.of(where)
        )
        address.uri = with_branch(address.location.uri, split_branch(key)[1])
        address.key = key
        return address

    def __copy__(self) -> Address:
        found = object.__new__(Address)
        found.__dict__.update(self.__dict__)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle: an open catalog becomes its URL, without connections."""
        if not isinstance(self.catalog, Catalog):
            return self.__dict__
        return {**self.__dict__, "catalog": self.catalog.url_for_others()}

    def branch(self, name: str) -> Address:
        """The address of a branch of this dataset."""
        found = copy.copy(self)
        found.uri, found.key = with_branch(self.uri, name), with_branch(self.key, name)
        return found

    @property
    def is_branch(self) -> bool:
        """Tell whether this is the address of a branch."""
        return split_branch(self.uri)[1] is not None

    def refuse_branch(self, advice: str) -> None:
        """Refuse the address of a branch; `advice` is a sentence on what to do."""
        if self.is_branch:
            reason = f"is a branch. {advice}"
            raise InvalidOptionError(option="path", value=self.uri, reason=reason)

    def is_at(self, uri: str) -> bool:
        """Tell whether a canonical URI means the same folder, and the same branch."""
        same_branch = split_branch(uri)[1] == split_branch(self.uri)[1]
        return same_branch and (uri == self.uri or is_dataset_at(uri, self.uri, None))

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Catalog]:
        """The catalog; closed afterwards unless the caller handed over an open one."""
        with self._explained():
            if isinstance(self.catalog, Catalog):
                yield self.catalog
                return
            if create:
                self._refuse_second_catalog()
            opened = open_catalog(self.catalog, dataset_uri=self.uri, create=create)
            try:
                yield opened
            finally:
                opened.release()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """An error that this dataset is missing tells what else was given than a dataset."""
        try:
            yield
        except DatasetNotFoundError as exc:
            if exc.dataset != self.uri or exc.name is not None or exc.hint is not None:
                raise
            hint = None
            if _holds_parquet(self.location.uri):
                hint = "It is a folder of Parquet files: make it a dataset by convert(path)"
            elif self.unknown_name is None:
                raise
            raise DatasetNotFoundError(
                dataset=exc.dataset, catalog=exc.catalog, name=self.unknown_name, hint=hint
            ) from exc

    def _refuse_second_catalog(self) -> None:
        """Refuse to make a catalog in another catalog's folder, or one that looks like a name."""
        folder = local_path(self.location.uri)
        if split_branch(self.key)[0] != OWN_KEY or folder is None:
            return
        if not os.path.lexists(default_catalog_path(folder)):
            refuse_what_reads_like_a_name(self.location.given)
            check_not_foreign(None, Storage(self.location))

    def kept_open(self) -> Address:
        """The same address; a catalog on a server is kept open."""
        if isinstance(self.catalog, Catalog):
            return self
        kept = copy.copy(self)
        with self._explained():
            kept.catalog = open_catalog(self.catalog, dataset_uri=self.uri, create=False)
        return kept if kept.catalog.is_server else self

    def share(self, catalog: Catalog, reader: CatalogReader, record: DatasetRecord) -> None:
        """Let the location find files of the datasets from which this one was cloned.

        Raises:
            ForeignFolderError: the folder of one of them does not belong to the catalog.
            InvalidOptionError: the catalog names a store which nobody permitted.
        """
        if self.location.origins.keys() >= set(record.properties.origins):
            return
        found = {}
        for origin, key in reader.origins(record.id).items():
            uri = uri_of(catalog, key)
            if uri is not None:
                found[origin] = self.location.sibling(uri)
                check_origin(reader, Storage(found[origin]))
        self.location = dataclasses.replace(self.location, origins=found)

    def snapshot(
        self,
        catalog: Catalog,
        reader: CatalogReader,
        version: int | str | SeenVersion | None = None,
        timestamp: datetime | str | None = None,
    ) -> Snapshot:
        """The dataset at a version."""
        found = open_snapshot(
            reader,
            self.key,
            self.uri,
            catalog.redacted_url,
            version=version,
            timestamp=timestamp,
        )
        self.share(catalog, reader, found.dataset)
        return found
