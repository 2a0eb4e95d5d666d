"""Iceberg's own Spark runtime and plake, each as a ratio to native Parquet on the same Spark.

Iceberg's runtime is for Spark 3.5, plake is for Spark 4.1 and newer, so each has a session of its
own, with local[2] and a catalog with tables by name. Native Parquet is asked in both, right beside
each question, and a third table compares the two ratios.

- full scan: all rows and columns of TPC-H lineitem (6M rows at scale 1), thrown away. Each system
  wrote its table on its own Spark from the same file; all compress with zstd.
- point among 2,000 files: an order of files of 500 rows; the frame is made before.
- append: 1,000,000 rows of eight columns. One-row INSERT: into a table of three columns.
- DELETE of 0.1 %: the rows of 1,500 orders, anywhere; native Parquet counts them.
- MERGE of 6,000: 5,900 rows with a partner among the 6M, 100 new ones; native Parquet only joins.

Iceberg's tables have format version 3 and merge on read, so that it writes deletion vectors too.

    python -m integration.benchmarks --only iceberg
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

# This module runs in Iceberg's environment too: plake is imported where it is asked.
from integration.benchmarks.measure import (
    ROOT,
    SPARK_SETTINGS,
    Result,
    Scale,
    data_folder,
    interleaved,
    run_folder,
)

FAMILY, NATIVE, ICEBERG, MINE = "iceberg", "native Parquet", "Iceberg", "plake"
RATIO = "x native Parquet"
KEYS = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
MERGE = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
ROWS, SMALL_ROWS, ORDERS, NEW_ROWS = 1_000_000, 10_000, 1500, 100
COLUMNS = (
    "id", "CAST(id * 7919 % 1000 AS INT) AS key", "(id * 2654435761 % 1000003) / 7.0D AS price",
    "CAST(id * 31 % 50 AS DOUBLE) AS quantity", "CAST(id * 13 % 3650 AS INT) AS day",
    "timestamp_micros(id * 48271 % 1000000007 * 1000003) AS moment",
    "CAST(id % 7 AS STRING) AS carrier",
    "concat('note ', CAST(id * 69621 % 10000019 AS STRING)) AS note",
)  # fmt: skip
ICEBERG_TABLE = (
    "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read', "
    "'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')"
)


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    from integration.benchmarks import data, rivals

    native, ours = data.small_files(data_folder(), scale.tpch, scale.small_files)
    given = {
        "lineitem": str(data.lineitem(data_folder(), scale.tpch)),
        "native": str(native),
        "plake": str(ours),
        "rounds": rounds,
        "top": int(6_000_000 * scale.tpch),
    }
    found: dict[str, dict[str, Any]] = {}
    for system in (ICEBERG, MINE):
        python, jars = rivals.iceberg_spark() if system == ICEBERG else (sys.executable, "")
        folder = run_folder() / f"iceberg-{system}"
        folder.mkdir()
        command = [python, __file__, system, json.dumps({**given, "folder": str(folder)})]
        environment = {**os.environ, "PLAKE_BENCH_JARS": jars}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{system}: {done.stderr[-2000:]}")
        found[system] = json.loads(done.stdout.splitlines()[-1])
        for question, times in found[system]["times"].items():
            for one, values in times.items():
                base = None if one == NATIVE else NATIVE
                size = f"Spark {found[system]['version']}"
                yield Result(FAMILY, question, one, "s", tuple(values), size, base)
    counts = {system: one["counts"] for system, one in found.items()}
    assert counts[ICEBERG] == counts[MINE], counts
    for question in found[MINE]["times"]:
        for system in (MINE, ICEBERG):
            times = found[system]["times"][question]
            ratios = tuple(a / b for a, b in zip(times[system], times[NATIVE]))
            base = ICEBERG if system == MINE else None
            yield Result(FAMILY, question, system, RATIO, ratios, "", base)


# --- in the environment of one system -----------------------------------------------------


def ask(system: str, given: dict[str, Any]) -> dict[str, Any]:
    """The seconds of each question, by system; and counts that must be equal."""
    spark, name = _session(system, given["folder"])
    rounds = given["rounds"]
    spark.sql(f"CREATE NAMESPACE {name}")
    times: dict[str, dict[str, tuple[float, ...]]] = {}
    for question, works in _questions(spark, system, name, given):
        for work in works.values():  # code and page cache are warm
            work()
        times[question] = interleaved(works, rounds)
    counts = [
        spark.table(f"{name}.li").count(),
        spark.sql(f"SELECT count(*) FROM {name}.li WHERE l_comment = 'changed'").first()[0],
        spark.table(f"{name}.appended").count(),
        spark.table(f"{name}.small").count(),
    ]
    version = spark.version
    spark.stop()
    return {"version": version, "times": times, "counts": counts}


Works = dict[str, Callable[[], object]]


def _questions(
    spark: Any, system: str, name: str, given: dict[str, Any]
) -> Iterator[tuple[str, Works]]:
    folder = given["folder"]
    lineitem = spark.read.parquet(given["lineitem"])
    _create(spark, system, f"{name}.li", lineitem)
    lineitem.write.parquet(f"{folder}/li")
    native = spark.read.parquet(f"{folder}/li")
    native.createOrReplaceTempView("native")
    yield (
        "full scan",
        {
            NATIVE: lambda: native.write.format("noop").mode("overwrite").save(),
            system: lambda: spark.table(f"{name}.li").write.format("noop").mode("overwrite").save(),
        },
    )
    yield "point among 2,000 files", _point(spark, system, name, given)
    rows = spark.range(ROWS, numPartitions=2).selectExpr(*COLUMNS)
    _create(spark, system, f"{name}.appended", rows.limit(0))
    yield (
        "append",
        {
            NATIVE: lambda: rows.write.mode("append").parquet(f"{folder}/appended"),
            system: lambda: rows.writeTo(f"{name}.appended").append(),
        },
    )
    few = spark.range(SMALL_ROWS).selectExpr("id", "CAST(id % 10 AS INT) AS grp", "'a' AS note")
    _create(spark, system, f"{name}.small", few)
    few.write.format("parquet").saveAsTable("small")
    values = "VALUES (CAST(10000 AS BIGINT), 3, 'b')"
    yield (
        "one-row INSERT",
        {
            NATIVE: lambda: spark.sql(f"INSERT INTO small {values}"),
            system: lambda: spark.sql(f"INSERT INTO {name}.small {values}"),
        },
    )
    deleted = {one: _conditions(given["top"]) for one in (NATIVE, system)}
    yield (
        "DELETE of 0.1 %",
        {
            NATIVE: lambda: spark.sql(
                f"SELECT count(*) FROM native WHERE {next(deleted[NATIVE])}"
            ).collect(),
            system: lambda: spark.sql(f"DELETE FROM {name}.li WHERE {next(deleted[system])}"),
        },
    )
    for number in range(given["rounds"] + 1):
        _source(lineitem, number).write.parquet(f"{folder}/source-{number}")
    merged = {one: iter(range(given["rounds"] + 1)) for one in (NATIVE, system)}

    def merge(one: str) -> None:
        spark.read.parquet(f"{folder}/source-{next(merged[one])}").createOrReplaceTempView("s")
        if one == NATIVE:
            spark.sql(f"SELECT count(*) FROM s LEFT JOIN native t ON {KEYS}").collect()
        else:
            spark.sql(f"MERGE INTO {name}.li t USING s ON {KEYS} {MERGE}")

    works: Works = {NATIVE: lambda: merge(NATIVE), system: lambda: merge(system)}
    yield "MERGE of 6,000", works


def _session(system: str, folder: str) -> tuple[Any, str]:
    """A session, and the namespace of its tables."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    settings = {
        **SPARK_SETTINGS,
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    if system == MINE:
        import lakehouse_source as lake

        url = f"sqlite:///{folder}/catalog.db"
        lake.spark.configure(builder, url, warehouse=f"{folder}/plake")
        return builder.config(map=settings).getOrCreate(), "plake.db"
    extension = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    settings |= {
        "spark.jars": os.environ["PLAKE_BENCH_JARS"],
        "spark.sql.extensions": extension,
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"{folder}/ice",
    }
    return builder.config(map=settings).getOrCreate(), "ice.db"


