"""Pure. A condition in any of its spellings, and its conjuncts that can prune."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.bounds.bind import bind
from lakehouse_source.language.bounds.bound import BoundPredicate, conjunction
from lakehouse_source.language.bounds.columns import missing_columns
from lakehouse_source.language.conditions.build import all_of, any_of, constant
from lakehouse_source.language.conditions.triples import from_triple, is_triple
from lakehouse_source.language.syntax.parse import read, refused_part
from lakehouse_source.language.tree.nodes import NODES, Arrow, Call, Node


@dataclass(frozen=True, slots=True, repr=False)
class PredicateSet:
    """A condition that is not bound to a schema yet. `a & b` is both; `str` is SQL.

    >>> print(lake.PredicateSet.of("month = 3") & lake.PredicateSet.of(("miles", ">", 500)))
    month = 3 AND miles > 500
    """

    root: Node

    @classmethod
    def of(cls, condition: Any) -> PredicateSet:
        """A condition from any of its spellings.

        One condition is SQL text, a `(column, op, value)` triple, a node, a `PredicateSet` or an
        Arrow expression. None matches every row. Lists and tuples mean:

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
        month = 3 AND miles > 500 OR carrier = 'UA'
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
        return PredicateSet(
            all_of([root for root in (self.root, other.root) if root != constant(True)])
        )

    def __str__(self) -> str:
        return str(self.root)

    def __repr__(self) -> str:
        return f"PredicateSet({str(self)!r})"


def _node(condition: Any, parse: Callable[[str], Node]) -> Node:
    """A condition in any of its spellings as one node; `parse` reads SQL text."""
    if isinstance(condition, PredicateSet):
        return condition.root
    if condition is None:
        return constant(True)
    if isinstance(condition, str):
        return parse(condition)
    if isinstance(condition, NODES):
        return condition
    if isinstance(condition, pc.Expression):
        return Arrow(condition)
    if is_triple(condition):
        return from_triple(condition)
    if isinstance(condition, (list, tuple)):
        groups = [_is_group(term) for term in condition]
        if not any(groups):
            return all_of([_node(term, parse) for term in condition])
        if all(groups) and all(condition):
            return any_of([_alternative(group, parse) for group in condition])
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
    return all_of([_node(term, parse) for term in group])


def _parse(text: str) -> Node:
    # Programs use the same text again and again, and nodes are immutable.
    return _read_before(text) if len(text) <= _LONGEST_KEPT_TEXT else _read_whole(text)


def _read_whole(text: str) -> Node:
    node = read(text)
    refused = refused_part(node)
    if refused is not None:
        raise InvalidPredicateError(reason=refused.reason, text=text, position=refused.position)
    return node


_LONGEST_KEPT_TEXT = 10_000
_read_before = lru_cache(maxsize=256)(_read_whole)


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

    For callers that only prune and do not filter rows: conjuncts that are left out prune nothing.
    `unreadable` names columns that exist but are not in the schema.

    Raises:
        InvalidPredicateError: this is not a condition, or names a column that does not exist.
    """
    left_out: list[NotUsed] = []

    used = []
    for conjunct in _conjuncts(_node(condition, read)):
        refused = refused_part(conjunct)
        if refused is not None:
            left_out.append(NotUsed(str(conjunct), refused.reason))
            continue
        try:
            bound = bind(conjunct, schema)
        except InvalidPredicateError as exc:
            if not missing_columns(conjunct, schema) <= set(unreadable):
                raise
            left_out.append(NotUsed(str(conjunct), exc.reason))
            continue
        left_out += [NotUsed(text, "only rows can tell") for text in bound.unused]
        used.append((str(conjunct), bound))
    return PruningConditions(tuple(used), tuple(left_out))


def _conjuncts(root: Node) -> Sequence[Node]:
    return root.arguments if isinstance(root, Call) and root.name == "and" else (root,)
