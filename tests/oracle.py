"""Decides conditions row by row, the slow and obvious way.

Shares nothing with the product but the node classes: no binding, no ordinals,
no kernels. Rows are mappings from a column's path to its value: bool, int,
float, Decimal, str and bytes as they are, temporal values as counts of the
column's unit. NULL is None, as a value and as a result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from fractions import Fraction
from typing import Any

import pyarrow as pa

from lakehouse_source.language import (
    And,
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
    StartsWith,
    Timestamp,
)

Path = tuple[str, ...]
Row = Mapping[Path, Any]
Types = Mapping[Path, pa.DataType]

NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9
EPOCH = datetime(1970, 1, 1)


def decide(node: Node, row: Row, types: Types) -> bool | None:
    """What the condition is on a row."""
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Not):
        inner = decide(node.term, row, types)
        return None if inner is None else not inner
    if isinstance(node, And):
        results = [decide(term, row, types) for term in node.terms]
        return False if False in results else None if None in results else True
    if isinstance(node, Or):
        results = [decide(term, row, types) for term in node.terms]
        return True if True in results else None if None in results else False
    path = node.column.path
    value, type_ = row[path], types[path]
    if isinstance(node, IsNull):
        return value is None
    if isinstance(node, Compare):
        return _compare(node.op, value, node.value, type_)
    if isinstance(node, In):
        return _in(value, node.values, type_)
    return _text(node, value)


def _compare(op: str, value: Any, literal: Any, type_: pa.DataType) -> bool | None:
    if op == "<=>":
        if value is None or literal is None:
            return value is literal
        return order(value, literal, type_) == 0
    if value is None or literal is None:
        return None
    found = order(value, literal, type_)
    return {
        "=": found == 0,
        "!=": found != 0,
        "<": found < 0,
        "<=": found <= 0,
        ">": found > 0,
        ">=": found >= 0,
    }[op]


def _in(value: Any, literals: tuple[Any, ...], type_: pa.DataType) -> bool | None:
    if not literals:
        return False
    if value is None:
        return None
    if any(isinstance(literal, float) for literal in literals):  # Spark widens the whole list
        literals = tuple(
            float(one) if isinstance(one, int) and not isinstance(one, bool) else one
            for one in literals
        )
    if any(one is not None and order(value, one, type_) == 0 for one in literals):
        return True
    return None if None in literals else False


def _text(node: StartsWith | EndsWith | Contains | Like, value: Any) -> bool | None:
    literal = node.pattern if isinstance(node, Like) else node.text
    if value is None or literal is None:
        return None
    if isinstance(node, Like):
        return re.fullmatch(_regex(literal, node.escape), value, re.DOTALL) is not None
    if isinstance(value, bytes) and isinstance(literal, str):
        literal = literal.encode()
    if isinstance(node, StartsWith):
        return value.startswith(literal)
    return value.endswith(literal) if isinstance(node, EndsWith) else literal in value


def _regex(pattern: str, escape: str) -> str:
    result, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            result += re.escape(next(characters))
        else:
            result += {"%": ".*", "_": "."}.get(character) or re.escape(character)
    return result


def order(value: Any, literal: Any, type_: pa.DataType) -> int:
    """-1, 0 or 1: how a column's value compares with a literal."""
    a, b = _comparable(value, literal, type_)
    return (a > b) - (a < b)


def _comparable(value: Any, literal: Any, type_: pa.DataType) -> tuple[Any, Any]:
    t = pa.types
    if t.is_floating(type_):
        return _double(float(value)), _double(float(literal))
    if t.is_integer(type_) or t.is_decimal(type_):
        if isinstance(literal, str):
            literal = int(literal) if t.is_integer(type_) else float(literal)
        if isinstance(literal, float):
            return _double(float(value)), _double(literal)
        return Fraction(value), Fraction(literal)
    if t.is_string(type_) or t.is_binary(type_) or t.is_fixed_size_binary(type_):
        return _bytes(value), _bytes(literal)
    if t.is_boolean(type_):
        return value, {"true": True, "false": False}.get(literal, literal)
    if t.is_date(type_):
        return value * DAY, _nanoseconds(literal)
    return value * NS[type_.unit], _nanoseconds(literal)


def _double(value: float) -> tuple[bool, float]:
    """NaN equals itself and comes after everything."""
    return (True, 0.0) if value != value else (False, value)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _nanoseconds(literal: Any) -> int:
    if isinstance(literal, str):
        literal = datetime.fromisoformat(literal)
    if isinstance(literal, Timestamp):
        return literal.nanoseconds
    if isinstance(literal, datetime):
        if literal.tzinfo is not None:
            literal = literal.astimezone(timezone.utc).replace(tzinfo=None)
        return (literal - EPOCH) // timedelta(microseconds=1) * 1000
    if isinstance(literal, date):
        return (literal - EPOCH.date()).days * DAY
    if isinstance(literal, time):
        return (datetime.combine(EPOCH, literal) - EPOCH) // timedelta(microseconds=1) * 1000
    assert isinstance(literal, timedelta)
    return literal // timedelta(microseconds=1) * 1000