def _create(spark: Any, system: str, table: str, rows: Any) -> None:
    rows.createOrReplaceTempView("rows_of_new")
    how = f"USING iceberg {ICEBERG_TABLE}" if system == ICEBERG else "USING plake"
    spark.sql(f"CREATE TABLE {table} {how} AS SELECT * FROM rows_of_new")


def _point(spark: Any, system: str, name: str, given: dict[str, Any]) -> Works:
    if system == ICEBERG:
        files = spark.read.parquet(given["native"])
        _create(spark, system, f"{name}.files", files.limit(0))
        source = f"`parquet`.`{given['native']}`"
        spark.sql(f"CALL ice.system.add_files('db.files', '{source}')")
        mine = spark.table(f"{name}.files")
    else:
        mine = spark.read.format("plake").load(given["plake"])
    frames = {NATIVE: spark.read.parquet(given["native"]), system: mine}

    def point(one: str) -> list[Any]:
        found = frames[one].where("l_orderkey = 1").selectExpr("count(*)", "sum(l_quantity)")
        return list(found.collect())

    assert point(NATIVE) == point(system)
    return {NATIVE: lambda: point(NATIVE), system: lambda: point(system)}


def _conditions(top: int) -> Iterator[str]:
    """The orders to delete, other ones each time. TPC-H uses 8 of 32 numbers as order keys."""
    count = min(ORDERS, top // (32 * 64))  # fewer where the table is small
    step = top // (32 * count)
    for number in range(step):
        keys = (32 * (step * n + number) + 1 for n in range(count))
        yield f"l_orderkey IN ({', '.join(map(str, keys))})"


def _source(lineitem: Any, number: int) -> Any:
    """Rows to merge: some of each thousand orders with another comment, and new ones."""
    columns = [one for one in lineitem.columns if one not in ("l_orderkey", "l_comment")]
    some = lineitem.where(f"pmod(hash(l_orderkey), 1017) = {number}")
    far = lineitem.limit(NEW_ROWS).selectExpr(
        f"1000000000L + {NEW_ROWS * number} + monotonically_increasing_id() AS l_orderkey",
        *columns,
        "'changed' AS l_comment",
    )
    changed = some.selectExpr("l_orderkey", *columns, "'changed' AS l_comment")
    return changed.unionByName(far).select(lineitem.columns).coalesce(1)


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], json.loads(sys.argv[2]))))
