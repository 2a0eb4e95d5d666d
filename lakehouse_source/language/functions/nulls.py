"""Pure. Functions about NULL, which choose among their arguments."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakehouse_source.language.functions.comparison import compare, is_null
from lakehouse_source.language.functions.conditional import choice, first_valid
from lakehouse_source.language.functions.entry import NEVER, Builder, Context, Function
from lakehouse_source.language.functions.rows import Bound
from lakehouse_source.language.tree.nodes import Call, Literal


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


_ONE_TYPE = "values of one type"
_EACH = "what each argument implies"
_FIRST = "the first argument that is not NULL"
_COALESCE = Function(1, None, _coalesce, _ONE_TYPE, "common type", None, _FIRST, _EACH)
_NULL = "NULL in a column"
_VALUE = "a value in each column"

FUNCTIONS: dict[str, Function] = {
    "isnull": Function(1, 1, _is_null(False), "any", "BOOLEAN", nulls=NEVER, prunes=_NULL),
    "isnotnull": Function(1, 1, _is_null(True), "any", "BOOLEAN", nulls=NEVER, prunes=_VALUE),
    "coalesce": _COALESCE,
    **dict.fromkeys(("nvl", "ifnull"), replace(_COALESCE, least=2, most=2)),
    "nullif": Function(
        2,
        2,
        _null_if,
        _ONE_TYPE,
        "type of the first argument",
        nulls="where both are equal, or the first is NULL",
        prunes="what the first argument implies",
    ),
    "nvl2": Function(
        3,
        3,
        _nvl2,
        "any, values of one type",
        "common type",
        nulls="the second or third argument",
        prunes="what each of the two implies",
    ),
}
