"""How OpenLineage's listener names tables of plake, and which job the history says a commit is of.

Its jar is in no registry of Python packages. Its rules are those of its documentation and sources:
a table's properties `openlineage.dataset.namespace` and `.name` (`ExtensionDataSourceV2Utils`), and
names of places (`FilesystemDatasetUtils`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLE = "plake.lineage.t"


@pytest.fixture
def named(spark_catalog: SparkSession) -> Iterator[SparkSession]:
    spark_catalog.sql("CREATE NAMESPACE plake.lineage")
    yield spark_catalog
    spark_catalog.sql("DROP NAMESPACE plake.lineage CASCADE")


def relations(spark: SparkSession, statement: str) -> Iterator[Any]:
    """The tables in the plan of a statement, as OpenLineage's listener finds them."""
    state = spark._jsparkSession.sessionState()
    yield from tables(state.analyzer().execute(state.sqlParser().parsePlan(statement)))


def tables(plan: Any) -> Iterator[Any]:
    left = [plan]
    while left:
        node = left.pop()
        kind = node.getClass().getSimpleName()
        if kind == "DataSourceV2Relation":
            table = node.table()
            wrapped = table.getClass().getSimpleName() == "RowLevelOperationTable"  # Spark's own
            yield table.table() if wrapped else table
        children = node.children()
        left += [children.apply(n) for n in range(children.size())]
        if kind in ("AppendData", "WriteDelta"):
            left.append(node.table())


def names(table: Any) -> tuple[str | None, str | None]:
    properties = table.properties()
    found = [properties.get(f"openlineage.dataset.{key}") for key in ("namespace", "name")]
    assert [
        properties.containsKey(f"openlineage.dataset.{key}") for key in ("namespace", "name")
    ] == [one is not None for one in found]
    return (found[0], found[1])


def test_tables_name_themselves_by_their_place(named: SparkSession) -> None:
    spark = named
    spark.sql(f"CREATE TABLE {TABLE} (id BIGINT, v STRING) TBLPROPERTIES ('team' = 'x')")
    (uri,) = spark.sql(f"DESCRIBE EXTENDED {TABLE}").where("col_name = 'Location'").first()[1:2]
    place = ("file", uri.removeprefix("file://"))
    assert place[1].startswith("/")
    for statement in (
        f"SELECT * FROM {TABLE}",
        f"SELECT * FROM plake.`{place[1]}`",
        f"INSERT INTO {TABLE} VALUES (1, 'a')",
        f"DELETE FROM {TABLE} WHERE id = 1",
        f"UPDATE {TABLE} SET v = 'b'",
        f"MERGE INTO {TABLE} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ):
        found = {names(table) for table in relations(spark, statement)}
        assert found == {place}, statement
    catalog = spark.conf.get("spark.sql.catalog.plake.catalog")
    assert catalog is not None
    for path in (place[1], uri):  # of one table, by one name
        loaded = spark.read.format("plake").option("catalog", catalog).load(path)
        (table,) = tables(loaded._jdf.queryExecution().analyzed())
        assert names(table) == place

    # They are stored nowhere, and no statement gives them to another table.
    shown = spark.sql(f"SHOW TBLPROPERTIES {TABLE}").collect()
    assert [tuple(row) for row in shown] == [("team", "x")]
    assert "openlineage" not in spark.sql(f"SHOW CREATE TABLE {TABLE}").first()[0]

    spark.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('openlineage.dataset.name' = 'orders')")
    (table,) = relations(spark, f"SELECT * FROM {TABLE}")
    assert names(table) == ("file", "orders")

    loader = table.getClass().getClassLoader()
    jvm = spark._jvm
    assert jvm is not None
    (constructor,) = jvm.java.lang.Class.forName(
        "io.plake.spark.core.LineageNames", True, loader
    ).getDeclaredConstructors()
    constructor.setAccessible(True)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0] = jvm.java.util.HashMap()
    for location, expected in {
        "file:///data/a%20b": ("file", "/data/a b"),
        "/data/a b/": ("file", "/data/a b"),
        "/data/t#branch=audit": ("file", "/data/t"),
        "s3://bucket/warehouse/t": ("s3://bucket", "warehouse/t"),
        "s3a://bucket/warehouse/t": ("s3://bucket", "warehouse/t"),
        "gs://bucket/t#branch=audit": ("gs://bucket", "t"),
        "abfs://box@account.dfs.core.windows.net/t": (
            "abfss://box@account.dfs.core.windows.net",
            "t",
        ),
        "hdfs://name:8020/data/t": ("hdfs://name:8020", "/data/t"),
        "no place": (None, None),
    }.items():
        arguments[1] = location
        made = constructor.newInstance(arguments)
        found = tuple(made.get(f"openlineage.dataset.{key}") for key in ("namespace", "name"))
        assert found == expected, location


def test_the_history_tells_the_job_and_the_run_of_openlineage(named: SparkSession) -> None:
    spark = named
    told = {
        "parentJobNamespace": "airflow",
        "parentJobName": "shop.load",
        "parentRunId": "0190f1b4-0000-7000-8000-000000000001",
        "rootParentJobName": "shop",
        "rootParentRunId": "0190f1b4-0000-7000-8000-000000000000",
    }
    for name, value in told.items():
        spark.conf.set(f"spark.openlineage.{name}", value)
    spark.sql(f"CREATE TABLE {TABLE} (id BIGINT)")
    spark.sql(f"INSERT INTO {TABLE} VALUES (1), (2)")
    spark.sql(f"DELETE FROM {TABLE} WHERE id = 2")
    for name in told:
        spark.conf.unset(f"spark.openlineage.{name}")
    spark.sql(f"INSERT INTO {TABLE} VALUES (3)")
    history = spark.sql(f"SELECT operation, committer FROM {TABLE}.history ORDER BY version")
    *those, last = [row.committer for row in history.collect()]
    assert len(those) == 3
    for committer in those:
        assert {name: committer.get(name) for name in told} == told
        assert "rootParentJobNamespace" not in committer
    assert last["application"] == those[0]["application"]
    assert not any("arent" in name for name in last)  # the next statement is of no job
