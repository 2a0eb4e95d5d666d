"""Door. A metadata table of a dataset, such as its files, as a frame.

The rows come from the catalog, which executors do not know. The driver reads them while it
plans, and sends them as Arrow data in the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakehouse_source.read.inspect import Inspection
from lakehouse_source.spark.reading.frame_options import ReadRequest
from lakehouse_source.spark.reading.pushdown import Pushdown
from lakehouse_source.spark.reading.task_read import exact_batches
from lakehouse_source.spark.types import batch_schema

# Rows of one partition.
PARTITION_ROWS = 50_000


class MetadataTableReader(DataSourceReader):
    """Reads one metadata table. Conditions and aggregates are left to Spark."""

    def __init__(self, request: ReadRequest, pushdown: Pushdown) -> None:
        self.request = request
        self.pushdown = pushdown
        self.schema = pushdown.schema

    def __reduce__(self) -> tuple[type[MetadataRowsReader], tuple[StructType]]:
        return MetadataRowsReader, (self.schema,)

    def partitions(self) -> list[InputPartition]:
        if self.pushdown.aggregate is not None:
            return [InputPartition(None)]  # no answer: Spark has to scan
        assert self.request.metadata_table is not None
        inspection = Inspection(self.request.address, self.request.seen)
        table = inspection.table(self.request.metadata_table).select(self.schema.names)
        return [
            InputPartition(_packed(table.slice(start, PARTITION_ROWS)))
            for start in range(0, table.num_rows, PARTITION_ROWS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return MetadataRowsReader(self.schema).read(partition)


class MetadataRowsReader(DataSourceReader):
    """Runs on executors, with what the partitions hold."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to read, Spark makes a partition of its own.
        if partition is None or not isinstance(partition.value, bytes):
            return
        target = batch_schema(self.schema)
        table = pa.ipc.open_stream(partition.value).read_all()
        yield from exact_batches(table, target)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())
