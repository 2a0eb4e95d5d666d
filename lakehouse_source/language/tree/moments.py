"""Pure. Texts that become counts of days and moments, wall clocks, and time zones."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from lakehouse_source.language.tree.constants import Timestamp
from lakehouse_source.language.tree.failures import Failure, Unsupported
from lakehouse_source.schema.ordinal import (
    DAY_NS,
    EPOCH,
    EPOCH_DATE,
    YEARS,
    YEARS_DAYS,
    timedelta_ns,
)

SECOND_US = 10**6
DAY_US = 86_400 * SECOND_US
# Spark's trimAll removes these: white space and control characters in one byte.
BLANKS = "".join(map(chr, range(0x21))) + "\x7f"


def days_of(year: int, month: int, day: int) -> int:
    """The count of days to a date, in any year; the calendar repeats every 400 years.

    Raises:
        ValueError: the month has no such day.
    """
    cycles, within = divmod(year - EPOCH_DATE.year, YEARS)
    near = date(EPOCH_DATE.year + within, month, day)
    return (near - EPOCH_DATE).days + cycles * YEARS_DAYS


# --- wall clocks and instants -----------------------------------------------


def to_instant(wall: int, zone: tzinfo) -> int:
    """The instant at which a wall clock in `zone` shows `wall` (nanoseconds from 1970).

    When clocks are set back, this is the first of the two instants. When clocks are set forward, a
    time in the gap is moved by the length of the gap. Java and Spark do the same.
    """
    if zone is timezone.utc:
        return wall
    offset = _clamped(wall).replace(tzinfo=zone).utcoffset()
    return wall - (0 if offset is None else timedelta_ns(offset))


def offset_at(instant: int, zone: tzinfo) -> int:
    offset = _clamped(instant).replace(tzinfo=timezone.utc).astimezone(zone).utcoffset()
    return 0 if offset is None else timedelta_ns(offset)


_LAST = (datetime(9999, 12, 30) - EPOCH) // timedelta(seconds=1)
_FIRST = (datetime(1, 1, 2) - EPOCH) // timedelta(seconds=1)


def _clamped(nanoseconds: int) -> datetime:
    return EPOCH + timedelta(seconds=min(max(nanoseconds // 10**9, _FIRST), _LAST))


def wall_us(instant_us: int, zone: tzinfo) -> int:
    """What a wall clock in `zone` shows at an instant."""
    return instant_us + offset_at(instant_us * 1000, zone) // 1000


def instant_us(wall: int, zone: tzinfo) -> int:
    """The instant at which a wall clock in `zone` shows `wall`."""
    return to_instant(wall * 1000, zone) // 1000


# --- text -------------------------------------------------------------------

_DATE = r"(?P<year>[+-]?\d{4,%d})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})%s)?)?"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<part>\d*))?)?)?"
_DATE_TEXT = re.compile(_DATE % (7, r"(?:[T ].*)?"), re.ASCII | re.DOTALL)
_MOMENT = rf"(?:[T ]{_CLOCK}\s*(?P<zone>[^\s\d.].*)?)?"
_TIMESTAMP_TEXT = re.compile(_DATE % (6, _MOMENT), re.ASCII | re.DOTALL)
_ANY_YEAR = re.compile(_DATE % (12, _MOMENT), re.ASCII | re.DOTALL)
_TIME_TEXT = re.compile(_CLOCK, re.ASCII)
_ONLY_TIME = re.compile(r"T|\d+:", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)


def days_of_text(text: str) -> int:
    """Text as a count of days, as Spark casts it: `stringToDate` of `SparkDateTimeUtils`.

    Raises:
        Failure: the text is not a date.
    """
    match = _DATE_TEXT.fullmatch(text.strip(BLANKS))
    if match is None:
        raise Failure("write a date as '2024-01-31'")
    return _days(match)


def parse_date(text: str) -> date | Timestamp:
    """`yyyy[-m[-d]]`; text after a `T` or a space is ignored, as in Spark.

    A date outside the years of Python's `date` is returned as its midnight.

    Raises:
        ValueError: it is not a date.
    """
    days = _told(days_of_text, text, "date")
    try:
        return EPOCH_DATE + timedelta(days=days)
    except OverflowError:
        return Timestamp(days * DAY_NS, False)


def micros_of_text(text: str, zone: tzinfo, *, zoned: bool) -> int:
    """Text as microseconds, as Spark casts it: `parseTimestampString` of `SparkDateTimeUtils`.

    The microseconds count to an instant, or on a wall clock if not `zoned`, where a zone in the
    text has no effect.

    Raises:
        Failure: the text is not a timestamp.
        Unsupported: the text has no date, which would mean today, or its zone is not known.
    """
    bare = text.strip(BLANKS)
    if _ONLY_TIME.match(bare):
        raise Unsupported("a time without a date means today")
    match = _timestamp(bare)
    if match["zone"] is not None:
        if match["second"] is None:
            raise Failure("a zone stands behind seconds")
        try:
            zone = parse_zone(match["zone"])
        except ValueError as exc:
            raise Unsupported(str(exc)) from exc
    wall = _wall_ns(match) // 1000
    return instant_us(wall, zone) if zoned else wall


def nanoseconds_below_micros(text: str) -> int:
    """The nanoseconds of a timestamp as text, which `micros_of_text` leaves out."""
    return _wall_ns(_timestamp(text.strip(BLANKS))) % 1000


def parse_timestamp(text: str) -> Timestamp:
    """`yyyy-m-d[ h:m:s.fraction][zone]`; the zone may be an offset or a region.

    Raises:
        ValueError: it is not a timestamp, or finer than a nanosecond.
    """
    return _parsed(_told(_timestamp, text.strip(BLANKS), "timestamp"), text)


def parse_any_year(text: str) -> Timestamp:
    """As `parse_timestamp`, of years of up to 12 digits, which timestamps in seconds have."""
    return _parsed(
        _told(lambda bare: _timestamp(bare, _ANY_YEAR), text.strip(BLANKS), "date"), text
    )


def _parsed(match: re.Match[str], text: str) -> Timestamp:
    if len((match["part"] or "").rstrip("0")) > 9:
        raise ValueError(f"the text {text!r} is finer than a nanosecond")
    wall = _wall_ns(match)
    if match["zone"] is None:
        return Timestamp(wall, False)
    return Timestamp(to_instant(wall, parse_zone(match["zone"])), True)


def parse_time(text: str) -> int:
    """`h:m[:s[.fraction]]` as nanoseconds from midnight.

    Raises:
        ValueError: it is not a time of day, or finer than a nanosecond.
    """
    match = _TIME_TEXT.fullmatch(text.strip())
    if match is None or match["minute"] is None:
        raise ValueError(f"the text {text!r} is not a time of day; write it as '12:30:00'")
    if len((match["part"] or "").rstrip("0")) > 9:
        raise ValueError(f"the text {text!r} is finer than a nanosecond")
    return int(_told(_clock_ns, match, "time of day"))


def _told(read: Callable[[Any], Any], given: Any, what: str) -> Any:
    """The result of `read` for a text; its error names the text."""
    try:
        return read(given)
    except Failure as exc:
        text = given if isinstance(given, str) else given.string
        raise ValueError(f"the text {text!r} is not a {what}: {exc}") from None


def _timestamp(text: str, pattern: re.Pattern[str] = _TIMESTAMP_TEXT) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise Failure("write it as '2024-01-31 12:30:00', with '+00:00' at the end for an instant")
    _wall_ns(match)
    return match


def _wall_ns(match: re.Match[str]) -> int:
    return _days(match) * DAY_NS + (0 if match["hour"] is None else _clock_ns(match))


def _clock_ns(match: re.Match[str]) -> int:
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise Failure("a day has 24 hours of 60 minutes")
    part = int((match["part"] or "")[:9].ljust(9, "0"))
    return (hour * 3600 + minute * 60 + second) * 10**9 + part


def _days(match: re.Match[str]) -> int:
    """Days from 1970-01-01 to the date of a match."""
    year, month, day = (int(match[name] or 1) for name in ("year", "month", "day"))
    try:
        return days_of(year, month, day)
    except ValueError as exc:
        raise Failure(str(exc)) from None


def parse_zone(text: str) -> tzinfo:
    """A zone: `Z`, `UTC`, an offset `+01:00[:30]`, or a region of the IANA database."""
    name = text.strip()
    if name in ("Z", "UTC", "GMT", "UT", "Etc/UTC"):
        return timezone.utc
    bare = re.sub(r"\A(UTC|GMT|UT)(?=[+-])", "", name)
    match = _OFFSET.fullmatch(bare)
    if match is not None:
        hours, minutes, seconds = (int(match[n] or 0) for n in (2, 3, 4))
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset > timedelta(hours=18) or minutes > 59 or seconds > 59:
            raise ValueError(f"{text!r} is not a zone offset")
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{text!r} is not a time zone") from None
