"""Verb. The steps of upkeep for one dataset, by its properties: each is a commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse_source.arguments import number_of_seconds, whole_number
from lakehouse_source.catalog import Catalog
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.maintenance.expiry import expire_versions
from lakehouse_source.maintenance.vacuum import RETENTION_SECONDS, VacuumOptions
from lakehouse_source.properties import Layout
from lakehouse_source.read.address import Address
from lakehouse_source.read.file_arrays import clustering_columns
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.write.layout import compact, look, sort_piece
from lakehouse_source.write.statements.delete_and_update import delete_expired

# A compaction rewrites no more than this at once: what is lost when it is ended.
STEP_BYTES = 512 * 1024 * 1024
# Fewer small files of a partition are left alone, where `auto_compact_min_files` says nothing.
MIN_FILES = 10
_DAY = 24 * 3600.0
_LONGEST = 366 * _DAY
_LEAST_MEMORY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What upkeep does where the properties of a dataset say nothing, and its limits.

    `compact`: None rewrites the datasets with `auto_compact`, True all but those where it is
    False. `keep_seconds` and `keep_last` expire versions of datasets without `keep_versions` and
    `keep_versions_seconds`. `vacuum_every` is the time in seconds between two looks for files to
    delete. `max_memory` is in bytes of Arrow's memory.
    """

    compact: bool | None = None
    keep_seconds: float | None = None
    keep_last: int | None = None
    retention_seconds: float = RETENTION_SECONDS
    allow_short_retention: bool = False
    vacuum_every: float = _DAY
    max_bytes_per_hour: int | None = None
    max_memory: int | None = None
    lease_seconds: int = 60
    storage_options: Mapping[str, Any] | None = None

    @property
    def vacuuming(self) -> VacuumOptions:
        """How files are deleted."""
        return VacuumOptions(self.retention_seconds, False, self.allow_short_retention)

    def check(self) -> None:
        """Check everything that needs no dataset.

        Raises:
            InvalidOptionError
        """
        self.vacuuming.check()
        for name in ("keep_seconds", "vacuum_every"):
            if getattr(self, name) is not None:
                number_of_seconds(name, getattr(self, name), 100 * _LONGEST)
        for name, least in (
            ("keep_last", 1),
            ("max_bytes_per_hour", 1),
            ("max_memory", _LEAST_MEMORY),
            ("lease_seconds", 1),
        ):
            value = getattr(self, name)
            if value is not None and whole_number(name, value) < least:
                raise InvalidOptionError(
                    option=name, value=value, reason=f"must be at least {least}."
                )

    def rewrites(self, layout: Layout) -> bool:
        """Tell whether files of a dataset are to be rewritten."""
        chosen = layout.auto_compact
        return bool(chosen) if self.compact is None else self.compact and chosen is not False

    def limits(self, layout: Layout) -> tuple[float | None, int | None]:
        """The seconds, and the number, of the versions that a dataset keeps."""
        own = layout.keep_versions_seconds, layout.keep_versions
        return (self.keep_seconds, self.keep_last) if own == (None, None) else own


class Budget:
    """The bytes that may still be rewritten: they come in evenly, and those of an hour are kept.

    There are none at first, so that a process that is started again and again stays below, too.
    """

    def __init__(self, per_hour: int | None) -> None:
        self._per_hour = per_hour
        self._left = 0.0
        self._at = time.monotonic()

    def most(self) -> int | None:
        """How many bytes the next step may rewrite; None: any number.

        With those of a whole hour, a step that needs more than an hour's bytes may begin.
        """
        if self._per_hour is None:
            return None
        now = time.monotonic()
        self._left += (now - self._at) * self._per_hour / 3600
        self._at = now
        if self._left >= self._per_hour:
            self._left = float(self._per_hour)
            return None
        return max(0, int(self._left))

    def spend(self, size_bytes: int) -> None:
        """Count bytes that were rewritten."""
        self._left -= size_bytes


@dataclass(frozen=True, slots=True)
class Done:
    """What one step did: to how many files (of `expire_rows`: rows) and bytes."""

    step: str
    files: int
    size_bytes: int = 0


def steps(
    catalog: Catalog,
    address: Address,
    settings: Settings,
    budget: Budget,
    check: Callable[[], object],
) -> Iterator[Done]:
    """Do what a dataset needs, step by step; `check` may raise to end it, between two batches.

    Raises:
        CommitConflictError: others changed the same rows or files: it is done the next time.
        PlakeError
    """
    snapshot, branch = _look(catalog, address)
    properties = snapshot.dataset.properties
    if properties.expire_rows is not None and branch is None:
        deleted = delete_expired(catalog, address, properties.expire_rows).rows_deleted
        if deleted:
            yield Done("expire_rows", deleted)
    if settings.rewrites(properties.layout):
        for done in _rewrites(catalog, address, snapshot, budget, check):
            budget.spend(done.size_bytes)
            yield done
    keep_seconds, keep_last = settings.limits(properties.layout)
    if keep_seconds is not None or keep_last is not None:
        report = expire_versions(catalog, address, keep_seconds=keep_seconds, keep_last=keep_last)
        if report.expired:
            yield Done("expire_versions", report.files, report.size_bytes)


def compaction(layout: Layout) -> dict[str, Any]:
    """By which rule small files of a dataset are compacted."""
    return {"min_files": layout.auto_compact_min_files or MIN_FILES, "repeated": True}


def _look(catalog: Catalog, address: Address) -> tuple[Snapshot, str | None]:
    """The newest version, and a branch that begins with it: a commit would end `fast_forward`."""
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
        branches = reader.branches(snapshot.dataset.id).values()
    at = (one.name for one in branches if one.base_version == snapshot.version)
    return snapshot, next(at, None)


def waits_for(catalog: Catalog, address: Address) -> str | None:
    """The branch for whose `fast_forward` a dataset is not rewritten."""
    return _look(catalog, address)[1]


def _rewrites(
    catalog: Catalog,
    address: Address,
    snapshot: Snapshot,
    budget: Budget,
    check: Callable[[], object],
) -> Iterator[Done]:
    layout = snapshot.dataset.properties.layout
    try:
        is_clustered = bool(layout.cluster_by and clustering_columns(snapshot))
    except InvalidOptionError:  # by partition columns alone
        is_clustered = False
    while is_clustered and waits_for(catalog, address) is None:
        found = look(catalog, address, full=False, max_bytes=None)
        piece = next(iter(found.pieces), None)  # the smallest
        most = budget.most()
        if piece is None or (most is not None and piece.size_bytes > most):
            break
        done = sort_piece(catalog, address, found.columns, piece, check)
        yield Done("cluster", done.files_removed, done.bytes_removed)
    while waits_for(catalog, address) is None:
        most = budget.most()
        done = compact(
            catalog,
            address,
            PredicateSet.of(None),
            **compaction(layout),
            max_bytes=STEP_BYTES if most is None else min(STEP_BYTES, most),
            check=check,
        )
        if not done.files_removed:
            break
        yield Done("compact", done.files_removed, done.bytes_removed)
