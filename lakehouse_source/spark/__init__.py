"""Door. plake for Spark: `PlakeTable`, `write`, `convert`, and the planner extension.

`configure` and `enable` load the extension; `status` tells which parts of it work. Spark finds the
data source itself, through the module `pyspark_plake`. Importing this package does not import
pyspark.

>>> from pyspark.sql import SparkSession
>>> spark = lake.spark.configure(SparkSession.builder).getOrCreate()
>>> df = spark.range(4).selectExpr("id", "id % 2 AS half")
>>> df.write.format("plake").mode("append").save("/data/numbers")
>>> spark.read.format("plake").load("/data/numbers").where("half = 1").count()
2
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_source.spark.session.configure import configure, enable, is_enabled, planner_jar
    from lakehouse_source.spark.session.planner_status import PartStatus, PlannerStatus, status
    from lakehouse_source.spark.tables.convert_folder import convert
    from lakehouse_source.spark.tables.plake_table import PlakeTable, open
    from lakehouse_source.spark.tables.table_builder import (
        IdentityGenerator,
        PlakeOptimizeBuilder,
        PlakeTableBuilder,
    )
    from lakehouse_source.spark.tables.transaction import transaction
    from lakehouse_source.spark.writing.clustered_write import write
    from lakehouse_source.spark.writing.last_commit import last_commit
    from lakehouse_source.spark.writing.statements import PlakeMergeBuilder

__all__ = [
    "IdentityGenerator",
    "PartStatus",
    "PlakeMergeBuilder",
    "PlakeOptimizeBuilder",
    "PlakeTable",
    "PlakeTableBuilder",
    "PlannerStatus",
    "configure",
    "convert",
    "enable",
    "is_enabled",
    "last_commit",
    "open",
    "planner_jar",
    "status",
    "transaction",
    "write",
]

# The module of each name. Most need pyspark, and Spark's Python workers need none of them.
_LATER = {
    **dict.fromkeys(("configure", "enable", "is_enabled", "planner_jar"), "session.configure"),
    **dict.fromkeys(("PartStatus", "PlannerStatus", "status"), "session.planner_status"),
    "write": "writing.clustered_write",
    "convert": "tables.convert_folder",
    "transaction": "tables.transaction",
    **dict.fromkeys(("PlakeTable", "open"), "tables.plake_table"),
    **dict.fromkeys(
        ("IdentityGenerator", "PlakeOptimizeBuilder", "PlakeTableBuilder"), "tables.table_builder"
    ),
    "PlakeMergeBuilder": "writing.statements",
    "last_commit": "writing.last_commit",
}


def __getattr__(name: str) -> Any:
    """A name, loaded at its first use."""
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
