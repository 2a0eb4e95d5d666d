"""Verb. Rounds of upkeep over the datasets of a catalog: one process at a time, again and again.

A dataset that fails is left alone for a while, longer each time, and stops no other. Where the
process is told to end, the rewriting of files stops between two batches and its files are deleted;
a commit that has begun is finished.
The process holds a lease, which a thread of its own keeps.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import interval, size_in_bytes
from lakehouse_source.catalog import Catalog, CatalogTransaction, open_catalog
from lakehouse_source.catalog.base import ABANDONED_SECONDS as _DAY
from lakehouse_source.catalog.base import in_transaction
from lakehouse_source.catalog.locate import uri_of
from lakehouse_source.catalog.sql.leases import Lease
from lakehouse_source.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    InvalidOptionError,
    PlakeError,
)
from lakehouse_source.maintenance.reports import VacuumReport
from lakehouse_source.maintenance.vacuum import RETENTION_SECONDS
from lakehouse_source.maintenance.vacuum_catalog import address_of, vacuum_each
from lakehouse_source.model import DatasetRecord
from lakehouse_source.read.address import Address
from lakehouse_source.read.draw import write_page
from lakehouse_source.read.health import health
from lakehouse_source.storage import redact_uri, split_branch
from lakehouse_source.upkeep.report import State, Table
from lakehouse_source.upkeep.steps import Budget, Done, Settings, compaction, steps, waits_for
from lakehouse_source.write.layout import find_work

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


# A dataset with no commit since the last look is looked at again after this time: rows and versions
# grow old without a commit.
_LOOK_SECONDS = 3600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 6 * 3600.0
_SHORTEST, _LONGEST = 1.0, 366 * _DAY


class _Ended(Exception):
    """This process is to end, or another one has the lease."""


class Upkeep:
    """The upkeep of an open catalog. `metrics` and `page` are texts about the last round."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        settings.check()
        self._catalog = catalog
        self._settings = settings
        self._lease = HeldLease(catalog, "upkeep", settings.lease_seconds)
        self._budget = Budget(settings.max_bytes_per_hour)
        self._stop = threading.Event()
        self._vacuum_at = 0.0
        self.state = State(catalog.redacted_url)
        self._publish()

    def run(
        self,
        every: float,
        stop: threading.Event,
        after: Callable[[], object] = int,
    ) -> None:
        """Make a round every so many seconds until `stop` is set; `after` follows each of them."""
        failed = 0
        try:
            while not stop.is_set():
                begin = time.monotonic()
                pause = every
                try:
                    if not self.round(stop):
                        pause = min(every, self._settings.lease_seconds / BEATS)
                    failed = 0
                except CatalogUnavailableError as error:
                    failed += 1
                    pause = min(every, 2.0**failed)
                    _LOG.warning("%s", error)
                try:
                    after()
                except PlakeError as error:
                    _LOG.warning("%s", error)
                took = time.monotonic() - begin
                stop.wait(max(0.0, pause * random.uniform(0.9, 1.0) - took))
        finally:
            self.release()

    def release(self) -> None:
        """Give the lease back."""
        self._lease.release()

    def round(self, stop: threading.Event | None = None) -> bool:
        """Look at all datasets once; False: another process does it.

        Raises:
            CatalogUnavailableError
        """
        self._stop = stop or self._stop
        begin = time.monotonic()
        state = self.state
        state.leads = self._lease.hold()
        state.other = self._lease.other
        try:
            if state.leads:
                self._round()
                state.rounds += 1
                state.round_seconds = time.monotonic() - begin
                state.round_ended_at = time.time()
        except _Ended:
            pass
        finally:
            self._publish()
        return state.leads

    def _publish(self) -> None:
        self.metrics, self.page = self.state.metrics(), self.state.page()

    def _check(self) -> None:
        if self._stop.is_set() or not self._lease.is_held:
            raise _Ended
        most = self._settings.max_memory
        if most is not None and pa.total_allocated_bytes() > most:
            raise InvalidOptionError(
                option="max_memory",
                value=most,
                reason="is less than this rewriting needs: give more, or smaller files "
                "(target_file_size_bytes, row_group_rows).",
            )

    def _round(self) -> None:
        with self._catalog.read() as reader:
            ending = {one.id for one in reader.dropped_datasets()}
            records = [
                one
                for one in reader.datasets()
                if one.current_version > 0
                and one.id not in ending
                and split_branch(one.base_uri)[1] is None
            ]
            names = {one.dataset_id: str(one) for one in reader.names.datasets()}
        tables = self.state.tables
        for gone in tables.keys() - {one.id for one in records}:
            del tables[gone]
        for record in records:
            uri = uri_of(self._catalog, record.base_uri) or record.base_uri
            name = names.get(record.id) or redact_uri(uri)
            tables.setdefault(record.id, Table(name)).name = name
        # Those that waited longest come first, also where a round is ended early.
        for record in sorted(records, key=lambda one: tables[one.id].looked_at):
            self._check()
            if self._is_due(record):
                self._one(record, tables[record.id])
        if time.monotonic() >= self._vacuum_at:
            self._vacuum()

    def _is_due(self, record: DatasetRecord) -> bool:
        table, now = self.state.tables[record.id], time.monotonic()
        if now < table.retry_at:
            return False
        is_new = table.seen != (record.current_version, record.oldest_version)
        is_behind = bool(table.behind.keys() & {"compact", "cluster"})
        return is_new or is_behind or now - table.looked_at > _LOOK_SECONDS

    def _one(self, record: DatasetRecord, table: Table) -> None:
        try:
            address = address_of(self._catalog, record, self._settings.storage_options)
            if not isinstance(address, Address):
                raise InvalidOptionError(option="table", value=table.name, reason=address)
            try:
                for done in steps(
                    self._catalog, address, self._settings, self._budget, self._check
                ):
                    self.state.add(done, table)
                    _LOG.info("%s: %s, %d files", table.name, done.step, done.files)
                    self._check()
            except CommitConflictError as error:  # the next round has another chance
                _LOG.info("%s: %s", table.name, error)
            self._measure(address, table)
        except (_Ended, CatalogUnavailableError):
            raise
        except Exception as error:
            self._failed(table, error)
        else:
            table.error, table.failed_in_a_row, table.retry_at = "", 0, 0.0
        table.looked_at = time.monotonic()
        pa.default_memory_pool().release_unused()

    def _measure(self, address: Address, table: Table) -> None:
        """Note how a dataset is, and what is to be done about it still."""
        with self._catalog.read() as reader:
            snapshot = address.snapshot(self._catalog, reader)
            report = health(reader, snapshot, ())
            dataset, layout = snapshot.dataset, snapshot.dataset.properties.layout
            behind = {one.action: (one.files, one.size_bytes) for one in report.suggestions}
            small = find_work(reader, snapshot, **compaction(layout)).files
        # By the rule of this process, which leaves a few small files alone.
        behind["compact"] = len(small), sum(file.size_bytes for file in small)
        wanted = {"compact", "cluster"} if self._settings.rewrites(layout) else set()
        table.behind = {
            step: behind[step]
            for step in ("cluster", "compact", "vacuum")
            if behind.get(step, (0, 0))[0] and (step in wanted or step == "vacuum")
        }
        table.version, table.files = report.version, report.files
        table.size_bytes = report.size_bytes
        table.waits_for = waits_for(self._catalog, address)
        table.seen = dataset.current_version, dataset.oldest_version

    def _failed(self, table: Table, error: Exception) -> None:
        table.failures += 1
        table.failed_in_a_row += 1
        table.error = error.code if isinstance(error, PlakeError) else type(error).__name__
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (table.failed_in_a_row - 1))
        table.retry_at = time.monotonic() + pause * random.uniform(0.9, 1.1)
        _LOG.warning("%s is left alone for %.0f s: %s", table.name, pause, error)

    def _vacuum(self) -> None:
        failures = 0
        options, storage = self._settings.vacuuming, self._settings.storage_options
        for one in vacuum_each(self._catalog, options, storage):
            if isinstance(one, VacuumReport):
                if one.files_removed:
                    self.state.add(Done("vacuum", one.files_removed, one.bytes_removed))
                    _LOG.info("%s: vacuum, %d files", one.dataset, one.files_removed)
            else:
                failures += 1
                _LOG.warning("vacuum of %s failed: %s", *one)
            self._check()
        self.state.vacuum_failures = failures
        self.state.vacuum_ended_at = time.time()
        self._vacuum_at = time.monotonic() + self._settings.vacuum_every


