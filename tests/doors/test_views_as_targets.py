"""Statements that change rows, on views that are made of queries: they are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STATEMENTS = {
    "delete": "DELETE FROM {} WHERE id = 1",
    "delete all": "DELETE FROM {}",
    "delete by a name": "DELETE FROM {} AS x WHERE x.id IN (SELECT id FROM range(3))",
    "update": "UPDATE {} SET id = 100 WHERE id = 2",
    "merge": "MERGE INTO {} AS x USING (SELECT 3L AS id) AS n ON x.id = n.id "
    "WHEN MATCHED THEN DELETE",
    "merge that inserts": "MERGE INTO {} AS x USING (SELECT 3L AS id, 5L AS k) AS n "
    "ON x.id = n.id AND false WHEN NOT MATCHED THEN INSERT *",
}
VIEWS = {
    "filtered": "CREATE TEMP VIEW {} AS SELECT * FROM plake.made.t WHERE id < 5",
    "everything": "CREATE TEMP VIEW {} AS SELECT * FROM plake.made.t",
    "columns": "CREATE TEMP VIEW {} AS SELECT k, id FROM plake.made.t",
    "aggregated": "CREATE TEMP VIEW {} AS SELECT k, count(*) AS id FROM plake.made.t GROUP BY k",
    "joined": "CREATE TEMP VIEW {} AS SELECT t.* FROM plake.made.t JOIN range(3) AS r USING (id)",
    "global_temp.shared": "CREATE GLOBAL TEMP VIEW shared AS SELECT * FROM plake.made.t",
    "spark_catalog.default.kept": "CREATE VIEW {} AS SELECT * FROM plake.made.t",
}


@pytest.fixture(scope="module")
def spark_made(spark_catalog: SparkSession) -> Iterator[SparkSession]:
    spark = spark_catalog
    spark.sql("CREATE NAMESPACE plake.made")
    spark.sql("CREATE TABLE plake.made.t AS SELECT id, id % 3 AS k FROM range(10)")
    for name, text in VIEWS.items():
        spark.sql(text.format(name))
    spark.table("plake.made.t").where("id < 7").createOrReplaceTempView("a_frame")
    spark.sql("CREATE TEMP VIEW other AS SELECT * FROM everything WHERE id > 0")
    yield spark
    for name in (*VIEWS, "a_frame", "other"):
        spark.sql(f"DROP VIEW {name}")
    spark.sql("DROP NAMESPACE plake.made CASCADE")


@pytest.mark.long
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("view", [*VIEWS, "a_frame", "other"])
def test_no_statement_changes_a_view_of_a_query(
    spark_made: SparkSession, view: str, statement: str
) -> None:
    """Spark ended in an INTERNAL_ERROR, or called the target `unknown`."""
    before = spark_made.sql("SELECT max(version) FROM plake.made.t.history").collect()
    reason = f"changes tables, and the view {view} is made of a query"
    with pytest.raises(PySparkException, match=reason):
        spark_made.sql(STATEMENTS[statement].format(view))
    assert spark_made.sql("SELECT max(version) FROM plake.made.t.history").collect() == before
    assert spark_made.table("plake.made.t").count() == 10


@pytest.mark.skipif(pyspark.__version__.startswith("4.1."), reason="4.1 has no such views")
def test_no_statement_changes_a_view_of_the_catalog(spark_made: SparkSession) -> None:
    spark_made.sql("CREATE VIEW plake.made.v AS SELECT * FROM plake.made.t")
    for text in (*STATEMENTS.values(), "INSERT INTO {} VALUES (1, 1)"):
        with pytest.raises(PySparkException, match=r"made.v is a view of the catalog plake"):
            spark_made.sql(text.format("plake.made.v"))
    assert spark_made.table("plake.made.v").count() == 10


def test_a_view_without_a_table_of_plake_is_left_to_spark(spark_made: SparkSession) -> None:
    spark_made.sql("CREATE OR REPLACE TEMP VIEW plain AS SELECT * FROM range(3)")
    with pytest.raises(PySparkException) as caught:
        spark_made.sql("UPDATE plain SET id = 1")
    assert "of plake" not in str(caught.value)
    spark_made.sql("DROP VIEW plain")


@pytest.mark.long
def test_the_source_of_a_statement_may_be_such_a_view(spark_made: SparkSession) -> None:
    spark_made.sql("CREATE TABLE plake.made.target AS SELECT id, k FROM plake.made.t WHERE id < 2")
    spark_made.sql(
        "MERGE INTO plake.made.target AS t USING filtered AS n ON t.id = n.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    spark_made.sql("DELETE FROM plake.made.target WHERE id IN (SELECT id FROM other WHERE id < 3)")
    left = spark_made.table("plake.made.target").orderBy("id").collect()
    assert [row.id for row in left] == [0, 3, 4]
