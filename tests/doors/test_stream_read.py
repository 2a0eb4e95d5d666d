"""Streams from a dataset, by Spark: its snapshot, and what is appended afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.spark.reading.stream_read import HAS_LIMITS
from tests.doors.streams import forget_last_commit, ids, run

pytestmark = pytest.mark.spark


@pytest.fixture(params=["plain", "planner"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    """Spark without the planner extension, and with it."""
    if request.param == "plain":
        return spark
    found: SparkSession = request.getfixturevalue("spark_planner")
    return found


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "source")
    for number in range(3):
        append(uri, number, number + 10)
    return uri


def append(uri: str, *numbers: int) -> None:
    table = pa.table({"id": list(numbers), "k": [f"k{number % 2}" for number in numbers]})
    lake.write_dataset(table, uri, partition_by="k")


def stream(spark: SparkSession, uri: str, **options: Any) -> DataFrame:
    return spark.readStream.format("plake").options(**options).load(uri)


@pytest.mark.long
def test_a_chain_of_two_streams_has_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    append(a, *range(10))
    append(a, *range(10, 15))
    for last in (False, True):
        run(stream(spark, a, maxFilesPerTrigger=2), b, tmp_path / "ab")
        run(stream(spark, b).where("id % 2 = 0"), c, tmp_path / "bc")
        if not last:
            # Each query is killed after its sink's commit.
            forget_last_commit(tmp_path / "ab")
            forget_last_commit(tmp_path / "bc")
            append(a, 100, 101)
    assert ids(b) == [*range(15), 100, 101]
    assert ids(c) == [*range(0, 15, 2), 100]


def test_available_now_reads_what_is_there_in_batches_of_the_limit(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    batches: list[list[int]] = []

    def keep(frame: DataFrame, number: int) -> None:
        batches.append(sorted(row.id for row in frame.collect()))
        if number == 0:
            append(uri, 77)  # comes too late for this run

    query = (
        stream(spark, uri, maxFilesPerTrigger=2)
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted(row for rows in batches for row in rows) == [0, 1, 2, 10, 11, 12]
    # Spark 4.1 knows no limits for sources in Python.
    assert [len(rows) for rows in batches] == ([4, 2] if HAS_LIMITS else [6])


@pytest.mark.long
def test_a_running_query_gets_what_is_appended(
    session: SparkSession, uri: str, tmp_path: Path
) -> None:
    query = (
        stream(session, uri, where="id < 100", columns="id", startingVersion="latest")
        .writeStream.format("memory")
        .queryName(f"running{id(session)}")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        append(uri, 50, 500)
        query.processAllAvailable()
        append(uri, 51)
        query.processAllAvailable()
        # With nothing new, nothing runs.
        batches = query.lastProgress["batchId"]
        query.processAllAvailable()
        assert query.lastProgress["batchId"] - batches <= 1
    finally:
        query.stop()
    rows = session.sql(f"SELECT * FROM running{id(session)}")
    assert rows.columns == ["id"]
    assert sorted(row.id for row in rows.collect()) == [50, 51]


@pytest.mark.long
def test_a_change_ends_the_query_with_the_name_of_the_option(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    target, checkpoint = str(tmp_path / "target"), tmp_path / "checkpoint"
    run(stream(spark, uri), target, checkpoint)
    append(uri, 3)
    lake.open_dataset(uri).delete("id = 0")
    append(uri, 4)
    with pytest.raises(StreamingQueryException, match=r"StreamChangeError.*ignoreDeletes"):
        run(stream(spark, uri), target, checkpoint)
    assert ids(target) == [0, 1, 2, 3, 10, 11, 12]
    run(stream(spark, uri, ignoreDeletes="true"), target, checkpoint)
    assert ids(target) == [0, 1, 2, 3, 4, 10, 11, 12]


@pytest.mark.long
def test_a_new_column_ends_the_query_until_it_is_loaded_again(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    target, checkpoint = str(tmp_path / "target"), tmp_path / "checkpoint"
    loaded = stream(spark, uri)
    run(loaded, target, checkpoint)
    lake.write_dataset({"id": [7], "k": ["k"], "n": [1]}, uri, schema_merge=True)
    with pytest.raises(StreamingQueryException, match=r"StreamSchemaError.*same checkpoint"):
        run(loaded, target, checkpoint)
    run(stream(spark, uri), target, checkpoint, mergeSchema="true")
    rows = lake.read_dataset(target, predicates="id >= 7").to_pylist()
    assert {"id": 7, "k": "k", "n": 1} in rows
    assert {"id": 10, "k": "k0", "n": None} in rows


@pytest.mark.long
def test_the_static_side_of_a_join_is_fresh_in_each_batch_of_a_view(
    spark_planner: SparkSession, uri: str, tmp_path: Path
) -> None:
    side = str(tmp_path / "side")
    lake.write_dataset({"id": [0], "name": ["zero"]}, side)
    found: list[tuple[int, str]] = []

    def join(frame: DataFrame, number: int) -> None:
        static = frame.sparkSession.read.format("plake").load(side)
        found.extend((row.id, row.name) for row in frame.join(static, "id").collect())
        if number == 0:
            lake.write_dataset({"id": [1, 2], "name": ["one", "two"]}, side)

    reader = stream(spark_planner, uri, maxFilesPerTrigger=1).select("id", F.lit(1).alias("n"))
    query = (
        reader.writeStream.foreachBatch(join)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    # Spark 4.1 has one batch for all.
    assert sorted(found) == [(0, "zero"), (1, "one"), (2, "two")][: 3 if HAS_LIMITS else 1]


@pytest.mark.long
def test_options_of_the_other_kind_of_read_are_refused(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="not of reading it"):
        spark.read.format("plake").option("maxFilesPerTrigger", 1).load(uri).collect()
    for option, value in (("versionAsOf", "1"), ("metadataColumns", "true")):
        with pytest.raises(StreamingQueryException, match="not of streaming from it"):
            run(stream(spark, uri, **{option: value}), tmp_path / "t", tmp_path / option)
    with pytest.raises(PySparkException, match="is not an option of streaming from plake"):
        stream(spark, uri, startingVersion="1", startingVersions="1")
    with pytest.raises(PySparkException, match="no dataset at"):
        stream(spark, str(tmp_path / "nothing"))


@pytest.mark.long
def test_a_stream_of_a_table_takes_the_options_of_a_read(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """It ended, because the catalog had named the version of the table in an option."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.streams")
    spark_catalog.sql("CREATE TABLE plake.streams.t AS SELECT id FROM range(4)")
    for number, options in enumerate(({"where": "id > 1"}, {"splitSize": "1k"})):
        frame = spark_catalog.readStream.options(**options).table("plake.streams.t")
        run(frame, tmp_path / f"t{number}", tmp_path / f"c{number}")
        assert ids(tmp_path / f"t{number}") == ([2, 3] if number == 0 else [0, 1, 2, 3])
    read = spark_catalog.read.option("version", 1)
    with pytest.raises(PySparkException, match=r"'version'.*give versionAsOf"):
        read.table("plake.streams.t").collect()


@pytest.mark.long
def test_a_stream_of_a_table_with_lengths_of_texts(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """Spark ended in INTERNAL_ERROR: its stream had the types CHAR and VARCHAR."""
    spark_catalog.sql("CREATE TABLE plake.lengths (id INT, v VARCHAR(5), s STRUCT<c: CHAR(3)>)")
    spark_catalog.sql("INSERT INTO plake.lengths VALUES (1, 'abc', named_struct('c', 'x'))")
    stream = spark_catalog.readStream.table("plake.lengths").where("v = 'abc'")
    query = (
        stream.selectExpr("*", "upper(v) AS u", "length(s.c) AS n")
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable("plake.lengths_copy")
    )
    query.awaitTermination()
    copied = spark_catalog.table("plake.lengths_copy").selectExpr("id", "v", "s.c", "u", "n")
    assert copied.collect() == [(1, "abc", "x  ", "ABC", 3)]
    for name in ("plake.lengths", "plake.lengths_copy"):
        spark_catalog.sql(f"DROP TABLE {name}")
