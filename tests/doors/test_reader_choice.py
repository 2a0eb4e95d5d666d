"""Who reads a scan, Spark's own Parquet reader or Python, and that both read the same rows."""

from __future__ import annotations

import datetime
import decimal
import random
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.read.address import Address
from lakehouse_source.spark.protocol.vocabulary import Setting
from lakehouse_source.spark.reading import spark_files
from lakehouse_source.write.commit.apply import summary
from lakehouse_source.write.commit.evolution import evolve_properties
from tests.doors.frames import data_files, literals, load, rows, save, through_parquet
from tests.doors.test_types import CALENDAR, MATRIX, instants
from tests.doors.test_types import setting as configured

pytestmark = pytest.mark.spark

NAN = float("nan")

PARTITIONS: dict[str, list[Any]] = {
    "text": [
        None, "", " ", "a b", "a/b", "..", ".", "x=y", "50%", "%41", "é", "😀", "007", "1e3",
        "null", "__HIVE_DEFAULT_PARTITION__", "_hidden", ".dot", "a'b", 'a"b', "a\\b", "a\nb",
        "2024-01-01", "true", "v" * 500, "v" * 499 + "w",
    ],
    "number": [None, 0, -1, 2**63 - 1, -(2**63)],
    "truth": [None, True, False],
    "day": [None, datetime.date(1, 1, 1), datetime.date(1582, 10, 4), datetime.date(9999, 12, 31)],
    "wall": [None, datetime.datetime(2024, 3, 10, 2, 30), datetime.datetime(1850, 1, 1, 0, 0, 1)],
    "moment": [
        None,
        datetime.datetime(2024, 11, 3, 5, 30, 0, 1, tzinfo=datetime.timezone.utc),
        datetime.datetime(2024, 11, 3, 6, 30, 0, 1, tzinfo=datetime.timezone.utc),
    ],
    "money": [None, decimal.Decimal("-0.01"), decimal.Decimal("99999999.99")],
}  # fmt: skip


def change_schema(uri: str, change: Callable[[pa.Schema], pa.Schema]) -> None:
    """Commit a schema without touching a file."""
    address = Address(uri, None)
    with address.open() as catalog, catalog.write() as tx:
        record = tx.lock_dataset(address.key)
        assert record is not None
        before = tx.schema_at(record.id, record.current_version)[1]
        after = change(before)
        version = record.current_version + 1
        tx.insert_schema(record.id, version, after)
        properties = record.properties
        tx.set_properties(
            record.id, evolve_properties(properties, after, before, properties.partition_by)[0]
        )
        counts = summary(tx, record, [], [])
        tx.insert_transaction(record.id, version, "schema", {}, counts, str(uuid.uuid4()))


def renamed(schema: pa.Schema, old: str, new: str) -> pa.Schema:
    return pa.schema([f.with_name(new) if f.name == old else f for f in schema])


def without(schema: pa.Schema, name: str) -> pa.Schema:
    return pa.schema([f for f in schema if f.name != name])


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def is_read_by_spark(frame: DataFrame) -> bool:
    """Tell who reads a frame with one scan."""
    text = plan(frame)
    by_spark, by_python = "read by Spark (" in text, "BatchScan plake" in text
    assert by_spark is not by_python, text
    return by_spark


def why(frame: DataFrame) -> str:
    """Why Python reads a frame, as `explain()` shows it."""
    assert not is_read_by_spark(frame)
    return plan(frame).split("Reader: Python, ")[1].split(" RuntimeFilters")[0].split("\n")[0]


def agree(frame: DataFrame, oracle: DataFrame, *conditions: str) -> None:
    """Spark reads the frame, and rows and filtered rows are those of the oracle.

    Each condition has a scan of its own; one job runs all of them.
    """
    ours, theirs = (
        [side.where(c).withColumn("asked", F.lit(c)) for c in ("true", *conditions)]
        for side in (frame, oracle)
    )
    found = reduce(DataFrame.unionAll, ours)
    text = plan(found)
    assert text.split("== Initial Plan ==")[0].count("read by Spark (") == len(ours), text
    assert "BatchScan plake" not in text
    expected = reduce(DataFrame.unionAll, theirs)
    assert rows(instants(found)) == rows(instants(expected))


