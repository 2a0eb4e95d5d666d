"""Statements that users of Delta and Iceberg type, and texts that reach Spark as they are."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests.verbs.delta_tables import add, field, inline, log, metadata, parquet, protocol

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark_catalog: SparkSession) -> Iterator[str]:
    """A table with three versions of rows: 1 to 3, 1 to 4, 2 to 4."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.typed")
    name = "plake.typed.`or ders`"
    spark_catalog.sql(f"CREATE TABLE {name} (id BIGINT, p INT) PARTITIONED BY (p)")
    spark_catalog.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 1)")
    spark_catalog.sql(f"INSERT INTO {name} VALUES (4, 1)")
    spark_catalog.sql(f"DELETE FROM {name} WHERE id = 1")
    yield name
    spark_catalog.sql(f"DROP TABLE {name}")


def ids(spark: SparkSession, name: str) -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {name}").collect())


def said(spark: SparkSession, statement: str) -> str:
    with pytest.raises(PySparkException) as caught:
        spark.sql(statement).collect()
    return str(caught.value)


def test_each_statement_does_what_its_procedure_does(
    spark_catalog: SparkSession, table: str
) -> None:
    sql = spark_catalog.sql
    history = sql(f"/* a ; comment */ DESCRIBE HISTORY {table} LIMIT 2;").collect()
    assert [(row.version, row.operation) for row in history] == [(4, "DELETE"), (3, "WRITE")]
    assert history[0].operationMetrics["numDeletedRows"] == "1"
    assert history[1].operationParameters == {"mode": "Append"}
    (detail,) = sql(f"DESC DETAIL {table}").collect()
    assert (detail.numFiles, detail.numRows, detail.partitionColumns) == (3, 3, ["p"])
    assert detail.version == 4

    (done,) = sql(f"OPTIMIZE {table} WHERE p = 1").collect()
    assert (done.files_removed, done.files_added) == (2, 1)
    told = sql(f"DESCRIBE HISTORY {table} LIMIT 1").first()
    assert (told.operation, told.operationParameters) == ("OPTIMIZE", {"predicate": '["p"]'})
    (purged,) = sql(f"REORG TABLE {table} APPLY (PURGE)").collect()
    assert purged.files_removed == 0  # the compaction left the deleted row out
    sql(f"RESTORE {table} VERSION AS OF '2'")
    assert ids(spark_catalog, table) == [1, 2, 3]
    assert sql(f"DESCRIBE HISTORY {table}").first().operationParameters == {"version": "2"}
    sql(f"DELETE FROM {table} WHERE id = 1")
    (purged,) = sql(f"REORG TABLE {table} WHERE p = 2 APPLY (PURGE)").collect()
    assert purged.files_removed == 0
    sql(f"RESTORE TABLE {table} TO VERSION AS OF 3")
    assert ids(spark_catalog, table) == [1, 2, 3, 4]
    moment = history[0].timestamp
    sql(f"RESTORE {table} TO TIMESTAMP AS OF '{moment}' + INTERVAL 0 HOURS")
    assert ids(spark_catalog, table) == [2, 3, 4]

    sql(f"ALTER TABLE {table} CREATE TAG first AS OF VERSION 2")
    sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    assert ids(spark_catalog, f"{table} VERSION AS OF 'first'") == [1, 2, 3]
    assert ids(spark_catalog, f"{table}.branch_audit") == [2, 3, 4]
    sql(f"ALTER TABLE {table} DROP TAG first")
    sql(f"ALTER TABLE {table} DROP BRANCH audit")
    assert sql(f"SELECT * FROM {table}.refs WHERE name = 'first'").count() == 0

    sql("CALL plake.system.expire_versions('typed.`or ders`', keep_last => 1)")
    dry = sql(f"VACUUM {table} RETAIN 168 HOURS DRY RUN").collect()
    assert {row.action for row in dry} == {"left"}
    assert "allow_short_retention" in said(spark_catalog, f"VACUUM {table} RETAIN 0.5 HOURS")


