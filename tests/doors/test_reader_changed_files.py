"""Spark's Parquet reader over files with deleted rows and with columns that changed since.

The oracles are PyArrow's casts and plain Parquet with the rows that are left.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from tests.doors.frames import data_files, load, rows
from tests.doors.test_reader_choice import agree, plan
from tests.doors.test_types import setting as configured

pytestmark = pytest.mark.spark

NAN = float("nan")
COUNT = 20_000


def write(table: pa.Table, uri: Path | str, **options: Any) -> lake.Dataset:
    """A dataset whose files keep deleted rows, however many."""
    lake.write_dataset(table, uri, **options)
    dataset = lake.open_dataset(uri)
    dataset.set_properties(rewrite_threshold=1.0)
    return dataset.refresh()


def parquet(spark: SparkSession, table: pa.Table, path: Path) -> DataFrame:
    """The rows as Spark reads them from plain Parquet. Conditions are not pushed into it."""
    pq.write_table(table, path)
    return spark.read.parquet(str(path)).localCheckpoint()


# --- deleted rows --------------------------------------------------------------------


def is_live(id: int) -> bool:
    """Whole pages and batches of deleted rows, single ones, and both ends of the file."""
    return not (2_500 <= id < 8_500 or id % 97 == 3 or id in (0, COUNT - 1))


def facts() -> pa.Table:
    ids = range(COUNT)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": [id * 4 // COUNT for id in ids],
            "f": [(NAN, -0.0, 0.0, 1.5, None)[id % 5] for id in ids],
            "r": pa.array([(-0.0, NAN, None, 2.5)[id % 4] for id in ids], pa.float32()),
            "s": [None if id % 11 == 0 else f"text {id % 1000}" for id in ids],
            "d": pa.array([Decimal(id).scaleb(-2) for id in ids], pa.decimal128(20, 2)),
            "t": pa.array([id * 10**9 for id in ids], pa.timestamp("us", "UTC")),
            "st": [None if id % 7 == 0 else {"x": id % 50, "l": [id, None]} for id in ids],
            "m": pa.array([[(f"k{id % 3}", id)] for id in ids], pa.map_(pa.string(), pa.int64())),
        }
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files with deleted rows beside one without: three partitions of four lose rows."""
    path = str(tmp_path_factory.mktemp("facts") / "data")
    dataset = write(facts(), path, partition_by="p", row_group_rows=1_500)
    dataset.delete("id >= 2500 AND id < 8500")
    dataset.refresh().delete(f"id % 97 = 3 OR id IN (0, {COUNT - 1})")
    lake.write_dataset(facts().slice(0, 1).set_column(0, "id", pa.array([COUNT])), path)
    return path


@pytest.fixture(scope="module")
def oracle(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    table = facts()
    more = table.slice(0, 1).set_column(0, "id", pa.array([COUNT]))
    table = table.filter(pa.array([is_live(id) for id in range(COUNT)]))
    path = tmp_path_factory.mktemp("plain") / "rows.parquet"
    return parquet(spark, pa.concat_tables([table, more]), path)


CONDITIONS = (
    "id >= 2490 AND id < 8510", "id IN (1, 3, 5, 2500, 19998)", "f = 0.0 AND r > -1", "f > 1",
    "s = 'text 7' OR s IS NULL AND p = 3", "d BETWEEN 84.90 AND 85.10", "st.x = 49 OR st IS NULL",
    "m['k1'] > 19000 AND t < timestamp_seconds(19500)", "NOT (id < 19990)",
)  # fmt: skip


@pytest.mark.long
def test_deleted_rows_are_left_out(spark_reader: SparkSession, uri: str, oracle: DataFrame) -> None:
    frame = load(spark_reader, uri).select(*oracle.columns)
    assert "(5 of 5 files, 4 with deleted rows)" in plan(frame)
    agree(frame, oracle, *CONDITIONS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.files.maxPartitionBytes", "20000"),
        *(
            pytest.param(*setting, marks=pytest.mark.long)
            for setting in (
                ("spark.sql.codegen.maxFields", "3"),
                ("spark.sql.columnVector.offheap.enabled", "true"),
                ("spark.sql.parquet.filterPushdown", "false"),
                ("spark.sql.adaptive.enabled", "false"),
                ("spark.sql.parquet.columnarReaderBatchSize", "1"),
            )
        ),
    ],
)
def test_settings_bring_no_deleted_row_back(
    spark_reader: SparkSession, uri: str, oracle: DataFrame, key: str, value: str
) -> None:
    asked = ("id", "f", "st", "p")
    with configured(spark_reader, key, value):
        ours, theirs = load(spark_reader, uri).select(*asked), oracle.select(*asked)
        agree(ours, theirs, "id < 2503 OR id > 19990", "f = 0.0 AND p = 2")


