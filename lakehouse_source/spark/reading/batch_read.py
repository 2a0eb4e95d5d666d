"""Door. Batch reads: by tasks of executors, or by the driver from the catalog alone.

The planner extension asks for aggregates while Spark plans (`planner/src/io/plake/spark/scan/
CatalogQuestion.java`). Spark has no call for such a request. So the extension makes a read plan
that is never run, and the answer is the plan's only partition: rows of text, which
`AggregateResponse.java` turns into Spark's values.

The rows of metadata tables come from the catalog, which executors do not know. The driver reads
them while it plans, and sends them as Arrow data in the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import BoundPredicate, PredicateSet
from lakehouse_source.language.bounds.bound import conjunction
from lakehouse_source.model import ScanTask
from lakehouse_source.read.aggregates import Aggregate, aggregate
from lakehouse_source.read.inspect import Inspection
from lakehouse_source.read.plan import ScanPlan, plan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import (
    FILE_SIZE,
    FILE_URI,
    METADATA_COLUMNS,
    find_field,
    unused_names,
    with_metadata_columns,
)
from lakehouse_source.schema.types import card
from lakehouse_source.spark.protocol.vocabulary import Function, Key, Reader, ScanResponse
from lakehouse_source.spark.reading.frame_options import ReadRequest
from lakehouse_source.spark.reading.pushdown import (
    Pushdown,
    coarsened,
    decode_all,
    decode_supported,
)
from lakehouse_source.spark.reading.spark_files import (
    SparkFiles,
    Unsuited,
    check_matches,
    is_small,
    key_columns,
    needs_statistics,
    spark_files,
)
from lakehouse_source.spark.reading.task_read import (
    ResponsePartition,
    ScanPartition,
    TaskReader,
    counts,
    decoded_share,
    exact_batches,
    has_placeholder,
    pack,
)
from lakehouse_source.spark.types import (
    as_text,
    batch_schema,
    columns_for,
    narrowed_structs,
    spark_schema,
)

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


METADATA = {column.name: column for column in (*METADATA_COLUMNS, FILE_URI, FILE_SIZE)}
# If there are more files, those that partition values alone prune are not counted.
MOST_COUNTED = 20_000


class PlakeReader(DataSourceReader):
    """Reads one scan. Plans on the driver when Spark first needs the plan.

    This class has no `pushFilters`: Spark shares one read plan among all scans of a frame, and
    would prune one scan by the filters of another. Filters come in `pushdown` instead. A pickled
    `PlakeReader` becomes a `TaskReader`, so executors get neither catalog nor plan.
    """

    def __init__(self, request: ReadRequest, pushdown: Pushdown) -> None:
        self.request = request
        self.pushdown = pushdown
        self.schema = pushdown.schema
        self._plan: ScanPlan | None = None
        self._snapshot: Snapshot | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (TaskReader, self._task_reader_arguments())

    def _task_reader_arguments(self) -> tuple[Any, ...]:
        pushed = self.pushdown
        return (self.plan().spec, self.schema, pushed.rows_only, pushed.limit, pushed.unscaled)

    def plan(self) -> ScanPlan:
        """The scan's tasks, planned once."""
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    def _make_plan(self) -> ScanPlan:
        request, pushed = self.request, self.pushdown
        with request.opened() as (reader, snapshot, location):
            self._snapshot = snapshot
            condition = PredicateSet.of(request.where) & decode_supported(
                pushed.condition, snapshot.schema
            )
            metadata = [METADATA[kind].with_name(name) for name, kind in pushed.metadata.items()]
            for column in metadata:
                if find_field(column.name, snapshot.schema) is not None:
                    raise InvalidOptionError(
                        option="schema",
                        reason=f"leaves out the column {column.name}, and a hidden column has that "
                        "name too: load the frame without a schema, or read no _metadata of it.",
                    )
            if request.metadata_columns:
                metadata = unused_names(METADATA_COLUMNS, snapshot.schema.names)
            columns = with_metadata_columns(snapshot.schema, self.schema.names, metadata)
            keys = coarsened(pushed.join_keys, snapshot.summary.get("live_row_groups", 0))
            made = plan(
                reader,
                snapshot,
                read_uri=location,
                predicates=condition & decode_supported(keys, snapshot.schema),
                columns=columns_for(self.schema, columns),
                limit=pushed.limit,
                metadata=metadata,
                account=_is_accounted(pushed, snapshot),
            )
        narrowed = narrowed_structs(self.schema, snapshot.schema)
        spec = replace(made.spec, narrowed=narrowed, file_schemas=snapshot.file_schemas)
        if pushed.join_keys:
            # Join keys only choose tasks. The spec does not have them, so every run of the query
            # has the same spec, and the reader of any run can read the tasks of any other run.
            bound = condition.bind(snapshot.schema)
            spec = replace(spec, predicate=None if bound.always_true else bound)
        return replace(made, spec=spec)

    def partitions(self) -> list[InputPartition]:
        """The tasks of the scan; or one `SparkFiles`, if requested and if Spark is to read."""
        if self.pushdown.reader is not None:
            try:
                return [self._files()]
            except Unsuited as reason:
                return self._tasks_with(note=str(reason))
        return self._tasks_with() if self.pushdown.isolated else self._tasks()

    def _tasks_with(self, note: str | None = None) -> list[InputPartition]:
        """The tasks of the scan, and the message to the planner extension."""
        first, *others = self._tasks() or [ScanPartition(())]
        assert isinstance(first, ScanPartition)
        tasks = self.plan().tasks
        response = {
            ScanResponse.ROW_COUNT: sum(task.row_count for task in tasks),
            ScanResponse.BYTE_COUNT: sum(task.byte_count for task in tasks),
            ScanResponse.COUNTS: counts(self.plan().pruning),
            ScanResponse.NOTE: note,
            ScanResponse.KEY_COLUMNS: self._key_columns(),
        }
        return [replace(first, response=response), *others]

    def _key_columns(self) -> tuple[str, ...] | None:
        """The columns by which keys of a join may prune the scan, if requested."""
        made, snapshot = self.plan(), self._snapshot
        assert snapshot is not None
        if not self.pushdown.joined:
            return None
        with self.request.opened() as (reader, _, _):
            return key_columns(reader, snapshot, made, self.schema.names)

    def _files(self) -> SparkFiles:
        request = self.request
        if request.metadata_columns:
            raise Unsuited("the places of rows are read")
        if request.split_size_bytes is not None:
            raise Unsuited("the frame has a splitSize")
        made, snapshot = self.plan(), self._snapshot
        assert snapshot is not None
        found = spark_files(self.pushdown, snapshot, made, request.where)
        is_free = self.pushdown.reader == Reader.AUTO and not is_small(self.pushdown, made)
        if is_free and needs_statistics(made):
            with request.opened() as (reader, _, _):
                check_matches(reader, snapshot, made)
        # Spark's reader cannot use keys of other columns, so finding them would be wasted.
        by_spark = self.pushdown.joined and not is_free
        keys = snapshot.partition_by if by_spark else self._key_columns()
        return (
            found
            if keys is None
            else SparkFiles({**found.values, ScanResponse.KEY_COLUMNS: [*keys]})
        )

    def _tasks(self) -> list[InputPartition]:
        tasks = self.plan().tasks
        if not (self.pushdown.rows_only and has_placeholder(self.schema)):
            return self._pack(tasks)
        # Tasks whose rows are only counted open no file: one partition is enough for all.
        known = [task for task in tasks if task.certain_row_count is not None]
        others = [task for task in tasks if task.certain_row_count is None]
        return [ScanPartition(tuple(known)), *self._pack(others)]

    def _pack(self, tasks: Sequence[ScanTask]) -> list[InputPartition]:
        share = decoded_share(self.plan().spec)
        parallelism = self.pushdown.parallelism
        return [*pack(tasks, self.request.split_size_bytes, share, parallelism)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return TaskReader(*self._task_reader_arguments()).read(partition)


def _is_accounted(pushed: Pushdown, snapshot: Snapshot) -> bool:
    """Tell whether to count the files that partition values alone prune."""
    few = snapshot.summary.get("live_files", 0) <= MOST_COUNTED
    return few and pushed.isolated and not pushed.join_keys
