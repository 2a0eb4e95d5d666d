"""Datasets whose schema was changed, through every way in which Spark reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakehouse_source as lake
from tests.doors.frames import Read, collected, save, shown

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(2)]


@pytest.mark.long
def test_spark_reads_old_files_under_the_new_schema_and_old_versions_under_theirs(
    read: Read, spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "data")
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "p": [1, 1, None],
            "q": [1, 2, 2],
            "x": [0.5, float("nan"), None],
            "gone": ["a", "b", "c"],
            "s": pa.array([{"a": 1, "b": "u"}, None, {"a": 3, "b": None}]),
            "l": pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
        }
    )
    lake.write_dataset(table, uri, partition_by=["p", "q"])
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        schema.rename_column("p", "tmp")
        schema.rename_column("q", "p")
        schema.rename_column("tmp", "q")
        schema.drop_column("gone")
        schema.add_column("gone", pa.string(), comment="once more")
        schema.promote_column("id", pa.int64())
        schema.rename_column("x", "id2")
        schema.rename_column("s.a", "c")
        schema.add_column("s.a", pa.int64())
        schema.promote_column("l.element", pa.int64())
        schema.reorder_columns(["s"], after="id")
        schema.set_nullable("id", False)
    nan = float("nan")
    expected = [
        {"id": 1, "s": {"c": 1, "b": "u", "a": None}, "q": 1, "p": 1, "id2": 0.5, "l": [1],
         "gone": None},
        {"id": 2, "s": None, "q": 1, "p": 2, "id2": nan, "l": None, "gone": None},
        {"id": 3, "s": {"c": 3, "b": None, "a": None}, "q": None, "p": 2, "id2": None,
         "l": [2, 3], "gone": None},
    ]  # fmt: skip
    frame = read(uri)
    assert frame.columns == list(expected[0])
    assert frame.schema["gone"].metadata == {"comment": "once more"}
    assert not frame.schema["id"].nullable
    assert collected(frame) == shown(expected)
    new = spark.createDataFrame(
        [(9, 1, 1, 1.5, "new")], "id bigint, p int, q int, id2 double, gone string"
    )
    save(new, uri)
    expected.append({"id": 9, "s": None, "q": 1, "p": 1, "id2": 1.5, "l": None, "gone": "new"})
    frame = read(uri)
    assert collected(frame) == shown(expected)
    assert collected(frame.where("q = 1")) == shown([expected[i] for i in (0, 1, 3)])
    assert collected(frame.where("p = 2 AND id > 2")) == shown([expected[2]])
    assert collected(frame.where("gone = 'a'")) == []
    assert collected(frame.where("gone IS NULL AND id2 > 100")) == shown([expected[1]])
    assert collected(frame.where("s.c = 3")) == shown([expected[2]])
    for name, values in {
        "s.a": [None] * 4,
        "s.b": ["u", None, None, None],
        "s.c": [1, None, 3, None],
    }.items():
        found = [row[0] for row in frame.select(name).collect()]
        assert sorted(map(repr, found)) == sorted(map(repr, values))
    assert frame.count() == 4
    found = frame.groupBy("q").agg(F.count("*"), F.max("id"), F.count("gone")).collect()
    assert sorted(map(repr, map(tuple, found))) == ["(1, 3, 9, 1)", "(None, 1, 3, 0)"]
    old = read(uri, version=1)
    assert old.columns == table.column_names
    assert collected(old) == shown(table.to_pylist())
    assert collected(old.where("p = 1 AND q = 2")) == shown(table.slice(1, 1).to_pylist())
    assert collected(old.where("gone = 'a'")) == shown(table.slice(0, 1).to_pylist())


def test_spark_overwrites_partitions_from_before_a_rename(
    read: Read, spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "data")
    lake.write_dataset(pa.table({"a": [1, 2], "p": ["x", "y"]}), uri, partition_by="p")
    dataset = lake.open_dataset(uri)
    dataset.rename_column("p", "q")
    new = spark.createDataFrame([(3, "x")], "a bigint, q string")
    save(new, uri, "overwrite", partitionOverwriteMode="dynamic")
    assert collected(read(uri)) == shown([{"a": 2, "q": "y"}, {"a": 3, "q": "x"}])
    save(spark.createDataFrame([(4, "y")], "a bigint, q string"), uri, "overwrite",
         overwriteWhere="q = 'y'")  # fmt: skip
    assert collected(read(uri)) == shown([{"a": 3, "q": "x"}, {"a": 4, "q": "y"}])
    dataset.refresh().restore(1)
    assert collected(read(uri).where("p = 'x'")) == shown([{"a": 1, "p": "x"}])
