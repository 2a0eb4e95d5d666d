"""Verb. Deletes files that no version needs any more, and only those.

Two kinds of files are deleted: those that only expired versions contain, and orphans, the
files of writes that were given up or whose process died. One transaction decides which
they are (`vacuum_plan`); then the files are deleted, and then their rows in the catalog, and
the commits of expired versions that nothing needs any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from lakehouse_source.catalog import Catalog, CatalogTransaction
from lakehouse_source.catalog.owners import check_owner
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import (
    CorruptDatasetError,
    InvalidOptionError,
    StorageError,
)
from lakehouse_source.logs import VACUUM, milliseconds
from lakehouse_source.maintenance.dataset_folder import (
    lock_branches,
    newest_versions,
    remove_empty_folders,
)
from lakehouse_source.maintenance.reports import Tallies, VacuumReport
from lakehouse_source.maintenance.vacuum_plan import (
    FileToDelete,
    VacuumOptions,
    VacuumPlan,
    VacuumPlanner,
)
from lakehouse_source.parquet.names import is_vector_file
from lakehouse_source.progress import counted
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import existing
from lakehouse_source.storage import Storage

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
    if address.is_branch:
        raise InvalidOptionError(
            option="path",
            value=address.uri,
            reason="is a branch. Vacuum the dataset, which vacuums its branches too.",
        )

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
