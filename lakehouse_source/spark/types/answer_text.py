"""Door. Values as texts, from which the planner extension makes Spark's (`CatalogAnswer.java`)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import from_ordinal
from lakehouse_source.spark.types.to_spark_sql import float_text


def has_text_form(type_: pa.DataType) -> bool:
    """Tell whether Spark gets the stored values exactly when they are sent as text."""
    t = pa.types
    if t.is_timestamp(type_):
        return type_.unit in ("ms", "us")  # Spark truncates nanoseconds
    plain = (t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_string, t.is_date32)
    return any(check(type_) for check in plain)


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
