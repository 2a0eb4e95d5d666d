"""Pure. SQL texts and expressions as conditions.

A conjunct that compares bare columns with literals becomes nodes of its own. Any other stays
the expression that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.conditions.nodes import (
    And,
    Column,
    Compare,
    Constant,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
    SqlExpression,
    StartsWith,
)
from lakehouse_source.language.functions.casts import cast_kernel
from lakehouse_source.language.functions.rows import listed, unlisted
from lakehouse_source.language.rows.expression import Expression
from lakehouse_source.language.rows.scope import Scope
from lakehouse_source.language.syntax.parse import read_conjuncts, refused_part
from lakehouse_source.language.tree import nodes as expressions
from lakehouse_source.language.tree.constants import Literal, Timestamp
from lakehouse_source.language.tree.moments import parse_date, parse_time, parse_timestamp
from lakehouse_source.language.tree.nodes import COMPARISONS, FLIPPED
from lakehouse_source.language.tree.types import INSTANT, WALL
from lakehouse_source.schema.ordinal import DAY_NS, EPOCH, EPOCH_DATE


def parse(text: str) -> Node:
    """The condition that `text` holds.

    Raises:
        InvalidPredicateError: it is not a condition, or not a supported one.
    """
    terms = read_conjuncts(text)
    for term, _ in terms:
        refused = refused_part(term)
        if refused is not None:
            raise InvalidPredicateError(reason=refused.reason, text=text, position=refused.position)
    whole = text.strip() if len(terms) == 1 else ""
    found = tuple(_condition(SqlExpression(term, whole)) for term, _ in terms)
    return found[0] if len(found) == 1 else And(found)


def parse_conjuncts(text: str) -> tuple[list[Node], list[tuple[str, str]]]:
    """The terms of the outermost AND: those that are supported, and the others.

    The others are given as their text and the reason why they are not supported.

    Raises:
        InvalidPredicateError: the text as a whole is not SQL.
    """
    known, unknown = list[Node](), list[tuple[str, str]]()
    for term, written in read_conjuncts(text):
        refused = refused_part(term)
        if refused is None:
            known.append(_condition(SqlExpression(term)))
        else:
            unknown.append((written, refused.reason))
    return known, unknown


def _condition(term: SqlExpression) -> Node:
    return plain(term.root, term) or term


def plain(node: expressions.Node, term: SqlExpression | None = None) -> Node | None:
    """The comparisons of columns with literals that an expression is; None: it is something else.

    `term` is the conjunct of an SQL text in which it stands.
    """
    try:
        return _Plain(term).condition(node)
    except _NotPlain:
        return None


class _NotPlain(Exception):
    """A part is no comparison of a column with literals."""


class _Plain:
    """Reads expressions as comparisons of columns with literals; what is none is _NotPlain."""

    def __init__(self, term: SqlExpression | None) -> None:
        self._term = term

    def condition(self, node: expressions.Node) -> Node:
        if isinstance(node, expressions.Name):
            return Compare(self._column(node), "=", True)
        if isinstance(node, expressions.Call) and node.name in _READERS:
            return _READERS[node.name](self, node)
        if isinstance(node, expressions.Literal) and isinstance(node.value, (bool, type(None))):
            return Constant(node.value)
        raise _NotPlain

    def joined(self, node: expressions.Call) -> Node:
        terms = tuple(self.condition(term) for term in node.arguments)
        return And(terms) if node.name == "and" else Or(terms)

    def negated(self, node: expressions.Call) -> Node:
        return Not(self.condition(node.arguments[0]))

    def comparison(self, node: expressions.Call) -> Node:
        op, (left, right) = node.name, node.arguments
        if isinstance(left, expressions.Name):
            return Compare(self._column(left), op, self._literal(right))
        if isinstance(right, expressions.Name):
            return Compare(self._column(right), FLIPPED[op], self._literal(left))
        if not all(isinstance(side, expressions.Literal) for side in (left, right)):
            raise _NotPlain
        try:  # such as the `1 = 1` of generated SQL
            value = Expression(node, str(node)).bind(Scope({})).evaluate({}, 1)
        except InvalidExpressionError:
            raise _NotPlain from None
        return Constant(value[0].as_py())

    def listed(self, node: expressions.Call) -> Node:
        column, *values = node.arguments
        return In(self._column(column), tuple(self._literal(value) for value in values))

    def null(self, node: expressions.Call) -> Node:
        if len(node.arguments) != 1:
            raise _NotPlain
        found = IsNull(self._column(node.arguments[0]))
        return found if node.name == "isnull" else Not(found)

    def text(self, node: expressions.Call) -> Node:
        if len(node.arguments) < 2:
            raise _NotPlain
        column, *given = node.arguments
        pattern, *escape = (self._literal(one) for one in given)
        if not isinstance(pattern, (str, bytes, type(None))):
            raise _NotPlain
        name: Any = self._column(column)
        if node.name == "like":
            if isinstance(pattern, bytes):
                raise _NotPlain
            return Like(name, pattern, str(escape[0]))
        return _TEXTS[node.name](name, pattern)

    # --- columns and literals ---

    def _column(self, node: expressions.Node) -> Column:
        if not isinstance(node, expressions.Name):
            raise _NotPlain
        return Column(node.parts, sql=self._term)

    def _literal(self, node: expressions.Node) -> Literal | None:
        if isinstance(node, expressions.Interval):
            return timedelta(microseconds=node.microseconds)
        try:
            if isinstance(node, expressions.Cast) and _is_moment(node.to):
                return _moment(self._literal(node.value), node.to)
            found = _computed(node)
        except (ValueError, ArithmeticError):
            raise _NotPlain from None
        if found.value is None:
            return None
        if pa.types.is_date(found.type):
            return Timestamp(found.value * DAY_NS, zoned=False)
        if pa.types.is_timestamp(found.type):
            return Timestamp(found.value * 1000, zoned=found.type.tz is not None)
        whole = pa.types.is_decimal(found.type) and not found.type.scale
        return int(found.value) if whole else found.value


def _computed(node: expressions.Node) -> expressions.Literal:
    """A literal, or the value of casts of one.

    Raises:
        _NotPlain: it is neither.
        Failure: it has no value.
    """
    if isinstance(node, expressions.Literal):
        return node
    if not isinstance(node, expressions.Cast) or node.safe or _is_moment(node.to):
        raise _NotPlain
    given = _computed(node.value)
    if given.value is None or given.type == node.to:
        return expressions.Literal(given.value, node.to)
    kernel, _ = cast_kernel(given.type, node.to, timezone.utc)
    values = kernel(unlisted([given.value], given.type))
    return expressions.Literal(listed(values)[0], node.to)


def _is_moment(type_: pa.DataType) -> bool:
    return type_ in (pa.date32(), INSTANT, WALL, pa.time64("us"))


def _moment(value: Literal | None, to: pa.DataType) -> Literal | None:
    """A literal as a date, a time of day or a timestamp; its time zone may be that of a session.

    Raises:
        ValueError: the text is none.
    """
    if value is None:
        return None
    if pa.types.is_time(to) and isinstance(value, str):
        micros, rest = divmod(parse_time(value), 1000)
        if not rest:
            return (EPOCH + timedelta(microseconds=micros)).time()
    elif pa.types.is_date(to):
        if isinstance(value, str):
            return parse_date(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
    elif isinstance(value, str):
        moment = parse_timestamp(value)
        if to.tz is not None or not moment.zoned:
            return moment
    elif isinstance(value, date):
        return Timestamp((value - EPOCH_DATE).days * DAY_NS, False)
    elif isinstance(value, Timestamp):
        return value
    raise _NotPlain


_TEXTS: dict[str, Callable[[Column, Any], Node]] = {
    "startswith": StartsWith,
    "endswith": EndsWith,
    "contains": Contains,
}
_READERS: dict[str, Callable[[_Plain, expressions.Call], Node]] = {
    **dict.fromkeys(COMPARISONS, _Plain.comparison),
    **dict.fromkeys(("and", "or"), _Plain.joined),
    **dict.fromkeys(("isnull", "isnotnull"), _Plain.null),
    **dict.fromkeys((*_TEXTS, "like"), _Plain.text),
    "not": _Plain.negated,
    "in": _Plain.listed,
}
