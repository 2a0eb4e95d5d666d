"""`lake.spark.scan`: Spark's own Parquet reader over exactly the files of a version."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.predicate import Column, Compare, In, PredicateSet, Timestamp
from lakehouse_source.read.address import Address
from lakehouse_source.spark.to_spark_sql import condition_sql
from lakehouse_source.spark.types import readable, spark_schema
from lakehouse_source.write.evolution import evolve_properties
from lakehouse_source.write.summary import summary
from tests.doors import test_conditions as recorded
from tests.doors.frames import literals, load, rows, save, through_parquet
from tests.doors.test_types import CALENDAR, MATRIX, NESTED, WHOLE, instants, setting
from tests.oracle import decide
from tests.strategies import conditions, tables

pytestmark = pytest.mark.spark

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"
NAN = float("nan")
THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def paths(uri: str) -> list[str]:
    return [f"{uri}/{file.path}" for file in lake.open_dataset(uri).files()]


def scanned(frame: Any) -> set[str]:
    """The files that a frame reads."""
    return {Path(name).name for name in frame.inputFiles()}


@pytest.mark.long
@pytest.mark.parametrize("group", MATRIX)
def test_every_type_comes_back_as_plake_and_parquet_give_it(
    spark: SparkSession, tmp_path: Path, group: str
) -> None:
    frame = literals(spark, MATRIX[group])
    path = save(frame, tmp_path / "plake", rowGroupRows=2)
    native = lake.spark.scan(spark, path)
    assert native.schema == load(spark, path).schema
    oracle = through_parquet(frame, tmp_path / "parquet")
    assert rows(instants(native)) == rows(instants(oracle))


@pytest.mark.long
def test_numbers_that_spark_lacks_come_back_as_plake_gives_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Enough different values that they are written as differences, and a few at the ends.
    some = list(range(300))
    table = pa.table(
        {
            "u8": pa.array([0, 255, None, *(i % 200 for i in some)], pa.uint8()),
            "u16": pa.array([0, 65_535, None, *some], pa.uint16()),
            "u32": pa.array([0, 2**32 - 1, None, *some], pa.uint32()),
            "u64": pa.array([0, 2**64 - 1, None, *some], pa.uint64()),
            "ms": pa.array([0, 1, None, *some], pa.timestamp("ms", "UTC")),
            "fixed": pa.array([b"ab", b"\x00\xff", None, *[b"xy"] * 300], pa.binary(2)),
            "nothing": pa.nulls(303),
        }
    )
    uri = str(tmp_path / "unsigned")
    lake.write_dataset(table, uri)
    kept = [name for name in table.column_names if name != "nothing"]
    native = lake.spark.scan(spark, uri, columns=kept)
    assert native.schema == load(spark, uri, columns=",".join(kept)).schema
    assert rows(native) == rows(load(spark, uri, columns=",".join(kept)))
    assert native.where("u64 = 18446744073709551615").count() == 1
    assert lake.spark.scan(spark, uri, "u8 = 255 OR u32 > 4294967294", kept).count() == 1


@pytest.mark.parametrize(
    "type_", [pa.float16(), pa.timestamp("ns"), pa.duration("ms"), pa.time64("us")], ids=str
)
def test_what_sparks_reader_does_not_know_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, type_: pa.DataType
) -> None:
    uri = str(tmp_path / "unknown")
    lake.write_dataset(pa.table({"id": [1], "odd": pa.nulls(1, type_)}), uri)
    with pytest.raises(lake.SchemaMismatchError, match="odd"):
        lake.spark.scan(spark, uri).collect()
    assert lake.spark.scan(spark, uri, columns=["id"]).collect() == [(1,)]


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


@pytest.mark.long
@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_partition_values_come_back_as_they_were_written(
    spark: SparkSession, tmp_path: Path, kind: str, zone: str
) -> None:
    values = PARTITIONS[kind]
    table = pa.table({"p": values, "n": list(range(len(values)))})
    if kind == "money":
        table = table.set_column(0, "p", table["p"].cast(pa.decimal128(10, 2)))
    uri = str(tmp_path / "parts")
    lake.write_dataset(table, uri, partition_by="p")
    with setting(spark, "spark.sql.session.timeZone", zone):
        native = lake.spark.scan(spark, uri)
        assert native.columns == ["p", "n"]
        assert native.schema == load(spark, uri).schema
        plain = spark.createDataFrame(table, native.schema)
        assert rows(native) == rows(plain)
        # Equal for Spark too, and each only to itself.
        other = plain.toDF("q", "m")
        pairs = native.join(other, F.col("p").eqNullSafe(F.col("q")))
        assert sorted(row.n for row in pairs.where("n = m").collect()) == table["n"].to_pylist()
        assert pairs.count() == len(values)
        if kind == "text":
            for value in ("", "a/b", "%41", "__HIVE_DEFAULT_PARTITION__", "v" * 500):
                pruned = native.where(F.col("p") == value)
                assert [row.n for row in pruned.collect()] == [values.index(value)]


def test_a_condition_on_partitions_and_files_prunes_both(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "pruned")
    table = pa.table({"p": [i // 100 for i in range(1000)], "n": list(range(1000))})
    lake.write_dataset(table, uri, partition_by="p", row_group_rows=10, target_file_size_bytes=1)
    assert len(paths(uri)) == 100
    narrow = lake.spark.scan(spark, uri, "p = 3 AND (n < 310 OR n = 395)")
    assert len(scanned(narrow)) == 2
    assert sorted(row.n for row in narrow.collect()) == [*range(300, 310), 395]
    assert lake.spark.scan(spark, uri, [("n", ">", 5000)]).count() == 0
    assert lake.spark.scan(spark, uri, "n = 7", columns="p").collect() == [(0,)]
    # A filter on the frame is Spark's own, partitions included.
    plan = narrow.where("p = 3")._jdf.queryExecution().toString()
    assert "PartitionFilters: [isnotnull(p" in plan


@pytest.mark.long
def test_two_partition_values_may_share_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    """Values come from the catalog; a folder's name says nothing."""
    uri = str(tmp_path / "shared")
    for number in range(3):
        lake.write_dataset(pa.table({"p": ["same"], "n": [number]}), uri, partition_by="p")
    with sqlite3.connect(f"{uri}/_plake/catalog.db") as catalog:
        catalog.execute("""
            UPDATE partitions SET value = '"other"'
            WHERE file_id = (SELECT max(id) FROM files)
        """)
    catalog.close()
    assert rows(lake.spark.scan(spark, uri)) == ["('other', 2)", "('same', 0)", "('same', 1)"]


