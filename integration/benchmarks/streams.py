"""Batches of streams, as the sink and the source do them on the driver and in one task.

Spark itself and the start of its Python processes are not in the times. A batch has 1,000 rows:
its write begins, its file is written, and it is committed with the pair of query and batch.

- sink: medians of each hundred batches, with and without `auto_compact` (50 files), whose commits
  are in the time of the batch that made them; "slowest" is the slowest batch of each hundred,
  which is one that compacts. Times on a processor are means, so that compactions are in them.
- 100 batches: the sum, on SQLite and PostgreSQL (whose log is synced). "Processor" is the time of
  this process on a processor, which says more where the machine is busy.
- idle trigger: what the source asks the catalog when nothing is new.
- eight streams into one dataset: eight processes, all batches of all of them, per second.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks.measure import Result, Scale, run_folder
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.spark.reading.stream_read import PlakeStreamReader, stream_request
from lakehouse_source.spark.types import spark_schema
from lakehouse_source.spark.writing.frame_writers import (
    BatchWritten,
    PlakeStreamWriter,
    TaskWriter,
    shortened,
)
from lakehouse_source.write.commit.options import WriteOptions
from tests.postgres_server import PostgresServer

FAMILY = "streams"
ROWS = 1_000
HUNDRED = 100
SIZE = "1,000 rows a batch"
STREAMS = 8
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64()), ("name", pa.string())])


class Sink:
    """The sink of one query, which does of a batch what Spark has it do."""

    def __init__(self, uri: str, catalog: str | None, query: str) -> None:
        self._made: tuple[Any, ...] = (uri, catalog, {}, SCHEMA, WriteOptions())
        self._query = query

    def batch(self, number: int) -> float:
        """Write and commit a batch; the milliseconds."""
        first = number * ROWS
        ids = pa.array(range(first, first + ROWS), pa.int64())
        texts = pa.array([f"name {number % 97}"] * ROWS)
        rows = pa.record_batch([ids, ids.cast(pa.float64()), texts], schema=SCHEMA)
        started = time.perf_counter()
        # Spark makes the writer anew for each batch, and sends it to the tasks.
        writer = PlakeStreamWriter(*self._made)
        task: TaskWriter = pickle.loads(pickle.dumps(writer))
        # `TaskWriter.write` without Spark's task, of which it asks the id of the query.
        files = shortened(write_files(task.begun.spec, iter([rows])))
        message = BatchWritten(self._query, task.begun, files)
        PlakeStreamWriter(*self._made).commit([message], number)
        return (time.perf_counter() - started) * 1000


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    base = run_folder() / "streams"
    base.mkdir()
    server = PostgresServer()
    try:
        server.sync_to_disk(True)
        catalogs = {"plake, SQLite": None, "plake, PostgreSQL": server.fresh_database()}
        yield from _thousand(base, 10 if scale.commit_seconds > 1 else 2)
        for name, catalog in catalogs.items():
            sums, busy = [], []
            for number in range(min(rounds, 3)):
                sink = Sink(_new(base / f"hundred-{number}", catalog), catalog, "one")
                sink.batch(0)
                before = time.process_time()
                sums.append(sum(sink.batch(1 + batch) for batch in range(HUNDRED)) / 1000)
                busy.append(time.process_time() - before)
            yield Result(FAMILY, "100 batches", name, "s", tuple(sums))
            yield Result(FAMILY, "100 batches", name, "processor s", tuple(busy))
        for name, catalog in catalogs.items():
            yield Result(FAMILY, "idle trigger", name, "ms", tuple(_idle(base, catalog)))
        for name, catalog in catalogs.items():
            yield Result(FAMILY, f"{STREAMS} streams", name, "batches/s", (_many(base, catalog),))
    finally:
        server.stop()
        shutil.rmtree(base, ignore_errors=True)


def _new(folder: Path, catalog: str | None, compacts: bool = False) -> str:
    name = "none" if catalog is None else catalog.partition(":")[0]
    uri = f"{folder}-{name}-{compacts}"
    lake.write_dataset(SCHEMA.empty_table(), uri, catalog=catalog, auto_compact=compacts)
    return uri


def _thousand(base: Path, hundreds: int) -> Iterator[Result]:
    """Both systems batch by batch, one after the other: a busy machine slows both."""
    sinks = {
        "auto_compact": Sink(_new(base / "thousand", None, True), None, "one"),
        "without": Sink(_new(base / "thousand", None, False), None, "one"),
    }
    for hundred in range(hundreds):
        times: dict[str, list[float]] = {name: [] for name in sinks}
        busy = dict.fromkeys(sinks, 0.0)
        for number in range(hundred * HUNDRED, (hundred + 1) * HUNDRED):
            for name, sink in sinks.items():
                before = time.process_time()
                times[name].append(sink.batch(number))
                busy[name] += time.process_time() - before
        question = f"batches to {(hundred + 1) * HUNDRED:,}"
        for name, found in times.items():
            base_name = None if name == "without" else "without"
            yield Result(FAMILY, question, name, "ms", (median(found),), SIZE, base_name)
            yield Result(FAMILY, question, name, "ms, slowest", (max(found),), SIZE)
            mean = busy[name] * 1000 / HUNDRED
            yield Result(FAMILY, question, name, "processor ms", (mean,), SIZE, base_name)


def _idle(base: Path, catalog: str | None) -> Iterator[float]:
    uri = _new(base / "idle", catalog)
    sink = Sink(uri, catalog, "one")
    for number in range(20):
        sink.batch(number)
    address = Address(uri, catalog)
    with address.open() as opened, opened.read() as found:
        newest = address.snapshot(opened, found)
    given = {"path": uri} | ({} if catalog is None else {"catalog": catalog})
    request = stream_request(given, {}, newest.schema_version, None)
    reader = PlakeStreamReader(request, spark_schema(newest.schema))
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    reader.partitions(reader.initialOffset(), end)
    for _ in range(50):
        started = time.perf_counter()
        again = reader.latestOffset(end, limit)
        yield (time.perf_counter() - started) * 1000
        assert again == end
    reader.stop()


def _many(base: Path, catalog: str | None) -> float:
    """Batches per second of eight processes, each with the batches of a query of its own."""
    uri = _new(base / "many", catalog)
    command = [sys.executable, __file__, uri, catalog or ""]
    running = [
        subprocess.Popen(
            [*command, f"query {number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for number in range(STREAMS)
    ]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()  # has imported everything
    started = time.perf_counter()
    for one in running:
        one.communicate(b"\n")
    took = time.perf_counter() - started
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert [one.returncode for one in running] == [0] * STREAMS
    assert dataset.scan().count_rows() == STREAMS * HUNDRED * ROWS
    assert dataset.version == 1 + STREAMS * HUNDRED
    return STREAMS * HUNDRED / took


def stream(uri: str, catalog: str, query: str) -> None:
    sink = Sink(uri, catalog or None, query)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(HUNDRED):
        sink.batch(number)


if __name__ == "__main__":
    stream(*sys.argv[1:])
