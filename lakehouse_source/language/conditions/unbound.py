"""Pure. What a condition that is not bound names, and the SQL text that it was read from."""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.language.conditions.arrow_expressions import (
    NotUnderstood,
    read,
    top_level_names,
)
from lakehouse_source.language.conditions.nodes import (
    ArrowExpression,
    Column,
    Node,
    SqlExpression,
    leaves,
)
from lakehouse_source.language.tree.find_path import find_path
from lakehouse_source.language.tree.nodes import names
from lakehouse_source.schema import fields as schemas


def missing_columns(node: Node, schema: pa.Schema) -> set[str]:
    """The top-level names of columns in a condition that the schema does not have."""
    return set().union(*(_missing(leaf, schema) for leaf in leaves(node)))


def _missing(leaf: Node, schema: pa.Schema) -> set[str]:
    if isinstance(leaf, ArrowExpression):
        try:
            return set(top_level_names(read(leaf.expression))) - set(schema.names)
        except NotUnderstood:
            return set()
    if isinstance(leaf, SqlExpression):
        paths = [(name.parts, False) for name in names(leaf.root)]
    else:
        column = _column(leaf)
        paths = [] if column is None else [(column.path, column.dotted)]
    known = schemas.indexed(schema)
    return {path[0] for path, dotted in paths if find_path(known, path, dotted) is None}


def origin(node: Node) -> SqlExpression | None:
    """The conjunct of an SQL text that a node was read from; None: it was not."""
    columns = [_column(leaf) for leaf in leaves(node)]
    found = [None if column is None else column.sql for column in columns]
    return found[0] if found and all(one is found[0] for one in found) else None


def _column(leaf: Node) -> Column | None:
    return getattr(leaf, "column", None)
