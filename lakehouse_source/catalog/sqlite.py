"""The catalog in one SQLite file.

Rollback journal with synchronous=FULL, always: SQLite before 3.51.3 can corrupt
a WAL database (the WAL-reset bug), the library in use differs from process to
process, and a rollback journal also works on network drives and read-only media.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from lakehouse_source.catalog import migrations
from lakehouse_source.catalog.base import PooledCatalog
from lakehouse_source.catalog.session import Row, Session, Statement
from lakehouse_source.catalog.statements import SQLITE
from lakehouse_source.errors import (
    CommitAcknowledgementLostError,
    CommitConflictError,
    InvalidOptionError,
    PlakeError,
)

_NO_FILE = "there is no such file"
BUSY_SECONDS = 30.0
_HEADER = b"SQLite format 3\0"

# Primary result codes, https://www.sqlite.org/rescode.html
_BUSY = 5
_LOCKED = 6
_READ_ONLY = 8
_IO_ERROR = 10
_FULL = 13
_CANNOT_OPEN = 14
_ROLLED_BACK = "the transaction failed before and was undone; nothing was committed"
_REASONS = {
    _BUSY: "it is locked by another process for longer than the busy timeout",
    _LOCKED: "it is locked by this process",
    _READ_ONLY: "it is read-only",
    _FULL: "the disk is full",
    _CANNOT_OPEN: "the file, or the journal beside it, cannot be opened",
}


class _Connection(sqlite3.Connection):
    """A connection that knows which file it opened."""

    file: tuple[int, int] | None = None


class SqliteCatalog(PooledCatalog[_Connection]):
    """A catalog in a SQLite file at an absolute path.

    `dataset` names the dataset for which the catalog is opened, for messages.
    `make_folder` lets the file's folder be made with it.
    """

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        dataset: str | None = None,
        make_folder: bool = False,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        if not os.path.isabs(path):
            raise InvalidOptionError(
                option="catalog",
                value=path,
                reason="needs an absolute path: sqlite:///folder/catalog.db.",
            )
        url = "sqlite://" + quote(path, safe="/")
        super().__init__(url, url, dataset)
        self.path = path
        self._create = create
        self._make_folder = make_folder
        self._busy_seconds = busy_seconds
        if not create and not os.path.exists(path):
            raise self._missing(_NO_FILE)

    # --- connections

    def _connect(self) -> _Connection:
        self._check_file()
        with self._translated():
            connection = sqlite3.connect(
                f"file:{quote(self.path)}?mode=rw",
                uri=True,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                factory=_Connection,
            )
        try:
            with self._translated():
                connection.file = self._file()
                self._prepare(connection)
        except BaseException:
            self._disconnect(connection)
            raise
        return connection

    def _check_file(self) -> None:
        """See that there is a file that SQLite can open, made here if it may be."""
        try:
            with open(self.path, "rb") as file:
                header = file.read(len(_HEADER))
        except FileNotFoundError:
            if not self._create:
                raise self._missing(_NO_FILE) from None
            self._make_file()
        except OSError as exc:
            raise self._unavailable(f"it cannot be read: {exc.strerror}") from exc
        else:
            # An empty file is an empty database.
            if header and header != _HEADER:
                raise self._unavailable("the file is not a SQLite database")

    def _make_file(self) -> None:
        folder = os.path.dirname(self.path)
        try:
            if self._make_folder:
                os.makedirs(folder, exist_ok=True)
            elif not os.path.isdir(folder):
                raise self._unavailable(f"its folder {folder} does not exist. Create it first")
            # SQLite would create it readable by everybody; the journals that it
            # makes later take over these permissions.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as exc:
            raise self._unavailable(f"it cannot be created: {exc.strerror}") from exc

    def _prepare(self, connection: _Connection) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -65536")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "delete":
            connection.execute("PRAGMA journal_mode = DELETE")
        self._check_format(connection)

    def _check_format(self, connection: _Connection) -> None:
        found = _format_of(connection)
        if found == 0 and not self._create:
            raise self._missing(_NO_FILE)
        if found < migrations.LATEST:
            # Here and not above: it imports pandas where that is installed, a quarter of
            # a second that only the making of tables has to pay.
            from sqlite_utils import Database

            database = Database(connection, recursive_triggers=False, execute_plugins=False)
            # sqlite-utils commits what it begins itself and nothing else, so
            # everything below is one transaction.
            database.execute("BEGIN IMMEDIATE")
            try:
                found = _format_of(connection)  # somebody may have been faster
                if found == 0:
                    self._check_names(database)
                for statement in migrations.steps(found):
                    database.execute(SQLITE.render(statement))
            except BaseException:
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
        refusal = migrations.refusal(found)
        if refusal is not None:
            raise self._unavailable(refusal)

    def _check_names(self, database: Any) -> None:
        taken = sorted(set(database.table_names()) & set(migrations.TABLES))
        if taken:
            raise self._unavailable(
                f"the database has a table {taken[0]!r} that is not plake's. Use another file"
            )

    def _file(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _is_current(self, connection: _Connection) -> bool:
        # Whoever deleted the file, to begin anew or to restore a backup, does not
        # want commits to vanish into the old one.
        return connection.file is not None and connection.file == self._file()

    @staticmethod
    def _disconnect(connection: _Connection) -> None:
        with suppress(sqlite3.Error):
            connection.close()

    # --- transactions

    def _begin(self, connection: _Connection, read_only: bool) -> None:
        with self._translated():
            # A deferred transaction that turns into a write does not wait for
            # the lock (ducklake#1309): writes take it at once.
            connection.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")

    def _commit(self, connection: _Connection) -> None:
        if not connection.in_transaction:
            raise self._unavailable(_ROLLED_BACK)
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as exc:
            if _code(exc) == _IO_ERROR or not connection.in_transaction:
                raise CommitAcknowledgementLostError(
                    catalog=self.redacted_url, reason=str(exc)
                ) from exc
            raise self._translate(exc) from exc

    def _rollback(self, connection: _Connection) -> bool:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def _session(self, connection: _Connection) -> Session:
        return _SqliteSession(self, connection)

    def _end_session(self, session: Session) -> None:
        assert isinstance(session, _SqliteSession)
        session.connection = None

    # --- errors

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc

    def _translate(self, exc: sqlite3.Error) -> PlakeError:
        if isinstance(exc, sqlite3.IntegrityError):
            return CommitConflictError(
                dataset=self._dataset or self.redacted_url,
                base_version=0,
                current_version=0,
                reason=f"the catalog refused a row: {exc}",
            )
        # Never `retryable`: SQLite itself waited for a lock, for the busy timeout.
        return self._unavailable(_REASONS.get(_code(exc), str(exc)))


class _SqliteSession:
    """The open transaction on one connection."""

    dialect = SQLITE

    def __init__(self, catalog: SqliteCatalog, connection: _Connection) -> None:
        self.redacted_url = catalog.redacted_url
        self.catalog_path: str | None = catalog.path
        self.catalog = catalog
        self.connection: _Connection | None = connection

    def _open(self) -> _Connection:
        if self.connection is None:
            raise RuntimeError("this catalog transaction has ended")
        # SQLite ends a transaction by itself on some errors (a full disk): what
        # came after would be committed statement by statement.
        if not self.connection.in_transaction:
            raise self.catalog._unavailable(_ROLLED_BACK)
        return self.connection

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self.catalog._translated():
            return self._open().execute(_rendered(statement), values).fetchall()

    def query_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [self.query(text, values) for text, values in statements]

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        with self.catalog._translated():
            return self._open().execute(_rendered(statement), values).rowcount

    def send(self, statement: str, values: Sequence[Any] = ()) -> None:
        self.execute(statement, values)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        with self.catalog._translated():
            self._open().executemany(statement, rows)

    def flush(self) -> None:
        return None

    def id_list(self, ids: Iterable[int]) -> Any:
        return json.dumps(list(ids))


@lru_cache(maxsize=256)
def _rendered(statement: str) -> str:
    return SQLITE.render(statement)


def _format_of(connection: _Connection) -> int:
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if connection.execute(known, (migrations.FORMAT_TABLE,)).fetchone() is None:
        return 0
    return int(connection.execute("SELECT version FROM catalog_format").fetchone()[0])


def _code(exc: sqlite3.Error) -> int:
    """The primary result code; -1 where it is unknown."""
    code = getattr(exc, "sqlite_errorcode", None)
    if code is not None:
        return int(code) & 0xFF
    # Python 3.10 does not tell. SQLite's messages are not translated.
    known = {"database is locked": _BUSY, "database table is locked": _LOCKED}
    return known.get(str(exc), -1)
