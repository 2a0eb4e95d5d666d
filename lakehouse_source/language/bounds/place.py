"""Pure. Finds the place of a literal among the values of a column, without narrowing.

A literal need not be a value of the column: a TINYINT does not hold 300, an INT does
not hold 1.5, and a column of milliseconds holds no microseconds. So `place` returns two values of
the column: the least value that is not below the literal, and the greatest value that is not above
it. Every comparison follows from these two. They are equal if the literal is a value of the column.
They enclose a range if Spark's widening makes several values equal to the literal (a BIGINT against
a DOUBLE).

Source: Spark's ANSI type coercion (`AnsiTypeCoercion`): numbers against a float
or a double literal compare as doubles, numbers against text of a fraction too,
other text is cast to the column's type.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal

from lakehouse_source.language.bounds.bound import (
    BoundColumn,
    BoundCompare,
    BoundNode,
    IfPresent,
    conjunction,
    negation,
)
from lakehouse_source.language.functions.casts import double_of_text, truth_of_text, whole_of_text
from lakehouse_source.language.values import (
    Literal,
    Timestamp,
    offset_at,
    parse_date,
    parse_time,
    parse_timestamp,
    to_instant,
)
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import (
    DAY_NS,
    EPOCH_DATE,
    Domain,
    domain,
    time_ns,
    timedelta_ns,
    wall_ns,
)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a literal among a column's values.

    `ceiling` is the least ordinal that is not below it, `floor` the greatest one
    that is not above it; None: there is no such value.
    """

    ceiling: Ordinal | None
    floor: Ordinal | None


def place(value: Literal, column: Domain, zone: tzinfo) -> Place:
    """Place a literal among the values of a column.

    Callers themselves handle NaN with a float column. `zone` is the time zone of wall clock times
    and dates that are compared with instants.

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
        whole = column.kind == "int"
        value = parse_number(value, exact=whole)
        if whole and not -(1 << 63) <= value < max(1 << 63, column.high + 1):
            raise ValueError(f"the text {value} is out of range of a BIGINT")
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
        if value and abs(value.adjusted()) > 400:  # beyond every decimal, or nearer to zero
            value = Decimal((value.as_tuple().sign, (1,), 400 if value.adjusted() > 0 else -400))
        numerator, denominator = value.as_integer_ratio()
        if column.scale >= 0:
            numerator *= 10**column.scale
        else:
            denominator *= 10**-column.scale
        return _within(-(-numerator // denominator), numerator // denominator, column)
    raise _refusal(value, column)


def _place_double(value: float, column: Domain) -> Place:
    """The place of a double among values that Spark compares as doubles."""
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
    """The least ordinal for which a monotone condition holds; the highest plus one if none."""
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
        value = parse_number(value, exact=False)
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


def parse_number(text: str, *, exact: bool) -> int | float:
    """Text as the number to which Spark would cast it: a long, or a double."""
    try:
        return whole_of_text(text) if exact else double_of_text(text)
    except ValueError:
        what = "a whole number, as the column is" if exact else "a number"
        raise ValueError(f"the text {text!r} is not {what}") from None


# --- truth, text, bytes -----------------------------------------------------


def _place_bool(value: Literal, column: Domain, zone: tzinfo) -> Place:
    if isinstance(value, str):
        try:
            value = truth_of_text(value)
        except ValueError:
            raise ValueError(f"the text {value!r} is neither true nor false") from None
    if not isinstance(value, bool):
        raise _refusal(value, column)
    return Place(int(value), int(value))


def text_bytes(value: Literal, column: Domain) -> bytes:
    """Text or bytes as the ordinal of a string or binary column.

    Raises:
        ValueError: the value is neither, or the column is a string and the bytes are not UTF-8.
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
                raise ValueError(f"the bytes {value!r} are not UTF-8") from None
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
    # Spark turns the date into an instant: its midnight in the session's zone.
    near = (moment.nanoseconds + offset_at(moment.nanoseconds, zone)) // DAY_NS
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


# --- Comparisons of a column with a literal that has a place among its values.


def bounded(column: BoundColumn, op: str, ordinal: Ordinal | None) -> BoundNode:
    """`column < ceiling` or `column <= floor`; decided at once at the ends of the domain."""
    if ordinal is None:
        return IfPresent(column, op == "<")
    if not column.is_float and not isinstance(ordinal, bytes):
        ends = domain(column.type)
        if op == "<" and ordinal == ends.low:
            return IfPresent(column, False)
        if op == "<=" and ordinal == ends.high:
            return IfPresent(column, True)
    return BoundCompare(column, op, ordinal)


def between(column: BoundColumn, where: Place) -> BoundNode:
    """The values that equal a literal: none, one, or a range."""
    low, high = where.ceiling, where.floor
    if low is None or high is None or low > high:  # type: ignore[operator]
        return IfPresent(column, False)
    if low == high:
        return BoundCompare(column, "=", low)
    return conjunction([negation(bounded(column, "<", low)), bounded(column, "<=", high)])


def compare_nan(column: BoundColumn, op: str) -> BoundNode:
    """A comparison with NaN, which equals itself and is greater than all numbers."""
    nan = float("nan")
    if op in ("=", "<=>", "<"):
        return BoundCompare(column, op, nan)
    if op == ">=":
        return BoundCompare(column, "=", nan)
    return IfPresent(column, op == "<=")
