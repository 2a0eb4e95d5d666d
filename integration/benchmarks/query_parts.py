"""Where the time of a query through Spark goes: before its jobs, and in them.

The questions whose targets are not met, and TPC-H queries that take longer than over plain
Parquet. Each query is analysed, optimized, planned and run anew, and the seconds of each part
are taken by the client. Plake's own planning, in a Python process on the driver, is a part of
"plan" (the choice of the reader) or of "optimize" (answers from the catalog). "run" is Spark's
jobs: two or more stages, with tasks in the JVM or in Python workers. The notes say who reads, and
how many files. Queries that take less than half a second run three times as often.

    python integration/benchmarks/query_parts.py [--scale 1] [--rounds 5]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from integration import tpch
from integration.benchmarks import data, spark_scan
from integration.benchmarks.measure import FULL, Result, Scale, data_folder, rounds_for

FAMILY, NATIVE, MINE = "parts", spark_scan.NATIVE, "plake, extension"
PARTS = ("analyse", "optimize", "plan", "run")
TPCH_QUERIES = (2, 3, 6, 7, 16, 19, 20, 22)


def parts(session: Any, sql: str) -> tuple[float, ...]:
    """Seconds of each of `PARTS` for a query."""
    marks = [time.perf_counter()]
    frame = session.sql(sql)
    execution = frame._jdf.queryExecution()
    steps: tuple[Callable[[], object], ...] = (
        execution.analyzed, execution.optimizedPlan, execution.executedPlan, frame.collect,
    )  # fmt: skip
    for step in steps:
        step()
        marks.append(time.perf_counter())
    return tuple(after - before for before, after in itertools.pairwise(marks))


def split(
    name: str, sql: str, sessions: Mapping[str, Any], size: str, rounds: int
) -> Iterator[Result]:
    """The parts of one query, by system, round by round."""
    taken: dict[str, list[tuple[float, ...]]] = {system: [] for system in sessions}
    parts(sessions[NATIVE], sql)
    rounds = rounds_for(lambda: parts(sessions[NATIVE], sql), rounds)
    for number in range(-1, rounds):  # the first one warms up
        order = list(sessions)[number % 2 :] + list(sessions)[: number % 2]
        for system in order:
            found = parts(sessions[system], sql)
            taken[system] += [found] if number >= 0 else []
    for system, rows in taken.items():
        note = tpch.readers_of(sessions[system], sql) if system == MINE else ""
        for part, values in zip(PARTS, zip(*rows)):
            yield Result(FAMILY, f"{name}: {part}", system, "s", values, size, NATIVE, note)
            note = ""


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    readers = spark_scan.Readers()
    sessions = {NATIVE: readers.spark, MINE: readers.extended}
    size = f"TPC-H scale {scale.tpch:g}"
    folder = data_folder()
    try:
        lineitem = data.lineitem_plake(folder, scale.tpch)
        orders = data.order_batches(folder, scale.tpch)
        for view, dataset in (("t", lineitem), ("o", orders)):
            ways = readers.of(dataset, data.paths(dataset), stock=False)
            for system in sessions:
                ways[system](None).createOrReplaceTempView(view)
        count = spark_scan.Question("count(*)", "SELECT count(*) FROM t")
        for question in (count, *spark_scan.questions(), spark_scan.JOIN):
            if question.sql:
                yield from split(question.name, question.sql, sessions, size, rounds)
        wide = data.wide(folder, scale.wide_rows)
        ways = readers.of(wide, data.paths(wide), stock=False)
        for system in sessions:
            ways[system](None).createOrReplaceTempView("t")
        yield from split(spark_scan.WIDE.name, spark_scan.WIDE.sql, sessions, size, rounds)
        datasets = data.tpch_plake(folder, scale.tpch)
        for system, session in sessions.items():
            tpch.of_spark(session, datasets, native=system == NATIVE)
        for number in TPCH_QUERIES:
            sql = tpch.queries()[number]
            yield from split(f"TPC-H Q{number}", sql, sessions, size, rounds)
    finally:
        readers.spark.stop()


def main() -> None:
    from integration.benchmarks import report

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    results = list(run(dataclasses.replace(FULL, tpch=arguments.scale), arguments.rounds))
    print("\n\n".join([*report.tables(results), *report.notes(results)]))


if __name__ == "__main__":
    main()
