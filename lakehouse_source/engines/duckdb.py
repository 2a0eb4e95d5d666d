"""Verb. The files of a scan as a view of a DuckDB connection.

The view reads the files with `read_parquet`, so that further filters and projections reach
DuckDB's own reader. Every name and value is quoted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from lakehouse_source.engines.files import PATH, Engine, FileGroup, HandOver
from lakehouse_source.engines.frames import Words, column_of, condition
from lakehouse_source.language import BoundColumn
from lakehouse_source.schema.fields import children
from lakehouse_source.schema.ordinal import PythonValue
from lakehouse_source.schema.texts import quoted, quoted_text
from lakehouse_source.schema.types import card
from lakehouse_source.schema.variant import is_variant

# Options that make DuckDB read exactly the columns of exactly these files.
_NAMES = "hive_partitioning = false, union_by_name = false"
_OPTIONS = f"{_NAMES}, filename = false"
_PATH_OPTIONS = f"{_NAMES}, filename = '{PATH}'"


def _is_path(path: str) -> bool:
    """Tell whether DuckDB reads a text as the path of one file, not as a pattern."""
    return not any(char in path for char in "*?[]{}\0")


def _lacks(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal256(type_) or pa.types.is_float16(type_))


_POSITION = "file_row_number"
# DuckDB 1.5 has VARIANT, and takes none from Arrow.
_HAS_VARIANT = int(duckdb.__version__.split(".")[0]) >= 2
ENGINE = Engine(_is_path, _POSITION, "DuckDB", _lacks, False, _HAS_VARIANT)
# For a connection that may not open files.
ROWS_ONLY = replace(ENGINE, is_path=lambda _path: False)


class FilesRefused(Exception):
    """A connection may not open the files."""


def to_duckdb(handed: HandOver, connection: Any, name: str) -> Any:
    """Make a temporary view of a connection; returns it as a relation.

    Rows that plake read are in a view of their own, `<name> (from memory)`, the positions of
    deleted rows in `<name> (deleted rows)`, and partition values by the paths of files in
    `<name> (partitions 0)` and so on.
    """
    in_memory = f"{name} (from memory)"
    deleted = _deleted(name)
    parts = [_select(group, number, name, handed) for number, group in enumerate(handed.groups)]
    for number, group in enumerate(handed.groups):
        if group.partitions is not None:
            connection.register(_partitions(name, number), group.partitions)
    positions = _positions(handed.groups)
    if positions is None:
        connection.unregister(deleted)
    else:
        connection.register(deleted, positions)
    if handed.rows.num_rows or not parts:
        connection.register(in_memory, handed.rows)
        parts.append(f"SELECT * FROM {quoted(in_memory)}")
    else:
        connection.unregister(in_memory)  # what an earlier scan of this name left
    body = " UNION ALL ".join(parts)
    try:
        connection.execute(f"CREATE OR REPLACE TEMPORARY VIEW {quoted(name)} AS {body}")
    except duckdb.PermissionException as error:
        if not handed.groups:
            raise
        # Asking for the settings first would be one more query each time.
        raise FilesRefused from error
    return connection.sql(f"SELECT * FROM {quoted(name)}")


def _positions(groups: Sequence[FileGroup]) -> pa.Table | None:
    """The deleted rows of all groups: the group's number, and the position in its file."""
    parts = [
        pa.table({"part": pa.repeat(number, len(group.deleted)), "position": group.deleted})
        for number, group in enumerate(groups)
        if group.deleted is not None
    ]
    return pa.concat_tables(parts) if parts else None


def _deleted(name: str) -> str:
    return f"{name} (deleted rows)"


def _partitions(name: str, number: int) -> str:
    return f"{name} (partitions {number})"


def _select(group: FileGroup, number: int, name: str, handed: HandOver) -> str:
    paths = ", ".join(quoted_text(path) for path in group.paths)
    columns = ", ".join(
        f"{column_of(source, _WORDS)} AS {quoted(source.field.name)}" for source in group.sources
    )
    if group.partitions is not None:
        # A hash join over a few thousand paths, which include the path of every row.
        read = (
            f"SELECT {columns} FROM read_parquet([{paths}], {_PATH_OPTIONS}) "
            f"JOIN {quoted(_partitions(name, number))} USING ({quoted(PATH)})"
        )
    elif group.deleted is None:
        read = f"SELECT {columns} FROM read_parquet([{paths}], {_OPTIONS})"
    else:
        read = (
            f"SELECT {columns} FROM read_parquet([{paths}], {_OPTIONS}, {_POSITION} = true) AS f "
            f"ANTI JOIN (SELECT position FROM {quoted(_deleted(name))} WHERE part = {number}) AS d "
            f"ON f.{_POSITION} = d.position"
        )
    if not group.filtered or handed.condition is None:
        return read
    wanted = ", ".join(quoted(name) for name in handed.schema.names)
    return f"SELECT {wanted} FROM ({read}) WHERE {condition(handed.condition.root, _WORDS)}"


def _compared(column: BoundColumn) -> str:
    # Text compares by its bytes, whatever the connection's default collation is.
    name = quoted(column.path[0])
    return f'{name} COLLATE "binary"' if column.kind == "string" else name


def _is_in(column: str, values: Sequence[PythonValue], type_: pa.DataType, has_null: bool) -> str:
    listed = [*(_literal(value, type_) for value in values), *["NULL"][: int(has_null)]]
    return f"({column} IN ({', '.join(listed)}))" if listed else "FALSE"


_TEXT = {"prefix": "starts_with", "suffix": "ends_with", "contains": "contains"}


def _literal(value: PythonValue | None, type_: pa.DataType) -> str:
    if value is None:
        return f"CAST(NULL AS {_type(type_)})"
    if pa.types.is_string(type_):
        return quoted_text(str(value))
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return f"CAST({quoted_text(text)} AS {_type(type_)})"


def _type(type_: pa.DataType) -> str:
    name = "VARIANT" if is_variant(type_) else card(type_).duckdb
    if name is not None:
        return name
    below = children(type_)
    if pa.types.is_list(type_):
        return f"{_type(below[0].type)}[]"
    assert pa.types.is_struct(type_), type_
    return f"STRUCT({', '.join(f'{quoted(child.name)} {_type(child.type)}' for child in below)})"


_WORDS = Words(
    column=quoted,
    literal=_literal,
    cast=lambda column, type_: f"CAST({column} AS {_type(type_)})",
    if_present=lambda column, truth: f"(CASE WHEN {column} IS NOT NULL THEN {truth} END)",
    same=lambda column, value: f"({column} IS NOT DISTINCT FROM {value})",
    is_in=_is_in,
    text=lambda form, column, text: f"{_TEXT[form]}({column}, {quoted_text(text)})",
    is_null=lambda column: f"({column} IS NULL)",
    negated=lambda term: f"(NOT {term})",
    compared=_compared,
    combined=lambda name: lambda left, right: f"({left} {name} {right})",
)
