"""Door. The dataset whose rows a statement on frames changes: as it is read, and written again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark.protocol.vocabulary import MetadataColumn, Row
from lakehouse_source.spark.session.options import BASE_VERSION, ROW_CHANGES, MetadataKey
from lakehouse_source.spark.session.storage_options import PREFIX
from lakehouse_source.spark.types import struct_fields
from lakehouse_source.spark.types.to_spark_sql import quoted
from lakehouse_source.write.statements.struct_values import place_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
            place_at(trees, path, column(value), key)
        places = {name: place for place, name in enumerate(self.columns)}
        return {
            name: struct_fields.replaced(
                tree, name, self.columns[name], F.col(copy_of(places[name]))
            )
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
