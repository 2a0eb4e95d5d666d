"""Data files that are gone, cut, exchanged or full of nonsense: a clear error, never a crash."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests.doors.frames import data_files, load

pytestmark = pytest.mark.slow

BAD_DATA = Path(__file__).parents[3] / "shared/testdata/parquet-testing/bad_data"
GOOD = pa.table(
    {
        "i": pa.array(range(1000), pa.int64()),
        "s": pa.array([f"text {i % 50}" for i in range(1000)]),
        "l": pa.array([[i, None] for i in range(1000)], pa.list_(pa.int32())),
    }
)


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, Path]:
    """A dataset of one file, and that file."""
    path = tmp_path / "dataset"
    lake.write_dataset(GOOD, path, row_group_rows=250)
    (file,) = data_files(path)
    return path, file


def believe(path: Path, file: Path, rows: int | None = None) -> None:
    """Make the catalog agree with a file's size, so that it is opened at all."""
    catalog = sqlite3.connect(path / "_plake" / "catalog.db")
    with catalog:
        catalog.execute("UPDATE files SET file_size_bytes = ?", (file.stat().st_size,))
        if rows is not None:
            catalog.execute("UPDATE files SET row_count = ?", (rows,))
    catalog.close()


def assert_read_or_named(path: Path, file: Path, predicates: str | None = None) -> None:
    """Read a dataset; what it raises must be an error of plake that names the file."""
    told = None
    try:
        lake.read_dataset(path, predicates=predicates)
    except lake.PlakeError as error:
        told = str(error)
    assert told is None or file.name in told


def delete(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def garbage(file: Path) -> None:
    file.write_bytes(random.Random(1).randbytes(file.stat().st_size))


def other_rows(file: Path) -> None:
    """Another Parquet file, padded to the same size."""
    size = file.stat().st_size
    pq.write_table(GOOD.slice(0, 10), file)
    content = file.read_bytes()
    footer = content[-int.from_bytes(content[-8:-4], "little") - 8 :]
    file.write_bytes(content[: -len(footer)] + bytes(size - len(content)) + footer)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (delete, "the file is missing: deleted by hand, or vacuumed while an old version was read"),
    (truncate, "is not what was committed: it has "),
    (empty, "is not what was committed: it has 0 bytes, not "),
    (garbage, "is not what was committed: "),
    (other_rows, "is not what was committed: its footer says 10 rows, not 1000"),
    (folder, ".parquet"),
]


@pytest.mark.parametrize(("harm", "text"), DAMAGE)
def test_python_names_the_file(
    damaged: tuple[Path, Path], harm: Callable[[Path], None], text: str
) -> None:
    path, file = damaged
    harm(file)
    for read in (
        lambda: lake.read_dataset(path),
        lambda: lake.read_dataset(path, predicates="i = 7"),
        lambda: lake.open_dataset(path).scan("s = 'text 1'").count_rows(),
    ):
        with pytest.raises((lake.StorageError, lake.CorruptDatasetError)) as caught:
            read()
        assert file.name in str(caught.value)
        assert text in str(caught.value)
        assert f"file://{path}" in caught.value.path


@pytest.mark.parametrize(("harm", "text"), DAMAGE)
def test_spark_names_the_file(
    spark: SparkSession, damaged: tuple[Path, Path], harm: Callable[[Path], None], text: str
) -> None:
    path, file = damaged
    harm(file)
    with pytest.raises(PySparkException) as caught:
        load(spark, path).collect()
    assert file.name in str(caught.value)
    assert text in str(caught.value)
    assert spark.range(3).count() == 3


def test_a_file_that_was_exchanged_for_one_of_other_types_is_not_what_was_committed(
    damaged: tuple[Path, Path],
) -> None:
    path, file = damaged
    stored = pq.read_schema(file)
    strings = pa.array(["not a number"] * 1000)
    exchanged = GOOD.set_column(0, pa.field("i", pa.string()), strings)
    fields = [exchanged.field(n).with_metadata(stored.field(n).metadata) for n in stored.names]
    pq.write_table(exchanged.cast(pa.schema(fields)), file, row_group_size=250)
    believe(path, file)
    with pytest.raises(lake.CorruptDatasetError) as caught:
        lake.read_dataset(path)
    assert f"{file.name} is not what was committed: its column 'i' has type" in str(caught.value)


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_never_raise_anything_but_plakes_errors(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "dataset"
    lake.write_dataset(GOOD, path, row_group_rows=250)
    (file,) = data_files(path)
    chance = random.Random(seed)
    content = bytearray(file.read_bytes())
    start = chance.choice([0, len(content) // 2, len(content) - 2000])
    for _ in range(chance.choice([1, 3, 30])):
        content[chance.randrange(start, len(content))] = chance.randrange(256)
    file.write_bytes(content)
    for predicates in (None, "i > 900 AND s = 'text 1'"):
        assert_read_or_named(path, file, predicates)


@pytest.mark.skipif(not BAD_DATA.is_dir(), reason="needs the files of apache/parquet-testing")
@pytest.mark.parametrize(
    "bad", sorted(BAD_DATA.glob("*.parquet")) if BAD_DATA.is_dir() else [], ids=str
)
def test_corrupt_files_of_other_projects_are_named(tmp_path: Path, bad: Path) -> None:
    """Registered with the columns that the bad file says it has, where it says so."""
    path = tmp_path / "dataset"
    rows = 1000
    try:
        metadata = pq.read_metadata(bad)
        rows, stored = metadata.num_rows, metadata.schema.to_arrow_schema()
        schema = pa.schema([pa.field(field.name, field.type) for field in stored])
        nothing = pa.table([pa.nulls(5, field.type) for field in schema], schema=schema)
        lake.write_dataset(nothing, path)
    except (OSError, ValueError, pa.ArrowException, lake.PlakeError):
        path = tmp_path / "another"
        lake.write_dataset(GOOD, path)
    (file,) = data_files(path)
    shutil.copy(bad, file)
    with pytest.raises(lake.CorruptDatasetError, match=file.name):
        lake.read_dataset(path)
    believe(path, file, rows)
    assert_read_or_named(path, file)


def test_a_path_that_leaves_the_dataset_is_refused_before_it_is_opened(
    spark: SparkSession, damaged: tuple[Path, Path]
) -> None:
    path, file = damaged
    shutil.copy(file, path.parent / "outside.parquet")
    (path / "link.parquet").symlink_to(path.parent / "outside.parquet")
    for escape in ("../outside.parquet", str(path.parent / "outside.parquet"), "link.parquet"):
        catalog = sqlite3.connect(path / "_plake" / "catalog.db")
        with catalog:
            catalog.execute("UPDATE files SET file_path = ?", (escape,))
        catalog.close()
        with pytest.raises(lake.CorruptDatasetError, match="dataset"):
            lake.read_dataset(path)
    with pytest.raises(PySparkException, match="a symbolic link leads out of the dataset"):
        load(spark, path).collect()
