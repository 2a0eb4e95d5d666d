"""Edge. Scan tasks to Arrow tables, on executors and in plain Python alike.

Knows files and nothing else: no catalog, no planning. Row groups are read one by one, never with
a filter: Arrow would prune by footer statistics on its own and lose rows with NaN. A row group
whose bloom filters rule out a match is not decoded. Of the other row groups, the condition's
columns are decoded first, and the other columns only where a row matches. Where the page indexes
rule out most rows, only the pages with the remaining rows are fetched and decoded. Where few rows
match, decoding stops after the last of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.deletion import Positions, live_mask
from lakehouse_source.errors import CorruptDatasetError, PlakeError, StorageError
from lakehouse_source.language.bounds.implied import paths_read
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.alike import SMALL_FILE_BYTES, AlikeFiles
from lakehouse_source.parquet.bloom import FileFilters
from lakehouse_source.parquet.checked_footer import CheckedFooter, open_footer
from lakehouse_source.parquet.foreign import read_schema
from lakehouse_source.parquet.likely_rows import LikelyRows, placed
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.open_file import (
    ColumnSet,
    OpenFile,
    PagesOfFile,
    RowGroup,
    Rows,
    StoredColumns,
    deleted_rows,
    leaf_paths,
    marked,
    most_of,
    of_live,
)
from lakehouse_source.parquet.page_index import PageIndex, PagePruning, RowRange
from lakehouse_source.parquet.page_reader import (
    ROWS_FOR_THREADS,
    PageReader,
    UnusablePages,
    cut,
)
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.pruning.evaluate import asks_for_values
from lakehouse_source.schema.arrow_arrays import empty, rows_alone
from lakehouse_source.schema.fields import field_id
from lakehouse_source.schema.variant_paths import Path
from lakehouse_source.schema.variant_storage import has_variant
from lakehouse_source.storage import Storage, verified
from lakehouse_source.storage.files import ByteRanges

# --- Runs streams of tables in parallel and returns the tables in order, in bounded memory.


Item = TypeVar("Item")


def in_order(
    items: Sequence[Item],
    open_stream: Callable[[Item], Iterator[pa.Table]],
    *,
    width: int,
    buffer_bytes: int,
    pool: ThreadPoolExecutor | None = None,
) -> Generator[tuple[Item, pa.Table], None, None]:
    """The tables of the streams of all items, each with its item, in the order of the items.

    `width` threads read ahead. They pause while waiting tables have more than `buffer_bytes`; each
    thread also holds one table. A generator that is closed early does not wait for the threads:
    each ends after the table that it decodes. Who has to wait gives a `pool`, and ends it.
    """
    waiting = _Waiting(buffer_bytes)

    def read(number: int) -> None:
        try:
            for table in open_stream(items[number]):
                if not waiting.put(number, table):
                    return
        finally:
            waiting.end(number)

    own = None
    if pool is None:
        own = pool = ThreadPoolExecutor(width, thread_name_prefix="plake-read")
    # Futures of few items at a time: there may be a million.
    ahead = min(len(items), 2 * width)
    futures = deque[Future[None]]()
    waits = True
    try:
        futures.extend(pool.submit(read, n) for n in range(ahead))
        for number, item in enumerate(items):
            for table in waiting.tables(number):
                yield item, table
                del table
            futures.popleft().result()  # raises what the stream raised
            if number + ahead < len(items):
                futures.append(pool.submit(read, number + ahead))
    except GeneratorExit:
        # Garbage is collected in any thread, in the middle of anything: also in a thread of this
        # pool, or under a lock that one of them waits for.
        waits = False
        raise
    finally:
        waiting.stop()
        if own is not None:
            own.shutdown(waits, cancel_futures=True)


class _Waiting:
    """Tables that wait for their turn, by the number of their stream."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._tables: dict[int, deque[pa.Table]] = {}
        self._ended: set[int] = set()
        self._turn = 0
        self._blocked = 0
        self._stopped = False
        self._changed = threading.Condition()

    def put(self, number: int, table: pa.Table) -> bool:
        """Let a table wait, as soon as there is room; False: the reader has stopped."""
        size = table.get_total_buffer_size()

        def has_room() -> bool:
            # The stream whose turn it is never pauses, because only later streams fill the buffer.
            wanted = number == self._turn and not self._tables.get(number)
            return self._stopped or wanted or self._size_bytes + size <= self._limit_bytes

        with self._changed:
            if not has_room():
                self._blocked += 1
                self._changed.wait_for(has_room)
                self._blocked -= 1
            if not self._stopped:
                self._tables.setdefault(number, deque()).append(table)
                self._size_bytes += size
                self._report(number)
            return not self._stopped

    def _report(self, number: int) -> None:
        # To wake the caller for each table of other streams takes as long as to read a small file.
        if number == self._turn:
            self._changed.notify_all()

    def end(self, number: int) -> None:
        """Mark that a stream has no more tables."""
        with self._changed:
            self._ended.add(number)
            self._report(number)

    def tables(self, number: int) -> Iterator[pa.Table]:
        """The tables of a stream, whose turn begins now."""
        with self._changed:
            self._turn = number
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tables.get(number) or number in self._ended)
                if not self._tables.get(number):
                    self._ended.discard(number)
                    self._tables.pop(number, None)
                    return
                table = self._tables[number].popleft()
                self._size_bytes -= table.get_total_buffer_size()
                if self._blocked:
                    self._changed.notify_all()
            yield table
            del table

    def stop(self) -> None:
        """Let all streams end."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


# Decoded rows that wait for whoever reads many files.
READ_BUFFER_BYTES = 256 * 1024 * 1024
# Fewer are decoded in the calling thread.
_BYTES_FOR_THREADS = 256 * 1024
# A row group is decoded in portions when at most one row in `_FEW` matches.
_FEW = 1000
_PORTION_ROWS = 16_384
# A smaller row group is read whole: looking at its page indexes would take as long.
FEWEST_ROWS_FOR_PAGES = 16_384
# Pages of several row groups are read together, until they have so many rows: to begin takes longer
# than to decode a page.
_ROWS_AT_ONCE = 262_144
# When pages are read, up to this many matching rows are picked one by one from other columns.
_PICKED_ROWS = 1000
# Columns are filtered one by one where at most one row in so many does not match. Measured on a
# row group of TPC-H lineitem: 7 ms instead of 11 where 99 % of the rows match, but 11 ms instead
# of 9 where 70 % match.
_MOST_OF = 8


def read_task(spec: ReadSpec, task: ScanTask, storage: Storage) -> Iterator[pa.Table]:
    """The matching rows of one task, in file order.

    A table is of one row group, or of several of which few pages are read.

    Raises:
        StorageError: the file is missing or cannot be read.
        CorruptDatasetError: the file is not the one that was committed.
    """
    return _FileReader(_Wanted.of(spec), task, storage).tables()


def read_all(
    spec: ReadSpec,
    tasks: tuple[ScanTask, ...],
    storage: Storage,
    *,
    buffer_bytes: int = READ_BUFFER_BYTES,
) -> Iterator[pa.Table]:
    """The matching rows of many tasks, in task order, files decoded side by side.

    Decoding goes ahead of the caller by `buffer_bytes` of decoded rows, and a row group for each
    thread.
    """
    for _task, table in read_each(spec, tasks, storage, buffer_bytes=buffer_bytes):
        yield table
        del table


def read_each(
    spec: ReadSpec,
    tasks: Sequence[ScanTask],
    storage: Storage,
    *,
    buffer_bytes: int = READ_BUFFER_BYTES,
) -> Iterator[tuple[ScanTask, pa.Table]]:
    """As `read_all`, each table with its task."""
    wanted = _Wanted.of(spec)
    # To hand over few rows takes longer than to read them: of each file, or of few files.
    sizes = accumulate(task.byte_count for task in tasks)
    are_small = storage.is_local and all(
        task.byte_count <= SMALL_FILE_BYTES or size <= _BYTES_FOR_THREADS
        for task, size in zip(tasks, sizes)
    )
    if len(tasks) <= 1 or are_small:
        for task in tasks:
            for table in _tables(wanted, task, storage):
                yield task, table
        return
    yield from in_order(
        tasks,
        lambda task: _tables(wanted, task, storage),
        width=min(len(tasks), max(2, pa.cpu_count())),
        buffer_bytes=buffer_bytes,
    )


_WHOLE: Mapping[str, Collection[Path]] = {}  # every column is read whole


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What all files of a read have in common: the spec, and the schemas that follow from it."""

    spec: ReadSpec
    target: pa.Schema
    output_schema: pa.Schema
    predicate_schema: pa.Schema
    paths: Mapping[str, Collection[Path]]  # of VARIANT, which alone the condition reads
    alike: AlikeFiles

    @classmethod
    def of(cls, spec: ReadSpec) -> _Wanted:
        needed = spec.predicate.columns if spec.predicate is not None else ()
        predicate_schema = pa.schema([spec.schema.field(name) for name in needed])
        paths = _WHOLE
        if spec.predicate is not None and has_variant(predicate_schema):
            paths = paths_read(spec.predicate)
        target, output_schema = spec.target, spec.output_schema
        alike = AlikeFiles(spec, target, output_schema)
        return cls(spec, target, output_schema, predicate_schema, paths, alike)


