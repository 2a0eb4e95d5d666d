"""Idle SQLite connections, kept for the next catalog on the same file."""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
from contextlib import suppress
from typing import Any, TypeAlias

from lakehouse_source.catalog.backends.sqlite.forks import forks

# Connections of closed catalogs that are kept for the next one; each may hold 64 MiB of pages.
_MOST_IDLE = 4


class Connection(sqlite3.Connection):
    """A connection that knows which file it opened."""

    file: tuple[int, int] | None = None


class _IdleConnections:
    """Idle connections of catalogs that were closed, kept for the next catalog on the same file.

    Opening a connection takes longer than planning a scan of one file. An idle connection
    holds no lock. It is used again only if the file system says that the file is unchanged:
    SQLite would not notice that somebody replaced the content of the file in place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[tuple[_Key, _Stamp, Connection]] = []

    def keep(self, key: _Key, connection: Connection) -> None:
        """Keep a connection, or close it."""
        stamp = stamp_of(key[0])
        if stamp is None or connection.file != stamp[:2]:
            close(connection)
            return
        with self._lock:
            self._connections.append((key, stamp, connection))
            surplus = self._connections[:-_MOST_IDLE]
            del self._connections[:-_MOST_IDLE]
        for _key, _stamp_then, old in surplus:
            close(old)

    def take(self, key: _Key) -> Connection | None:
        """The connection that was kept last for a file, if the file is still the same."""
        with self._lock:
            mine = [one for one in self._connections if one[0] == key]
            if not mine:
                return None
            stamp = stamp_of(key[0])
            found = mine.pop() if mine[-1][1] == stamp else None
            # Connections to another state of the file would never be used.
            outdated = [one for one in mine if one[1] != stamp]
            gone = [*outdated, found]
            self._connections = [one for one in self._connections if one not in gone]
        for _key, _stamp_then, connection in outdated:
            close(connection)
        return None if found is None else found[2]

    def close_all(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for _key, _stamp_then, connection in connections:
            close(connection)

    def forked(self) -> None:
        """In a forked child: never close a connection of the parent.

        That would release the file locks of the parent.
        """
        _of_parent.append(self._connections)
        self._lock = threading.Lock()
        self._connections = []


# The path, and the seconds that a connection waits for a lock.
_Key: TypeAlias = tuple[str, float]
# Device, inode, time of the last change of any kind (nanoseconds), size (bytes); and who may write
# to the folder: its user, its group, its mode.
_Stamp: TypeAlias = tuple[int, int, int, int, int, int, int]
idle_connections = _IdleConnections()
_of_parent: list[Any] = []
atexit.register(idle_connections.close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle_connections.forked)


def stamp_of(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
        above = os.stat(os.path.dirname(path))
    except OSError:
        return None
    file = status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size
    return *file, above.st_uid, above.st_gid, above.st_mode


def close(connection: sqlite3.Connection) -> None:
    with forks, suppress(sqlite3.Error):
        connection.close()
