"""Pure. + - * / % div and the minus sign, with the types and errors of Spark's ANSI mode.

Integers and doubles are Arrow's. Decimals are Arrow's where the exact result fits 38
digits, else Python's, rounded as Java's `BigDecimal` and Spark's `Decimal` round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions.casts import to_decimal, to_integer
from lakehouse_source.language.functions.rows import Bound, Kernel, each, listed, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Node
from lakehouse_source.language.tree.types import (
    INTEGERS,
    MAX_PRECISION,
    adjusted,
    is_decimal,
    spark_name,
)
from lakehouse_source.schema.ordinal import EXACT

_CHECKED: dict[str, Callable[..., Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_FLOATING: dict[str, Callable[..., Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
# Spark's Decimal multiplies with this many digits and divides to one digit more than a scale.
_PRODUCT = Context(prec=MAX_PRECISION + 1, rounding=ROUND_HALF_UP, Emax=10**6, Emin=-(10**6))
_DIGITS = 34  # of Scala's BigDecimal
_QUOTIENT_DIGITS = Decimal(1).scaleb(-(MAX_PRECISION + 1))


def operate(node: Node, op: str, left: Bound, right: Bound) -> Bound:
    """`left op right` of two values of one type; decimals may have two.

    Raises:
        Failure: the operator does not apply to the type.
    """
    type_ = left.type
    if is_decimal(type_):
        return _decimal(node, op, left, right)
    if type_ in INTEGERS and op in ("+", "-", "*"):
        return strict(node, type_, [left, right], _integers(op), can_fail=True)
    if type_ == pa.int64() and op == "div":
        return strict(node, type_, [left, right], _whole_quotient, can_fail=True, order=(1, 0))
    if type_ in INTEGERS and op == "%":
        return strict(node, type_, [left, right], _whole_rest, can_fail=True, order=(1, 0))
    if pa.types.is_floating(type_):
        if op in _FLOATING:
            return strict(node, type_, [left, right], _FLOATING[op], can_fail=False)
        if op == "%":
            kernel = _divisor_checked(each(_float_rest, type_))
            return strict(node, type_, [left, right], kernel, can_fail=True, order=(1, 0))
        if op == "/":
            kernel = _divisor_checked(pc.divide)
            return strict(node, type_, [left, right], kernel, can_fail=True, order=(1, 0))
    raise Failure(f"{op} does not apply to {spark_name(type_)}")


def negative(node: Node, value: Bound) -> Bound:
    """The value with the other sign."""
    if value.type in INTEGERS:
        return strict(node, value.type, [value], _overflow_named(pc.negate_checked), can_fail=True)
    if pa.types.is_floating(value.type):
        return strict(node, value.type, [value], pc.negate, can_fail=False)
    if is_decimal(value.type):
        return strict(node, value.type, [value], with_few_digits(pc.negate), can_fail=True)
    raise Failure(f"the minus sign does not apply to {spark_name(value.type)}")


def with_few_digits(kernel: Callable[..., Any], *, negative_only: bool = False) -> Kernel:
    """The kernel for decimals of at most 34 digits. Spark rounds longer ones when it negates."""

    def is_rounded(value: Decimal) -> bool:
        return len(value.as_tuple().digits) > _DIGITS and (value < 0 or not negative_only)

    def checked(values: pa.Array) -> pa.Array:
        if values.type.precision > _DIGITS:
            for value in values.to_pylist():
                if value is not None and is_rounded(value):
                    raise Failure(f"{value} has more than {_DIGITS} digits, and Spark rounds it")
        return kernel(values)

    return checked


# --- integers and floats ----------------------------------------------------


def _integers(op: str) -> Kernel:
    return _overflow_named(_CHECKED[op])


def _overflow_named(kernel: Callable[..., Any]) -> Kernel:
    """The kernel, whose errors name the values at which it fails."""

    def checked(*values: pa.Array) -> pa.Array:
        try:
            return kernel(*values)
        except pa.ArrowInvalid:
            for row in zip(*(listed(each) for each in values)):
                try:
                    kernel(*(pa.array([v], a.type) for v, a in zip(row, values)))
                except pa.ArrowInvalid:
                    shown = " and ".join(map(str, row))
                    raise Failure(f"overflow of {spark_name(values[0].type)} at {shown}") from None
            raise

    return checked


def _require_divisor(left: pa.Array, right: pa.Array) -> None:
    zero = pc.and_(pc.equal(right, pa.scalar(0, right.type)), pc.is_valid(left))
    if pc.any(zero).as_py():
        raise Failure(f"division of {listed(left.filter(zero))[0]} by zero")


def _divisor_checked(kernel: Kernel) -> Kernel:
    def checked(left: pa.Array, right: pa.Array) -> pa.Array:
        _require_divisor(left, right)
        # The left side is NULL where a divisor is still zero.
        return kernel(left, right)

    return checked


def _without_zero(left: pa.Array, right: pa.Array) -> pa.Array:
    _require_divisor(left, right)
    gone = pc.equal(right, pa.scalar(0, right.type))
    return pc.if_else(gone, pa.scalar(None, right.type), right)


def _whole_quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    return _overflow_named(pc.divide_checked)(left, _without_zero(left, right))


def _whole_rest(left: pa.Array, right: pa.Array) -> pa.Array:
    divisor = _without_zero(left, right)
    one, minus = pa.scalar(1, right.type), pa.scalar(-1, right.type)
    # Dividing the lowest integer by -1 overflows; the remainder by 1 is the same.
    divisor = pc.if_else(pc.equal(divisor, minus), one, divisor)
    return pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))


def _float_rest(left: float, right: float) -> float:
    """Java's % of doubles: the sign is the dividend's, and infinity has no remainder."""
    if math.isinf(left) or left != left or right != right:
        return math.nan
    return math.fmod(left, right)


# --- decimals ---------------------------------------------------------------


def _decimal(node: Node, op: str, left: Bound, right: Bound) -> Bound:
    a, b = left.type, right.type
    whole = max(a.precision - a.scale, b.precision - b.scale)
    scale = max(a.scale, b.scale)
    if op in ("+", "-", "*"):
        precision, scale = (
            (a.precision + b.precision + 1, a.scale + b.scale)
            if op == "*"
            else (whole + scale + 1, scale)
        )
        type_ = adjusted(precision, scale)
        if precision <= MAX_PRECISION:
            return strict(node, type_, [left, right], _FLOATING[op], can_fail=False)
        return strict(node, type_, [left, right], _exact(op, type_), can_fail=True)
    if op == "/":
        scale = max(6, a.scale + b.precision + 1)
        type_ = adjusted(a.precision - a.scale + b.scale + scale, scale)
    elif op == "%":
        type_ = adjusted(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    else:
        type_ = pa.int64()
    kernel = _divisor_checked(_exact(op, type_))
    return strict(node, type_, [left, right], kernel, can_fail=True, order=(1, 0))


def _exact(op: str, type_: pa.DataType) -> Kernel:
    function = _DECIMAL[op]

    def one(left: Decimal, right: Decimal) -> Any:
        try:
            found = function(left, right)
            return to_integer(int(found), type_) if op == "div" else to_decimal(found, type_)
        except (Failure, ArithmeticError):
            raise Failure(f"{left} {op} {right} is out of range of {spark_name(type_)}") from None

    return each(one, type_)


def _rest(left: Decimal, right: Decimal) -> Decimal:
    _quotient(left, right)
    return EXACT.remainder(left, right)


def _quotient(left: Decimal, right: Decimal) -> Decimal:
    found = EXACT.divide_int(left, right)
    if found.adjusted() > MAX_PRECISION:  # Java fails here too
        raise Failure
    return found


def _divided(left: Decimal, right: Decimal) -> Decimal:
    """The quotient to 39 digits after the point, the last one rounded half up."""
    numerator, denominator = left.as_integer_ratio(), right.as_integer_ratio()
    top = numerator[0] * denominator[1] * 10 ** (MAX_PRECISION + 1)
    bottom = numerator[1] * denominator[0]
    sign = -1 if (top < 0) != (bottom < 0) else 1
    rounded = (2 * abs(top) + abs(bottom)) // (2 * abs(bottom))
    return EXACT.multiply(Decimal(sign * rounded), _QUOTIENT_DIGITS)


_DECIMAL: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": _PRODUCT.multiply,
    "/": _divided,
    "%": _rest,
    "div": _quotient,
}
