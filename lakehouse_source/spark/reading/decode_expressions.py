"""Door. Decodes the expressions that the planner extension hands on, as nodes of the language.

The forms are those of `Node` in `protocol/vocabulary.py`. Java sends Spark's type of each part: an
expression to which plake gives another type is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import PredicateSet
from lakehouse_source.language.bounds.as_nodes import as_nodes
from lakehouse_source.language.rows.bind import Binder
from lakehouse_source.language.rows.sql_rows import scope_of
from lakehouse_source.language.tree.nodes import Call, Case, Cast, Interval, Literal, Name
from lakehouse_source.language.tree.nodes import Node as Tree
from lakehouse_source.language.tree.types import NAMED, is_atomic, spark_type
from lakehouse_source.schema.fields import children, find_field
from lakehouse_source.spark.protocol.vocabulary import Key, Node

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Functions whose name in Spark's plans differs from the name in SQL.
_NAMES = {"unaryminus": "negative", "timestampaddinterval": "+"}
_READ: dict[pa.DataType, Callable[[str], Any]] = {
    pa.bool_(): lambda text: text == "true",
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes.fromhex,
}


def decode_expression(
    term: Mapping[str, Any], schema: pa.Schema
) -> tuple[PredicateSet, bool] | None:
    """What an expression implies about columns, and whether both are equal on every row.

    None: the expression is not understood, or implies nothing.
    """
    zone = term[Key.ZONE]
    try:
        (tree,) = term[Key.TERMS]
        node = _Decoder(schema, zone).node(tree)
        said, exact = as_nodes(PredicateSet(node).bind(schema, zone).root)
    except (InvalidPredicateError, InvalidExpressionError, LookupError, ValueError, RecursionError):
        return None
    return PredicateSet(said), exact


class _Decoder:
    def __init__(self, schema: pa.Schema, zone: str) -> None:
        self._schema = schema
        self._binder = Binder(scope_of(schema, zone))

    def node(self, data: Mapping[str, Any]) -> Tree:
        """The node with its type checked.

        Raises:
            LookupError: there is no such type, or column.
            InvalidExpressionError: the node is not known, or plake gives it another type.
        """
        kind = data[Key.OP]
        if kind == Node.COLUMN:
            return self._column(data)
        texts = data.get(Key.VALUES)
        if texts and data[Key.TYPE].startswith("interval "):
            return Interval(int(texts[0]), whole_days=False)
        type_ = _type(data[Key.TYPE])
        if kind == Node.LITERAL:
            return Literal(_value(texts[0], type_) if texts else None, type_)
        parts = tuple(self.node(one) for one in data[Key.TERMS])
        if kind == Node.CALL:
            name = data[Key.NAME]
            found: Tree = Call(_NAMES.get(name, name), parts)
        elif kind == Node.CASE:
            otherwise = parts[-1] if len(parts) % 2 else Literal(None, pa.null())
            found = Case(tuple(zip(parts[:-1:2], parts[1::2])), otherwise)
        else:
            found = Cast(parts[0], type_, safe=kind == Node.TRY_CAST)
        if self._binder.bind(found).type != type_:
            raise LookupError(data[Key.TYPE])
        return found

    def _column(self, data: Mapping[str, Any]) -> Tree:
        path, stored = data[Key.COLUMN], pa.struct(list(self._schema))
        for name in path:
            field = find_field(name, children(stored))
            if field is None:
                raise LookupError(name)
            stored = field.type
        seen = spark_type(stored)
        # A schema that the user gave may show the column as another type.
        if is_atomic(seen) and seen != _type(data[Key.TYPE]):
            raise LookupError(data[Key.TYPE])
        return Name(tuple(path))


def _type(text: str) -> pa.DataType:
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    return pa.null() if text == "void" else NAMED[text.upper()]


def _value(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_decimal(type_):
        return Decimal(text)
    return _READ[type_](text) if type_ in _READ else int(text)
