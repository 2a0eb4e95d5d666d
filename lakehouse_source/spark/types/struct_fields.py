"""Door. Structs in Spark's types: finds their fields by name, and gives them new values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language.tree.find_path import find_path
from lakehouse_source.schema.fields import find_name
from lakehouse_source.write.statements.struct_values import struct_with

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField


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
