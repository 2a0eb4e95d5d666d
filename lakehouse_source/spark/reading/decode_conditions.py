"""Door. Decodes the conditions that the planner extension pushes down.

The forms are those of `planner/vocabulary.py`. Spark applies every condition to the rows again, so
pruning may leave out conditions that plake cannot express.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language import (
    Name,
    Node,
    PredicateSet,
    Timestamp,
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
    matches,
    negated,
)
from lakehouse_source.schema.fields import children, find_field
from lakehouse_source.schema.ordinal import EPOCH_DATE
from lakehouse_source.spark.protocol.vocabulary import Key, Operator, Type
from lakehouse_source.spark.reading.decode_expressions import decode_expression
from lakehouse_source.spark.types.spark_types import readable

# The operators by their forms. Predicates and the planner extension spell comparisons alike.
CONSTANTS = {Operator.TRUE: True, Operator.FALSE: False}
CONNECTIVES: dict[str, Callable[[list[Node]], Node]] = {
    Operator.AND: all_of,
    Operator.OR: any_of,
    Operator.NOT: lambda nodes: negated(nodes[0]),
}
COMPARISONS = (
    Operator.EQUAL,
    Operator.NULL_SAFE_EQUAL,
    Operator.LESS,
    Operator.LESS_OR_EQUAL,
    Operator.GREATER,
    Operator.GREATER_OR_EQUAL,
)
TEXT = {
    Operator.STARTS_WITH: "startswith",
    Operator.ENDS_WITH: "endswith",
    Operator.CONTAINS: "contains",
}
_DAY_NS = 86_400 * 10**9


def _date(text: str) -> date | Timestamp:
    days = int(text)
    try:
        return EPOCH_DATE + timedelta(days=days)
    except OverflowError:  # a year without a date in Python
        return Timestamp(days * _DAY_NS, zoned=False)


# How a literal's text is parsed, by the name of its type. Every literal is exact: a 32-bit float
# arrives as the double of the same value.
VALUES: dict[str, Callable[[str], Any]] = {
    Type.BOOLEAN: lambda text: text == "true",
    Type.LONG: int,
    Type.FLOAT: float,
    Type.DOUBLE: float,
    Type.DECIMAL: Decimal,
    Type.STRING: str,
    Type.BINARY: bytes.fromhex,
    Type.DATE: _date,
    Type.TIMESTAMP: lambda text: Timestamp(int(text) * 1000, zoned=True),
    Type.TIMESTAMP_NTZ: lambda text: Timestamp(int(text) * 1000, zoned=False),
    Type.DURATION: lambda text: timedelta(microseconds=int(text)),
}


def decode_supported(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet:
    """The conjunction of the terms that can be bound to the dataset's schema.

    It may be true for more rows than all terms together, but Spark applies all terms.
    """
    decoded = [_decode(term, schema) for term in terms]
    return PredicateSet.of([one[0] for one in decoded if one is not None])


def decode_all(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet | None:
    """The conjunction of all terms; None: a term has no such condition."""
    decoded = [_decode(term, schema) for term in terms]
    known = [one[0] for one in decoded if one is not None and one[1]]
    return PredicateSet.of(known) if len(known) == len(decoded) else None


def _decode(term: Mapping[str, Any], schema: pa.Schema) -> tuple[PredicateSet, bool] | None:
    """The condition of a term, and whether it is the whole term; None: it cannot be bound."""
    if term[Key.OP] == Operator.EXPRESSION:
        return decode_expression(term, schema)
    try:
        condition = PredicateSet.of(to_node(term, schema))
        condition.bind(schema)
    except (InvalidPredicateError, LookupError):
        return None
    return condition, True


def to_node(term: Mapping[str, Any], schema: pa.Schema) -> Node:
    """The node with the same meaning as a term.

    Raises:
        LookupError: plake has no such operator, type or literal.
        InvalidPredicateError: Spark sees a column as another type than the dataset has,
            because of a schema that the user gave.
    """
    op = term[Key.OP]
    if op in CONSTANTS:
        return constant(CONSTANTS[op])
    if op in CONNECTIVES:
        return CONNECTIVES[op]([to_node(inner, schema) for inner in term[Key.TERMS]])
    column = Name(tuple(term[Key.COLUMN]))
    if op == Operator.IS_NULL:
        return is_null(column)
    _check_type(column, term[Key.TYPE], schema)
    values = [VALUES[term[Key.TYPE]](text) for text in term[Key.VALUES]]
    if term[Key.NULL]:
        values.append(None)
    if op == Operator.IN:
        return is_in(column, values)
    if op in COMPARISONS:
        return compare(column, op, values[0])
    return matches(TEXT[op], column, values[0])


def compared_value(text: str | None, type_: pa.DataType) -> pa.Scalar | None:
    """The value in the JSON of a term that a column equals it; None: there is none, or NULL."""
    if text is None:
        return None
    term = json.loads(text)
    if term.get(Key.NULL) or not term.get(Key.VALUES):
        return None
    decoded = VALUES[term[Key.TYPE]](term[Key.VALUES][0])
    if isinstance(decoded, Timestamp):
        decoded = decoded.nanoseconds // 1000
    return pa.scalar(decoded, type_)


def _check_type(column: Name, expected: str, schema: pa.Schema) -> None:
    """Refuse a term whose type is not the column's: 9 < 10 as numbers, but '9' > '10' as text."""
    fields = list(schema)
    found: pa.Field | None = None
    for name in column.parts:
        found = find_field(name, fields)
        if found is None:
            break
        fields = children(found.type)
    if found is None or type_name(found.type) != expected:
        raise InvalidPredicateError(
            reason=f"column {column} of the dataset is not of type {expected}"
        )


def type_name(type_: pa.DataType) -> str | None:
    """The planner extension's name of a stored type; None: literals of it are not pushed down."""
    t, type_ = pa.types, readable(type_)
    named = (
        (t.is_boolean, Type.BOOLEAN),
        (t.is_integer, Type.LONG),
        (t.is_float32, Type.FLOAT),
        (t.is_float64, Type.DOUBLE),
        (t.is_decimal, Type.DECIMAL),
        (lambda x: t.is_string(x) or t.is_large_string(x), Type.STRING),
        (lambda x: t.is_binary(x) or t.is_large_binary(x), Type.BINARY),
        (t.is_date, Type.DATE),
        (t.is_duration, Type.DURATION),
    )
    if t.is_timestamp(type_):
        return Type.TIMESTAMP_NTZ if type_.tz is None else Type.TIMESTAMP
    return next((name for check, name in named if check(type_)), None)