def maintain(
    catalog: str | Catalog | None = None,
    *,
    every: float | str | None = None,
    stop: threading.Event | None = None,
    compact: bool | None = None,
    keep_seconds: float | None = None,
    keep_last: int | None = None,
    retention_seconds: float = RETENTION_SECONDS,
    allow_short_retention: bool = False,
    vacuum_every: float | str = _DAY,
    max_bytes_per_hour: int | str | None = None,
    max_memory: int | str | None = None,
    lease_seconds: int = 60,
    metrics_file: str | os.PathLike[str] | None = None,
    html: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> State:
    """Do the upkeep of all datasets of a catalog by their properties, once or again and again.

    Each dataset has the rows of `expire_rows` deleted, is clustered and compacted in small commits,
    and has old versions expired. Then files that no version needs are deleted, as by `vacuum()`. A
    dataset that fails is left alone for half a minute, and longer each time; the others go on.

    One process at a time does it. It has a lease in the catalog; another process waits, and takes
    over where the lease gets no sign of life. A dataset with a branch that begins with its newest
    version is not rewritten, because the branch could not be fast-forwarded then.

    Args:
        every: the time between two rounds, in seconds or as `"10m"`. None: one round.
        stop: ends it when set: between two batches of rows, and never within a commit.
        compact: rewrite files of all datasets but those with `auto_compact=False`. By default only
            of those with `auto_compact=True`.
        keep_seconds, keep_last: as in `expire_versions()`, for datasets that have neither
            `keep_versions` nor `keep_versions_seconds`.
        retention_seconds, allow_short_retention: as in `vacuum()`.
        vacuum_every: the time between two looks for files to delete.
        max_bytes_per_hour: rewrite no more, as bytes or as `"10g"`. They come in evenly.
        max_memory: end a rewriting that takes more of Arrow's memory. A sort takes up to 1 GiB.
        lease_seconds: how long a process may be silent before another one takes over.
        metrics_file: a file for Prometheus, written anew after each round.
        html: a page about what was done and what is behind, written anew after each round.
        storage_options: as in `vacuum()`.

    Raises:
        InvalidOptionError, CatalogUnavailableError

    >>> done = lake.maintain("sqlite:////data/flights/_plake/catalog.db", compact=True)
    >>> done.leads, [table.name for table in done.tables.values()]
    (True, ['file:///data/flights'])
    """
    settings = Settings(
        compact,
        keep_seconds,
        keep_last,
        retention_seconds,
        allow_short_retention,
        interval("vacuum_every", vacuum_every),
        _size("max_bytes_per_hour", max_bytes_per_hour),
        _size("max_memory", max_memory),
        lease_seconds,
        storage_options,
    )
    settings.check()
    pause = None if every is None else interval("every", every)
    opened = catalog if isinstance(catalog, Catalog) else open_catalog(catalog, create=False)
    try:
        upkeep = Upkeep(opened, settings)

        def write() -> None:
            for path, text in ((metrics_file, upkeep.metrics), (html, upkeep.page)):
                if path is not None:
                    write_page(text, path)

        write()  # a path where nothing can be written is an error at once
        if pause is not None:
            upkeep.run(pause, stop or threading.Event(), write)
        else:
            upkeep.round(stop)
            upkeep.release()
            write()
        return upkeep.state
    finally:
        if opened is not catalog:
            opened.close()


def _size(option: str, value: int | str | None) -> int | None:
    return None if value is None else size_in_bytes(option, value)
