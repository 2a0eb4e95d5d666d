"""The catalog in a PostgreSQL database.

Everything lives inside transactions (no session state, no prepared statements,
no session locks), so a transaction pooler may stand in between. What an error
means is read from its SQLSTATE, never from its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakehouse_source.catalog import migrations, pipeline
from lakehouse_source.catalog.base import CatalogReader, PooledCatalog
from lakehouse_source.catalog.server_connections import (
    Connection,
    connect,
    disconnect,
    idle_connections,
)
from lakehouse_source.catalog.session import Row, Session, Statement
from lakehouse_source.catalog.statements import POSTGRES
from lakehouse_source.errors import (
    CommitAcknowledgementLostError,
    InvalidOptionError,
    PlakeError,
)

CONNECT_SECONDS = 10
# How long to wait for a lock. Commits take milliseconds: a process that holds a lock for
# longer is stuck.
BUSY_SECONDS = 30.0
# How long a transaction of ours may be idle before the server ends it. A process that was
# suspended in a transaction would keep its locks. It loses no write: its files stay, and a
# transaction whose connection is lost is run again.
IDLE_SECONDS = 300.0
# More rows than this are inserted by COPY, which takes one more round trip per table.
_FEW_ROWS = 16
_MIGRATION_LOCK = 0x706C616B65  # "plake"; transaction-scoped
_ACTIVE_ELSEWHERE = {"40001", "40P01"}
_SERVER_GONE = {"57P01", "57P02", "57P03", "53300", "25P03"}
_LOCK_TIMEOUT = "55P03"

# Every statement of ours is an index scan, or a nested loop of index scans. Without these
# settings, tables without statistics, or with wrong ones, get plans that read whole tables.
# JIT compilation takes longer than our longest statement.
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
# When the wait for a row lock is over, the server no longer tells who holds it. This is the
# oldest transaction that may hold one.
_HOLDER = (
    "SELECT a.pid, a.application_name, a.state, "
    "CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS BIGINT) "
    "FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database() "
    "AND a.pid IN (SELECT l.pid FROM pg_catalog.pg_locks AS l "
    "WHERE l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') "
    "AND l.relation IN ('datasets'::regclass, 'pending_writes'::regclass)) "
    "ORDER BY a.xact_start NULLS LAST LIMIT 1"
)


def _passes_by_itself(error: psycopg.Error) -> bool:
    """Tell whether the same transaction may well succeed when it is run again."""
    state = error.sqlstate
    if state is None:
        # Raised by the client library itself: no server, or the connection broke.
        return isinstance(error, psycopg.OperationalError)
    return _connection_lost(error) or state in _ACTIVE_ELSEWHERE


def _connection_lost(error: psycopg.Error) -> bool:
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in _SERVER_GONE


def _is_usable(kept: Connection) -> bool:
    """Tell whether the server has not ended a connection, nor anybody changed the format since.

    The connection is closed where it is not usable.
    """
    usable = False
    try:
        row = kept.execute("SELECT version FROM catalog_format").fetchone()
        usable = row == (migrations.LATEST,)
    except psycopg.Error:
        pass
    finally:
        if not usable:
            disconnect(kept)
    return usable


class PostgresCatalog(PooledCatalog[Connection]):
    """A catalog in a PostgreSQL database; `url` is what libpq takes, password and all.

    `dataset` names the dataset for which the catalog is opened, for messages.
    """

    is_server = True
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
        self._conninfo = _conninfo(url)
        if self._conninfo is None:
            raise InvalidOptionError(
                option="catalog",
                value=redacted_url,
                reason="is not a PostgreSQL URL. Write special characters in the user and "
                "password percent-encoded ('@' as %40, '/' as %2F).",
            )

    # --- connections

    def _connect(self) -> Connection:
        assert self._conninfo is not None
        kept = idle_connections.take(self._conninfo)
        while kept is not None:
            if _is_usable(kept):
                self._ready = True
                return kept
            kept = idle_connections.take(self._conninfo)
        with self._translated():
            connection = connect(self._conninfo)
        try:
            with self._translated():
                if not self._ready:
                    self._check_format(connection)
                    self._ready = True
        except BaseException:
            self._disconnect(connection)
            raise
        return connection

    def release(self) -> None:
        with self._guard():
            idle, self._idle[:] = list(self._idle), []
        for connection in idle:
            connection.recovered |= self._recovered
            idle_connections.keep(connection)
        self.close()

    def _recover(self) -> None:
        assert self._conninfo is not None
        if not self._recovered:
            # A stream opens its catalog twice in each batch.
            self._recovered = idle_connections.recovered(self._conninfo)
        super()._recover()

    def _format_of(self, connection: Connection) -> int:
        # Not to_regclass: in the transaction that waited for another one's migration it
        # answers from a cache that does not know of it.
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
        return found

    @staticmethod
    def _disconnect(connection: Connection) -> None:
        disconnect(connection)

    # --- transactions

    def _begin(self, connection: Connection, read_only: bool) -> None:
        with self._translated():
            connection.execute(_BEGIN_READ if read_only else self._begin_write)

    @contextmanager
    def read_autocommit(self) -> Iterator[CatalogReader]:
        # Without BEGIN and ROLLBACK, which are two of three round trips.
        connection = self._acquire()
        session = self._session(connection)
        try:
            yield CatalogReader(session)
        finally:
            self._end_session(session)
            idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            self._release(connection, idle)

    def _commit(self, connection: Connection, session: Session) -> None:
        assert isinstance(session, _PostgresSession)
        try:
            # After a statement that fails, the server runs none of the same round trip.
            answer = pipeline.run(connection, [*session.unsent(), (b"COMMIT", ())])[-1].tag
        except psycopg.Error as exc:
            if connection.closed or _connection_lost(exc):
                reason = self._reason(exc)
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

    def _session(self, connection: Connection) -> Session:
        return _PostgresSession(self, connection)

    def _end_session(self, session: Session) -> None:
        assert isinstance(session, _PostgresSession)
        session.connection = None

    # --- errors

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as exc:
            raise self._translate(exc) from exc

    def _translate(self, exc: psycopg.Error) -> PlakeError:
        if isinstance(exc, psycopg.IntegrityError):
            return self._refused_row(exc.diag.message_primary)
        if exc.sqlstate == _LOCK_TIMEOUT:
            return self._unavailable(self._busy())
        return self._unavailable(self._reason(exc), retryable=_passes_by_itself(exc))

    def _busy(self) -> str:
        reason = f"it was locked by another transaction for {self._busy_seconds:g} seconds"
        assert self._conninfo is not None
        # On a connection of its own: the transaction that waited has failed.
        with (
            suppress(psycopg.Error),
            psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None) as asking,
        ):
            holder = asking.execute(_HOLDER.encode()).fetchone()
            if holder is not None:
                pid, name, state, seconds = holder
                reason += (
                    f". The oldest one is that of server process {pid} ({name or 'unnamed'}, "
                    f"{state or 'of another user'}, {seconds or '?'} s old): where it is stuck, "
                    f"end it with pg_terminate_backend({pid})"
                )
        return reason

    def _reason(self, exc: psycopg.Error) -> str:
        return " ".join(str(exc).split())


class _PostgresSession:
    """The open transaction on one connection."""

    dialect = POSTGRES

    def __init__(self, catalog: PostgresCatalog, connection: Connection) -> None:
        self.redacted_url = catalog.redacted_url
        self.catalog_path: str | None = None
        self.catalog = catalog
        self.connection: Connection | None = connection
        self._sent: list[pipeline.Statement] = []

    def _open(self) -> Connection:
        if self.connection is None:
            raise RuntimeError("this catalog transaction has ended")
        return self.connection

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
        """What is to be run and was not, for who runs it now."""
        statements, self._sent = self._sent, []
        return statements

    def id_list(self, ids: Iterable[int]) -> Any:
        return list(ids)

    def _run(self, statements: Sequence[Statement]) -> list[pipeline.Answer]:
        """What was sent and not run yet, and then `statements`, in one round trip."""
        connection = self._open()
        wanted = [*self.unsent(), *((_rendered(text), values) for text, values in statements)]
        with self.catalog._translated():
            return pipeline.run(connection, wanted)


@lru_cache(maxsize=256)
def _rendered(statement: str) -> bytes:
    parts = POSTGRES.render(statement).split("?")
    marks = [POSTGRES.placeholder + str(number) for number in range(1, len(parts))]
    return "".join(chain.from_iterable(zip_longest(parts, marks, fillvalue=""))).encode()


@lru_cache(maxsize=8)
def _conninfo(url: str) -> str | None:
    """The URL as a connection string with our defaults, None where it cannot be parsed.

    No error of libpq leaves this function: its texts quote the URL with the password.
    """
    try:
        given = conninfo_to_dict(url)
        if not _is_as_meant(url, given):
            return None
        defaults: dict[str, str | int | None] = {
            "connect_timeout": CONNECT_SECONDS,
            "fallback_application_name": "plake",
        }
        return make_conninfo(
            url, **{name: value for name, value in defaults.items() if name not in given}
        )
    except (psycopg.Error, UnicodeError):
        return None


def _is_as_meant(url: str, parsed: Mapping[str, object]) -> bool:
    # libpq reads `u:pass/word@host` as host u, port pass. Parts of a password with unescaped
    # characters would appear in messages about hosts and ports.
    address = url.partition("?")[0]
    if address.count("@") > 1:
        return False
    if "@" in address and not ("user" in parsed or "password" in parsed):
        return False
    return all(part.isdecimal() or not part for part in str(parsed.get("port", "")).split(","))
