"""Edge. The catalog in one DuckDB file, for one process at a time.

DuckDB lets one process open a file. Its threads get snapshots but no locks: transactions
that change the same rows fail instead of waiting. So a lock of this process makes writers take
turns; no other process can have the file open.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from lakehouse_source.catalog.backends.file_catalog import DatabaseObject, FileCatalog
from lakehouse_source.catalog.backends.pool import Pool, PooledConnection
from lakehouse_source.catalog.backends.pooled import OpenSession
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.statements import Dialect, Row, Session
from lakehouse_source.errors import CatalogUnavailableError, InvalidOptionError, PlakeError

# --- What DuckDB spells differently.


DUCKDB = Dialect(
    placeholder="?",
    # The time at which the transaction began: after it got its turn to write.
    now="epoch_us(current_timestamp)",
    login="NULL",
    is_login="TRUE",
    greatest="greatest",
    among="IN (SELECT unnest(CAST(? AS BIGINT[])))",
    ids="SELECT unnest(CAST(? AS BIGINT[])) AS file_id",
    files_of_s="JOIN files AS f ON f.id = s.file_id",
    lock="",  # writers take turns
    new_file_ids="SELECT nextval('plake_ids') FROM range(?)",
    id_pairs="SELECT CAST(key AS BIGINT) AS old_id, CAST(value AS BIGINT) AS new_id "
    "FROM json_each(CAST(? AS JSON))",
    generated_key="BIGINT PRIMARY KEY DEFAULT nextval('plake_ids')",
    generated="BIGINT DEFAULT nextval('plake_ids')",
    bytes_type="BLOB",
    without_rowid="",
    spans="",
    bounds_of_s="",
    levels="",
    hex_lower="hex(lower)",
    hex_upper="hex(upper)",
    highest_id="SELECT last_value FROM duckdb_sequences() WHERE sequence_name = 'plake_ids'",
    join_texts="string_agg",
)


# --- The catalog.


# From this number of rows on, rows are inserted as one Arrow table: a statement per row takes 0.2
# ms.
_MANY_ROWS = 8
# DuckDB has foreign keys without cascades. They refuse an update of an indexed column, because
# DuckDB runs the update as a delete and an insert. FORGET_FILES deletes rows in the right order
# anyway.
_FOREIGN_KEY = re.compile(r" REFERENCES \w+ \(id\)( ON DELETE CASCADE)?")
_MADE_FIRST = "CREATE SEQUENCE plake_ids"
_ADD_COLUMN = "ADD COLUMN"
# The file may be a stranger's: no statement reads another file, loads code or changes that.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
}
_OBJECTS = (
    "SELECT 'table', table_name, '' FROM duckdb_tables() WHERE NOT internal "
    "UNION ALL SELECT 'index', index_name, '' FROM duckdb_indexes() "
    "UNION ALL SELECT 'sequence', sequence_name, '' FROM duckdb_sequences() "
    "UNION ALL SELECT 'view', view_name, '' FROM duckdb_views() WHERE NOT internal "
    "UNION ALL SELECT 'macro', function_name, '' FROM duckdb_functions() WHERE NOT internal "
    "UNION ALL SELECT 'type', type_name, '' FROM duckdb_types() WHERE NOT internal "
    "UNION ALL SELECT 'schema', schema_name, '' FROM duckdb_schemas() WHERE NOT internal "
    "UNION ALL SELECT 'constraint', table_name, constraint_text FROM duckdb_constraints() "
)
# duckdb_columns() gives the expression of a generated column as its default.
_COLUMNS = (
    "SELECT 'column', table_name || '.' || column_name, "
    "data_type || ' ' || coalesce(column_default, '') FROM duckdb_columns() WHERE NOT internal"
)


class _Connection(PooledConnection):
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
        # One thread at a time makes the file and its tables. The lock of writers cannot be used
        # here, because readers must never wait for it.
        self.opening = threading.Lock()

    def forked(self) -> None:
        self._of_parent |= {path for path, count in self._open.items() if count}
        self._forget()

    def is_of_parent(self, path: str) -> bool:
        return path in self._of_parent

    def is_open(self, path: str) -> bool:
        return self._open.get(path, 0) > 0

    def turn(self, path: str) -> threading.Lock:
        with self._guard:
            return self._turns.setdefault(path, threading.Lock())

    def count(self, path: str, change: int) -> None:
        with self._guard:
            self._open[path] = self._open.get(path, 0) + change


_files = _Files()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_files.forked)


def _end(connection: _Connection) -> None:
    connection.give_turn_back()
    with suppress(duckdb.Error):
        connection.raw.close()
    _files.count(connection.path, -1)


class DuckDBCatalog(FileCatalog[_Connection]):
    """A catalog in a DuckDB file."""

    scheme = "duckdb"
    _errors = duckdb.Error
    beside = (".wal",)
    _pool: Pool[_Connection] = Pool(_end)

    # --- connections

    def _kept_or_new(self, group: Hashable) -> _Connection:
        return self._pool.take(group) or self._connect()

    def _connect(self) -> _Connection:
        real_path = os.path.realpath(self.path)
        if _files.is_of_parent(real_path):
            raise self._unavailable(
                "the process that this one was forked from has it open. A DuckDB catalog "
                "serves one process: start this one afresh, or use SQLite or PostgreSQL"
            )
        with _files.opening:
            if self._look() is None:
                self._check_may_be_made()
                self._make_file()
            path = self._trusted_path()
            with self._translated():
                if os.path.exists(f"{self.path}.wal") and not _files.is_open(real_path):
                    # The journal's changes would go into the file when the file is opened for
                    # writing.
                    with duckdb.connect(path, read_only=True, config=SETTINGS) as reading:
                        self._format_in(reading)
                # A process that may only read the file opens it for reading.
                only_reads = self._distrust is not None or not os.access(path, os.W_OK)
                raw = duckdb.connect(path, read_only=only_reads, config=SETTINGS)
                connection = _Connection(raw, real_path)
            try:
                with self._translated():
                    self._check_format(connection)
            except BaseException:
                _end(connection)
                raise
        return connection

    def _make_file(self) -> None:
        # DuckDB itself would let everybody read the file. Another process may make it now.
        with (
            self._translated(),
            suppress(InvalidOptionError),
            self._new_file() as part,
            duckdb.connect(part, config=SETTINGS) as raw,
        ):
            raw.execute("BEGIN")
            _make_tables(raw, first_id=1)
            raw.execute("COMMIT")
            raw.execute("CHECKPOINT")  # only the file gets its name, and no journal
        if not os.path.exists(self.path):
            raise self._unavailable(f"it is missing, and its log {self.path}.wal is there")

    def _make_log(self) -> None:
        """Make the log with the rights of the file, before DuckDB lets everybody read it."""
        with suppress(OSError):  # there is one, or DuckDB says what is wrong
            mode = stat.S_IMODE(os.stat(self.path).st_mode)
            os.close(os.open(f"{self.path}.wal", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))

    def _format_of(self, connection: _Connection) -> int:
        return self._format_in(connection.raw)

    def _format_in(self, raw: duckdb.DuckDBPyConnection) -> int:
        found = frozenset(raw.execute(_OBJECTS).fetchall())
        columns = frozenset(raw.execute(_COLUMNS).fetchall())
        number = 0
        if any((kind, name) == ("table", migrations.FORMAT_TABLE) for kind, name, _ in found):
            row = raw.execute("SELECT version FROM catalog_format").fetchone()
            number = 0 if row is None else int(row[0])
        # A migration that a crash interrupted may have added columns of the newest format.
        early = columns & _objects_of(migrations.LATEST) if number else frozenset()
        return self._checked_format(found | columns, number, _objects_of(number) | early)

    def _migrate(self, connection: _Connection) -> int:
        self._check_trust()
        raw = connection.raw
        found = self._format_of(connection)
        self._make_log()
        statements = [_without_foreign_keys(s) for s in migrations.steps(found)]
        if found > 0:
            # DuckDB 1 commits no transaction that adds a column to a table and changes its rows.
            # A column that is added too early does not matter to the format before.
            rows = raw.execute("SELECT table_name FROM duckdb_tables()").fetchall()
            existing = tuple(f"ALTER TABLE {name} {_ADD_COLUMN}" for (name,) in rows)
            for statement in (s for s in statements if s.startswith(existing)):
                raw.execute(statement.replace(_ADD_COLUMN, f"{_ADD_COLUMN} IF NOT EXISTS"))
            statements = [s for s in statements if not s.startswith(existing)]
        raw.execute("BEGIN")
        try:
            if found == 0:
                raw.execute(_MADE_FIRST)
            for statement in statements:
                raw.execute(statement)
        except BaseException:
            with suppress(duckdb.Error):
                raw.execute("ROLLBACK")
            raise
        raw.execute("COMMIT")
        # DuckDB 1 cannot play back a journal in which a table with a generated key is made.
        raw.execute("CHECKPOINT")
        return found

    def fill(self, ids: Mapping[str, int], work: Callable[[Session], None]) -> None:
        with (
            self._translated(),
            self._new_file() as part,
            duckdb.connect(part, config=SETTINGS) as raw,
        ):
            connection = _Connection(raw, os.path.realpath(part))
            try:
                raw.execute("BEGIN")
                _make_tables(raw, first_id=max(ids.values()) + 1)
                work(self._session(connection))
                raw.execute("COMMIT")
                raw.execute("CHECKPOINT")
            finally:
                _files.count(connection.path, -1)

    # --- transactions

    def _begin(self, connection: _Connection, read_only: bool) -> None:
        if read_only:
            with self._translated():
                connection.raw.execute("BEGIN TRANSACTION READ ONLY")
            return
        self._check_trust()
        turn = _files.turn(connection.path)
        if not turn.acquire(timeout=self._busy_seconds):
            raise self._busy()
        connection.turn = turn
        self._make_log()
        with self._translated():
            connection.raw.execute("BEGIN TRANSACTION")

    def _commit(self, connection: _Connection, session: OpenSession[_Connection]) -> None:
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

    def _session(self, connection: _Connection) -> OpenSession[_Connection]:
        return _DuckDBSession(self, connection)

    def overwrite_free_pages(self) -> tuple[str, ...]:
        # DuckDB leaves deleted rows in its blocks and free blocks as they are: the file is
        # rewritten. Nobody else may have it open, not even in this process.
        self._drop_idle()
        real_path = os.path.realpath(self.path)
        folder = os.path.dirname(real_path)
        turn = _files.turn(real_path)
        if not turn.acquire(timeout=self._busy_seconds):
            raise self._busy()
        try:
            with _files.opening, self._translated():
                if _files.is_open(real_path):
                    raise self._unavailable("this process has it open elsewhere. Close that first")
                self._look()
                self._trusted_path(is_new=True)
                private = f"{real_path}.new"
                # Of a process that died; in plake 0.1 it was a file.
                shutil.rmtree(private, ignore_errors=True)
                with suppress(OSError):
                    os.remove(private)
                os.mkdir(private, 0o700)
                try:
                    new = os.path.join(private, os.path.basename(real_path))
                    _copy_database(real_path, new)
                    if os.path.exists(f"{real_path}.wal"):
                        raise self._unavailable("its journal could not be written into the file")
                    os.chmod(new, 0o600)
                    _sync(new)
                    os.replace(new, real_path)
                finally:
                    shutil.rmtree(private, ignore_errors=True)
                _sync(folder)
        except OSError as exc:
            raise self._unavailable(f"it cannot be rewritten: {exc.strerror}") from exc
        finally:
            turn.release()
        return ()

    # --- errors

    def _busy(self) -> CatalogUnavailableError:
        return self._unavailable("it is locked by this process for longer than the busy timeout")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except duckdb.InterruptException as exc:
            raise KeyboardInterrupt from exc
        except RuntimeError as exc:
            # DuckDB turns a KeyboardInterrupt into this error. `except Exception` would swallow it.
            if isinstance(exc, duckdb.Error) or str(exc) != "Query interrupted":
                raise
            raise KeyboardInterrupt from exc
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


class _DuckDBSession(OpenSession[_Connection]):
    """The open transaction on one connection."""

    dialect = DUCKDB

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self.catalog._translated():
            return self._open().raw.execute(_rendered(statement), list(values)).fetchall()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        with self.catalog._translated():
            row = self._open().raw.execute(_rendered(statement), list(values)).fetchone()
        return int(row[0]) if row else 0

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        names = ", ".join(columns)
        raw = self._open().raw
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


def _make_tables(raw: duckdb.DuckDBPyConnection, first_id: int) -> None:
    raw.execute(f"{_MADE_FIRST} START WITH {first_id}")
    for statement in migrations.steps(0):
        raw.execute(_without_foreign_keys(statement))


def _without_foreign_keys(statement: str) -> str:
    return _FOREIGN_KEY.sub("", DUCKDB.render(statement))


@lru_cache
def _objects_of(number: int) -> frozenset[DatabaseObject]:
    """The objects in a catalog of a format."""
    if number <= 0:
        return frozenset()
    with duckdb.connect(":memory:", config=SETTINGS) as raw:
        raw.execute(_MADE_FIRST)
        for migration in migrations.MIGRATIONS[:number]:
            for statement in migration:
                raw.execute(_without_foreign_keys(statement))
        return frozenset([*raw.execute(_OBJECTS).fetchall(), *raw.execute(_COLUMNS).fetchall()])


def _copy_database(source: str, target: str) -> None:
    """Copy tables, keys, indexes and sequences to a new file."""
    with duckdb.connect() as raw:
        # The journal of the source is written into it first.
        for path, name in ((source, "source"), (target, "target")):
            quoted = path.replace("'", "''")
            raw.execute(f"ATTACH '{quoted}' AS {name}")
        raw.execute("COPY FROM DATABASE source TO target")
        raw.execute("CHECKPOINT target")
        raw.execute("DETACH source")
        raw.execute("DETACH target")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@lru_cache(maxsize=256)
def _rendered(statement: str) -> str:
    return DUCKDB.render(statement)


def _is_locked(exc: BaseException) -> bool:
    # DuckDB has no codes for its errors; its texts are not translated.
    return isinstance(exc, duckdb.IOException) and "lock on file" in str(exc)
