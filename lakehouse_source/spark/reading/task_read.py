"""Door. Scan tasks: packed into Spark partitions by the driver, read as batches by executors.

A Spark partition costs about 50 ms of a core however small it is: small files share
one, and large files are divided by row groups.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.schema.align import align, by_name
from lakehouse_source.schema.fields import children, is_nested
from lakehouse_source.spark.protocol.messages import encode_response, for_pickle
from lakehouse_source.spark.protocol.vocabulary import Count
from lakehouse_source.spark.session.workers import acknowledge, freeze_gc
from lakehouse_source.spark.types import batch_schema
from lakehouse_source.storage import Storage

if TYPE_CHECKING:
    from lakehouse_source.read.plan import Pruning


SPLIT_SIZE_BYTES = 128 * 1024 * 1024
# The cost of opening one more file, in bytes that could be read in this time.
FILE_COST_BYTES = 1024 * 1024
# A smaller partition costs more to start than it saves.
SMALLEST_SPLIT_BYTES = 4 * 1024 * 1024
# The size of a value without a fixed width, as in `defaultSize` of Spark's types.
VARIABLE_WIDTH_BYTES = 20


@dataclass(frozen=True)
class ResponsePartition(InputPartition):
    """An answer for the planner extension in place of partitions.

    No task reads it. `values`: the answers, by the names in `vocabulary.ScanResponse` and
    `vocabulary.Files`.
    """

    values: Mapping[str, Any]

    def __getstate__(self) -> dict[str, Any]:
        return {"envelope": for_pickle(encode_response(self.values))}


@dataclass(frozen=True)
class ScanPartition(InputPartition):
    """The scan tasks of one Spark partition.

    `response`: in the first partition of a scan, what the planner extension gets to know of the
    scan, by the names in `vocabulary.ScanResponse` (`scan/ReaderResponse.java` reads it).
    """

    tasks: tuple[ScanTask, ...]
    response: Mapping[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The envelope comes first, because the extension uses the first envelope that it finds.
        envelope = (
            {}
            if self.response is None
            else {"envelope": for_pickle(encode_response(self.response))}
        )
        return {**envelope, "packed": pickle.dumps(self.tasks)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "tasks", pickle.loads(state["packed"]))
        object.__setattr__(self, "response", None)


def counts(pruning: Pruning) -> dict[str, int]:
    """How much of a dataset a scan reads, for the metrics of the planner extension."""
    return {
        Count.FILES: pruning.files_total,
        Count.FILES_BY_PARTITION: pruning.files_pruned_by_partition,
        Count.FILES_BY_STATISTICS: pruning.files_pruned_by_statistics,
        Count.FILES_READ: pruning.files_read,
        Count.ROW_GROUPS: pruning.row_groups_total,
        Count.ROW_GROUPS_PRUNED: pruning.row_groups_total - pruning.row_groups_read,
        Count.ROW_GROUPS_READ: pruning.row_groups_read,
    }


def pack(
    tasks: Sequence[ScanTask],
    split_size_bytes: int | None,
    share: float = 1.0,
    parallelism: int | None = None,
) -> list[ScanPartition]:
    """Distribute tasks over partitions of about equal cost.

    Args:
        split_size_bytes: the size of a partition, counted in all bytes of its row
            groups. None: only the part of the bytes that is decoded counts, and there is one
            partition per core: fewer if these would be too small, more if too large.
        share: the part of the bytes of a row group that the scan decodes.
        parallelism: the cores of the cluster, Spark's default parallelism. None: the
            cores of this machine.
    """
    share = 1.0 if split_size_bytes is not None else max(share, 1e-6)

    def cost(task: ScanTask) -> float:
        return task.byte_count * share + FILE_COST_BYTES

    total = sum(map(cost, tasks))
    cores = parallelism or os.cpu_count() or 1
    one_per_core = max(SMALLEST_SPLIT_BYTES, total / cores)
    size = split_size_bytes or min(SPLIT_SIZE_BYTES, one_per_core)
    pieces = [piece for task in tasks for piece in _divide(task, size / share)]
    # Counted by whole tasks, so that the cost of opening a file twice does not add a partition.
    count = min(max(1, math.ceil(total / size)), len(pieces))
    return [ScanPartition(tuple(group)) for group in _balance(pieces, count, cost)]


def _balance(
    pieces: list[ScanTask], count: int, cost: Callable[[ScanTask], float]
) -> list[list[ScanTask]]:
    """The pieces in `count` groups of about equal cost.

    Each piece, the largest first, goes into the group with the least cost so far. No group costs
    more than 4/3 of the largest one in the best distribution (Graham 1969).
    """
    groups: list[list[ScanTask]] = [[] for _ in range(count)]
    costs = [0.0] * count
    for piece in sorted(pieces, key=cost, reverse=True):
        cheapest = costs.index(min(costs))
        groups[cheapest].append(piece)
        costs[cheapest] += cost(piece)
    return groups


def _divide(task: ScanTask, size_bytes: float) -> Iterator[ScanTask]:
    """The task in pieces of whole row groups, of about `size_bytes` each."""
    groups = task.row_groups
    parts = min(math.ceil(task.byte_count / size_bytes), len(groups or ()))
    if groups is None or parts <= 1:
        yield task
        return
    for index in range(parts):
        chosen = groups[index * len(groups) // parts : (index + 1) * len(groups) // parts]
        part = len(chosen) / len(groups)
        yield replace(
            task,
            row_groups=chosen,
            row_count=int(task.row_count * part),
            byte_count=int(task.byte_count * part),
        )


def decoded_share(spec: ReadSpec) -> float:
    """The part of the bytes of a row group that a scan decodes, by the widths of its columns."""
    decoded = {field.name: field for field in spec.target}
    for name in spec.predicate.columns if spec.predicate is not None else ():
        decoded[name] = spec.schema.field(name)
    stored = [field for field in spec.schema if field.name not in spec.partition_by]
    total = sum(_width_bytes(field) for field in stored)
    part = sum(_width_bytes(decoded[field.name]) for field in stored if field.name in decoded)
    return part / total if total else 1.0


def _width_bytes(field: pa.Field) -> int:
    """The size of one value before it is encoded."""
    if is_nested(field.type):
        return sum(_width_bytes(child) for child in children(field.type))
    try:
        return max(1, int(field.type.bit_width) // 8)
    except ValueError:
        return VARIABLE_WIDTH_BYTES


# --- Decimals of up to 18 digits in Spark's form: a long.


def decimals_to_longs(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with the named decimal columns as int64: their digits without the scale.

    The columns must have at most 18 digits. Shares no memory with the batch.
    """
    for name in names:
        index = batch.schema.get_field_index(name)
        decimals = batch.column(index)
        # A decimal has 16 bytes, the lower 8 first. Up to 18 digits fit into the lower 8, and
        # the upper 8 repeat the sign.
        halves = np.frombuffer(decimals.buffers()[1], np.int64)
        start, size = 2 * decimals.offset, len(decimals)
        lower = np.ascontiguousarray(halves[start : start + 2 * size : 2])
        validity = decimals.is_valid().buffers()[1] if decimals.null_count else None
        longs = pa.Array.from_buffers(pa.int64(), size, [validity, pa.py_buffer(lower)])
        field = pa.field(name, pa.int64(), batch.schema.field(index).nullable)
        batch = batch.set_column(index, field, longs)
    return batch


