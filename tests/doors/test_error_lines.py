"""With the extension, the first line of an error is what plake says; the traceback is the cause."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    StreamingQueryException,
)
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
from tests.doors.frames import load, save
from tests.doors.streams import Folder

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "d")
    lake.write_dataset({"i": [1, 2], "s": ["a", "b"]}, made)
    return made


def first_line(action: Callable[[], object], kind: type[Exception] = AnalysisException) -> str:
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value).splitlines()[0]


CONFLICT = "[PLAKE_COMMIT_CONFLICT] commit to file://{path} conflicts: version 9 was expected"


def test_of_a_write_that_is_refused(spark_planner: SparkSession, path: str) -> None:
    frame = spark_planner.sql("SELECT 3L i, 'c' s")
    for options, expected in (
        ({"nope": "1"}, "[PLAKE_INVALID_OPTION] option 'nope': is not an option of writing plake."),
        ({"sortBy": "x"}, "[PLAKE_INVALID_OPTION] option 'sortBy' (given: 'x'): is not a column."),
    ):
        assert first_line(lambda given=options: save(frame, path, **given)).startswith(expected)
    wrong = spark_planner.sql("SELECT 'c' i")
    expected = f"[PLAKE_SCHEMA_MISMATCH] column 'i' of file://{path} is int64 and the data has"
    assert first_line(lambda: save(wrong, path)).startswith(expected)
    assert first_line(lambda: save(wrong, path, mode="overwrite")).startswith(expected)
    save(frame, path)
    assert lake.open_dataset(path).version == 2


def test_of_a_commit_that_conflicts(spark_planner: SparkSession, path: str) -> None:
    frame = spark_planner.sql("SELECT 3L i, 'c' s")
    said = first_line(lambda: save(frame, path, expectedVersion="9"))
    assert said.startswith(CONFLICT.format(path=path))
    assert said.endswith("Nothing was committed; read again and retry.")
    spark_planner.sql(f"CREATE OR REPLACE TEMPORARY VIEW lines USING plake OPTIONS (path '{path}')")
    spark_planner.conf.set("spark.plake.statement.expectedVersion", "9")
    try:
        for statement in ("DELETE FROM lines WHERE i = 1", "UPDATE lines SET i = i + 1"):
            said = first_line(lambda text=statement: spark_planner.sql(text))
            assert said.startswith(CONFLICT.format(path=path))
    finally:
        spark_planner.conf.unset("spark.plake.statement.expectedVersion")
        spark_planner.catalog.dropTempView("lines")
    assert lake.open_dataset(path).version == 1


def test_of_tables_with_names(spark_catalog: SparkSession) -> None:
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.lines")
    spark_catalog.sql("CREATE OR REPLACE TABLE plake.lines.t (i BIGINT)")
    write = spark_catalog.range(1).toDF("i").writeTo("plake.lines.t")
    said = first_line(lambda: write.option("expectedVersion", "9").append())
    assert said.startswith("[PLAKE_COMMIT_CONFLICT] commit to file://")
    said = first_line(
        lambda: spark_catalog.sql(
            "CREATE TABLE plake.lines.u PARTITIONED BY (d) AS SELECT 1.5D d, 1 i"
        )
    )
    assert said.startswith("[PLAKE_SCHEMA_MISMATCH] column 'd' has type double, which cannot")


def test_of_a_read_that_cannot_be_planned(spark_planner: SparkSession, path: str) -> None:
    frame = load(spark_planner, path)
    old = frame.where("i = 1")
    os.remove(Path(path) / "_plake" / "catalog.db")
    said = first_line(lambda: old.collect(), PySparkException)
    assert said.startswith("[PLAKE_DATASET_NOT_FOUND] no dataset at file://")


def test_the_condition_is_spark_s_and_the_traceback_its_cause(
    spark_planner: SparkSession, path: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        save(spark_planner.sql("SELECT 3L i"), path, nope="1")
    assert caught.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert "Traceback" not in str(caught.value)
    cause = caught.value._origin.getCause().getMessage()  # type: ignore[union-attr]
    assert "Traceback (most recent call last)" in cause


def test_the_facts_of_an_error_are_the_parameters_of_its_message(
    spark_catalog: SparkSession, path: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark_catalog.sql(f"SELECT * FROM plake.`{path}` VERSION AS OF 9")
    assert str(caught.value).startswith("[PLAKE_VERSION_NOT_FOUND] ")
    told = caught.value.getMessageParameters()
    expected = {"dataset": f"file://{path}", "requested": "version 9", "first": "1", "last": "1"}
    assert told is not None
    assert expected.items() <= told.items()


def test_tasks_get_none_of_the_jar_s_classes(spark_planner: SparkSession, path: str) -> None:
    """ClassNotFoundException on executors, which may not have the jar."""
    session = spark_planner.newSession()
    session.conf.set(Setting.BATCHES, "false")
    session.conf.set(Setting.READER, Reader.PYTHON)
    plan = load(session, path)._jdf.queryExecution().executedPlan()
    scan = plan.collectLeaves().head()
    sent = session._jvm.org.apache.spark.util.Utils.serialize(scan.readerFactory())  # type: ignore[union-attr]
    assert b"UserDefinedPythonDataSource" in bytes(sent)
    assert b"io.plake" not in bytes(sent)


def test_spark_s_own_words_come_first_where_a_task_fails(
    spark_planner: SparkSession, path: str
) -> None:
    """Executors have none of the jar: Spark wraps what Python said there."""
    frame = load(spark_planner, path).where("i + 0 = 1")
    for file in Path(path).glob("*.parquet"):
        os.remove(file)
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    first, *more = str(caught.value).splitlines()
    assert "PLAKE" not in first
    assert any("StorageError" in line for line in more)


@pytest.mark.long
@pytest.mark.parametrize("place", ["path", "plake.lines.t"])
def test_of_a_stream(spark_catalog: SparkSession, path: str, place: str) -> None:
    """It was that of a traceback, or of an assertion of Spark where a table had a version."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.lines")
    spark_catalog.sql("CREATE OR REPLACE TABLE plake.lines.t AS SELECT 1L id")

    def read(place: str, **options: str) -> DataFrame:
        reader = spark_catalog.readStream.format("plake").options(**options)
        return reader.load(path) if place == "path" else reader.table(place)

    def ends(place: str, **options: str) -> str:
        frame = read(place, **options)

        def run() -> None:
            query = frame.writeStream.format("noop").start()
            try:
                query.awaitTermination(120)
            finally:
                query.stop()

        return first_line(run, StreamingQueryException)

    for option in ("versionAsOf", "version"):
        said = first_line(lambda at=place, name=option: read(at, **{name: "1"}))
        assert said.startswith(
            f"[PLAKE_INVALID_OPTION] option '{option}' (given: 1): names one version, and a "
        )
    assert (
        "terminated with exception: [PLAKE_INVALID_OPTION] option 'startingVersion' (given: "
        "'x'): must be a whole number." in ends(place, startingVersion="x")
    )
    assert "exception: [PLAKE_VERSION_NOT_FOUND]" in ends(place, startingVersion="9")
    lake.open_dataset(path).delete("i = 1")
    assert "exception: [PLAKE_STREAM_CHANGE] version 2" in ends("path", startingVersion="2")


