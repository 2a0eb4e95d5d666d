"""Pure. Conditions made in Python, of columns and of values that are compared without a cast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.limits import check_count
from lakehouse_source.language.tree import constants
from lakehouse_source.language.tree.nodes import (
    COMPARISONS,
    Call,
    Literal,
    Name,
    Node,
    Value,
    joined,
)


def constant(value: bool | None) -> Node:
    """TRUE, FALSE or (None) NULL."""
    return Literal(value, pa.bool_())


def compare(column: Name, op: str, value: constants.Literal | None) -> Node:
    """`column op value`; a value of None is NULL.

    Raises:
        InvalidPredicateError: `op` is not a comparison.
    """
    if op not in COMPARISONS:
        raise InvalidPredicateError(
            reason=f"{op!r} is not a comparison; known: {', '.join(COMPARISONS)}"
        )
    return Call(op, (column, Value(value)))


def is_in(column: Name, values: Iterable[constants.Literal | None]) -> Node:
    """`column IN (values)`; None among the values is NULL."""
    given = tuple(values)
    check_count(len(given))
    return Call("in", (column, Value(given)))


def is_null(column: Name) -> Node:
    """`column IS NULL`. Like `<=>` it is TRUE or FALSE on every row, never NULL."""
    return Call("isnull", (column,))


def matches(form: str, column: Name, text: str | bytes | None) -> Node:
    """`startswith(column, text)`, `endswith` or `contains`, by the form."""
    return Call(form, (column, Value(text)))


def like(column: Name, pattern: str | None, escape: str = "\\") -> Node:
    """`column LIKE pattern`: `%` is any text, `_` one character, `escape` quotes both."""
    return Call("like", (column, Value(pattern), Literal(escape, pa.string())))


def all_of(terms: Sequence[Node]) -> Node:
    """Every term holds. Without terms it is TRUE."""
    return joined("and", terms) if terms else constant(True)


def any_of(terms: Sequence[Node]) -> Node:
    """At least one term holds. Without terms it is FALSE."""
    return joined("or", terms) if terms else constant(False)


def negated(term: Node) -> Node:
    """`NOT term`; NULL stays NULL."""
    return Call("not", (term,))
