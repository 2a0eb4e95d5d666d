"""What the options of a read do, and what a frame is pinned to."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import lakehouse_source as lake
from tests.doors.frames import load, rows, save

TEXTS = ["it's", 'say "hi"', "back\\slash", "100%", "a_b", "", None]
NAN = float("nan")


def table(start: int, count: int = 100) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([i % 7 for i in ids], pa.int32()),
            "f": pa.array([NAN if i % 5 == 0 else None if i % 5 == 1 else i / 2 for i in ids]),
            "s": pa.array([TEXTS[i % 7] for i in ids]),
            "d": pa.array([date(2024, 1, 1) + timedelta(days=i) for i in ids]),
            "st": pa.array([None if i % 9 == 0 else {"x": i % 10, "y": "v"} for i in ids]),
            "p.q": pa.array([i % 3 for i in ids], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Versions of 100, 200 and 300 rows; one file of five row groups each."""
    path = str(tmp_path_factory.mktemp("read") / "three versions")
    for start in (0, 100, 200):
        lake.write_dataset(table(start), path, row_group_rows=20)
    return path


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> DataFrame:
    # Not cached: Spark's own cache loses NaN when it prunes its batches.
    return spark.createDataFrame(table(0, 300))


@pytest.fixture(params=["stock", "planner"])
def session(
    request: pytest.FixtureRequest, spark: SparkSession, spark_planner: SparkSession
) -> SparkSession:
    return spark if request.param == "stock" else spark_planner


@pytest.mark.parametrize("option", ["version", "versionAsOf", "VERSIONASOF"])
def test_an_older_version_is_read_by_its_number(
    spark: SparkSession, three: str, option: str
) -> None:
    assert load(spark, three, **{option: "2"}).count() == 200


def test_a_version_is_read_by_time(spark: SparkSession, three: str) -> None:
    second = lake.open_dataset(three).history()[1].timestamp
    for moment, count in (
        (second.isoformat(), 200),
        ((second - timedelta(microseconds=1)).isoformat(), 100),
        (second.replace(tzinfo=None).isoformat(sep=" ") + "Z", 200),
        ("2999-01-01T00:00:00+00:00", 300),
    ):
        assert load(spark, three, timestampAsOf=moment).count() == count, moment


def test_columns_narrow_the_frame_in_the_order_given(session: SparkSession, three: str) -> None:
    frame = load(session, three, columns="ST, id,`p.q`")
    assert frame.columns == ["st", "id", "p.q"]
    assert frame.where("id = 3").collect() == [((3, "v"), 3, 0)]


WHERE = [
    "id < 10 OR id >= 290",
    "NOT (id < 10 OR id >= 20)",
    "f > 100",  # NaN too
    "f = CAST('NaN' AS DOUBLE)",
    "f != 21.0",
    "NOT (f < 5)",
    "f IS NULL AND k = 1",
    "f <=> NULL",
    "s = 'it''s'",
    """s = 'say "hi"'""",
    "s LIKE '100%'",
    "s = ''",
    "s IN ('a_b', 'nobody') OR s IS NULL",
    "s NOT IN ('a_b', '')",
    "st.x = 3 AND st.y = 'v'",
    "st IS NULL",
    "st.x IS NULL",
    "d BETWEEN DATE'2024-02-01' AND '2024-02-03'",
    "`p.q` = 2 AND k IN (1, 2)",
    "id = -1",
    "TRUE",
]


@pytest.mark.parametrize("condition", WHERE)
@pytest.mark.cases(3)
def test_where_is_applied_as_spark_would(
    spark: SparkSession, three: str, plain: DataFrame, condition: str
) -> None:
    expected = rows(plain.where(condition))
    assert rows(load(spark, three, where=condition)) == expected


def test_where_and_filters_and_columns_combine(
    session: SparkSession, three: str, plain: DataFrame
) -> None:
    frame = load(session, three, where="id < 50 OR id > 250", columns="id,f")
    expected = plain.where("(id < 50 OR id > 250) AND f > 10").select("id", "f")
    assert rows(frame.where("f > 10")) == rows(expected)
    assert frame.count() == 99


