"""Verb. The files of a scan as a view of a DataFusion session.

Further filters and projections reach DataFusion's own reader. Files that differ in partition
values are an Arrow dataset instead, which PyArrow reads as a query asks for it.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from lakehouse_source.engines.files import (
    PATH,
    Engine,
    FileGroup,
    HandOver,
    missing_engine,
    missing_file,
)
from lakehouse_source.engines.frames import Words, frame
from lakehouse_source.parquet.checked_footer import open_footer
from lakehouse_source.schema.arrow_arrays import batches
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.ordinal import PythonValue

try:
    from datafusion import col, functions, lit, udf
except ImportError as error:
    raise missing_engine("datafusion") from error


def _is_path(path: str) -> bool:
    """Tell whether DataFusion reads a text as the path of one file, not as a pattern or URL."""
    return path.isprintable() and not any(char in path for char in "*?[]{}%#\\")


ENGINE = Engine(_is_path)
_EVERY_ROW = 2**62


def to_datafusion(handed: HandOver, context: Any, name: str) -> Any:
    """Register a view in a session; returns it as a data frame."""
    frames = [frame(group, _read(context, group), handed, _WORDS) for group in handed.groups]
    if frames:
        frames.append(_guard(handed, context))
    if handed.rows.num_rows or not frames:
        found = batches(handed.rows) or [pa.RecordBatch.from_pylist([], handed.schema)]
        frames.append(_in_memory(context, found))
    context.register_view(name, reduce(lambda a, b: a.union(b), frames))
    return context.table(name)


def _guard(handed: HandOver, context: Any) -> Any:
    """No rows, and an error where a file is gone when a query runs.

    DataFusion takes a file that is missing for one without rows.
    """
    field = handed.schema.field(0)
    paths = [path for group in handed.groups for path in group.paths]

    def is_row(values: pa.Array) -> pa.Array:
        for info in pafs.LocalFileSystem().get_file_info(paths):
            if info.type == pafs.FileType.NotFound:
                raise missing_file(info.path)
        return pa.repeat(pa.scalar(False), len(values))

    columns = [one.with_nullable(True) for one in handed.schema]
    row = pa.RecordBatch.from_arrays(
        [pa.nulls(1, one.type) for one in columns], schema=pa.schema(columns)
    )
    check = udf(is_row, [field.type], pa.bool_(), "volatile", "plake_files_are_there")
    # No filter of a query is handed through a limit: one that is false would end the check.
    return _in_memory(context, [row]).filter(check(_column(field.name))).limit(_EVERY_ROW)


def _in_memory(context: Any, batches: Sequence[pa.RecordBatch]) -> Any:
    name = f"plake {uuid.uuid4().hex}"
    try:
        return context.create_dataframe([batches], name=name)
    finally:
        context.deregister_table(name)  # the frame keeps its rows


def _read(context: Any, group: FileGroup) -> Any:
    stored = without_metadata(
        pa.schema([source.stored for source in group.sources if source.stored is not None])
    )
    if group.partitions is None and len(group.paths) == 1:
        # With a schema DataFusion does not read text as views, and opens no file here.
        return context.read_parquet(group.paths[0], schema=stored)
    found = _listing_tables(context, group.paths, stored) if group.partitions is None else None
    if found is not None:
        return found
    files = _arrow_dataset(group, stored)
    # DataFusion would hand filters to PyArrow, whose NOT IN keeps NULLs. The limit prevents this:
    # DataFusion hands no filter through a limit.
    return context.read_table(files).limit(_EVERY_ROW)


def _listing_tables(context: Any, paths: Sequence[str], stored: pa.Schema) -> Any | None:
    """Files with the columns `stored` as one frame; None where DataFusion reads other types.

    DataFusion refuses a table of files with different columns, and files of one schema may differ
    in hidden columns. Only their footers tell, which are read only after a refusal.
    """
    try:
        found = [_listing_table(context, paths)]
    except Exception as error:  # DataFusion has no class of its own
        if "same schema" not in str(error):
            raise
        alike: dict[tuple[str, ...], list[str]] = {}
        for path in paths:
            with pafs.LocalFileSystem().open_input_file(path) as file:
                names = open_footer(file, path).arrow_schema.names
            alike.setdefault(tuple(names), []).append(path)
        found = [_listing_table(context, some) for some in alike.values()]
    if not all(_has_columns(one.schema(), stored) for one in found):
        return None
    columns = [_column(name) for name in stored.names]
    return reduce(lambda a, b: a.union(b), (one.select(*columns) for one in found))


def _listing_table(context: Any, paths: Sequence[str]) -> Any:
    """Many files as one table: DataFusion has a statement for this, but no function.

    A union has one scan for each file, and 1,000 scans of a file took DataFusion 5.1 s.
    """
    name = f"plake {uuid.uuid4().hex}"
    places = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    context.sql(
        f'CREATE EXTERNAL TABLE "{name}" STORED AS PARQUET LOCATION ({places}) '
        "OPTIONS ('format.schema_force_view_types' 'false')"
    )
    try:
        return context.table(f'"{name}"')
    finally:
        context.deregister_table(name)  # the frame keeps what it reads


def _has_columns(schema: pa.Schema, wanted: pa.Schema) -> bool:
    """Tell whether DataFusion reads the columns as the types that the files are known to have."""
    return all(
        schema.names.count(field.name) == 1 and schema.field(field.name).type.equals(field.type)
        for field in wanted
    )


def _arrow_dataset(group: FileGroup, stored: pa.Schema) -> ds.Dataset:
    """The files of a group. Each one's partition values are constants of its fragment."""
    partitions = pa.table({}) if group.partitions is None else group.partitions.drop_columns(PATH)
    known = [
        reduce(
            operator.and_,
            [pc.field(name) == pa.scalar(value, type_) if value is not None
             else pc.field(name).is_null()
             for (name, value), type_ in zip(row.items(), partitions.schema.types)],
            pc.scalar(True),
        )
        for row in partitions.to_pylist()
    ]  # fmt: skip
    return ds.FileSystemDataset.from_paths(
        list(group.paths),
        schema=pa.schema([*stored, *partitions.schema]),
        format=ds.ParquetFileFormat(),
        filesystem=pafs.LocalFileSystem(),
        partitions=known or None,
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


_WORDS = Words(
    column=_column,
    literal=_literal,
    cast=lambda column, type_: column.cast(type_),
    if_present=lambda column, truth: functions.when(column.is_not_null(), truth).end(),
    same=lambda column, value: functions.coalesce(column == value, lit(False)),
    is_in=_is_in,
    text=lambda form, column, text: _TEXT[form](column, _literal(text, pa.string())),
)
