"""Pure. Operators and functions of numbers, with the types and errors of Spark's ANSI mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from decimal import Context as DecimalContext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions import entry
from lakehouse_source.language.functions.casts import to_decimal, to_integer
from lakehouse_source.language.functions.comparison import extreme
from lakehouse_source.language.functions.entry import (
    DOUBLE,
    NEVER,
    NUMBER,
    Builder,
    Context,
    Function,
    by_row,
    function,
)
from lakehouse_source.language.functions.rows import Bound, Kernel, Rows, each, listed, strict
from lakehouse_source.language.nodes import Call, Literal, Node
from lakehouse_source.language.types import (
    INTEGERS,
    MAX_PRECISION,
    adjusted,
    is_decimal,
    is_float,
    spark_name,
)
from lakehouse_source.language.values import Failure
from lakehouse_source.schema.ordinal import EXACT

# --- + - * / % div and the minus sign, with the types and errors of Spark's ANSI mode.
#
# Integers and doubles are Arrow's. Decimals are Arrow's where the exact result fits 38 digits, else
# Python's, rounded as Java's `BigDecimal` and Spark's `Decimal` round.


_CHECKED: dict[str, Callable[..., Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_FLOATING: dict[str, Callable[..., Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
# Spark's Decimal multiplies with this many digits and divides to one digit more than a scale.
_PRODUCT = DecimalContext(prec=MAX_PRECISION + 1, rounding=ROUND_HALF_UP, Emax=10**6, Emin=-(10**6))
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


# Enough for all digits of a double before the point and of a scale after the point.
_WIDE = DecimalContext(prec=1500, Emax=10**6, Emin=-(10**6))
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def absolute(context: Context, node: Call, given: list[Bound]) -> Bound:
    """The value without its sign; for the lowest integer there is no such value."""
    value = NUMBER.of(context, given[0])
    if value.type not in INTEGERS:
        kernel = with_few_digits(pc.abs, negative_only=True) if is_decimal(value.type) else pc.abs
        return strict(node, value.type, [value], kernel, can_fail=is_decimal(value.type))

    def checked(values: pa.Array) -> pa.Array:
        try:
            return pc.abs_checked(values)
        except pa.ArrowInvalid:
            raise Failure(f"overflow of {spark_name(values.type)} at its lowest value") from None

    return strict(node, value.type, [value], checked, can_fail=True)


def rounded(node: Node, value: Bound, scale: int) -> Bound:
    """`round(value, scale)`: half up, away from zero. A FLOAT is rounded as a double."""
    type_ = value.type
    if is_decimal(type_):
        to = _rounded_decimal(type_, scale)

        def one_decimal(number: Decimal) -> Decimal:
            try:
                return to_decimal(_half_up(number, min(scale, type_.scale)), to)
            except Failure as exc:
                raise Failure(f"{number} is out of range of {spark_name(to)}") from exc

        return strict(node, to, [value], each(one_decimal, to), can_fail=True)
    if type_ in INTEGERS:
        if scale >= 0:
            return value

        def one_integer(number: int) -> int:
            try:
                return to_integer(int(_half_up(Decimal(number), scale)), type_)
            except Failure as exc:
                raise Failure(f"{number} is out of range of {spark_name(type_)}") from exc

        return strict(node, type_, [value], each(one_integer, type_), can_fail=True)

    def one_float(number: float) -> float:
        if not math.isfinite(number):
            return number
        if number.is_integer() and scale >= 0:
            return number + 0.0  # Java has no -0 here
        return float(_half_up(Decimal(repr(number)), scale)) + 0.0

    wide = strict(node, pa.float64(), [value], each(one_float, pa.float64()), can_fail=False)
    if type_ == pa.float64():
        return wide
    return strict(node, type_, [wide], lambda v: v.cast(type_, safe=False), can_fail=False)


def _half_up(number: Decimal, scale: int) -> Decimal:
    if scale > 400:  # finer than any number
        return number
    if scale < -400:  # coarser
        return Decimal(0)
    return number.quantize(Decimal(1).scaleb(-scale), "ROUND_HALF_UP", _WIDE)


def _rounded_decimal(type_: pa.DataType, scale: int) -> pa.DataType:
    whole = type_.precision - type_.scale + 1
    if scale < 0:
        return pa.decimal128(min(max(whole, -scale + 1), MAX_PRECISION), 0)
    scale = min(type_.scale, scale)
    return pa.decimal128(min(whole + scale, MAX_PRECISION), scale)


def whole(node: Node, value: Bound, function: Callable[[float], int], mode: str) -> Bound:
    """`floor` or `ceil`: BIGINT of floats and integers, a decimal without scale of decimals."""
    type_ = value.type
    if is_decimal(type_):
        if type_.scale == 0:
            return value
        to = pa.decimal128(min(type_.precision - type_.scale + 1, MAX_PRECISION), 0)
        kernel = each(lambda number: number.quantize(Decimal(1), mode, EXACT), to)
        return strict(node, to, [value], kernel, can_fail=False)
    if type_ in INTEGERS:
        return strict(node, pa.int64(), [value], lambda v: v.cast(pa.int64()), can_fail=False)

    def one(number: float) -> int:
        if number != number:
            return 0  # as Java casts it
        if math.isinf(number) or not _LOWEST <= (found := function(number)) <= _HIGHEST:
            raise Failure(f"{number} is out of range of BIGINT")
        return found

    return strict(node, pa.int64(), [value], each(one, pa.int64()), can_fail=True)


_EXACT_INTEGERS = 1 << 53


def power(base: float, exponent: float) -> float:
    """`base ** exponent`, if a double holds it exactly; the last bit of others is not known."""
    if exponent == 0:
        return 1.0
    if base == int_or_none(base) and exponent == int_or_none(exponent) and 0 < exponent < 64:
        found = int(base) ** int(exponent)
        if abs(found) <= _EXACT_INTEGERS:
            return math.copysign(1.0, base) * 0.0 if found == 0 and exponent % 2 else float(found)
    raise Failure(
        f"power({base}, {exponent}) is not supported: only powers of whole numbers by whole "
        "numbers from 0 to 63, up to 2^53, are exact"
    )


def int_or_none(number: float) -> int | None:
    return int(number) if math.isfinite(number) else None


def normalised(values: pa.Array) -> pa.Array:
    """Floats with one NaN and one zero, so that equal values have equal bytes."""
    if not is_float(values.type):
        return values
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
    values = pc.if_else(pc.equal(values, zero), zero, values)
    return pc.if_else(pc.is_nan(values), nan, values)


# --- types and entries ------------------------------------------------------


def _round(context: Context, call: Call, given: list[Bound]) -> Bound:
    scale = 0
    if len(given) == 2:
        argument = call.arguments[1]
        if not isinstance(argument, Literal) or argument.type not in INTEGERS[:3]:
            raise Failure("round takes a literal INT as its second argument")
        scale = argument.value
    return rounded(call, NUMBER.of(context, given[0]), scale)


def _whole(function: Callable[[float], int], mode: str) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        return whole(call, NUMBER.of(context, given[0]), function, mode)

    return build


def _is_nan(context: Context, call: Call, given: list[Bound]) -> Bound:
    value = DOUBLE.of(context, given[0])

    def run(rows: Rows) -> pa.Array:
        return pc.fill_null(pc.is_nan(value.run(rows)), False)

    return Bound(call, pa.bool_(), run, value.can_fail)


def _extreme(greatest: bool) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        texts = [value.type == pa.string() for value in given if not pa.types.is_null(value.type)]
        if any(texts) and not all(texts):
            raise Failure(f"{call.name} does not take texts beside other values: cast them")
        return extreme(call, context.alike(given), greatest=greatest)

    return build


def _operator(op: str) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        return context.bind(Call(op, call.arguments))

    return build


_SAME = "type of the argument"
_WHOLE = "BIGINT or DECIMAL"
_FLOOR = Function(1, 1, _whole(math.floor, "ROUND_FLOOR"), NUMBER.name, _WHOLE, entry.first)
_CEILING = Function(1, 1, _whole(math.ceil, "ROUND_CEILING"), NUMBER.name, _WHOLE, entry.first)
_POWER = by_row(power, pa.float64(), DOUBLE, DOUBLE, can_fail=True)
_EXTREME = ("values of one type", "common type", None, "arguments without NULL")

FUNCTIONS: dict[str, Function] = {
    "abs": Function(1, 1, absolute, NUMBER.name, _SAME),
    "round": Function(1, 2, _round, "a number, a literal INT", _SAME, entry.first),
    "floor": _FLOOR,
    **dict.fromkeys(("ceil", "ceiling"), _CEILING),
    "sqrt": function(pc.sqrt, pa.float64(), DOUBLE),
    **dict.fromkeys(("power", "pow"), _POWER),
    "mod": Function(2, 2, _operator("%"), "two numbers", "common type"),
    "greatest": Function(2, None, _extreme(True), *_EXTREME),
    "least": Function(2, None, _extreme(False), *_EXTREME),
    "isnan": Function(1, 1, _is_nan, "DOUBLE", "BOOLEAN", nulls=NEVER),
}
