"""Pure. Values in conditions and expressions: constants, moments; bounds of what is parsed."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.schema.json_values import plain
from lakehouse_source.schema.ordinal import (
    DAY_NS,
    EPOCH,
    EPOCH_DATE,
    UNIT_NS,
    YEARS,
    YEARS_DAYS,
    domain,
    instant_ns,
    timedelta_ns,
)
from lakehouse_source.schema.texts import timestamp_text

# --- The bounds of what is parsed: SQL texts, values of Python and Arrow, filters of clients.
#
# A short text can mean a number of a billion digits, or a tree that no stack holds. What is beyond
# a bound is refused where it is read, before anything works with it.


MOST_CHARACTERS = 4 * 1024 * 1024
# Spark's own parser also ends at a few hundred; binding a tree takes several calls per level.
DEEPEST = 250
MOST_VALUES = 1_000_000
# Wider than every decimal (76 digits) and every double: 5E-324 has 751 digits.
LARGEST_EXPONENT = 400
MOST_DIGITS = 1100
MOST_BITS = 1400


def check_length(text: str) -> None:
    """Refuse a text that is too long to be read."""
    if len(text) > MOST_CHARACTERS:
        reason = f"it has {len(text)} characters: {MOST_CHARACTERS} at most"
        raise InvalidPredicateError(reason=reason)


def check_depth(depth: int) -> None:
    """Refuse a part that is nested too deep for the functions that walk trees."""
    if depth > DEEPEST:
        reason = f"it is nested too deeply: {DEEPEST} levels at most"
        raise InvalidPredicateError(reason=reason)


def check_count(count: int) -> None:
    """Refuse a list of too many values."""
    if count > MOST_VALUES:
        reason = f"a list has {count} values: {MOST_VALUES} at most. Write them to a table and join"
        raise InvalidPredicateError(reason=reason)


def check_number(value: Decimal | int) -> None:
    """Refuse a number that no column holds, and whose digits could fill the memory."""
    if isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            reason = f"a number of {value.bit_length()} bits is out of range of every type"
            raise InvalidPredicateError(reason=reason)
    elif value and value.is_finite():
        digits, exponent = len(value.as_tuple().digits), value.adjusted()
        if digits > MOST_DIGITS or abs(exponent) > LARGEST_EXPONENT:
            reason = f"1E{exponent:+}, with {digits} digits, is out of range of every type"
            raise InvalidPredicateError(reason=reason)


# --- The errors of this room if there is no result.
#
# The binder and bound nodes turn them into errors of the package, which name the expression.


class Failure(ValueError):
    """A value that has no result; the message names the value."""


class Unsupported(Failure):
    """A value whose result is not known here; TRY_CAST does not make it NULL."""


# --- Values in conditions and expressions: from Python and Arrow, and as SQL.


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time to the nanosecond, in any year.

    `zoned`: nanoseconds from the epoch to an instant. Otherwise: nanoseconds from
    1970-01-01 00:00 on a wall clock whose time zone is not known.
    """

    nanoseconds: int
    zoned: bool


Literal: TypeAlias = (
    bool | int | float | Decimal | str | bytes | date | datetime | time | timedelta | Timestamp
)


def literal(value: Any) -> Literal | None:
    """A value as a literal; scalars of Arrow, NumPy and pandas become Python's.

    Raises:
        InvalidPredicateError: no column can be compared with the value, or it is beyond a bound.
    """
    if type(value) in (int, Decimal):
        check_number(value)
        return value  # type: ignore[no-any-return]
    if value is None or type(value) in (bool, float, str, bytes, Timestamp):
        return value  # type: ignore[no-any-return]
    if isinstance(value, pa.Scalar):
        return _of_scalar(value)
    if isinstance(value, (datetime, timedelta)):
        return _of_temporal(value)
    if isinstance(value, (date, time)):
        return value
    found = _of_library(value)
    if type(found) is not type(value):
        return literal(found)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    bases: tuple[Any, ...] = (str, int, float, bytes, Decimal)
    for base in bases:
        if isinstance(value, base):
            return literal(base(value))
    raise InvalidPredicateError(
        reason=f"{value!r} ({type(value).__name__}) cannot be compared with a column"
    )


