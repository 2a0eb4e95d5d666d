"""Pure. Conditions of Iceberg, in JSON, become conditions of plake.

A condition may become weaker, never stronger: readers apply their own condition to the rows.
Iceberg's `not-eq` holds for NULL, and clients order NaN and -0.0 in several ways. A condition that
is not known here becomes TRUE.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language import (
    Name,
    Node,
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
    matches,
    negated,
)
from lakehouse_source.language.values import check_depth, literal
from lakehouse_source.schema.ordinal import domain

_TRUE, _FALSE = constant(True), constant(False)
_OPPOSITES = {
    "eq": "not-eq", "lt": "gt-eq", "gt": "lt-eq", "in": "not-in", "is-null": "not-null",
    "is-nan": "not-nan", "starts-with": "not-starts-with",
}  # fmt: skip
_OPPOSITES |= {value: key for key, value in _OPPOSITES.items()}
_OPERATORS = {"eq": "=", "lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}

# Finds a column by its dotted name: the names from the top down, and its type.
Find = Callable[[str], "tuple[tuple[str, ...], pa.DataType] | None"]


class Filter(NamedTuple):
    """A condition of plake. `is_exact`: it holds for the same rows in each reader of Iceberg."""

    node: Node
    is_exact: bool


def condition(document: Any, find: Find) -> Filter:
    """The condition of an expression of Iceberg.

    Raises:
        InvalidPredicateError: it is no expression.
    """
    reading = _Reading(find)
    node = reading.node(document, False, 0)
    return Filter(node, reading.is_exact)


class _Reading:
    def __init__(self, find: Find) -> None:
        self._find = find
        self.is_exact = True

    def node(self, document: Any, opposite: bool, depth: int) -> Node:
        check_depth(depth)
        if isinstance(document, bool):
            return constant(document != opposite)
        if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
            raise InvalidPredicateError(reason="a part of the filter has no type")
        kind = document["type"].lower()
        if kind in ("true", "false"):
            return constant((kind == "true") != opposite)
        if kind == "literal":
            return self.node(bool(document.get("value")), opposite, depth)
        if kind == "not":
            return self.node(document.get("child"), not opposite, depth + 1)
        if kind in ("and", "or"):
            sides = (document.get("left"), document.get("right"))
            join = all_of if (kind == "and") != opposite else any_of
            return join([self.node(side, opposite, depth + 1) for side in sides])
        if opposite:
            kind = _OPPOSITES.get(kind, "")
        return self._leaf(kind, document)

    def _weaker(self, node: Node) -> Node:
        """A condition that may hold for more rows, or that readers may understand differently."""
        self.is_exact = False
        return node

    def _leaf(self, kind: str, document: Mapping[str, Any]) -> Node:
        term = document.get("term")
        if isinstance(term, Mapping) and term.get("type") == "reference":
            term = term.get("term")
        found = self._find(term) if isinstance(term, str) else None  # else a transform of a column
        if found is None:
            return self._weaker(_TRUE)
        column, type_ = Name(found[0]), found[1]
        if kind == "is-null":
            return is_null(column)
        if kind == "not-null":
            return negated(is_null(column))
        if kind in ("in", "not-in"):
            return self._in(kind, column, type_, document.get("values"))
        value = _value(document.get("value"), type_)
        if value is None:
            return self._weaker(_TRUE)
        if kind == "starts-with" and isinstance(value, str):
            return matches("startswith", column, value)
        return self._compare(kind, column, type_, value)

    def _compare(self, kind: str, column: Name, type_: pa.DataType, value: Any) -> Node:
        is_float = domain(type_).kind == "float"
        if kind == "not-eq" and not is_float:
            return self._weaker(any_of((compare(column, "!=", literal(value)), is_null(column))))
        if kind not in _OPERATORS:
            return self._weaker(_TRUE)
        operator = _OPERATORS[kind]
        if not is_float:
            return compare(column, operator, literal(value))
        if operator in ("<", ">"):
            operator += "="  # some order -0.0 before 0.0
        return self._weaker(compare(column, operator, literal(value)))  # and NaN differently

    def _in(self, kind: str, column: Name, type_: pa.DataType, given: Any) -> Node:
        if not isinstance(given, list):
            raise InvalidPredicateError(reason="'in' of the filter has no list of values")
        values = [_value(one, type_) for one in given]
        if any(value is None for value in values):
            return self._weaker(_TRUE)
        is_float = domain(type_).kind == "float"
        some = is_in(column, [literal(value) for value in values]) if values else _FALSE
        if kind == "in":
            return self._weaker(some) if is_float else some
        if is_float or not values:
            return self._weaker(_TRUE)
        return self._weaker(any_of((negated(some), is_null(column))))


def _value(given: Any, type_: pa.DataType) -> Any:
    """A JSON value as the column's value in Python; None: the value is not certain."""
    if isinstance(given, Mapping):
        given = given.get("value")
    kind = domain(type_).kind
    try:
        return _READERS[kind](given, type_) if kind in _READERS else None
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        return None


def _integer(given: Any, _: pa.DataType) -> Any:
    return given if type(given) is int else None


def _float(given: Any, _: pa.DataType) -> Any:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    number = float(given)
    return number if number - number == 0 else None


def _decimal(given: Any, _: pa.DataType) -> Any:
    if not isinstance(given, str | int) or isinstance(given, bool) or len(str(given)) > 80:
        return None
    number = Decimal(given)
    return number if number.is_finite() else None


def _date(given: Any, _: pa.DataType) -> Any:
    return datetime.date.fromisoformat(given) if isinstance(given, str) else None


def _moment(given: Any, type_: pa.DataType) -> Any:
    if not isinstance(given, str):
        return None
    moment = datetime.datetime.fromisoformat(given.replace("Z", "+00:00"))
    return moment if (moment.tzinfo is not None) == domain(type_).zoned else None


def _text(given: Any, _: pa.DataType) -> Any:
    return given if isinstance(given, str) and "\0" not in given else None


_READERS: dict[str, Callable[[Any, pa.DataType], Any]] = {
    "bool": lambda given, _: given if isinstance(given, bool) else None,
    "int": _integer,
    "float": _float,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _moment,
    "string": _text,
}
