"""Edge. Scan tasks to Arrow tables, on executors and in plain Python alike.

Knows files and nothing else: no catalog, no planning. Row groups are read one by
one, never with a filter: Arrow would prune by footer statistics on its own and lose
rows with NaN. A row group whose bloom filters rule out a match is not decoded. Of
other row groups the condition's columns are decoded first, and the rest only where a
row matches. Where the page indexes rule out most rows, only the pages with the others are
fetched and decoded. Where few rows match, decoding stops after the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.deletion.vector import Positions, live_mask
from lakehouse_source.errors import (
    CorruptDatasetError,
    PlakeError,
    SchemaMismatchError,
    StorageError,
)
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.bloom import FileFilters
from lakehouse_source.parquet.byte_ranges import ByteRanges
from lakehouse_source.parquet.checked_footer import CheckedFooter, open_footer
from lakehouse_source.parquet.deleted_rows import deleted_rows
from lakehouse_source.parquet.foreign import read_schema
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.open_file import ColumnSet, OpenFile, PagesOfFile, leaf_paths
from lakehouse_source.parquet.page_index import PageIndex, RowRange
from lakehouse_source.parquet.page_pruning import PagePruning
from lakehouse_source.parquet.page_reader import PageReader, UnusablePages, cut
from lakehouse_source.parquet.spec import ReadSpec
from lakehouse_source.predicate.row_filter import matching_mask
from lakehouse_source.pruning.absent import asks_for_values
from lakehouse_source.schema.align import align, by_id, narrowed
from lakehouse_source.schema.defaults import column_without_data, initial_default
from lakehouse_source.schema.fields import (
    children,
    field_id,
    is_nested,
    storage_type,
    without_metadata,
)
from lakehouse_source.schema.metadata_columns import FILE_ID, ROW_ID, VERSION_ID, is_metadata
from lakehouse_source.schema.partitions import partition_value
from lakehouse_source.storage import Storage

# A row group is decoded in portions when at most one row in `_FEW` matches.
_FEW = 1000
_PORTION_ROWS = 16_384
# A smaller row group is read whole: its page indexes would take as long.
_FEWEST_ROWS_FOR_PAGES = 16_384
# By pages, up to this many matching rows are picked one by one from the other columns.
_PICKED_ROWS = 1000
# Where all rows match but one in so many, or fewer, columns are filtered one by one. Of a row
# group of TPC-H lineitem, 99 % of the rows then take 7 ms instead of 11, and 70 % 11 instead of 9.
_MOST_OF = 8


def read_task(spec: ReadSpec, task: ScanTask, storage: Storage) -> Iterator[pa.Table]:
    """The matching rows of one task, a table per row group, in file order.

    Raises:
        StorageError: the file is missing or cannot be read.
        CorruptDatasetError: the file is not the one that was committed.
    """
    return _FileReader(spec, task, storage).tables()


def read_all(spec: ReadSpec, tasks: tuple[ScanTask, ...], storage: Storage) -> Iterator[pa.Table]:
    """The matching rows of many tasks, in task order, files decoded side by side."""
    for _task, table in read_each(spec, tasks, storage):
        yield table


def read_each(
    spec: ReadSpec, tasks: Sequence[ScanTask], storage: Storage
) -> Iterator[tuple[ScanTask, pa.Table]]:
    """As `read_all`, each table with its task."""
    if len(tasks) <= 1:
        for task in tasks:
            for table in read_task(spec, task, storage):
                yield task, table
        return
    width = min(len(tasks), max(2, pa.cpu_count()))
    with ThreadPoolExecutor(width, thread_name_prefix="plake-read") as pool:
        # A sliding window: tables come in task order, and those of few files wait in memory.
        window = [pool.submit(_whole, spec, task, storage) for task in tasks[: 2 * width]]
        following = iter(tasks[2 * width :])
        try:
            while window:
                task, tables = window.pop(0).result()
                coming = next(following, None)
                if coming is not None:
                    window.append(pool.submit(_whole, spec, coming, storage))
                for table in tables:
                    yield task, table
        finally:
            for waiting in window:
                waiting.cancel()


def _whole(spec: ReadSpec, task: ScanTask, storage: Storage) -> tuple[ScanTask, list[pa.Table]]:
    return task, list(read_task(spec, task, storage))


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """One row group of an open file. `first_row` is the position of its first row in the file.

    `live` marks the rows that are not deleted; None: no row is.
    """

    file: OpenFile
    index: int
    row_count: int
    first_row: int
    live: pa.BooleanArray | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of a row group, in order: ranges of them, and of these those that `mask` marks."""

    group: _RowGroup
    ranges: tuple[RowRange, ...]
    mask: pa.ChunkedArray | None = None

    @property
    def count(self) -> int:
        if self.mask is not None:
            return int(pc.sum(self.mask).as_py() or 0)
        return sum(end - first for first, end in self.ranges)

    @property
    def positions(self) -> pa.Array:
        """Where the rows are in the file."""
        start = self.group.first_row
        parts = [pa.arange(start + first, start + end) for first, end in self.ranges]
        found = pa.chunked_array(parts, pa.int64()).combine_chunks()
        return found if self.mask is None else found.filter(_one_array(self.mask))

    @property
    def live(self) -> pa.Array | None:
        """Which of the rows are not deleted; None: all."""
        live = self.group.live
        if live is None or self.mask is not None:
            return None
        return pa.concat_arrays([live.slice(first, end - first) for first, end in self.ranges])


