"""Pure. The functions that expressions know: their arguments, types and kernels.

Source: Spark's `stringExpressions`, `mathExpressions`, `datetimeExpressions` and
`conditionalExpressions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakehouse_source.expression import arguments, numbers, text
from lakehouse_source.expression.arguments import Context
from lakehouse_source.expression.comparison import compare, extreme, is_null
from lakehouse_source.expression.conditional import choice, first_valid
from lakehouse_source.expression.failures import Failure
from lakehouse_source.expression.moments import (
    DAY_US,
    SECOND_US,
    civil,
    date_text,
    wall_us,
)
from lakehouse_source.expression.nested import array, struct
from lakehouse_source.expression.nodes import Call, Literal, spark_name
from lakehouse_source.expression.rows import Bound, Kernel, Rows, each, literal, strict
from lakehouse_source.expression.types import INSTANT, INTEGERS, WALL

INT, STRING, DATE, BOOLEAN = pa.int32(), pa.string(), pa.date32(), pa.bool_()


Builder = Callable[[Context, Call, list[Bound]], Bound]


def _function(
    kernel: Kernel, type_: pa.DataType, *converts: arguments.Argument, can_fail: bool = False
) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        values = [convert(context, value) for convert, value in zip(converts, given)]
        return strict(call, type_, values, kernel, can_fail=can_fail)

    return build


# --- text -------------------------------------------------------------------


def _case(kernel: Kernel) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        # Spark's optimiser makes `lower(upper(s))` `lower(s)`, which is not the same for 'ﬁ'.
        inner = call.arguments[0]
        while isinstance(inner, Call) and inner.name in ("upper", "ucase", "lower", "lcase"):
            inner = inner.arguments[0]
        value = arguments.text(context, context.bind(inner))
        return strict(call, STRING, [value], kernel, can_fail=True)

    return build


def _length(context: Context, call: Call, given: list[Bound]) -> Bound:
    value = given[0] if given[0].type == pa.binary() else arguments.text(context, given[0])
    return strict(call, INT, [value], text.length, can_fail=False)


def _concat(context: Context, call: Call, given: list[Bound]) -> Bound:
    if not given:
        return context.bind(Literal("", STRING))
    if all(value.type == pa.binary() for value in given):
        return strict(call, pa.binary(), given, text.concat, can_fail=False)
    values = [arguments.text(context, value) for value in given]
    return strict(call, STRING, values, text.concat, can_fail=False)


def _substring(context: Context, call: Call, given: list[Bound]) -> Bound:
    places = [found.value for one in given[1:] if (found := literal(one)) is not None]
    if len(places) == len(given) - 1 and all(isinstance(one, int) for one in places):
        value = arguments.text(context, given[0])
        for one in given[1:]:
            arguments.integer(context, one)
        return strict(call, STRING, [value], text.literal_substring(*places), can_fail=False)
    values = [
        arguments.text(context, given[0]),
        *(arguments.integer(context, value) for value in given[1:]),
    ]
    if len(values) == 2:
        whole = each(lambda found, start: text.substring(found, start, 2**31 - 1), STRING)
        return strict(call, STRING, values, whole, can_fail=False)
    return strict(call, STRING, values, each(text.substring, STRING), can_fail=False)


def _replace(context: Context, call: Call, given: list[Bound]) -> Bound:
    values = [arguments.text(context, value) for value in given]
    if len(values) == 2:
        kernel = each(lambda found, old: text.replace(found, old, ""), STRING)
        return strict(call, STRING, values, kernel, can_fail=False)
    return strict(call, STRING, values, each(text.replace, STRING), can_fail=False)


def _pad(function: Callable[[str, int, str], str]) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        if len(given) == 2:
            given = [*given, context.bind(Literal(" ", STRING))]
        values = [
            arguments.text(context, given[0]),
            arguments.integer(context, given[1]),
            arguments.text(context, given[2]),
        ]
        return strict(call, STRING, values, each(function, STRING), can_fail=True)

    return build


def _search(function: Callable[[Any, Any], bool]) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        values = given
        if not all(value.type == pa.binary() for value in given):
            values = [arguments.text(context, value) for value in given]
        return strict(call, BOOLEAN, values, text.search(function, values[1]), can_fail=False)

    return build


def _like(context: Context, call: Call, given: list[Bound]) -> Bound:
    escape = call.arguments[2]
    if not isinstance(escape, Literal) or not isinstance(escape.value, str):
        raise Failure("ESCAPE takes one character")
    values = [arguments.text(context, value) for value in given[:2]]
    kernel = text.like_kernel(values[1], escape.value)
    return strict(call, BOOLEAN, values, kernel, can_fail=literal(values[1]) is None)


def _ilike(context: Context, call: Call, given: list[Bound]) -> Bound:
    low = [Call("lower", (argument,)) for argument in call.arguments[:2]]
    return context.bind(Call("like", (*low, call.arguments[2])))


def _rlike(context: Context, call: Call, given: list[Bound]) -> Bound:
    values = [arguments.text(context, value) for value in given]
    return strict(call, BOOLEAN, values, text.regex_kernel(values[1]), can_fail=False)


# --- numbers ----------------------------------------------------------------


def _abs(context: Context, call: Call, given: list[Bound]) -> Bound:
    return numbers.absolute(call, arguments.number(context, given[0]))


def _round(context: Context, call: Call, given: list[Bound]) -> Bound:
    scale = 0
    if len(given) == 2:
        argument = call.arguments[1]
        if not isinstance(argument, Literal) or argument.type not in INTEGERS[:3]:
            raise Failure("round takes a literal INT as its second argument")
        scale = argument.value
    return numbers.rounded(call, arguments.number(context, given[0]), scale)


def _whole(function: Callable[[float], int], mode: str) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        return numbers.whole(call, arguments.number(context, given[0]), function, mode)

    return build


def _is_nan(context: Context, call: Call, given: list[Bound]) -> Bound:
    value = arguments.double(context, given[0])

    def run(rows: Rows) -> pa.Array:
        return numbers.is_nan(value.run(rows))

    return Bound(call, BOOLEAN, run, value.can_fail)


def _extreme(greatest: bool) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        texts = [value.type == STRING for value in given if not pa.types.is_null(value.type)]
        if any(texts) and not all(texts):
            raise Failure(f"{call.name} does not take texts beside other values: cast them")
        return extreme(call, context.alike(given), greatest=greatest)

    return build


def _operator(op: str) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        return context.bind(Call(op, call.arguments))

    return build


def _normalised(context: Context, call: Call, given: list[Bound]) -> Bound:
    return strict(call, given[0].type, given, numbers.normalised, can_fail=False)


# --- NULL -------------------------------------------------------------------


def _is_null(negated: bool) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        return is_null(call, given[0], negated=negated)

    return build


def _coalesce(context: Context, call: Call, given: list[Bound]) -> Bound:
    return first_valid(call, context.alike(given))


def _null_if(context: Context, call: Call, given: list[Bound]) -> Bound:
    left, right = context.alike(given)
    equal = compare(call, "=", left, right)
    null = context.cast(context.bind(Literal(None, pa.null())), given[0].type)
    return choice(call, [(equal, null)], given[0])


def _nvl2(context: Context, call: Call, given: list[Bound]) -> Bound:
    yes, no = context.alike(given[1:])
    return choice(call, [(is_null(call, given[0], negated=True), yes)], no)


# --- dates ------------------------------------------------------------------


def _calendar(place: int) -> Builder:
    return _function(each(lambda days: civil(days)[place], INT), INT, arguments.date)


def _clock(unit: int, modulus: int) -> Builder:
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


def _cast_to(type_: pa.DataType) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        allowed = (STRING, DATE, INSTANT, WALL, pa.null())
        if given[0].type not in allowed:
            raise Failure(f"{spark_name(given[0].type)} stands where text should")
        return context.cast(given[0], type_)

    return build


def _now(context: Context, call: Call, given: list[Bound]) -> Bound:
    return context.bind(Literal(context.now_us, INSTANT))


def _today(context: Context, call: Call, given: list[Bound]) -> Bound:
    return context.bind(Literal(wall_us(context.now_us, context.zone) // DAY_US, DATE))


# --- the list ---------------------------------------------------------------

_UPPER = _case(text.change_case(str.upper, text.ascii_upper))
_LOWER = _case(text.change_case(str.lower, text.ascii_lower))
_CEILING = _whole(math.ceil, "ROUND_CEILING")
_ADDED = _function(_shifted(1), DATE, arguments.only_date, arguments.integer, can_fail=True)
_DAYS = _function(
    each(lambda end, start: end - start, INT), INT, arguments.only_date, arguments.only_date
)

# Not of Spark's SQL, and no name that SQL text can have: what Spark's joins do to keys.
NORMALISED_KEY = "normalised key"
# By name: how many arguments a function takes at least and at most, and what builds it.
FUNCTIONS: dict[str, tuple[int, int | None, Builder]] = {
    **dict.fromkeys(("upper", "ucase"), (1, 1, _UPPER)),
    **dict.fromkeys(("lower", "lcase"), (1, 1, _LOWER)),
    **{
        side: (1, 1, _function(text.trim(side), STRING, arguments.text))
        for side in ("trim", "ltrim", "rtrim")
    },
    **dict.fromkeys(("length", "len", "char_length", "character_length"), (1, 1, _length)),
    "concat": (0, None, _concat),
    **dict.fromkeys(("substring", "substr"), (2, 3, _substring)),
    "left": (2, 2, _function(each(text.left, STRING), STRING, arguments.text, arguments.integer)),
    "right": (2, 2, _function(each(text.right, STRING), STRING, arguments.text, arguments.integer)),
    "replace": (2, 3, _replace),
    "lpad": (2, 3, _pad(text.lpad)),
    "rpad": (2, 3, _pad(text.rpad)),
    "startswith": (2, 2, _search(text.starts_with)),
    "endswith": (2, 2, _search(text.ends_with)),
    "contains": (2, 2, _search(text.contains)),
    "like": (3, 3, _like),
    "ilike": (3, 3, _ilike),
    **dict.fromkeys(("rlike", "regexp", "regexp_like"), (2, 2, _rlike)),
    "abs": (1, 1, _abs),
    "round": (1, 2, _round),
    "floor": (1, 1, _whole(math.floor, "ROUND_FLOOR")),
    **dict.fromkeys(("ceil", "ceiling"), (1, 1, _CEILING)),
    "sqrt": (1, 1, _function(numbers.square_root, pa.float64(), arguments.double)),
    **dict.fromkeys(
        ("power", "pow"),
        (
            2,
            2,
            _function(
                each(numbers.power, pa.float64()),
                pa.float64(),
                arguments.double,
                arguments.double,
                can_fail=True,
            ),
        ),
    ),
    "mod": (2, 2, _operator("%")),
    "greatest": (2, None, _extreme(True)),
    "least": (2, None, _extreme(False)),
    "isnan": (1, 1, _is_nan),
    "isnull": (1, 1, _is_null(False)),
    "isnotnull": (1, 1, _is_null(True)),
    "coalesce": (1, None, _coalesce),
    **dict.fromkeys(("nvl", "ifnull"), (2, 2, _coalesce)),
    "nullif": (2, 2, _null_if),
    "nvl2": (3, 3, _nvl2),
    "year": (1, 1, _calendar(0)),
    "month": (1, 1, _calendar(1)),
    **dict.fromkeys(("day", "dayofmonth"), (1, 1, _calendar(2))),
    "hour": (1, 1, _clock(3600, 24)),
    "minute": (1, 1, _clock(60, 60)),
    "second": (1, 1, _clock(1, 60)),
    **dict.fromkeys(("date_add", "dateadd"), (2, 2, _ADDED)),
    "date_sub": (
        2,
        2,
        _function(_shifted(-1), DATE, arguments.only_date, arguments.integer, can_fail=True),
    ),
    **dict.fromkeys(("datediff", "date_diff"), (2, 2, _DAYS)),
    "to_date": (1, 1, _cast_to(DATE)),
    "to_timestamp": (1, 1, _cast_to(INSTANT)),
    **dict.fromkeys(("current_date", "curdate"), (0, 0, _today)),
    **dict.fromkeys(("current_timestamp", "now"), (0, 0, _now)),
    "struct": (1, None, struct),
    "named_struct": (2, None, struct),
    "array": (1, None, array),
    NORMALISED_KEY: (1, 1, _normalised),
}


def build(context: Context, call: Call) -> Bound:
    """The function that a call names.

    Raises:
        Failure: it is not known, or does not take these arguments.
    """
    known = FUNCTIONS.get(call.name)
    if known is None:
        raise Failure(
            f"function {call.name} is not supported; known are "
            + ", ".join(sorted(set(FUNCTIONS) - {NORMALISED_KEY}))
        )
    least, most, builder = known
    count = len(call.arguments)
    if count < least or (most is not None and count > most):
        raise Failure(f"function {call.name} does not take {count} arguments")
    return builder(context, call, [context.bind(argument) for argument in call.arguments])
