"""Edge. The catalog: all datasets, and the contents of each of their versions.

One SQL database holds everything except the data files. `open_catalog` gives the `Catalog`
of a URL; its `read()` gives a `CatalogReader`, its `write()` a `CatalogTransaction`. Only
`backends` knows which database it is.
"""

from __future__ import annotations

from lakehouse_source.catalog.base import Catalog, redact
from lakehouse_source.catalog.locate import open_catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.writer import CatalogTransaction

__all__ = [
    "Catalog",
    "CatalogReader",
    "CatalogTransaction",
    "open_catalog",
    "redact",
]
