"""Door. Batch reads: the driver plans scan tasks, and executors turn them into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import ScanTask
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
from lakehouse_source.spark.protocol.vocabulary import Reader, ScanResponse
from lakehouse_source.spark.reading.frame_options import ReadRequest
from lakehouse_source.spark.reading.pushdown import Pushdown, coarsened, decode_supported
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
    ScanPartition,
    TaskReader,
    counts,
    decoded_share,
    has_placeholder,
    pack,
)
from lakehouse_source.spark.types import columns_for, narrowed_structs

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
