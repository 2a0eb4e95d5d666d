"""A scan of a version is planned once: the next one of the same frame does not ask Python."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.reading.rows_frame import RowsFrame
from tests.doors.frames import data_files, load, rows, save

pytestmark = pytest.mark.spark


@pytest.fixture(params=["reader", "planner"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    """Spark reads, and Python reads."""
    found: SparkSession = request.getfixturevalue(f"spark_{request.param}")
    return found


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    return save(spark.range(0, 1000, 1, 2).selectExpr("id", "id % 10 AS v"), tmp_path / "t")


@contextmanager
def without_catalog(path: str) -> Iterator[None]:
    """Nothing can be asked of the dataset, whose data files are there."""
    (catalog,) = Path(path).rglob("catalog.db")
    away = catalog.with_name("away")
    catalog.rename(away)
    try:
        yield
    finally:
        for other in catalog.parent.glob("catalog.db*"):
            other.unlink()
        away.rename(catalog)


def asked(frame: DataFrame, at_least: int = 400) -> int:
    found = frame.where(f"id >= {at_least}").agg({"v": "sum", "id": "count"}).first()
    assert found is not None
    return int(found["count(id)"])


def test_a_plan_is_remembered_for_the_version(session: SparkSession, path: str) -> None:
    frame = load(session, path)
    assert asked(frame) == 600
    assert frame.count() == 1000
    with without_catalog(path):
        assert asked(frame) == 600
        assert frame.count() == 1000
        with pytest.raises(PySparkException):
            asked(frame, 500)  # another scan
    assert asked(frame, 500) == 500


def test_a_later_version_is_planned_anew(session: SparkSession, path: str) -> None:
    before = load(session, path)
    assert asked(before) == 600
    save(session.range(2000, 2050).selectExpr("id", "id % 10 AS v"), path)
    lake.open_dataset(path).delete("id = 999")
    after = load(session, path)
    assert (asked(after), after.count()) == (649, 1049)
    assert (asked(before), before.count()) == (600, 1000)


def test_a_dataset_in_the_place_of_another_is_planned_anew(
    session: SparkSession, path: str
) -> None:
    assert asked(load(session, path)) == 600
    shutil.rmtree(path)
    save(session.range(390, 430).selectExpr("id", "id % 10 AS v"), path)
    assert asked(load(session, path)) == 30


@pytest.mark.parametrize("harm", ["gone", "longer", "link"])
def test_a_file_that_changes_is_told_by_plake(
    harm: str, session: SparkSession, path: str, tmp_path: Path
) -> None:
    frame = load(session, path)
    assert asked(frame) == 600
    for file in data_files(path):
        copy = file.rename(tmp_path / file.name)
        if harm == "longer":
            file.write_bytes(copy.read_bytes() + b"more")
        elif harm == "link":
            file.symlink_to(copy)
    with pytest.raises(PySparkException, match=r"lakehouse_source\.errors\."):
        asked(frame)


def test_what_may_change_with_time_is_asked_each_time(
    spark_reader: SparkSession, path: str
) -> None:
    for options in ({"metadataTable": "files"}, {"where": "id >= 400"}):
        assert not RowsFrame({"path": path, **options}).repeats
        frame = load(spark_reader, path, **options)
        assert rows(frame)
        with without_catalog(path), pytest.raises(PySparkException):
            rows(frame.select("*"))
    assert RowsFrame({"path": path}).repeats
