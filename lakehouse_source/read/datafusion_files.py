"""Verb. The files of a scan as a view of a DataFusion session.

It reads the files with `read_parquet`, so that further filters and projections reach
DataFusion's own reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from lakehouse_source.read.engine_files import Engine, FileGroup, HandOver, missing_engine
from lakehouse_source.read.engine_frames import Words, frame
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.ordinal import PythonValue

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
    words = _words(context)
    frames = [frame(group, handed, words) for group in handed.groups]
    if handed.rows.num_rows or not frames:
        batches = handed.rows.to_batches() or [pa.RecordBatch.from_pylist([], handed.schema)]
        frames.append(context.create_dataframe([batches]))
    context.register_view(name, reduce(lambda a, b: a.union(b), frames))
    return context.table(name)


def _words(context: Any) -> Words:
    def read(group: FileGroup) -> Any:
        (path,) = group.paths
        # With a schema DataFusion does not read text as views, and opens no file here.
        stored = pa.schema([source.stored for source in group.sources if source.stored is not None])
        return context.read_parquet(path, schema=without_metadata(stored))

    return Words(
        read=read,
        column=_column,
        literal=_literal,
        cast=lambda column, type_: column.cast(type_),
        if_present=lambda column, truth: functions.when(column.is_not_null(), truth).end(),
        same=lambda column, value: functions.coalesce(column == value, lit(False)),
        is_in=_is_in,
        text=lambda form, column, text: _TEXT[form](column, _literal(text, pa.string())),
    )


_TEXT = {
    "prefix": functions.starts_with,
    "suffix": functions.ends_with,
    "contains": functions.contains,
}


def _column(name: str) -> Any:
    # Without quotes DataFusion folds the case and splits at dots.
    return col('"' + name.replace('"', '""') + '"')


def _literal(value: PythonValue | None, type_: pa.DataType) -> Any:
    if value is None:
        return lit(None).cast(type_)  # DataFusion takes no scalar that is a NULL list
    return lit(pa.scalar(value, type_))


def _is_in(column: Any, values: Sequence[PythonValue], type_: pa.DataType, has_null: bool) -> Any:
    literals = [_literal(value, type_) for value in values]
    literals += [_literal(None, type_)] if has_null else []
    return functions.in_list(column, literals)
