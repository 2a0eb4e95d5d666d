"""What the options of a write do; the oracle is Spark's own work on the same frames."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructType

import lakehouse_source as lake
from lakehouse_source.schema.partitions import HIVE_NULL
from tests.doors.frames import data_files, literals, load, quoted, rows, save
from tests.versions import writes_bloom_filters


def footers(path: Path) -> list[pq.FileMetaData]:
    return [pq.read_metadata(file) for file in data_files(path)]


def group_sizes(footer: pq.FileMetaData) -> list[int]:
    return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]


def live_paths(path: Path) -> set[str]:
    return {file.path for file in lake.open_dataset(path).files()}


# --- modes ----------------------------------------------------------------------


def test_append_adds_and_overwrite_replaces(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.range(3), tmp_path)
    save(spark.range(10, 12), tmp_path)
    assert rows(load(spark, tmp_path)) == ["(0,)", "(1,)", "(10,)", "(11,)", "(2,)"]
    save(spark.range(7, 8), tmp_path, "overwrite")
    assert rows(load(spark, tmp_path)) == ["(7,)"]
    assert load(spark, tmp_path, version=2).count() == 5
    history = lake.open_dataset(tmp_path).history()
    assert [entry.operation for entry in history] == ["overwrite", "append", "append"]


def test_columns_are_matched_by_name_whatever_their_order_and_case(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(spark.createDataFrame([(1, "a", 2.5)], "i long, s string, Val double"), tmp_path)
    save(spark.createDataFrame([(3.5, None, 7)], "VAL double, S string, I int"), tmp_path)
    back = load(spark, tmp_path)
    assert back.columns == ["i", "s", "Val"]
    assert rows(back) == ["(1, 'a', 2.5)", "(7, None, 3.5)"]


# --- partitionBy ------------------------------------------------------------------

AWKWARD = [
    "",
    " ",
    "a b",
    " a",
    "a/b",
    "/",
    "%",
    "%2F",
    "a=b",
    "k=1/l=2",
    "ü€😀",
    "e\u0301",
    "é",
    HIVE_NULL,
    "null",
    ".",
    "..",
    ".hidden",
    "_hidden",
    "back\\slash",
    "c:d",
    "it's",
    '"',
    "new\nline\ttab",
    "A",
    "a",
    "~",
    "*?[x]",
    "x" * 300,
    "x" * 299 + "y",
    "€" * 100,
]


@pytest.mark.long
def test_every_partition_value_comes_back(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    values: list[str | None] = [None, *AWKWARD]
    data = list(enumerate(values))
    frame = spark.createDataFrame(data, "n int, p string").repartition(1)
    save(frame, tmp_path, partitionBy="p")
    assert rows(load(spark, tmp_path)) == rows(frame.select("n", "p"))
    files = data_files(tmp_path)
    assert len(files) == len(values)
    folders = {file.parent.relative_to(tmp_path).as_posix() for file in files}
    assert len(folders) == len(values)
    assert {folder.count("/") for folder in folders} == {0}
    assert f"p={HIVE_NULL}" in folders
    short = {value for value in AWKWARD if len(value) < 50}
    assert short <= {unquote(folder.removeprefix("p=")) for folder in folders}
    read = load(spark_planner, tmp_path)
    oracle = frame.alias("o")
    for value in ("", HIVE_NULL, "a/b", "%2F", "ü€😀", "x" * 300):
        assert read.where(F.col("p") == value).count() == 1, value
    for condition in ("p IS NULL", "p <=> NULL", "p > 'a'", "p LIKE 'x%'", "p != ''"):
        assert rows(read.where(condition)) == rows(oracle.where(condition)), condition
        assert rows(load(spark, tmp_path, where=condition)) == rows(oracle.where(condition))


@pytest.mark.long
def test_partition_columns_of_every_type_that_can_be_one(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    frame = literals(
        spark,
        {
            "v": ["1", "2", "3"],
            "b": ["TRUE", "FALSE"],
            "l": ["-9223372036854775807L", "0L"],
            "t": ["127Y"],
            "d": ["DATE'0001-01-01'", "DATE'9999-12-31'"],
            "ts": ["TIMESTAMP'1850-01-01 00:00:00.000001Z'", "TIMESTAMP'2024-01-01 12:30:00Z'"],
            "n": ["TIMESTAMP_NTZ'2024-03-10 02:30:00'"],
            "dec": ["-1.50BD", "0.01BD"],
            "a.b": ["'x=1'"],
        },
    )
    names = [name for name in frame.columns if name != "v"]
    save(frame, tmp_path, partitionBy="b,l,t,D,ts,n,dec,`a.b`")
    back = load(spark_planner, tmp_path)
    assert back.schema == load(spark, tmp_path).schema
    assert sorted(back.columns) == sorted(frame.columns)
    assert rows(back.select([quoted(n) for n in frame.columns])) == rows(frame)
    for condition in (
        "d = DATE'9999-12-31'",
        "ts < TIMESTAMP'1900-01-01 00:00:00Z'",
        "dec < 0",
        "l IS NULL",
        "NOT b",
        "`a.b` = 'x=1'",
    ):
        assert back.where(condition).count() == frame.where(condition).count(), condition
    folders = "\n".join(file.parent.as_posix() for file in data_files(tmp_path))
    for folder in ("dec=-1.50", "d=0001-01-01", "b=true", "n=2024-03-10 02%3A30%3A00", "a.b=x%3D1"):
        assert f"/{folder}" in folders
    stored = pq.read_schema(data_files(tmp_path)[0]).names
    assert not set(stored) & set(names)


def test_later_writes_follow_the_partitioning_of_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    save(frame, tmp_path, partitionBy="p")
    save(frame, tmp_path)
    assert all(file.parent.name in ("p=0", "p=1") for file in data_files(tmp_path))
    save(frame, tmp_path, partitionBy="P")
    with pytest.raises(AnalysisException, match="does not match the partition columns"):
        save(frame, tmp_path, partitionBy="id")
    assert load(spark, tmp_path).where("p = 1").count() == 6


# --- replacing a part ---------------------------------------------------------------

ROWS = "id int, part string, f double, s string"


@pytest.fixture
def parts(spark: SparkSession, tmp_path: Path) -> tuple[Path, DataFrame]:
    """Rows in two parts and none, with NULLs and NaN in what conditions look at."""
    nan = float("nan")
    data: list[tuple[Any, ...]] = []
    for part in ("a", "b", None):
        for i, value in enumerate([1.0, -0.0, nan, None, 5.0]):
            data.append((len(data), part, value, None if i == 1 else f"{part}{i}"))
    frame = spark.createDataFrame(data, ROWS).coalesce(1)
    path = tmp_path / "parts"
    save(frame, path, partitionBy="part")
    return path, frame


@pytest.mark.long
@pytest.mark.parametrize(
    ("condition", "incoming"),
    [
        ("part = 'a'", [(100, "a", 9.0, "new")]),
        ("part IS NULL", [(100, None, 9.0, "new")]),
        ("part = 'a' OR part = 'zz'", []),
        ("f > 2", [(100, "b", 9.0, "new"), (101, "c", float("nan"), None)]),  # NaN goes
        ("f = 0", [(100, None, 0.0, None)]),
        ("f IS NULL", [(100, "a", None, None)]),
        ("s = 'a0' OR s IS NULL", [(100, "b", None, None)]),
        ("id BETWEEN 3 AND 7", [(5, "a", 1.0, "again")]),
        ("id > 1000", [(1001, "a", 1.0, "x")]),
        ("NOT (f < 5)", []),
    ],
)
def test_overwrite_where_replaces_the_rows_of_its_condition_and_no_other(
    spark: SparkSession,
    parts: tuple[Path, DataFrame],
    condition: str,
    incoming: list[tuple[Any, ...]],
) -> None:
    path, frame = parts
    new = spark.createDataFrame(incoming, ROWS)
    stay = frame.where(f"({condition}) IS NOT TRUE")
    expected = rows(stay.union(new).select("id", "part", "f", "s"))
    save(new, path, "overwrite", overwriteWhere=condition)
    assert rows(load(spark, path).select("id", "part", "f", "s")) == expected
    assert rows(load(spark, path, version=1).select("id", "part", "f", "s")) == rows(frame)
    assert lake.open_dataset(path).version == 2


@pytest.mark.long
def test_overwrite_where_keeps_files_of_other_partitions_as_they_are(
    spark: SparkSession, parts: tuple[Path, DataFrame]
) -> None:
    path, _ = parts
    before = live_paths(path)
    save(
        spark.createDataFrame([(1, "a", 1.0, "x")], ROWS),
        path,
        "overwrite",
        overwriteWhere="part = 'a'",
    )
    after = live_paths(path)
    assert len(before & after) == 2
    assert len(after) == 3


def test_overwrite_where_refuses_rows_outside_its_condition_and_commits_nothing(
    spark: SparkSession, parts: tuple[Path, DataFrame]
) -> None:
    path, _ = parts
    before = data_files(path)
    mixed = spark.createDataFrame(
        [(1, "a", 1.0, "x"), (2, "b", 1.0, "x"), (3, None, 1.0, "x")], ROWS
    )
    with pytest.raises(PySparkException) as refused:
        save(mixed.coalesce(1), path, "overwrite", overwriteWhere="part = 'a'")
    assert "2 incoming rows do not satisfy the condition of the overwrite" in str(refused.value)
    assert lake.open_dataset(path).version == 1
    assert data_files(path) == before


def test_overwrite_where_needs_the_mode_overwrite(
    spark: SparkSession, parts: tuple[Path, DataFrame]
) -> None:
    with pytest.raises(AnalysisException, match="needs mode 'overwrite'"):
        save(parts[1], parts[0], "append", overwriteWhere="part = 'a'")


@pytest.mark.long
def test_dynamic_overwrite_replaces_the_partitions_that_get_rows(
    spark: SparkSession, parts: tuple[Path, DataFrame]
) -> None:
    path, frame = parts
    new = spark.createDataFrame([(1, None, 1.0, "x"), (2, "new", 2.0, "y")], ROWS)
    expected = rows(frame.where("part IS NOT NULL").union(new).select("id", "part", "f", "s"))
    save(new, path, "overwrite", partitionOverwriteMode="DYNAMIC")
    assert rows(load(spark, path).select("id", "part", "f", "s")) == expected
    save(new.where("false"), path, "overwrite", partitionOverwriteMode="dynamic")
    assert rows(load(spark, path).select("id", "part", "f", "s")) == expected
    save(new, path, "overwrite", partitionOverwriteMode="static")
    assert load(spark, path).count() == 2


def test_dynamic_overwrite_needs_partitions(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.range(3), tmp_path)
    with pytest.raises(AnalysisException, match="needs a partitioned dataset"):
        save(spark.range(3), tmp_path, "overwrite", partitionOverwriteMode="dynamic")
    with pytest.raises(AnalysisException, match=r"is not a mode\. Known: static, dynamic"):
        save(spark.range(3), tmp_path, "overwrite", partitionOverwriteMode="eager")


# --- schema evolution -----------------------------------------------------------------

LARGE, WIDE = 5_000_000_000, Decimal("123456.789")
FEBRUARY, MARCH = datetime(2024, 2, 29), datetime(2024, 3, 1, 12)


@pytest.mark.long
def test_merge_schema_adds_columns_and_nested_fields_and_widens(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    old = spark.sql(
        "SELECT 1 i, named_struct('x', 1) st, array(named_struct('x', 1)) l, 1.5F f, "
        "DATE'2024-02-29' d, 1.25BD dec"
    )
    new = spark.sql(
        "SELECT 5000000000L i, named_struct('x', 5000000000L, 'y', 'b') st, "
        "array(named_struct('y', 'c', 'x', 3)) l, 0.1D f, "
        "TIMESTAMP_NTZ'2024-03-01 12:00:00' d, 123456.789BD dec, map('k', 1) m"
    )
    save(old, tmp_path)
    with pytest.raises(AnalysisException, match=r"mergeSchema|schema_merge"):
        save(new, tmp_path)
    save(new, tmp_path, mergeSchema="true")
    expected = [
        str((1, Row(x=1, y=None), [Row(x=1, y=None)], 1.5, FEBRUARY, Decimal("1.250"), None)),
        str((LARGE, Row(x=LARGE, y="b"), [Row(x=3, y="c")], 0.1, MARCH, WIDE, {"k": 1})),
    ]
    for session in (spark, spark_planner):
        back = load(session, tmp_path)
        assert rows(back) == expected
        assert back.where("i = 5000000000").count() == 1
        assert back.where("i = 1 AND f > 1.4 AND d < '2024-03-01' AND dec = 1.25").count() == 1
        assert back.where("st.y IS NULL").count() == 1
        assert back.where("m IS NULL").count() == 1
        assert rows(back.select("st.x", "m")) == ["(1, None)", "(5000000000, {'k': 1})"]
    assert load(spark, tmp_path, version=1).schema["i"].dataType == IntegerType()
    save(old, tmp_path)  # narrower again: fits as it is
    assert load(spark, tmp_path).where("i = 1").count() == 2


@pytest.mark.long
def test_promote_to_string_turns_a_column_into_text(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    doubles = [-0.0, 1.0, 1.5, 0.1, 100, 0.001, 0.00099, 9999999, 1e7, 123456789, -2.5e-300, 1e308]
    specials = ["double('NaN')", "double('-Infinity')"]
    frame = literals(
        spark,
        {
            "i": ["10", "-1"],
            "d": ["DATE'2024-01-02'", "DATE'0001-01-01'"],
            "b": ["TRUE", "FALSE"],
            "dec": ["1.50BD", "-0.01BD", "0BD"],
            "small": ["CAST('1E-20' AS DECIMAL(38,30))", "CAST(0 AS DECIMAL(38,30))"],
            "n": [f"TIMESTAMP_NTZ'2024-01-02 03:04:{s}'" for s in ("05", "05.5", "00.000010")],
            "f": [*(f"double('{number}')" for number in doubles), *specials],
            "r": ["1.1F", "1E20F", "3.4E38F", "0.1F", "float('NaN')"],
            "span": [f"INTERVAL '{s}' DAY TO SECOND" for s in ("1 02:03:04.5", "-0 00:00:01")],
        },
    )
    columns = ["'nine' i", *(f"'text' {name}" for name in frame.columns[1:])]
    texts = spark.sql(f"SELECT {', '.join(columns)}")
    save(frame, tmp_path)
    with pytest.raises(AnalysisException, match="promote"):
        save(texts, tmp_path)
    save(texts, tmp_path, promoteToString="true")
    cast = frame.select([F.col(name).cast("string") for name in frame.columns])
    for session in (spark, spark_planner):
        back = load(session, tmp_path)
        assert rows(back) == rows(cast.union(texts))
        assert back.where("i = '10'").count() == 1
        assert back.where("i > '5'").count() == 1  # as text
        assert back.where("f = '1.0'").count() == 1
        assert back.where("n = '2024-01-02 03:04:05.5'").count() == 1


def test_new_columns_need_merge_schema_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(spark.range(2), tmp_path)
    with pytest.raises(AnalysisException, match=r"'extra'.*is in the data and not in the dataset"):
        save(spark.range(2).withColumn("extra", F.lit(1)), tmp_path)
    assert lake.open_dataset(tmp_path).version == 1


# --- layout -----------------------------------------------------------------------------


@pytest.mark.long
def test_row_groups_are_full_although_spark_sends_ten_thousand_rows_at_a_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(spark.range(50_000).coalesce(1), tmp_path / "given", rowGroupRows=16_384)
    (footer,) = footers(tmp_path / "given")
    assert group_sizes(footer) == [16_384, 16_384, 16_384, 848]
    save(spark.range(150_000).coalesce(1), tmp_path / "default")
    (footer,) = footers(tmp_path / "default")
    assert group_sizes(footer) == [131_072, 150_000 - 131_072]


@pytest.mark.long
def test_files_are_closed_at_the_target_size(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(60_000).selectExpr("id", "sha2(CAST(id AS STRING), 256) h").coalesce(1)
    save(frame, tmp_path, rowGroupRows=5000, targetFileSize="500k", compression="none")
    sizes = [file.stat().st_size for file in data_files(tmp_path)]
    assert len(sizes) >= 5
    assert max(sizes) < 2 * 500 * 1024
    assert load(spark, tmp_path).selectExpr("sum(id)", "count(DISTINCT h)").first() == (
        sum(range(60_000)),
        60_000,
    )


@pytest.mark.parametrize(
    ("codec", "stored"),
    [("zstd", "ZSTD"), ("SNAPPY", "SNAPPY"), ("gzip", "GZIP"), ("none", "UNCOMPRESSED")],
)
def test_compression_is_what_was_asked_for(
    spark: SparkSession, tmp_path: Path, codec: str, stored: str
) -> None:
    save(spark.range(1000), tmp_path, compression=codec)
    assert {f.row_group(0).column(0).compression for f in footers(tmp_path)} == {stored}
    assert load(spark, tmp_path).selectExpr("sum(id)").first() == (499_500,)


@pytest.mark.long
def test_sorted_row_groups_have_narrow_statistics(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(20_000).selectExpr("(id * 7919) % 20000 AS k", "id").coalesce(1)
    save(frame, tmp_path, rowGroupRows=5000, sortBy="K,id")
    (footer,) = footers(tmp_path)
    bounds = []
    for i in range(footer.num_row_groups):
        statistics = footer.row_group(i).column(0).statistics
        bounds.append((statistics.min, statistics.max))
    assert bounds == [(0, 4999), (5000, 9999), (10_000, 14_999), (15_000, 19_999)]
    assert [c.column_index for c in footer.row_group(0).sorting_columns] == [0, 1]
    explained = lake.open_dataset(tmp_path).scan("k = 7").explain()
    assert explained.row_groups_read == 1
    assert rows(load(spark, tmp_path)) == rows(frame)


@pytest.mark.long
def test_batch_writes_follow_the_properties_of_the_dataset(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(10_000).selectExpr("(id * 7919) % 10000 AS k", "id").coalesce(1)
    save(frame.limit(10), tmp_path, rowGroupRows=4000, sortBy="k", promoteToString="true")
    dataset = lake.open_dataset(tmp_path)
    assert dataset.properties["sort_by"] == ["k"]
    dataset.set_properties(compression="snappy")

    def written(**options: object) -> tuple[list[int], str, bool]:
        save(frame, tmp_path, **options)
        path = tmp_path / dataset.refresh().files()[-1].path
        footer, values = pq.read_metadata(path), pq.read_table(path)["k"].to_pylist()
        codec = footer.row_group(0).column(0).compression
        return group_sizes(footer), codec, values == sorted(values)

    assert written() == ([4000, 4000, 2000], "SNAPPY", True)
    own = {"rowGroupRows": 5000, "compression": "gzip", "sortBy": ""}
    assert written(**own) == ([5000, 5000], "GZIP", False)
    assert written() == ([4000, 4000, 2000], "SNAPPY", True)
    text = spark.sql("SELECT 'x' AS k, 1L AS id")
    with pytest.raises(PySparkException, match="promote_to_string"):
        save(text, tmp_path, mergeSchema=True, promoteToString=False)
    save(text, tmp_path, mergeSchema=True)
    assert dataset.refresh().schema.field("k").type == pa.string()


@pytest.mark.long
@writes_bloom_filters
def test_bloom_filters_are_written_for_the_columns_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(1000).selectExpr("id", "CAST(id AS STRING) s", "named_struct('q', id) st")
    save(frame.coalesce(1), tmp_path, bloomFilterColumns="S")
    (file,) = data_files(tmp_path)
    plain = tmp_path / "plain"
    save(frame.coalesce(1), plain)
    duck = pytest.importorskip("duckdb").connect()

    def blooms(path: Path) -> set[str]:
        query = (
            "SELECT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_offset IS NOT NULL"
        )
        return {row[0] for row in duck.execute(query, [str(path)]).fetchall()}

    assert blooms(file) == {"s"}
    assert blooms(data_files(plain)[0]) == set()
    assert load(spark, tmp_path).where("s = '77'").count() == 1


@pytest.mark.long
def test_index_columns_say_which_columns_find_files(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1000).selectExpr("id", "CAST(id AS STRING) s", "named_struct('q', id) st")
    save(frame.coalesce(1), tmp_path, indexColumns="ST.q, `s`")
    dataset = lake.open_dataset(tmp_path)
    assert dataset.properties["index_columns"] == ["ST.q", "s"]
    assert len(dataset.properties["indexed_columns"]) == 2
    with pytest.raises(PySparkException, match="does not match the indexed columns"):
        save(frame.coalesce(1), tmp_path, indexColumns="id")
    save(frame.coalesce(1), tmp_path, indexColumns="s,st.q")
    assert load(spark, tmp_path).where("id = 77 AND st.q = 77").count() == 2


# --- commits ----------------------------------------------------------------------------


def test_an_expected_version_that_is_past_is_a_conflict(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(spark.range(1), tmp_path, expectedVersion=0)
    save(spark.range(1), tmp_path, expectedVersion=1)
    before = data_files(tmp_path)
    with pytest.raises(PySparkException, match=r"version 1 was expected.*the dataset is at 2"):
        save(spark.range(1), tmp_path, expectedVersion=1)
    assert lake.open_dataset(tmp_path).version == 2
    assert data_files(tmp_path) == before


@pytest.mark.long
def test_the_same_transaction_of_an_application_is_committed_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(spark.range(3), tmp_path, txnAppId="app", txnVersion=7)
    before = data_files(tmp_path)
    save(spark.range(3), tmp_path, txnAppId="app", txnVersion=7)
    save(spark.range(3), tmp_path, txnAppId="app", txnVersion=3)
    assert load(spark, tmp_path).count() == 3
    assert data_files(tmp_path) == before
    save(spark.range(3), tmp_path, txnAppId="other", txnVersion=7)
    save(spark.range(3), tmp_path, txnAppId="app", txnVersion=8)
    assert load(spark, tmp_path).count() == 9
    with pytest.raises(AnalysisException, match="txnVersion go together"):
        save(spark.range(3), tmp_path, txnAppId="app")


@pytest.mark.long
def test_metadata_of_a_commit_is_in_the_history(spark: SparkSession, tmp_path: Path) -> None:
    said = {"who": "ünï", "run": 7, "nested": {"a": [1, None]}}
    save(spark.range(1), tmp_path, commitMetadata=json.dumps(said))
    assert lake.open_dataset(tmp_path).history()[0].metadata == said
    with pytest.raises(AnalysisException, match="must be a JSON object"):
        save(spark.range(1), tmp_path, commitMetadata="[1]")


@pytest.mark.long
def test_a_failing_task_leaves_no_version_and_no_file(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.range(2), tmp_path)
    before = data_files(tmp_path)

    # The second partition fails at its last row, long after the first has finished its file.
    sizes = spark.range(0, 2, 1, 2).selectExpr("id AS part", "IF(id = 0, 9, 2000000) AS size")
    numbers = sizes.selectExpr("explode(sequence(1, size)) AS id")
    fails = "IF(id < 2000000, CAST(id AS LONG), raise_error('this row is broken')) AS id"
    broken = numbers.selectExpr(fails)
    with pytest.raises(PySparkException, match="this row is broken"):
        save(broken, tmp_path)
    assert lake.open_dataset(tmp_path).version == 1
    assert data_files(tmp_path) == before


@pytest.mark.long
def test_the_first_frame_without_nulls_made_a_column_that_refused_null_for_ever(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(spark.range(5), tmp_path)
    save(spark.createDataFrame([(None,)], "id long"), tmp_path)
    save(spark.range(1), tmp_path, mergeSchema="true")
    assert load(spark, tmp_path).schema["id"].nullable is True
    assert load(spark, tmp_path).where("id IS NULL").count() == 1
    assert load(spark, tmp_path).count() == 7


@pytest.mark.long
def test_null_in_a_column_that_allows_none_is_refused_unless_the_schema_may_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lake.write_dataset(pa.table({"id": [0]}, schema=required), tmp_path)
    save(spark.range(1), tmp_path, mergeSchema="true")
    assert load(spark, tmp_path).schema["id"].nullable is False
    with_null = spark.createDataFrame([(None,)], "id long").coalesce(1)
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException, match="column 'id' is not nullable and the data has"):
            save(with_null, tmp_path, mode)
    assert load(spark, tmp_path).count() == 2
    save(with_null, tmp_path, mergeSchema="true")
    assert load(spark, tmp_path).schema["id"].nullable is True
    assert load(spark, tmp_path).where("id IS NULL").count() == 1
    assert load(spark, tmp_path, version=2).schema["id"].nullable is False


@pytest.mark.long
def test_an_empty_frame_can_be_appended_and_can_empty_a_dataset(
    spark: SparkSession, tmp_path: Path
) -> None:
    nothing = spark.createDataFrame([], StructType().add("id", LongType()))
    save(nothing, tmp_path)
    save(spark.range(3), tmp_path)
    save(nothing, tmp_path)
    assert load(spark, tmp_path).count() == 3
    save(nothing, tmp_path, "overwrite")
    assert load(spark, tmp_path).count() == 0
    assert load(spark, tmp_path, version=3).count() == 3
