"""Door. UPDATE, DELETE and MERGE as Spark's own statements, from Python's columns and texts.

`DataFrame.mergeInto` makes Spark's MERGE, classic and through Connect, of columns too. It knows no
name for its target, and neither UPDATE nor DELETE: a hint around the source tells the planner
extension what the statement is (`BuiltStatements.java`). Arguments are checked as Delta's
`DeltaTable` checks them, with its words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import uuid6

from lakehouse_source.spark.protocol.vocabulary import Built, Command, Statement

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Expression: TypeAlias = "str | Column"
Assignments: TypeAlias = "Mapping[str, str | Column]"
_Clause: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Target:
    """The table that statements change, as SQL names it.

    `alias` is its name in conditions. `metadata` is its name for the tables that tell about it.
    `options` are those of the writes.
    """

    spark: Any
    name: str
    metadata: str
    alias: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def delete(self, condition: Expression | None) -> None:
        self._begin(Command.DELETE, condition).whenMatched().delete().merge()

    def update(self, condition: Expression | None, given: Assignments | None) -> None:
        values = assignments(given, "'set'")
        if condition is not None:
            as_column(condition)  # checked before, as Delta does
        if not values:
            raise ValueError("'set' cannot be empty: name columns and their values")
        self._begin(Command.UPDATE, condition).whenMatched().update(values).merge()

    def _begin(self, command: str, condition: Expression | None) -> Any:
        from pyspark.sql import functions as F

        wanted = F.lit(True) if condition is None else as_column(condition)
        return self.begin(command, self.spark.range(1).toDF("__plake_row"), wanted)

    def begin(self, command: str, source: DataFrame, condition: Column, **more: str) -> Any:
        """Spark's builder of a statement. `more`: further members of the hint."""
        given = {**self.options, **more, Built.COMMAND: command}
        if self.alias is not None:
            given[Built.ALIAS] = self.alias
        return source.hint(Built.HINT, json.dumps(given)).mergeInto(self.name, condition)

    def counts(self, statement: str) -> DataFrame:
        """The rows that a statement changed, as the history tells; it is asked when it is used."""
        from pyspark.sql import functions as F

        kinds = ("updated", "deleted", "inserted")
        counted = [F.expr(f"coalesce(sum(rows_{kind}), 0L) AS num_{kind}_rows") for kind in kinds]
        history = self.spark.sql(f"DESCRIBE HISTORY {self.metadata}")
        mine = history.where(F.col("committer")[Statement.ID] == statement).agg(*counted)
        affected = "num_updated_rows + num_deleted_rows + num_inserted_rows AS num_affected_rows"
        frame: DataFrame = mine.selectExpr(affected, "*")
        return frame


