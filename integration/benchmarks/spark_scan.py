"""Reads through Spark, side by side with Spark's own Parquet reader on the same files.

TPC-H lineitem (6M rows x 16 columns at scale 1), the 22 queries of TPC-H, a table of 100
columns, and 2,000 files of 56 rows each. The systems:

- native Parquet: `spark.read.parquet` of the very files that plake wrote, its frame (the
  listing) made before.
- plake, extension: the format `plake` with the planner extension, the frame made before;
  each query plans and chooses its reader.
- plake, Python's reader: the same with `spark.plake.planner.reader` = python.
- plake, stock: the same without the extension: no column and no filter reaches plake.

Answers are compared before they are timed. Questions that take less than half a second are asked
three times as often, but for TPC-H.

    python integration/benchmarks/spark_scan.py [--scale 1] [--rounds 5] [--only Q6]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration import tpch
from integration.benchmarks import data
from integration.benchmarks.measure import (
    FULL,
    SPARK_SETTINGS,
    Result,
    Scale,
    agree,
    data_folder,
    interleaved,
    rounds_for,
)
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting

FAMILY, NATIVE = "spark", "native Parquet"
Q1 = """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
       sum(l_extendedprice * (1 - l_discount)),
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
       avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM t WHERE l_shipdate <= DATE '1998-09-02'
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus
"""
Q1_COLUMNS = (
    "l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_tax",
    "l_shipdate",
)  # fmt: skip
Q6_WHERE = (
    "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' "
    "AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24"
)
Q6_COLUMNS = ("l_extendedprice", "l_discount", "l_shipdate", "l_quantity")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """`sql` over a view `t`, or an action on the frame; `where` and `columns` say the same."""

    name: str
    sql: str = ""
    where: str | None = None
    columns: tuple[str, ...] | None = None
    action: Callable[[Any], Any] | None = None

    def ask(self, frame: Any) -> list[tuple[Any, ...]]:
        if self.action is not None:
            return [(self.action(frame),)]
        frame.createOrReplaceTempView("t")
        rows = frame.sparkSession.sql(self.sql).collect()
        # Doubles are summed in another order by another system.
        return [tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows]


def _without(system: str, ways: dict[str, Any]) -> dict[str, Any]:
    return {name: way for name, way in ways.items() if name != system}


def _discard(frame: Any) -> None:
    """Every row and column, read and thrown away."""
    frame.write.format("noop").mode("overwrite").save()


def questions() -> list[Question]:
    keys = ", ".join(str(1 + 59_999 * n) for n in range(100))
    hundred = f"l_orderkey IN ({keys})"
    hundredth = "l_orderkey >= 3000000 AND l_orderkey < 3060000"  # in the order of the rows
    point = "l_orderkey = 3000003"
    return [
        Question("full scan", action=_discard),
        Question("count(*)", action=lambda frame: frame.count()),
        Question("Q1", Q1, "l_shipdate <= DATE '1998-09-02'", Q1_COLUMNS),
        Question("Q6", f"SELECT sum(l_extendedprice * l_discount) FROM t WHERE {Q6_WHERE}",
                 Q6_WHERE, Q6_COLUMNS),
        Question("point lookup", f"SELECT * FROM t WHERE {point} ORDER BY l_linenumber", point),
        Question("IN of 100 keys", f"SELECT count(*), sum(l_quantity) FROM t WHERE {hundred}",
                 hundred, ("l_orderkey", "l_quantity")),
        Question("range of 1 % of the key",
                 f"SELECT count(*), sum(l_quantity) FROM t WHERE {hundredth}",
                 hundredth, ("l_orderkey", "l_quantity")),
    ]  # fmt: skip


WIDE = Question(
    "3 of 100 columns",
    "SELECT sum(c003), max(c050), count(c099) FROM t WHERE c003 > 0.5",
    "c003 > 0.5",
    ("c003", "c050", "c099"),
)
SMALL = Question(
    "point lookup, {} files",
    "SELECT count(*), sum(l_quantity) FROM t WHERE l_orderkey = 1",
    "l_orderkey = 1",
    ("l_orderkey", "l_quantity"),
)


# The keys of 1 % of the orders are known when the query runs. A view `o` has the orders.
JOIN = Question(
    "join with 1 % of orders",
    "SELECT count(*), sum(l_extendedprice) FROM t JOIN o ON l_orderkey = o_orderkey "
    "WHERE o_batch = 'batch 37'",
)
STOCK = "plake, stock"


def session(configured: Any = None, **settings: str) -> Any:
    """A local session, of a builder that is configured; else `enable` loads the extension later."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (configured or SparkSession.builder).master("local[2]")
    for name, value in {**SPARK_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def with_extension(spark: Any) -> Any:
    """A session beside this one that has the planner extension, which this one has not."""
    from tests.doors.conftest import unshared_session

    return lake.spark.enable(unshared_session(spark))


class Readers:
    """The sessions, and each system's way to answer a question over a dataset."""

    def __init__(self) -> None:
        self.spark = session()
        self.extended = with_extension(self.spark)
        self.by_python = with_extension(self.spark)
        self.by_python.conf.set(Setting.READER, Reader.PYTHON)

    def of(self, dataset: Path, native: list[str], stock: bool = True) -> dict[str, Any]:
        """By system: a function that makes the frame for a question."""
        frames = {
            NATIVE: self.spark.read.parquet(*native),
            "plake, extension": self.extended.read.format("plake").load(str(dataset)),
            "plake, Python's reader": self.by_python.read.format("plake").load(str(dataset)),
        }
        if stock:
            frames[STOCK] = self.spark.read.format("plake").load(str(dataset))
        ways: dict[str, Any] = {name: lambda _q, f=frame: f for name, frame in frames.items()}
        return ways


def compare(question: Question, ways: dict[str, Any], size: str, rounds: int) -> Iterator[Result]:
    works = {name: lambda way=way: question.ask(way(question)) for name, way in ways.items()}
    agree(question.name, works)
    for name, values in interleaved(works, rounds_for(works[NATIVE], rounds)).items():
        yield Result(FAMILY, question.name, name, "s", values, size, NATIVE)


def compare_joins(
    ways: dict[str, Any], orders: dict[str, Any], size: str, rounds: int
) -> Iterator[Result]:
    def joined(name: str) -> Any:
        def frame(_question: Question) -> Any:
            orders[name](JOIN).createOrReplaceTempView("o")
            return ways[name](JOIN)

        return frame

    # The native door is asked with the condition of one table.
    yield from compare(JOIN, {n: joined(n) for n in ways}, size, rounds)


def _answer(ask: Callable[[str], Any], sql: str) -> list[tuple[Any, ...]]:
    return tpch.comparable(ask(sql))


def run_tpch(readers: Readers, scale: Scale, size: str, rounds: int) -> Iterator[Result]:
    """The 22 queries of TPC-H, and the sum of them. Python's reader is compared and not timed."""
    datasets = data.tpch_plake(data_folder(), scale.tpch)
    ways = {
        NATIVE: tpch.of_spark(readers.spark, datasets, native=True),
        "plake, extension": tpch.of_spark(readers.extended, datasets, native=False),
    }
    totals = {name: [0.0] * rounds for name in ways}
    by_python = tpch.of_spark(readers.by_python, datasets, native=False)
    for number, sql in tpch.queries().items():
        works = {name: partial(_answer, ask, sql) for name, ask in ways.items()}
        answers = {name: work() for name, work in works.items()}
        answers["plake, Python's reader"] = _answer(by_python, sql)
        for name, answer in answers.items():
            if tpch.differences(answer, answers[NATIVE]):
                raise AssertionError(f"Q{number}: {name} has other rows than {NATIVE}")
        for name, values in interleaved(works, rounds).items():
            totals[name] = [a + b for a, b in zip(totals[name], values)]
            yield Result(FAMILY, f"TPC-H Q{number}", name, "s", values, size, NATIVE)
    for name, total in totals.items():
        yield Result(FAMILY, "TPC-H, all 22", name, "s", tuple(total), size, NATIVE)


def run(scale: Scale, rounds: int, only: str = "") -> Iterator[Result]:
    folder = data_folder()
    readers = Readers()
    size = f"TPC-H scale {scale.tpch:g}"
    try:
        asked = [question for question in questions() if only in question.name]
        if asked:
            dataset = data.lineitem_plake(folder, scale.tpch)
            ways = readers.of(dataset, data.paths(dataset))
            for question in asked:
                # Without the extension every question reads everything: once is enough.
                some = ways if question.action is _discard else _without(STOCK, ways)
                yield from compare(question, some, size, rounds)
        if only in JOIN.name:
            lineitem = data.lineitem_plake(folder, scale.tpch)
            orders = data.order_batches(folder, scale.tpch)
            ways, beside = (
                readers.of(one, data.paths(one), stock=False) for one in (lineitem, orders)
            )
            yield from compare_joins(ways, beside, size, rounds)
        if only in WIDE.name:
            dataset = data.wide(folder, scale.wide_rows)
            ways = readers.of(dataset, data.paths(dataset), stock=False)
            yield from compare(WIDE, ways, size, rounds)
        small = dataclasses.replace(SMALL, name=SMALL.name.format(f"{scale.small_files:,}"))
        if only in small.name:
            native, dataset = data.small_files(folder, scale.tpch, scale.small_files)
            yield from compare(small, readers.of(dataset, [str(native)], stock=False), size, rounds)
        if only in "TPC-H":
            yield from run_tpch(readers, scale, size, rounds)
    finally:
        readers.spark.stop()


def main() -> None:
    from integration.benchmarks import report

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    parser.add_argument("--folder", help="keep the data here")
    arguments = parser.parse_args()
    if arguments.folder:
        os.environ["PLAKE_BENCH_DATA"] = arguments.folder
    scale = dataclasses.replace(FULL, tpch=arguments.scale)
    print("\n\n".join(report.tables(list(run(scale, arguments.rounds, arguments.only)))))


if __name__ == "__main__":
    main()
