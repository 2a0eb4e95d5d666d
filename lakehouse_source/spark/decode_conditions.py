"""Door. Conditions, as the planner extension hands them over, as predicate nodes.

The forms are those of `planner/src/io/plake/spark/ConditionData.java`. Pruning
by them is best effort: Spark applies every condition again, so one that has no
counterpart is simply not used.
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
from lakehouse_source.schema.fields import children, find_field
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


# Literals by the name of their type. Each is the exact value: a float that Spark holds in 32 bits
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


def usable(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet:
    """All terms that can be bound to the dataset's schema, as one condition."""
    known = [_condition(term, schema) for term in terms]
    # What has no counterpart, only Spark compares: it does.
    return PredicateSet.of([condition for condition in known if condition is not None])


def complete(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet | None:
    """The terms as one condition, or None where one of them cannot be bound."""
    known = [_condition(term, schema) for term in terms]
    return None if any(condition is None for condition in known) else PredicateSet.of(known)


def _condition(term: Mapping[str, Any], schema: pa.Schema) -> PredicateSet | None:
    try:
        condition = PredicateSet.of(to_node(term, schema))
        condition.bind(schema)
    except (InvalidPredicateError, LookupError):
        return None
    return condition


def to_node(term: Mapping[str, Any], schema: pa.Schema) -> Any:
    """The node that means the same.

    Raises:
        LookupError: there is none.
        InvalidPredicateError: a column that Spark sees with another type than the
            dataset has, because of a schema that the user gave.
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
    """`'9' > '10'` and `9 < 10`: what Spark compares must be what the dataset holds."""
    fields = list(schema)
    found: pa.Field | None = None
    for name in column.path:
        found = find_field(name, fields)
        if found is None:
            break
        fields = children(found.type)
    if found is None or type_name(found.type) != expected:
        raise InvalidPredicateError(reason=f"column {column} is no {expected} in the dataset")


def type_name(type_: pa.DataType) -> str | None:
    """What the planner extension calls a stored type; None: it does not speak of it."""
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
