"""Writes through Spark and from Python, beside those that do less.

    append, partitioned   through Spark: plake with the planner extension and without (stock),
                          Spark's own Parquet writer, and a Python data source that
                          discards its batches
    stream                from Python: `write_dataset` of a stream of batches of 10,000
                          rows, beside PyArrow's Parquet writer and its dataset writer.

Every system writes the same rows to a new folder, in interleaved rounds.

    python integration/benchmarks/spark_write.py [--rows 10000000] [--rounds 5] [--only append]

Where the time goes, function by function, in the Python workers of Spark and here:

    python integration/benchmarks/spark_write.py --rows 2000000 --profile
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakehouse_source as lake
from integration.benchmarks.measure import interleaved, ratio
from integration.benchmarks.spark_scan import STOCK, session, with_extension

ROWS = 10_000_000
BATCH_ROWS = 10_000
# Eight columns: unique, few and many values; numbers, moments and texts.
COLUMNS = {
    "id": "id",
    "key": "CAST(id * 7919 % 1000 AS INT)",
    "price": "(id * 2654435761 % 1000003) / 7.0D",
    "quantity": "CAST(id * 31 % 50 AS DOUBLE)",
    "day": "date_from_unix_date(CAST(id * 13 % 3650 AS INT))",
    "moment": "timestamp_micros(id * 48271 % 1000000007 * 1000003)",
    "carrier": "element_at(array('UA', 'AA', 'B6', 'DL', 'EV', 'OO', 'WN'), "
    "CAST(id * 17 % 7 AS INT) + 1)",
    "note": "concat('note ', CAST(id * 69621 % 10000019 AS STRING))",
}


def frame(spark: Any, rows: int) -> Any:
    """Rows that cost little to make, in one task for each core of `local[2]`."""
    return spark.range(rows, numPartitions=2).selectExpr(
        *(f"{text} AS {name}" for name, text in COLUMNS.items())
    )


def register_discard(spark: Any) -> None:
    """A format `discard`: its writer takes Arrow batches and lets them go."""
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    # Inside a function: pickled by value, so that workers need not import this module.
    class Discarding(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Discard(DataSource):
        @classmethod
        def name(cls) -> str:
            return "discard"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return Discarding()

    spark.dataSource.register(Discard)


def run(rows: int = ROWS, rounds: int = 5, only: str = "") -> Iterator[dict[str, Any]]:
    """For each question and system: seconds of each round, and what to compare with."""
    with tempfile.TemporaryDirectory(prefix="plake-writes-") as folder:
        targets = (Path(folder) / str(n) for n in itertools.count())
        spark = session()
        try:
            questions = spark_questions(spark, rows, targets) | python_questions(
                spark, rows, targets
            )
            for question, (base, works) in questions.items():
                if only not in question:
                    continue
                for work in works.values():  # workers, code and page cache are warm
                    work()
                times = interleaved(works, rounds)
                for system, values in times.items():
                    compared = None if system == base else base
                    yield {
                        "question": question,
                        "system": system,
                        "unit": "s",
                        "values": values,
                        "base": compared,
                    }
        finally:
            spark.stop()


Questions = dict[str, tuple[str, dict[str, Callable[[], object]]]]


def _into(targets: Iterator[Path], write: Callable[[Path], object]) -> Callable[[], object]:
    def work() -> None:
        target = next(targets)
        try:
            write(target)
        finally:
            shutil.rmtree(target, ignore_errors=True)

    return work


def spark_questions(spark: Any, rows: int, targets: Iterator[Path]) -> Questions:
    register_discard(spark)
    data, extended = frame(spark, rows), frame(with_extension(spark), rows)

    def through(kind: str, data: Any = data, **options: str) -> Callable[[], object]:
        writer = data.write.format(kind).mode("append").options(**options)
        return _into(targets, lambda target: writer.save(str(target)))

    by_carrier = data.write.mode("append").partitionBy("carrier")
    return {
        "append": (
            "discard",
            {
                "discard": through("discard"),
                "native Parquet": through("parquet", compression="zstd"),
                "plake, extension": through("plake", extended),
                STOCK: through("plake"),
            },
        ),
        "append, partitioned": (
            "discard",
            {
                "discard": through("discard"),
                "native Parquet": _into(
                    targets, lambda target: by_carrier.parquet(str(target), compression="zstd")
                ),
                "plake, extension": through("plake", extended, partitionBy="carrier"),
                STOCK: through("plake", partitionBy="carrier"),
            },
        ),
    }


def python_questions(spark: Any, rows: int, targets: Iterator[Path]) -> Questions:
    # A fifth: the whole of it would not fit beside a JVM everywhere.
    table = frame(spark, max(1, rows // 5)).toArrow()
    batches = table.to_batches(max_chunksize=BATCH_ROWS)

    def stream() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(table.schema, batches)

    def parquet(target: Path) -> None:
        target.mkdir()
        kept: list[pa.RecordBatch] = []
        with pq.ParquetWriter(target / "a.parquet", table.schema, compression="zstd") as writer:
            for batch in stream():
                kept.append(batch)
                if len(kept) == 13:
                    writer.write_table(pa.Table.from_batches(kept))
                    kept.clear()
            if kept:
                writer.write_table(pa.Table.from_batches(kept))

    def dataset(target: Path) -> None:
        zstd = ds.ParquetFileFormat().make_write_options(compression="zstd")
        ds.write_dataset(
            stream(),
            target,
            format="parquet",
            file_options=zstd,
            min_rows_per_group=131_072,
            max_rows_per_group=131_072,
        )

    return {
        "stream": (
            "pyarrow ParquetWriter",
            {
                "pyarrow ParquetWriter": _into(targets, parquet),
                "pyarrow.dataset": _into(targets, dataset),
                "plake": _into(targets, lambda target: lake.write_dataset(stream(), target)),
            },
        ),
    }


def profile(rows: int) -> None:
    """Print where the time goes: the Python side of Spark's write, and a plain stream."""
    with tempfile.TemporaryDirectory(prefix="plake-writes-") as folder:
        spark = session()
        spark.conf.set("spark.sql.pyspark.dataSource.profiler", "perf")
        data = frame(spark, rows)
        data.write.format("plake").mode("append").save(f"{folder}/spark")
        spark.profile.show(type="perf")
        table = frame(spark, rows).toArrow()
        spark.stop()
        watch = cProfile.Profile()
        reader = pa.RecordBatchReader.from_batches(
            table.schema, table.to_batches(max_chunksize=BATCH_ROWS)
        )
        watch.runcall(lake.write_dataset, reader, f"{folder}/stream")
        pstats.Stats(watch).sort_stats("tottime").print_stats(15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(arguments.rows)
        return
    print(f"| {arguments.rows:,} rows | system | median s | ratio to | |")
    print("|---|---|---|---|---|")
    bases: dict[str, tuple[float, ...]] = {}
    for found in run(arguments.rows, arguments.rounds, arguments.only):
        cells = [found["question"], found["system"], f"{statistics.median(found['values']):.2f}"]
        if found["base"] is None:
            bases[found["question"]] = found["values"]
            cells += ["", ""]
        else:
            compared = ratio(found["values"], bases[found["question"]])
            assert compared is not None
            cells.append(found["base"])
            cells.append(f"{compared.median:.2f} ({compared.low:.2f}–{compared.high:.2f})")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