def test_spark_reads_the_files_of_a_clone_where_they_are(
    spark_reader: SparkSession, tmp_path: Path
) -> None:
    """With deletion vectors of the origin and of the clone."""
    catalog, source = f"sqlite:///{tmp_path}/catalog.db", tmp_path / "its source"
    lake.write_dataset(pa.table({"id": range(9), "p": [0, 1, 2] * 3}), source, catalog=catalog,
                       partition_by="p")  # fmt: skip
    dataset = lake.open_dataset(source, catalog=catalog)
    dataset.delete("id = 1")
    clone = dataset.clone(tmp_path / "clone")
    clone.delete("id = 2")
    lake.write_dataset({"id": [9], "p": [0]}, clone.uri, catalog=catalog)
    read = spark_reader.read.format("plake").option("catalog", catalog)
    frame = read.load(str(tmp_path / "clone")).where("id < 8 OR id = 9")
    assert is_read_by_spark(frame)
    assert sorted(row.id for row in frame.collect()) == [0, 3, 4, 5, 6, 7, 9]


# --- the same rows -----------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("group", ["simple", "calendar", "nested"])
@pytest.mark.cases(2)
def test_every_type_is_read_as_parquet_gives_it(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path, group: str
) -> None:
    columns = {k: v for k, v in MATRIX[group].items() if k != "span"}
    frame = literals(spark, columns)
    path = save(frame, tmp_path / "plake", rowGroupRows=2)
    oracle = through_parquet(frame, tmp_path / "parquet")
    agree(load(spark_reader, path), oracle)
    assert load(spark_reader, path).schema == load(spark, path).schema


