"""Pure. SQL texts as conditions: what the expression of each conjunct says, as nodes.

A conjunct that compares bare columns with literals becomes nodes of its own. Any other stays
the expression that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.conditions.nodes import (
    And,
    Node,
    SqlExpression,
)
from lakehouse_source.language.conditions.plain import plain
from lakehouse_source.language.syntax.parse import read_conjuncts
from lakehouse_source.language.syntax.sql_text import whole_text
from lakehouse_source.language.tree import nodes as expressions


def parse(text: str) -> Node:
    """The condition that `text` holds.

    Raises:
        InvalidPredicateError: it is not a condition, or not a supported one.
    """
    with whole_text(text):
        terms = [read() for _, read in _terms(text)]
    return terms[0] if len(terms) == 1 else And(tuple(terms))


def parse_conjuncts(text: str) -> tuple[list[Node], list[tuple[str, str]]]:
    """The terms of the outermost AND: those that are supported, and the others.

    The others are given as their text and the reason why they are not supported.

    Raises:
        InvalidPredicateError: the text as a whole is not SQL.
    """
    known, unknown = list[Node](), list[tuple[str, str]]()
    with whole_text(text):
        for written, read in _terms(text):
            try:
                known.append(read())
            except InvalidPredicateError as exc:
                unknown.append((written(), exc.reason))
            except RecursionError:
                unknown.append((text, "it is nested too deeply"))
    return known, unknown


def _terms(text: str) -> Iterator[tuple[Callable[[], str], Callable[[], Node]]]:
    """The terms of the outermost AND: how each is written, and what reads it."""
    found = read_conjuncts(text)
    whole = text.strip() if len(found) == 1 else ""
    for written, read in found:

        def condition(read: Callable[[], expressions.Node] = read) -> Node:
            try:
                term = SqlExpression(read(), whole)
            except InvalidExpressionError as exc:
                raise InvalidPredicateError(
                    reason=exc.reason, text=text, position=exc.position
                ) from exc
            return plain(term.root, term) or term

        yield written, condition
