"""`lake.spark.convert`: footers read by Spark tasks give the dataset that `lake.convert` gives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake

FILES = 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 files in 20 Hive folders, with three schemas that merge."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(FILES):
        columns = {"id": pa.array([number, None], pa.int64() if number % 2 else pa.int32())}
        if number % 3 == 0:
            columns["x"] = pa.array([number / 4, float("nan")])
        place = folder / f"k={'a b%2F' if number % 20 == 0 else number % 20}"
        place.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), place / f"part {number:05}.parquet")
    return folder


@pytest.mark.long
def test_many_files_are_the_dataset_that_python_makes(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")  # a folder belongs to one catalog
    catalogs = [f"sqlite://{tmp_path}/{name}.db" for name in ("spark", "python")]
    made = lake.spark.convert(spark, folder, catalog=catalogs[0])
    expected = lake.convert(copy, catalog=catalogs[1])
    assert len(made.files()) == FILES
    assert made.schema == expected.schema
    assert made.partition_by == expected.partition_by == ("k",)

    def described(dataset: lake.Dataset) -> list[tuple[object, ...]]:
        return [(f.path, f.size_bytes, f.row_count, f.partitions) for f in dataset.files()]

    assert described(made) == described(expected)
    for condition in (None, "id = 1001", "x > 400", "k = 'a b/' AND id < 100"):
        mine, theirs = (d.scan(condition).to_table() for d in (made, expected))
        order = [("id", "ascending"), ("k", "ascending"), ("x", "ascending")]
        # As texts: NaN is not equal to itself.
        assert repr(mine.sort_by(order).to_pydict()) == repr(theirs.sort_by(order).to_pydict())
    mine, theirs = (str(d.scan("id = 1001").explain()) for d in (made, expected))
    assert mine == theirs.replace(expected.uri, made.uri)
    assert made.scan("id = 1001").explain().files_read == 1


def test_a_damaged_file_is_named_and_nothing_is_committed(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / "d"
    shutil.copytree(folder / "k=1", place / "k=1")
    files = sorted((place / "k=1").iterdir())
    files[7].write_bytes(b"no Parquet file, though as long as one may be")
    with pytest.raises(lake.CorruptDatasetError, match=files[7].name.replace(" ", ".")):
        lake.spark.convert(spark, place)
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(place)
    files[7].unlink()
    assert lake.spark.convert(spark, place).scan().count_rows() == 2 * (len(files) - 1)
    with pytest.raises(lake.DatasetExistsError):
        lake.spark.convert(spark, place)
