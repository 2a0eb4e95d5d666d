"""Edge. Batches of rows to Parquet files, on executors and in plain Python alike.

Spark hands over batches of 10,000 rows, and Arrow's writer makes one row group per call, so rows
are gathered here until a row group is full. The gathered rows of all open partition values are
bounded together, so that a process that writes a stream of any length stays below 512 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import uuid6

from lakehouse_source.constraints import check_rows
from lakehouse_source.errors import (
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.generated import Counter, completed, lacking
from lakehouse_source.language import BoundPredicate
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.layout import Curve, comparable, sorted_places
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.new_file import NewFile
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.schema.align import align, by_name, check_digits
from lakehouse_source.schema.arrow_arrays import shown_row, with_offsets
from lakehouse_source.schema.fields import hidden_columns, leaves
from lakehouse_source.schema.partitions import partition_folder
from lakehouse_source.schema.paths import order_paths
from lakehouse_source.schema.spark_metadata import fitted_texts
from lakehouse_source.schema.variant import is_variant
from lakehouse_source.storage import Storage

# Above these sizes, of one row group and of all gathered rows, a row group is written early, so
# that rows do not fill the memory. Sorting copies a run of rows, and the encoder a column.
ROW_GROUP_BYTES = 64 * 1024 * 1024
BUFFERED_BYTES = 128 * 1024 * 1024
# Arrow keeps the encoder of a file's last column until the file's next row group. All open files
# together may keep this much.
OPEN_FILE_BYTES = 48 * 1024 * 1024
# Memory that each column of a gathered table takes besides its values (measured). If this memory
# was not counted, many tables of a few rows would fill the memory.
CHUNK_BYTES = 800
# If a partition value has more small tables, they are copied into one table.
MOST_TABLES = 64
# A batch is taken in slices of about this size: converting a slice makes a copy of it.
SLICE_BYTES = 16 * 1024 * 1024
# Rows gathered before they are divided by partition values (fewer if rows are wide).
# Dividing each batch of 10,000 rows over 1,000 values took five times as long.
SPLIT_ROWS = 131_072
# With sort columns, runs of this many row groups are sorted at a time.
SORT_RUN_ROW_GROUPS = 8
# PyArrow 24 is the first whose Parquet writer has the option `bloom_filter_options`.
CAN_WRITE_BLOOM_FILTERS = int(pa.__version__.split(".")[0]) >= 24


def write_files(
    spec: WriteSpec, batches: Iterable[pa.RecordBatch], storage: Storage | None = None
) -> list[FileMetadata]:
    """Write rows to new files below the dataset and describe the files.

    The files are complete and durable when this returns; nothing refers to them
    yet. When it raises, the files written so far are deleted as far as possible.

    Raises:
        InvalidOptionError: this PyArrow cannot write what `spec` asks for.
        SchemaMismatchError: a batch does not fit `spec.schema` or `spec.must_match`.
        ConstraintViolationError: a row breaks one of `spec.constraints`.
        StorageError: a file could not be written.
    """
    # Checked here too, not only on the driver: executors may have another PyArrow.
    check_can_write(spec)
    writer = _PartitionedWriter(spec, storage or Storage(spec.uri))
    try:
        for batch in batches:
            writer.add(batch)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def check_can_write(spec: WriteSpec) -> None:
    """Check that the PyArrow of this process can write what `spec` asks for."""
    if spec.bloom_filter_columns and not CAN_WRITE_BLOOM_FILTERS:
        raise InvalidOptionError(
            option="bloomFilterColumns",
            value=", ".join(spec.bloom_filter_columns),
            reason=f"needs PyArrow 24 or newer, and PyArrow {pa.__version__} is installed. "
            "Upgrade pyarrow, or leave the option out.",
        )


@dataclass(slots=True)
class _Partition:
    """One partition value: the rows gathered for its next row group, and its open file."""

    values: dict[str, Any]
    folder: str
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0
    file: NewFile | None = None
    used: int = 0


class _PartitionedWriter:
    def __init__(self, spec: WriteSpec, storage: Storage) -> None:
        self.spec = spec
        self.storage = storage
        self.file_schema = spec.file_schema
        self.counter = Counter(spec.numbers)
        self.partitions: dict[tuple[Any, ...], _Partition] = {}
        self.finished: list[FileMetadata] = []
        self.paths: list[str] = []
        self.buffered_bytes = 0
        self.undivided: list[pa.Table] = []
        self.undivided_rows = 0
        self.undivided_bytes = 0
        self.clock = 0
        self.order = order_paths(spec.sort_by, spec.schema)
        # Where rows are clustered, only those of a row group are sorted.
        self.sorts_groups = bool(spec.sort_by and (spec.cluster_by or spec.ordered_by))
        sorts_runs = bool(spec.cluster_by or (spec.sort_by and not spec.ordered_by))
        run = SORT_RUN_ROW_GROUPS if sorts_runs else 1
        self.run_rows = spec.row_group_rows * run
        # While a run of one partition value is sorted, it is in memory twice.
        most = BUFFERED_BYTES // 2 if sorts_runs else BUFFERED_BYTES
        self.run_bytes = min(ROW_GROUP_BYTES * run, most)
        self.overhead_bytes = CHUNK_BYTES * sum(1 for _ in leaves(spec.row_schema))

    def add(self, batch: pa.RecordBatch) -> None:
        batch = with_offsets(batch)
        slices = max(1, -(-batch.nbytes // SLICE_BYTES))
        rows = max(1, -(-batch.num_rows // slices))
        for start in range(0, batch.num_rows, rows):
            self._add(batch.slice(start, rows))

    def _add(self, rows: pa.RecordBatch) -> None:
        table = checked_rows(self.spec, rows, self.counter)
        if not self.spec.partition_by:
            self._gather((), table)
            return
        self.undivided.append(table)
        self.undivided_rows += table.num_rows
        self.undivided_bytes += table.nbytes
        if self.undivided_rows >= SPLIT_ROWS or self.undivided_bytes >= BUFFERED_BYTES // 8:
            self._divide()

    def _divide(self) -> None:
        if not self.undivided:
            return
        table = pa.concat_tables(self.undivided)
        self.undivided, self.undivided_rows, self.undivided_bytes = [], 0, 0
        for key, rows in split(table, self.spec.partition_by):
            self._gather(key, rows)

    def _gather(self, key: tuple[Any, ...], rows: pa.Table) -> None:
        partition = self.partitions.get(key)
        if partition is None:
            values = dict(zip(self.spec.partition_by, key))
            partition = _Partition(values, partition_folder(values))
            self.partitions[key] = partition
        self.clock += 1
        partition.used = self.clock
        partition.tables.append(rows)
        partition.rows += rows.num_rows
        self._count(partition, rows.nbytes + self.overhead_bytes)
        if len(partition.tables) > MOST_TABLES:
            together = pa.concat_tables(partition.tables).combine_chunks()
            partition.tables = [together]
            size = together.nbytes + self.overhead_bytes
            self._count(partition, size - partition.size_bytes)
        if partition.rows >= self.run_rows or partition.size_bytes >= self.run_bytes:
            self._flush(partition, whole=partition.size_bytes >= self.run_bytes)
        while self.buffered_bytes > BUFFERED_BYTES:
            self._flush(max(self.partitions.values(), key=lambda p: p.size_bytes), whole=True)

    def _count(self, partition: _Partition, size_bytes: int) -> None:
        partition.size_bytes += size_bytes
        self.buffered_bytes += size_bytes

    def _flush(self, partition: _Partition, *, whole: bool) -> None:
        """Write the gathered rows. Unless `whole`, keep those after the last full row group."""
        if not partition.rows:
            return
        table = pa.concat_tables(partition.tables)
        groups = list(self._row_groups(table, whole))
        keep = table.num_rows - groups[-1][1] if groups else table.num_rows
        rest = table.slice(table.num_rows - keep) if keep else None
        table = table.slice(0, table.num_rows - keep)
        partition.tables = [] if rest is None else [rest]
        partition.rows = keep
        left = 0 if rest is None else rest.nbytes + self.overhead_bytes
        self._count(partition, left - partition.size_bytes)
        if self.spec.cluster_by:
            table = clustered(table, self.spec.cluster_by)
        elif self.order and not self.sorts_groups:
            table = _in_order(table, self.order)
        for start, end in groups:
            group = table.slice(start, end - start)
            if self.sorts_groups:
                group = _in_order(group, self.order)
            self._write_row_group(partition, group)

    def _row_groups(self, table: pa.Table, whole: bool) -> Iterator[tuple[int, int]]:
        """Where row groups begin and end: for all rows if `whole`, else for full runs."""
        step = self.spec.row_group_rows
        total = table.num_rows if whole else table.num_rows - table.num_rows % self.run_rows
        start = 0
        while start < total and (whole or total - start >= step):
            end = min(start + step, total)
            if len(self.spec.ordered_by) == 1 and not (whole and end == total):
                end = last_change(table, self.spec.ordered_by[0], start, end)
            yield start, end
            start = end

    def _write_row_group(self, partition: _Partition, rows: pa.Table) -> None:
        if partition.file is None:
            self._make_room(1)
            name = f"{self.spec.write_id}-{uuid6.uuid7()}.parquet"
            path = f"{partition.folder}/{name}" if partition.folder else name
            self.paths.append(path)
            partition.file = NewFile(self.spec, self.storage, path, self.file_schema, rows)
        before = pa.total_allocated_bytes()
        partition.file.write(rows)
        partition.file.kept_bytes += pa.total_allocated_bytes() - before
        if partition.file.size_bytes >= self.spec.target_file_size_bytes:
            self._close(partition)
        elif self.spec.partition_by:
            self._make_room(0)

    def _make_room(self, more: int) -> None:
        """Close files until `more` can be opened and the open ones keep little memory.

        The first file to close is the file that is likely to be idle for longest: the file with the
        fewest rows gathered for its next row group. The least recently used file would be a bad
        choice: if rows come in no order, each partition value is written in turn, and this file is
        needed next.
        """
        opened = [p for p in self.partitions.values() if p.file is not None]
        kept_bytes = sum(p.file.kept_bytes for p in opened if p.file is not None)
        room = self.spec.max_open_files - more
        if len(opened) <= room and kept_bytes <= OPEN_FILE_BYTES:
            return
        opened.sort(key=lambda p: (p.size_bytes, p.used), reverse=True)
        while opened and (len(opened) > room or kept_bytes > OPEN_FILE_BYTES):
            partition = opened.pop()
            assert partition.file is not None
            kept_bytes -= partition.file.kept_bytes
            self._close(partition)

    def _close(self, partition: _Partition) -> None:
        file, partition.file = partition.file, None
        if file is not None:
            self.finished.append(file.close(partition.values))

    def finish(self) -> list[FileMetadata]:
        self._divide()
        for partition in self.partitions.values():
            self._flush(partition, whole=True)
            self._close(partition)
        reach("files closed")
        if self.finished:
            self.storage.sync_folders(file.path for file in self.finished)
        reach("folders synced")
        return self.finished

    def discard(self) -> None:
        for partition in self.partitions.values():
            if partition.file is not None:
                partition.file.abandon()
        for path in self.paths:
            try:
                self.storage.delete(path)
            except StorageError:
                # The file stays as an orphan, which vacuum deletes. The first error is raised.
                continue


def checked_rows(spec: WriteSpec, batch: pa.RecordBatch, counter: Counter) -> pa.Table:
    """The rows of a batch with the columns of `spec.row_schema`. `counter`: of `spec.numbers`.

    Raises:
        SchemaMismatchError: the batch does not fit `spec.schema` or `spec.must_match`.
        ConstraintViolationError: a row breaks one of `spec.constraints`.
        GeneratedColumnError: a row has another value than one of `spec.generated` gives.
    """
    table = pa.Table.from_batches([batch])
    wanted = lacking(spec.row_schema, (*spec.generated, *spec.numbers))
    table = align(table, wanted, batch.schema, by_name, spec.default)
    check_digits(table)
    if not spec.moved_rows:
        table = fitted_texts(table, spec.schema)
    if spec.numbers:
        table = counter.fill(
            table, hidden_columns(spec.schema)[0].name if spec.moved_rows else None
        )
    if spec.generated or spec.numbers:
        table = completed(table, spec.generated, spec.row_schema)
    if spec.must_match is not None:
        _check_condition(table, spec.must_match)
    if spec.constraints:
        check_rows(table.select(spec.schema.names), spec.constraints)
    return table


def _check_condition(table: pa.Table, must_match: BoundPredicate) -> None:
    mask = pc.fill_null(matching_mask(table, must_match), False)
    outside = table.num_rows - (pc.sum(mask).as_py() or 0)
    if outside:
        row = shown_row(table, pc.index(mask, False).as_py(), must_match.columns)
        raise SchemaMismatchError(
            column=", ".join(must_match.columns),
            reason=f"has other values: {outside} incoming rows do not satisfy the condition of the "
            f"overwrite, one with {row}; nothing was written",
            hint="Filter the data, or widen the condition.",
        )


def split(
    table: pa.Table, partition_by: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each partition value, with that value as Python objects.

    Raises:
        SchemaMismatchError: a date or a timestamp is outside of the years 1 to 9999.
    """
    table = table.combine_chunks()
    codes: pa.Array = None
    for name in partition_by:
        found = pc.dictionary_encode(_whole(table.column(name)), null_encoding="encode")
        mine = found.indices.cast(pa.int64())
        if codes is not None:
            # Codes are renumbered each time, so they stay below the number of rows and the
            # products do not overflow.
            mine = pc.add(pc.multiply(codes, len(found.dictionary)), mine)
            mine = pc.dictionary_encode(mine).indices.cast(pa.int64())
        codes = mine
    order = pc.sort_indices(codes)
    runs = pc.run_end_encode(codes.take(order))
    ends = runs.run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    firsts = table.select(list(partition_by)).take(order.take(pa.array(starts, pa.int64())))
    keys = zip(*(partition_values(name, firsts.column(name)) for name in partition_by))
    for start, end, key in zip(starts, ends, keys):
        # Copied, not sliced: a slice of few rows would keep the whole table in memory.
        picked = order.slice(start, end - start)
        yield key, table if len(ends) == 1 else table.take(picked)


