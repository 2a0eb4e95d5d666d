"""The catalog in a PostgreSQL database.

Everything lives inside transactions (no session state, no prepared statements,
no session locks), so a transaction pooler may stand in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any

import psycopg
from psycopg import sql

from lakehouse_source.catalog.backends.pooled import OpenSession, PooledCatalog
from lakehouse_source.catalog.backends.postgres import failures, pipeline
from lakehouse_source.catalog.backends.postgres.address import connection_string
from lakehouse_source.catalog.backends.postgres.connections import (
    MOST_SETTING,
    WAIT_SECONDS,
    Connection,
    connect,
    disconnect,
    key_of,
    most_connections,
    shared_connections,
)
from lakehouse_source.catalog.backends.postgres.dialect import POSTGRES
from lakehouse_source.catalog.base import CatalogReader
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.catalog.sql.session import Row, Session, Statement
from lakehouse_source.errors import (
    DISK_HAS_SPACE,
    LOCK_IS_FREE,
    AccessDeniedError,
    CommitAcknowledgementLostError,
    PlakeError,
)

# How long to wait for a lock. Commits take milliseconds: a process that holds a lock for
# longer is stuck.
BUSY_SECONDS = 30.0
# How long a transaction of ours may be idle before the server ends it. Otherwise a process that is
# suspended in a transaction would keep its locks. The process loses no write: its files stay, and a
# transaction whose connection is lost runs again.
IDLE_SECONDS = 300.0
# How long an erasure waits for a whole table at once, and lets others go on after that.
_SHORT_LOCK_MILLISECONDS = 500
_BETWEEN_LOCKS_SECONDS = 0.5
# COPY inserts more rows than this; it takes one more round trip per table.
_FEW_ROWS = 16
_MIGRATION_LOCK = 0x706C616B65  # "plake"; transaction-scoped

# Every statement of ours is an index scan, or a nested loop of index scans. Without these settings,
# PostgreSQL reads whole tables if their statistics are missing or wrong. JIT compilation takes
# longer than our longest statement.
_PLANS = "".join(
    f"; SET LOCAL {name} = off"
    for name in (
        "enable_seqscan",
        "enable_bitmapscan",
        "enable_hashjoin",
        "enable_mergejoin",
        "jit",
    )
)
# One round trip each.
_BEGIN_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY{_PLANS}".encode()
# READ COMMITTED: after waiting for a lock, a statement sees what its last holder committed.
_BEGIN_WRITE = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE{_PLANS}"


def _is_usable(kept: Connection) -> bool:
    """Tell whether a connection still works and the format is still the same."""
    with suppress(psycopg.Error):
        row = kept.execute("SELECT version FROM catalog_format").fetchone()
        return row == (migrations.LATEST,)
    return False


# Statistics, paths, partition values, notes of commits.
_TELL_OF_ROWS = (
    *("files", "row_groups", "partitions", "column_bounds", "deletion_vectors"),
    *("transactions", "datasets"),
)
_OPEN_SNAPSHOTS = (
    b"SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_xmin IS NOT NULL "
    b"AND datname = current_database() AND pid <> pg_backend_pid()"
)


_OWNS = (
    "SELECT pg_has_role(session_user, relowner, 'USAGE') FROM pg_catalog.pg_class "
    "WHERE oid = to_regclass('dataset_views')"
)


def _rewrite(connection: Connection, table: str, give_up: float) -> None:
    """Rewrite a table, between other transactions.

    Who waits for the whole table makes everybody wait who comes later. So each wait is short, and
    the others go on between two of them.
    """
    while True:
        try:
            connection.execute(f"VACUUM (FULL, ANALYZE) {table}".encode())
            return
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() > give_up:
                raise
        time.sleep(_BETWEEN_LOCKS_SECONDS)


class PostgresCatalog(PooledCatalog[Connection]):
    """A catalog in a PostgreSQL database; `url` is what libpq takes, password and all.

    `dataset` names the dataset for which the catalog is opened, for messages.
    """

    is_server = True
    _pool = shared_connections
    _errors = psycopg.Error
    absent = "the database has no plake catalog"

    def __init__(
        self,
        url: str,
        redacted_url: str,
        *,
        create: bool = True,
        dataset: str | None = None,
        busy_seconds: float = BUSY_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        super().__init__(url, redacted_url, create=create, dataset=dataset)
        self._ready = False
        self._busy_seconds = busy_seconds
        self._lock_timeout = f"SET LOCAL lock_timeout = {round(busy_seconds * 1000)}"
        self._begin_write = (
            f"{_BEGIN_WRITE}; {self._lock_timeout}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {round(idle_seconds * 1000)}"
        ).encode()
        self._conninfo = connection_string(url, redacted_url)

    def is_own(self) -> bool:
        """Tell whether the login owns the tables, itself or by a role."""
        with self.read() as reader:
            return bool(reader._session.query(_OWNS)[0][0])

    # --- connections

    def _group(self) -> Hashable:
        return key_of(self._conninfo)

    def _acquire(self) -> Connection:
        try:
            return super()._acquire()
        except TimeoutError as exc:
            raise self._unavailable(
                f"other threads of this process held all of its {most_connections()} connections "
                f"for {WAIT_SECONDS:g} seconds. {MOST_SETTING} allows more"
            ) from exc

    def _kept_or_new(self, group: Hashable) -> Connection:
        kept = self._pool.take(group)
        # If the catalog is known, the first statement finds a lost connection at once.
        while not (kept is None or self._ready or _is_usable(kept)):
            disconnect(kept)
            kept = self._pool.take(group)
        if kept is None:
            with self._translated():
                kept = connect(self._conninfo)
            try:
                with self._translated():
                    if not self._ready:
                        self._check_format(kept)
            except BaseException:
                disconnect(kept)
                raise
        self._ready = True
        return kept

    def release(self) -> None:
        self._closed = True

    def _format_of(self, connection: Connection) -> int:
        # Not to_regclass: in a transaction that waited for another migration, its cache does not
        # know the new tables.
        row = connection.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'catalog_format' "
            "AND pg_catalog.pg_table_is_visible(oid))"
        ).fetchone()
        if row is None or not row[0]:
            return 0
        row = connection.execute("SELECT version FROM catalog_format").fetchone()
        return 0 if row is None else int(row[0])

    def _migrate(self, connection: Connection) -> int:
        with connection.transaction():
            connection.execute(self._lock_timeout.encode())
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            found = self._format_of(connection)
            try:
                for statement in migrations.steps(found):
                    connection.execute(sql.SQL(POSTGRES.render(statement)))
            except psycopg.errors.DuplicateTable as exc:
                raise self._unavailable(
                    "the schema has a table of another program under one of plake's names. "
                    "Use another database or search_path"
                ) from exc
            except psycopg.errors.InsufficientPrivilege as exc:
                raise AccessDeniedError(
                    catalog=self.redacted_url,
                    reason=f"its tables have format {found} and this version of plake needs "
                    f"{migrations.LATEST}. Only their owner can make or change them: open the "
                    "catalog once as the owner",
                ) from exc
        return found

    def fill(self, ids: Mapping[str, int], work: Callable[[Session], None]) -> None:
        with self._translated():
            connection = connect(self._conninfo)
        try:
            with self._translated():
                connection.execute(self._begin_write)
                if self._migrate(connection):
                    raise self._taken()
            session = self._session(connection)
            work(session)
            session.flush()
            with self._translated():
                for table, id in ids.items():
                    if id:
                        name = f"{table}_id_seq"
                        connection.execute("SELECT setval(%s::regclass, %s)", (name, id))
                connection.execute(b"COMMIT")
        finally:
            disconnect(connection)

    # --- transactions

    def _begin(self, connection: Connection, read_only: bool) -> None:
        with self._translated():
            connection.execute(_BEGIN_READ if read_only else self._begin_write)

    @contextmanager
    def read_autocommit(self) -> Iterator[CatalogReader]:
        # Without BEGIN and ROLLBACK, which would be two of three round trips.
        connection = self._acquire()
        session = self._session(connection)
        try:
            yield CatalogReader(session)
        finally:
            session.connection = None
            idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            self._release(connection, idle)

    def _commit(self, connection: Connection, session: OpenSession[Connection]) -> None:
        assert isinstance(session, _PostgresSession)
        try:
            # After a failed statement, the server skips the other statements of the same round
            # trip.
            answer = pipeline.run(connection, [*session.unsent(), (b"COMMIT", ())])[-1].tag
        except psycopg.Error as exc:
            if connection.closed or failures.connection_lost(exc):
                reason = failures.reason(exc, self.url)
                raise CommitAcknowledgementLostError(
                    catalog=self.redacted_url, reason=reason
                ) from exc
            raise self._translate(exc) from exc
        if answer != "COMMIT":
            # A statement had failed and somebody swallowed its error. PostgreSQL then
            # carries COMMIT out as ROLLBACK, without an error.
            raise self._unavailable(
                "the transaction had failed and was rolled back; nothing was committed"
            )

    def _rollback(self, connection: Connection) -> bool:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            return False
        return not connection.closed

    def _session(self, connection: Connection) -> OpenSession[Connection]:
        return _PostgresSession(self, connection)

    def overwrite_free_pages(self) -> tuple[str, ...]:
        """Rewrite the tables that have data of rows; the tables' old files are deleted."""
        refused: list[str] = []
        connection = self._acquire()
        try:
            connection.add_notice_handler(
                # A table that the role may not rewrite gives a warning, not an error.
                lambda notice: (
                    refused.append(notice.message_primary or "")
                    if notice.severity_nonlocalized == "WARNING"
                    else None
                )
            )
            with self._translated():
                connection.execute(f"SET lock_timeout = {_SHORT_LOCK_MILLISECONDS}".encode())
                give_up = time.monotonic() + self._busy_seconds
                for table in _TELL_OF_ROWS:
                    _rewrite(connection, table, give_up)
                # Removes the samples of earlier ANALYZE runs. Only a superuser may do this.
                connection.execute(b"VACUUM (FULL) pg_catalog.pg_statistic")
                others = connection.execute(_OPEN_SNAPSHOTS).fetchone()
        finally:
            self._release(connection, False)
        kept = "PostgreSQL's WAL, its archive, replicas and backups, until they are recycled"
        notes = [kept, *(f"of the database: {message}" for message in refused)]
        if others is not None and others[0]:
            notes.append(
                f"of the database: row versions that {others[0]} open transactions may still "
                "see. Erase again when these have ended"
            )
        return tuple(notes)

    # --- errors

    def _translate(self, exc: psycopg.Error) -> PlakeError:
        if isinstance(exc, psycopg.IntegrityError):
            return self._refused_row(exc.diag.message_primary)
        if exc.sqlstate == failures.NO_RIGHT:
            return failures.access_denied(exc, self.url, self._conninfo, self.redacted_url)
        if exc.sqlstate == failures.LOCK_TIMEOUT:
            reason = f"it was locked by another transaction for {self._busy_seconds:g} seconds"
            reason += failures.holder_of_lock(self._conninfo)
            return self._unavailable(reason, later=LOCK_IS_FREE)
        return self._unavailable(
            failures.reason(exc, self.url),
            retryable=failures.passes_by_itself(exc),
            later=DISK_HAS_SPACE if exc.sqlstate == failures.DISK_FULL else "",
        )


