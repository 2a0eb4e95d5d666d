"""Paths as tables of Spark's catalog: ``plake.`/data/flights` `` in every statement."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.errors import ForeignFolderError, InvalidOptionError
from lakehouse_source.spark import configure, enable
from tests.doors.conftest import unshared_session

pytestmark = pytest.mark.spark

PEOPLE = {"id": [1, 2, 3], "name": ["a", "b", None], "p": [1, 1, 2]}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A dataset in two partitions, in the catalog of its own folder."""
    made = str(tmp_path / "people")
    lake.write_dataset(pa.table(PEOPLE), made, partition_by=["p"])
    return made


def table(path: str) -> str:
    return f"plake.`{path}`"


def stored(path: str) -> list[tuple[Any, ...]]:
    """The rows as plake's own reader has them."""
    rows = lake.read_dataset(path).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


def message(spark: SparkSession, query: str) -> str:
    with pytest.raises(AnalysisException) as caught:
        spark.sql(query).collect()
    return str(caught.value)


def test_a_path_is_read_in_sql_and_by_name(spark_catalog: SparkSession, path: str) -> None:
    expected = [(1, "a", 1), (2, "b", 1), (3, None, 2)]
    assert rows(spark_catalog, f"SELECT * FROM {table(path)}") == expected
    assert sorted(map(tuple, spark_catalog.table(table(path)).collect()), key=repr) == expected
    assert rows(spark_catalog, f"SELECT max(id) FROM {table(path)} WHERE p = 1") == [(2,)]
    assert rows(spark_catalog, f"SELECT count(*), p FROM {table(path)} GROUP BY p") == [
        (1, 2),
        (2, 1),
    ]


def test_scans_of_a_path_prune(spark_catalog: SparkSession, path: str) -> None:
    frame = spark_catalog.sql(f"SELECT id FROM {table(path)} WHERE p = 2")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "read by Spark (1 of 2 files)" in plan
    assert "ReadSchema: struct<id:bigint" in plan
    assert frame.count() == 1
    assert spark_catalog.table(table(path)).count() == 3


def test_columns_that_tell_where_a_row_is_stored_are_found_by_name(
    spark_catalog: SparkSession, path: str
) -> None:
    names = "id, _file, _pos, _row_id, _commit_version"
    read = lake.open_dataset(path).scan(columns=names.split(", ")).to_table()
    expected = sorted((tuple(row.values()) for row in read.to_pylist()), key=repr)
    assert rows(spark_catalog, f"SELECT {names} FROM {table(path)}") == expected
    found = rows(spark_catalog, f"SELECT max(_pos), count(_file) FROM {table(path)}")
    assert found == [(1, 3)]
    assert spark_catalog.table(table(path)).columns == ["id", "name", "p"]
    (file, _) = rows(spark_catalog, f"SELECT DISTINCT _file, 1 FROM {table(path)} WHERE p = 2")[0]
    assert rows(spark_catalog, f"SELECT id FROM {table(path)} WHERE _file = '{file}'") == [(3,)]


def test_without_the_planner_the_same_columns_are_read(
    spark_catalog: SparkSession, path: str
) -> None:
    query = f"SELECT _pos, name, _row_id FROM {table(path)} WHERE id > 1"
    expected = rows(spark_catalog, query)
    spark_catalog.conf.set("spark.plake.planner.enabled", "false")
    try:
        assert rows(spark_catalog, query) == expected
        assert rows(spark_catalog, f"SELECT id FROM {table(path)}") == [(1,), (2,), (3,)]
    finally:
        spark_catalog.conf.set("spark.plake.planner.enabled", "true")


def test_a_user_s_column_keeps_its_name(spark_catalog: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "own")
    lake.write_dataset({"_pos": [7], "id": [1]}, path)
    assert rows(spark_catalog, f"SELECT _pos, __pos, id FROM {table(path)}") == [(7, 0, 1)]
    spark_catalog.sql(f"DELETE FROM {table(path)} WHERE _pos = 7")
    assert stored(path) == []


