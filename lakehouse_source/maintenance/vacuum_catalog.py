"""Verb. Datasets end, and a whole catalog is vacuumed: each dataset, and dropped datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse_source.catalog import Catalog, CatalogReader, CatalogTransaction, open_catalog
from lakehouse_source.catalog.base import (
    ABANDONED_SECONDS,
    check_owner,
    in_transaction,
    release_owner,
)
from lakehouse_source.catalog.locate import uri_of
from lakehouse_source.errors import CatalogUnavailableError, PlakeError, StorageError
from lakehouse_source.maintenance.dataset_folder import (
    OwnFiles,
    lock_branches,
    remove_empty_folders,
)
from lakehouse_source.maintenance.reports import CatalogVacuumReport, Tallies, VacuumReport
from lakehouse_source.maintenance.vacuum import RETENTION_SECONDS, VacuumOptions, vacuum_dataset
from lakehouse_source.model import DatasetRecord
from lakehouse_source.parquet.names import own_name
from lakehouse_source.read.address import Address
from lakehouse_source.storage import (
    FoundFile,
    Storage,
    StorageLocation,
    local_path,
    redact_uri,
    split_branch,
    with_branch,
)

# --- A dataset ends: its rows leave the catalog, and its files the store.
#
# One transaction hides the dataset: when it is dropped with `purge`, or when a vacuum finds that
# its name was dropped long ago. Then its files are deleted, and then its rows. A crash in between
# leaves a dataset that nobody can read; `finish_drops` deletes the rest, as does the next vacuum.


@dataclass(frozen=True, slots=True)
class Ended:
    """The files of a dropped dataset that are or will be deleted; or the reason why they stay."""

    uri: str
    files: Sequence[FoundFile]
    error: PlakeError | None = None


def drop_dataset(tx: CatalogTransaction, base_uri: str) -> None:
    """Hide a dataset and its branches from all readers and writers."""
    record = tx.lock_dataset(base_uri)
    if record is not None:
        for one in (record, *lock_branches(tx, record)):
            tx.drop_dataset(one.id)


def drop_long_dropped(catalog: Catalog, retention_seconds: float) -> None:
    """Hide the managed datasets whose names were dropped longer ago than the retention.

    Their files stay until `end_datasets`, which any vacuum of the catalog calls again.
    """
    with catalog.read() as reader:
        found = reader.names.long_dropped(retention_seconds)
    for one in found:

        def drop(tx: CatalogTransaction, base_uri: str = one.base_uri) -> None:
            record = tx.lock_dataset(base_uri)
            if record is None:
                return
            lock_branches(tx, record)
            # Checked again, under the lock that a commit, `register` and `undrop` take.
            still = tx.names.long_dropped(retention_seconds)
            if any(other.dataset_id == record.id for other in still):
                drop_dataset(tx, base_uri)

        in_transaction(catalog, one.base_uri, "", drop, resolve=False)


def to_be_ended(reader: CatalogReader, retention_seconds: float | None) -> list[DatasetRecord]:
    """Dropped datasets; with a retention, also those that `drop_long_dropped` would drop."""
    found = reader.dropped_datasets()
    for one in () if retention_seconds is None else reader.names.long_dropped(retention_seconds):
        keys = (
            one.base_uri,
            *(with_branch(one.base_uri, b) for b in reader.branches(one.dataset_id)),
        )
        found += [record for key in keys if (record := reader.dataset(key)) is not None]
    return found


def finish_drops(catalog: Catalog, storage_options: Mapping[str, Any] | None = None) -> int:
    """Delete the files and the rows of dropped datasets; returns how many datasets.

    Files that plake did not write stay, as do those of other datasets in the same folder, and
    those of writes that this catalog has not recorded. If a store refuses, the other datasets are
    deleted before the error is raised.

    Raises:
        ForeignFolderError: the folder belongs to another catalog.
        InvalidOptionError: the store of a dataset does not know a storage option.
    """
    with catalog.read() as reader:
        dropped = to_be_ended(reader, None)
    ended = end_datasets(catalog, dropped, storage_options)
    errors = {one.uri: one.error for one in ended if one.error is not None}
    if len(errors) > 1:
        raise StorageError(
            path=", ".join(map(redact_uri, errors)), reason="; ".join(map(str, errors.values()))
        ) from next(iter(errors.values()))
    for error in errors.values():
        raise error
    return len(dropped)


def end_datasets(
    catalog: Catalog,
    dropped: Sequence[DatasetRecord],
    storage_options: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
) -> list[Ended]:
    """Delete the files of dropped datasets, and then their rows; reports each except branches.

    `dropped` are the datasets that `to_be_ended` returned. With `dry_run` nothing is deleted.
    """
    ended: dict[str, Ended] = {}
    stay: set[str] = set()  # clones have some of their files
    for record in sorted(dropped, key=_is_branch):
        key = split_branch(record.base_uri)[0]
        if not _is_branch(record):
            branches = _branches(dropped, record)
            try:
                files, is_all = _delete_files(catalog, record, branches, storage_options, dry_run)
                ended[key] = Ended(key, files)
                stay |= set() if is_all else {key}
            except CatalogUnavailableError:
                raise
            except PlakeError as error:
                ended[key] = Ended(key, (), error)
        if dry_run or key in stay or (key in ended and ended[key].error is not None):
            continue  # branches too: the next call finds files by their partition columns

        def forget(tx: CatalogTransaction, record: DatasetRecord = record) -> None:
            tx.forget_dataset(record.id)

        in_transaction(catalog, record.base_uri, "", forget, resolve=False)
    return list(ended.values())


def _delete_files(
    catalog: Catalog,
    record: DatasetRecord,
    branches: Sequence[DatasetRecord],
    storage_options: Mapping[str, Any] | None,
    dry_run: bool,
) -> tuple[list[FoundFile], bool]:
    """Delete the files that this catalog wrote for a dataset and its branches, orphans too.

    Those that clones have stay; tells whether there are none.
    """
    uri = uri_of(catalog, record.base_uri) or record.base_uri
    is_local = local_path(uri) is not None
    storage = Storage(StorageLocation.of(uri, None if is_local else storage_options))
    if not dry_run:
        check_owner(catalog, storage)
    with catalog.read() as reader:
        gate = OwnFiles.of(reader, (record, *branches), uri)
        recorded = frozenset().union(*(reader.recorded_writes(o.id) for o in (record, *branches)))
        known = frozenset().union(*(reader.paths(one)[1] for one in (record, *branches)))
        shared = {path.rpartition("/")[2] for path in reader.shared_paths(record.id)}
    found = []
    for file in storage.files():
        ids = own_name(file.path)
        # Files of another catalog have such names too.
        ours = ids is not None and (file.path in known or str(ids[0]) in recorded)
        is_shared = file.path.rpartition("/")[2] in shared
        if ours and not is_shared and gate.refusal(file.path) is None:
            found.append(file)
    if dry_run:
        return found, not shared
    with catalog.read() as reader:
        # Checked after the listing: once another process has removed the dataset, a new dataset may
        # have files here.
        if all(one.id != record.id for one in reader.dropped_datasets()):
            return [], True
    for file in found:
        storage.delete(file.path)
    remove_empty_folders(storage, gate.prefixes)
    if uri == record.base_uri and not shared:  # a catalog in the folder stays its owner
        release_owner(catalog, storage)
    return found, not shared


def _is_branch(record: DatasetRecord) -> bool:
    return split_branch(record.base_uri)[1] is not None


def _branches(dropped: Iterable[DatasetRecord], record: DatasetRecord) -> list[DatasetRecord]:
    """The branches of a dropped dataset, which were dropped with the dataset or before."""
    return [
        one
        for one in dropped
        if _is_branch(one) and split_branch(one.base_uri)[0] == record.base_uri
    ]


DROPPED = "its table was dropped"


def vacuum(
    catalog: str | Catalog | None = None,
    *,
    retention_seconds: float = RETENTION_SECONDS,
    dry_run: bool = False,
    allow_short_retention: bool = False,
    abandoned_after_seconds: float = ABANDONED_SECONDS,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CatalogVacuumReport:
    """Vacuum every dataset of a catalog, with the arguments of `Dataset.vacuum`.

    A dataset is deleted with all its versions if plake chose its folder, it lost its name (`drop`,
    DROP TABLE) longer ago than the retention, and nothing was written to it since. Until then
    `undrop` gives the name back. The rest of an interrupted `drop(purge=True)` is deleted too.

    `storage_options`, as in `write_dataset`, are for the datasets in object stores. A dataset whose
    store does not know one of these options cannot be vacuumed.

    A dataset that cannot be vacuumed, because its folder is gone or its object store
    cannot be reached, is named in the report; the others are vacuumed all the same.

    Raises:
        InvalidOptionError, CatalogUnavailableError
        AccessDeniedError: the login may not delete what is to be deleted.

    >>> report = lake.vacuum("sqlite:////data/flights/_plake/catalog.db", dry_run=True)
    >>> len(report.reports), report.files_removed, report.failed
    (1, 0, ())
    """
    options = VacuumOptions(
        retention_seconds, dry_run, allow_short_retention, abandoned_after_seconds
    )
    options.check()
    if isinstance(catalog, Catalog):
        return _vacuum_all(catalog, options, storage_options, progress)
    with open_catalog(catalog, create=False) as opened:
        return _vacuum_all(opened, options, storage_options, progress)


def _vacuum_all(
    catalog: Catalog,
    options: VacuumOptions,
    storage_options: Mapping[str, Any] | None,
    progress: bool | None,
) -> CatalogVacuumReport:
    done = list(vacuum_each(catalog, options, storage_options, progress))
    reports = tuple(one for one in done if isinstance(one, VacuumReport))
    return CatalogVacuumReport(reports, tuple(one for one in done if isinstance(one, tuple)))


def vacuum_each(
    catalog: Catalog,
    options: VacuumOptions,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = False,
) -> Iterator[VacuumReport | tuple[str, str]]:
    """Vacuum each dataset of a catalog, one after the other; a failure is a URI and a reason."""
    if not options.dry_run:
        drop_long_dropped(catalog, options.retention_seconds)
    with catalog.read() as reader:
        ending = to_be_ended(reader, options.retention_seconds if options.dry_run else None)
        ended_ids = {one.id for one in ending}
        records = [one for one in reader.datasets() if one.id not in ended_ids]
    for one in end_datasets(catalog, ending, storage_options, dry_run=options.dry_run):
        if one.error is None:
            yield _report(one, options.dry_run)
        else:
            yield redact_uri(one.uri), str(one.error)
    for record in records:
        if record.current_version == 0:
            continue
        try:
            address = address_of(catalog, record, storage_options)
            if isinstance(address, Address):
                yield vacuum_dataset(catalog, address, options, progress=progress)
                continue
            reason = address
        except PlakeError as error:
            reason = str(error)
        yield uri_of(catalog, record.base_uri) or record.base_uri, reason


def address_of(
    catalog: Catalog, record: DatasetRecord, storage_options: Mapping[str, Any] | None = None
) -> Address | str:
    """The address that leads to a dataset of a catalog, or why none does.

    Raises:
        InvalidOptionError: its store does not know a storage option.
    """
    uri = uri_of(catalog, record.base_uri)
    if uri is None:
        return f"nothing tells which folder {catalog.redacted_url} belongs to"
    is_local = local_path(uri) is not None
    address = Address(uri, catalog, None if is_local else storage_options)
    with catalog.read() as reader:
        found = reader.dataset(address.key)
    if found is None or found.id != record.id:  # another dataset in its folder
        return f"it is registered as {record.base_uri} and opened as {address.key}"
    return address


def _report(ended: Ended, dry_run: bool) -> VacuumReport:
    removed = Tallies()
    for file in ended.files:
        removed.add(DROPPED, file.path, file.size_bytes)
    return VacuumReport(redact_uri(ended.uri), dry_run, removed.done(), (), 0, 0)
