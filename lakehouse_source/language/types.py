"""Pure. Spark's types as Arrow types, and the type in which Spark's ANSI mode combines two.

Source: Spark's `AnsiTypeCoercion`, `DecimalPrecisionTypeCoercion` and `DecimalType`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from lakehouse_source.schema.fields import is_nested, map_children
from lakehouse_source.schema.types import CARDS, card
from lakehouse_source.schema.variant import is_variant

t = pa.types

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
NUMBERS = (*INTEGERS, pa.float32(), pa.float64())
INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")
MAX_PRECISION = 38
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def spark_type(stored: pa.DataType) -> pa.DataType:
    """The type in which expressions see a column; types that Spark lacks stay as they are."""
    if t.is_dictionary(stored):
        return spark_type(stored.value_type)
    if t.is_string_view(stored):
        return pa.string()
    if t.is_fixed_size_binary(stored) or t.is_binary_view(stored):
        return pa.binary()
    if t.is_timestamp(stored):
        return WALL if stored.tz is None else INSTANT
    if t.is_decimal(stored) and stored.precision <= MAX_PRECISION and stored.scale >= 0:
        return pa.decimal128(stored.precision, stored.scale)
    if is_nested(stored):
        return map_children(stored, lambda field: field.with_type(spark_type(field.type)))
    return _WIDENED.get(stored, stored)


def is_decimal(type_: pa.DataType) -> bool:
    """Tell whether the type is a decimal of Spark."""
    return bool(t.is_decimal128(type_) and type_.scale >= 0)


def is_number(type_: pa.DataType) -> bool:
    """Tell whether the type is a number of Spark."""
    return type_ in NUMBERS or is_decimal(type_)


def is_float(type_: pa.DataType) -> bool:
    """Tell whether it is FLOAT or DOUBLE."""
    return type_ in (pa.float32(), pa.float64())


def is_moment(type_: pa.DataType) -> bool:
    """Tell whether it is DATE, TIMESTAMP or TIMESTAMP_NTZ."""
    return type_ in (pa.date32(), INSTANT, WALL)


def is_atomic(type_: pa.DataType) -> bool:
    """Tell whether it is a type of single values that expressions know."""
    return is_number(type_) or is_moment(type_) or type_ in (pa.bool_(), pa.string(), pa.binary())


def is_compared(type_: pa.DataType) -> bool:
    """Tell whether expressions compare values of the type, if with no others."""
    return is_atomic(type_) or bool(t.is_time(type_))


# --- decimals ---------------------------------------------------------------


def decimal_for(type_: pa.DataType) -> pa.DataType:
    """The decimal that holds every value of an integer type."""
    return type_ if is_decimal(type_) else pa.decimal128(_DIGITS[type_], 0)


def decimal_for_literal(value: int) -> pa.DataType:
    """The narrowest decimal that holds an integer."""
    return pa.decimal128(len(str(abs(value))), 0)


def adjusted(precision: int, scale: int) -> pa.DataType:
    """The decimal of at most 38 digits: all digits before the point and 6 after it are kept."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    kept = min(scale, 6)
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, kept))


def wider_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The decimal that holds the values of two decimals, within 38 digits."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale <= MAX_PRECISION:
        return pa.decimal128(whole + scale, scale)
    return pa.decimal128(MAX_PRECISION, min(scale, max(0, MAX_PRECISION - whole)))


# --- the common type --------------------------------------------------------


def common(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type in which Spark combines two types, or None."""
    if is_variant(a) or is_variant(b):
        return None  # Arrow's kernels that choose among values have no such type
    if a == b:
        return a
    if t.is_null(a) or t.is_null(b):
        return b if t.is_null(a) else a
    if is_number(a) and is_number(b):
        return _common_number(a, b)
    if is_moment(a) and is_moment(b):
        return INSTANT if INSTANT in (a, b) else WALL
    if a == pa.string():
        a, b = b, a
    if b == pa.string() and is_atomic(a):
        if a in INTEGERS:
            return pa.int64()
        return pa.float64() if is_number(a) else a
    return None


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if is_decimal(a) or is_decimal(b):
        if is_float(a) or is_float(b):
            return pa.float64()
        return wider_decimal(decimal_for(a), decimal_for(b))
    if is_float(a) or is_float(b):
        # An integer and a FLOAT make a DOUBLE.
        return pa.float64()
    return max(a, b, key=NUMBERS.index)


def common_of(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """The common type of several, from left to right: with text the order matters, as in Spark."""
    found: pa.DataType | None = types[0]
    for other in types[1:]:
        found = None if found is None else common(found, other)
    return found


# --- types by name ----------------------------------------------------------

# A decimal has the digits in parentheses after its name; 10 without parentheses.
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
NAMED = {
    **{name: type_ for type_, known in CARDS.items() for name in known.sql},
    **dict.fromkeys(_DECIMALS, pa.decimal128(10, 0)),
}
# `date(x)` is `CAST(x AS DATE)`.
CAST_FUNCTIONS = {
    name.lower(): NAMED[name]
    for name in (
        *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"),
        *("STRING", "BINARY", "BOOLEAN", "DATE", "TIMESTAMP"),
    )
}


def spark_name(type_: pa.DataType) -> str:
    """A type as Spark SQL names it; Arrow's name for types that Spark lacks."""
    names = card(type_).sql
    return names[0] if names else "VOID" if t.is_null(type_) else str(type_)


def decimal_of_digits(value: Decimal) -> pa.DataType | None:
    """The DECIMAL with the written number of digits; None: there are too many digits."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    return pa.decimal128(precision, scale) if precision <= MAX_PRECISION else None
