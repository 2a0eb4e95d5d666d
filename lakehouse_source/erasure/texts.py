"""Pure. Texts in a condition, which notes of commits and defaults may repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import Expression, PredicateSet
from lakehouse_source.language.tree.nodes import Call, Literal, Node, Value, below

ERASED = "[erased]"


def texts_of(where: Any) -> list[str]:
    """The texts among the literals of a condition, the longest first. Numbers are too common."""
    found = {one for one in _values(where) if isinstance(one, str)}
    return sorted((one for one in found if one), key=len, reverse=True)


def numbers_of(where: Any) -> set[int | float | Decimal]:
    """The numbers among the literals of a condition, which notes of commits may repeat."""
    found = (one for one in _values(where) if isinstance(one, int | float | Decimal))
    return {one for one in found if not isinstance(one, bool)}


def repeats(value: Any, numbers: set[int | float | Decimal]) -> bool:
    """Tell whether a JSON value has one of the numbers, as a number or as a word of a text."""
    if isinstance(value, str):
        return not {str(one) for one in numbers}.isdisjoint(re.findall(r"[\w.+-]+", value))
    if isinstance(value, Mapping):
        return any(repeats(one, numbers) for pair in value.items() for one in pair)
    if isinstance(value, list):
        return any(repeats(one, numbers) for one in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value in numbers


def _values(where: Any) -> list[Any]:
    try:
        return list(_literals(PredicateSet.of(where).root))
    except InvalidPredicateError:
        try:
            return list(_literals(Expression.parse(where).root))
        except InvalidExpressionError:
            return []


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


def _literals(node: Node) -> Iterator[Any]:
    if isinstance(node, Literal | Value):
        yield from node.value if isinstance(node.value, tuple) else (node.value,)
    if isinstance(node, Call) and node.name == "like":
        for text in _literals(node.arguments[1]):
            if isinstance(text, str):
                yield from text.replace("_", "%").split("%")
    for part in below(node):
        yield from _literals(part)
