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
from lakehouse_source.storage import StorageLocation

CatalogLike: TypeAlias = "str | Catalog | None"
PathLike: TypeAlias = "str | os.PathLike[str]"


class Address:
    """Where a dataset is: its location in a store, its canonical URI, its key in a catalog.

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
        self.uri = self.location.uri
        self.catalog = catalog
        self.key = OWN_KEY if is_default_catalog(catalog, self.uri) else self.uri

    @classmethod
    def registered(cls, where: StorageLocation | str, key: str, catalog: Catalog) -> Address:
        """The address of a dataset that an open catalog has under a key."""
        address = cls(".", catalog)
        address.location = (
            where if isinstance(where, StorageLocation) else StorageLocation.of(where)
        )
        address.uri, address.key = address.location.uri, key
        return address

    def is_at(self, uri: str) -> bool:
        """Tell whether a canonical URI means the same folder."""
        return uri == self.uri or is_dataset_at(uri, self.uri, None)

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
