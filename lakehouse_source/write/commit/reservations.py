"""Verb. In a stream of small commits, each commit registers the write that follows it.

A write is registered before its first byte, so that vacuum leaves its files alone. That
is a database transaction of its own, which takes as long as the commit of a small write.
Where commits of one process follow one another closely, each commit therefore registers
the next write in its own transaction. A reservation that no write takes is a pending
write without files; it is abandoned later, like the write of a process that died.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from lakehouse_source.catalog.base import Catalog

# A stream is at least this many commits, each at most this long after the one before.
STREAM_COMMITS = 8
STREAM_SECONDS = 1.0
# How long a reservation can be used; far below the age at which a pending write is abandoned.
RESERVED_SECONDS = 10.0


@dataclass(slots=True)
class _Stream:
    commits: int = 0
    last: float = 0.0
    # Write ids: one for each thread that commits at the same time.
    reserved: list[str] = field(default_factory=list)


_lock = threading.Lock()
_process = os.getpid()
# By catalog object and dataset key: a stream is one writer that keeps its catalog open.
_streams: WeakKeyDictionary[Catalog, dict[str, _Stream]] = WeakKeyDictionary()


def take(catalog: Catalog, key: str) -> tuple[str | None, list[str]]:
    """The id of a write that is registered already, and the ids that are too old to use.

    The caller deletes the old registrations from the catalog.
    """
    with _guard():
        stream = _streams.get(catalog, {}).get(key)
        if stream is None or not stream.reserved:
            return None, []
        if time.monotonic() - stream.last < RESERVED_SECONDS:
            return stream.reserved.pop(), []
        stale, stream.reserved = stream.reserved, []
        return None, stale


def give_back(catalog: Catalog, key: str, reserved: str) -> None:
    """Return a reservation: the write that took it did not begin."""
    with _guard():
        stream = _streams.get(catalog, {}).get(key)
        if stream is not None:
            stream.reserved.append(reserved)


def is_wanted(catalog: Catalog, key: str) -> bool:
    """Tell whether the commit under way should register the next write."""
    with _guard():
        stream = _streams.get(catalog, {}).get(key)
        return (
            stream is not None
            and not stream.reserved
            and stream.commits >= STREAM_COMMITS
            and time.monotonic() - stream.last < STREAM_SECONDS
        )


def committed(catalog: Catalog, key: str, reserved: str | None) -> None:
    """Note that a write was committed, together with the registration of the next one."""
    now = time.monotonic()
    with _guard():
        stream = _streams.setdefault(catalog, {}).setdefault(key, _Stream())
        stream.commits = stream.commits + 1 if now - stream.last < STREAM_SECONDS else 1
        stream.last = now
        if reserved is not None:
            stream.reserved.append(reserved)


def _guard() -> threading.Lock:
    global _lock, _process, _streams
    process = os.getpid()
    if process != _process:
        # A forked child: the reservations belong to its parent.
        _lock, _process, _streams = threading.Lock(), process, WeakKeyDictionary()
    return _lock
