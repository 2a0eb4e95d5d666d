"""Pure. Which types, and which casts, mean the same to plake and to every engine."""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.schema.fields import children, is_nested, is_same_with_ids
from lakehouse_source.schema.types import card


def is_plain(type_: pa.DataType) -> bool:
    """Tell whether every engine reads the type from Parquet as the same values."""
    t = pa.types
    if t.is_struct(type_) or t.is_list(type_):
        return all(is_plain(child.type) for child in children(type_))
    return card(type_).engines


def is_exact_cast(stored: pa.Field, now: pa.Field) -> bool:
    """Tell whether an engine's cast from one type to the other gives plake's values."""
    if is_nested(now.type):
        return is_same_with_ids(stored.type, now.type)
    t, old, new = pa.types, stored.type, now.type
    return bool(
        old.equals(new)
        or (t.is_integer(old) and t.is_integer(new) and old.bit_width < new.bit_width)
        or (t.is_float32(old) and t.is_float64(new))
    )
