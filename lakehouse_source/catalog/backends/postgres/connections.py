"""Edge. The connections to PostgreSQL of this process, which its catalogs share.

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
from collections.abc import Hashable
from contextlib import suppress
from typing import TypeAlias

import psycopg

from lakehouse_source.catalog.backends.pool import Pool, PooledConnection
from lakehouse_source.catalog.sql.session import Row
from lakehouse_source.errors import InvalidOptionError

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
    return conninfo, tuple(sorted(item for item in os.environ.items() if item[0].startswith("PG")))


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