@pytest.mark.long
def test_folders_above_the_files_are_not_taken_for_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "day=3" / "a b%20é" / "x=1")
    lake.write_dataset(pa.table({"n": [1]}), uri)
    frame = lake.spark.scan(spark, uri)
    assert (frame.columns, frame.collect()) == (["n"], [(1,)])


# --- files of another time ------------------------------------------------------------


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


def agrees(spark: SparkSession, uri: str, *conditions: str) -> list[str]:
    """Rows through the native door, after they were found equal to plake's own."""
    native = lake.spark.scan(spark, uri)
    own = load(spark, uri)
    assert native.columns == own.columns
    assert [f.dataType for f in native.schema] == [f.dataType for f in own.schema]
    assert rows(native) == rows(own)
    for condition in conditions:
        found = rows(lake.spark.scan(spark, uri, condition))
        assert found == rows(own.where(condition)) == rows(native.where(condition)), condition
    return rows(native)


@pytest.mark.long
def test_promoted_and_added_columns(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "promoted")
    old = {
        "i": pa.array([1, None, 2**31 - 1], pa.int32()),
        "f": pa.array([0.1, NAN, None], pa.float32()),
        "m": pa.array([5, -3, None], pa.int16()),
        "c": pa.array([decimal.Decimal("1.5"), None, None], pa.decimal128(3, 1)),
        "d": pa.array([0, 1, None], pa.date32()),
    }
    new = {
        "i": pa.array([2**40, 1], pa.int64()),
        "f": pa.array([0.1, 1e300], pa.float64()),
        "m": pa.array([decimal.Decimal("0.25"), None], pa.decimal128(20, 2)),
        "c": pa.array([decimal.Decimal("1.55"), None], pa.decimal128(9, 3)),
        "d": pa.array([1, 86_400_000_000], pa.timestamp("us")),
        "late": ["new", None],
    }
    lake.write_dataset(pa.table(old), uri)
    lake.write_dataset(pa.table(new), uri, schema_merge=True)
    found = agrees(
        spark, uri, "i = 1", "i > 2147483646", "i IS NULL", "f > 1", "f != 0.1D", "m < 1",
        "c = 1.5", "d = TIMESTAMP_NTZ'1970-01-02'", "late IS NULL", "late <=> 'new'",
    )  # fmt: skip
    assert len(found) == 5
    assert "MapInArrow" not in lake.spark.scan(spark, uri)._jdf.queryExecution().toString()


