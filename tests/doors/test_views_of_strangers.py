"""A view is a text that somebody else may have written: it queries tables and no more."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

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

ALLOWED = "spark.plake.views.allowed"
GIVEN = "('java.lang.System', 'setProperty', 'planted', 'ran')"
REFLECT = f"reflect{GIVEN}"


def path_of(spark: SparkSession) -> Path:
    url = spark.conf.get("spark.sql.catalog.plake.catalog") or ""
    return Path(url.removeprefix("sqlite://"))


@pytest.fixture
def spark_views(spark_catalog: SparkSession) -> Iterator[SparkSession]:
    spark_catalog.sql("CREATE NAMESPACE plake.den")
    spark_catalog.sql("CREATE TABLE plake.den.orders AS SELECT id FROM range(3)")
    spark_catalog.sql("CREATE VIEW plake.den.v AS SELECT 'x' AS a")
    yield spark_catalog
    spark_catalog.conf.unset(ALLOWED)
    path = path_of(spark_catalog)
    os.chown(path, os.geteuid(), -1) if os.geteuid() == 0 else None
    spark_catalog.sql("DROP NAMESPACE plake.den CASCADE")


def plant(spark: SparkSession, text: str, **others: Any) -> None:
    """Give a view another text, as who can write to the catalog can."""
    with closing(sqlite3.connect(path_of(spark))) as catalog, catalog:
        found = "SELECT document_json FROM dataset_views WHERE lookup = 'v'"
        ((document,),) = catalog.execute(found).fetchall()
        view = {**json.loads(document), "sql": text, **others}
        catalog.execute(
            "UPDATE dataset_views SET document_json = ? WHERE lookup = 'v'", (json.dumps(view),)
        )
    catalog.close()


VIEW = "plake.den.v"
# Each door through which Spark runs the text of a view.
DOORS: dict[str, Callable[[SparkSession], Any]] = {
    "select": lambda s: s.sql(f"SELECT * FROM {VIEW}").collect(),
    "table": lambda s: s.table(VIEW).collect(),
    "read.table": lambda s: s.read.table(VIEW).collect(),
    "subquery": lambda s: s.sql(f"SELECT (SELECT max(a) FROM {VIEW}) AS m").collect(),
    "join": lambda s: s.sql(f"SELECT * FROM plake.den.orders JOIN {VIEW} ON a = id").collect(),
    "cte": lambda s: s.sql(f"WITH c AS (SELECT * FROM {VIEW}) SELECT * FROM c").collect(),
    "insert": lambda s: s.sql(f"INSERT INTO plake.den.orders SELECT 1 FROM {VIEW}"),
    "ctas": lambda s: s.sql(f"CREATE TABLE plake.den.copy AS SELECT * FROM {VIEW}"),
    "delete": lambda s: s.sql(f"DELETE FROM plake.den.orders WHERE id IN (SELECT 1 FROM {VIEW})"),
    "merge": lambda s: s.sql(
        f"MERGE INTO plake.den.orders o USING {VIEW} v ON o.id = 9 WHEN MATCHED THEN DELETE"
    ),
    "temporary view": lambda s: s.sql(f"CREATE TEMPORARY VIEW t AS SELECT * FROM {VIEW}"),
    "view": lambda s: s.sql(f"CREATE VIEW plake.den.over AS SELECT * FROM {VIEW}"),
    "cache": lambda s: s.sql(f"CACHE TABLE c AS SELECT * FROM {VIEW}"),
    "cache table": lambda s: s.sql(f"CACHE TABLE {VIEW}"),
    "explain": lambda s: s.sql(f"SELECT * FROM {VIEW}").explain(),
    "identifier": lambda s: s.sql(f"SELECT * FROM IDENTIFIER('{VIEW}')").collect(),
    "describe query": lambda s: s.sql(f"DESCRIBE QUERY SELECT * FROM {VIEW}").collect(),
}
CODE = {
    "reflect": f"SELECT {REFLECT} AS a",
    "by three names": f"SELECT system.builtin.{REFLECT} AS a",
    "java_method": f"SELECT java_method{GIVEN} AS a",
    "try_reflect": f"SELECT try_{REFLECT} AS a",
    "in quotes": f"SELECT `ReFlect`{GIVEN} AS a",
    "in a subquery": f"SELECT 'x' AS a WHERE (SELECT {REFLECT}) IS NOT NULL",
    "in a CTE": f"WITH c AS (SELECT {REFLECT} AS a) SELECT a FROM c",
    "in a window": f"SELECT max(a) OVER (ORDER BY {REFLECT}) AS a FROM VALUES ('x') AS t(a)",
    "in a lateral": f"SELECT t.a FROM VALUES (1) AS v(i), LATERAL (SELECT {REFLECT} AS a) AS t",
    "in a list": f"SELECT 'x' AS a FROM VALUES ('x'), ({REFLECT}) AS t(b)",
    "in ORDER BY": f"SELECT 'x' AS a FROM VALUES (1), (2) AS t(i) ORDER BY {REFLECT}",
    "TRANSFORM": "SELECT TRANSFORM(i) USING 'sh -c id' AS (a STRING) FROM VALUES (1) AS t(i)",
    "file": "SELECT value AS a FROM text.`/etc/hostname`",
    "file in quotes": "SELECT value AS a FROM `TEXT`.`/etc/hostname`",
    "class": "SELECT value AS a FROM "
             "`org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`/etc/hostname`",
    "jdbc": "SELECT 'x' AS a FROM jdbc.`jdbc:postgresql://192.0.2.1/x`",
    "identifier": "SELECT value AS a FROM IDENTIFIER('te' || 'xt.`/etc/hostname`')",
    "called identifier": f"SELECT IDENTIFIER('re' || 'flect'){GIVEN} AS a",
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_ran(spark_views: SparkSession) -> Iterator[None]:
    yield
    assert spark_views._jvm.java.lang.System.clearProperty("planted") is None  # type: ignore[union-attr]


def test_a_view_that_runs_code_does_not_run(spark_views: SparkSession) -> None:
    for name, text in CODE.items():
        plant(spark_views, text)
        with pytest.raises(AnalysisException, match="does not run"):
            print(name, spark_views.sql(f"SELECT * FROM {VIEW}").collect())
        ((shown,),) = spark_views.sql(f"SHOW CREATE TABLE {VIEW}").collect()
        assert text in shown
        with pytest.raises(PySparkException):  # some by Spark, for other reasons
            spark_views.sql(f"CREATE VIEW plake.den.made AS {text}")


def test_a_view_does_not_show_the_driver_s_environment(spark_views: SparkSession) -> None:
    """Spark puts variables into a text before it parses the text."""
    for text in ("SELECT '${env:HOME}' AS a", "SELECT '${spark.sql.catalog.plake.url}' AS a"):
        plant(spark_views, text)
        with pytest.raises(AnalysisException, match=r"names a variable.*does not run"):
            spark_views.sql(f"SELECT * FROM {VIEW}").collect()


def test_no_door_runs_it(spark_views: SparkSession) -> None:
    plant(spark_views, CODE["reflect"])
    for name, door in DOORS.items():
        with pytest.raises(AnalysisException, match="does not run"):
            print(name, door(spark_views))
    # A view of the reader's own over it reads it too.
    plant(spark_views, "SELECT 'x' AS a")
    spark_views.sql(f"CREATE VIEW plake.den.over AS SELECT a FROM {VIEW}")
    plant(spark_views, CODE["reflect"])
    with pytest.raises(AnalysisException, match="does not run"):
        spark_views.sql("SELECT * FROM plake.den.over").collect()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spark.sql.catalog.evil", "SELECT a FROM evil.x.y"),
        ("spark.sql.catalog.spark_catalog", "SELECT a FROM spark_catalog.default.nothing"),
    ],
)
def test_a_view_brings_no_settings_that_name_classes(
    spark_views: SparkSession, name: str, text: str
) -> None:
    """A catalog is an object of a class that a setting names, and Spark reads views' settings."""
    plant(spark_views, text, configs={name: "org.example.Planted"})
    with pytest.raises(AnalysisException) as caught:
        spark_views.sql(f"SELECT * FROM {VIEW}").collect()
    assert "Planted" not in str(caught.value)


