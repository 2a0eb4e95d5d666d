"""A folder that Spark wrote becomes a dataset where it stands, and Spark reads it as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from tests.doors.frames import load, rows

pytestmark = pytest.mark.spark


def test_a_folder_of_spark_reads_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    values = "array('a b', '50%', 'x/y', 'p=q', 'ü', '', CAST(NULL AS STRING))"
    frame = spark.range(70).select(
        F.col("id").cast("int").alias("n"),
        F.expr("timestamp_seconds(id * 100000)").alias("at"),  # INT96, Spark's default
        F.expr("CAST(id AS DECIMAL(9, 2)) / 4").cast("decimal(9,2)").alias("price"),
        F.expr("IF(id % 5 = 0, DOUBLE('NaN'), id / 3)").alias("ratio"),
        F.expr("named_struct('first', CAST(id AS STRING), 'age', id)").alias("who"),
        F.expr("array(id, NULL)").alias("list"),
        F.expr(f"element_at({values}, CAST(id % 7 AS INT) + 1)").alias("k"),
        F.expr("CAST(id % 2 AS INT)").alias("month"),
    )
    frame.write.partitionBy("k", "month").parquet(folder)
    dataset = lake.convert(folder)
    assert dataset.partition_by == ("k", "month")
    native, mine = spark.read.parquet(folder), load(spark, folder)
    assert mine.dtypes == native.dtypes
    assert rows(mine) == rows(native)
    for condition in (
        "n = 12",
        "at >= TIMESTAMP '1970-02-01 00:00:00'",
        "price < 3.5",
        "ratio > 20",
        "k IS NULL",
        "k = '50%' AND month = 1",
        "who.age < 4",
    ):
        assert rows(mine.where(condition)) == rows(native.where(condition)), condition
    assert mine.agg(F.min("n"), F.max("price"), F.count("k")).first() == (
        native.agg(F.min("n"), F.max("price"), F.count("k")).first()
    )