@pytest.mark.long
def test_numbers_that_became_text(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "text")
    old = {
        "i": pa.array([7, None, -8], pa.int32()),
        "b": [True, False, None],
        "f": [1e-7, 100.0, NAN],
        "t": pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC")),
        "c": pa.array([decimal.Decimal("0.00000001"), None, None], pa.decimal128(9, 8)),
    }
    lake.write_dataset(pa.table(old), uri, partition_by=["i"])
    with pytest.raises(lake.SchemaMismatchError):  # values of partitions stay what they are
        lake.write_dataset(
            pa.table({n: ["x"] for n in old}), uri, schema_merge=True, promote_to_string=True
        )
    new = pa.table({**{n: ["x"] for n in old}, "i": pa.array([1], pa.int32())})
    lake.write_dataset(new, uri, schema_merge=True, promote_to_string=True)
    for zone in ("UTC", "Asia/Kolkata"):
        with setting(spark, "spark.sql.session.timeZone", zone):
            found = agrees(spark, uri, "b = 'true'", "f > '1'", "t LIKE '1970%'", "i = 7")
    assert "(-8, None, 'NaN', None, None)" in found
    assert "(7, 'true', '1.0E-7', '1970-01-01 00:00:00Z', '0.00000001')" in found


@pytest.mark.long
def test_integers_that_became_text_stay_in_sparks_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "plain")
    lake.write_dataset(pa.table({"i": [7, None, -(2**63)], "b": [True, False, None]}), uri)
    lake.write_dataset(
        pa.table({"i": ["x"], "b": ["y"]}), uri, schema_merge=True, promote_to_string=True
    )
    assert len(agrees(spark, uri, "i = '7'", "i < '0'", "b = 'true'")) == 4
    assert "MapInArrow" not in lake.spark.scan(spark, uri)._jdf.queryExecution().toString()


def test_renamed_swapped_dropped_and_added_again(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "renamed")
    lake.write_dataset(pa.table({"a": [1], "b": [10], "c": ["old"], "P": ["x"]}), uri,
                       partition_by="P")  # fmt: skip
    # The names of two columns change places.
    change_schema(uri, lambda s: renamed(renamed(renamed(s, "a", "t"), "b", "a"), "t", "b"))
    lake.write_dataset(pa.table({"b": [2], "a": [20], "c": ["mid"], "P": ["x"]}), uri)
    # Dropped, and a new column of the same name: the old values must not come back.
    change_schema(uri, lambda s: without(s, "c"))
    lake.write_dataset(pa.table({"b": [3], "a": [30], "c": [300], "P": ["y"]}), uri,
                       schema_merge=True)  # fmt: skip
    # A data column takes the name that another had in old files.
    change_schema(uri, lambda s: renamed(s, "a", "A2"))
    found = agrees(spark, uri, "b = 1", "A2 >= 20", "c IS NULL", "c = 300", "P = 'x'")
    assert found == ["(1, 10, 'x', None)", "(2, 20, 'x', None)", "(3, 30, 'y', 300)"]
    # A partition column takes the name that a data column had in old files.
    change_schema(uri, lambda s: renamed(s, "b", "q"))
    assert lake.spark.scan(spark, uri, "q = 2", columns=["P", "q"]).collect() == [("x", 2)]
    # Names differ by nothing but case from those in the files.
    change_schema(uri, lambda s: renamed(s, "q", "B"))
    assert len(agrees(spark, uri, "B > 1")) == 3


