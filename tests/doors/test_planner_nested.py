"""Fields of structs: only those that a query needs are read."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from .test_planner_queries import multiset, scans

pytestmark = pytest.mark.spark

ROWS = """
SELECT id,
  CASE WHEN id % 5 = 0 THEN NULL ELSE named_struct(
    'a', CASE WHEN id % 3 = 0 THEN NULL ELSE id END,
    'b', concat('b', id),
    'in', CASE WHEN id % 7 = 0 THEN NULL ELSE named_struct('x', id * 2, 'y', double(id)) END,
    'list', array(named_struct('p', id, 'q', id + 1)),
    'INNER', id % 4) END AS st,
  id % 2 AS `TOP`,
  map('k', named_struct('v', id, 'w', 0)) AS mp
FROM range(60)
"""

QUERIES = [
    "SELECT st.a FROM {t}",
    "SELECT st.b, id FROM {t} WHERE st.a > 20",
    "SELECT st.in.x FROM {t}",
    "SELECT st.in FROM {t} WHERE id > 40",
    "SELECT st.in.y FROM {t} WHERE st.in.x IS NULL",
    "SELECT id FROM {t} WHERE st IS NULL",
    "SELECT id FROM {t} WHERE st.in IS NULL AND st.b IS NOT NULL",
    "SELECT id, st.a FROM {t} WHERE st IS NOT NULL AND st.in.y > 30",
    "SELECT `TOP`, st.a, st.in.y FROM {t} WHERE st.in.x > 10",
    "SELECT st.`INNER`, count(*) FROM {t} GROUP BY 1",
    "SELECT st.list.p FROM {t}",
    "SELECT st.list[0].q, st.a FROM {t}",
    "SELECT mp['k'].v, st.b FROM {t}",
    "SELECT st, st.a FROM {t}",
    "SELECT max(st.in.x) FROM {t} WHERE st.a < 30 OR st.in.y = 50",
    "SELECT x.st.a, y.st.b FROM {t} x JOIN {t} y ON x.st.in.x = y.id",
]


# Parquet spells a column `st.a` and field `a` of the struct `st` alike.
NAMES = {"plain": ("top", "inner"), "dotted": ("st.a", "in.x")}


def named(text: str, kind: str) -> str:
    top, inner = NAMES[kind]
    return text.replace("TOP", top).replace("INNER", inner)


@pytest.fixture(scope="module", params=NAMES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tables(
    kind: str, spark_planner: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> SparkSession:
    folder = tmp_path_factory.mktemp("nested")
    frame = spark_planner.sql(named(ROWS, kind)).coalesce(1).sortWithinPartitions("id")
    frame.write.parquet(f"{folder}/native")
    frame.write.format("plake").mode("append").option("rowGroupRows", 10).save(f"{folder}/plake")
    spark_planner.read.parquet(f"{folder}/native").createOrReplaceTempView("nested_native")
    plake = spark_planner.read.format("plake").load(f"{folder}/plake")
    plake.createOrReplaceTempView("nested_plake")
    return spark_planner


@pytest.mark.parametrize("text", QUERIES)
def test_a_part_of_a_struct_equals_parquet(text: str, kind: str, tables: SparkSession) -> None:
    text = named(text, kind)
    ours = tables.sql(text.replace("{t}", "nested_plake"))
    native = tables.sql(text.replace("{t}", "nested_native"))
    assert multiset(ours.collect()) == multiset(native.collect())


@pytest.mark.parametrize("pruning", ["true", "false"])
def test_spark_s_own_setting_decides(pruning: str, tables: SparkSession) -> None:
    key = "spark.sql.optimizer.nestedSchemaPruning.enabled"
    tables.conf.set(key, pruning)
    try:
        frame = tables.sql("SELECT st.in.x, st.a FROM nested_plake")
        (scan,) = scans(frame)
        narrow = "ReadSchema: struct<st:struct<a:bigint,in:struct<x:bigint>>>" in scan
        assert narrow == (pruning == "true")
        assert len(frame.collect()) == 60
    finally:
        tables.conf.unset(key)


def test_a_list_is_read_as_a_whole(tables: SparkSession) -> None:
    (scan,) = scans(tables.sql("SELECT st.list.p FROM nested_plake"))
    assert "struct<st:struct<list:array<struct<p:bigint,q:bigint>>>>" in scan


def test_fields_that_a_file_does_not_have_are_null(tables: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "d")
    tables.sql("SELECT named_struct('a', 1) AS s UNION ALL SELECT NULL").coalesce(1).write.format(
        "plake"
    ).mode("append").save(path)
    wider = tables.sql("SELECT named_struct('a', 2L, 'b', 'x') AS s").coalesce(1)
    wider.write.format("plake").mode("append").option("mergeSchema", "true").save(path)
    frame = tables.read.format("plake").load(path)
    assert multiset(frame.select("s.b").collect()) == multiset([(None,), (None,), ("x",)])
    assert multiset(frame.select("s.a").collect()) == multiset([(1,), (None,), (2,)])
    rows = frame.selectExpr("s.b", "s IS NULL").collect()
    assert multiset(rows) == multiset([(None, False), (None, True), ("x", False)])
