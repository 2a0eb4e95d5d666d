"""Pure. Dates and timestamps as counts: their calendar fields, their text, and time zones."""

from __future__ import annotations

import re
from datetime import date, timedelta, tzinfo

from lakehouse_source.expression.failures import Failure, Unsupported
from lakehouse_source.expression.times import offset_at, parse_zone, to_instant
from lakehouse_source.schema.ordinal import EPOCH_DATE, YEARS, YEARS_DAYS

SECOND_US = 10**6
DAY_US = 86_400 * SECOND_US
# Spark's trimAll takes these away: white space and control characters in one byte.
BLANKS = "".join(map(chr, range(0x21))) + "\x7f"


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days, in any year."""
    cycles, within = divmod(days, YEARS_DAYS)
    near = EPOCH_DATE + timedelta(days=within)
    return near.year + cycles * YEARS, near.month, near.day


def days_of(year: int, month: int, day: int) -> int:
    """The count of days to a date, in any year; the calendar repeats every 400 years.

    Raises:
        ValueError: the month has no such day.
    """
    cycles, within = divmod(year - EPOCH_DATE.year, YEARS)
    near = date(EPOCH_DATE.year + within, month, day)
    return (near - EPOCH_DATE).days + cycles * YEARS_DAYS


def date_text(days: int) -> str:
    """A date in the form of Spark's CAST to STRING."""
    year, month, day = civil(days)
    return f"{_year(year)}-{month:02}-{day:02}"


def timestamp_text(wall_us: int) -> str:
    """A wall clock time in the form of Spark's CAST to STRING."""
    days, rest = divmod(wall_us, DAY_US)
    seconds, micros = divmod(rest, SECOND_US)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{date_text(days)} {clock}{fraction}"


def _year(year: int) -> str:
    # Java writes a sign before years of other than four digits.
    return f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"


def wall_us(instant_us: int, zone: tzinfo) -> int:
    """What a wall clock in `zone` shows at an instant."""
    return instant_us + offset_at(instant_us * 1000, zone) // 1000


def instant_us(wall: int, zone: tzinfo) -> int:
    """The instant at which a wall clock in `zone` shows `wall`."""
    return to_instant(wall * 1000, zone) // 1000


# --- text -------------------------------------------------------------------

_DATE = re.compile(
    r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL
)
_TIMESTAMP = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_ONLY_TIME = re.compile(r"T|\d+:", re.ASCII)


def days_of_text(text: str) -> int:
    """Text as a count of days, as Spark casts it: `stringToDate` of `SparkDateTimeUtils`.

    Raises:
        Failure: it is not a date.
    """
    match = _DATE.fullmatch(text.strip(BLANKS))
    if match is None:
        raise Failure
    return _days(match)


def micros_of_text(text: str, zone: tzinfo, *, zoned: bool) -> int:
    """Text as microseconds, as Spark casts it: `parseTimestampString` of `SparkDateTimeUtils`.

    They count to an instant, or on a wall clock if not `zoned`; a zone in the text then
    has no effect.

    Raises:
        Failure: it is not a timestamp.
        Unsupported: its date is that of the day on which it is read, or its zone is not known.
    """
    bare = text.strip(BLANKS)
    match = _TIMESTAMP.fullmatch(bare)
    if match is None:
        if _ONLY_TIME.match(bare):
            raise Unsupported("a time without a date means today")
        raise Failure
    hour, minute, second = (int(match[place] or 0) for place in (5, 6, 7))
    if hour > 23 or minute > 59 or second > 59:
        raise Failure
    clock = (hour * 3600 + minute * 60 + second) * SECOND_US
    wall = _days(match) * DAY_US + clock + int((match[8] or "")[:6].ljust(6, "0"))
    if match[9] is not None:
        try:
            zone = parse_zone(match[9])
        except ValueError as exc:
            raise Unsupported(str(exc)) from exc
    return instant_us(wall, zone) if zoned else wall


def _days(match: re.Match[str]) -> int:
    """Days from 1970-01-01 to the first three numbers."""
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    try:
        return days_of(year, int(match[3] or 1), int(match[4] or 1))
    except ValueError as exc:
        raise Failure from exc