@pytest.mark.long
def test_changes_inside_of_structs(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "nested")
    old = pa.table({"s": [{"x": 1, "y": "a"}, None], "l": [[{"k": 1}], None]})
    new = pa.table({"s": [{"x": 2**40, "y": "b", "z": 1.5}], "l": [[{"k": 2, "m": True}, None]]})
    lake.write_dataset(old.cast(pa.schema([
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("l", old.schema.field("l").type)
    ])), uri)  # fmt: skip
    lake.write_dataset(new, uri, schema_merge=True)

    assert len(agrees(spark, uri, "s.x = 1", "s.y = 'a'", "s.z > 1", "s IS NULL")) == 3
    change_schema(uri, lambda s: renamed(s, "s", "t"))
    assert len(agrees(spark, uri, "t.x = 1", "t.z IS NULL")) == 3


@pytest.mark.long
def test_only_new_columns_are_asked_of_old_files(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "new")
    lake.write_dataset(pa.table({"a": [1, 2], "p": [0, 1]}), uri, partition_by="p")
    lake.write_dataset(pa.table({"a": [3], "p": [1], "b": ["x"]}), uri, schema_merge=True)
    found = lake.spark.scan(spark, uri, columns=["b"])
    assert rows(found) == ["('x',)", "(None,)", "(None,)"]
    assert rows(lake.spark.scan(spark, uri, columns=["b", "p"])) == [
        "('x', 1)", "(None, 0)", "(None, 1)",
    ]  # fmt: skip


# --- conditions -----------------------------------------------------------------------


def test_nan_and_signed_zero_are_found_where_footers_hide_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Arrow's statistics of 1, NaN, 1 say 1 to 1; Spark would skip the row group."""
    uri = str(tmp_path / "nan")
    inner = [{"g": 1.0}, {"g": NAN}, None, {"g": None}]
    table = pa.table({"f": [1.0, NAN, 1.0, None], "z": [-0.0, -0.0, -0.0, None], "s": inner})
    lake.write_dataset(table, uri)
    many = ", ".join(f"{n}.0D" for n in range(20))
    for condition, expected in {
        "f > 5": 1,
        "f != 1": 1,
        "NOT (f <= 1)": 1,
        "f = CAST('NaN' AS DOUBLE)": 1,
        "s.g > 5": 1,
        "z = 0": 3,
        "z >= 0": 3,
        f"z IN ({many})": 3,
        f"z NOT IN ({many})": 0,
    }.items():
        assert lake.spark.scan(spark, uri, condition).count() == expected, condition
    frame = lake.spark.scan(spark, uri)
    assert frame.where("f > 5").count() == 1
    assert frame.where("f != 1").count() == 1
    assert frame.where("s.g > 5").count() == 1
    assert rows(frame) == rows(load(spark, uri))


@pytest.mark.long
def test_a_float_without_nan_is_left_to_sparks_filters(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "floats")
    lake.write_dataset(pa.table({"f": [1.0, 2.0]}), uri)
    plan = lake.spark.scan(spark, uri).where("f > 5")._jdf.queryExecution().toString()
    assert "GreaterThan(f,5.0)" in plan


@pytest.mark.long
@pytest.mark.parametrize("first", ["struct", "column"])
def test_a_column_named_like_the_path_of_a_field(
    spark: SparkSession, tmp_path: Path, first: str
) -> None:
    """Spark's own reader takes the dictionary of one for that of the other and loses rows."""
    columns = {"s": pa.array([{"x": 1}, None]), "s.x": pa.array([5, 6])}
    names = list(columns) if first == "struct" else list(reversed(columns))
    uri = str(tmp_path / "dotted")
    lake.write_dataset(pa.table({name: columns[name] for name in names}), uri)
    frame = lake.spark.scan(spark, uri)
    assert frame.where("s.x = 1").count() == 1
    assert frame.where("`s.x` = 5").count() == 1
    assert lake.spark.scan(spark, uri, "s.x = 1", columns=["s"]).count() == 1
    assert lake.spark.scan(spark, uri, "`s.x` = 5", columns=["s.x"]).count() == 1