def _tables(wanted: _Wanted, task: ScanTask, storage: Storage) -> Iterator[pa.Table]:
    table = wanted.alike.read(task, storage)
    if table is None:
        yield from _FileReader(wanted, task, storage).tables()
    elif table.num_rows:
        yield table


class _FileReader:
    def __init__(self, wanted: _Wanted, task: ScanTask, storage: Storage) -> None:
        self.wanted = wanted
        spec = self.spec = wanted.spec
        self.task = task
        self.storage = storage
        # The columns of a file that plake did not write are known only when it is open.
        self.foreign = is_foreign(task.path)
        self.file_schema = spec.file_schemas[task.schema_version]
        self.target = wanted.target
        self.output_schema = wanted.output_schema
        self.predicate_schema = wanted.predicate_schema
        self.paths = wanted.paths

    def tables(self) -> Iterator[pa.Table]:
        with self._errors():
            file = self._opened()
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
                self.columns = StoredColumns(
                    self.spec,
                    self.task,
                    self.file_schema,
                    foreign=self.foreign,
                    storage=self.storage,
                )
                self.paths = self._apart(opened)
                groups = self.task.row_groups
                if groups is None:
                    groups = tuple(range(len(footer.row_counts)))
                filters = self._filters(footer, file)
                self.pages = self._pages(opened)
                self.likely = self._likely(footer)
            portions = self._portions(opened, groups, filters)
            while True:
                with self._errors():
                    some, rows = next(portions, ((), None))
                    if not some:
                        return
                    try:
                        if self.pages is not None and rows is not None:
                            table = self._by_pages(some, rows, self.pages)
                        else:
                            table = self._row_group(some[0])
                    except UnusablePages:
                        self.pages = None
                        portions = chain((((one,), None) for one in some), portions)
                        continue
                if table.num_rows:
                    yield table

    def _portions(
        self, opened: OpenFile, indexes: Iterable[int], filters: FileFilters | None
    ) -> Iterator[tuple[Sequence[RowGroup], tuple[RowRange, ...] | None]]:
        """What is read at once: a whole row group, or rows that pages of row groups hold."""
        starts = opened.footer.row_starts
        groups: list[RowGroup] = []
        rows: tuple[RowRange, ...] = ()
        for index in indexes:
            if filters is not None and filters.rule_out(index):
                continue
            first, end = starts[index], starts[index + 1]
            live = None
            if self.task.deleted is not None:
                live = live_mask(self._deleted, first, end)
                if live is not None and not pc.any(live).as_py():
                    continue
            group = RowGroup(opened, index, end - first, first, live)
            found = self._rows_of_pages(group, keep=bool(groups))
            if found:
                groups.append(group)
                rows += found
            if groups and (found is None or _count(rows) >= _ROWS_AT_ONCE):
                yield groups, rows
                groups, rows = [], ()
            if found is None:
                yield (group,), None
        if groups:
            yield groups, rows

    def _rows_of_pages(self, group: RowGroup, *, keep: bool) -> tuple[RowRange, ...] | None:
        """The rows to read by pages; None: the row group should be read whole."""
        pages = self.pages
        if pages is None or group.row_count < FEWEST_ROWS_FOR_PAGES or not pages.are_worth_a_look:
            return None
        try:
            return pages.rows(group, keep=keep)
        except UnusablePages:
            self.pages = None
            return None

    @cached_property
    def shown(self) -> str:
        """What errors call the file."""
        return self.storage.display(self.task.path)

    @cached_property
    def _deleted(self) -> Positions:
        task = self.task
        return deleted_rows(
            task.deleted,
            task.path,
            task.file_row_count,
            self.storage,
            verify_file=self.spec.verify_files,
        )

    def _filters(self, footer: CheckedFooter, file: pa.NativeFile) -> FileFilters | None:
        """The file's bloom filters, None where they could not rule out a row group."""
        spec, task = self.spec, self.task
        # Filters are looked up by the columns' positions and types in files of plake.
        if self.foreign or spec.predicate is None or spec.unmatched or not task.filtered:
            return None
        if not spec.asks_filters or not asks_for_values(spec.predicate.root):
            return None
        return FileFilters(spec.predicate, footer, self.file_schema, file)

    def _pages(self, opened: OpenFile) -> PagesOfFile | None:
        """The file's page indexes, None where they could not rule out rows."""
        spec = self.spec
        # Leaf columns are found by their paths, which names with dots make ambiguous.
        if spec.predicate is None or spec.unmatched or not self.task.filtered:
            return None
        most = max(opened.footer.row_counts, default=0)
        if opened.footer.has_dots or most < FEWEST_ROWS_FOR_PAGES:
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
            self._part(opened, self.predicate_schema, self.paths),
            self._part(opened, self._rest(self.predicate_schema.names)),
        )

    def _likely(self, footer: CheckedFooter) -> LikelyRows | None:
        """What rules rows out before their VARIANT is put together; None: nothing."""
        spec = self.spec
        if self.foreign or spec.predicate is None or spec.unmatched or not self.paths:
            return None
        return LikelyRows(spec.predicate, footer, self.file_schema)

    def _apart(self, opened: OpenFile) -> Mapping[str, Collection[Path]]:
        """The paths of VARIANT that the file has apart from the rest of their column."""
        if not self.paths:
            return self.paths
        schema, physical = self.predicate_schema, self.columns.physical
        pairs = zip(physical(opened, schema), physical(opened, schema, self.paths))
        ids = {field_id(one) for one, part in pairs if one.type != part.type}
        return {n: paths for n, paths in self.paths.items() if field_id(schema.field(n)) in ids}

    def _part(
        self, opened: OpenFile, wanted: pa.Schema, paths: Mapping[str, Collection[Path]] = _WHOLE
    ) -> ColumnSet:
        physical = self.columns.physical(opened, wanted, paths)
        return ColumnSet(wanted, physical, [opened.column(field) for field in physical])

    def _opened(self) -> pa.NativeFile:
        """The file; if it is to be verified, a copy of the bytes that were."""
        task, shown = self.task, self.shown
        file = self.storage.open_input(task.path)
        size = file.size()
        if size != task.size_bytes:
            file.close()
            raise CorruptDatasetError(
                path=shown, reason=f"it has {size} bytes, not {task.size_bytes}"
            )
        if not self.spec.verify_files or task.sha256 is None:
            return file
        with file:
            return verified(file, task.sha256, shown)

    def _footer(self, file: pa.NativeFile) -> CheckedFooter:
        task, shown = self.task, self.shown
        footer = open_footer(file, shown, remembered=True)
        if footer.row_count != task.file_row_count:
            raise CorruptDatasetError(
                path=shown,
                reason=f"its footer says {footer.row_count} rows, not {task.file_row_count}",
            )
        return footer

    def _by_pages(
        self, groups: Sequence[RowGroup], rows: tuple[RowRange, ...], pages: PagesOfFile
    ) -> pa.Table:
        """The matching rows among `rows` of row groups, read by pages."""
        spec = self.spec
        assert spec.predicate is not None
        stored = self._stored_rows(groups, pages.condition, rows, pages)
        likely = None if self.likely is None else self.likely.among(stored)
        if likely is not None and likely.true_count <= _PICKED_ROWS:
            stored, rows = stored.filter(likely), marked(rows, likely)
        condition = self._assembled(stored, pages.condition, Rows(rows))
        mask = of_live(matching_mask(condition, spec.predicate), self._live(rows))
        matching = pc.sum(mask).as_py() or 0
        if matching == 0:
            return empty(self.output_schema)
        if matching <= _PICKED_ROWS:
            condition, rows = condition.filter(mask), marked(rows, mask)
        needs_rest = len(pages.rest.wanted) > 0
        table = condition
        if needs_rest:
            stored = self._stored_rows(groups, pages.rest, rows, pages)
            table = self._assembled(stored, pages.rest, Rows(rows))
        return self._result(condition, table, mask, matching)

    def _assembled(self, stored: pa.Table, part: ColumnSet, rows: Rows) -> pa.Table:
        return self.columns.assembled(stored, part.physical, part.wanted, rows)

    def _live(self, rows: tuple[RowRange, ...]) -> pa.BooleanArray | None:
        """Which rows are not deleted; None: all."""
        if self.task.deleted is None:
            return None
        parts = [live_mask(self._deleted, first, end) for first, end in rows]
        if all(part is None for part in parts):
            return None
        return pa.concat_arrays(
            [
                pa.repeat(pa.scalar(True), end - first) if part is None else part
                for part, (first, end) in zip(parts, rows)
            ]
        )

    def _stored_rows(
        self,
        groups: Sequence[RowGroup],
        part: ColumnSet,
        rows: tuple[RowRange, ...],
        pages: PagesOfFile,
    ) -> pa.Table:
        """Some rows of columns, as they are stored."""
        if not part.physical:
            return pa.table({})
        chosen = pages.reader.choose(part.columns, rows)
        if chosen.pays:
            return pages.reader.read(chosen)
        read = [one for one in groups if one.index in chosen.whole]
        found = pa.concat_tables([self._whole_columns(one, part.physical) for one in read])
        return cut(found, [*chosen.whole.values()], rows)

    def _row_group(self, group: RowGroup) -> pa.Table:
        spec = self.spec
        rows = group.row_count
        if spec.predicate is None or not self.task.filtered:
            return _bare(self._read(group, self.target, group.live), self.output_schema)
        physical, stored = self._stored(group, self.predicate_schema, self.paths)
        likely = None if self.likely is None else self.likely.among(stored)
        stored = stored if likely is None else stored.filter(likely)
        part = group.rows(likely)
        condition = self.columns.assembled(stored, physical, self.predicate_schema, part)
        mask = matching_mask(condition, spec.predicate)
        if spec.unmatched:
            mask = pc.invert(mask)
        mask = of_live(mask if likely is None else placed(mask, likely), group.live)
        matching = pc.sum(mask).as_py() or 0
        if matching == 0:
            return empty(self.output_schema)
        if likely is not None:
            condition = condition.filter(mask.filter(likely))
        rest = self._rest(condition.column_names)
        few = matching * _FEW <= rows and self.storage.is_local
        if few and len(rest):
            condition = condition if likely is not None else condition.filter(mask)
            table = self._few(group, rest, mask)
        else:
            table = self._read(group, rest) if len(rest) else condition
            if likely is not None and len(rest):
                table = table.filter(mask)
        return self._result(condition, table, mask, matching)

    def _rest(self, known: Iterable[str]) -> pa.Schema:
        """The columns to return that are not among the condition's columns in `known`."""
        # A struct of which only a part is returned is read again, and a VARIANT of which only a
        # part was read.
        done = set(known) - set(self.spec.narrowed) - set(self.paths)
        return pa.schema([field for field in self.target if field.name not in done])

    def _result(
        self, condition: pa.Table, rest: pa.Table, mask: pa.ChunkedArray, matching: int
    ) -> pa.Table:
        """The columns to return, of the `matching` rows. `mask` marks them where others remain."""
        spec = self.spec
        if not spec.columns:
            return rows_alone(matching)
        known = set(condition.column_names) - set(spec.narrowed) - set(self.paths)
        columns = [(condition if name in known else rest).column(name) for name in spec.columns]
        result = pa.Table.from_arrays(columns, schema=self.output_schema)
        if result.num_rows == matching:
            return result
        is_most = matching * _MOST_OF >= result.num_rows * (_MOST_OF - 1)
        if is_most and result.num_columns:
            return most_of(result.columns, self.output_schema, mask)
        return result.filter(mask)

    def _read(
        self, group: RowGroup, wanted: pa.Schema, live: pa.BooleanArray | None = None
    ) -> pa.Table:
        """Columns of one row group, in the dataset's types, partition values filled in.

        `live` marks the rows to return; None: all.
        """
        physical, stored = self._stored(group, wanted, _WHOLE)
        if wanted is self.target:
            self.wanted.alike.learn(self.task, group.file, stored, physical)
        if live is not None and physical:
            schema, columns = stored.schema, stored.columns
            del stored
            stored = most_of(columns, schema, live)
        return self.columns.assembled(stored, physical, wanted, group.rows(live))

    def _stored(
        self, group: RowGroup, wanted: pa.Schema, paths: Mapping[str, Collection[Path]]
    ) -> tuple[list[pa.Field], pa.Table]:
        """The columns of one row group that the file has, as they are stored."""
        physical = self.columns.physical(group.file, wanted, paths)
        return physical, self._whole_columns(group, physical) if physical else pa.table({})

    def _whole_columns(self, group: RowGroup, physical: list[pa.Field]) -> pa.Table:
        parquet = group.file.parquet
        # Few rows can be many bytes, and few bytes many rows: of a dictionary.
        is_large = group.row_count > ROWS_FOR_THREADS or self.task.byte_count > _BYTES_FOR_THREADS
        stored = parquet.read_row_group(
            group.index, columns=_all_paths(physical), use_threads=is_large
        )
        if stored.num_rows != group.row_count:
            raise self._has_other_rows(group, stored.num_rows)
        return stored.select([field.name for field in physical])

    def _has_other_rows(self, group: RowGroup, found: int) -> CorruptDatasetError:
        # A damaged page header makes PyArrow skip a page. No checksum covers the header.
        return CorruptDatasetError(
            path=self.shown,
            reason=f"the pages of row group {group.index} have {found} rows, "
            f"and its footer says {group.row_count}",
        )

    def _few(self, group: RowGroup, wanted: pa.Schema, mask: pa.ChunkedArray) -> pa.Table:
        """As `_read`, but only the rows that `mask` marks, where they are few.

        Reads portion by portion: portions without a match are dropped at once, and
        nothing is decoded after the last match.
        """
        last = pc.indices_nonzero(mask)[-1].as_py()
        physical = self.columns.physical(group.file, wanted)
        rows = group.rows(mask)
        if not physical:
            return self.columns.assembled(pa.table({}), physical, wanted, rows)
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
        return self.columns.assembled(stored, physical, wanted, rows)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what Arrow raises over a damaged or missing file into an error that names it."""
        try:
            yield
        except PlakeError:
            raise
        except pa.ArrowCancelled:
            raise
        except (pa.ArrowException, ValueError, LookupError, OverflowError) as error:
            raise CorruptDatasetError(path=self.shown, reason=str(error)) from error
        except OSError as error:
            if "CRC checksum" in str(error):  # PyArrow has no class of its own for this
                raise CorruptDatasetError(path=self.shown, reason=str(error)) from error
            raise StorageError(path=self.shown, reason=str(error)) from error


def _all_paths(fields: Iterable[pa.Field]) -> list[str]:
    return [path for field in fields for path in leaf_paths(field)]


def _count(rows: Iterable[RowRange]) -> int:
    return sum(end - first for first, end in rows)


def _bare(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns without field ids."""
    return pa.Table.from_arrays(table.columns, schema=schema) if table.num_columns else table