def test_a_schema_projects_reorders_and_widens(session: SparkSession, three: str) -> None:
    schema = StructType(
        [
            StructField("K", LongType()),
            StructField("ID", LongType()),
            StructField("st", StructType([StructField("Y", StringType())])),
        ]
    )
    frame = session.read.format("plake").schema(schema).load(three)
    assert frame.schema == schema
    assert frame.where("ID = 12").collect() == [(5, 12, ("v",))]
    assert frame.where("k = 6 AND id < 20").select("id").collect() == [(6,), (13,)]


def test_a_schema_that_does_not_hold_the_values_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake.write_dataset(pa.table({"n": [2**40]}), tmp_path)
    schema = StructType([StructField("n", IntegerType())])
    frame = spark.read.format("plake").schema(schema).load(str(tmp_path))
    with pytest.raises(PythonException, match="column 'n' is int32"):
        frame.collect()


def test_a_schema_with_a_column_of_no_dataset_is_an_error(spark: SparkSession, three: str) -> None:
    frame = spark.read.format("plake").schema("id long, nowhere int").load(three)
    with pytest.raises(Exception, match="'nowhere' is named in schema"):
        frame.collect()


@pytest.mark.parametrize(
    "spell",
    [
        lambda path: path,
        lambda path: path + "/",
        lambda path: "file:" + path.replace(" ", "%20"),
        lambda path: "file://" + path.replace(" ", "%20"),
        lambda path: os.path.relpath(path),
        lambda path: path.replace("/three", "/../" + path.split("/")[-2] + "/./three"),
    ],
    ids=["plain", "slash", "file:/", "file:///", "relative", "dots"],
)
def test_a_path_can_be_spelled_in_many_ways(
    spark: SparkSession, three: str, spell: Callable[[str], str]
) -> None:
    assert load(spark, spell(three), version=1, columns="id").count() == 100


@pytest.mark.parametrize("size", ["1k", "1GiB"])
def test_the_split_size_decides_how_many_partitions_there_are(
    spark: SparkSession, three: str, plain: DataFrame, size: str
) -> None:
    frame = load(spark, three, splitSize=size)
    count = frame.rdd.getNumPartitions()
    assert count == 1 if size == "1GiB" else count > 3
    assert rows(frame) == rows(plain)


@pytest.mark.long
def test_small_files_share_partitions_and_large_files_are_divided_by_row_groups(
    spark: SparkSession, tmp_path: Path
) -> None:
    for start in range(12):
        lake.write_dataset(pa.table({"i": [start]}), tmp_path / "small")
    small = load(spark, tmp_path / "small")
    assert small.rdd.getNumPartitions() <= 4
    assert sorted(row.i for row in small.collect()) == list(range(12))

    # Scattered over 40 bits, which is what each takes, as differences too.
    values = [i * 6364136223846793005 & (2**40 - 1) for i in range(40_000)]
    numbers = pa.table({"i": pa.array(values, pa.int64())})
    lake.write_dataset(numbers, tmp_path / "large", row_group_rows=1000, compression="none")
    large = load(spark, tmp_path / "large", splitSize="1100k")
    # 200 KB of data, of which every piece pays for one more open file.
    pieces = large.rdd.glom().map(len).collect()
    assert sum(pieces) == 40_000
    fine = load(spark, tmp_path / "large", splitSize="32k")
    pieces = fine.rdd.glom().map(len).collect()
    assert len(pieces) >= 5
    assert sum(pieces) == 40_000
    assert all(piece % 1000 == 0 for piece in pieces)
    assert fine.selectExpr("sum(i)", "count(DISTINCT i)").first() == (sum(values), len({*values}))


