"""Door. Converts Spark's types to dataset types and back, and values to Spark's texts.

Arrow has no type for collations, the fields of intervals, and vectors and matrices of Spark ML.
These, and the metadata of columns, are stored as Spark's own JSON in the metadata of the Arrow
field. So a frame is read with the types that it was written with. Its columns become nullable, as
in Delta and in plain Parquet.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    VarcharType,
    VariantType,
    _parse_datatype_json_value,
)

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.language.types import spark_type
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.align import by_name, narrowed
from lakehouse_source.schema.defaults import computed
from lakehouse_source.schema.fields import (
    CHAR_VARCHAR,
    SPARK_METADATA,
    SPARK_TYPE,
    children,
    find_field,
    is_list_like,
    is_nested,
    map_children,
    nullable_field,
    rebuild,
    with_metadata,
    without_metadata,
)
from lakehouse_source.schema.merge import dataframe_schema, storage_schema
from lakehouse_source.schema.ordinal import domain, from_ordinal
from lakehouse_source.schema.variant import VARIANT, is_variant

# Spark keeps defaults of columns in their metadata; plake keeps them as values.
SPARK_DEFAULTS = frozenset({"CURRENT_DEFAULT", "EXISTS_DEFAULT"})

_LENGTHS = (CharType, VarcharType)
_LENGTH = re.compile(r"\b(?:var)?char\(\d+\)")

# Types of Spark's own libraries, by their classes in the JVM and in Python. Other user types are
# kept only as their stored types: to read them back, Spark would import and run any class that the
# catalog names.
_OF_SPARK = [
    [f"org.apache.spark.{library}.linalg.{name}", f"pyspark.{library}.linalg.{name}"]
    for library in ("ml", "mllib")
    for name in ("VectorUDT", "MatrixUDT")
]
_UDT_KEYS = {"type", "class", "pyClass", "sqlType"}

# Keys are Spark's type names: this PySpark may lack the class of a newer type.
_REFUSED = {
    "time": "Cast it to a string.",
    "void": "Cast it to the type it stands for.",
    "interval": "Cast it to a string.",
    "geometry": "Store it as binary (ST_AsBinary).",
    "geography": "Store it as binary (ST_AsBinary).",
    "object": "Drop it.",
}


def arrow_schema(spark: StructType) -> pa.Schema:
    """The schema in which a frame's rows are stored, marked by `dataframe_schema`.

    Raises:
        SchemaMismatchError: a column has a type that cannot be stored.
    """
    for field in spark.fields:
        _check(field.dataType, field.name)
    fields = []
    for field in _plain(spark, _is_strange).fields:
        # PySpark cannot read char and varchar from a Python source. Spark's own tables store these
        # types in this form too, and Spark uses it to pad values and check lengths.
        plain = _plain(StructType([field]), _has_length).fields[0]
        kept = {k: v for k, v in (field.metadata or {}).items() if k not in SPARK_DEFAULTS}
        if plain.dataType != field.dataType:
            kept[CHAR_VARCHAR] = field.dataType.simpleString()
        extra: dict[bytes, bytes] = {}
        if any(_is_special(part) for part in _parts(plain.dataType)):
            extra[SPARK_TYPE] = plain.dataType.json().encode()
        if kept:
            extra[SPARK_METADATA] = json.dumps(kept).encode()
        arrow = _with_variants(batch_schema(_plain(StructType([plain]), _is_user_defined)).field(0))
        arrow = arrow.with_type(_marked(arrow.type, field.dataType))
        fields.append(with_metadata(arrow, extra) if extra else arrow)
    return dataframe_schema(pa.schema(fields))


def spark_schema(arrow: pa.Schema) -> StructType:
    """The Spark schema of a dataset.

    Raises:
        SchemaMismatchError: a column has a type that Spark does not know.
    """
    fields = []
    for field in arrow:
        metadata = field.metadata or {}
        type_ = _own_type(metadata.get(SPARK_TYPE), field)
        if type_ is None:
            type_ = _from_arrow(field.type, field.name)
        kept = json.loads(metadata[SPARK_METADATA]) if SPARK_METADATA in metadata else None
        if kept is not None:  # Spark would run code that a stranger's catalog has there
            kept = {key: value for key, value in kept.items() if key not in SPARK_DEFAULTS}
        if is_nested(field.type):
            kept = _with_lengths_inside(kept, type_, field)
        # Spark hands over NULL where a statement names no value.
        nullable = field.nullable or computed(field) is not None
        fields.append(StructField(field.name, type_, nullable, kept))
    return StructType(fields)


def _marked(type_: pa.DataType, spark: DataType) -> pa.DataType:
    """The type, whose nested fields have Spark types for which Arrow has no name.

    The Spark type of the top-level field holds until a field inside it is added, renamed or
    dropped.
    """
    if not is_nested(type_) or _is_user_defined(spark):
        return type_
    fields = []
    for child, part in zip(children(type_), _children(spark)):
        child = child.with_type(_marked(child.type, part))
        is_leaf = not is_nested(child.type) or _is_user_defined(part)
        if is_leaf and (_is_special(part) or _has_length(part)):
            child = with_metadata(child, {SPARK_TYPE: part.json().encode()})
        fields.append(child)
    return rebuild(type_, fields)


def _children(spark: DataType) -> list[DataType]:
    """The types inside of a type, in the order of Arrow's child fields."""
    if isinstance(spark, StructType):
        return [field.dataType for field in spark.fields]
    if isinstance(spark, ArrayType):
        return [spark.elementType]
    return [spark.keyType, spark.valueType] if isinstance(spark, MapType) else []


