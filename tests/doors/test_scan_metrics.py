"""How much of a table a scan read, as Spark's plans and its UI show it, for both readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
from tests.doors.frames import load

pytestmark = pytest.mark.spark

FILES = 8  # half of them in each partition, each with five row groups of ten ids


def scans(frame: DataFrame) -> list[dict[str, int]]:
    """The metrics of plake's scans in the executed plan."""
    found = []
    waiting: list[Any] = [frame._jdf.queryExecution().executedPlan()]
    while waiting:
        node = waiting.pop()
        name = node.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            waiting.append(node.executedPlan())
        elif name.endswith("QueryStageExec"):
            waiting.append(node.plan())
        elif "plake" in str(node.nodeName()):
            metrics = node.metrics()
            names = str(metrics.keys().mkString(",")).split(",")
            found.append({one: int(metrics.apply(one).value()) for one in names})
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return found


def in_ui(spark: SparkSession) -> dict[str, str]:
    """The metrics of the last query, by the names that Spark's UI shows."""
    store = spark._jsparkSession.sharedState().statusStore()
    spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
    executions = store.executionsList()
    last = executions.apply(executions.size() - 1)
    values = store.executionMetrics(last.executionId())
    shown = {}
    for i in range(last.metrics().size()):
        metric = last.metrics().apply(i)
        value = values.get(metric.accumulatorId())
        if value.isDefined():
            shown[str(metric.name())] = str(value.get())
    return shown


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("metrics") / "t"
    for n in range(FILES):
        ids = [*range(50 * n, 50 * n + 50)]
        table = pa.table({"id": ids, "p": [n % 2] * 50})
        lake.write_dataset(table, path, partition_by="p", row_group_rows=10)
    return path


@pytest.fixture(params=[Reader.SPARK, Reader.PYTHON])
def reader(spark_planner: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark_planner.conf.set(Setting.READER, request.param)
    yield request.param
    spark_planner.conf.set(Setting.READER, Reader.PYTHON)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_scan_tells_what_was_pruned_by_what(
    spark_planner: SparkSession, path: Path, reader: str, adaptive: str
) -> None:
    spark_planner.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        frame = load(spark_planner, path).where("p = 1 AND id >= 180").groupBy("p").sum("id")
        assert frame.collect() == [(1, sum([*range(180, 200), *range(250, 300), *range(350, 400)]))]
    finally:
        spark_planner.conf.unset("spark.sql.adaptive.enabled")
    (metrics,) = scans(frame)
    assert ("numFiles" in metrics) is (reader == Reader.SPARK)
    expected = {
        "filesOfTable": 8, "filesPrunedByPartition": 4, "filesPrunedByStatistics": 1,
        "filesPrunedByJoinKeys": 0, "filesToRead": 3,
        "rowGroupsOfTable": 40, "rowGroupsPruned": 28, "rowGroupsToRead": 12,
    }  # fmt: skip
    assert {name: metrics[name] for name in expected} == expected
    shown = in_ui(spark_planner)
    assert shown["files of the table"] == "8"
    assert shown["files pruned by partition values"] == "4"
    assert shown["row groups to read"] == "12"


def test_files_that_keys_of_a_join_prune_are_counted(
    spark_planner: SparkSession, path: Path
) -> None:
    lake.write_dataset(pa.table({"id": [7, 381, 9], "n": ["a", "a", "b"]}), path.parent / "d")
    few = load(spark_planner, path.parent / "d").where("n = 'a'")
    frame = load(spark_planner, path).join(few, "id")
    assert sorted(row["id"] for row in frame.collect()) == [7, 381]
    by_files = {metrics["filesOfTable"]: metrics for metrics in scans(frame)}
    assert by_files[8]["filesPrunedByJoinKeys"] == 6
    assert by_files[8]["filesToRead"] == 2
    assert by_files[8]["rowGroupsToRead"] == 2
    assert by_files[1]["filesPrunedByJoinKeys"] == 0


def test_a_scan_that_does_not_run_or_gives_nothing_has_metrics(
    spark_planner: SparkSession, path: Path, reader: str
) -> None:
    frame = load(spark_planner, path).where("id > 1000").groupBy("id").count()
    assert frame.collect() == []
    for metrics in scans(frame):  # Spark may leave out the scan of an empty table
        assert metrics["filesToRead"] == 0
        assert metrics["rowGroupsPruned"] == 40
