"""With `mergeSchema` no value is rounded on its way to a table, whatever the door."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

DOORS: dict[str, Callable[[DataFrame, str], Any]] = {
    "append": lambda frame, table: frame.writeTo(table).option("mergeSchema", True).append(),
    "overwrite": lambda frame, table: (
        frame.writeTo(table).option("mergeSchema", True).overwrite(F.lit(True))
    ),
    "saveAsTable": lambda frame, table: (
        frame.write.option("mergeSchema", True).mode("append").saveAsTable(table)
    ),
    "insertInto": lambda frame, table: frame.write.option("mergeSchema", True).insertInto(table),
}
REFUSED = "refused"
# The type of a column, what is written to it, and its type afterwards.
CASES = {
    "a double to a float": ("FLOAT", "1.1D", "double"),
    "a fraction to an integer": ("INT", "1.6D", "double"),
    "a timestamp to a date": ("DATE", "TIMESTAMP'2024-01-02 03:04:05'", REFUSED),
    "a long to a double": ("DOUBLE", "9007199254740993L", REFUSED),
    "a decimal to fewer digits": ("DECIMAL(10, 2)", "1.005BD", REFUSED),
    "inside of a struct": ("STRUCT<x: FLOAT>", "named_struct('x', 1.1D)", "struct<x:double>"),
    "inside of a list": (
        "ARRAY<STRUCT<x: DATE>>",
        "array(named_struct('x', TIMESTAMP'2024-01-02 03:04:05'))",
        REFUSED,
    ),
    "inside of a map": ("MAP<FLOAT, FLOAT>", "map(1.1D, 1.1D)", "map<double,double>"),
    # Casts that lose nothing stay Spark's.
    "an integer to a long": ("BIGINT", "1", "bigint"),
    "a long to an integer that it fits": ("INT", "1L", "int"),
    "a number to a text": ("STRING", "1.5D", "string"),
    "a date to a timestamp": ("TIMESTAMP", "DATE'2024-01-02'", "timestamp"),
    "NULL": ("FLOAT", "NULL", "float"),
}
numbers = count()


@pytest.mark.parametrize("case", CASES)
def test_a_value_is_not_rounded(spark_catalog: SparkSession, case: str) -> None:
    type_, value, expected = CASES[case]
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.merged")
    rows = spark_catalog.sql(f"SELECT {value} AS a")
    for door, write in DOORS.items():
        table = f"plake.merged.t{next(numbers)}"
        spark_catalog.sql(f"CREATE TABLE {table} (a {type_})")
        if expected == REFUSED:
            with pytest.raises(PySparkException, match=r"Cast|round|exact"):
                write(rows, table)
            assert spark_catalog.table(table).count() == 0, door
            continue
        write(rows, table)
        written = spark_catalog.table(table)
        assert written.dtypes == [("a", expected)], door
        assert written.collect() == rows.select(F.col("a").cast(expected)).collect(), door


def test_fields_that_the_rows_lack_are_null_by_name_as_by_path(
    spark_catalog: SparkSession, tmp_path: Path
) -> None:
    """By name Spark refused a struct with fewer fields than the table's."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.merged")
    full = "named_struct('a', 1, 'b', 'x')"
    old = spark_catalog.sql(
        f"SELECT 0 AS id, {full} AS s, array({full}) AS l, map('k', named_struct('i', {full})) AS m"
    )
    rows = spark_catalog.sql(
        "SELECT 1 AS id, named_struct('c', 2, 'a', 3) AS s, array(named_struct('b', 'y')) AS l,"
        " map('k', named_struct('i', named_struct('b', 'z'))) AS m"
    )
    path = f"{tmp_path}/by_path"
    old.write.format("plake").mode("append").save(path)
    rows.write.format("plake").mode("append").option("mergeSchema", True).save(path)
    expected = spark_catalog.read.format("plake").load(path)
    for door in ("append", "saveAsTable"):
        table = f"plake.merged.t{next(numbers)}"
        old.writeTo(table).create()
        DOORS[door](rows, table)
        assert spark_catalog.table(table).dtypes == expected.dtypes, door
        assert sorted(map(str, spark_catalog.table(table).collect())) == sorted(
            map(str, expected.collect())
        ), door
    table = f"plake.merged.t{next(numbers)}"
    spark_catalog.sql(f"CREATE TABLE {table} (id INT, s STRUCT<a: INT, b: STRING NOT NULL>)")
    with pytest.raises(PySparkException, match=r"'s.b' .* is not nullable"):
        DOORS["append"](rows.select("id", rows["s"].dropFields("c").alias("s")), table)


def test_without_the_option_spark_casts_as_for_any_table(spark_catalog: SparkSession) -> None:
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.merged")
    spark_catalog.sql("CREATE TABLE plake.merged.plain (f FLOAT, d DATE)")
    spark_catalog.sql(
        "INSERT INTO plake.merged.plain VALUES (1.1D, TIMESTAMP'2024-01-02 03:04:05')"
    )
    (row,) = (
        spark_catalog.table("plake.merged.plain")
        .selectExpr("f = 1.1F", "CAST(d AS STRING)")
        .collect()
    )
    assert tuple(row) == (True, "2024-01-02")
