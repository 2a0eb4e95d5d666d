"""Verb. The files of a scan as a Polars LazyFrame.

It reads the files with `scan_parquet`, so that further filters and projections reach
Polars' own reader.
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
from lakehouse_source.schema.ordinal import PythonValue, from_ordinal

try:
    import polars as pl
except ImportError as error:
    raise missing_engine("polars") from error


def _is_path(path: str) -> bool:
    """Tell whether Polars reads a text as the path of one file; patterns are switched off."""
    return "\0" not in path


ENGINE = Engine(_is_path)


def to_polars(handed: HandOver) -> Any:
    """A LazyFrame over the files, and over the rows that plake read."""
    frames = [_frame(group, handed) for group in handed.groups]
    if handed.rows.num_rows or not frames:
        frames.append(pl.DataFrame(handed.rows).lazy())
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical")


def _frame(group: FileGroup, handed: HandOver) -> Any:
    frame = pl.scan_parquet(list(group.paths), glob=False, hive_partitioning=False)
    columns = []
    for source in group.sources:
        if source.stored is None:
            column = _literal(source.constant, source.field.type)
        else:
            column = pl.col(source.stored.name)
            if source.is_cast:
                column = column.cast(_type(source.field.type))
        columns.append(column.alias(source.field.name))
    frame = frame.select(columns)
    if not group.filtered or handed.condition is None:
        return frame
    frame = frame.filter(_condition(handed.condition.root))
    return frame.select([pl.col(name) for name in handed.schema.names])


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
    column = pl.col(node.column.path[0])
    if isinstance(node, BoundIsNull):
        return column.is_null()
    if isinstance(node, IfPresent):
        return pl.when(column.is_not_null()).then(_literal(node.truth, pa.bool_()))
    if isinstance(node, BoundText):
        text = pl.lit(node.text.decode(), dtype=pl.String)
        if node.form == "contains":
            return column.str.contains(text, literal=True)
        match = column.str.starts_with if node.form == "prefix" else column.str.ends_with
        return match(text)
    if isinstance(node, BoundIn):
        return _in(column, node)
    value = _literal(from_ordinal(node.value, node.column.type), node.column.type)
    return _COMPARE[node.op](column, value)


_COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<=>": lambda a, b: a.eq_missing(b),
}


def _in(column: Any, node: BoundIn) -> Any:
    values = [from_ordinal(value, node.column.type) for value in node.values]
    # Polars answers NULL for NULL, as SQL does.
    found = column.is_in(pl.Series(values, dtype=_type(node.column.type)))
    return pl.when(found).then(_literal(True, pa.bool_())) if node.has_null else found


def _literal(value: PythonValue | None, type_: pa.DataType) -> Any:
    return pl.lit(value, dtype=_type(type_))


def _type(type_: pa.DataType) -> Any:
    return pl.Schema(pa.schema([("", type_)])).dtypes()[0]