@dataclass(frozen=True)
class PlakeMergeBuilder:
    """A MERGE under construction. Clauses of one kind are tried in their order.

    Each method returns a new builder; `execute()` runs the statement. The keys of `set` and
    `values` are names of the target's columns or of fields of its structs, as SQL has them:
    ``t.`a b` ``.

    >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
    >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
    >>> merge = table.merge(s, "t.month = s.month AND t.carrier = s.carrier")
    >>> merge.whenMatchedDelete().execute().first().num_deleted_rows
    1
    """

    _target: Target
    _source: DataFrame
    _condition: Column
    _clauses: tuple[_Clause, ...] = ()
    _evolves: bool = False
    _ended: tuple[str, ...] = ()  # kinds whose last clause had no condition

    def whenMatchedUpdate(
        self, condition: Expression | None = None, set: Assignments | None = None
    ) -> PlakeMergeBuilder:
        """Update the matched rows that also satisfy `condition`.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(s, "t.carrier = s.carrier")
        >>> counts = merge.whenMatchedUpdate(set={"miles": "s.miles + t.miles"}).execute()
        """
        values = assignments(set, "'set' in whenMatchedUpdate")
        return self._when("whenMatched", condition, lambda clause: clause.update(values))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> PlakeMergeBuilder:
        """Set all columns of matched rows to those of the source.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(s, "t.month = s.month AND t.carrier = s.carrier")
        >>> counts = merge.whenMatchedUpdateAll("s.miles > 0").execute()
        """
        return self._when("whenMatched", condition, lambda clause: clause.updateAll())

    def whenMatchedDelete(self, condition: Expression | None = None) -> PlakeMergeBuilder:
        """Delete matched rows.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(s, "t.carrier = s.carrier")
        >>> counts = merge.whenMatchedDelete("t.miles > s.miles").execute()
        """
        return self._when("whenMatched", condition, lambda clause: clause.delete())

    def whenNotMatchedInsert(
        self, condition: Expression | None = None, values: Assignments | None = None
    ) -> PlakeMergeBuilder:
        """Insert rows of the source that match none; other columns get their default or NULL.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 'DL' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(s, "t.carrier = s.carrier")
        >>> counts = merge.whenNotMatchedInsert(values={"carrier": "s.carrier"}).execute()
        """
        given = assignments(values, "'values' in whenNotMatchedInsert")
        return self._when("whenNotMatched", condition, lambda clause: clause.insert(given))

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> PlakeMergeBuilder:
        """Insert rows of the source that match none, with all columns.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 1 AS month, 'B6' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(s, "t.month = s.month AND t.carrier = s.carrier")
        >>> merge.whenNotMatchedInsertAll().execute().first().num_inserted_rows
        1
        """
        return self._when("whenNotMatched", condition, lambda clause: clause.insertAll())

    def whenNotMatchedBySourceUpdate(
        self, condition: Expression | None = None, set: Assignments | None = None
    ) -> PlakeMergeBuilder:
        """Update rows of the table that no row of the source matches.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(s, "t.carrier = s.carrier")
        >>> counts = merge.whenNotMatchedBySourceUpdate("t.month = 1", {"miles": "0"}).execute()
        """
        values = assignments(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._when("whenNotMatchedBySource", condition, lambda clause: clause.update(values))

    def whenNotMatchedBySourceDelete(
        self, condition: Expression | None = None
    ) -> PlakeMergeBuilder:
        """Delete rows of the table that no row of the source matches.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = table.merge(s, "t.carrier = s.carrier")
        >>> counts = merge.whenNotMatchedBySourceDelete("t.month = 1").execute()
        """
        return self._when("whenNotMatchedBySource", condition, lambda clause: clause.delete())

    def withSchemaEvolution(self) -> PlakeMergeBuilder:
        """Add the columns and the fields of structs that the table lacks.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles, 7 AS gate").alias("s")
        >>> merge = table.merge(s, "t.month = s.month AND t.carrier = s.carrier")
        >>> counts = merge.whenMatchedUpdateAll().withSchemaEvolution().execute()
        >>> table.toDF().columns
        ['month', 'carrier', 'miles', 'gate']
        """
        return replace(self, _evolves=True)

    def execute(self) -> DataFrame:
        """Run the statement, as one commit. The row that it answers has four counts.

        `num_affected_rows`, `num_updated_rows`, `num_deleted_rows` and `num_inserted_rows`. The
        frame asks the history for them when it is used.

        Where clauses would change a row for several rows of the source, the statement fails and
        changes nothing.

        >>> table = lake.spark.PlakeTable.forPath(spark, "/data/flights").alias("t")
        >>> s = spark.sql("SELECT 'UA' AS carrier").alias("s")
        >>> counts = table.merge(s, "t.carrier = s.carrier").whenMatchedDelete().execute()
        >>> counts.columns[0], counts.first().num_affected_rows
        ('num_affected_rows', 2)
        """
        statement = str(uuid6.uuid7())
        more = {Statement.ID: statement}
        builder = self._target.begin(Command.MERGE, self._source, self._condition, **more)
        for clause in self._clauses:
            builder = clause(builder)
        (builder.withSchemaEvolution() if self._evolves else builder).merge()
        return self._target.counts(statement)

    def _when(
        self, kind: str, condition: Expression | None, act: Callable[[Any], Any]
    ) -> PlakeMergeBuilder:
        if kind in self._ended:
            raise ValueError(
                f"this {kind} clause never runs: of several, only the last can omit the condition."
            )
        wanted = () if condition is None else (as_column(condition),)
        ended = self._ended if wanted else (*self._ended, kind)
        clause = lambda builder: act(getattr(builder, kind)(*wanted))  # noqa: E731
        return replace(self, _clauses=(*self._clauses, clause), _ended=ended)


def merge(target: Target, source: DataFrame, condition: Expression) -> PlakeMergeBuilder:
    """Begin a MERGE.

    Raises:
        ValueError, TypeError: an argument is missing, or is no frame or no condition.
    """
    from pyspark.sql import DataFrame

    if source is None:
        raise ValueError("'source' in merge cannot be None")
    if not isinstance(source, DataFrame):
        raise TypeError(f"Type of 'source' in merge must be DataFrame, found {type(source)}.")
    if condition is None:
        raise ValueError("'condition' in merge cannot be None")
    return PlakeMergeBuilder(target, source, as_column(condition))


def as_column(condition: Expression) -> Column:
    """A condition as Spark's column.

    Raises:
        TypeError: it is neither a column nor a text.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F

    if isinstance(condition, str):
        return F.expr(condition)
    if isinstance(condition, Column):
        return condition
    raise TypeError(
        "'condition' must be a Spark SQL Column or a string (expression in SQL syntax), found to "
        f"be of type {type(condition)}"
    )


def assignments(given: Assignments | None, name: str) -> dict[str, Column]:
    """New values by the names of columns. Spark reads the names.

    Raises:
        ValueError: there are none.
        TypeError: it is no dict, or has other keys or values than it may have.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F

    if given is None:
        raise ValueError(f"{name} cannot be None")
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a dict, found to be {type(given)}")
    found = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(
                f"Keys of dict in {name} must contain only strings with column names, found "
                f"{key!r} of type {type(key)}"
            )
        if not isinstance(value, (str, Column)):
            raise TypeError(
                f"Values of dict in {name} must contain only Spark SQL Columns or strings "
                f"(expressions in SQL syntax) as values, found {value!r} of type {type(value)}"
            )
        found[key] = F.expr(value) if isinstance(value, str) else value
    return found