@pytest.mark.long
def test_rows_are_inserted_and_replaced(spark_catalog: SparkSession, path: str) -> None:
    spark_catalog.sql(f"INSERT INTO {table(path)} VALUES (4, 'd', 3)")
    spark_catalog.sql(f"INSERT INTO {table(path)} (p, id) VALUES (3, 5)")
    spark_catalog.sql(f"INSERT INTO {table(path)} BY NAME SELECT 3L AS p, 6L AS id, 'f' AS name")
    before = stored(path)
    assert before == [
        (1, "a", 1),
        (2, "b", 1),
        (3, None, 2),
        (4, "d", 3),
        (5, None, 3),
        (6, "f", 3),
    ]
    spark_catalog.sql(f"INSERT OVERWRITE {table(path)} PARTITION (p = 3) SELECT 7L, 'g'")
    assert stored(path) == [(1, "a", 1), (2, "b", 1), (3, None, 2), (7, "g", 3)]
    spark_catalog.sql(f"INSERT INTO {table(path)} REPLACE WHERE id < 3 SELECT 0L, 'z', 9L")
    assert stored(path) == [(0, "z", 9), (3, None, 2), (7, "g", 3)]
    spark_catalog.sql(f"INSERT OVERWRITE {table(path)} SELECT 8L, 'h', 1L")
    assert stored(path) == [(8, "h", 1)]
    assert [entry.operation for entry in lake.open_dataset(path).history()][:3] == [
        "overwrite",
        "overwrite where",
        "overwrite where",
    ]


def test_a_dynamic_overwrite_replaces_the_partitions_of_its_rows(
    spark_catalog: SparkSession, path: str
) -> None:
    mode = "spark.sql.sources.partitionOverwriteMode"
    spark_catalog.conf.set(mode, "dynamic")
    try:
        spark_catalog.sql(f"INSERT OVERWRITE {table(path)} SELECT 9L, 'i', 2L")
    finally:
        spark_catalog.conf.unset(mode)
    assert stored(path) == [(1, "a", 1), (2, "b", 1), (9, "i", 2)]


def test_rows_outside_of_a_replaced_condition_are_refused(
    spark_catalog: SparkSession, path: str
) -> None:
    with pytest.raises(Exception, match=r"p = 2|condition"):
        spark_catalog.sql(f"INSERT INTO {table(path)} REPLACE WHERE p = 2 SELECT 9L, 'i', 1L")
    with pytest.raises(AnalysisException, match="plake cannot replace the rows of this condition"):
        spark_catalog.sql(f"INSERT INTO {table(path)} REPLACE WHERE id + 1 = 2 SELECT 1L, 'i', 1L")
    assert stored(path) == [(1, "a", 1), (2, "b", 1), (3, None, 2)]


