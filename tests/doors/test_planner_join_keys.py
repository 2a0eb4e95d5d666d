"""Keys of a join that Spark learns while the query runs prune the other side's scan."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake

from .test_planner_queries import multiset

pytestmark = pytest.mark.spark

FILES = 8
ROWS = 500  # per file, ids ascend from file to file

QUERIES = [
    "SELECT f.id, d.name FROM {f} f JOIN d ON f.id = d.id WHERE d.name = 'd3'",
    "SELECT count(*), sum(f.v) FROM {f} f JOIN d ON f.id = d.id WHERE d.name IN ('d3', 'd7')",
    "SELECT f.id FROM {f} f WHERE f.id IN (SELECT id FROM d WHERE name LIKE 'd1%')",
    "SELECT f.id, d.name FROM {f} f LEFT JOIN d ON f.id = d.id AND d.name = 'd3' WHERE f.id < 900",
    "SELECT a.id FROM {f} a JOIN {f} b ON a.id = b.v JOIN d ON b.id = d.id WHERE d.name = 'd2'",
    "SELECT f.id FROM {f} f JOIN d ON f.id = d.id AND f.v = d.id WHERE d.name > 'd8'",
    (
        "SELECT f.id, e.n FROM {f} f JOIN (SELECT id, count(*) n FROM d WHERE name = 'd5' "
        "GROUP BY id) e ON f.id = e.id WHERE f.v % 2 = 1"
    ),
    "SELECT f.id FROM {f} f JOIN d ON f.id = d.id WHERE d.name = 'none'",
    "SELECT f.s FROM {f} f JOIN d ON f.s = concat('s', d.id) WHERE d.name = 'd4'",
    (
        "SELECT f.id FROM {f} f JOIN d ON f.id = d.id WHERE d.name = 'd3' UNION ALL "
        "SELECT f.id FROM {f} f JOIN d ON f.id = d.id WHERE d.name = 'd6' UNION ALL "
        "SELECT f.id FROM {f} f WHERE f.id % 1000 = 7"
    ),
    (
        "WITH j AS (SELECT f.id, f.v FROM {f} f JOIN d ON f.id = d.id WHERE d.name = 'd3') "
        "SELECT x.id, y.v FROM j x JOIN j y ON x.id = y.id"
    ),
]


@pytest.fixture(scope="module")
def tables(spark_planner: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    folder = tmp_path_factory.mktemp("joinkeys")
    for i in range(FILES):
        ids = list(range(i * ROWS, (i + 1) * ROWS))
        table = pa.table(
            {"id": ids, "v": [(7 * n) % 4001 for n in ids], "s": [f"s{n}" for n in ids]}
        )
        lake.write_dataset(table, folder / "f")
    spark = spark_planner
    plake = spark.read.format("plake").load(f"{folder}/f")
    plake.createOrReplaceTempView("keys_plake")
    plake.write.parquet(f"{folder}/native")
    spark.read.parquet(f"{folder}/native").createOrReplaceTempView("keys_native")
    dims = spark.sql("SELECT id * 401 AS id, concat('d', id) AS name FROM range(10)")
    dims.coalesce(1).write.parquet(f"{folder}/d")
    spark.read.parquet(f"{folder}/d").createOrReplaceTempView("d")
    return spark


def both(spark: SparkSession, text: str) -> tuple[DataFrame, DataFrame]:
    return (
        spark.sql(text.replace("{f}", "keys_plake")),
        spark.sql(text.replace("{f}", "keys_native")),
    )


@pytest.mark.long
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.cases(2)
def test_a_join_equals_parquet(text: str, adaptive: str, tables: SparkSession) -> None:
    tables.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        ours, native = both(tables, text)
        assert multiset(ours.collect()) == multiset(native.collect())
        assert multiset(ours.collect()) == multiset(native.collect())  # the same plan once more
    finally:
        tables.conf.unset("spark.sql.adaptive.enabled")


def rows_scanned(frame: DataFrame) -> int:
    """Rows that the scan of plake gave, by Spark's own metric."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    if "AdaptiveSparkPlan" in plan.getClass().getSimpleName():
        plan = plan.executedPlan()
    found = []
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        name = node.getClass().getSimpleName()
        if name.endswith("QueryStageExec"):
            waiting.append(node.plan())
        if name == "BatchScanExec":
            found.append(node.metrics().apply("numOutputRows").value())
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    assert len(found) == 1
    return int(found[0])


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_files_without_a_key_are_not_read(adaptive: str, tables: SparkSession) -> None:
    tables.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        ours, _native = both(tables, QUERIES[0])
        assert len(ours.collect()) == 1
        plan = str(ours._jdf.queryExecution().executedPlan().toString())
        assert re.search(r"RuntimeFilters: \[dynamicpruning", plan)
        assert rows_scanned(ours) == ROWS
    finally:
        tables.conf.unset("spark.sql.adaptive.enabled")


def joins(frame: DataFrame) -> str:
    """The plan before anything has run, and with it what was learned by running."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_a_small_side_is_broadcast_and_a_large_one_is_not(
    tables: SparkSession, tmp_path: Any
) -> None:
    lake.write_dataset(pa.table({"id": list(range(50)), "name": ["x"] * 50}), tmp_path / "small")
    small = tables.read.format("plake").load(str(tmp_path / "small"))
    large = tables.table("keys_plake")
    wide = large.unionAll(large).join(small, "id")
    assert "BroadcastHashJoin" in joins(wide)
    tables.conf.set("spark.sql.autoBroadcastJoinThreshold", 50 * 40)
    try:
        assert "SortMergeJoin" in joins(large.join(large.withColumnRenamed("v", "w"), "id"))
        assert "BroadcastHashJoin" in joins(large.join(small, "id"))
        few = large.where("id >= 4000")  # nothing is left of it
        assert "BroadcastHashJoin" in joins(large.alias("a").join(few.alias("b"), "s"))
    finally:
        tables.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert wide.count() == 100


def test_a_filtered_dimension_of_plake_prunes_a_table_of_plake(
    tables: SparkSession, tmp_path: Any
) -> None:
    names = pa.table({"id": [3, 700, 1400], "name": ["a", "b", "c"]})
    lake.write_dataset(names, tmp_path / "names")
    dimension = tables.read.format("plake").load(str(tmp_path / "names")).where("name <> 'c'")
    frame = tables.table("keys_plake").join(dimension, "id").select("v", "name")
    assert multiset(frame.collect()) == multiset([(21, "a"), (899, "b")])
    assert "RuntimeFilters: [dynamicpruning" in joins(frame)


def test_the_keys_of_one_run_are_forgotten_in_the_next(tables: SparkSession) -> None:
    tables.sql("SELECT 0 AS id, 'x' AS name").createOrReplaceTempView("changing")
    text = "SELECT f.id FROM keys_plake f JOIN changing c ON f.id = c.id WHERE c.name = 'x'"
    assert [row["id"] for row in tables.sql(text).collect()] == [0]
    tables.sql("SELECT 3999 AS id, 'x' AS name").createOrReplaceTempView("changing")
    assert [row["id"] for row in tables.sql(text).collect()] == [3999]
    assert tables.table("keys_plake").select("id").distinct().count() == FILES * ROWS
