"""Expiry, vacuum and verification: what may go goes, and nothing else ever does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "things")


def rows_of(*ids: int, k: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([k] * len(ids))})


def ids(uri: str, catalog: lake.Catalog, version: int | None = None) -> list[int]:
    table = lake.read_dataset(uri, catalog=catalog, version=version)
    return sorted(table["id"].to_pylist())


def stored(uri: str) -> set[str]:
    """The Parquet files that are really there, relative to the dataset."""
    return {str(path.relative_to(uri)) for path in Path(uri).rglob("*.parquet")}


@pytest.fixture
def dataset(uri: str, catalog: lake.Catalog) -> lake.Dataset:
    """Versions 1 to 4: an append, an overwrite, two appends."""
    lake.write_dataset(rows_of(1), uri, catalog=catalog)
    lake.write_dataset(rows_of(2), uri, catalog=catalog, mode="overwrite")
    lake.write_dataset(rows_of(3), uri, catalog=catalog)
    lake.write_dataset(rows_of(4), uri, catalog=catalog)
    return lake.open_dataset(uri, catalog=catalog)


class TestExpiry:
    def test_versions_older_than_the_last_ones_cannot_be_read(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        report = dataset.expire_versions(keep_last=2)
        assert (report.expired, report.oldest_version, report.newest_version) == ((1, 2), 3, 4)
        assert report.files == 1
        assert "expired versions 1 to 2, versions 3 to 4 can be read" in str(report)
        for version in (1, 2):
            with pytest.raises(lake.VersionNotFoundError) as caught:
                lake.read_dataset(uri, catalog=catalog, version=version)
            error = caught.value
            assert (error.expired, error.first, error.last) == (True, 3, 4)
            assert f"version {version} of " in str(error)
            assert "was expired: versions 3 to 4 can be read" in str(error)
        with pytest.raises(lake.VersionNotFoundError) as caught:
            lake.read_dataset(uri, catalog=catalog, version=5)
        assert not caught.value.expired
        assert ids(uri, catalog, 3) == [2, 3]
        assert ids(uri, catalog) == [2, 3, 4]
        assert len(stored(uri)) == 4

    def test_an_expired_version_cannot_be_restored(self, dataset: lake.Dataset) -> None:
        dataset.expire_versions(keep_last=1)
        with pytest.raises(lake.VersionNotFoundError, match="was expired"):
            dataset.restore(2)
        with pytest.raises(lake.VersionNotFoundError, match="was expired"):
            dataset.files(2)

    def test_history_keeps_expired_versions_and_marks_them(self, dataset: lake.Dataset) -> None:
        dataset.expire_versions(keep_last=2)
        history = dataset.history()
        assert [record.version for record in history] == [4, 3, 2, 1]
        assert [history.is_readable(record) for record in history] == [True, True, False, False]
        assert str(history).count("(expired)") == 2

    def test_a_timestamp_of_an_expired_version_says_so(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        moments = {record.version: record.timestamp for record in dataset.history()}
        dataset.expire_versions(keep_last=2)
        with pytest.raises(lake.VersionNotFoundError, match="was expired") as caught:
            lake.read_dataset(uri, catalog=catalog, timestamp=moments[2])
        assert caught.value.first_timestamp == moments[3].isoformat()
        table = lake.read_dataset(uri, catalog=catalog, timestamp=moments[3])
        assert sorted(table["id"].to_pylist()) == [2, 3]

    def test_a_version_goes_only_when_it_is_older_than_both_limits(
        self, dataset: lake.Dataset
    ) -> None:
        assert dataset.expire_versions(keep_seconds=3600, keep_last=1).expired == ()
        assert dataset.expire_versions(keep_seconds=0, keep_last=3).expired == (1,)
        assert dataset.expire_versions(keep_seconds=0, keep_last=4).expired == ()
        assert dataset.expire_versions(keep_seconds=0).expired == (2, 3)
        report = dataset.expire_versions(keep_last=1)
        assert report.expired == ()
        assert "nothing to expire" in str(report)

    def test_the_version_that_was_current_then_is_kept(
        self, uri: str, catalog: lake.Catalog
    ) -> None:
        """A week of time travel reaches a week back, not to the first commit after that."""
        lake.write_dataset(rows_of(1), uri, catalog=catalog)
        dataset = lake.open_dataset(uri, catalog=catalog)
        assert dataset.expire_versions(keep_seconds=0).expired == ()
        lake.write_dataset(rows_of(2), uri, catalog=catalog)
        assert dataset.expire_versions(keep_seconds=60).expired == ()

    def test_limits_that_cannot_be_are_refused(self, dataset: lake.Dataset) -> None:
        for limits in ({}, {"keep_last": 0}, {"keep_seconds": -1}, {"keep_seconds": float("nan")}):
            with pytest.raises(lake.InvalidOptionError):
                dataset.expire_versions(**limits)  # type: ignore[arg-type]

    def test_a_restored_file_is_not_expired_with_its_first_version(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        dataset.restore(1)
        dataset.expire_versions(keep_last=1)
        assert ids(uri, catalog) == [1]
