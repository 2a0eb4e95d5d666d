"""Door. `open`: DELETE, UPDATE and MERGE on frames, for sessions without the planner extension.

This works through Spark Connect too, with the names of Delta's `DeltaTable`. A statement reads the
rows with the columns that tell where each row is stored (option `metadataColumns`), decides with
one join what happens to the rows, and hands them to the writer of Spark SQL's statements. The frame
fixes the version on which the statement is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lakehouse_source.catalog.qualified_names import quoted as quoted_name
from lakehouse_source.catalog.qualified_names import split_name
from lakehouse_source.datasets import open_catalog
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import TransactionRecord
from lakehouse_source.read.address import PathLike
from lakehouse_source.schema.fields import find_name
from lakehouse_source.spark.protocol.vocabulary import (
    Command,
    MetadataColumn,
    Row,
)
from lakehouse_source.spark.session.options import BASE_VERSION, ROW_CHANGES, MetadataKey
from lakehouse_source.spark.session.static_configuration import catalog_of_query, take_configuration
from lakehouse_source.spark.session.storage_options import PREFIX
from lakehouse_source.spark.types import struct_fields
from lakehouse_source.spark.types.to_spark_sql import quoted
from lakehouse_source.write.statements.struct_values import place_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Expression: TypeAlias = "str | Column"
Assignments: TypeAlias = "Mapping[str, str | Column]"

_DELETED, _UPDATED, _INSERTED = 1, 2, 3
# Kinds of clauses, in the order in which they are tried for a row.
_MATCHED, _NOT_MATCHED, _BY_SOURCE = range(3)
_PLACE = (MetadataColumn.FILE, MetadataColumn.POSITION, MetadataColumn.ROW)
# Names of a join's own columns, which no user has.
_OWN = "__plake_"


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
    return SparkTable(spark, found, catalog, options)


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

    def __init__(
        self,
        spark: Any,
        path: str,
        catalog: str | None,
        options: Mapping[str, Any],
        name: str = "target",
    ) -> None:
        self._spark = spark
        self._path = path
        self._catalog = catalog
        self._options = dict(options)
        self._name = name

    def alias(self, name: str) -> SparkTable:
        """The same dataset; conditions name its columns `name.column` (default: `target`).

        >>> people = lake.spark.open(spark, "/data/flights").alias("t")
        >>> people.update("t.month = 1", {"miles": "t.miles + 1"})
        """
        return SparkTable(self._spark, self._path, self._catalog, self._options, name)

    def toDF(self) -> DataFrame:
        """The newest version as a frame.

        >>> lake.spark.open(spark, "/data/flights").toDF().columns
        ['month', 'carrier', 'miles']
        """
        return self._load()

    def history(self) -> list[TransactionRecord]:
        """The commits, oldest first. This process has to reach the catalog.

        >>> lake.spark.open(spark, "/data/flights").history()[-1].operation
        'append'
        """
        import lakehouse_source as lake

        return list(lake.open_dataset(self._path, catalog=self._catalog).history())

    def delete(self, condition: Expression | None = None) -> None:
        """Delete the rows of a condition; all rows without one.

        >>> lake.spark.open(spark, "/data/flights").delete("month = 2")
        """
        from pyspark.sql import functions as F

        read = self._read()
        frame = read.frame
        if condition is not None:
            frame = frame.where(_column(condition))
        place = [F.col(_OWN + name).alias(read.names[name]) for name in _PLACE]
        self._write(read, Command.DELETE, frame.select(_operation(F.lit(_DELETED)), *place))

    def update(self, condition: Expression | None = None, set: Assignments | None = None) -> None:
        """Set columns in the rows of a condition, in all rows without one.

        `"address.city"` is a field of a struct, whose other fields stay as they are.

        >>> table = lake.spark.open(spark, "/data/flights")
        >>> table.update("month = 1", {"carrier": "lower(carrier)"})
        """
        from pyspark.sql import functions as F

        read = self._read()
        if not set:
            raise InvalidOptionError(option="set", reason="is missing: name columns to update.")
        assigned = read.assigned(set, self._name)
        frame = read.frame
        if condition is not None:
            frame = frame.where(_column(condition))
        values = [
            struct_fields.as_type(frame, assigned[name], type_).alias(name)
            if name in assigned
            else F.col(_own(i)).alias(name)
            for i, (name, type_) in enumerate(read.columns.items())
        ]
        place = [F.col(_OWN + name).alias(read.names[name]) for name in _PLACE]
        frame = frame.select(_operation(F.lit(_UPDATED)), *values, *place)
        self._write(read, Command.UPDATE, frame)

    def merge(self, source: DataFrame, condition: Expression) -> SparkMerge:
        """Begin a MERGE: name what to do with each kind of row, then call `execute()`.

        >>> table = lake.spark.open(spark, "/data/flights").alias("t")
        >>> source = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(source, "t.month = s.month AND t.carrier = s.carrier")
        >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        """
        return SparkMerge(self, source, condition)

    def _load(self, **options: str) -> DataFrame:
        reader = self._spark.read.format("plake").options(**self._place(), **options)
        frame: DataFrame = reader.load(self._path)
        return frame

    def _place(self) -> dict[str, str]:
        """The options that say where the dataset is."""
        kept = {key: str(one) for key, one in self._options.items() if key.startswith(PREFIX)}
        return kept if self._catalog is None else {**kept, "catalog": self._catalog}

    def _read(self) -> _Read:
        """The rows, with copies of all columns under names of plake's own."""
        from pyspark.sql import functions as F

        loaded = self._load(metadataColumns="true")
        fields = loaded.schema.fields
        told = {
            (one.metadata or {})[MetadataKey.COLUMN]: one
            for one in fields
            if MetadataKey.COLUMN in (one.metadata or {})
        }
        columns = {
            one.name: one.dataType
            for one in fields
            if MetadataKey.COLUMN not in (one.metadata or {})
        }
        copies = [F.col(quoted(name)).alias(_own(i)) for i, name in enumerate(columns)]
        copies += [F.col(quoted(told[name].name)).alias(_OWN + name) for name in _PLACE]
        frame = loaded.select(*[F.col(quoted(name)) for name in columns], *copies)
        return _Read(
            frame.alias(self._name),
            columns,
            {name: told[name].name for name in _PLACE},
            told[MetadataColumn.FILE].metadata[MetadataKey.VERSION],
        )

    def _write(self, read: _Read, command: str, rows: DataFrame) -> None:
        options = {key: str(one) for key, one in self._options.items()} | self._place()
        options |= {ROW_CHANGES: command, BASE_VERSION: str(read.version)}
        rows.write.format("plake").mode("append").options(**options).save(self._path)