def _of_library(value: Any) -> Any:
    """A value of NumPy or pandas as Python's or Arrow's; others as they are."""
    try:
        return plain(value)
    except ValueError as error:
        with suppress(pa.ArrowException, TypeError):  # it has moments in any year
            return pa.scalar(value)
        raise InvalidPredicateError(reason=f"{value!r} {error}") from None


def _of_temporal(value: datetime | timedelta) -> Literal | None:
    if value != value:  # pandas' NaT
        return None
    if isinstance(value, timedelta):
        nanoseconds = timedelta_ns(value)
        if nanoseconds % 1000:
            raise InvalidPredicateError(reason=f"{value!r} is finer than a microsecond")
        return timedelta(microseconds=nanoseconds // 1000)
    if getattr(value, "nanosecond", 0):
        zoned = value.tzinfo is not None
        return Timestamp(instant_ns(value), zoned)
    return value


def _of_scalar(scalar: pa.Scalar) -> Literal | None:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return _of_scalar(scalar.value)
    kind = domain(scalar.type)
    if kind.kind == "timestamp":
        return Timestamp(scalar.value * UNIT_NS[scalar.type.unit], kind.zoned)
    if kind.kind in ("time", "duration") and scalar.value * kind.unit_ns % 1000:
        raise InvalidPredicateError(reason=f"{scalar} is finer than a microsecond")
    if not kind.ordered:
        raise InvalidPredicateError(reason=f"a literal of type {scalar.type} cannot be compared")
    try:
        return literal(scalar.as_py())
    except OverflowError:
        reason = f"a literal of type {scalar.type} is out of the range of Python's: {scalar.value}"
        raise InvalidPredicateError(reason=reason) from None


def render(value: Literal | None) -> str:
    """A literal as SQL."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return f"CAST('{value}' AS DOUBLE)"
        return repr(value) if "e" in repr(value) else f"{value!r}D"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, Timestamp):
        return _render_timestamp(value)
    if isinstance(value, datetime):
        return _render_timestamp(Timestamp(instant_ns(value), value.tzinfo is not None))
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, timedelta):
        seconds = Decimal(timedelta_ns(value)).scaleb(-9)
        return f"INTERVAL '{seconds:f}' SECOND"
    return str(value)


def _render_timestamp(value: Timestamp) -> str:
    text = timestamp_text(value.nanoseconds, 1)
    return f"TIMESTAMP '{text}+00:00'" if value.zoned else f"TIMESTAMP_NTZ '{text}'"


# --- Texts that become counts of days and moments, wall clocks, and time zones.


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
    if zone is timezone.utc:
        return instant_us
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
    days = _parsed_or_refused(days_of_text, text, "date")
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
    return _parsed(_parsed_or_refused(_timestamp, text.strip(BLANKS), "timestamp"), text)


def parse_any_year(text: str) -> Timestamp:
    """As `parse_timestamp`, of years of up to 12 digits, which timestamps in seconds have."""
    return _parsed(
        _parsed_or_refused(lambda bare: _timestamp(bare, _ANY_YEAR), text.strip(BLANKS), "date"),
        text,
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
    return int(_parsed_or_refused(_clock_ns, match, "time of day"))


def _parse_micros(text: str) -> time | None:
    """A time of day; None: it is finer than a microsecond."""
    micros, finer = divmod(parse_time(text), 1000)
    return None if finer else (EPOCH + timedelta(microseconds=micros)).time()


# The types that may stand before a text, and the function that reads each: a text that the type
# does not have is not a literal.
READ_TYPED: dict[pa.DataType, Callable[[str], Any]] = {
    pa.date32(): parse_date,
    pa.time64("us"): _parse_micros,
    pa.timestamp("us", "UTC"): parse_timestamp,
    pa.timestamp("us"): parse_timestamp,
}


def _parsed_or_refused(read: Callable[[Any], Any], given: Any, what: str) -> Any:
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
