"""Pure. Dates, times and time zones: read from text, and moved between wall clocks and instants.

The forms of text are those that Spark casts to dates and timestamps.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from lakehouse_source.expression.constants import Timestamp
from lakehouse_source.schema.ordinal import (
    DAY_NS,
    EPOCH,
    EPOCH_DATE,
    YEARS,
    YEARS_DAYS,
    timedelta_ns,
)

# --- wall clocks and instants -----------------------------------------------


def to_instant(wall: int, zone: tzinfo) -> int:
    """The instant at which a wall clock in `zone` shows `wall` (nanoseconds from 1970).

    When clocks are set back, the first of the two instants. When they are set forward,
    a time in the gap is moved past it by as much as the gap is long. Java, and so
    Spark, decide alike.
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


# --- text -------------------------------------------------------------------

_DATE = r"(?P<year>[+-]?\d{4,9})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})%s)?)?"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<part>\d*))?)?)?"
_DATE_TEXT = re.compile(_DATE % r"(?:[T ].*)?", re.ASCII | re.DOTALL)
_TIMESTAMP_TEXT = re.compile(_DATE % rf"(?:[T ]{_CLOCK}\s*(?P<zone>\S.*)?)?", re.ASCII)
_TIME_TEXT = re.compile(_CLOCK, re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)


def parse_date(text: str) -> date | Timestamp:
    """`yyyy[-m[-d]]`; text after a `T` or a space is ignored, as in Spark.

    A date outside the years of Python's `date` is returned as its midnight.
    """
    match = _DATE_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"the text {text!r} is not a date; write it as '2024-01-31'")
    days = _days(match, text)
    try:
        return EPOCH_DATE + timedelta(days=days)
    except OverflowError:
        return Timestamp(days * DAY_NS, False)


def _days(match: re.Match[str], text: str) -> int:
    """Days from 1970-01-01, in any year: the calendar repeats every 400 years."""
    year, month, day = (int(match[name] or 1) for name in ("year", "month", "day"))
    cycles, within = divmod(year - 1970, YEARS)
    try:
        return (date(1970 + within, month, day) - EPOCH_DATE).days + cycles * YEARS_DAYS
    except ValueError as exc:
        raise ValueError(f"the text {text!r} is not a date: {exc}") from None


def parse_timestamp(text: str) -> Timestamp:
    """`yyyy-m-d[ h:m:s.fraction][zone]`; the zone may be an offset or a region."""
    match = _TIMESTAMP_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"the text {text!r} is not a timestamp; write it as '2024-01-31 12:30:00', "
            "with '+00:00' at the end for an instant"
        )
    wall = _days(match, text) * DAY_NS + (0 if match["hour"] is None else _clock(match, text))
    if match["zone"] is None:
        return Timestamp(wall, False)
    return Timestamp(to_instant(wall, parse_zone(match["zone"])), True)


def parse_time(text: str) -> int:
    """`h:m[:s[.fraction]]` as nanoseconds from midnight."""
    match = _TIME_TEXT.fullmatch(text.strip())
    if match is None or match["minute"] is None:
        raise ValueError(f"the text {text!r} is not a time of day; write it as '12:30:00'")
    return _clock(match, text)


def _clock(match: re.Match[str], text: str) -> int:
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    part = match["part"] or ""
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"the text {text!r} is not a time of day")
    if len(part.rstrip("0")) > 9:
        raise ValueError(f"the text {text!r} is finer than a nanosecond")
    return (hour * 3600 + minute * 60 + second) * 10**9 + int(part[:9].ljust(9, "0"))


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
