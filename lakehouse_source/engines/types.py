"""Pure. Which types, and which casts, mean the same to plake and to every engine."""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.schema.fields import children, field_id, is_nested


def is_plain(type_: pa.DataType) -> bool:
    """Tell whether every engine reads the type from Parquet as the same values.

    Timestamps in nanoseconds are left out, because files of others may hold them as INT96;
    the other types left out are read as different types, or by some engines only.
    """
    t = pa.types
    if t.is_struct(type_) or t.is_list(type_):
        return all(is_plain(child.type) for child in children(type_))
    return bool(
        t.is_boolean(type_)
        or t.is_integer(type_)
        or t.is_float32(type_)
        or t.is_float64(type_)
        or t.is_string(type_)
        or t.is_binary(type_)
        or t.is_date32(type_)
        or (t.is_timestamp(type_) and type_.unit == "us")
        or t.is_decimal128(type_)
    )


def is_exact_cast(stored: pa.Field, now: pa.Field) -> bool:
    """Tell whether an engine's cast from one type to the other gives plake's values."""
    if is_nested(now.type):
        return _is_same(stored.type, now.type)
    t, old, new = pa.types, stored.type, now.type
    return bool(
        old.equals(new)
        or (t.is_integer(old) and t.is_integer(new) and old.bit_width < new.bit_width)
        or (t.is_float32(old) and t.is_float64(new))
    )


def _is_same(stored: pa.DataType, now: pa.DataType) -> bool:
    """Tell whether two nested types have the same fields by name, id and type, in one order."""
    mine, theirs = children(stored), children(now)
    if stored.id != now.id or len(mine) != len(theirs):
        return False
    if not mine:
        return bool(stored.equals(now))
    return all(
        a.name == b.name and field_id(a) == field_id(b) and _is_same(a.type, b.type)
        for a, b in zip(mine, theirs)
    )
