"""Verb. The files of a scan as a Polars LazyFrame.

It reads the files with `scan_parquet`, so that further filters and projections reach
Polars' own reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakehouse_source.engines.files import PATH, Engine, FileGroup, HandOver, missing_engine
from lakehouse_source.engines.frames import Words, frame
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.ordinal import PythonValue

try:
    import polars as pl
except ImportError as error:
    raise missing_engine("polars") from error


def _is_path(path: str) -> bool:
    """Tell whether Polars reads a text as the path of one file; patterns are switched off."""
    return "\0" not in path


_POSITION = "plake position"
ENGINE = Engine(_is_path, _POSITION, "Polars", pa.types.is_decimal256)


def to_polars(handed: HandOver) -> Any:
    """A LazyFrame over the files, and over the rows that plake read."""
    frames = [frame(group, _read(group), handed, _WORDS) for group in handed.groups]
    if handed.rows.num_rows or not frames:
        frames.append(pl.DataFrame(handed.rows).lazy())
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical")


def _read(group: FileGroup) -> Any:
    # Without a schema Polars refuses hidden columns that only some of the files have.
    stored = [source.stored for source in group.sources if source.stored is not None]
    found = pl.scan_parquet(
        list(group.paths),
        glob=False,
        hive_partitioning=False,
        schema=pl.Schema(without_metadata(pa.schema(stored))),
        extra_columns="ignore",
        row_index_name=None if group.deleted is None else _POSITION,
        include_file_paths=None if group.partitions is None else PATH,
    )
    if group.partitions is not None:
        return found.join(pl.DataFrame(group.partitions).lazy(), on=PATH, maintain_order="left")
    if group.deleted is None:
        return found
    deleted = pl.DataFrame({_POSITION: pl.Series(group.deleted, dtype=pl.get_index_type())})
    # The index is made before other filters remove rows: it is the row's position in the file.
    return found.join(deleted.lazy(), on=_POSITION, how="anti", maintain_order="left")


def _column(name: str) -> Any:
    # `pl.col` reads these names as patterns.
    is_pattern = name == "*" or (name.startswith("^") and name.endswith("$"))
    return pl.selectors.by_name(name).as_expr() if is_pattern else pl.col(name)


def _type(type_: pa.DataType) -> Any:
    return pl.Schema(pa.schema([("", type_)])).dtypes()[0]


def _literal(value: PythonValue | None, type_: pa.DataType) -> Any:
    return pl.lit(value, dtype=_type(type_))


def _text(form: str, column: Any, text: str) -> Any:
    literal = pl.lit(text, dtype=pl.String)
    if form == "contains":
        return column.str.contains(literal, literal=True)
    match = column.str.starts_with if form == "prefix" else column.str.ends_with
    return match(literal)


def _is_in(column: Any, values: Sequence[PythonValue], type_: pa.DataType, has_null: bool) -> Any:
    # Polars answers NULL for NULL, as SQL does.
    found = column.is_in(pl.Series(values, dtype=_type(type_)).implode())
    return pl.when(found).then(_literal(True, pa.bool_())) if has_null else found


_WORDS = Words(
    column=_column,
    literal=_literal,
    cast=lambda column, type_: column.cast(_type(type_)),
    if_present=lambda column, truth: pl.when(column.is_not_null()).then(truth),
    same=lambda column, value: column.eq_missing(value),
    is_in=_is_in,
    text=_text,
)
