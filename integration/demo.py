"""The main job, end to end, on 336,776 real flights. Run it with `make demo`.

Writes with Spark, reads back pruned, overwrites a month, travels in time, and
asks plain Python and DuckDB the same question. Every answer is checked against
the source data; the demo fails when one differs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

sys.path.insert(0, str(Path(__file__).parents[1]))

import lakehouse_source as lake
from integration.flights import ROWS, load

QUESTION = "carrier = 'UA' AND month = 3"
STEPS = 10
BAR = tqdm(
    total=STEPS,
    disable=None,  # no bar where standard error is no terminal
    leave=False,
    bar_format="{desc:.50} |{bar}| {n_fmt} of {total_fmt} steps, {elapsed}",
)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print a heading above the progress bar, then how long it took."""
    BAR.set_description_str(title)
    with redirect_stdout(DummyTqdmFile(sys.stdout)):
        print(f"\n== {title}")
        started = time.perf_counter()
        yield
        print(f"   ({time.perf_counter() - started:.2f} s)")
    BAR.update()


def check(what: str, got: object, expected: object) -> None:
    """Fail the demo when an answer is not that of the source data."""
    if got != expected:
        raise SystemExit(f"WRONG: {what}: got {got!r}, expected {expected!r}")
    shown = f"{got:,}" if isinstance(got, int) else got
    print(f"   {what}: {shown}  (checked)")


def main() -> None:
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", help="catalog URL (default: SQLite inside the dataset)")
    parser.add_argument("--into", default="data/demo", help="folder to work in; it is emptied")
    arguments = parser.parse_args()
    home = Path(arguments.into).resolve()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    uri = str(home / "flights")
    catalog = {"catalog": arguments.catalog} if arguments.catalog else {}

    flights = load()
    source = home / "source.parquet"
    pq.write_table(flights, source)
    march = flights.filter(pc.field("month") == 3)
    united = march.filter(pc.field("carrier") == "UA").num_rows

    from pyspark.sql import SparkSession

    # Spark looks for "python3" on the PATH unless told: it must be this one, where plake is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = lake.spark.configure(
        SparkSession.builder.master("local[2]")
        .appName("plake demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
    )
    with step("Start Spark, with the planner extension"):
        spark = builder.getOrCreate()
        print(f"   Spark {spark.version}; extension loaded: {lake.spark.is_enabled(spark)}")

    with step("Write the flights with Spark, a folder per month"):
        frame = spark.read.parquet(str(source)).repartition("month")
        frame = frame.sortWithinPartitions("time_hour")
        writer = frame.write.format("plake").options(**catalog, rowGroupRows="8192")
        writer.option("partitionBy", "month").mode("append").save(uri)
        dataset = lake.open_dataset(uri, **catalog)
        added = dataset.history()[0].summary
        print(f"   version {dataset.version}: {added['files_added']} files")
        check("rows", added["rows_added"], ROWS)

    with step(f"Read with Spark where {QUESTION}"):
        plake = spark.read.format("plake").options(**catalog).load(uri)
        found = plake.where(QUESTION).select("dest", "arr_delay")
        check("flights", found.count(), united)
        found.explain()
        print(dataset.scan(QUESTION, ["dest", "arr_delay", "carrier", "month"]).explain())

    with step("A point in time: one hour of the year"):
        hour = "time_hour = TIMESTAMP '2013-07-04 12:00:00Z'"
        moment = pa.scalar(1372939200000000, pa.timestamp("us", "UTC"))
        expected = flights.filter(pc.field("time_hour") == moment).num_rows
        check("flights", plake.where(hour).count(), expected)
        print(dataset.scan(hour).explain())

    with step("One frame, different filters: every scan is its own"):
        check("month = 1", plake.where("month = 1").count(), _count(flights, "month", 1))
        check("all", plake.count(), ROWS)
        both = plake.where("month = 5").union(plake.where("month = 7"))
        expected = _count(flights, "month", 5) + _count(flights, "month", 7)
        check("month = 5 and month = 7, as a union", both.count(), expected)

    with step("Overwrite March: only flights that were more than an hour late"):
        late = spark.read.parquet(str(source)).where("month = 3 AND arr_delay > 60")
        writer = late.write.format("plake").options(**catalog, overwriteWhere="month = 3")
        writer.mode("overwrite").save(uri)
        expected_late = march.filter(pc.field("arr_delay") > 60).num_rows
        now = spark.read.format("plake").options(**catalog).load(uri)
        check("flights in March now", now.where("month = 3").count(), expected_late)
        check("flights in all", now.count(), ROWS - march.num_rows + expected_late)

    with step("Read the version before"):
        before = spark.read.format("plake").options(**catalog, versionAsOf="1").load(uri)
        check("flights in March then", before.where("month = 3").count(), march.num_rows)
        then = lake.read_dataset(uri, **catalog, version=1, predicates=QUESTION)
        check("the same from Python", then.num_rows, united)

    with step("History"):
        print(dataset.refresh().history())

    with step("The same question to plain Python and to DuckDB"):
        late_united = (pc.field("carrier") == "UA") & (pc.field("arr_delay") > 60)
        expected = march.filter(late_united).num_rows
        check("Python", lake.read_dataset(uri, **catalog, predicates=QUESTION).num_rows, expected)
        import duckdb

        with duckdb.connect() as connection:
            dataset.scan(QUESTION).to_duckdb(connection, "flights")
            answer = connection.execute(f"SELECT count(*) FROM flights WHERE {QUESTION}").fetchone()
        check("DuckDB", answer[0], expected)

    with step("Sums per column, Spark and Python against the source"):
        numeric = [f.name for f in flights.schema if f.type in (pa.int32(), pa.float64())]
        first = lake.read_dataset(uri, **catalog, version=1)
        sums = before.selectExpr(*(f"sum({name}) AS {name}" for name in numeric)).first()
        for name in numeric:
            truth = pc.sum(flights[name]).as_py()
            if not truth == pc.sum(first[name]).as_py() == sums[name]:
                raise SystemExit(f"WRONG: sum of {name}")
        print(f"   {len(numeric)} columns equal  (checked)")
    spark.stop()
    BAR.close()
    seconds = time.perf_counter() - started
    print(f"\nAll answers equal the source data ({seconds:.0f} s). The dataset is in {uri}")
    plake = Path(os.path.relpath(Path(sys.executable).with_name("plake")))
    table = [os.path.relpath(uri)]
    if arguments.catalog:
        with lake.open_catalog(arguments.catalog) as opened:
            table += ["--catalog", opened.redacted_url]
    page = os.path.relpath(home / "scan.html")
    print("Try next:\n")
    for words in (
        ["history", *table],
        ["scan", *table, "--where", QUESTION, "--limit", "5"],
        ["explain", *table, "--where", QUESTION, "--details", "--html", page],
    ):
        # Double quotes: a condition has single ones.
        print("   ", plake, *(word if word == shlex.quote(word) else f'"{word}"' for word in words))


def _count(table: pa.Table, column: str, value: object) -> int:
    return table.filter(pc.field(column) == value).num_rows


if __name__ == "__main__":
    main()
