"""Tables with names in Spark's catalog: CREATE, CTAS, ALTER, DROP, namespaces, saveAsTable."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.datasets import DatasetCatalog
from lakehouse_source.spark import enable
from tests.doors.conftest import unshared_session
from tests.doors.frames import quoted

pytestmark = pytest.mark.spark
HAS_LIKE = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)


@pytest.fixture
def catalog(spark_catalog: SparkSession) -> Iterator[DatasetCatalog]:
    """plake's own view of the names that Spark's catalog has."""
    folder = spark_catalog.conf.get("spark.sql.catalog.plake.warehouse")
    url = spark_catalog.conf.get("spark.sql.catalog.plake.catalog")
    assert url is not None
    with lake.open_catalog(url, warehouse=folder) as opened:
        assert isinstance(opened, DatasetCatalog)
        yield opened


@pytest.fixture
def space(spark_catalog: SparkSession, request: pytest.FixtureRequest) -> str:
    """A new namespace, as Spark names it."""
    name = f"plake.{re.sub(r'[^a-z]', '_', request.node.name.lower())}"
    spark_catalog.sql(f"CREATE NAMESPACE {name}")
    return name


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


def message(spark: SparkSession, query: str) -> str:
    with pytest.raises(AnalysisException) as caught:
        spark.sql(query).collect()
    return str(caught.value)


def test_a_table_is_created_with_columns_partitions_and_properties(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    spark_catalog.sql(
        f"CREATE TABLE {space}.t (id BIGINT NOT NULL COMMENT 'key', n INT DEFAULT 4 + 3, "
        "c CHAR(3), s STRUCT<a: INT NOT NULL, b: STRING>, p STRING, f FLOAT DEFAULT FLOAT('-0.0'), "
        "d TIMESTAMP DEFAULT TIMESTAMP'2020-01-01 00:00:00') USING plake "
        "PARTITIONED BY (p) COMMENT 'all' TBLPROPERTIES ('team' = 'x')"
    )
    made = catalog.dataset((space.partition(".")[2], "t"))
    assert made.version == 1
    assert made.partition_by == ("p",)
    assert not made.schema.field("id").nullable
    assert not made.schema.field("s").type.field("a").nullable
    assert made.comments == {"id": "key"}
    assert made.properties["table_properties"] == {"team": "x", "comment": "all"}
    spark_catalog.sql(f"INSERT INTO {space}.t (id, c, p) VALUES (1, 'a', 'x')")
    found = rows(
        spark_catalog, f"SELECT id, n, c, s, p, CAST(f AS STRING), CAST(d AS STRING) FROM {space}.t"
    )
    assert found == [(1, 7, "a  ", None, "x", "-0.0", "2020-01-01 00:00:00")]
    with pytest.raises(Exception, match="CANNOT_FIND_DATA"):
        spark_catalog.sql(f"INSERT INTO {space}.t (n) VALUES (1)")
    described = rows(spark_catalog, f"DESCRIBE EXTENDED {space}.t")
    assert ("Comment", "all", "") in described
    assert ("team", "x") in rows(spark_catalog, f"SHOW TBLPROPERTIES {space}.t")


def test_a_name_that_is_taken_or_missing_is_told_in_spark_s_words(
    spark_catalog: SparkSession, space: str
) -> None:
    spark_catalog.sql(f"CREATE TABLE {space}.t (a INT)")
    spark_catalog.sql(f"CREATE TABLE IF NOT EXISTS {space}.T (b INT)")
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in message(
        spark_catalog, f"CREATE TABLE {space}.T (a INT)"
    )
    assert "TABLE_OR_VIEW_NOT_FOUND" in message(spark_catalog, f"SELECT * FROM {space}.none")
    assert "TABLE_OR_VIEW_NOT_FOUND" in message(spark_catalog, f"DROP TABLE {space}.none")
    assert "TABLE_OR_VIEW_NOT_FOUND" in message(
        spark_catalog, f"REPLACE TABLE {space}.n AS SELECT 1"
    )
    missing = message(spark_catalog, "CREATE TABLE plake.nowhere.t (a INT)")
    condition = "[SCHEMA_NOT_FOUND] [PLAKE_NAMESPACE_NOT_FOUND]"
    assert missing.startswith(f"{condition} no namespace 'nowhere'")
    for kind in ("TABLES IN", "VIEWS IN", "TABLE EXTENDED IN"):
        said = message(spark_catalog, f"SHOW {kind} plake.nowhere LIKE '*'")
        assert said.startswith("[SCHEMA_NOT_FOUND] "), said
    for part in ("history", "files"):
        assert "TABLE_OR_VIEW_NOT_FOUND" in message(
            spark_catalog, f"SELECT * FROM {space}.none.{part}"
        )
    spark_catalog.sql(f"DROP TABLE IF EXISTS {space}.none")
    assert rows(spark_catalog, f"SELECT * FROM {space}.T") == []


@pytest.mark.long
def test_a_table_is_created_and_replaced_by_a_query_as_one_version(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    name = (space.partition(".")[2], "t")
    spark_catalog.sql(
        f"CREATE TABLE {space}.t PARTITIONED BY (p) TBLPROPERTIES ('k' = 'v') "
        "AS SELECT id, id % 2 AS p FROM range(4)"
    )
    made = catalog.dataset(name)
    assert (made.version, made.partition_by) == (1, ("p",))
    assert made.properties["table_properties"] == {"k": "v"}
    spark_catalog.sql(f"CREATE OR REPLACE TABLE {space}.t AS SELECT max(id) AS m FROM {space}.t")
    assert rows(spark_catalog, f"SELECT * FROM {space}.t") == [(3,)]
    assert rows(spark_catalog, f"SELECT count(p) FROM {space}.t VERSION AS OF 1") == [(4,)]
    spark_catalog.sql(f"REPLACE TABLE {space}.t (x INT DEFAULT 5, y STRING)")
    spark_catalog.sql(f"INSERT INTO {space}.t (y) VALUES ('d')")
    assert rows(spark_catalog, f"SELECT * FROM {space}.t") == [(5, "d")]
    spark_catalog.sql(f"CREATE OR REPLACE TABLE {space}.fresh AS SELECT 1 AS a WHERE false")
    assert spark_catalog.table(f"{space}.fresh").count() == 0
    history = catalog.dataset(name).history()
    assert [entry.operation for entry in history] == ["append", "replace", "replace", "create"]


@pytest.mark.long
def test_a_query_over_columns_with_defaults_makes_a_table_without_them(
    spark_catalog: SparkSession, space: str
) -> None:
    """A NullPointerException: Spark hands over the text of such a default, and no value."""
    spark = spark_catalog
    spark.sql(f"CREATE TABLE {space}.a (id INT, n INT DEFAULT 7, t STRING DEFAULT NULL)")
    spark.sql(f"INSERT INTO {space}.a (id) VALUES (1)")
    spark.sql(f"CREATE TABLE {space}.b AS SELECT * FROM {space}.a")
    spark.sql(f"CREATE OR REPLACE TABLE {space}.b AS SELECT * FROM {space}.a")
    spark.table(f"{space}.a").write.saveAsTable(f"{space}.c")
    for name in ("b", "c"):
        assert rows(spark, f"SELECT * FROM {space}.{name}") == [(1, 7, None)]
        spark.sql(f"INSERT INTO {space}.{name} (id) VALUES (2)")
        assert rows(spark, f"SELECT n FROM {space}.{name} WHERE id = 2") == [(None,)]
    spark.sql(f"CREATE OR REPLACE TABLE {space}.b (id INT, n INT DEFAULT 8)")
    spark.sql(f"INSERT INTO {space}.b (id) VALUES (3)")
    assert rows(spark, f"SELECT * FROM {space}.b") == [(3, 8)]


@pytest.mark.long
@pytest.mark.parametrize("statement", ["CREATE TABLE", "CREATE OR REPLACE TABLE"])
def test_a_query_that_fails_leaves_nothing(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog, statement: str
) -> None:
    with pytest.raises(Exception, match="stop here"):
        spark_catalog.sql(
            f"{statement} {space}.t AS SELECT id, "
            "CAST(IF(id = 5, raise_error('stop here'), 1) AS INT) AS x FROM range(10)"
        )
    namespace = space.partition(".")[2]
    assert catalog.datasets(namespace) == []
    # A task that was still running may have left a file: vacuum deletes such files.
    assert not spark_catalog.catalog.tableExists(f"{space}.t")
    spark_catalog.sql(f"CREATE TABLE {space}.t AS SELECT 1 AS a")
    with pytest.raises(Exception, match="stop here"):
        spark_catalog.sql(
            f"CREATE OR REPLACE TABLE {space}.t AS SELECT CAST(raise_error('stop here') AS INT) b"
        )
    assert rows(spark_catalog, f"SELECT * FROM {space}.t") == [(1,)]
    assert catalog.dataset((namespace, "t")).version == 1


@pytest.mark.long
def test_columns_are_changed(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    name = f"{space}.t"
    spark_catalog.sql(f"CREATE TABLE {name} (id BIGINT NOT NULL, a INT, s STRUCT<x: INT, y: INT>)")
    spark_catalog.sql(f"INSERT INTO {name} VALUES (1, 2, named_struct('x', 3, 'y', 4))")
    for change in (
        "ADD COLUMNS (b INT COMMENT 'bee' AFTER id, c DOUBLE DEFAULT 1.5, s.z STRING FIRST)",
        "RENAME COLUMN a TO first",
        "ALTER COLUMN first TYPE BIGINT",
        "ALTER COLUMN id DROP NOT NULL",
        "ALTER COLUMN first COMMENT 'the first'",
        "ALTER COLUMN first FIRST",
        "ALTER COLUMN s AFTER first",
        "ALTER COLUMN b SET DEFAULT 40 + 2",
        "RENAME COLUMN s.x TO u",
        "DROP COLUMN s.y",
    ):
        spark_catalog.sql(f"ALTER TABLE {name} {change}")
    described = [tuple(row) for row in spark_catalog.sql(f"DESCRIBE {name}").collect()]
    assert described == [
        ("first", "bigint", "the first"),
        ("s", "struct<z:string,u:int>", None),
        ("id", "bigint", None),
        ("b", "int", "bee"),
        ("c", "double", None),
    ]
    spark_catalog.sql(f"INSERT INTO {name} (id) VALUES (2)")
    found = rows(spark_catalog, f"SELECT first, s.u, id, b, c FROM {name}")
    assert found == [(2, 3, 1, None, 1.5), (None, None, 2, 42, 1.5)]
    spark_catalog.sql(f"ALTER TABLE {name} ALTER COLUMN b DROP DEFAULT")
    spark_catalog.sql(f"INSERT INTO {name} (id) VALUES (3)")
    assert rows(spark_catalog, f"SELECT b FROM {name} WHERE id = 3") == [(None,)]
    before = catalog.dataset((space.partition(".")[2], "t")).version
    for refused in (
        "ALTER COLUMN first TYPE INT",
        "DROP COLUMN none",
        "ADD COLUMN b INT",
        "SET LOCATION '/elsewhere'",
        "REPLACE COLUMNS (id INT, z INT)",
    ):
        message(spark_catalog, f"ALTER TABLE {name} {refused}")
    assert catalog.dataset((space.partition(".")[2], "t")).version == before


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN s.z INT",
        "RENAME COLUMN s.k TO z",
        "DROP COLUMN s.k",
        "ALTER COLUMN s.k TYPE BIGINT",
        "ALTER COLUMN s.n FIRST",
    ],
)
def test_fields_keep_their_collation_length_and_interval_when_others_change(
    spark_catalog: SparkSession, space: str, change: str
) -> None:
    name = f"{space}.t"
    spark_catalog.sql(
        f"CREATE TABLE {name} (id INT, s STRUCT<k: INT, v: VARCHAR(3), n: STRUCT<"
        "t: STRING COLLATE UTF8_LCASE, h: INTERVAL HOUR>, l: ARRAY<STRING COLLATE UTF8_LCASE>>)"
    )
    one = "named_struct('k', 1, 'v', '{}', 'n', named_struct('t', 'ADA', 'h', INTERVAL '3' HOUR),"
    one += " 'l', array('Bob'))"
    spark_catalog.sql(f"INSERT INTO {name} VALUES (1, {one.format('abc')})")
    spark_catalog.sql(f"ALTER TABLE {name} {change}")
    found = f"SELECT id FROM {name} WHERE s.n.t = 'ada' AND array_contains(s.l, 'BOB')"
    assert rows(spark_catalog, found) == [(1,)]
    field = spark_catalog.table(name).schema["s"].dataType["n"].dataType["h"]
    assert field.dataType.simpleString() == "interval hour"
    spark_catalog.sql(f"UPDATE {name} SET s.v = 'de'")
    assert rows(spark_catalog, f"SELECT s.v, s.n.t FROM {name}") == [("de", "ADA")]
    with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
        spark_catalog.sql(f"UPDATE {name} SET s.v = 'abcd'")


def test_a_text_has_a_length_or_a_collation(spark_catalog: SparkSession, space: str) -> None:
    name = f"{space}.t"
    plain = "id INT, c CHAR(3) COLLATE UTF8_BINARY, k STRING COLLATE UTF8_LCASE, v VARCHAR(3)"
    spark_catalog.sql(f"CREATE TABLE {name} ({plain})")
    both = "VARCHAR(5) COLLATE UTF8_LCASE"
    for refused in (
        f"CREATE TABLE {name}_made (id INT, v {both})",
        f"CREATE TABLE {name}_made (id INT, s STRUCT<l: ARRAY<{both}>>)",
        f"CREATE TABLE {name}_made (id INT, m MAP<STRING, {both}>)",
        f"ALTER TABLE {name} ADD COLUMN w CHAR(2) COLLATE UNICODE_CI",
        f"ALTER TABLE {name} ALTER COLUMN v TYPE {both}",
    ):
        with pytest.raises(PySparkException, match="cannot make a column of type"):
            spark_catalog.sql(refused)


@pytest.mark.long
def test_columns_get_types_that_only_spark_knows(spark_catalog: SparkSession, space: str) -> None:
    name = f"{space}.t"
    spark_catalog.sql(f"CREATE TABLE {name} (id INT, s STRUCT<a: INT>, c CHAR(4) DEFAULT 'cd')")
    spark_catalog.sql(f"INSERT INTO {name} (id, s) VALUES (1, named_struct('a', 1))")
    for added in (
        "h INTERVAL HOUR",
        "k STRING COLLATE UTF8_LCASE",
        "d STRING COLLATE UTF8_LCASE DEFAULT 'Eve'",
        "v VARCHAR(3) DEFAULT 'xyz'",
        "s.h INTERVAL DAY",
        "s.v VARCHAR(2)",
    ):
        spark_catalog.sql(f"ALTER TABLE {name} ADD COLUMN {added}")
    types = spark_catalog.table(name).schema.simpleString()
    assert "s:struct<a:int,h:interval day,v:string>" in types
    assert "h:interval hour,k:string collate UTF8_LCASE" in types
    spark_catalog.sql(f"UPDATE {name} SET k = 'ADA', h = INTERVAL '2' HOUR WHERE v = 'xyz'")
    assert rows(spark_catalog, f"SELECT c, v, d FROM {name} WHERE k = 'ada' AND d = 'EVE'") == [
        ("cd  ", "xyz", "Eve")
    ]
    for column, text in (("v", "abcd"), ("s.v", "abc")):
        with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
            spark_catalog.sql(f"UPDATE {name} SET {column} = '{text}'")
    for wider in ("VARCHAR(5)", "STRING", "STRING COLLATE UNICODE_CI"):
        spark_catalog.sql(f"ALTER TABLE {name} ALTER COLUMN v TYPE {wider}")
        spark_catalog.sql(f"UPDATE {name} SET v = v || 'z'")
    assert rows(spark_catalog, f"SELECT id FROM {name} WHERE v = 'XYZzzz'") == [(1,)]
    assert "REPLACE COLUMNS' would drop all columns" in message(
        spark_catalog, f"ALTER TABLE {name} REPLACE COLUMNS (id INT)"
    ).replace("':", "'")


def test_lengths_of_texts_are_described_and_copied(spark_catalog: SparkSession, space: str) -> None:
    """`DESCRIBE` and `SHOW CREATE TABLE` said STRING, and a copy took texts of any length."""
    columns = (
        "id INT DEFAULT 3, v VARCHAR(3) DEFAULT 'x', s STRUCT<c: CHAR(2), i: INT> COMMENT 'its'"
    )
    spark_catalog.sql(f"CREATE TABLE {space}.t ({columns})")
    types = {row[0]: row[1] for row in rows(spark_catalog, f"DESCRIBE {space}.t")}
    assert (types["v"], types["s"]) == ("varchar(3)", "struct<c:char(2),i:int>")
    text = spark_catalog.sql(f"SHOW CREATE TABLE {space}.t").first()[0]
    spark_catalog.sql(text.partition("LOCATION")[0].replace(f"{space}.t", f"{space}.u"))
    spark_catalog.sql(f"INSERT INTO {space}.u (s) VALUES (named_struct('c', 'd', 'i', 1))")
    assert rows(spark_catalog, f"SELECT id, v, s.c FROM {space}.u") == [(3, "x", "d ")]
    for text in ("'abcd', s", "v, named_struct('c', 'def', 'i', 1)"):
        with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
            spark_catalog.sql(f"INSERT INTO {space}.u SELECT id, {text} FROM {space}.u")


@pytest.mark.long
def test_a_column_becomes_not_null_where_no_row_is_null(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    """Spark refused it for every column, without a look at the rows."""
    name = f"{space}.t"
    spark_catalog.sql(f"CREATE TABLE {name} (id INT, n INT, s STRUCT<a: INT>, p INT)")
    spark_catalog.sql(f"INSERT INTO {name} VALUES (1, NULL, named_struct('a', 1), 2)")
    spark_catalog.sql(f"ALTER TABLE {name} ALTER COLUMN id SET NOT NULL, s.a SET NOT NULL")
    schema = catalog.dataset((space.partition(".")[2], "t")).schema
    assert not schema.field("id").nullable
    assert not schema.field("s").type.field("a").nullable
    spark_catalog.sql(f"ALTER TABLE {name} ALTER COLUMN id SET NOT NULL")
    change = f"ALTER TABLE {name} ALTER COLUMN p SET NOT NULL, n SET NOT NULL"
    assert "column 'n' cannot become NOT NULL" in message(spark_catalog, change)
    assert catalog.dataset((space.partition(".")[2], "t")).schema.field("p").nullable
    with pytest.raises(PySparkException, match="NOT_NULL_ASSERT_VIOLATION"):
        spark_catalog.sql(f"INSERT INTO {name} VALUES (NULL, 1, named_struct('a', 1), 2)")
    spark_catalog.sql(f"UPDATE {name} SET n = 3")
    spark_catalog.sql(f"ALTER TABLE {name} ALTER COLUMN n SET NOT NULL")
    assert rows(spark_catalog, f"SELECT id, n, p FROM {name}") == [(1, 3, 2)]
    assert "UNRESOLVED_COLUMN" in message(
        spark_catalog, f"ALTER TABLE {name} ALTER COLUMN none SET NOT NULL"
    )


@pytest.mark.skipif(not HAS_LIKE, reason="Spark asks no catalog for it before 4.2")
def test_a_table_is_created_like_another_one(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    spark_catalog.sql(
        f"CREATE TABLE {space}.t (id INT NOT NULL, n INT DEFAULT 7, c CHAR(2), p STRING "
        "COMMENT 'x') PARTITIONED BY (p) COMMENT 'all' TBLPROPERTIES ('k' = 'v', 'l' = 'w')"
    )
    spark_catalog.sql(f"CREATE TABLE {space}.u LIKE {space}.t TBLPROPERTIES ('l' = 'z')")
    spark_catalog.sql(f"CREATE TABLE IF NOT EXISTS {space}.u LIKE {space}.t")
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in message(
        spark_catalog, f"CREATE TABLE {space}.u LIKE {space}.t"
    )
    namespace = space.partition(".")[2]
    first, second = catalog.dataset((namespace, "t")), catalog.dataset((namespace, "u"))
    assert second.schema.equals(first.schema)
    assert second.partition_by == ("p",)
    assert second.comments == {"p": "x"}
    assert second.properties["table_properties"] == {"k": "v", "l": "z", "comment": "all"}
    assert second.uri != first.uri
    spark_catalog.sql(f"INSERT INTO {space}.u (id, c, p) VALUES (1, 'a', 'q')")
    assert rows(spark_catalog, f"SELECT * FROM {space}.u") == [(1, 7, "a ", "q")]
    assert rows(spark_catalog, f"SELECT * FROM {space}.t") == []
    spark_catalog.sql("CREATE TABLE like_this (a INT, b DATE) USING parquet PARTITIONED BY (b)")
    try:
        spark_catalog.sql(f"CREATE TABLE {space}.v LIKE like_this")
    finally:
        spark_catalog.sql("DROP TABLE like_this")
    assert catalog.dataset((namespace, "v")).partition_by == ("b",)


def test_properties_and_comments_are_changed(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    spark_catalog.sql(f"CREATE TABLE {space}.t (a INT, b INT)")
    spark_catalog.sql(f"ALTER TABLE {space}.t SET TBLPROPERTIES ('x' = '1', 'y' = '2')")
    spark_catalog.sql(f"ALTER TABLE {space}.t UNSET TBLPROPERTIES ('x')")
    spark_catalog.sql(f"COMMENT ON TABLE {space}.t IS 'noted'")
    spark_catalog.sql(f"ALTER TABLE {space}.t CLUSTER BY (b)")
    made = catalog.dataset((space.partition(".")[2], "t"))
    assert made.properties["table_properties"] == {"y": "2", "comment": "noted"}
    assert made.properties["cluster_by"] == ["b"]
    told = rows(spark_catalog, f"SHOW TBLPROPERTIES {space}.t")
    assert told == [("cluster_by", "b"), ("y", "2")]


def test_a_table_is_renamed_and_dropped(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    namespace = space.partition(".")[2]
    spark_catalog.sql(f"CREATE TABLE {space}.a AS SELECT 1 AS x")
    uri = catalog.locate((namespace, "a"))
    spark_catalog.sql(f"ALTER TABLE {space}.a RENAME TO {namespace}.b")
    spark_catalog.sql(f"ALTER TABLE {space}.b RENAME TO {space}.c")
    assert catalog.locate((namespace, "c")) == uri
    spark_catalog.sql(f"DROP TABLE {space}.c")
    assert lake.read_dataset(uri, catalog=catalog).num_rows == 1
    spark_catalog.sql(f"CREATE TABLE {space}.again LOCATION '{uri.removeprefix('file://')}'")
    assert rows(spark_catalog, f"SELECT * FROM {space}.again") == [(1,)]
    spark_catalog.sql(f"DROP TABLE {space}.again PURGE")
    assert list(Path(uri.removeprefix("file://")).rglob("*.parquet")) == []
    assert rows(spark_catalog, f"SHOW TABLES IN {space}") == []


def test_namespaces(spark_catalog: SparkSession, space: str, catalog: DatasetCatalog) -> None:
    name = space.partition(".")[2]
    assert (name,) in rows(spark_catalog, "SHOW NAMESPACES IN plake")
    assert ("default",) in rows(spark_catalog, "SHOW NAMESPACES IN plake")
    assert "PLAKE_NAMESPACE_EXISTS" in message(spark_catalog, f"CREATE NAMESPACE {space}")
    spark_catalog.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
    spark_catalog.sql(f"COMMENT ON NAMESPACE {space} IS 'noted'")
    spark_catalog.sql(f"ALTER NAMESPACE {space} SET PROPERTIES ('a' = 'b')")
    assert catalog.namespace(name).properties["comment"] == "noted"
    described = rows(spark_catalog, f"DESCRIBE NAMESPACE EXTENDED {space}")
    assert ("Comment", "noted") in described
    spark_catalog.sql(f"CREATE TABLE {space}.t (a INT)")
    assert "SCHEMA_NOT_EMPTY" in message(spark_catalog, f"DROP NAMESPACE {space}")
    spark_catalog.sql(f"DROP NAMESPACE {space} CASCADE")
    assert (name,) not in rows(spark_catalog, "SHOW NAMESPACES IN plake")
    assert "PLAKE_NAMESPACE_NOT_FOUND" in message(spark_catalog, f"SHOW TABLES IN {space}")


@pytest.mark.long
def test_names_without_their_catalog(spark_catalog: SparkSession, space: str) -> None:
    name = space.partition(".")[2]
    spark_catalog.sql("USE plake")
    try:
        spark_catalog.sql(f"CREATE TABLE {name}.t (a INT)")
        spark_catalog.sql(f"USE {name}")
        spark_catalog.sql("INSERT INTO t VALUES (1)")
        spark_catalog.sql("UPDATE t SET a = 2")
        assert rows(spark_catalog, "SELECT * FROM t") == [(2,)]
        assert rows(spark_catalog, "SHOW TABLES") == [(name, "t", False)]
        assert [table.name for table in spark_catalog.catalog.listTables()] == ["t"]
    finally:
        spark_catalog.sql("USE spark_catalog.default")
    assert spark_catalog.catalog.tableExists(f"{space}.t")


@pytest.mark.long
def test_identifiers_of_every_kind(spark_catalog: SparkSession, space: str) -> None:
    for name in ("Größe 表", "a.b", "with`tick", "x" * 200):
        table = f"{space}.{quoted(name)}"
        spark_catalog.sql(f"CREATE TABLE {table} AS SELECT 1 AS {quoted(name)}")
        spark_catalog.sql(f"INSERT INTO {table} ({quoted(name)}) VALUES (2)")
        assert rows(spark_catalog, f"SELECT {quoted(name)} FROM {table}") == [(1,), (2,)]
    assert len(rows(spark_catalog, f"SHOW TABLES IN {space}")) == 4


@pytest.mark.long
def test_save_as_table_in_every_mode(spark_catalog: SparkSession, space: str) -> None:
    name, frame = f"{space}.t", spark_catalog.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.saveAsTable(name)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        frame.write.saveAsTable(name)
    frame.write.mode("ignore").saveAsTable(name)
    assert spark_catalog.table(name).count() == 4
    frame.select("p", "id").write.mode("append").saveAsTable(name)
    assert rows(spark_catalog, f"SELECT sum(id), count(*) FROM {name}") == [(12, 8)]
    frame.selectExpr("id AS x").write.format("plake").mode("overwrite").saveAsTable(name)
    assert spark_catalog.table(name).columns == ["x"]
    frame.write.partitionBy("p").mode("overwrite").saveAsTable(name)
    frame.where("p = 1").writeTo(name).overwritePartitions()
    assert rows(spark_catalog, f"SELECT count(*), sum(p) FROM {name}") == [(4, 2)]
    frame.write.insertInto(name)
    assert spark_catalog.table(name).count() == 8


@pytest.mark.long
def test_tables_are_written_by_write_to(spark_catalog: SparkSession, space: str) -> None:
    name, frame = f"{space}.t", spark_catalog.range(4).selectExpr("id", "id % 2 AS p")
    frame.writeTo(name).using("plake").partitionedBy(F.col("p")).tableProperty("k", "v").create()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        frame.writeTo(name).create()
    frame.writeTo(name).append()
    frame.selectExpr("id").writeTo(name).replace()
    frame.writeTo(name).createOrReplace()
    frame.writeTo(name).overwritePartitions()  # of a table without partitions: all rows
    assert spark_catalog.table(name).count() == 4
    with pytest.raises(AnalysisException, match="is not for a write that creates or replaces"):
        frame.writeTo(name).option("partitionBy", "p").replace()
    with pytest.raises(AnalysisException, match="partitions by columns"):
        frame.writeTo(name).partitionedBy(F.partitioning.years("id")).replace()


@pytest.mark.long
def test_tables_and_paths_and_other_sources_in_one_statement(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    lake.write_dataset({"id": [1, 2], "a": ["x", "y"]}, tmp_path / "plain")
    spark_catalog.range(3).write.parquet(str(tmp_path / "parquet"))
    spark_catalog.range(2, 5).createOrReplaceTempView("some")
    spark_catalog.sql(f"CREATE TABLE {space}.t AS SELECT id FROM range(10)")
    joined = (
        f"SELECT t.id, d.a FROM {space}.t t JOIN plake.`{tmp_path}/plain` d ON t.id = d.id "
        f"JOIN parquet.`{tmp_path}/parquet` q ON q.id = t.id LEFT ANTI JOIN some s ON s.id = t.id"
    )
    assert rows(spark_catalog, joined) == [(1, "x")]
    spark_catalog.sql(
        f"DELETE FROM {space}.t WHERE id IN (SELECT id FROM plake.`{tmp_path}/plain`)"
    )
    assert spark_catalog.table(f"{space}.t").count() == 8


def test_paths_are_created(spark_catalog: SparkSession, tmp_path: Path) -> None:
    spark_catalog.sql(f"CREATE TABLE plake.`{tmp_path}/a` (x INT, p INT) PARTITIONED BY (p)")
    spark_catalog.sql(f"CREATE TABLE plake.`{tmp_path}/b` AS SELECT 1 AS x")
    spark_catalog.sql(f"CREATE OR REPLACE TABLE plake.`{tmp_path}/b` AS SELECT 2 AS y")
    assert rows(spark_catalog, f"SELECT y FROM plake.`{tmp_path}/b`") == [(2,)]
    assert spark_catalog.table(f"plake.`{tmp_path}/a`").columns == ["x", "p"]
    assert "is known by its path" in message(spark_catalog, f"DROP TABLE plake.`{tmp_path}/b`")


def test_a_dataset_in_its_folder_s_own_catalog_is_replaced_there(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    path = f"{tmp_path}/own"
    lake.write_dataset(pa.table({"id": [1, 2]}), path)
    spark_catalog.sql(f"CREATE OR REPLACE TABLE plake.`{path}` AS SELECT 3L AS id")
    assert lake.read_dataset(path).to_pylist() == [{"id": 3}]
    assert lake.open_dataset(path).version == 2
    assert rows(spark_catalog, f"SELECT * FROM plake.`{path}`") == [(3,)]


def test_a_location_that_has_a_dataset_is_told_with_the_way_to_name_it(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    at = f"LOCATION '{tmp_path}/named'"
    spark_catalog.sql(f"CREATE TABLE {space}.t {at} AS SELECT 1 AS id")
    spark_catalog.sql(f"DROP TABLE {space}.t")
    for what in (f"(id INT) {at}", f"{at} AS SELECT 2 AS id"):
        for verb in ("CREATE TABLE", "CREATE OR REPLACE TABLE"):
            text = message(spark_catalog, f"{verb} {space}.t {what}")
            assert "without columns" in text
    spark_catalog.sql(f"CREATE TABLE {space}.t USING plake {at}")
    assert rows(spark_catalog, f"SELECT * FROM {space}.t") == [(1,)]


def test_python_and_spark_have_the_same_names(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    namespace = space.partition(".")[2]
    schema = pa.schema([pa.field("a", pa.int32(), False), ("b", pa.string())])
    catalog.create_dataset((namespace, "Made"), schema, comment="by Python")
    spark_catalog.sql(f"INSERT INTO {space}.made VALUES (1, 'x')")
    assert catalog.dataset((namespace, "MADE")).scan().to_table().to_pylist() == [
        {"a": 1, "b": "x"}
    ]
    assert rows(spark_catalog, f"SHOW TABLES IN {space}") == [(namespace, "Made", False)]


def test_names_need_a_catalog(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PLAKE_CATALOG" not in os.environ
    session = enable(unshared_session(spark))
    assert "spark.sql.catalog.plake.catalog" in message(session, "SELECT * FROM plake.people")
    assert "spark.sql.catalog.plake.catalog" in message(session, "SHOW TABLES IN plake.default")


@pytest.mark.long
def test_streams_read_and_write_tables(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    spark_catalog.sql(f"CREATE TABLE {space}.a AS SELECT id, id % 2 AS p FROM range(4)")
    spark_catalog.sql(f"CREATE TABLE {space}.b (id BIGINT, p BIGINT)")
    read = spark_catalog.readStream.option("startingVersion", "1")
    for total in (4, 8):
        stream = read.table(f"{space}.a").writeStream.trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(tmp_path / "check")).toTable(f"{space}.b")
        assert query.awaitTermination(120)
        assert query.exception() is None
        assert spark_catalog.table(f"{space}.b").count() == total
        spark_catalog.sql(f"INSERT INTO {space}.a SELECT id, 0 FROM range(4)")
    assert spark_catalog.readStream.table(f"{space}.a").columns == ["id", "p"]
    with pytest.raises(AnalysisException, match="has no columns that tell where a row is stored"):
        spark_catalog.readStream.table(f"{space}.a").select("_file").writeStream.format(
            "noop"
        ).start()


@pytest.mark.long
def test_tables_about_a_table_are_read_by_its_name(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    spark_catalog.sql(f"CREATE TABLE {space}.t AS SELECT id FROM range(5)")
    spark_catalog.sql(f"INSERT INTO {space}.t VALUES (9)")
    made = catalog.dataset((space.partition(".")[2], "t"))
    path = made.uri.removeprefix("file://")
    for table in (f"{space}.t", f"plake.`{path}`"):
        found = rows(spark_catalog, f"SELECT file_path, row_count FROM {table}.files")
        assert found == sorted(((one.path, one.row_count) for one in made.files()), key=repr)
        assert rows(spark_catalog, f"SELECT sum(row_count) FROM {table}.files") == [(6,)]
    old = f"SELECT sum(row_count) FROM {space}.t.files VERSION AS OF 1"
    assert rows(spark_catalog, old) == [(5,)]
    for statement in (
        f"TRUNCATE TABLE {space}.t.files",
        f"DELETE FROM {space}.t.files",
        f"INSERT INTO {space}.t.files SELECT * FROM {space}.t.files",
        f"ALTER TABLE {space}.t.files ADD COLUMN x INT",
        f"DROP TABLE {space}.t.files",
        f"CREATE OR REPLACE TABLE {space}.t.files AS SELECT 1 AS a",
    ):
        with pytest.raises(PySparkException):
            spark_catalog.sql(statement)
    assert spark_catalog.table(f"{space}.t").count() == 6
    assert catalog.dataset((space.partition(".")[2], "t")).version == 2


@pytest.mark.long
def test_branches_are_read_and_written_by_their_names_and_by_an_option(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    spark_catalog.sql(f"CREATE TABLE {space}.t AS SELECT id, 'a' AS k FROM range(4)")
    made = catalog.dataset((space.partition(".")[2], "t"))
    name = space.partition(".")[2] + ".t"
    system = "CALL plake.system"
    assert rows(spark_catalog, f"{system}.create_branch('{name}', 'Audit')") == [("Audit", 1)]
    assert "exists already" in message(spark_catalog, f"{system}.create_branch('{name}', 'Audit')")
    table = f"{space}.t.branch_Audit"
    spark_catalog.sql(f"INSERT INTO {table} VALUES (10, 'b')")
    spark_catalog.sql(f"DELETE FROM {table} WHERE id = 1")
    spark_catalog.sql(
        f"MERGE INTO {table} t USING (SELECT 2L AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET k = 'm'"
    )
    expected = [(0, "a"), (10, "b"), (2, "m"), (3, "a")]
    assert rows(spark_catalog, f"SELECT * FROM {table}") == expected
    assert rows(spark_catalog, f"SELECT * FROM {table} VERSION AS OF 1") == [
        (0, "a"), (1, "a"), (2, "a"), (3, "a"),
    ]  # fmt: skip
    reader = spark_catalog.read.format("plake").option("catalog", catalog.url)
    for frame in (
        reader.option("branch", "Audit").load(made.uri),
        reader.load(f"{made.uri}#branch=Audit"),
        spark_catalog.table(f"plake.`{made.uri}#branch=Audit`"),
    ):
        assert sorted((tuple(row) for row in frame.collect()), key=repr) == expected
    assert len(rows(spark_catalog, f"SELECT * FROM {space}.t")) == 4
    appended = spark_catalog.range(20, 21).select("id", F.lit("w").alias("k")).write
    appended = appended.format("plake").option("catalog", catalog.url).option("branch", "Audit")
    appended.mode("append").save(made.uri)
    assert rows(spark_catalog, f"SELECT count(*) FROM {table}") == [(5,)]
    by_option = spark_catalog.read.option("branch", "Audit").table(f"{space}.t")
    with pytest.raises(AnalysisException, match="A branch of a table is a table"):
        by_option.collect()  # it showed the rows of the table
    operations = rows(spark_catalog, f"SELECT version, operation FROM {table}.history")
    assert [name for _, name in operations] == ["create", "append", "delete", "merge", "append"]
    called = rows(spark_catalog, f"{system}.fast_forward(table => '{name}', branch => 'Audit')")
    assert called == [("Audit", 1, 5)]
    assert rows(spark_catalog, f"SELECT count(*), max(id) FROM {space}.t") == [(5, 20)]
    assert "TABLE_OR_VIEW_NOT_FOUND" in message(
        spark_catalog, f"SELECT * FROM {space}.t.branch_none"
    )
    for statement in (f"DROP TABLE {table}", f"CREATE TABLE {space}.t.branch_b (id INT)"):
        assert "is a branch" in message(spark_catalog, statement)
    assert rows(spark_catalog, f"{system}.drop_branch('{name}', 'Audit')") == [("Audit", 5)]


def test_a_table_is_opened_by_its_name(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    """It was taken for a folder, and the first statement failed."""
    spark_catalog.sql(f"CREATE TABLE {space}.t AS SELECT id FROM range(3)")
    table = lake.spark.open(spark_catalog, f"{space}.t")
    table.delete("id = 1")
    assert sorted(row.id for row in spark_catalog.table(f"{space}.t").collect()) == [0, 2]
    assert table.history().count() == 2
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        lake.spark.open(spark_catalog, f"{space}.none")


def test_a_table_by_its_path_is_clustered_too(
    spark_catalog: SparkSession, space: str, tmp_path: Path
) -> None:
    name = f"{space.partition('.')[0]}.`{tmp_path}/t`"

    def columns() -> list[str]:
        shown = dict(rows(spark_catalog, f"SHOW TBLPROPERTIES {name}"))
        return [one for one in shown.get("cluster_by", "").split(",") if one]

    spark_catalog.sql(f"CREATE TABLE {name} (k INT, m INT) CLUSTER BY (k, m)")
    assert columns() == ["k", "m"]
    spark_catalog.sql(f"ALTER TABLE {name} CLUSTER BY (m)")
    assert columns() == ["m"]
    spark_catalog.sql(f"CREATE OR REPLACE TABLE {name} CLUSTER BY (id) AS SELECT id FROM range(9)")
    assert columns() == ["id"]
    spark_catalog.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
    assert columns() == []


@pytest.mark.long
def test_cluster_by_is_typed_in_all_its_forms(
    spark_catalog: SparkSession, space: str, catalog: DatasetCatalog
) -> None:
    namespace = space.partition(".")[2]

    def columns(name: str) -> list[str] | None:
        return catalog.dataset((namespace, name)).properties.get("cluster_by")

    spark_catalog.sql(f"CREATE TABLE {space}.a (k INT, s STRUCT<x: INT>) CLUSTER BY (k, s.x)")
    assert columns("a") == ["k", "s.x"]
    spark_catalog.sql(f"INSERT INTO {space}.a SELECT id, struct(int(id % 7)) FROM range(50)")
    spark_catalog.sql(f"ALTER TABLE {space}.a CLUSTER BY (K)")
    assert columns("a") == ["k"]
    done = rows(spark_catalog, f"CALL plake.system.cluster(table => '{space}.a', full => true)")
    assert done[0][2] == 1
    told = {row[0] for row in rows(spark_catalog, f"CALL plake.system.health('{space}.a')")}
    assert {"files", "average depth", "cluster", "compact", "vacuum"} <= told
    assert rows(spark_catalog, f"SELECT count(*), sum(s.x) FROM {space}.a") == [(50, 147)]
    spark_catalog.sql(f"ALTER TABLE {space}.a CLUSTER BY NONE")
    assert columns("a") is None
    spark_catalog.sql(f"ALTER TABLE {space}.a SET TBLPROPERTIES ('cluster_by' = 's.x')")
    assert columns("a") == ["s.x"]
    spark_catalog.sql(f"CREATE TABLE {space}.b CLUSTER BY (id) AS SELECT id FROM range(9)")
    assert columns("b") == ["id"]
    spark_catalog.table(f"{space}.b").writeTo(f"{space}.c").clusterBy("id").create()
    assert columns("c") == ["id"]
    two = spark_catalog.sql("SELECT id, id % 3 AS m FROM range(9)")
    two.writeTo(f"{space}.c").clusterBy("m", "id").createOrReplace()
    assert columns("c") == ["m", "id"]
    two.write.clusterBy("id").saveAsTable(f"{space}.d")
    assert columns("d") == ["id"]
    spark_catalog.sql(f"CREATE OR REPLACE TABLE {space}.d CLUSTER BY (m) AS SELECT 1 AS m")
    assert columns("d") == ["m"]
    spark_catalog.sql(f"REPLACE TABLE {space}.d (m INT, k INT, d DATE) PARTITIONED BY (d)")
    assert columns("d") is None
    spark_catalog.sql(f"ALTER TABLE {space}.d CLUSTER BY (m, d)")  # beside its partitions
    assert columns("d") == ["m", "d"]
    for five in (
        f"CREATE TABLE {space}.e (a INT, b INT, c INT, d INT, e INT) CLUSTER BY (a, b, c, d, e)",
        f"ALTER TABLE {space}.d CLUSTER BY (m, d, a, b, c)",
    ):
        assert "at most 4 columns" in message(spark_catalog, five)
    assert "is not a column" in message(spark_catalog, f"ALTER TABLE {space}.d CLUSTER BY (no)")
    dropped = message(spark_catalog, f"ALTER TABLE {space}.d DROP COLUMN m")
    assert "clustered by and cannot be dropped" in dropped
    spark_catalog.sql("CREATE TABLE clustered_in_spark_catalog (a INT, b INT) USING plake "
                      "CLUSTER BY (a)")  # fmt: skip
    try:
        spark_catalog.sql("ALTER TABLE clustered_in_spark_catalog CLUSTER BY (b)")
        shown = rows(spark_catalog, "SHOW TBLPROPERTIES clustered_in_spark_catalog")
        assert ("cluster_by", "b") in shown
    finally:
        spark_catalog.sql("DROP TABLE clustered_in_spark_catalog")