class _FileReader:
    def __init__(self, spec: ReadSpec, task: ScanTask, storage: Storage) -> None:
        self.spec = spec
        self.task = task
        self.storage = storage
        # Of a file that plake did not write, the columns are known when it is open.
        self.foreign = is_foreign(task.path)
        self.file_schema = spec.file_schemas[task.schema_version]
        self.target = spec.target
        self.output_schema = spec.output_schema
        needed = spec.predicate.columns if spec.predicate is not None else ()
        self.predicate_schema = pa.schema([spec.schema.field(name) for name in needed])

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The structs that are read in part."""
        # Parquet spells a column `a.b` like field `b` of a struct `a`: then structs stay whole.
        return () if _has_dots(self.file_schema) else tuple(self.spec.narrowed)

    def tables(self) -> Iterator[pa.Table]:
        with self._errors():
            file = self.storage.open_input(self.task.path)
        with file:
            with self._errors():
                footer = self._footer(file)
                opened = OpenFile(
                    file,
                    footer,
                    pre_buffer=not self.storage.is_local,
                    verify_checksums=self.spec.verify_checksums,
                )
                if self.foreign:
                    self.file_schema = read_schema(opened.parquet, self.file_schema)
                groups = self.task.row_groups
                if groups is None:
                    groups = tuple(range(len(footer.row_counts)))
                filters = self._filters(footer, file)
                pages = self._pages(opened)
                starts = list(accumulate(footer.row_counts, initial=0))
            for index in groups:
                with self._errors():
                    if filters is not None and filters.rule_out(index):
                        continue
                    live = None
                    if self.task.deleted is not None:
                        live = live_mask(self._deleted, starts[index], starts[index + 1])
                    group = _RowGroup(opened, index, footer.row_counts[index], starts[index], live)
                    table = None
                    if pages is not None:
                        try:
                            table = self._by_pages(group, pages)
                        except UnusablePages:
                            pages = None
                    if table is None:
                        table = self._row_group(group)
                if table.num_rows:
                    yield table

    @cached_property
    def _deleted(self) -> Positions:
        task = self.task
        return deleted_rows(task.deleted, task.path, task.file_row_count, self.storage)

    def _filters(self, footer: CheckedFooter, file: pa.NativeFile) -> FileFilters | None:
        """The file's bloom filters, None where they could not rule out a row group."""
        spec, task = self.spec, self.task
        # Filters are looked up by the columns' positions and types in files of plake.
        if self.foreign or spec.predicate is None or spec.unmatched or not task.filtered:
            return None
        if not asks_for_values(spec.predicate.root):
            return None
        return FileFilters(spec.predicate, footer, self.file_schema, file)

    def _pages(self, opened: OpenFile) -> PagesOfFile | None:
        """The file's page indexes, None where they could not rule out rows."""
        spec = self.spec
        # Leaf columns are found by their paths, which names with dots make ambiguous.
        if spec.predicate is None or spec.unmatched or not self.task.filtered:
            return None
        if opened.footer.has_dots:
            return None
        source = ByteRanges(opened.file, is_local=self.storage.is_local)
        index = PageIndex(source, opened.footer)
        pruning = PagePruning(
            spec.predicate,
            spec.schema,
            self.file_schema,
            opened.footer,
            index,
            is_foreign=self.foreign,
        )
        return PagesOfFile(
            pruning,
            PageReader(source, opened.footer, index),
            self._part(opened, self.predicate_schema),
            self._part(opened, self._rest(self.predicate_schema.names)),
        )

    def _part(self, opened: OpenFile, wanted: pa.Schema) -> ColumnSet:
        physical = self._physical(opened, wanted)
        return ColumnSet(wanted, physical, [opened.column(field) for field in physical])

    def _footer(self, file: pa.NativeFile) -> CheckedFooter:
        task = self.task
        shown = self.storage.display(task.path)
        size = file.size()
        if size != task.size_bytes:
            raise CorruptDatasetError(
                path=shown, reason=f"it has {size} bytes, not {task.size_bytes}"
            )
        footer = open_footer(file, shown, remembered=True)
        if footer.row_count != task.file_row_count:
            raise CorruptDatasetError(
                path=shown,
                reason=f"its footer says {footer.row_count} rows, not {task.file_row_count}",
            )
        return footer

    def _by_pages(self, group: _RowGroup, pages: PagesOfFile) -> pa.Table | None:
        """The matching rows, read by pages; None if the row group should be read whole."""
        spec = self.spec
        assert spec.predicate is not None
        if group.row_count < _FEWEST_ROWS_FOR_PAGES or not pages.are_worth_a_look:
            return None
        rows = pages.rows(group.index)
        if rows is None:
            return None
        if not rows:
            return self.output_schema.empty_table()
        condition = self._read_rows(group, pages.condition, rows, pages)
        mask = _of_live(matching_mask(condition, spec.predicate), _Rows(group, rows).live)
        matching = pc.sum(mask).as_py() or 0
        if matching == 0:
            return self.output_schema.empty_table()
        if matching <= _PICKED_ROWS:
            condition, rows = condition.filter(mask), _marked(rows, mask)
        needs_rest = len(pages.rest.wanted) > 0
        table = self._read_rows(group, pages.rest, rows, pages) if needs_rest else condition
        return self._result(condition, table, mask, matching)

    def _read_rows(
        self, group: _RowGroup, part: ColumnSet, rows: tuple[RowRange, ...], pages: PagesOfFile
    ) -> pa.Table:
        """As `_read`, but only some rows."""
        stored = pa.table({})
        if part.physical:
            found = pages.read(group.index, part, rows)
            if found is None:
                found = self._whole_columns(group, part.physical)
                found = cut(found, [(0, group.row_count)], rows)
            stored = found
        return self._assembled(stored, part.physical, part.wanted, _Rows(group, rows))

    def _row_group(self, group: _RowGroup) -> pa.Table:
        spec = self.spec
        rows = group.row_count
        if spec.predicate is None or not self.task.filtered:
            table = _bare(self._read(group, self.target), self.output_schema)
            return table if group.live is None else _most_of(table, group.live)
        condition = self._read(group, self.predicate_schema)
        mask = matching_mask(condition, spec.predicate)
        if spec.unmatched:
            mask = pc.invert(mask)
        mask = _of_live(mask, group.live)
        matching = pc.sum(mask).as_py() or 0
        if matching == 0:
            return self.output_schema.empty_table()
        rest = self._rest(condition.column_names)
        few = matching * _FEW <= rows and self.storage.is_local
        if few and len(rest):
            condition, table = condition.filter(mask), self._few(group, rest, mask)
        else:
            table = self._read(group, rest) if len(rest) else condition
        return self._result(condition, table, mask, matching)

    def _rest(self, known: Iterable[str]) -> pa.Schema:
        """The columns to return that are not among the condition's columns in `known`."""
        # A struct of which only a part is returned is read again.
        done = set(known) - set(self.spec.narrowed)
        return pa.schema([field for field in self.target if field.name not in done])

    def _result(
        self, condition: pa.Table, rest: pa.Table, mask: pa.ChunkedArray, matching: int
    ) -> pa.Table:
        """The columns to return, of the `matching` rows. `mask` marks them where others remain."""
        spec = self.spec
        known = set(condition.column_names) - set(spec.narrowed)
        columns = [(condition if name in known else rest).column(name) for name in spec.columns]
        result = pa.Table.from_arrays(columns, schema=self.output_schema)
        if result.num_rows == matching:
            return result
        is_most = matching * _MOST_OF >= result.num_rows * (_MOST_OF - 1)
        return _most_of(result, mask) if is_most else result.filter(mask)

    def _read(self, group: _RowGroup, wanted: pa.Schema) -> pa.Table:
        """Columns of one row group, in the dataset's types, partition values filled in."""
        physical = self._physical(group.file, wanted)
        stored = pa.table({})
        if physical:
            stored = self._whole_columns(group, physical)
        rows = _Rows(group, ((0, group.row_count),))
        return self._assembled(stored, physical, wanted, rows)

    def _whole_columns(self, group: _RowGroup, physical: list[pa.Field]) -> pa.Table:
        parquet = group.file.parquet
        stored = parquet.read_row_group(group.index, columns=_all_paths(physical))
        if stored.num_rows != group.row_count:
            raise self._has_other_rows(group, stored.num_rows)
        return stored.select([field.name for field in physical])

    def _has_other_rows(self, group: _RowGroup, found: int) -> CorruptDatasetError:
        # A damaged page header makes PyArrow skip a page. No checksum covers the header.
        return CorruptDatasetError(
            path=self.storage.display(self.task.path),
            reason=f"the pages of row group {group.index} have {found} rows, "
            f"and its footer says {group.row_count}",
        )

    def _few(self, group: _RowGroup, wanted: pa.Schema, mask: pa.ChunkedArray) -> pa.Table:
        """As `_read`, but only the rows that `mask` marks, where they are few.

        Reads portion by portion: portions without a match are dropped at once, and
        nothing is decoded after the last match.
        """
        marked = pc.indices_nonzero(mask)
        last = marked[-1].as_py()
        physical = self._physical(group.file, wanted)
        rows = _Rows(group, ((0, group.row_count),), mask)
        if not physical:
            return self._assembled(pa.table({}), physical, wanted, rows)
        parts, at = [], 0
        for batch in group.file.parquet.iter_batches(
            _PORTION_ROWS,
            row_groups=[group.index],
            columns=_all_paths(physical),
        ):
            part = mask.slice(at, batch.num_rows)
            at += batch.num_rows
            if pc.any(part).as_py():
                parts.append(pa.Table.from_batches([batch]).filter(part))
            if at > last:
                break
        if at <= last:
            raise self._has_other_rows(group, at)
        stored = pa.concat_tables(parts).select([field.name for field in physical])
        return self._assembled(stored, physical, wanted, rows)

    def _physical(self, file: OpenFile, wanted: pa.Schema) -> list[pa.Field]:
        """The fields of the file from which columns are made."""
        stored_by_id = {field_id(field): field for field in self.file_schema}
        found = []
        for field in wanted:
            if is_metadata(field):
                hidden = None if self.foreign else by_id(field, list(file.footer.arrow_schema))
                if hidden is not None:
                    found.append(hidden)
                continue
            stored = stored_by_id.get(field_id(field))
            if stored is not None and field.name not in self.spec.partition_by:
                found.append(narrowed(stored, field, by_id) if field.name in self.parts else stored)
        lacking = [field for field in found if field.name not in file.footer.names]
        if not lacking:
            return found
        self._check_lacks(file, lacking)
        # A column that another commit added while this file was written is not in it.
        return [field for field in found if field.name in file.footer.names]

    def _check_lacks(self, file: OpenFile, lacking: Sequence[pa.Field]) -> None:
        """Check that a file lacks columns, and does not have them under other names.

        Raises:
            CorruptDatasetError: a column of the file has the field id of one that it lacks.
        """
        if self.foreign:
            return  # its columns are found by names, and ids in it mean nothing
        names = {field_id(field): field.name for field in file.footer.arrow_schema}
        for field in lacking:
            other = names.get(field_id(field))
            if other is not None:
                raise CorruptDatasetError(
                    path=self.storage.display(self.task.path),
                    reason=f"its footer calls column {field.name!r} {other!r}",
                )

    def _assembled(
        self, stored: pa.Table, physical: list[pa.Field], wanted: pa.Schema, rows: _Rows
    ) -> pa.Table:
        """`stored` in the dataset's types, with partition values, defaults and metadata."""
        source = pa.schema(physical)
        count = rows.count
        columns = []
        for field in wanted:
            if is_metadata(field):
                hidden = by_id(field, physical)
                moved = None if hidden is None else stored.column(hidden.name)
                columns.append(self._metadata_column(field, moved, rows))
            elif field.name in self.spec.partition_by:
                columns.append(pa.chunked_array([self._partition_column(field, count)]))
            elif by_id(field, physical) is not None:
                columns.append(self._align(stored, pa.schema([field]), source))
            else:
                columns.append(column_without_data(field, count))
        return pa.Table.from_arrays(columns, schema=wanted)

    def _metadata_column(
        self, field: pa.Field, moved: pa.ChunkedArray | None, rows: _Rows
    ) -> pa.ChunkedArray:
        """A metadata column. `moved` has the values of rows that came from other files."""
        id = field_id(field)
        place = self.task.place
        assert place is not None  # a plan with metadata columns has it
        if id == FILE_ID:
            column = pa.repeat(self.task.path, rows.count)
        elif id == VERSION_ID:
            column = pa.repeat(pa.scalar(place.version, pa.int64()), rows.count)
        else:
            first = place.first_row_id if id == ROW_ID else 0
            column = pc.add(rows.positions, pa.scalar(first, pa.int64()))
        if moved is not None:
            column = pc.coalesce(moved, column)
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])

    def _align(self, stored: pa.Table, wanted: pa.Schema, source: pa.Schema) -> pa.ChunkedArray:
        field = wanted.field(0)
        same = by_id(field, list(source))
        if same is not None and not is_nested(field.type):
            column = stored.column(same.name)
            # Most columns are what is wanted, and `align` takes longer to find that out.
            if column.type.equals(field.type) and (field.nullable or not column.null_count):
                return column
        try:
            return align(stored, wanted, source, by_id, initial_default).column(0)
        except SchemaMismatchError as error:
            committed = by_id(wanted.field(0), list(source))
            assert committed is not None
            found = stored.schema.field(committed.name).type
            shown = self.storage.display(self.task.path)
            stored_type = without_metadata(pa.schema([committed])).field(0).type
            if stored_type.equals(storage_type(found, "")):
                # A value that the column's present type has no room for.
                raise SchemaMismatchError(
                    column=error.column,
                    expected=error.expected,
                    got=error.got,
                    dataset=shown,
                    reason=error.reason,
                    hint=error.hint,
                ) from error
            raise CorruptDatasetError(
                path=shown,
                reason=f"its column {committed.name!r} has type {found}, not {committed.type}",
            ) from error

    def _partition_column(self, field: pa.Field, rows: int) -> pa.Array:
        text = self.task.partitions[self.spec.partition_by.index(field.name)]
        if text is None:
            return pa.nulls(rows, field.type)
        return pa.repeat(partition_value(text, field.type), rows)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what Arrow raises over a damaged or missing file into an error that names it."""
        shown = self.storage.display(self.task.path)
        try:
            yield
        except PlakeError:
            raise
        except pa.ArrowCancelled:
            raise
        except (pa.ArrowException, ValueError, LookupError, OverflowError) as error:
            raise CorruptDatasetError(path=shown, reason=str(error)) from error
        except OSError as error:
            if "CRC checksum" in str(error):  # PyArrow has no class of its own for this
                raise CorruptDatasetError(path=shown, reason=str(error)) from error
            raise StorageError(path=shown, reason=str(error)) from error


def _one_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _of_live(
    mask: pa.ChunkedArray | pa.BooleanArray, live: pa.BooleanArray | None
) -> pa.ChunkedArray | pa.BooleanArray:
    """The rows that `mask` marks and that are not deleted."""
    return mask if live is None else pc.and_(_one_array(mask), live)


def _most_of(table: pa.Table, mask: pa.BooleanArray | pa.ChunkedArray) -> pa.Table:
    """The rows that a mask marks, most of them. `Table.filter` takes twice as long for that."""
    if not table.num_columns:
        return table.filter(mask)
    columns = [pc.filter(column, mask) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _marked(rows: tuple[RowRange, ...], mask: pa.ChunkedArray) -> tuple[RowRange, ...]:
    """Those of the rows that `mask` marks; it has an item for each row in `rows`."""
    marked: list[RowRange] = []
    before = at = 0
    for place in pc.indices_nonzero(mask).to_pylist():
        while place - before >= rows[at][1] - rows[at][0]:
            before += rows[at][1] - rows[at][0]
            at += 1
        row = rows[at][0] + place - before
        if marked and marked[-1][1] == row:
            marked[-1] = (marked[-1][0], row + 1)
        else:
            marked.append((row, row + 1))
    return tuple(marked)


def _has_dots(fields: Iterable[pa.Field]) -> bool:
    return any("." in field.name or _has_dots(children(field.type)) for field in fields)


def _all_paths(fields: Iterable[pa.Field]) -> list[str]:
    return [path for field in fields for path in leaf_paths(field)]


def _bare(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns without field ids."""
    return pa.Table.from_arrays(table.columns, schema=schema)
