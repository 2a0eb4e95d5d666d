"""Decides conditions row by row, the slow and obvious way.

Shares nothing with the product but the node classes: no binding, no ordinals,
no kernels. Rows are mappings from a column's path to its value: bool, int,
float, Decimal, str and bytes as they are, temporal values as counts of the
column's unit. NULL is None, as a value and as a result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from fractions import Fraction
from typing import Any

import pyarrow as pa

from lakehouse_source.language import Node, Timestamp
from lakehouse_source.language.nodes import Call, Cast, Literal, Value

Path = tuple[str, ...]
Row = Mapping[Path, Any]
Types = Mapping[Path, pa.DataType]

NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9
EPOCH = datetime(1970, 1, 1)


def decide(node: Node, row: Row, types: Types) -> bool | None:
    """What the condition is on a row."""
    if isinstance(node, Literal):
        return node.value
    assert isinstance(node, Call)
    if node.name in ("not", "and", "or"):
        results = [decide(term, row, types) for term in node.arguments]
        if node.name == "not":
            return None if results[0] is None else not results[0]
        decisive = node.name == "or"
        return decisive if decisive in results else None if None in results else not decisive
    column, *given = node.arguments
    value, type_ = row[column.parts], types[column.parts]
    literals = [_constant(one) for one in given]
    if node.name == "isnull":
        return value is None
    if node.name == "in":
        return _in(value, literals[0] if isinstance(literals[0], tuple) else literals, type_)
    if node.name in ("startswith", "endswith", "contains", "like"):
        return _text(node.name, value, *literals)
    return _compare(node.name, value, literals[0], type_)


def _constant(node: Node) -> Any:
    if isinstance(node, Cast):  # CAST('nan' AS DOUBLE)
        assert pa.types.is_floating(node.to)
        return float(node.value.value)
    assert isinstance(node, (Literal, Value))
    return node.value


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


def _in(value: Any, literals: Sequence[Any], type_: pa.DataType) -> bool | None:
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


def _text(form: str, value: Any, literal: Any, escape: str = "") -> bool | None:
    if value is None or literal is None:
        return None
    if form == "like":
        return re.fullmatch(_regex(literal, escape), value, re.DOTALL) is not None
    if isinstance(value, bytes) and isinstance(literal, str):
        literal = literal.encode()
    if form == "startswith":
        return value.startswith(literal)
    return value.endswith(literal) if form == "endswith" else literal in value


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
