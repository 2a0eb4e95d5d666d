"""Verb. What keeps an open dataset in order: its layout, files and versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakehouse_source.arguments import flag
from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.dataset.opened import OpenDataset
from lakehouse_source.maintenance import expiry, vacuum, vacuum_plan, verify
from lakehouse_source.maintenance.reports import ExpiryReport, VacuumReport, VerifyReport
from lakehouse_source.model import CompactionResult, WriteResult
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.scan import Predicates
from lakehouse_source.write.add_files import add_files
from lakehouse_source.write.compact import compact
from lakehouse_source.write.find_files import Paths
from lakehouse_source.write.restore import restore
from lakehouse_source.write.set_properties import set_properties, set_table_properties
from lakehouse_source.write.stage import write_options


class Upkeep(OpenDataset):
    """Properties, compaction, files of others, old versions, and checks."""

    def set_table_properties(self, properties: Mapping[str, str | None]) -> WriteResult:
        """Note texts about the dataset, as one commit; None removes one. Moves to the commit.

        Raises:
            InvalidOptionError: a key or a text is not a text.
            CommitConflictError: the schema or the properties were changed at the same time.

        >>> dataset.set_table_properties({"comment": "by month", "owner": "ann"}).version
        2
        >>> dataset.set_table_properties({"owner": None}).version
        3
        >>> dataset.table_properties
        {'comment': 'by month'}
        """
        with self._address.open() as catalog:
            result = set_table_properties(catalog, self._address, self._snapshot, properties)
        self.refresh()
        return result

    def set_properties(self, **properties: Any) -> WriteResult:
        """Choose how all later writes lay out their files, as one commit; moves to it.

        Every writer follows the properties: `write_dataset`, transactions, Spark. What one
        write chooses by its own arguments wins for that write. Files that are written
        already stay as they are. The first write's own choices are the first properties.
        None sets a property back to its default.

        Args:
            properties: any of these.

                - `sort_by`, `bloom_filter_columns`, `target_file_size_bytes`,
                  `row_group_rows`, `compression`, `promote_to_string`: as in
                  `write_dataset`.
                - `auto_compact`, `auto_compact_min_files`: see `compact()`.
                - `index_columns`: as in `write_dataset`. The index of columns that join it
                  is computed from the catalog's statistics, in the same commit.
                - `partition_by`: only while the dataset has never had a file.

        Columns that are renamed keep their place in the properties. A column of `sort_by`
        cannot be dropped; a dropped column leaves the other lists.

        Raises:
            InvalidOptionError: a property is unknown, or its value is wrong.
            SchemaMismatchError: a column cannot partition the dataset.
            CommitConflictError: the schema or the properties were changed since this
                version; see `refresh()`.
            CommitUnknownError: the catalog was lost during the commit.

        >>> dataset.set_properties(sort_by=["carrier"], compression="snappy").version
        2
        >>> dataset.properties["sort_by"], dataset.properties["compression"]
        (['carrier'], 'snappy')
        """
        with self._address.open() as catalog:
            result = set_properties(catalog, self._address, self._snapshot, properties)
        self.refresh()
        return result

    def compact(
        self,
        where: Predicates = None,
        *,
        target_file_size: int | None = None,
        max_concurrent: int = 1,
    ) -> CompactionResult:
        """Write small files of each partition anew as few large ones; moves to the new version.

        A file of less than half of the target size is small. Rows keep their order, their
        `_row_id` and `_commit_version`; a dataset with `sort_by` is sorted as in every write.
        Streams and `read_changes` do not see the commit. A second call finds nothing to do. The
        property `auto_compact` does the same after commits, where a partition has
        `auto_compact_min_files` small files (50); the dataset is then a version further. It
        leaves a file alone that is much larger than all smaller ones together, so that no row is
        rewritten more than a few times.

        Args:
            where: only files that may hold a row of this condition.
            target_file_size: bytes of a large file; by default as every write does it.
            max_concurrent: how many partitions are written at the same time.

        Raises:
            CommitConflictError: another commit removed one of the files, or rows of one.
            InvalidPredicateError, InvalidOptionError

        >>> more = lake.write_dataset({"month": [2], "carrier": ["DL"], "miles": [9]}, dataset.uri)
        >>> dataset.compact("month = 2")
        CompactionResult(version=3, files_removed=2, files_added=1, bytes_removed=..., ...)
        """
        with self._address.open() as catalog:
            result = compact(
                catalog,
                self._address,
                PredicateSet.of(where),
                target_file_size=target_file_size,
                max_concurrent=max_concurrent,
            )
        self.refresh()
        return result

    def add_files(
        self,
        paths_or_folder: Paths,
        *,
        partitioning: str | None = "hive",
        schema_merge: bool = False,
        copy: bool = False,
        progress: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        commit_metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Add Parquet files, whoever wrote them, as one new version; moves to it.

        The files are not rewritten. They stay where they are and must not be changed or
        deleted afterwards. plake never deletes them: not when the commit fails, and not in
        `vacuum()` when only expired versions have them. Only their footers are read here.

        Args:
            paths_or_folder: a file, a folder, or a list of them. They must be below the
                dataset's own folder, and are recorded relative to it. Of a folder, all files
                below it are added but hidden ones (`_` or `.` first, as `_SUCCESS` and what is
                in `_temporary/`) and those that plake wrote. The folder of a Delta or Iceberg
                table is refused, because it holds removed files too: give a list of files. So
                is that of another dataset of plake.
            partitioning: `"hive"` reads the dataset's partition columns from the names of
                folders, `key=value`. None: folders have no meaning, which a partitioned
                dataset refuses.
            schema_merge: add new columns, and promote types.
            copy: copy files that are elsewhere into the dataset, instead of refusing them.
                The copies are plake's, and vacuum deletes them.
            progress: show progress, as in `write_dataset`.
            storage_options: for paths outside of the dataset. Default: the dataset's own
                options, if the path is in a store of the same kind.
            commit_metadata, expected_version, txn_app_id, txn_version: as in `write_dataset`.

        Columns are found by name, without regard to case, and not by field id. A column that a
        file lacks is NULL. A type is accepted where each of its values fits the dataset's
        type. INT96 timestamps are instants in UTC with microseconds. A column that is a
        partition column too must have, by the file's statistics, the folder's value in each
        row.

        Raises:
            InvalidOptionError: a path is wrong, or a file is given twice or is in the dataset
                already, itself or a row of it that a later commit has written to another file.
            CorruptDatasetError, StorageError: a file is no Parquet file, is damaged or cannot
                be read. The error names it.
            SchemaMismatchError: a file does not fit the dataset's schema.
            CommitConflictError: another commit conflicts, or added one of the files.
            CommitUnknownError: the catalog was lost during the commit. After every other
                error nothing was committed.

        >>> import os, pyarrow.parquet as pq
        >>> os.makedirs("/data/flights/exports/month=4")
        >>> pq.write_table(flights.drop_columns("month"), "/data/flights/exports/month=4/1.parquet")
        >>> dataset.add_files("/data/flights/exports")
        WriteResult(version=2, files=1, row_count=4, schema_version=1)
        """
        options = write_options(
            schema_merge=schema_merge,
            promote_to_string=False,  # only rows that plake writes itself
            commit_metadata=commit_metadata,
            expected_version=expected_version,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        )
        with self._address.open() as catalog:
            result = add_files(
                catalog,
                self._address,
                paths_or_folder,
                options,
                partitioning=partitioning,
                partition_types=None,
                copy=copy,
                storage_options=storage_options,
                progress=progress,
                is_new=False,
            )
        self.refresh()
        return result

    def restore(self, version: int) -> WriteResult:
        """Commit a new version with the content and schema of an old one; moves to it.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.
            CommitUnknownError: the catalog was lost during the commit.

        >>> dataset.drop_column("miles").version
        2
        >>> dataset.restore(1).version
        3
        >>> lake.read_dataset("/data/flights") == lake.read_dataset("/data/flights", version=1)
        True
        """
        with self._address.open() as catalog:
            result = restore(catalog, self._address, version)
        self.refresh()
        return result

    def expire_versions(
        self, keep_seconds: float | None = None, keep_last: int | None = None
    ) -> ExpiryReport:
        """Expire the versions that are older than both limits; the newest is always kept.

        Args:
            keep_seconds: keep each version that was the newest at some time during the last
                `keep_seconds` seconds, by the catalog's clock.
            keep_last: keep this many of the newest versions.

        The oldest version that has a tag is kept too, with all versions after it.

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
        with self._address.open() as catalog:
            return expiry.expire_versions(
                catalog, self._address, keep_seconds=keep_seconds, keep_last=keep_last
            )

    def vacuum(
        self,
        *,
        retention_seconds: float = vacuum_plan.RETENTION_SECONDS,
        dry_run: bool = False,
        allow_short_retention: bool = False,
        abandoned_after_seconds: float = ABANDONED_SECONDS,
        progress: bool | None = None,
    ) -> VacuumReport:
        """Delete files that no version needs any more; the report prints as a table.

        Args:
            retention_seconds: files of a version are deleted when it was expired at least
                this long ago; orphans, files of writes that were not committed, when they
                are at least this old.
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

        Commits of expired versions that are older than the retention leave the history, but
        for the first one, those that began a schema or whose files are still there, and the
        last one of each application that gives idempotency pairs. Those since the begin of a
        write that goes on stay too. A stream that began before commits that are gone is refused,
        and so is a write that counted as abandoned.

        Raises:
            InvalidOptionError: an age is out of range, or short without
                `allow_short_retention`.
            CorruptDatasetError: the folder contains no file of a readable version.
            StorageError: the folder cannot be listed.

        >>> report = dataset.vacuum(dry_run=True)
        >>> report.files_removed, report.bytes_removed
        (0, 0)
        """
        options = vacuum_plan.VacuumOptions(
            retention_seconds, dry_run, allow_short_retention, abandoned_after_seconds
        )
        with self._address.open() as catalog:
            return vacuum.vacuum_dataset(catalog, self._address, options, progress=progress)

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
        committed. With `checksums` every page is read and decoded too, and its
        checksum compared where the file has one. The report names each difference, prints
        as a table, and its `ok` is True where there is none. `progress` is as in
        `write_dataset`.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.

        >>> report = dataset.verify(checksums=True)
        >>> report.ok, report.files
        (True, 3)
        """
        with self._address.open() as catalog, catalog.read() as reader:
            wanted = self.version if version is None else version
            checksums = flag("checksums", checksums)
            snapshot = self._address.snapshot(catalog, reader, wanted)
            files = reader.files(snapshot.dataset.id, snapshot.version)
            groups = reader.row_groups([file.id for file in files])
            vectors = reader.all_vectors(snapshot.dataset.id, snapshot.version)
        return verify.verify(
            self._address,
            snapshot.version,
            [(file, groups[file.id]) for file in files],
            checksums=checksums,
            progress=progress,
            schemas=snapshot.file_schemas,
            vectors={one.file_id: one.vector for one in vectors},
        )
