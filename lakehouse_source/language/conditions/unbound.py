"""Pure. What a condition that is not bound names, and the SQL text that it was read from."""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.language.conditions.arrow_expressions import (
    NotUnderstood,
    read,
    top_level_names,
)
from lakehouse_source.language.conditions.nodes import (
    And,
    ArrowExpression,
    Constant,
    Node,
    Not,
    Or,
    SqlExpression,
)
from lakehouse_source.language.tree.find_path import find_path
from lakehouse_source.language.tree.nodes import names
from lakehouse_source.schema import fields as schemas


def missing_columns(node: Node, schema: pa.Schema) -> set[str]:
    """The top-level names of columns in a condition that the schema does not have."""
    if isinstance(node, (And, Or)):
        return set().union(*(missing_columns(term, schema) for term in node.terms))
    if isinstance(node, Not):
        return missing_columns(node.term, schema)
    if isinstance(node, ArrowExpression):
        try:
            return set(top_level_names(read(node.expression))) - set(schema.names)
        except NotUnderstood:
            return set()
    if isinstance(node, Constant):
        return set()
    if isinstance(node, SqlExpression):
        paths = [name.parts for name in names(node.root)]
        known = schemas.indexed(schema)
        return {path[0] for path in paths if find_path(known, path, dotted=False) is None}
    found = find_path(schemas.indexed(schema), node.column.path, node.column.dotted)
    return set() if found else {node.column.path[0]}


def origin(node: Node) -> SqlExpression | None:
    """The conjunct of an SQL text that a node was read from; None: it was not."""
    if isinstance(node, (And, Or)):
        found = [origin(term) for term in node.terms if not isinstance(term, Constant)]
        return found[0] if found and all(one is found[0] for one in found) else None
    if isinstance(node, Not):
        return origin(node.term)
    if isinstance(node, (Constant, ArrowExpression, SqlExpression)):
        return None
    return node.column.sql
