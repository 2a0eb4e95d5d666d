"""Pure. Casts in conditions. Of a literal: computed. Of a column: dropped where it keeps values.

A cast of a column is dropped where comparing its result means comparing the column
itself: the type stays the same, or every value survives in a wider type. The literal
then takes the part of the wider type (a double, an instant) and is not narrowed to
the type of the column.
"""

from __future__ import annotations

from datetime import date, datetime, tzinfo
from decimal import Decimal

import pyarrow as pa

from lakehouse_source.language.bounds.place import parse_number
from lakehouse_source.language.tree.constants import Literal, Timestamp
from lakehouse_source.language.tree.moments import parse_timestamp, to_instant
from lakehouse_source.schema.ordinal import EPOCH, UNIT_NS, wall_ns
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
