"""Door. Batch reads and writes: what Spark calls on the driver and on executors."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.model import FileMetadata, ScanTask
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.parquet.spec import ReadSpec
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.plan import ScanPlan, plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.align import align, by_name
from lakehouse_source.schema.fields import children, is_nested
from lakehouse_source.spark.decode_conditions import usable
from lakehouse_source.spark.pushdown import Pushdown
from lakehouse_source.spark.secrets import conceal, reveal
from lakehouse_source.spark.types import batch_schema, columns_for, narrowed_structs
from lakehouse_source.spark.workers import spare_collection
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit import abort, commit
from lakehouse_source.write.options import StagedWrite

SPLIT_SIZE_BYTES = 128 * 1024 * 1024
# What opening one more file costs, in bytes that could have been read meanwhile.
FILE_COST_BYTES = 1024 * 1024
# Below this a partition of its own costs more (about 50 ms of a core) than it gains.
SMALLEST_SPLIT_BYTES = 4 * 1024 * 1024
# What a text or the like takes, as `defaultSize` of Spark's types has it.
VARIABLE_WIDTH_BYTES = 20
# Rows of a batch handed to the JVM.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class ScanPartition(InputPartition):
    """The scan tasks of one Spark partition.

    Pickled with the number of rows outside of the tasks, for the planner extension
    (`planner/src/io/plake/spark/RowCount.java`), which reads pickles of plain values.
    """

    tasks: tuple[ScanTask, ...]

    def __getstate__(self) -> dict[str, Any]:
        rows = sum(task.row_count for task in self.tasks)
        return {"row_count": rows, "packed": pickle.dumps(self.tasks)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "tasks", pickle.loads(state["packed"]))


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a frame asks for: where, which version, and the options that narrow it."""

    path: str
    catalog: str | None
    version: int
    columns: tuple[str, ...] | None
    where: str | None
    split_size_bytes: int | None

    @contextmanager
    def opened(self) -> Iterator[tuple[CatalogReader, Snapshot]]:
        """The catalog, and in it the version of the frame."""
        address = Address(self.path, reveal(self.catalog))
        with address.open() as catalog, catalog.read() as reader:
            yield reader, address.snapshot(catalog, reader, self.version)


