"""`lake.spark.open`: changes of rows by frames, without the extension; DuckDB is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError
from tests.doors.frames import data_files, load
from tests.doors.test_row_statements import (
    SOURCE,
    STATEMENTS,
    TARGET,
    identities,
    last,
    oracle,
    shown,
    table,
    write,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("source"))
    lake.write_dataset(table(SOURCE), path)
    return load(spark, path)


def delete(target: Any, source: Any) -> None:
    target.delete("x = 0")


def delete_all(target: Any, source: Any) -> None:
    target.delete()


def update(target: Any, source: Any) -> None:
    target.update("id % 2 = 1", {"s": "s || '!'", "t.x": F.col("x") * 2, "P": "k"})


def merge_some(target: Any, source: Any) -> None:
    merge = target.merge(source.alias("s"), "t.id = s.id").whenMatchedDelete("s.s = 'drop'")
    merge = merge.whenMatchedUpdate(set={"s": "s.s", "x": "s.x"})
    merge.whenNotMatchedInsertAll().execute()


def merge_all(target: Any, source: Any) -> None:
    (
        target.merge(source.alias("s"), F.expr("t.id = s.id"))
        .whenMatchedUpdateAll()
        .whenNotMatchedInsert("s.k > 23", {"id": "s.k", "s": F.lit("half")})
        .whenNotMatchedBySourceDelete("t.k = 2")
        .whenNotMatchedBySourceUpdate(F.expr("t.k < 2"), {"s": F.lit("gone"), "p": "8"})
        .execute()
    )


def merge_by_source(target: Any, source: Any) -> None:
    merge = target.merge(source.where("false").alias("s"), "t.id = s.id")
    merge.whenNotMatchedBySourceDelete("t.p = 2").execute()


CASES: list[tuple[Callable[[Any, Any], None], str]] = [
    (delete, "DELETE FROM t WHERE x = 0"),
    (delete_all, "DELETE FROM t"),
    (update, "UPDATE t SET s = s || '!', x = x * 2, p = k WHERE id % 2 = 1"),
    (merge_some, next(one for one in STATEMENTS if "drop" in one)),
    (merge_all, next(one for one in STATEMENTS if "'gone'" in one)),
    (merge_by_source, "DELETE FROM t WHERE p = 2"),
]


@pytest.mark.long
@pytest.mark.parametrize(("change", "statement"), CASES)
@pytest.mark.cases(2)
def test_a_change_does_what_duckdb_does(
    change: Callable[[Any, Any], None],
    statement: str,
    spark: SparkSession,
    source: Any,
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "t", partition_by="p")
    before = identities(path)
    change(lake.spark.open(spark, path).alias("t"), source)
    after = identities(path)
    assert shown(after.values()) == shown(oracle([statement]))
    counts = last(path).summary
    gone, added = before.keys() - after.keys(), after.keys() - before.keys()
    assert (counts["rows_deleted"], counts["rows_inserted"]) == (len(gone), len(added))
    assert last(path).operation == change.__name__.split("_")[0]
    assert lake.open_dataset(path).verify().ok
    frame = lake.spark.open(spark, path).toDF()
    assert shown(frame.collect()) == shown(oracle([statement]))


@pytest.mark.long
def test_a_row_that_several_source_rows_change_is_refused(
    spark: SparkSession, source: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "t")
    files = data_files(path)
    twice = source.where("id = 3").union(source.where("id = 3")).alias("s")
    target = lake.spark.open(spark, path)
    with pytest.raises(PySparkException, match="AmbiguousMergeError"):
        target.merge(twice, "target.id = s.id").whenMatchedUpdateAll().execute()
    some = twice.withColumn("n", F.monotonically_increasing_id()).alias("s")
    merge = target.merge(some, "target.id = s.id").whenMatchedDelete("s.n > 5")
    merge = merge.whenMatchedUpdate(set={"k": "s.k"})
    with pytest.raises(PySparkException, match="AmbiguousMergeError"):
        merge.execute()
    assert last(path).version == 2
    assert data_files(path) == files
    target.merge(twice, "target.id = s.id").whenMatchedDelete().execute()
    assert shown(identities(path).values()) == shown(oracle(["DELETE FROM t WHERE id = 3"]))


def test_a_commit_after_the_rows_were_read_is_not_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakehouse_source.spark.writing.merge_rows import Target

    path = write(tmp_path / "t")
    original = Target.write

    def meanwhile(self: Any, *arguments: Any) -> None:
        lake.open_dataset(path).delete("id = 1")
        original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Target, "write", meanwhile)
        with pytest.raises(PySparkException, match="CommitConflictError"):
            lake.spark.open(spark, path).update("id = 1", {"k": "7"})
    assert last(path).version == 3


def test_columns_may_have_the_names_of_metadata_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    lake.write_dataset(pa.table({"_file": [1, 2], "_POS": [1, 2], "a.b": [1, 2]}), path)
    target = lake.spark.open(spark, path)
    target.update("_POS = 2", {"_file": "20", "a.b": "`a.b` + 1"})
    target.delete("_file = 1")
    assert [tuple(row) for row in target.toDF().collect()] == [(20, 2, 3)]
    frame = load(spark, path, metadataColumns="true")
    assert frame.columns == [
        "_file",
        "_POS",
        "a.b",
        "__file",
        "__pos",
        "_row_id",
        "_commit_version",
    ]


@pytest.fixture(params=["stock", "extension"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    name = "spark" if request.param == "stock" else "spark_planner"
    return request.getfixturevalue(name)


def test_metadata_columns_of_a_frame(session: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "t", partition_by="p")
    lake.open_dataset(path).delete("id = 2")
    names = ["_file", "_pos", "_row_id", "_commit_version"]
    frame = load(session, path, metadataColumns="true")
    found = frame.select("id", *names).collect()
    expected = lake.open_dataset(path).scan(columns=["id", *names]).to_table()
    assert shown(found) == shown([row.values() for row in expected.to_pylist()])
    assert frame.where("_pos = 0").count() == sum(row["_pos"] == 0 for row in found)
    assert frame.agg({"_row_id": "max"}).first() == (len(TARGET) - 1,)
    assert frame.where("_row_id = 3 AND p = 2").select("id").collect() == [(4,)]
    assert load(session, path, metadataColumns="true", columns="k").columns == ["k", *names]


def test_wrong_uses_are_refused(spark: SparkSession, source: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    target = lake.spark.open(spark, path)
    for wrong in (
        lambda: target.update("id = 1"),
        lambda: target.update("id = 1", {"nothing": "1"}),
        lambda: target.merge(source, "true").execute(),
        lambda: target.merge(source, "true").whenMatchedUpdate(),
        lambda: target.merge(source.select("id"), "true").whenMatchedUpdateAll().execute(),
    ):
        with pytest.raises(lake.PlakeError):
            wrong()
    assert last(path).version == 2


@pytest.mark.long
def test_fields_of_structs_are_set_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """A NULL struct becomes one whose other fields are NULL, as with Spark's UPDATE."""
    type_ = "struct<id: bigint, a: struct<city: string, geo: struct<x: double, y: int>>>"
    rows = [(1, ("A", (1.5, 1))), (2, None), (3, ("C", None))]
    frame = spark.createDataFrame([(row,) for row in rows], f"r {type_}").select("r.*")
    lake.write_dataset(frame.toArrow(), tmp_path)
    target = lake.spark.open(spark, tmp_path).alias("t")
    target.update("id < 3", {"a.City": "concat('new ', id)", "t.a.geo.y": F.lit(7)})
    expected = {1: ("new 1", (1.5, 7)), 2: ("new 2", (None, 7)), 3: ("C", None)}
    assert {row.id: row.a for row in load(spark, tmp_path).collect()} == expected
    source = spark.createDataFrame([(3, 9), (4, 9)], "id bigint, y int").alias("s")
    merge = target.merge(source, "t.id = s.id").whenMatchedUpdate(set={"a.geo.y": "s.y"})
    merge.whenNotMatchedInsert(values={"id": "s.id"}).execute()
    expected |= {3: ("C", (None, 9)), 4: None}
    assert {row.id: row.a for row in load(spark, tmp_path).collect()} == expected
    for given, text in (
        ({"a.town": "'x'"}, "is no column"),
        ({"a": "NULL", "a.city": "'x'"}, "assigned twice"),
    ):
        with pytest.raises(lake.InvalidOptionError, match=text):
            target.update(set=given)
    insert = target.merge(source, "t.id = s.id").whenNotMatchedInsert(values={"a.city": "'x'"})
    with pytest.raises(lake.InvalidOptionError, match=r"an insert sets all of a"):
        insert.execute()


