"""The change feed in Spark, against the feed in Python."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1: four rows; 2: an update; 3: a delete; 4: a compaction; 5: a new column; 6: a merge."""
    uri = str(tmp_path_factory.mktemp("feed") / "data")
    rows = [
        {"id": n, "price": Decimal(n) / 4, "tags": ["a", None], "at": {"x": n, "y": None}}
        for n in range(1, 5)
    ]
    lake.write_dataset(rows, uri)
    dataset = lake.open_dataset(uri)
    dataset.update({"price": "price + 1"}, where="id = 1")
    dataset.delete("id = 2")
    dataset.compact()
    dataset.refresh().add_column("note", pa.string(), default="-")
    source = {"id": [3, 9], "price": [Decimal("0.25"), None]}
    (
        dataset.merge(source, "target.id = source.id")
        .when_matched_update({"price": "source.price"})
        .when_not_matched_insert({"id": "source.id"})
        .execute()
    )
    return uri


def feed(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    reader = spark.read.format("plake").option("readChangeFeed", True)
    return reader.options(**{"startingVersion": 1, **options}).load(path)


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


def in_spark(frame: DataFrame) -> Counter[str]:
    return counted(
        [row.asDict(recursive=True) for row in frame.drop("_commit_timestamp").collect()]
    )


def in_python(path: str, *names: str, **arguments: Any) -> Counter[str]:
    table = lake.open_dataset(path).changes(1, **arguments).to_table()
    return counted(table.drop_columns(["_commit_timestamp", *names]).to_pylist())


@pytest.fixture(params=["spark", "spark_planner", "spark_auto"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    found: SparkSession = request.getfixturevalue(request.param)
    return found


def test_the_feed_is_that_of_python(session: SparkSession, path: str) -> None:
    frame = feed(session, path)
    assert frame.columns == [
        *("id", "price", "tags", "at", "note"),
        *("_change_type", "_commit_version", "_commit_timestamp"),
    ]
    assert in_spark(frame) == in_python(path)
    assert frame.count() == sum(in_python(path).values())


@pytest.mark.long
def test_a_query_over_the_feed_prunes_and_answers_right(session: SparkSession, path: str) -> None:
    frame = feed(session, path)
    assert in_spark(frame.where("id = 3")) == in_python(path, where="id = 3")
    assert frame.where("id = 77").count() == 0
    updates = frame.where("_change_type = 'update_postimage' AND price > 1").select("id", "price")
    assert [tuple(row) for row in updates.collect()] == [(1, Decimal("1.25"))]
    kinds = frame.groupBy("_commit_version", "_change_type").count().collect()
    assert {tuple(row[:2]): row[2] for row in kinds} == {
        (1, "insert"): 4,
        (2, "update_preimage"): 1,
        (2, "update_postimage"): 1,
        (3, "delete"): 1,
        (6, "update_preimage"): 1,
        (6, "update_postimage"): 1,
        (6, "insert"): 1,
    }
    assert [row.x for row in frame.where("id = 4").selectExpr("at.x").collect()] == [4]
    one, other = frame.where("id = 1"), frame.where("id = 2")
    assert one.union(other).count() == one.count() + other.count() == 5


def test_the_options_are_those_of_delta(session: SparkSession, path: str) -> None:
    assert feed(session, path, startingVersion=2, endingVersion=3).count() == 3
    moment = lake.open_dataset(path).history()[3].timestamp  # of version 3
    by_time = feed(session, path, startingVersion="", startingTimestamp=moment.isoformat())
    assert by_time.agg({"_commit_version": "min"}).first()[0] == 3
    until = feed(session, path, endingTimestamp=moment.isoformat())
    assert until.agg({"_commit_version": "max"}).first()[0] == 3
    narrow = feed(session, path, columns="id,_row_id", where="id > 3")
    assert narrow.columns[:2] == ["id", "_row_id"]
    assert sorted(row.id for row in narrow.collect()) == [4, 9]
    assert feed(session, path, splitSize="1").rdd.getNumPartitions() > 1
    assert in_spark(feed(session, path, splitSize="1")) == in_python(path)


def test_a_frame_keeps_the_version_that_was_newest_when_it_was_made(
    session: SparkSession, tmp_path: Path
) -> None:
    lake.write_dataset({"id": [1]}, tmp_path / "data")
    frame = feed(session, str(tmp_path / "data"))
    lake.write_dataset({"id": [2]}, tmp_path / "data")
    assert frame.count() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": ""}, "startingVersion.*is missing"),
        ({"startingVersion": "0"}, "is not a version"),
        ({"endingVersion": "77"}, "version 77"),
        ({"startingTimestamp": "2020-01-01"}, "cannot be given together"),
        ({"versionAsOf": "1"}, "versionAsOf"),
        ({"readChangeFeed": "maybe"}, "readChangeFeed"),
        ({"where": "nope = 1"}, "nope"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    spark: SparkSession, path: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        feed(spark, path, **options).count()
