"""Edge. A fork waits until no other thread of the process is using a SQLite database.

A forked child has the memory of its parent and only one of its threads. The work of the other
threads stays half done in the child: a mutex of SQLite is never unlocked, and SQLite assumes file
locks that only the parent holds. So the child would hang, or read without a lock.
"""

from __future__ import annotations

import os
import threading

# Transactions take milliseconds. One that waits for another process, for half a minute at most,
# sleeps outside of SQLite's mutexes and holds no file lock: the fork does not wait for its end.
_MOST_SECONDS = 2.0


class Forks:
    """Which threads are using a database, and which of them fork."""

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

    def after_in_child(self) -> None:
        """The only thread of the child is in no database of its own."""
        self._begin()


forks = Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=forks.before,
        after_in_parent=forks.after_in_parent,
        after_in_child=forks.after_in_child,
    )
