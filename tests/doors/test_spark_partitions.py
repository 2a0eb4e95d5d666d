"""SHOW PARTITIONS and ANALYZE TABLE, compared with Spark's own Parquet tables."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = """
SELECT * FROM VALUES
  (1, 1, 'a', DATE'2026-01-01', true), (2, 1, 'b/=c', DATE'2026-01-02', false),
  (3, 2, 'a', DATE'2026-01-01', true), (4, 2, NULL, NULL, NULL), (5, 1, 'a', DATE'2026-01-01', true)
  AS t(id, p, s, d, b)
"""


@pytest.fixture(scope="module")
def tables(spark_catalog: SparkSession) -> list[str]:
    """The same rows in a table of plake and in one of Parquet."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.parts")
    names = ["plake.parts.t", "spark_catalog.default.parts_t"]
    for name in names:
        spark_catalog.sql(
            f"CREATE TABLE {name} USING {'plake' if 'plake' in name else 'parquet'} "
            f"PARTITIONED BY (p, s, d, b) AS {ROWS}"
        )
    return names


def partitions(spark: SparkSession, table: str, spec: str = "") -> list[str]:
    found = spark.sql(f"SHOW PARTITIONS {table} {spec}").collect()
    # Spark's own tables show the folder's name where Spark shows other tables' values.
    return sorted(row[0].replace("__HIVE_DEFAULT_PARTITION__", "null") for row in found)


@pytest.mark.parametrize("spec", ["", "PARTITION (p = 1)", "PARTITION (p = 2, s = 'a')"])
def test_partitions_are_those_of_spark_s_own_table(
    spark_catalog: SparkSession, tables: list[str], spec: str
) -> None:
    ours, native = (partitions(spark_catalog, name, spec) for name in tables)
    assert ours == native
    assert len(ours) == {"": 4, "PARTITION (p = 1)": 2}.get(spec, 1)


@pytest.mark.long
def test_partitions_follow_from_rows(spark_catalog: SparkSession) -> None:
    spark = spark_catalog
    spark.sql("CREATE NAMESPACE IF NOT EXISTS plake.parts")
    spark.sql(
        "CREATE TABLE plake.parts.u PARTITIONED BY (p) AS SELECT id, id % 3 AS p FROM range(6)"
    )
    assert partitions(spark, "plake.parts.u") == ["p=0", "p=1", "p=2"]
    spark.sql("DELETE FROM plake.parts.u WHERE p = 1")
    spark.sql("INSERT INTO plake.parts.u VALUES (9, NULL)")
    assert partitions(spark, "plake.parts.u") == ["p=0", "p=2", "p=null"]
    with pytest.raises(AnalysisException, match="INSERT rows to add one"):
        spark.sql("ALTER TABLE plake.parts.u ADD PARTITION (p = 7)")
    assert spark.table("plake.parts.u").count() == 5
    spark.sql("INSERT OVERWRITE plake.parts.u PARTITION (p = 0) SELECT 70L")
    assert spark.table("plake.parts.u").where("p = 0").collect() == [(70, 0)]
    spark.sql("DROP TABLE plake.parts.u")


def test_a_dropped_partition_takes_its_rows(spark_catalog: SparkSession) -> None:
    """DROP PARTITION and TRUNCATE … PARTITION were refused."""
    left, count = {}, {}
    for name in ("plake.parts.dropped", "spark_catalog.default.parts_dropped"):
        sql = spark_catalog.sql
        sql(
            f"CREATE TABLE {name} USING {'plake' if 'plake' in name else 'parquet'} "
            f"PARTITIONED BY (s, d) AS SELECT id, s, d FROM ({ROWS})"
        )
        sql(
            f"ALTER TABLE {name} DROP PARTITION (s = 'a', d = DATE'2026-01-01'), "
            "PARTITION (s = NULL, d = NULL)"
        )
        missing = "PARTITION (s = 'a', d = DATE'2026-01-01')"
        with pytest.raises(AnalysisException, match="PARTITIONS_NOT_FOUND"):
            sql(f"ALTER TABLE {name} DROP {missing}")
        sql(f"ALTER TABLE {name} DROP IF EXISTS {missing}")
        left[name] = sql(f"SELECT * FROM {name}").collect()
        sql(f"TRUNCATE TABLE {name} PARTITION (s = 'b/=c', d = DATE'2026-01-02')")
        count[name] = spark_catalog.table(name).count()
        if "plake" in name:
            assert spark_catalog.table(f"{name}.history").count() == 3  # one commit for each
        sql(f"DROP TABLE {name}")
    assert len(set(map(str, left.values()))) == 1
    assert len(left["plake.parts.dropped"]) == 1
    assert set(count.values()) == {0}


def test_a_table_without_partition_columns_has_none(spark_catalog: SparkSession) -> None:
    spark_catalog.sql("CREATE OR REPLACE TABLE plake.whole (a INT)")
    with pytest.raises(AnalysisException, match="PARTITION_SCHEMA_IS_EMPTY"):
        spark_catalog.sql("SHOW PARTITIONS plake.whole")


@pytest.mark.parametrize(
    "rest",
    [
        "COMPUTE STATISTICS",
        "COMPUTE STATISTICS NOSCAN",
        "PARTITION (p = 1) COMPUTE STATISTICS",
        "COMPUTE STATISTICS FOR ALL COLUMNS",
        "COMPUTE STATISTICS FOR COLUMNS ID, p",
    ],
)
def test_statistics_are_there_already(
    spark_catalog: SparkSession, tables: list[str], rest: str
) -> None:
    assert spark_catalog.sql(f"ANALYZE TABLE {tables[0]} {rest}").collect() == []
    plan = spark_catalog.table(tables[0])._jdf.queryExecution().optimizedPlan()
    names = spark_catalog.table(tables[0]).select("_file").distinct().collect()
    folder = spark_catalog.sql(f"DESCRIBE EXTENDED {tables[0]}").where("col_name = 'Location'")
    root = folder.first()["data_type"].removeprefix("file:")
    footers = [pq.read_metadata(f"{root}/{row[0]}") for row in names]
    groups = [one.row_group(i) for one in footers for i in range(one.num_row_groups)]
    # Only the column of integers is in the files.
    size_bytes = sum(group.column(0).total_compressed_size for group in groups)
    assert str(plan.stats().sizeInBytes()) == str(size_bytes)
    assert spark_catalog.table(f"{tables[0]}.history").count() == 1


def test_a_column_that_is_not_there_has_no_statistics(
    spark_catalog: SparkSession, tables: list[str]
) -> None:
    with pytest.raises(AnalysisException, match=r"plake.parts.t has no column nope"):
        spark_catalog.sql(f"ANALYZE TABLE {tables[0]} COMPUTE STATISTICS FOR COLUMNS id, nope")
