"""Verb. Decides which files no version needs any more, and deletes only those.

Two kinds of files are deleted: those that only expired versions contain, and orphans, the
files of writes that were given up or whose process died. One transaction decides which
they are (`plan_vacuum`); then the files are deleted, and then their rows in the catalog, and
the commits of expired versions that nothing needs any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TypeVar
from uuid import UUID

from lakehouse_source.arguments import flag, number_of_seconds
from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.base import ABANDONED_SECONDS, check_owner, in_transaction
from lakehouse_source.catalog.sql.write_states import WriteState
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, StorageError
from lakehouse_source.maintenance.dataset_folder import (
    ELSEWHERE,
    NOT_OURS,
    OTHER_DATASET,
    FolderPrefixes,
    OwnFiles,
    lock_branches,
    newest_versions,
    remove_empty_folders,
)
from lakehouse_source.maintenance.reports import Tallies, VacuumReport
from lakehouse_source.model import ExpiredFile
from lakehouse_source.parquet.names import is_iceberg_file, is_vector_file, own_name
from lakehouse_source.progress import VACUUM, counted, milliseconds
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import existing
from lakehouse_source.storage import FoundFile, Storage, split_shared

# --- Decides which files of a dataset no version needs any more; deletes nothing.
#
# That no needed file is deleted depends on the order of events, and never on the clock of this
# machine or of a file system:
#
# 1. The files are listed.
# 2. The catalog is read, under the dataset's lock. A write is registered before its first
#    byte, so the catalog knows the write of every listed file: it was committed, may still
#    commit, or was given up. A file of an unknown write belongs to somebody else, and stays.
# 3. The same transaction fences the writes whose orphans will be deleted. Once it is
#    committed, none of these writes can commit any more.
#
# Ages decide only whether a file is deleted now or by a later vacuum. They are differences between
# the database's clock and the times in the catalog, for orphans the time in their names.


RETENTION_SECONDS = 7 * 24 * 3600.0
# With a shorter retention, running queries may lose their files, so it needs a flag.
SHORTEST_RETENTION_SECONDS = 3600.0

READABLE = "a version that can be read has it"
CLONED = "a clone has it"
YOUNG = "younger than the retention"
PENDING = "its write may still be going on"
EXPIRED = "only expired versions had it"
ORPHAN = "no version has it and its write is over"
UNKNOWN = "this catalog has not recorded its write"


@dataclass(frozen=True, slots=True)
class VacuumOptions:
    """What a vacuum may delete. Ages are in seconds.

    `of_any_age`: files that no version needs are deleted now, as after an erasure.
    """

    retention_seconds: float = RETENTION_SECONDS
    dry_run: bool = False
    allow_short_retention: bool = False
    abandoned_after_seconds: float = ABANDONED_SECONDS
    of_any_age: bool = False

    def check(self) -> None:
        """Check the ages; short ones are dangerous and need `allow_short_retention`."""
        flag("dry_run", self.dry_run)
        flag("allow_short_retention", self.allow_short_retention)
        for name, seconds in (
            ("retention_seconds", self.retention_seconds),
            ("abandoned_after_seconds", self.abandoned_after_seconds),
        ):
            # Databases know no numbers of NumPy.
            seconds = number_of_seconds(name, seconds, 100 * 365 * 24 * 3600)
            object.__setattr__(self, name, seconds)
            if seconds < SHORTEST_RETENTION_SECONDS and not self.allow_short_retention:
                raise InvalidOptionError(
                    option=name,
                    value=seconds,
                    reason=f"is below {SHORTEST_RETENTION_SECONDS:g} seconds: queries and writes "
                    "that run now may lose their files. If there are none, say "
                    "allow_short_retention=True.",
                )


@dataclass(frozen=True, slots=True)
class FileToDelete:
    """A file to delete and the reason; `row_ids` are the rows of `files` that name it."""

    path: str
    size_bytes: int
    why: str
    row_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """What a vacuum deletes, and what it keeps and why.

    `rows_to_forget` are ids of rows of `files` to delete whose files stay, and `vectors_to_forget`
    Puffin files of other datasets whose rows are deleted. `iceberg_rows` are rows of
    `iceberg_files`, by dataset, which are forgotten once the file of each is deleted.
    """

    to_delete: list[FileToDelete]
    kept: Tallies
    rows_to_forget: tuple[int, ...]
    vectors_to_forget: Sequence[str]
    folder_prefixes: Sequence[FolderPrefixes]
    iceberg_rows: Mapping[int, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Orphan:
    file: FoundFile
    write_id: str
    born: datetime


class VacuumPlanner:
    """Sorts the listed files, in one transaction, under the dataset's lock.

    A dataset and its branches are planned as one: they share their folder and many files.
    `listed` are all files below the dataset's URI.

    Raises:
        DatasetNotFoundError
    """

    def __init__(
        self,
        tx: CatalogTransaction,
        catalog: Catalog,
        address: Address,
        listed: Sequence[FoundFile],
        options: VacuumOptions,
    ) -> None:
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        self.tx = tx
        self.uri = address.uri
        self.record = record
        # The files of branches are in the same folder, and some are in several of these datasets.
        self.datasets = [record, *lock_branches(tx, record)]
        if not options.dry_run:
            ended = tx.abandoned_branches(record.id, options.abandoned_after_seconds)
            for id in ended:
                tx.expire_branch(record.id, id)
                tx.drop_dataset(id)
            self.datasets = [one for one in self.datasets if one.id not in ended]
            for one in self.datasets:  # a file that only a dropped tag kept expires now
                tx.expire(one.id, one.oldest_version)
        self.listed = listed
        self.options = options
        self.now = tx.now()
        self.retention = timedelta(seconds=options.retention_seconds)
        if options.of_any_age:
            # The times in names of files may be ahead of the database's clock.
            self.retention = timedelta.min
        self.own = OwnFiles.of(tx, self.datasets, address.uri)
        # Rows of clones, expired ones too: their vacuums forget those after their own retention.
        self.shared_names = {_name(path) for path in tx.shared_paths(record.id)}
        self.kept = Tallies()
        self.to_delete: list[FileToDelete] = []

    def plan(self, versions: Mapping[int, int] | None) -> VacuumPlan | None:
        """Decide about every file, and fence the writes whose orphans are deleted.

        `versions` are the `newest_versions` before the files were listed. The result is None if no
        file of a readable version was listed and something was committed since then: list the files
        again. Without `versions` this is an error.

        Raises:
            CorruptDatasetError: no file of a readable version is among those listed.
        """
        readable: set[str] = set()
        known: set[str] = set()
        for dataset in self.datasets:
            of_versions, of_catalog = self.tx.paths(dataset)
            readable |= of_versions
            known |= of_catalog
        # Compared by name, not by path: names are globally unique, so a file does not look unknown
        # because its path is spelled differently (a link, an encoding, a scheme; iceberg#2890).
        readable_names = {_name(path) for path in readable}
        known_names = {_name(path) for path in known}
        own = {_name(path) for path in readable if split_shared(path)[0] is None}
        if self._is_outdated(own, versions):
            return None
        rows_to_forget = self._plan_expired(readable_names)
        vectors_to_forget = self._plan_expired_vectors(readable_names)
        iceberg_rows = self._plan_iceberg_files(known_names)
        orphans: list[_Orphan] = []
        for file in self.listed:
            name = _name(file.path)
            if name in readable_names:
                self.kept.add(READABLE, file.path, file.size_bytes)
            elif name in known_names:
                continue  # its rows decided above
            elif name in self.shared_names:
                self.kept.add(CLONED, file.path, file.size_bytes)
            elif self.own.is_others(file.path):
                self.kept.add(OTHER_DATASET, file.path, file.size_bytes)
            else:
                orphans += self._possible_orphan(file, name)
        self._plan_orphans(orphans)
        return VacuumPlan(
            self.to_delete,
            self.kept,
            rows_to_forget,
            vectors_to_forget,
            self.own.prefixes,
            iceberg_rows,
        )

    def _is_outdated(self, readable_names: set[str], versions: Mapping[int, int] | None) -> bool:
        """`readable_names` are those of files in the dataset's own folder."""
        if not readable_names or any(_name(file.path) in readable_names for file in self.listed):
            return False
        now = {one.id: one.current_version for one in self.datasets}
        if versions is None or versions == now:
            raise CorruptDatasetError(
                path=self.uri,
                reason=f"not one of the {len(readable_names)} files of its versions is there. "
                "Nothing was deleted; check that this is the dataset's place",
            )
        return True

    def _plan_expired(self, readable_names: set[str]) -> tuple[int, ...]:
        """Decide about the files of expired versions; returns rows whose files stay."""
        rows: dict[str, list[int]] = {}
        newest: dict[str, datetime] = {}
        sizes: dict[str, int] = {}
        for file in (file for each in self.datasets for file in self.tx.expired_files(each)):
            rows.setdefault(file.path, []).append(file.id)
            newest[file.path] = max(newest.get(file.path, file.expired_at), file.expired_at)
            sizes[file.path] = file.size_bytes
        rows_to_forget: list[int] = []
        for path, ids in rows.items():
            size = sizes[path]
            if self.now - newest[path] < self.retention:
                if _name(path) not in readable_names:
                    self.kept.add(YOUNG, path, size)
            elif _name(path) in readable_names or split_shared(path)[0] is not None:
                rows_to_forget += ids
            elif _name(path) in self.shared_names:
                self.kept.add(CLONED, path, size)  # its rows stay: they tell whose it is
            elif (refusal := self.own.refusal(path, recorded=True)) is not None:
                # A file that this dataset did not write: its row is deleted, the file never.
                self.kept.add(refusal, path, size)
                rows_to_forget += () if refusal == ELSEWHERE else ids
            else:
                self.to_delete.append(FileToDelete(path, size, EXPIRED, tuple(ids)))
        return tuple(rows_to_forget)

    def _plan_expired_vectors(self, readable_names: set[str]) -> list[str]:
        """Decide about files whose deletion vectors belong to expired versions.

        Returns those in the folders of other datasets.
        """
        elsewhere: list[str] = []
        newest: dict[str, ExpiredFile] = {}
        for file in (file for each in self.datasets for file in self.tx.expired_vectors(each)):
            before = newest.get(file.path, file)
            newest[file.path] = max(before, file, key=lambda one: one.expired_at)
        for path, file in newest.items():
            if _name(path) in readable_names:
                continue  # another vector in the file is needed
            if split_shared(path)[0] is not None:
                if self.now - file.expired_at >= self.retention:
                    elsewhere.append(path)
                continue
            if _name(path) in self.shared_names:
                self.kept.add(CLONED, path, file.size_bytes)
                continue
            refusal = self.own.refusal(path) or (None if is_vector_file(path) else NOT_OURS)
            if refusal is not None:
                self.kept.add(refusal, path, file.size_bytes)
            elif self.now - file.expired_at < self.retention:
                self.kept.add(YOUNG, path, file.size_bytes)
            else:
                self.to_delete.append(FileToDelete(path, file.size_bytes, EXPIRED))
        return elsewhere

    def _plan_iceberg_files(self, known_names: set[str]) -> Mapping[int, Sequence[str]]:
        """Decide about files for readers of Iceberg; returns the rows to delete with their files.

        The names of all these files are added to `known_names`.
        """
        needed: dict[str, str] = {}
        old: dict[int, list[str]] = {}
        paths: set[str] = set()
        for dataset in self.datasets:
            tags = set(self.tx.tags(dataset.id).values())
            for row in self.tx.iceberg.all(dataset.id):
                kept = [one for one in row.paths if is_iceberg_file(one)]
                paths.update(kept)
                is_current = row.erased_version == dataset.properties.erased_version
                age = None if row.expired_at is None else self.now - row.expired_at
                if is_current and (row.version >= dataset.oldest_version or row.version in tags):
                    needed.update(dict.fromkeys(kept, READABLE))
                elif is_current and (age is None or age < self.retention):
                    needed.update(dict.fromkeys(kept, YOUNG))
                else:
                    old.setdefault(dataset.id, []).append(row.path)
        listed = {file.path: file.size_bytes for file in self.listed}
        for path in sorted(paths):
            known_names.add(_name(path))
            if path not in listed:
                continue
            if path in needed:
                self.kept.add(needed[path], path, listed[path])
            elif (refusal := self.own.refusal(path)) is not None:
                self.kept.add(refusal, path, listed[path])
            else:
                self.to_delete.append(FileToDelete(path, listed[path], EXPIRED))
        return old

    def _possible_orphan(self, file: FoundFile, name: str) -> list[_Orphan]:
        ids, refusal = own_name(name), self.own.refusal(file.path)
        if ids is None or refusal is not None:
            self.kept.add(refusal or NOT_OURS, file.path, file.size_bytes)
            return []
        return [_Orphan(file, str(ids[0]), max(map(_time_in, ids)))]

    def _plan_orphans(self, orphans: Sequence[_Orphan]) -> None:
        states = self.tx.write_states({orphan.write_id for orphan in orphans})
        # The limit of this vacuum decides, also for writes that another limit marked as abandoned.
        silent = self.tx.silent_writes(self.options.abandoned_after_seconds)
        fenced: set[str] = set()
        own = {dataset.id for dataset in self.datasets}
        for orphan in orphans:
            state = states.get(orphan.write_id)
            why = ""
            may_go_on = state is not None and state.state.may_commit
            if may_go_on and orphan.write_id not in silent:
                why = PENDING
            elif state is None or state.dataset_id is None:
                why = UNKNOWN  # it belongs to another catalog, whatever its name says
            elif state.dataset_id not in own:
                why = OTHER_DATASET
            elif self.now - orphan.born < self.retention:
                why = YOUNG
            if why:
                self.kept.add(why, orphan.file.path, orphan.file.size_bytes)
                continue
            committed = state is not None and state.state is WriteState.COMMITTED
            if not (committed or self.options.dry_run or orphan.write_id in fenced):
                if not self.tx.fence_write(orphan.write_id):
                    # Never expected: a commit needs the lock that is held here.
                    self.kept.add(PENDING, orphan.file.path, orphan.file.size_bytes)
                    continue
                fenced.add(orphan.write_id)
            self.to_delete.append(FileToDelete(orphan.file.path, orphan.file.size_bytes, ORPHAN))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _time_in(uuid7: UUID) -> datetime:
    """The time (UTC) in a UUIDv7: its first 48 bits are milliseconds since 1970.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = min(uuid7.int >> 80, 253_402_300_799_000)
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)


DELETES_AT_ONCE = 16

REFUSED = "its path leads out of the dataset"
UNDELETED = "could not be deleted: "


def vacuum_dataset(
    catalog: Catalog, address: Address, options: VacuumOptions, *, progress: bool | None = None
) -> VacuumReport:
    """Delete the files that a dataset and its branches do not need; report what was kept and why.

    Raises:
        CorruptDatasetError: the folder contains no file of a readable version; nothing
            was deleted.
        ForeignFolderError: the folder belongs to another catalog; nothing was deleted.
        StorageError: the folder cannot be listed.
    """
    began = time.perf_counter()
    options.check()
    address.refuse_branch("Vacuum the dataset, which vacuums its branches too.")

    def begin(tx: CatalogTransaction) -> None:
        # A login that may not remove commits is refused before a file is deleted.
        tx.forget_commits(0, ())
        tx.mark_abandoned(options.abandoned_after_seconds)

    if not options.dry_run:
        # In a transaction of its own: the locks on other writes, taken with the dataset's lock,
        # could deadlock with a transaction that takes these locks in the other order.
        in_transaction(
            catalog,
            address.uri,
            "",
            begin,
            resolve=False,
        )
    storage = Storage(address.location)
    if not options.dry_run:
        with catalog.read() as reader:
            existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
        check_owner(catalog, storage)
    with catalog.read() as reader:
        versions = newest_versions(reader, address)
    plan = _plan(catalog, address, storage, options, versions)
    if plan is None:
        # The first files of the dataset were committed after the listing.
        plan = _plan(catalog, address, storage, options, None)
        assert plan is not None  # without `versions`, missing files are an error
    if options.dry_run:
        deleted = plan.to_delete
        forgotten, commits, folders = 0, 0, 0
    else:
        deleted = _delete_all(storage, plan.to_delete, plan.kept, progress)
        forgotten = _forget_rows(catalog, address, plan, deleted)
        commits = _forget_commits(catalog, address, options.retention_seconds)
        folders = remove_empty_folders(storage, plan.folder_prefixes)
    removed = Tallies()
    for file in deleted:
        removed.add(file.why, file.path, file.size_bytes)
    report = VacuumReport(
        dataset=address.uri,
        dry_run=options.dry_run,
        removed=removed.done(),
        left=plan.kept.done(),
        folders_removed=folders,
        rows_forgotten=forgotten,
        commits_forgotten=commits,
    )
    if not options.dry_run:
        kept = sum(one.files for one in report.left)
        text = "%s: %d files deleted, %d kept, %.1f ms"
        VACUUM.info(text, address.uri, len(deleted), kept, milliseconds(began))
    return report


def _plan(
    catalog: Catalog,
    address: Address,
    storage: Storage,
    options: VacuumOptions,
    versions: Mapping[int, int] | None,
) -> VacuumPlan | None:
    listed = list(storage.files())

    def plan(tx: CatalogTransaction) -> VacuumPlan | None:
        planner = VacuumPlanner(tx, catalog, address, listed, options)
        return planner.plan(versions)

    return in_transaction(catalog, address.uri, "", plan, resolve=False)


# --- deleting ----------------------------------------------------------------------

T = TypeVar("T")
R = TypeVar("R")


def _delete_all(
    storage: Storage, files: Sequence[FileToDelete], kept: Tallies, progress: bool | None
) -> list[FileToDelete]:
    """Delete files in parallel; returns the deleted ones and counts the others as kept."""

    def delete(file: FileToDelete) -> str:
        try:
            storage.delete(file.path)
        except CorruptDatasetError:
            return REFUSED
        except StorageError as error:
            return UNDELETED + error.reason
        return ""

    deleted: list[FileToDelete] = []
    for file, failure in zip(files, in_parallel(delete, files, progress, "deleting")):
        if failure:
            kept.add(failure, file.path, file.size_bytes)
        else:
            deleted.append(file)
    return deleted


def in_parallel(
    work: Callable[[T], R], files: Sequence[T], progress: bool | None, label: str
) -> Iterable[R]:
    """The results of `work` for each file, in order, with a progress bar."""
    with ThreadPoolExecutor(DELETES_AT_ONCE, thread_name_prefix="plake-files") as pool:
        done = pool.map(work, files)
        yield from counted(done, progress, label=label, unit="files", total=len(files))


def _forget_rows(
    catalog: Catalog, address: Address, plan: VacuumPlan, deleted: Iterable[FileToDelete]
) -> int:
    # After the files are deleted: a crash in between leaves rows of expired versions whose
    # files are missing, which no reader reads and the next vacuum finds again. The other order
    # could leave files that only a listing finds.
    ids = [*plan.rows_to_forget, *(row for file in deleted for row in file.row_ids)]
    for start in range(0, len(ids), 5000):
        forget = partial(CatalogTransaction.forget_files, file_ids=ids[start : start + 5000])
        in_transaction(catalog, address.uri, "", forget, resolve=False)
    deleted_paths = {file.path for file in deleted}
    paths = sorted(path for path in deleted_paths if is_vector_file(path))
    paths += plan.vectors_to_forget
    # A list that could not be deleted is tried again by the next vacuum.
    kept = {file.path for file in plan.to_delete} - deleted_paths

    def forget_iceberg(tx: CatalogTransaction) -> None:
        for dataset_id, rows in plan.iceberg_rows.items():
            tx.iceberg.forget(dataset_id, [row for row in rows if row not in kept])

    if plan.iceberg_rows:
        in_transaction(catalog, address.uri, "", forget_iceberg, resolve=False)

    def forget_vectors(tx: CatalogTransaction) -> None:
        record = tx.lock_dataset(address.key)
        if record is not None:
            for dataset in (record, *lock_branches(tx, record)):
                tx.forget_vectors(dataset, paths)

    if paths:
        in_transaction(catalog, address.uri, "", forget_vectors, resolve=False)
    return len(ids)


def _forget_commits(catalog: Catalog, address: Address, retention_seconds: float) -> int:
    """Remove old commits of expired versions from the history; returns how many."""
    with catalog.read() as reader:
        ids = newest_versions(reader, address)
        found = {one: reader.commits_to_forget(one, retention_seconds) for one in ids}
    # Without the lock of the dataset, so that commits do not wait: a commit that nothing needs now
    # is not needed later.
    for dataset_id, versions in found.items():
        for start in range(0, len(versions), 5000):
            forget = partial(
                CatalogTransaction.forget_commits,
                dataset_id=dataset_id,
                versions=versions[start : start + 5000],
            )
            in_transaction(catalog, address.uri, "", forget, resolve=False)
    return sum(map(len, found.values()))
