"""Verb. Where a dataset is, and which catalog knows it."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias

from lakehouse_source.catalog import Catalog, open_catalog
from lakehouse_source.catalog.locate import is_default_catalog
from lakehouse_source.catalog.places import OWN_KEY, is_dataset_at
from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.read.snapshot import Snapshot, open_snapshot
from lakehouse_source.storage import StorageLocation, split_branch, with_branch

CatalogLike: TypeAlias = "str | Catalog | None"
PathLike: TypeAlias = "str | os.PathLike[str]"


class Address:
    """Where a dataset is: its location in a store, its canonical URI, its key in a catalog.

    The URI and the key of a branch end with its name; its location is that of the dataset.

    In the catalog that is inside the dataset's own folder the key is `.`, so that the
    folder can be moved or copied as a whole. It does not matter how the URL of that
    catalog is spelled. The catalog itself finds a dataset by another spelling of its
    folder (`CatalogReader.dataset`).
    """

    def __init__(
        self,
        dataset_uri: PathLike,
        catalog: CatalogLike,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.location = StorageLocation.of(dataset_uri, storage_options)
        branch = split_branch(os.fspath(dataset_uri).strip())[1]
        self.uri = with_branch(self.location.uri, branch)
        self.catalog = catalog
        folder = OWN_KEY if is_default_catalog(catalog, self.uri) else self.location.uri
        self.key = with_branch(folder, branch)

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

    def branch(self, name: str) -> Address:
        """The address of a branch of this dataset."""
        found = copy.copy(self)
        found.uri, found.key = with_branch(self.uri, name), with_branch(self.key, name)
        return found

    @property
    def is_branch(self) -> bool:
        """Tell whether this is the address of a branch."""
        return split_branch(self.uri)[1] is not None

    def is_at(self, uri: str) -> bool:
        """Tell whether a canonical URI means the same folder, and the same branch."""
        same_branch = split_branch(uri)[1] == split_branch(self.uri)[1]
        return same_branch and (uri == self.uri or is_dataset_at(uri, self.uri, None))

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Catalog]:
        """The catalog; closed afterwards unless the caller handed over an open one."""
        if isinstance(self.catalog, Catalog):
            yield self.catalog
            return
        opened = open_catalog(self.catalog, dataset_uri=self.uri, create=create)
        try:
            yield opened
        finally:
            opened.release()

    def kept_open(self) -> Address:
        """The same address, with its catalog kept open where that is on a server.

        The connections are closed when nothing refers to the catalog any more.
        """
        if isinstance(self.catalog, Catalog):
            return self
        kept = copy.copy(self)
        kept.catalog = open_catalog(self.catalog, dataset_uri=self.uri, create=False)
        return kept if kept.catalog.is_server else self

    def snapshot(
        self,
        catalog: Catalog,
        reader: CatalogReader,
        version: int | str | None = None,
        timestamp: datetime | str | None = None,
    ) -> Snapshot:
        """The dataset at a version.

        Raises:
            DatasetNotFoundError, VersionNotFoundError
        """
        return open_snapshot(
            reader,
            self.key,
            self.uri,
            catalog.redacted_url,
            version=version,
            timestamp=timestamp,
        )
