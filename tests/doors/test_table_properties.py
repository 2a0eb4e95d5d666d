"""TBLPROPERTIES with names of plake's own settings set them, and are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.tables.table_properties import OWN

pytestmark = pytest.mark.spark


def shown(spark: SparkSession, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def properties(spark: SparkSession, path: Path) -> dict[str, Any]:
    """Those that were chosen, of a dataset in its folder's catalog or in that of the session."""
    own = (path / "_plake" / "catalog.db").exists()
    catalog = None if own else spark.conf.get("spark.sql.catalog.plake.catalog")
    found = lake.open_dataset(str(path), catalog=catalog)
    chosen = {name: value for name, value in found.properties.items() if name in OWN}
    return {**chosen, "texts": found.table_properties}


def test_a_table_is_created_with_them_and_files_follow(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "d"
    table = f"plake.`{path}`"
    spark_catalog.sql(
        f"CREATE TABLE {table} (i BIGINT, `a,b` STRING, c STRING) TBLPROPERTIES ("
        "'compression' = 'gzip', 'AUTO_COMPACT' = 'True', 'auto_compact_min_files' = '7', "
        "'target_file_size_bytes' = '64m', 'sort_by' = 'i, `a,b`', 'rewrite_threshold' = '0.5', "
        "'index_columns' = 'C', 'team' = 'x', 'Compress' = 'mine')"
    )
    assert properties(spark_catalog, path) == {
        "target_file_size_bytes": 64 << 20,
        "compression": "gzip",
        "sort_by": ["i", "a,b"],
        "rewrite_threshold": 0.5,
        "auto_compact": True,
        "auto_compact_min_files": 7,
        "index_columns": ["C"],
        "texts": {"team": "x", "Compress": "mine"},
    }
    told = shown(spark_catalog, table)
    expected = {
        "compression": "gzip",
        "auto_compact": "true",
        "sort_by": "i,`a,b`",
        "target_file_size_bytes": str(64 << 20),
        "index_columns": "C",
        "team": "x",
    }
    assert told.items() >= expected.items()
    rows = "VALUES (2, 'x', 'y'), (1, 'z', 'w')"
    spark_catalog.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM {rows}")
    (file,) = path.glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == "GZIP"
    assert pq.read_table(file)["i"].to_pylist() == [1, 2]


def test_alter_table_sets_and_unsets_them_as_one_commit(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "d"
    dataset = lake.write_dataset({"i": [1]}, str(path))
    # As an earlier release noted it.
    lake.open_dataset(str(path)).set_table_properties({"compression": "zip", "k": "v"})
    assert dataset.version == 1
    table = f"plake.`{path}`"
    spark_catalog.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES "
        "('compression' = 'snappy', 'sort_by' = 'I', 'm' = 'n')"
    )
    assert lake.open_dataset(str(path)).version == 3
    texts = {"k": "v", "m": "n"}
    chosen = {"compression": "snappy", "sort_by": ["i"], "texts": texts}
    assert properties(spark_catalog, path) == chosen
    spark_catalog.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('compression', 'k')")
    assert properties(spark_catalog, path) == {"sort_by": ["i"], "texts": {"m": "n"}}
    assert "compression" not in shown(spark_catalog, table)
    spark_catalog.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('sort_by' = '')")
    assert properties(spark_catalog, path)["sort_by"] == []


def test_rows_expire_by_a_property(spark_catalog: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "d"
    lake.write_dataset({"i": [1]}, str(path))
    table = f"plake.`{path}`"
    spark_catalog.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('expire_rows' = 'i < 1')")
    assert shown(spark_catalog, table)["expire_rows"] == "i < 1"
    assert properties(spark_catalog, path)["expire_rows"] == "i < 1"
    with pytest.raises(PySparkException, match="ALTER TABLE"):
        spark_catalog.sql(
            f"CREATE TABLE plake.`{path}-b` (i INT) TBLPROPERTIES ('expire_rows' = 'i < 1')"
        )
    with pytest.raises(PySparkException, match="nope"):
        spark_catalog.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('expire_rows' = 'nope < 1')")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("'compression' = 'zip'", "is not a codec"),
        ("'auto_compact' = 'maybe'", "must be true or false"),
        ("'auto_compact_min_files' = 'few'", "must be a whole number"),
        ("'auto_compact_min_files' = '0'", "must be at least 1"),
        ("'target_file_size_bytes' = 'big'", "must be a size"),
        ("'rewrite_threshold' = '2'", "must be a number from 0 to 1"),
        ("'sort_by' = 'nope'", "is not a column"),
        ("'index_columns' = 'nope'", "nope"),
        ("'row_group_rows' = ' '", "is blank"),
        ("'cluster_by' = 'nope'", "is not a column"),
        ("'partition_by' = 'i'", "PARTITIONED BY"),
    ],
)
def test_a_wrong_value_is_refused_by_every_statement(
    spark_catalog: SparkSession, tmp_path: Path, given: str, said: str
) -> None:
    path = tmp_path / "d"
    lake.write_dataset({"i": [1]}, str(path))
    for statement in (
        f"CREATE TABLE plake.`{path}-new` (i BIGINT) TBLPROPERTIES ({given})",
        f"CREATE TABLE plake.`{path}-as` TBLPROPERTIES ({given}) AS SELECT 1 i",
        f"ALTER TABLE plake.`{path}` SET TBLPROPERTIES ({given})",
    ):
        with pytest.raises(PySparkException, match=said):
            spark_catalog.sql(statement)
    assert lake.open_dataset(str(path)).version == 1
    assert [one.name for one in tmp_path.iterdir() if list(one.glob("*.parquet"))] == ["d"]


def test_a_query_creates_a_table_with_them(spark_catalog: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "d"
    frame = spark_catalog.range(2)
    name = f"plake.`{path}`"
    frame.writeTo(name).tableProperty("auto_compact", "true").tableProperty("k", "v").create()
    assert properties(spark_catalog, path)["auto_compact"] is True
    spark_catalog.sql(
        f"CREATE OR REPLACE TABLE {name} TBLPROPERTIES ('compression' = 'gzip') AS SELECT 1 i"
    )
    assert properties(spark_catalog, path)["compression"] == "gzip"
    frame.write.format("plake").option("compression", "snappy").mode("overwrite").saveAsTable(name)
    assert properties(spark_catalog, path)["compression"] == "snappy"


def test_a_table_of_the_session_catalog_has_them(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "d"
    spark_catalog.sql("DROP TABLE IF EXISTS propertied")
    spark_catalog.sql(
        f"CREATE TABLE propertied (i BIGINT) USING plake LOCATION '{path}' "
        "TBLPROPERTIES ('compression' = 'gzip', 'k' = 'v')"
    )
    assert properties(spark_catalog, path)["compression"] == "gzip"
    spark_catalog.sql("ALTER TABLE propertied SET TBLPROPERTIES ('compression' = 'snappy')")
    assert properties(spark_catalog, path)["compression"] == "snappy"
    assert shown(spark_catalog, "propertied")["compression"] == "snappy"
    spark_catalog.sql("DROP TABLE propertied")
