"""Engines over plake's scans against the same engines over the bare Parquet files.

A whole scan asks plake for all rows, so that the engine filters and sums up by itself; a
pruned one gives plake the condition. Each time the dataset is opened anew, the scan is
planned and handed over, and the query runs. The bare engine is given all files by name. A
connection or session is opened once, before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lakehouse_source as lake
from integration.benchmarks import spark_scan
from integration.benchmarks.measure import Result, agree, interleaved

Ask = Callable[[str | None, tuple[str, ...] | None, str], Any]

SUMS = "sum(l_extendedprice * l_discount) AS revenue"
POINT = "l_orderkey = 3000003"
FIRST = "l_orderkey < 60000"
Q6 = f"SELECT {SUMS} FROM t WHERE {spark_scan.Q6_WHERE}"

# The name, what plake is asked for, and the query over it.
Question = tuple[str, str | None, tuple[str, ...] | None, str]
QUESTIONS: tuple[Question, ...] = (
    ("Q1, whole scan", None, None, "Q1"),
    ("Q6, whole scan", None, None, Q6),
    ("Q6, pruned", spark_scan.Q6_WHERE, spark_scan.Q6_COLUMNS, Q6),
    ("1% of the keys, pruned", FIRST, None, f"SELECT {SUMS} FROM t WHERE {FIRST}"),
    ("point, pruned", POINT, None, f"SELECT * FROM t WHERE {POINT}"),
)
# Over many files: an engine that is given all of them opens each for its footer.
ONE = "l_orderkey = 1"
OF_MANY_FILES: tuple[Question, ...] = (
    ("whole scan", None, None, f"SELECT {SUMS} FROM t"),
    ("point, pruned", ONE, None, f"SELECT {SUMS} FROM t WHERE {ONE}"),
)


def in_duckdb(dataset: Path, files: list[str]) -> tuple[Ask, Ask]:
    import duckdb

    over, bare = duckdb.connect(), duckdb.connect()

    def ours(where: str | None, columns: tuple[str, ...] | None, sql: str) -> Any:
        lake.open_dataset(dataset).scan(where, columns).to_duckdb(over, "t")
        return over.sql(sql).to_arrow_table()

    def theirs(_where: str | None, _columns: tuple[str, ...] | None, sql: str) -> Any:
        source = f"read_parquet({files!r}, hive_partitioning = false)"
        bare.execute(f"CREATE OR REPLACE VIEW t AS SELECT * FROM {source}")
        return bare.sql(sql).to_arrow_table()

    return ours, theirs


def in_polars(dataset: Path, files: list[str]) -> tuple[Ask, Ask]:
    import polars as pl

    def ours(where: str | None, columns: tuple[str, ...] | None, sql: str) -> Any:
        frame = lake.open_dataset(dataset).scan(where, columns).to_polars()
        return pl.SQLContext(t=frame).execute(sql, eager=True).to_arrow()

    def theirs(_where: str | None, _columns: tuple[str, ...] | None, sql: str) -> Any:
        frame = pl.scan_parquet(files, glob=False, hive_partitioning=False)
        return pl.SQLContext(t=frame).execute(sql, eager=True).to_arrow()

    return ours, theirs


def in_datafusion(dataset: Path, _files: list[str]) -> tuple[Ask, Ask]:
    import datafusion

    def ours(where: str | None, columns: tuple[str, ...] | None, sql: str) -> Any:
        context = datafusion.SessionContext()
        lake.open_dataset(dataset).scan(where, columns).to_datafusion(context, "t")
        return context.sql(sql).to_arrow_table()

    def theirs(_where: str | None, _columns: tuple[str, ...] | None, sql: str) -> Any:
        context = datafusion.SessionContext()
        context.register_parquet("t", str(dataset))
        return context.sql(sql).to_arrow_table()

    return ours, theirs


ENGINES = {"DuckDB": in_duckdb, "Polars": in_polars, "DataFusion": in_datafusion}


def run(
    family: str, dataset: Path, files: list[str], q1: str, size: str, rounds: int,
    summary: Callable[[Any], Any], questions: tuple[Question, ...] = QUESTIONS,
) -> Iterator[Result]:  # fmt: skip
    """The figures of every engine; `summary` is what answers are compared by."""
    for name, engine in ENGINES.items():
        ours, theirs = engine(dataset, files)
        systems = {f"{name} over plake": ours, f"{name} over the files": theirs}
        for question, where, columns, sql in questions:
            text = q1 if sql == "Q1" else sql
            works = {
                system: lambda ask=ask, where=where, columns=columns, text=text: ask(
                    where, columns, text
                )
                for system, ask in systems.items()
            }
            agree(question, {n: lambda w=w: summary(w()) for n, w in works.items()})
            for system, values in interleaved(works, 2 * rounds).items():
                base = None if system.endswith("files") else f"{name} over the files"
                yield Result(family, question, system, "s", values, f"engines, {size}", base)
