"""Columns with a default, through every way in which Spark reads and writes them."""

from __future__ import annotations

import decimal
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from tests.doors.frames import Read, collected, load, save, shown

pytestmark = pytest.mark.spark

NAN = float("nan")
UTC = timezone.utc
# Type, default, and what Spark's Row has for it.
DEFAULTS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "bool": (pa.bool_(), False, False),
    "tiny": (pa.int8(), -128, -128),
    "int": (pa.int32(), 5, 5),
    "big": (pa.int64(), 2**63 - 1, 2**63 - 1),
    "single": (pa.float32(), -0.0, -0.0),
    "nan": (pa.float64(), NAN, NAN),
    "inf": (pa.float64(), float("-inf"), float("-inf")),
    "dec": (pa.decimal128(38, 10), decimal.Decimal("-1.5"), decimal.Decimal("-1.5000000000")),
    "text": (pa.string(), "a'\\\"\n`ü\U0001f600", "a'\\\"\n`ü\U0001f600"),
    "empty": (pa.string(), "", ""),
    "bytes": (pa.binary(), b"\x00\xff'", b"\x00\xff'"),
    "day": (pa.date32(), date(1850, 1, 1), date(1850, 1, 1)),
    "wall": (pa.timestamp("us"), datetime(2020, 1, 1, 1, 2, 3, 4),
             datetime(2020, 1, 1, 1, 2, 3, 4)),
    "moment": (pa.timestamp("us", "UTC"), datetime(2020, 1, 1, 1, 2, 3, 4, UTC),
               datetime(2020, 1, 1, 1, 2, 3, 4)),
    "span": (pa.duration("us"), timedelta(days=-1, microseconds=7),
             timedelta(days=-1, microseconds=7)),
}  # fmt: skip


