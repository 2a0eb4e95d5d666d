"""Metadata tables in Spark, and versions by tag, with the extension and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import lakehouse_source as lake
from lakehouse_source.read.inspect import SCHEMAS

pytestmark = pytest.mark.spark


@pytest.fixture(params=["spark", "spark_planner"])
def any_spark(request: pytest.FixtureRequest) -> Any:
    """A session without the extension, and one with it."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    lake.write_dataset({"p": [1, 1, 2], "x": [1.5, None, 2.5]}, tmp_path / "d", partition_by="p")
    lake.write_dataset({"p": [3], "x": [0.5]}, tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.tag("first", version=1)
    return dataset


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_table_is_what_python_shows(
    spark_planner: Any, dataset: lake.Dataset, name: str
) -> None:
    frame = spark_planner.read.format("plake").option("metadataTable", name).load(dataset.uri)
    found = [row.asDict(recursive=True) for row in frame.collect()]
    expected = dataset.inspect.table(name).to_pylist(maps_as_pydicts="strict")
    for row in expected:
        if row.get("timestamp"):  # Spark gives local times without a zone
            row["timestamp"] = row["timestamp"].timestamp()
    for row in found:
        if row.get("timestamp"):
            row["timestamp"] = row["timestamp"].timestamp()
    assert found == expected
    assert frame.count() == len(expected)


def test_spark_filters_and_aggregates_them(any_spark: Any, dataset: lake.Dataset) -> None:
    frame = any_spark.read.format("plake").option("metadataTable", "files").load(dataset.uri)
    assert frame.where("row_count > 1").select("partitions.p").collect() == [("1",)]
    assert frame.agg(F.sum("row_count"), F.max("version")).collect() == [(4, 2)]
    old = any_spark.read.format("plake").option("metadataTable", "files")
    assert old.option("versionAsOf", "first").load(dataset.uri).count() == 2


def test_a_tag_names_a_version(any_spark: Any, dataset: lake.Dataset) -> None:
    def load(**options: str) -> Any:
        return any_spark.read.format("plake").options(**options).load(dataset.uri)

    assert load(versionAsOf="first").count() == 3
    assert load(versionAsOf="2").count() == 4
    for refused, reason in (
        ({"versionAsOf": "none"}, "tag 'none'"),
        ({"versionAsOf": "first", "version": "2"}, "differs from versionAsOf"),
        ({"metadataTable": "snapshots"}, "row_groups"),
        ({"metadataTable": "files", "where": "x = 1"}, "metadataTable"),
    ):
        with pytest.raises(Exception, match=reason):
            load(**refused).count()


def test_a_name_that_goes_on_behind_a_table_is_told_the_metadata_tables(
    spark_catalog: Any, dataset: lake.Dataset
) -> None:
    spark_catalog.sql("CREATE TABLE plake.default.has_no_such (a INT)")
    own = dataset.uri.removeprefix("file://")
    for table in ("plake.default.has_no_such", f"plake.`{own}`"):
        with pytest.raises(Exception, match=r"no metadata table 'nope'.*Known: .*row_groups"):
            spark_catalog.sql(f"SELECT * FROM {table}.nope")
    with pytest.raises(Exception, match="too many parts"):
        spark_catalog.sql("SELECT * FROM plake.default.nosuch.nope")
