"""Pure. Reads literals as text and moves them onto a column's domain, without narrowing.

A literal need not be a value of the column: 300 is none of a TINYINT, 1.5 none
of an INT, a microsecond none of a column of milliseconds. `place` therefore
answers two neighbours, the least value of the column that is not below the
literal and the greatest one that is not above it; every comparison follows from
those two. They are equal where the literal is a value, and a range where Spark's
widening makes several values equal to it (a BIGINT against a DOUBLE).

Source: Spark's ANSI type coercion (`AnsiTypeCoercion`): numbers against a float
or a double literal compare as doubles, numbers against text of a fraction too,
other text is cast to the column's type.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

from lakehouse_source.model import Ordinal
from lakehouse_source.predicate.nodes import Literal, Timestamp
from lakehouse_source.schema.ordinal import (
    DAY_NS,
    EPOCH,
    EPOCH_DATE,
    EXACT,
    YEARS,
    YEARS_DAYS,
    Domain,
    time_ns,
    timedelta_ns,
    wall_ns,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a literal lies among a column's values.

    `ceiling` is the least ordinal that is not below it, `floor` the greatest one
    that is not above it; None: there is no such value.
    """

    ceiling: Ordinal | None
    floor: Ordinal | None


def place(value: Literal, column: Domain, zone: tzinfo) -> Place:
    """Place a literal among the values of a column.

    NaN against a float column is not placed: the caller keeps it. `zone` is that
    of wall clock times and dates where the column holds instants.

    Raises:
        ValueError: the two cannot be compared; the message says why.
    """
    return _PLACERS[column.kind](value, column, zone)


def _refusal(value: Literal, column: Domain) -> ValueError:
    names = {"int": "an integer", "float": "a floating point"}
    what = names.get(column.kind, f"a {column.kind}")
    return ValueError(f"{value!r} ({type(value).__name__}) cannot be compared with {what} column")


# --- numbers ----------------------------------------------------------------


