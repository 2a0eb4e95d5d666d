"""The driver of a stream from one dataset to another is killed: each row is there once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from tests.doors import stream_driver
from tests.doors.frames import data_files
from tests.doors.streams import forget_last_commit, ids, run

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc"),
]

# Where the write of a batch begins on the driver, where a task writes, where the driver commits,
# and between this commit and the one in Spark's own log.
POINTS = (
    *("begin", "pending written", "pending committed"),
    *("file opened", "row group written", "file closed", "file synced", "files closed"),
    *("folders synced", "commit begun", "files checked", "transaction begun", "dataset locked"),
    *("transaction written", "files written", "before COMMIT", "after COMMIT"),
)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.replace(" ", "_"))
def test_a_killed_driver_leaves_each_row_once(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    source, target, checkpoint = (str(tmp_path / name) for name in ("source", "target", "check"))

    def frame() -> DataFrame:
        return spark.readStream.format("plake").option("maxFilesPerTrigger", 1).load(source)

    for number in range(2):
        lake.write_dataset({"id": [2 * number, 2 * number + 1]}, source)
    run(frame(), target, checkpoint)
    for number in range(2, 5):
        lake.write_dataset({"id": [2 * number, 2 * number + 1]}, source)
    stream_driver.killed_at(point, tmp_path, source, target, checkpoint)
    after = 6 if point == "after COMMIT" else 4
    assert ids(target) == list(range(after))
    if point == "begin":
        # The tail of the checkpoint is lost as well.
        forget_last_commit(checkpoint)
    run(frame(), target, checkpoint)
    assert ids(target) == list(range(10))
    dataset = lake.open_dataset(target)
    assert dataset.version == 5
    assert dataset.verify(checksums=True).ok
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    assert len(data_files(target)) == 5
