"""Door. Decodes the conditions that the planner extension hands on, as nodes of the language.

The forms are those of `Node` in `protocol/vocabulary.py`. Java sends Spark's type of each part: a
condition to which plake gives another type is not understood. Spark applies every condition to the
rows again, so pruning may leave out conditions that are not understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import BoundPredicate, PredicateSet, all_of
from lakehouse_source.language.bind import Binder
from lakehouse_source.language.bounds.bound import conjunction
from lakehouse_source.language.expression import scope_of
from lakehouse_source.language.nodes import (
    COMPARISONS,
    Call,
    Case,
    Cast,
    Hint,
    Interval,
    Literal,
    Name,
)
from lakehouse_source.language.nodes import Node as Tree
from lakehouse_source.language.types import INTEGERS, NAMED, is_decimal, spark_type
from lakehouse_source.schema.fields import children, find_field, is_nested
from lakehouse_source.spark.protocol.vocabulary import Key, Node

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Functions whose name in Spark's plans differs from the name in SQL.
_NAMES = {
    "unaryminus": "negative",
    "timestampaddinterval": "+",
    "<>": "!=",
    "is_null": "isnull",
    "is_not_null": "isnotnull",
    "starts_with": "startswith",
    "ends_with": "endswith",
}
_NESTED = ("struct<", "array<", "map<")
_NULL_TESTS = ("isnull", "isnotnull")
# They are truth values, whatever the types of their parts are.
_TESTS = {
    *COMPARISONS,
    *_NULL_TESTS,
    "and",
    "or",
    "not",
    "in",
    "startswith",
    "endswith",
    "contains",
}
_READ: dict[pa.DataType, Callable[[str], Any]] = {
    pa.bool_(): lambda text: text == "true",
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes.fromhex,
}
_NOT_UNDERSTOOD = (
    InvalidPredicateError,
    InvalidExpressionError,
    LookupError,
    ValueError,
    RecursionError,
)


def decode_supported(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet:
    """What the terms that are understood say about columns.

    It may be true for more rows than all terms together, but Spark applies all terms.
    """
    found: list[Tree] = []
    for term in terms:
        try:
            found.append(Hint(decode(term, schema), _zone(term)))
        except _NOT_UNDERSTOOD:
            continue
    return PredicateSet(all_of(found))


def decode_all(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> BoundPredicate | None:
    """The conjunction of all terms; None: one is not understood."""
    try:
        bound = [PredicateSet(decode(term, schema)).bind(schema, _zone(term)) for term in terms]
    except _NOT_UNDERSTOOD:
        return None
    return BoundPredicate(conjunction([one.root for one in bound]))


def decode(term: Mapping[str, Any], schema: pa.Schema) -> Tree:
    """The node with the same meaning as a term.

    Raises:
        LookupError: there is no such type.
        InvalidExpressionError: a part is not known, or plake gives it another type.
        InvalidPredicateError: Spark sees a column as another type than the dataset has,
            because of a schema that the user gave.
    """
    return _Decoder(schema, _zone(term)).node(term)


def literal_value(text: str | None, type_: pa.DataType) -> pa.Scalar | None:
    """The value in the JSON of a literal, for a column; None: there is none, or NULL."""
    literal = {} if text is None else json.loads(text)
    if not literal.get(Key.VALUES):
        return None
    return pa.scalar(_reader(named_type(literal[Key.TYPE]))(literal[Key.VALUES][0]), type_)


def named_type(text: str) -> pa.DataType:
    """A type by the name that Spark's catalog gives it.

    Raises:
        LookupError: conditions have no such type.
    """
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    if text.startswith("interval "):
        return pa.duration("us")
    return pa.null() if text == "void" else NAMED[text.upper()]


def _zone(term: Mapping[str, Any]) -> str:
    return str(term.get(Key.ZONE, "UTC"))


def _reader(type_: pa.DataType) -> Callable[[str], Any]:
    return Decimal if is_decimal(type_) else _READ.get(type_, int)


class _Decoder:
    def __init__(self, schema: pa.Schema, zone: str) -> None:
        self._schema = schema
        self._binder = Binder(scope_of(schema, zone))

    def node(self, data: Mapping[str, Any]) -> Tree:
        """The node with its type checked."""
        (found,) = self._nodes(data)
        return found

    def _nodes(self, data: Mapping[str, Any]) -> tuple[Tree, ...]:
        kind = data[Key.OP]
        if kind == Node.COLUMN:
            return (self._column(data),)
        type_ = named_type(data[Key.TYPE])
        if kind == Node.LITERAL:
            return _literals(data, type_)
        name = _NAMES.get(data.get(Key.NAME, ""), data.get(Key.NAME, ""))
        if name in _NULL_TESTS and data[Key.TERMS][0][Key.OP] == Node.COLUMN:
            return (Call(name, (Name(tuple(data[Key.TERMS][0][Key.COLUMN])),)),)
        parts = tuple(node for term in data[Key.TERMS] for node in self._nodes(term))
        if kind == Node.CALL:
            found: Tree = Call(name, parts)
        elif kind == Node.CASE:
            otherwise = parts[-1] if len(parts) % 2 else Literal(None, pa.null())
            found = Case(tuple(zip(parts[:-1:2], parts[1::2])), otherwise)
        else:
            found = Cast(parts[0], type_, safe=kind == Node.TRY_CAST)
        if name not in _TESTS and self._binder.bind(found).type != type_:
            raise LookupError(data[Key.TYPE])
        return (found,)

    def _column(self, data: Mapping[str, Any]) -> Tree:
        path, stored = data[Key.COLUMN], pa.struct(list(self._schema))
        for name in path:
            field = find_field(name, children(stored))
            if field is None:
                raise LookupError(name)
            stored = field.type
        column, found = Name(tuple(path)), spark_type(stored)
        if is_nested(found) and data[Key.TYPE].startswith(_NESTED):
            return column
        found = pa.duration("us") if pa.types.is_duration(found) else found
        shown = named_type(data[Key.TYPE])
        # A schema that the user gave may show the column as another type: 9 < 10, but '9' > '10'.
        if found == shown:
            return column
        if {found, shown} <= {*INTEGERS} or (is_decimal(found) and is_decimal(shown)):
            return Cast(column, shown)
        raise InvalidPredicateError(
            reason=f"column {column} of the dataset is not of type {data[Key.TYPE]}"
        )


def _literals(data: Mapping[str, Any], type_: pa.DataType) -> tuple[Tree, ...]:
    null = (Literal(None, pa.null() if pa.types.is_duration(type_) else type_),)
    values: Iterable[Tree]
    if pa.types.is_duration(type_):
        values = [Interval(int(text), whole_days=False) for text in data[Key.VALUES]]
    else:
        read = _reader(type_)
        values = [Literal(read(text), type_) for text in data[Key.VALUES]]
    return (*values, *(null if data[Key.NULL] else ()))
