"""Edge. Connections to PostgreSQL that closed catalogs leave for the next one of this process.

A stream opens its catalog twice in each batch, on the driver. A new connection costs several
round trips and a server process that knows no table yet, which together takes longer than
what the batch asks. An idle connection holds no lock and no transaction. It is kept for a few
seconds only: a server has a limited number of connections, and a database in use cannot be
dropped.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg

from lakehouse_source.catalog.session import Row

# How long nobody needs a connection until it is closed; longer than most batches of a stream.
KEPT_SECONDS = 10.0
# No connection is kept that is older: an address may lead to another server by now.
LIFETIME_SECONDS = 300.0
_MOST = 4

# The connection string, and the variables with which libpq completes it.
Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


class Connection(psycopg.Connection[Row]):
    """A connection that knows to what it was made, and when."""

    key: Key | None = None
    made = 0.0  # by the monotonic clock
    # Its catalog has looked for abandoned writes.
    recovered = False


def key_of(conninfo: str) -> Key:
    """What a connection that is made now is the same for."""
    return conninfo, tuple(sorted(item for item in os.environ.items() if item[0].startswith("PG")))


def connect(conninfo: str) -> Connection:
    """A new connection, each of whose statements is a transaction by itself.

    Raises:
        psycopg.Error
    """
    made, key = time.monotonic(), key_of(conninfo)
    connection = Connection.connect(conninfo, autocommit=True, prepare_threshold=None)
    connection.key, connection.made = key, made
    return connection


def disconnect(connection: psycopg.Connection[Row]) -> None:
    """Close a connection; never raises."""
    with suppress(psycopg.Error):
        connection.close()


class IdleConnections:
    """The connections of this process that wait for a catalog, the last one kept at the end."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: list[tuple[float, Connection]] = []  # with the time at which it is closed
        self._closes = False  # a thread closes those that nobody takes

    def keep(self, connection: Connection) -> None:
        """Keep a connection for a few seconds, or close it."""
        now = time.monotonic()
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if not idle or now - connection.made > LIFETIME_SECONDS:
            disconnect(connection)
            return
        with self._changed:
            self._kept.append((now + KEPT_SECONDS, connection))
            surplus = self._kept[:-_MOST]
            del self._kept[:-_MOST]
            if not self._closes:
                try:
                    threading.Thread(target=self._close_in_time, daemon=True).start()
                    self._closes = True
                except RuntimeError:  # the interpreter ends, or may have no more threads
                    surplus, self._kept = [*surplus, *self._kept], []
        for _until, old in surplus:
            disconnect(old)

    def take(self, conninfo: str) -> Connection | None:
        """The connection that was kept last, made in the same way. The server may have ended it."""
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

    def close_all(self) -> None:
        """Close the connections that are kept now."""
        with self._changed:
            kept, self._kept = self._kept, []
            self._changed.notify_all()
        for _until, connection in kept:
            disconnect(connection)

    def forked(self) -> None:
        """In a forked child: leave the connections to the parent, which still uses them."""
        _of_parent.append(self._kept)
        self._changed = threading.Condition()
        self._kept = []
        self._closes = False

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


idle_connections = IdleConnections()
_of_parent: list[Any] = []
atexit.register(idle_connections.close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle_connections.forked)
