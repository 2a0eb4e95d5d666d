"""Pure. Values as Iceberg stores them: bounds as bytes, partition values for Avro and JSON.

Source: Apache Iceberg, table specification, Appendix D (single-value serialization).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from lakehouse_source.model import ColumnBounds, Ordinal
from lakehouse_source.schema.ordinal import domain, from_ordinal
from lakehouse_source.schema.types import card

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