@pytest.mark.long
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_joins_subqueries_and_caches_over_deleted_rows(
    spark_reader: SparkSession, uri: str, oracle: DataFrame, adaptive: str
) -> None:
    load(spark_reader, uri).createOrReplaceTempView("live")
    oracle.createOrReplaceTempView("live_oracle")
    queries = (
        "SELECT count(*), sum(a.id) FROM {0} a JOIN {0} b ON a.id = b.id + 1 WHERE b.f = 1.5",
        "SELECT p, count(*), sum(id), count(f) FROM {0} GROUP BY p",
        "SELECT count(*) FROM {0} WHERE id > (SELECT avg(id) FROM {0} WHERE p = 1)",
        "SELECT id FROM {0} WHERE id < 200 AND id + 1 NOT IN (SELECT id FROM {0})",
        "WITH c AS (SELECT id, s FROM {0}) SELECT count(x.s) FROM c x JOIN c y ON x.id = y.id",
        "SELECT s, id FROM {0} WHERE id BETWEEN 2000 AND 3000 ORDER BY id LIMIT 505",
    )
    with configured(spark_reader, "spark.sql.adaptive.enabled", adaptive):
        for query in queries:
            ours = spark_reader.sql(query.format("live"))
            assert "read by Spark (" in plan(ours)
            assert rows(ours) == rows(oracle.sparkSession.sql(query.format("live_oracle")))
        cached = load(spark_reader, uri).select("id", "m").where("p = 0").cache()
        expected = oracle.select("id", "m").where("p = 0")
        for _ in range(2):
            assert rows(cached) == rows(expected)
        assert cached.where("id > 2490").count() == expected.where("id > 2490").count()
        cached.unpersist()


