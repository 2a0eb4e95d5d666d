"""`health()` says what counting the files and their values by hand gives."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql import reader
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.read.health import HealthReport
from tests.verbs.conftest import catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

catalog = catalog_of("sqlite", "postgres", "duckdb")


def suggestion(report: HealthReport, action: str) -> tuple[int, int, bool]:
    return next(
        (one.files, one.size_bytes, one.is_worth_it)
        for one in report.suggestions
        if one.action == action
    )


@pytest.mark.parametrize("partitioned", [False, True])
def test_depth_is_that_of_the_values(
    tmp_path: Path, catalog: lake.Catalog, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PAGE", 4)
    rng = random.Random(7)
    by = "p" if partitioned else None
    files: list[tuple[str, list[int | None]]] = []
    for number in range(25):
        part = "ab"[number % 2]
        values: list[int | None] = [rng.randrange(-50, 50) for _ in range(3)]
        if number % 5 == 0:
            values = [None, *values]
        if number == 7:
            values = [None]
        files.append((part, values))
        rows = pa.table({"p": [part] * len(values), "v": pa.array(values, pa.int64())})
        lake.write_dataset(rows, tmp_path / "d", partition_by=by, catalog=catalog)
    dataset = lake.open_dataset(tmp_path / "d", catalog=catalog)
    ranges = []
    for part, values in files:
        numbers = [value for value in values if value is not None]
        if numbers:
            ranges.append((part if partitioned else "", min(numbers), max(numbers)))
    ends = [
        sum(q == p and low <= point <= high for q, low, high in ranges)
        for p, *both in ranges
        for point in both
    ]
    report = dataset.health("V")
    depth = report.depths["v"]
    assert (depth.files, depth.most) == (24, max(ends))
    assert depth.average == sum(ends) / len(ends)
    assert report.files == report.small_files == 25
    assert report.rows == sum(len(values) for _, values in files)
    assert report.size_bytes == sum(file.size_bytes for file in dataset.files())
    assert suggestion(report, "compact") == (25, report.size_bytes, True)
    assert "worth doing: compact" in str(report)
    dataset.compact()
    after = dataset.health(["v"])
    assert after.files == (2 if partitioned else 1)
    assert after.depths["v"].most == 1
    assert suggestion(after, "compact") == (0, 0, False)
    old = sum(file.size_bytes for file in dataset.files(version=25))
    assert suggestion(after, "expire_versions") == (25, old, True)
    dataset.tag("kept", version=25)
    assert suggestion(dataset.health(), "expire_versions") == (0, 0, False)
    dataset.drop_tag("kept")
    dataset.expire_versions(keep_last=1)
    assert suggestion(dataset.health(), "vacuum") == (25, old, True)
    dataset.restore(26)
    assert suggestion(dataset.health(), "vacuum") == (25, old, True)


@pytest.mark.parametrize("page", [1, 4, 5, 50])
def test_files_of_one_version_are_on_several_pages(
    tmp_path: Path, catalog: lake.Catalog, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PAGE", page)
    rows = pa.table({"p": range(9), "v": [10 * number for number in range(9)]})
    for _ in range(3):
        lake.write_dataset(rows, tmp_path / "d", partition_by="p", catalog=catalog)
    report = lake.open_dataset(tmp_path / "d", catalog=catalog).health("v")
    assert (report.files, report.rows) == (27, 27)
    assert (report.depths["v"].average, report.depths["v"].most) == (3.0, 3)
    assert suggestion(report, "compact")[0] == 27


def test_a_write_that_began_first_ends_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of files are then not in the order of their versions."""
    monkeypatch.setattr(reader, "PAGE", 4)
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    rows = pa.table({"p": range(9), "v": range(9)})
    for _ in range(3):
        lake.write_dataset(rows, tmp_path / "d", partition_by="p", catalog=url)
    before = lake.open_dataset(tmp_path / "d", catalog=url).health("v")
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection, connection:
        connection.execute("UPDATE files SET version = 4 - version")
    assert lake.open_dataset(tmp_path / "d", catalog=url).health("v") == before


@pytest.mark.parametrize("statement", [reader._REST, reader._LATER])
def test_a_page_of_files_is_not_sorted(tmp_path: Path, statement: str) -> None:
    """Else each page would sort all files of the dataset."""
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    lake.write_dataset({"v": [1]}, tmp_path / "d", catalog=url)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (1, 1, 1, 1, 10)).fetchall()
    ((*_, how),) = plan
    assert "files_by_version" in how


def test_deleted_rows_are_counted(tmp_path: Path) -> None:
    lake.write_dataset({"v": list(range(10))}, tmp_path / "d", rewrite_threshold=1.0)
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.delete("v < 4")
    report = dataset.health()
    assert (report.rows, report.deleted_rows) == (10, 4)
    assert suggestion(report, "compact(rewrite_deleted=True)")[2]
    dataset.compact(rewrite_deleted=True)
    assert dataset.health().deleted_rows == 0


def test_a_restored_file_is_not_freed(tmp_path: Path) -> None:
    lake.write_dataset({"v": [1]}, tmp_path / "d")
    lake.write_dataset({"v": [2]}, tmp_path / "d", mode="overwrite")
    dataset = lake.open_dataset(tmp_path / "d")
    first, second = (dataset.files(version=v)[0].size_bytes for v in (1, 2))
    assert suggestion(dataset.health(), "expire_versions") == (1, first, True)
    dataset.restore(1)
    assert suggestion(dataset.health(), "expire_versions") == (1, second, True)
    dataset.expire_versions(keep_last=1)
    assert suggestion(dataset.health(), "vacuum") == (1, second, True)


def test_an_empty_dataset_is_in_good_health(tmp_path: Path) -> None:
    lake.write_dataset(pa.table({"v": pa.array([], pa.int64())}), tmp_path / "d")
    report = lake.open_dataset(tmp_path / "d").health()
    assert report.is_good
    assert report.files == report.depths["v"].files == 0
    assert "nothing is worth doing" in str(report)


def test_a_column_outside_of_the_index_is_refused(tmp_path: Path) -> None:
    lake.write_dataset({"v": [1], "w": [1]}, tmp_path / "d", index_columns=["v"])
    with pytest.raises(InvalidOptionError, match="is not in the search index"):
        lake.open_dataset(tmp_path / "d").health("w")
