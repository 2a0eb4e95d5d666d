"""Reads through Spark, side by side with Spark's own Parquet reader on the same rows.

TPC-H lineitem (6M rows x 16 columns at scale 1) from the package `tpchgen-cli`,
and synthetic tables. Every question runs in interleaved rounds: native Parquet,
plake with the planner extension, plake without it; printed are medians and the
ratio to native per round (min to max). Answers are compared before they are timed.

    python integration/benchmarks/spark_scan.py [--scale 1] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake

Q1 = """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
       sum(l_extendedprice * (1 - l_discount)),
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
       avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM {t} WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus
"""
Q6 = """
SELECT sum(l_extendedprice * l_discount) FROM {t}
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
  AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24
"""
POINT = "SELECT * FROM {t} WHERE l_orderkey = 3000003"
HUNDRED = "SELECT count(*), sum(l_quantity) FROM {t} WHERE l_orderkey IN ({keys})"


def session() -> Any:
    """A local session; the extension is loaded with `enable` later."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def lineitem(folder: Path, scale: float) -> Path:
    """The generated table as one Parquet file."""
    path = folder / f"tpch-{scale:g}" / "lineitem.parquet"
    if not path.exists():
        command = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [
                str(command), "parquet", "-s", f"{scale:g}", "--tables=lineitem",
                f"--output-dir={path.parent}",
            ],
            check=True,
        )  # fmt: skip
    return path


def wide(folder: Path) -> Path:
    """100 columns of doubles, 600,000 rows."""
    import random

    path = folder / "wide.parquet"
    if not path.exists():
        generator = random.Random(3)
        base = pa.array([generator.random() for _ in range(600_000)])
        pq.write_table(pa.table({f"c{i:03d}": base for i in range(100)}), path)
    return path


class Comparison:
    """Frames of the same rows, and what each answer costs through each of them."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.lines: list[str] = []

    def run(self, name: str, frames: dict[str, Any], work: Callable[[Any], Any]) -> None:
        """Time `work` on each frame in interleaved rounds; the first is the baseline."""
        kinds = list(frames)
        answers = [str(work(frames[kind])) for kind in kinds]
        if len(set(answers)) != 1:
            raise SystemExit(f"{name}: answers differ: {dict(zip(kinds, answers))}")
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(self.rounds):
            for kind in kinds:
                started = time.perf_counter()
                work(frames[kind])
                times[kind].append(time.perf_counter() - started)
        base = times[kinds[0]]
        cells = [name, f"{statistics.median(base):.3f}"]
        for kind in kinds[1:]:
            ratios = [mine / native for mine, native in zip(times[kind], base)]
            cells.append(f"{statistics.median(times[kind]):.3f}")
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})")
        line = "| " + " | ".join(cells) + " |"
        self.lines.append(line)
        print(line, flush=True)


def discard(frame: Any) -> str:
    """Every row and column, read and thrown away."""
    frame.write.format("noop").mode("overwrite").save()
    return "done"


def small_files(folder: Path, source: Path, count: int) -> tuple[Path, Path]:
    """The first rows of lineitem in many small files, for both readers."""
    native, ours = folder / f"small-{count}", folder / f"small-plake-{count}"
    if not native.exists():
        native.mkdir()
        # Generated in the order of l_orderkey.
        table = pq.ParquetFile(source).read_row_group(0)
        rows = max(1, min(500, table.num_rows // count))
        for number in range(count):
            piece = table.slice((number * rows) % (table.num_rows - rows), rows)
            pq.write_table(piece, native / f"{number:05d}.parquet")
        data = pa.concat_tables(pq.read_table(f) for f in sorted(native.glob("*.parquet")))
        with_layout = {"target_file_size_bytes": 1, "row_group_rows": rows}
        lake.write_dataset(data, ours, **with_layout)
    return native, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    parser.add_argument("--folder", help="keep the data here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, arguments)


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    spark = session()
    source = lineitem(folder, arguments.scale)
    ours = folder / f"lineitem-plake-{arguments.scale:g}"
    if not ours.exists():
        reader = pq.ParquetFile(source)
        stream = pa.RecordBatchReader.from_batches(reader.schema_arrow, reader.iter_batches())
        lake.write_dataset(stream, ours, target_file_size_bytes=32 * 2**20)
    # The very files that plake wrote, through Spark's own reader: the same rows and layout.
    files = [f"{ours}/{f.path}" for f in lake.open_dataset(ours).files()]
    native = spark.read.parquet(*files)
    plain = spark.read.format("plake").load(str(ours))
    compare = Comparison(arguments.rounds)

    from tests.doors.conftest import unshared_session

    with_extension = lake.spark.enable(unshared_session(spark))
    pruned = with_extension.read.format("plake").load(str(ours))
    frames = {"native": native, "extension": pruned, "stock": plain}
    rivals = "native s | extension s | ratio | stock s | ratio"
    print(f"| lineitem, scale {arguments.scale:g} | {rivals} |")
    print("|---|---|---|---|---|---|")

    def ask(text: str) -> Callable[[Any], Any]:
        def run(frame: Any) -> Any:
            frame.createOrReplaceTempView("t_bench")
            return frame.sparkSession.sql(text.format(t="t_bench")).collect()

        return run

    keys = ", ".join(str(1 + 59_999 * n) for n in range(100))
    questions: list[tuple[str, Callable[[Any], Any]]] = [
        ("full scan", discard),
        ("count(*)", lambda frame: frame.count()),
        ("Q1", ask(Q1)),
        ("Q6", ask(Q6)),
        ("point lookup", ask(POINT)),
        ("IN of 100 keys", ask(HUNDRED.replace("{keys}", keys))),
    ]
    for name, work in questions:
        if arguments.only in name:
            compare.run(name, frames, work)
    if arguments.only in "3 of 100 columns":
        path = wide(folder)
        target = folder / "wide-plake"
        if not target.exists():
            lake.write_dataset(pq.read_table(path), target)
        files = [f"{target}/{f.path}" for f in lake.open_dataset(target).files()]
        frames = {
            "native": spark.read.parquet(*files),
            "extension": with_extension.read.format("plake").load(str(target)),
            "stock": spark.read.format("plake").load(str(target)),
        }
        compare.run(
            "3 of 100 columns",
            frames,
            ask("SELECT sum(c003), max(c050), count(c099) FROM {t} WHERE c003 > 0.5"),
        )
    if arguments.only in "point lookup, 2,000 files":
        native_files, small = small_files(folder, source, 2000)
        frames = {
            "native": spark.read.parquet(str(native_files)),
            "extension": with_extension.read.format("plake").load(str(small)),
        }
        compare.run(
            "point lookup, 2,000 files",
            frames,
            ask("SELECT count(*), sum(l_quantity) FROM {t} WHERE l_orderkey = 1"),
        )
    spark.stop()


if __name__ == "__main__":
    main()
