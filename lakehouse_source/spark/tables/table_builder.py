"""Door. Builders of `PlakeTable`: CREATE and REPLACE TABLE, and OPTIMIZE, as Spark's statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from lakehouse_source.catalog.qualified_names import split_name
from lakehouse_source.spark.tables.table_names import literal, path_name, requoted
from lakehouse_source.spark.types import quoted
from lakehouse_source.spark.writing.statements import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

T = TypeVar("T")  # the opened table


@dataclass
class IdentityGenerator:
    """Where an identity column starts, and its step.

    >>> lake.spark.IdentityGenerator(start=10).step
    1
    """

    start: int = 1
    step: int = 1


@dataclass
class PlakeTableBuilder(Generic[T]):
    """Makes or replaces a table, as `CREATE TABLE` and `REPLACE TABLE` do.

    >>> builder = lake.spark.PlakeTable.createIfNotExists(spark).location("/data/new")
    >>> builder = builder.addColumn("id", "BIGINT", nullable=False).addColumn("day", "DATE")
    >>> builder.partitionedBy("day").execute().toDF().columns
    ['id', 'day']
    """

    _spark: Any
    _verb: str
    _open: Callable[[str | None, str | None], T]
    _name: str | None = None
    _place: str | None = None
    _text: str | None = None
    _columns: list[str] = field(default_factory=list)
    _partitions: tuple[str, ...] = ()
    _clusters: tuple[str, ...] = ()
    _properties: dict[str, str] = field(default_factory=dict)

    def tableName(self, identifier: str) -> PlakeTableBuilder[T]:
        """The name of the table, or `plake.` with a path in backticks.

        >>> builder = lake.spark.PlakeTable.create(spark).tableName("plake.`/data/named`")
        """
        self._name = _text(identifier, "Identifier must be str.")
        return self

    def location(self, location: str) -> PlakeTableBuilder[T]:
        """The folder or URI of the table.

        >>> builder = lake.spark.PlakeTable.create(spark).location("/data/placed")
        """
        self._place = _text(location, "Location must be str.")
        return self

    def comment(self, comment: str) -> PlakeTableBuilder[T]:
        """What the table is.

        >>> builder = lake.spark.PlakeTable.create(spark).comment("flights of 2013")
        """
        self._text = _text(comment, "Table comment must be str.")
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> PlakeTableBuilder[T]:
        """Add a column.

        >>> builder = lake.spark.PlakeTable.create(spark).addColumn("id", "INT", comment="key")
        """
        from pyspark.errors import UnsupportedOperationException
        from pyspark.sql.types import DataType, LongType

        _text(colName, "Column name must be str.")
        if not isinstance(dataType, (str, DataType)):
            _refuse("Column data type must be str or DataType.", dataType)
        if type(nullable) is not bool:
            _refuse("Column nullable must be bool.", nullable)
        generated = _generated(generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            _text(comment, "Column comment must be str.")
        type_ = DataType.fromDDL(dataType) if isinstance(dataType, str) else dataType
        if " AS IDENTITY" in generated and not isinstance(type_, LongType):
            raise UnsupportedOperationException(
                f"Column {colName} is an identity column of type {type_.simpleString()}: it has to "
                "be BIGINT."
            )
        self._columns.append(self._member(colName, type_, " ", nullable, comment, generated))
        return self

    def addColumns(self, cols: StructType | Sequence[StructField]) -> PlakeTableBuilder[T]:
        """Add the columns of a schema.

        >>> schema = spark.range(1).schema
        >>> builder = lake.spark.PlakeTable.create(spark).addColumns(schema)
        """
        from pyspark.sql.types import StructField, StructType

        if isinstance(cols, list):
            for one in cols:
                if not isinstance(one, StructField):
                    _refuse("Column in existing schema must be StructField.", one)
        elif not isinstance(cols, StructType):
            _refuse("Schema must be StructType or a list of StructField.", cols)
        self._columns += [self._of_field(one, " ") for one in cols]
        return self

    def partitionedBy(self, *cols: str | Sequence[str]) -> PlakeTableBuilder[T]:
        """The partition columns.

        >>> builder = lake.spark.PlakeTable.create(spark).partitionedBy("day", "country")
        """
        self._partitions = _names(cols, "Partitioning column must be str.")
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> PlakeTableBuilder[T]:
        """The columns by which similar rows lie together.

        >>> builder = lake.spark.PlakeTable.create(spark).clusterBy("day", "country")
        """
        self._clusters = _names(cols, "Clustering column must be str.")
        return self

    def property(self, key: str, value: str) -> PlakeTableBuilder[T]:
        """A property of the table.

        >>> builder = lake.spark.PlakeTable.create(spark).property("owner", "me")
        """
        if not isinstance(key, str) or not isinstance(value, str):
            _refuse("Key and value of property must be string.", key, value)
        self._properties[key] = value
        return self

    def execute(self) -> T:
        """Run the statement, and open the table.

        Raises:
            ValueError: neither a name nor a location was given.

        >>> builder = lake.spark.PlakeTable.createOrReplace(spark).location("/data/made")
        >>> builder.addColumn("id", "INT").execute().toDF().count()
        0
        """
        if self._name is None and self._place is None:
            raise ValueError("Table name or location has to be specified.")
        if self._name is not None:
            name = requoted(self._spark, self._name)
        else:
            name = path_name(self._spark, str(self._place))
        parts = [f"{self._verb} {name}"]
        if self._columns:
            parts.append(f"({', '.join(self._columns)})")
        parts.append("USING plake")
        for words, columns in (("PARTITIONED", self._partitions), ("CLUSTER", self._clusters)):
            if columns:
                parts.append(f"{words} BY ({', '.join(map(_reference, columns))})")
        if self._text is not None:
            parts.append(f"COMMENT {self._literal(self._text)}")
        if self._properties:
            pairs = (
                f"{self._literal(key)} = {self._literal(value)}"
                for key, value in self._properties.items()
            )
            parts.append(f"TBLPROPERTIES ({', '.join(pairs)})")
        if self._name is not None and self._place is not None:
            parts.append(f"LOCATION {self._literal(self._place)}")
        self._spark.sql(" ".join(parts))
        return self._open(self._name, self._place)

    def _literal(self, text: str) -> str:
        return literal(self._spark, text)

    def _of_field(self, one: StructField, colon: str) -> str:
        comment = (one.metadata or {}).get("comment")
        return self._member(one.name, one.dataType, colon, one.nullable, comment)

    def _member(
        self,
        name: str,
        type_: DataType,
        colon: str,
        nullable: bool,
        comment: str | None,
        generated: str = "",
    ) -> str:
        """A column, or a field of a struct."""
        told = "" if comment is None else f" COMMENT {self._literal(comment)}"
        required = "" if nullable else " NOT NULL"
        return f"{quoted(name)}{colon}{self._type(type_)}{required}{generated}{told}"

    def _type(self, type_: DataType) -> str:
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(type_, StructType):
            return f"STRUCT<{', '.join(self._of_field(one, ': ') for one in type_)}>"
        if isinstance(type_, ArrayType):
            return f"ARRAY<{self._type(type_.elementType)}>"
        if isinstance(type_, MapType):
            return f"MAP<{self._type(type_.keyType)}, {self._type(type_.valueType)}>"
        return str(type_.simpleString())


@dataclass(frozen=True)
class PlakeOptimizeBuilder:
    """An OPTIMIZE under construction.

    >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
    >>> table.optimize().executeCompaction().first().files_removed
    0
    """

    _target: Target
    _where: str = ""

    def where(self, partitionFilter: str) -> PlakeOptimizeBuilder:
        """Only partitions whose values satisfy this.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
        >>> optimize = table.optimize().where("month = 1")
        """
        return PlakeOptimizeBuilder(self._target, f" WHERE {partitionFilter}")

    def executeCompaction(self) -> DataFrame:
        """Make few large files of many small ones; sort files of a clustered table.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
        >>> table.optimize().executeCompaction().first().metrics.numFilesRemoved
        0
        """
        return self._execute("")

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> DataFrame:
        """Sort all files by these columns along a curve.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights")
        >>> done = table.optimize().executeZOrderBy("carrier", "miles").first()
        >>> done.files_removed == done.metrics.numFilesRemoved
        True
        """
        columns = _names(cols, "Z-order column must be str.")
        # All files are sorted, a group for each partition: Delta's strategy "all".
        return self._execute(
            f" ZORDER BY ({', '.join(map(_reference, columns))})",
            "files_removed AS totalConsideredFiles, 0L AS totalFilesSkipped, "
            "named_struct('strategyName', 'all', 'numOutputCubes', groups) AS zOrderStats",
        )

    def _execute(self, order: str, *more: str) -> DataFrame:
        from pyspark.sql import functions as F

        done = self._target.spark.sql(f"OPTIMIZE {self._target.metadata}{self._where}{order}")
        counts = ("files_added AS numFilesAdded", "files_removed AS numFilesRemoved")
        told = (*counts, "groups AS partitionsOptimized", *more)
        metrics = F.expr(f"struct({', '.join(told)})")
        frame: DataFrame = done.withColumn("metrics", metrics)
        return frame


def _generated(always: str | IdentityGenerator | None, by_default: IdentityGenerator | None) -> str:
    """How the values of a column are made, as SQL has it."""
    if always is not None and by_default is not None:
        raise ValueError("generatedByDefaultAs and generatedAlwaysAs cannot both be set.")
    given = always if by_default is None else by_default
    if given is None:
        return ""
    kind = "ALWAYS" if by_default is None else "BY DEFAULT"
    if isinstance(always, str):
        return f" GENERATED ALWAYS AS ({always})"
    if not isinstance(given, IdentityGenerator):
        what = "str or IdentityGenerator" if by_default is None else "IdentityGenerator"
        _refuse(f"What generates a column {kind.lower()} must be {what}.", given)
    if given.step == 0:
        raise ValueError("Column identity generation requires step to be non-zero.")
    return f" GENERATED {kind} AS IDENTITY (START WITH {given.start} INCREMENT BY {given.step})"


def _reference(column: str) -> str:
    return ".".join(map(quoted, split_name(column)))


def _names(given: Sequence[str | Sequence[str]], message: str) -> tuple[str, ...]:
    """Names that came one by one, or in one list."""
    one = given[0] if len(given) == 1 else None
    names = one if isinstance(one, (list, tuple)) else given
    return tuple(_text(name, message) for name in names)


def _text(given: object, message: str) -> str:
    if not isinstance(given, str):
        _refuse(message, given)
    return given


def _refuse(message: str, *found: object) -> NoReturn:
    told = "".join(f" Found {one} with type {type(one)}." for one in found)
    raise TypeError(message + told)
