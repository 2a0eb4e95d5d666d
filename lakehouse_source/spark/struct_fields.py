"""Door. Structs in Spark's types: their fields are found by name, and get other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakehouse_source.predicate.find_path import find_path
from lakehouse_source.write.struct_values import struct_with

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField


def find(name: str, columns: Mapping[str, Any]) -> list[StructField] | None:
    """The column of a name, or the fields down to a field of a struct, or None.

    A dot may be part of a name. The longest name is taken first.
    """
    from pyspark.sql.types import StructField

    fields = [StructField(column, type_) for column, type_ in columns.items()]
    return find_path(fields, (name,), dotted=True, below=_Columns().children)


def replaced(tree: Mapping[str, Any], name: str, type_: Any, before: Column) -> Column:
    """The column `before`, a struct, with other values of some fields; see `struct_with`."""
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

        return F.struct(*(value.cast(field.dataType).alias(field.name) for field, value in values))
