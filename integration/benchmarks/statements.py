"""What a statement of Spark costs, the first one of a session and later ones.

Each round starts a driver for each system: plake's tables of a catalog on SQLite, and Spark's own
Parquet tables of `spark_catalog`, with the same 10,000 rows.

- first write, first read, first batch of a stream: the first statement of a session, which is made
  for it; the start of the JVM is not in the time.
- the others: the median of seven, after two of the same that warm up. Spark's own Parquet tables
  have no DELETE and no MERGE: both have the one-row INSERT of plake to compare with.
- analyse, optimize, plan, run: parts of a query's time, as in "Where the time of a query goes". A
  command (INSERT, DELETE, MERGE, SHOW TABLES) runs when it is analysed.

    python integration/benchmarks/statements.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from integration.benchmarks import query_parts, spark_scan
from integration.benchmarks.measure import FULL, ROOT, Result, Scale, run_folder, seconds

FAMILY, NATIVE, MINE = "statements", "Spark's Parquet", "plake"
ROWS, TIMES, WARM = 10_000, 7, 2
FIRST = ("first write", "first read", "first batch")
SELECT = "SELECT of one row"
COUNT = "grouped count"
INSERT = "INSERT of one row"
QUERIES = {
    SELECT: "SELECT * FROM {t} WHERE id = 4711",
    COUNT: "SELECT grp, count(*) FROM {t} GROUP BY grp",
}
COMMANDS = {
    INSERT: "INSERT INTO {t} VALUES ({n}, 1, 'new')",
    "SHOW TABLES": "SHOW TABLES IN {namespace}",
}
ROW_COMMANDS = {
    "DELETE of one row": "DELETE FROM {t} WHERE id = {m}",
    "MERGE of 10 rows": (
        "MERGE INTO {t} t USING (SELECT id + {m} - 5 AS id, 2 AS grp, 'merged' AS note "
        "FROM range(10)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    ),
}


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    base = run_folder() / "statements"
    found: dict[tuple[str, str, str], list[float]] = {}
    # An installed package has its bytecode: Spark's Python workers do not compile it each time.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for number in range(rounds):
        systems = (NATIVE, MINE)[:: 1 if number % 2 == 0 else -1]
        for what in (*FIRST, "later"):
            for system in systems:
                shutil.rmtree(base, ignore_errors=True)
                base.mkdir(parents=True)
                command = [sys.executable, __file__, "--child", what, system, str(base)]
                done = subprocess.run(
                    command, capture_output=True, text=True, cwd=ROOT, check=True, env=environment
                )
                for question, unit, value in json.loads(done.stdout.splitlines()[-1]):
                    found.setdefault((question, system, unit), []).append(value)
    shutil.rmtree(base, ignore_errors=True)
    for (question, system, unit), values in found.items():
        base_name = NATIVE if (question, NATIVE, unit) in found else None
        yield Result(FAMILY, question, system, unit, tuple(values), "", base_name)
    one = found[INSERT, MINE, "ms"]
    for question in ROW_COMMANDS:
        times = tuple(a / b for a, b in zip(found[question, MINE, "ms"], one))
        yield Result(FAMILY, question, MINE, "one-row INSERTs of plake", times)


def _child(what: str, system: str, folder: Path) -> list[tuple[str, str, float]]:
    spark = _session(system, folder)
    if what == "later":
        return list(_later(spark, system))
    path, form = str(folder / "table"), "plake" if system == MINE else "parquet"
    if what != "first write":
        _prepare(system, path)
    taken = seconds(lambda: _first(what, spark, form, path, folder))
    made = path if what != "first batch" else str(folder / "copy")
    assert spark.read.format(form).load(made).count() == ROWS
    return [(what, "s", taken)]


def _first(what: str, spark: Any, form: str, path: str, folder: Path) -> None:
    if what == "first write":
        rows = spark.range(ROWS).selectExpr("id", "CAST(id % 10 AS INT) AS grp", "'a' AS note")
        rows.write.format(form).mode("append").save(path)
    elif what == "first read":
        assert len(spark.read.format(form).load(path).where("id = 4711").collect()) == 1
    else:
        # A stream of one batch, which ends with it.
        rows = spark.readStream.format(form).schema("id LONG, grp INT, note STRING").load(path)
        started = rows.writeStream.format(form).trigger(availableNow=True)
        checkpoint = str(folder / "checkpoint")
        started.option("checkpointLocation", checkpoint).start(
            str(folder / "copy")
        ).awaitTermination()


def _session(system: str, folder: Path) -> Any:
    import lakehouse_source as lake

    settings = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    if system == NATIVE:
        return spark_scan.session(**settings)
    from pyspark.sql import SparkSession

    catalog, warehouse = f"sqlite:///{folder}/catalog.db", str(folder / "plake")
    configured = lake.spark.configure(SparkSession.builder, catalog, warehouse=warehouse)
    return spark_scan.session(configured, **settings)


def _prepare(system: str, path: str) -> None:
    """The table of the first read and the first batch, made without Spark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import lakehouse_source as lake

    ids = pa.array(range(ROWS), pa.int64())
    groups = pa.array([number % 10 for number in range(ROWS)], pa.int32())
    rows = pa.table({"id": ids, "grp": groups, "note": pa.array(["a"] * ROWS)})
    if system == MINE:
        lake.write_dataset(rows, path)
    else:
        Path(path).mkdir()
        pq.write_table(rows, f"{path}/part.parquet")


def _later(spark: Any, system: str) -> Iterator[tuple[str, str, float]]:
    namespace = "plake.shop" if system == MINE else "shop"
    table = f"{namespace}.t"
    spark.sql(f"CREATE NAMESPACE {namespace}")
    using = "plake" if system == MINE else "parquet"
    spark.sql(
        f"CREATE TABLE {table} USING {using} AS "
        f"SELECT id, CAST(id % 10 AS INT) AS grp, 'a' AS note FROM range({ROWS})"
    )
    for question, sql in QUERIES.items():
        rows = [query_parts.parts(spark, sql.format(t=table)) for _ in range(WARM + TIMES)]
        kept = rows[WARM:]
        for part, values in zip(query_parts.PARTS, zip(*kept)):
            yield f"{question}: {part}", "ms", 1000 * statistics.median(values)
        yield question, "ms", 1000 * statistics.median(map(sum, kept))
    commands = COMMANDS | (ROW_COMMANDS if system == MINE else {})
    for question, sql in commands.items():
        taken = []
        for number in range(WARM + TIMES):
            text = sql.format(t=table, n=ROWS + number, m=100 * number + 50, namespace=namespace)
            taken.append(seconds(lambda text=text: spark.sql(text).collect()))
        yield question, "ms", 1000 * statistics.median(taken[WARM:])


def main() -> None:
    from integration.benchmarks import report

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        what, system, folder = arguments.child
        print(json.dumps(_child(what, system, Path(folder))))
        return
    print("\n\n".join(report.tables(list(run(FULL, arguments.rounds)))))


if __name__ == "__main__":
    main()
