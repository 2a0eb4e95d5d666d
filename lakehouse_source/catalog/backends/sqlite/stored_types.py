"""Edge. Checks that the rows that SQLite returns have the types of the catalog's columns.

SQLite keeps any value in any column. A catalog that plake wrote has no other types; a stranger's
catalog may. The name of a column gives its type, which is the same in all tables. An expression is
checked only if it has the name of a column, or this name and `_or_null` if it may be NULL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from operator import itemgetter
from typing import Any

from lakehouse_source.catalog.backends.sqlite.dialect import SQLITE
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.session import Row
from lakehouse_source.errors import CorruptDatasetError

_TYPES = {"TEXT": str, "BLOB": bytes}  # all others are integers
_OR_NULL = "_or_null"
# Names that statements give to columns.
_ALIASES = {"namespace_name": "name"}


_known: dict[str, frozenset[type]] = {}


def expected_types() -> Mapping[str, frozenset[type]]:
    """The types that values of each column may have, by the column's name."""
    if not _known:
        with closing(sqlite3.connect(":memory:")) as connection:
            for statement in migrations.steps(0):
                connection.execute(SQLITE.render(statement))
            learn_types(connection)
    return _known


def learn_types(connection: sqlite3.Connection) -> None:
    """Note the types of the columns of a database that equals a new catalog."""
    if _known:
        return
    found: dict[str, frozenset[type]] = {}
    for table in (*migrations.TABLES, migrations.FORMAT_TABLE):
        for _, name, declared, not_null, default, in_key in connection.execute(
            f"PRAGMA table_info({table})"
        ):
            types: set[type] = {_TYPES.get(declared, int)}
            # A column with a default was added to tables that had rows: DuckDB adds no NOT NULL.
            if not (not_null or in_key or default is not None):
                types.add(type(None))
            found[name] = found.get(name, frozenset()) | types
    for name in list(found):
        found[name + _OR_NULL] = found[name] | {type(None)}
    _known.update(found | {alias: found[name] for alias, name in _ALIASES.items()})


@lru_cache(maxsize=512)
def _places(names: tuple[str, ...]) -> tuple[tuple[int, frozenset[type]], ...]:
    known = expected_types()
    return tuple((place, known[name]) for place, name in enumerate(names) if name in known)


def check_types(
    connection: sqlite3.Connection,
    description: Sequence[Sequence[Any]],
    rows: list[Row],
    statement: str,
    catalog: str,
) -> None:
    """Check the rows of a statement; `description` is that of its cursor."""
    names = tuple(map(itemgetter(0), description))
    places = _places(names)
    if len(rows) == 1:
        (row,) = rows
        wrong = [(at, {type(row[at])}) for at, types in places if type(row[at]) not in types]
    else:
        # Not by zip(*rows): an iterator for each row makes the garbage collector look at all.
        wrong = [
            (at, found)
            for at, types in places
            if (found := set(map(type, map(itemgetter(at), rows)))) - types
        ]
    for at, found in wrong:
        name = _ALIASES.get(names[at], names[at].removesuffix(_OR_NULL))
        allowed = expected_types()[names[at]]
        kinds = ", ".join(sorted(one.__name__ for one in found - allowed)).replace(
            "NoneType", "NULL"
        )
        expected = "".join(one.__name__ for one in allowed - {type(None)})
        tables = "/".join(_tables_with(connection, name, allowed, statement)) or "?"
        raise CorruptDatasetError(
            path=catalog,
            reason=f"column {tables}.{name} has a value of type {kinds}, not {expected}",
        )


def _tables_with(
    connection: sqlite3.Connection, name: str, allowed: frozenset[type], statement: str
) -> Iterator[str]:
    """The tables of a statement that have a value of another type in a column."""
    kinds = {str: "text", bytes: "blob", int: "integer", type(None): "null"}
    good = ", ".join(f"'{kinds[one]}'" for one in allowed)
    for table in migrations.TABLES:
        if table in statement:
            with suppress(sqlite3.Error):
                query = f"SELECT 1 FROM {table} WHERE typeof({name}) NOT IN ({good}) LIMIT 1"
                if connection.execute(query).fetchall():
                    yield table
