"""Door. Answers aggregates of a query from the catalog, without a scan.

The planner extension asks while Spark plans (`planner/src/io/plake/spark/scan/
CatalogQuestion.java`). Spark has no call for such a request. So the extension makes a read plan
that is never run, and the answer is the plan's only partition: rows of text, which
`AggregateResponse.java` turns into Spark's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import BoundPredicate, PredicateSet
from lakehouse_source.language.bounds.bound import conjunction
from lakehouse_source.read.aggregates import Aggregate, aggregate
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import find_field
from lakehouse_source.schema.types import card
from lakehouse_source.spark.protocol.vocabulary import Function, Key, ScanResponse
from lakehouse_source.spark.reading.decode_conditions import decode_all
from lakehouse_source.spark.reading.frame_options import ReadRequest
from lakehouse_source.spark.reading.packing import ResponsePartition
from lakehouse_source.spark.reading.pushdown import Pushdown
from lakehouse_source.spark.types import as_text, spark_schema

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
