"""Door. Reads that the driver answers from the catalog alone: aggregates and metadata tables.

The planner extension asks for aggregates while Spark plans (`planner/src/io/plake/spark/scan/
CatalogQuestion.java`). Spark has no call for such a request. So the extension makes a read plan
that is never run, and the answer is the plan's only partition: rows of text, which
`AggregateResponse.java` turns into Spark's values.

The rows of metadata tables come from the catalog, which executors do not know. The driver reads
them while it plans, and sends them as Arrow data in the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import BoundPredicate, PredicateSet
from lakehouse_source.language.bounds.bound import conjunction
from lakehouse_source.read.aggregates import Aggregate, aggregate
from lakehouse_source.read.inspect import Inspection
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import find_field
from lakehouse_source.schema.types import card
from lakehouse_source.spark.protocol.vocabulary import Function, Key, ScanResponse
from lakehouse_source.spark.reading.frame_options import ReadRequest
from lakehouse_source.spark.reading.pushdown import Pushdown, decode_all
from lakehouse_source.spark.reading.task_read import ResponsePartition, exact_batches
from lakehouse_source.spark.types import as_text, batch_schema, spark_schema

Rows = list[list[str | None]]


class AggregateReader(DataSourceReader):
    """Its only partition holds the rows of the answer, or None: Spark has to scan."""

    def __init__(self, request: ReadRequest, pushdown: Pushdown) -> None:
        self.request = request
        self.pushdown = pushdown

    def partitions(self) -> Sequence[InputPartition]:
        with self.request.opened() as (reader, snapshot, _):
            return [ResponsePartition({ScanResponse.ROWS: self._response(reader, snapshot)})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("the read plan of an aggregate is never run")

    def _response(self, reader: CatalogReader, snapshot: Snapshot) -> Rows | None:
        request = self.pushdown.aggregate or {}
        types = self._types(snapshot, request)
        condition = decode_all(self.pushdown.condition, snapshot.schema)
        if types is None or condition is None:
            return None
        where = PredicateSet.of(self.request.where).bind(snapshot.schema)
        found = aggregate(
            reader,
            snapshot,
            BoundPredicate(conjunction([where.root, condition.root])),
            request[Key.GROUP],
            [Aggregate(f, c or None) for f, c in zip(request[Key.FUNCTIONS], request[Key.COLUMNS])],
        )
        if found is None:
            return None
        return [[as_text(value, type_) for value, type_ in zip(row, types)] for row in found]

    def _types(self, snapshot: Snapshot, request: Mapping[str, Any]) -> list[pa.DataType] | None:
        """The stored types of the answer's columns; None: a type cannot be sent as text."""
        fields = list(snapshot.schema)
        types: list[pa.DataType] = []
        wanted = [(name, "group") for name in request[Key.GROUP]]
        wanted += list(zip(request[Key.COLUMNS], request[Key.FUNCTIONS]))
        for name, function in wanted:
            if not name:
                types.append(pa.int64())
                continue
            field = find_field(name, fields)
            if field is None:
                return None
            # A schema that the user gave may show the column as another type.
            stored = spark_schema(pa.schema([field])).fields[0].dataType
            if stored != self.pushdown.schema[name].dataType:
                return None
            if function != Function.COUNT and not card(field.type).text:
                return None
            types.append(pa.int64() if function == Function.COUNT else field.type)
        return types


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
