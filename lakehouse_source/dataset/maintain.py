"""Verb. All regular upkeep of a dataset in one call: for a job that runs every night."""

from __future__ import annotations

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.language import PredicateSet
from lakehouse_source.maintenance import expiry, vacuum
from lakehouse_source.maintenance.reports import MaintenanceReport
from lakehouse_source.maintenance.vacuum_plan import VacuumOptions
from lakehouse_source.read.address import Address
from lakehouse_source.write.layout.cluster import cluster, together
from lakehouse_source.write.layout.compact import compact
from lakehouse_source.write.statements.expire_rows import count_expired, delete_expired


def maintain(
    catalog: Catalog,
    address: Address,
    *,
    compaction: bool | None,
    rewrite_deleted: bool,
    keep_seconds: float | None,
    keep_last: int | None,
    vacuuming: VacuumOptions,
) -> MaintenanceReport:
    """Delete expired rows, compact, cluster, expire versions and vacuum, in this order.

    Each step is a call of its own: one that fails leaves what the steps before it did.

    Raises:
        InvalidOptionError, CommitConflictError, StorageError
    """
    vacuuming.check()
    dry_run = vacuuming.dry_run
    with catalog.read() as reader:
        properties = address.snapshot(catalog, reader).dataset.properties
    expired, compacted, report = None, None, None
    condition = properties.expire_rows
    if condition is not None and dry_run:
        expired = count_expired(catalog, address, condition)
    elif condition is not None:
        expired = delete_expired(catalog, address, condition).rows_deleted
    wanted = properties.layout.auto_compact if compaction is None else compaction
    if (wanted or rewrite_deleted) and not dry_run:
        compacted = compact(
            catalog, address, PredicateSet.of(None), rewrite_deleted=rewrite_deleted
        )
        if wanted and properties.layout.cluster_by:
            compacted = together(compacted, cluster(catalog, address))
    if (keep_seconds is not None or keep_last is not None) and not dry_run:
        report = expiry.expire_versions(
            catalog, address, keep_seconds=keep_seconds, keep_last=keep_last
        )
    vacuumed = vacuum.vacuum_dataset(catalog, address, vacuuming, progress=False)
    with catalog.read() as reader:
        version = address.snapshot(catalog, reader).version
    return MaintenanceReport(address.uri, version, dry_run, expired, compacted, report, vacuumed)
