"""Pure. Comparisons, AND, OR, NOT, CASE, COALESCE and functions about NULL, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions.entry import NEVER, Builder, Context, Function
from lakehouse_source.language.functions.rows import (
    Bound,
    Kernel,
    Rows,
    flat,
    indices_where,
    literal,
    no_column,
    run_where,
    scatter,
    strict,
)
from lakehouse_source.language.nodes import Call, Literal, Node
from lakehouse_source.language.types import is_compared, is_float, is_moment, spark_name
from lakehouse_source.language.values import Failure
from lakehouse_source.schema.variant import is_variant

# --- AND, OR, NOT, CASE and COALESCE, evaluated per row from left to right as in Spark.


def all_true(node: Node, terms: Sequence[Bound]) -> Bound:
    """`a AND b`: later terms are not evaluated on a row that is FALSE already."""
    return _chain(node, terms, stops_at=False)


def any_true(node: Node, terms: Sequence[Bound]) -> Bound:
    """`a OR b`: later terms are not evaluated on a row that is TRUE already."""
    return _chain(node, terms, stops_at=True)


def _chain(node: Node, terms: Sequence[Bound], *, stops_at: bool) -> Bound:
    combine = pc.or_kleene if stops_at else pc.and_kleene

    def run(rows: Rows) -> pa.Array:
        found = terms[0].run(rows)
        for term in terms[1:]:
            if term.can_fail:
                settled = found if stops_at else pc.invert(found)
                asks = pc.invert(pc.fill_null(settled, False))
                found = combine(found, run_where(term, rows, asks))
            else:
                found = combine(found, term.run(rows))
        return found

    return Bound(node, pa.bool_(), run, any(term.can_fail for term in terms))


def negation(node: Node, value: Bound) -> Bound:
    """NOT; NULL stays NULL."""
    return strict(node, pa.bool_(), [value], pc.invert, can_fail=False)


def choice(node: Node, branches: Sequence[tuple[Bound, Bound]], otherwise: Bound) -> Bound:
    """The value of the first branch whose condition is TRUE. Other branches are not evaluated."""
    parts = [part for branch in branches for part in branch]
    can_fail = any(part.can_fail for part in (*parts, otherwise))

    def run(rows: Rows) -> pa.Array:
        waiting = pa.array(range(rows.count), pa.int64())
        found: list[tuple[pa.Array, pa.Array]] = []
        left = rows
        for condition, value in branches:
            if not len(waiting):
                break
            hit = pc.fill_null(condition.run(left), False)
            taken = indices_where(hit)
            if len(taken) == len(waiting):
                return scatter([*found, (waiting, value.run(left))], value.type)
            if len(taken):
                found.append((waiting.take(taken), value.run(left.take(taken))))
                rest = indices_where(pc.invert(hit))
                waiting, left = waiting.take(rest), left.take(rest)
        if len(waiting):
            found.append((waiting, otherwise.run(left)))
        return scatter(found, otherwise.type)

    return Bound(node, otherwise.type, run, can_fail)


def first_valid(node: Node, values: Sequence[Bound]) -> Bound:
    """COALESCE: arguments after the first value that is not NULL are not evaluated."""

    def run(rows: Rows) -> pa.Array:
        found = values[0].run(rows)
        for value in values[1:]:
            missing = pc.is_null(found)
            if not found.null_count:
                break
            other = run_where(value, rows, missing) if value.can_fail else value.run(rows)
            found = pc.if_else(missing, other, found)
        return found

    return Bound(node, values[0].type, run, any(value.can_fail for value in values))


COMPARISONS: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_SWAPPED = {"<": ">", "<=": ">="}


def compare(node: Node, op: str, left: Bound, right: Bound) -> Bound:
    """`left op right` of two values of one type.

    Raises:
        Failure: values of the type are not compared.
    """
    if op == "<=>":
        return _null_safe(node, left, right)
    if right.constant and not right.can_fail:
        (value,) = right.run(Rows(1, no_column))
        if value.is_valid and not (is_float(value.type) and pc.is_nan(value).as_py()):
            kernel = kernel_with(op, value)
            return strict(node, pa.bool_(), [left], kernel, can_fail=False)
    return strict(node, pa.bool_(), [left, right], kernel_of(op, left.type), can_fail=False)


def kernel_with(op: str, value: pa.Scalar) -> Kernel:
    """The kernel that compares an array with a value of its type that is not NULL and not NaN.

    Raises:
        Failure: values of the type are not compared.
    """
    kernel_of(op, value.type)
    if is_float(value.type) and op in (">", ">="):  # NaN is above all
        return lambda values: pc.or_(COMPARISONS[op](values, value), pc.is_nan(values))
    return lambda values: COMPARISONS[op](values, value)


def kernel_of(op: str, type_: pa.DataType) -> Kernel:
    """The kernel that compares two arrays of a type.

    Raises:
        Failure: values of the type are not compared.
    """
    if not (is_compared(type_) or pa.types.is_null(type_)):
        raise Failure(f"values of type {spark_name(type_)} are not compared")
    if pa.types.is_null(type_):
        return lambda left, right: pa.nulls(len(left), pa.bool_())
    if op in _SWAPPED:
        swapped = kernel_of(_SWAPPED[op], type_)
        return lambda left, right: swapped(right, left)
    kernel = COMPARISONS[op]
    if not is_float(type_):
        return kernel
    if op == "!=":
        return lambda left, right: pc.invert(_equal_floats(left, right))
    return _equal_floats if op == "=" else _above(kernel, or_equal=op == ">=")


def _equal_floats(left: pa.Array, right: pa.Array) -> pa.Array:
    both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
    return pc.or_(pc.equal(left, right), both_nan)


def _above(kernel: Callable[..., Any], *, or_equal: bool) -> Kernel:
    def above(left: pa.Array, right: pa.Array) -> pa.Array:
        nan = pc.is_nan(left)
        if not or_equal:
            nan = pc.and_not(nan, pc.is_nan(right))
        # NULL on one side stays NULL: `or_` and `and_` are not Kleene's.
        return pc.or_(kernel(left, right), pc.and_(nan, pc.is_valid(right)))

    return above


def _null_safe(node: Node, left: Bound, right: Bound) -> Bound:
    equal = kernel_of("=", left.type)

    def run(rows: Rows) -> pa.Array:
        a, b = left.run(rows), right.run(rows)
        both = pc.and_(pc.is_null(a), pc.is_null(b))
        return flat(pc.or_(pc.fill_null(equal(a, b), False), both))

    return Bound(node, pa.bool_(), run, left.can_fail or right.can_fail)


def is_in(node: Node, value: Bound, values: Sequence[Bound]) -> Bound:
    """`value IN (values)`, all of one type. Values after an equal value are not evaluated.

    Raises:
        Failure: values of the type are not compared.
    """
    terms = [compare(node, "=", value, other) for other in values]
    literals = [found.value for other in values if (found := literal(other)) is not None]
    if len(literals) == len(values) and not is_float(value.type) and not is_moment(value.type):
        kernel = _in_literals([x for x in literals if x is not None], None in literals, value.type)
        return strict(node, pa.bool_(), [value], kernel, can_fail=False)
    return terms[0] if len(terms) == 1 else any_true(node, terms)


def _in_literals(literals: list[Any], has_null: bool, type_: pa.DataType) -> Kernel:
    wanted = pa.array(literals, type_)
    missed = pa.scalar(None if has_null else False, pa.bool_())

    def kernel(values: pa.Array) -> pa.Array:
        found = pc.if_else(pc.is_in(values, value_set=wanted), pa.scalar(True), missed)
        return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))

    return kernel


def is_null(node: Node, value: Bound, *, negated: bool = False) -> Bound:
    def run(rows: Rows) -> pa.Array:
        found = value.run(rows)
        return pc.is_valid(found) if negated else pc.is_null(found)

    return Bound(node, pa.bool_(), run, value.can_fail)


def extreme(node: Node, values: Sequence[Bound], *, greatest: bool) -> Bound:
    """`greatest` or `least`, which skip NULL.

    Raises:
        Failure: values of the type are not compared.
    """
    better = kernel_of(">" if greatest else "<", values[0].type)

    def run(rows: Rows) -> pa.Array:
        best = values[0].run(rows)
        for value in values[1:]:
            other = value.run(rows)
            # The first of equal values stays; this matters for 0.0 and -0.0.
            wins = pc.or_(
                pc.fill_null(better(other, best), False),
                pc.and_(pc.is_null(best), pc.is_valid(other)),
            )
            best = flat(pc.if_else(wins, other, best))
        return best

    return Bound(node, values[0].type, run, any(value.can_fail for value in values))


# --- Functions about NULL, which choose among their arguments.


def _is_null(negated: bool) -> Builder:
    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        return is_null(call, given[0], negated=negated)

    return build


def _coalesce(context: Context, call: Call, given: list[Bound]) -> Bound:
    values = context.chosen(given)
    if is_variant(values[0].type):  # Arrow's kernel that chooses has no such type
        *before, last = values
        return choice(call, [(is_null(call, one, negated=True), one) for one in before], last)
    return first_valid(call, values)


def _null_if(context: Context, call: Call, given: list[Bound]) -> Bound:
    left, right = context.alike(given)
    equal = compare(call, "=", left, right)
    null = context.cast(context.bind(Literal(None, pa.null())), given[0].type)
    return choice(call, [(equal, null)], given[0])


def _nvl2(context: Context, call: Call, given: list[Bound]) -> Bound:
    yes, no = context.chosen(given[1:])
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