def test_clones_begin_as_a_version_and_go_on_alone(
    spark_catalog: SparkSession, table: str, tmp_path: Path
) -> None:
    sql = spark_catalog.sql
    (made,) = sql(f"CREATE TABLE plake.typed.trial SHALLOW CLONE {table}").collect()
    assert (made.version, made.files, made.rows) == (4, 3, 3)
    sql("INSERT INTO plake.typed.trial VALUES (9, 1)")
    sql("DELETE FROM plake.typed.trial WHERE id = 2")
    sql("MERGE INTO plake.typed.trial t USING (SELECT 3L AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = 30")  # fmt: skip
    sql(f"DELETE FROM {table} WHERE id = 4")
    assert ids(spark_catalog, "plake.typed.trial") == [4, 9, 30]
    assert ids(spark_catalog, table) == [2, 3]
    assert ids(spark_catalog, "plake.typed.trial VERSION AS OF 4") == [2, 3, 4]

    clone = "CREATE TABLE IF NOT EXISTS plake.typed.trial CLONE"
    assert "CLONE" in said(spark_catalog, f"{clone} {table}")
    sql(f"CREATE TABLE IF NOT EXISTS plake.typed.trial DEEP CLONE {table}")
    assert ids(spark_catalog, "plake.typed.trial") == [4, 9, 30]
    assert "exist" in said(spark_catalog, f"CREATE TABLE plake.typed.trial DEEP CLONE {table}")
    sql(f"CREATE OR REPLACE TABLE plake.typed.trial DEEP CLONE {table} VERSION AS OF 2")
    assert ids(spark_catalog, "plake.typed.trial") == [1, 2, 3]
    when = sql(f"DESCRIBE HISTORY {table}").collect()[2].timestamp
    sql(f"CREATE TABLE plake.`{tmp_path}/x` SHALLOW CLONE {table} TIMESTAMP AS OF '{when}'")
    assert ids(spark_catalog, f"plake.`{tmp_path}/x`") == [1, 2, 3, 4]
    sql(f"CREATE TABLE plake.typed.placed SHALLOW CLONE plake.`{tmp_path}/x` "
        f"LOCATION '{tmp_path}/placed'")  # fmt: skip
    spark_catalog.sql(f"INSERT INTO plake.`{tmp_path}/x` VALUES (5, 1)")
    assert ids(spark_catalog, "plake.typed.placed") == [1, 2, 3, 4]
    assert (tmp_path / "placed/_plake").is_dir()
    stream = (
        spark_catalog.readStream.table("plake.typed.placed").writeStream.format("memory")
        .queryName("of_a_clone").trigger(availableNow=True)
        .option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    )  # fmt: skip
    stream.awaitTermination()
    assert ids(spark_catalog, "of_a_clone") == [1, 2, 3, 4]
    for name in ("trial", "placed"):
        sql(f"DROP TABLE plake.typed.{name}")


@pytest.mark.long
def test_optimize_sorts_a_table_by_its_clustering_columns(spark_catalog: SparkSession) -> None:
    sql = spark_catalog.sql
    sql("CREATE NAMESPACE IF NOT EXISTS plake.typed")
    sql("CREATE OR REPLACE TABLE plake.typed.points (x BIGINT, y BIGINT)")
    for first in range(6):
        sql(f"INSERT INTO plake.typed.points SELECT id * 7 % 60 + {first}, id FROM range(60)")
    files = sql("DESCRIBE DETAIL plake.typed.points").first().numFiles
    (done,) = sql("OPTIMIZE plake.typed.points ZORDER BY (x, y)").collect()
    assert (done.files_removed, done.files_added) == (files, 1)
    assert sql("DESCRIBE DETAIL plake.typed.points").first().clusteringColumns == ["x", "y"]
    assert sql("OPTIMIZE plake.typed.points").first().files_removed == 0
    (again,) = sql("OPTIMIZE plake.typed.points ZORDER BY (x, y)").collect()
    assert (again.files_removed, again.files_added) == (1, 1)  # all files, as in Delta
    assert sql("OPTIMIZE plake.typed.points FULL").first().files_removed > 0
    assert "cluster" in said(spark_catalog, "OPTIMIZE plake.typed.points ZORDER BY y")
    assert "non-partition column 'x'" in said(
        spark_catalog, "OPTIMIZE plake.typed.points WHERE x = 1"
    )
    sql("ALTER TABLE plake.typed.points CLUSTER BY (y)")
    assert sql("DESCRIBE DETAIL plake.typed.points").first().clusteringColumns == ["y"]
    sql("ALTER TABLE plake.typed.points CLUSTER BY NONE")
    assert sql("DESCRIBE DETAIL plake.typed.points").first().clusteringColumns == []
    sql("DROP TABLE plake.typed.points")


