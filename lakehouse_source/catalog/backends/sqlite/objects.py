"""Edge. The objects in a SQLite database, and those in a catalog of each format.

A file of strangers is a catalog only if it has exactly the tables and indexes of one.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import lru_cache

from lakehouse_source.catalog.backends.file_catalog import DatabaseObject
from lakehouse_source.catalog.backends.sqlite.dialect import SQLITE
from lakehouse_source.catalog.sql import migrations

_TABLE_OF_SQLITE = re.compile(r"CREATETABLEsqlite_\w+\([a-z,]*\)")
# SHA-256 of the exact definitions in a new catalog. Making a catalog in memory and comparing it
# takes 12 ms, which each process would wait when it opens its first catalog.
NEW_CATALOG = "b5cf039bfe67ff50a638df4f3ba26bfef1694efff142c883b8b4cc1b10c0f5f8"


def _rows(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Kind, name and definition of every object in a database, without SQLite's own objects."""
    found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return [row for row in found if not _is_of_sqlite(*row)]


def objects_in(connection: sqlite3.Connection) -> frozenset[DatabaseObject]:
    """Every object in a database, without SQLite's own; definitions have no spaces."""
    return frozenset((kind, name, "".join(sql.split())) for kind, name, sql in _rows(connection))


def _is_of_sqlite(kind: str, name: str, definition: str) -> bool:
    """Tell whether SQLite made an object: the sequence of ids, statistics, indexes of keys."""
    if not name.startswith("sqlite_"):
        return False
    if kind == "index":
        return definition == ""
    return kind == "table" and _TABLE_OF_SQLITE.fullmatch("".join(definition.split())) is not None


def digest_of(connection: sqlite3.Connection) -> str:
    """The SHA-256 of the exact definitions in a database."""
    return hashlib.sha256(repr(sorted(_rows(connection))).encode()).hexdigest()


def is_new_catalog(connection: sqlite3.Connection) -> bool:
    """Tell whether a database has exactly the definitions of a new catalog."""
    return digest_of(connection) == NEW_CATALOG


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
