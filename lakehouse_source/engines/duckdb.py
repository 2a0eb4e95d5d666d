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

from lakehouse_source.engines.files import PATH, Engine, FileGroup, HandOver, Source
from lakehouse_source.language import (
    BoundAnd,
    BoundColumn,
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
from lakehouse_source.parquet.duckdb_names import quoted, quoted_text
from lakehouse_source.schema.fields import children
from lakehouse_source.schema.ordinal import PythonValue, from_ordinal
from lakehouse_source.schema.types import card

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
ENGINE = Engine(_is_path, _POSITION, "DuckDB", _lacks, has_tables_without_columns=False)
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
    columns = ", ".join(_column(source) for source in group.sources)
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
    return f"SELECT {wanted} FROM ({read}) WHERE {_condition(handed.condition.root)}"


def _column(source: Source) -> str:
    name, type_ = source.field.name, source.field.type
    if source.by_file is not None:
        return f"{quoted(source.by_file)} AS {quoted(name)}"
    if source.stored is None:
        return f"{_literal(source.constant, type_)} AS {quoted(name)}"
    stored = quoted(source.stored.name)
    return f"{f'CAST({stored} AS {_type(type_)})' if source.is_cast else stored} AS {quoted(name)}"


# --- conditions -----------------------------------------------------------------


def _condition(node: BoundNode) -> str:
    """A portable condition as SQL (see `conditions.is_portable`)."""
    if isinstance(node, (BoundAnd, BoundOr)):
        word = " AND " if isinstance(node, BoundAnd) else " OR "
        return f"({word.join(_condition(term) for term in node.terms)})"
    if isinstance(node, BoundNot):
        return f"(NOT {_condition(node.term)})"
    if isinstance(node, BoundConstant):
        return _literal(node.value, pa.bool_())
    if isinstance(node, BoundIsNull):
        return f"({quoted(node.column.path[0])} IS NULL)"
    if isinstance(node, IfPresent):
        return f"(CASE WHEN {quoted(node.column.path[0])} IS NOT NULL THEN {node.truth} END)"
    assert isinstance(node, (BoundCompare, BoundIn, BoundText)), node
    return _of_value(node)


def _of_value(node: BoundCompare | BoundIn | BoundText) -> str:
    type_ = node.column.type
    column = _compared(node.column)
    if isinstance(node, BoundText):
        function = {"prefix": "starts_with", "suffix": "ends_with", "contains": "contains"}
        return f"{function[node.form]}({column}, {quoted_text(node.text.decode())})"
    if isinstance(node, BoundIn):
        values = [_literal(from_ordinal(value, type_), type_) for value in node.values]
        values += ["NULL"] if node.has_null else []
        return f"({column} IN ({', '.join(values)}))" if values else "FALSE"
    operator = "IS NOT DISTINCT FROM" if node.op == "<=>" else node.op
    return f"({column} {operator} {_literal(from_ordinal(node.value, type_), type_)})"


def _compared(column: BoundColumn) -> str:
    # Text compares by its bytes, whatever the connection's default collation is.
    name = quoted(column.path[0])
    return f'{name} COLLATE "binary"' if column.kind == "string" else name


# --- values and types -----------------------------------------------------------


def _literal(value: PythonValue | None, type_: pa.DataType) -> str:
    if value is None:
        return f"CAST(NULL AS {_type(type_)})"
    if pa.types.is_string(type_):
        return quoted_text(str(value))
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return f"CAST({quoted_text(text)} AS {_type(type_)})"


def _type(type_: pa.DataType) -> str:
    name = card(type_).duckdb
    if name is not None:
        return name
    below = children(type_)
    if pa.types.is_list(type_):
        return f"{_type(below[0].type)}[]"
    assert pa.types.is_struct(type_), type_
    return f"STRUCT({', '.join(f'{quoted(child.name)} {_type(child.type)}' for child in below)})"
