"""Spark's Parquet reader where a query or a statement asks where each row is stored.

Plake's own reader in Python tells the same; DuckDB runs the same statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Reader, Setting
from tests.doors.test_row_statements import (
    STATEMENTS,
    check,
    identities,
    oracle,
    source,
    view,
    write,
)
from tests.doors.test_types import setting

pytestmark = pytest.mark.spark

__all__ = ["source"]  # a fixture

PLACES = ("_file", "_pos", "_row_id", "_commit_version")
BY_SPARK = "read by Spark"


@pytest.fixture
def session(spark_planner: SparkSession, source: None) -> Iterator[SparkSession]:
    with setting(spark_planner, Setting.READER, Reader.SPARK):
        yield spark_planner
    spark_planner.catalog.dropTempView("t")


@pytest.fixture
def catalog(spark_catalog: SparkSession) -> Iterator[SparkSession]:
    with setting(spark_catalog, Setting.READER, Reader.SPARK):
        yield spark_catalog


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": pa.array([id * 10 for id in ids], pa.int32()),
            "p": [f"part {id % 2}" for id in ids],
        }
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of every kind: with deleted rows, with moved ones, with other columns, and plain."""
    uri = str(tmp_path_factory.mktemp("places") / "t")
    lake.write_dataset(rows(0, 6_000), uri, partition_by="p", row_group_rows=700)
    dataset = lake.open_dataset(uri)
    dataset.set_properties(rewrite_threshold=1.0)
    dataset.refresh().update({"v": "v + 1"}, "id % 5 = 1 AND id < 3000")
    dataset.refresh().delete("id BETWEEN 700 AND 2900 OR id = 5999")
    lake.write_dataset(rows(6_000, 10), uri)
    dataset.refresh().rename_column("v", "value")
    dataset.refresh().add_column("more", pa.int64(), default=7)
    dataset.refresh().update({"more": "id"}, "id IN (1, 6001, 6002)")
    dataset.refresh().compact("p = 'part 1'")
    dataset.refresh().update({"value": "-1"}, "id = 6001")
    return uri


def by_python(uri: str, *columns: str) -> list[tuple[Any, ...]]:
    found = lake.open_dataset(uri).scan(columns=list(columns)).to_table().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_places_are_those_that_python_tells(catalog: SparkSession, uri: str) -> None:
    names = (*PLACES, "id", "value", "p", "more")
    frame = catalog.sql(f"SELECT {', '.join(names)} FROM plake.`{uri}`")
    assert BY_SPARK in frame._jdf.queryExecution().executedPlan().toString()
    found = sorted(tuple(row) for row in frame.collect())
    assert found == by_python(uri, *names)
    assert len({row[:2] for row in found}) == len({row[2] for row in found}) == len(found)


@pytest.mark.parametrize("reader", [Reader.PYTHON, Reader.SPARK])
def test_metadata_of_files_is_what_sparks_parquet_reader_tells(
    reader: str, catalog: SparkSession, uri: str
) -> None:
    """`_metadata` was no column, and input_file_name() was empty."""
    fields = ("file_path", "file_name", "file_size", "row_index")
    names = ("input_file_name() AS name", *(f"_metadata.{one}" for one in fields), "id")
    options = {"recursiveFileLookup": True, "pathGlobFilter": "*.parquet"}
    files = catalog.read.options(**options).parquet(uri).selectExpr(*names).collect()
    stored = {(row["name"], row["row_index"]): row for row in files}
    expected = {row[0] for row in by_python(uri, "id")}
    with setting(catalog, Setting.READER, reader):
        frame = catalog.table(f"plake.`{uri}`").selectExpr(*names)
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert (BY_SPARK in plan) == (reader == Reader.SPARK)
        found = frame.collect()
        assert sorted(row["id"] for row in found) == sorted(expected)
        for row in found:
            same = stored[row["name"], row["row_index"]].asDict()
            same["file_path"] = same["file_path"].replace("file:/", "file:///", 1)  # as `name` is
            assert row.asDict() == same
        by_path = catalog.read.format("plake").load(uri)
        assert "_metadata" not in by_path.columns
        some = by_path.where("_metadata.row_index < 9 AND p = 'part 1'")
        some = some.select("id", "_metadata", F.input_file_name().alias("name"))
        wanted = {
            (r["id"], r["name"]) for r in found if r["row_index"] < 9 and "part%201" in r["name"]
        }
        rows = some.collect()
        assert sorted((row["id"], row["name"]) for row in rows) == sorted(wanted)
        identities = {row[0]: row[1:] for row in by_python(uri, "id", "_row_id", "_commit_version")}
        for id_, metadata, name in rows:
            assert metadata["file_path"] == name
            assert (metadata["row_id"], metadata["row_commit_version"]) == identities[id_]
        exploded = some.select(F.explode(F.array("id", "id")), F.input_file_name())
        assert exploded.distinct().count() == len(wanted)


