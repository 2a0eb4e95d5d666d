"""A tag keeps its own version, and none of those that come after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
    url = f"{request.param}://{tmp_path}/catalog.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.fresh_database()
    with lake.open_catalog(url) as opened:
        yield opened


@pytest.fixture
def dataset(catalog: lake.Catalog, tmp_path: Path) -> lake.Dataset:
    """Version n has the number n alone: 1 to 9."""
    for number in range(1, 10):
        lake.write_dataset({"n": [number]}, tmp_path / "t", catalog=catalog, mode="overwrite")
    return lake.open_dataset(tmp_path / "t", catalog=catalog)


def numbers(dataset: lake.Dataset, version: int | str) -> list[int]:
    return sorted(dataset.scan(version=version).to_table()["n"].to_pylist())


def files_of(dataset: lake.Dataset) -> int:
    return len(list(Path(dataset.uri.removeprefix("file://")).glob("*.parquet")))


def test_one_tag_does_not_keep_the_versions_after_it(dataset: lake.Dataset) -> None:
    """Versions 3 to 9 stayed, with their files."""
    dataset.tag("old", version=2)
    report = dataset.expire_versions(keep_last=1)
    assert report.expired == (1, 3, 4, 5, 6, 7, 8)
    assert (report.oldest_version, report.files) == (9, 7)
    vacuumed = dataset.vacuum(**NOW)
    assert vacuumed.files_removed == 7
    kept = {one.what: one.files for one in vacuumed.left}
    assert kept == {"a version that can be read has it": 2}
    assert files_of(dataset) == 2
    assert numbers(dataset, "old") == numbers(dataset, 2) == [2]
    assert numbers(dataset, 9) == [9]
    for version in (1, 3, 8):
        with pytest.raises(lake.VersionNotFoundError, match="was expired"):
            dataset.scan(version=version).to_table()
    assert dataset.verify(2).ok
    history = dataset.history()
    assert {one.version for one in history if history.is_readable(one)} == {2, 9}
    assert dataset.inspect.versions()["version"].to_pylist() in ([2, 9], [9, 2])


def test_the_tag_that_is_dropped_lets_its_version_go(dataset: lake.Dataset) -> None:
    dataset.tag("old", version=2)
    dataset.tag("same", version=2)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    dataset.drop_tag("old")
    assert dataset.vacuum(**NOW).files_removed == 0
    dataset.drop_tag("same")
    with pytest.raises(lake.VersionNotFoundError, match="was expired"):
        dataset.scan(version=2).to_table()
    # Its retention begins with the first vacuum, or expiry, that finds it without a tag.
    assert dataset.vacuum(dry_run=True).files_removed == 0
    assert dataset.vacuum().files_removed == 0
    assert dataset.vacuum(**NOW).files_removed == 1
    assert files_of(dataset) == 1


def test_deletion_vectors_of_a_tagged_version_stay(catalog: lake.Catalog, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lake.write_dataset({"n": list(range(1000))}, uri, catalog=catalog)
    dataset = lake.open_dataset(uri, catalog=catalog)
    for number in range(6):
        dataset.delete(f"n = {number}")
    dataset.tag("three", version=4)
    dataset.compact(rewrite_deleted=True)
    dataset.refresh().expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    assert numbers(dataset, "three") == list(range(3, 1000))
    assert numbers(dataset, dataset.version) == list(range(6, 1000))


def test_a_branch_and_a_restore_begin_at_a_tagged_version(dataset: lake.Dataset) -> None:
    dataset.tag("old", version=2)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    branch = dataset.branch("audit", version=2)
    assert numbers(branch, 2) == [2]
    with pytest.raises(lake.VersionNotFoundError):
        dataset.branch("none", version=5)
    dataset.restore(2)
    assert numbers(dataset, 10) == [2]
    dataset.drop_tag("old")
    dataset.drop_branch("audit")
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    assert numbers(dataset, 10) == [2]


def test_changes_of_versions_between_are_refused(dataset: lake.Dataset) -> None:
    """A tag before them does not bring their files back."""
    dataset.tag("old", version=2)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    for start, end in ((3, 9), (2, 9), (2, 2)):
        with pytest.raises(lake.VersionNotFoundError, match="expired"):
            dataset.changes(start, end).planned()


def test_a_time_of_an_expired_version_is_refused(dataset: lake.Dataset) -> None:
    times = {one.version: one.timestamp for one in dataset.history()}
    dataset.tag("old", version=2)
    dataset.expire_versions(keep_last=1)
    with pytest.raises(lake.VersionNotFoundError, match="was expired"):
        dataset.scan(timestamp=times[5]).to_table()
    assert dataset.scan(timestamp=times[2]).to_table()["n"].to_pylist() == [2]


def test_an_erasure_reaches_a_tagged_version(catalog: lake.Catalog, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    for rows in (["a", "b"], ["a"], ["c"]):
        table = pa.table({"s": rows})
        lake.write_dataset(table, uri, catalog=catalog, mode="overwrite")
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.tag("old", version=1)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    dataset.erase("s = 'a'")
    assert dataset.refresh().scan(version="old").to_table()["s"].to_pylist() == ["b"]