def test_a_version_before_a_delete_has_its_rows(spark_reader: SparkSession, uri: str) -> None:
    frame = load(spark_reader, uri, versionAsOf=1).select("id")
    assert "with deleted rows" not in plan(frame)
    assert frame.agg(F.count("id"), F.sum("id")).collect() == [(COUNT, COUNT * (COUNT - 1) // 2)]


def test_numbers_of_rows_are_made_once(spark_reader: SparkSession, uri: str) -> None:
    """Nondeterministic columns see one scan, as without deleted rows."""
    frame = load(spark_reader, uri).select("id", F.monotonically_increasing_id().alias("n"))
    found = frame.collect()
    assert len({row.n for row in found}) == len(found)


def test_a_file_that_lost_all_of_a_batch(spark_reader: SparkSession, tmp_path: Path) -> None:
    dataset = write(pa.table({"id": list(range(10_000))}), tmp_path / "d")
    dataset.delete("id < 9000")
    frame = load(spark_reader, tmp_path / "d")
    assert "1 with deleted rows" in plan(frame)
    assert sorted(row.id for row in frame.collect()) == list(range(9_000, 10_000))
    dataset.refresh().delete("id < 9999")
    assert load(spark_reader, tmp_path / "d").collect() == [(9_999,)]


@pytest.mark.long
def test_skipped_pages_do_not_shift_the_places_of_rows(
    spark_reader: SparkSession, tmp_path: Path
) -> None:
    size = 600_000
    table = pa.table({"id": pa.array(range(size)), "v": pa.array(range(size, 0, -1))})
    dataset = write(table, tmp_path / "d", row_group_rows=size)
    dataset.delete("id % 1000 = 500")
    frame = load(spark_reader, tmp_path / "d")
    for low, high in ((499_000, 501_001), (0, 1001), (598_499, size)):
        found = frame.where(f"id >= {low} AND id < {high}")
        assert "1 with deleted rows" in plan(found)
        expected = [n for n in range(low, high) if n % 1000 != 500]
        with configured(spark_reader, "spark.sql.adaptive.enabled", "false"):
            assert sorted(row.id for row in found.collect()) == expected
        leaf = found._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
        assert leaf.metrics().apply("numOutputRows").value() < size / 2  # pages were skipped
        assert found.where(f"v + id != {size}").collect() == []


@pytest.mark.parametrize("change", ["checksum", "short", "gone"])
def test_a_damaged_deletion_vector_is_an_error(
    spark_reader: SparkSession, tmp_path: Path, change: str
) -> None:
    uri = tmp_path / "d"
    dataset = write(pa.table({"id": list(range(200_000))}), uri)
    dataset.delete("id * id % 3 = 1")  # too many for a copy in the catalog
    frame = load(spark_reader, uri)
    assert "1 with deleted rows" in plan(frame)
    (puffin,) = uri.rglob("*.puffin")
    content = puffin.read_bytes()
    if change == "checksum":
        puffin.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    elif change == "short":
        puffin.write_bytes(content[:1000])
    else:
        puffin.unlink()
    with pytest.raises(Exception, match=r"deletion vector of .*\.parquet") as caught:
        frame.collect()
    assert puffin.name in str(caught.value)
    if change != "checksum":
        with pytest.raises(Exception, match=r"lakehouse_source\.errors\."):
            load(spark_reader, uri).collect()


# --- other columns -----------------------------------------------------------------------

DAYS = [datetime.date(1, 1, 1), datetime.date(1582, 10, 4), datetime.date(2024, 2, 29)]
# By column: its type, values, later type, and conditions on it.
PROMOTIONS: dict[str, tuple[pa.DataType, list[Any], pa.DataType, tuple[str, ...]]] = {
    "tiny": (pa.int8(), [-128, 127, 0, -1], pa.int32(), ("c > 127", "c = -128", "c < 1000")),
    "short": (pa.int16(), [-(2**15), 2**15 - 1, 5], pa.int64(), (f"c < {2**40}", "c IN (5, 9)")),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, 7], pa.int64(), (f"c <= {2**31}", "c = 7")),
    "double": (pa.int32(), [-(2**31), 2**31 - 1, 0], pa.float64(), ("c > 0.5", "c = -0.0D")),
    "money": (pa.int32(), [-(2**31), 2**31 - 1, 1], pa.decimal128(12, 2), ("c > 0.99", "c = 1.00")),
    "large": (pa.int64(), [-(2**63), 2**63 - 1, 1], pa.decimal128(24, 3), ("c > 0.999", "c = 1")),
    "single": (pa.float32(), [0.1, NAN, -0.0, 0.0], pa.float64(), ("c = 0", "c > 5", "c != 0.1")),
    "digits": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.01")], pa.decimal128(15, 4),
               ("c = 0.01", "c < -999.9899")),
    "longer": (pa.decimal128(18, 2), [Decimal("-9e15"), Decimal("0.01")], pa.decimal128(38, 20),
               ("c = 0.01", "c < 0")),
    "wide": (pa.decimal128(25, 2), [Decimal("-9e22"), Decimal("0.01")], pa.decimal128(30, 7),
             ("c = 0.01", "c < 0")),
    "day": (pa.date32(), DAYS, pa.timestamp("us"),
            ("c = TIMESTAMP_NTZ '2024-02-29 00:00:00'", "c < TIMESTAMP_NTZ '1900-01-01 00:00:00'")),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("repeated", [True, False])
def test_promoted_columns_have_the_values_of_pyarrows_cast(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path, repeated: bool
) -> None:
    """With dictionaries in the files and without; one row of each row group is deleted."""
    height = 300
    table = pa.table({"n": list(range(height))})
    cast = table
    for name, (old, values, new, _) in PROMOTIONS.items():
        values = [*values, None]
        if not repeated and pa.types.is_integer(old):
            values += range(-100, 100)
        column = pa.array((values * height)[:height], old)
        table, cast = table.append_column(name, column), cast.append_column(name, column.cast(new))
    dataset = write(table, tmp_path / "d", row_group_rows=100)
    for name, (_, _, new, _) in PROMOTIONS.items():
        dataset.promote_column(name, new)
        dataset.rename_column(name, f"{name}_now")
    dataset.delete("n % 100 = 1")
    cast = cast.rename_columns(["n", *(f"{name}_now" for name in PROMOTIONS)])
    live = cast.filter(pa.array(n % 100 != 1 for n in range(height)))
    oracle = parquet(spark, live, tmp_path / "live.parquet")
    frame = load(spark_reader, tmp_path / "d")
    assert "1 with deleted rows, 1 with other columns" in plan(frame)
    agree(frame, oracle)
    for name, (_, _, _, conditions) in PROMOTIONS.items():
        asked = [condition.replace("c ", f"{name}_now ") for condition in conditions]
        ours, theirs = (side.select("n", f"{name}_now") for side in (frame, oracle))
        agree(ours, theirs, *asked, f"{name}_now IS NULL AND n < 70")


