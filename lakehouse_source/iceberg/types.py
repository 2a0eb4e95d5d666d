"""Pure. Schemas and values in Iceberg's form, and what Iceberg cannot express.

A type, or a file written under another schema, is refused if a reader of Iceberg might read other
values than plake.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as t

from lakehouse_source.errors import IcebergUnsupportedError
from lakehouse_source.model import ColumnBounds, Ordinal
from lakehouse_source.schema.defaults import initial_ordinals
from lakehouse_source.schema.fields import (
    CHAR_VARCHAR,
    SPARK_METADATA,
    SPARK_TYPE,
    children,
    field_id,
    has_collation,
    is_list_like,
    is_same_kind,
)
from lakehouse_source.schema.ordinal import domain, from_ordinal
from lakehouse_source.schema.paths import walk
from lakehouse_source.schema.types import card

_CAST = "Use another type, or leave the column out in a dataset for other engines."
_REWRITE = "Rewrite the rows: compact() does this for small files; or copy them to a new dataset."


def iceberg_schema(schema: pa.Schema, schema_id: int, dataset: str) -> dict[str, Any]:
    """The JSON of a schema.

    Raises:
        IcebergUnsupportedError: a column has a type that Iceberg cannot express.
    """
    fields = [_field(field, (field.name,), dataset) for field in schema]
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def _field(field: pa.Field, path: tuple[str, ...], dataset: str) -> dict[str, Any]:
    return {
        "id": _id(field, path, dataset),
        "name": field.name,
        "required": not field.nullable,
        "type": _type(field, path, dataset),
    }


def _id(field: pa.Field, path: tuple[str, ...], dataset: str) -> int:
    identity = field_id(field)
    if identity is None:
        raise refused(dataset, path, "has no field id", "The catalog was damaged.")
    return identity


def _type(field: pa.Field, path: tuple[str, ...], dataset: str) -> Any:
    type_ = field.type
    _check_spark_type(field, path, dataset)
    below = children(type_)
    if t.is_struct(type_):
        if not below:
            raise refused(dataset, path, "is a struct without fields", _CAST)
        fields = [_field(one, (*path, one.name), dataset) for one in below]
        return {"type": "struct", "fields": fields}
    if t.is_map(type_):
        key, value = below
        return {
            "type": "map",
            "key-id": _id(key, (*path, "key"), dataset),
            "key": _type(key, (*path, "key"), dataset),
            "value-id": _id(value, (*path, "value"), dataset),
            "value": _type(value, (*path, "value"), dataset),
            "value-required": not value.nullable,
        }
    if is_list_like(type_):
        inner = (*path, "element")
        return {
            "type": "list",
            "element-id": _id(below[0], inner, dataset),
            "element": _type(below[0], inner, dataset),
            "element-required": not below[0].nullable,
        }
    name = card(type_).iceberg
    if name is None:
        raise refused(dataset, path, f"has type {type_}, which Iceberg cannot express", _CAST)
    return name


def _check_spark_type(field: pa.Field, path: tuple[str, ...], dataset: str) -> None:
    """Refuse types that only Spark's own readers see in the stored values."""
    metadata = field.metadata or {}
    if SPARK_TYPE in metadata and not has_collation(field):
        said = metadata[SPARK_TYPE].decode(errors="replace")
        raise refused(
            dataset, path, f"has Spark's type {said}, which Iceberg cannot express", _CAST
        )
    text = json.loads(metadata.get(SPARK_METADATA, b"{}")).get(CHAR_VARCHAR, "")
    if str(text).lower().startswith("char("):
        raise refused(dataset, path, f"is {text}, which Spark pads and Iceberg does not", _CAST)


def refused(
    dataset: str, path: Sequence[str], reason: str, hint: str = _REWRITE
) -> IcebergUnsupportedError:
    """The error for a column that readers of Iceberg cannot read."""
    return IcebergUnsupportedError(dataset=dataset, column=".".join(path), reason=reason, hint=hint)


# --- files of other schemas -----------------------------------------------------------


def check_files(written: pa.Schema, schema: pa.Schema, dataset: str) -> None:
    """Check that readers of Iceberg read files of one schema rightly under another one.

    Raises:
        IcebergUnsupportedError: a column has a promotion that Iceberg lacks, or a default that the
            files do not store.
    """
    if written is schema:
        return
    by_id = dict(_by_id(written))
    for field_path, field in walk(schema):
        _check_file_field(field, field_path, by_id, dataset)
    lacking = initial_ordinals(schema).keys() - by_id.keys()
    for field_path, field in walk(schema):
        if field_id(field) in lacking:
            reason = "has a default for rows of files that lack it, which not every reader knows"
            raise refused(dataset, field_path, reason)


