"""Pure. What a bound condition says about columns, as nodes that can be bound again elsewhere."""

from __future__ import annotations

from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundColumn,
    BoundColumns,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundText,
)
from lakehouse_source.language.conditions.build import (
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
    like,
    matches,
    negated,
)
from lakehouse_source.language.tree.constants import Literal, Timestamp
from lakehouse_source.language.tree.like import ANY_TEXT, ONE_CHARACTER
from lakehouse_source.language.tree.nodes import Call, Name, Node
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.ordinal import domain, from_ordinal

_FORMS = {"prefix": "startswith", "suffix": "endswith", "contains": "contains"}
_TRUE = constant(True)


def as_nodes(bound: BoundNode) -> tuple[Node, bool]:
    """A condition that is TRUE wherever `bound` is, and whether it is the same on every row.

    The condition depends on no time zone. For an expression that rows decide, it is what the
    expression implies.
    """
    if isinstance(bound, BoundConstant):
        return constant(bound.value), True
    if isinstance(bound, (BoundAnd, BoundOr)):
        parts = [as_nodes(term) for term in bound.terms]
        join = all_of if isinstance(bound, BoundAnd) else any_of
        exact = all(exact for _, exact in parts)
        terms = [node for node, _ in parts]
        if not exact and join is any_of and _TRUE in terms:
            return _TRUE, False
        return join(terms), exact
    if isinstance(bound, BoundExpression):
        return as_nodes(bound.implied)[0], False
    if isinstance(bound, BoundNot):
        node, exact = as_nodes(bound.term)
        return (negated(node), True) if exact else (_TRUE, False)
    if isinstance(bound, BoundColumns):
        return Call(bound.op, (Name(bound.left.path), Name(bound.right.path))), True
    return _leaf(bound), True


def _leaf(bound: BoundNode) -> Node:
    assert not isinstance(
        bound, (BoundConstant, BoundAnd, BoundOr, BoundNot, BoundExpression, BoundColumns)
    )
    column, name = bound.column, Name(bound.column.path)
    if isinstance(bound, BoundIsNull):
        return is_null(name)
    if isinstance(bound, BoundCompare):
        return compare(name, bound.op, _value(bound.value, column))
    if isinstance(bound, BoundIn):
        values: list[Literal | None] = [_value(one, column) for one in bound.values]
        values += [float("nan")] * bound.has_nan + [None] * bound.has_null
        return is_in(name, values)
    if isinstance(bound, BoundText):
        return matches(_FORMS[bound.form], name, bound.text)
    if isinstance(bound, BoundLike):
        marks = {ANY_TEXT: "%", ONE_CHARACTER: "_"}
        pieces = [marks.get(piece) or _escaped(piece) for piece in bound.pieces]
        return like(name, "".join(pieces))
    # TRUE or FALSE where there is a value, else NULL.
    found = compare(name, "=", None)
    return (
        any_of([negated(is_null(name)), found]) if bound.truth else all_of([is_null(name), found])
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _value(ordinal: Ordinal, column: BoundColumn) -> Literal:
    kind = domain(column.type)
    if kind.kind in ("date", "timestamp") and isinstance(ordinal, int):
        return Timestamp(ordinal * kind.unit_ns, kind.zoned)
    return from_ordinal(ordinal, column.type)
