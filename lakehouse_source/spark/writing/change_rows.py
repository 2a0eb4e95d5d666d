"""Door. `open`: DELETE and UPDATE on frames, and MERGE (`merge_rows.py`).

For sessions without the planner extension. Works through Spark Connect too, and has the names of
Delta's `DeltaTable`. A statement reads the rows with the columns that tell where each is stored
(option `metadataColumns`), decides by one join what happens to them, and hands them to the writer
that Spark SQL's statements use. The frame pins the version on which the statement is decided.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehouse_source.catalog.qualified_names import quoted as quoted_name
from lakehouse_source.catalog.qualified_names import split_name
from lakehouse_source.datasets import open_catalog
from lakehouse_source.model import TransactionRecord
from lakehouse_source.read.address import PathLike
from lakehouse_source.spark.protocol.vocabulary import Command
from lakehouse_source.spark.session.secrets import catalog_of_query, take_configuration
from lakehouse_source.spark.writing import merge_rows
from lakehouse_source.spark.writing.merge_rows import (
    DELETED,
    UPDATED,
    Assignments,
    Expression,
    SparkMerge,
    Target,
    copy_of,
    not_empty,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def open(spark: Any, path: PathLike, catalog: str | None = None, **options: Any) -> SparkTable:
    """A dataset whose rows can be changed from Spark, with the names of Delta's `DeltaTable`.

    Needs no planner extension and works through Spark Connect.

    Args:
        path: the folder or URI, or the name (`plake.sales.orders`) if this process reaches the
            catalog.
        options: options of the format's statements: `isolation`, `commitMetadata`, `txnAppId`,
            `txnVersion`, `expectedVersion`, `targetFileSize`; `storage.NAME` by `**{...}`.

    >>> table = lake.spark.open(spark, "/data/flights")
    >>> table.delete("carrier = 'UA'")
    >>> table.toDF().count()
    2
    """
    take_configuration()
    found, catalog = _place(spark, str(path), catalog)
    return SparkTable(Target(spark, found, catalog, options))


def _place(spark: Any, text: str, catalog: str | None) -> tuple[str, str | None]:
    """The path and the catalog of a table that is given by its path or its name.

    Raises:
        DatasetNotFoundError: there is no table of this name.
    """
    if "/" in text or ":" in text or "." not in text.strip("."):
        return text, catalog
    first, *rest = split_name(text)
    setting = f"spark.sql.catalog.{first}"
    if catalog is None and len(rest) == 2 and spark.conf.get(setting, None) is not None:
        text = quoted_name((rest[0], rest[1]))
        catalog = spark.conf.get(f"{setting}.catalog", None)
    opened = open_catalog(catalog_of_query(catalog), create=False)
    with opened:
        return opened.locate(text), catalog


class SparkTable:
    """A dataset that `lake.spark.open` opened. Each statement works on the newest version.

    >>> table = lake.spark.open(spark, "/data/flights")
    >>> table.update("month = 2", {"miles": "0"})
    >>> table.toDF().where("miles = 0 AND month <> 2").count()
    0
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def alias(self, name: str) -> SparkTable:
        """The same dataset; conditions name its columns `name.column` (default: `target`).

        >>> people = lake.spark.open(spark, "/data/flights").alias("t")
        >>> people.update("t.month = 1", {"miles": "t.miles + 1"})
        """
        return SparkTable(replace(self._target, name=name))

    def toDF(self) -> DataFrame:
        """The newest version as a frame.

        >>> lake.spark.open(spark, "/data/flights").toDF().columns
        ['month', 'carrier', 'miles']
        """
        return self._target.load()

    def history(self) -> list[TransactionRecord]:
        """The commits, oldest first. This process has to reach the catalog.

        >>> lake.spark.open(spark, "/data/flights").history()[-1].operation
        'append'
        """
        import lakehouse_source as lake

        return list(lake.open_dataset(self._target.path, catalog=self._target.catalog).history())

    def delete(self, condition: Expression | None = None) -> None:
        """Delete the rows of a condition; all rows without one.

        >>> lake.spark.open(spark, "/data/flights").delete("month = 2")
        """
        from pyspark.sql import functions as F

        read = self._target.read()
        self._target.write(read, Command.DELETE, read.where(condition), F.lit(DELETED))

    def update(self, condition: Expression | None = None, set: Assignments | None = None) -> None:
        """Set columns in the rows of a condition, in all rows without one.

        `"address.city"` is a field of a struct, whose other fields stay as they are.

        >>> table = lake.spark.open(spark, "/data/flights")
        >>> table.update("month = 1", {"carrier": "lower(carrier)"})
        """
        from pyspark.sql import functions as F

        read = self._target.read()
        assigned = read.assigned(not_empty(set), self._target.name)
        frame = read.where(condition)
        values = [
            merge_rows.as_type(frame, assigned[name], type_).alias(name)
            if name in assigned
            else F.col(copy_of(i)).alias(name)
            for i, (name, type_) in enumerate(read.columns.items())
        ]
        self._target.write(read, Command.UPDATE, frame, F.lit(UPDATED), values)

    def merge(self, source: DataFrame, condition: Expression) -> SparkMerge:
        """Begin a MERGE: name what to do with each kind of row, then call `execute()`.

        >>> table = lake.spark.open(spark, "/data/flights").alias("t")
        >>> source = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(source, "t.month = s.month AND t.carrier = s.carrier")
        >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        """
        return SparkMerge(self._target, source, condition)
