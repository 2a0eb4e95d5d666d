"""Pure. Names, texts and flat types as DuckDB's SQL spells them."""

from __future__ import annotations

import pyarrow as pa

_FLAT = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("ms"): "TIMESTAMP_MS",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("ns"): "TIMESTAMP_NS",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def flat_type_name(type_: pa.DataType) -> str | None:
    """DuckDB's name of a flat type; None: DuckDB has no type for exactly these values.

    The name is the one that DuckDB itself returns, so names can be compared.
    """
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return f"DECIMAL({type_.precision},{type_.scale})"
    return _FLAT.get(type_)


def quoted(name: str) -> str:
    """The name of a column, table or field."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A literal of type VARCHAR."""
    return "'" + text.replace("'", "''") + "'"
