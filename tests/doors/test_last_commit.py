"""What the last write of a session did, which Spark's statements do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake

pytestmark = pytest.mark.spark

TABLE = "plake.default.counted"
COUNTS = ("rows_inserted", "rows_updated", "rows_deleted", "rows_added", "rows_removed")


@pytest.fixture(scope="module")
def table(spark_catalog: SparkSession) -> Iterator[str]:
    spark_catalog.sql(f"CREATE TABLE {TABLE} (id BIGINT, s STRING)")
    yield TABLE
    spark_catalog.sql(f"DROP TABLE {TABLE}")


def test_the_counts_of_each_statement_and_write(
    spark_catalog: SparkSession, table: str, tmp_path: Path
) -> None:
    spark = spark_catalog

    def counts(statement: str) -> tuple[str, dict[str, int]] | None:
        spark.sql(statement)
        found = lake.spark.last_commit(spark)
        if found is None:
            return None
        assert found.version == spark.table(f"{table}.history").count()
        told = {name: found.summary[name] for name in COUNTS if found.summary.get(name)}
        return found.operation, told

    insert = f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    assert counts(insert) == ("append", {"rows_added": 3})
    update = ("update", {"rows_updated": 2, "rows_added": 2, "rows_removed": 2})
    assert counts(f"UPDATE {table} SET s = 'z' WHERE id < 3") == update
    deleted = ("delete", {"rows_deleted": 1, "rows_removed": 1})
    assert counts(f"DELETE FROM {table} WHERE id = 3") == deleted
    merge = (
        f"MERGE INTO {table} t USING (SELECT explode(array(1L, 2L, 8L, 9L)) AS id) u ON t.id = u.id"
        " WHEN MATCHED AND u.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'm'"
        " WHEN NOT MATCHED THEN INSERT (id) VALUES (u.id)"
    )
    assert counts(merge) == (
        "merge",
        {
            "rows_inserted": 2,
            "rows_updated": 1,
            "rows_deleted": 1,
            "rows_added": 3,
            "rows_removed": 2,
        },
    )
    assert counts(f"DELETE FROM {table} WHERE id = 77") is None
    spark.range(5).write.format("plake").mode("append").save(str(tmp_path / "t"))
    found = lake.spark.last_commit(spark)
    assert found is not None
    assert found.summary["rows_added"] == 5
    spark.sql(f"TRUNCATE TABLE {table}")  # it is no write of Spark: not the one before it
    assert lake.spark.last_commit(spark) is None


def test_a_session_does_not_tell_of_another_one(spark_catalog: SparkSession, table: str) -> None:
    spark_catalog.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    assert lake.spark.last_commit(spark_catalog) is not None
    assert lake.spark.last_commit(spark_catalog.newSession()) is None
