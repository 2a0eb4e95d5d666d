"""Door. MERGE on frames, clause by clause, and the dataset whose rows it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.schema.fields import find_name
from lakehouse_source.schema.paths import find_path
from lakehouse_source.spark.protocol.vocabulary import Command, MetadataColumn, Row
from lakehouse_source.spark.session.options import BASE_VERSION, ROW_CHANGES, MetadataKey
from lakehouse_source.spark.session.secrets import PREFIX
from lakehouse_source.spark.types import quoted
from lakehouse_source.write.statements.assignments import place_at, struct_with

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField


# --- Structs in Spark's types: finds their fields by name, and gives them new values.


def find(name: str, columns: Mapping[str, Any]) -> list[StructField] | None:
    """The column of a name, or the path of fields to a field of a struct, or None.

    A dot may be part of a name. The longest name is taken first.
    """
    from pyspark.sql.types import StructField

    fields = [StructField(column, type_) for column, type_ in columns.items()]
    return find_path(fields, (name,), dotted=True, below=_Columns().children)


def replaced(tree: Mapping[str, Any], name: str, type_: Any, before: Column) -> Column:
    """The struct column `before` with new values for some fields, which keep their types.

    See `struct_with`; `as_type` gives the types of the dataset.
    """
    from pyspark.sql.types import StructField

    return struct_with(StructField(name, type_), tree, before, _Columns())


class _Columns:
    """Structs of Spark's types, as columns of a DataFrame."""

    def children(self, field: StructField) -> list[StructField]:
        from pyspark.sql.types import StructType

        return field.dataType.fields if isinstance(field.dataType, StructType) else []

    def get(self, struct: Column, field: StructField) -> Column:
        return struct.getField(field.name)

    def assigned(self, value: Column) -> Column:
        return value

    def make(self, values: Sequence[tuple[StructField, Column]]) -> Column:
        from pyspark.sql import functions as F

        # Not cast yet, because a cast matches fields of structs by position. See `as_type`.
        return F.struct(*(value.alias(field.name) for field, value in values))


def as_type(frame: DataFrame, value: Column, type_: Any) -> Column:
    """A value of a frame in another type. Fields of structs are matched by name.

    Raises:
        InvalidOptionError: a struct has other fields.
    """
    wanted = _names(type_)
    if not wanted:
        return value.cast(type_)
    given = frame.select(value.alias("value")).schema["value"].dataType
    return value.cast(type_) if _names(given) == wanted else _by_name(value, given, type_)


def _names(type_: Any) -> list[Any]:
    """The names of the fields of all structs in a type, in their order; empty: it has none."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, ArrayType):
        return _names(type_.elementType)
    if isinstance(type_, MapType):
        below = [_names(type_.keyType), _names(type_.valueType)]
        return below if any(below) else []
    if isinstance(type_, StructType):
        return [[child.name.lower(), _names(child.dataType)] for child in type_.fields]
    return []


def _by_name(value: Column, given: Any, wanted: Any) -> Column:
    """A cast matches fields by position: if positions differ, the struct is rebuilt."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(value, lambda one: _by_name(one, given.elementType, wanted.elementType))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        keyed = F.transform_keys(value, lambda k, _: _by_name(k, given.keyType, wanted.keyType))
        return F.transform_values(
            keyed, lambda _, v: _by_name(v, given.valueType, wanted.valueType)
        )
    if not isinstance(given, StructType) or not isinstance(wanted, StructType):
        return value.cast(wanted)
    fields = []
    for child in wanted.fields:
        name = find_name(child.name, given.names)
        if name is None or len(given.names) != len(wanted.names):
            raise InvalidOptionError(
                option="set",
                value=given.simpleString(),
                reason="is a struct with other fields than the dataset's: "
                f"{wanted.simpleString()}.",
            )
        theirs = _by_name(value.getField(name), given[name].dataType, child.dataType)
        fields.append(theirs.alias(child.name))
    return F.when(value.isNotNull(), F.struct(*fields)).cast(wanted)


# --- The dataset whose rows a statement on frames changes: as it is read, and written again.


Expression: TypeAlias = "str | Column"
Assignments: TypeAlias = "Mapping[str, str | Column]"

