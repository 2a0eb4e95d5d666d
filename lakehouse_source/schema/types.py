"""Pure. A card for each type without fields: what others call it, and who reads it exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

t = pa.types


@dataclass(frozen=True, slots=True)
class Card:
    """What others know of a type whose values are stored.

    Args:
        sql: its names in Spark's SQL, the one that is shown first.
        iceberg: its name in Iceberg; None: no type there has the same values in Parquet.
        duckdb: the name that DuckDB itself returns; None: it has no type for exactly these values.
        engines: every engine reads the same values from Parquet.
        spark: Spark's own reader gives the same values.
        text: each value has one text, from which Spark makes the same value.
    """

    sql: tuple[str, ...] = ()
    iceberg: str | None = None
    duckdb: str | None = None
    engines: bool = False
    spark: bool = False
    text: bool = False


def _plain(sql: str, iceberg: str, duckdb: str, *, text: bool = True) -> Card:
    return Card(tuple(sql.split()), iceberg, duckdb, True, True, text)


# Spark's reader has no unsigned integers and truncates nanoseconds. Files of others may hold
# nanoseconds as INT96. What is left out of `engines` some engines lack, or read as another type.
CARDS = {
    pa.bool_(): _plain("BOOLEAN", "boolean", "BOOLEAN"),
    pa.int8(): _plain("TINYINT BYTE", "int", "TINYINT"),
    pa.int16(): _plain("SMALLINT SHORT", "int", "SMALLINT"),
    pa.int32(): _plain("INT INTEGER", "int", "INTEGER"),
    pa.int64(): _plain("BIGINT LONG", "long", "BIGINT"),
    pa.uint8(): Card((), "int", "UTINYINT", engines=True, text=True),
    pa.uint16(): Card((), "int", "USMALLINT", engines=True, text=True),
    pa.uint32(): Card((), None, "UINTEGER", engines=True, text=True),
    pa.uint64(): Card((), None, "UBIGINT", engines=True, text=True),
    pa.float16(): Card(text=True),
    pa.float32(): _plain("FLOAT REAL", "float", "FLOAT"),
    pa.float64(): _plain("DOUBLE", "double", "DOUBLE"),
    # Spark casts to CHAR(3) as to STRING.
    pa.string(): _plain("STRING CHAR CHARACTER VARCHAR", "string", "VARCHAR"),
    pa.binary(): _plain("BINARY", "binary", "BLOB", text=False),
    pa.date32(): _plain("DATE", "date", "DATE"),
    pa.time64("us"): Card(("TIME",), "time", "TIME"),
    pa.timestamp("ms"): Card((), "timestamp", "TIMESTAMP_MS", text=True),
    pa.timestamp("us"): _plain("TIMESTAMP_NTZ", "timestamp", "TIMESTAMP"),
    pa.timestamp("ns"): Card((), None, "TIMESTAMP_NS"),
    pa.timestamp("ms", "UTC"): Card((), "timestamptz", text=True),
    pa.timestamp("us", "UTC"): Card(
        *(("TIMESTAMP", "TIMESTAMP_LTZ"), "timestamptz", "TIMESTAMP WITH TIME ZONE"),
        *(True, True, True),
    ),
}
_UNKNOWN = Card()


@lru_cache(maxsize=1024)
def card(type_: pa.DataType) -> Card:
    """The card of a type without fields; nobody knows a type that no dataset stores."""
    if t.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        digits = (type_.precision, type_.scale)
        sql = "DECIMAL({},{})".format(*digits)
        return _plain(sql, "decimal({}, {})".format(*digits), sql)
    if t.is_fixed_size_binary(type_):
        return Card(iceberg=f"fixed[{type_.byte_width}]")
    return Card(text=True) if t.is_decimal(type_) else CARDS.get(type_, _UNKNOWN)
