"""Rows that reach plake's writer in batches whose bytes are counted row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse_source.spark.protocol.vocabulary import Setting
from tests.doors.conftest import activate

pytestmark = pytest.mark.spark

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
ROW = 16  # bytes of a row of one number: Spark's row has 8 for NULLs and 8 for each number


@pytest.fixture(autouse=True)
def own_settings(spark_planner: SparkSession) -> Iterator[None]:
    yield
    for key in (LIMIT, Setting.BATCHES):
        spark_planner.conf.unset(key)


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the extension, from the loader that has it."""
    rules = spark._jsparkSession.sessionState().analyzer().extendedResolutionRules()
    ours = (rules.apply(at).getClass() for at in range(rules.size()))
    loader = next(one for one in ours if one.getName().startswith("io.plake")).getClassLoader()
    return loader.loadClass(f"io.plake.spark.core.{name}")


def rows_of_batches(rows: DataFrame, most: int) -> list[int]:
    """The number of rows in each batch, as the extension divides them."""
    spark = rows.sparkSession
    (constructor,) = java_class(spark, "BatchWrites$Batches").getDeclaredConstructors()
    constructor.setAccessible(True)
    given = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 2)
    convert = spark._jvm.scala.jdk.javaapi.CollectionConverters
    given[0] = convert.asJava(rows._jdf.queryExecution().executedPlan().executeToIterator())
    given[1] = spark._jvm.java.lang.Long(most)
    batches = convert.asScala(constructor.newInstance(given))
    found = []
    while batches.hasNext():
        batch, count = batches.next(), 0
        while batch.hasNext():
            assert batch.next().numFields() == 1  # a struct of the columns
            count += 1
        found.append(count)
    return found


@pytest.mark.parametrize(
    ("rows", "most", "expected"),
    [
        (25, 10 * ROW, [10, 10, 5]),
        (20, 10 * ROW, [10, 10]),
        (21, 10 * ROW - 1, [10, 10, 1]),
        (21, 10 * ROW + 1, [11, 10]),
        (3, 1, [1, 1, 1]),
        (3, 0, [1, 1, 1]),
        (0, 10 * ROW, []),
    ],
)
def test_a_batch_ends_with_the_row_that_fills_it(
    rows: int, most: int, expected: list[int], spark_planner: SparkSession
) -> None:
    numbers = spark_planner.range(rows).selectExpr("cast(id AS int) AS n").coalesce(1)
    assert rows_of_batches(numbers, most) == expected


def test_a_long_text_fills_a_batch(spark_planner: SparkSession) -> None:
    texts = spark_planner.range(7).selectExpr("repeat('x', if(id = 3, 1000, 1)) AS t").coalesce(1)
    assert rows_of_batches(texts, 1000) == [4, 3]


@pytest.mark.parametrize("limit", ["1", "200000", "67108864"])
@pytest.mark.parametrize("batches", ["true", "false"])
def test_the_same_rows_are_written_whatever_a_batch_holds(
    limit: str, batches: str, spark_planner: SparkSession, tmp_path: Path
) -> None:
    spark_planner.conf.set(LIMIT, limit)
    spark_planner.conf.set(Setting.BATCHES, batches)
    rows = spark_planner.range(400).selectExpr(
        "id", "if(id % 7 = 0, NULL, repeat(cast(id % 10 AS string), 3000)) AS t", "array(id) AS l"
    )
    rows.write.format("plake").mode("append").save(str(tmp_path / "d"))
    read = spark_planner.read.format("plake").load(str(tmp_path / "d"))
    assert read.orderBy("id").collect() == rows.collect()


@pytest.mark.parametrize("batches", ["true", "false"])
def test_a_session_can_leave_batches_to_spark(batches: str, spark_planner: SparkSession) -> None:
    spark_planner.conf.set(Setting.BATCHES, batches)
    activate(spark_planner)
    none = spark_planner.sparkContext._gateway.new_array(spark_planner._jvm.java.lang.Object, 0)
    types = spark_planner.sparkContext._gateway.new_array(spark_planner._jvm.java.lang.Class, 0)
    asked = java_class(spark_planner, "PythonTask").getMethod("isPossible", types)
    assert asked.invoke(None, none) == (batches == "true")


def test_functions_before_a_write_keep_the_limit(
    spark_planner: SparkSession, tmp_path: Path
) -> None:
    """The limit is lifted for the writer of a task, and for nothing else in the task."""
    spark_planner.conf.set(LIMIT, "4000")
    few = spark_planner.range(9000, numPartitions=4).mapInArrow(
        lambda batches: (one.from_pydict({"n": [one.num_rows]}) for one in batches), "n long"
    )
    # The later parts of the one task start after its writer.
    few.coalesce(1).write.format("plake").mode("append").save(str(tmp_path / "d"))
    read = spark_planner.read.format("plake").load(str(tmp_path / "d"))
    found = [row.n for row in read.collect()]
    assert sum(found) == 9000
    assert max(found) < 1000
