"""Metadata tables in Spark, and versions by tag, with the extension and without it."""

from __future__ import annotations

import getpass
import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark
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
    for row in (*expected, *found):
        for column, value in row.items():
            if isinstance(value, datetime):  # Spark gives local times without a zone
                row[column] = value.timestamp()
    assert found == expected
    assert frame.count() == len(expected)
    works = {part.name: part.works for part in lake.spark.status(spark_planner).parts}
    assert works["aggregates"]  # Spark counted, because the catalog has no answer


def test_spark_filters_and_aggregates_them(any_spark: Any, dataset: lake.Dataset) -> None:
    frame = any_spark.read.format("plake").option("metadataTable", "files").load(dataset.uri)
    assert frame.where("row_count > 1").select("partitions.p").collect() == [("1",)]
    assert frame.agg(F.sum("row_count"), F.max("version")).collect() == [(4, 2)]
    old = any_spark.read.format("plake").option("metadataTable", "files")
    assert old.option("versionAsOf", "first").load(dataset.uri).count() == 2


@pytest.mark.long
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


def test_files_that_executors_wrote_have_their_sha256(spark_planner: Any, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    frame = spark_planner.range(0, 1000, 1, 3).selectExpr("id", "id % 2 AS p")
    frame.write.format("plake").option("partitionBy", "p").mode("append").save(str(folder))
    table = f"plake.`{folder}`"
    spark_planner.sql(f"UPDATE {table} SET id = id + 10000 WHERE id = 7")
    shown = spark_planner.read.format("plake").option("metadataTable", "files").load(str(folder))
    found = {row.file_path: row.sha256 for row in shown.collect()}
    assert len(found) > 3
    assert found == {
        path: hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in found
    }


@pytest.mark.long
def test_the_history_tells_which_engine_and_application_committed(
    spark: Any, spark_catalog: Any, tmp_path: Path
) -> None:
    """By name and by path; without the extension a worker may not know the application."""
    application = spark.sparkContext.applicationId
    spark_catalog.sql("CREATE TABLE plake.default.told (a INT)")
    spark_catalog.sql("INSERT INTO plake.default.told VALUES (1), (2)")
    spark_catalog.sql("DELETE FROM plake.default.told WHERE a = 1")
    spark_catalog.sql("ALTER TABLE plake.default.told ADD COLUMN b STRING")
    spark_catalog.sql("CALL plake.system.restore('default.told', version => 2)")
    found = spark_catalog.sql(
        "SELECT committed_by, committer['engine'], committer['engine_version'], "
        "committer['application'] FROM plake.default.told.history"
    ).collect()
    assert set(found) == {(getpass.getuser(), "spark", pyspark.__version__, application)}
    assert len(found) == 5
    for nth, (session, known) in enumerate([(spark_catalog, [application]), (spark, [None])]):
        folder = str(tmp_path / str(nth))
        session.range(3).write.format("plake").mode("append").save(folder)
        (one,) = lake.open_dataset(folder).history()
        assert one.committer["engine"] == "spark"
        assert one.committer.get("application") in [application, *known]
