"""Verb. Which conditions and literals mean the same in every engine."""

from __future__ import annotations

from datetime import date

import pyarrow as pa

from lakehouse_source.language import (
    BoundAnd,
    BoundColumns,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundText,
    IfPresent,
)
from lakehouse_source.schema.ordinal import PythonValue, domain, from_ordinal

# Kinds of `ordinal.Domain` that every engine orders as plake does.
_PORTABLE = ("bool", "int", "string", "date", "timestamp", "decimal")


# Engines walk a condition recursively: a condition with thousands of terms could crash the process.
LARGEST_CONDITION = 200


def size(node: BoundNode) -> int:
    """The number of nodes of a condition."""
    if isinstance(node, (BoundAnd, BoundOr)):
        return 1 + sum(size(term) for term in node.terms)
    return 1


def is_portable(node: BoundNode) -> bool:
    """Tell whether a condition means the same in every engine.

    These do not: floats, because NaN and zeros differ; LIKE, because patterns differ; binaries;
    nested columns; and expressions. Temporal values have to be in the years that Python knows,
    because literals are made from Python's values.
    """
    if isinstance(node, (BoundAnd, BoundOr)):
        return all(is_portable(term) for term in node.terms)
    if isinstance(node, BoundNot):
        return is_portable(node.term)
    if isinstance(node, BoundConstant):
        return True
    if isinstance(node, (BoundExpression, BoundColumns, BoundLike)):
        return False
    column = node.column
    if len(column.path) > 1:
        return False
    if isinstance(node, (BoundIsNull, IfPresent)):
        return column.kind in (*_PORTABLE, "float", "binary")
    if column.kind not in _PORTABLE:
        return False
    if isinstance(node, BoundText):
        return column.kind == "string" and _is_text(node.text)
    values = node.values if isinstance(node, BoundIn) else (node.value,)
    return all(is_literal(from_ordinal(value, column.type), column.type) for value in values)


def _is_text(value: bytes) -> bool:
    """Tell whether bytes are text that SQL can hold."""
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def is_literal(value: PythonValue, type_: pa.DataType) -> bool:
    """Tell whether every engine can be given a value: `from_ordinal` leaves far years as int."""
    if domain(type_).kind in ("date", "timestamp"):
        return isinstance(value, date)  # a datetime is one
    return not isinstance(value, bytes) and not (isinstance(value, str) and "\0" in value)
