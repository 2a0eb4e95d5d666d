"""Verb. Vacuums a whole catalog: each dataset, and dropped datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakehouse_source.catalog import Catalog, open_catalog
from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.catalog.locate import uri_of
from lakehouse_source.errors import PlakeError
from lakehouse_source.maintenance.drop import Ended, drop_long_dropped, end_datasets, to_be_ended
from lakehouse_source.maintenance.reports import CatalogVacuumReport, Tallies, VacuumReport
from lakehouse_source.maintenance.vacuum import vacuum_dataset
from lakehouse_source.maintenance.vacuum_plan import RETENTION_SECONDS, VacuumOptions
from lakehouse_source.model import DatasetRecord
from lakehouse_source.read.address import Address
from lakehouse_source.storage import local_path, redact_uri

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
    if not options.dry_run:
        drop_long_dropped(catalog, options.retention_seconds)
    with catalog.read() as reader:
        ending = to_be_ended(reader, options.retention_seconds if options.dry_run else None)
        ended_ids = {one.id for one in ending}
        records = [one for one in reader.datasets() if one.id not in ended_ids]
    reports: list[VacuumReport] = []
    failed: list[tuple[str, str]] = []
    for one in end_datasets(catalog, ending, storage_options, dry_run=options.dry_run):
        if one.error is None:
            reports.append(_report(one, options.dry_run))
        else:
            failed.append((redact_uri(one.uri), str(one.error)))
    for record in records:
        if record.current_version == 0:
            continue
        uri = uri_of(catalog, record.base_uri)
        if uri is None:
            reason = f"nothing tells which folder {catalog.redacted_url} belongs to"
            failed.append((record.base_uri, reason))
            continue
        try:
            is_local = local_path(uri) is not None
            address = Address(uri, catalog, None if is_local else storage_options)
            if not _is_opened_by(address, record, catalog):
                reason = f"it is registered as {record.base_uri} and opened as {address.key}"
                failed.append((uri, reason))
                continue
            reports.append(vacuum_dataset(catalog, address, options, progress=progress))
        except PlakeError as error:
            failed.append((uri, str(error)))
    return CatalogVacuumReport(tuple(reports), tuple(failed))


def _report(ended: Ended, dry_run: bool) -> VacuumReport:
    removed = Tallies()
    for file in ended.files:
        removed.add(DROPPED, file.path, file.size_bytes)
    return VacuumReport(redact_uri(ended.uri), dry_run, removed.done(), (), 0, 0)


def _is_opened_by(address: Address, record: DatasetRecord, catalog: Catalog) -> bool:
    """Tell whether an address leads to this dataset, not to another dataset in its folder."""
    with catalog.read() as reader:
        found = reader.dataset(address.key)
    return found is not None and found.id == record.id
