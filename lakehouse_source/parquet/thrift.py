"""Edge. Reads and writes the Thrift structures of a Parquet file that PyArrow does not expose.

Only the compact protocol. A structure that is read becomes a dict from field id to value. Every
length and every depth is checked against the available bytes: a damaged file causes a
`ThriftError`, never a large allocation or an endless loop. A structure is written field by field;
its lists and inner structures are given as bytes.

Source: Apache Thrift, "Thrift Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Struct: TypeAlias = "dict[int, Any]"

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
_DEEPEST = 16
_LONGEST_VARINT_BYTES = 10


class ThriftError(ValueError):
    """Bytes that are not the Thrift structure that was expected."""


def read_struct(data: bytes, start: int = 0) -> tuple[Struct, int]:
    """The structure at `start`, and the position after it."""
    try:
        return _struct(data, start, 0)
    except IndexError as error:
        raise ThriftError("the data ends early") from error


def skip_value(data: bytes, kind: int, at: int) -> int:
    """The position after the value of `kind` at `at`. Builds nothing, so it is fast."""
    try:
        return _skip(data, kind, at, 0)
    except IndexError as error:
        raise ThriftError("the data ends early") from error


def read_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """The number of items of the list at `at`, their kind, and where the first one starts."""
    try:
        head = data[at]
        size, at = (head >> 4, at + 1) if head < 0xF0 else _varint(data, at + 1)
    except IndexError as error:
        raise ThriftError("the data ends early") from error
    if size > len(data) - at:
        raise ThriftError("a list is longer than the data")
    return size, head & 0x0F, at


def read_field_head(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """The id and kind of the field at `at`, and where its value starts. `last`: the id before."""
    try:
        head = data[at]
        kind = head & 0x0F
        if kind == STOP or head > 0x0F:
            return last + (head >> 4), kind, at + 1
        raw, at = _varint(data, at + 1)
    except IndexError as error:
        raise ThriftError("the data ends early") from error
    # Ids have 16 bits; other readers cut longer ones.
    return (_unzigzag(raw) + 0x8000) % 0x10000 - 0x8000, kind, at


def write_struct(fields: Iterable[tuple[int, int, int | bytes]]) -> bytes:
    """A structure as bytes.

    `fields` are (id, kind, value) by ascending id, ids less than 16 apart. An int is a
    value of an integer kind. Bytes are a value as the protocol writes it: a list, a
    structure, or bytes copied from another structure.
    """
    parts: list[bytes] = []
    last = 0
    for field, kind, value in fields:
        parts.append(bytes(((field - last) << 4 | kind,)))
        parts.append(_zigzag_varint(value) if isinstance(value, int) else value)
        last = field
    parts.append(b"\x00")
    return b"".join(parts)


def write_list(kind: int, items: Sequence[int | bytes]) -> bytes:
    """A list as bytes; its items are values as in `write_struct`."""
    count = len(items)
    head = bytes((count << 4 | kind,)) if count < 15 else bytes((0xF0 | kind,)) + _varint_of(count)
    values = [_zigzag_varint(item) if isinstance(item, int) else item for item in items]
    return b"".join((head, *values))


def write_binary(value: bytes) -> bytes:
    """A value of kind `BINARY` as bytes."""
    return _varint_of(len(value)) + value


def _zigzag_varint(value: int) -> bytes:
    return _varint_of((value << 1) ^ (value >> 63))


def _varint_of(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# The functions below rely on the bytes object to check its end: reading past the end is an
# IndexError. A length is checked before its bytes are skipped or copied.


def _struct(data: bytes, at: int, depth: int) -> tuple[Struct, int]:
    # Every page that is read, and every page of an index, goes through this loop: the commonest
    # kinds come first, and calls are few.
    if depth > _DEEPEST:
        raise ThriftError("nested too deeply")
    result: Struct = {}
    field = 0
    while True:
        head = data[at]
        at += 1
        kind = head & 0x0F
        if head > 0x0F:
            field += head >> 4
        elif kind == STOP:
            return result, at
        else:
            raw, at = _varint(data, at)
            field = _unzigzag(raw)
        if I16 <= kind <= I64:
            raw = data[at]
            at += 1
            if raw > 0x7F:
                raw, at = _varint_from(data, at, raw)
            result[field] = (raw >> 1) ^ -(raw & 1)
        elif kind == STRUCT:
            result[field], at = _struct(data, at, depth + 1)
        elif kind == STOP:
            return result, at
        elif kind <= FALSE:
            result[field] = kind == TRUE
        else:
            result[field], at = _value(data, kind, at, depth)


def _value(data: bytes, kind: int, at: int, depth: int) -> tuple[Any, int]:
    if kind in (I32, I64, I16):
        raw, at = _varint(data, at)
        return (raw >> 1) ^ -(raw & 1), at
    if kind == BINARY:
        size, at = _varint(data, at)
        return _take(data, at, size)
    if kind == STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _list(data, at, depth)
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return _take(data, at, 8)
    raise ThriftError(f"a field of kind {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise ThriftError("nested too deeply")
    size, kind, at = read_list_head(data, at)
    if kind in (TRUE, FALSE):
        return [byte == TRUE for byte in data[at : at + size]], at + size
    items: list[Any] = []
    if kind == STRUCT:
        for _ in range(size):
            structure, at = _struct(data, at, depth + 2)
            items.append(structure)
        return items, at
    for _ in range(size):
        item, at = _value(data, kind, at, depth + 1)
        items.append(item)
    return items, at


def _skip(data: bytes, kind: int, at: int, depth: int) -> int:
    if kind == STRUCT:
        return _skip_struct(data, at, depth)
    if kind in (TRUE, FALSE):
        return at
    if kind not in (LIST, SET):
        return _value(data, kind, at, depth)[1]
    if depth > _DEEPEST:
        raise ThriftError("nested too deeply")
    size, kind, at = read_list_head(data, at)
    if kind in (TRUE, FALSE):
        return at + size
    if I16 <= kind <= I64:
        for _ in range(size):
            while data[at] > 0x7F:
                at += 1
            at += 1
        return at
    for _ in range(size):
        at = _skip(data, kind, at, depth + 1)
    return at


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    # Every column chunk of a footer goes through this loop: the commonest kinds come first,
    # and calls are few.
    if depth > _DEEPEST:
        raise ThriftError("nested too deeply")
    while True:
        head = data[at]
        at += 1
        if head <= 0x0F:
            if head == STOP:
                return at
            at = _varint(data, at)[1]
        kind = head & 0x0F
        if I16 <= kind <= I64:
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif kind == BINARY and data[at] < 0x80:
            at += 1 + data[at]
        elif kind == STRUCT:
            at = _skip_struct(data, at, depth + 1)
        elif kind == STOP:
            return at
        elif kind > FALSE:
            at = _skip(data, kind, at, depth + 1)


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise ThriftError("the data ends early")
    return data[at:end], end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    return (byte, at + 1) if byte < 0x80 else _varint_from(data, at + 1, byte)


def _varint_from(data: bytes, at: int, first: int) -> tuple[int, int]:
    """The number whose first byte was read already and says that more bytes follow."""
    result, shift = first & 0x7F, 7
    for position in range(at, at + _LONGEST_VARINT_BYTES - 1):
        byte = data[position]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position + 1
        shift += 7
    raise ThriftError("a number is too long")


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
