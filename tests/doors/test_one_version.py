"""A query reads one version of a dataset, by whatever names, while others commit to it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests.doors.conftest import activate

pytestmark = pytest.mark.spark


def test_a_query_by_name_path_and_view_reads_one_version(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """The names were looked up one after the other, each at the newest version."""
    spark = activate(spark_catalog) or spark_catalog
    spark.sql(f"CREATE TABLE plake.default.one_version (v INT) LOCATION '{tmp_path}/t'")
    spark.sql("INSERT INTO plake.default.one_version VALUES (0)")
    url = spark.conf.get("spark.sql.catalog.plake.catalog")
    spark.sql(
        "CREATE TEMPORARY VIEW one_version_view USING plake "
        f"OPTIONS (path '{tmp_path}/t', catalog '{url}')"
    )
    stop = threading.Event()

    def commit() -> None:
        with lake.open_catalog(url) as catalog:
            for value in range(1, 100_000):
                lake.write_dataset(
                    {"v": [value]}, f"{tmp_path}/t", catalog=catalog, mode="overwrite"
                )
                if stop.wait(0.005):
                    return

    others = threading.Thread(target=commit)
    others.start()
    try:
        names = ("plake.default.one_version", f"plake.`{tmp_path}/t`", "one_version_view")
        every = [*names, "plake.default.one_version", "one_version_view"]
        seen = []
        for turn in range(6):
            some = every[turn % 3 :] + every[: turn % 3]
            columns = ", ".join(f"(SELECT max(v) FROM {one}) AS c{i}" for i, one in enumerate(some))
            row = spark.sql(f"SELECT {columns}").first()
            assert row is not None
            assert len(set(row)) == 1, row
            seen.append(row[0])
        assert seen == sorted(set(seen))  # each query reads the newest version
    finally:
        stop.set()
        others.join()
        spark.sql("DROP TABLE plake.default.one_version")
        spark.sql("DROP VIEW one_version_view")
