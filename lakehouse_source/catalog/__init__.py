"""Edge. The catalog: which datasets there are, and what belongs to each version of them.

One SQL database holds everything but the data files. `open_catalog` finds the
backend for a URL; everybody else knows `Catalog`, `CatalogReader` and
`CatalogTransaction` only.
"""

from __future__ import annotations

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.locate import open_catalog, redact, resolve_url
from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.catalog.writer import CatalogTransaction

__all__ = [
    "Catalog",
    "CatalogReader",
    "CatalogTransaction",
    "open_catalog",
    "redact",
    "resolve_url",
]