def _rebuilt(spark: DataType, parts: list[DataType], arrow: pa.DataType | None = None) -> DataType:
    """A type with other types inside of it; `arrow`, if given, decides what in it may be NULL."""
    if isinstance(spark, StructType):
        nullable = [one.nullable for one in (spark.fields if arrow is None else arrow)]
        fields = zip(spark.fields, parts, nullable)
        return StructType([StructField(f.name, part, null, f.metadata) for f, part, null in fields])
    if isinstance(spark, ArrayType):
        has_null = spark.containsNull if arrow is None else arrow.value_field.nullable
        return ArrayType(parts[0], has_null)
    if isinstance(spark, MapType):
        has_null = spark.valueContainsNull if arrow is None else arrow.item_field.nullable
        return MapType(parts[0], parts[1], has_null)
    return spark


def _with_lengths_inside(
    kept: dict[str, Any] | None, type_: DataType, field: pa.Field
) -> dict[str, Any] | None:
    """A nested column's metadata, with the present lengths of its texts."""
    others = {key: value for key, value in (kept or {}).items() if key != CHAR_VARCHAR}
    lengths = _with_lengths(type_, field.type)
    if lengths != type_:
        return {**others, CHAR_VARCHAR: lengths.simpleString()}
    before = (kept or {}).get(CHAR_VARCHAR)
    # Earlier versions marked no nested fields. If these fields no longer match the text, Spark
    # would use it to cut and check other fields.
    if before is not None and _LENGTH.sub("string", before) == type_.simpleString():
        return kept
    return others or None


def _with_lengths(spark: DataType, arrow: pa.DataType) -> DataType:
    """The type, with char and varchar for nested fields that are marked so."""

    def inside(part: DataType, child: pa.Field) -> DataType:
        own = _marked_type(child)
        return own if isinstance(own, _LENGTHS) else _with_lengths(part, child.type)

    return _rebuilt(spark, [inside(*pair) for pair in zip(_children(spark), children(arrow))])


def _marked_type(field: pa.Field) -> DataType | None:
    """The Spark type that a nested field is marked with, unless its type changed since."""
    return _own_type((field.metadata or {}).get(SPARK_TYPE), field)


