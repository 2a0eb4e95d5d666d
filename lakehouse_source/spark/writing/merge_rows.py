"""Door. MERGE on frames, clause by clause, as Delta's `DeltaMergeBuilder` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.schema.fields import find_name
from lakehouse_source.spark.protocol.vocabulary import Command, MetadataColumn
from lakehouse_source.spark.types import struct_fields
from lakehouse_source.spark.types.to_spark_sql import quoted
from lakehouse_source.spark.writing.target_rows import (
    DELETED,
    INSERTED,
    OWN,
    UPDATED,
    Assignments,
    Expression,
    Target,
    TargetRows,
    column,
    copy_of,
    not_empty,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Kinds of clauses, in the order in which they are tried for a row.
_MATCHED, _NOT_MATCHED, _BY_SOURCE = range(3)


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

    def __init__(self, target: Target, source: DataFrame, condition: Expression) -> None:
        self._target = target
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
        return self._when(_MATCHED, UPDATED, condition, not_empty(set))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> SparkMerge:
        """Set all columns of matched rows to those of the source.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.month = s.month AND target.carrier = s.carrier")
        >>> merge.whenMatchedUpdateAll("s.miles > 0").execute()
        """
        return self._when(_MATCHED, UPDATED, condition, None)

    def whenMatchedDelete(self, condition: Expression | None = None) -> SparkMerge:
        """Delete matched rows.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenMatchedDelete("target.miles > s.miles").execute()
        """
        return self._when(_MATCHED, DELETED, condition, {})

    def whenNotMatchedInsert(
        self, condition: Expression | None = None, values: Assignments | None = None
    ) -> SparkMerge:
        """Insert rows of the source that match none; other columns become NULL.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenNotMatchedInsert(values={"carrier": "s.carrier"}).execute()
        """
        return self._when(_NOT_MATCHED, INSERTED, condition, not_empty(values))

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> SparkMerge:
        """Insert rows of the source that match none, with all columns.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 1 AS month, 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.month = s.month AND target.carrier = s.carrier")
        >>> merge.whenNotMatchedInsertAll().execute()
        """
        return self._when(_NOT_MATCHED, INSERTED, condition, None)

    def whenNotMatchedBySourceUpdate(
        self, condition: Expression | None = None, set: Assignments | None = None
    ) -> SparkMerge:
        """Update rows of the dataset that no row of the source matches.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenNotMatchedBySourceUpdate("target.month = 1", {"miles": "0"}).execute()
        """
        return self._when(_BY_SOURCE, UPDATED, condition, not_empty(set))

    def whenNotMatchedBySourceDelete(self, condition: Expression | None = None) -> SparkMerge:
        """Delete rows of the dataset that no row of the source matches.

        >>> target = lake.spark.open(spark, "/data/flights")
        >>> s = spark.sql("SELECT 'UA' AS carrier, 5 AS miles").alias("s")
        >>> merge = target.merge(s, "target.carrier = s.carrier")
        >>> merge.whenNotMatchedBySourceDelete("target.month = 1").execute()
        """
        return self._when(_BY_SOURCE, DELETED, condition, {})

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
        read = self._target.read()
        copies = {
            name: F.col(quoted(name)).alias(f"{OWN}s{i}")
            for i, name in enumerate(self._source.columns)
        }
        source = self._source.select("*", *copies.values(), F.lit(True).alias(f"{OWN}source"))
        joined = read.frame.join(source, column(self._condition), self._join())
        stored = F.col(OWN + MetadataColumn.FILE).isNotNull()
        sourced = F.col(f"{OWN}source").isNotNull()
        action: Any = F.when(F.lit(False), F.lit(-1))
        found = {_MATCHED: stored & sourced, _NOT_MATCHED: ~stored, _BY_SOURCE: ~sourced}
        for i, clause in enumerate(clauses):
            wanted = found[clause.kind]
            if clause.condition is not None:
                wanted = wanted & column(clause.condition)
            action = action.when(wanted, F.lit(i))
        chosen = joined.withColumn(f"{OWN}action", action).where(f"{OWN}action IS NOT NULL")
        which = F.col(f"{OWN}action")
        code: Any = F.when(F.lit(False), F.lit(-1))
        for i, clause in enumerate(clauses):
            code = code.when(which == i, F.lit(clause.operation))
        values = self._values(read, clauses, chosen)
        self._target.write(read, Command.MERGE, chosen, code, values)

    def _join(self) -> str:
        """The kind of join that keeps the rows that the clauses need."""
        kinds = {clause.kind for clause in self._clauses}
        if _NOT_MATCHED in kinds:
            return "full_outer" if _BY_SOURCE in kinds else "right_outer"
        return "left_outer" if _BY_SOURCE in kinds else "inner"

    def _values(self, read: TargetRows, clauses: list[_Clause], chosen: DataFrame) -> list[Column]:
        """The columns of the dataset, as the clause of each row sets them."""
        from pyspark.sql import functions as F

        which = F.col(f"{OWN}action")
        assigned: list[dict[str, Any]] = []
        for clause in clauses:
            if clause.values is not None:
                inserted = clause.operation == INSERTED
                alias = self._target.name
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
                {name: F.col(f"{OWN}s{own.index(str(theirs))}") for name, theirs in mine.items()}
            )
        result = []
        for place, (name, type_) in enumerate(read.columns.items()):
            value: Any = F.when(F.lit(False), F.lit(None).cast(type_))
            for i, clause in enumerate(clauses):
                set_to = assigned[i].get(name)
                if set_to is not None:
                    set_to = struct_fields.as_type(chosen, set_to, type_)
                elif clause.operation == INSERTED:
                    set_to = F.lit(None).cast(type_)
                else:
                    set_to = F.col(copy_of(place))
                value = value.when(which == i, set_to)
            result.append(value.alias(name))
        return result
