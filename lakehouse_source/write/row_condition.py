"""Pure. The condition of a statement: what prunes files, and what only rows can tell.

A condition in the language of scans prunes files and row groups. A text that says more, such
as `arr_delay > dep_delay`, is taken apart: what scans understand prunes, and the rest is
evaluated on the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.expression import (
    BoundValue,
    Expression,
    Scope,
    conjuncts,
    mask,
    require_condition,
)
from lakehouse_source.expression.nodes import Call, Case, Cast, Name, Node
from lakehouse_source.predicate import PredicateSet


@dataclass(frozen=True, slots=True)
class RowCondition:
    """The rows for which `pruning` and all of `rest` are TRUE."""

    pruning: PredicateSet
    rest: tuple[BoundValue, ...] = ()

    @classmethod
    def of(cls, where: Any, schema: pa.Schema, scope: Scope) -> RowCondition:
        """A condition on the rows of a schema, in any form that scans take, or as SQL text.

        Raises:
            InvalidPredicateError: it is neither.
        """
        try:
            found = PredicateSet.of(where)
            found.bind(schema)
            return cls(found)
        except InvalidPredicateError as error:
            if not isinstance(where, str):
                raise
            try:
                return cls.of_expression(Expression.parse(where), schema, scope)
            except InvalidExpressionError:
                raise error from None

    @classmethod
    def of_expression(cls, condition: Expression, schema: pa.Schema, scope: Scope) -> RowCondition:
        """The same of an expression.

        Raises:
            InvalidExpressionError: it is no condition on these rows.
        """
        require_condition(condition.bind(scope))
        pruning = PredicateSet.of(None)
        rest: list[BoundValue] = []
        for term in conjuncts(condition):
            part = as_predicate(term, schema, scope)
            if part is None:
                rest.append(term.bind(scope))
            else:
                pruning = pruning & part
        return cls(pruning, tuple(rest))

    def matching(self, table: pa.Table, qualifier: str) -> pa.Array | None:
        """Which rows satisfy `rest`, of rows that satisfy `pruning`; None: all."""
        found: pa.Array | None = None
        for term in self.rest:
            part = mask(term, {qualifier: table}, table.num_rows).combine_chunks()
            found = part if found is None else pc.and_(found, part)
        return found

    def columns(self, qualifier: str) -> list[str]:
        """The columns of a table that `rest` reads."""
        found = (column for term in self.rest for column in term.columns)
        return list(dict.fromkeys(name for table, name in found if table == qualifier))


def as_predicate(term: Expression, schema: pa.Schema, scope: Scope) -> PredicateSet | None:
    """A condition on one table as scans understand it; None where they do not."""
    text = str(_unqualified(term.root, scope))
    try:
        # Spelled and read again: the text must say what the term says.
        if Expression.parse(text).root != _unqualified(term.root, scope):
            return None
        part = PredicateSet.of(text)
        part.bind(schema)
    except (InvalidPredicateError, InvalidExpressionError):
        return None
    return part


def _unqualified(node: Node, scope: Scope) -> Node:
    """The node with names that begin at the columns: scans have one table and no qualifier."""
    if isinstance(node, Name):
        return Name(tuple(field.name for field in scope.find(node).path))
    if isinstance(node, Call):
        return Call(node.name, tuple(_unqualified(one, scope) for one in node.arguments))
    if isinstance(node, Cast):
        return Cast(_unqualified(node.value, scope), node.to, node.safe)
    if isinstance(node, Case):
        branches = tuple(
            (_unqualified(condition, scope), _unqualified(value, scope))
            for condition, value in node.branches
        )
        return Case(branches, _unqualified(node.otherwise, scope))
    return node