def _check_file_field(
    field: pa.Field, path: tuple[str, ...], by_id: Mapping[int, pa.Field], dataset: str
) -> None:
    stored = by_id.get(field_id(field) or 0)
    if stored is None:
        return
    if t.is_struct(field.type) and t.is_struct(stored.type):
        inside = {field_id(one) for one in children(stored.type)}
        if not inside & {field_id(one) for one in children(field.type)}:
            reason = "is a struct, and older files store none of its present fields"
            raise refused(dataset, path, reason)
    elif children(field.type) or children(stored.type):
        if not is_same_kind(field.type, stored.type):
            raise refused(dataset, path, f"was {stored.type} and is {field.type}")
    elif not _reads_as(stored.type, field.type):
        reason = (
            f"was {stored.type} and is {field.type}: files have the old type, and Iceberg has no "
            "such promotion"
        )
        raise refused(dataset, path, reason)


def _reads_as(stored: pa.DataType, now: pa.DataType) -> bool:
    before, after = card(stored).iceberg, card(now).iceberg
    if before is None or after is None:
        return False
    if t.is_decimal128(stored) and t.is_decimal128(now):
        return bool(stored.scale == now.scale and stored.precision <= now.precision)
    return before == after or (before, after) in (("int", "long"), ("float", "double"))


def _by_id(schema: pa.Schema) -> Iterator[tuple[int, pa.Field]]:
    for _path, field in walk(schema):
        identity = field_id(field)
        if identity is not None:
            yield identity, field


def same_bounds(one: pa.Schema, other: pa.Schema) -> bool:
    """Tell whether bounds that were written under one schema are right under another one.

    They are right if each column has the same Iceberg type under both.
    """
    mine, theirs = dict(_by_id(one)), dict(_by_id(other))
    return all(
        card(mine[id].type).iceberg == card(theirs[id].type).iceberg
        for id in mine.keys() & theirs.keys()
    )


# --- partitions and names ---------------------------------------------------------------


def partition_spec(schema: pa.Schema, names: Sequence[str]) -> list[dict[str, Any]]:
    """The JSON of the partition fields: each column by its value."""
    return [
        {
            "source-id": field_id(schema.field(name)),
            "field-id": 1000 + position,
            "name": name,
            "transform": "identity",
        }
        for position, name in enumerate(names)
    ]


def name_mapping(
    schemas: Mapping[int, pa.Schema], partition_by: Sequence[str], dataset: str
) -> list[dict[str, Any]]:
    """How columns of files without field ids are found: the names of each id.

    `schemas` are those that such files were added under, by version.

    Raises:
        IcebergUnsupportedError: one name means two columns, in files of several schemas.
    """
    found: dict[tuple[str, ...], int] = {}
    for schema in schemas.values():
        for path, field in walk(schema):
            identity = field_id(field) or 0
            if found.setdefault(path, identity) != identity:
                reason = (
                    "is the name of two columns in files that were added under different schemas"
                )
                raise refused(dataset, path, reason, "Add such files as copies with plake's ids.")
    return _mapped(found, (), frozenset(partition_by))


def _mapped(
    found: Mapping[tuple[str, ...], int], above: tuple[str, ...], without: frozenset[str]
) -> list[dict[str, Any]]:
    names: dict[int, list[str]] = {}
    for path, identity in found.items():
        if path[:-1] == above and path[-1] not in without:
            names.setdefault(identity, []).append(path[-1])
    result = []
    for identity, some in names.items():
        one: dict[str, Any] = {"field-id": identity, "names": some}
        below = _merged(_mapped(found, (*above, name), frozenset()) for name in some)
        if below:
            one["fields"] = below
        result.append(one)
    return result