class _PostgresSession(OpenSession[Connection]):
    """The open transaction on one connection."""

    dialect = POSTGRES

    def __init__(self, catalog: PostgresCatalog, connection: Connection) -> None:
        super().__init__(catalog, connection)
        self._sent: list[pipeline.Statement] = []

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._run([(statement, values)])[-1].rows

    def query_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        answers = self._run(statements)
        return [answer.rows for answer in answers[len(answers) - len(statements) :]]

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._run([(statement, values)])[-1].count

    def send(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._open()
        self._sent.append((_rendered(statement), values))

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if not rows:
            return
        names = f"{table} ({', '.join(columns)})"
        if len(rows) <= _FEW_ROWS:
            marks = ", ".join([f"({', '.join('?' * len(columns))})"] * len(rows))
            values = tuple(value for row in rows for value in row)
            self.send(f"INSERT INTO {names} VALUES {marks}", values)
            return
        self.flush()
        with (
            self.catalog._translated(),
            self._open().cursor() as cursor,
            cursor.copy(f"COPY {names} FROM STDIN".encode()) as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def flush(self) -> None:
        if self._sent:
            self._run(())

    def unsent(self) -> list[pipeline.Statement]:
        """The statements that were sent but not run; the caller runs them now."""
        statements, self._sent = self._sent, []
        return statements

    def _run(self, statements: Sequence[Statement]) -> list[pipeline.Answer]:
        """Run what was sent and not run yet, and then `statements`, in one round trip."""
        connection = self._open()
        wanted = [*self.unsent(), *((_rendered(text), values) for text, values in statements)]
        with self.catalog._translated():
            return pipeline.run(connection, wanted)


@lru_cache(maxsize=256)
def _rendered(statement: str) -> bytes:
    parts = POSTGRES.render(statement).split("?")
    marks = [POSTGRES.placeholder + str(number) for number in range(1, len(parts))]
    return "".join(chain.from_iterable(zip_longest(parts, marks, fillvalue=""))).encode()
