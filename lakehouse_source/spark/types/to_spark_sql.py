"""Door. Writes names and ordinals as Spark SQL with exactly the same meaning.

A literal is written in the type of its column, so Spark converts nothing. Text and bytes are
written in hexadecimal, because a setting decides how Spark reads a backslash.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import domain, from_ordinal
from lakehouse_source.spark.types.spark_types import readable, spark_schema


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