@pytest.mark.long
def test_statements_change_rows(spark_catalog: SparkSession, path: str) -> None:
    spark_catalog.sql(f"DELETE FROM {table(path)} WHERE id = 1")
    spark_catalog.sql(f"UPDATE {table(path)} SET name = 'new' WHERE name IS NULL")
    spark_catalog.sql(
        f"MERGE INTO {table(path)} t USING (SELECT 2L id, 'm' name, 5L p UNION ALL "
        "SELECT 9, 'n', 9) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert stored(path) == [(2, "m", 5), (3, "new", 2), (9, "n", 9)]
    spark_catalog.sql(f"TRUNCATE TABLE {table(path)}")
    assert stored(path) == []
    assert lake.open_dataset(path).version == 5


@pytest.mark.long
def test_frames_are_written_to_a_path(spark_catalog: SparkSession, path: str) -> None:
    frame = spark_catalog.sql("SELECT 4L AS id, 'd' AS name, 3L AS p")
    frame.writeTo(table(path)).append()
    frame.select("p", "id", "name").writeTo(table(path)).append()  # by name
    frame.write.insertInto(table(path))
    frame.mergeInto(table(path), frame.id == 0).whenNotMatched().insertAll().merge()
    assert stored(path)[3:] == [(4, "d", 3)] * 4
    frame.writeTo(table(path)).overwritePartitions()
    assert stored(path)[3:] == [(4, "d", 3)]
    frame.writeTo(table(path)).overwrite(F.col("p") == 3)
    assert stored(path)[3:] == [(4, "d", 3)]
    frame.write.mode("overwrite").insertInto(table(path))
    assert stored(path) == [(4, "d", 3)]


@pytest.mark.long
def test_older_versions_are_read(spark_catalog: SparkSession, path: str) -> None:
    first = lake.open_dataset(path).history()[0].timestamp
    spark_catalog.sql(f"INSERT INTO {table(path)} VALUES (4, 'd', 3)")
    name = table(path)
    assert rows(spark_catalog, f"SELECT count(*) FROM {name}") == [(4,)]
    assert rows(spark_catalog, f"SELECT count(*) FROM {name} VERSION AS OF 1") == [(3,)]
    stamp = first.strftime("%Y-%m-%d %H:%M:%S.%f")
    assert rows(spark_catalog, f"SELECT count(*) FROM {name} TIMESTAMP AS OF '{stamp}'") == [(3,)]
    for moment in ("current_timestamp()", "now() + INTERVAL 0 SECONDS"):
        newest = f"WITH x AS (SELECT * FROM {name} TIMESTAMP AS OF {moment}) SELECT count(*) FROM x"
        assert rows(spark_catalog, newest) == [(4,)]
    nothing = f"SELECT * FROM {name} TIMESTAMP AS OF nosuch()"
    assert "UNRESOLVED_ROUTINE" in message(spark_catalog, nothing)
    old = spark_catalog.read.option("versionAsOf", "1").table(name)
    assert old.count() == 3
    assert spark_catalog.table(name).count() == 4
    joined = f"SELECT b.id FROM {name} b LEFT ANTI JOIN {name} VERSION AS OF 1 a ON a.id = b.id"
    assert rows(spark_catalog, joined) == [(4,)]
    assert "has no version 9: it has versions 1 to 2" in message(
        spark_catalog, f"SELECT * FROM {name} VERSION AS OF 9"
    )
    assert message(spark_catalog, f"SELECT * FROM {name} VERSION AS OF 'x'").startswith(
        "[PLAKE_VERSION_NOT_FOUND]"
    )
    lake.open_dataset(path).tag("x", version=1)
    assert rows(spark_catalog, f"SELECT count(*) FROM {name} VERSION AS OF 'x'") == [(3,)]


@pytest.mark.long
def test_each_query_reads_the_newest_version_and_a_frame_keeps_its_own(
    spark_catalog: SparkSession, path: str
) -> None:
    query, frame = f"SELECT count(*) FROM {table(path)}", spark_catalog.table(table(path))
    twice = f"SELECT * FROM {table(path)} UNION ALL SELECT * FROM {table(path)}"
    pinned = spark_catalog.sql(twice)
    lake.write_dataset({"id": [4], "name": ["d"], "p": [1]}, path)
    assert rows(spark_catalog, query) == [(4,)]
    assert frame.count() == 3
    assert pinned.count() == 6
    assert spark_catalog.sql(twice).count() == 8
    # A view over a table is analysed anew for each query.
    frame.createOrReplaceTempView("view_of_path")
    assert rows(spark_catalog, "SELECT count(*) FROM view_of_path") == [(4,)]
    spark_catalog.sql("DELETE FROM view_of_path WHERE id = 1")
    assert [row[0] for row in stored(path)] == [2, 3, 4]


def test_a_cached_table_serves_until_it_is_refreshed(
    spark_catalog: SparkSession, path: str
) -> None:
    name = table(path)
    spark_catalog.table(name).cache()
    plan = spark_catalog.table(name)._jdf.queryExecution().optimizedPlan().toString()
    assert "InMemoryRelation" in plan
    lake.write_dataset({"id": [4], "name": ["d"], "p": [1]}, path)
    spark_catalog.sql(f"REFRESH TABLE {name}")
    assert spark_catalog.table(name).count() == 4
    spark_catalog.catalog.clearCache()


@pytest.mark.long
def test_a_statement_on_a_cached_table_is_seen_by_the_next_query(
    spark_catalog: SparkSession, path: str
) -> None:
    name = table(path)
    insert = "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.k)"
    several = "USING (SELECT 3L AS k UNION ALL SELECT 4L) s ON t.id = s.k"
    spark_catalog.sql(f"CACHE TABLE {name}")
    try:
        for statement, ids in (
            (f"DELETE FROM {name} WHERE id = 1", [2, 3]),
            (f"UPDATE {name} SET id = 20 WHERE id = 2", [3, 20]),
            (f"MERGE INTO {name} t {several} WHEN MATCHED THEN DELETE {insert}", [4, 20]),
            (f"MERGE INTO {name} t {several} {insert}", [3, 4, 20]),
        ):
            spark_catalog.sql(statement)
            found = spark_catalog.sql(f"SELECT id FROM {name}").collect()
            assert sorted(row.id for row in found) == ids, statement
        plan = spark_catalog.table(name)._jdf.queryExecution().optimizedPlan().toString()
        assert "InMemoryRelation" in plan
    finally:
        spark_catalog.catalog.clearCache()


@pytest.mark.long
def test_statements_name_metadata_columns_of_their_target(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "places")
    lake.write_dataset(pa.table({"id": pa.array(range(10)), "v": ["a"] * 10}), uri)
    name, dataset = table(uri), lake.open_dataset(uri)
    inner = f"SELECT max(_pos) FROM {name} WHERE id < 9"
    for statement in (
        f"DELETE FROM {name} WHERE _pos = 0",
        f"DELETE FROM {name} t WHERE t._row_id = 3 AND _file LIKE '%parquet'",
        f"DELETE FROM {name} WHERE _pos = ({inner})",
        f"UPDATE {name} SET v = 'b' WHERE id IN (SELECT id FROM {name} WHERE _pos = 2)",
        (
            f"DELETE FROM {name} t WHERE EXISTS (SELECT 1 FROM {name} u WHERE u.id = t._row_id - 2"
            " AND u.id = 5)"
        ),
    ):
        spark_catalog.sql(statement)
    found = {row.id: row.v for row in spark_catalog.sql(f"SELECT id, v FROM {name}").collect()}
    assert found == {1: "a", 2: "b", 4: "a", 5: "a", 6: "a", 9: "a"}
    assert dataset.refresh().verify().ok
    view = "places_of_rows"
    spark_catalog.sql(f"CREATE TEMPORARY VIEW {view} USING plake OPTIONS (path '{uri}')")
    for statement in (
        f"UPDATE {view} SET v = 'c' WHERE _pos = 1",
        (
            f"MERGE INTO {view} t USING (SELECT 1L AS id, 'c' AS v) s ON t._POS = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
        f"UPDATE {name} SET v = 'c' WHERE _pos = 1",
        f"UPDATE {name} SET v = _row_id",
        f"MERGE INTO {name} t USING (SELECT 1L AS r) s ON t._pos = s.r WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(Exception, match="cannot name columns that tell where a row"):
            spark_catalog.sql(statement)
    # The source of a MERGE has such columns too.
    spark_catalog.sql(
        f"MERGE INTO {view} t USING {name} s ON t.id = s.id AND s._row_id = 1 "
        "WHEN MATCHED THEN UPDATE SET v = s._row_id"
    )
    assert spark_catalog.sql(f"SELECT id FROM {view} WHERE v = '1'").collect() == [(1,)]


@pytest.mark.long
def test_options_of_one_query(spark_catalog: SparkSession, path: str) -> None:
    assert spark_catalog.read.option("where", "id = 2").table(table(path)).count() == 1
    assert spark_catalog.table(table(path)).count() == 3
    with pytest.raises(AnalysisException, match=r"PLAKE_INVALID_OPTION.*'wher'"):
        spark_catalog.read.option("wher", "id = 2").table(table(path)).count()
    with pytest.raises(AnalysisException, match="select the columns"):
        spark_catalog.read.option("columns", "id").table(table(path)).count()


def test_one_query_cannot_choose_another_catalog(spark_catalog: SparkSession, path: str) -> None:
    frame = spark_catalog.table(table(path))
    with pytest.raises(AnalysisException, match="are settings of Spark's catalog"):
        spark_catalog.read.option("catalog", "sqlite:////x.db").table(table(path)).count()
    with pytest.raises(AnalysisException, match="are settings of Spark's catalog"):
        frame.writeTo(table(path)).option("catalog", "sqlite:////x.db").append()
    frame.writeTo(table(path)).option("path", "/elsewhere").append()
    assert len(stored(path)) == 6


def test_a_default_value_fills_a_column_that_an_insert_leaves_out(
    spark_catalog: SparkSession, path: str
) -> None:
    dataset = lake.open_dataset(path)
    dataset.add_column("n", pa.int32(), default=7)
    dataset.set_default("n", 8)
    dataset.add_column("f", pa.float64(), default=-0.0)
    spark_catalog.sql(f"INSERT INTO {table(path)} (id, p) VALUES (4, 1)")
    spark_catalog.sql(f"INSERT INTO {table(path)} VALUES (5, 'e', 1, DEFAULT, NULL)")
    spark_catalog.sql(f"UPDATE {table(path)} SET n = DEFAULT WHERE id = 1")
    found = rows(spark_catalog, f"SELECT id, n, cast(f AS STRING) FROM {table(path)}")
    expected = [(1, 8, "-0.0"), (2, 7, "-0.0"), (3, 7, "-0.0"), (4, 8, "-0.0"), (5, 8, None)]
    assert found == expected


def test_statements_that_describe(spark_catalog: SparkSession, path: str) -> None:
    lake.open_dataset(path).set_comment("name", "who")
    name = table(path)
    described = spark_catalog.sql(f"DESCRIBE {name}").collect()
    assert [tuple(row) for row in described[:3]] == [
        ("id", "bigint", None),
        ("name", "string", "who"),
        ("p", "bigint", None),
    ]
    extended = {row[0]: row[1] for row in spark_catalog.sql(f"DESCRIBE EXTENDED {name}").collect()}
    assert extended["Provider"] == "plake"
    assert extended["Location"] == f"file://{path}"
    assert rows(spark_catalog, f"SHOW COLUMNS IN {name}") == [("id",), ("name",), ("p",)]
    (created,) = spark_catalog.sql(f"SHOW CREATE TABLE {name}").first()
    assert "USING plake" in created
    assert "PARTITIONED BY (p)" in created


def test_refusals_begin_with_plake_s_text(spark_catalog: SparkSession, tmp_path: Path) -> None:
    missing = message(spark_catalog, f"SELECT * FROM {table(str(tmp_path / 'none'))}")
    assert missing.startswith(f"[PLAKE_DATASET_NOT_FOUND] no dataset at file://{tmp_path}/none")
    assert "Traceback" not in missing
    with pytest.raises(InvalidOptionError, match="cannot name a catalog of Spark"):
        configure(SparkSession.builder, name="a.b")


def test_a_path_belongs_to_the_catalog_that_knows_it(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """First the one of Spark's settings, then the one in the folder.

    No catalog makes a dataset in another one's folder. Folders from before may have one of each.
    """
    url = spark_catalog.conf.get("spark.sql.catalog.plake.catalog")
    own = str(tmp_path / "own")
    lake.write_dataset({"x": ["own"]}, own)
    assert rows(spark_catalog, f"SELECT x FROM {table(own)}") == [("own",)]
    with pytest.raises(ForeignFolderError):
        lake.write_dataset({"x": ["named"]}, own, catalog=url)
    assert rows(spark_catalog, f"SELECT x FROM {table(own)}") == [("own",)]
    path = str(tmp_path / "both")
    lake.write_dataset({"x": ["named"]}, path, catalog=url)
    shutil.copytree(own, path, ignore=shutil.ignore_patterns("owner-*"), dirs_exist_ok=True)
    assert rows(spark_catalog, f"SELECT x FROM {table(path)}") == [("named",)]
    spark_catalog.sql(f"INSERT INTO {table(path)} VALUES ('more')")
    assert lake.read_dataset(path, catalog=url).num_rows == 2
    assert lake.read_dataset(path).num_rows == 1


def test_a_password_is_in_no_setting_plan_or_error(
    spark: SparkSession,
) -> None:
    secret = "hunter2canary"
    url = f"postgresql://me:{secret}@127.0.0.1:1/none?connect_timeout=1"
    session = enable(unshared_session(spark), catalog=url)
    shown = str(session.sql("SET -v").collect()) + str(session.sql("SET").collect())
    with pytest.raises(Exception) as caught:
        session.sql("SELECT * FROM plake.`/data/none`").collect()
    with pytest.raises(Exception) as written:
        session.sql("INSERT INTO plake.`/data/none` VALUES (1)").collect()
    for text in (shown, str(caught.value), repr(caught.value), str(written.value)):
        assert secret not in text
    assert "CATALOG_UNAVAILABLE" in str(caught.value)
