"""The merge of `row_changes` as a statement of Spark SQL, beside its join alone.

The join is the same one, over native Parquet: the files of the dataset. Its rows are counted. Spark
reads the keys for it; the statement reads all columns, and writes what changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from integration.benchmarks import data, spark_scan
from integration.benchmarks.measure import Result, run_folder, seconds
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting

JOIN, MINE, PYTHON = "join alone", "plake", "plake, read by Python"
ON = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
STATEMENT = (
    f"MERGE INTO t USING s ON {ON} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def results(
    family: str, table: Path, copy: Callable[[Path], None], rows: pa.Table, size: str, rounds: int
) -> Iterator[Result]:
    """Time the statement and its join, round by round.

    Args:
        copy: makes a fresh copy of the dataset.
        rows: those to merge.
    """
    source, target = run_folder() / "merge-source.parquet", run_folder() / "merged"
    pq.write_table(rows, source)
    spark = spark_scan.session()
    try:
        merging = spark_scan.with_extension(spark)
        for session in (spark, merging):
            session.read.parquet(str(source)).createOrReplaceTempView("s")
        spark.read.parquet(*data.paths(table)).createOrReplaceTempView("t")
        taken: dict[str, list[float]] = {JOIN: [], MINE: [], PYTHON: []}
        for number in range(-1, rounds):  # the first one warms up
            for system in list(taken)[:: 1 if number % 2 == 0 else -1]:
                shutil.rmtree(target, ignore_errors=True)
                copy(target)
                found = seconds(_work(system, spark, merging, target))
                taken[system] += [found] if number >= 0 else []
        shutil.rmtree(target)
    finally:
        spark.stop()
    for system, values in taken.items():
        base = None if system == JOIN else JOIN
        yield Result(family, "MERGE in Spark SQL", system, "s", tuple(values), size, base)


def _work(system: str, spark: Any, merging: Any, target: Path) -> Callable[[], object]:
    if system == JOIN:
        query = f"SELECT count(*) FROM s LEFT JOIN t ON {ON}"
        return lambda: spark.sql(query).collect()
    merging.conf.set(Setting.READER, Reader.AUTO if system == MINE else Reader.PYTHON)
    merging.sql(f"CREATE OR REPLACE TEMPORARY VIEW t USING plake OPTIONS (path '{target}')")
    return lambda: merging.sql(STATEMENT)
