"""Verb. Deletes files that no version can have any more, and only those.

Two kinds of file go: those that only expired versions have, and orphans, which a
write left behind that was given up or has died. Which they are is decided in one
transaction (`doomed`); then the files are deleted, and then the catalog forgets them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from lakehouse_source.catalog import Catalog, CatalogTransaction, open_catalog
from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.catalog.locate import folder_around, is_default_catalog
from lakehouse_source.catalog.places import OWN_KEY, default_catalog_path
from lakehouse_source.catalog.retry import in_transaction
from lakehouse_source.errors import (
    CorruptDatasetError,
    PlakeError,
    StorageError,
)
from lakehouse_source.maintenance.reports import CatalogVacuumReport, Tallies, VacuumReport
from lakehouse_source.maintenance.vacuum_plan import (
    RETENTION_SECONDS,
    Decision,
    Doomed,
    Judge,
    VacuumOptions,
)
from lakehouse_source.model import DatasetRecord
from lakehouse_source.storage import Storage, local_path

DELETES_AT_ONCE = 16

REFUSED = "its path leads out of the dataset"
UNDELETED = "could not be deleted: "


def vacuum_dataset(
    catalog: Catalog, uri: str, key: str, storage: Storage, options: VacuumOptions
) -> VacuumReport:
    """Delete what may go from one dataset, and say what went, what stayed, and why.

    Raises:
        DatasetNotFoundError, InvalidOptionError, CatalogUnavailableError
        CorruptDatasetError: none of the files that the newest version has is listed;
            nothing was deleted.
        StorageError: the folder cannot be listed.
    """
    options.check()
    if not options.dry_run:
        # In a transaction of its own: locks on others' writes and on the dataset together
        # could meet with somebody who has them the other way round.
        in_transaction(
            catalog,
            uri,
            "",
            lambda tx: tx.mark_abandoned(options.abandoned_after_seconds),
            resolve=False,
        )
    listed = list(storage.files())
    foreign = _is_of_another_catalog(storage, catalog)

    def decide(tx: CatalogTransaction) -> Decision:
        return Judge(tx, catalog, uri, key, listed, foreign, options).decide()

    decision = in_transaction(catalog, uri, "", decide, resolve=False)
    tallies = decision.left
    if options.dry_run:
        gone = decision.doomed
        forgotten, folders = 0, 0
    else:
        gone = _delete_all(storage, decision.doomed, tallies)
        forgotten = _forget(catalog, uri, decision, gone)
        folders = _remove_empty_folders(storage, decision.folder_prefixes)
    removed = Tallies()
    for doomed in gone:
        removed.add(doomed.why, doomed.path, doomed.size_bytes)
    return VacuumReport(
        dataset=uri,
        dry_run=options.dry_run,
        removed=removed.done(),
        left=tallies.done(),
        folders_removed=folders,
        rows_forgotten=forgotten,
    )


def vacuum(
    catalog: str | Catalog | None = None,
    *,
    retention_seconds: float = RETENTION_SECONDS,
    dry_run: bool = False,
    allow_short_retention: bool = False,
    abandoned_after_seconds: float = ABANDONED_SECONDS,
) -> CatalogVacuumReport:
    """Vacuum every dataset of a catalog, as `Dataset.vacuum` does one.

    A dataset that cannot be vacuumed (its folder is gone, its store cannot be reached) is
    named in the report and does not keep the others from it.

    Raises:
        InvalidOptionError, CatalogUnavailableError
    """
    options = VacuumOptions(
        retention_seconds, dry_run, allow_short_retention, abandoned_after_seconds
    )
    options.check()
    if isinstance(catalog, Catalog):
        return _vacuum_all(catalog, options)
    with open_catalog(catalog, create=False) as opened:
        return _vacuum_all(opened, options)


def _vacuum_all(catalog: Catalog, options: VacuumOptions) -> CatalogVacuumReport:
    with catalog.read() as reader:
        records = reader.datasets()
    reports: list[VacuumReport] = []
    failed: list[tuple[str, str]] = []
    for record in records:
        if record.current_version == 0:
            continue
        uri = _place_of(record, catalog)
        if uri is None:
            reason = f"nothing tells which folder {catalog.redacted_url} belongs to"
            failed.append((record.base_uri, reason))
            continue
        try:
            reports.append(vacuum_dataset(catalog, uri, record.base_uri, Storage(uri), options))
        except PlakeError as error:
            failed.append((uri, str(error)))
    return CatalogVacuumReport(tuple(reports), tuple(failed))


def _place_of(record: DatasetRecord, catalog: Catalog) -> str | None:
    """A dataset's URI; one that is registered as `.` is around the catalog's own folder."""
    return folder_around(catalog) if record.base_uri == OWN_KEY else record.base_uri


def _is_of_another_catalog(storage: Storage, catalog: Catalog) -> bool:
    """Tell whether the folder has a catalog of its own that is not this one."""
    root = local_path(storage.uri)
    if root is None or not os.path.exists(default_catalog_path(root)):
        return False
    return not is_default_catalog(catalog, storage.uri)


# --- making it go ------------------------------------------------------------------

T = TypeVar("T")
R = TypeVar("R")


def _delete_all(storage: Storage, doomed: Sequence[Doomed], left: Tallies) -> list[Doomed]:
    """Delete files side by side; answer those that are gone."""

    def delete(file: Doomed) -> str:
        try:
            storage.delete(file.path)
        except CorruptDatasetError:
            return REFUSED
        except StorageError as error:
            return UNDELETED + error.reason
        return ""

    gone: list[Doomed] = []
    for file, failure in zip(doomed, in_parallel(delete, doomed, "vacuum: files deleted")):
        if failure:
            left.add(failure, file.path, file.size_bytes)
        else:
            gone.append(file)
    return gone


def in_parallel(work: Callable[[T], R], items: Sequence[T], what: str) -> Iterable[R]:
    """The results of `work`, in order; counts on a terminal, and only there."""
    shown = sys.stderr.isatty() and len(items) > 1
    with ThreadPoolExecutor(DELETES_AT_ONCE, thread_name_prefix="plake-files") as pool:
        for number, result in enumerate(pool.map(work, items), start=1):
            if shown and (number % 50 == 0 or number == len(items)):
                end = "\n" if number == len(items) else ""
                text = f"\r{what} {number:,} of {len(items):,}"
                print(text, end=end, file=sys.stderr, flush=True)
            yield result


def _forget(catalog: Catalog, uri: str, decision: Decision, gone: Iterable[Doomed]) -> int:
    # After the files: a crash in between leaves rows of expired versions whose files
    # are missing, which nobody reads and the next vacuum finds again. The other order
    # would leave files that nothing but a listing can find.
    ids = [*decision.spare_rows, *(row for doomed in gone for row in doomed.row_ids)]
    for start in range(0, len(ids), 5000):
        forget = partial(CatalogTransaction.forget_files, file_ids=ids[start : start + 5000])
        in_transaction(catalog, uri, "", forget, resolve=False)
    return len(ids)


def _remove_empty_folders(storage: Storage, prefixes: Sequence[str]) -> int:
    """Remove partition folders in which nothing is left, on local disks."""
    root = local_path(storage.uri)
    if root is None or not prefixes:
        return 0
    removed = 0
    for folder, _folders, _files in os.walk(root, topdown=False):
        parts = os.path.relpath(folder, root).split(os.sep)
        ours = len(parts) <= len(prefixes) and all(
            part.startswith(prefix) for part, prefix in zip(parts, prefixes)
        )
        if ours and folder != root:
            # It fails where the folder is not empty, or has just got a file.
            with suppress(OSError):
                os.rmdir(folder)
                removed += 1
    return removed
