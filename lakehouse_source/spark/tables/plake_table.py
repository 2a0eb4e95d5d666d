"""Door. `PlakeTable`: a table as Delta's `DeltaTable` has it, classic and through Connect.

Each method makes a statement of Spark or of plake. `lake.spark.open` is a spelling of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from lakehouse_source.catalog.qualified_names import split_name
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.read.address import PathLike
from lakehouse_source.spark.tables.table_builder import PlakeOptimizeBuilder, PlakeTableBuilder
from lakehouse_source.spark.tables.table_names import (
    catalog_for,
    is_path,
    literal,
    path_name,
    require_extension,
    requoted,
    split_options,
    target_of,
)
from lakehouse_source.spark.types import quoted
from lakehouse_source.spark.writing.statements import (
    Assignments,
    Expression,
    PlakeMergeBuilder,
    Target,
    merge,
)
from lakehouse_source.storage import canonical_uri, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# What a table of Delta has and one of plake has not.
_PROTOCOL = "is of Delta's protocol. A table of plake has all features of its release"
_ABSENT = {
    "generate": "writes manifests for readers of Delta. Other engines read tables of plake by "
    "their catalog: docs/engines.md",
    "upgradeTableProtocol": _PROTOCOL,
    "addFeatureSupport": _PROTOCOL,
    "dropFeatureSupport": _PROTOCOL,
}


def open(spark: Any, path: PathLike, catalog: str | None = None, **options: Any) -> PlakeTable:
    """A table by its path or its name. Conditions call it `target`, until `alias` names it.

    Args:
        path: the folder or URI, or the name (`plake.sales.orders`).
        catalog: the URL of the catalog of plake, if it is not the session's.
        options: options of the statements: `isolation`, `commitMetadata`, `txnAppId`,
            `txnVersion`, `expectedVersion`, `targetFileSize`; `storage.NAME` by `**{...}`.

    Raises:
        InvalidOptionError: the session has no planner extension.

    >>> table = lake.spark.open(spark, "/data/flights")
    >>> table.delete("carrier = 'UA'")
    >>> table.toDF().count()
    2
    """
    text = str(path)
    if is_path(text):
        return PlakeTable.forPath(spark, text, catalog=catalog, **options).alias("target")
    storage, others = split_options(options)
    if catalog is not None or storage:
        text = f"{catalog_for(spark, '', catalog, storage)}.{text}"
    return PlakeTable.forName(spark, text, **others).alias("target")


class PlakeTable:
    """A table whose rows can be changed from Spark, with the names of Delta's `DeltaTable`.

    >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
    >>> table.update("month = 2", {"miles": "0"})
    >>> table.toDF().where("miles = 0 AND month <> 2").count()
    0
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def __getattr__(self, name: str) -> NoReturn:
        if name in _ABSENT:
            raise AttributeError(f"PlakeTable has no {name}(): it {_ABSENT[name]}.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- tables that are there

    @classmethod
    def forPath(
        cls,
        sparkSession: Any,
        path: str,
        hadoopConf: Mapping[str, str] | None = None,
        *,
        catalog: str | None = None,
        **options: Any,
    ) -> PlakeTable:
        """A table by its folder or URI.

        `catalog` and `options` are those of `open`. `hadoopConf` has no meaning for a local folder,
        and is refused for others: plake opens stores by the options `storage.NAME`.

        Raises:
            InvalidOptionError: the session has no planner extension, or `hadoopConf` is given for
                a store.

        >>> lake.spark.PlakeTable.forPath(spark, "/data/flights").toDF().count()
        4
        """
        _check(path, str, "path", "a string")
        if hadoopConf and local_path(canonical_uri(path)) is None:
            raise InvalidOptionError(
                option="hadoopConf",
                value=next(iter(hadoopConf)),
                reason="is of Hadoop, by which plake opens no store: give storage.NAME=... "
                "(docs/catalogs.md).",
            )
        storage, others = split_options(options)
        name = path_name(sparkSession, path, catalog, storage)
        return cls(target_of(sparkSession, name, others, None))

    @classmethod
    def forName(cls, sparkSession: Any, tableOrViewName: str, **options: Any) -> PlakeTable:
        """A table by its name, or by its path: ``plake.`/data/flights` ``. Views are refused.

        Raises:
            InvalidOptionError: the session has no planner extension, or the table is not plake's.

        >>> table = lake.spark.PlakeTable.forName(spark, "plake.`/data/flights`")
        >>> table.toDF().count()
        4
        """
        require_extension(sparkSession)
        _check(tableOrViewName, str, "tableOrViewName", "a string")
        name = requoted(sparkSession, tableOrViewName)
        return cls(target_of(sparkSession, name, options, None))

    @classmethod
    def isPlakeTable(cls, sparkSession: Any, identifier: str) -> bool:
        """Tell whether there is a table of plake at a path, or of this name.

        >>> lake.spark.PlakeTable.isPlakeTable(spark, "/data/flights")
        True
        >>> lake.spark.PlakeTable.isPlakeTable(spark, "/data/none")
        False
        """
        from pyspark.errors import AnalysisException

        require_extension(sparkSession)
        try:
            if is_path(identifier):
                cls.forPath(sparkSession, identifier)
            else:
                cls.forName(sparkSession, identifier)
        except InvalidOptionError as error:
            if error.option == "name":
                return False
            raise
        except AnalysisException as error:
            missing = ("PLAKE_DATASET", "PLAKE_NAMESPACE", "TABLE_OR_VIEW", "SCHEMA", "CATALOG")
            # Spark takes a first part that is no catalog for a namespace of its own catalog.
            texts = (*(f"[{one}_NOT_FOUND]" for one in missing), "[REQUIRES_SINGLE_PART_NAMESPACE]")
            if str(error).startswith(texts):
                return False
            raise
        return True

    @classmethod
    def convertToPlake(
        cls,
        sparkSession: Any,
        identifier: str,
        partitionSchema: str | StructType | None = None,
    ) -> PlakeTable:
        """Take over Parquet files where they stand, as `CONVERT TO PLAKE` does.

        `identifier` is ``parquet.`/folder` ``. The types of partition columns are those of
        `partitionSchema`, by default what their values look like.

        >>> df = spark.read.format("plake").load("/data/flights")
        >>> df.write.parquet("/data/plain")
        >>> table = lake.spark.PlakeTable.convertToPlake(spark, "parquet.`/data/plain`")
        >>> table.toDF().count()
        4
        """
        require_extension(sparkSession)
        parts = split_name(identifier)
        if len(parts) != 2:
            raise ValueError(f"identifier must be parquet.`/folder`, found {identifier!r}")
        statement = f"CONVERT TO PLAKE {parts[0]}.{quoted(parts[1])}"
        if partitionSchema is not None:
            builder = PlakeTableBuilder(sparkSession, "", _opened(cls, sparkSession))
            builder.addColumns(_schema(partitionSchema))
            statement += f" PARTITIONED BY ({', '.join(builder._columns)})"
        sparkSession.sql(statement)
        return cls.forPath(sparkSession, parts[1])

    # --- tables that are made

    @classmethod
    def create(cls, sparkSession: Any = None) -> PlakeTableBuilder[PlakeTable]:
        """A builder of a new table; `execute()` fails where there is one.

        >>> builder = lake.spark.PlakeTable.create(spark).location("/data/created")
        >>> builder.addColumn("id", "INT").execute().toDF().columns
        ['id']
        """
        return _builder(cls, sparkSession, "CREATE TABLE")

    @classmethod
    def createIfNotExists(cls, sparkSession: Any = None) -> PlakeTableBuilder[PlakeTable]:
        """A builder of a new table; `execute()` leaves one that is there as it is.

        >>> builder = lake.spark.PlakeTable.createIfNotExists(spark).location("/data/flights")
        >>> builder.addColumn("id", "INT").execute().toDF().columns
        ['month', 'carrier', 'miles']
        """
        return _builder(cls, sparkSession, "CREATE TABLE IF NOT EXISTS")

    @classmethod
    def replace(cls, sparkSession: Any = None) -> PlakeTableBuilder[PlakeTable]:
        """A builder that replaces a table; `execute()` fails where there is none.

        >>> builder = lake.spark.PlakeTable.replace(spark).location("/data/flights")
        >>> builder.addColumn("id", "INT").execute().toDF().columns
        ['id']
        """
        return _builder(cls, sparkSession, "REPLACE TABLE")

    @classmethod
    def createOrReplace(cls, sparkSession: Any = None) -> PlakeTableBuilder[PlakeTable]:
        """A builder of a table, new or instead of one that is there.

        >>> builder = lake.spark.PlakeTable.createOrReplace(spark).location("/data/either")
        >>> builder.addColumn("id", "INT").execute().toDF().columns
        ['id']
        """
        return _builder(cls, sparkSession, "CREATE OR REPLACE TABLE")

    # --- rows

    def toDF(self) -> DataFrame:
        """The newest version as a frame.

        >>> lake.spark.PlakeTable.forPath(spark, "/data/flights").toDF().columns
        ['month', 'carrier', 'miles']
        """
        frame: DataFrame = self._target.spark.table(self._target.name)
        return frame if self._target.alias is None else frame.alias(self._target.alias)

    def alias(self, aliasName: str) -> PlakeTable:
        """The same table under another name in conditions and in frames.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> table.update("t.month = 1", {"miles": "t.miles + 1"})
        """
        return PlakeTable(replace(self._target, alias=aliasName))

    def delete(self, condition: Expression | None = None) -> None:
        """Delete the rows of a condition; all rows without one.

        >>> lake.spark.PlakeTable.forPath(spark, "/data/flights").delete("month = 2")
        """
        self._target.delete(condition)

    def update(self, condition: Expression | None = None, set: Assignments | None = None) -> None:
        """Set columns in the rows of a condition, in all rows without one.

        `"address.city"` is a field of a struct, whose other fields stay as they are. Keys are read
        as in SQL: a name with a space or a dot stands in backticks.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
        >>> table.update("month = 1", {"carrier": "lower(carrier)"})
        """
        self._target.update(condition, set)

    def merge(self, source: DataFrame, condition: Expression) -> PlakeMergeBuilder:
        """Begin a MERGE: name what to do with each kind of row, then call `execute()`.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> source = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(source, "t.month = s.month AND t.carrier = s.carrier")
        >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().first()
        Row(num_affected_rows=1, num_updated_rows=1, num_deleted_rows=0, num_inserted_rows=0)
        """
        return merge(self._target, source, condition)

    # --- versions and upkeep

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first: `DESCRIBE HISTORY`.

        >>> lake.spark.PlakeTable.forPath(spark, "/data/flights").history(1).first().operation
        'WRITE'
        """
        if limit is not None:
            _check(limit, int, "limit", "an int")
        last = "" if limit is None else f" LIMIT {limit}"
        return self._sql(f"DESCRIBE HISTORY {self._target.metadata}{last}")

    def detail(self) -> DataFrame:
        """What the table is: `DESCRIBE DETAIL`.

        >>> lake.spark.PlakeTable.forPath(spark, "/data/flights").detail().first().numRows
        4
        """
        return self._sql(f"DESCRIBE DETAIL {self._target.metadata}")

    def restoreToVersion(self, version: int) -> DataFrame:
        """Make the rows of an older version those of a new one.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
        >>> table.delete()
        >>> restored = table.restoreToVersion(1)
        >>> table.toDF().count()
        4
        """
        _check(version, int, "version", "an int")
        return self._sql(f"RESTORE TABLE {self._target.metadata} TO VERSION AS OF {version}")

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Make the rows of the version of a moment those of a new one.

        The text is a time as Spark casts it, such as `2026-01-31 10:00:00`, in the session's zone.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
        >>> restored = table.restoreToTimestamp("2100-01-01")
        """
        from pyspark.errors import PySparkException

        _check(timestamp, str, "timestamp", "a string")
        moment = literal(self._target.spark, timestamp)
        try:
            return self._sql(f"RESTORE TABLE {self._target.metadata} TO TIMESTAMP AS OF {moment}")
        except PySparkException as error:
            if (error.getCondition() or "").startswith("CAST_INVALID_INPUT"):
                raise ValueError(
                    f"The provided timestamp ('{timestamp}') cannot be converted to a valid "
                    "timestamp: give one as Spark casts it, such as '2026-01-31 10:00:00'."
                ) from error
            raise

    def clone(
        self,
        target: str,
        isShallow: bool,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> PlakeTable:
        """A table of its own with the rows of the newest version: `CREATE TABLE … CLONE`.

        `target` is a name or a path, in the catalog of this table. A shallow clone writes no data.
        `properties` are set in a commit after that of the clone.

        >>> df = spark.sql("SELECT 1 AS id")
        >>> catalog = "sqlite:////data/catalog.db"
        >>> lake.spark.write(df, "/data/made", catalog=catalog)
        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/made", catalog=catalog)
        >>> table.clone("/data/trial", isShallow=True).toDF().count()
        1
        """
        return self._cloned("", target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> PlakeTable:
        """As `clone`, of an older version.

        >>> df = spark.sql("SELECT 1 AS id")
        >>> catalog = "sqlite:////data/catalog.db"
        >>> lake.spark.write(df, "/data/made", catalog=catalog)
        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/made", catalog=catalog)
        >>> table.cloneAtVersion(1, "/data/first", isShallow=True).toDF().count()
        1
        """
        _check(version, int, "version", "an int")
        return self._cloned(f" VERSION AS OF {version}", target, isShallow, replace, properties)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> PlakeTable:
        """As `clone`, of the version of a moment, a text as in `restoreToTimestamp`.

        >>> df = spark.sql("SELECT 1 AS id")
        >>> catalog = "sqlite:////data/catalog.db"
        >>> lake.spark.write(df, "/data/made", catalog=catalog)
        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/made", catalog=catalog)
        >>> table.cloneAtTimestamp("2100-01-01", "/data/late", isShallow=True).toDF().count()
        1
        """
        _check(timestamp, str, "timestamp", "a string")
        moment = f" TIMESTAMP AS OF {literal(self._target.spark, timestamp)}"
        return self._cloned(moment, target, isShallow, replace, properties)

    def _cloned(
        self,
        version: str,
        target: str,
        isShallow: bool,
        replace: bool,
        properties: Mapping[str, str] | None,
    ) -> PlakeTable:
        _check(target, str, "target", "a string")
        _check(isShallow, bool, "isShallow", "a bool")
        _check(replace, bool, "replace", "a bool")
        _check(properties or {}, Mapping, "properties", "a dict")
        spark = self._target.spark
        if is_path(target):  # in the catalog of this table
            name = path_name(spark, target)
            source = split_name(self._target.metadata)[0]
            if source != "spark_catalog":  # its tables have the catalog of paths
                name = f"{quoted(source)}.{quoted(split_name(name)[1])}"
        else:
            name = requoted(spark, target)
        pairs = []
        for key, value in (properties or {}).items():
            _check(key, str, "Key of property", "a string")
            _check(value, str, "Value of property", "a string")
            pairs.append(f"{literal(spark, key)} = {literal(spark, value)}")
        verb, kind = (
            "CREATE OR REPLACE" if replace else "CREATE",
            "SHALLOW" if isShallow else "DEEP",
        )
        self._sql(f"{verb} TABLE {name} {kind} CLONE {self._target.metadata}{version}")
        if pairs:
            self._sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({', '.join(pairs)})")
        return PlakeTable(target_of(spark, name, {}, None))

    def vacuum(self, retentionHours: float | None = None) -> DataFrame:
        """Delete files that no version needs and that are old enough: `VACUUM`.

        It answers what was deleted and what was left.

        >>> lake.spark.PlakeTable.forPath(spark, "/data/flights").vacuum(200).columns[0]
        'action'
        """
        kept = ""
        if retentionHours is not None:
            _check(retentionHours, (int, float), "retentionHours", "a number")
            kept = f" RETAIN {retentionHours:.6f} HOURS"
        return self._sql(f"VACUUM {self._target.metadata}{kept}")

    def optimize(self) -> PlakeOptimizeBuilder:
        """Begin an OPTIMIZE.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
        >>> table.optimize().where("month = 1").executeCompaction().first().files_removed
        0
        """
        return PlakeOptimizeBuilder(self._target)

    def _sql(self, statement: str) -> DataFrame:
        frame: DataFrame = self._target.spark.sql(statement)
        return frame


def _builder(cls: type[PlakeTable], spark: Any, verb: str) -> PlakeTableBuilder[PlakeTable]:
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is None:
            raise ValueError("sparkSession is not given, and no session is active.")
    require_extension(spark)
    return PlakeTableBuilder(spark, verb, _opened(cls, spark))


def _opened(cls: type[PlakeTable], spark: Any) -> Callable[[str | None, str | None], PlakeTable]:
    def opened(name: str | None, path: str | None) -> PlakeTable:
        return cls.forPath(spark, str(path)) if name is None else cls.forName(spark, name)

    return opened


def _schema(given: str | StructType) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(given) if isinstance(given, str) else given
    assert isinstance(found, StructType)
    return found


def _check(value: object, kind: type | tuple[type, ...], name: str, what: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name} needs to be {what} but got '{type(value)}'.")
