"""Pure. Values of VARIANT: Python objects and JSON as the bytes of one value.

A value is two byte strings: `metadata`, the dictionary of the names of its fields, and `value`.
JSON text becomes what Spark's `parse_json` makes of it: numbers with a point are DECIMAL if they
have at most 38 digits, numbers with an exponent are DOUBLE, and duplicate keys are refused.

Source: Parquet format, VariantEncoding.md.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.schema.json_values import moment_of, plain

Bytes: TypeAlias = "tuple[bytes, bytes]"

# Spark writes no larger values. A level takes up to three of Python's 1,000 frames.
MOST_BYTES = 16 * 1024 * 1024
MOST_DEPTH = 200
PRIMITIVE, SHORT_TEXT, OBJECT, ARRAY = range(4)
# Numbers of the primitive types.
NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE = range(8)
DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY = range(8, 16)
TEXT, TIME, TIMESTAMP_NS, TIMESTAMP_NTZ_NS, UUID = range(16, 21)
INTEGERS = {INT8: 1, INT16: 2, INT32: 4, INT64: 8}
DECIMALS = {DECIMAL4: (4, 9), DECIMAL8: (8, 18), DECIMAL16: (16, 38)}
MOMENTS = {TIMESTAMP: 1000, TIMESTAMP_NTZ: 1000, TIMESTAMP_NS: 1, TIMESTAMP_NTZ_NS: 1}
ZONED = (TIMESTAMP, TIMESTAMP_NS)
SIZES = {**INTEGERS, DOUBLE: 8, FLOAT: 4, DATE: 4, TIME: 8, UUID: 16}
SIZES |= dict.fromkeys(MOMENTS, 8)
DIGITS = 38
EPOCH, EPOCH_DATE = datetime(1970, 1, 1), date(1970, 1, 1)
EMPTY_METADATA = b"\x11\x00\x00"


def encode(value: Any) -> Bytes:
    """`metadata` and `value` of a Python object; None is JSON's null.

    Raises:
        InvalidOptionError: a part of the object has no value of VARIANT, or it is too large.
    """
    names: set[str] = set()
    _collect(value, names, 0)
    texts = sorted(_utf8(name) for name in names)
    ids = {text.decode(): at for at, text in enumerate(texts)}
    metadata = metadata_bytes(texts) if texts else EMPTY_METADATA
    body = _encoded(value, ids)
    if max(len(metadata), len(body)) > MOST_BYTES:
        raise _no_value(
            value, f"takes {max(len(metadata), len(body)):,} bytes; at most {MOST_BYTES:,} are kept"
        )
    return metadata, body


def encode_json(text: str) -> Bytes:
    """`metadata` and `value` of a JSON text.

    Raises:
        InvalidOptionError: the text is no JSON, has a key twice, or is too large.
    """
    try:
        found = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_int=_json_integer,
            parse_float=_json_number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError, TypeError) as error:
        raise _no_value(text, f"is not JSON: {error}") from error
    return encode(found)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(one for one, other in pairwise(names) if one == other)
        raise ValueError(f"an object has the key {twice!r} twice")
    return found


def _json_integer(text: str) -> Any:
    if len(text) < 19 or (len(text) < 21 and -(1 << 63) <= int(text) < 1 << 63):
        return int(text)
    return _json_number(text)


def _json_number(text: str) -> Any:
    if "e" not in text and "E" not in text:
        whole, _, fraction = text.lstrip("-").partition(".")
        if len(fraction) <= DIGITS and len((whole + fraction).lstrip("0")) <= DIGITS:
            return Decimal(text)
    return float(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _no_value(value: Any, reason: str) -> InvalidOptionError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return InvalidOptionError(option="values", reason=f"{shown} {reason}.")


class _WithNanoseconds(datetime):
    """A moment as a Timestamp of pandas has it."""

    nanosecond = 0


def python_value(value: Any) -> Any:
    """A value of NumPy or pandas as Python's. A moment may have nanoseconds, as that of pandas.

    Raises:
        InvalidOptionError: Python has none.
    """
    try:
        return plain(value)
    except ValueError as error:
        reason = str(error)
        with suppress(ValueError):
            if value.dtype.kind == "M":
                moment, nanos = moment_of(value[()])
                found = _WithNanoseconds.combine(moment.date(), moment.time())
                found.nanosecond = nanos
                return found
    raise _no_value(value, reason)


def _collect(value: Any, names: set[str], depth: int) -> None:
    value = python_value(value)
    if depth > MOST_DEPTH:
        raise _no_value("a value", f"is nested deeper than {MOST_DEPTH} levels")
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                raise _no_value(name, f"is a key of Python's type {type(name).__name__}, not str")
            names.add(name)
            _collect(part, names, depth + 1)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, names, depth + 1)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _no_value(text, "has half of a surrogate pair, which UTF-8 does not have") from error


def _width(largest: int) -> int:
    return max(1, (largest.bit_length() + 7) // 8)


def _offsets(parts: Sequence[bytes], width: int) -> bytes:
    found, at = [(0).to_bytes(width, "little")], 0
    for part in parts:
        at += len(part)
        found.append(at.to_bytes(width, "little"))
    return b"".join(found)


def metadata_bytes(texts: Sequence[bytes], *, is_sorted: bool = True) -> bytes:
    """A dictionary of names."""
    size = sum(map(len, texts))
    if size > MOST_BYTES:
        raise _no_value("a value", f"has names of {size:,} bytes; at most {MOST_BYTES:,} are kept")
    width = _width(max(size, len(texts)))
    head = bytes(((width - 1) << 6 | is_sorted << 4 | 1,)) + len(texts).to_bytes(width, "little")
    return b"".join((head, _offsets(texts, width), *texts))


def _encoded(value: Any, ids: Mapping[str, int]) -> bytes:
    value = python_value(value)
    if isinstance(value, Mapping):
        # The ids have the order of their names.
        return object_bytes(
            sorted((ids[name], _encoded(part, ids)) for name, part in value.items())
        )
    if isinstance(value, (list, tuple)):
        return array_bytes([_encoded(part, ids) for part in value])
    return leaf_bytes(value)


def object_bytes(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """An object from the ids and the bytes of its fields, which are in the order of their names."""
    parts = [part for _, part in fields]
    offset_width = _width(sum(map(len, parts)))
    id_width = _width(max((id for id, _ in fields), default=0))
    is_large = len(parts) > 0xFF
    head = (is_large << 4 | (id_width - 1) << 2 | offset_width - 1) << 2 | OBJECT
    count = len(parts).to_bytes(4 if is_large else 1, "little")
    numbers = b"".join(id.to_bytes(id_width, "little") for id, _ in fields)
    return b"".join((bytes((head,)), count, numbers, _offsets(parts, offset_width), *parts))


def array_bytes(parts: Sequence[bytes]) -> bytes:
    """An array from the bytes of its elements."""
    width, is_large = _width(sum(map(len, parts))), len(parts) > 0xFF
    head = (is_large << 2 | width - 1) << 2 | ARRAY
    count = len(parts).to_bytes(4 if is_large else 1, "little")
    return b"".join((bytes((head,)), count, _offsets(parts, width), *parts))


def primitive(type_: int, content: bytes = b"") -> bytes:
    """A value of a primitive type, by its number."""
    return bytes((type_ << 2,)) + content


def leaf_bytes(value: Any) -> bytes:
    """A value that has no parts."""
    if value is None:
        return primitive(NULL)
    if isinstance(value, bool):
        return primitive(TRUE if value else FALSE)
    if isinstance(value, str):
        text = _utf8(value)
        if len(text) < 64:
            return bytes((len(text) << 2 | SHORT_TEXT,)) + text
        return primitive(TEXT, len(text).to_bytes(4, "little") + text)
    if isinstance(value, int):
        for type_, width in INTEGERS.items():
            if -(1 << (8 * width - 1)) <= value < 1 << (8 * width - 1):
                return primitive(type_, value.to_bytes(width, "little", signed=True))
        return _encoded_decimal(Decimal(value))
    if isinstance(value, float):
        return primitive(DOUBLE, struct.pack("<d", value))
    if isinstance(value, Decimal):
        return _encoded_decimal(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        content = bytes(value)
        return primitive(BINARY, len(content).to_bytes(4, "little") + content)
    if isinstance(value, datetime):
        return _encoded_moment(value)
    if isinstance(value, date):
        return primitive(DATE, struct.pack("<i", (value - EPOCH_DATE).days))
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise _no_value(value, "has a time zone, which a TIME has not")
        gone = datetime.combine(EPOCH_DATE, value) - EPOCH
        return primitive(TIME, struct.pack("<q", gone // timedelta(microseconds=1)))
    if isinstance(value, uuid.UUID):
        return primitive(UUID, value.bytes)
    raise _no_value(value, f"is of Python's type {type(value).__name__}, which VARIANT has not")


def _encoded_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        raise _no_value(value, "is no number that a DECIMAL holds; give a float")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) + max(0, exponent) <= 2 * DIGITS and -exponent <= DIGITS:
        unscaled = int("".join(map(str, digits))) * 10 ** max(0, exponent)
        scale = max(0, -exponent)
        for type_, (width, most) in DECIMALS.items():
            if unscaled < 10**most and scale <= most:
                content = (-unscaled if sign else unscaled).to_bytes(width, "little", signed=True)
                return primitive(type_, bytes((scale,)) + content)
    raise _no_value(value, f"has more than {DIGITS} digits; give a float or a text")


def _encoded_moment(value: datetime) -> bytes:
    zoned = value.tzinfo is not None
    try:
        wall = value.astimezone(timezone.utc).replace(tzinfo=None) if zoned else value
    except OverflowError:
        raise _no_value(value, "is outside of the years 1 to 9999 in UTC") from None
    micros = (wall - EPOCH) // timedelta(microseconds=1)
    nanos = int(getattr(value, "nanosecond", 0))  # of a pandas Timestamp
    if nanos:
        type_ = TIMESTAMP_NS if zoned else TIMESTAMP_NTZ_NS
        return primitive(type_, struct.pack("<q", micros * 1000 + nanos))
    return primitive(TIMESTAMP if zoned else TIMESTAMP_NTZ, struct.pack("<q", micros))