def test_a_statement_finds_rows_by_the_metadata_of_their_file(
    catalog: SparkSession, tmp_path: Path
) -> None:
    sql, path = catalog.sql, f"plake.`{tmp_path}/t`"
    sql(f"CREATE TABLE {path} AS SELECT id, 'own' AS _file_size FROM range(0, 9, 1, 1)")
    sql(f"DELETE FROM {path} WHERE _metadata.row_index IN (2, 5) AND _metadata.file_size > 0")
    inside = f"(SELECT id FROM {path} WHERE _metadata.row_index = 8)"
    sql(f"UPDATE {path} SET _file_size = 'new' WHERE id IN {inside}")
    with pytest.raises(AnalysisException, match="UPDATE or MERGE of plake cannot name columns"):
        sql(f"UPDATE {path} SET id = 0 WHERE _metadata.row_index = 1")
    assert sorted(map(tuple, sql(f"SELECT * FROM {path}").collect())) == [
        (id_, "new" if id_ == 8 else "own") for id_ in range(9) if id_ not in (2, 5)
    ]
    sql(f"ALTER TABLE {path} ADD COLUMN _metadata STRING DEFAULT 'mine'")
    assert sql(f"SELECT _metadata, input_file_name() LIKE 'file:%' FROM {path}").first() == (
        "mine",
        True,
    )
    lake.write_dataset({"id": [1], "_file_size": ["own"]}, tmp_path / "u")
    given = catalog.read.format("plake").schema("id BIGINT").load(f"{tmp_path}/u")
    with pytest.raises(PySparkException, match="_metadata"):  # the dataset's column is not meant
        given.select("_metadata.file_size").collect()


@pytest.mark.parametrize("columns", [PLACES[:2], PLACES[2:3], PLACES[3:], ("_pos", "more")])
def test_some_places_without_other_columns(
    columns: tuple[str, ...], catalog: SparkSession, uri: str
) -> None:
    frame = catalog.sql(f"SELECT {', '.join(columns)} FROM plake.`{uri}`")
    assert BY_SPARK in frame._jdf.queryExecution().executedPlan().toString()
    assert sorted(tuple(row) for row in frame.collect()) == by_python(uri, *columns)


@pytest.mark.parametrize(
    "condition",
    [
        "_pos = 5",
        "_row_id BETWEEN 690 AND 2911",
        "_commit_version > 2 AND id < 100",
        "_file LIKE '%part 1%' OR _pos IS NULL",
        "id = 6001 AND _row_id IS NOT NULL",
    ],
)
def test_conditions_on_places_lose_no_row(condition: str, catalog: SparkSession, uri: str) -> None:
    """No file has these columns: Spark must not look for them in the statistics of row groups."""
    query = f"SELECT id FROM plake.`{uri}` WHERE {condition}"
    found = sorted(row[0] for row in catalog.sql(query).collect())
    with setting(catalog, Setting.READER, Reader.PYTHON):
        expected = sorted(row[0] for row in catalog.sql(query).collect())
    assert found == expected
    assert found


@pytest.mark.parametrize("batches", ["true", "false"])
def test_places_come_in_rows_and_in_batches(
    batches: str, catalog: SparkSession, uri: str, tmp_path: Path
) -> None:
    """A part of a file tells positions in the whole file."""
    names = (*PLACES, "id")
    with (
        setting(catalog, "spark.sql.codegen.wholeStage", batches),
        setting(catalog, "spark.sql.files.maxPartitionBytes", "3000"),
    ):
        frame = catalog.sql(f"SELECT {', '.join(names)} FROM plake.`{uri}`")
        assert frame.rdd.getNumPartitions() > 4
        found = sorted(tuple(row) for row in frame.collect())
    assert found == by_python(uri, *names)


def test_a_column_of_the_name_of_a_hidden_one_is_left_to_python(
    catalog: SparkSession, tmp_path: Path
) -> None:
    lake.write_dataset({"id": [1, 2], "_last_updated_version": [70, 80]}, tmp_path / "t")
    lake.open_dataset(tmp_path / "t").update({"id": "9"}, "id = 2")
    frame = catalog.sql(f"SELECT _row_id, _last_updated_version FROM plake.`{tmp_path}/t`")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "named like those that tell the identity" in plan
    assert sorted(tuple(row) for row in frame.collect()) == [(0, 70), (1, 80)]


@pytest.mark.parametrize(
    ("statement", "partitioned"),
    [
        pytest.param(one, i % 2 == 0, marks=() if i % 3 == 0 else pytest.mark.long)
        for i, one in enumerate(STATEMENTS)
    ],
)
def test_a_statement_whose_target_spark_reads_does_what_duckdb_does(
    statement: str, partitioned: bool, session: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path / "t", **({"partition_by": "p"} if partitioned else {}))
    lake.open_dataset(path).set_properties(rewrite_threshold=1.0)
    view(session, path)
    # Moves rows and deletes some, so that files of all kinds are read.
    program = ["UPDATE t SET s = 'moved' WHERE id IN (2, 8)", statement, statement]
    for one in program:
        session.sql(one)
    expected = oracle(program)
    check(session, path, expected)
    assert lake.open_dataset(path).verify().ok
    assert len(identities(path)) == len(expected)


def test_spark_reads_the_target_of_a_merge(session: SparkSession, tmp_path: Path) -> None:
    view(session, write(tmp_path / "t"))
    plan = session.sql(f"EXPLAIN {STATEMENTS[15]}").first()
    assert plan is not None
    assert BY_SPARK in plan[0]