def test_files_without_a_column_have_its_default_of_every_type(read: Read, tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    lake.write_dataset(pa.table({"k": [1, 2]}), uri)
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        for name, (type_, value, _) in DEFAULTS.items():
            schema.add_column(name, type_, default=value)
    nulls = {name: pa.nulls(1, type_) for name, (type_, _, _) in DEFAULTS.items()}
    lake.write_dataset(pa.table({"k": [3], **nulls}), uri)
    old = {name: value for name, (_, _, value) in DEFAULTS.items()}
    expected = [{"k": k, **old} for k in (1, 2)] + [{"k": 3, **dict.fromkeys(DEFAULTS)}]
    assert collected(read(uri)) == shown(expected)
    assert collected(read(uri, version=1)) == shown([{"k": 1}, {"k": 2}])
    frame = read(uri)
    for test, found in (("IS NULL", [3]), ("IS NOT NULL", [1, 2])):
        where = " AND ".join(f"`{name}` {test}" for name in DEFAULTS)
        assert sorted(row.k for row in frame.where(where).select("k").collect()) == found
    counts = frame.agg(*[F.count(name) for name in DEFAULTS]).collect()
    assert [tuple(row) for row in counts] == [(2,) * len(DEFAULTS)]


@pytest.mark.long
def test_conditions_and_aggregates_on_a_default(read: Read, tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    lake.write_dataset(pa.table({"k": [1, 2], "s": [{"x": 1}, None]}), uri)
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        schema.add_column("c", pa.int32(), default=5, nullable=False)
        schema.add_column("f", pa.float64(), default=NAN)
        schema.add_column("s.y", pa.string(), default="d")
    dataset.set_default("c", 6)
    lake.write_dataset(pa.table({"k": [3], "f": [1.0]}), uri)
    dataset.refresh().promote_column("c", pa.int64())
    dataset.rename_column("c", "d")
    frame = read(uri)
    assert not frame.schema["d"].nullable
    for where, expected in (
        ("d = 5", [1, 2]),
        ("d > 5", [3]),
        ("d = 6 OR d = 5", [1, 2, 3]),
        ("d IN (7, 8)", []),
        ("NOT (d = 5)", [3]),
        ("f > 5", [1, 2]),
        ("f = double('NaN')", [1, 2]),
        ("f <= 1", [3]),
        ("s.y = 'd'", [1]),
        ("s.y IS NULL", [2, 3]),
        ("d = 5 AND k = 2", [2]),
    ):
        found = frame.where(where)
        assert [row.k for row in found.select("k").orderBy("k").collect()] == expected, where
        assert found.count() == len(expected), where
    found = frame.agg(F.count("*"), F.count("d"), F.min("d"), F.max("d"), F.sum("d")).collect()
    assert [tuple(row) for row in found] == [(3, 3, 5, 6, 16)]
    assert frame.select("d").orderBy("d").collect() == [(5,), (5,), (6,)]
    dataset.refresh().drop_column("d")
    dataset.add_column("d", pa.int64(), default=9)
    assert [row.d for row in read(uri).collect()] == [9, 9, 9]
    assert sorted(row.c for row in read(uri, version=4).collect()) == [5, 5, 6]


@pytest.mark.parametrize("session", ["spark", "spark_planner"])
def test_spark_writes_the_default_where_its_frame_lacks_the_column(
    request: pytest.FixtureRequest, session: str, tmp_path: Path
) -> None:
    using: SparkSession = request.getfixturevalue(session)
    uri = str(tmp_path / "data")
    lake.write_dataset(pa.table({"k": [1], "p": ["x"]}), uri, partition_by="p")
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.string(), default="first", nullable=False)
    dataset.set_default("c", "second")
    dataset.add_column("at", pa.timestamp("us", "UTC"))
    dataset.set_default("at", sql="current_timestamp()")
    frame = using.createDataFrame([(2, "x"), (3, "y")], "k bigint, p string")
    save(frame, uri)
    save(using.createDataFrame([(4, "y", "own")], "k bigint, p string, c string"), uri)
    expected = {1: "first", 2: "second", 3: "second", 4: "own"}
    assert {row.k: row.c for row in load(using, uri).collect()} == expected
    save(using.createDataFrame([(5, "x")], "k bigint, p string"), uri, "overwrite",
         overwriteWhere="p = 'x' AND c = 'first' OR k = 5")  # fmt: skip
    expected = {2: "second", 3: "second", 4: "own", 5: "second"}
    assert {row.k: row.c for row in load(using, uri).collect()} == expected
    at = {row.k: row.at for row in load(using, uri).collect()}
    assert at[2] == at[3] < at[4] < at[5], "one time for each frame"
    dataset.refresh().set_default("c", None)
    with pytest.raises(Exception, match="does not have it"):
        save(frame, uri)


def test_each_statement_has_its_time_as_default(spark_catalog: SparkSession) -> None:
    sql, name = spark_catalog.sql, "plake.default.clock"
    sql(f"CREATE OR REPLACE TABLE {name} (id INT, at TIMESTAMP DEFAULT current_timestamp(), "
        "day DATE, also TIMESTAMP DEFAULT now()) USING plake")  # fmt: skip
    sql(f"ALTER TABLE {name} ALTER COLUMN day SET DEFAULT CURRENT_DATE")
    begin = datetime.now()
    sql(f"INSERT INTO {name} (id) VALUES (1), (2)")
    sql(f"INSERT INTO {name} VALUES (3, DEFAULT, DEFAULT, DEFAULT), (4, NULL, NULL, NULL)")
    sql(f"MERGE INTO {name} AS t USING (SELECT 4 AS id UNION ALL SELECT 5) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET at = DEFAULT "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)")  # fmt: skip
    frame = spark_catalog.createDataFrame([(6,), (7,)], "id int")
    frame.writeTo(name).append()
    rows = {row.id: row for row in spark_catalog.table(name).collect()}
    assert sorted(rows) == [*range(1, 8)]
    for row in rows.values():
        assert begin <= row.at <= datetime.now(), row
        assert (row.day is None) == (row.id == 4)
        assert row.also == (None if row.id == 4 else row.at)
    for same in ((1, 2), (4, 5), (6, 7)):
        assert len({rows[id].at for id in same}) == 1
    assert len({rows[id].at for id in (1, 3, 4, 6)}) == 4
    assert "current_timestamp()" in sql(f"SHOW CREATE TABLE {name}").first()[0]
    sql(f"ALTER TABLE {name} ALTER COLUMN at DROP DEFAULT")
    sql(f"INSERT INTO {name} (id) VALUES (10)")
    assert sql(f"SELECT at FROM {name} WHERE id = 10").first().at is None


def test_a_default_of_each_statement_that_is_none_of_plake(spark_catalog: SparkSession) -> None:
    sql, name = spark_catalog.sql, "plake.default.clock_2"
    sql(f"CREATE OR REPLACE TABLE {name} (id INT, by STRING) USING plake")
    with pytest.raises(AnalysisException, match="ALTER COLUMN at SET DEFAULT current_timestamp"):
        sql(f"ALTER TABLE {name} ADD COLUMN at TIMESTAMP DEFAULT current_timestamp()")
    with pytest.raises(AnalysisException, match="cannot have the default"):
        sql(f"ALTER TABLE {name} ALTER COLUMN by SET DEFAULT current_user()")
    with pytest.raises(AnalysisException, match="cannot have the default"):
        sql("CREATE TABLE plake.default.clock_3 (id INT, by STRING DEFAULT current_user())")
    assert not spark_catalog.catalog.tableExists("plake.default.clock_3")
    sql(f"ALTER TABLE {name} ALTER COLUMN by SET DEFAULT upper('x')")