class PlakeReader(DataSourceReader):
    """Reads one scan. Planned on the driver when Spark first needs the plan.

    It has no `pushFilters`: Spark calls that of a reader whose plan other scans
    share. What reaches executors is a `TaskReader`: no catalog, no plan.
    """

    def __init__(self, request: ReadRequest, isolation: Pushdown) -> None:
        self.request = request
        self.isolation = isolation
        self.schema = isolation.schema
        self._plan: ScanPlan | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (TaskReader, self._for_tasks())

    def _for_tasks(self) -> tuple[Any, ...]:
        asked = self.isolation
        return (self.plan().spec, self.schema, asked.rows_only, asked.limit, asked.unscaled)

    def plan(self) -> ScanPlan:
        """The scan's tasks, planned once."""
        if self._plan is None:
            request, asked = self.request, self.isolation
            with request.opened() as (reader, snapshot):
                condition = PredicateSet.of(request.where) & usable(
                    asked.condition, snapshot.schema
                )
                made = plan(
                    reader,
                    snapshot,
                    read_uri=request.path,
                    predicates=condition & usable(asked.join_keys, snapshot.schema),
                    columns=columns_for(self.schema, snapshot.schema),
                    limit=asked.limit,
                )
            narrowed = narrowed_structs(self.schema, snapshot.schema)
            spec = replace(made.spec, narrowed=narrowed, file_schemas=snapshot.file_schemas)
            if asked.join_keys:
                # Alike for every run of the query: whatever is planned, any reader can read it.
                bound = condition.bind(snapshot.schema)
                spec = replace(spec, predicate=None if bound.always_true else bound)
            self._plan = replace(made, spec=spec)
        return self._plan

    def partitions(self) -> list[InputPartition]:
        tasks = self.plan().tasks
        if not (self.isolation.rows_only and stands_in(self.schema)):
            return self._pack(tasks)
        # Rows to be counted cost nothing: they need no dividing, and no second partition.
        counted = ScanPartition(tuple(task for task in tasks if not task.filtered))
        rest = [task for task in tasks if task.filtered]
        return [counted, *self._pack(rest)]

    def _pack(self, tasks: Sequence[ScanTask]) -> list[InputPartition]:
        return list(pack(tasks, self.request.split_size_bytes, needed_share(self.plan().spec)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return TaskReader(*self._for_tasks()).read(partition)


class TaskReader(DataSourceReader):
    """Runs on executors: turns scan tasks into batches of exactly Spark's schema."""

    def __init__(
        self,
        spec: ReadSpec,
        schema: StructType,
        rows_only: bool,
        limit: int | None,
        unscaled: tuple[str, ...],
    ) -> None:
        self.spec = spec
        self.schema = schema
        self.rows_only = rows_only
        self.limit = limit
        self.unscaled = unscaled

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self.limit
        for decoded in self._batches(partition):
            batch = without_scale(decoded, self.unscaled)
            if left is None:
                yield batch
                continue
            if left > 0:
                yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    def _batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_collection()
        target = batch_schema(self.schema)
        storage = Storage(self.spec.uri)
        tasks = partition.tasks if isinstance(partition, ScanPartition) else ()
        counting = self.rows_only and stands_in(self.schema)
        for task in tasks:
            if counting and not task.filtered:
                yield from _rows(task.row_count, target)
                continue
            for table in read_task(self.spec, task, storage):
                aligned = align(table, target, table.schema, by_name).combine_chunks()
                yield from aligned.to_batches(max_chunksize=BATCH_ROWS)


def without_scale(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with decimals of up to 18 digits as int64, unscaled."""
    for name in names:
        at = batch.schema.get_field_index(name)
        decimals = batch.column(at)
        # 16 bytes, the lower half first: an int64, as the upper half is but its sign.
        halves = np.frombuffer(decimals.buffers()[1], np.int64)
        start, size = 2 * decimals.offset, len(decimals)
        lower = np.ascontiguousarray(halves[start : start + 2 * size : 2])
        validity = decimals.is_valid().buffers()[1] if decimals.null_count else None
        longs = pa.Array.from_buffers(pa.int64(), size, [validity, pa.py_buffer(lower)])
        field = pa.field(name, pa.int64(), batch.schema.field(at).nullable)
        batch = batch.set_column(at, field, longs)
    return batch


def stands_in(schema: StructType) -> bool:
    """Tell whether a column can be made up where Spark only counts rows."""
    field = batch_schema(schema).field(0)
    return bool(field.nullable or pa.types.is_primitive(field.type))


def _rows(count: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of which only the number matters: no file is opened."""
    while count > 0:
        size = min(count, BATCH_ROWS)
        columns = [_made_up(field, size) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        count -= size


def _made_up(field: pa.Field, size: int) -> pa.Array:
    """Values that nobody looks at: NULL where it may be, else zero bits."""
    if field.nullable:
        return pa.nulls(size, field.type)
    zeros = pa.py_buffer(bytes(-(-size * field.type.bit_width // 8)))
    return pa.Array.from_buffers(field.type, size, [None, zeros])


def needed_share(spec: ReadSpec) -> float:
    """The part of the bytes of a row group that a scan decodes, by the widths of its columns."""
    wanted = {field.name: field for field in spec.target}
    for name in spec.predicate.columns if spec.predicate is not None else ():
        wanted[name] = spec.schema.field(name)
    stored = [field for field in spec.schema if field.name not in spec.partition_by]
    whole = sum(_width(field) for field in stored)
    needed = sum(_width(wanted[field.name]) for field in stored if field.name in wanted)
    return needed / whole if whole else 1.0


def _width(field: pa.Field) -> int:
    """Bytes of a value before it is encoded; of texts and their like what Spark supposes."""
    if is_nested(field.type):
        return sum(_width(child) for child in children(field.type))
    try:
        return max(1, int(field.type.bit_width) // 8)
    except ValueError:
        return VARIABLE_WIDTH_BYTES


def pack(
    tasks: Sequence[ScanTask], split_size_bytes: int | None, needed: float = 1.0
) -> list[ScanPartition]:
    """Tasks in Spark partitions of about equal bytes; small files share one.

    Files larger than a partition are divided by row groups. A given size counts
    all bytes of row groups. Without one, only the part of them that is `needed`
    counts, and there are as many partitions as the driver has cores, as long as
    they are worth their start, or more if these would be large.
    """
    needed = 1.0 if split_size_bytes is not None else max(needed, 1e-6)

    def cost(task: ScanTask) -> float:
        return task.byte_count * needed + FILE_COST_BYTES

    total = sum(map(cost, tasks))
    even = max(SMALLEST_SPLIT_BYTES, total / (os.cpu_count() or 1))
    size = split_size_bytes or min(SPLIT_SIZE_BYTES, even)
    pieces = [piece for task in tasks for piece in _divide(task, size / needed)]
    # By the cost of whole tasks: to divide a file must not cost a partition more.
    count = max(1, math.ceil(total / size))
    bins: list[list[ScanTask]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [0.0] * len(bins)
    # Largest first into the least loaded: within 4/3 of the best balance (Graham 1969).
    for piece in sorted(pieces, key=cost, reverse=True):
        lightest = loads.index(min(loads))
        bins[lightest].append(piece)
        loads[lightest] += cost(piece)
    return [ScanPartition(tuple(some)) for some in bins]


def _divide(task: ScanTask, size_bytes: float) -> Iterator[ScanTask]:
    groups = task.row_groups
    parts = min(math.ceil(task.byte_count / size_bytes), len(groups or ()))
    if groups is None or parts <= 1:
        yield task
        return
    for index in range(parts):
        some = groups[index * len(groups) // parts : (index + 1) * len(groups) // parts]
        share = len(some) / len(groups)
        yield replace(
            task,
            row_groups=some,
            row_count=int(task.row_count * share),
            byte_count=int(task.byte_count * share),
        )


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """The files of one task attempt; only those named here can be committed."""

    files: tuple[FileMetadata, ...]


class PlakeWriter(DataSourceArrowWriter):
    """Writes one frame: files on executors, one commit on the driver."""

    def __init__(self, staged: StagedWrite, path: str, catalog: str | None) -> None:
        self.staged = staged
        self.path = path
        self.catalog = conceal(catalog)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        spare_collection()
        files = write_files(self.staged.spec, iterator)
        # The schema is the same for all and the footer is large: neither travels.
        nothing = pa.schema([])
        return FilesWritten(
            tuple(replace(file, schema=nothing, parquet_metadata=None) for file in files)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with Address(self.path, reveal(self.catalog)).open() as catalog:
            commit(catalog, self.staged, self._files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with Address(self.path, reveal(self.catalog)).open() as catalog:
            abort(catalog, self.staged, self._files(messages))

    def _files(self, messages: Sequence[WriterCommitMessage | None]) -> list[FileMetadata]:
        """Failed tasks leave None."""
        schema = self.staged.spec.file_schema
        return [
            replace(file, schema=schema)
            for message in messages
            if isinstance(message, FilesWritten)
            for file in message.files
        ]
