"""Pure. The condition language: nodes, triples and SQL text, and what they are bound to.

Whatever its spelling, a condition means what Spark SQL means by it: NULL is
unknown, NaN equals NaN and is greater than every number, -0.0 equals 0.0,
strings compare as UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.predicate.bind import bind
from lakehouse_source.predicate.bound import (
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundText,
    IfPresent,
)
from lakehouse_source.predicate.nodes import (
    NODES,
    And,
    Column,
    Compare,
    Constant,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    StartsWith,
    Timestamp,
    between,
    literal,
)

__all__ = [
    "And",
    "BoundAnd",
    "BoundColumn",
    "BoundCompare",
    "BoundConstant",
    "BoundIn",
    "BoundIsNull",
    "BoundLike",
    "BoundNode",
    "BoundNot",
    "BoundOr",
    "BoundPredicate",
    "BoundText",
    "Column",
    "Compare",
    "Constant",
    "Contains",
    "EndsWith",
    "IfPresent",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Node",
    "Not",
    "Or",
    "PredicateSet",
    "StartsWith",
    "Timestamp",
    "between",
]


@dataclass(frozen=True, slots=True, repr=False)
class PredicateSet:
    """A condition that knows no schema yet. `a & b` is both; `str` is SQL."""

    root: Node

    @classmethod
    def of(cls, condition: Any) -> PredicateSet:
        """A condition from any of its spellings.

        None matches every row; text is SQL; a list holds `(column, op, value)`
        triples and nodes, all of which must hold; one triple or node may stand
        alone. A column is text (dotted for a nested one) or a tuple of names.

        Raises:
            InvalidPredicateError: it is none of these, or cannot be read.
        """
        if isinstance(condition, PredicateSet):
            return condition
        if condition is None:
            return cls(Constant(True))
        if isinstance(condition, str):
            # Here and not above: who gives no SQL text need not wait for its parser.
            from lakehouse_source.predicate.sql import parse

            return cls(parse(condition))
        if isinstance(condition, NODES):
            return cls(condition)
        if _is_triple(condition):
            return cls(_from_triple(condition))
        if isinstance(condition, (list, tuple)):
            terms = tuple(cls.of(term).root for term in condition)
            return cls(terms[0] if len(terms) == 1 else And(terms))
        raise InvalidPredicateError(
            reason=f"a {type(condition).__name__} is no condition: give SQL text, a list of "
            "(column, op, value) triples or a PredicateSet"
        )

    def bind(self, schema: pa.Schema, timezone: str = "UTC") -> BoundPredicate:
        """The condition over a dataset's schema, field ids included.

        `timezone` (IANA name or offset) is the zone of dates and of times without
        zone where a column holds instants.

        Raises:
            InvalidPredicateError: a column is missing or cannot be compared, or
                a literal does not fit its type.
        """
        return bind(self.root, schema, timezone)

    def __and__(self, other: PredicateSet) -> PredicateSet:
        terms: list[Node] = []
        for node in (self.root, other.root):
            if isinstance(node, And):
                terms += node.terms
            elif node != Constant(True):
                terms.append(node)
        return PredicateSet(terms[0] if len(terms) == 1 else And(tuple(terms)))

    def __str__(self) -> str:
        return str(self.root)

    def __repr__(self) -> str:
        return f"PredicateSet({str(self)!r})"


# --- triples ----------------------------------------------------------------


def _compare(op: str) -> Callable[[Column, Any], Node]:
    return lambda column, value: Compare(column, op, literal(value))


def _text(kind: Callable[[Column, Any], Node]) -> Callable[[Column, Any], Node]:
    return lambda column, value: kind(column, literal(value))


def _not(build: Callable[[Column, Any], Node]) -> Callable[[Column, Any], Node]:
    return lambda column, value: Not(build(column, value))


def _in(column: Column, values: Any) -> Node:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidPredicateError(reason=f"IN on {column} takes a list of values, not {values!r}")
    return In(column, tuple(literal(value) for value in values))


def _between(column: Column, value: Any) -> Node:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InvalidPredicateError(reason=f"BETWEEN on {column} takes two values, not {value!r}")
    return between(column, literal(value[0]), literal(value[1]))


def _null(column: Column, value: Any) -> Node:
    if value is not None:
        raise InvalidPredicateError(reason=f"IS NULL on {column} takes no value, not {value!r}")
    return IsNull(column)


def _is(column: Column, value: Any) -> Node:
    return IsNull(column) if value is None else Compare(column, "<=>", literal(value))


_BUILDERS: dict[str, Callable[[Column, Any], Node]] = {
    **{op: _compare(op) for op in ("=", "!=", "<", "<=", ">", ">=", "<=>")},
    "==": _compare("="),
    "<>": _compare("!="),
    "in": _in,
    "not in": _not(_in),
    "between": _between,
    "not between": _not(_between),
    "is null": _null,
    "is not null": _not(_null),
    "is": _is,
    "is not": _not(_is),
    "like": _text(Like),
    "not like": _not(_text(Like)),
    "startswith": _text(StartsWith),
    "starts with": _text(StartsWith),
    "endswith": _text(EndsWith),
    "ends with": _text(EndsWith),
    "contains": _text(Contains),
}


def _operator(text: Any) -> str | None:
    if not isinstance(text, str):
        return None
    return " ".join(text.lower().replace("_", " ").split())


def _is_triple(value: Any) -> bool:
    """Tell a triple from a list of conditions: its second part is an operator, or means to be."""
    # A list of texts alone is a list of SQL conditions, unless the second is an operator.
    if not isinstance(value, (list, tuple)) or len(value) not in (2, 3):
        return False
    column, op = value[0], value[1]
    names = isinstance(column, (str, Column)) or (
        isinstance(column, (list, tuple))
        and bool(column)
        and all(isinstance(part, str) for part in column)
    )
    texts = isinstance(value, list) and all(isinstance(part, str) for part in value)
    return names and isinstance(op, str) and (not texts or _operator(op) in _BUILDERS)


def _from_triple(triple: Any) -> Node:
    column = Column.of(triple[0])
    op = _operator(triple[1])
    build = _BUILDERS.get(op or "")
    if build is None or (len(triple) == 2 and op not in ("is null", "is not null")):
        raise InvalidPredicateError(
            reason=f"{triple!r} is no (column, op, value) triple; operators: "
            + ", ".join(_BUILDERS)
        )
    return build(column, triple[2] if len(triple) == 3 else None)