@pytest.mark.long
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_moments_that_spark_does_not_promise_to_hold(
    spark: SparkSession, tmp_path: Path, zone: str | None
) -> None:
    """Preparing one as a constant for Spark's Parquet reader overflows on the way."""
    least, most = -(2**63), 2**63 - 1
    year_1, year_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
    moments = [least, least + 1, year_1 - 1, year_1, 0, year_10000 - 1, year_10000, most]
    uri = str(tmp_path / "moments")
    lake.write_dataset(pa.table({"t": pa.array([*moments, None], pa.timestamp("us", zone))}), uri)
    column = Column(path=("t",), dotted=False)
    conditions = []
    for moment in moments:
        value = Timestamp(nanoseconds=moment * 1000, zoned=zone is not None)
        zero = Timestamp(nanoseconds=0, zoned=zone is not None)
        conditions += [
            (Compare(column, "=", value), {moment}),
            (Compare(column, "<", value), {other for other in moments if other < moment}),
            (Compare(column, "!=", value), {other for other in moments if other != moment}),
            (In(column, (value, zero)), {moment, 0}),
        ]
    for condition, expected in conditions:
        found = lake.spark.scan(spark, uri, condition).count()
        assert found == len(expected), str(condition)


@pytest.mark.parametrize("door", ["scan", "reader"])
def test_days_that_the_julian_calendar_lacks_are_found(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path, door: str
) -> None:
    """Spark takes 1582-10-10 for 1582-10-15 when it makes filters for Parquet."""
    days = [
        *(datetime.date(1582, 10, day) for day in range(1, 21)),
        datetime.date(1500, 2, 28),
        datetime.date(1883, 11, 18),
    ]
    moments = [datetime.datetime(day.year, day.month, day.day, 12) for day in days]
    uri = str(tmp_path / "early")
    table = pa.table({"d": days, "t": pa.array(moments, pa.timestamp("us", "UTC"))})
    lake.write_dataset(table, uri)

    def found(condition: str) -> list[datetime.date]:
        if door == "scan":
            frame = lake.spark.scan(spark, uri, condition)
        else:
            frame = spark_reader.read.format("plake").load(uri).where(condition)
        return sorted(row.d for row in frame.collect())

    for day in days:
        moment = f"TIMESTAMP '{day} 12:00:00'"
        assert found(f"d = DATE '{day}'") == [day]
        assert found(f"t = {moment}") == [day]
    day = datetime.date(1582, 10, 10)
    for column, value in (("d", f"DATE '{day}'"), ("t", f"TIMESTAMP '{day} 12:00:00'")):
        assert found(f"{column} <= {value}") == sorted(one for one in days if one <= day)
        assert found(f"{column} <> {value}") == sorted(one for one in days if one != day)
        assert found(f"{column} IN ({value}, {value})") == [day]


EXPRESSIBLE = settings(max_examples=300 if THOROUGH else 8, deadline=None)


