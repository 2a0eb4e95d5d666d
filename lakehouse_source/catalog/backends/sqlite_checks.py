"""What a file of SQLite must have to be a catalog: its objects, and the types of its rows."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from operator import itemgetter
from typing import Any

from lakehouse_source.catalog.backends.file_catalog import DatabaseObject
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.statements import IN_SPAN, LEVELS, Dialect, Row
from lakehouse_source.errors import CorruptDatasetError

# --- What SQLite spells differently.


_HAS_FILE_IDS = "EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'files')"
SQLITE = Dialect(
    placeholder="?",
    # strftime('%f') and julianday have milliseconds; rounding undoes the float's error.
    now="CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000",
    login="NULL",
    is_login="TRUE",
    greatest="max",
    among="IN (SELECT value FROM json_each(?))",
    ids="SELECT value AS file_id FROM json_each(?)",
    files_of_s="CROSS JOIN files AS f ON f.id = s.file_id",
    lock="",  # BEGIN IMMEDIATE took the only write lock of the file
    # Nobody else can write at that time. AUTOINCREMENT keeps the highest id ever given.
    new_file_ids="WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    "SELECT i + coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'files'), 0) FROM n",
    keep_file_ids=(
        f"INSERT INTO sqlite_sequence SELECT 'files', ? WHERE NOT {_HAS_FILE_IDS}",
        "UPDATE sqlite_sequence SET seq = ? WHERE name = 'files'",
    ),
    id_pairs="SELECT CAST(key AS INTEGER) AS old_id, value AS new_id FROM json_each(?)",
    generated_key="INTEGER PRIMARY KEY AUTOINCREMENT",
    generated="INTEGER PRIMARY KEY",
    bytes_type="BLOB",
    without_rowid=" WITHOUT ROWID",
    spans="",
    bounds_of_s=f"CROSS JOIN column_bounds AS b ON {IN_SPAN}",
    levels=LEVELS,
    hex_lower="hex(lower)",
    hex_upper="hex(upper)",
    highest_id="SELECT seq FROM sqlite_sequence WHERE name = '$table'",
    join_texts="group_concat",
)


# --- The objects in a SQLite database, and those in a catalog of each format.
#
# A file of strangers is a catalog only if it has exactly the tables and indexes of one.


_TABLE_OF_SQLITE = re.compile(r"CREATETABLEsqlite_\w+\([a-z,]*\)")
# SHA-256 of the exact definitions in a new catalog. Making a catalog in memory and comparing it
# takes 12 ms, which each process would wait when it opens its first catalog.
NEW_CATALOG = "18ef31e5386e38863e4f2dccecaa445382958dd891a46041c4304d1c8f3b10c3"


def definitions_in(connection: sqlite3.Connection) -> list[DatabaseObject]:
    """Kind, name and definition of every object in a database, without SQLite's own objects."""
    found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return [row for row in found if not _is_of_sqlite(*row)]


def without_spaces(definitions: Iterable[DatabaseObject]) -> frozenset[DatabaseObject]:
    """The objects of `definitions_in`, as they are compared with those of a format."""
    return frozenset((kind, name, "".join(sql.split())) for kind, name, sql in definitions)


def objects_in(connection: sqlite3.Connection) -> frozenset[DatabaseObject]:
    """Every object in a database, without SQLite's own; definitions have no spaces."""
    return without_spaces(definitions_in(connection))


def _is_of_sqlite(kind: str, name: str, definition: str) -> bool:
    """Tell whether SQLite made an object: the sequence of ids, statistics, indexes of keys."""
    if not name.startswith("sqlite_"):
        return False
    if kind == "index":
        return definition == ""
    return kind == "table" and _TABLE_OF_SQLITE.fullmatch("".join(definition.split())) is not None


def digest_of(definitions: Iterable[DatabaseObject]) -> str:
    """The SHA-256 of the exact definitions in a database."""
    return hashlib.sha256(repr(sorted(definitions)).encode()).hexdigest()


def is_new_catalog(definitions: Iterable[DatabaseObject]) -> bool:
    """Tell whether a database has exactly the definitions of a new catalog."""
    return digest_of(definitions) == NEW_CATALOG


@lru_cache
def objects_of(number: int) -> frozenset[DatabaseObject]:
    """The objects in a catalog of a format."""
    return list(_objects_after_each(number))[-1]


@lru_cache
def columns_of_tables() -> Mapping[str, Mapping[str, str]]:
    """The columns of each table of the newest format, with the type that SQLite notes of each."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in migrations.steps(0):
            connection.execute(SQLITE.render(statement))
        return {
            table: {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table in migrations.TABLES
        }


@lru_cache
def names_of_all_formats() -> frozenset[str]:
    every = _objects_after_each(migrations.LATEST)
    return frozenset(name for found in every for _, name, _ in found)


def _objects_after_each(number: int) -> Iterator[frozenset[DatabaseObject]]:
    """The objects in a catalog before the first migration and after each of `number` ones."""
    with closing(sqlite3.connect(":memory:")) as connection:
        yield objects_in(connection)
        for statements in migrations.MIGRATIONS[: max(0, number)]:
            for statement in statements:
                connection.execute(SQLITE.render(statement))
            yield objects_in(connection)


# --- Checks that the rows that SQLite returns have the types of the catalog's columns.
#
# SQLite keeps any value in any column. A catalog that plake wrote has no other types; a stranger's
# catalog may. The name of a column gives its type, which is the same in all tables. An expression
# is checked only if it has the name of a column, or this name and `_or_null` if it may be NULL.


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
