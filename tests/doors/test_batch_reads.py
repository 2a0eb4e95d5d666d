"""Batches that reach Spark's compiled code as Python sent them, instead of row by row."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from lakehouse_source.spark import enable, planner_jar, status
from lakehouse_source.spark.protocol.vocabulary import Part, Reader, Setting
from lakehouse_source.spark.reading.task_read import BATCH_ROWS
from lakehouse_source.spark.session import configure as session
from tests.doors.conftest import unshared_session

ROWS = 2 * BATCH_ROWS + 17
pytestmark = pytest.mark.spark

COLUMNS = (
    "id",
    "if(id % 7 = 0, NULL, concat('text ', id, repeat('~', cast(id % 50 AS int)))) AS text",
    "cast(id AS decimal(12, 3)) / 8 AS small",
    "cast(id AS decimal(38, 10)) AS large",
    "struct(id AS a, concat('b', id) AS b, struct(id AS d) AS c) AS fields",
    "if(id % 5 = 0, NULL, array(concat('q', id), NULL, 'z')) AS items",
    "map(concat('k', id), struct(id AS v)) AS pairs",
    "timestamp_micros(id * 1000001) AS moment",
    "cast(id % 2000 AS string) AS word",
    "id % 2 = 0 AS even",
)


@pytest.fixture(scope="module")
def sides(
    spark: SparkSession, spark_planner: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[DataFrame, DataFrame]:
    """The same rows, of several batches in one partition: through plake, and plain Parquet."""
    folder = tmp_path_factory.mktemp("batches")
    rows = spark.range(ROWS).selectExpr(*COLUMNS).coalesce(1)
    rows.write.format("plake").mode("append").save(str(folder / "plake"))
    rows.write.parquet(str(folder / "parquet"))
    return (
        spark_planner.read.format("plake").load(str(folder / "plake")),
        spark_planner.read.parquet(str(folder / "parquet")),
    )


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key)


@pytest.mark.long
def test_scans_come_in_batches_unless_they_are_switched_off(
    spark_planner: SparkSession, sides: tuple[DataFrame, DataFrame]
) -> None:
    assert "ColumnarToRow" in plan_of(sides[0].where("id > 5"))
    with setting(spark_planner, Setting.BATCHES, "false"):
        assert "ColumnarToRow" not in plan_of(sides[0].where("id < 5"))
        assert sides[0].where("id < 5").count() == 5


def test_numbers_in_arrays_and_maps_may_be_null(
    spark_planner: SparkSession, tmp_path: Path
) -> None:
    """ "Value at index is null": compiled functions of Spark take a value before they ask."""
    rows = spark_planner.sql("SELECT array(1, NULL) AS l, map('a', NULL, 'b', 2) AS m")
    rows.write.format("plake").mode("append").save(str(tmp_path / "d"))
    frame = spark_planner.read.format("plake").load(str(tmp_path / "d"))
    found = frame.selectExpr("transform(l, e -> e + 1)", "transform_values(m, (k, v) -> v + 1)")
    assert [tuple(row) for row in found.collect()] == [([2, None], {"a": None, "b": 3})]


def test_every_row_of_every_batch_is_as_in_plain_parquet(
    sides: tuple[DataFrame, DataFrame],
) -> None:
    """A struct loses its fields where Spark closes a batch that the next is loaded into."""
    ours, native = sides
    assert "ColumnarToRow" in plan_of(ours)
    asked = [
        "count(*) AS n",
        "bit_xor(xxhash64(id, text, small, large, fields, items, moment, word, even)) AS columns",
        "bit_xor(xxhash64(id, map_keys(pairs), map_values(pairs))) AS maps",
    ]
    assert_df_equality(ours.selectExpr(*asked), native.selectExpr(*asked))


@pytest.mark.parametrize(
    "asked",
    [
        "first(text, true)", "last(text)", "min(text)", "max(text)", "max(fields)",
        "max_by(fields, id)", "min_by(items, id)", "first(items, true)", "last(pairs)",
        "max(small)", "sum(large)", "count(DISTINCT word)", "max_by(named_struct('w', word), id)",
    ],
)  # fmt: skip
def test_a_value_that_is_kept_outlives_its_batch(
    asked: str, sides: tuple[DataFrame, DataFrame]
) -> None:
    ours, native = (side.where("id % 3 <> 1").selectExpr(f"{asked} AS kept") for side in sides)
    assert ours.collect() == native.collect()


def _joined_to_itself(side: DataFrame) -> DataFrame:
    few = side.where("id % 4001 = 0")
    return few.join(side.where("id % 3 = 0").select("id", "fields"), "id").orderBy("id")


# Operators that hold rows while later batches come.
HOLDING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "sort": lambda side: side.where("id % 4001 = 0").orderBy("text", "id"),
    "join": _joined_to_itself,
    "group": lambda side: side.groupBy("word").agg({"text": "max", "id": "sum"}).orderBy("word"),
    "explode": lambda side: (
        side.where("id % 4001 = 0").selectExpr("id", "explode(items) AS item").orderBy("id", "item")
    ),
    "union": lambda side: (
        side.where("id % 4001 = 0").union(side.where("id % 4001 = 0 AND even")).orderBy("id")
    ),
    "limit": lambda side: side.orderBy(side.id.desc()).limit(3),
    "window": lambda side: (
        side.where("id % 4001 = 0")
        .selectExpr("id", "lag(text) OVER (ORDER BY id) AS before")
        .orderBy("id")
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOLDING)
@pytest.mark.cases(2)
def test_rows_that_spark_keeps_outlive_their_batch(
    name: str, sides: tuple[DataFrame, DataFrame]
) -> None:
    ours, native = (HOLDING[name](side) for side in sides)
    assert ours.collect() == native.collect()


@pytest.mark.long
def test_cached_rows_outlive_their_batch(sides: tuple[DataFrame, DataFrame]) -> None:
    cached = sides[0].where("id % 1009 = 0").cache()
    expected = sides[1].where("id % 1009 = 0").orderBy("id").collect()
    assert cached.count() == len(expected)
    assert cached.orderBy("id").collect() == expected
    cached.unpersist()


@pytest.mark.long
def test_without_compiled_code_the_rows_are_the_same(
    spark_planner: SparkSession, sides: tuple[DataFrame, DataFrame]
) -> None:
    few = "id % 997 = 0"
    expected = sides[1].where(few).orderBy("id").collect()
    for key, value in [
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.maxFields", "2"),
        ("spark.sql.adaptive.enabled", "false"),
    ]:
        with setting(spark_planner, key, value):
            assert sides[0].where(few).orderBy("id").collect() == expected


@pytest.mark.long
def test_a_query_that_stops_early_gives_its_rows(sides: tuple[DataFrame, DataFrame]) -> None:
    for side in sides:
        assert len(side.where("even").limit(10).collect()) == 10
        assert side.where("even").select("fields").first() is not None
    assert sides[0].orderBy("id").take(2) == sides[1].orderBy("id").take(2)


def test_what_the_worker_sends_is_counted(
    spark_planner: SparkSession, sides: tuple[DataFrame, DataFrame]
) -> None:
    frame = sides[0].select("id", "text")
    with setting(spark_planner, "spark.sql.adaptive.enabled", "false"):
        execution = frame._jdf.queryExecution()
        execution.toRdd().count()
        leaf = execution.executedPlan().collectLeaves().head()
        received = leaf.metrics().apply("pythonDataReceived").value()
        rows = leaf.metrics().apply("numOutputRows").value()
    assert rows == ROWS
    assert received > 8 * ROWS  # bytes: the numbers alone


@pytest.mark.long
def test_a_jar_without_the_reader_gives_rows_and_prunes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "data")
    spark.range(20).coalesce(1).write.format("plake").mode("append").save(path)
    crippled = tmp_path / "crippled.jar"
    with zipfile.ZipFile(planner_jar()) as whole, zipfile.ZipFile(crippled, "w") as archive:
        for name in whole.namelist():
            if name != "io/plake/spark/scan/BatchReads.class":
                archive.writestr(name, whole.read(name))
    monkeypatch.setattr(session, "planner_jar", lambda: crippled)
    fresh = enable(unshared_session(spark))
    fresh.conf.set(Setting.READER, Reader.PYTHON)
    frame = fresh.read.format("plake").load(path)
    shown = plan_of(frame.where("id = 5"))
    assert "BatchReads" in str(status(fresh)[Part.BATCHES].reason)
    assert "PushedFilters" in shown
    assert "ColumnarToRow" not in shown
    assert [frame.where("id = 5").count(), frame.where("id >= 0").count()] == [1, 20]


_ON_A_CLUSTER = """
import sys
from pyspark.sql import SparkSession
import lakehouse_source.spark as plake