def _place_whole(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if isinstance(value, str):
        value = _number(value, exact=column.kind == "int")
    if isinstance(value, bool):
        raise _refusal(value, column)
    if isinstance(value, float):
        return _place_double(value, column)
    if isinstance(value, int):
        if column.scale < 0:
            value = Decimal(value)
        else:
            exact = value * 10**column.scale
            return _within(exact, exact, column)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _refusal(value, column)
        if value and abs(value.adjusted()) > 400:  # far out, or as good as zero
            value = Decimal((value.as_tuple().sign, (1,), 400 if value.adjusted() > 0 else -400))
        numerator, denominator = value.as_integer_ratio()
        if column.scale >= 0:
            numerator *= 10**column.scale
        else:
            denominator *= 10**-column.scale
        return _within(-(-numerator // denominator), numerator // denominator, column)
    raise _refusal(value, column)


def _place_double(value: float, column: Domain) -> Place:
    """Spark compares the column's values as doubles: find those that are not below or above."""
    if math.isinf(value) or math.isnan(value):  # NaN is greater than everything
        return Place(column.low, None) if value == -math.inf else Place(None, column.high)
    power, scale = 10 ** abs(column.scale), column.scale

    def as_double(ordinal: int) -> float:
        return ordinal / power if scale >= 0 else float(ordinal * power)

    numerator, denominator = value.as_integer_ratio()
    near = numerator * power // denominator if scale >= 0 else numerator // (denominator * power)
    near = min(max(near, column.low), column.high)
    ceiling = _least(lambda n: as_double(n) >= value, near, column)
    above = _least(lambda n: as_double(n) > value, near, column)
    return Place(
        None if ceiling > column.high else ceiling, None if above == column.low else above - 1
    )


def _least(holds: Callable[[int], bool], near: int, column: Domain) -> int:
    """The least ordinal that a monotone condition holds for, one above the highest if none."""
    low, high = max(near - 2, column.low), min(near + 2, column.high)
    if low > column.low and holds(low):
        low = column.low
    if high < column.high and not holds(high):
        high = column.high
    high += 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _within(ceiling: int, floor: int, column: Domain) -> Place:
    return Place(
        None if ceiling > column.high else max(ceiling, column.low),
        None if floor < column.low else min(floor, column.high),
    )


def _place_float(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if isinstance(value, str):
        value = _number(value, exact=False)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _refusal(value, column)
    try:
        double = float(value) + 0.0
    except OverflowError:
        double = math.inf if value > 0 else -math.inf
    if math.isinf(double) and not isinstance(value, float):
        raise ValueError(f"{value} is out of range of a double")
    return _representable(double, column.bits)


def _representable(double: float, bits: int) -> Place:
    """The neighbours of a double among the floats of `bits` bits."""
    if bits == 64 or math.isinf(double):
        return Place(double, double)
    form, count = ("<f", "<I") if bits == 32 else ("<e", "<H")
    largest = (2 - 2.0**-23) * 2.0**127 if bits == 32 else 65504.0
    if abs(double) > largest:
        return Place(math.inf, largest) if double > 0 else Place(-largest, -math.inf)
    nearest: float = struct.unpack(form, struct.pack(form, double))[0]
    if nearest == double:
        return Place(double, double)
    # The pattern of a float, as an integer, counts floats away from zero.
    pattern: int = struct.unpack(count, struct.pack(form, abs(nearest)))[0]
    step = 1 if (nearest < double) == (double > 0) else -1
    other: float = struct.unpack(form, struct.pack(count, pattern + step))[0]
    other = math.copysign(other, double) + 0.0
    nearest += 0.0
    return Place(max(nearest, other), min(nearest, other))


def _number(text: str, *, exact: bool) -> int | float | Decimal:
    """Text as the number that Spark would cast it to: a long, or a double."""
    stripped = text.strip()
    if re.fullmatch(r"[+-]?\d+", stripped, re.ASCII) and exact:
        return int(stripped)
    try:
        if exact:
            number = Decimal(stripped)
            if not number.is_finite() or "_" in stripped:
                raise ValueError
            return number
        if "_" in stripped:
            raise ValueError
        return float(re.sub(r"(?<=[\d.])[dDfF]\Z", "", stripped))
    except (ValueError, InvalidOperation):
        raise ValueError(f"the text {text!r} is not a number") from None


# --- truth, text, bytes -----------------------------------------------------

_TRUTH = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), 1),
    **dict.fromkeys(("f", "false", "n", "no", "0"), 0),
}


def _place_bool(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if isinstance(value, str):
        truth = _TRUTH.get(value.strip().lower())
        if truth is None:
            raise ValueError(f"the text {value!r} is neither true nor false")
        return Place(truth, truth)
    if not isinstance(value, bool):
        raise _refusal(value, column)
    return Place(int(value), int(value))


def text_bytes(value: Literal, column: Domain) -> bytes:
    """Text or bytes as the ordinal of a string or binary column.

    Raises:
        ValueError: neither, or bytes against a string column that are no UTF-8.
    """
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the text {value!r} holds half a surrogate pair") from None
    if isinstance(value, bytes):
        if column.kind == "string":
            try:
                value.decode()
            except UnicodeDecodeError:
                raise ValueError(f"the bytes {value!r} are no UTF-8") from None
        return value
    raise ValueError(
        f"{value!r} ({type(value).__name__}) cannot be compared with a {column.kind} column: "
        "write it as text, in quotes"
    )


def _place_bytes(value: Literal, column: Domain, zone: tzinfo) -> Place:
    ordinal = text_bytes(value, column)
    return Place(ordinal, ordinal)


# --- dates and times --------------------------------------------------------


def _split(nanoseconds: int, column: Domain) -> Place:
    unit = column.unit_ns
    return _within(-(-nanoseconds // unit), nanoseconds // unit, column)


def _place_date(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if isinstance(value, str):
        value = parse_date(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        days = (value - EPOCH_DATE).days
        return Place(days, days)
    moment = _moment(value)
    if moment is None:
        raise _refusal(value, column)
    if not moment.zoned:
        return _split(moment.nanoseconds, column)
    # Spark makes the date an instant, its midnight in the session's zone.
    near = (moment.nanoseconds + _offset_at(moment.nanoseconds, zone)) // DAY_NS
    midnights = {day: to_instant(day * DAY_NS, zone) for day in range(near - 2, near + 3)}
    return _within(
        min(day for day, start in midnights.items() if start >= moment.nanoseconds),
        max(day for day, start in midnights.items() if start <= moment.nanoseconds),
        column,
    )


def _place_timestamp(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if isinstance(value, str):
        value = parse_timestamp(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        moment: Timestamp | None = Timestamp((value - EPOCH_DATE).days * DAY_NS, False)
    else:
        moment = _moment(value)
    if moment is None:
        raise _refusal(value, column)
    if moment.zoned and not column.zoned:
        raise ValueError(
            f"{value!r} is an instant and the column holds times without zone: leave the zone out"
        )
    nanoseconds = moment.nanoseconds
    if column.zoned and not moment.zoned:
        nanoseconds = to_instant(nanoseconds, zone)
    return _split(nanoseconds, column)


def _place_time(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if isinstance(value, str):
        return _split(parse_time(value), column)
    if not isinstance(value, time) or value.tzinfo is not None:
        raise _refusal(value, column)
    return _split(time_ns(value), column)


def _place_duration(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if not isinstance(value, timedelta):
        raise _refusal(value, column)
    return _split(timedelta_ns(value), column)


def _moment(value: Literal) -> Timestamp | None:
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, datetime):
        offset = value.utcoffset()
        shift = 0 if offset is None else timedelta_ns(offset)
        return Timestamp(wall_ns(value) - shift, offset is not None)
    return None


def to_instant(wall: int, zone: tzinfo) -> int:
    """The instant at which a wall clock in `zone` shows `wall` (nanoseconds from 1970).

    In the repeated hour of a change of clocks the first one, in the skipped hour
    as far past the gap as `wall` is into it: as Java and so Spark decide.
    """
    if zone is timezone.utc:
        return wall
    offset = _clamped(wall).replace(tzinfo=zone).utcoffset()
    return wall - (0 if offset is None else timedelta_ns(offset))


def _offset_at(instant: int, zone: tzinfo) -> int:
    offset = _clamped(instant).replace(tzinfo=timezone.utc).astimezone(zone).utcoffset()
    return 0 if offset is None else timedelta_ns(offset)


_LAST = (datetime(9999, 12, 30) - EPOCH) // timedelta(seconds=1)
_FIRST = (datetime(1, 1, 2) - EPOCH) // timedelta(seconds=1)


def _clamped(nanoseconds: int) -> datetime:
    return EPOCH + timedelta(seconds=min(max(nanoseconds // 10**9, _FIRST), _LAST))


_PLACERS: dict[str, Callable[[Literal, Domain, tzinfo], Place]] = {
    "int": _place_whole,
    "decimal": _place_whole,
    "float": _place_float,
    "bool": _place_bool,
    "string": _place_bytes,
    "binary": _place_bytes,
    "date": _place_date,
    "timestamp": _place_timestamp,
    "time": _place_time,
    "duration": _place_duration,
}


# --- text -------------------------------------------------------------------

_DATE = r"(?P<year>[+-]?\d{4,9})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})%s)?)?"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<part>\d*))?)?)?"
_DATE_TEXT = re.compile(_DATE % r"(?:[T ].*)?", re.ASCII | re.DOTALL)
_TIMESTAMP_TEXT = re.compile(_DATE % rf"(?:[T ]+{_CLOCK}\s*(?P<zone>\S.*)?)?", re.ASCII)
_TIME_TEXT = re.compile(_CLOCK, re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)


def parse_date(text: str) -> date | Timestamp:
    """`yyyy[-m[-d]]`; what follows a `T` or a space is left out, as Spark does.

    A date that Python has no name for is its midnight.
    """
    match = _DATE_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"the text {text!r} is no date; write it as '2024-01-31'")
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
        raise ValueError(f"the text {text!r} is no date: {exc}") from None


def parse_timestamp(text: str) -> Timestamp:
    """`yyyy-m-d[ h:m:s.fraction][zone]`; the zone may be an offset or a region."""
    match = _TIMESTAMP_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"the text {text!r} is no timestamp; write it as '2024-01-31 12:30:00', "
            "with '+00:00' behind it for an instant"
        )
    wall = _days(match, text) * DAY_NS + (0 if match["hour"] is None else _clock(match, text))
    if match["zone"] is None:
        return Timestamp(wall, False)
    return Timestamp(to_instant(wall, parse_zone(match["zone"])), True)


def parse_time(text: str) -> int:
    """`h:m[:s[.fraction]]` as nanoseconds from midnight."""
    match = _TIME_TEXT.fullmatch(text.strip())
    if match is None or match["minute"] is None:
        raise ValueError(f"the text {text!r} is no time of day; write it as '12:30:00'")
    return _clock(match, text)


def _clock(match: re.Match[str], text: str) -> int:
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    part = match["part"] or ""
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"the text {text!r} names no time of day")
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
            raise ValueError(f"{text!r} is no zone offset")
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{text!r} is no time zone") from None


def round_half_up(value: Decimal, scale: int) -> Decimal:
    """A decimal at `scale`, rounded as Spark's CAST does."""
    return value.quantize(Decimal(1).scaleb(-scale), rounding="ROUND_HALF_UP", context=EXACT)