def test_optimize_sorts_the_partitions_of_its_condition(spark_catalog: SparkSession) -> None:
    sql, name = spark_catalog.sql, "plake.typed.parts"
    sql("CREATE NAMESPACE IF NOT EXISTS plake.typed")
    sql(f"CREATE OR REPLACE TABLE {name} (x BIGINT, p BIGINT) PARTITIONED BY (p)")
    for first in range(2):
        sql(f"INSERT INTO {name} SELECT (id * 7 + {first}) % 60, id % 2 FROM range(60)")
    files = f"SELECT file_path FROM {name}.files WHERE partitions['p'] = "
    before = sql(files + "'0'").collect()
    assert "p is a partition column" in said(spark_catalog, f"OPTIMIZE {name} ZORDER BY (p)")
    for statement in ("WHERE p = 1 ZORDER BY (x)", "FULL WHERE p >= 1"):
        (done,) = sql(f"OPTIMIZE {name} {statement}").collect()
        assert (done.files_added, done.groups) == (1, 1)
        assert sql(files + "'0'").collect() == before
    assert sql(files + "'1'").count() == 1
    assert sql(f"SELECT count(*), sum(x) FROM {name}").first() == (120, 2 * sum(range(60)))
    sql(f"DROP TABLE {name}")


def test_paths_and_names_without_a_catalog(spark_catalog: SparkSession, tmp_path: Path) -> None:
    sql, path = spark_catalog.sql, f"{tmp_path}/it's a table"
    lake.write_dataset({"id": [1, 2]}, path, catalog=f"sqlite:///{tmp_path}/other.db")
    lake.write_dataset({"id": [1, 2]}, path + "2")
    assert sql(f"DESCRIBE HISTORY plake.`{path}2`").count() == 1
    assert sql(f"VACUUM plake.`{path}2` DRY RUN").collect() is not None
    quoted = path.replace("'", "\\'") + "2"
    assert sql(f"DESCRIBE HISTORY '{quoted}'").count() == 1
    assert sql(f'DESC DETAIL "{path}2"').first().numRows == 2
    assert sql(f"OPTIMIZE '{quoted}'").first().files_removed == 0
    assert "allow_short_retention" in said(spark_catalog, f"VACUUM '{quoted}' LITE RETAIN 0 HOURS")
    try:
        sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
        assert sql(f"VACUUM '{quoted}' FULL RETAIN 0 HOURS").collect() is not None
    finally:
        sql("RESET spark.databricks.delta.retentionDurationCheck.enabled")
    sql("CREATE NAMESPACE IF NOT EXISTS plake.typed")
    try:
        sql("USE plake.typed")
        sql("CREATE TABLE short AS SELECT 1 AS id")
        assert [row.operation for row in sql("DESCRIBE HISTORY short").collect()] == [
            "CREATE TABLE AS SELECT"
        ]
        assert sql("OPTIMIZE short").first().files_removed == 0
        assert sql("OPTIMIZE typed.short").first().files_removed == 0
    finally:
        sql("DROP TABLE IF EXISTS plake.typed.short")
        sql("USE spark_catalog.default")


def test_a_folder_of_parquet_is_converted(spark_catalog: SparkSession, tmp_path: Path) -> None:
    folder = f"{tmp_path}/plain"
    spark_catalog.range(10).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(folder)
    spark_catalog.sql(f"CONVERT TO PLAKE parquet.`{folder}`")
    assert spark_catalog.sql(f"SELECT * FROM plake.`{folder}` WHERE p = 1").count() == 5