way, path = sys.argv[1:]
builder = (
    SparkSession.builder.master("local-cluster[1,2,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
)
if way == "spark.jars":
    builder = plake.configure(builder)
if way == "class path of the driver":
    builder = builder.config("spark.driver.extraClassPath", str(plake.planner_jar()))
spark = builder.getOrCreate()
if way == "enable":
    assert spark.range(3).count() == 3, "executors run before they hear of the jar"
    plake.enable(spark)
assert plake.is_enabled(spark)
spark.conf.set("spark.plake.planner.reader", "python")
rows = spark.range(20000).selectExpr("id", "cast(id AS decimal(12, 2)) AS d", "struct(id) AS s")
rows.repartition(2).write.format("plake").mode("append").save(path)
frame = spark.read.format("plake").load(path).where("id % 2 = 0 AND id > 99")
shown = frame._jdf.queryExecution().executedPlan().toString()
answer = frame.selectExpr("sum(d)", "max(s.id)", "count(s)").first()
reason = plake.status(spark)["batches"].reason
assert reason is None or "executors do not have plake-planner.jar" in reason, reason
assert ("ColumnarToRow" in shown) == (reason is None)
print("RESULT", "ColumnarToRow" in shown, "id > 99" in shown.split("PushedFilters")[1], *answer)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "in_batches"),
    [("spark.jars", True), ("enable", True), ("class path of the driver", False)],
)
def test_executors_of_a_cluster_read_batches_if_they_have_the_jar(
    way: str, in_batches: bool, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_CLUSTER, way, str(tmp_path / "data")],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    expected = sum(i for i in range(100, 20_000) if i % 2 == 0)
    assert f"RESULT {in_batches} True {expected}.00 19998 9950" in done.stdout, done.stderr