DELETED, UPDATED, INSERTED = 1, 2, 3
_PLACE = (MetadataColumn.FILE, MetadataColumn.POSITION, MetadataColumn.ROW)
# Names of a join's own columns, which no user has.
OWN = "__plake_"


@dataclass(frozen=True)
class Target:
    """Where the dataset is, and what conditions call it."""

    spark: Any
    path: str
    catalog: str | None
    options: Mapping[str, Any]
    name: str = "target"

    def load(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("plake").options(**self._place(), **options)
        frame: DataFrame = reader.load(self.path)
        return frame

    def _place(self) -> dict[str, str]:
        """The options that say where the dataset is."""
        kept = {key: str(one) for key, one in self.options.items() if key.startswith(PREFIX)}
        return kept if self.catalog is None else {**kept, "catalog": self.catalog}

    def read(self) -> TargetRows:
        """The rows, with copies of all columns under names of plake's own."""
        from pyspark.sql import functions as F

        loaded = self.load(metadataColumns="true")
        columns: dict[str, Any] = {}
        told: dict[str, Any] = {}
        for field in loaded.schema.fields:
            own = (field.metadata or {}).get(MetadataKey.COLUMN)
            if own is None:
                columns[field.name] = field.dataType
            else:
                told[own] = field
        copies = [F.col(quoted(name)).alias(copy_of(i)) for i, name in enumerate(columns)]
        copies += [F.col(quoted(told[name].name)).alias(OWN + name) for name in _PLACE]
        frame = loaded.select(*[F.col(quoted(name)) for name in columns], *copies)
        return TargetRows(
            frame.alias(self.name),
            columns,
            {name: told[name].name for name in _PLACE},
            told[MetadataColumn.FILE].metadata[MetadataKey.VERSION],
        )

    def write(
        self,
        read: TargetRows,
        command: str,
        frame: DataFrame,
        operation: Column,
        values: Sequence[Column] = (),
    ) -> None:
        """Commit what becomes of rows: the operation of each, and its columns but for a DELETE."""
        from pyspark.sql import functions as F

        place = [F.col(OWN + name).alias(read.names[name]) for name in _PLACE]
        rows = frame.select(operation.cast("int").alias(Row.OPERATION), *values, *place)
        options = {key: str(one) for key, one in self.options.items()} | self._place()
        options |= {ROW_CHANGES: command, BASE_VERSION: str(read.version)}
        rows.write.format("plake").mode("append").options(**options).save(self.path)


@dataclass(frozen=True)
class TargetRows:
    """The target of one statement: its rows, the types of its columns, and its version.

    `names` are the writer's names for the columns of `_PLACE`.
    """

    frame: DataFrame
    columns: dict[str, Any]
    names: dict[str, str]
    version: int

    def where(self, condition: Expression | None) -> DataFrame:
        return self.frame if condition is None else self.frame.where(column(condition))

    def assigned(
        self, given: Assignments, alias: str, *, inserted: bool = False
    ) -> dict[str, Column]:
        """The values by the names of the dataset's columns. `inserted`: there is no old row."""
        from pyspark.sql import functions as F

        trees: dict[str, Any] = {}
        for key, value in given.items():
            path = find(key.removeprefix(f"{alias}.").strip("`"), self.columns)
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
            place_at(trees, path, column(value), key)
        places = {name: place for place, name in enumerate(self.columns)}
        return {
            name: replaced(tree, name, self.columns[name], F.col(copy_of(places[name])))
            if isinstance(tree, dict)
            else tree
            for name, tree in trees.items()
        }


def not_empty(values: Assignments | None) -> Assignments:
    if not values:
        raise InvalidOptionError(option="set", reason="is missing: name columns and their values.")
    return values


def copy_of(place: int) -> str:
    """The name of the copy of a column of the dataset."""
    return f"{OWN}t{place}"


def column(expression: Expression) -> Column:
    from pyspark.sql import functions as F

    return F.expr(expression) if isinstance(expression, str) else expression


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
                    set_to = as_type(chosen, set_to, type_)
                elif clause.operation == INSERTED:
                    set_to = F.lit(None).cast(type_)
                else:
                    set_to = F.col(copy_of(place))
                value = value.when(which == i, set_to)
            result.append(value.alias(name))
        return result