# Rows of a batch that is handed to the JVM.
BATCH_ROWS = 65_536


class TaskReader(DataSourceReader):
    """Runs on executors. Reads scan tasks as batches of exactly Spark's schema."""

    def __init__(
        self,
        spec: ReadSpec,
        schema: StructType,
        rows_only: bool,
        limit: int | None,
        unscaled: tuple[str, ...],
    ) -> None:
        acknowledge()  # a task makes it of its function, and then waits for its partition
        self.spec = spec
        self.schema = schema
        self.rows_only = rows_only
        self.limit = limit
        self.unscaled = unscaled

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self.limit
        for decoded in self._batches(partition):
            batch = decimals_to_longs(decoded, self.unscaled)
            if left is None:
                yield batch
                continue
            if left > 0:
                yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    def _batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        target = batch_schema(self.schema)
        storage = Storage(self.spec.uri)
        assert not isinstance(partition, ResponsePartition)  # these are for Spark's own reader
        # If there is nothing to read, Spark makes a partition of its own, without tasks.
        tasks = partition.tasks if isinstance(partition, ScanPartition) else ()
        counting = self.rows_only and has_placeholder(self.schema)
        for task in tasks:
            certain = task.certain_row_count if counting else None
            if certain is not None:
                yield from _placeholder_batches(certain, target)
                continue
            for table in read_task(self.spec, task, storage):
                yield from exact_batches(table, target)


def exact_batches(table: pa.Table, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as batches that have the columns that Spark planned with.

    The JVM does not check this: it would read the bytes of one column as values of another.

    Raises:
        AssertionError: a batch has other columns.
    """
    aligned = align(table, target, table.schema, by_name).combine_chunks()
    for batch in aligned.to_batches(max_chunksize=BATCH_ROWS):
        if not batch.schema.equals(target):
            raise AssertionError(f"a batch has {batch.schema}, and Spark expects {target}")
        yield batch


def has_placeholder(schema: StructType) -> bool:
    """Tell whether values of the first column can be invented if Spark only counts rows."""
    field = batch_schema(schema).field(0)
    return bool(field.nullable or pa.types.is_primitive(field.type))


def _placeholder_batches(count: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`count` rows of invented values. No file is opened."""
    while count > 0:
        size = min(count, BATCH_ROWS)
        columns = [_placeholder(field, size) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        count -= size


def _placeholder(field: pa.Field, size: int) -> pa.Array:
    """Values that nobody reads: NULL in a nullable column, else zero bits."""
    if field.nullable:
        return pa.nulls(size, field.type)
    zeros = pa.py_buffer(bytes(-(-size * field.type.bit_width // 8)))
    return pa.Array.from_buffers(field.type, size, [None, zeros])


# --- Streams. Their tasks need nothing of a catalog, so it is not imported for them.


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """The scan tasks of one Spark partition, and how to read them."""

    spec: ReadSpec
    tasks: tuple[ScanTask, ...]

    def batches(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        reader = TaskReader(self.spec, schema, False, None, ())
        return reader.read(ScanPartition(self.tasks))


class StreamTaskReader(DataSourceStreamReader):
    """Runs on executors. Reads a partition of a stream as batches of exactly Spark's schema."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # If there is nothing to read, Spark may make a partition of its own, without tasks.
        batches = getattr(partition, "batches", None)
        return iter(()) if batches is None else batches(self.schema)

    def initialOffset(self) -> dict[str, Any]:
        raise AssertionError("the reader on the driver knows the offsets")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise AssertionError("the reader on the driver knows the partitions")
