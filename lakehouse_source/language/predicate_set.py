"""Pure. A condition in any of its spellings, and those conjuncts of it that can prune."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.bounds.bind import bind
from lakehouse_source.language.bounds.bound import BoundPredicate, conjunction
from lakehouse_source.language.conditions.nodes import (
    NODES,
    And,
    ArrowExpression,
    Constant,
    Node,
    Or,
    missing_columns,
)
from lakehouse_source.language.conditions.plain import parse, parse_conjuncts
from lakehouse_source.language.conditions.triples import from_triple, is_triple


@dataclass(frozen=True, slots=True, repr=False)
class PredicateSet:
    """A condition that is not bound to a schema yet. `a & b` is both; `str` is SQL.

    >>> print(lake.PredicateSet.of("month = 3") & lake.PredicateSet.of(("miles", ">", 500)))
    `month` = 3 AND miles > 500
    """

    root: Node

    @classmethod
    def of(cls, condition: Any) -> PredicateSet:
        """A condition from any of its spellings.

        One condition is SQL text, a `(column, op, value)` triple, a node, a
        `PredicateSet` or an Arrow expression. None matches every row. Of lists, tuples
        included:

            [condition, condition]        AND
            [[condition, condition],      OR of ANDs, as PyArrow, pandas and Dask
             [condition]]                 read `filters`

        A list that holds both conditions and lists is refused, and so is an empty list
        among alternatives. A column is text (dotted for a nested one) or a tuple of
        names.

        Raises:
            InvalidPredicateError: the condition is none of these, or cannot be read.

        >>> either = [[("month", "=", 3), ("miles", ">", 500)], [("carrier", "=", "UA")]]
        >>> print(lake.PredicateSet.of(either))
        `month` = 3 AND miles > 500 OR carrier = 'UA'
        """
        return cls(_node(condition, _parse))

    def bind(self, schema: pa.Schema, timezone: str = "UTC") -> BoundPredicate:
        """The condition over a dataset's schema, field ids included.

        `timezone` (an IANA name or an offset) is the time zone of dates and wall clock
        times that are compared with instants.

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


def _node(condition: Any, parse: Callable[[str], Node]) -> Node:
    """A condition in any of its spellings as one node; `parse` reads SQL text."""
    if isinstance(condition, PredicateSet):
        return condition.root
    if condition is None:
        return Constant(True)
    if isinstance(condition, str):
        return parse(condition)
    if isinstance(condition, NODES):
        return condition
    if isinstance(condition, pc.Expression):
        return ArrowExpression(condition)
    if is_triple(condition):
        return from_triple(condition)
    if isinstance(condition, (list, tuple)):
        groups = [_is_group(term) for term in condition]
        if not any(groups):
            return _all([_node(term, parse) for term in condition])
        if all(groups) and all(condition):
            alternatives = [_alternative(group, parse) for group in condition]
            return alternatives[0] if len(alternatives) == 1 else Or(tuple(alternatives))
        raise InvalidPredicateError(
            reason=f"{condition!r} is ambiguous: a list holds conditions, all of which must hold, "
            "or non-empty lists of conditions, one of which must hold, and not both"
        )
    raise InvalidPredicateError(
        reason=f"a {type(condition).__name__} is not a condition: give SQL text, a list of "
        "(column, op, value) triples, an Arrow expression or a PredicateSet"
    )


def _is_group(term: Any) -> bool:
    return isinstance(term, (list, tuple)) and not is_triple(term)


def _alternative(group: Any, parse: Callable[[str], Node]) -> Node:
    nested = next((term for term in group if _is_group(term)), None)
    if nested is not None:
        raise InvalidPredicateError(
            reason=f"{nested!r} is nested too deeply: a list of lists is an OR of ANDs, and its "
            "inner lists hold conditions"
        )
    return _all([_node(term, parse) for term in group])


def _all(terms: list[Node]) -> Node:
    return terms[0] if len(terms) == 1 else And(tuple(terms))


def _parse(text: str) -> Node:
    # Programs ask with the same text again and again. Nodes are immutable.
    return _parsed_before(text) if len(text) <= _LONGEST_KEPT_TEXT else parse(text)


_LONGEST_KEPT_TEXT = 10_000
_parsed_before = lru_cache(maxsize=256)(parse)


# --- conditions that only prune ---------------------------------------------


@dataclass(frozen=True, slots=True)
class NotUsed:
    """A conjunct of a condition that pruning left out, and why."""

    condition: str
    reason: str


@dataclass(frozen=True, slots=True)
class PruningConditions:
    """The conjuncts that prune, with their texts, and those that were left out."""

    used: tuple[tuple[str, BoundPredicate], ...]
    not_used: tuple[NotUsed, ...]

    @property
    def together(self) -> BoundPredicate:
        """All used conjuncts as one condition."""
        return BoundPredicate(conjunction([bound.root for _, bound in self.used]))


def for_pruning(
    condition: Any, schema: pa.Schema, unreadable: Collection[str] = ()
) -> PruningConditions:
    """The conjuncts of a condition that can be bound to a schema.

    For callers that prune and filter no rows: what is left out prunes nothing.
    `unreadable` names columns that exist and are not in the schema.

    Raises:
        InvalidPredicateError: it is no condition, or names a column that does not exist.
    """
    left_out: list[NotUsed] = []

    def conjuncts(text: str) -> Node:
        known, unknown = parse_conjuncts(text)
        left_out.extend(NotUsed(*one) for one in unknown)
        return _all(known)

    used = []
    root = _node(condition, conjuncts)
    waiting = list(root.terms if isinstance(root, And) else (root,))
    while waiting:
        conjunct = waiting.pop(0)
        try:
            bound = bind(conjunct, schema)
        except InvalidPredicateError as exc:
            if not missing_columns(conjunct, schema) <= set(unreadable):
                raise
            if isinstance(conjunct, And):
                waiting[:0] = conjunct.terms
            else:
                left_out.append(NotUsed(str(conjunct), exc.reason))
            continue
        left_out += [NotUsed(text, "only rows can tell") for text in bound.unused]
        used.append((str(conjunct), bound))
    return PruningConditions(tuple(used), tuple(left_out))
