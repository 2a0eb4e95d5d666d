"""plake: ACID tables on plain Parquet, for PySpark and Python.

    >>> import pyarrow as pa
    >>> import lakehouse_source as lake
    >>> flights = pa.table({
    ...     "month": [1, 1, 2, 3],
    ...     "carrier": ["UA", "AA", "UA", "DL"],
    ...     "miles": [1400, 1416, 1089, 762],
    ... })
    >>> lake.write_dataset(flights, "/data/flights", partition_by="month")
    WriteResult(version=1, files=3, row_count=4, schema_version=1)
    >>> dataset = lake.open_dataset("/data/flights")
    >>> dataset.scan("month <= 2 AND carrier = 'UA'", columns=["miles"]).to_table().to_pydict()
    {'miles': [1400, 1089]}

Datasets can have names, in a catalog of their own.

    >>> catalog = lake.open_catalog("sqlite:////data/lake.db", warehouse="/data/warehouse")
    >>> schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    >>> catalog.create_dataset("orders", schema, partition_by="day").uri
    'file:///data/warehouse/default/orders'

The examples of all functions and classes go on from here.
In Spark the format is `plake`: `spark.read.format("plake").load("/data/flights")`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_source.catalog import Catalog
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.datasets import DatasetCatalog, DatasetEntry, open_catalog
    from lakehouse_source.errors import (
        AccessDeniedError,
        AmbiguousMergeError,
        CatalogUnavailableError,
        CommitConflictError,
        CommitUnknownError,
        ConstraintViolationError,
        CorruptDatasetError,
        DatasetExistsError,
        DatasetNotFoundError,
        ErasureIncompleteError,
        ForeignFolderError,
        GeneratedColumnError,
        IcebergUnsupportedError,
        InvalidExpressionError,
        InvalidOptionError,
        InvalidPredicateError,
        NamespaceExistsError,
        NamespaceNotEmptyError,
        NamespaceNotFoundError,
        PlakeError,
        SchemaMismatchError,
        StorageError,
        StreamChangeError,
        StreamCheckpointError,
        StreamDataLossError,
        StreamSchemaError,
        VersionNotFoundError,
    )
    from lakehouse_source.functions import (
        Transaction,
        convert,
        open_dataset,
        read_dataset,
        transaction,
        write_dataset,
    )
    from lakehouse_source.language import PredicateSet
    from lakehouse_source.maintenance.vacuum_catalog import vacuum
    from lakehouse_source.model import (
        ChangeResult,
        CompactionResult,
        FileMetadata,
        RowGroupMetadata,
        WriteResult,
    )
    from lakehouse_source.parquet.prune import FilePruning, prune_file
    from lakehouse_source.read.feed import Changes
    from lakehouse_source.read.scan import Scan
    from lakehouse_source.schema.defaults import Identity
    from lakehouse_source.schema.variant import variant
    from lakehouse_source.upkeep.run import maintain
    from lakehouse_source.write.statements.merge_builder import MergeBuilder

__version__ = "0.1.0"

__all__ = [
    "AccessDeniedError",
    "AmbiguousMergeError",
    "Catalog",
    "CatalogUnavailableError",
    "ChangeResult",
    "Changes",
    "CommitConflictError",
    "CommitUnknownError",
    "CompactionResult",
    "ConstraintViolationError",
    "CorruptDatasetError",
    "Dataset",
    "DatasetCatalog",
    "DatasetEntry",
    "DatasetExistsError",
    "DatasetNotFoundError",
    "ErasureIncompleteError",
    "FileMetadata",
    "FilePruning",
    "ForeignFolderError",
    "GeneratedColumnError",
    "IcebergUnsupportedError",
    "Identity",
    "InvalidExpressionError",
    "InvalidOptionError",
    "InvalidPredicateError",
    "MergeBuilder",
    "NamespaceExistsError",
    "NamespaceNotEmptyError",
    "NamespaceNotFoundError",
    "PlakeError",
    "PredicateSet",
    "RowGroupMetadata",
    "Scan",
    "SchemaMismatchError",
    "StorageError",
    "StreamChangeError",
    "StreamCheckpointError",
    "StreamDataLossError",
    "StreamSchemaError",
    "Transaction",
    "VersionNotFoundError",
    "WriteResult",
    "convert",
    "maintain",
    "open_catalog",
    "open_dataset",
    "prune_file",
    "read_dataset",
    "server",
    "spark",
    "transaction",
    "vacuum",
    "variant",
    "write_dataset",
]

# The module of each public name besides errors. It is loaded when the name is first used, so that
# an import takes no longer than one of PyArrow. Type checkers and editors read the imports above.
_HOME = {
    "Catalog": "catalog",
    **dict.fromkeys(("DatasetCatalog", "DatasetEntry", "open_catalog"), "datasets"),
    "Dataset": "dataset",
    **dict.fromkeys(("convert", "open_dataset", "read_dataset", "write_dataset"), "functions"),
    "PredicateSet": "language",
    "vacuum": "maintenance.vacuum_catalog",
    "maintain": "upkeep.run",
    **dict.fromkeys(("ChangeResult", "CompactionResult", "WriteResult"), "model"),
    **dict.fromkeys(("FileMetadata", "RowGroupMetadata"), "model"),
    **dict.fromkeys(("FilePruning", "prune_file"), "parquet.prune"),
    "Changes": "read.feed",
    "Scan": "read.scan",
    "Identity": "schema.defaults",
    "variant": "schema.variant",
    **dict.fromkeys(("Transaction", "transaction"), "functions"),
    "MergeBuilder": "write.statements.merge_builder",
}


def __getattr__(name: str) -> Any:
    """A public name, or `lake.spark` and `lake.server`, whose packages not every user has."""
    if name in ("spark", "server"):
        return importlib.import_module(f"lakehouse_source.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'lakehouse_source' has no attribute {name!r}")
    module = "errors" if name.endswith("Error") else _HOME[name]
    value = getattr(importlib.import_module(f"lakehouse_source.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