def batch_schema(spark: StructType) -> pa.Schema:
    """The Arrow schema that Spark requires of every batch of a read."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(spark, timezone="UTC")
    # Spark 4.1 has no such parameter and always uses UTC.
    return to_arrow_schema(spark)


def readable(arrow: pa.DataType) -> pa.DataType:
    """The type as which Spark reads a stored type.

    Spark has no unsigned integers, no half floats, one resolution of timestamps
    and durations, and no fixed-length binary. A VARIANT is a marked struct in its batches.
    """
    if is_variant(arrow):
        return batch_schema(StructType([StructField("v", VariantType())])).field(0).type
    if pa.types.is_duration(arrow):
        return pa.duration("us")
    below = [pa.field(one.name, readable(one.type), one.nullable) for one in children(arrow)]
    if is_list_like(arrow):
        return pa.list_(below[0])
    return rebuild(arrow, below) if below else spark_type(arrow)


def _with_variants(field: pa.Field) -> pa.Field:
    """The field of a batch of Spark's, with plake's type for the structs that Spark marks."""
    below = children(field.type)
    if any((one.metadata or {}).get(b"variant") == b"true" for one in below):
        return field.with_type(VARIANT)
    return field.with_type(map_children(field.type, _with_variants))


def _own_type(text: bytes | None, field: pa.Field) -> DataType | None:
    """The Spark type that a field was written with, unless the field's type changed since.

    The field decides what may be NULL.
    """
    if text is None:
        return None
    try:
        document = json.loads(text)
        if names_a_class(document):
            return None
        type_ = _parse_datatype_json_value(document)
        own = StructType([StructField(field.name, type_, field.nullable)])
        own = _plain(own, lambda part: _has_length(part) or _is_user_defined(part))
        then = nullable_field(storage_schema(batch_schema(own)).field(0))
    except (ImportError, ValueError, KeyError, TypeError, AttributeError):
        # Written by a Spark that has more types than this one, or with NumPy, which is missing
        # here.
        return None
    now = nullable_field(without_metadata(pa.schema([field])).field(0))
    return _nullable_like(type_, field.type) if then.equals(now) else None


def names_a_class(document: object) -> bool:
    """Tell whether Spark would import, or even unpickle, a class of strangers to parse this JSON.

    Text from the catalog must never cause this, and plake never writes such JSON.
    """
    if isinstance(document, dict):
        if document.get("type") == "udt":
            classes = [document.get("class"), document.get("pyClass")]
            return document.keys() != _UDT_KEYS or classes not in _OF_SPARK
        return any(map(names_a_class, document.values()))
    return isinstance(document, list) and any(map(names_a_class, document))


def _from_arrow(type_: pa.DataType, column: str) -> DataType:
    try:
        return _nullable_like(from_arrow_type(readable(type_), prefer_timestamp_ntz=True), type_)
    except Exception as error:
        raise SchemaMismatchError(
            column=column,
            got=type_,
            reason=f"has type {type_}, which Spark does not know",
            hint="Leave it out with option 'columns', or read the dataset from Python.",
        ) from error


def _nullable_like(spark: DataType, arrow: pa.DataType) -> DataType:
    """The type, whose nested values have their marked types and Arrow's nullability.

    Spark's conversion drops both.
    """

    def inside(part: DataType, child: pa.Field) -> DataType:
        own = _marked_type(child)
        if own is None:
            return _nullable_like(part, child.type)
        return StringType() if isinstance(own, _LENGTHS) else own

    parts = [inside(*pair) for pair in zip(_children(spark), children(arrow))]
    return _rebuilt(spark, parts, arrow)


def _parts(type_: DataType) -> Iterator[DataType]:
    """A type and everything inside it."""
    yield type_
    below = [type_.sqlType()] if isinstance(type_, UserDefinedType) else _children(type_)
    for part in below:
        yield from _parts(part)


def _is_special(type_: DataType) -> bool:
    """Tell whether a conversion to Arrow drops a part of a type.

    These are the fields of intervals (`INTERVAL DAY` becomes `DAY TO SECOND`),
    collations, vectors and matrices, and the metadata of nested fields.
    """
    if isinstance(type_, StructType) and any(field.metadata for field in type_.fields):
        return True
    if type(type_).__name__ == "DayTimeIntervalType" or _is_user_defined(type_):
        return True
    return isinstance(type_, StringType) and "collate" in type_.simpleString()


def _check(type_: DataType, column: str) -> None:
    for part in _parts(type_):
        name = part.typeName().split("(")[0]
        words = part.simpleString()
        if type(part).__name__ in ("YearMonthIntervalType", "CalendarIntervalType"):
            name = "interval"
        if name in _REFUSED:
            raise SchemaMismatchError(
                column=column,
                got=words,
                reason=f"has type {words}, which plake cannot store",
                hint=_REFUSED[name],
            )
        if isinstance(part, StructType) and not part.fields:
            raise SchemaMismatchError(
                column=column,
                got=words,
                reason="has a struct without fields, which Parquet cannot hold",
                hint="Drop it or give it a field.",
            )


def _is_user_defined(type_: DataType) -> bool:
    return isinstance(type_, UserDefinedType)


def _is_strange(type_: DataType) -> bool:
    """Tell whether a user type is not one of Spark's own."""
    if not isinstance(type_, UserDefinedType):
        return False
    name = f"{type(type_).__module__}.{type(type_).__name__}"
    return [type_.scalaUDT(), name] not in _OF_SPARK


