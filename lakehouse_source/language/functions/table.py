"""Pure. The functions that expressions know: their arguments, types and kernels.

Source: Spark's `stringExpressions`, `mathExpressions`, `datetimeExpressions` and
`conditionalExpressions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from lakehouse_source.language.functions import arguments, dates, numbers, order, text
from lakehouse_source.language.functions.arguments import Builder, Context, function
from lakehouse_source.language.functions.comparison import compare, extreme, is_null
from lakehouse_source.language.functions.conditional import choice, first_valid
from lakehouse_source.language.functions.nested import array, size, struct
from lakehouse_source.language.functions.order import Order
from lakehouse_source.language.functions.rows import Bound, Kernel, Rows, each, literal, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Call, Literal
from lakehouse_source.language.tree.types import INSTANT, INTEGERS

INT, STRING, DATE, BOOLEAN = pa.int32(), pa.string(), pa.date32(), pa.bool_()


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


def _end(kernel: Callable[[str, int], str]) -> Builder:
    return function(each(kernel, STRING), STRING, arguments.text, arguments.integer)


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


# --- the list ---------------------------------------------------------------

NULL_IN = "NULL where an argument is NULL"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of expressions.

    It takes from `least` to `most` arguments; None: any number. `build` gives types and makes it.
    `order` tells which argument the result follows, so that a comparison of it is a range of that
    argument. `nulls` is the rule for NULL. `prunes` says what else a comparison implies, and
    `result` is its type or how that is found.
    """

    least: int
    most: int | None
    build: Builder
    result: str
    order: Order | None = None
    nulls: str = NULL_IN
    prunes: str = ""

    @property
    def is_strict(self) -> bool:
        """Tell whether the result is NULL where an argument is NULL, and nowhere else."""
        return self.nulls == NULL_IN


_UPPER = Function(1, 1, _case(text.change_case(str.upper, text.ascii_upper)), "STRING")
_LOWER = Function(1, 1, _case(text.change_case(str.lower, text.ascii_lower)), "STRING")
_CEILING = Function(1, 1, _whole(math.ceil, "ROUND_CEILING"), "BIGINT or DECIMAL", order.first)
_LENGTH = Function(1, 1, _length, "INT")
_PREFIX = "a range, where the part begins at the first character"
_SUBSTRING = Function(2, 3, _substring, "STRING", prunes=_PREFIX)
_RLIKE = Function(2, 2, _rlike, "BOOLEAN")
_POWER = Function(
    2,
    2,
    function(
        each(numbers.power, pa.float64()),
        pa.float64(),
        arguments.double,
        arguments.double,
        can_fail=True,
    ),
    "DOUBLE",
)
_NEVER = "never NULL"
_FIRST_VALUE = "the first argument that is not NULL"
_COALESCE = Function(
    1, None, _coalesce, "common type", None, _FIRST_VALUE, "what each argument implies"
)
_IFNULL = replace(_COALESCE, least=2, most=2)
_ITS_COLUMN = "a range of a column, or of its first characters"

