"""Pure. Functions of dates and timestamps.

Source: Spark's `datetimeExpressions` and `DateTimeUtils`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo

import pyarrow as pa

from lakehouse_source.language.functions import arguments, order
from lakehouse_source.language.functions.arguments import Builder, Context, function
from lakehouse_source.language.functions.entry import NEVER, Function
from lakehouse_source.language.functions.rows import Bound, Kernel, each, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.moments import (
    DAY_US,
    SECOND_US,
    civil,
    date_text,
    days_of,
    instant_us,
    wall_us,
)
from lakehouse_source.language.tree.nodes import Call, Literal, spark_name
from lakehouse_source.language.tree.types import INSTANT, WALL

INT, STRING, DATE = pa.int32(), pa.string(), pa.date32()


def _of_date(part: Callable[[int], int], type_: pa.DataType = INT) -> Builder:
    return function(each(part, type_), type_, arguments.date)


def clock(unit: int, modulus: int) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        value = given[0]
        if value.type not in (INSTANT, WALL):
            raise Failure(f"{spark_name(value.type)} stands where a timestamp should: cast it")
        zone = context.zone

        def part(micros: int) -> int:
            wall = wall_us(micros, zone) if value.type == INSTANT else micros
            return wall // SECOND_US // unit % modulus

        return strict(call, INT, [value], each(part, INT), can_fail=False)

    return build


def _shifted(sign: int) -> Kernel:
    def one(days: int, count: int) -> int:
        found = days + sign * count
        if not -(2**31) <= found < 2**31:
            raise Failure(f"{date_text(days)} and {count} days are out of range of a date")
        return found

    return each(one, DATE)


def cast_to(type_: pa.DataType) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        allowed = (STRING, DATE, INSTANT, WALL, pa.null())
        if given[0].type not in allowed:
            raise Failure(f"{spark_name(given[0].type)} stands where text should")
        return context.cast(given[0], type_)

    return build


def now(context: Context, call: Call, given: list[Bound]) -> Bound:
    return context.bind(Literal(context.now_us, INSTANT))


def today(context: Context, call: Call, given: list[Bound]) -> Bound:
    return context.bind(Literal(wall_us(context.now_us, context.zone) // DAY_US, DATE))


# --- parts of a date --------------------------------------------------------


def _last_day(days: int) -> int:
    year, month, _ = civil(days)
    after = days_of(year, month + 1, 1) if month < 12 else days_of(year + 1, 1, 1)
    return _checked(after - 1, 32)


def _days_between(end: int, start: int) -> int:
    return _checked(end - start, 32)


YEAR = _of_date(lambda days: civil(days)[0])
QUARTER = _of_date(lambda days: (civil(days)[1] - 1) // 3 + 1)
MONTH = _of_date(lambda days: civil(days)[1])
DAY = _of_date(lambda days: civil(days)[2])
DAY_OF_YEAR = _of_date(lambda days: days - days_of(civil(days)[0], 1, 1) + 1)
# 1970-01-01 was a Thursday.
DAY_OF_WEEK = _of_date(lambda days: (days + 4) % 7 + 1)
WEEKDAY = _of_date(lambda days: (days + 3) % 7)
UNIX_DATE = function(each(lambda days: days, INT), INT, arguments.only_date)
LAST_DAY = function(each(_last_day, DATE), DATE, arguments.date, can_fail=True)
ADDED = function(_shifted(1), DATE, arguments.only_date, arguments.integer, can_fail=True)
TAKEN = function(_shifted(-1), DATE, arguments.only_date, arguments.integer, can_fail=True)
DAYS_BETWEEN = function(
    each(_days_between, INT), INT, arguments.only_date, arguments.only_date, can_fail=True
)


# --- the beginning of a unit ------------------------------------------------

_BEGINNINGS: dict[str, Callable[[int], int]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda days: days_of(civil(days)[0], 1, 1)),
    "QUARTER": lambda days: days_of(civil(days)[0], (civil(days)[1] - 1) // 3 * 3 + 1, 1),
    **dict.fromkeys(("MONTH", "MON", "MM"), lambda days: days_of(*civil(days)[:2], 1)),
    "WEEK": lambda days: days - (days + 3) % 7,
}
# Units of one length on the wall clock, in microseconds.
_LENGTHS = {
    **dict.fromkeys(("DAY", "DD"), DAY_US),
    "HOUR": 3600 * SECOND_US,
    "MINUTE": 60 * SECOND_US,
    "SECOND": SECOND_US,
    "MILLISECOND": 1000,
    "MICROSECOND": 1,
}


def trunc(context: Context, call: Call, given: list[Bound]) -> Bound:
    """`trunc(date, unit)`."""

    def one(days: int, unit: str) -> int | None:
        begin = _BEGINNINGS.get(unit.upper())
        return None if begin is None else _checked(begin(days), 32)

    values = [arguments.date(context, given[0]), arguments.text(context, given[1])]
    return strict(call, DATE, values, each(one, DATE), can_fail=True)


def date_trunc(context: Context, call: Call, given: list[Bound]) -> Bound:
    """`date_trunc(unit, timestamp)`."""
    if given[1].type not in (DATE, INSTANT, WALL, pa.null()):
        raise Failure(f"{spark_name(given[1].type)} stands where a timestamp should: cast it")
    zone = context.zone

    def one(unit: str, micros: int) -> int | None:
        begin, length = _BEGINNINGS.get(unit.upper()), _LENGTHS.get(unit.upper())
        if begin is not None:
            days = begin(wall_us(micros, zone) // DAY_US)
            return _checked(instant_us(days * DAY_US, zone), 64)
        return None if length is None else _checked(_begin(micros, length, zone), 64)

    values = [arguments.text(context, given[0]), context.cast(given[1], INSTANT)]
    return strict(call, INSTANT, values, each(one, INSTANT), can_fail=True)


def _begin(micros: int, length: int, zone: tzinfo) -> int:
    """The beginning of an hour, a day… Java keeps the offset of the moment where it can."""
    wall = wall_us(micros, zone)
    begin = wall - wall % length
    kept = micros - wall % length
    return kept if wall_us(kept, zone) == begin else instant_us(begin, zone)


def _checked(count: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= count < 1 << (bits - 1):
        raise Failure("the result is out of range")
    return count


# --- entries ----------------------------------------------------------------

_DATE, _TIMESTAMP = "DATE or TIMESTAMP", "TIMESTAMP"
_OR_UNIT = "also where the unit is not known"
_ADDED = Function(2, 2, ADDED, "DATE, INT", "DATE", order.days_added)
_BETWEEN = Function(2, 2, DAYS_BETWEEN, "DATE, DATE", "INT", order.days_taken)

FUNCTIONS: dict[str, Function] = {
    **{
        name: Function(1, 1, builder, takes, "INT", keeps)
        for name, builder, takes, keeps in (
            ("year", YEAR, _DATE, order.moment),
            ("quarter", QUARTER, _DATE, None),
            ("month", MONTH, _DATE, None),
            ("day", DAY, _DATE, None),
            ("dayofmonth", DAY, _DATE, None),
            ("dayofyear", DAY_OF_YEAR, _DATE, None),
            ("dayofweek", DAY_OF_WEEK, _DATE, None),
            ("weekday", WEEKDAY, _DATE, None),
            ("hour", clock(3600, 24), _TIMESTAMP, None),
            ("minute", clock(60, 60), _TIMESTAMP, None),
            ("second", clock(1, 60), _TIMESTAMP, None),
            ("unix_date", UNIX_DATE, "DATE", order.moment),
        )
    },
    "trunc": Function(2, 2, trunc, "DATE, a unit", "DATE", order.moment, _OR_UNIT),
    "date_trunc": Function(
        2, 2, date_trunc, "a unit, TIMESTAMP", "TIMESTAMP", order.moment, _OR_UNIT
    ),
    "last_day": Function(1, 1, LAST_DAY, _DATE, "DATE", order.moment),
    **dict.fromkeys(("date_add", "dateadd"), _ADDED),
    "date_sub": Function(2, 2, TAKEN, "DATE, INT", "DATE", order.days_taken),
    **dict.fromkeys(("datediff", "date_diff"), _BETWEEN),
    "to_date": Function(1, 1, cast_to(DATE), "STRING or DATE", "DATE", order.cast_to(DATE)),
    "to_timestamp": Function(
        1, 1, cast_to(INSTANT), "STRING or TIMESTAMP", "TIMESTAMP", order.cast_to(INSTANT)
    ),
    **dict.fromkeys(("current_date", "curdate"), Function(0, 0, today, "", "DATE", nulls=NEVER)),
    **dict.fromkeys(
        ("current_timestamp", "now"), Function(0, 0, now, "", "TIMESTAMP", nulls=NEVER)
    ),
}
