"""plake: ACID tables on plain Parquet, for PySpark and Python.

    import lakehouse_source as lake

    lake.write_dataset(table, "/data/flights", partition_by="month")
    lake.read_dataset("/data/flights", predicates="month = 3 AND carrier = 'UA'")

In Spark the format is `plake`: `spark.read.format("plake").load("/data/flights")`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_source.catalog import Catalog, open_catalog
    from lakehouse_source.dataset import Dataset, convert, open_dataset, read_dataset, write_dataset
    from lakehouse_source.errors import (
        CatalogUnavailableError,
        CommitConflictError,
        CommitUnknownError,
        CorruptDatasetError,
        DatasetExistsError,
        DatasetNotFoundError,
        InvalidOptionError,
        InvalidPredicateError,
        PlakeError,
        SchemaMismatchError,
        StorageError,
        VersionNotFoundError,
    )
    from lakehouse_source.maintenance.vacuum import vacuum
    from lakehouse_source.model import FileMetadata, RowGroupMetadata, WriteResult
    from lakehouse_source.parquet.prune import FilePruning, prune_file
    from lakehouse_source.predicate import PredicateSet
    from lakehouse_source.read.scan import Scan
    from lakehouse_source.write.transaction import Transaction, transaction

__version__ = "0.1.0"

__all__ = [
    "Catalog",
    "CatalogUnavailableError",
    "CommitConflictError",
    "CommitUnknownError",
    "CorruptDatasetError",
    "Dataset",
    "DatasetExistsError",
    "DatasetNotFoundError",
    "FileMetadata",
    "FilePruning",
    "InvalidOptionError",
    "InvalidPredicateError",
    "PlakeError",
    "PredicateSet",
    "RowGroupMetadata",
    "Scan",
    "SchemaMismatchError",
    "StorageError",
    "Transaction",
    "VersionNotFoundError",
    "WriteResult",
    "convert",
    "open_catalog",
    "open_dataset",
    "prune_file",
    "read_dataset",
    "spark",
    "transaction",
    "vacuum",
    "write_dataset",
]

# The module of each public name. It is loaded when the name is first used, so that an import
# takes no longer than one of PyArrow. Type checkers and editors read the imports above.
_HOME = {
    name: module
    for module, names in {
        "catalog": (
            "Catalog",
            "open_catalog",
        ),
        "dataset": (
            "Dataset",
            "convert",
            "open_dataset",
            "read_dataset",
            "write_dataset",
        ),
        "errors": (
            "CatalogUnavailableError",
            "CommitConflictError",
            "CommitUnknownError",
            "CorruptDatasetError",
            "DatasetExistsError",
            "DatasetNotFoundError",
            "InvalidOptionError",
            "InvalidPredicateError",
            "PlakeError",
            "SchemaMismatchError",
            "StorageError",
            "VersionNotFoundError",
        ),
        "maintenance.vacuum": ("vacuum",),
        "model": (
            "FileMetadata",
            "RowGroupMetadata",
            "WriteResult",
        ),
        "parquet.prune": (
            "FilePruning",
            "prune_file",
        ),
        "predicate": ("PredicateSet",),
        "read.scan": ("Scan",),
        "write.transaction": (
            "Transaction",
            "transaction",
        ),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    """A public name, or `lake.spark`: plain Python users have no PySpark."""
    if name == "spark":
        return importlib.import_module("lakehouse_source.spark")
    if name not in _HOME:
        raise AttributeError(f"module 'lakehouse_source' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"lakehouse_source.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
