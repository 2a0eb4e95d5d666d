"""Pure. Values as text, in the form of Spark's CAST to STRING.

A column that is promoted to a string then compares, in every engine, with text that
Spark printed. Timestamps with a zone are printed in UTC and end in `Z`, whatever the
session's time zone.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from lakehouse_source.schema.moment_texts import moment_texts

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "0": "0.0", "-0": "-0.0"}
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}


def cast_to_string(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as strings; `promotion.prints_as_string` tells for which types this works."""
    type_ = column.type
    t = pa.types
    if t.is_floating(type_):
        wide = column.cast(pa.float32()) if t.is_float16(type_) else column
        return _convert_distinct(wide.cast(pa.string()), _floating)
    if t.is_decimal(type_):
        return _convert_distinct(column.cast(pa.string()), lambda text: format(Decimal(text), "f"))
    if t.is_duration(type_):
        count = column.cast(pa.int64())
        return _convert_distinct(
            count.cast(pa.string()), lambda text: _interval(int(text), type_.unit)
        )
    if t.is_timestamp(type_) or t.is_time(type_) or t.is_date(type_):
        return moment_texts(column)
    return column.cast(pa.string())


def _convert_distinct(column: pa.ChunkedArray, convert: Callable[[str], str]) -> pa.ChunkedArray:
    """Convert each distinct text once."""
    encoded = column.dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks or [pa.array([], encoded.type)])
    words = [None if text is None else convert(text) for text in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(words, pa.string()).take(encoded.indices)])


def _floating(text: str) -> str:
    """Arrow's shortest digits in the form of Java's `Double.toString`."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    minus = "-" if sign else ""
    figures = "".join(map(str, digits))
    point = len(figures) + exponent  # digits before the decimal point
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{figures}"
        whole = figures[:point].ljust(point, "0")
        return f"{minus}{whole}.{figures[point:] or '0'}"
    return f"{minus}{figures[0]}.{figures[1:] or '0'}E{point - 1}"


def _interval(count: int, unit: str) -> str:
    if unit == "ns":
        count //= 1000
        unit = "us"
    total = abs(count) * _MICROSECONDS[unit]
    seconds, fraction = divmod(total, 10**6)
    days, seconds = divmod(seconds, 86_400)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    part = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"INTERVAL '{'-' if count < 0 else ''}{days} {clock}{part}' DAY TO SECOND"