class TestOfTheSinkOfAStream:
    """It was that of a traceback, and of one of pickling where a batch did not begin."""

    @pytest.fixture
    def rows(self, tmp_path: Path) -> Folder:
        folder = Folder(tmp_path / "incoming")
        folder.add(pa.table({"id": [1], "k": pa.array([None], pa.string())}))
        return folder

    @pytest.fixture(params=["path", "table"])
    def place(self, request: pytest.FixtureRequest, path: str) -> str:
        return path if request.param == "path" else "plake.lines.sink"

    def made(self, spark: SparkSession, place: str, schema: pa.Schema) -> None:
        if place.startswith("plake."):
            catalog = spark.conf.get("spark.sql.catalog.plake.catalog")
            warehouse = spark.conf.get("spark.sql.catalog.plake.warehouse")
            spark.sql("CREATE NAMESPACE IF NOT EXISTS plake.lines")
            spark.sql(f"DROP TABLE IF EXISTS {place} PURGE")
            with lake.open_catalog(catalog, warehouse=warehouse) as opened:
                opened.create_dataset("lines.sink", schema)
        else:
            lake.write_dataset(schema.empty_table(), place, mode="overwrite", overwrite_schema=True)

    def ends(self, frame: DataFrame, place: str, **options: str) -> str:
        """What plake says first: behind the id of the query."""

        def run() -> None:
            checkpoint = str(Path(tempfile.mkdtemp()) / "checkpoint")
            writer = frame.writeStream.format("plake").option("checkpointLocation", checkpoint)
            writer = writer.options(**options).trigger(availableNow=True)
            query = writer.toTable(place) if place.startswith("plake.") else writer.start(place)
            try:
                query.awaitTermination(240)
            finally:
                query.stop()

        found = first_line(run, StreamingQueryException).partition("terminated with exception: ")
        return found[2]

    def test_an_option_that_is_not_one_of_streams(
        self, spark_catalog: SparkSession, rows: Folder, place: str
    ) -> None:
        self.made(spark_catalog, place, pa.schema([("id", pa.int64()), ("k", pa.string())]))
        said = self.ends(rows.stream(spark_catalog), place, expectedVersion="9")
        assert said.startswith("[PLAKE_INVALID_OPTION] option 'expectedVersion': is an option of ")

    @pytest.mark.long
    def test_a_schema_that_does_not_fit(
        self, spark_catalog: SparkSession, rows: Folder, place: str
    ) -> None:
        self.made(spark_catalog, place, pa.schema([("id", pa.string()), ("k", pa.string())]))
        said = self.ends(rows.stream(spark_catalog), place)
        assert said.startswith("[PLAKE_SCHEMA_MISMATCH] column 'id' of file://")
        assert "the data has int64. Cast it, or write with promote_to_string=True." in said

    def test_a_row_that_does_not_fit(
        self, spark_catalog: SparkSession, rows: Folder, place: str
    ) -> None:
        strict = pa.field("k", pa.string(), nullable=False)
        self.made(spark_catalog, place, pa.schema([("id", pa.int64()), strict]))
        said = self.ends(rows.stream(spark_catalog), place)
        assert said.startswith("[PLAKE_SCHEMA_MISMATCH] column 'k' is not nullable and the data")

    @pytest.mark.long
    def test_a_commit_that_conflicts(
        self, spark_catalog: SparkSession, rows: Folder, place: str, path: str
    ) -> None:
        """Its task drops the column that it writes, after the batch has begun."""
        schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
        self.made(spark_catalog, place, schema)
        url = spark_catalog.conf.get("spark.sql.catalog.plake.catalog")

        def dropping(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if place == path:
                dataset = lake.open_dataset(path)
            else:
                dataset = lake.open_catalog(url).dataset("lines.sink")
            dataset.drop_column("k")
            yield from batches

        frame = rows.stream(spark_catalog).mapInArrow(dropping, "id BIGINT, k STRING")
        said = self.ends(frame, place)
        assert said.startswith("[PLAKE_COMMIT_CONFLICT] commit to file://"), said

    def test_a_table_that_was_dropped(
        self, spark_catalog: SparkSession, rows: Folder, tmp_path: Path
    ) -> None:
        place = "plake.lines.sink"
        self.made(spark_catalog, place, pa.schema([("id", pa.int64()), ("k", pa.string())]))
        writer = rows.stream(spark_catalog).writeStream
        query = writer.option("checkpointLocation", str(tmp_path / "c")).toTable(place)

        def run() -> None:
            query.processAllAvailable()
            spark_catalog.sql(f"DROP TABLE {place} PURGE")
            rows.add([{"id": 2, "k": "x"}])
            query.processAllAvailable()

        try:
            said = first_line(run, StreamingQueryException)
        finally:
            query.stop()
        assert "terminated with exception: [PLAKE_DATASET_NOT_FOUND] no dataset at file://" in said


def test_of_a_delete_from_a_stream_of_a_table(spark_catalog: SparkSession) -> None:
    """Spark ended with an internal error."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.lines")
    spark_catalog.sql("CREATE OR REPLACE TABLE plake.lines.s AS SELECT 1L id")
    spark_catalog.readStream.table("plake.lines.s").createOrReplaceTempView("streamed")
    said = first_line(
        lambda: spark_catalog.sql("DELETE FROM streamed WHERE id = 1"), IllegalArgumentException
    )
    assert said == "A DELETE, UPDATE or MERGE of plake changes tables, and not streams."
