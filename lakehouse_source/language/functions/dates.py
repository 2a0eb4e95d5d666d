"""Pure. Functions of dates and timestamps.

Source: Spark's `datetimeExpressions` and `DateTimeUtils`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo

import pyarrow as pa

from lakehouse_source.language.functions import entry
from lakehouse_source.language.functions.entry import (
    CLOCK,
    DATE,
    INT,
    MOMENT,
    NEVER,
    TEXT,
    Builder,
    Context,
    Function,
    by_row,
)
from lakehouse_source.language.functions.rows import Bound, each, strict
from lakehouse_source.language.nodes import Call, Literal
from lakehouse_source.language.types import INSTANT, WALL, spark_name
from lakehouse_source.language.values import (
    DAY_US,
    SECOND_US,
    Failure,
    days_of,
    instant_us,
    wall_us,
)
from lakehouse_source.schema.texts import civil, date_text

_INT, _DATE = pa.int32(), pa.date32()


def clock(unit: int, modulus: int) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        value, zone = CLOCK.of(context, given[0]), context.zone

        def part(micros: int) -> int:
            wall = wall_us(micros, zone) if value.type == INSTANT else micros
            return wall // SECOND_US // unit % modulus

        return strict(call, _INT, [value], each(part, _INT), can_fail=False)

    return build


def _added(days: int, count: int) -> int:
    found = days + count
    if not -(2**31) <= found < 2**31:
        raise Failure(f"{date_text(days)} and {count} days are out of range of a date")
    return found


def cast_to(type_: pa.DataType) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        allowed = (pa.string(), _DATE, INSTANT, WALL, pa.null())
        if given[0].type not in allowed:
            raise Failure(f"{spark_name(given[0].type)} stands where text should")
        return context.cast(given[0], type_)

    return build


def now(context: Context, call: Call, given: list[Bound]) -> Bound:
    return context.bind(Literal(context.now_us, INSTANT))


def today(context: Context, call: Call, given: list[Bound]) -> Bound:
    return context.bind(Literal(wall_us(context.now_us, context.zone) // DAY_US, _DATE))


# --- parts of a date --------------------------------------------------------


def _last_day(days: int) -> int:
    year, month, _ = civil(days)
    after = days_of(year, month + 1, 1) if month < 12 else days_of(year + 1, 1, 1)
    return _checked(after - 1, 32)


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

    values = [MOMENT.of(context, given[0]), TEXT.of(context, given[1])]
    return strict(call, _DATE, values, each(one, _DATE), can_fail=True)


def date_trunc(context: Context, call: Call, given: list[Bound]) -> Bound:
    """`date_trunc(unit, timestamp)`."""
    if given[1].type not in (_DATE, INSTANT, WALL, pa.null()):
        raise Failure(f"{spark_name(given[1].type)} stands where a timestamp should: cast it")
    zone = context.zone

    def one(unit: str, micros: int) -> int | None:
        begin, length = _BEGINNINGS.get(unit.upper()), _LENGTHS.get(unit.upper())
        if begin is not None:
            days = begin(wall_us(micros, zone) // DAY_US)
            return _checked(instant_us(days * DAY_US, zone), 64)
        return None if length is None else _checked(_begin(micros, length, zone), 64)

    values = [TEXT.of(context, given[0]), context.cast(given[1], INSTANT)]
    return strict(call, INSTANT, values, each(one, INSTANT), can_fail=True)


def _begin(micros: int, length: int, zone: tzinfo) -> int:
    """The beginning of an hour, a day… Java keeps the offset of the moment if possible."""
    wall = wall_us(micros, zone)
    begin = wall - wall % length
    kept = micros - wall % length
    return kept if wall_us(kept, zone) == begin else instant_us(begin, zone)


def _checked(count: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= count < 1 << (bits - 1):
        raise Failure("the result is out of range")
    return count


# --- entries ----------------------------------------------------------------

_OR_UNIT = "also where the unit is not known"
_DAY = by_row(lambda days: civil(days)[2], _INT, MOMENT)
_ADDED = by_row(_added, _DATE, DATE, INT, can_fail=True, order=entry.days_added)
_BETWEEN = by_row(
    lambda end, start: _checked(end - start, 32),
    _INT,
    *(DATE, DATE),
    can_fail=True,
    order=entry.days_taken,
)
_TODAY = Function(0, 0, today, "", "DATE", nulls=NEVER)
_NOW = Function(0, 0, now, "", "TIMESTAMP", nulls=NEVER)

FUNCTIONS: dict[str, Function] = {
    "year": by_row(lambda days: civil(days)[0], _INT, MOMENT, order=entry.moment),
    "quarter": by_row(lambda days: (civil(days)[1] - 1) // 3 + 1, _INT, MOMENT),
    "month": by_row(lambda days: civil(days)[1], _INT, MOMENT),
    **dict.fromkeys(("day", "dayofmonth"), _DAY),
    "dayofyear": by_row(lambda days: days - days_of(civil(days)[0], 1, 1) + 1, _INT, MOMENT),
    # 1970-01-01 was a Thursday.
    "dayofweek": by_row(lambda days: (days + 4) % 7 + 1, _INT, MOMENT),
    "weekday": by_row(lambda days: (days + 3) % 7, _INT, MOMENT),
    "hour": Function(1, 1, clock(3600, 24), CLOCK.name, "INT"),
    "minute": Function(1, 1, clock(60, 60), CLOCK.name, "INT"),
    "second": Function(1, 1, clock(1, 60), CLOCK.name, "INT"),
    "unix_date": by_row(lambda days: days, _INT, DATE, order=entry.moment),
    "trunc": Function(2, 2, trunc, "DATE, a unit", "DATE", entry.moment, _OR_UNIT),
    "date_trunc": Function(
        2, 2, date_trunc, "a unit, TIMESTAMP", "TIMESTAMP", entry.moment, _OR_UNIT
    ),
    "last_day": by_row(_last_day, _DATE, MOMENT, can_fail=True, order=entry.moment),
    **dict.fromkeys(("date_add", "dateadd"), _ADDED),
    "date_sub": by_row(
        lambda days, count: _added(days, -count),
        _DATE,
        *(DATE, INT),
        can_fail=True,
        order=entry.days_taken,
    ),
    **dict.fromkeys(("datediff", "date_diff"), _BETWEEN),
    "to_date": Function(1, 1, cast_to(_DATE), "STRING or DATE", "DATE", entry.cast_to(_DATE)),
    "to_timestamp": Function(
        1, 1, cast_to(INSTANT), "STRING or TIMESTAMP", "TIMESTAMP", entry.cast_to(INSTANT)
    ),
    **dict.fromkeys(("current_date", "curdate"), _TODAY),
    **dict.fromkeys(("current_timestamp", "now"), _NOW),
}