@pytest.mark.long
def test_structs_are_assigned_by_the_names_of_their_fields(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    pair = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    schema = pa.schema([("id", pa.int64()), ("s", pair), ("l", pa.list_(pair))])
    rows = [{"id": id, "s": {"a": 1, "b": 2}, "l": [{"a": 1, "b": 2}]} for id in (1, 2)]
    lake.write_dataset(pa.Table.from_pylist(rows, schema), path)
    target = lake.spark.open(spark, path)
    target.update("id = 1", {"s": "named_struct('B', 20, 'a', 10)"})
    source = spark.sql(
        "SELECT id, named_struct('b', 40L, 'a', 30L) AS s, "
        "array(named_struct('b', 40, 'a', 30), NULL) AS l FROM range(2, 4)"
    )
    merge = target.merge(source.alias("s"), "target.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    new = {"a": 30, "b": 40}
    found = {row["id"]: (row["s"], row["l"]) for row in lake.read_dataset(path).to_pylist()}
    assert found == {
        1: ({"a": 10, "b": 20}, [{"a": 1, "b": 2}]),
        2: (new, [new, None]),
        3: (new, [new, None]),
    }
    with pytest.raises(InvalidOptionError, match="other fields"):
        target.update(None, {"s": "named_struct('x', 20, 'y', 10)"})


def test_a_struct_in_a_struct_is_assigned_by_the_names_of_its_fields(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A cast took them by their places, and swapped their values."""
    path = str(tmp_path / "t")
    pair = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    outer = pa.struct([("x", pa.int32()), ("p", pair)])
    schema = pa.schema([("id", pa.int64()), ("o", outer)])
    rows = [{"id": 1, "o": {"x": 7, "p": {"a": 1, "b": 2}}}, {"id": 2, "o": None}]
    lake.write_dataset(pa.Table.from_pylist(rows, schema), path)
    lake.spark.open(spark, path).update(None, {"o.p": "named_struct('b', 20L, 'A', '10')"})
    found = {row["id"]: row["o"] for row in lake.read_dataset(path).to_pylist()}
    new = {"a": 10, "b": 20}
    assert found == {1: {"x": 7, "p": new}, 2: {"x": None, "p": new}}
