"""Pure. Dates, times and timestamps as text: one form, that of Spark's CAST to STRING.

Arrow's own text has another year beyond ±32767, and no sign before years of five digits.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.schema.ordinal import (
    DAY_NS,
    EPOCH_DATE,
    UNIT_NS,
    YEARS,
    YEARS_DAYS,
)

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
    if not pa.types.is_time(type_) and not _in_common_years(column):
        return pa.chunked_array([_texts(chunk) for chunk in column.chunks], pa.string())
    text = column.cast(pa.string())
    if not pa.types.is_date(type_):
        # 12:30:00.500000 is 12:30:00.5, and 12:30:00.000000 is 12:30:00.
        text = pc.replace_substring_regex(text, r"(\.\d*[1-9])0+(Z?)$", r"\1\2")
        text = pc.replace_substring_regex(text, r"\.0+(Z?)$", r"\1")
    return text


def _counts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())


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
