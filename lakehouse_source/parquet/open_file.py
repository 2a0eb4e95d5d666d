"""Edge. A data file that is being read: its rows, and its columns as the dataset has them today."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse_source.deletion import Positions, VectorError, decode
from lakehouse_source.errors import CorruptDatasetError, SchemaMismatchError
from lakehouse_source.model import DeletionVector, ScanTask
from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.foreign import INT96_UNIT
from lakehouse_source.parquet.page_index import PagePruning, RowRange
from lakehouse_source.parquet.page_reader import FileColumn, PageReader
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.schema.align import align, by_id, narrowed
from lakehouse_source.schema.arrow_arrays import rows_alone
from lakehouse_source.schema.defaults import column_without_data, initial_default
from lakehouse_source.schema.fields import (
    FILE_ID,
    FILE_SIZE_ID,
    FILE_URI_ID,
    ROW_ID,
    VERSION_ID,
    children,
    field_id,
    is_metadata,
    is_nested,
    names_hold,
    rebuild,
    storage_type,
    without_metadata,
)
from lakehouse_source.schema.partitions import partition_value
from lakehouse_source.schema.variant import holds_variant, is_variant
from lakehouse_source.schema.variant_paths import Path, only
from lakehouse_source.schema.variant_storage import has_variant, stored_field
from lakehouse_source.storage import Storage, verified

# --- The positions of the deleted rows of a data file, from its deletion vector.


def deleted_rows(
    vector: DeletionVector | None,
    path: str,
    row_count: int,
    storage: Storage,
    *,
    verify_file: bool = False,
) -> Positions:
    """The positions of the deleted rows of the data file at a path.

    The Puffin file is opened only if the catalog has no copy of the vector. With `verify_file` the
    whole Puffin file is compared with its checksum, if the catalog has one.

    Raises:
        StorageError: the Puffin file cannot be read.
    """
    if vector is None:
        return Positions()
    blob = vector.blob
    if blob is None:
        with storage.open_input(vector.path) as source, storage.errors(vector.path):
            shown = storage.display(vector.path)
            whole = verified(source, vector.sha256, shown) if verify_file else source
            blob = whole.read_at(vector.length, vector.offset)
    try:
        return decode(blob, vector.cardinality, row_count)
    except VectorError as error:
        raise CorruptDatasetError(
            path=storage.display(vector.path),
            reason=f"its deletion vector of {path} cannot be read: {error}",
        ) from error


# Page indexes are no longer read after this many row groups in which they saved nothing.
_FRUITLESS_ROW_GROUPS = 1


class OpenFile:
    """A file whose footer was read. PyArrow opens it only if whole row groups are read."""

    def __init__(
        self,
        file: pa.NativeFile,
        footer: CheckedFooter,
        *,
        pre_buffer: bool,
        verify_checksums: bool,
    ) -> None:
        self.file = file
        self.footer = footer
        self._pre_buffer = pre_buffer
        self._verify_checksums = verify_checksums

    @cached_property
    def parquet(self) -> pq.ParquetFile:
        # In a remote store, requests for neighbouring column chunks are merged.
        return pq.ParquetFile(
            self.file,
            metadata=self.footer.metadata,
            pre_buffer=self._pre_buffer,
            coerce_int96_timestamp_unit=INT96_UNIT,
            page_checksum_verification=self._verify_checksums,
        )

    def column(self, field: pa.Field) -> FileColumn:
        """A field of the file's schema as leaf columns."""
        paths = tuple(leaf_paths(field))
        schema = self.footer.metadata.schema
        positions = tuple(at for path in paths for at in self.footer.leaves_by_path.get(path, ()))
        has_lists = any(schema.column(at).max_repetition_level for at in positions)
        return FileColumn(field.name, paths, positions, has_lists)


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """Columns that are read together: as requested, as stored in the file, and as leaf columns."""

    wanted: pa.Schema
    physical: list[pa.Field]
    columns: list[FileColumn]


