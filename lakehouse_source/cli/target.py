"""Door. What a command is about: a path, a URI, or a name in the catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse_source.errors import InvalidOptionError

if TYPE_CHECKING:
    from lakehouse_source.catalog.qualified_names import QualifiedName
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.datasets import DatasetCatalog
    from lakehouse_source.read.address import Address

CATALOG = "PLAKE_CATALOG"


@dataclass(frozen=True, slots=True)
class Given:
    """A dataset as it was given, with the catalog and the storage options that were given.

    `creates`: a catalog that is not there is made.
    """

    text: str
    catalog: str | None
    storage: Mapping[str, str]
    creates: bool = False

    @property
    def is_path(self) -> bool:
        has_catalog = self.catalog is not None or bool(os.environ.get(CATALOG))
        return not has_catalog or any(c in self.text for c in "/:~") or self.text.startswith(".")

    def address(self) -> Address:
        from lakehouse_source.read.address import Address

        return Address.named(self.text, self.catalog, self.storage or None)

    def dataset(self) -> Dataset:
        """The dataset at its newest version."""
        from lakehouse_source.dataset import Dataset

        return Dataset(self.address())

    def name(self) -> QualifiedName:
        from lakehouse_source.catalog.qualified_names import parse_name

        if self.is_path:
            raise InvalidOptionError(
                option="DATASET",
                value=self.text,
                reason="must be a name in a catalog. Give the catalog by --catalog or the "
                f"variable {CATALOG}.",
            )
        return parse_name(self.text)

    def storage_options(self) -> Mapping[str, str] | None:
        return self.storage or None

    @contextmanager
    def names(self) -> Iterator[DatasetCatalog]:
        from lakehouse_source.datasets import open_catalog

        catalog = open_catalog(self.catalog, create=self.creates)
        try:
            yield catalog
        finally:
            catalog.release()
