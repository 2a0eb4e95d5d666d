"""Verb. Decides which files of a dataset no version can have any more; deletes nothing.

Everything rests on the order of events, never on a clock of this machine or of a
file system:

1. The files are listed.
2. The catalog is asked, under the dataset's lock. A write announces itself before
   its first byte, so what was listed belongs to a write that the catalog knows: one
   that committed, that may still be going on, that was given up.
3. The same transaction fences the writes whose orphans go: once it is committed, none
   of them can be committed, however late its commit comes.

Ages decide only what may go earlier or later. They are the database's clock against
what the catalog recorded, and for orphans against the time in their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from uuid import UUID

from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.catalog.write_states import WriteState
from lakehouse_source.errors import CorruptDatasetError, DatasetNotFoundError, InvalidOptionError
from lakehouse_source.maintenance.reports import Tallies
from lakehouse_source.schema.partitions import partition_folder
from lakehouse_source.storage import FoundFile

RETENTION_SECONDS = 7 * 24 * 3600.0
# Below this a query that runs may lose its files: it needs to be asked for by name.
SHORTEST_RETENTION_SECONDS = 3600.0

_UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_OWN_NAME = re.compile(rf"({_UUID7})-({_UUID7})\.parquet")

REACHED = "a version that can be read has it"
YOUNG = "younger than the retention"
PENDING = "its write may still be going on"
EXPIRED = "only expired versions had it"
ORPHAN = "no version has it and its write is over"
NOT_OURS = "not a name that plake gives"
ELSEWHERE = "not where this dataset puts files"
OTHER_DATASET = "another dataset's"
OTHER_CATALOG = "unknown here, and the folder has a catalog of its own"


@dataclass(frozen=True, slots=True)
class VacuumOptions:
    """What may go. Ages in seconds."""

    retention_seconds: float = RETENTION_SECONDS
    dry_run: bool = False
    allow_short_retention: bool = False
    abandoned_after_seconds: float = ABANDONED_SECONDS

    def check(self) -> None:
        """Refuse what cannot be meant, and what is dangerous unless it is said twice.

        Raises:
            InvalidOptionError
        """
        for name, seconds in (
            ("retention_seconds", self.retention_seconds),
            ("abandoned_after_seconds", self.abandoned_after_seconds),
        ):
            if not 0 <= seconds <= 100 * 365 * 24 * 3600:
                raise InvalidOptionError(
                    option=name, value=seconds, reason="must be a number of seconds from 0."
                )
            if seconds < SHORTEST_RETENTION_SECONDS and not self.allow_short_retention:
                raise InvalidOptionError(
                    option=name,
                    value=seconds,
                    reason=f"is below {SHORTEST_RETENTION_SECONDS:g} seconds: queries and writes "
                    "that run now may lose their files. If there are none, say "
                    "allow_short_retention=True.",
                )


@dataclass(frozen=True, slots=True)
class Doomed:
    """A file to delete; `row_ids` are the catalog's rows that name it."""

    path: str
    size_bytes: int
    why: str
    row_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    doomed: list[Doomed]
    left: Tallies
    # Rows of files that stay because another row, which can be read, has them too.
    spare_rows: tuple[int, ...]
    folder_prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Orphan:
    file: FoundFile
    write_id: str
    born: datetime