@pytest.mark.parametrize("text", [
    "SELECT id AS a FROM plake.den.orders",
    "SELECT count(*) AS a FROM plake.den.orders o JOIN plake.den.orders p USING (id)",
    "WITH c AS (SELECT id FROM plake.den.orders) SELECT sum(id) OVER (ORDER BY id) AS a FROM c",
    "SELECT explode(array(1, 2)) AS a",
    "SELECT a FROM VALUES (1), (2) AS t(a)",
    "SELECT id AS a FROM range(3)",
])  # fmt: skip
def test_views_that_query_run(spark_views: SparkSession, text: str) -> None:
    spark_views.sql(f"CREATE OR REPLACE VIEW plake.den.made AS {text}")
    expected = sorted(map(tuple, spark_views.sql(text).collect()))
    assert sorted(map(tuple, spark_views.table("plake.den.made").collect())) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_view_of_a_catalog_of_another_user_is_shown_and_does_not_run(
    spark_views: SparkSession,
) -> None:
    text = "SELECT 'theirs' AS a"
    plant(spark_views, text)
    os.chown(path_of(spark_views), 12345, -1)
    for name, door in DOORS.items():
        with pytest.raises(AnalysisException, match="belongs to somebody else"):
            print(name, door(spark_views))
    ((shown,),) = spark_views.sql(f"SHOW CREATE TABLE {VIEW}").collect()
    assert text in shown
    described = spark_views.sql(f"DESCRIBE TABLE EXTENDED {VIEW}").collect()
    assert [row for row in described if row["data_type"] == text]
    assert "v" in [row["viewName"] for row in spark_views.sql("SHOW VIEWS IN plake.den").collect()]
    spark_views.conf.set(ALLOWED, "other, plake")
    assert spark_views.table(VIEW).collect() == [("theirs",)]
    plant(spark_views, CODE["reflect"])
    with pytest.raises(AnalysisException, match="does not run"):
        spark_views.table(VIEW).collect()