@EXPRESSIBLE
@given(st.data())
def test_a_condition_as_spark_sql_decides_as_the_oracle(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    table = data.draw(tables().filter(lambda drawn: drawn.rows and expressible(drawn.schema)))
    some = data.draw(st.lists(conditions(table), min_size=8, max_size=8))
    uri = str(tmp_path_factory.mktemp("conditions"))
    lake.write_dataset(table.table(), uri)
    frame = lake.spark.scan(spark, uri)
    asked = []
    for number, condition in enumerate(some):
        text = condition_sql(PredicateSet.of(condition).bind(table.schema))
        asked.append(F.expr(text).alias(f"q{number}"))
    answers = frame.select(*asked).collect()
    for number, condition in enumerate(some):
        expected = [decide(condition, row, table.types) for row in table.rows]
        assert [answer[number] for answer in answers] == expected, str(condition)
    wanted = sum(decide(some[0], row, table.types) is True for row in table.rows)
    assert lake.spark.scan(spark, uri, some[0]).count() == wanted


def expressible(schema: pa.Schema) -> bool:
    def known(type_: pa.DataType) -> bool:
        if pa.types.is_struct(type_):
            return all(known(field.type) for field in type_)
        t = pa.types
        odd = t.is_float16(type_) or t.is_time(type_) or t.is_decimal256(type_)
        coarse = (t.is_timestamp(type_) or t.is_duration(type_)) and type_.unit != "us"
        return not (odd or coarse or t.is_null(type_))

    return all(known(field.type) for field in schema)


@pytest.mark.long
@pytest.mark.parametrize("escaped", ["true", "false"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_text_in_a_condition_is_taken_as_it_is(
    spark: SparkSession, tmp_path: Path, escaped: str, ansi: str
) -> None:
    texts = ["a'b", 'a"b', "a\\b", "a\\\\b", "%", "_", "a%b", "\n", "\t", "${x}", "é", "😀", ""]
    uri = str(tmp_path / "texts")
    lake.write_dataset(pa.table({"s": texts}), uri)
    with setting(spark, "spark.sql.parser.escapedStringLiterals", escaped), setting(
        spark, "spark.sql.ansi.enabled", ansi
    ):  # fmt: skip
        for text in texts:
            for op in ("=", "in"):
                value = [text] if op == "in" else text
                found = lake.spark.scan(spark, uri, [("s", op, value)]).collect()
                assert [row.s for row in found] == [text]
            starting = lake.spark.scan(spark, uri, [("s", "startswith", text)]).collect()
            assert {row.s for row in starting} == {t for t in texts if t.startswith(text)}
        like = lake.spark.scan(spark, uri, [("s", "like", "a_b")]).collect()
        assert {row.s for row in like} == {"a'b", 'a"b', "a\\b", "a%b"}


@pytest.mark.long
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_times_without_a_zone_are_in_the_sessions(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    frame = literals(spark, CALENDAR)
    path = save(frame, tmp_path / "plake")
    oracle = through_parquet(frame, tmp_path / "parquet")
    with setting(spark, "spark.sql.session.timeZone", zone):
        for condition in (
            "ts >= TIMESTAMP '2024-11-03 01:30:00'",
            "ts < '2024-03-10'",
            "ts BETWEEN DATE '1582-10-10' AND DATE '1970-01-01'",
            "ntz = TIMESTAMP_NTZ '2024-03-10 02:30:00'",
            "date <= DATE '1582-10-04'",
            "date < TIMESTAMP_NTZ '1582-10-05 00:00:00'",
        ):
            found = lake.spark.scan(spark, path, condition)
            assert rows(instants(found)) == rows(instants(oracle.where(condition))), condition


def test_what_is_no_condition_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "refused")
    lake.write_dataset(pa.table({"a": [1]}), uri)
    for wrong in ("nothing = 1", "a +", [("a", "~", 1)], SimpleNamespace()):
        with pytest.raises(lake.InvalidPredicateError):
            lake.spark.scan(spark, uri, wrong)
    with pytest.raises(lake.SchemaMismatchError):
        lake.spark.scan(spark, uri, columns=["nothing"])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", recorded.ZONES)
def test_conditions_over_the_flights_find_what_spark_finds(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table, uri = recorded.flights.__wrapped__(), str(tmp_path / "flights")
    lake.write_dataset(table, uri, partition_by="origin", row_group_rows=8192)
    answers = json.loads(recorded.RECORD.read_text())["answers"]
    with setting(spark, "spark.sql.session.timeZone", name):
        frames = [
            (condition, lake.spark.scan(spark, uri, condition, ["mark"]), tuple(answers[i]))
            for i, condition in recorded.sample(name)
        ]
        assert not recorded.differences(frames)


# --- versions, files, sessions -----------------------------------------------------------


def test_a_frame_stays_at_its_version(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "versions")
    lake.write_dataset(pa.table({"n": [1]}), uri)
    first = lake.spark.scan(spark, uri)
    lake.write_dataset(pa.table({"n": [2]}), uri)
    second = lake.spark.scan(spark, uri)
    lake.write_dataset(pa.table({"n": [3]}), uri, mode="overwrite")
    stamp = lake.open_dataset(uri).history()[1].timestamp
    answers = [
        rows(frame)
        for frame in (
            first,
            second,
            lake.spark.scan(spark, uri),
            lake.spark.scan(spark, uri, version=1),
            lake.spark.scan(spark, uri, timestamp=stamp),
            first.union(second).where("n = 1"),
        )
    ]
    assert answers == [
        ["(1,)"], ["(1,)", "(2,)"], ["(3,)"], ["(1,)"], ["(1,)", "(2,)"], ["(1,)", "(1,)"],
    ]  # fmt: skip
    with pytest.raises(lake.VersionNotFoundError):
        lake.spark.scan(spark, uri, version=9)


def test_files_that_are_gone_are_errors(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "gone")
    lake.write_dataset(pa.table({"n": list(range(10))}), uri)
    lake.write_dataset(pa.table({"n": [1]}), uri)
    frame = lake.spark.scan(spark, uri)
    [first, second] = paths(uri)
    shutil.move(first, f"{first}.away")
    with setting(spark, "spark.sql.files.ignoreMissingFiles", "true"):
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            frame.count()
        with pytest.raises(lake.StorageError, match="missing"):
            lake.spark.scan(spark, uri)
    shutil.copy(second, first)
    with pytest.raises(lake.CorruptDatasetError, match="bytes"):
        lake.spark.scan(spark, uri)


def test_a_path_that_leads_out_of_the_dataset_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "escape")
    lake.write_dataset(pa.table({"n": [1]}), uri)
    with sqlite3.connect(f"{uri}/_plake/catalog.db") as catalog:
        catalog.execute("UPDATE files SET file_path = '../other.parquet'")
    catalog.close()
    with pytest.raises(lake.CorruptDatasetError):
        lake.spark.scan(spark, uri)


def test_an_empty_dataset_has_columns_and_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "empty")
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    lake.write_dataset(schema.empty_table(), uri)
    frame = lake.spark.scan(spark, uri, "n > 1")
    assert (frame.columns, frame.count()) == (["n", "s"], 0)


def test_the_sessions_settings_are_as_before(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "settings")
    lake.write_dataset(
        pa.table({"n": list(range(50))}), uri, row_group_rows=1, target_file_size_bytes=1
    )
    default = spark.conf.get(THRESHOLD)
    assert lake.spark.scan(spark, uri).count() == 50
    assert spark.conf.get(THRESHOLD, None) is None
    with setting(spark, THRESHOLD, "7"):
        lake.spark.scan(spark, uri)
        assert spark.conf.get(THRESHOLD) == "7"
    assert spark.conf.get(THRESHOLD) == default


@pytest.mark.long
def test_another_catalog_is_named_as_anywhere(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    lake.write_dataset(pa.table({"n": [1]}), tmp_path / "data", catalog=url)
    assert lake.spark.scan(spark, tmp_path / "data", catalog=url).collect() == [(1,)]
    with pytest.raises(lake.DatasetNotFoundError):
        lake.spark.scan(spark, tmp_path / "nothing", catalog=url)


def test_char_columns_are_padded_and_compared_as_in_sparks_own_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    with setting(spark, "spark.sql.preserveCharVarcharTypeInfo", "true"):
        frame = spark.sql(
            "SELECT CAST(c AS CHAR(4)) c, CAST(v AS VARCHAR(3)) v "
            "FROM VALUES ('ab', 'x'), ('abcd', 'yz '), (NULL, NULL) AS t(c, v)"
        )
        path = save(frame, tmp_path / "plake")
        through_parquet(frame, tmp_path / "parquet")
    oracle = spark.read.parquet(str(tmp_path / "parquet"))
    native = lake.spark.scan(spark, path)
    assert native.schema == load(spark, path).schema
    assert rows(native) == rows(oracle)
    assert native.where("c = 'ab'").count() == oracle.where("c = 'ab'").count() == 1


@pytest.mark.long
def test_users_metadata_and_collations_come_back(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT s COLLATE UTF8_LCASE s, 1 n FROM VALUES ('Ada'), ('BOB') AS t(s)")
    frame = frame.withMetadata("n", {"unit": "m", "parquet.field.id": 77})
    path = save(frame, tmp_path / "plake")
    with setting(spark, "spark.sql.parquet.fieldId.read.enabled", "true"):
        native = lake.spark.scan(spark, path)
        assert native.schema["n"].metadata == {"unit": "m", "parquet.field.id": 77}
        assert native.where("s = 'ADA'").select("n").collect() == [(1,)]


def test_a_connect_client_is_told_what_to_use(tmp_path: Path) -> None:
    class Session:
        __module__ = "pyspark.sql.connect.session"

    with pytest.raises(lake.InvalidOptionError, match="format\\('plake'\\)"):
        lake.spark.scan(Session(), str(tmp_path))


def test_a_wide_mixture_equals_plakes_own_scan(spark: SparkSession, tmp_path: Path) -> None:
    frame = literals(spark, WHOLE | NESTED)
    path = save(frame, tmp_path / "plake", partitionBy="int", rowGroupRows=1, targetFileSize="1")
    native = lake.spark.scan(spark, path)
    assert native.schema == load(spark, path).schema
    assert rows(native) == rows(load(spark, path))
    assert spark_schema(pa.schema([("x", readable(pa.uint64()))]))[0].dataType.precision == 20