class Judge:
    """Goes through what was listed, in one transaction, under the dataset's lock."""

    def __init__(
        self,
        tx: CatalogTransaction,
        catalog: Catalog,
        uri: str,
        key: str,
        listed: Sequence[FoundFile],
        foreign: bool,
        options: VacuumOptions,
    ) -> None:
        record = tx.lock_dataset(key)
        if record is None or record.current_version == 0:
            raise DatasetNotFoundError(dataset=uri, catalog=catalog.redacted_url)
        self.tx = tx
        self.uri = uri
        self.record = record
        self.listed = listed
        self.foreign = foreign
        self.options = options
        self.now = tx.now()
        self.retention = timedelta(seconds=options.retention_seconds)
        keys = record.properties.get("partition_by", ())
        self.folder_prefixes = tuple(
            partition_folder({name: None}).partition("=")[0] + "=" for name in keys
        )
        self.left = Tallies()
        self.doomed: list[Doomed] = []

    def decide(self) -> Decision:
        readable, known = self.tx.paths(self.record)
        # Names, not paths: they are unique in the world, so no spelling of a path (a
        # link, an encoding, a scheme) can make a file look unknown (iceberg#2890).
        readable_names = {_name(path) for path in readable}
        known_names = {_name(path) for path in known}
        self._check_listing(readable_names)
        spare = self._expired(readable_names)
        below_others = self._nested_datasets()
        orphans: list[_Orphan] = []
        for file in self.listed:
            name = _name(file.path)
            if name in readable_names:
                self.left.add(REACHED, file.path, file.size_bytes)
            elif name in known_names:
                continue  # its rows were judged above
            elif any(file.path.startswith(prefix) for prefix in below_others):
                self.left.add(OTHER_DATASET, file.path, file.size_bytes)
            else:
                orphans += self._possible_orphan(file, name)
        self._judge_orphans(orphans)
        return Decision(self.doomed, self.left, spare, self.folder_prefixes)

    def _check_listing(self, readable_names: set[str]) -> None:
        if readable_names and not any(_name(file.path) in readable_names for file in self.listed):
            raise CorruptDatasetError(
                path=self.uri,
                reason=f"not one of the {len(readable_names)} files of its versions is there. "
                "Nothing was deleted; check that this is the dataset's place",
            )

    def _expired(self, readable_names: set[str]) -> tuple[int, ...]:
        """Judge the files that only expired versions have; answer rows that may go alone."""
        rows: dict[str, list[int]] = {}
        newest: dict[str, datetime] = {}
        sizes: dict[str, int] = {}
        for file in self.tx.expired_files(self.record):
            rows.setdefault(file.path, []).append(file.id)
            newest[file.path] = max(newest.get(file.path, file.expired_at), file.expired_at)
            sizes[file.path] = file.size_bytes
        spare: list[int] = []
        for path, ids in rows.items():
            size = sizes[path]
            if self.now - newest[path] < self.retention:
                if _name(path) not in readable_names:
                    self.left.add(YOUNG, path, size)
            elif _name(path) in readable_names:
                spare += ids
            elif not _OWN_NAME.fullmatch(_name(path)):
                # Somebody's own file that was taken in: forgotten, never deleted.
                self.left.add(NOT_OURS, path, size)
                spare += ids
            else:
                self.doomed.append(Doomed(path, size, EXPIRED, tuple(ids)))
        return tuple(spare)

    def _nested_datasets(self) -> list[str]:
        inside = self.uri.rstrip("/") + "/"
        return [
            other.base_uri[len(inside) :] + "/"
            for other in self.tx.datasets()
            if other.base_uri.startswith(inside)
        ]

    def _possible_orphan(self, file: FoundFile, name: str) -> list[_Orphan]:
        match = _OWN_NAME.fullmatch(name)
        if match is None:
            self.left.add(NOT_OURS, file.path, file.size_bytes)
            return []
        folders = file.path.split("/")[:-1]
        ours = len(folders) == len(self.folder_prefixes) and all(
            folder.startswith(prefix) for folder, prefix in zip(folders, self.folder_prefixes)
        )
        if not ours:
            self.left.add(ELSEWHERE, file.path, file.size_bytes)
            return []
        return [_Orphan(file, match.group(1), max(_time_in(part) for part in match.groups()))]

    def _judge_orphans(self, orphans: Sequence[_Orphan]) -> None:
        states = self.tx.write_states({orphan.write_id for orphan in orphans})
        # By this vacuum's own limit, whoever marked the write by another.
        silent = self.tx.silent_writes(self.options.abandoned_after_seconds)
        closed: set[str] = set()
        for orphan in orphans:
            state = states.get(orphan.write_id)
            why = ""
            may_go_on = state is not None and state.state.may_commit
            if may_go_on and orphan.write_id not in silent:
                why = PENDING
            elif state is not None and state.dataset_id not in (None, self.record.id):
                why = OTHER_DATASET
            elif state is None and self.foreign:
                why = OTHER_CATALOG
            elif self.now - orphan.born < self.retention:
                why = YOUNG
            if why:
                self.left.add(why, orphan.file.path, orphan.file.size_bytes)
                continue
            committed = state is not None and state.state is WriteState.COMMITTED
            if not (committed or self.options.dry_run or orphan.write_id in closed):
                if not self.tx.fence_write(orphan.write_id):
                    # Cannot be: a commit needs the lock that is held here.
                    self.left.add(PENDING, orphan.file.path, orphan.file.size_bytes)
                    continue
                closed.add(orphan.write_id)
            self.doomed.append(Doomed(orphan.file.path, orphan.file.size_bytes, ORPHAN))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _time_in(uuid7: str) -> datetime:
    """The time in a UUIDv7: its first 48 bits are milliseconds since 1970.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = min(UUID(uuid7).int >> 80, 253_402_300_799_000)
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)
