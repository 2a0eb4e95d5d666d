"""Pure. Byte keys of values, for the catalog's search index.

They order as values do, byte by byte, in every database:

    int          9 bytes, big-endian, shifted: signed and unsigned share one
                 encoding, so widening an integer column keeps its keys
    bool         1 byte
    datetime     12 bytes, nanoseconds: dates and timestamps without zone;
    instant      the same for zoned timestamps; unit changes keep the keys
    time, duration   12 bytes, nanoseconds
    decimal128:s, decimal256:s   17 or 33 bytes, unscaled, per scale
    float        8 bytes, IEEE order of the double; -0.0 is 0.0; NaN comes last
    string, binary   the first bytes, up to `KEY_LIMIT`

Keys of text and bytes are cut, but this never narrows a range: a cut key is a lower bound, and a
cut and raised key is an upper bound.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import Domain, domain

KEY_LIMIT = 32  # bytes

UNBOUNDED_LOWER = b""
UNBOUNDED_UPPER = b"\xff" * 40
# The interval of an all-null column, which no range of keys overlaps.
EMPTY_LOWER = b"\xff" * 40
EMPTY_UPPER = b""
NAN_KEY = b"\xff\xf8" + bytes(6)
_SIGN = 1 << 63


def encoding(type_: pa.DataType) -> str | None:
    """The name of the encoding of a type's keys; keys with the same name can be compared.

    None: the type cannot be indexed.
    """
    kind = domain(type_)
    if not kind.ordered:
        return None
    if kind.kind == "decimal":
        return f"decimal{max(kind.bits, 128)}:{kind.scale}"
    if kind.kind == "timestamp":
        return "instant" if kind.zoned else "datetime"
    return "datetime" if kind.kind == "date" else kind.kind


def key(ordinal: Ordinal, type_: pa.DataType) -> bytes:
    """The key of a value, as a lower bound: text and bytes are cut."""
    return key_of(ordinal, domain(type_))


def upper_key(ordinal: Ordinal, type_: pa.DataType) -> bytes:
    """The key of a value, as an upper bound: text and bytes are cut and raised."""
    return upper_key_of(ordinal, domain(type_))


def key_of(ordinal: Ordinal, kind: Domain) -> bytes:
    """`key`, for a value of a domain."""
    if isinstance(ordinal, bytes):
        return ordinal[:KEY_LIMIT]
    if isinstance(ordinal, float):
        return _float_key(ordinal)
    name = kind.kind
    if name == "int":
        return (ordinal + (1 << 71)).to_bytes(9, "big")
    if name == "bool":
        return ordinal.to_bytes(1, "big")
    if name == "float":
        return _float_key(float(ordinal))
    if name == "decimal":
        bits = max(kind.bits, 128) + 8
        return (ordinal + (1 << (bits - 1))).to_bytes(bits // 8, "big")
    return (ordinal * kind.unit_ns + (1 << 95)).to_bytes(12, "big")


def upper_key_of(ordinal: Ordinal, kind: Domain) -> bytes:
    """`upper_key`, for a value of a domain."""
    if isinstance(ordinal, bytes) and len(ordinal) > KEY_LIMIT:
        return _raised(ordinal[:KEY_LIMIT])
    return key_of(ordinal, kind)


def _raised(cut: bytes) -> bytes:
    """A key above everything that begins with `cut`."""
    kept = cut.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else UNBOUNDED_UPPER


def _float_key(value: float) -> bytes:
    if value != value:
        return NAN_KEY
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    # A negative double orders backwards by its bits.
    ordered = bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN
    return int(ordered).to_bytes(8, "big")


def ordinal_of_key(key: bytes, kind: Domain) -> Ordinal | None:
    """The value of a key; for text and bytes the key itself, which may be cut.

    None: the key is not that of a value of the domain, such as a key that means "unknown".
    """
    name = kind.kind
    if name in ("string", "binary"):
        return key if len(key) <= KEY_LIMIT else None
    number = int.from_bytes(key, "big")
    if name == "float":
        if len(key) != 8 or key == NAN_KEY:
            return None
        bits = number ^ _SIGN if number & _SIGN else number ^ (2 * _SIGN - 1)
        return float(struct.unpack(">d", struct.pack(">Q", bits))[0])
    if name == "bool":
        return number if len(key) == 1 else None
    if name == "int":
        return number - (1 << 71) if len(key) == 9 else None
    if name == "decimal":
        bits = max(kind.bits, 128) + 8
        return number - (1 << (bits - 1)) if len(key) == bits // 8 else None
    if len(key) != 12:
        return None
    count, finer = divmod(number - (1 << 95), kind.unit_ns)
    return None if finer else count


def prefix_range(text: bytes, type_: pa.DataType) -> tuple[bytes, bytes]:
    """Two keys between which all texts lie that begin with `text`."""
    cut = text[:KEY_LIMIT]
    if domain(type_).kind == "string":
        return cut, cut + b"\xff"  # no byte of UTF-8 is 0xFF
    return cut, _raised(cut)
