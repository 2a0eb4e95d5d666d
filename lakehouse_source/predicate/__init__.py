"""Pure. The condition language: nodes, triples and SQL text, and what they are bound to.

Whatever its spelling, a condition means what Spark SQL means by it: NULL is
unknown, NaN equals NaN and is greater than every number, -0.0 equals 0.0,
strings compare as UTF-8 bytes.
"""

from __future__ import annotations

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
)
from lakehouse_source.predicate.triples import from_triple, is_triple

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
        if is_triple(condition):
            return cls(from_triple(condition))
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
