"""Which partitions an overwrite replaces: the same through every door as of a Parquet table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Setting

pytestmark = pytest.mark.spark

MODE = "spark.sql.sources.partitionOverwriteMode"
ROWS, KEPT_BY_DYNAMIC = 50, 41


@pytest.fixture(scope="module")
def named(spark_catalog: SparkSession) -> SparkSession:
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.parts")
    return spark_catalog


@pytest.fixture(autouse=True)
def setting(named: SparkSession) -> Iterator[None]:
    yield
    named.conf.unset(MODE)


def old(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS).selectExpr("id", "CAST(id % 5 AS INT) AS p")


def save(frame: DataFrame, form: str, mode: str, place: str, option: str | None = None) -> None:
    writer = frame.write.format(form).mode(mode)
    # The session of the tests has plake's Python source, of which Spark refuses `.partitionBy()`.
    writer = writer.partitionBy("p") if form == "parquet" else writer.option("partitionBy", "p")
    (writer if option is None else writer.option("partitionOverwriteMode", option)).save(place)


@pytest.mark.long
@pytest.mark.parametrize("option", [None, "static", "dynamic"])
@pytest.mark.parametrize("session", ["static", "DYNAMIC"])
def test_save_leaves_the_rows_that_it_leaves_in_parquet(
    named: SparkSession, tmp_path: Path, session: str, option: str | None
) -> None:
    left = {}
    for form in ("parquet", "plake"):
        place = f"{tmp_path}/{form}"
        save(old(named), form, "append", place)
        named.conf.set(MODE, session)
        save(named.sql("SELECT 100L AS id, 1 AS p"), form, "overwrite", place, option)
        named.conf.unset(MODE)
        left[form] = sorted(named.read.format(form).load(place).collect())
    assert left["plake"] == left["parquet"]
    dynamic = (option or session).lower() == "dynamic"
    assert len(left["plake"]) == (KEPT_BY_DYNAMIC if dynamic else 1)


@pytest.mark.parametrize("session", ["dynamic", "static", None])
def test_a_session_without_the_extension_follows_its_setting(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path, session: str | None
) -> None:
    """All rows were replaced, silently: only a rule of the extension told what the session says."""
    off = spark_planner.newSession()
    off.conf.set(Setting.PLANNER, "false")
    for number, plain in enumerate((spark, off)):
        path = f"{tmp_path}/{number}"
        save(old(plain), "plake", "append", path)
        if session is not None:
            plain.conf.set(MODE, session)
        try:
            # Two tasks: one of them has no row.
            rows = plain.range(2).where("id = 1").selectExpr("id", "1 AS p").repartition(2)
            save(rows, "plake", "overwrite", path)
        finally:
            plain.conf.unset(MODE)
        dynamic = session == "dynamic"
        assert lake.open_dataset(path).scan().count_rows() == (KEPT_BY_DYNAMIC if dynamic else 1)
        operation = lake.open_dataset(path).history()[0].operation
        assert operation == ("overwrite partitions" if dynamic else "overwrite")


DOORS: dict[str, Callable[[DataFrame, str], Any]] = {
    "save": lambda frame, path: frame.write.format("plake").mode("overwrite").save(path),
    "write": lambda frame, path: lake.spark.write(frame, path, mode="overwrite"),
    "insertInto": lambda frame, path: frame.write.mode("overwrite").insertInto(f"plake.`{path}`"),
    "overwritePartitions": lambda frame, path: frame.writeTo(
        f"plake.`{path}`"
    ).overwritePartitions(),
    "overwriteWhere": lambda frame, path: (
        frame.write.format("plake").mode("overwrite").option("overwriteWhere", "p < 2").save(path)
    ),
    "overwriteSchema": lambda frame, path: (
        frame.write.format("plake").mode("overwrite").option("overwriteSchema", True).save(path)
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_session_setting_holds_through_every_door(
    named: SparkSession, tmp_path: Path, door: str
) -> None:
    path = f"{tmp_path}/t"
    save(old(named), "plake", "append", path)
    named.conf.set(MODE, "dynamic")
    DOORS[door](named.sql("SELECT 100L AS id, 1 AS p"), path)
    # What a write says of itself counts more than a setting of the session.
    kept = {"overwriteWhere": 31, "overwriteSchema": 1}
    assert lake.open_dataset(path).scan().count_rows() == kept.get(door, KEPT_BY_DYNAMIC)


def test_the_session_setting_replaces_all_rows_where_there_are_no_partitions(
    named: SparkSession, tmp_path: Path
) -> None:
    named.conf.set(MODE, "dynamic")
    for rows in (5, 3):
        frame = named.range(rows)
        frame.write.format("plake").mode("overwrite").save(f"{tmp_path}/t")
        assert lake.open_dataset(tmp_path / "t").scan().count_rows() == rows


@pytest.mark.long
def test_a_streams_complete_result_replaces_the_one_before(
    named: SparkSession, tmp_path: Path
) -> None:
    named.conf.set(MODE, "dynamic")
    source, target = f"{tmp_path}/source", f"{tmp_path}/target"
    for part in (1, 2):
        named.sql(f"SELECT {part} AS p").write.format("plake").mode("append").save(source)
        counts = named.readStream.format("plake").load(source).groupBy("p").count()
        writer = counts.writeStream.outputMode("complete").option("partitionBy", "p")
        writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint")
        query = writer.trigger(availableNow=True).format("plake").start(target)
        assert query.awaitTermination(60)
    assert lake.open_dataset(target).scan().count_rows() == 2


@pytest.mark.long
@pytest.mark.parametrize("inside", ["unset", "static", "dynamic", None])
def test_a_batch_of_a_stream_follows_its_session_and_not_the_streams(
    named: SparkSession, tmp_path: Path, inside: str | None
) -> None:
    """Tasks saw `dynamic` of the stream's query, and rows were kept that Parquet removes."""
    named.conf.set(MODE, "dynamic")
    for form in ("parquet", "plake"):
        save(old(named), form, "append", f"{tmp_path}/{form}")
    named.range(1).write.format("plake").mode("append").save(f"{tmp_path}/source")

    def overwrite(batch: DataFrame, number: int) -> None:
        if inside == "unset":
            batch.sparkSession.conf.unset(MODE)
        elif inside is not None:
            batch.sparkSession.conf.set(MODE, inside)
        for form in ("parquet", "plake"):
            rows = batch.selectExpr("100L AS id", "1 AS p")
            save(rows, form, "overwrite", f"{tmp_path}/{form}")

    follow(named, tmp_path, overwrite)
    left, expected = (
        sorted(named.read.format(form).load(f"{tmp_path}/{form}").collect())
        for form in ("plake", "parquet")
    )
    assert left == expected
    assert len(left) == (KEPT_BY_DYNAMIC if inside in (None, "dynamic") else 1)


