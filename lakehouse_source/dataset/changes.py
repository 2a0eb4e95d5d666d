"""Verb. What changes an open dataset: its rows, columns, properties, files and versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import pyarrow as pa

from lakehouse_source.arguments import column_names, flag, whole_number
from lakehouse_source.constraints import primary_key
from lakehouse_source.dataset.opened import OpenDataset
from lakehouse_source.iceberg.metadata import NEWEST_VERSIONS, export_iceberg
from lakehouse_source.model import ChangeResult, WriteResult
from lakehouse_source.read.scan import Predicates
from lakehouse_source.write.add_files import add_files
from lakehouse_source.write.found_files import Paths
from lakehouse_source.write.metadata.restore import restore
from lakehouse_source.write.metadata.schema_change import SchemaUpdate
from lakehouse_source.write.metadata.set_properties import (
    add_constraint,
    drop_constraint,
    set_properties,
    set_table_properties,
)
from lakehouse_source.write.rows import write_options
from lakehouse_source.write.statements.assignments import checked_columns, equal_columns
from lakehouse_source.write.statements.delete_and_update import delete_rows, update_rows
from lakehouse_source.write.statements.merge_builder import MergeBuilder
from lakehouse_source.write.statements.merge_source import Names

# --- What changes rows of an open dataset.


class RowChanges(OpenDataset):
    """DELETE, UPDATE and MERGE, each one commit."""

    def delete(
        self, where: Predicates = None, *, isolation: str = "write-serializable", **further: Any
    ) -> ChangeResult:
        """Delete the rows of a condition; without one, all rows.

        A file is removed if all its rows match. If only some match, the file gets a deletion
        vector, a small file that marks these rows. If more than `rewrite_threshold` of the rows (a
        property, see `set_properties`) would be marked, the other rows are written to a new file.

        Args:
            where: a condition in any form that `scan` takes.
            isolation: which commits of others, made meanwhile, conflict. "write-serializable" and
                "snapshot": those that changed a row that is deleted here. "serializable": also
                those that added rows that may match, so that statements have the result of some
                order, one after the other.
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
        return self._commit(delete_rows, where, isolation=isolation, **further)

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
                meaning; a value that is not a text is used as it is. `"address.city"` is a field
                of a struct, whose other fields stay as they are.
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
        return self._commit(update_rows, updates, where, isolation=isolation, **further)

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
                match; "serializable" also where a clause for rows without a match may change such
                rows, or where other commits changed a matching row that this merge left alone;
                "snapshot" ignores added rows.
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
            done=self._committed,
        )

    def upsert(
        self,
        source: Any,
        on: str | Sequence[str] | None = None,
        *,
        nulls_equal: bool = False,
        **further: Any,
    ) -> ChangeResult:
        """Update the rows that have a row with the same key in the source; insert the others.

        Args:
            source: any data that `write_dataset` takes, with all columns of the dataset.
            on: the columns of the key; by default those of the primary key. A NULL equals nothing:
                its row is inserted.
            nulls_equal: a NULL in the key equals a NULL.
            further: keywords of `merge`.

        Raises:
            AmbiguousMergeError: the source has a key several times, and the key matches a row.
            Everything else that `MergeBuilder.execute` raises.

        >>> new = {"month": [2, 9], "carrier": ["DL", "DL"], "miles": [7, 8]}
        >>> dataset.upsert(new, on=["month", "carrier"])
        ChangeResult(version=2, rows_deleted=0, rows_updated=0, rows_inserted=2, ...)
        """
        names = column_names("on", on)
        if names is None:
            names = primary_key(self._snapshot.dataset.properties.constraints)
        keys = checked_columns(names, self._snapshot.schema, "on")
        equal = flag("nulls_equal", nulls_equal)
        condition = equal_columns(keys, "target", "source", nulls_equal=equal)
        merge = self.merge(source, condition, **further)
        return merge.when_matched_update_all().when_not_matched_insert_all().execute()


# --- What changes the schema of an open dataset.


Given = ParamSpec("Given")


def _as_one_commit(
    change: Callable[Concatenate[SchemaUpdate, Given], None],
) -> Callable[Concatenate[ColumnChanges, Given], WriteResult]:
    """Turn a schema change into a method, with the same docstring, that commits the change."""

    @wraps(change)
    def commit(
        dataset: ColumnChanges, /, *arguments: Given.args, **keywords: Given.kwargs
    ) -> WriteResult:
        with dataset.update_schema() as schema:
            change(schema, *arguments, **keywords)
        return schema.committed

    return commit


