"""Verb. The files of a scan as frames of an engine whose expressions are Python objects.

Polars and DataFusion build expressions with the same operators. Each engine has `Words`, with what
it spells differently.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.engines.files import FileGroup, HandOver
from lakehouse_source.language import (
    BoundAnd,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundText,
    IfPresent,
)
from lakehouse_source.schema.ordinal import PythonValue, from_ordinal

# Frames and expressions of the engine.
Frame: TypeAlias = Any
Expression: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Words:
    """How an engine spells what is not an operator of Python.

    `read` gives a frame over the files of a group, with the columns of `partitions` if it has
    them; `cast` casts an expression to an Arrow
    type, and `if_present` is a truth value where a column is not NULL, else NULL. `same` is
    the null-safe equality of a column and a literal.
    """

    read: Callable[[FileGroup], Frame]
    column: Callable[[str], Expression]
    literal: Callable[[PythonValue | None, pa.DataType], Expression]
    cast: Callable[[Expression, pa.DataType], Expression]
    if_present: Callable[[Expression, Expression], Expression]
    same: Callable[[Expression, Expression], Expression]
    is_in: Callable[[Expression, Sequence[PythonValue], pa.DataType, bool], Expression]
    text: Callable[[str, Expression, str], Expression]


def frame(group: FileGroup, handed: HandOver, words: Words) -> Frame:
    """The matching rows of a group of files."""
    columns = []
    for source in group.sources:
        name, type_ = source.field.name, source.field.type
        if source.by_file is not None:
            column = words.column(source.by_file)
        elif source.stored is None:
            column = words.literal(source.constant, type_)
        else:
            column = words.column(source.stored.name)
            column = words.cast(column, type_) if source.is_cast else column
        columns.append(column.alias(name))
    found = words.read(group).select(*columns)
    if not group.filtered or handed.condition is None:
        return found
    matching = found.filter(condition(handed.condition.root, words))
    return matching.select(*(words.column(name) for name in handed.schema.names))


_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def condition(node: BoundNode, words: Words) -> Expression:
    """A portable condition as an expression (see `conditions.is_portable`)."""
    if isinstance(node, (BoundAnd, BoundOr)):
        combine = operator.and_ if isinstance(node, BoundAnd) else operator.or_
        return reduce(combine, [condition(term, words) for term in node.terms])
    if isinstance(node, BoundNot):
        return ~condition(node.term, words)
    if isinstance(node, BoundConstant):
        return words.literal(node.value, pa.bool_())
    assert isinstance(node, (BoundIsNull, IfPresent, BoundCompare, BoundIn, BoundText)), node
    column, type_ = words.column(node.column.path[0]), node.column.type
    if isinstance(node, BoundIsNull):
        return column.is_null()
    if isinstance(node, IfPresent):
        return words.if_present(column, words.literal(node.truth, pa.bool_()))
    if isinstance(node, BoundText):
        return words.text(node.form, column, node.text.decode())
    if isinstance(node, BoundIn):
        values = [from_ordinal(value, type_) for value in node.values]
        return words.is_in(column, values, type_, node.has_null)
    value = words.literal(from_ordinal(node.value, type_), type_)
    return words.same(column, value) if node.op == "<=>" else _COMPARE[node.op](column, value)
