"""Pure. Which rows of a MERGE's target can match a row of its source: a condition for scans."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import (
    Equality,
    Name,
    PredicateSet,
    Scope,
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
)
from lakehouse_source.write.statements.merge_source import JoinCondition, Names, SourceRows
from lakehouse_source.write.statements.row_condition import as_predicate

# If there are more distinct values, only the smallest and the largest are used.
MOST_VALUES = 50_000


def may_match(
    condition: JoinCondition, source: SourceRows, schema: pa.Schema, scope: Scope, names: Names
) -> PredicateSet:
    """A condition that every target row with a match satisfies."""
    if not len(source.rows):
        return PredicateSet(constant(False))
    found = PredicateSet.of(None)
    for term in condition.target_terms:
        part = as_predicate(term, schema, scope)
        if part is not None:
            found = found & part
    rows = source.table.take(source.rows)
    for key in condition.keys:
        column = key.equality.of(names.target).node
        if isinstance(column, Name):
            values = key.source.evaluate({names.source: rows}, rows.num_rows)
            part = _among(scope.find(column).path, key.equality, names.source, values)
            part = None if part is None else _bindable(part, schema)
            found = found if part is None else found & part
    return found


def _among(
    path: Sequence[pa.Field], equality: Equality, source: str, values: pa.ChunkedArray
) -> PredicateSet | None:
    """The rows whose column has one of the values, or at least lies between them."""
    column, side = Name(tuple(field.name for field in path)), equality.of(source)
    distinct = pc.drop_null(pc.unique(values))
    many = len(distinct) > MOST_VALUES
    literals = equality.sought(path[-1].type, side, _ends(distinct) if many else distinct)
    unordered = many and pa.types.is_string(distinct.type) != pa.types.is_string(path[-1].type)
    if literals is None or unordered:
        return None
    if many:
        node = all_of([compare(column, op, end) for op, end in zip((">=", "<="), literals)])
    else:
        node = is_in(column, literals) if literals else constant(False)
    if equality.null_safe and values.null_count:
        node = any_of((node, is_null(column)))
    return PredicateSet(node)


def _ends(values: pa.Array) -> pa.Array:
    """The least and the greatest value; NaN is greater than every number."""
    order = pc.array_sort_indices(values)
    return values.take(pa.concat_arrays([order[:1], order[-1:]]))


def _bindable(part: PredicateSet, schema: pa.Schema) -> PredicateSet | None:
    try:
        part.bind(schema)
    except (InvalidPredicateError, InvalidExpressionError):
        return None
    return part
