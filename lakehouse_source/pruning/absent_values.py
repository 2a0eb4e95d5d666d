"""Pure. A condition rewritten for rows in which some values are known to be absent.

If a bloom filter tells that no row has a value, `c = value` is FALSE where `c` is not null, and
NULL where `c` is null. The rewritten condition is equivalent on these rows, so the rule also holds
under NOT.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakehouse_source.language.bounds.bound import (
    FALSE,
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundExpression,
    BoundIn,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundPredicate,
    IfPresent,
    conjunction,
    disjunction,
    negation,
)
from lakehouse_source.model import Ordinal

Absent = Callable[[BoundColumn, Ordinal], bool]


def without_absent(predicate: BoundPredicate, absent: Absent) -> BoundPredicate:
    """The condition on rows that hold none of the values for which `absent` says True."""
    return BoundPredicate(_without(predicate.root, absent))


def _without(node: BoundNode, absent: Absent) -> BoundNode:
    if isinstance(node, BoundAnd):
        return conjunction([_without(term, absent) for term in node.terms])
    if isinstance(node, BoundOr):
        return disjunction([_without(term, absent) for term in node.terms])
    if isinstance(node, BoundNot):
        inner = _without(node.term, absent)
        return node if inner is node.term else negation(inner)
    if isinstance(node, BoundExpression):
        return replace(node, implied=_without(node.implied, absent))
    if isinstance(node, BoundCompare) and absent_value(node, absent):
        return IfPresent(node.column, False) if node.op == "=" else FALSE
    if isinstance(node, BoundIn):
        left = tuple(value for value in node.values if not absent(node.column, value))
        if len(left) == len(node.values):
            return node
        if left or node.has_nan or node.has_null:
            return replace(node, values=left)
        return IfPresent(node.column, False)
    return node


def absent_value(node: BoundCompare, absent: Absent) -> bool:
    """Tell whether an equality compares with an absent value."""
    return node.op in ("=", "<=>") and node.value == node.value and absent(node.column, node.value)


def asks_for_values(node: BoundNode) -> bool:
    """Tell whether bloom filters can decide any part of a condition."""
    if isinstance(node, (BoundAnd, BoundOr)):
        return any(asks_for_values(term) for term in node.terms)
    if isinstance(node, BoundNot):
        return asks_for_values(node.term)
    if isinstance(node, BoundExpression):
        return asks_for_values(node.implied)
    if isinstance(node, BoundCompare):
        return node.op in ("=", "<=>")
    return isinstance(node, BoundIn)
