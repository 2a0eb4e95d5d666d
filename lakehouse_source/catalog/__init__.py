"""Edge. The catalog: which datasets there are, and what belongs to each version of them.

One SQL database holds everything except the data files. `open_catalog` gives the `Catalog`
of a URL; its `read()` gives a `CatalogReader`, its `write()` a `CatalogTransaction`. Which
database it is, only the files named after the databases know.
"""

from __future__ import annotations

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.locate import open_catalog
from lakehouse_source.catalog.shown_url import redact
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.writer import CatalogTransaction

__all__ = [
    "Catalog",
    "CatalogReader",
    "CatalogTransaction",
    "open_catalog",
    "redact",
]
