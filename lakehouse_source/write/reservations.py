"""Verb. Registers the next write of a stream of small commits together with the one before.

A write is registered before its first byte, so that vacuum leaves its files alone:
a database transaction, which costs as much as the commit of a small write itself.
Where commits of one process follow one another closely, each commit therefore
registers its successor too. A reservation that nobody takes is a pending write
without files; like that of any process that died, it is given up in time.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from lakehouse_source.catalog.base import Catalog

# A stream: so many commits, none later than this after the one before.
STREAM_COMMITS = 8
STREAM_SECONDS = 1.0
# Far below the age at which a pending write counts as abandoned.
RESERVED_SECONDS = 10.0


@dataclass(slots=True)
class _Stream:
    commits: int = 0
    last: float = 0.0
    # One, or as many as there are threads that commit at once.
    reserved: list[str] = field(default_factory=list)


_lock = threading.Lock()
_process = os.getpid()
# By catalog object and dataset: a stream is one writer that keeps its catalog open.
_streams: WeakKeyDictionary[Catalog, dict[str, _Stream]] = WeakKeyDictionary()


def take(catalog: Catalog, key: str) -> tuple[str | None, list[str]]:
    """The write that was registered for whoever writes next, and those that are too old for it.

    The old ones are for the caller to forget in the catalog.
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
    """Leave a reservation to the next one: the write that took it never began."""
    with _guard():
        stream = _streams.get(catalog, {}).get(key)
        if stream is not None:
            stream.reserved.append(reserved)


def is_wanted(catalog: Catalog, key: str) -> bool:
    """Tell whether the commit under way had better register the next write."""
    with _guard():
        stream = _streams.get(catalog, {}).get(key)
        return (
            stream is not None
            and not stream.reserved
            and stream.commits >= STREAM_COMMITS
            and time.monotonic() - stream.last < STREAM_SECONDS
        )


def committed(catalog: Catalog, key: str, reserved: str | None) -> None:
    """Say that a write was committed, and with it the registration of the next one."""
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
        # A forked child: what is reserved is its parent's.
        _lock, _process, _streams = threading.Lock(), process, WeakKeyDictionary()
    return _lock
