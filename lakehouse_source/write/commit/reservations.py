"""Writes that are registered ahead: in a stream of small commits, each registers the next write.

A write is registered before its first byte, so that vacuum leaves its files alone. That is a
database transaction of its own, which takes as long as the commit of a small write. Where commits
of one process follow one another closely, each commit therefore registers the next write in its
own transaction. A reservation that no write takes is a pending write without files; it is
abandoned later, like the write of a process that died.

Spark commits in another process than the one in which its statements begin. There it is the
begins that follow one another closely, and one of them registers the writes of the next ones.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import uuid6

from lakehouse_source.catalog.base import Catalog

# A stream is at least this many commits, each at most this long after the one before.
STREAM_COMMITS = 8
STREAM_SECONDS = 1.0
# As many begins, each at most STREAM_SECONDS after the one before, are followed by more; then so
# many are registered with one.
STREAM_BEGINS = 4
BEGINS_AHEAD = 8
# How long a reservation can be used; far below the age at which a pending write is abandoned.
RESERVED_SECONDS = 10.0


@dataclass(slots=True)
class _Stream:
    """Commits, or begins, that follow one another; the last one, and the last registration."""

    commits: int = 0
    last: float = 0.0
    registered: float = 0.0
    # Write ids: one for each thread that commits at the same time, or for each begin that follows.
    reserved: list[str] = field(default_factory=list)

    def note(self, now: float) -> None:
        self.commits = self.commits + 1 if now - self.last < STREAM_SECONDS else 1
        self.last = now


_lock = threading.Lock()
_process = os.getpid()
# By catalog object and dataset key: a stream is one writer that keeps its catalog open.
_streams: WeakKeyDictionary[Catalog, dict[str, _Stream]] = WeakKeyDictionary()
# By the catalog's URL and dataset key: begins of statements, each of which opens its catalog.
_begins: dict[tuple[str, str], _Stream] = {}


def _stream(catalog: Catalog, key: str, ahead: bool) -> _Stream | None:
    return _begins.get((catalog.url, key)) if ahead else _streams.get(catalog, {}).get(key)


def take(catalog: Catalog, key: str, ahead: bool = False) -> tuple[str | None, list[str]]:
    """The id of a write that is registered already, and the ids that are too old to use.

    The caller deletes the old registrations from the catalog. `ahead`: a begin registered it.
    """
    with _guard():
        stream = _stream(catalog, key, ahead)
        if stream is None or not stream.reserved:
            return None, []
        if time.monotonic() - stream.registered < RESERVED_SECONDS:
            return stream.reserved.pop(), []
        stale, stream.reserved = stream.reserved, []
        return None, stale


def give_back(catalog: Catalog, key: str, reserved: str, ahead: bool = False) -> None:
    """Return a reservation: the write that took it did not begin."""
    with _guard():
        stream = _stream(catalog, key, ahead)
        if stream is not None:
            stream.reserved.append(reserved)


def begins_ahead(catalog: Catalog, key: str) -> list[str]:
    """Note a begin; new ids of the writes that it should register for those that follow."""
    now = time.monotonic()
    with _guard():
        for old in [one for one, of in _begins.items() if now - of.last >= RESERVED_SECONDS]:
            if old != (catalog.url, key):  # its reservations are told by `take`
                del _begins[old]
        stream = _begins.setdefault((catalog.url, key), _Stream())
        stream.note(now)
        wanted = stream.commits >= STREAM_BEGINS and not stream.reserved
    return [str(uuid6.uuid7()) for _ in range(BEGINS_AHEAD)] if wanted else []


def registered_ahead(catalog: Catalog, key: str, write_ids: Sequence[str]) -> None:
    """Note that a begin registered the writes of the begins that follow it."""
    with _guard():
        stream = _begins.get((catalog.url, key))
        if stream is not None and write_ids:
            stream.registered = time.monotonic()
            stream.reserved.extend(write_ids)


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
        stream.note(now)
        stream.registered = now
        if reserved is not None:
            stream.reserved.append(reserved)


def _guard() -> threading.Lock:
    global _lock, _process, _streams, _begins
    process = os.getpid()
    if process != _process:
        # A forked child: the reservations belong to its parent.
        _lock, _process, _streams = threading.Lock(), process, WeakKeyDictionary()
        _begins = {}
    return _lock
