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

from lakehouse_source.engines.files import FileGroup, HandOver, Source
from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundJoined,
    BoundNode,
    BoundNot,
    BoundText,
    IfPresent,
)
from lakehouse_source.schema.ordinal import PythonValue, from_ordinal

# Frames and expressions of the engine.
Frame: TypeAlias = Any
Expression: TypeAlias = Any


_OPERATORS = {
    "AND": operator.and_,
    "OR": operator.or_,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Words:
    """How an engine spells what is not an operator of Python.

    `cast` casts an expression to an Arrow type, and `if_present` is a truth value where a column
    is not NULL, else NULL. `same` is the null-safe equality of a column and a literal. `compared`
    is a column that is compared with a value, and `combined` the function of an operator.
    """

    column: Callable[[str], Expression]
    literal: Callable[[PythonValue | None, pa.DataType], Expression]
    cast: Callable[[Expression, pa.DataType], Expression]
    if_present: Callable[[Expression, Expression], Expression]
    same: Callable[[Expression, Expression], Expression]
    is_in: Callable[[Expression, Sequence[PythonValue], pa.DataType, bool], Expression]
    text: Callable[[str, Expression, str], Expression]
    is_null: Callable[[Expression], Expression] = lambda column: column.is_null()
    negated: Callable[[Expression], Expression] = operator.invert
    compared: Callable[[BoundColumn], Expression] | None = None
    combined: Callable[[str], Callable[..., Expression]] = _OPERATORS.__getitem__


def column_of(source: Source, words: Words) -> Expression:
    """A column of the version, made of what a group of files has."""
    type_ = source.field.type
    if source.by_file is not None:
        return words.column(source.by_file)
    if source.stored is None:
        return words.literal(source.constant, type_)
    column = words.column(source.stored.name)
    return words.cast(column, type_) if source.is_cast else column


def frame(group: FileGroup, files: Frame, handed: HandOver, words: Words) -> Frame:
    """The matching rows of a group of files, with the columns of `partitions` if it has them."""
    columns = [column_of(source, words).alias(source.field.name) for source in group.sources]
    found = files.select(*columns)
    if not group.filtered or handed.condition is None:
        return found
    matching = found.filter(condition(handed.condition.root, words))
    return matching.select(*(words.column(name) for name in handed.schema.names))


def condition(node: BoundNode, words: Words) -> Expression:
    """A portable condition as an expression (see `files.is_portable`)."""
    if isinstance(node, BoundJoined):
        combine = words.combined("AND" if isinstance(node, BoundAnd) else "OR")
        return reduce(combine, [condition(term, words) for term in node.terms])
    if isinstance(node, BoundNot):
        return words.negated(condition(node.term, words))
    if isinstance(node, BoundConstant):
        return words.literal(node.value, pa.bool_())
    assert isinstance(node, (BoundIsNull, IfPresent, BoundCompare, BoundIn, BoundText)), node
    column, type_ = words.column(node.column.path[0]), node.column.type
    if isinstance(node, BoundIsNull):
        return words.is_null(column)
    if isinstance(node, IfPresent):
        return words.if_present(column, words.literal(node.truth, pa.bool_()))
    column = column if words.compared is None else words.compared(node.column)
    if isinstance(node, BoundText):
        return words.text(node.form, column, node.text.decode())
    if isinstance(node, BoundIn):
        values = [from_ordinal(value, type_) for value in node.values]
        return words.is_in(column, values, type_, node.has_null)
    value = words.literal(from_ordinal(node.value, type_), type_)
    return (words.same if node.op == "<=>" else words.combined(node.op))(column, value)
