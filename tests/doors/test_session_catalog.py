"""Tables `USING plake` in Spark's session catalog, beside Spark's own Parquet tables."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.spark import enable
from tests.doors.conftest import activate, unshared_session

pytestmark = pytest.mark.spark

SETTING = "spark.sql.catalog.spark_catalog"


@pytest.fixture
def name(spark_planner: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database for the tables of one test."""
    database = re.sub(r"[^a-z0-9]", "_", request.node.name.lower())
    spark_planner.sql(f"CREATE DATABASE {database}")
    # `saveAsTable` takes Spark's settings from the session that this thread used last.
    activate(spark_planner)
    yield database
    spark_planner.sql(f"DROP DATABASE {database} CASCADE")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    found = spark.sql(query)
    if query.startswith("SHOW TABLES"):  # other tests of the session made temporary views
        found = found.where("NOT isTemporary")
    return sorted((tuple(row) for row in found.collect()), key=repr)


def message(spark: SparkSession, query: str) -> str:
    with pytest.raises(PySparkException) as caught:
        spark.sql(query).collect()
    return str(caught.value)


@pytest.mark.long
def test_writes_give_the_rows_of_a_parquet_table(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    for table in ("ours", "theirs"):
        form = "plake" if table == "ours" else "parquet"
        spark_planner.sql(
            f"CREATE TABLE {name}.{table} (id INT, s STRING, p STRING) USING {form} "
            f"PARTITIONED BY (p) LOCATION '{tmp_path}/{table}'"
        )
    for statement in (
        "INSERT INTO {t} VALUES (1, 'x', 'a'), (2, NULL, 'b'), (NULL, 'z', NULL)",
        "INSERT INTO {t} (p, id) VALUES ('c', 7)",
        "INSERT INTO {t} BY NAME SELECT 'b' AS p, 4 AS id, 'y' AS s",
        "INSERT INTO {t} PARTITION (p = 'd') SELECT id + 1, s FROM {t}",
        "INSERT OVERWRITE {t} PARTITION (p = 'a') VALUES (10, 'new')",
        "INSERT OVERWRITE {t} VALUES (3, 'q', 'z'), (4, NULL, NULL)",
    ):
        for table in ("ours", "theirs"):
            spark_planner.sql(statement.format(t=f"{name}.{table}"))
        found, expected = (
            rows(spark_planner, f"SELECT id, s, p FROM {name}.{table}")
            for table in ("ours", "theirs")
        )
        assert found == expected
    assert found
    lake_rows = lake.open_dataset(tmp_path / "ours").scan().to_table().num_rows
    assert lake_rows == len(found)


@pytest.mark.long
def test_rows_of_a_dataset_are_changed_through_its_table(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    lake.write_dataset({"id": [1, 2, 3], "p": ["a", "b", "a"]}, tmp_path / "f", partition_by="p")
    spark_planner.sql(f"CREATE TABLE {name}.t USING plake LOCATION '{tmp_path}/f'")
    first = [(1, "a"), (2, "b"), (3, "a")]
    assert rows(spark_planner, f"SELECT * FROM {name}.t") == first
    spark_planner.sql(f"DELETE FROM {name}.t WHERE id = 1")
    spark_planner.sql(f"UPDATE {name}.t SET p = upper(p) WHERE id = 2")
    spark_planner.sql(
        f"MERGE INTO {name}.t USING (VALUES (3, 'm'), (9, 'n') s(id, p)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(spark_planner, f"SELECT * FROM {name}.t") == [(2, "B"), (3, "m"), (9, "n")]
    for at in ("VERSION AS OF 1", "VERSION AS OF '1'"):
        assert rows(spark_planner, f"SELECT * FROM {name}.t {at}") == first
    assert spark_planner.read.option("versionAsOf", "1").table(f"{name}.t").count() == 3
    moment = lake.open_dataset(tmp_path / "f").history()[-1].timestamp.isoformat()
    assert rows(spark_planner, f"SELECT * FROM {name}.t TIMESTAMP AS OF '{moment}'") == first
    plan = spark_planner.sql(f"SELECT p FROM {name}.t WHERE id = 9")._jdf.queryExecution()
    assert "PushedFilters: [id IS NOT NULL, id = 9]" in plan.executedPlan().toString()
    spark_planner.sql(f"TRUNCATE TABLE {name}.t")
    assert rows(spark_planner, f"SELECT * FROM {name}.t") == []


def test_a_table_is_described_and_altered_as_the_dataset_is(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    spark_planner.sql(
        f"CREATE TABLE {name}.t (id INT NOT NULL COMMENT 'key', s STRING DEFAULT 'x') USING plake "
        f"LOCATION '{tmp_path}/a b%20c' COMMENT 'all' TBLPROPERTIES ('k' = 'v')"
    )
    made = lake.open_dataset(tmp_path / "a b%20c")
    assert made.properties["table_properties"] == {"comment": "all", "k": "v"}
    assert not made.schema.field("id").nullable
    spark_planner.sql(f"INSERT INTO {name}.t (id) VALUES (1)")
    made.add_column("d", pa.float64())
    spark_planner.sql(f"ALTER TABLE {name}.t ADD COLUMN n BIGINT")
    spark_planner.sql(f"ALTER TABLE {name}.t SET TBLPROPERTIES ('k' = 'w')")
    assert rows(spark_planner, f"SELECT * FROM {name}.t") == [(1, "x", None, None)]
    described = rows(spark_planner, f"DESCRIBE EXTENDED {name}.t")
    assert {("id", "int", "key"), ("n", "bigint", None), ("Comment", "all", "")} <= set(described)
    assert ("Type", "EXTERNAL", "") in described
    assert ("k", "w") in rows(spark_planner, f"SHOW TBLPROPERTIES {name}.t")
    assert rows(spark_planner, f"SHOW TABLES IN {name}") == [(name, "t", False)]
    assert "LOCATION" in rows(spark_planner, f"SHOW CREATE TABLE {name}.t")[0][0]
    spark_planner.sql(f"ALTER TABLE {name}.t RENAME TO {name}.u")
    assert spark_planner.table(f"{name}.u").count() == 1
    spark_planner.sql(f"DROP TABLE {name}.u")
    assert lake.open_dataset(tmp_path / "a b%20c").scan().to_table().num_rows == 1


def test_constraints_and_computed_columns_of_a_table_are_those_of_its_dataset(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    spark, table = spark_planner, f"{name}.t"
    columns = "id BIGINT, v INT, w INT GENERATED ALWAYS AS (v + 1), CONSTRAINT pk PRIMARY KEY (id)"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING plake LOCATION '{tmp_path}/t'")
    lake.write_dataset({"id": [1], "v": [5]}, str(tmp_path / "t"))
    assert rows(spark, f"SELECT * FROM {table}") == [(1, 5, 6)]
    add = f"ALTER TABLE {table} ADD CONSTRAINT small CHECK"
    assert "is broken by a row with v = 5" in message(spark, f"{add} (v < 5)")
    spark.sql(f"{add} (v < 6)")
    for bad, why in ((1, "a row of the dataset has this key"), (2, "'small'.* v = 6")):
        said = message(spark, f"INSERT INTO {table} (id, v) VALUES ({bad}, {4 + bad})")
        assert re.search(why, said), said
    made = lake.open_dataset(str(tmp_path / "t"))
    assert dict(made.constraints) == {"pk": "PRIMARY KEY (id)", "small": "v < 6"}
    assert made.version == 3
    again = f"CREATE TABLE {name}.u ({columns}) USING plake LOCATION '{tmp_path}/t'"
    assert "keeps its constraints" in message(spark, again)
    replaced = (
        f"CREATE OR REPLACE TABLE {table} (id BIGINT, CONSTRAINT p CHECK (id > 0)) USING plake"
    )
    spark.sql(replaced)
    assert dict(made.refresh().constraints) == {"p": "id > 0"}
    for one in ("CONSTRAINT p CHECK (id > 0)", "w INT GENERATED ALWAYS AS (id)"):
        said = message(spark, f"CREATE TABLE {name}.p (id INT, {one}) USING parquet")
        assert "does not support" in said


def test_what_a_statement_says_of_a_dataset_that_exists_must_be_so(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    lake.write_dataset({"id": [1], "p": ["a"]}, tmp_path / "f", partition_by="p")
    at = f"LOCATION '{tmp_path}/f'"
    refused = {
        f"CREATE TABLE {name}.t (id INT, p STRING) USING plake {at}": "has other columns",
        f"CREATE TABLE {name}.t (id LONG NOT NULL, p STRING) USING plake {at}": "other columns",
        f"CREATE TABLE {name}.t (id LONG, p STRING) USING plake PARTITIONED BY (id) {at}": (
            "has other partition columns: [p]"
        ),
        f"CREATE TABLE {name}.t USING plake {at} TBLPROPERTIES ('k' = 'v')": "leave k out",
        f"CREATE TABLE {name}.t USING plake {at} COMMENT 'c'": "leave comment out",
        f"CREATE TABLE {name}.t USING plake {at} AS SELECT 1 AS id": "There is a dataset at",
        f"CREATE TABLE {name}.t USING plake LOCATION '{tmp_path}/none'": "There is no dataset at",
        f"CREATE TABLE {name}.t (a INT) USING plake LOCATION 'relative'": "is relative",
        f"CREATE TABLE {name}.t (a INT) USING plake OPTIONS (x 'y') {at}": "and not x",
        f"CREATE TABLE {name}.t (a INT) USING plake OPTIONS (catalog 'sqlite:///c.db')": (
            "needs a LOCATION"
        ),
    }
    for statement, text in refused.items():
        assert text in message(spark_planner, statement), statement
    assert rows(spark_planner, f"SHOW TABLES IN {name}") == []
    spark_planner.sql(
        f"CREATE TABLE {name}.t (ID LONG, p STRING) USING plake PARTITIONED BY (p) {at}"
    )
    assert rows(spark_planner, f"SELECT id, p FROM {name}.t") == [(1, "a")]
    shutil.rmtree(tmp_path / "f")
    assert "PLAKE_DATASET_NOT_FOUND" in message(spark_planner, f"SELECT * FROM {name}.t")
    spark_planner.sql(f"DROP TABLE {name}.t")


def test_a_table_is_in_the_catalog_that_its_options_name(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    url = f"sqlite://{tmp_path}/catalog.db"
    spark_planner.sql(
        f"CREATE TABLE {name}.t (a INT) USING plake OPTIONS (catalog '{url}') "
        f"LOCATION '{tmp_path}/t'"
    )
    spark_planner.sql(f"INSERT INTO {name}.t VALUES (1), (2)")
    spark_planner.sql(f"UPDATE {name}.t SET a = a + 1")
    assert rows(spark_planner, f"SELECT * FROM {name}.t") == [(2,), (3,)]
    assert lake.open_dataset(tmp_path / "t", catalog=url).version == 3
    assert not (tmp_path / "t" / "_plake" / "catalog.db").exists()


def test_a_table_without_location_belongs_to_spark(spark_planner: SparkSession, name: str) -> None:
    spark_planner.sql(f"CREATE TABLE {name}.m (a INT) USING plake")
    spark_planner.sql(f"INSERT INTO {name}.m VALUES (1)")
    described = dict(row[:2] for row in rows(spark_planner, f"DESCRIBE EXTENDED {name}.m"))
    folder = Path(described["Location"].removeprefix("file://").removeprefix("file:"))
    assert lake.open_dataset(folder).scan().to_table().to_pydict() == {"a": [1]}
    refused = message(spark_planner, f"ALTER TABLE {name}.m RENAME TO {name}.n")
    assert "cannot be renamed" in refused
    spark_planner.sql(f"DROP TABLE {name}.m")
    assert not folder.exists()


@pytest.mark.long
def test_a_query_creates_a_table_or_leaves_nothing(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    for table, at in (("here", ""), ("there", f"LOCATION '{tmp_path}/there'")):
        fails = "AS SELECT CAST(raise_error('no') AS INT) AS a FROM range(3)"
        with pytest.raises(PySparkException):
            spark_planner.sql(f"CREATE TABLE {name}.{table} USING plake {at} {fails}")
        assert rows(spark_planner, f"SHOW TABLES IN {name}") == []
        spark_planner.sql(f"CREATE TABLE {name}.{table} USING plake {at} AS SELECT 1 AS a")
        with pytest.raises(PySparkException):
            spark_planner.sql(f"CREATE OR REPLACE TABLE {name}.{table} USING plake {at} {fails}")
        assert rows(spark_planner, f"SELECT * FROM {name}.{table}") == [(1,)]
        spark_planner.sql(
            f"CREATE OR REPLACE TABLE {name}.{table} USING plake AS SELECT a, 2 AS b "
            f"FROM {name}.{table}"
        )
        assert rows(spark_planner, f"SELECT * FROM {name}.{table}") == [(1, 2)]
        assert rows(spark_planner, f"SELECT * FROM {name}.{table} VERSION AS OF 1") == [(1,)]
        spark_planner.sql(f"DROP TABLE {name}.{table}")
    assert lake.open_dataset(tmp_path / "there").version == 2


@pytest.mark.long
def test_frames_are_saved_as_tables(spark_planner: SparkSession, name: str, tmp_path: Path) -> None:
    frame = spark_planner.range(4).selectExpr("id", "id % 2 AS p")

    def save(mode: str, **options: str) -> None:
        writer = frame.write.format("plake").mode(mode).options(**options)
        writer.saveAsTable(f"{name}.t")

    save("errorifexists", path=f"{tmp_path}/t")
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        save("errorifexists")
    save("ignore")
    save("append")
    frame.write.insertInto(f"{name}.t")
    frame.writeTo(f"{name}.t").append()
    assert spark_planner.table(f"{name}.t").count() == 16
    save("overwrite")
    assert spark_planner.table(f"{name}.t").count() == 4
    frame.where("p = 1").writeTo(f"{name}.t").overwrite(F.col("p") == 1)
    assert rows(spark_planner, f"SELECT id FROM {name}.t") == [(0,), (1,), (2,), (3,)]
    assert lake.open_dataset(tmp_path / "t").version == 6
    frame.write.format("parquet").saveAsTable(f"{name}.q")
    replaced = f"CREATE OR REPLACE TABLE {name}.q USING plake AS SELECT 1 AS a"
    assert "is not one of plake" in message(spark_planner, replaced)
    assert spark_planner.table(f"{name}.q").count() == 4


@pytest.mark.long
def test_streams_and_views_use_the_tables(
    spark_planner: SparkSession, name: str, tmp_path: Path
) -> None:
    spark_planner.sql(f"CREATE TABLE {name}.a USING plake AS SELECT id FROM range(3)")
    spark_planner.sql(f"CREATE VIEW {name}.v AS SELECT id + 1 AS id FROM {name}.a")
    stream = spark_planner.readStream.option("startingVersion", "1").table(f"{name}.a").writeStream
    query = (
        stream.option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .format("plake")
        .option("path", str(tmp_path / "b"))
        .toTable(f"{name}.b")
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert rows(spark_planner, f"SELECT * FROM {name}.b") == [(0,), (1,), (2,)]
    spark_planner.sql(f"INSERT INTO {name}.a VALUES (9)")
    assert rows(spark_planner, f"SELECT * FROM {name}.v") == [(1,), (10,), (2,), (3,)]


def test_a_stream_of_a_version_is_refused_by_name(spark_planner: SparkSession, name: str) -> None:
    """It failed an assertion of Spark's analyzer, or was started where its condition was true."""
    spark_planner.sql(f"CREATE TABLE {name}.a USING plake AS SELECT id FROM range(3)")
    for known in (f"{name}.a", f"spark_catalog.{name}.a"):
        for option, value in (
            ("versionAsOf", "1"),
            ("timestampAsOf", "2100-01-01"),
            ("version", 1),
        ):
            with pytest.raises(AnalysisException, match=f"PLAKE_INVALID_OPTION.*'{option}'"):
                spark_planner.readStream.option(option, value).table(known)
    with pytest.raises(AnalysisException, match=r"PLAKE_INVALID_OPTION.*'versionAsOf'"):
        spark_planner.sql(f"SELECT * FROM STREAM {name}.a WITH (versionAsOf = 1)")
    spark_planner.range(3).createOrReplaceTempView("a")
    with pytest.raises(PySparkException) as caught:
        spark_planner.readStream.option("versionAsOf", "1").table("a")
    assert "PLAKE" not in str(caught.value)
    spark_planner.sql("DROP VIEW a")


@pytest.mark.long
def test_tables_of_other_formats_are_spark_s_own(
    spark: SparkSession, spark_planner: SparkSession, name: str
) -> None:
    """The same statements in a session without the extension."""
    spark.sql(f"CREATE DATABASE {name}")
    found = {}
    for session in (spark, spark_planner):
        said: list[tuple[str, object]] = []
        for statement in (
            "CREATE TABLE {n}.noop USING noop",
            "INSERT INTO {n}.noop VALUES (1)",
            "SELECT * FROM {n}.noop",
            "CREATE TABLE {n}.made USING noop AS SELECT 1 AS a",
            "CREATE OR REPLACE TABLE {n}.made USING noop AS SELECT 1 AS a",
            "CREATE TABLE {n}.q (a INT) USING parquet PARTITIONED BY (a)",
            "INSERT INTO {n}.q VALUES (1), (2)",
            "ALTER TABLE {n}.q ADD COLUMN b INT",
            "CREATE TABLE {n}.l LIKE {n}.q",
            "CREATE TABLE spark_catalog.{n}.m LIKE spark_catalog.{n}.q USING orc",
            "SHOW PARTITIONS {n}.m",
            "SHOW PARTITIONS {n}.q",
            "SELECT * FROM {n}.q VERSION AS OF 1",
            "REPLACE TABLE {n}.q USING parquet AS SELECT 1 AS a",
            "ALTER TABLE {n}.q RENAME TO {n}.r",
            "ANALYZE TABLE {n}.r COMPUTE STATISTICS",
            "DESCRIBE {n}.r",
            "SHOW TABLES IN {n}",
            "DELETE FROM {n}.r",
            "TRUNCATE TABLE {n}.r",
            *(f"DROP TABLE {{n}}.{table}" for table in ("noop", "made", "q", "l", "m", "r")),
        ):
            try:
                said.append((statement, rows(session, statement.format(n=name))))
            except PySparkException as error:
                said.append((statement, error.getCondition()))
        found[session] = said
    spark.sql(f"DROP DATABASE {name} CASCADE")
    assert found[spark_planner] == found[spark]
    assert spark.conf.get(SETTING) == "builtin"


def test_a_session_catalog_that_the_user_chose_stays(spark: SparkSession) -> None:
    session = unshared_session(spark)
    session.conf.set(SETTING, "builtin")
    enable(session)
    assert session.conf.get(SETTING) == "builtin"
    found = enable(unshared_session(spark)).conf.get(SETTING)
    name = "PlakeSessionChangelogs" if spark.version >= "4.2" else "PlakeSessionCatalog"
    assert found == f"io.plake.spark.{name}"


def test_without_the_extension_the_error_says_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake.write_dataset({"id": [1]}, tmp_path / "f")
    said = message(spark, f"CREATE TABLE late USING plake LOCATION '{tmp_path}/f'")
    assert "lakehouse_source.spark.enable(spark)" in said
    assert "CREATE TEMPORARY VIEW name USING plake OPTIONS (path '...')" in said
