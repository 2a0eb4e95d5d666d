"""Pure. Values and names as text: as Spark's CAST to STRING, and as DuckDB's SQL spells them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.schema.ordinal import DAY_NS, EPOCH_DATE, UNIT_NS, YEARS, YEARS_DAYS

# --- Dates, times and timestamps as text: one form, that of Spark's CAST to STRING.
#
# Arrow's own text has another year beyond ±32767, and no sign before years of five digits.


# The first and the last day of the years 1 to 9999.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days, in any year."""
    cycles, within = divmod(days, YEARS_DAYS)
    near = EPOCH_DATE + timedelta(days=within)
    return near.year + cycles * YEARS, near.month, near.day


def date_text(days: int) -> str:
    """A count of days as a date."""
    year, month, day = civil(days)
    # Java writes a sign before years that do not have four digits.
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{shown}-{month:02}-{day:02}"


def timestamp_text(wall: int, unit_ns: int = 1000) -> str:
    """A wall clock time, by default in microseconds."""
    days, rest = divmod(wall * unit_ns, DAY_NS)
    seconds, part = divmod(rest, 10**9)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    fraction = f".{part:09}".rstrip("0") if part else ""
    return f"{date_text(days)} {clock}{fraction}"


def moment_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts of dates, times and timestamps; timestamps with a zone in UTC, with `Z`."""
    type_ = column.type
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        column = column.cast(pa.timestamp(type_.unit, "UTC"))
    if not _in_common_years(column):
        return pa.chunked_array([_texts(chunk) for chunk in column.chunks], pa.string())
    text = column.cast(pa.string())
    if not pa.types.is_date(type_):
        # 12:30:00.500000 is 12:30:00.5, and 12:30:00.000000 is 12:30:00.
        text = pc.replace_substring_regex(text, r"(\.\d*[1-9])0+(Z?)$", r"\1\2")
        text = pc.replace_substring_regex(text, r"\.0+(Z?)$", r"\1")
    return text


def _counts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())


def _unit_ns(type_: pa.DataType) -> int:
    if pa.types.is_date(type_):
        return DAY_NS if pa.types.is_date32(type_) else 10**6
    return UNIT_NS[type_.unit]


def _in_common_years(column: pa.ChunkedArray) -> bool:
    ends = pc.min_max(_counts(column)).as_py()
    if ends["min"] is None:
        return True
    unit = _unit_ns(column.type)
    first, last = ends["min"] * unit // DAY_NS, ends["max"] * unit // DAY_NS
    return bool(first >= _FIRST_DAY and last <= _LAST_DAY)


def _texts(chunk: pa.Array) -> pa.Array:
    type_, unit = chunk.type, _unit_ns(chunk.type)
    counts = _counts(chunk).to_pylist()
    if pa.types.is_date(type_):
        found = [None if c is None else date_text(c * unit // DAY_NS) for c in counts]
    else:
        end = "" if type_.tz is None else "Z"
        found = [None if c is None else timestamp_text(c, unit) + end for c in counts]
    return pa.array(found, pa.string())


# --- Values as text, in the form of Spark's CAST to STRING.
#
# A column that is promoted to a string then compares, in every engine, with text that Spark
# printed. Timestamps with a zone are printed in UTC and end in `Z`, whatever the session's time
# zone.


_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "0": "0.0", "-0": "-0.0"}
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}


def cast_to_string(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as strings; `types.prints_as_string` tells for which types this works."""
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
    if t.is_temporal(type_):
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


def double_text(value: float) -> str:
    """A DOUBLE as Java prints it."""
    return _floating(repr(value))


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


def quoted(name: str) -> str:
    """The name of a column, table or field."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A literal of type VARCHAR."""
    return "'" + text.replace("'", "''") + "'"
