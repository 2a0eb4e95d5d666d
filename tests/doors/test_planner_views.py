"""A temporary view over plake shows what was written through it; a frame keeps its version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A dataset of one row: id 1, word a."""
    path = str(tmp_path / "data")
    append(path, 1)
    return path


@pytest.fixture
def view(spark_planner: SparkSession, path: str) -> Iterator[SparkSession]:
    """The session with the extension, where `f` is a view over the dataset."""
    create(spark_planner, path)
    yield spark_planner
    spark_planner.catalog.dropTempView("f")


def append(path: str, number: int) -> None:
    lake.write_dataset(pa.table({"id": [number], "word": ["a"]}), path)


def create(spark: SparkSession, path: str, columns: str = "", options: str = "") -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW f {columns} USING plake OPTIONS (path '{path}'{options})"
    )


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("id").collect())


@pytest.mark.long
def test_a_view_shows_what_was_just_inserted_into_it(view: SparkSession) -> None:
    for number in (2, 3):
        view.sql(f"INSERT INTO f VALUES ({number}, 'b')")
        assert ids(view.sql("SELECT * FROM f")) == list(range(1, number + 1))
        assert view.sql("SELECT count(*) FROM f").collect() == [(number,)]


def test_without_the_extension_a_view_stays_at_its_version(spark: SparkSession, path: str) -> None:
    create(spark, path)
    spark.sql("INSERT INTO f VALUES (2, 'b')")
    assert ids(spark.sql("SELECT * FROM f")) == [1]
    create(spark, path)
    assert ids(spark.sql("SELECT * FROM f")) == [1, 2]
    spark.catalog.dropTempView("f")


def test_a_view_shows_what_others_wrote(view: SparkSession, path: str) -> None:
    lake.write_dataset(pa.table({"id": [7], "word": ["z"]}), path)
    assert ids(view.table("f")) == [1, 7]


@pytest.mark.long
def test_insert_from_the_view_itself_reads_the_newest_version(view: SparkSession) -> None:
    for _ in range(3):
        view.sql("INSERT INTO f SELECT id + 1, word FROM f ORDER BY id DESC LIMIT 1")
    assert ids(view.table("f")) == [1, 2, 3, 4]
    view.sql("INSERT OVERWRITE f SELECT * FROM f WHERE id > 2")
    assert ids(view.table("f")) == [3, 4]


def test_a_frame_made_by_load_stays_pinned_in_a_view_too(
    spark_planner: SparkSession, path: str
) -> None:
    frame = spark_planner.read.format("plake").load(path)
    frame.createOrReplaceTempView("g")
    append(path, 2)
    assert [ids(frame), ids(spark_planner.table("g"))] == [[1], [1]]
    assert ids(spark_planner.sql("SELECT a.id FROM g a JOIN g b ON a.word = b.word")) == [1]
    spark_planner.catalog.dropTempView("g")


def test_a_frame_made_from_a_view_keeps_the_version_of_its_making(
    view: SparkSession, path: str
) -> None:
    frame = view.table("f")
    frame.createOrReplaceTempView("g")
    append(path, 2)
    assert [ids(frame), ids(frame.where("id > 0")), ids(view.table("g"))] == [[1]] * 3
    assert ids(frame.union(view.table("f"))) == [1, 1, 2]
    view.catalog.dropTempView("g")


@pytest.mark.parametrize("option", ["version '1'", "versionAsOf '1'", "timestampAsOf '{now}'"])
def test_a_view_with_a_version_stays_at_it(
    option: str, spark_planner: SparkSession, path: str
) -> None:
    now = lake.open_dataset(path).history()[-1].timestamp.isoformat()
    create(spark_planner, path, options=", " + option.format(now=now))
    append(path, 2)
    assert ids(spark_planner.table("f")) == [1]
    spark_planner.catalog.dropTempView("f")


def test_every_side_of_one_query_reads_one_version(view: SparkSession, path: str) -> None:
    """Each place of the view in a query has the same Python instance, which holds the version."""
    view.sql("CREATE OR REPLACE TEMPORARY VIEW narrow AS SELECT id FROM f")
    append(path, 2)
    frame = view.sql(
        "WITH c AS (SELECT * FROM f) SELECT a.id, (SELECT max(id) FROM f) AS top FROM f a "
        "JOIN c ON a.id = c.id WHERE a.id IN (SELECT id FROM narrow) UNION ALL SELECT id, id FROM f"
    )
    found: list[int] = []
    jvm: Any = view._jvm
    system = jvm.java.lang.System

    def collect(plan: Any) -> None:
        if plan.getClass().getSimpleName() == "DataSourceV2Relation":
            found.append(system.identityHashCode(plan.table()))
        for below in (plan.children(), plan.subqueries()):
            nodes = below.iterator()
            while nodes.hasNext():
                collect(nodes.next())

    collect(frame._jdf.queryExecution().analyzed())
    assert len(found) >= 5
    assert len(set(found)) == 1
    assert sorted(frame.collect()) == [(1, 1), (1, 2), (2, 2), (2, 2)]
    view.catalog.dropTempView("narrow")


