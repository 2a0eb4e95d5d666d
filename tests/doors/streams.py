"""What the tests of streams share: a folder of Parquet files as source, and queries to the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.reading.stream_read import HAS_LIMITS

Row = dict[str, Any]


class Folder:
    """A folder of Parquet files. A stream over it takes one file per micro-batch."""

    def __init__(self, path: Path, schema: str = "id BIGINT, k STRING") -> None:
        self.path = path
        self.schema = schema
        self.files = 0
        path.mkdir()

    def add(self, rows: Sequence[Row] | pa.Table) -> None:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
        hidden = self.path / f".{self.files}"
        pq.write_table(table, hidden)
        # The source takes files by the time of their last change.
        os.utime(hidden, (1_000_000 + self.files, 1_000_000 + self.files))
        hidden.rename(self.path / f"{self.files:05}.parquet")
        self.files += 1

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.path))


def run(frame: DataFrame, target: Path | str, checkpoint: Path | str, **options: Any) -> str:
    """Write everything that a stream has to a dataset; answers the id of the query.

    Spark 4.1 runs one batch of a source in Python, and after a crash this is the repeated one.
    There, a second run has the rest.
    """
    mode = options.pop("outputMode", "append")
    writer = frame.writeStream.format("plake").outputMode(mode).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for _ in range(1 if HAS_LIMITS else 2):
        started = query.start(str(target))
        try:
            assert started.awaitTermination(240), "the query runs on"
        finally:
            started.stop()
    return str(started.id)


def ids(uri: Path | str, version: int | None = None) -> list[int]:
    found: list[int] = lake.read_dataset(uri, version=version)["id"].to_pylist()
    return sorted(found)


def forget_last_commit(checkpoint: Path | str, batches: int = 1) -> None:
    """Put a checkpoint back to where Spark had planned a batch and not noted that it ended."""
    folder = Path(checkpoint) / "commits"
    numbers = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    for number in numbers[-batches:]:
        (folder / str(number)).unlink()
        (folder / f".{number}.crc").unlink(missing_ok=True)


def lose(checkpoint: Path | str) -> None:
    shutil.rmtree(checkpoint)


def stream_rows(frame: DataFrame, folder: Path) -> list[Any]:
    """Everything that a stream has now, in the order of the batches and of their ids."""
    found: list[Any] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(batch.orderBy("id").collect())

    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.foreachBatch(take).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120), "the query runs on"
    finally:
        query.stop()
    return found
