"""Pure. The condition of a statement on one table: it may name the table, and has one time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import (
    Expression,
    PredicateSet,
    Scope,
    conjuncts,
    require_condition,
)
from lakehouse_source.language.rows.sql_rows import at_one_time
from lakehouse_source.language.tree.nodes import Name, Node, mapped


def row_condition(where: Any, schema: pa.Schema, scope: Scope) -> PredicateSet:
    """A condition on the rows of a schema, in any form that scans take.

    In SQL, names may begin with the scope's name of the table.

    Raises:
        InvalidPredicateError: it is not a condition.
    """
    found = PredicateSet.of(where)
    try:
        found.bind(schema)
    except InvalidPredicateError as error:
        if not isinstance(where, str):
            raise
        try:
            return of_expression(Expression.parse(where), schema, scope)
        except InvalidExpressionError:
            raise error from None
    return PredicateSet(at_one_time(found.root, scope))


def of_expression(condition: Expression, schema: pa.Schema, scope: Scope) -> PredicateSet:
    """The same as `row_condition`, for an expression."""
    require_condition(condition.bind(scope))
    found = PredicateSet.of(None)
    for term in conjuncts(condition):
        part = as_predicate(term, schema, scope)
        if part is None:
            raise InvalidExpressionError(reason="it is not a condition on rows", text=str(term))
        found = found & part
    return found


def as_predicate(term: Expression, schema: pa.Schema, scope: Scope) -> PredicateSet | None:
    """A condition on one table as scans understand it; None where they do not."""
    root = _unqualified(term.root, scope)
    try:
        part = PredicateSet(at_one_time(root, scope))
        part.bind(schema, scope.timezone)
    except (InvalidPredicateError, InvalidExpressionError):
        return None
    return part


def _unqualified(node: Node, scope: Scope) -> Node:
    """The node without qualifiers in names: scans have one table and no qualifier."""

    def bare(part: Node) -> Node:
        if not isinstance(part, Name):
            return part
        return Name(tuple(field.name for field in scope.find(part).path))

    return mapped(node, bare)
