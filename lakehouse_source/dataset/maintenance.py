"""Verb. What keeps an open dataset small and right: its layout, its old versions, its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakehouse_source.arguments import flag
from lakehouse_source.catalog.base import ABANDONED_SECONDS, Catalog
from lakehouse_source.dataset.opened import OpenDataset
from lakehouse_source.erasure.erase import erase
from lakehouse_source.language import PredicateSet
from lakehouse_source.maintenance import expiry, vacuum, verify
from lakehouse_source.maintenance.reports import (
    ErasureReport,
    ExpiryReport,
    MaintenanceReport,
    VacuumReport,
    VerifyReport,
)
from lakehouse_source.maintenance.vacuum import RETENTION_SECONDS, VacuumOptions
from lakehouse_source.model import CompactionResult
from lakehouse_source.read.address import Address
from lakehouse_source.read.scan import Predicates
from lakehouse_source.write.layout import cluster, compact, together
from lakehouse_source.write.metadata.set_properties import clustering
from lakehouse_source.write.statements.delete_and_update import count_expired, delete_expired


class Maintenance(OpenDataset):
    """Compaction, clustering, expiry, vacuum, erasure and checks."""

    def compact(
        self,
        where: Predicates = None,
        *,
        target_file_size: int | None = None,
        max_concurrent: int = 1,
        rewrite_deleted: bool = False,
    ) -> CompactionResult:
        """Merge the small files of each partition into few large ones; moves to the new version.

        A file of less than half of the target size is small. Rows keep their order, their
        `_row_id` and `_commit_version`; a dataset with `sort_by` is sorted as in every write.
        Streams and `read_changes` do not see the commit. A second call finds nothing to do. With
        the property `auto_compact`, a commit after which a partition has `auto_compact_min_files`
        (50) small files is followed by such a compaction, as one more version. This compaction
        skips a file that is much larger than all smaller ones together, so that no row is rewritten
        more than a few times.

        Args:
            where: compact only files that may hold a row that matches this condition.
            target_file_size: the size of the new files in bytes; by default that of all writes.
            max_concurrent: how many partitions are written at the same time.
            rewrite_deleted: rewrite every file that has deleted rows, of any size, without these
                rows. Their bytes are gone once older versions are expired and vacuumed.

        Raises:
            CommitConflictError: another commit removed one of the files, or rows of one.
            InvalidPredicateError, InvalidOptionError

        >>> more = lake.write_dataset({"month": [2], "carrier": ["DL"], "miles": [9]}, dataset.uri)
        >>> dataset.compact("month = 2")
        CompactionResult(version=3, files_removed=2, files_added=1, bytes_removed=..., ...)
        """
        return self._commit(
            compact,
            PredicateSet.of(where),
            target_file_size=target_file_size,
            max_concurrent=max_concurrent,
            rewrite_deleted=flag("rewrite_deleted", rewrite_deleted),
        )

    def cluster(
        self, *, max_bytes: int | None = None, full: bool = False, dry_run: bool = False
    ) -> CompactionResult:
        """Sort files that overlap by the columns of `cluster_by`; moves to the new version.

        Files that were sorted together are a run. Where more than four files or runs hold the same
        values of the columns, the smallest of them are sorted into one run, so that each row is
        rewritten few times. Each such step is a commit that changes no row: rows keep their
        `_row_id` and `_commit_version`, deleted rows are left out, streams and `changes` do not see
        the commit. An append neither waits for the commit nor conflicts with it. Rows are sorted in
        less than 1 GiB of memory, with files in a temporary folder (`TMPDIR`). A second call finds
        nothing to do. Where `auto_compact` is set, this is done after commits, as `compact()` is.

        Args:
            max_bytes: stop before the bytes of the rewritten files are more than this.
            full: sort all files of each partition again, after other columns were chosen.
            dry_run: only tell how many files and bytes the first look would rewrite; write nothing.

        Returns:
            What all commits did together; `bytes_added` is what was written.

        Raises:
            InvalidOptionError: the dataset has no clustering columns.
            CommitConflictError: others changed rows of the same files again and again.

        >>> dataset.set_properties(cluster_by=["miles"]).version
        2
        >>> dataset.cluster(full=True)
        CompactionResult(version=5, files_removed=3, files_added=3, bytes_removed=..., ...)
        """
        with self._address.open() as catalog:
            result = cluster(
                catalog, self._address, max_bytes=max_bytes, full=full, dry_run=dry_run
            )
        self._committed()
        return result

    def expire_versions(
        self, keep_seconds: float | None = None, keep_last: int | None = None
    ) -> ExpiryReport:
        """Expire the versions that are older than both limits; the newest is always kept.

        Args:
            keep_seconds: keep each version that was the newest at some time during the last
                `keep_seconds` seconds, by the catalog's clock.
            keep_last: keep this many of the newest versions.

        A version that has a tag is kept too, and so are the version that a consumer has read
        and all later ones, see `add_consumer`.

        Expired versions can be neither read nor restored. `vacuum()` deletes their files, once
        its retention has passed since the expiry, and removes them from the history.

        Raises:
            InvalidOptionError: neither limit is given, or one is out of range.

        >>> lake.write_dataset(flights, "/data/flights", mode="overwrite").version
        2
        >>> report = dataset.expire_versions(keep_last=1)
        >>> report.expired, report.files, report.oldest_version
        ((1,), 3, 2)
        """
        return self._do(expiry.expire_versions, keep_seconds=keep_seconds, keep_last=keep_last)

    def vacuum(
        self,
        *,
        retention_seconds: float = RETENTION_SECONDS,
        dry_run: bool = False,
        allow_short_retention: bool = False,
        abandoned_after_seconds: float = ABANDONED_SECONDS,
        progress: bool | None = None,
    ) -> VacuumReport:
        """Delete files that no version needs any more; the report prints as a table.

        Args:
            retention_seconds: delete files of versions that were expired at least this long ago,
                and orphans (files of writes that were not committed) that are at least this old.
            dry_run: delete nothing; report what would be deleted.
            allow_short_retention: needed for ages below one hour, because running queries
                and writes may lose their files.
            abandoned_after_seconds: a write that sent no heartbeat for this long is
                abandoned. Writes from Python send one every ten minutes; a Spark job sends
                none between its start and its commit and must be shorter than this.
            progress: show progress, as in `write_dataset`.

        A file is deleted only if plake gave it its name and it is in a folder where this
        dataset puts files. A file of a readable version (see `expire_versions`), or of a
        write that may still commit, is never deleted.

        Commits of expired versions leave the history when they are older than the retention. These
        commits stay: the first one, those that began a schema, those whose files still exist, those
        since the start of a running write, and the last one of each application that gives
        idempotency pairs. A stream that began before a removed commit is refused, and so is a write
        that counted as abandoned.

        Raises:
            InvalidOptionError: an age is out of range, or short without
                `allow_short_retention`.
            CorruptDatasetError: the folder contains no file of a readable version.
            StorageError: the folder cannot be listed.

        >>> report = dataset.vacuum(dry_run=True)
        >>> report.files_removed, report.bytes_removed
        (0, 0)
        """
        options = VacuumOptions(
            retention_seconds, dry_run, allow_short_retention, abandoned_after_seconds
        )
        return self._do(vacuum.vacuum_dataset, options, progress=progress)

    def optimize(
        self,
        where: Predicates = None,
        *,
        full: bool = False,
        zorder_by: Sequence[str] | None = None,
    ) -> CompactionResult:
        """Do what Delta's OPTIMIZE does: `cluster()` with clustering columns, else `compact()`.

        Args:
            where: only the partitions of this condition, which names partition columns.
                `compact()` takes other conditions too.
            full: as in `cluster()`.
            zorder_by: the clustering columns, by which all files are sorted then. They stay the
                columns of the dataset (`cluster_by`): later calls sort by them what overlaps.

        Raises:
            CommitConflictError: another commit changed the same files.
            InvalidOptionError: the dataset is clustered by other columns; `where` names a column
                that is no partition column, `zorder_by` one that is; or `full` is given for a
                dataset without clustering columns.

        >>> dataset.optimize(zorder_by=["miles"]).files_removed
        3
        """
        with self._address.open() as catalog:
            sort = clustering(catalog, self._address, where, full=full, zorder_by=zorder_by)
            if sort is not None:
                done = cluster(catalog, self._address, PredicateSet.of(where), full=sort)
        if sort is None:
            return self.compact(where)
        self._committed()
        return done

    def maintain(
        self,
        *,
        compact: bool | None = None,
        rewrite_deleted: bool = False,
        keep_seconds: float | None = None,
        keep_last: int | None = None,
        retention_seconds: float = RETENTION_SECONDS,
        allow_short_retention: bool = False,
        dry_run: bool = False,
    ) -> MaintenanceReport:
        """Do all regular upkeep: delete expired rows, compact, expire versions, vacuum.

        The condition of the property `expire_rows` is evaluated once, by the catalog's clock.
        Deleting the rows is a commit that ends streams without `ignoreDeletes`. The bytes of
        deleted rows are gone when no version has the rows: this needs `rewrite_deleted`,
        `keep_seconds` or `keep_last`, and the retention of the vacuum must have passed.

        Args:
            compact: by default where the property `auto_compact` is set.
            rewrite_deleted: as in `compact()`.
            keep_seconds, keep_last: as in `expire_versions()`; without both, the properties
                `keep_versions_seconds` and `keep_versions`; without these too none is expired.
            retention_seconds, allow_short_retention: as in `vacuum()`.
            dry_run: change nothing; count the rows that would be deleted, and vacuum's files.

        Raises:
            InvalidOptionError: a limit is wrong, or a column of `expire_rows` is gone.
            CommitConflictError: another commit changed the same rows or files: call again.

        >>> dataset.set_properties(expire_rows="month < 2 AND now() > '2020-01-01'").version
        2
        >>> dataset.maintain(dry_run=True).rows_expired
        2
        >>> report = dataset.maintain(keep_last=1)
        >>> report.rows_expired, report.version, report.expiry.oldest_version
        (2, 3, 3)
        """
        options = VacuumOptions(retention_seconds, dry_run, allow_short_retention)
        return self._commit(
            _maintain,
            compaction=None if compact is None else flag("compact", compact),
            rewrite_deleted=flag("rewrite_deleted", rewrite_deleted),
            keep_seconds=keep_seconds,
            keep_last=keep_last,
            vacuuming=options,
        )

    def erase(
        self,
        where: Predicates,
        *,
        foreign: str = "refuse",
        commit_metadata: Mapping[str, Any] | None = None,
    ) -> ErasureReport:
        """Erase rows from every version, from all files and from the catalog, at once.

        Versions keep their numbers, and other rows keep their values, `_row_id` and
        `_commit_version`, in every version. Files that hold matching rows are rewritten, on
        branches too, and the old ones are deleted before this returns, with all other files that
        no version needs. The history gets a commit `erase` that says how many rows, not which.

        Args:
            where: a condition in any form that `delete` takes. A row is erased if the condition is
                TRUE for the row in any version that can be read. Columns are found by their names
                in that version, and by those in the newest version, so renamed columns are found. A
                column that was dropped can be named too.
            foreign: what to do about files that plake did not write and that hold such rows.
                "refuse" erases nothing and names the files. "rewrite" gives the dataset files of
                its own; `left` of the report names the originals, which you delete.
            commit_metadata: a note for the history, such as the number of a request.

        In `commit_metadata` of all commits, `[erased]` replaces the texts of the condition.
        Defaults and comments of columns stay; `left` names them. A query that began before the
        erasure may fail because a file is gone: run the query again. A branch that was made before
        the erasure can no longer be fast-forwarded. After an error, repeat the call: it finishes
        the erasure.

        Raises:
            InvalidPredicateError, InvalidOptionError
            ErasureIncompleteError: the rows are gone from all versions, but a file could not be
                deleted, or free pages of the catalog could not be overwritten.

        >>> report = dataset.erase("carrier = 'UA'")
        >>> report.rows, report.version, report.left
        (2, 2, ())
        >>> dataset.scan(version=1).count_rows()
        2
        """
        return self._commit(erase, where, foreign=foreign, commit_metadata=commit_metadata)

    def verify(
        self,
        version: int | None = None,
        checksums: bool = False,
        *,
        progress: bool | None = None,
    ) -> VerifyReport:
        """Compare the files of a version (default: this one) with the catalog.

        Checks that each file exists and has the size and footer (rows, row groups, columns)
        that were committed, and that each deletion vector has the positions that were
        committed. With `checksums`, the SHA-256 of each file that plake wrote is compared with the
        catalog's too, and every page of every file is decoded and compared with its checksum, if it
        has one. The report names each difference and prints as a table; its `ok` is True if there
        is none. `progress` is as in `write_dataset`.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.

        >>> report = dataset.verify(checksums=True)
        >>> report.ok, report.files
        (True, 3)
        """
        with self._address.open() as catalog, catalog.read() as reader:
            wanted = self._snapshot.seen if version is None else version
            checksums = flag("checksums", checksums)
            snapshot = self._address.snapshot(catalog, reader, wanted)
            files = reader.files(snapshot.dataset.id, snapshot.version)
            groups = reader.row_groups([file.id for file in files])
            vectors = reader.all_vectors(snapshot.dataset.id, snapshot.version)
            sha256 = reader.checksums([file.id for file in files]) if checksums else {}
        return verify.verify(
            self._address,
            snapshot.version,
            [(file, groups[file.id]) for file in files],
            checksums=checksums,
            progress=progress,
            schemas=snapshot.file_schemas,
            vectors={one.file_id: one.vector for one in vectors},
            sha256=sha256,
        )


def _maintain(
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

    Each step is a call of its own: if a step fails, the work of earlier steps stays.

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
    if keep_seconds is None and keep_last is None:
        keep_seconds = properties.layout.keep_versions_seconds
        keep_last = properties.layout.keep_versions
    if (keep_seconds is not None or keep_last is not None) and not dry_run:
        report = expiry.expire_versions(
            catalog, address, keep_seconds=keep_seconds, keep_last=keep_last
        )
    vacuumed = vacuum.vacuum_dataset(catalog, address, vacuuming, progress=False)
    with catalog.read() as reader:
        version = address.snapshot(catalog, reader).version
    return MaintenanceReport(address.uri, version, dry_run, expired, compacted, report, vacuumed)
