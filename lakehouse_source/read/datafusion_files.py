"""Verb. The files of a scan as a view of a DataFusion session.

It reads the files with `read_parquet`, so that further filters and projections reach
DataFusion's own reader.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa

from lakehouse_source.predicate import (
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
from lakehouse_source.read.engine_files import Engine, FileGroup, HandOver, missing_engine
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.ordinal import PythonValue, from_ordinal

try:
    from datafusion import col, functions, lit
except ImportError as error:
    raise missing_engine("datafusion") from error


def _is_path(path: str) -> bool:
    """Tell whether DataFusion reads a text as the path of one file, not as a pattern or URL."""
    return not any(char in path for char in "*?[]{}%#\\\0")


ENGINE = Engine(_is_path, one_file_each=True)


def to_datafusion(handed: HandOver, context: Any, name: str) -> Any:
    """Register a view in a session; returns it as a data frame."""
    frames = [_frame(group, handed, context) for group in handed.groups]
    if handed.rows.num_rows or not frames:
        batches = handed.rows.to_batches() or [pa.RecordBatch.from_pylist([], handed.schema)]
        frames.append(context.create_dataframe([batches]))
    context.register_view(name, reduce(lambda a, b: a.union(b), frames))
    return context.table(name)


def _frame(group: FileGroup, handed: HandOver, context: Any) -> Any:
    (path,) = group.paths
    # With a schema DataFusion does not read text as views, and opens no file here.
    stored = pa.schema([source.stored for source in group.sources if source.stored is not None])
    frame = context.read_parquet(path, schema=without_metadata(stored))
    columns = []
    for source in group.sources:
        if source.stored is None:
            column = _literal(source.constant, source.field.type)
        else:
            column = _column(source.stored.name)
            if source.is_cast:
                column = column.cast(source.field.type)
        columns.append(column.alias(source.field.name))
    frame = frame.select(*columns)
    if not group.filtered or handed.condition is None:
        return frame
    frame = frame.filter(_condition(handed.condition.root))
    return frame.select(*(_column(name) for name in handed.schema.names))


def _condition(node: BoundNode) -> Any:
    """A portable condition as an expression (see `engine_files.is_portable`)."""
    if isinstance(node, (BoundAnd, BoundOr)):
        combine = and_ if isinstance(node, BoundAnd) else or_
        return reduce(combine, [_condition(term) for term in node.terms])
    if isinstance(node, BoundNot):
        return ~_condition(node.term)
    if isinstance(node, BoundConstant):
        return _literal(node.value, pa.bool_())
    assert isinstance(node, (BoundIsNull, IfPresent, BoundCompare, BoundIn, BoundText)), node
    column = _column(node.column.path[0])
    if isinstance(node, BoundIsNull):
        return column.is_null()
    if isinstance(node, IfPresent):
        truth = _literal(node.truth, pa.bool_())
        return functions.when(column.is_not_null(), truth).end()
    type_ = node.column.type
    if isinstance(node, BoundText):
        match = {
            "prefix": functions.starts_with,
            "suffix": functions.ends_with,
            "contains": functions.contains,
        }[node.form]
        return match(column, _literal(node.text.decode(), type_))
    if isinstance(node, BoundIn):
        values = [_literal(from_ordinal(value, type_), type_) for value in node.values]
        values += [_literal(None, type_)] if node.has_null else []
        return functions.in_list(column, values)
    value = _literal(from_ordinal(node.value, type_), type_)
    if node.op == "<=>":
        return functions.coalesce(column == value, _literal(False, pa.bool_()))
    return _COMPARE[node.op](column, value)


_COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _column(name: str) -> Any:
    # Without quotes DataFusion folds the case and splits at dots.
    return col('"' + name.replace('"', '""') + '"')


def _literal(value: PythonValue | None, type_: pa.DataType) -> Any:
    return lit(pa.scalar(value, type_))
