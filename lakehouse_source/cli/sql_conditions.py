"""Pure. Which files a query of DuckDB needs of a table: conditions that its rows must satisfy.

The query itself runs as it was given, with all its conditions. The conditions found here only leave
files out, so a part that is not surely a condition on the rows of the table is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
from sqlglot import ErrorLevel, exp, parse_one
from sqlglot.errors import SqlglotError

Triple = tuple[str, str, Any]
_OPERATORS: dict[Any, str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINS = ("", "INNER", "CROSS")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def table_names(query: str) -> list[tuple[str, ...]]:
    """The names of the tables of a query, in lower case, and of its CTEs too.

    Raises:
        SqlglotError: sqlglot cannot parse the text.
    """
    tree = parse_one(query, dialect="duckdb", error_level=ErrorLevel.RAISE)
    found = {tuple(part.name.lower() for part in one.parts) for one in tree.find_all(exp.Table)}
    return sorted(name for name in found if all(name) and len(name) <= 2)


def conditions(
    query: str, name: Sequence[str], schema: pa.Schema
) -> list[list[Triple]] | list[Triple] | None:
    """Conditions on a table: each row that the query needs satisfies one; None: it needs all rows.

    A table that is named several times needs the rows of each place.
    """
    try:
        tree = parse_one(query, dialect="duckdb", error_level=ErrorLevel.RAISE)
    except (SqlglotError, RecursionError):
        return None
    names = tuple(part.lower() for part in name)
    if any(one.alias.lower() == names[-1] for one in tree.find_all(exp.CTE)):
        return None  # only DuckDB knows which of the two a place means
    types = {field.name.lower(): field for field in schema}
    if len(types) < len(schema):
        return None
    found = []
    for table in tree.find_all(exp.Table):
        if table.name.lower() == names[-1]:
            parts = tuple(part.name.lower() for part in table.parts)
            triples = list(_of_place(table, types)) if parts == names else []
            if not triples:
                return None
            found.append(triples)
    return found or None


def _of_place(table: exp.Table, types: dict[str, pa.Field]) -> Iterator[Triple]:
    """The condition on the rows of a table at one place where a query names the table."""
    select = table.find_ancestor(exp.Select)
    if select is None or not _is_plain(table, select):
        return
    where = select.args.get("where")
    alone = not select.args.get("joins") and not select.args.get("laterals")
    for part in (
        where.this.flatten()
        if where and isinstance(where.this, exp.And)
        else ([where.this] if where else [])
    ):
        yield from _triples(part.unnest(), table.alias_or_name.lower(), alone, types)


def _is_plain(table: exp.Table, select: exp.Select) -> bool:
    """Tell whether the rows of a table reach the condition of the SELECT as they are."""
    if any(table.args.get(name) for name in ("sample", "pivots", "joins", "laterals", "when")):
        return False
    if select.args.get("laterals") or select.args.get("sample"):
        return False
    joins = select.args.get("joins") or []
    if any(
        join.args.get("method") or join.side or join.kind.upper() not in _JOINS for join in joins
    ):
        return False
    source = table.parent
    return source is select.args.get("from_", select.args.get("from")) or source in joins


def _triples(node: Any, alias: str, alone: bool, types: dict[str, pa.Field]) -> Iterator[Triple]:
    kind: Any = type(node)
    column = node.this
    if kind in _OPERATORS:
        left, right, operator = node.this, node.expression, _OPERATORS[kind]
        if isinstance(right, exp.Column):
            left, right, operator = right, left, _MIRRORED[operator]
        field = _field(left, alias, alone, types)
        value = None if field is None else _value(right, field.type)
        if field is not None and value is not None:
            yield field.name, operator, value
        return
    field = _field(column, alias, alone, types)
    if field is None:
        return
    if kind is exp.Between and not node.args.get("symmetric"):
        for operator, bound in ((">=", node.args["low"]), ("<=", node.args["high"])):
            value = _value(bound, field.type)
            if value is not None:
                yield field.name, operator, value
    elif kind is exp.In and node.expressions and not node.args.get("query"):
        values = [_value(one, field.type) for one in node.expressions]
        if all(value is not None for value in values):
            yield field.name, "in", values


def _field(node: Any, alias: str, alone: bool, types: dict[str, pa.Field]) -> pa.Field | None:
    """The column of the table that a node is."""
    if not isinstance(node, exp.Column) or node.args.get("db"):
        return None
    if node.table.lower() != alias and (node.table or not alone):
        return None
    return types.get(node.name.lower())


def _value(node: Any, type_: pa.DataType) -> int | str | date | None:
    """A literal, if DuckDB and plake compare it alike with a column of the type; else None."""
    if isinstance(node, exp.Neg):
        value = _value(node.this, type_)
        return -value if isinstance(value, int) else None
    if isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DATE:
        node = node.this if pa.types.is_date32(type_) else None
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if not node.is_string:
        is_whole = pa.types.is_integer(type_) and text.isascii() and text.isdecimal()
        return int(text) if is_whole and len(text) < 19 else None
    if pa.types.is_string(type_):
        return text
    if pa.types.is_date32(type_) and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return None
    return None
