"""Verb. An open dataset: its scans, its versions, and what changes it in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.history import History
from lakehouse_source.maintenance import expiry, vacuum, vacuum_plan, verify
from lakehouse_source.maintenance.reports import ExpiryReport, VacuumReport, VerifyReport
from lakehouse_source.model import ChangeResult, CompactionResult, FileRecord, WriteResult
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.changes import read_changes
from lakehouse_source.read.inspect import Inspection
from lakehouse_source.read.scan import Predicates, Scan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.changes import comments
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.streaming import Rules
from lakehouse_source.write import branches, tags
from lakehouse_source.write.add_files import add_files
from lakehouse_source.write.assignments import checked_names, equal_columns
from lakehouse_source.write.compact import compact
from lakehouse_source.write.delete_rows import delete_rows
from lakehouse_source.write.find_files import Paths
from lakehouse_source.write.layout import listed
from lakehouse_source.write.merge_builder import MergeBuilder
from lakehouse_source.write.merge_source import Names
from lakehouse_source.write.restore import restore
from lakehouse_source.write.schema_change import SchemaUpdate
from lakehouse_source.write.set_properties import set_properties, set_table_properties
from lakehouse_source.write.stage import write_options
from lakehouse_source.write.update_rows import update_rows

if TYPE_CHECKING:  # it imports pandas: only who asks for a dataset or fragments waits for it
    pass


class Dataset:
    """A dataset at the version that was the newest when it was opened; see `refresh()`.

    It can be used as a context manager and needs no closing: between calls only a
    connection to a catalog on a server stays open, until the dataset and its scans are no
    longer referenced. Every method may raise CatalogUnavailableError.

    >>> dataset.uri, dataset.name, dataset.version, dataset.partition_by
    ('file:///data/flights', 'flights', 1, ('month',))
    >>> dataset.schema.names
    ['month', 'carrier', 'miles']
    >>> dataset.properties["last_field_id"], dataset.comments
    (3, {})
    >>> dataset.inspect.refs().num_rows
    1
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
        """The canonical URI: `file:///…` for local datasets, without credentials otherwise."""
        return self._address.uri

    @property
    def name(self) -> str:
        """The last part of the URI, as it was when the dataset was created."""
        return self._snapshot.dataset.name

    @property
    def version(self) -> int:
        """The number of this version; the first commit makes version 1."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema at this version, partition columns included."""
        return without_metadata(self._snapshot.schema)

    @property
    def comments(self) -> Mapping[str, str]:
        """The comments of columns at this version, by name; nested fields by dotted path."""
        return comments(self._snapshot.schema)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The names of the partition columns, in the order of the folders."""
        return self._snapshot.partition_by

    @property
    def properties(self) -> Mapping[str, Any]:
        """The dataset's properties as the catalog stores them; see `set_properties`.

        Always there: `partition_by`, `indexed_columns` (field ids of the columns in the
        search index) and `last_field_id` (the highest field id given to a column so far).
        Where they were chosen: `index_columns`, `sort_by`, `bloom_filter_columns`,
        `target_file_size_bytes`, `row_group_rows`, `compression`, `promote_to_string`,
        `rewrite_threshold`, `auto_compact`, `auto_compact_min_files`.
        """
        return self._snapshot.dataset.properties.to_json()

    @property
    def table_properties(self) -> Mapping[str, str]:
        """Texts that users noted about the dataset; no rule of plake reads them.

        In Spark these are its `TBLPROPERTIES`, and `comment` is its comment.
        """
        return self._snapshot.dataset.properties.table_properties

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

    def refresh(self) -> Dataset:
        """Move to the newest version; returns this dataset.

        Raises:
            DatasetNotFoundError: the dataset was removed from the catalog.

        >>> lake.write_dataset(flights, "/data/flights").version
        2
        >>> dataset.version, dataset.refresh().version
        (1, 2)
        """
        self._snapshot = self._load()
        return self

    def history(self, limit: int | None = None) -> History:
        """The committed versions, newest first, at most `limit`; prints as a table.

        Expired versions are included and marked. Each entry has `version`, `timestamp`
        (UTC), `operation`, `metadata`, `summary` (counts of files and rows) and `write_id`.

        >>> [(entry.version, entry.operation) for entry in dataset.history()]
        [(1, 'append')]
        >>> dataset.history()[0].summary["rows_added"]
        4
        """
        with self._address.open() as catalog, catalog.read() as reader:
            record = reader.dataset(self._address.key) or self._snapshot.dataset
            return History(reader.transactions(record.id, limit), record.oldest_version)

    def files(self, version: int | None = None) -> list[FileRecord]:
        """The data files that are live in a version (default: this one).

        Paths are relative to the dataset's URI; sizes are in bytes. Partition columns have
        the names that they have in that version.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.

        >>> file = dataset.files()[0]
        >>> file.path.split("/")[0], file.row_count, file.partitions
        ('month=1', 2, {'month': '1'})
        """
        with self._address.open() as catalog, catalog.read() as reader:
            wanted = self.version if version is None else version
            snapshot = self._address.snapshot(catalog, reader, wanted)
            files = reader.files(snapshot.dataset.id, snapshot.version)
        texts = snapshot.partition_texts()
        return [
            replace(file, partitions=dict(zip(snapshot.partition_by, texts(file))))
            for file in files
        ]

    @property
    def inspect(self) -> Inspection:
        """The dataset's metadata tables: its history, files, row groups, partitions and so on.

        >>> dataset.inspect.versions()["live_rows"].to_pylist()
        [4]
        """
        return Inspection(self._address, self.version)

    def scan(
        self,
        predicates: Predicates = None,
        columns: Sequence[str] | None = None,
        version: int | str | None = None,
        timestamp: datetime | str | None = None,
        *,
        verify_checksums: bool = False,
    ) -> Scan:
        """A scan of this version, or of the version or timestamp given; it reads nothing yet.

        The arguments are those of `read_dataset`. Columns, versions and the types in the
        condition are checked when the scan is used.

        Raises:
            InvalidPredicateError: the condition cannot be parsed.

        >>> dataset.scan("carrier = 'UA' AND (month = 1 OR miles < 1100)").count_rows()
        2
        >>> dataset.scan("carrier = ")
        Traceback (most recent call last):
        lakehouse_source.errors.InvalidPredicateError: invalid predicate: ...
        """
        if version is None and timestamp is None:
            version = self.version
        return Scan(self._address, predicates, columns, version, timestamp, verify_checksums)

    def read_changes(
        self,
        since_version: int,
        predicates: Predicates = None,
        columns: Sequence[str] | None = None,
        *,
        skip_change_commits: bool = False,
        ignore_deletes: bool = False,
        fail_on_data_loss: bool = True,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that commits after a version appended, each batch with its version.

        Keep the last version and pass it the next time. It ends with the version that is the
        newest when it begins, and gives all rows the schema of that version. Nothing is read
        before the first batch is asked for.

        Args:
            since_version: the last version whose rows are known; 0: none.
            predicates, columns: as in `scan`.
            skip_change_commits: skip commits that did anything else than add rows.
            ignore_deletes: skip commits that only took rows out.
            fail_on_data_loss: False: leave out what was expired and deleted.

        Raises:
            StreamChangeError: a commit did not only add rows, and no option skips it.
            StreamDataLossError: a version was expired before it was read.
            VersionNotFoundError: there is no such version.
            InvalidPredicateError, SchemaMismatchError

        >>> more = lake.write_dataset([{"month": 3, "carrier": "DL", "miles": 762}], dataset.uri)
        >>> for version, rows in dataset.read_changes(1):
        ...     print(version, rows.to_pylist())
        2 [{'month': 3, 'carrier': 'DL', 'miles': 762}]
        """
        rules = Rules(skip_change_commits, ignore_deletes, fail_on_data_loss)
        where = PredicateSet.of(predicates)
        return read_changes(self._address, since_version, where, columns, rules)

    def delete(
        self, where: Predicates = None, *, isolation: str = "write-serializable", **further: Any
    ) -> ChangeResult:
        """Delete the rows of a condition; without one, all rows.

        A file of which every row matches is removed. Another one gets a deletion vector, a
        small file that marks rows of it. Where more than `rewrite_threshold` of its rows would
        be marked (a property, see `set_properties`), its other rows are written to a new file.

        Args:
            where: a condition in any form that `scan` takes.
            isolation: what other commits made meanwhile. "write-serializable" and "snapshot"
                commit unless one changed a row that is deleted here; "serializable" also
                refuses where rows were added that may match.
            further: `commit_metadata`, `expected_version`, `txn_app_id` and `txn_version`, as
                in `write_dataset`.

        Raises:
            InvalidPredicateError, InvalidOptionError
            CommitConflictError: another commit changed one of the rows.

        >>> dataset.delete("carrier = 'UA'")
        ChangeResult(version=2, rows_deleted=2, rows_updated=0, rows_inserted=0, ...)
        >>> dataset.scan().count_rows(), dataset.scan(version=1).count_rows()
        (2, 4)
        """
        with self._address.open() as catalog:
            result = delete_rows(catalog, self._address, where, isolation=isolation, **further)
        self.refresh()
        return result

    def update(
        self,
        updates: Mapping[str, Any],
        where: Predicates = None,
        *,
        isolation: str = "write-serializable",
        **further: Any,
    ) -> ChangeResult:
        """Assign new values to columns of the rows of a condition; without one, of all rows.

        The rows are written to new files and keep their `_row_id`.

        Args:
            updates: by column, an SQL expression over the row's old values, with Spark's
                meaning; a value that is no text is taken as it is.
            where, isolation, further: as in `delete`.

        Raises:
            InvalidPredicateError, InvalidExpressionError, InvalidOptionError
            SchemaMismatchError: a column does not exist, or does not take the values.
            CommitConflictError: another commit changed one of the rows.

        >>> dataset.update({"miles": "miles + 1", "carrier": "lower(carrier)"}, "month = 1")
        ChangeResult(version=2, rows_deleted=0, rows_updated=2, rows_inserted=0, ...)
        >>> dataset.scan("month = 1", columns=["carrier", "miles"]).to_table().to_pylist()
        [{'carrier': 'ua', 'miles': 1401}, {'carrier': 'aa', 'miles': 1417}]
        """
        with self._address.open() as catalog:
            result = update_rows(
                catalog, self._address, updates, where, isolation=isolation, **further
            )
        self.refresh()
        return result

    def merge(
        self,
        source: Any,
        condition: str,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
        schema: pa.Schema | None = None,
        merge_schema: bool = False,
        isolation: str = "write-serializable",
        **further: Any,
    ) -> MergeBuilder:
        """A MERGE of a source into this dataset. Add clauses, then call `execute()`.

        Args:
            source: any data that `write_dataset` takes. It is read into memory. The target is
                not: only files that can hold a match are read.
            condition: when a row of the source matches a row of the target: an SQL expression
                over `target.column` and `source.column`.
            source_alias, target_alias: other names for the two in expressions.
            schema: the schema of the source, as in `write_dataset`.
            merge_schema: add columns that only the source has.
            isolation: "write-serializable" refuses where other commits added rows that may
                match; "snapshot" does not look at them; "serializable" is the first here.
            further: as in `delete`.

        >>> changes = {"month": [1, 9], "carrier": ["UA", "UA"], "miles": [7, 8]}
        >>> on = "target.month = source.month AND target.carrier = source.carrier"
        >>> merge = dataset.merge(changes, on)
        >>> merge = merge.when_matched_update_all().when_not_matched_insert_all()
        >>> merge.execute()
        ChangeResult(version=2, rows_deleted=0, rows_updated=1, rows_inserted=1, ...)
        """
        return MergeBuilder(
            self._address,
            source,
            condition,
            names=Names(target_alias, source_alias),
            schema=schema,
            merge_schema=merge_schema,
            isolation=isolation,
            further=further,
            done=self.refresh,
        )

    def upsert(self, source: Any, on: str | Sequence[str], **further: Any) -> ChangeResult:
        """Update the rows that have a row with the same key in the source; insert the others.

        Args:
            source: any data that `write_dataset` takes, with all columns of the dataset.
            on: the columns of the key. A NULL equals nothing: its row is inserted.
            further: keywords of `merge`.

        Raises:
            AmbiguousMergeError: a key is several times in the source and matches a row.
            Everything else that `MergeBuilder.execute` raises.

        >>> new = {"month": [2, 9], "carrier": ["DL", "DL"], "miles": [7, 8]}
        >>> dataset.upsert(new, on=["month", "carrier"])
        ChangeResult(version=2, rows_deleted=0, rows_updated=0, rows_inserted=2, ...)
        """
        names = checked_names(listed(on) or (), self.schema, "on")
        merge = self.merge(source, equal_columns(names, "target", "source"), **further)
        return merge.when_matched_update_all().when_not_matched_insert_all().execute()

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
        `auto_compact_min_files` small files (50); the dataset is then a version further.

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
                table is refused, because it holds removed files too: give a list of files.
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
                already.
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

    def update_schema(self) -> SchemaUpdate:
        """Several schema changes as one commit; moves to the new version.

            with dataset.update_schema() as schema:
                schema.add_column("note", pa.string())
                schema.rename_column("tip", "gratuity")

        No data file is read or written. Older versions are read with their own schema.
        `schema` has the methods of this class that change the schema. Columns are matched
        without regard to case. A nested field is named by a path: `"address.street"`,
        `"tags.element"`, `"m.key"`, `"m.value"`, or a tuple of names.

        Raises (each method, or the end of the block; nothing is committed then):
            SchemaMismatchError: a change cannot be made.
            InvalidOptionError: an argument is wrong.
            CommitConflictError: the schema was changed since this version; see `refresh()`.
            CommitUnknownError: the catalog was lost during the commit.

        >>> with dataset.update_schema() as schema:
        ...     schema.rename_column("miles", "distance")
        ...     schema.add_column("note", pa.string(), comment="written by hand")
        >>> dataset.version, dataset.schema.names, dataset.comments
        (2, ['month', 'carrier', 'distance', 'note'], {'note': 'written by hand'})
        """
        return SchemaUpdate(self._address, self._snapshot, self.refresh)

    def add_column(
        self,
        name: str | Sequence[str],
        type: pa.DataType,
        *,
        default: Any = None,
        nullable: bool = True,
        comment: str | None = None,
    ) -> WriteResult:
        """Add a column, or a field of a struct, as the last one.

        Rows that were written before have `default` in it (NULL without one), and so have
        rows that are written later from data that lacks the column. No file is changed: a
        file without the column is read with the default, also one that `add_files` adds
        later. `default` is a Python value or Arrow scalar that the type holds exactly. A
        column that is not nullable needs one. Nested columns have none.

        Raises as `update_schema` does, and so do the methods below.

        >>> dataset.add_column("note", pa.string()).version
        2
        >>> dataset.scan().to_table()["note"].null_count
        4
        >>> dataset.add_column("seats", pa.int32(), default=180).version
        3
        >>> dataset.scan().to_table()["seats"].unique().to_pylist()
        [180]
        """
        with self.update_schema() as schema:
            schema.add_column(name, type, default=default, nullable=nullable, comment=comment)
        return schema.committed

    def set_default(self, name: str | Sequence[str], value: Any) -> WriteResult:
        """Set the value of a column in rows that are written later from data that lacks it.

        None: such rows have NULL. Rows that were written before do not change. Any column has
        a default but nested ones and partition columns.

        >>> dataset.set_default("carrier", "UA").version
        2
        >>> ready = dataset.refresh()
        >>> lake.write_dataset({"month": [4], "miles": [90]}, ready.uri).version
        3
        >>> dataset.refresh().scan("month = 4").to_table()["carrier"].to_pylist()
        ['UA']
        """
        with self.update_schema() as schema:
            schema.set_default(name, value)
        return schema.committed

    def rename_column(self, name: str | Sequence[str], new_name: str) -> WriteResult:
        """Rename a column or a field of a struct. Partitioning and the search index stay.

        >>> dataset.rename_column("miles", "distance").version
        2
        >>> dataset.schema.names, dataset.scan(version=1).to_table().column_names
        (['month', 'carrier', 'distance'], ['month', 'carrier', 'miles'])
        """
        with self.update_schema() as schema:
            schema.rename_column(name, new_name)
        return schema.committed

    def drop_column(self, name: str | Sequence[str]) -> WriteResult:
        """Drop a column or a field of a struct; partition columns cannot be dropped.

        Its data stays in the files for older versions. A later column of the same name
        starts empty.

        >>> dataset.drop_column("miles").version
        2
        >>> dataset.drop_column("month")
        Traceback (most recent call last):
        lakehouse_source.errors.SchemaMismatchError: column 'month' is a partition column ...
        """
        with self.update_schema() as schema:
            schema.drop_column(name)
        return schema.committed

    def promote_column(self, name: str | Sequence[str], type: pa.DataType) -> WriteResult:
        """Change a column's type to one that holds every stored value exactly.

        These are wider integers, floats and decimals, finer units of time where the
        statistics show that the stored values fit, and text for a top-level column.

        >>> dataset.promote_column("miles", pa.decimal128(19, 0)).version
        2
        >>> dataset.promote_column("miles", pa.int32())
        Traceback (most recent call last):
        lakehouse_source.errors.SchemaMismatchError: column 'miles' ...
        """
        with self.update_schema() as schema:
            schema.promote_column(name, type)
        return schema.committed

    def reorder_columns(
        self,
        names: Sequence[str | Sequence[str]],
        *,
        after: str | Sequence[str] | None = None,
    ) -> WriteResult:
        """Move columns to the front, in the order given, or behind the column `after`.

        >>> dataset.reorder_columns(["miles"], after="month").version
        2
        >>> dataset.schema.names
        ['month', 'miles', 'carrier']
        """
        with self.update_schema() as schema:
            schema.reorder_columns(names, after=after)
        return schema.committed

    def set_nullable(self, name: str | Sequence[str], nullable: bool) -> WriteResult:
        """Allow NULL in a column, or refuse it from now on.

        A column becomes NOT NULL only where the catalog's null counts show that no live
        file has a NULL in it.

        >>> dataset.set_nullable("carrier", False).version
        2
        >>> dataset.schema.field("carrier").nullable
        False
        """
        with self.update_schema() as schema:
            schema.set_nullable(name, nullable)
        return schema.committed

    def set_comment(self, name: str | Sequence[str], text: str | None) -> WriteResult:
        """Set the comment of a column, or remove it with None; see `comments`.

        >>> dataset.set_comment("miles", "great circle distance").version
        2
        >>> dataset.comments
        {'miles': 'great circle distance'}
        """
        with self.update_schema() as schema:
            schema.set_comment(name, text)
        return schema.committed

    def tag(self, name: str, version: int | None = None) -> None:
        """Give a name to a version, by default to this one; `expire_versions` keeps it.

        Spark reads it by `VERSION AS OF 'name'`, and every read by `version="name"`.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.
            InvalidOptionError: the dataset has the tag, or it reads like a number.

        >>> dataset.tag("spring", version=1)
        >>> dataset.tags()
        {'spring': 1}
        """
        with self._address.open() as catalog:
            tags.tag(catalog, self._address, name, self.version if version is None else version)

    def tags(self) -> Mapping[str, int]:
        """The versions that have a tag, by tag, the oldest version first.

        >>> dataset.tags()
        {}
        """
        with self._address.open() as catalog, catalog.read() as reader:
            return tags.tags(catalog, self._address, reader)

    def drop_tag(self, name: str) -> None:
        """Remove a tag; the version stays until it is expired.

        Raises:
            VersionNotFoundError: the dataset has no such tag.

        >>> dataset.tag("spring")
        >>> dataset.drop_tag("spring")
        """
        with self._address.open() as catalog:
            tags.drop_tag(catalog, self._address, name)

    def branch(self, name: str, version: int | None = None) -> Dataset:
        """A branch of the dataset; made where there is none of that name.

        What is written to a branch, the dataset does not show until `fast_forward`. A branch
        begins as the newest version, or as `version`. It is opened by its URI too, which ends
        with `#branch=` and the name, and by the option `branch` of Spark.

        Making one copies the catalog's rows about the files of the version, and no file. The
        oldest version of a branch that can be read is the one that it began as; its history is
        longer. It has its own tags and expires versions by itself. `vacuum` of the dataset
        vacuums its branches too.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.
            InvalidOptionError: the name is none; or `version` is given, and there is such a
                branch, or the dataset had another schema at that version.

        >>> audit = dataset.branch("audit")
        >>> audit.delete("miles = 1400").rows_deleted
        1
        >>> audit.refresh().scan().count_rows(), dataset.refresh().scan().count_rows()
        (3, 4)
        >>> dataset.fast_forward("audit").version
        2
        >>> dataset.scan().count_rows()
        3
        """
        with self._address.open() as catalog:
            address = branches.make_branch(catalog, self._address, name, version)
        return Dataset(address)

    def branches(self) -> Mapping[str, int]:
        """The newest version of each branch, by name.

        >>> dataset.branches()
        {}
        """
        with self._address.open() as catalog, catalog.read() as reader:
            found = branches.branches(catalog, self._address, reader)
        return {name: branch.version for name, branch in found.items()}

    def fast_forward(self, branch: str) -> WriteResult:
        """Commit to the dataset what was committed to a branch; moves to the newest version.

        Each version of the branch becomes one of the dataset, with the same number. All of
        them become visible at once. The branch stays.

        Raises:
            CommitConflictError: something was committed to the dataset since the branch began.
            VersionNotFoundError: there is no such branch, or versions of it were expired.
            CommitUnknownError: the catalog was lost during the commit.

        >>> spring = dataset.branch("spring")
        >>> lake.write_dataset({"month": [5], "carrier": ["UA"], "miles": [1]}, spring.uri).version
        2
        >>> dataset.fast_forward("spring").version
        2
        """
        with self._address.open() as catalog:
            result = branches.fast_forward(catalog, self._address, branch)
        self.refresh()
        return result

    def drop_branch(self, name: str) -> None:
        """Remove a branch, with the versions that the dataset did not take over.

        Queries that read the branch may lose their files at the next vacuum, and writes to it
        fail.

        Raises:
            VersionNotFoundError: there is no such branch.

        >>> spring = dataset.branch("spring")
        >>> dataset.drop_branch("spring")
        >>> dataset.branches()
        {}
        """
        with self._address.open() as catalog:
            branches.drop_branch(catalog, self._address, name)

    def expire_versions(
        self, keep_seconds: float | None = None, keep_last: int | None = None
    ) -> ExpiryReport:
        """Expire the versions that are older than both limits; the newest is always kept.

        Args:
            keep_seconds: keep each version that was the newest at some time during the last
                `keep_seconds` seconds, by the catalog's clock.
            keep_last: keep this many of the newest versions.

        The oldest version that has a tag is kept too, with all versions after it.

        Expired versions stay in the history and can be neither read nor restored. Their
        files are deleted by `vacuum()`, once its retention has passed since the expiry.

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