@dataclass(frozen=True)
class _Read:
    """The target of one statement: its rows, the types of its columns, and its version.

    `names` are the writer's names for the columns of `_PLACE`.
    """

    frame: DataFrame
    columns: dict[str, Any]
    names: dict[str, str]
    version: int

    def assigned(
        self, given: Assignments, alias: str, *, inserted: bool = False
    ) -> dict[str, Column]:
        """The values by the names of the dataset's columns. `inserted`: there is no old row."""
        from pyspark.sql import functions as F

        trees: dict[str, Any] = {}
        for key, value in given.items():
            path = struct_fields.find(key.removeprefix(f"{alias}.").strip("`"), self.columns)
            if not path:
                raise InvalidOptionError(
                    option="set",
                    value=key,
                    reason="is no column of the dataset.",
                    known=tuple(self.columns),
                )
            if inserted and len(path) > 1:
                raise InvalidOptionError(
                    option="values",
                    value=key,
                    reason=f"is a field of a struct: an insert sets all of {path[0].name}.",
                )
            place_at(trees, path, _column(value), key)
        places = {name: place for place, name in enumerate(self.columns)}
        return {
            name: struct_fields.replaced(tree, name, self.columns[name], F.col(_own(places[name])))
            if isinstance(tree, dict)
            else tree
            for name, tree in trees.items()
        }


