"""Verb. A lease that this process takes, keeps by a thread of its own, and gives back."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time

from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.base import in_transaction
from lakehouse_source.catalog.sql.leases import Lease
from lakehouse_source.errors import PlakeError

_LOG = logging.getLogger("plake.upkeep")
# How many beats there are in the time of a lease.
BEATS = 3


class HeldLease:
    """The lease `name` of a catalog, for this process."""

    def __init__(self, catalog: Catalog, name: str, lease_seconds: int) -> None:
        self._catalog = catalog
        self._name = name
        self._seconds = lease_seconds
        self._me = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._mine: Lease | None = None
        self._beat_at = 0.0
        self._seen: tuple[Lease, float] | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        """Tell whether nobody else can have taken the lease yet."""
        return self._mine is not None and time.monotonic() - self._beat_at < self._seconds

    @property
    def other(self) -> str | None:
        """Who had the lease when it was asked for last."""
        return None if self._seen is None else self._seen[0].holder

    def hold(self) -> bool:
        """Take the lease, where nobody has it or its holder was silent for its whole time."""
        if self.is_held:
            return True
        self._end_beats()
        with self._catalog.read() as reader:
            found = reader.lease(self._name)
        if found is not None and found.holder != self._me and not self._is_dead(found):
            return False
        if not self._beat(found):
            return False
        if found is not None and found.holder != self._me:
            _LOG.warning("%s gave no sign of life: its work is taken over", found.holder)
        self._seen = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beats, name="plake-lease", daemon=True)
        self._thread.start()
        return True

    def release(self) -> None:
        """Give the lease back, if this process has it."""
        self._end_beats()
        if self._mine is not None:
            self._mine = None
            in_transaction(
                self._catalog,
                self._catalog.redacted_url,
                "",
                lambda tx: tx.release_lease(self._name, self._me),
                resolve=False,
            )

    def _is_dead(self, found: Lease) -> bool:
        now = time.monotonic()
        if self._seen is None or self._seen[0] != found:
            self._seen = found, now
        return now - self._seen[1] >= found.lease_seconds

    def _beat(self, seen: Lease | None) -> bool:
        begin = time.monotonic()

        def take(tx: CatalogTransaction) -> Lease | None:
            return tx.take_lease(self._name, seen, self._me, self._seconds)

        self._mine = in_transaction(
            self._catalog, self._catalog.redacted_url, "", take, resolve=False
        )
        self._beat_at = begin
        return self._mine is not None

    def _beats(self) -> None:
        while self._mine is not None and not self._ended.wait(self._seconds / BEATS):
            try:
                if not self._beat(self._mine):
                    _LOG.warning("another process has taken the work over")
            except PlakeError as error:  # the next beat may come in time
                _LOG.warning("a sign of life failed: %s", error)

    def _end_beats(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
