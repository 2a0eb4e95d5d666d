"""The connections to PostgreSQL that catalogs of this process share, and their errors.

A server has a limited number of connections, and a program may have a thousand datasets open. So a
catalog has a connection only during a transaction, and a process has at most a few connections to
one server. A new connection costs several round trips, and its server process knows no table yet:
together this takes longer than the queries of a stream's batch. An idle connection holds no lock
and no transaction. It is kept for a few seconds only: a database in use cannot be dropped.

A thread that holds a connection and needs another gets it at once, because it would wait for
itself. So the limit counts threads that hold connections; few of them need a second one.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Generator, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.waiting import Ready, Wait

from lakehouse_source.catalog.backends.pool import Pool, PooledConnection
from lakehouse_source.catalog.base import UrlOfQuery
from lakehouse_source.catalog.sql.statements import Row
from lakehouse_source.errors import CATALOG_ROLES, AccessDeniedError, InvalidOptionError

# --- What an error of PostgreSQL means: read from its SQLSTATE, never from its text.


_ACTIVE_ELSEWHERE = {"40001", "40P01"}
_SERVER_GONE = {"57P01", "57P02", "57P03", "53300", "25P03"}
LOCK_TIMEOUT = "55P03"
NO_RIGHT = "42501"
DISK_FULL = "53100"
_ROLES_OF_LOGIN = (
    "SELECT session_user, ARRAY(SELECT CAST(rolname AS TEXT) FROM pg_catalog.pg_roles "
    "WHERE rolname = ANY (%s) AND pg_has_role(session_user, oid, 'MEMBER') "
    "AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper))"
)

# After a failed wait for a row lock, the server no longer tells which transaction holds it. This
# query finds the oldest transaction that may hold the lock.
_HOLDER = (
    "SELECT a.pid, a.application_name, a.state, "
    "CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS BIGINT) "
    "FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database() "
    "AND a.pid IN (SELECT l.pid FROM pg_catalog.pg_locks AS l "
    "WHERE l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') "
    "AND l.relation IN ('datasets'::regclass, 'pending_writes'::regclass)) "
    "ORDER BY a.xact_start NULLS LAST LIMIT 1"
)


def passes_by_itself(error: psycopg.Error) -> bool:
    """Tell whether the same transaction may well succeed when it is run again."""
    state = error.sqlstate
    if state is None:
        # Raised by the client library itself: no server, or the connection broke.
        return isinstance(error, psycopg.OperationalError)
    return connection_lost(error) or state in _ACTIVE_ELSEWHERE


def connection_lost(error: psycopg.Error) -> bool:
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in _SERVER_GONE


def reason(error: psycopg.Error, url: str) -> str:
    """The text of an error, on one line."""
    text = " ".join(str(error).split())
    if isinstance(url, UrlOfQuery) and "password" in text:
        text += (
            ". A query named this host, so that no variable or file of libpq was used: allow "
            "it in spark.plake.hosts.allowed, in the application's configuration"
        )
    return text


def access_denied(
    error: psycopg.Error, url: str, conninfo: str, redacted_url: str
) -> AccessDeniedError:
    """Say which roles the login has, on a connection of its own."""
    login, roles = "", list[str]()
    with suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True) as asking:
        found = asking.execute(_ROLES_OF_LOGIN, (list(CATALOG_ROLES),)).fetchone()
        assert found is not None
        login, roles = found[0], [one for one in CATALOG_ROLES if one in found[1]]
    return AccessDeniedError(
        catalog=redacted_url,
        reason=error.diag.message_primary or reason(error, url),
        login=login,
        roles=tuple(roles),
    )


def holder_of_lock(conninfo: str) -> str:
    """Who may hold the lock that was waited for in vain; asked on a connection of its own."""
    with (
        suppress(psycopg.Error),
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as asking,
    ):
        holder = asking.execute(_HOLDER.encode()).fetchone()
        if holder is not None:
            pid, name, state, seconds = holder
            return (
                f". The oldest one is that of server process {pid} ({name or 'unnamed'}, "
                f"{state or 'of another user'}, {seconds or '?'} s old): where it is stuck, "
                f"end it with pg_terminate_backend({pid})"
            )
    return ""


# --- Several statements to PostgreSQL in one round trip.
#
# They run one after the other, each as if it came alone: under READ COMMITTED each statement sees
# what was committed before it began, even if an earlier statement waited for a lock. psycopg's own
# pipeline talks to the server at every statement and saved no time here (five reads: 0.27 ms with
# and without it, 0.15 ms in this way). Send several statements only inside a transaction, where a
# pooler keeps the connection on one server.


_Row: TypeAlias = tuple[Any, ...]
# Text with `$1`, `$2`, … and its values.
Statement: TypeAlias = tuple[bytes, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a statement, how many rows it changed, and what the server says it was."""

    rows: list[_Row]
    count: int
    tag: str


