"""Pure. Comparisons of a column with a literal that has a place among its values."""

from __future__ import annotations

from lakehouse_source.language.bounds.bound import (
    BoundColumn,
    BoundCompare,
    BoundNode,
    IfPresent,
    conjunction,
    negation,
)
from lakehouse_source.language.bounds.place import Place
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import domain


def bounded(column: BoundColumn, op: str, ordinal: Ordinal | None) -> BoundNode:
    """`column < ceiling` or `column <= floor`; decided at once at the ends of the domain."""
    if ordinal is None:
        return IfPresent(column, op == "<")
    if not column.is_float and not isinstance(ordinal, bytes):
        ends = domain(column.type)
        if op == "<" and ordinal == ends.low:
            return IfPresent(column, False)
        if op == "<=" and ordinal == ends.high:
            return IfPresent(column, True)
    return BoundCompare(column, op, ordinal)


def between(column: BoundColumn, where: Place) -> BoundNode:
    """The values that equal a literal: none, one, or a range."""
    low, high = where.ceiling, where.floor
    if low is None or high is None or low > high:  # type: ignore[operator]
        return IfPresent(column, False)
    if low == high:
        return BoundCompare(column, "=", low)
    return conjunction([negation(bounded(column, "<", low)), bounded(column, "<=", high)])


def compare_nan(column: BoundColumn, op: str) -> BoundNode:
    """A comparison with NaN, which equals itself and is greater than all numbers."""
    nan = float("nan")
    if op in ("=", "<=>", "<"):
        return BoundCompare(column, op, nan)
    if op == ">=":
        return BoundCompare(column, "=", nan)
    return IfPresent(column, op == "<=")