@pytest.mark.long
def test_a_cached_view_is_used_until_something_is_written(view: SparkSession, path: str) -> None:
    view.sql("CACHE TABLE f")
    try:
        plan = view.table("f")._jdf.queryExecution().optimizedPlan().toString()
        assert "InMemoryRelation" in plan
        assert ids(view.table("f")) == [1]
        view.sql("INSERT INTO f VALUES (2, 'b')")
        assert ids(view.table("f")) == [1, 2]
        append(path, 3)
        assert ids(view.table("f")) == [1, 2, 3]
        view.sql("REFRESH TABLE f")
        assert ids(view.table("f")) == [1, 2, 3]
    finally:
        view.sql("UNCACHE TABLE f")
    assert ids(view.table("f")) == [1, 2, 3]


def test_a_view_with_a_schema_of_the_user_shows_new_rows(
    spark_planner: SparkSession, path: str
) -> None:
    create(spark_planner, path, columns="(id BIGINT)")
    append(path, 2)
    assert [ids(spark_planner.table("f")), spark_planner.table("f").columns] == [[1, 2], ["id"]]
    spark_planner.catalog.dropTempView("f")


def test_a_view_keeps_its_columns_where_one_was_added(view: SparkSession, path: str) -> None:
    more = pa.table({"id": [2], "word": ["b"], "more": [1.5]})
    lake.write_dataset(more, path, schema_merge=True)
    assert view.table("f").columns == ["id", "word"]
    assert ids(view.table("f")) == [1, 2]


def test_a_view_says_that_a_column_of_it_has_another_type(view: SparkSession, path: str) -> None:
    lake.write_dataset(
        pa.table({"id": ["x"], "word": ["a"]}), path, schema_merge=True, promote_to_string=True
    )
    with pytest.raises(IllegalArgumentException, match=r"id .* CREATE OR REPLACE TEMPORARY VIEW"):
        view.table("f")


def test_a_view_scans_with_pushdown_and_answers_from_the_catalog(view: SparkSession) -> None:
    view.sql("INSERT INTO f VALUES (2, 'b')")
    plan = view.sql("SELECT word FROM f WHERE id = 2")._jdf.queryExecution().executedPlan()
    assert "PushedFilters: [" in plan.toString()
    answered = view.sql("SELECT max(id) FROM f")._jdf.queryExecution().executedPlan().toString()
    assert "LocalTableScan" in answered


def test_the_switch_leaves_a_view_at_its_version(view: SparkSession, path: str) -> None:
    append(path, 2)
    view.conf.set("spark.plake.planner.enabled", "false")
    try:
        assert ids(view.table("f")) == [1]
    finally:
        view.conf.set("spark.plake.planner.enabled", "true")
    assert ids(view.table("f")) == [1, 2]


def test_a_global_view_shows_what_was_inserted(spark_planner: SparkSession, path: str) -> None:
    spark_planner.sql(f"CREATE GLOBAL TEMPORARY VIEW gf USING plake OPTIONS (path '{path}')")
    spark_planner.sql("INSERT INTO global_temp.gf VALUES (2, 'b')")
    assert ids(spark_planner.table("global_temp.gf")) == [1, 2]
    spark_planner.catalog.dropGlobalTempView("gf")


@pytest.mark.long
@pytest.mark.parametrize("form", ["{}", "array({})"])
def test_a_view_with_padded_columns_shows_new_rows_and_takes_changes(
    spark_catalog: SparkSession, tmp_path: Path, form: str
) -> None:
    sql, path = spark_catalog.sql, str(tmp_path / "padded")
    is_text = form == "{}"
    table = f"plake.default.padded_{is_text}"
    a, long = form.format("'a'"), form.format("'abcd'")
    padded: Any = "a  " if is_text else ["a  "]
    type_ = "CHAR(3)" if is_text else "ARRAY<CHAR(3)>"
    sql(f"CREATE TABLE {table} (id INT, c {type_}) LOCATION '{path}'")
    catalog = str(spark_catalog.conf.get("spark.sql.catalog.plake.catalog"))
    create(spark_catalog, path, options=f", catalog '{catalog}'")
    sql(f"INSERT INTO {table} VALUES (1, {a})")
    assert sql("SELECT * FROM f").collect() == [(1, padded)]
    sql(f"INSERT INTO f VALUES (2, {a}), (3, NULL)")
    with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
        sql(f"INSERT INTO f VALUES (4, {long})")
    sql(f"UPDATE f SET id = 4, c = {a} WHERE id = 3")
    sql("DELETE FROM f WHERE id = 1")
    both = "SELECT v.id, w.c FROM f AS v JOIN f AS w ON v.c = w.c AND v.id = w.id ORDER BY 1"
    assert sql(both).collect() == [(2, padded), (4, padded)]
    frame = spark_catalog.read.format("plake").option("catalog", catalog).load(path)
    frame.createOrReplaceTempView("f")
    sql("UPDATE f SET id = 5 WHERE id = 2")
    sql(f"INSERT INTO f VALUES (6, {a})")
    assert sql(f"SELECT id FROM {table} ORDER BY 1").collect() == [(4,), (5,), (6,)]
    spark_catalog.catalog.dropTempView("f")