class ColumnChanges(OpenDataset):
    """Changes of columns; no data file is read or written."""

    def update_schema(self) -> SchemaUpdate:
        """Several schema changes as one commit; moves to the new version.

        `SchemaUpdate` has the changes. Each change is a method of the dataset too, which commits
        this change alone and returns the result.

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
        >>> dataset.drop_column("note").version
        3
        """
        return SchemaUpdate(self._address, self._snapshot, self._committed)

    add_column = _as_one_commit(SchemaUpdate.add_column)
    set_default = _as_one_commit(SchemaUpdate.set_default)
    rename_column = _as_one_commit(SchemaUpdate.rename_column)
    drop_column = _as_one_commit(SchemaUpdate.drop_column)
    promote_column = _as_one_commit(SchemaUpdate.promote_column)
    reorder_columns = _as_one_commit(SchemaUpdate.reorder_columns)
    set_nullable = _as_one_commit(SchemaUpdate.set_nullable)
    set_comment = _as_one_commit(SchemaUpdate.set_comment)


# --- Commits that change an open dataset as a whole: its properties, files, old versions.


class TableChanges(OpenDataset):
    """Properties, added files, restored versions, and metadata for readers of Iceberg."""

    def set_properties(self, **properties: Any) -> WriteResult:
        """Choose how all later writes lay out their files, as one commit; moves to it.

        Every writer follows the properties: `write_dataset`, transactions, Spark. The arguments of
        a write win over the properties for that write. Existing files stay as they are. The
        arguments of the first write are the first properties. None sets a property back to its
        default.

        Args:
            properties: any of these.

                - `sort_by`, `cluster_by`, `bloom_filter_columns`, `target_file_size_bytes`,
                  `row_group_rows`, `compression`, `promote_to_string`: as in
                  `write_dataset`.
                - `auto_compact`, `auto_compact_min_files`: see `compact()`.
                - `iceberg_metadata`: see `export_iceberg()`.
                - `expire_rows`: a condition on rows that `maintain()` deletes, such as
                  `"ts < now() - interval 30 days"`. Set it anew after a column is renamed.
                - `keep_versions`, `keep_versions_seconds`: which versions `maintain()` keeps, as
                  the limits of `expire_versions()`.
                - `index_columns`: as in `write_dataset`. For new columns, the index is computed
                  from the catalog's statistics, in the same commit.
                - `partition_by`: only while the dataset has never had a file.

        Columns that are renamed keep their place in the properties. A column of `sort_by` or
        `cluster_by` cannot be dropped; a dropped column leaves the other lists.

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
        return self._commit(set_properties, self._snapshot, properties)

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
        return self._commit(set_table_properties, self._snapshot, properties)

    def add_constraint(self, name: str, expression: str) -> WriteResult:
        """Refuse rows for which a condition is FALSE, from now on, as one commit; moves to it.

        Every writer checks its rows: Python, Spark, `add_files`. NULL counts as satisfied, as in
        SQL. The rows that are there are checked first: statistics decide where they suffice, else
        rows are read. Times without a zone, and dates that are compared with instants, are UTC. A
        column of the condition is not renamed or dropped, and a change of its type checks the rows
        again. `restore` and `branch` check the rows of a version before the constraint. The
        constraint holds for the dataset, whatever version is read: see `constraints`.

        A key, `PRIMARY KEY (a, b)` or `UNIQUE (a, b)`, refuses rows whose key another row has: of
        the same commit, of the dataset, or of a commit that others make meanwhile (a
        `CommitConflictError`). Rows that the commit takes out do not count. A primary key takes no
        NULL; to UNIQUE, NULL equals nothing. New files get bloom filters of the columns. Floats,
        nested columns and collated texts are no keys.

        Args:
            name: unique in the dataset, whatever its case.
            expression: SQL that has the same value at any time, so without `now()`; or a key.

        Raises:
            ConstraintViolationError: a row breaks it; the error shows the row.
            InvalidOptionError: the name is taken, the condition is not always the same, there is a
                primary key already, or a column cannot be in a key.
            InvalidPredicateError: the condition cannot be parsed, or does not fit the schema.
            CommitConflictError: the schema or the properties were changed since this
                version; see `refresh()`.
            CommitUnknownError: the catalog was lost during the commit.

        >>> dataset.add_constraint("flies", "miles > 0 AND length(carrier) = 2").version
        2
        >>> dataset.update({"miles": "miles - 1000"})
        Traceback (most recent call last):
        lakehouse_source.errors.ConstraintViolationError: constraint 'flies', CHECK (miles > 0 ...
        >>> dataset.add_constraint("flight", "UNIQUE (month, carrier, miles)").version
        3
        >>> lake.write_dataset({"month": [2], "carrier": ["UA"], "miles": [1089]}, dataset.uri)
        Traceback (most recent call last):
        lakehouse_source.errors.ConstraintViolationError: constraint 'flight', UNIQUE (month, ...
        """
        return self._commit(add_constraint, self._snapshot, name, expression)

    def drop_constraint(self, name: str) -> WriteResult:
        """Take a constraint back, as one commit; moves to it.

        Raises:
            InvalidOptionError: the dataset has none of this name.
            CommitConflictError: the schema or the properties were changed since this version.

        >>> dataset.add_constraint("flies", "miles > 0").version
        2
        >>> dataset.drop_constraint("flies").version, dict(dataset.constraints)
        (3, {})
        >>> dict(dataset.generated)     # a column of `create_dataset(…, generated=…)` stays
        {}
        """
        return self._commit(drop_constraint, self._snapshot, name)

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
                dataset's own folder, and are recorded relative to it. All files below a folder are
                added except hidden ones (named `_…` or `.…`, or in such a folder, as `_SUCCESS` and
                `_temporary/…`) and those that plake wrote. The folder of a Delta or Iceberg table
                is refused, because it holds removed files too: give a list of files. The folder of
                another dataset of plake is refused too.
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
        type. INT96 timestamps are instants in UTC with microseconds. If a file stores a partition
        column too, the file's statistics must show that each row has the folder's value.

        Raises:
            InvalidOptionError: a path is wrong, a file is given twice, or the dataset has the file,
                or a row of the file that a later commit wrote to another file.
            CorruptDatasetError, StorageError: a file is no Parquet file, is damaged or cannot
                be read. The error names it.
            SchemaMismatchError: a file does not fit the dataset's schema.
            ConstraintViolationError: a row breaks a constraint; rows are read where the statistics
                of a file leave that open.
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
        return self._commit(
            add_files,
            paths_or_folder,
            options,
            partitioning=partitioning,
            partition_types=None,
            copy=copy,
            storage_options=storage_options,
            progress=progress,
            is_new=False,
        )

    def restore(
        self, version: int | None = None, *, timestamp: datetime | str | None = None
    ) -> WriteResult:
        """Commit a new version with the content and schema of an old one; moves to it.

        The old one is named by its number, or by a time at which it was the newest, as in
        `read_dataset`.

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
        return self._commit(restore, version, timestamp)

    def export_iceberg(self, *, newest_versions: int = NEWEST_VERSIONS) -> str:
        """Write the newest version's metadata for readers of Iceberg; returns the file's path.

        The file is `metadata/<number>-<ids>.metadata.json` beside the data, and
        `metadata/version-hint.text` names it. PyIceberg's `StaticTable`, DuckDB's `iceberg_scan`
        and others open the table without a server. The table has the newest versions, those that
        were exported before, those with a tag, and the newest version of each branch with the same
        schema. A vacuum deletes the file when its version was expired. With the property
        `iceberg_metadata` each commit of rows, of a schema or of properties exports too. Needs
        `fastavro`.

        Args:
            newest_versions: how many of the newest versions are exported.

        Raises:
            IcebergUnsupportedError: readers of Iceberg would read a column wrongly.
            InvalidOptionError: this is a branch, or the folder is a table of Iceberg already.

        >>> path = dataset.export_iceberg()
        >>> from pyiceberg.table import StaticTable
        >>> StaticTable.from_metadata(path).scan("month = 1").to_arrow().num_rows
        2
        """
        with self._address.open() as catalog:
            return export_iceberg(
                catalog,
                self._address,
                newest_versions=whole_number("newest_versions", newest_versions),
            )
