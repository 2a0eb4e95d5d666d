"""A text of a time without a zone is in the session's zone at every door, or it is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests.doors.streams import stream_rows

pytestmark = pytest.mark.spark

TABLE = "plake.default.zoned"
Door: TypeAlias = Callable[[SparkSession, str, Path], Any]


def by_clause(spark: SparkSession, text: str, _: Path) -> Any:
    return spark.sql(f"SELECT id FROM {TABLE} TIMESTAMP AS OF '{text}'")


def by_option_of_a_name(spark: SparkSession, text: str, _: Path) -> Any:
    return spark.read.option("timestampAsOf", text).table(TABLE)


def by_function(spark: SparkSession, text: str, _: Path) -> Any:
    return spark.sql(f"SELECT id FROM table_changes('{TABLE}', 1, '{text}')")


def by_feed_of_a_name(spark: SparkSession, text: str, _: Path) -> Any:
    reader = spark.read.option("readChangeFeed", True).option("startingVersion", 1)
    return reader.option("endingTimestamp", text).table(TABLE)


def by_feed_with_options(spark: SparkSession, text: str, _: Path) -> Any:
    return spark.sql(
        f"SELECT id FROM {TABLE} WITH (readChangeFeed = 'true', startingVersion = '1',"
        f" endingTimestamp = '{text}')"
    )


DOORS = [by_clause, by_option_of_a_name, by_function, by_feed_of_a_name, by_feed_with_options]


class Zoned:
    """A table whose versions 2 to 4 append one row each, and the moment of version 3."""

    def __init__(self, spark: SparkSession) -> None:
        spark.sql(f"CREATE TABLE {TABLE} (id BIGINT)")
        for number in (2, 3, 4):
            time.sleep(0.01)
            spark.sql(f"INSERT INTO {TABLE} VALUES ({number})")
        url = spark.conf.get("spark.sql.catalog.plake.catalog")
        dataset = lake.open_dataset("default.zoned", catalog=url)
        self.uri, self.url = dataset.uri, url
        self.moment = next(one.timestamp for one in dataset.history() if one.version == 3)

    def text(self, zone: str) -> str:
        return self.moment.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S.%f")


@pytest.fixture(scope="module")
def zoned(spark_catalog: SparkSession) -> Iterator[Zoned]:
    yield Zoned(spark_catalog)
    spark_catalog.sql(f"DROP TABLE {TABLE}")


@pytest.fixture(params=["Asia/Tokyo", "America/New_York"])
def zone(request: pytest.FixtureRequest, spark_catalog: SparkSession) -> Iterator[str]:
    before = spark_catalog.conf.get("spark.sql.session.timeZone")
    spark_catalog.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark_catalog.conf.set("spark.sql.session.timeZone", before)


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_text_of_a_time_means_the_same_at_every_door(
    spark_catalog: SparkSession, zoned: Zoned, zone: str, door: Door, tmp_path: Path
) -> None:
    assert ids(door(spark_catalog, zoned.text(zone), tmp_path)) == [2, 3]


@pytest.mark.long
@pytest.mark.parametrize("feed", [False, True])
def test_a_stream_begins_at_a_time_of_the_sessions_zone(
    spark_catalog: SparkSession, zoned: Zoned, zone: str, feed: bool, tmp_path: Path
) -> None:
    reader = spark_catalog.readStream.option("startingTimestamp", zoned.text(zone))
    if feed:
        reader = reader.option("readChangeFeed", True)
    assert [row["id"] for row in stream_rows(reader.table(TABLE), tmp_path)] == [3, 4]


def test_without_the_jar_among_sparks_load_refuses_a_text_without_a_zone(
    spark_catalog: SparkSession, zoned: Zoned, zone: str
) -> None:
    reader = spark_catalog.read.format("plake").option("catalog", zoned.url)
    with pytest.raises(PySparkException, match=r"(?s)timestampAsOf.*has no zone.*\+00:00"):
        reader.option("timestampAsOf", zoned.text(zone)).load(zoned.uri)
    given = reader.option("timestampAsOf", zoned.moment.isoformat()).load(zoned.uri)
    assert ids(given) == [2, 3]