def test_types_of_partition_columns_are_given(spark_catalog: SparkSession, tmp_path: Path) -> None:
    folder = f"{tmp_path}/plain"
    spark_catalog.range(3).selectExpr("id", "id AS p").write.partitionBy("p").parquet(folder)
    statement = (
        f"CONVERT TO PLAKE parquet.`{folder}` NO STATISTICS PARTITIONED BY (p DECIMAL(9, 2))"
    )
    wrong = said(spark_catalog, statement.replace("(9, 2)", "(9,").replace("DECIMAL", "DECIMALS"))
    assert "partitioned_by" in wrong
    spark_catalog.sql(statement)
    (row,) = spark_catalog.sql(f"SELECT sum(p), typeof(min(p)) FROM plake.`{folder}`").collect()
    assert (row[0], row[1]) == (3, "decimal(9,2)")


def test_a_delta_table_is_converted(spark_catalog: SparkSession, tmp_path: Path) -> None:
    """With renamed columns and deleted rows."""
    folder = tmp_path / "delta"
    columns = [
        field("n", pa.int64(), number=1, physical="col-1"),
        field("p", pa.string(), number=2, physical="col-2"),
    ]
    path = parquet(folder, "1.parquet", **{"col-1": list(range(10))})
    features = protocol("columnMapping", "deletionVectors")
    mapped = metadata(columns, ["p"], delta_columnMapping_mode="name")
    log(folder, features, mapped, add(path, inline(1, 3), **{"col-2": "a"}))
    sql = spark_catalog.sql
    assert "Delta table" in said(spark_catalog, f"CONVERT TO PLAKE parquet.`{folder}`")
    assert "no Delta table" in said(spark_catalog, f"CONVERT TO PLAKE delta.`{tmp_path}`")
    sql(f"CONVERT TO PLAKE delta.`{folder}` PARTITIONED BY (p STRING)")
    left = [0, 2, 4, 5, 6, 7, 8, 9]
    frame = sql(f"SELECT n FROM plake.`{folder}` WHERE p = 'a'")
    assert sorted(row.n for row in frame.collect()) == left
    sql(f"INSERT INTO plake.`{folder}` VALUES (11, 'b')")
    sql(f"MERGE INTO plake.`{folder}` AS t USING (SELECT 2L AS n) AS s ON t.n = s.n "
        "WHEN MATCHED THEN UPDATE SET p = 'c'")  # fmt: skip
    sql(f"VACUUM plake.`{folder}`")
    found = sql(f"SELECT n, p FROM plake.`{folder}` WHERE p <> 'a' ORDER BY n").collect()
    assert [tuple(row) for row in found] == [(2, "c"), (11, "b")]