@pytest.mark.long
def test_names_that_went_round_over_files_of_four_times(
    spark: SparkSession, spark_reader: SparkSession, tmp_path: Path
) -> None:
    """Columns swap names, are dropped and come back with a default; rows of each file go."""
    uri = tmp_path / "d"
    ids = list(range(100))
    first = pa.table({"id": ids, "a": [f"a{n}" for n in ids], "b": [f"b{n}" for n in ids],
                      "p": [n % 2 for n in ids]})  # fmt: skip
    dataset = write(first, uri, partition_by="p")
    expected: dict[int, tuple[Any, ...]] = {n: (f"a{n}", f"b{n}", 7, n % 2) for n in ids}
    for old, new in (("a", "t"), ("b", "a"), ("t", "b")):
        dataset.rename_column(old, new)
    dataset.refresh().add_column("c", pa.int32(), default=7)
    expected = {n: (b, a, c, p) for n, (a, b, c, p) in expected.items()}
    lake.write_dataset(
        pa.table({"id": [200, 201], "a": ["x", "y"], "b": ["z", None], "p": [0, 1],
                  "c": pa.array([None, 8], pa.int32())}), uri
    )  # fmt: skip
    expected |= {200: ("x", "z", None, 0), 201: ("y", None, 8, 1)}
    dataset.refresh().promote_column("c", pa.int64())
    dataset.drop_column("a")
    dataset.add_column("a", pa.string(), default="new")
    dataset.rename_column("p", "q")
    expected = {n: ("new", b, c, p) for n, (a, b, c, p) in expected.items()}
    lake.write_dataset(pa.table({"id": [300], "a": ["v"], "b": ["w"], "c": [2**40], "q": [0]}), uri)
    expected[300] = ("v", "w", 2**40, 0)
    dataset.refresh().delete("id IN (5, 201) OR a = 'new' AND id = 98")
    for gone in (5, 98, 201):
        del expected[gone]
    frame = load(spark_reader, uri).select("id", "a", "b", "c", "q")
    data = [(n, *values) for n, values in expected.items()]
    oracle = spark.createDataFrame(data, "id bigint, a string, b string, c bigint, q bigint")
    agree(
        frame, oracle, "a = 'new'", "b = 'a7'", "a = 'b7'", "b LIKE 'b%'", "c = 7", "c IS NULL",
        f"c > {2**33}", "q = 1 AND a != 'v'", "a IN ('v', 'x')", "a IS NULL OR c IN (8, 9)",
        "length(a) = 3 AND id < 4",
    )  # fmt: skip
    assert "with other columns" in plan(frame)
    assert rows(frame.select("a").distinct()) == ["('new',)", "('v',)"]
    assert rows(frame.groupBy("c").count()) == rows(oracle.groupBy("c").count())


def test_a_scan_of_lacking_columns_only(spark_reader: SparkSession, tmp_path: Path) -> None:
    dataset = write(pa.table({"id": list(range(1000))}), tmp_path / "d")
    dataset.add_column("e", pa.string(), default="é")
    dataset.add_column("z", pa.float64(), default=-0.0)
    dataset.delete("id % 3 = 0")
    frame = load(spark_reader, tmp_path / "d").select("e", "z")
    assert "1 with deleted rows, 1 with other columns" in plan(frame)
    assert set(map(repr, frame.collect())) == {"Row(e='é', z=-0.0)"}
    assert frame.groupBy("e", "z").count().collect() == [("é", 0.0, 666)]
    assert len(data_files(tmp_path / "d")) >= 1
