"""Door. Spark's pushed filters as predicate nodes.

Pruning by them is best effort: Spark applies every filter again, so one that
has no counterpart is simply not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import Filter

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.predicate import (
    Column,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Not,
    PredicateSet,
    StartsWith,
)

_COMPARISONS = {
    spark_filters.EqualTo: "=",
    spark_filters.EqualNullSafe: "<=>",
    spark_filters.GreaterThan: ">",
    spark_filters.GreaterThanOrEqual: ">=",
    spark_filters.LessThan: "<",
    spark_filters.LessThanOrEqual: "<=",
}
_TEXT = {
    spark_filters.StringStartsWith: StartsWith,
    spark_filters.StringEndsWith: EndsWith,
    spark_filters.StringContains: Contains,
}


def to_node(pushed: Filter) -> Any | None:
    """The node that means the same, None where there is none."""
    if isinstance(pushed, spark_filters.Not):
        inner = to_node(pushed.child)
        return None if inner is None else Not(inner)
    attribute = getattr(pushed, "attribute", None)
    if attribute is None:
        return None
    column = Column(tuple(attribute))
    kind = type(pushed)
    value: Any = getattr(pushed, "value", None)
    if kind in _COMPARISONS:
        return Compare(column, _COMPARISONS[kind], value)
    if kind in _TEXT:
        return _TEXT[kind](column, value)
    if isinstance(pushed, spark_filters.In):
        return In(column, tuple(value))
    if isinstance(pushed, spark_filters.IsNull):
        return IsNull(column)
    if isinstance(pushed, spark_filters.IsNotNull):
        return Not(IsNull(column))
    return None


def usable(filters: Iterable[Filter], schema: pa.Schema) -> PredicateSet:
    """All filters that can be bound to the dataset's schema, as one condition."""
    result = PredicateSet.of(None)
    for pushed in filters:
        node = to_node(pushed)
        if node is None:
            continue
        condition = PredicateSet.of(node)
        try:
            condition.bind(schema)
        except InvalidPredicateError:
            # For instance equality of arrays: Spark does it.
            continue
        result = result & condition
    return result
