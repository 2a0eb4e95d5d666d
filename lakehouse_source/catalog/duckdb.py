"""The catalog in one DuckDB file, for one process at a time.

DuckDB lets one process open a file. Its threads get snapshots but no locks: transactions
that change the same rows fail instead of waiting. Writers therefore take turns, by a lock
of this process; no other process can have the file open.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from lakehouse_source.catalog import migrations
from lakehouse_source.catalog.file_catalog import FileCatalog
from lakehouse_source.catalog.session import Row, Session, Statement
from lakehouse_source.catalog.statements import DUCKDB
from lakehouse_source.errors import CatalogUnavailableError, PlakeError

# So many rows or more are inserted as one Arrow table: a statement per row takes 0.2 ms.
_MANY_ROWS = 8
# DuckDB has foreign keys without cascades. They refuse the update of an indexed column, which
# DuckDB runs as a delete and an insert. FORGET_FILES deletes rows in the right order anyway.
_FOREIGN_KEY = re.compile(r" REFERENCES \w+ \(id\)( ON DELETE CASCADE)?")
_MADE_FIRST = "CREATE SEQUENCE plake_ids"
_ADD_COLUMN = "ADD COLUMN"


class _Connection:
    """A DuckDB connection, and whether it has the turn to write."""

    def __init__(self, raw: duckdb.DuckDBPyConnection, path: str) -> None:
        self.raw = raw
        self.path = path
        self.turn: threading.Lock | None = None
        _files.count(path, 1)

    def give_turn_back(self) -> None:
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.release()


class _Files:
    """The database files that this process has open, and the lock of writers for each.

    A forked process must not use a file that its parent has open: DuckDB would give it the
    parent's database, copied with the memory, and both would write to the file.
    """

    def __init__(self) -> None:
        self._of_parent: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._open: dict[str, int] = {}
        # One thread at a time makes the file and its tables. The lock of writers does not
        # serve here, because readers must never wait for it.
        self.opening = threading.Lock()

    def forked(self) -> None:
        self._of_parent |= {path for path, count in self._open.items() if count}
        self._forget()

    def is_of_parent(self, path: str) -> bool:
        return path in self._of_parent

    def turn(self, path: str) -> threading.Lock:
        with self._guard:
            return self._turns.setdefault(path, threading.Lock())

    def count(self, path: str, change: int) -> None:
        with self._guard:
            self._open[path] = self._open.get(path, 0) + change


_files = _Files()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_files.forked)


class DuckDBCatalog(FileCatalog[_Connection]):
    """A catalog in a DuckDB file."""

    scheme = "duckdb"

    # --- connections

    def _connect(self) -> _Connection:
        real_path = os.path.realpath(self.path)
        if _files.is_of_parent(real_path):
            raise self._unavailable(
                "the process that this one was forked from has it open. A DuckDB catalog "
                "serves one process: start this one afresh, or use SQLite or PostgreSQL"
            )
        with _files.opening:
            is_new = not self._check_file()
            with self._translated():
                connection = _Connection(duckdb.connect(self.path), real_path)
            try:
                with self._translated():
                    if is_new:
                        os.chmod(self.path, 0o600)
                    self._check_format(connection)
            except BaseException:
                self._disconnect(connection)
                raise
        return connection

    def _format_of(self, connection: _Connection) -> int:
        known = "SELECT 1 FROM duckdb_tables() WHERE table_name = ?"
        if connection.raw.execute(known, [migrations.FORMAT_TABLE]).fetchone() is None:
            return 0
        row = connection.raw.execute("SELECT version FROM catalog_format").fetchone()
        return 0 if row is None else int(row[0])

    def _migrate(self, connection: _Connection) -> int:
        raw = connection.raw
        found = self._format_of(connection)
        statements = [_FOREIGN_KEY.sub("", DUCKDB.render(s)) for s in migrations.steps(found)]
        if found > 0:
            # DuckDB 1 commits no transaction that adds a column to a table and changes its rows.
            # A column that is there too early changes nothing for the format before.
            for statement in (s for s in statements if _ADD_COLUMN in s):
                raw.execute(statement.replace(_ADD_COLUMN, f"{_ADD_COLUMN} IF NOT EXISTS"))
            statements = [s for s in statements if _ADD_COLUMN not in s]
        raw.execute("BEGIN")
        try:
            if found == 0:
                names = raw.execute("SELECT table_name FROM duckdb_tables()").fetchall()
                self._refuse_foreign_tables(row[0] for row in names)
                raw.execute(_MADE_FIRST)
            for statement in statements:
                raw.execute(statement)
        except BaseException:
            with suppress(duckdb.Error):
                raw.execute("ROLLBACK")
            raise
        raw.execute("COMMIT")
        return found

    @staticmethod
    def _disconnect(connection: _Connection) -> None:
        connection.give_turn_back()
        with suppress(duckdb.Error):
            connection.raw.close()
        _files.count(connection.path, -1)

    # --- transactions

    def _begin(self, connection: _Connection, read_only: bool) -> None:
        if read_only:
            with self._translated():
                connection.raw.execute("BEGIN TRANSACTION READ ONLY")
            return
        turn = _files.turn(connection.path)
        if not turn.acquire(timeout=self._busy_seconds):
            raise self._busy()
        connection.turn = turn
        with self._translated():
            connection.raw.execute("BEGIN TRANSACTION")

    def _commit(self, connection: _Connection, session: Session) -> None:
        # DuckDB runs in this process: a COMMIT that raises was not carried out.
        with self._translated():
            connection.raw.execute("COMMIT")
        connection.give_turn_back()

    def _rollback(self, connection: _Connection) -> bool:
        try:
            connection.raw.execute("ROLLBACK")
        except duckdb.Error:
            return False
        finally:
            connection.give_turn_back()
        return True

    def _session(self, connection: _Connection) -> Session:
        return _DuckDBSession(self, connection)

    def _end_session(self, session: Session) -> None:
        assert isinstance(session, _DuckDBSession)
        session.connection = None

    # --- errors

    def _busy(self) -> CatalogUnavailableError:
        return self._unavailable("it is locked by this process for longer than the busy timeout")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as exc:
            raise self._translate(exc) from exc

    def _translate(self, exc: duckdb.Error) -> PlakeError:
        if isinstance(exc, duckdb.ConstraintException):
            return self._refused_row(exc)
        if _is_locked(exc):
            return self._unavailable(
                "it is locked: another process has it open. A DuckDB catalog serves one process "
                "at a time; use SQLite or PostgreSQL for several",
                retryable=True,  # the other process may just be finishing
            )
        return self._unavailable(" ".join(str(exc).split()))


class _DuckDBSession:
    """The open transaction on one connection."""

    dialect = DUCKDB

    def __init__(self, catalog: DuckDBCatalog, connection: _Connection) -> None:
        self.redacted_url = catalog.redacted_url
        self.catalog_path: str | None = None
        self.catalog = catalog
        self.connection: _Connection | None = connection

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self.connection is None:
            raise RuntimeError("this catalog transaction has ended")
        return self.connection.raw

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self.catalog._translated():
            return self._open().execute(_rendered(statement), list(values)).fetchall()

    def query_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [self.query(text, values) for text, values in statements]

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        with self.catalog._translated():
            row = self._open().execute(_rendered(statement), list(values)).fetchone()
        return int(row[0]) if row else 0

    def send(self, statement: str, values: Sequence[Any] = ()) -> None:
        self.execute(statement, values)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        names = ", ".join(columns)
        raw = self._open()
        with self.catalog._translated():
            if len(rows) < _MANY_ROWS:
                marks = ", ".join("?" * len(columns))
                for row in rows:
                    raw.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row))
                return
            incoming = pa.table([pa.array(column) for column in zip(*rows)], list(columns))
            raw.register("plake_incoming", incoming)
            try:
                raw.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM plake_incoming")
            finally:
                raw.unregister("plake_incoming")

    def flush(self) -> None:
        return None

    def id_list(self, ids: Iterable[int]) -> Any:
        return list(ids)


@lru_cache(maxsize=256)
def _rendered(statement: str) -> str:
    return DUCKDB.render(statement)


def _is_locked(exc: BaseException) -> bool:
    # DuckDB has no codes for its errors; its texts are not translated.
    return isinstance(exc, duckdb.IOException) and "lock on file" in str(exc)