def test_what_sparks_reader_may_see_otherwise_stays_with_python(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    path = save(literals(spark, MATRIX["intervals"]), tmp_path / "intervals")
    assert "interval" in why(load(spark_reader, path))
    odd = {
        "u": pa.array([1], pa.uint32()),
        "ms": pa.array([1], pa.timestamp("ms")),
        "fixed": pa.array([b"ab"], pa.binary(2)),
        "h": pa.array([1.5], pa.float16()),
    }
    uri = str(tmp_path / "odd")
    lake.write_dataset(pa.table({"id": [1], **odd}), uri)
    frame = load(spark_reader, uri)
    assert [is_read_by_spark(frame.select(name)) for name in frame.columns] == [True, *[False] * 4]
    collated = spark.sql("SELECT s COLLATE UTF8_LCASE s FROM VALUES ('Ada'), ('BOB') AS t(s)")
    frame = load(spark_reader, save(collated, tmp_path / "collated"))
    assert "COLLATE" in why(frame).upper()
    assert frame.where("s = 'ADA'").count() == 1


FLOATS = {
    "f": pa.array([1.0, NAN, 1.0, 0.0, -0.0, None, -2.5, 7.0] * 50),
    "r": pa.array([0.0, -0.0, NAN, 1.0, None, 2.0, -0.0, 0.0] * 50, pa.float32()),
    "s": pa.array([{"x": NAN if n % 3 else -0.0, "n": n} for n in range(400)]),
}


@pytest.mark.parametrize("alone", range(4))
def test_nan_and_negative_zero_are_found(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path, alone: int
) -> None:
    """In row groups of mixed values, and in such that hold one of the values only."""
    table = pa.table(FLOATS)
    if alone:
        value = [NAN, -0.0, 0.0][alone - 1]
        table = pa.table({"f": [value] * 400, "r": pa.array([value] * 400, pa.float32()),
                          "s": [{"x": value, "n": 1}] * 400})  # fmt: skip
    uri = str(tmp_path / "floats")
    lake.write_dataset(table, uri, row_group_rows=100)
    oracle = spark.createDataFrame(load(spark, uri).collect(), load(spark, uri).schema)
    agree(
        load(spark_reader, uri), oracle,
        "f = 0.0", "f = -0.0D", "f >= 0.0", "f <= -0.0D", "f > 0.0", "f < 0.0", "f != 0.0",
        "f > 5", "f = double('NaN')", "f IN (0.0, 3.0)", "NOT (f < 5)", "f <=> -0.0D",
        "r = 0.0", "r >= 0", "r > 1.5", "r IN (float('NaN'), 2.0)", "r BETWEEN -0.0 AND 0.0",
        "s.x = 0.0", "s.x > 5", "s.x IS NULL", "f IS NOT NULL AND r IS NULL", "s.n = 1",
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.cases(2)
def test_partition_values_are_those_of_the_catalog(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path, kind: str, zone: str
) -> None:
    values = PARTITIONS[kind]
    table = pa.table({"p": values, "n": list(range(len(values)))})
    if kind == "money":
        table = table.set_column(0, "p", table["p"].cast(pa.decimal128(10, 2)))
    uri = str(tmp_path / "day=3" / "parts")
    lake.write_dataset(table, uri, partition_by="p")
    with (
        configured(spark, "spark.sql.session.timeZone", zone),
        configured(spark_reader, "spark.sql.session.timeZone", zone),
    ):
        frame = load(spark_reader, uri)
        oracle = spark.createDataFrame(load(spark, uri).collect(), frame.schema)
        agree(frame, oracle, "p IS NULL", "p IS NOT NULL AND n > 1", "n = 1")
        assert rows(frame.select("p")) == rows(oracle.select("p"))
        # Spark's own conversion of Python's dates and times loses some of these.
        for value in values[:8] if kind in ("text", "number", "truth", "money") else ():
            one = frame.where(F.col("p").eqNullSafe(F.lit(value).cast(frame.schema["p"].dataType)))
            assert [row.n for row in one.collect()] == [values.index(value)]


def test_partitions_and_files_are_pruned(spark_reader: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "pruned")
    table = pa.table({"p": [i // 100 for i in range(1000)], "n": list(range(1000))})
    lake.write_dataset(table, uri, partition_by="p", row_group_rows=10, target_file_size_bytes=1)
    narrow = load(spark_reader, uri).where("p = 3 AND (n < 310 OR n = 395)")
    assert "read by Spark (2 of 100 files)" in plan(narrow)
    assert sorted(row.n for row in narrow.collect()) == [*range(300, 310), 395]
    assert load(spark_reader, uri).where("n > 5000").collect() == []
    # The catalog does not know the result of a function. Spark prunes by it when the query runs.
    odd = load(spark_reader, uri).where("p * 2 = 6")
    assert "PartitionFilters: [isnotnull(p" in plan(odd)
    assert odd.count() == 100


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_broadcast_prunes_partitions_while_the_query_runs(
    spark_reader: SparkSession, tmp_path: Path, adaptive: str
) -> None:
    uri = str(tmp_path / "dynamic")
    table = pa.table({"p": [i // 100 for i in range(1000)], "n": list(range(1000))})
    lake.write_dataset(table, uri, partition_by="p")
    lake.write_dataset(pa.table({"q": [3, 4], "name": ["x", "y"]}), tmp_path / "names")
    load(spark_reader, uri).createOrReplaceTempView("dynamic_facts")
    load(spark_reader, tmp_path / "names").createOrReplaceTempView("dynamic_names")
    with configured(spark_reader, "spark.sql.adaptive.enabled", adaptive):
        frame = spark_reader.sql(
            "SELECT n FROM dynamic_facts JOIN dynamic_names ON p = q WHERE name = 'x'"
        )
        assert sorted(row.n for row in frame.collect()) == list(range(300, 400))
        executed = plan(frame).split("== Initial Plan ==")[0]
        assert "dynamicpruning" in executed
        if adaptive == "false":
            (counts,) = metrics(frame._jdf.queryExecution().executedPlan(), "10 of 10 files")
            assert counts == 1


def metrics(node: Any, shown: str) -> Iterator[int]:
    """How many files the scans of a plan have read whose names show a text."""
    files = node.metrics().get("numFiles")
    if files.isDefined() and shown in node.nodeName():
        yield files.get().value()
    for i in range(node.children().size()):
        yield from metrics(node.children().apply(i), shown)


@pytest.mark.long
def test_years_beyond_those_of_spark_are_compared(
    spark_reader: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    """As constants they overflow when Spark prepares them for its Parquet reader."""
    edge = 253_402_300_800_000_000
    moments = [-(2**63), -1, 0, edge - 1, edge, 2**63 - 1, None]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us", "UTC")), "n": range(7)})
    uri = str(tmp_path / "far")
    lake.write_dataset(table, uri)
    for condition in (
        f"t = timestamp_micros({edge})",
        f"t > timestamp_micros({edge - 1})",
        f"t <= timestamp_micros({-(2**63)})",
        f"t IN (timestamp_micros(0), timestamp_micros({2**63 - 1}))",
    ):
        ours = load(spark_reader, uri).where(condition).select("n")
        assert is_read_by_spark(ours)
        assert rows(ours) == rows(load(spark_planner, uri).where(condition).select("n")) != []


@pytest.mark.long
def test_names_with_dots_are_told_apart(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "dots")
    table = pa.table(
        {"s": [{"x": n % 5, "a.b": n} for n in range(200)], "s.x": [n % 7 for n in range(200)],
         "d.e": list(range(200)), "d": ["v"] * 200}
    )  # fmt: skip
    lake.write_dataset(table, uri, row_group_rows=50)
    oracle = through_parquet(load(spark, uri), tmp_path / "parquet")
    agree(
        load(spark_reader, uri), oracle,
        "`s.x` = 6", "s.x = 4", "`s.x` = 6 AND s.x = 4", "`d.e` = 150", "s.`a.b` > 190", "d = 'v'",
        "`s.x` IN (5, 6)", "s.x IS NULL", "d LIKE 'v%' AND `d.e` < 3",
    )  # fmt: skip


@pytest.mark.long
def test_null_among_the_values_of_in(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "in")
    lake.write_dataset(pa.table({"n": [1, 2, None, 4] * 50, "s": ["a", None, "b", "c"] * 50}), uri)
    oracle = through_parquet(load(spark, uri), tmp_path / "parquet")
    many = ", ".join(str(n) for n in range(3, 40))
    agree(
        load(spark_reader, uri), oracle, "n IN (1, NULL)", "n NOT IN (1, 2)", "s IN ('a', NULL)",
        f"n IN ({many}, NULL)", f"n NOT IN ({many})", "n <=> NULL", "NOT (n <=> 1)",
    )  # fmt: skip


@pytest.mark.long
def test_bloom_filters_of_plake_are_used_by_sparks_reader(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "bloom")
    table = pa.table(
        {
            "i": pa.array(range(1000), pa.int32()),
            "l": [n * 7 for n in range(1000)],
            "s": [f"s{n}" for n in range(1000)],
            "b": [str(n).encode() for n in range(1000)],
            "m": pc.cast(pa.array(range(1000)), pa.decimal128(25, 2)),
        }
    )
    lake.write_dataset(table, uri, bloom_filter_columns=table.column_names, row_group_rows=100)
    oracle = through_parquet(load(spark, uri), tmp_path / "parquet")
    agree(
        load(spark_reader, uri), oracle,
        "i = 77", "l = 777", "l = 8", "s = 's5'", "b = X'3939'", "m = 500.00", "s IN ('s1', 'z')",
    )  # fmt: skip


@pytest.mark.long
def test_a_condition_on_text_and_dates_prunes_as_in_plain_parquet(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    frame = literals(spark, CALENDAR)
    path = save(frame, tmp_path / "plake", rowGroupRows=1)
    oracle = through_parquet(frame, tmp_path / "parquet")
    for zone in ("UTC", "Asia/Kolkata"):
        with (
            configured(spark, "spark.sql.session.timeZone", zone),
            configured(spark_reader, "spark.sql.session.timeZone", zone),
        ):
            agree(
                load(spark_reader, path), oracle,
                "ts < '1900-01-01'", "ts >= TIMESTAMP '2024-11-03 01:30:00'",
                "ntz = TIMESTAMP_NTZ '2024-03-10 02:30:00'", "date <= DATE '1582-10-04'",
                "date = DATE '0001-01-01'", "year(date) = 2024",
            )  # fmt: skip


# --- files of another time ------------------------------------------------------------


@pytest.mark.long
def test_columns_that_changed_after_files_were_written(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "changed")
    lake.write_dataset(
        pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"], "c": [5, 6]}), uri
    )
    lake.write_dataset(
        pa.table({"a": pa.array([3], pa.int32()), "b": ["z"], "c": [7], "late": [1.5]}),
        uri,
        schema_merge=True,
    )
    expected = [(1, "x", 5, None), (2, "y", 6, None), (3, "z", 7, 1.5)]
    frame = load(spark_reader, uri)
    assert is_read_by_spark(frame)
    assert sorted(map(tuple, frame.collect())) == expected
    assert rows(frame.where("late IS NULL").select("a")) == ["(1,)", "(2,)"]
    change_schema(uri, lambda s: renamed(s, "b", "B2"))
    frame = load(spark_reader, uri)
    assert "(2 of 2 files, 2 with other columns)" in plan(frame)
    assert rows(frame.where("B2 > 'x' AND c < 7").select("a")) == ["(2,)"]
    assert sorted(map(tuple, frame.collect())) == expected
    # Dropped, and a new column of the same name: the old values must not come back.
    change_schema(uri, lambda s: without(s, "c"))
    lake.write_dataset(
        pa.table({"a": pa.array([4], pa.int64()), "B2": ["w"], "c": [8], "late": [2.5]}),
        uri,
        schema_merge=True,
    )
    frame = load(spark_reader, uri)
    assert is_read_by_spark(frame)
    assert sorted(map(tuple, frame.select("a", "c").collect())) == [
        (1, None), (2, None), (3, None), (4, 8),
    ]  # fmt: skip
    # Conditions on the new column, which old files have other values for under its name.
    for condition, found in (("c = 6", []), ("c IS NULL", [1, 2, 3]), ("c >= 7", [4])):
        assert sorted(row.a for row in frame.where(condition).collect()) == found
    assert rows(frame.where(f"a = {2**40} OR a = 4").select("a")) == ["(4,)"]
    # Names differ by nothing but case from those in the files.
    change_schema(uri, lambda s: renamed(s, "late", "Late"))
    frame = load(spark_reader, uri).select("Late")
    assert is_read_by_spark(frame)
    assert sorted(rows(frame)) == ["(1.5,)", "(2.5,)", "(None,)", "(None,)"]


def test_defaults_and_deleted_rows(spark_reader: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "others")
    lake.write_dataset(pa.table({"a": [1, 2, 3]}), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("d", pa.int64(), default=7)
    frame = load(spark_reader, uri)
    assert is_read_by_spark(frame)
    assert sorted(map(tuple, frame.collect())) == [(1, 7), (2, 7), (3, 7)]
    assert sorted(map(tuple, frame.where("d = 7 AND a > 1").collect())) == [(2, 7), (3, 7)]
    assert frame.where("d = 8").collect() == []
    before = load(spark_reader, uri).select("a")
    lake.open_dataset(uri).set_properties(rewrite_threshold=1.0)
    lake.open_dataset(uri).delete("a = 2")
    after = load(spark_reader, uri).select("a")
    assert is_read_by_spark(before)
    assert sorted(row.a for row in before.collect()) == [1, 2, 3]
    assert "1 with deleted rows" in plan(after)
    assert sorted(row.a for row in after.collect()) == [1, 3]


def test_hidden_columns_of_files_are_not_taken_for_users(
    spark_reader: SparkSession, tmp_path: Path
) -> None:
    """A file with moved rows stores their identities as `_row_id`."""
    uri = str(tmp_path / "hidden")
    lake.write_dataset(pa.table({"a": list(range(10))}), uri)
    lake.open_dataset(uri).update({"a": "a + 100"})
    assert is_read_by_spark(load(spark_reader, uri))
    lake.write_dataset(pa.table({"a": [50], "_row_id": [7]}), uri, schema_merge=True)
    frame = load(spark_reader, uri).select("a", "_row_id")
    found = frame.where("_row_id IS NULL").collect()
    assert sorted(row.a for row in found) == list(range(100, 110))
    assert is_read_by_spark(frame)


@pytest.mark.long
def test_metadata_of_columns_changes_nothing(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    """Spark's reader takes field ids and defaults of missing columns from it."""
    frame = spark.range(3).withMetadata("id", {"parquet.field.id": 77, "unit": "m"})
    path = save(frame, tmp_path / "ids")
    more = {"EXISTS_DEFAULT": "9", "CURRENT_DEFAULT": "9"}
    wide = spark.sql("SELECT 5L id, 1 n").withMetadata("n", more)
    save(wide, path, mergeSchema=True)
    found = load(spark_reader, path)
    assert is_read_by_spark(found)
    assert found.schema == load(spark, path).schema
    expected = [(0, None), (1, None), (2, None), (5, 1)]
    assert sorted(map(tuple, found.collect())) == expected
    out = through_parquet(found.select("id", "n"), tmp_path / "copy")
    assert sorted(map(tuple, out.collect())) == expected
    assert "field" in plan(found) or found.schema["id"].metadata["unit"] == "m"


# --- the choice ------------------------------------------------------------------


WIDTH = 40


def large_table(**columns: Sequence[int]) -> pa.Table:
    """The columns and many others: the least rows that are not few for Spark's reader."""
    size = len(next(iter(columns.values())))
    return pa.table({**columns, **{f"c{i}": pa.array([0] * size, pa.int8()) for i in range(WIDTH)}})


SIZE = spark_files.FEW_VALUES // WIDTH


@pytest.mark.long
def test_auto_leaves_few_matches_among_many_values_to_python(
    spark_auto: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "many")
    size = SIZE
    lake.write_dataset(large_table(n=[n * 7919 % size for n in range(size)]), uri)
    frame = load(spark_auto, uri)
    assert is_read_by_spark(frame.selectExpr("sum(n)"))
    assert frame.selectExpr("sum(n)").collect() == [(size * (size - 1) // 2,)]
    one = frame.where(f"n = {size // 2}")
    assert "few rows match" in why(one)
    assert [row.n for row in one.collect()] == [size // 2]
    assert is_read_by_spark(one.select("n"))  # few values
    assert is_read_by_spark(frame.limit(3))
    assert len(frame.limit(3).collect()) == 3
    assert "Reader" not in plan(frame.selectExpr("1 AS one"))  # rows are only counted
    assert frame.count() == size
    with configured(spark_auto, Setting.READER, "python"):
        assert not is_read_by_spark(frame.select("n"))
        assert "Reader" not in plan(frame.select("n"))


@pytest.mark.long
def test_keys_of_a_join_are_left_to_python_where_rows_are_clustered_by_them(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "facts")
    size = SIZE
    ids = list(range(size))
    table = large_table(id=ids, v=[n * 7919 % size for n in ids])
    lake.write_dataset(table, uri, row_group_rows=20_000)
    spark.range(5).selectExpr("id * 1000 AS k", "concat('d', id) AS name").write.parquet(
        str(tmp_path / "dims")
    )
    load(spark_auto, uri).createOrReplaceTempView("key_facts")
    spark_auto.read.parquet(str(tmp_path / "dims")).createOrReplaceTempView("key_dims")
    for column, by_spark in (("id", False), ("v", True)):
        frame = spark_auto.sql(
            f"SELECT f.* FROM key_facts f JOIN key_dims d ON f.{column} = d.k WHERE name = 'd3'"
        )
        assert is_read_by_spark(frame) is by_spark
        assert [row[column] for row in frame.collect()] == [3000]
    with configured(spark_auto, "spark.sql.autoBroadcastJoinThreshold", "-1"):
        # Spark gives keys of a side that it broadcasts only.
        frame = spark_auto.sql(
            "SELECT f.v FROM key_facts f JOIN key_dims d ON f.id = d.k WHERE name = 'd3'"
        )
        assert is_read_by_spark(frame)
        assert len(frame.collect()) == 1


@pytest.mark.long
def test_keys_from_all_over_a_table_are_no_reason_for_python(
    spark_auto: SparkSession, tmp_path: Path
) -> None:
    facts, dims = str(tmp_path / "facts"), str(tmp_path / "dims")
    lake.write_dataset(large_table(id=list(range(SIZE))), facts, row_group_rows=20_000)
    keys = range(0, SIZE, 50)
    table = pa.table(
        {"k": keys, "part": [k // 20_000 for k in keys], "kind": [k % 7 for k in keys]}
    )
    lake.write_dataset(table, dims, row_group_rows=200)
    load(spark_auto, facts).createOrReplaceTempView("spread_facts")
    load(spark_auto, dims).createOrReplaceTempView("spread_dims")
    for condition, by_python in (("part = 3", True), ("kind = 3", False)):
        frame = spark_auto.sql(
            f"SELECT f.* FROM spread_facts f JOIN spread_dims d ON f.id = d.k WHERE {condition}"
        )
        assert ("keys of a join may prune" in plan(frame)) is by_python
        expected = [k for k in keys if (k // 20_000 == 3 if by_python else k % 7 == 3)]
        assert sorted(row.id for row in frame.select("id").collect()) == expected


def test_a_scan_has_the_size_that_a_parquet_relation_tells(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "sized"
    size = 60_000
    generator = random.Random(7)  # numbers that do not compress: the footer is a small part
    mixed = pa.array([generator.getrandbits(62) for _ in range(size)])
    names = pa.array([f"{generator.getrandbits(96):x}" for _ in range(size)])
    table = pa.table({"id": pa.array(range(size)), "v": mixed, "s": names})
    lake.write_dataset(table, uri, row_group_rows=6_000)
    native = spark.read.parquet(*map(str, data_files(uri)))

    def size_bytes(frame: DataFrame) -> int:
        return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))

    for reader in ("auto", "python", "spark"):
        with configured(spark_auto, Setting.READER, reader):
            ours = load(spark_auto, uri)
            for columns in (["id", "v", "s"], ["v"], ["s", "id"]):
                told, expected = (size_bytes(side.select(*columns)) for side in (ours, native))
                assert 0.97 * expected < told <= expected  # without the footer
            few = size_bytes(ours.where("id < 6000").select("v"))
            assert few == pytest.approx(size_bytes(native.select("v")) / 10, rel=0.1)


def test_options_that_only_plake_knows_keep_pythons_way(
    spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "options")
    lake.write_dataset(pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]}), uri)
    assert load(spark_reader, uri, where="n > 1").collect() == [(2, "b"), (3, "c")]
    assert "condition of its own" in why(load(spark_reader, uri, where="n > 1"))
    assert "splitSize" in why(load(spark_reader, uri, splitSize="1m"))
    assert "places" in why(load(spark_reader, uri, metadataColumns="true"))
    frame = load(spark_reader, uri, columns="s", versionAsOf="1")
    assert is_read_by_spark(frame)
    assert rows(frame) == ["('a',)", "('b',)", "('c',)"]
    given = spark_reader.read.format("plake").schema("n STRING, s STRING").load(uri)
    assert "is read as string" in why(given)
    assert rows(given) == ["('1', 'a')", "('2', 'b')", "('3', 'c')"]


@pytest.mark.long
def test_a_codec_that_spark_lacks_keeps_pythons_way(
    spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "codec")
    lake.write_dataset(pa.table({"n": [1]}), uri)
    assert is_read_by_spark(load(spark_reader, uri))
    for codec in ("snappy", "lz4", "gzip", "none"):
        lake.write_dataset(pa.table({"n": [1]}), uri, compression=codec)
    frame = load(spark_reader, uri)
    assert is_read_by_spark(frame)
    assert frame.selectExpr("sum(n)").collect() == [(5,)]
    lake.write_dataset(pa.table({"n": [1]}), uri, compression="brotli")
    frame = load(spark_reader, uri)
    assert "BROTLI" in why(frame)
    assert frame.selectExpr("sum(n)").collect() == [(6,)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.parquet.enableVectorizedReader", "false"),
        ("spark.sql.parquet.binaryAsString", "true"),
        ("spark.sql.parquet.recordLevelFilter.enabled", "true"),
        (Setting.READER, "nonsense"),
    ],
)
def test_settings_that_change_sparks_reader_keep_pythons_way(
    spark_reader: SparkSession, tmp_path: Path, key: str, value: str
) -> None:
    uri = str(tmp_path / "settings")
    lake.write_dataset(pa.table({"n": [1], "b": [b"x"]}), uri)
    with configured(spark_reader, key, value):
        assert not is_read_by_spark(load(spark_reader, uri))
    assert is_read_by_spark(load(spark_reader, uri))


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.parquet.filterPushdown", "false"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.mergeSchema", "true"),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.optimizer.nestedSchemaPruning.enabled", "false"),
    ],
)
def test_other_settings_change_no_row(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path, key: str, value: str
) -> None:
    frame = literals(spark, {**CALENDAR, "d": ["1.5D", "double('NaN')"]})
    frame = frame.withColumn("st", F.expr("named_struct('x', d, 'y', date)"))
    path = save(frame, tmp_path / "plake")
    oracle = through_parquet(frame, tmp_path / "parquet")
    with configured(spark_reader, key, value):
        agree(load(spark_reader, path), oracle, "d > 2", "st.y < DATE'1900-01-01'", "ts IS NULL")


# --- files that are not as the catalog says ---------------------------------------------


@pytest.mark.parametrize("change", ["gone", "longer", "link"])
def test_a_changed_file_gives_plakes_error(
    spark_reader: SparkSession, spark_planner: SparkSession, tmp_path: Path, change: str
) -> None:
    uri = tmp_path / "files"
    lake.write_dataset(pa.table({"n": list(range(10))}), str(uri))
    frame = load(spark_reader, uri)
    planned = load(spark_reader, uri)
    assert is_read_by_spark(planned)
    (file,) = data_files(uri)
    if change == "longer":
        with file.open("ab") as stream:
            stream.write(b"more")
    else:
        shutil.move(file, tmp_path / "away")
        if change == "link":
            file.symlink_to(tmp_path / "away")
    expected = [message(lambda: load(spark_planner, uri).collect())]
    assert [message(lambda: frame.collect())] == expected
    if change != "link":
        text = {"gone": "the file is missing", "longer": "bytes, not"}[change]
        with pytest.raises(Exception, match=text):
            planned.collect()


def message(action: Callable[[], Any]) -> str:
    """What plake says, at the end of Spark's error."""
    with pytest.raises(Exception) as caught:
        action()
    lines = [line for line in str(caught.value).splitlines() if "lakehouse_source.errors." in line]
    assert lines, str(caught.value)
    return lines[-1]


def test_a_path_that_leads_out_of_the_dataset_is_not_given_to_spark(
    spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "escape")
    lake.write_dataset(pa.table({"n": [1]}), uri)
    with closing(sqlite3.connect(f"{uri}/_plake/catalog.db")) as catalog, catalog:
        catalog.execute("UPDATE files SET file_path = '../other.parquet'")
    catalog.close()
    frame = load(spark_reader, uri)
    assert not is_read_by_spark(frame)
    with pytest.raises(Exception, match="CorruptDatasetError"):
        frame.collect()


# --- isolation ------------------------------------------------------------------------


@pytest.mark.long
def test_a_frame_stays_at_its_version_and_plans_share_only_equal_scans(
    spark_reader: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "versions")
    lake.write_dataset(pa.table({"n": [1, 2], "v": [1.5, 2.5]}), uri)
    first = load(spark_reader, uri)
    lake.write_dataset(pa.table({"n": [1, 3], "v": [3.5, 4.5]}), uri)
    second = load(spark_reader, uri)
    both = first.groupBy("n").count().union(second.groupBy("n").count())
    assert sorted(map(tuple, both.collect())) == [(1, 1), (1, 2), (2, 1), (2, 1), (3, 1)]
    assert "ReusedExchange" not in plan(both)
    joined = second.alias("a").join(second.alias("b"), "n").groupBy("n").count()
    assert sorted(map(tuple, joined.collect())) == [(1, 4), (2, 1), (3, 1)]
    again = second.where("n = 1").groupBy("v").count()
    twice = again.union(second.where("n = 1").groupBy("v").count())
    assert len(twice.collect()) == 4
    assert "ReusedExchange" in plan(twice)
    cached = second.where("n = 1").cache()
    assert [cached.count(), second.count(), cached.where("v > 2").count()] == [2, 4, 1]
    cached.unpersist()


@pytest.mark.long
def test_tables_made_of_many_decimals_come_as_they_are(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    cents = [decimal.Decimal(n).scaleb(-2) for n in range(-500, 500)]
    table = pa.table(
        {f"d{p}": pa.array(cents, pa.decimal128(p, 2)) for p in (5, 9, 10, 18, 19, 38)}
    )
    uri = str(tmp_path / "decimals")
    lake.write_dataset(table, uri, row_group_rows=100)
    oracle = through_parquet(load(spark, uri), tmp_path / "parquet")
    agree(load(spark_reader, uri), oracle, "d5 = 1.50", "d9 > 4", "d19 <= -4.9", "d38 = -0.01")


def test_rows_tell_the_file_that_they_are_from(spark_reader: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "plain")
    lake.write_dataset(pa.table({"n": list(range(100))}), uri)
    frame = load(spark_reader, uri).where("n < 50").select(F.input_file_name()).distinct()
    ((name,),) = frame.collect()
    assert Path(name).name == data_files(uri)[0].name
