"""Verb. Where a dataset is, and which catalog knows it."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeAlias

from lakehouse_source.catalog import Catalog, open_catalog, resolve_url
from lakehouse_source.catalog.locate import sqlite_url
from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.read.snapshot import Snapshot, open_snapshot
from lakehouse_source.storage import RESERVED_FOLDER, canonical_uri, local_path

CatalogLike: TypeAlias = "str | Catalog | None"
PathLike: TypeAlias = "str | os.PathLike[str]"


class Address:
    """Where a dataset is: its URI as given and canonical, and its key in a catalog.

    In the catalog that lives inside the dataset's own folder the key is `.`: the
    folder can be moved or copied as a whole.
    """

    def __init__(self, dataset_uri: PathLike, catalog: CatalogLike) -> None:
        self.given = os.fspath(dataset_uri)
        self.uri = canonical_uri(self.given)
        self.catalog = catalog
        path = local_path(self.uri)
        url = catalog.url if isinstance(catalog, Catalog) else resolve_url(catalog, self.uri)
        own = None if path is None else sqlite_url(f"{path}/{RESERVED_FOLDER}/catalog.db")
        self.key = "." if own is not None and url == own else self.uri

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
            opened.close()

    def kept_open(self) -> Address:
        """The same address, with a catalog that is opened once where that is worth it.

        Its connections are closed when nothing holds it any more.
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
        version: int | None = None,
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
