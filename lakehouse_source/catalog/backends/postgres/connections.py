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

import atexit
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg

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
Hold: TypeAlias = tuple[Key, int]


class Connection(psycopg.Connection[Row]):
    """A connection that knows its server and when it was made."""

    key: Key | None = None
    made = 0.0  # by the monotonic clock
    # Its catalog has looked for abandoned writes.
    recovered = False
    # The process that uses the connection now, and what `hold` returned there.
    process = 0
    hold: Hold | None = None


def key_of(conninfo: str) -> Key:
    """The key of a new connection: equal keys can share connections."""
    return conninfo, tuple(sorted(item for item in os.environ.items() if item[0].startswith("PG")))


def connect(conninfo: str) -> Connection:
    """A new connection, each of whose statements is a transaction by itself."""
    made, key = time.monotonic(), key_of(conninfo)
    connection = Connection.connect(conninfo, autocommit=True, prepare_threshold=None)
    connection.key, connection.made = key, made
    return connection


def disconnect(connection: psycopg.Connection[Row]) -> None:
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


class SharedConnections:
    """The connections of this process: how many are in use, and the idle ones.

    The connection that was kept last is at the end.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: list[tuple[float, Connection]] = []  # with the time at which it is closed
        self._closes = False  # a thread closes those that nobody takes
        # How many connections each thread holds, by their key.
        self._held: dict[Key, Counter[int]] = {}

    def hold(self, conninfo: str) -> Hold:
        """Wait until this thread may have a connection, and count it until `free`."""
        key, me, most = key_of(conninfo), threading.get_ident(), most_connections()

        def may() -> bool:
            held = self._held.get(key)
            return held is None or me in held or len(held) < most

        with self._changed:
            if not self._changed.wait_for(may, WAIT_SECONDS):
                raise TimeoutError
            self._held.setdefault(key, Counter())[me] += 1
        return key, me

    def free(self, hold: Hold) -> None:
        """End the count that `hold` began, in any thread."""
        key, thread = hold
        with self._changed:
            held = self._held.pop(key)
            held[thread] -= 1
            left = +held  # without threads that hold none
            if left:
                self._held[key] = left
            self._changed.notify_all()

    def give_back(self, connection: Connection, usable: bool) -> None:
        """Take back a connection that was in use, for the next catalog; or close it."""
        hold, connection.hold = connection.hold, None
        if connection.process != os.getpid():
            _of_parent.append(connection)  # the parent still uses it
            return
        if usable:
            self.keep(connection)
        else:
            disconnect(connection)
        if hold is not None:
            self.free(hold)

    def keep(self, connection: Connection) -> None:
        """Keep a connection for a few seconds, or close it."""
        now = time.monotonic()
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if not idle or now - connection.made > LIFETIME_SECONDS:
            disconnect(connection)
            return
        with self._changed:
            self._kept.append((now + KEPT_SECONDS, connection))
            mine = [one for one in self._kept if one[1].key == connection.key]
            surplus = mine[: -most_connections()]
            self._kept = [one for one in self._kept if one not in surplus]
            if not self._closes:
                try:
                    threading.Thread(target=self._close_in_time, daemon=True).start()
                    self._closes = True
                except RuntimeError:  # the interpreter is ending, or cannot start threads
                    surplus, self._kept = [*surplus, *self._kept], []
        for _until, old in surplus:
            disconnect(old)

    def take(self, conninfo: str) -> Connection | None:
        """The connection with the same key that was kept last. The server may have ended it."""
        key = key_of(conninfo)
        with self._changed:
            for number in reversed(range(len(self._kept))):
                if self._kept[number][1].key == key:
                    return self._kept.pop(number)[1]
        return None

    def recovered(self, conninfo: str) -> bool:
        """Tell whether the catalog of a kept connection has looked for abandoned writes."""
        key = key_of(conninfo)
        with self._changed:
            return any(one.key == key and one.recovered for _until, one in self._kept)

    def close_all(self, conninfo: str | None = None) -> None:
        """Close the connections that are kept now, all or those with one key."""
        key = None if conninfo is None else key_of(conninfo)
        with self._changed:
            kept = [one for one in self._kept if key is None or one[1].key == key]
            self._kept = [one for one in self._kept if one not in kept]
            self._changed.notify_all()
        for _until, connection in kept:
            disconnect(connection)

    def forked(self) -> None:
        """In a forked child: leave the connections to the parent, which still uses them."""
        _of_parent.append(self._kept)
        self._changed = threading.Condition()
        self._kept = []
        self._closes = False
        self._held = {}

    def _close_in_time(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due = [one for until, one in self._kept if until <= now]
                self._kept = [kept for kept in self._kept if kept[0] > now]
                if not due and not self._kept:
                    self._closes = False
                    return
                if not due:
                    self._changed.wait(self._kept[0][0] - now)
            for connection in due:
                disconnect(connection)


shared_connections = SharedConnections()
_of_parent: list[Any] = []
atexit.register(shared_connections.close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared_connections.forked)
