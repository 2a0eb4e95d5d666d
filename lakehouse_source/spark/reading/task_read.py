"""Door. What executors do of a read: scan tasks become batches of exactly Spark's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.schema.align import align, by_name
from lakehouse_source.spark.reading.packing import ResponsePartition, ScanPartition
from lakehouse_source.spark.session.freeze_gc import freeze_gc
from lakehouse_source.spark.types import batch_schema
from lakehouse_source.storage import Storage

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
