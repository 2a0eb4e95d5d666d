"""The catalog in one SQLite file.

Rollback journal with synchronous=FULL, always: SQLite before 3.51.3 can corrupt
a WAL database (the WAL-reset bug), the library in use differs from process to
process, and a rollback journal also works on network drives and read-only media.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from lakehouse_source.catalog.backends.file_catalog import FileCatalog, Stamp
from lakehouse_source.catalog.backends.pool import Pool, PooledConnection, forks
from lakehouse_source.catalog.backends.pooled import (
    SEPARATOR,
    Columns,
    OpenSession,
    count_of,
    unpack,
)
from lakehouse_source.catalog.backends.sqlite_checks import (
    SQLITE,
    check_types,
    definitions_in,
    is_new_catalog,
    learn_types,
    names_of_all_formats,
    objects_in,
    objects_of,
    without_spaces,
)
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.statements import Row, Session
from lakehouse_source.errors import (
    DISK_HAS_SPACE,
    LOCK_IS_FREE,
    CommitAcknowledgementLostError,
    PlakeError,
)

# Primary result codes, https://www.sqlite.org/rescode.html
_BUSY = 5
_LOCKED = 6
_READ_ONLY = 8
_IO_ERROR = 10
_FULL = 13
_CANNOT_OPEN = 14
_NOT_A_DATABASE = 26
_ROLLED_BACK = "the transaction had failed and was rolled back; nothing was committed"
_REASONS = {
    _BUSY: "it is locked: another process held the lock for longer than the busy timeout",
    _LOCKED: "it is locked by this process",
    _READ_ONLY: "it is read-only",
    _FULL: "the disk is full",
    _CANNOT_OPEN: "the file, or the journal beside it, cannot be opened",
    _NOT_A_DATABASE: "the file is not a SQLite database",
}
_LATER = {_BUSY: LOCK_IS_FREE, _FULL: DISK_HAS_SPACE}
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
# Without following a link, or waiting for who writes into a pipe.
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# How a file is opened. What is opened for reading plays no journal back, and makes no file beside.
_WRITES = "mode=rw"
_MAKES = "mode=rwc"
_READS = "mode=ro&readonly_shm=1"
_LOOKS = "mode=ro&immutable=1"


# The group of connections whose catalogs were released. Opening a connection takes longer than
# planning a scan of one file. They are used again only if the file system says that the file is
# unchanged: SQLite would not notice that somebody replaced the content of the file in place.
_RELEASED = "released"


class Connection(sqlite3.Connection, PooledConnection):
    """A connection that knows which file it opened."""

    # The path, and the seconds that it waits for a lock.
    key: tuple[str, float]
    # The device and the inode; None: it was replaced meanwhile.
    file: tuple[int, int] | None = None
    # What the file was when the last transaction began; None: that transaction may have changed it.
    stamp: Stamp | None = None


def _end(connection: sqlite3.Connection) -> None:
    with forks, suppress(sqlite3.Error):
        connection.close()


idle_connections: Pool[Connection] = Pool(_end)


class SqliteCatalog(FileCatalog[Connection]):
    """A catalog in a SQLite file."""

    scheme = "sqlite"
    _errors = sqlite3.Error
    beside = ("-journal", "-wal", "-shm")
    _pool = idle_connections
    _in_use = forks

    # --- connections

    def _kept_or_new(self, group: Hashable) -> Connection:
        stamp, key = self._look(), (self.path, self._busy_seconds)
        if stamp is None:
            self._check_may_be_made()
            self._make_file()
            stamp = self._look()
        # The file may have been deleted, or replaced by a backup. Commits to the old one would be
        # lost.
        kept = self._pool.take(group, lambda one: stamp is not None and one.file == stamp[:2])
        if kept is None:
            kept = self._pool.take(
                _RELEASED, lambda one: one.stamp == stamp if one.key == key else None
            )
            if kept is None:
                kept = self._connected()
                kept.key, kept.file = key, stamp and stamp[:2]
            else:
                self._distrust = None
        kept.stamp = stamp
        return kept

    def _connected(self) -> Connection:
        path = self._trusted_path()
        self._look_inside()
        with self._translated():
            connection = self._opened(path, _WRITES if self._distrust is None else _READS)
        try:
            with self._translated():
                self._prepare(connection)
        except BaseException:
            _end(connection)
            raise
        return connection

    def _opened(self, path: str, how: str) -> Connection:
        """The only way to a database in a file."""
        connection = sqlite3.connect(
            f"file:{quote(path)}?{how}",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        # The file may be from a stranger: nothing in its schema may run code with side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        return connection

    def _look_beside(self, suffix: str) -> None:
        if suffix == "-journal":
            self._refuse_super_journal()  # SQLite looks at it whenever it locks the file
        else:
            super()._look_beside(suffix)

    def _refuse_super_journal(self) -> None:
        """Keep SQLite away from a journal that names another file.

        SQLite plays back a journal that a crash left, and then deletes the super-journal that this
        journal names, whatever file it is. Only transactions over attached databases have a
        super-journal.

        Source: SQLite, pager.c, `readSuperJournal` and `pager_delsuper`.
        """
        journal = f"{self.path}-journal"
        try:
            descriptor = os.open(journal, os.O_RDONLY | _AS_IT_IS)
        except FileNotFoundError:
            return
        except OSError as exc:
            super()._look_beside("-journal")
            raise self._unavailable(f"{journal} cannot be read: {exc.strerror}") from exc
        try:
            super()._look_beside("-journal")
            start = os.lseek(descriptor, 0, os.SEEK_END) - len(_JOURNAL_MAGIC)
            last = b""
            # An empty journal is one that a writer begins: the magic is the first that it writes.
            if start > 0:
                os.lseek(descriptor, start, os.SEEK_SET)
                last = os.read(descriptor, len(_JOURNAL_MAGIC))
        finally:
            os.close(descriptor)
        if last == _JOURNAL_MAGIC:
            raise self._unavailable(
                f"{journal} names another file, which SQLite would delete. No journal of plake "
                "does. Get the catalog again from where you trust it, without the journal"
            )

    def _look_inside(self) -> None:
        """Refuse the database of another program before SQLite brings its file up to date.

        Without a journal, opening and reading a database change nothing.
        """
        if not any(os.path.exists(f"{self.path}{suffix}") for suffix in ("-journal", "-wal")):
            return
        # No lock and no journal: another process may be writing. If the read fails, it is repeated
        # under a lock.
        with suppress(sqlite3.Error), closing(self._opened(self.path, _LOOKS)) as connection:
            for kind, name, _ in sorted(objects_in(connection)):
                if name not in names_of_all_formats():
                    raise self._unavailable(
                        f"the database has a {kind} {name!r} that is not plake's. Use another file"
                    )

    def release(self) -> None:
        self._closed = True
        for one in self._pool.leave(self._own):
            with suppress(PlakeError):
                one.stamp = one.stamp or self._stamp()
            is_same = one.stamp is not None and one.stamp[:2] == one.file
            # A folder that is not trusted may be when the file is opened again.
            if is_same and self._distrust is None:
                one.group = _RELEASED
                self._pool.keep(one)
            else:
                _end(one)

    def _make_file(self) -> None:
        # SQLite would let everybody read the file; journals that SQLite makes later get this file's
        # permissions.
        try:
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                self._share(os.path.dirname(self.path))
        except OSError as exc:
            raise self._unavailable(f"it cannot be created: {exc.strerror}") from exc

    def _prepare(self, connection: Connection) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        # Deleted rows are overwritten, so that free pages keep nothing of them.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA cache_size = -65536")
        # Before the file is changed in any way.
        found = self._format_of(connection)
        has_journal = connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        if not has_journal:
            self._check_trust()
            connection.execute("PRAGMA journal_mode = DELETE")
        if found != migrations.LATEST or not has_journal:
            self._check_format(connection)

    def _format_of(self, connection: Connection) -> int:
        if connection.in_transaction:
            return self._format_in_snapshot(connection)
        connection.execute("BEGIN")
        try:
            return self._format_in_snapshot(connection)
        finally:
            connection.execute("ROLLBACK")

    def _format_in_snapshot(self, connection: Connection) -> int:
        found = definitions_in(connection)
        number = 0
        if any((kind, name) == ("table", migrations.FORMAT_TABLE) for kind, name, _ in found):
            row = connection.execute("SELECT version FROM catalog_format").fetchone()
            number = row[0] if row else 0
            if type(number) is not int:
                raise self._unavailable("column catalog_format.version has no integer")
        if number == migrations.LATEST and is_new_catalog(found):
            learn_types(connection)
            return number
        return self._checked_format(without_spaces(found), number, objects_of(number))

    def _migrate(self, connection: Connection) -> int:
        run: Callable[[str], object] = connection.execute
        run("BEGIN IMMEDIATE")
        try:
            found = self._format_of(connection)
            if found > 0:
                # Imported here, and not for a new catalog: sqlite-utils imports pandas, if
                # installed, which takes a quarter of a second.
                from sqlite_utils import Database

                # It commits only what it begins itself: all of this is one transaction.
                database = Database(connection, recursive_triggers=False, execute_plugins=False)
                run = database.execute
            for statement in migrations.steps(found):
                run(SQLITE.render(statement))
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return found

    @contextmanager
    def still(self) -> Iterator[CatalogReader]:
        import tempfile

        # A read would make writers wait until it ends. Copying the pages is shorter.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "catalog.db")
            with (
                self._borrowed() as connection,
                self._translated(),
                closing(self._opened(path, _MAKES)) as snapshot,
            ):
                connection.backup(snapshot)
            with SqliteCatalog(path, create=False) as copied, copied.read() as reader:
                yield reader

    def fill(self, ids: Mapping[str, int], work: Callable[[Session], None]) -> None:
        with (
            self._translated(),
            self._new_file() as part,
            closing(self._opened(part, _MAKES)) as raw,
        ):
            for setting in ("foreign_keys = ON", "synchronous = FULL", "cache_size = -65536"):
                raw.execute(f"PRAGMA {setting}")
            raw.execute("BEGIN IMMEDIATE")
            for statement in migrations.steps(0):
                raw.execute(SQLITE.render(statement))
            work(self._session(raw))
            for table, id in ids.items():
                if table != "row_groups":  # it has no sequence
                    raw.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
                    raw.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, id))
            raw.execute("COMMIT")

    # --- transactions

    def _begin(self, connection: Connection, read_only: bool) -> None:
        if not read_only:
            self._check_trust()
            connection.stamp = None
        with self._translated():
            # A read transaction that turns into a write does not wait for the lock
            # (ducklake#1309). Writes therefore take the lock when they begin.
            connection.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")

    def _commit(self, connection: Connection, session: OpenSession[Connection]) -> None:
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

    def _rollback(self, connection: Connection) -> bool:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def _session(self, connection: Connection) -> OpenSession[Connection]:
        return _SqliteSession(self, connection, self.path)

    def overwrite_free_pages(self) -> tuple[str, ...]:
        with self._borrowed() as connection, self._translated():
            self._check_trust()
            connection.stamp = None
            # Writes every row into new pages, and rewrites the file from these pages.
            connection.execute("VACUUM")
        return ()

    # --- errors

    def _translate(self, exc: sqlite3.Error) -> PlakeError:
        if isinstance(exc, sqlite3.IntegrityError):
            return self._refused_row(exc)
        code = _code(exc)
        reason = self._distrust if code == _READ_ONLY else None
        # Never `retryable`: SQLite itself waited for a lock, for the busy timeout.
        return self._unavailable(reason or _REASONS.get(code, str(exc)), later=_LATER.get(code, ""))


class _SqliteSession(OpenSession[Connection]):
    """The open transaction on one connection."""

    dialect = SQLITE

    def _open(self) -> Connection:
        connection = super()._open()
        # Some errors (a full disk) make SQLite roll the transaction back. Each later statement
        # would then be committed by itself.
        if not connection.in_transaction:
            raise self.catalog._unavailable(_ROLLED_BACK)
        return connection

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        connection = self._open()
        with self.catalog._translated():
            cursor = connection.execute(_rendered(statement), values)
            rows: list[Row] = cursor.fetchall()
        if rows:
            check_types(connection, cursor.description, rows, statement, self.redacted_url)
        return rows

    def columns(self, columns: Columns, rest: str, values: Sequence[Any]) -> list[pa.Array]:
        connection = self._open()
        with self.catalog._translated():
            (encoding,) = connection.execute("PRAGMA encoding").fetchone()
            found = None
            if encoding == "UTF-8":  # in others SQLite would convert bytes that become a text
                names, separators = _packed(columns)
                statement = _rendered(f"{names} {rest}")
                (*packed, strange) = connection.execute(
                    statement, (*separators, *values)
                ).fetchone()
                found = None if strange else unpack(columns, packed)
        # Row by row the types of the values are checked.
        return super().columns(columns, rest, values) if found is None else found

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        with self.catalog._translated():
            return self._open().execute(_rendered(statement), values).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        with self.catalog._translated():
            self._open().executemany(statement, rows)

    def id_list(self, ids: Iterable[int]) -> Any:
        return json.dumps(list(ids))


def _packed(columns: Columns) -> tuple[str, list[bytes]]:
    """A statement for `unpack`, up to its FROM, and its values; its last column is above 0 where a
    value has not the type of its column.

    To SQLite each number is below each text, and each text below all bytes.
    """
    names, strange, separators = [count_of(columns)], [], []
    for name, type_ in columns:
        if pa.types.is_binary(type_):
            names.append(f"CAST(group_concat({name}, ?) AS BLOB)")
            strange.append(f"{name} < x''")
            separators.append(SEPARATOR)
        else:
            names.append(f"group_concat({name})")
            strange.append(f"{name} >= ''")
    return f"SELECT {', '.join(names)}, sum({' OR '.join(strange)})", separators


@lru_cache(maxsize=256)
def _rendered(statement: str) -> str:
    return SQLITE.render(statement)


def _code(exc: sqlite3.Error) -> int:
    """The primary result code; -1 where it is unknown."""
    code = getattr(exc, "sqlite_errorcode", None)
    if code is not None:
        return int(code) & 0xFF
    # Python 3.10 does not tell. SQLite's messages are not translated.
    known = {
        "database is locked": _BUSY,
        "database table is locked": _LOCKED,
        "attempt to write a readonly database": _READ_ONLY,
        "file is not a database": _NOT_A_DATABASE,
    }
    return known.get(str(exc), -1)
