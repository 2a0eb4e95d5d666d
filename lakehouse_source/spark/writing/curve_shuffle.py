"""Door. Distributes the rows of a frame to Spark's tasks along a curve through several columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse_source.layout.order import Curve
from lakehouse_source.parquet.writer import column_arrays
from lakehouse_source.spark.types.to_spark_sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The most rows of the sample for the curve: of each task of the frame, and of all tasks.
_TASK_ROWS = 2_000
_ROWS = 100_000
# A column of the frame while its rows are moved.
_KEY = "__plake_curve"


def leaf_columns(df: DataFrame) -> Mapping[str, tuple[str, ...]]:
    """The paths of columns and of fields of structs, by dotted path in lower case."""
    from pyspark.sql.types import StructType

    found: dict[str, tuple[str, ...]] = {}

    def walk(struct: StructType, above: tuple[str, ...]) -> None:
        for field in struct:
            path = (*above, field.name)
            if isinstance(field.dataType, StructType):
                walk(field.dataType, path)
            else:
                found.setdefault(".".join(path).lower(), path)

    walk(df.schema, ())
    return found


def along_curve(
    df: DataFrame, partitions: Sequence[str], paths: Sequence[tuple[str, ...]]
) -> DataFrame:
    """The frame with its rows divided among tasks, and sorted, by partitions and the curve.

    By one column without a curve: by its values.
    """
    from pyspark.sql import functions as F

    columns = [F.col(".".join(map(quoted, path))) for path in paths]
    folders = [F.col(quoted(name)) for name in partitions]
    if len(columns) == 1:
        order = [*folders, columns[0]]
        return df.repartitionByRange(*order).sortWithinPartitions(*order)
    key = _key_of(_curve(df, columns))
    order = [*folders, F.col(_KEY)]
    moved = df.withColumn(_KEY, key(*columns)).repartitionByRange(*order)
    return moved.sortWithinPartitions(*order).drop(_KEY)


def _curve(df: DataFrame, columns: Sequence[Column]) -> Curve:
    """The curve for the frame, from sample rows of each of its tasks."""
    from pyspark.sql import functions as F

    names = [str(number) for number in range(len(columns))]
    narrow = df.select(*(column.alias(name) for column, name in zip(columns, names)))
    some = narrow.mapInArrow(some_rows, narrow.schema)
    drawn = some.orderBy(F.rand(1)).limit(_ROWS).toArrow()
    return Curve.of(column_arrays(drawn, [(name,) for name in names]))


def some_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Evenly spread rows of a task: all of a small one, else 1 to 2 times `_TASK_ROWS`."""
    held: pa.Table | None = None
    step, skip = 1, 0  # one of `step` rows is taken, after `skip` rows
    for batch in batches:
        chosen = pa.array(range(skip, batch.num_rows, step), pa.int64())
        skip += len(chosen) * step - batch.num_rows
        taken = pa.Table.from_batches([batch]).take(chosen)
        held = taken if held is None else pa.concat_tables([held, taken])
        while held.num_rows > 2 * _TASK_ROWS:
            held = held.take(pa.array(range(0, held.num_rows, 2), pa.int64()))
            step *= 2
    if held is not None:
        yield from held.combine_chunks().to_batches()


def _key_of(curve: Curve) -> Any:
    """A Spark function that computes the places of rows on the curve."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    def key(*columns: pa.Array) -> pa.Array:
        return curve.keys(columns)

    return arrow_udf(key, "long")
