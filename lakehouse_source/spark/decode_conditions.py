"""Door. Decodes the conditions that the planner extension pushes down.

`planner/src/io/plake/spark/ConditionData.java` encodes them. Spark applies every
condition to the rows again, so pruning may leave out those that plake cannot express.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.predicate import (
    And,
    Column,
    Compare,
    Constant,
    Contains,
    EndsWith,
    In,
    IsNull,
    Not,
    Or,
    PredicateSet,
    StartsWith,
    Timestamp,
)
from lakehouse_source.schema.align import by_name
from lakehouse_source.schema.fields import children
from lakehouse_source.schema.ordinal import EPOCH_DATE
from lakehouse_source.spark.types import readable

_COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=")
_TEXT = {"starts_with": StartsWith, "ends_with": EndsWith, "contains": Contains}
_DAY_NS = 86_400 * 10**9


def _date(text: str) -> date | Timestamp:
    days = int(text)
    try:
        return EPOCH_DATE + timedelta(days=days)
    except OverflowError:  # a year that Python has no date for
        return Timestamp(days * _DAY_NS, zoned=False)


# How a literal's text is parsed, by the name of its type. Every literal is exact: a 32-bit float
# arrives as the double of the same value.
_VALUES: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: text == "true",
    "long": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "binary": bytes.fromhex,
    "date": _date,
    "timestamp": lambda text: Timestamp(int(text) * 1000, zoned=True),
    "timestamp_ntz": lambda text: Timestamp(int(text) * 1000, zoned=False),
    "duration": lambda text: timedelta(microseconds=int(text)),
}


def decode_supported(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet:
    """The conjunction of those terms that can be bound to the dataset's schema.

    It may be true of more rows than all terms together. Spark applies them all.
    """
    decoded = [_decode(term, schema) for term in terms]
    return PredicateSet.of([condition for condition in decoded if condition is not None])


def decode_all(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet | None:
    """The conjunction of all terms, or None where one of them cannot be bound."""
    decoded = [_decode(term, schema) for term in terms]
    return None if any(condition is None for condition in decoded) else PredicateSet.of(decoded)


def _decode(term: Mapping[str, Any], schema: pa.Schema) -> PredicateSet | None:
    try:
        condition = PredicateSet.of(to_node(term, schema))
        condition.bind(schema)
    except (InvalidPredicateError, LookupError):
        return None
    return condition


def to_node(term: Mapping[str, Any], schema: pa.Schema) -> Any:
    """The predicate node with the same meaning as a term.

    Raises:
        LookupError: plake has no such operator, type or literal.
        InvalidPredicateError: Spark sees a column as another type than the dataset has,
            because of a schema that the user gave.
    """
    op = term["op"]
    if op in ("true", "false"):
        return Constant(op == "true")
    if op in ("and", "or", "not"):
        nodes = tuple(to_node(inner, schema) for inner in term["terms"])
        return Not(nodes[0]) if op == "not" else And(nodes) if op == "and" else Or(nodes)
    column = Column(tuple(term["column"]))
    if op == "is_null":
        return IsNull(column)
    _check_type(column, term["type"], schema)
    values = [_VALUES[term["type"]](text) for text in term["values"]]
    if term["null"]:
        values.append(None)
    if op == "in":
        return In(column, tuple(values))
    if op in _COMPARISONS:
        return Compare(column, op, values[0])
    return _TEXT[op](column, values[0])


def _check_type(column: Column, expected: str, schema: pa.Schema) -> None:
    """Refuse a term whose type is not the column's: 9 < 10 as numbers, but '9' > '10' as text."""
    fields = list(schema)
    found: pa.Field | None = None
    for name in column.path:
        found = by_name(pa.field(name, pa.null()), fields)
        if found is None:
            break
        fields = children(found.type)
    if found is None or type_name(found.type) != expected:
        raise InvalidPredicateError(
            reason=f"column {column} of the dataset is not of type {expected}"
        )


def type_name(type_: pa.DataType) -> str | None:
    """The planner extension's name of a stored type. None: it pushes down no such literals."""
    t, type_ = pa.types, readable(type_)
    named = (
        (t.is_boolean, "boolean"),
        (t.is_integer, "long"),
        (t.is_float32, "float"),
        (t.is_float64, "double"),
        (t.is_decimal, "decimal"),
        (lambda x: t.is_string(x) or t.is_large_string(x), "string"),
        (lambda x: t.is_binary(x) or t.is_large_binary(x), "binary"),
        (t.is_date, "date"),
        (t.is_duration, "duration"),
    )
    if t.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    return next((name for check, name in named if check(type_)), None)
