"""Pure. Casts in conditions. Of a literal: computed. Of a column: dropped where it keeps values.

A cast of a column is dropped where comparing its result means comparing the column
itself: the type stays the same, or every value survives in a wider type. The literal
then takes the part of the wider type (a double, an instant) and is not narrowed to
the type of the column.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakehouse_source.expression.constants import Literal, Timestamp
from lakehouse_source.expression.times import parse_date, parse_time, parse_timestamp, to_instant
from lakehouse_source.expression.types import TIMESTAMPS
from lakehouse_source.predicate.literals import parse_number
from lakehouse_source.schema.ordinal import EPOCH, EXACT, UNIT_NS, wall_ns
from lakehouse_source.schema.promotion import Fit, fit

# --- columns ----------------------------------------------------------------


def keeps_every_value(stored: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether a cast leaves each value what it is, in the same order."""
    t = pa.types
    for text, large in ((t.is_string, t.is_large_string), (t.is_binary, t.is_large_binary)):
        if text(stored) or large(stored):
            return bool(text(to) or large(to))
    return fit(stored, to) is Fit.EVERY


def can_be_dropped(stored: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether comparing a column cast by Spark means comparing the column."""
    t = pa.types
    if t.is_timestamp(stored) and t.is_timestamp(to):  # Spark's has microseconds
        return (stored.tz is None) == (to.tz is None) and stored.unit != "ns"
    if t.is_date(stored) and t.is_timestamp(to):
        return True
    # Literals are compared with integers and decimals as doubles, too: see `literals`.
    if t.is_float64(to) and (t.is_integer(stored) or t.is_decimal(stored)):
        return True
    return keeps_every_value(stored, to)


def literal_for_cast(
    value: Literal | None, stored: pa.DataType, to: pa.DataType, zone: tzinfo
) -> Literal | None:
    """The literal that compares with the column as `value` compares with the cast column.

    Raises:
        ValueError: the literal cannot be compared with the type of the cast.
    """
    t = pa.types
    if value is None or stored == to or isinstance(value, bool):
        return value
    if t.is_floating(to) or t.is_decimal(to):
        if isinstance(value, str):
            return parse_number(value, exact=False)
        if t.is_floating(to) and isinstance(value, (int, Decimal)):
            try:
                return float(value)
            except OverflowError:
                raise ValueError(f"{value} is out of range of a double") from None
    if t.is_date(stored) and t.is_timestamp(to):
        return _moment(value, to, zone)
    return value


def _moment(value: Literal, to: pa.DataType, zone: tzinfo) -> Literal:
    if isinstance(value, str):
        parsed = parse_timestamp(value)
        if parsed.zoned and to.tz is None:
            raise ValueError(f"the text {value!r} has a zone and TIMESTAMP_NTZ has none")
        value = parsed
    elif isinstance(value, datetime):
        if value.tzinfo is not None:
            return value
        value = Timestamp(wall_ns(value), False)
    elif isinstance(value, date):
        value = Timestamp((value - EPOCH.date()).days * 86_400 * UNIT_NS["s"], False)
    if isinstance(value, Timestamp) and not value.zoned and to.tz is not None:
        return Timestamp(to_instant(value.nanoseconds, zone), True)
    return value


# --- literals ---------------------------------------------------------------

_INTEGERS = {
    "TINYINT": 8,
    "SMALLINT": 16,
    "INT": 32,
    "INTEGER": 32,
    "BIGINT": 64,
}


def cast_literal(value: Literal | None, kind: str, parameters: Sequence[int]) -> Any:
    """A literal cast as Spark's ANSI mode does, or NotImplemented.

    `kind` is the type as sqlglot names it, `parameters` the numbers in parentheses behind it.

    Raises:
        ValueError, ArithmeticError: the literal has no value of that type.
    """
    if value is None:
        return None
    if kind in _INTEGERS:
        whole = _to_integer(value)
        bits = _INTEGERS[kind]
        if whole is not None and not -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
            raise ValueError("out of range")
        return NotImplemented if whole is None else whole
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if kind in ("DOUBLE", "FLOAT") and (number or isinstance(value, str)):
        double = float(value.strip() if isinstance(value, str) else value)  # type: ignore[arg-type]
        return _single(double) if kind == "FLOAT" else double
    if kind == "DECIMAL" and (number or isinstance(value, str)):
        precision, scale = [*parameters, *[10, 0][len(parameters) :]]
        text = value.strip() if isinstance(value, str) else value
        rounded = round_half_up(Decimal(str(text)), scale)
        if rounded.copy_abs() >= Decimal(10) ** (precision - scale):
            raise ValueError("out of range")
        return rounded
    if kind in ("TEXT", "VARCHAR") and isinstance(value, str) and not parameters:
        return value
    if kind in ("BINARY", "VARBINARY") and isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    if kind == "BOOLEAN" and isinstance(value, bool):
        return value
    if kind == "DATE":
        return _to_date(value)
    if kind in TIMESTAMPS:
        return _to_timestamp(value, without_zone=kind == "TIMESTAMPNTZ")
    if kind == "TIME" and isinstance(value, str):
        return _to_time(parse_time(value))
    return NotImplemented


def _to_integer(value: Literal) -> int | None:
    if isinstance(value, str):
        return int(value.strip())
    if isinstance(value, (int, float, Decimal)):
        return int(value)  # towards zero, as Spark
    return None


def _single(double: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", double))[0])


def _to_date(value: Literal) -> Any:
    if isinstance(value, str):
        return parse_date(value)
    return value if isinstance(value, date) and not isinstance(value, datetime) else NotImplemented


def _to_timestamp(value: Literal, *, without_zone: bool) -> Any:
    if isinstance(value, str):
        moment = parse_timestamp(value)
        if without_zone and moment.zoned:
            raise ValueError("it has a zone")
        return moment
    if isinstance(value, date):
        days = (value - EPOCH.date()).days
        return Timestamp(days * 86_400 * UNIT_NS["s"], False)
    return value if isinstance(value, Timestamp) else NotImplemented


def _to_time(nanoseconds: int) -> time:
    micros, rest = divmod(nanoseconds, 1000)
    if rest:
        raise ValueError("it is finer than a microsecond")
    return (EPOCH + timedelta(microseconds=micros)).time()


def round_half_up(value: Decimal, scale: int) -> Decimal:
    """A decimal at `scale`, rounded as Spark's CAST does."""
    return value.quantize(Decimal(1).scaleb(-scale), rounding="ROUND_HALF_UP", context=EXACT)
