"""Door. Values as texts, from which the planner extension makes Spark's (`CatalogAnswer.java`)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import from_ordinal
from lakehouse_source.spark.types.to_spark_sql import float_text


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