# Not of Spark's SQL, and no name that SQL text can have: what Spark's joins do to keys.
NORMALISED_KEY = "normalised key"
FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(("upper", "ucase"), _UPPER),
    **dict.fromkeys(("lower", "lcase"), _LOWER),
    **{
        side: Function(1, 1, function(text.trim(side), STRING, arguments.text), "STRING")
        for side in ("trim", "ltrim", "rtrim")
    },
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _LENGTH),
    "concat": Function(
        0, None, _concat, "STRING or BINARY", prunes="a range, where a column ends the text"
    ),
    **dict.fromkeys(("substring", "substr"), _SUBSTRING),
    "left": Function(
        2,
        2,
        function(each(text.left, STRING), STRING, arguments.text, arguments.integer),
        "STRING",
        prunes=_PREFIX,
    ),
    "right": Function(
        2,
        2,
        function(each(text.right, STRING), STRING, arguments.text, arguments.integer),
        "STRING",
    ),
    "replace": Function(2, 3, _replace, "STRING"),
    "lpad": Function(2, 3, _pad(text.lpad), "STRING"),
    "rpad": Function(2, 3, _pad(text.rpad), "STRING"),
    "startswith": Function(2, 2, _search(text.starts_with), "BOOLEAN", prunes=_ITS_COLUMN),
    "endswith": Function(2, 2, _search(text.ends_with), "BOOLEAN"),
    "contains": Function(2, 2, _search(text.contains), "BOOLEAN"),
    "like": Function(3, 3, _like, "BOOLEAN", prunes=_ITS_COLUMN),
    "ilike": Function(3, 3, _ilike, "BOOLEAN"),
    **dict.fromkeys(("rlike", "regexp", "regexp_like"), _RLIKE),
    "abs": Function(1, 1, _abs, "type of the argument"),
    "round": Function(1, 2, _round, "type of the argument", order.first),
    "floor": Function(1, 1, _whole(math.floor, "ROUND_FLOOR"), "BIGINT or DECIMAL", order.first),
    **dict.fromkeys(("ceil", "ceiling"), _CEILING),
    "sqrt": Function(1, 1, function(numbers.square_root, pa.float64(), arguments.double), "DOUBLE"),
    **dict.fromkeys(("power", "pow"), _POWER),
    "mod": Function(2, 2, _operator("%"), "common type"),
    "greatest": Function(2, None, _extreme(True), "common type", nulls="arguments without NULL"),
    "least": Function(2, None, _extreme(False), "common type", nulls="arguments without NULL"),
    "isnan": Function(1, 1, _is_nan, "BOOLEAN", nulls=_NEVER),
    "isnull": Function(1, 1, _is_null(False), "BOOLEAN", nulls=_NEVER, prunes="NULL in a column"),
    "isnotnull": Function(
        1, 1, _is_null(True), "BOOLEAN", nulls=_NEVER, prunes="a value in each column"
    ),
    "coalesce": _COALESCE,
    **dict.fromkeys(("nvl", "ifnull"), _IFNULL),
    "nullif": Function(
        2,
        2,
        _null_if,
        "type of the first argument",
        nulls="where both are equal, or the first is NULL",
        prunes="what the first argument implies",
    ),
    "nvl2": Function(
        3,
        3,
        _nvl2,
        "common type",
        nulls="the second or third argument",
        prunes="what each of the two implies",
    ),
    **{
        name: Function(1, 1, builder, "INT", keeps)
        for name, builder, keeps in (
            ("year", dates.YEAR, order.moment),
            ("quarter", dates.QUARTER, None),
            ("month", dates.MONTH, None),
            ("day", dates.DAY, None),
            ("dayofmonth", dates.DAY, None),
            ("dayofyear", dates.DAY_OF_YEAR, None),
            ("dayofweek", dates.DAY_OF_WEEK, None),
            ("weekday", dates.WEEKDAY, None),
            ("hour", dates.clock(3600, 24), None),
            ("minute", dates.clock(60, 60), None),
            ("second", dates.clock(1, 60), None),
            ("unix_date", dates.UNIX_DATE, order.moment),
        )
    },
    "trunc": Function(2, 2, dates.trunc, "DATE", order.moment, "also where the unit is not known"),
    "date_trunc": Function(
        2, 2, dates.date_trunc, "TIMESTAMP", order.moment, "also where the unit is not known"
    ),
    "last_day": Function(1, 1, dates.LAST_DAY, "DATE", order.moment),
    **dict.fromkeys(("date_add", "dateadd"), Function(2, 2, dates.ADDED, "DATE", order.days_added)),
    "date_sub": Function(2, 2, dates.TAKEN, "DATE", order.days_taken),
    **dict.fromkeys(
        ("datediff", "date_diff"), Function(2, 2, dates.DAYS_BETWEEN, "INT", order.days_taken)
    ),
    "to_date": Function(1, 1, dates.cast_to(DATE), "DATE", order.cast_to(DATE)),
    "to_timestamp": Function(1, 1, dates.cast_to(INSTANT), "TIMESTAMP", order.cast_to(INSTANT)),
    **dict.fromkeys(("current_date", "curdate"), Function(0, 0, dates.today, "DATE", nulls=_NEVER)),
    **dict.fromkeys(
        ("current_timestamp", "now"), Function(0, 0, dates.now, "TIMESTAMP", nulls=_NEVER)
    ),
    "struct": Function(1, None, struct, "STRUCT", nulls=_NEVER),
    "named_struct": Function(2, None, struct, "STRUCT", nulls=_NEVER),
    "array": Function(1, None, array, "ARRAY", nulls=_NEVER),
    **dict.fromkeys(("size", "cardinality"), Function(1, 1, size, "INT")),
    NORMALISED_KEY: Function(1, 1, _normalised, "type of the argument"),
}
# What gives another value each time, or on each row: a condition must not.
NOT_DETERMINISTIC = frozenset(
    {
        *("rand", "random", "randn", "randstr", "uniform", "shuffle", "uuid", "reflect"),
        *("monotonically_increasing_id", "spark_partition_id", "java_method"),
        *("input_file_name", "input_file_block_start", "input_file_block_length"),
    }
)


def check_known(name: str) -> None:
    """Check that there is a function of a name.

    Raises:
        Failure: there is not. The message names those that are written most like it.
    """
    if name in FUNCTIONS:
        return
    if name in NOT_DETERMINISTIC:
        raise Failure(f"function {name} is not deterministic: its value changes from row to row")
    near = get_close_matches(name, FUNCTIONS, 3, 0.6)
    hint = f"the nearest known is {near[0]}" if near else "docs/conditions.md lists those that are"
    raise Failure(f"function {name} is not supported; {hint}")


def build(context: Context, call: Call) -> Bound:
    """The function that a call names.

    Raises:
        Failure: it is not known, or does not take these arguments.
    """
    check_known(call.name)
    known, count = FUNCTIONS[call.name], len(call.arguments)
    if count < known.least or (known.most is not None and count > known.most):
        raise Failure(f"function {call.name} does not take {count} arguments")
    return known.build(context, call, [context.bind(argument) for argument in call.arguments])
