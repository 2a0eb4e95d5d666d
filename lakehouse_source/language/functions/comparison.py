"""Pure. Comparisons as in Spark: NaN equals NaN and is the greatest value, -0.0 equals 0.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.functions.conditional import any_true
from lakehouse_source.language.functions.rows import Bound, Kernel, Rows, flat, literal, strict
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.nodes import Node
from lakehouse_source.language.tree.types import is_atomic, is_float, is_moment, spark_name

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
    return strict(node, pa.bool_(), [left, right], kernel_of(op, left.type), can_fail=False)


def kernel_of(op: str, type_: pa.DataType) -> Kernel:
    """The kernel that compares two arrays of a type.

    Raises:
        Failure: values of the type are not compared.
    """
    if not (is_atomic(type_) or pa.types.is_null(type_) or pa.types.is_time(type_)):
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
