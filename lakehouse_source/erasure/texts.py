"""Pure. Texts that a condition compares with: notes of commits, and defaults, may repeat them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import (
    And,
    Compare,
    Contains,
    EndsWith,
    Expression,
    In,
    Like,
    Not,
    Or,
    PredicateSet,
    SqlExpression,
    StartsWith,
)
from lakehouse_source.language.tree import nodes as expressions

ERASED = "[erased]"


def texts_of(where: Any) -> list[str]:
    """The texts among the literals of a condition, the longest first. Numbers say too little."""
    try:
        found = set(_of_predicate(PredicateSet.of(where).root))
    except InvalidPredicateError:
        try:
            found = set(_of_expression(Expression.parse(where).root))
        except InvalidExpressionError:
            return []
    return sorted((one for one in found if one), key=len, reverse=True)


def without_texts(value: Any, texts: list[str]) -> Any:
    """A JSON value with another word in place of each of the texts."""
    if isinstance(value, str):
        for one in texts:
            value = value.replace(one, ERASED)
        return value
    if isinstance(value, Mapping):
        return {without_texts(key, texts): without_texts(one, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [without_texts(one, texts) for one in value]
    return value


def _of_predicate(node: Any) -> Iterator[str]:
    values: tuple[Any, ...] = ()
    if isinstance(node, And | Or):
        for term in node.terms:
            yield from _of_predicate(term)
    elif isinstance(node, Not):
        yield from _of_predicate(node.term)
    elif isinstance(node, SqlExpression):
        yield from _of_expression(node.root)
    elif isinstance(node, Compare):
        values = (node.value,)
    elif isinstance(node, In):
        values = node.values
    elif isinstance(node, StartsWith | EndsWith | Contains):
        values = (node.text,)
    elif isinstance(node, Like) and node.pattern is not None:
        values = tuple(node.pattern.replace("_", "%").split("%"))
    yield from (one for one in values if isinstance(one, str))


def _of_expression(node: Any) -> Iterator[str]:
    if isinstance(node, expressions.Literal) and isinstance(node.value, str):
        yield node.value
    for part in expressions.below(node):
        yield from _of_expression(part)
