"""Pure. Which rows of a MERGE's target can match a row of its source: a condition for scans."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import (
    Expression,
    Literal,
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
from lakehouse_source.language.tree.constants import literal
from lakehouse_source.language.tree.nodes import Call
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
    for term, _equality in condition.equalities:
        root = term.root
        assert isinstance(root, Call)
        for mine, theirs in (root.arguments, root.arguments[::-1]):
            if isinstance(mine, Name) and scope.find(mine).qualifier == names.target:
                other = Expression(theirs, str(theirs)).bind(scope)
                found_path = scope.find(mine).path
                if _compares_alike(found_path[-1].type, other.type):
                    values = other.evaluate({names.source: rows}, rows.num_rows)
                    path = tuple(field.name for field in found_path)
                    part = _among(Name(path), values, root.name == "<=>")
                    part = None if part is None else _bindable(part, schema)
                    found = found if part is None else found & part
    return found


def _compares_alike(target: pa.DataType, source: pa.DataType) -> bool:
    """Tell whether values of one type can be compared with values of the other without a cast."""
    t = pa.types
    if t.is_integer(target) and t.is_integer(source):
        return True
    if t.is_string(target) or t.is_large_string(target):
        return bool(t.is_string(source) or t.is_large_string(source))
    exact = t.is_date32(target) or t.is_decimal(target) or t.is_timestamp(target)
    return bool(exact and target == source)


def _among(column: Name, values: pa.ChunkedArray, null_safe: bool) -> PredicateSet | None:
    """The rows whose column has one of the values, or at least lies between them."""
    distinct = pc.drop_null(pc.unique(values))
    nulls = values.null_count > 0
    if not len(distinct):
        node = constant(False)
    elif len(distinct) <= MOST_VALUES:
        literals = _literals(distinct)
        if literals is None:
            return None
        node = is_in(column, literals)
    else:
        ends = pc.min_max(distinct)
        literals = _literals(pa.array([ends["min"].as_py(), ends["max"].as_py()], distinct.type))
        if literals is None:
            return None
        node = all_of([compare(column, op, end) for op, end in zip((">=", "<="), literals)])
    if null_safe and nulls:
        node = any_of((node, is_null(column)))
    return PredicateSet(node)


def _literals(values: pa.Array) -> tuple[Literal, ...] | None:
    """Values as literals; None if Python has no such value."""
    try:
        return tuple(literal(value) for value in values.to_pylist())  # type: ignore[misc]
    except (ValueError, OverflowError, InvalidPredicateError):
        return None


def _bindable(part: PredicateSet, schema: pa.Schema) -> PredicateSet | None:
    try:
        part.bind(schema)
    except (InvalidPredicateError, InvalidExpressionError):
        return None
    return part