def partition_values(name: str, column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a partition column as Python objects.

    Raises:
        SchemaMismatchError: a date or a timestamp is outside of the years 1 to 9999.
    """
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError) as exc:
        raise SchemaMismatchError(
            column=name,
            got=column.type,
            reason=f"has a value outside of the years 1 to 9999 ({exc}), by which no dataset can "
            "be partitioned",
            hint="Leave the column out of partition_by, or correct the value.",
        ) from exc


def clustered(table: pa.Table, paths: Sequence[tuple[str, ...]]) -> pa.Table:
    """The rows in the order of columns, nested ones by their paths (see `layout`)."""
    columns = column_arrays(table, paths)
    curve = Curve.of(columns) if len(columns) > 1 else None
    return table.take(sorted_places(columns, curve))


def _in_order(table: pa.Table, paths: Sequence[tuple[str, ...]]) -> pa.Table:
    """The rows sorted by columns, and by paths of VARIANT."""
    keys = [column_arrays(table, [path])[0] for path in paths]
    names = [str(number) for number in range(len(keys))]
    return table.take(
        pc.sort_indices(pa.table(keys, names), [(name, "ascending") for name in names])
    )


def last_change(table: pa.Table, path: tuple[str, ...], start: int, end: int) -> int:
    """The last row in the last eighth before `end` that differs from the row before it, or `end`.

    `end` itself is used if the row there differs.
    """
    low = max(start, end - max(1, (end - start) // 8))
    column, *_ = column_arrays(table.slice(low, end + 1 - low), [path])
    values = comparable(column)
    differs = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1))
    places = pc.indices_nonzero(pc.fill_null(differs, True))
    return low + 1 + places[-1].as_py() if len(places) else end


def column_arrays(table: pa.Table, paths: Sequence[tuple[str, ...]]) -> list[pa.Array]:
    """Leaf columns, each as one array; a field of a struct that is NULL is NULL.

    Of what is at a path of VARIANT, bytes that have its order.
    """
    found = []
    for path in paths:
        column = table.column(path[0])
        if is_variant(column.type):
            from lakehouse_source.schema.variant_columns import order_keys  # imports numpy

            found.append(order_keys(_whole(column).storage, path[1:]))
            continue
        for name in path[1:]:
            column = pc.struct_field(column, name)
        found.append(_whole(column))
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
