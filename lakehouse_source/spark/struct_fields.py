"""Door. Fields of structs in Spark's types: found by name, and replaced in a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakehouse_source.schema.fields import find_name

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField


def find(name: str, columns: Mapping[str, Any]) -> list[StructField]:
    """The column of a name, or the fields down to a field of a struct; empty: there is none.

    A dot may be part of a name. The longest name is taken first.
    """
    from pyspark.sql.types import StructField, StructType

    parts = name.split(".")
    for taken in range(len(parts), 0, -1):
        found = find_name(".".join(parts[:taken]), columns)
        if found is None:
            continue
        field = StructField(found, columns[found])
        if taken == len(parts):
            return [field]
        if isinstance(field.dataType, StructType):
            children = {child.name: child.dataType for child in field.dataType.fields}
            below = find(".".join(parts[taken:]), children)
            if below:
                return [field, *below]
    return []


def replaced(tree: Mapping[str, Any], type_: Any, before: Column) -> Column:
    """The struct `before` with other values of some fields. A NULL struct becomes a struct.

    Source: Spark, `AssignmentUtils`.
    """
    from pyspark.sql import functions as F

    fields = []
    for child in type_.fields:
        old = before.getField(child.name)
        new = tree.get(child.name)
        if new is None:
            value = old
        else:
            value = replaced(new, child.dataType, old) if isinstance(new, dict) else new
        fields.append(value.cast(child.dataType).alias(child.name))
    return F.struct(*fields)
