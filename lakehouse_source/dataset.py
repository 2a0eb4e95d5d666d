"""Verb. What a Python user does with a dataset: write, read, open, look back, go back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.errors import CommitUnknownError
from lakehouse_source.history import History
from lakehouse_source.maintenance import expiry, vacuum, vacuum_plan, verify
from lakehouse_source.maintenance.reports import ExpiryReport, VacuumReport, VerifyReport
from lakehouse_source.model import FileRecord, WriteResult
from lakehouse_source.read.address import Address, CatalogLike, PathLike
from lakehouse_source.read.scan import Predicates, Scan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import strip
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit import abort, commit
from lakehouse_source.write.inputs import to_reader
from lakehouse_source.write.restore import restore
from lakehouse_source.write.stage import stage, write_options


def write_dataset(
    data: Any,
    dataset_uri: PathLike,
    *,
    catalog: CatalogLike = None,
    mode: str = "append",
    partition_by: str | Sequence[str] | None = None,
    schema_merge: bool = False,
    promote_to_string: bool = False,
    overwrite_where: Predicates = None,
    writer: str = "pyarrow",
    commit_metadata: Mapping[str, Any] | None = None,
    expected_version: int | None = None,
    schema: pa.Schema | None = None,
    progress: bool | None = None,
    **layout: Any,
) -> WriteResult:
    """Write rows to a dataset as one new version; the first write creates the dataset.

    Args:
        data: a `pa.Table`, `pa.RecordBatch`, `pa.RecordBatchReader` or Arrow dataset, a
            pandas DataFrame, a Polars DataFrame or LazyFrame, a DuckDB relation, a
            DataFusion DataFrame, any object with `__arrow_c_stream__`, an iterable of
            record batches, a list of dicts or a dict of lists. Streams are consumed batch
            by batch.
        dataset_uri: a folder or URI.
        catalog: `sqlite:///abs/path.db`, `postgresql://…`, `env:NAME` or an open
            catalog. Default: `PLAKE_CATALOG`; else, for a local dataset, SQLite in
            `<dataset>/_plake/catalog.db`.
        mode: `"append"`, `"overwrite"`, or `"error"` if the dataset must be new.
        partition_by: columns that become Hive-style folders; fixed by the first write.
        schema_merge: add new columns and promote types instead of refusing them.
        promote_to_string: let a column that cannot be promoted become a string.
        overwrite_where: with mode `"overwrite"`, replace only the rows that satisfy
            this condition; all incoming rows must satisfy it.
        writer: only `"pyarrow"`.
        commit_metadata: JSON-compatible mapping kept in the history.
        expected_version: commit only if the dataset is still at this version.
        schema: columns and types of Python values, or of an iterable of batches. Other data
            must have this schema.
        progress: show how many rows are written. By default only where standard error is a
            terminal.
        layout: `target_file_size_bytes`, `row_group_rows`, `compression`, `sort_by`,
            `bloom_filter_columns`, `index_columns` (see below), `partition_overwrite_mode`
            ("static" or "dynamic"), `txn_app_id` and `txn_version`.

    The catalog finds files by the values of the first 32 leaf columns, or of those that
    the first write names in `index_columns` (dotted where nested, a struct with all its
    fields), and by partition columns in any case. Conditions on other columns are exact
    too, but every file that the rest leaves is looked at in the catalog.

    Returns:
        The new version and the files written.

    Raises:
        DatasetExistsError, SchemaMismatchError, InvalidOptionError,
        InvalidPredicateError, CommitConflictError, CommitUnknownError,
        CatalogUnavailableError, StorageError: nothing was committed (with
        CommitUnknownError: it is not known).
    """
    options = write_options(
        mode=mode,
        partition_by=partition_by,
        schema_merge=schema_merge,
        promote_to_string=promote_to_string,
        overwrite_where=overwrite_where,
        writer=writer,
        commit_metadata=commit_metadata,
        expected_version=expected_version,
        **layout,
    )
    reader = to_reader(data, schema)
    address = Address(dataset_uri, catalog)
    with address.open(create=True) as opened:
        staged, files = stage(opened, address, reader, options, progress=progress)
        try:
            return commit(opened, staged, files)
        except CommitUnknownError:
            raise
        except BaseException:
            abort(opened, staged, files)
            raise


def read_dataset(
    dataset_uri: PathLike,
    *,
    catalog: CatalogLike = None,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    predicates: Predicates = None,
    columns: Sequence[str] | None = None,
    as_dataset: bool = False,
) -> pa.Table | ds.FileSystemDataset:
    """Read exactly the rows that match `predicates`, by Spark SQL's three-valued logic.

    Args:
        predicates: `(column, op, value)` triples (all must hold), an SQL condition,
            predicate nodes, or a `pyarrow.dataset.Expression`, which filters as it
            is and prunes nothing.
        version, timestamp: read an older version; a timestamp means the last version
            committed at or before it (text without a zone is UTC).
        columns: top-level columns to read, all by default.
        as_dataset: give a `pyarrow.dataset.FileSystemDataset` of the fragments that
            can hold matches (rows that do not match may be among them).

    Raises:
        DatasetNotFoundError, VersionNotFoundError, InvalidPredicateError,
        SchemaMismatchError, CatalogUnavailableError, StorageError,
        CorruptDatasetError
    """
    with open_dataset(dataset_uri, catalog=catalog) as dataset:
        scan = dataset.scan(predicates, columns, version, timestamp)
        return scan.to_dataset() if as_dataset else scan.to_table()


def open_dataset(dataset_uri: PathLike, *, catalog: CatalogLike = None) -> Dataset:
    """Open a dataset that exists.

    Raises:
        DatasetNotFoundError, CatalogUnavailableError
    """
    return Dataset(Address(dataset_uri, catalog).kept_open())


class Dataset:
    """A dataset as of when it was opened; `refresh()` moves it to the newest version.

    A context manager, though nothing stays open between calls but, where the catalog is
    on a server, a connection, for as long as the dataset or a scan of it is held.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._snapshot = self._load()

    def _load(self) -> Snapshot:
        with self._address.open() as catalog, catalog.read() as reader:
            return self._address.snapshot(catalog, reader)

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"Dataset({self.uri!r}, version={self.version})"

    @property
    def uri(self) -> str:
        """The canonical URI."""
        return self._address.uri

    @property
    def name(self) -> str:
        return self._snapshot.dataset.name

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema at this version."""
        return strip(self._snapshot.schema)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._snapshot.partition_by

    @property
    def properties(self) -> Mapping[str, Any]:
        return dict(self._snapshot.dataset.properties)

    def refresh(self) -> Dataset:
        """Move to the newest version; returns itself."""
        self._snapshot = self._load()
        return self

    def history(self, limit: int | None = None) -> History:
        """Committed versions, newest first, expired ones marked; prints as a table."""
        with self._address.open() as catalog, catalog.read() as reader:
            record = reader.dataset(self._address.key) or self._snapshot.dataset
            return History(reader.transactions(record.id, limit), record.oldest_version)

    def files(self, version: int | None = None) -> list[FileRecord]:
        """The data files that are live in a version (default: this one).

        Raises:
            VersionNotFoundError
        """
        with self._address.open() as catalog, catalog.read() as reader:
            wanted = self.version if version is None else version
            snapshot = self._address.snapshot(catalog, reader, wanted)
            return reader.files(snapshot.dataset.id, snapshot.version)

    def scan(
        self,
        predicates: Predicates = None,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Scan:
        """A scan of this version, or of the version or timestamp given; reads nothing yet."""
        if version is None and timestamp is None:
            version = self.version
        return Scan(self._address, predicates, columns, version, timestamp)

    def restore(self, version: int) -> WriteResult:
        """Make an old version's content and schema the newest version.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.
        """
        with self._address.open() as catalog:
            where = self._address
            result = restore(catalog, where.uri, where.key, version)
        self.refresh()
        return result

    def expire_versions(
        self, keep_seconds: float | None = None, keep_last: int | None = None
    ) -> ExpiryReport:
        """Give up versions that are older than both limits; the newest always stays.

        Args:
            keep_seconds: versions that were current at some moment of the last so many
                seconds stay, by the catalog's clock.
            keep_last: so many of the newest versions stay.

        Expired versions stay in the history and can be neither read nor restored. Their
        files are deleted by `vacuum()`, once its retention has passed since now.

        Raises:
            InvalidOptionError: neither limit is given.
        """
        with self._address.open() as catalog:
            where = self._address
            return expiry.expire_versions(
                catalog, where.uri, where.key, keep_seconds=keep_seconds, keep_last=keep_last
            )

    def vacuum(
        self,
        *,
        retention_seconds: float = vacuum_plan.RETENTION_SECONDS,
        dry_run: bool = False,
        allow_short_retention: bool = False,
        abandoned_after_seconds: float = ABANDONED_SECONDS,
    ) -> VacuumReport:
        """Delete files that no version can have any more; the report prints as a table.

        Args:
            retention_seconds: files of expired versions go when they have been out of reach
                for this long, orphans when they are this old.
            dry_run: only say what would go.
            allow_short_retention: needed below one hour, which running queries may notice.
            abandoned_after_seconds: a write without a sign of life for this long is dead.
                Plain Python writes give one every ten minutes; a Spark job gives none
                between its start and its commit and must be shorter than this.

        Only files that plake named are deleted, only where this dataset puts files, and
        never one that a readable version has (`expire_versions` makes versions unreadable)
        or that a write in progress may still commit.

        Raises:
            InvalidOptionError: the retention is short and that was not allowed.
            CorruptDatasetError: the folder holds none of the newest version's files.
            StorageError: the folder cannot be listed.
        """
        options = vacuum_plan.VacuumOptions(
            retention_seconds, dry_run, allow_short_retention, abandoned_after_seconds
        )
        where = self._address
        with where.open() as catalog:
            return vacuum.vacuum_dataset(
                catalog, where.uri, where.key, Storage(where.given), options
            )

    def verify(self, version: int | None = None, checksums: bool = False) -> VerifyReport:
        """Compare the files of a version (default: this one) with the catalog.

        Presence, size and footer (rows, row groups) of each file; with `checksums` every
        page is read and decoded too, its checksum compared where the file has one. The
        report names each difference, prints as a table, and is `ok` where there is none.

        Raises:
            VersionNotFoundError
        """
        where = self._address
        with where.open() as catalog, catalog.read() as reader:
            wanted = self.version if version is None else version
            snapshot = where.snapshot(catalog, reader, wanted)
            files = reader.files(snapshot.dataset.id, snapshot.version)
            groups = reader.row_groups([file.id for file in files])
        return verify.verify(
            where.uri,
            snapshot.version,
            Storage(where.given),
            [(file, groups[file.id]) for file in files],
            checksums=checksums,
        )
