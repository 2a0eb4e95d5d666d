"""One task reads a small scan and does what follows: the rows stay those of Spark's own Parquet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.doors.frames import data_files, load, rows, save
from tests.doors.test_types import setting

pytestmark = pytest.mark.spark

ALONE = [
    "SELECT count(*), sum(v), min(k) FROM t WHERE k >= 100",
    "SELECT count(*), sum(v) FROM t WHERE k < 0 OR v % 2 = 0 AND k < 500",
    "SELECT sum(v) FROM t WHERE k BETWEEN 20000 AND 30000",
    "SELECT g, count(*), sum(v) FROM t GROUP BY g",
    "SELECT g, count(DISTINCT v) FROM t GROUP BY g HAVING count(*) > 10 ORDER BY g",
    "SELECT DISTINCT g FROM t",
    "SELECT k, v FROM t WHERE k > 11990 ORDER BY v, k",
    "SELECT max(n) FROM (SELECT g, count(*) AS n FROM t GROUP BY g)",
    "SELECT * FROM (SELECT k, g FROM t ORDER BY k LIMIT 7) WHERE g IS NOT NULL",
]
TOGETHER = [
    """SELECT a.g, a.n, b.s FROM (SELECT g, count(*) AS n FROM t GROUP BY g) a
    JOIN (SELECT g, sum(v) AS s FROM t GROUP BY g) b ON a.g = b.g""",
    """SELECT a.g, a.n, count(*) FROM (SELECT g, count(*) AS n FROM t GROUP BY g) a
    JOIN large b ON a.g = b.v GROUP BY a.g, a.n""",
    "SELECT g, count(*) FROM t GROUP BY g UNION ALL SELECT v, count(*) FROM large GROUP BY v",
    "SELECT g FROM t EXCEPT SELECT v FROM large WHERE v > 3",
    "SELECT g, v, rank() OVER (PARTITION BY g ORDER BY v, k) AS n FROM t",
    "SELECT count(*) FROM t WHERE v > (SELECT avg(v) FROM t)",
    "SELECT g, k FROM t WHERE g IN (SELECT max(v) FROM large)",
]


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, spark_reader: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SparkSession, SparkSession]]:
    """The session with the extension, and Spark's own over the very files."""
    folder = tmp_path_factory.mktemp("small")
    for name, count, parts in (("t", 12_000, 3), ("large", 600_000, 4)):
        made = spark.range(0, count, 1, parts).select(
            F.col("id").alias("k"),
            F.expr("CASE WHEN id % 11 = 3 THEN NULL ELSE id % 11 END").alias("g"),
            F.expr("id * 7 % 13").alias("v"),
        )
        path = save(made, folder / name)
        load(spark_reader, path).createOrReplaceTempView(name)
        spark.read.parquet(*map(str, data_files(path))).createOrReplaceTempView(name)
    yield spark_reader, spark
    for name in ("t", "large"):
        spark_reader.catalog.dropTempView(name)
        spark.catalog.dropTempView(name)


def ran(frame: DataFrame) -> str:
    """The plan that was run in the end."""
    frame.collect()
    return str(frame._jdf.queryExecution().executedPlan().toString()).split("Initial Plan")[0]


@pytest.mark.parametrize("sql", ALONE)
def test_a_small_scan_is_not_shuffled(sql: str, tables: tuple[SparkSession, SparkSession]) -> None:
    ours, native = tables
    assert rows(ours.sql(sql)) == rows(native.sql(sql))
    plan = ran(ours.sql(sql))
    assert "read by Spark" in plan
    assert "Exchange" not in plan


@pytest.mark.parametrize("shuffled", ["broadcast", "merge"])
@pytest.mark.parametrize("sql", TOGETHER)
def test_scans_that_meet_others_keep_their_rows(
    sql: str, shuffled: str, tables: tuple[SparkSession, SparkSession]
) -> None:
    ours, native = tables
    size = "-1" if shuffled == "merge" else "10485760"
    with setting(ours, "spark.sql.autoBroadcastJoinThreshold", size):
        assert rows(ours.sql(sql)) == rows(native.sql(sql))


def test_where_rows_cost_more_the_shuffle_stays(
    tables: tuple[SparkSession, SparkSession],
) -> None:
    ours, native = tables

    def called(session: SparkSession) -> DataFrame:
        double = F.udf(lambda value: 2 * value, "bigint")
        return session.table("t").where(double("v") > 4).agg(F.sum("k"))

    large = "SELECT g, sum(v) FROM large WHERE k >= 0 GROUP BY g"
    assert rows(called(ours)) == rows(called(native))
    assert rows(ours.sql(large)) == rows(native.sql(large))
    assert "Exchange" in ran(called(ours))
    assert "Exchange" in ran(ours.sql(large))


def test_a_shuffle_that_the_user_wants_stays(tables: tuple[SparkSession, SparkSession]) -> None:
    frame = tables[0].table("t").where("k > 5").repartition(3, "g")
    assert "Exchange" in ran(frame)
    assert frame.rdd.getNumPartitions() == 3


def test_plans_that_do_not_change_while_they_run_stay(
    tables: tuple[SparkSession, SparkSession],
) -> None:
    ours, native = tables
    with setting(ours, "spark.sql.adaptive.enabled", "false"):
        for sql in ALONE:
            assert rows(ours.sql(sql)) == rows(native.sql(sql))
        assert "Exchange" in ran(ours.sql(ALONE[0]))
