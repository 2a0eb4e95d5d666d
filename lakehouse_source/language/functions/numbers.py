"""Pure. Functions of numbers: `abs`, `round`, `floor`, `ceil`, `sqrt`, `power`."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context as Digits
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions import order
from lakehouse_source.language.functions.arithmetic import with_few_digits
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
from lakehouse_source.language.functions.rows import Bound, Rows, each, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Call, Literal, Node
from lakehouse_source.language.tree.types import (
    INTEGERS,
    MAX_PRECISION,
    is_decimal,
    is_float,
    spark_name,
)
from lakehouse_source.schema.ordinal import EXACT

# Enough for all digits of a double before the point and of a scale after the point.
_WIDE = Digits(prec=1500, Emax=10**6, Emin=-(10**6))
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
_FLOOR = Function(1, 1, _whole(math.floor, "ROUND_FLOOR"), NUMBER.name, _WHOLE, order.first)
_CEILING = Function(1, 1, _whole(math.ceil, "ROUND_CEILING"), NUMBER.name, _WHOLE, order.first)
_POWER = by_row(power, pa.float64(), DOUBLE, DOUBLE, can_fail=True)
_EXTREME = ("values of one type", "common type", None, "arguments without NULL")

FUNCTIONS: dict[str, Function] = {
    "abs": Function(1, 1, absolute, NUMBER.name, _SAME),
    "round": Function(1, 2, _round, "a number, a literal INT", _SAME, order.first),
    "floor": _FLOOR,
    **dict.fromkeys(("ceil", "ceiling"), _CEILING),
    "sqrt": function(pc.sqrt, pa.float64(), DOUBLE),
    **dict.fromkeys(("power", "pow"), _POWER),
    "mod": Function(2, 2, _operator("%"), "two numbers", "common type"),
    "greatest": Function(2, None, _extreme(True), *_EXTREME),
    "least": Function(2, None, _extreme(False), *_EXTREME),
    "isnan": Function(1, 1, _is_nan, "DOUBLE", "BOOLEAN", nulls=NEVER),
}
