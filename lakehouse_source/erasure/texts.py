"""Pure. Texts in a condition, which notes of commits and defaults may repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import Expression, PredicateSet
from lakehouse_source.language.tree.nodes import Call, Literal, Node, Value, below

ERASED = "[erased]"


def texts_of(where: Any) -> list[str]:
    """The texts among the literals of a condition, the longest first. Numbers are too common."""
    try:
        found = set(_texts(PredicateSet.of(where).root))
    except InvalidPredicateError:
        try:
            found = set(_texts(Expression.parse(where).root))
        except InvalidExpressionError:
            return []
    return sorted((one for one in found if one), key=len, reverse=True)


def without_texts(value: Any, texts: list[str]) -> Any:
    """A JSON value in which a word replaces each of the texts."""
    if isinstance(value, str):
        for one in texts:
            value = value.replace(one, ERASED)
        return value
    if isinstance(value, Mapping):
        return {without_texts(key, texts): without_texts(one, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [without_texts(one, texts) for one in value]
    return value


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node, Literal | Value):
        values = node.value if isinstance(node.value, tuple) else (node.value,)
        yield from (one for one in values if isinstance(one, str))
    if isinstance(node, Call) and node.name == "like":
        for text in _texts(node.arguments[1]):
            yield from text.replace("_", "%").split("%")
    for part in below(node):
        yield from _texts(part)
