"""Spark leaves out deleted rows, however it reads. The oracle is Spark over plain Parquet."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from tests.doors.frames import load, rows

pytestmark = pytest.mark.spark

COUNT = 60_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two partitions; one has deleted rows in three row groups, the other moved rows too."""
    path = str(tmp_path_factory.mktemp("deleted") / "data")
    table = pa.table(
        {
            "id": pa.arange(0, COUNT),
            "p": [number % 2 for number in range(COUNT)],
            "s": [f"text {number % 100}" for number in range(COUNT)],
            "f": [float(number % 1000) for number in range(COUNT)],
        }
    )
    lake.write_dataset(table, path, partition_by="p", row_group_rows=10_000)
    dataset = lake.open_dataset(path)
    dataset.delete("id % 7 = 3")
    dataset.delete(f"id IN (0, 19999, 20000, {COUNT - 1})")
    dataset.update({"s": "concat(s, '!')"}, "id BETWEEN 100 AND 200 AND p = 1")
    dataset.add_column("later", pa.int64(), default=5)
    return path


@pytest.fixture(scope="module")
def plain(spark: SparkSession, uri: str, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The live rows in plain Parquet, computed without plake's reader of deleted rows."""

    def live(row: dict[str, Any]) -> bool:
        return row["id"] % 7 != 3 and row["id"] not in (0, 19_999, 20_000, COUNT - 1)

    def now(row: dict[str, Any]) -> dict[str, Any]:
        moved = 100 <= row["id"] <= 200 and row["p"] == 1
        return {**row, "s": row["s"] + "!" if moved else row["s"], "later": 5}

    first = lake.read_dataset(uri, version=1).to_pylist()
    table = pa.Table.from_pylist([now(row) for row in first if live(row)])
    path = tmp_path_factory.mktemp("plain") / "rows.parquet"
    pq.write_table(table, path)
    return spark.read.parquet(str(path))


@pytest.fixture(params=["plake", "planner", "reader"])
def frame(request: pytest.FixtureRequest, spark: SparkSession, uri: str) -> DataFrame:
    if request.param != "plake":
        spark = request.getfixturevalue(f"spark_{request.param}")
    return spark.read.format("plake").load(uri)


QUERIES = {
    "everything": lambda df: df.select("id", "p", "s", "f", "later"),
    "one column": lambda df: df.select("s"),
    "a range": lambda df: df.where("id >= 19990 AND id < 20010").select("id", "s"),
    "a point": lambda df: df.where("id = 150").select("*").select("id", "s", "later"),
    "a deleted point": lambda df: df.where("id = 20000").select("id"),
    "a text": lambda df: df.where("s = 'text 33!'").select("id"),
    "count": lambda df: df.groupBy().count(),
    "count of a range": lambda df: df.where("id < 30000").groupBy().count(),
    "count by partition": lambda df: df.groupBy("p").count(),
    "extremes": lambda df: df.agg(F.min("id"), F.max("id"), F.count("s"), F.max("f")),
    "self join": lambda df: df.alias("a").join(df.where("id < 500").alias("b"), "id").select("id"),
    "distinct": lambda df: df.select("later", "p").distinct(),
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.cases(2)
def test_a_query_gives_what_plain_parquet_gives(
    query: str, frame: DataFrame, plain: DataFrame
) -> None:
    ask = QUERIES[query]
    assert rows(ask(frame)) == rows(ask(plain))


def test_a_limit_gives_live_rows(frame: DataFrame, plain: DataFrame) -> None:
    live = {row[0] for row in plain.select("id").collect()}
    for count in (1, 10, COUNT):
        found = [row[0] for row in frame.select("id").limit(count).collect()]
        assert len(found) == len(set(found)) == min(count, len(live))
        assert set(found) <= live


def test_row_by_row_scans_and_old_versions(spark: SparkSession, uri: str) -> None:
    setting = "spark.plake.planner.enabled"
    before = spark.conf.get(setting, None)
    spark.conf.set(setting, "false")
    try:
        frame = spark.read.format("plake").load(uri)
        assert frame.count() == lake.open_dataset(uri).scan().count_rows()
    finally:
        if before is None:
            spark.conf.unset(setting)
        else:
            spark.conf.set(setting, before)
    for version in (1, 2, 3):
        then = load(spark, uri, versionAsOf=version)
        assert then.count() == lake.open_dataset(uri).scan(version=version).count_rows()