def _merged(parts: Iterator[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The fields below several names of one field: each id once."""
    by_id: dict[int, dict[str, Any]] = {}
    for part in parts:
        for one in part:
            known = by_id.setdefault(one["field-id"], one)
            if known is not one:
                known["names"] = list(dict.fromkeys([*known["names"], *one["names"]]))
                below = _merged(iter([known.get("fields", []), one.get("fields", [])]))
                if below:
                    known["fields"] = below
    return list(by_id.values())


# --- Values as Iceberg stores them: bounds as bytes, partition values for Avro and JSON.
#
# Source: Apache Iceberg, table specification, Appendix D (single-value serialization).


_LONGS = ("time", "timestamp", "timestamptz")
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
# By Iceberg's names: the form of a value's bytes, and the type in Avro.
_FORMS: Mapping[str, tuple[str, Any]] = {
    "boolean": ("<?", "boolean"),
    "int": ("<i", "int"),
    "long": ("<q", "long"),
    "float": ("<f", "float"),
    "double": ("<d", "double"),
    "date": ("<i", {"type": "int", "logicalType": "date"}),
    "time": ("<q", {"type": "long", "logicalType": "time-micros"}),
    "timestamp": ("<q", {**_MICROS, "adjust-to-utc": False}),
    "timestamptz": ("<q", {**_MICROS, "adjust-to-utc": True}),
    "string": ("", "string"),
    "binary": ("", "bytes"),
}


def microseconds(ordinal: int, type_: pa.DataType) -> int:
    """A temporal ordinal of a type with a unit, in microseconds."""
    return ordinal * domain(type_).unit_ns // 1000


def encoder(type_: pa.DataType) -> Callable[[Ordinal], bytes]:
    """A function that makes the bytes of a value of a type.

    It raises `struct.error` or `OverflowError` if the value does not fit Iceberg's type.
    """
    name = card(type_).iceberg or ""
    if name.startswith("decimal"):
        return lambda value: _unscaled(int(value))
    form, _ = _FORMS.get(name, ("", None))
    if not form:
        return lambda value: value if isinstance(value, bytes) else b""
    pack = struct.Struct(form).pack
    if name in _LONGS:
        return lambda value: pack(microseconds(int(value), type_))
    return pack


def _unscaled(value: int) -> bytes:
    """The fewest bytes of a number in two's complement, big-endian."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(size, "big", signed=True)


def bounds_encoder(
    type_: pa.DataType,
) -> Callable[[ColumnBounds], tuple[bytes | None, bytes | None]]:
    """A function that makes the bytes of a column's lower and upper bound; None: unknown.

    NaN is greater than every number for Spark, but readers of Iceberg prune by an upper bound
    without NaN: if NaN may occur, the bound is left out. A lower bound of zero becomes -0.0, which
    the specification orders before 0.0. A text that the index cut within a character is repaired.
    """
    encode, kind = encoder(type_), domain(type_).kind

    def encoded(known: ColumnBounds) -> tuple[bytes | None, bytes | None]:
        return _bytes(known.lower, encode), _bytes(known.upper, encode)

    def of_floats(known: ColumnBounds) -> tuple[bytes | None, bytes | None]:
        upper = None if known.may_contain_nan else known.upper
        return (
            _bytes(-0.0 if known.lower == 0 else known.lower, encode),
            _bytes(0.0 if upper == 0 else upper, encode),
        )

    def of_texts(known: ColumnBounds) -> tuple[bytes | None, bytes | None]:
        lower, upper = known.lower, known.upper
        return (
            lower.decode(errors="ignore").encode() if isinstance(lower, bytes) else None,
            upper if isinstance(upper, bytes) and _is_text(upper) else None,
        )

    return {"float": of_floats, "string": of_texts}.get(kind, encoded)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes(value: Ordinal | None, encode: Callable[[Ordinal], bytes]) -> bytes | None:
    if value is None:
        return None
    try:
        return encode(value)
    except (struct.error, OverflowError):
        return None


def avro_value(ordinal: Ordinal | None, type_: pa.DataType) -> Any:
    """A partition value as Avro stores it; None is NULL."""
    if ordinal is None:
        return None
    name = card(type_).iceberg
    if name == "boolean":
        return bool(ordinal)
    if name in _LONGS:
        return microseconds(int(ordinal), type_)
    if isinstance(ordinal, bytes):
        return ordinal.decode() if name == "string" else ordinal
    if name is not None and name.startswith("decimal"):
        return int(ordinal).to_bytes(_decimal_bytes(type_.precision), "big", signed=True)
    return ordinal


def _decimal_bytes(precision: int) -> int:
    """How many bytes a decimal of this many digits takes."""
    return (int(10**precision) - 1).bit_length() // 8 + 1


def avro_type(type_: pa.DataType, name: str) -> Any:
    """The Avro type of a partition column. `name` makes the names of fixed types unique."""
    kind = card(type_).iceberg or ""
    if kind in _FORMS:
        return _FORMS[kind][1]
    if kind.startswith("decimal"):
        return {
            "type": "fixed",
            "name": f"decimal_{name}",
            "size": _decimal_bytes(type_.precision),
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    return {"type": "fixed", "name": f"fixed_{name}", "size": type_.byte_width}


def json_value(ordinal: Ordinal | None, type_: pa.DataType) -> Any:
    """A partition value as the REST catalog's JSON has it; None is NULL."""
    if ordinal is None:
        return None
    value = from_ordinal(ordinal, type_)
    name = card(type_).iceberg
    if isinstance(value, bytes):
        return value.hex().upper()
    if name in ("boolean", "int", "long", "string"):
        return value
    if name in ("float", "double"):
        number = float(value)  # type: ignore[arg-type]
        return number if number - number == 0 else repr(number)
    if isinstance(value, int) or not hasattr(value, "isoformat"):
        return str(value)  # a decimal, or a time that Python's types have no room for
    return value.isoformat()