def run(connection: psycopg.Connection[_Row], statements: Sequence[Statement]) -> list[Answer]:
    """The answers to statements, in order.

    Raises:
        psycopg.Error: the error of the first statement that failed; no later one was run.
    """
    pgconn = connection.pgconn
    transformer = Transformer(connection)
    sent = []
    for text, values in statements:
        dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        sent.append((text, dumped, transformer.types, transformer.formats))
    try:
        pgconn.enter_pipeline_mode()
        for text, dumped, types, formats in sent:
            # Unnamed: a named statement would outlive the transaction.
            pgconn.send_query_params(text, dumped, types, formats, pq.Format.BINARY)
        pgconn.pipeline_sync()
        results = connection.wait(_results(pgconn))
        pgconn.exit_pipeline_mode()
    except BaseException:
        # Answers may still arrive, and the next caller would get them.
        connection.close()
        raise
    answers: list[Answer] = []
    for result in results:
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise psycopg.errors.error_from_result(result)
        transformer.set_pgresult(result)
        rows: list[_Row] = transformer.load_rows(0, result.ntuples, tuple)
        tag = (result.command_status or b"").decode()
        answers.append(Answer(rows, result.command_tuples or 0, tag))
    return answers


def _results(pgconn: pq.abc.PGconn) -> Generator[Wait, Ready | int, list[pq.abc.PGresult]]:
    while pgconn.flush():
        yield Wait.RW
        pgconn.consume_input()
    results: list[pq.abc.PGresult] = []
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            # The end of one statement's results, or of the connection.
            if pgconn.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError("the connection is lost")
        elif result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)


# How long a connection is kept idle; longer than most batches of a stream.
KEPT_SECONDS = 10.0
# Older connections are not kept: the address may lead to another server by now.
LIFETIME_SECONDS = 300.0
# How many connections to one server a process has.
_MOST = 4
MOST_SETTING = "PLAKE_CATALOG_CONNECTIONS"
# How long to wait for a connection that another thread of this process holds. Transactions take
# milliseconds, or at most half a minute if they wait for a lock.
WAIT_SECONDS = 120.0

# The connection string, and the variables with which libpq completes it.
Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


# The key that was counted, and the thread that it was counted for.
Hold: TypeAlias = tuple[Hashable, int]


class Connection(psycopg.Connection[Row], PooledConnection):
    """A connection that knows when it was made, and until when it is kept."""

    made = until = 0.0  # by the monotonic clock


def key_of(conninfo: str) -> Key:
    """The key of a new connection: equal keys can share connections."""
    # To look at the value of every variable takes as long as a statement.
    names = sorted(name for name in os.environ if name.startswith("PG"))
    return conninfo, tuple((name, os.environ.get(name, "")) for name in names)


def connect(conninfo: str) -> Connection:
    """A new connection, each of whose statements is a transaction by itself."""
    made = time.monotonic()
    connection = Connection.connect(conninfo, autocommit=True, prepare_threshold=None)
    connection.made = made
    return connection


def disconnect(connection: Connection) -> None:
    """Close a connection; never raises."""
    with suppress(psycopg.Error):
        connection.close()


def most_connections() -> int:
    """How many threads of this process may hold connections to one server at a time."""
    text = os.environ.get(MOST_SETTING, "").strip() or str(_MOST)
    if not text.isdecimal() or int(text) == 0:
        raise InvalidOptionError(
            option=MOST_SETTING, value=text, reason="must be a whole number, at least 1."
        )
    return int(text)


class SharedConnections(Pool[Connection]):
    """The connections of this process: how many are in use, and the idle ones, by their key."""

    def _begin(self) -> None:
        super()._begin()
        self._changed = threading.Condition(self._lock)
        self._closes = False  # a thread closes those that nobody takes
        # How many connections each thread holds, by their key.
        self._held: dict[Hashable, Counter[int]] = {}

    def most(self) -> int:
        return most_connections()

    def hold(self, group: Hashable) -> Hold:
        me, most = threading.get_ident(), most_connections()

        def may() -> bool:
            held = self._held.get(group)
            return held is None or me in held or len(held) < most

        with self._changed:
            if not self._changed.wait_for(may, WAIT_SECONDS):
                raise TimeoutError
            self._held.setdefault(group, Counter())[me] += 1
        return group, me

    def free(self, hold: Hold) -> None:
        group, thread = hold
        with self._changed:
            held = self._held.pop(group)
            held[thread] -= 1
            left = +held  # without threads that hold none
            if left:
                self._held[group] = left
            self._changed.notify_all()

    def keep(self, connection: Connection) -> None:
        """Keep a connection for a few seconds, or close it."""
        now = time.monotonic()
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if not idle or now - connection.made > LIFETIME_SECONDS:
            disconnect(connection)
            return
        connection.until = now + KEPT_SECONDS
        super().keep(connection)
        with self._changed:
            starts, self._closes = not self._closes, True
            self._changed.notify_all()
        if starts:
            try:
                threading.Thread(target=self._close_in_time, daemon=True).start()
            except RuntimeError:  # the interpreter is ending, or cannot start threads
                self._closes = False
                self.close_all()

    def _close_in_time(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due, times = list[Connection](), list[float]()
                for group, kept in list(self._kept.items()):
                    due += [one for one in kept if one.until <= now]
                    kept[:] = [one for one in kept if one.until > now]
                    if not kept:
                        del self._kept[group]
                    times += [one.until for one in kept]
                if not due and not times:
                    self._closes = False
                    return
                if not due:
                    self._changed.wait(min(times) - now)
            for connection in due:
                disconnect(connection)


shared_connections = SharedConnections(disconnect)
