"""Door. Answers to the aggregates of a query, from the catalog instead of a scan.

The planner extension asks while Spark plans (`planner/src/io/plake/spark/
CatalogQuestion.java`). Spark has no call for that: the answer travels as the one
partition of a read plan that is never run, rows of text in the forms of
`CatalogAnswer.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.model import Ordinal
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.aggregates import Aggregate, aggregate
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.align import by_name
from lakehouse_source.schema.ordinal import from_ordinal
from lakehouse_source.spark.batch import ReadRequest
from lakehouse_source.spark.decode_conditions import complete
from lakehouse_source.spark.planner.vocabulary import Function, Key
from lakehouse_source.spark.pushdown import Pushdown
from lakehouse_source.spark.to_spark_sql import float_text
from lakehouse_source.spark.types import spark_schema

Rows = list[list[str | None]]


class AnswerReader(DataSourceReader):
    """Answers instead of planning: its one partition holds the rows, or None."""

    def __init__(self, request: ReadRequest, isolation: Pushdown) -> None:
        self.request = request
        self.isolation = isolation

    def partitions(self) -> Sequence[InputPartition]:
        with self.request.opened() as (reader, snapshot):
            return [InputPartition(self._answer(reader, snapshot))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("an answer is not scanned")

    def _answer(self, reader: CatalogReader, snapshot: Snapshot) -> Rows | None:
        asked = self.isolation.aggregate or {}
        types = self._types(snapshot, asked)
        condition = complete(self.isolation.condition, snapshot.schema)
        if types is None or condition is None:
            return None
        found = aggregate(
            reader,
            snapshot,
            (PredicateSet.of(self.request.where) & condition).bind(snapshot.schema),
            asked[Key.GROUP],
            [Aggregate(f, c or None) for f, c in zip(asked[Key.FUNCTIONS], asked[Key.COLUMNS])],
        )
        if found is None:
            return None
        return [[cell(value, type_) for value, type_ in zip(row, types)] for row in found]

    def _types(self, snapshot: Snapshot, asked: Mapping[str, Any]) -> list[pa.DataType] | None:
        """The stored types of the answer's columns, where there is a form for each."""
        fields = list(snapshot.schema)
        types: list[pa.DataType] = []
        wanted = [(name, "group") for name in asked[Key.GROUP]]
        wanted += list(zip(asked[Key.COLUMNS], asked[Key.FUNCTIONS]))
        for name, function in wanted:
            if not name:
                types.append(pa.int64())
                continue
            field = by_name(pa.field(name, pa.null()), fields)
            if field is None:
                return None
            # A schema that the user gave may show the column as another type.
            stored = spark_schema(pa.schema([field])).fields[0].dataType
            if stored != self.isolation.schema[name].dataType:
                return None
            if function != Function.COUNT and not has_form(field.type):
                return None
            types.append(pa.int64() if function == Function.COUNT else field.type)
        return types


def has_form(type_: pa.DataType) -> bool:
    """Tell whether values of a stored type are handed over as they are."""
    t = pa.types
    if t.is_timestamp(type_):
        return type_.unit in ("ms", "us")  # Spark cuts nanoseconds off
    plain = (t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_string, t.is_date32)
    return any(check(type_) for check in plain)


def cell(value: Ordinal | None, type_: pa.DataType) -> str | None:
    """An ordinal of a stored type as the text that Spark's value is made from."""
    if value is None:
        return None
    if pa.types.is_boolean(type_):
        return "true" if value else "false"
    if pa.types.is_timestamp(type_):
        return str(int(value) * (1000 if type_.unit == "ms" else 1))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return float_text(value)
    python = from_ordinal(value, type_)
    return f"{python:f}" if isinstance(python, Decimal) else str(value)