@pytest.mark.parametrize("inside", ["dynamic", "static", None])
def test_a_batch_of_a_stream_is_refused_where_only_the_extension_would_know(
    spark: SparkSession, tmp_path: Path, inside: str | None
) -> None:
    path = f"{tmp_path}/t"
    save(old(spark), "plake", "append", path)
    spark.range(1).write.format("plake").mode("append").save(f"{tmp_path}/source")
    refused = []

    def overwrite(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("100L AS id", "1 AS p")
        if inside is None:
            batch.sparkSession.conf.unset(MODE)
        else:
            batch.sparkSession.conf.set(MODE, inside)
        try:
            save(rows, "plake", "overwrite", path)
        except Exception as error:
            refused.append(str(error))
            save(rows, "plake", "overwrite", path, "dynamic")

    spark.conf.set(MODE, "dynamic")
    try:
        follow(spark, tmp_path, overwrite)
    finally:
        spark.conf.unset(MODE)
    assert ["Spark did not tell" in one for one in refused] == [True] * (inside != "static")
    assert lake.open_dataset(path).scan().count_rows() == (1 if inside == "static" else 41)


def follow(spark: SparkSession, folder: Path, act: Callable[[DataFrame, int], None]) -> None:
    writer = spark.readStream.format("plake").load(f"{folder}/source").writeStream
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").foreachBatch(act)
    assert writer.trigger(availableNow=True).start().awaitTermination(60)


def test_save_as_table_does_not_replace_a_table_where_partitions_are_meant(
    named: SparkSession,
) -> None:
    table = "plake.parts.kept"

    def write(rows: DataFrame) -> None:
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("p").saveAsTable(table)

    write(old(named))  # there is nothing yet that it could replace
    named.sql(f"COMMENT ON TABLE {table} IS 'by p'")
    with pytest.raises(AnalysisException, match=r"overwritePartitions\(\)"):
        write(named.sql("SELECT 100L AS id, 1 AS p"))
    assert named.table(table).count() == ROWS
    named.sql("SELECT 100L AS id, 1 AS p").writeTo(table).overwritePartitions()
    assert named.table(table).count() == KEPT_BY_DYNAMIC
    assert "by p" in str(named.sql(f"DESCRIBE TABLE EXTENDED {table}").collect())