def _has_length(type_: DataType) -> bool:
    return isinstance(type_, _LENGTHS)


def _plain(type_: StructType, is_special: Callable[[DataType], bool]) -> StructType:
    """The schema with special types replaced by the types that their values are stored in."""

    def plain(part: DataType) -> DataType:
        if is_special(part):
            return plain(part.sqlType()) if isinstance(part, UserDefinedType) else StringType()
        return _rebuilt(part, [plain(below) for below in _children(part)])

    result = plain(type_)
    assert isinstance(result, StructType)
    return result


def columns_for(spark: StructType, arrow: pa.Schema) -> list[str]:
    """The columns that a requested Spark schema names, as the dataset writes their names.

    Raises:
        SchemaMismatchError: a column is not in the dataset.
    """
    names = []
    for field in spark.fields:
        found = find_field(field.name, arrow)
        if found is None:
            raise SchemaMismatchError(
                column=field.name,
                reason="is named in schema(...) and not in the dataset",
                hint=f"It has: {', '.join(arrow.names)}.",
            )
        names.append(found.name)
    return names


def narrowed_structs(spark: StructType, arrow: pa.Schema) -> dict[str, pa.Field]:
    """For each struct of which a requested Spark schema has some fields: the struct of these."""
    found: dict[str, pa.Field] = {}
    structs = [field for field in spark.fields if isinstance(field.dataType, StructType)]
    if not structs:
        return found  # every scan calls this, and most have no struct
    for wanted in batch_schema(StructType(structs)):
        field = find_field(wanted.name, arrow)
        if field is not None:
            part = narrowed(field, wanted, by_name)
            if not part.equals(field):
                found[field.name] = part
    return found


# --- Writes names and ordinals as Spark SQL with exactly the same meaning.
#
# A literal is written in the type of its column, so Spark converts nothing. Text and bytes are
# written in hexadecimal, because a setting decides how Spark reads a backslash.


def quoted(name: str) -> str:
    """A name in backquotes, with any characters in it."""
    return "`" + name.replace("`", "``") + "`"


def literal_sql(ordinal: Ordinal | None, type_: pa.DataType) -> str:
    """An ordinal of an Arrow type as a constant of the Spark type of the column. None is NULL."""
    own = spark_schema(pa.schema([pa.field("value", readable(type_))]))[0].dataType
    name = own.simpleString()
    if ordinal is None:
        return f"CAST(NULL AS {name})"
    kind = domain(type_)
    if isinstance(ordinal, bytes):
        constant = f"X'{ordinal.hex()}'"
        return constant if kind.kind == "binary" else f"CAST({constant} AS STRING)"
    if kind.kind == "float":
        return f"CAST('{float_text(float(ordinal))}' AS {name})"
    assert not isinstance(ordinal, float)
    if kind.kind == "bool":
        return "TRUE" if ordinal else "FALSE"
    if kind.kind == "int":
        return f"CAST({ordinal} AS {name})"
    if kind.kind == "decimal":
        value = from_ordinal(ordinal, type_)
        assert isinstance(value, Decimal)
        return f"CAST('{value:f}' AS {name})"
    if kind.kind == "date":
        return f"date_from_unix_date({ordinal})"
    microseconds = ordinal * kind.unit_ns // 1000
    if kind.kind == "timestamp" and kind.zoned:
        return f"timestamp_micros({microseconds})"
    span = f"({microseconds} * INTERVAL '0.000001' SECOND)"
    return f"(TIMESTAMP_NTZ'1970-01-01' + {span})" if kind.kind == "timestamp" else span


def float_text(value: float) -> str:
    """A float as text that Spark and Java parse."""
    if value != value:
        return "NaN"
    return {float("inf"): "Infinity", -float("inf"): "-Infinity"}.get(value) or repr(value)


# --- Values as texts, from which the planner extension makes Spark's (`AggregateResponse.java`).


def as_text(value: Ordinal | None, type_: pa.DataType) -> str | None:
    """An ordinal of a stored type as the text from which the extension makes Spark's value."""
    if value is None:
        return None
    if pa.types.is_boolean(type_):
        return "true" if value else "false"
    if pa.types.is_timestamp(type_):
        return str(int(value) * (1000 if type_.unit == "ms" else 1))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return float_text(value)
    python = from_ordinal(value, type_)
    return f"{python:f}" if isinstance(python, Decimal) else str(value)