REFUSED = {
    "MSCK REPAIR TABLE {}": "add_files",
    "GENERATE symlink_format_manifest FOR TABLE {}": "engines.md",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_plake_does_not_need_is_refused_with_what_to_do(
    spark_catalog: SparkSession, table: str, statement: str
) -> None:
    assert REFUSED[statement] in said(spark_catalog, statement.format(table))


# Texts that are no such statement, or are about a table of another catalog.
OTHERS = (
    "VACUUM other.t",
    "VACUUM",
    "VACUUM plake.typed.t RETAIN x HOURS",
    "VACUUM plake.typed.t, u",
    "VACUUM 'name'",
    "OPTIMIZE '/a' '/b'",
    "REORG TABLE plake.typed.t WHERE APPLY (PURGE)",
    "OPTIMIZE plake.typed.t WHERE",
    "OPTIMIZE plake.typed.t ZORDER BY (a",
    "RESTORE plake.typed.t TO VERSION",
    "DESCRIBE HISTORY plake.typed.t LIMIT many",
    "CONVERT TO DELTA parquet.`/a`",
    "CONVERT TO PLAKE iceberg.`/a`",
    "CONVERT TO PLAKE delta.`/a` PARTITIONED BY (a INT",
    "REORG TABLE plake.typed.t APPLY (UPGRADE)",
    "ALTER TABLE plake.typed.t CREATE TAG a b",
    "GENERATE x FOR TABLE other.t",
)


def error(session: SparkSession, statement: str) -> tuple[str | None, str]:
    with pytest.raises((AnalysisException, ParseException)) as caught:
        session.sql(statement).collect()
    return caught.value.getCondition(), str(caught.value).split("JVM stacktrace")[0]


def test_other_texts_have_the_error_and_the_place_of_spark(
    spark: SparkSession, spark_catalog: SparkSession
) -> None:
    for statement in OTHERS:
        assert error(spark_catalog, statement) == error(spark, statement), statement


WORDS = (
    *("VACUUM", "OPTIMIZE", "DESCRIBE", "DESC", "HISTORY", "DETAIL", "RESTORE", "TABLE", "ALTER"),
    *("CREATE", "DROP", "TAG", "BRANCH", "CLUSTER", "BY", "NONE", "MSCK", "REPAIR", "CONVERT"),
    *("TO", "VERSION", "AS", "OF", "REORG", "APPLY", "PURGE", "SELECT", "FROM", "WHERE", "LIMIT"),
    *("PARTITIONED", "RETAIN", "HOURS", "ZORDER", "FULL", "delta.`/a`", "parquet.`/a`", "PLAKE"),
    *(
        "FULL",
        "LITE",
        "'/a'",
        "(",
        ")",
        ",",
        ".",
        ";",
        "--\n",
        "/* x */",
        "'text'",
        "`a b`",
        "1",
        "0.5",
        "plake",
        "t",
    ),
    *("plake.typed.t", "spark_catalog.t", "EXTENDED", "COLUMN", "ADD", "=", "€", "'"),
)


STATEMENTS = (
    *OTHERS,
    "VACUUM plake.typed.t RETAIN 7 HOURS DRY RUN",
    "OPTIMIZE plake.typed.t WHERE p = 1 ZORDER BY ( a , b )",
    "RESTORE TABLE plake.typed.t TO VERSION AS OF 1",
    "VACUUM '/a' FULL RETAIN 7 HOURS",
    "REORG TABLE plake.typed.t APPLY ( PURGE )",
    "ALTER TABLE plake.typed.t CLUSTER BY NONE",
    "ALTER TABLE plake.typed.t CREATE TAG x AS OF VERSION 1",
    "ALTER TABLE plake.typed.t DROP COLUMN x",
    "DESCRIBE TABLE EXTENDED plake.typed.t x",
    "MSCK REPAIR TABLE t ADD PARTITIONS",
    "CONVERT TO PLAKE delta.`/a` PARTITIONED BY ( a INT )",
    "SELECT a , b FROM t WHERE a = 1 LIMIT 2",
)


LONG = [pytest.param(seed, 10_000, marks=pytest.mark.long) for seed in range(10)]


@pytest.mark.parametrize(("seed", "count"), [(26, 300), *LONG])
def test_no_text_that_spark_accepts_is_changed(
    spark: SparkSession, spark_catalog: SparkSession, seed: int, count: int
) -> None:
    """But for DESCRIBE HISTORY and DETAIL, which Spark reads as a table and its column.

    MSCK REPAIR TABLE of a table of plake is refused.
    """
    spark_catalog.createDataFrame([(1,)], "a INT")  # makes it the one whose settings parsers read
    drawn = random.Random(seed)
    plain = spark._jsparkSession.sessionState().sqlParser()
    ours = spark_catalog._jsparkSession.sessionState().sqlParser()
    accepted = 0
    for _ in range(count):
        words = drawn.choices(WORDS, k=drawn.randint(1, 9))
        if drawn.random() < 0.5:  # a statement of somebody, with a word taken out, put in or moved
            words = drawn.choice(STATEMENTS).split(" ")
            for _ in range(drawn.randint(1, 3)):
                words.insert(drawn.randint(0, len(words)), drawn.choice(WORDS))
                words.pop(drawn.randrange(len(words)))
        text = " ".join(words)
        expected = parsed(plain, text)
        if expected is None or text.split()[1:2] in (["HISTORY"], ["DETAIL"]):
            continue
        accepted += 1
        is_refused = expected.startswith("'RepairTable") and "[plake, " in expected
        assert parsed(ours, text) == (None if is_refused else expected), text
    assert accepted > count / 1000


def parsed(parser: Any, text: str) -> str | None:
    try:
        # Each plan has new numbers of its attributes.
        return re.sub(r"#\d+", "", parser.parsePlan(text).toString())
    except (PySparkException, Py4JJavaError):
        return None
