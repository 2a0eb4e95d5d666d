"""Verb. What changes the schema of an open dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakehouse_source.dataset.opened import OpenDataset
from lakehouse_source.model import WriteResult
from lakehouse_source.write.metadata.schema_change import SchemaUpdate


class ColumnChanges(OpenDataset):
    """Changes of columns; no data file is read or written."""

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
        return SchemaUpdate(self._address, self._snapshot, self._committed)

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
