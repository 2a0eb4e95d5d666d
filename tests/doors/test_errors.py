"""What a newcomer sees when something is wrong: the text, as it comes out of Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from tests.doors.frames import data_files, load, save


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("errors") / "dataset")
    for start in range(3):
        lake.write_dataset(pa.table({"i": [start], "s": ["x"]}), path)
    return path


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("nothing"))


def said(action: Callable[[], object], kind: type[Exception] = AnalysisException) -> str:
    """What the user reads. A Python traceback may come before; the message is its last line."""
    with pytest.raises(kind) as caught:
        action()
    text = str(caught.value)
    assert "During handling of the above exception" not in text
    return text


READS = [
    (
        {},
        "/nowhere",
        "no dataset at file:///nowhere in catalog sqlite:///nowhere/_plake/catalog.db",
    ),
    ({}, "/nowhere", "Write to it first, or check the path and the catalog"),
    ({"version": "7"}, None, "has no version 7: it has versions 1 to 3."),
    ({"version": "0"}, None, "has no version 0: it has versions 1 to 3."),
    ({"versionAsOf": "-1"}, None, "has no version -1: it has versions 1 to 3."),
    ({"version": "two"}, None, "option 'version' (given: 'two'): must be a whole number."),
    (
        {"timestampAsOf": "2001-01-01T00:00Z"},
        None,
        "version at or before 2001-01-01T00:00:00+00:00: it",
    ),
    ({"timestampAsOf": "2001-01-01T00:00Z"}, None, "the first committed at 20"),
    ({"timestampAsOf": "last week"}, None, "is not an ISO 8601 timestamp such as"),
    ({"versoin": "1"}, None, "option 'versoin': is not an option of reading plake. Known: path,"),
    ({"versoin": "1"}, None, "timestampAsOf"),
    (
        {"mergeSchema": "true"},
        None,
        "'mergeSchema': is an option of writing plake, not of reading it. Known: path,",
    ),
    ({"columns": "i,nope"}, None, "column 'nope' is not in the dataset. It has: i, s."),
    ({"where": "nope = 1"}, None, "no column"),
    ({"where": "i = "}, None, "invalid predicate"),
    ({"where": "i = 'x'"}, None, "invalid predicate"),
    ({"splitSize": "big"}, None, "must be a size in bytes such as 134217728 or 128m."),
    ({"splitSize": "0"}, None, "must be a size in bytes such as 134217728 or 128m."),
    ({"catalog": "mysql://host/db"}, None, "is not a catalog URL that plake knows. Known: sqlite:"),
    ({"catalog": "sqlite://relative.db"}, None, "needs an absolute path to a file"),
    ({"catalog": "sqlite:////nowhere/c.db"}, None, "no dataset at file://"),
    ({"catalog": "env:PLAKE_UNSET"}, None, "variable 'PLAKE_UNSET' holds no catalog URL"),
    (
        {},
        "s3://bucket/table",
        "option 'catalog': is missing, and only local datasets have a default",
    ),
    ({}, "s3://bucket/table", "environment variable PLAKE_CATALOG"),
    ({}, "file://host/table", "names a host; write file:///absolute/path."),
]


@pytest.mark.parametrize(("options", "path", "text"), READS)
@pytest.mark.cases(4)
def test_reading(
    spark: SparkSession, dataset: str, options: dict[str, str], path: str | None, text: str
) -> None:
    message = said(lambda: load(spark, path or dataset, **options))
    assert text.lower() in message.lower()


def test_reading_without_a_path(spark: SparkSession) -> None:
    message = said(lambda: spark.read.format("plake").load())
    assert "option 'path': is missing. Give the dataset's folder or URI: load(" in message


def test_reading_a_folder_of_parquet_files_that_is_no_dataset(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(1).write.parquet(str(tmp_path / "plain"))
    message = said(lambda: load(spark, tmp_path / "plain"))
    assert f"no dataset at file://{tmp_path}/plain" in message
    assert not (tmp_path / "plain" / "_plake").exists()


@pytest.fixture
def unreachable() -> str:
    """A URL of a PostgreSQL server that is not there."""
    return "postgresql://someone:CANARY-9f@127.0.0.1:1/nodb?connect_timeout=2"


@pytest.mark.long
def test_a_catalog_that_cannot_be_reached(
    spark: SparkSession, tmp_path: Path, unreachable: str
) -> None:
    for action in (
        lambda: load(spark, tmp_path / "x", catalog=unreachable),
        lambda: save(spark.range(1), tmp_path / "x", catalog=unreachable),
    ):
        message = said(action)
        assert "postgresql://someone:***@127.0.0.1:1/nodb" in message
        assert "is unavailable: " in message
        assert "CANARY-9f" not in message
    assert not (tmp_path / "x").exists()


WRITES = [
    (
        {"partitionBy": "nope"},
        "'nope' is in partition_by and not in the data. The data has: i",
    ),
    ({"partitionBy": "i,i"}, "is given twice in partition_by"),
    ({"partitionBy": "f"}, "has type double, which cannot partition a dataset"),
    ({"partitionBy": "i,s,f"}, "has type double, which cannot partition"),
    ({"mergeschema": "maybe"}, "option 'mergeSchema' (given: 'maybe'): must be true or false."),
    ({"rowGroupRows": "0"}, "option 'rowGroupRows' (given: 0): must be at least 1."),
    ({"compression": "zip"}, "is not a codec of this PyArrow. Known: zstd, snappy"),
    ({"sortBy": "nope"}, "option 'sortBy' (given: 'nope'): is not a column. Known: i, s, f."),
    (
        {"bloomFilterColumns": "nope"},
        "'bloomFilterColumns' (given: 'nope'): is not a column",
    ),
    (
        {"partitonBy": "i"},
        "is not an option of writing plake. Known: path, branch, catalog, partitionBy",
    ),
    ({"version": "1"}, "option 'version': is an option of reading plake, not of writing"),
    ({"expectedVersion": "9"}, "version 9 was expected"),
    ({"targetFileSize": "1 parsec"}, "must be a size in bytes"),
]


@pytest.mark.parametrize(("options", "text"), WRITES)
def test_writing(spark: SparkSession, tmp_path: Path, options: dict[str, str], text: str) -> None:
    frame = spark.sql("SELECT 1 i, 'a' s, 1.5D f")
    assert text in said(lambda: save(frame, tmp_path / "new", **options))
    assert data_files(tmp_path / "new") == []
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(tmp_path / "new")


def test_writing_where_partition_columns_are_all_there_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    message = said(lambda: save(spark.range(1), tmp_path / "new", partitionBy="id"))
    assert "Leave at least one column out of partition_by." in message


def test_writing_data_that_does_not_match(spark: SparkSession, dataset: str) -> None:
    message = said(lambda: save(spark.sql("SELECT 'a' i, 's' s"), dataset))
    assert f"column 'i' of file://{dataset} is int64 and the data has string. Cast it" in message
    message = said(lambda: save(spark.sql("SELECT 1.5D i"), dataset))
    assert "column 'i'" in message
    assert "is int64 and the data has double" in message
    assert lake.open_dataset(dataset).version == 3


def test_a_value_that_does_not_fit_fails_in_the_task_and_says_which_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake.write_dataset(pa.table({"d": pa.array([None], pa.decimal128(5, 2))}), tmp_path)
    fits = spark.sql("SELECT CAST(1.5 AS DECIMAL(5,2)) d")
    save(fits, tmp_path)
    wide = spark.sql("SELECT CAST(99999 AS DECIMAL(5,0)) d")
    message = said(lambda: save(wide, tmp_path))
    assert "column 'd'" in message


def test_partition_by_of_spark_itself_is_refused_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    def write() -> None:
        frame = spark.range(1).withColumn("p", F.lit(1))
        frame.write.format("plake").partitionBy("p").mode("append").save(str(tmp_path / "p"))

    assert "partition" in said(write, PySparkException).lower()
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("mode", [None, "error", "errorifexists", "ignore"])
def test_saving_without_a_mode_is_refused_by_spark(
    spark: SparkSession, tmp_path: Path, mode: str | None
) -> None:
    write = spark.range(1).write.format("plake")
    if mode is not None:
        write = write.mode(mode)
    message = said(lambda: write.save(str(tmp_path / "new")))
    name = "Ignore" if mode == "ignore" else "ErrorIfExists"
    assert f'data source "plake" cannot be written in the "{name}" mode' in message
    assert 'Please use either the "Append" or "Overwrite" mode instead' in message
    assert not (tmp_path / "new").exists()


def test_a_table_of_the_session_catalog_points_to_the_extension_and_the_temporary_view(
    spark: SparkSession, dataset: str
) -> None:
    spark.sql(f"CREATE TABLE catalogued (i LONG, s STRING) USING plake OPTIONS (path '{dataset}')")
    try:
        for statement in (
            "SELECT * FROM catalogued",
            "INSERT INTO catalogued VALUES (1, 'a')",
        ):
            message = said(lambda text=statement: spark.sql(text).collect(), PySparkException)
            assert "CREATE TEMPORARY VIEW name USING plake OPTIONS (path '...')" in message
            assert "lakehouse_source.spark.enable(spark)" in message
    finally:
        spark.sql("DROP TABLE catalogued")