@dataclass(frozen=True)
class _Clause:
    """One WHEN clause. `values` None: the columns of the source; empty: a DELETE."""

    kind: int
    operation: int
    condition: Expression | None
    values: Assignments | None


class SparkMerge:
    """A MERGE under construction. Clauses of one kind are tried in their order.

    >>> target = lake.spark.open(spark, "/data/flights")
    >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
    >>> merge = target.merge(s, "target.month = s.month AND target.carrier = s.carrier")
    >>> merge.whenMatchedDelete().execute()
    >>> target.toDF().where("month = 1 AND carrier = 'UA'").count()
    0
    """

    def __init__(self, table: SparkTable, source: DataFrame, condition: Expression) -> None:
        self._table = table
        self._source = source
        self._condition = condition
        self._clauses: list[_Clause] = []

    def whenMatchedUpdate(
        self, condition: Expression | None = None, set: Assignments | None = None
    ) -> SparkMerge:
        """Update the matched rows that also satisfy `condition`.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenMatchedUpdate(set={"miles": "s.miles + target.miles"}).execute()
        """
        return self._when(_MATCHED, _UPDATED, condition, _given(set))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> SparkMerge:
        """Set all columns of matched rows to those of the source.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.month = s.month AND target.carrier = s.carrier")
        >>> merge.whenMatchedUpdateAll("s.miles > 0").execute()
        """
        return self._when(_MATCHED, _UPDATED, condition, None)

    def whenMatchedDelete(self, condition: Expression | None = None) -> SparkMerge:
        """Delete matched rows.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenMatchedDelete("target.miles > s.miles").execute()
        """
        return self._when(_MATCHED, _DELETED, condition, {})

    def whenNotMatchedInsert(
        self, condition: Expression | None = None, values: Assignments | None = None
    ) -> SparkMerge:
        """Insert rows of the source that match none; other columns become NULL.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenNotMatchedInsert(values={"carrier": "s.carrier"}).execute()
        """
        return self._when(_NOT_MATCHED, _INSERTED, condition, _given(values))

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> SparkMerge:
        """Insert rows of the source that match none, with all columns.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.month = s.month AND target.carrier = s.carrier")
        >>> merge.whenNotMatchedInsertAll().execute()
        """
        return self._when(_NOT_MATCHED, _INSERTED, condition, None)

    def whenNotMatchedBySourceUpdate(
        self, condition: Expression | None = None, set: Assignments | None = None
    ) -> SparkMerge:
        """Update rows of the dataset that no row of the source matches.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenNotMatchedBySourceUpdate("target.month = 1", {"miles": "0"}).execute()
        """
        return self._when(_BY_SOURCE, _UPDATED, condition, _given(set))

    def whenNotMatchedBySourceDelete(self, condition: Expression | None = None) -> SparkMerge:
        """Delete rows of the dataset that no row of the source matches.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenNotMatchedBySourceDelete("target.month = 1").execute()
        """
        return self._when(_BY_SOURCE, _DELETED, condition, {})

    def _when(
        self, kind: int, operation: int, condition: Expression | None, values: Assignments | None
    ) -> SparkMerge:
        self._clauses.append(_Clause(kind, operation, condition, values))
        return self

    def execute(self) -> None:
        """Find the rows by one join, and commit all changes as one version.

        If clauses would change a row of the dataset for several rows of the source, this raises
        `AmbiguousMergeError` and changes nothing; deleting a row several times is no conflict.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier").alias("s")
        >>> target.merge(s, "target.carrier = s.carrier").whenMatchedDelete().execute()
        """
        from pyspark.sql import functions as F

        clauses = sorted(self._clauses, key=lambda clause: clause.kind)
        if not clauses:
            raise InvalidOptionError(option="merge", reason="has no when... clause.")
        read = self._table._read()
        copies = {
            name: F.col(quoted(name)).alias(f"{_OWN}s{i}")
            for i, name in enumerate(self._source.columns)
        }
        source = self._source.select("*", *copies.values(), F.lit(True).alias(f"{_OWN}source"))
        joined = read.frame.join(source, _column(self._condition), self._join())
        stored = F.col(_OWN + MetadataColumn.FILE).isNotNull()
        sourced = F.col(f"{_OWN}source").isNotNull()
        action: Any = F.when(F.lit(False), F.lit(-1))
        found = {_MATCHED: stored & sourced, _NOT_MATCHED: ~stored, _BY_SOURCE: ~sourced}
        for i, clause in enumerate(clauses):
            wanted = found[clause.kind]
            if clause.condition is not None:
                wanted = wanted & _column(clause.condition)
            action = action.when(wanted, F.lit(i))
        chosen = joined.withColumn(f"{_OWN}action", action).where(f"{_OWN}action IS NOT NULL")
        which = F.col(f"{_OWN}action")
        operation: Any = F.when(F.lit(False), F.lit(-1))
        for i, clause in enumerate(clauses):
            operation = operation.when(which == i, F.lit(clause.operation))
        values = self._values(read, clauses, chosen)
        place = [F.col(_OWN + name).alias(read.names[name]) for name in _PLACE]
        self._table._write(
            read, Command.MERGE, chosen.select(_operation(operation), *values, *place)
        )

    def _join(self) -> str:
        """The kind of join that keeps the rows that the clauses need."""
        kinds = {clause.kind for clause in self._clauses}
        if _NOT_MATCHED in kinds:
            return "full_outer" if _BY_SOURCE in kinds else "right_outer"
        return "left_outer" if _BY_SOURCE in kinds else "inner"

    def _values(self, read: _Read, clauses: list[_Clause], chosen: DataFrame) -> list[Column]:
        """The columns of the dataset, as the clause of each row sets them."""
        from pyspark.sql import functions as F

        which = F.col(f"{_OWN}action")
        assigned: list[dict[str, Any]] = []
        for clause in clauses:
            if clause.values is not None:
                inserted = clause.operation == _INSERTED
                alias = self._table._name
                assigned.append(read.assigned(clause.values, alias, inserted=inserted))
                continue
            own = list(self._source.columns)
            mine = {name: find_name(name, own) for name in read.columns}
            lacking = [name for name, theirs in mine.items() if theirs is None]
            if lacking:
                raise InvalidOptionError(
                    option="merge",
                    value=", ".join(lacking),
                    reason="is in the dataset and not in the source: name the columns to set.",
                )
            assigned.append(
                {name: F.col(f"{_OWN}s{own.index(str(theirs))}") for name, theirs in mine.items()}
            )
        result = []
        for place, (name, type_) in enumerate(read.columns.items()):
            value: Any = F.when(F.lit(False), F.lit(None).cast(type_))
            for i, clause in enumerate(clauses):
                set_to = assigned[i].get(name)
                if set_to is not None:
                    set_to = struct_fields.as_type(chosen, set_to, type_)
                elif clause.operation == _INSERTED:
                    set_to = F.lit(None).cast(type_)
                else:
                    set_to = F.col(_own(place))
                value = value.when(which == i, set_to)
            result.append(value.alias(name))
        return result


def _given(values: Assignments | None) -> Assignments:
    if not values:
        raise InvalidOptionError(option="set", reason="is missing: name columns and their values.")
    return values


def _own(place: int) -> str:
    """The name of the copy of a column of the dataset."""
    return f"{_OWN}t{place}"


def _operation(code: Column) -> Column:
    return code.cast("int").alias(Row.OPERATION)


def _column(expression: Expression) -> Column:
    from pyspark.sql import functions as F

    return F.expr(expression) if isinstance(expression, str) else expression
