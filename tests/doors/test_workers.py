"""What plake does to the Python processes that Spark starts for it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse_source.spark.session.freeze_gc import freeze_gc


def test_a_process_of_the_user_is_left_alone() -> None:
    before = gc.get_freeze_count()
    freeze_gc()
    assert gc.get_freeze_count() == before


@pytest.mark.spark
def test_workers_keep_modules_out_of_the_collection_after_each_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "data")
    spark.range(10).write.format("plake").mode("append").save(path)
    driver = os.getpid()

    def ask(rows):  # type: ignore[no-untyped-def]
        for _ in rows:
            freeze_gc()
            yield gc.get_freeze_count() if os.getpid() != driver else -1

    counts = spark.read.format("plake").load(path).rdd.mapPartitions(ask).collect()
    assert len(counts) == 10
    assert min(counts) > 10_000  # what modules hold; Python 3.12 begins with some hundreds
