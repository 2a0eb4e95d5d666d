"""What statements say of a table: its format, where it is, and how it is made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.doors.conftest import activate

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark_catalog: SparkSession) -> Iterator[SparkSession]:
    spark_catalog.sql("CREATE NAMESPACE plake.said")
    yield spark_catalog
    spark_catalog.sql("DROP NAMESPACE plake.said CASCADE")


@pytest.mark.long
def test_a_table_of_another_format_is_refused(session: SparkSession) -> None:
    for form in ("delta", "iceberg", "csv", "ORC"):
        for text in (
            f"CREATE TABLE plake.said.t (a INT) USING {form}",
            f"CREATE OR REPLACE TABLE plake.said.t USING {form} AS SELECT 1 AS a",
        ):
            with pytest.raises(AnalysisException, match="its tables are plake's") as refused:
                session.sql(text)
            assert form.lower() in str(refused.value).lower()
    with pytest.raises(AnalysisException, match="its tables are plake's"):
        session.range(3).write.format("orc").saveAsTable("plake.said.t")
    assert session.sql("SHOW TABLES IN plake.said").collect() == []


@pytest.mark.long
def test_a_table_without_a_format_or_of_plake_is_made(session: SparkSession) -> None:
    session.range(3).write.saveAsTable("plake.said.a")  # Spark names its default format here
    session.range(3).write.format("plake").saveAsTable("plake.said.b")
    session.sql("CREATE TABLE plake.said.c (a INT) USING PLAKE")
    session.sql("CREATE TABLE plake.said.d AS SELECT 1 AS a")
    assert session.table("plake.said.a").count() == session.table("plake.said.b").count() == 3


@pytest.mark.long
def test_a_shown_create_statement_makes_the_table_again(
    session: SparkSession, tmp_path: Path
) -> None:
    session.sql(
        "CREATE TABLE plake.said.t (id BIGINT NOT NULL COMMENT 'the key', v VARCHAR(3), "
        "d DOUBLE DEFAULT 1.5, p STRING DEFAULT 'x', `a b` STRUCT<x: INT>) PARTITIONED BY (p) "
        "COMMENT \"it's\" TBLPROPERTIES ('team' = \"a'b\")"
    )
    ((made,),) = session.sql("SHOW CREATE TABLE plake.said.t").collect()
    assert "LOCATION" not in made
    session.sql("INSERT INTO plake.said.t (id) VALUES (1)")
    session.sql("DROP TABLE plake.said.t")
    session.sql(made)
    assert session.table("plake.said.t").count() == 0
    ((again,),) = session.sql("SHOW CREATE TABLE plake.said.t").collect()
    assert again == made
    session.sql("INSERT INTO plake.said.t (id) VALUES (1)")
    (row,) = session.table("plake.said.t").collect()
    assert (row["d"], row["p"]) == (1.5, "x")
    session.sql(f"CREATE TABLE plake.said.own (a INT) LOCATION '{tmp_path}/own'")
    ((made,),) = session.sql("SHOW CREATE TABLE plake.said.own").collect()
    assert f"{tmp_path}/own" in made


def replace(
    frame: DataFrame,
    table: str,
    form: str,
    option: str,
    door: str = "saveAsTable",
    *,
    by: str | None = None,
    **more: object,
) -> None:
    write = frame.write.format(form).mode("overwrite").options(**{option: "k = 1"}, **more)
    getattr(write if by is None else write.partitionBy(by), door)(table)


@pytest.mark.parametrize(
    "option", [pytest.param("overwriteWhere", marks=pytest.mark.long), "replaceWhere"]
)
def test_the_rows_of_a_condition_are_replaced_by_name(session: SparkSession, option: str) -> None:
    """saveAsTable refused the option, or would have replaced the table."""
    activate(session)  # saveAsTable takes settings from the session that this thread used last
    make = "AS SELECT id, id % 3 AS k FROM range(9)"
    session.sql(f"CREATE TABLE plake.said.t PARTITIONED BY (k) {make}")
    session.sql(f"CREATE TABLE spark_catalog.default.replaced USING plake {make}")
    new, wrong = session.sql("SELECT 100 AS id, 1L AS k"), session.sql("SELECT 5L AS id, 2L AS k")
    for table, form in (("plake.said.t", "parquet"), ("spark_catalog.default.replaced", "plake")):
        for door in ("insertInto", "saveAsTable"):
            replace(new, table, form, option, door)
            assert session.table(table).count() == 7
            with pytest.raises(
                PySparkException, match="one with k = 2, id = 5; nothing"
            ) as refused:
                replace(wrong, table, form, option, door)
            assert "BoundPredicate" not in str(refused.value)
        with pytest.raises(AnalysisException, match="partitionBy names"):
            replace(new, table, form, option, by="id")
        replace(new.selectExpr("*", "1 AS more"), table, form, option, mergeSchema=True)
        assert session.table(table).selectExpr("sum(id)", "sum(more)").collect() == [(124, 1)]
    with pytest.raises(AnalysisException, match="leave it out where the table is new"):
        replace(new, "plake.said.missing", "plake", option)
    session.sql("DROP TABLE spark_catalog.default.replaced")


def test_a_dataset_of_a_folders_own_catalog_gets_no_name_in_another(
    session: SparkSession, tmp_path: Path
) -> None:
    session.range(3).write.format("plake").mode("append").save(f"{tmp_path}/own")
    with pytest.raises(AnalysisException, match="the folder's own catalog"):
        session.sql(f"CREATE TABLE plake.said.t LOCATION '{tmp_path}/own'")
    session.sql(f"CREATE TABLE plake.said.t AS SELECT * FROM plake.`{tmp_path}/own`")
    assert session.table("plake.said.t").count() == 3
    session.sql(f"CREATE TABLE plake.`{tmp_path}/named` AS SELECT 1 AS a")
    session.sql(f"CREATE TABLE plake.said.u LOCATION '{tmp_path}/named'")
    assert session.table("plake.said.u").count() == 1


def test_a_catalog_without_views_shows_a_clustered_table_as_a_statement_that_makes_it(
    spark_catalog: SparkSession,
) -> None:
    """SHOW CREATE TABLE named PARTITIONED BY (cluster_by(id)), which plake refuses."""
    sql, conf = spark_catalog.sql, spark_catalog.conf
    for key in ("catalog", "warehouse"):
        conf.set(f"spark.sql.catalog.no_views.{key}", conf.get(f"spark.sql.catalog.plake.{key}"))
    conf.set("spark.sql.catalog.no_views", "io.plake.spark.PlakeCatalog")
    sql("CREATE TABLE no_views.default.lies_together (id INT, day DATE) CLUSTER BY (id)")
    shown = sql("SHOW CREATE TABLE no_views.default.lies_together").first()[0]
    described = sql("DESCRIBE EXTENDED no_views.default.lies_together").collect()
    sql("DROP TABLE no_views.default.lies_together PURGE")
    sql(shown)
    assert sql("SHOW CREATE TABLE plake.default.lies_together").first()[0] == shown.replace(
        "no_views", "plake"
    )
    assert described[0].col_name == "id"
    sql("DROP TABLE no_views.default.lies_together PURGE")
