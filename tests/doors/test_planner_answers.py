"""Aggregates and limits with the planner extension: right, and without a scan where that can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
import lakehouse_source.spark

from . import planner_queries as pq
from .test_planner_queries import multiset

pytestmark = pytest.mark.spark

# Columns whose extremes the catalog knows, and those that it does not (floats with NaN and zeros,
# binaries); NULLs are in nearly all.
KNOWN = ("id", "k", "Tiny", "g", "s", "d", "ts", "tn", "dec", "ok", "`st.x`", "void")
UNKNOWN = ("f", "r", "raw")

ANSWERED = {
    "rows": "SELECT count(*), count(1) FROM {t}",
    "counts": "SELECT count(k), count(s), count(void), count(*) FROM {t}",
    "count of floats": "SELECT count(f), count(raw) FROM {t}",
    "expressions": "SELECT max(id) - min(id) + 1, count(k) * 2 FROM {t}",
    "the same twice": "SELECT max(id), max(id) + 1, min(k), max(id) AS again FROM {t}",
    "by a partition column": "SELECT p, count(*), min(id), max(s) FROM {t} GROUP BY p",
    "by two": "SELECT q, p, count(d) FROM {t} GROUP BY p, q",
    "by no selected column": "SELECT count(*) FROM {t} GROUP BY p",
    "having": "SELECT p, count(*) AS n FROM {t} GROUP BY p HAVING count(*) > 40 OR p = 'b'",
    "partition filter": "SELECT count(*), max(id) FROM {t} WHERE p = 'a'",
    "or of partition filters": "SELECT p, count(*) FROM {t} WHERE p = 'a' OR p IS NULL GROUP BY p",
    "whole row groups": "SELECT count(*), min(d), max(dec) FROM {t} WHERE id >= 40 AND id < 80",
    "nothing": "SELECT count(*), count(k), min(id), max(s) FROM {t} WHERE id > 5000",
    "nothing by group": "SELECT p, count(*) FROM {t} WHERE id > 5000 GROUP BY p",
    "in a list": "SELECT count(*) FROM {t} WHERE p IN ('a', 'c', NULL)",
    "null safe": "SELECT count(*) FROM {t} WHERE p <=> NULL",
    "distinct extremes": "SELECT min(DISTINCT id), max(DISTINCT g) FROM {t}",
    "below a join": "SELECT x.n, y.m FROM (SELECT count(*) n FROM {t}) x, "
    "(SELECT max(id) m FROM {t} WHERE p = 'a') y",
    "scalar subquery": "SELECT (SELECT max(id) FROM {t}) AS m, (SELECT count(*) FROM {t}) AS n",
    "aliases": "SELECT b, max(a) FROM (SELECT id AS a, p AS b FROM {t}) GROUP BY b",
    **{f"extremes of {name}": f"SELECT min({name}), max({name}) FROM {{t}}" for name in KNOWN},
}
SCANNED = {
    "part of a row group": "SELECT count(*), max(id) FROM {t} WHERE id > 5",
    "no partition column": "SELECT g, count(*) FROM {t} GROUP BY g",
    "sum": "SELECT count(*), sum(id) FROM {t}",
    "distinct": "SELECT count(DISTINCT p) FROM {t}",
    "filter clause": "SELECT count(*) FILTER (WHERE id > 3) FROM {t}",
    "expression inside": "SELECT max(id + 1) FROM {t}",
    "a condition only Spark knows": "SELECT count(*) FROM {t} WHERE p = 'a' AND length(g) = 1",
    "nested": "SELECT count(arr), count(st), max(st.x) FROM {t}",
    "two columns": "SELECT count(k, g) FROM {t}",
    **{f"extremes of {name}": f"SELECT min({name}), max({name}) FROM {{t}}" for name in UNKNOWN},
}


@pytest.fixture(scope="module")
def sides(
    spark: SparkSession, spark_planner: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SparkSession, str]:
    """The facts, partitioned by two columns, and the same rows as plain Parquet."""
    folder = tmp_path_factory.mktemp("answers")
    for part in range(pq.PARTS):
        frame = spark.createDataFrame(pq.fact_rows(part), pq.FACTS).coalesce(1)
        p = F.when(F.col("id") < 40, "a").when(F.col("id") < 60, None).otherwise("b")
        frame = frame.withColumn("p", p).withColumn("q", F.lit(part))
        writer = frame.write.format("plake").mode("append")
        writer.option("partitionBy", "p,q").save(f"{folder}/facts")
        frame.write.mode("append").parquet(f"{folder}/parquet")
    spark_planner.read.parquet(f"{folder}/parquet").createOrReplaceTempView("answers_parquet")
    plake = spark_planner.read.format("plake").load(f"{folder}/facts")
    plake.createOrReplaceTempView("answers_plake")
    return spark_planner, f"{folder}/facts"


def executed(frame: DataFrame) -> str:
    frame.collect()
    return str(frame._jdf.queryExecution().executedPlan().toString())


def both(spark: SparkSession, text: str) -> tuple[DataFrame, DataFrame]:
    ours = spark.sql(text.replace("{t}", "answers_plake"))
    return ours, spark.sql(text.replace("{t}", "answers_parquet"))


@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.cases(4)
def test_the_catalog_answers(name: str, sides: Any) -> None:
    ours, native = both(sides[0], ANSWERED[name])
    assert multiset(ours.collect()) == multiset(native.collect())
    assert ours.schema.simpleString() == native.schema.simpleString()
    assert "BatchScan" not in executed(ours)


@pytest.mark.parametrize("name", ["rows", "expressions", "the same twice", "having", "aliases"])
def test_no_job_computes_an_answer(name: str, sides: Any) -> None:
    context = sides[0].sparkContext
    context.setJobGroup(f"answer {name}", name)
    try:
        ours, _ = both(sides[0], ANSWERED[name])
        assert executed(ours).startswith("LocalTableScan")
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(key, None)
    assert not context.statusTracker().getJobIdsForGroup(f"answer {name}")


def test_an_expression_over_an_answer_fails_when_it_is_run(sides: Any) -> None:
    spark, _path = sides
    frame = spark.sql("SELECT 1 DIV (count(*) - 120) AS x FROM answers_plake")
    frame.explain()
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        frame.collect()
    assert {part.name: part.works for part in lake.spark.status(spark).parts}["aggregates"]


@pytest.mark.parametrize("name", SCANNED)
def test_a_scan_answers_where_the_catalog_cannot(name: str, sides: Any) -> None:
    ours, native = both(sides[0], SCANNED[name])
    assert multiset(ours.collect()) == multiset(native.collect())
    assert "BatchScan plake" in executed(ours)


def test_no_file_is_opened_for_an_answer(sides: Any, tmp_path: Path) -> None:
    spark, _path = sides
    path = tmp_path / "d"
    spark.range(100).coalesce(1).write.format("plake").mode("append").save(str(path))
    frame = spark.read.format("plake").load(str(path))
    for file in path.rglob("*.parquet"):
        file.unlink()
    assert frame.count() == 100
    assert frame.agg(F.max("id")).collect()[0][0] == 99


def test_an_answer_is_of_the_frame_s_version(sides: Any, tmp_path: Path) -> None:
    spark, _path = sides
    path = str(tmp_path / "d")
    spark.range(10).write.format("plake").mode("append").save(path)
    frame = spark.read.format("plake").load(path)
    spark.range(90).write.format("plake").mode("append").save(path)
    assert frame.count() == 10
    assert spark.read.format("plake").load(path).count() == 100


def test_the_where_option_belongs_to_every_answer(sides: Any) -> None:
    spark, path = sides
    reader = spark.read.format("plake")
    assert reader.option("where", "p = 'a'").load(path).count() == 40
    assert reader.option("where", "id < 7").load(path).count() == 7


@pytest.mark.long
def test_a_schema_of_the_user_changes_what_is_compared(sides: Any) -> None:
    """`'9' > '10'`: neither the answer nor the pruning may compare numbers there."""
    spark, path = sides
    texts = spark.read.format("plake").schema("id STRING, p STRING").load(path)
    native = spark.table("answers_parquet").selectExpr("cast(id AS STRING) AS id", "p")
    for frame in (texts, native):
        frame.createOrReplaceTempView("answers_texts")
        rows = spark.sql("SELECT max(id), count(*) FROM answers_texts").collect()
        assert multiset(rows) == multiset([("99", 120)])
        assert frame.where("id > '98'").count() == 1
        assert frame.where("id IN ('7', '07')").count() == 1


@pytest.mark.long
@pytest.mark.parametrize("rows", [0, 1, 7, 119, 120, 500])
def test_a_limit_gives_that_many_rows(rows: int, sides: Any) -> None:
    spark = sides[0]
    table = spark.table("answers_plake")
    assert len(table.limit(rows).collect()) == min(rows, 120)
    assert len(table.where("p = 'a'").limit(rows).collect()) == min(rows, 40)
    assert len(table.where("id % 2 = 0").limit(rows).collect()) == min(rows, 60)
    distinct = {row["id"] for row in table.limit(rows).collect()}
    assert len(distinct) == min(rows, 120)
    assert table.limit(rows).count() == min(rows, 120)


@pytest.mark.long
def test_a_limit_is_planned_and_ordered_ones_are_not(sides: Any) -> None:
    spark = sides[0]
    table = spark.table("answers_plake")
    assert "Limit: 3" in executed(table.limit(3))
    first = table.orderBy(F.col("id").desc()).limit(2).select("id")
    assert [row["id"] for row in first.collect()] == [119, 118]
    assert [row["id"] for row in table.orderBy("id").offset(5).limit(2).collect()] == [5, 6]
    assert len(table.offset(100).collect()) == 20
    assert len(table.offset(100).limit(30).collect()) == 20


@pytest.mark.long
def test_two_limits_of_one_frame_share_nothing(sides: Any) -> None:
    table = sides[0].table("answers_plake")
    together = table.limit(2).unionAll(table.limit(50)).unionAll(table)
    assert together.count() == 172
    grouped = table.limit(2).groupBy().count().unionAll(table.limit(50).groupBy().count())
    assert sorted(row[0] for row in grouped.collect()) == [2, 50]
