"""Edge. Turns the columns of a data file into the columns of the dataset.

A file has the columns and types of the schema that it was written under. Values are cast to the
types of the schema that is read. Partition values come from the task. Defaults and metadata
columns are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import CorruptDatasetError, SchemaMismatchError
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.open_file import OpenFile
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.selected_rows import Rows
from lakehouse_source.schema.align import align, by_id, narrowed
from lakehouse_source.schema.defaults import column_without_data, initial_default
from lakehouse_source.schema.fields import (
    field_id,
    is_nested,
    names_hold,
    storage_type,
    without_metadata,
)
from lakehouse_source.schema.metadata_columns import FILE_ID, ROW_ID, VERSION_ID, is_metadata
from lakehouse_source.schema.no_columns import rows_alone
from lakehouse_source.schema.partitions import partition_value


class StoredColumns:
    """The columns of the file of one task.

    `file_schema` is the one the file was written under. Of a `foreign` file, one that plake did
    not write, it has the columns that the file really has. `shown` names the file in errors.
    """

    def __init__(
        self, spec: ReadSpec, task: ScanTask, file_schema: pa.Schema, *, foreign: bool, shown: str
    ) -> None:
        self._spec = spec
        self._task = task
        self._file_schema = file_schema
        self._foreign = foreign
        self._shown = shown
        # The structs that are read in part. Parquet spells a column `a.b` like field `b` of a
        # struct `a`: then structs stay whole.
        parts = tuple(spec.narrowed)
        self._parts = () if parts and names_hold(file_schema, ".") else parts

    def physical(self, file: OpenFile, wanted: pa.Schema) -> list[pa.Field]:
        """The fields of the file from which columns are made."""
        stored_by_id = {field_id(field): field for field in self._file_schema}
        found = []
        for field in wanted:
            if is_metadata(field):
                hidden = None if self._foreign else by_id(field, list(file.footer.arrow_schema))
                if hidden is not None:
                    found.append(hidden)
                continue
            stored = stored_by_id.get(field_id(field))
            if stored is not None and field.name not in self._spec.partition_by:
                found.append(
                    narrowed(stored, field, by_id) if field.name in self._parts else stored
                )
        lacking = [field for field in found if field.name not in file.footer.names]
        if not lacking:
            return found
        self._check_lacks(file, lacking)
        # A column that another commit added while this file was written is not in it.
        return [field for field in found if field.name in file.footer.names]

    def _check_lacks(self, file: OpenFile, lacking: Sequence[pa.Field]) -> None:
        """Check that a file lacks columns, and does not have them under other names."""
        if self._foreign:
            return  # its columns are found by names, and ids in it mean nothing
        names = {field_id(field): field.name for field in file.footer.arrow_schema}
        for field in lacking:
            other = names.get(field_id(field))
            if other is not None:
                raise CorruptDatasetError(
                    path=self._shown,
                    reason=f"its footer calls column {field.name!r} {other!r}",
                )

    def assembled(
        self, stored: pa.Table, physical: list[pa.Field], wanted: pa.Schema, rows: Rows
    ) -> pa.Table:
        """`stored` in the dataset's types, with partition values, defaults and metadata."""
        # To look for each id among all fields took a tenth of the time of reading a few rows.
        sources = {field_id(one): one for one in physical}
        count = rows.count
        columns = []
        for field in wanted:
            found = sources.get(field_id(field))
            if is_metadata(field):
                moved = None if found is None else stored.column(found.name)
                columns.append(self._metadata_column(field, moved, rows))
            elif field.name in self._spec.partition_by:
                columns.append(pa.chunked_array([self._partition_column(field, count)]))
            elif found is not None:
                columns.append(self._align(stored, field, found))
            else:
                columns.append(column_without_data(field, count))
        return pa.Table.from_arrays(columns, schema=wanted) if columns else rows_alone(count)

    def _metadata_column(
        self, field: pa.Field, moved: pa.ChunkedArray | None, rows: Rows
    ) -> pa.ChunkedArray:
        """A metadata column. `moved` has the values of rows that came from other files."""
        id = field_id(field)
        place = self._task.place
        assert place is not None  # a plan with metadata columns has it
        if id == FILE_ID:
            column = pa.repeat(self._task.path, rows.count)
        elif id == VERSION_ID:
            column = pa.repeat(pa.scalar(place.version, pa.int64()), rows.count)
        else:
            first = place.first_row_id if id == ROW_ID else 0
            column = pc.add(rows.positions, pa.scalar(first, pa.int64()))
        if moved is not None:
            column = pc.coalesce(moved, column)
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])

    def _align(self, stored: pa.Table, field: pa.Field, source: pa.Field) -> pa.ChunkedArray:
        """The column that the file's field `source` holds, as `field`."""
        if not is_nested(field.type):
            column = stored.column(source.name)
            # Most columns are what is wanted, and `align` takes longer to find that out.
            if column.type.equals(field.type) and (field.nullable or not column.null_count):
                return column
        try:
            one = stored.select([source.name])
            wanted, given = pa.schema([field]), pa.schema([source])
            return align(one, wanted, given, by_id, initial_default).column(0)
        except SchemaMismatchError as error:
            found = stored.schema.field(source.name).type
            stored_type = without_metadata(pa.schema([source])).field(0).type
            if stored_type.equals(storage_type(found, "")):
                # A value that the column's present type has no room for.
                facts = error.facts | {"dataset": self._shown}
                raise SchemaMismatchError(**facts) from error
            raise CorruptDatasetError(
                path=self._shown,
                reason=f"its column {source.name!r} has type {found}, not {source.type}",
            ) from error

    def _partition_column(self, field: pa.Field, rows: int) -> pa.Array:
        text = self._task.partitions[self._spec.partition_by.index(field.name)]
        if text is None:
            return pa.nulls(rows, field.type)
        return pa.repeat(partition_value(text, field.type), rows)