class PagesOfFile:
    """The page indexes of a file that is read for a condition, as long as they save work.

    `condition` are the condition's columns and `rest` the other columns to return.
    """

    def __init__(
        self, pruning: PagePruning, reader: PageReader, condition: ColumnSet, rest: ColumnSet
    ) -> None:
        self.condition = condition
        self.rest = rest
        self._pruning = pruning
        self.reader = reader
        self._fruitless = 0

    @property
    def are_worth_a_look(self) -> bool:
        return self._fruitless < _FRUITLESS_ROW_GROUPS

    def rows(self, group: RowGroup, *, keep: bool) -> tuple[RowRange, ...] | None:
        """The rows of a row group that may match, by position; None: read the whole row group.

        `keep`: rows of row groups before it are read later.

        Raises:
            UnusablePages: an index is wrong.
        """
        located = [at for column in self.rest.columns for at in column.positions]
        found = self._pruning.rows(group.index, located, keep=keep)
        if found is not None:
            start = group.first_row
            rows = tuple((start + first, start + end) for first, end in found)
            if not rows or self.reader.choose(self.condition.columns, rows).pays:
                self._fruitless = 0
                return rows
        self._fruitless += 1
        return None


def leaf_paths(field: pa.Field) -> list[str]:
    """The leaves below a field, as Parquet spells their paths; lists and maps as a whole."""
    field = stored_field(field)
    if not pa.types.is_struct(field.type):
        return [field.name]
    return [f"{field.name}.{path}" for child in children(field.type) for path in leaf_paths(child)]


# --- Which rows of a row group are read: in ranges, matching, and not deleted.


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of an open file. `first_row` is the position of its first row in the file.

    `live` marks the rows that are not deleted; None: no row is deleted.
    """

    file: OpenFile
    index: int
    row_count: int
    first_row: int
    live: pa.BooleanArray | None

    def rows(self, mask: pa.ChunkedArray | None = None) -> Rows:
        """Its rows, or those that a mask marks."""
        return Rows(((self.first_row, self.first_row + self.row_count),), mask)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file, in order: the rows of `ranges` that `mask` marks."""

    ranges: tuple[RowRange, ...]
    mask: pa.ChunkedArray | pa.BooleanArray | None = None

    @property
    def count(self) -> int:
        if self.mask is not None:
            return int(pc.sum(self.mask).as_py() or 0)
        return sum(end - first for first, end in self.ranges)

    @property
    def positions(self) -> pa.Array:
        """The positions of the rows in the file."""
        parts = [pa.arange(first, end) for first, end in self.ranges]
        found = pa.chunked_array(parts, pa.int64()).combine_chunks()
        return found if self.mask is None else found.filter(_one_array(self.mask))


def of_live(
    mask: pa.ChunkedArray | pa.BooleanArray, live: pa.BooleanArray | None
) -> pa.ChunkedArray | pa.BooleanArray:
    """The rows that `mask` marks and that are not deleted."""
    return mask if live is None else pc.and_(_one_array(mask), live)


def most_of(
    columns: list[pa.ChunkedArray], schema: pa.Schema, mask: pa.BooleanArray | pa.ChunkedArray
) -> pa.Table:
    """The rows that a mask marks, if it marks most rows.

    `Table.filter` takes twice as long for this. `columns` is empty afterwards. If nothing else
    refers to a column, its memory is used again for the rows of the next column; new memory takes
    as long as the copying (page faults).
    """
    found = []
    columns.reverse()
    while columns:
        found.append(pc.filter(columns.pop(), mask))
    return pa.Table.from_arrays(found, schema=schema)


def marked(rows: tuple[RowRange, ...], mask: pa.ChunkedArray) -> tuple[RowRange, ...]:
    """The rows that `mask` marks; the mask has an item for each row in `rows`.

    Rows of two ranges do not become one, which would perhaps be of two row groups.
    """
    found: list[RowRange] = []
    before = at = 0
    for place in pc.indices_nonzero(mask).to_pylist():
        while place - before >= rows[at][1] - rows[at][0]:
            before += rows[at][1] - rows[at][0]
            at += 1
        row = rows[at][0] + place - before
        if found and found[-1][1] == row and place > before:
            found[-1] = (found[-1][0], row + 1)
        else:
            found.append((row, row + 1))
    return tuple(found)


def _one_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


# --- Turns the columns of a data file into the columns of the dataset.
#
# A file has the columns and types of the schema that it was written under. Values are cast to the
# types of the schema that is read. Partition values come from the task. Defaults and metadata
# columns are added.


_NO_PATHS: Mapping[str, Collection[Path]] = {}


