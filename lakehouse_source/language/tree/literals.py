"""Pure. Python values as literals."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError
from lakehouse_source.language.tree.nodes import Literal, Node
from lakehouse_source.language.tree.types import (
    INSTANT,
    INTEGERS,
    MAX_PRECISION,
    WALL,
    decimal_of_digits,
    is_atomic,
)
from lakehouse_source.schema.ordinal import EPOCH_DATE, instant_ns


def literal_of(value: Any) -> Node:
    """A Python value, or a scalar of Arrow or NumPy, as a literal.

    Integers are INT or BIGINT, floats DOUBLE, datetimes TIMESTAMP or (without a time zone)
    TIMESTAMP_NTZ.

    Raises:
        InvalidExpressionError: no type of Spark holds the value.
    """
    if isinstance(value, pa.Scalar):
        if not is_atomic(value.type) and not pa.types.is_null(value.type):
            raise InvalidExpressionError(reason=f"{value!r} is not supported as a literal")
        if not value.is_valid:
            return Literal(None, value.type)
        if pa.types.is_temporal(value.type):
            return Literal(value.value, value.type)
        return Literal(value.as_py(), value.type)
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        return literal_of(pa.scalar(value))
    if value is None:
        return Literal(None, pa.null())
    if isinstance(value, bool):
        return Literal(value, pa.bool_())
    if isinstance(value, int):
        return integer_literal(int(value))
    if isinstance(value, float):
        return Literal(float(value), pa.float64())
    if isinstance(value, str):
        return Literal(str(value), pa.string())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Literal(bytes(value), pa.binary())
    if isinstance(value, Decimal) and value.is_finite():
        return decimal_literal(value)
    if isinstance(value, datetime):
        micros, rest = divmod(instant_ns(value), 1000)
        if value == value and not rest:
            return Literal(micros, WALL if value.tzinfo is None else INSTANT)
    elif isinstance(value, date):
        return Literal((value - EPOCH_DATE).days, pa.date32())
    elif isinstance(value, timedelta):
        raise InvalidExpressionError(reason="write an interval as SQL: INTERVAL '1' DAY")
    raise InvalidExpressionError(
        reason=f"{value!r} ({type(value).__name__}) is not supported as a literal"
    )


def integer_literal(value: int) -> Literal:
    """An INT, a BIGINT or a decimal.

    Raises:
        InvalidExpressionError: the number has too many digits.
    """
    for type_ in INTEGERS[2:]:
        bound = 1 << (type_.bit_width - 1)
        if -bound <= value < bound:
            return Literal(value, type_)
    return decimal_literal(Decimal(value))


def decimal_literal(value: Decimal) -> Literal:
    """A DECIMAL with the written number of digits.

    Raises:
        InvalidExpressionError: there are too many digits.
    """
    type_ = decimal_of_digits(value)
    if type_ is None:
        raise InvalidExpressionError(reason=f"{value} has more than {MAX_PRECISION} digits")
    return Literal(value, type_)