def test_a_frame_keeps_its_version_while_others_commit(
    session: SparkSession, tmp_path: Path
) -> None:
    lake.write_dataset(pa.table({"i": [1, 2]}), tmp_path)
    frame = load(session, tmp_path)
    assert frame.count() == 2
    lake.write_dataset(pa.table({"i": [3]}), tmp_path)
    lake.write_dataset(pa.table({"i": [4], "new": [5]}), tmp_path, schema_merge=True)
    assert frame.columns == ["i"]
    assert rows(frame) == ["(1,)", "(2,)"]
    assert frame.alias("a").join(frame.alias("b"), "i").count() == 2
    assert frame.union(frame.where("i = 1")).count() == 3
    assert load(session, tmp_path).count() == 4


def test_a_frame_with_a_schema_keeps_the_version_of_its_first_use(
    session: SparkSession, tmp_path: Path
) -> None:
    """Spark asks the source nothing before: `load()` with a schema resolves nothing."""
    given = session.read.format("plake").schema("i long").load(str(tmp_path / "later"))
    lake.write_dataset(pa.table({"i": [1, 2]}), tmp_path / "later")
    assert given.where("i = 1").count() == 1
    lake.write_dataset(pa.table({"i": [3]}), tmp_path / "later")
    assert rows(given) == ["(1,)", "(2,)"]
    assert given.alias("a").join(given.alias("b"), "i").count() == 2


def test_a_frame_with_a_schema_and_no_dataset_says_so_when_it_is_used(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = spark.read.format("plake").schema("i long").load(str(tmp_path / "never"))
    with pytest.raises(AnalysisException, match="no dataset at file://"):
        given.collect()


def test_a_temporary_view_answers_sql_and_takes_inserts(
    session: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "view of it's")
    lake.write_dataset(pa.table({"i": [1, 2], "s": ["a", "b"]}), path)
    spelled = path.replace("'", "\\'")
    name = f"view_{tmp_path.name.replace('-', '_')}"
    create = f"CREATE OR REPLACE TEMPORARY VIEW {name} USING plake OPTIONS (path '{spelled}')"
    session.sql(create)
    assert session.sql(f"SELECT s FROM {name} WHERE i = 2").collect() == [("b",)]
    session.sql(f"INSERT INTO {name} VALUES (3, 'c')")
    assert lake.read_dataset(path).num_rows == 3
    # Without the extension a view keeps its version until it is created again.
    shown = 3 if lake.spark.is_enabled(session) else 2
    assert session.sql(f"SELECT count(*) FROM {name}").first() == (shown,)
    session.sql(create)
    assert session.sql(f"SELECT count(*) FROM {name}").first() == (3,)
    session.sql(f"INSERT OVERWRITE {name} SELECT i + 10, s FROM {name} WHERE i > 1")
    assert lake.read_dataset(path).sort_by("i").to_pydict() == {"i": [12, 13], "s": ["b", "c"]}
    session.sql(f"DROP VIEW {name}")


def test_a_view_with_options_reads_what_they_say(session: SparkSession, three: str) -> None:
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW narrow USING plake OPTIONS "
        f"(path '{three}', version '2', columns 'id', where 'id > 150 OR id = 3')"
    )
    assert session.sql("SELECT count(*), max(id) FROM narrow").first() == (50, 199)
    session.sql("DROP VIEW narrow")


def test_a_dataset_can_be_overwritten_by_what_is_read_from_it(
    session: SparkSession, tmp_path: Path
) -> None:
    lake.write_dataset(pa.table({"i": [1, 2, 3]}), tmp_path)
    save(load(session, tmp_path).where("i > 1"), tmp_path, "overwrite")
    assert lake.read_dataset(tmp_path).sort_by("i").to_pydict() == {"i": [2, 3]}


def test_options_that_contradict_each_other_are_refused(spark: SparkSession, three: str) -> None:
    with pytest.raises(AnalysisException, match="differs from versionAsOf"):
        load(spark, three, version=1, versionAsOf=2)
    assert load(spark, three, version=1, versionAsOf=1).count() == 100
    with pytest.raises(AnalysisException, match="together with a timestamp"):
        load(spark, three, version=1, timestampAsOf="2999-01-01T00:00Z")