def _as_shredded(field: pa.Field, stored: pa.DataType, paths: Collection[Path]) -> pa.Field:
    """The field with the structs that the file has for VARIANT that is shredded.

    `paths`: of which only these paths are read; none: it is read whole.
    """
    if is_variant(field.type):
        is_shredded = holds_variant(stored) and len(stored) > 2
        return field.with_type(only(stored, paths)) if is_shredded else field
    if not has_variant([field]):
        return field
    have = {one.name: one.type for one in children(stored)}
    below = children(field.type)
    if not pa.types.is_struct(stored):
        have = {one.name: other for one, other in zip(below, have.values())}
    inner = [_as_shredded(one, have.get(one.name, one.type), ()) for one in below]
    return field.with_type(rebuild(field.type, inner))


class StoredColumns:
    """The columns of the file of one task.

    `file_schema` is the one the file was written under. Of a `foreign` file, one that plake did
    not write, it has the columns that the file really has. `shown` names the file in errors.
    """

    def __init__(
        self,
        spec: ReadSpec,
        task: ScanTask,
        file_schema: pa.Schema,
        *,
        foreign: bool,
        storage: Storage,
    ) -> None:
        self._spec = spec
        self._task = task
        self._file_schema = file_schema
        self._foreign = foreign
        self._storage = storage
        # The structs that are read in part. Parquet spells a column `a.b` like field `b` of a
        # struct `a`: then structs stay whole.
        parts = tuple(spec.narrowed)
        self._parts = () if parts and names_hold(file_schema, ".") else parts

    def physical(
        self, file: OpenFile, wanted: pa.Schema, paths: Mapping[str, Collection[Path]] = _NO_PATHS
    ) -> list[pa.Field]:
        """The fields of the file from which columns are made.

        `paths`: of columns of VARIANT of which only some paths are read.
        """
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
                if not self._foreign and stored.name in file.footer.names:
                    self._check_type(file, stored)
                found.append(
                    narrowed(stored, field, by_id) if field.name in self._parts else stored
                )
        lacking = [field for field in found if field.name not in file.footer.names]
        if lacking:
            self._check_lacks(file, lacking)
            # A column that another commit added while this file was written is not in it.
            found = [field for field in found if field.name in file.footer.names]
        names = {field_id(field): field.name for field in wanted} if paths else {}
        stored = file.footer.arrow_schema
        # A field whose name has a dot is not found by its path.
        paths = {} if paths and file.footer.has_dots else paths
        return [
            _as_shredded(
                field,
                stored.field(field.name).type,
                paths.get(names.get(field_id(field), ""), ()),
            )
            if has_variant([field])
            else field
            for field in found
        ]

    def _check_type(self, file: OpenFile, written: pa.Field) -> None:
        """Check that the values of a column mean what they meant when they were written."""
        other = file.footer.other_type(written)
        if other is not None:
            raise CorruptDatasetError(
                path=self._storage.display(self._task.path),
                reason=f"its column {written.name!r} has type {other}, not {written.type}",
            )

    def _check_lacks(self, file: OpenFile, lacking: Sequence[pa.Field]) -> None:
        """Check that a file lacks columns, and does not have them under other names."""
        if self._foreign:
            return  # its columns are found by names, and ids in it mean nothing
        names = {field_id(field): field.name for field in file.footer.arrow_schema}
        for field in lacking:
            other = names.get(field_id(field))
            if other is not None:
                raise CorruptDatasetError(
                    path=self._storage.display(self._task.path),
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
        elif id == FILE_URI_ID:
            column = pa.repeat(self._storage.file_uri(self._task.path), rows.count)
        elif id == FILE_SIZE_ID:
            column = pa.repeat(pa.scalar(self._task.size_bytes, pa.int64()), rows.count)
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
                facts = error.facts | {"dataset": self._storage.display(self._task.path)}
                raise SchemaMismatchError(**facts) from error
            raise CorruptDatasetError(
                path=self._storage.display(self._task.path),
                reason=f"its column {source.name!r} has type {found}, not {source.type}",
            ) from error

    def _partition_column(self, field: pa.Field, rows: int) -> pa.Array:
        text = self._task.partitions[self._spec.partition_by.index(field.name)]
        if text is None:
            return pa.nulls(rows, field.type)
        return pa.repeat(partition_value(text, field.type), rows)
