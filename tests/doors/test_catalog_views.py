"""Views in plake's catalog: texts that Spark reads, with the names that were current then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        pyspark.__version__.startswith("4.1."), reason="Spark 4.1 has no views in such catalogs"
    ),
]


@pytest.fixture
def spark_views(spark_catalog: SparkSession) -> Iterator[SparkSession]:
    spark_catalog.sql("CREATE NAMESPACE plake.shop")
    spark_catalog.sql("CREATE TABLE plake.shop.orders AS SELECT id, id % 3 AS k FROM range(10)")
    yield spark_catalog
    spark_catalog.sql("USE spark_catalog.default")
    spark_catalog.sql("DROP NAMESPACE plake.shop CASCADE")


def rows(spark: SparkSession, text: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(text).collect()]


@pytest.mark.long
def test_a_view_shows_what_its_text_gives_now(spark_views: SparkSession) -> None:
    spark = spark_views
    spark.sql("USE plake.shop")
    spark.sql(
        "CREATE VIEW totals (key COMMENT 'the key', n) COMMENT 'by key' TBLPROPERTIES ('a' = 'b') "
        "AS SELECT k, count(*) AS c FROM orders GROUP BY k"
    )
    spark.sql("USE spark_catalog.default")  # names in the text are those of then
    assert rows(spark, "SELECT * FROM plake.shop.totals ORDER BY key") == [(0, 4), (1, 3), (2, 3)]
    spark.sql("DELETE FROM plake.shop.orders WHERE k = 0")
    assert rows(spark, "SELECT * FROM plake.shop.TOTALS ORDER BY key") == [(1, 3), (2, 3)]
    spark.sql("CREATE VIEW plake.shop.over AS SELECT max(n) AS most FROM plake.shop.totals")
    assert rows(spark, "SELECT most FROM plake.shop.over") == [(3,)]
    described = str(rows(spark, "DESCRIBE TABLE EXTENDED plake.shop.totals"))
    assert "the key" in described
    assert "by key" in described
    assert [row[1] for row in rows(spark, "SHOW VIEWS IN plake.shop")] == ["over", "totals"]
    assert ("a", "b") in rows(spark, "SHOW TBLPROPERTIES plake.shop.totals")
    ((made,),) = rows(spark, "SHOW CREATE TABLE plake.shop.over")
    spark.sql("DROP VIEW plake.shop.over")
    spark.sql(str(made))
    assert rows(spark, "SELECT most FROM plake.shop.over") == [(3,)]


@pytest.mark.long
def test_a_view_is_replaced_renamed_and_dropped(spark_views: SparkSession) -> None:
    spark = spark_views
    spark.sql("CREATE VIEW plake.shop.v AS SELECT 1 AS a")
    spark.sql("CREATE VIEW IF NOT EXISTS plake.shop.v AS SELECT 2 AS a")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("CREATE VIEW plake.shop.V AS SELECT 2 AS a")
    assert rows(spark, "SELECT * FROM plake.shop.v") == [(1,)]
    spark.sql("CREATE OR REPLACE VIEW plake.shop.v AS SELECT 3 AS b")
    spark.sql("ALTER VIEW plake.shop.v SET TBLPROPERTIES ('x' = 'y')")
    spark.sql("ALTER VIEW plake.shop.v RENAME TO plake.shop.w")
    assert rows(spark, "SELECT b FROM plake.shop.w") == [(3,)]
    spark.sql("ALTER VIEW plake.shop.w AS SELECT 4 AS c")
    assert rows(spark, "SELECT c FROM plake.shop.w") == [(4,)]
    spark.sql("DROP VIEW plake.shop.w")
    spark.sql("DROP VIEW IF EXISTS plake.shop.w")
    with pytest.raises(AnalysisException, match="VIEW_NOT_FOUND"):
        spark.sql("DROP VIEW plake.shop.w")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM plake.shop.w")


@pytest.mark.long
def test_a_view_and_a_table_are_not_taken_for_each_other(spark_views: SparkSession) -> None:
    spark = spark_views
    spark.sql("CREATE VIEW plake.shop.v AS SELECT 1L AS id, 1L AS k")
    for text in (
        "CREATE TABLE plake.shop.v (a INT)",
        "CREATE TABLE plake.shop.v AS SELECT 1 AS a",
        "CREATE OR REPLACE TABLE plake.shop.v AS SELECT 1 AS a",
        "ALTER TABLE plake.shop.orders RENAME TO plake.shop.v",
        "CREATE VIEW plake.shop.orders AS SELECT 1 AS a",
        "CREATE OR REPLACE VIEW plake.shop.orders AS SELECT 1 AS a",
        "INSERT INTO plake.shop.v VALUES (2, 2)",
        "DELETE FROM plake.shop.v",
        "DROP TABLE plake.shop.v",
        "DROP VIEW plake.shop.orders",
        "CREATE VIEW plake.`/tmp/nosuch` AS SELECT 1 AS a",
    ):
        with pytest.raises(PySparkException):
            spark.sql(text)
    assert rows(spark, "SELECT * FROM plake.shop.v") == [(1, 1)]
    assert rows(spark, "SELECT count(*) FROM plake.shop.orders") == [(10,)]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (
            {"type": "udt", "class": "planted.Type", "pyClass": None, "sqlType": "string"},
            "type of users",
        ),
        (None, "PLAKE_CORRUPT_DATASET"),
    ],
)
def test_a_view_of_strangers_makes_no_object(
    spark_views: SparkSession, columns: object, reason: str
) -> None:
    spark_views.sql("CREATE VIEW plake.shop.v AS SELECT 1 AS a")
    url = spark_views.conf.get("spark.sql.catalog.plake.catalog") or ""
    with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as catalog, catalog:
        ((text,),) = catalog.execute("SELECT document_json FROM dataset_views").fetchall()
        view = json.loads(text)
        field = {"name": "a", "type": columns, "nullable": True, "metadata": {}}
        changed = {"type": "struct", "fields": [field]} if columns else columns
        view["columns"] = json.dumps(changed) if columns else None
        catalog.execute("UPDATE dataset_views SET document_json = ?", (json.dumps(view),))
    catalog.close()
    with pytest.raises(AnalysisException, match=reason):
        spark_views.sql("SELECT * FROM plake.shop.v")
    spark_views.sql("DROP NAMESPACE plake.shop CASCADE")
    spark_views.sql("CREATE NAMESPACE plake.shop")
