"""Edge. The idle connections of this process, and what a fork does to connections.

A forked child has the memory of its parent and only one of its threads. It leaves the connections
that it finds to its parent and makes its own: closing one would end the parent's session, or
release its file locks. The work of the other threads stays half done in the child: a mutex of
SQLite is never unlocked, and SQLite assumes file locks that only the parent holds. So the child
would hang, or read without a lock. Therefore a fork waits until no other thread is using a SQLite
database.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

# How many idle connections of one group are kept; one to SQLite may hold 64 MiB of pages.
_MOST_IDLE = 4
# Transactions take milliseconds. One that waits for another process, for half a minute at most,
# sleeps outside of SQLite's mutexes and holds no file lock: the fork does not wait for its end.
_MOST_SECONDS = 2.0


class PooledConnection:
    """What the pool notes about a connection."""

    # Who may use it while it is idle.
    group: Hashable = None
    # The process that used it last, and what `Pool.hold` returned for its present use.
    process = 0
    hold: Any = None
    # When somebody looked for abandoned writes on it, by the monotonic clock.
    recovered = float("-inf")


Connection = TypeVar("Connection", bound=PooledConnection)


class Pool(Generic[Connection]):
    """The idle connections of this process to databases of one kind, by group.

    The connection of a group that was kept last is at the end, and is used first.
    """

    def __init__(self, end: Callable[[Connection], None]) -> None:
        # Closes a connection; never raises.
        self.end = end
        self._begin()
        _pools.append(self)
        atexit.register(self.close_all)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, list[Connection]] = {}

    def most(self) -> int:
        """How many connections of one group are kept."""
        return _MOST_IDLE

    def hold(self, group: Hashable) -> Any:
        """Wait until this thread may have a connection, and count it until `free`."""
        return None

    def free(self, hold: Any) -> None:
        """End the count that `hold` began, in any thread."""

    def take(
        self, group: Hashable, fits: Callable[[Connection], bool | None] | None = None
    ) -> Connection | None:
        """The connection of a group that was kept last and fits.

        `fits` is None for a connection to something else: it stays. One that does not fit is
        closed.
        """
        if group not in self._kept:
            return None
        gone: list[Connection] = []
        found = None
        with self._lock:
            kept = self._kept.get(group, [])
            for one in kept[::-1]:
                is_fit = fits is None or fits(one)
                if is_fit is not None:
                    kept.remove(one)
                    if is_fit:
                        found = one
                        break
                    gone.append(one)
        for one in gone:
            self.end(one)
        return found

    def keep(self, connection: Connection) -> None:
        """Keep an idle connection for the next use by its group."""
        with self._lock:
            kept = self._kept.setdefault(connection.group, [])
            kept.append(connection)
            surplus = kept[: -self.most()]
            del kept[: len(surplus)]
        for old in surplus:
            self.end(old)

    def give(self, connection: Connection, usable: bool) -> None:
        """Take back a connection that was in use, for the next one; or close it."""
        hold, connection.hold = connection.hold, None
        if connection.process != os.getpid():
            _of_parents.append(connection)
            return
        if usable:
            self.keep(connection)
        else:
            self.end(connection)
        self.free(hold)

    def leave(self, group: Hashable) -> list[Connection]:
        """The idle connections of a group, which the pool does not have any more."""
        with self._lock:
            return self._kept.pop(group, [])

    def close(self, group: Hashable) -> None:
        """Close the idle connections of a group."""
        for one in self.leave(group):
            self.end(one)

    def forget(self, group: Hashable) -> None:
        """Close the idle connections of a group that nobody uses any more.

        Without the lock: the garbage collector calls this, in a thread that may hold the lock.
        """
        for one in self._kept.pop(group, ()):
            self.end(one)

    def close_all(self) -> None:
        for group in list(self._kept):
            self.close(group)

    def forked(self) -> None:
        """In a forked child: leave the connections to the parent, and do not wait for a thread."""
        _of_parents.append(self._kept)
        self._begin()


class Forks:
    """Which threads are using a SQLite database, and which of them fork."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}
        self._forking: set[int] = set()

    def __enter__(self) -> None:
        """Use a database while no thread forks. A thread may be in several at a time."""
        me = threading.get_ident()
        with self._changed:
            if me not in self._inside and me not in self._forking:
                self._changed.wait_for(lambda: not self._forking)
            self._inside[me] = self._inside.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._changed:
            depth = self._inside.pop(me, 0)
            if depth > 1:
                self._inside[me] = depth - 1
            elif depth == 1:  # 0: this is a child, which began again inside
                self._changed.notify_all()

    def before(self) -> None:
        """Wait until the other threads have left their databases, and keep them out."""
        me = threading.get_ident()
        with self._changed:
            self._forking.add(me)
            self._changed.wait_for(lambda: self._inside.keys() <= {me}, _MOST_SECONDS)

    def after_in_parent(self) -> None:
        """Let the other threads go on."""
        with self._changed:
            self._forking.discard(threading.get_ident())
            self._changed.notify_all()

    def forked(self) -> None:
        """The only thread of the child is in no database of its own."""
        self._begin()


forks = Forks()
_pools: list[Pool[Any]] = []
# Connections of parent processes, kept so that nothing closes them here.
_of_parents: list[Any] = []


def _forked() -> None:
    forks.forked()
    for pool in _pools:
        pool.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=forks.before,
        after_in_parent=forks.after_in_parent,
        after_in_child=_forked,
    )
