"""Expiry, vacuum and verification: unneeded files are deleted, and never any other."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uuid6

import lakehouse_source as lake
from lakehouse_source.catalog.backends.postgres_connections import shared_connections
from lakehouse_source.maintenance import vacuum
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.storage import FoundFile, Storage
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

catalog = catalog_of(*EVERY_KIND)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "things")


def rows_of(*ids: int, k: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([k] * len(ids))})


def ids(uri: str, catalog: lake.Catalog, version: int | None = None) -> list[int]:
    table = lake.read_dataset(uri, catalog=catalog, version=version)
    return sorted(table["id"].to_pylist())


def stored(uri: str) -> set[str]:
    """The Parquet files on disk, relative to the dataset."""
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


NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}
DAY = 24 * 3600


def what(tallies: tuple[Any, ...]) -> dict[str, int]:
    return {tally.what: tally.files for tally in tallies}


def begin_write(
    uri: str, catalog: lake.Catalog, rows: pa.Table, **options: Any
) -> tuple[StagedWrite, list[FileMetadata]]:
    """A write whose files are written and that is not committed."""
    address = Address(uri, catalog)
    staged = begin(catalog, address, rows.schema, WriteOptions(**options))
    return staged, write_files(staged.spec, rows.to_batches())


def name_from(seconds_ago: float) -> str:
    """A file name as plake gives it, with a time so long ago."""

    def at() -> str:
        milliseconds = int((time.time() - seconds_ago) * 1000)
        random = uuid6.uuid7().int & ((1 << 80) - 1)
        return str(uuid6.UUID(int=milliseconds << 80 | random))

    return f"{at()}-{at()}.parquet"


def give_up(catalog: lake.Catalog, uri: str, name: str) -> None:
    """Let the catalog know the write of a file name, which was given up."""
    write_id = name[:36]
    with catalog.write() as tx:
        record = tx.dataset(Address(uri, catalog).key)
        assert record is not None
        tx.register_pending(write_id, record.id)
        tx.fence_write(write_id)


@contextmanager
def local_clock_off_by(seconds: float) -> Iterator[None]:
    """This process's clock is wrong; the database's is not."""
    real, real_ns = time.time, time.time_ns

    def wrong() -> float:
        return real() + seconds

    def wrong_ns() -> int:
        return real_ns() + int(seconds * 1e9)

    with mock.patch("time.time", wrong), mock.patch("time.time_ns", wrong_ns):
        yield


class TestVacuum:
    def test_files_of_expired_versions_go_after_the_retention(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        dataset.expire_versions(keep_last=2)
        report = dataset.vacuum()
        assert report.files_removed == 0
        assert what(report.left) == {
            "younger than the retention": 1, "a version that can be read has it": 3,
        }  # fmt: skip
        report = dataset.vacuum(**NOW)
        assert what(report.removed) == {"only expired versions had it": 1}
        assert report.rows_forgotten == 1
        assert report.bytes_removed == report.removed[0].size_bytes > 0
        assert stored(uri) == {file.path for file in dataset.files()}
        assert ids(uri, catalog) == [2, 3, 4]
        assert ids(uri, catalog, 3) == [2, 3]
        assert "removed" in str(report)
        assert "only expired versions had it" in str(report)
        assert dataset.vacuum(**NOW).files_removed == 0

    def test_without_expiry_no_version_loses_a_file(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        """delta-rs #4290: versions within the retention were lost."""
        before = stored(uri)
        assert dataset.vacuum(**NOW).files_removed == 0
        assert stored(uri) == before
        assert [ids(uri, catalog, version) for version in (1, 2, 3)] == [[1], [2], [2, 3]]

    def test_a_dry_run_changes_nothing(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        staged, files = begin_write(uri, catalog, rows_of(5))
        dataset.expire_versions(keep_last=1)
        before = stored(uri)
        report = dataset.vacuum(**NOW, dry_run=True, abandoned_after_seconds=0)
        assert what(report.removed) == {
            "only expired versions had it": 1,
            "no version has it and its write is over": 1,
        }
        assert "would remove" in str(report)
        assert "(dry run)" in str(report)
        assert stored(uri) == before
        commit(catalog, staged, files)
        assert ids(uri, catalog) == [2, 3, 4, 5]

    def test_files_in_flight_stay(self, dataset: lake.Dataset, uri: str, catalog: Any) -> None:
        """delta-rs #3835, iceberg #4194: a vacuum took the files of a write under way."""
        staged, files = begin_write(uri, catalog, rows_of(5))
        report = dataset.vacuum(**NOW)
        assert report.files_removed == 0
        assert what(report.left)["its write may still be going on"] == 1
        commit(catalog, staged, files)
        assert ids(uri, catalog) == [2, 3, 4, 5]

    def test_files_in_flight_of_a_client_whose_clock_is_a_day_behind_stay(
        self, dataset: lake.Dataset, uri: str, catalog: Any
    ) -> None:
        """delta #2532: times in names and of files are wrong, those in the catalog are right."""
        with local_clock_off_by(-30 * DAY):
            staged, files = begin_write(uri, catalog, rows_of(5))
        for file in files:
            os.utime(Path(uri, file.path), (0, 0))
        assert dataset.vacuum().files_removed == 0
        commit(catalog, staged, files)
        assert dataset.vacuum().files_removed == 0
        assert ids(uri, catalog) == [2, 3, 4, 5]

    def test_the_clock_of_whoever_vacuums_changes_nothing(
        self, dataset: lake.Dataset, uri: str, catalog: Any
    ) -> None:
        staged, _files = begin_write(uri, catalog, rows_of(5))
        dataset.expire_versions(keep_last=2)
        before = stored(uri)
        for days in (-30, 30):
            with local_clock_off_by(days * DAY):
                assert dataset.vacuum().files_removed == 0
        assert stored(uri) == before
        for path in stored(uri):
            os.utime(Path(uri, path), (0, 0))
        assert dataset.vacuum().files_removed == 0
        assert staged.base_version == 4

    def test_orphans_of_a_write_that_was_given_up_go(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        staged, _files = begin_write(uri, catalog, rows_of(5))
        abort(catalog, staged, ())
        report = dataset.vacuum()
        assert what(report.left)["younger than the retention"] == 1
        report = dataset.vacuum(**NOW)
        assert what(report.removed) == {"no version has it and its write is over": 1}
        assert len(stored(uri)) == 4

    def test_files_that_a_committed_write_did_not_name_go(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        """Spark's retried and speculative tasks leave them."""
        staged, files = begin_write(uri, catalog, rows_of(5))
        spare = write_files(staged.spec, rows_of(5).to_batches())
        commit(catalog, staged, files)
        report = dataset.vacuum(**NOW)
        assert [tally.paths for tally in report.removed] == [(spare[0].path,)]
        assert ids(uri, catalog) == [2, 3, 4, 5]

    def test_a_dead_write_loses_its_files_and_can_never_commit(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        staged, files = begin_write(uri, catalog, rows_of(5))
        report = dataset.vacuum(**NOW, abandoned_after_seconds=0)
        assert what(report.removed) == {"no version has it and its write is over": 1}
        with pytest.raises(lake.PlakeError):
            commit(catalog, staged, files)
        assert dataset.refresh().version == 4
        assert ids(uri, catalog) == [2, 3, 4]

    def test_no_write_commits_after_vacuum_fenced_it_even_if_its_file_comes_back(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        staged, files = begin_write(uri, catalog, rows_of(5))
        kept = Path(uri, files[0].path).read_bytes()
        dataset.vacuum(**NOW, abandoned_after_seconds=0)
        Path(uri, files[0].path).write_bytes(kept)
        with pytest.raises(lake.CommitConflictError, match="given up"):
            commit(catalog, staged, files)

    def test_orphans_of_writes_that_the_catalog_never_heard_of(
        self, dataset: lake.Dataset, uri: str
    ) -> None:
        """They may be another catalog's, which has a dataset in the folder too."""
        old, young = name_from(8 * DAY), name_from(3600)
        for name in (old, young):
            Path(uri, name).write_bytes(b"x")
        report = dataset.vacuum()
        assert report.files_removed == 0
        assert what(report.left)["this catalog has not recorded its write"] == 2
        assert {old, young} <= set(stored(uri))

    def test_the_age_of_an_orphan_is_in_its_name(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        old, young = name_from(8 * DAY), name_from(3600)
        for name in (old, young):
            Path(uri, name).write_bytes(b"x")
            give_up(catalog, uri, name)
        report = dataset.vacuum()
        assert [tally.paths for tally in report.removed] == [(old,)]
        assert old not in stored(uri)
        assert young in stored(uri)

    @pytest.mark.parametrize(
        "name",
        [
            "part-00000.parquet",
            "_SUCCESS",
            "{own}.crc",
            "x{own}",
            "sub/{own}",
            "k=1/{own}",
            "{upper}",
            "0190f5f0-0000-4000-8000-000000000000-0190f5f0-0000-4000-8000-000000000000.parquet",
        ],
    )
    def test_names_and_places_that_are_not_its_own_stay(
        self, dataset: lake.Dataset, uri: str, name: str
    ) -> None:
        own = name_from(30 * DAY)
        path = Path(uri, name.format(own=own, upper=own.upper()))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
        os.utime(path, (0, 0))
        report = dataset.vacuum(**NOW)
        assert report.files_removed == 0
        assert path.read_bytes() == b"mine"
        assert {"not a name that plake gives", "not where this dataset puts files"} & set(
            what(report.left)
        )

    def test_a_dataset_inside_the_folder_of_another_is_left_alone(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        inner = f"{uri}/inner"
        lake.write_dataset(rows_of(1), inner, catalog=catalog)
        staged, files = begin_write(inner, catalog, rows_of(2))
        abort(catalog, staged, ())
        report = dataset.vacuum(**NOW)
        assert report.files_removed == 0
        assert what(report.left)["another dataset's"] == 2
        assert ids(inner, catalog) == [1]
        assert Path(inner, files[0].path).exists()

    @pytest.mark.parametrize("folder", ["day=d 9", "day=%C3%A4"])
    def test_a_dataset_in_what_looks_like_a_partition_of_another_is_left_alone(
        self, tmp_path: Path, catalog: lake.Catalog, folder: str
    ) -> None:
        """The URI of its folder is encoded, and the names in a listing are not."""
        outer = str(tmp_path / "outer")
        lake.write_dataset({"id": [1], "day": ["d1"]}, outer, catalog=catalog, partition_by="day")
        inner = f"{outer}/{folder}"
        lake.write_dataset({"id": [7]}, inner, catalog=catalog)
        staged, files = begin_write(inner, catalog, pa.table({"id": [8]}))
        abort(catalog, staged, ())
        report = lake.open_dataset(outer, catalog=catalog).vacuum(**NOW)
        assert report.files_removed == 0
        assert what(report.left)["another dataset's"] == 2
        assert ids(inner, catalog) == [7]
        assert Path(inner, files[0].path).exists()

    def test_live_files_under_another_spelling_of_the_path_stay(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        """iceberg #2890: a path scheme that differed made live files look orphaned."""
        link = f"{uri}-link"
        os.symlink(uri, link)
        twice = f"{link}/../things/."
        for other in (link, twice, f"file:{uri}", f"file://{uri}/", f"file://localhost{uri}"):
            lake.write_dataset(rows_of(9), other, catalog=catalog)
            lake.open_dataset(other, catalog=catalog).vacuum(**NOW)
            dataset.refresh().vacuum(**NOW)
        assert ids(uri, catalog) == ids(link, catalog) == [2, 3, 4, 9, 9, 9, 9, 9]

    def test_a_folder_that_holds_none_of_its_files_is_not_vacuumed(
        self, dataset: lake.Dataset, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for path in stored(uri):
            Path(uri, path).unlink()
        orphan = Path(uri, name_from(30 * DAY))
        orphan.write_bytes(b"x")
        listings = []
        listing = Storage.files

        def counted(storage: Storage) -> Iterator[FoundFile]:
            listings.append(storage)
            return listing(storage)

        monkeypatch.setattr(Storage, "files", counted)
        with pytest.raises(lake.CorruptDatasetError, match="Nothing was deleted"):
            dataset.vacuum(**NOW)
        assert orphan.exists()
        assert len(listings) == 1  # a large store is not listed twice for nothing

    def test_another_catalogs_files_in_the_same_folder_stay(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        """Releases before 0.2 let two catalogs write to one folder."""
        (owner,) = Path(uri, "_plake").glob("owner-*")
        owner.rename(f"{uri}.owner")
        kept = {path: Path(uri, path).rename(f"{uri}.{n}") for n, path in enumerate(stored(uri))}
        lake.write_dataset(rows_of(7), uri)  # its own catalog, inside the folder
        for path, moved in kept.items():
            moved.rename(Path(uri, path))
        with pytest.raises(lake.ForeignFolderError, match="another catalog"):
            dataset.vacuum(**NOW)
        (theirs,) = Path(uri, "_plake").glob("owner-*")
        theirs.unlink()
        report = dataset.vacuum(**NOW)
        assert report.files_removed == 0
        assert what(report.left)["this catalog has not recorded its write"] == 1
        assert lake.read_dataset(uri)["id"].to_pylist() == [7]

    def test_a_short_retention_has_to_be_allowed(self, dataset: lake.Dataset) -> None:
        for given in ({"retention_seconds": 3599}, {"abandoned_after_seconds": 10}):
            with pytest.raises(lake.InvalidOptionError, match="allow_short_retention=True"):
                dataset.vacuum(**given)  # type: ignore[arg-type]
        dataset.vacuum(retention_seconds=3600)
        for given in ({"retention_seconds": -1}, {"retention_seconds": float("nan")}):
            with pytest.raises(lake.InvalidOptionError):
                dataset.vacuum(**given, allow_short_retention=True)  # type: ignore[arg-type]

    def test_a_file_that_a_restored_version_shares_stays(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        dataset.restore(1)
        dataset.expire_versions(keep_last=1)
        report = dataset.vacuum(**NOW)
        assert report.files_removed == 3
        assert report.rows_forgotten == 4
        assert ids(uri, catalog) == [1]

    def test_a_crash_before_the_catalog_forgets_is_made_good_by_the_next_vacuum(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        dataset.expire_versions(keep_last=1)
        with (
            mock.patch.object(vacuum, "_forget_rows", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            dataset.vacuum(**NOW)
        assert len(stored(uri)) == 3
        assert dataset.vacuum(**NOW).rows_forgotten == 1
        assert dataset.vacuum(**NOW).rows_forgotten == 0
        assert ids(uri, catalog) == [2, 3, 4]

    def test_empty_partition_folders_go_and_others_stay(
        self, uri: str, catalog: lake.Catalog
    ) -> None:
        for k in ("a", "b c", ""):
            lake.write_dataset(rows_of(1, k=k), uri, catalog=catalog, partition_by="k")
        lake.write_dataset(rows_of(2, k="a"), uri, catalog=catalog, mode="overwrite")
        dataset = lake.open_dataset(uri, catalog=catalog)
        (Path(uri) / "empty").mkdir()
        (Path(uri) / "j=1").mkdir()
        dataset.expire_versions(keep_last=1)
        report = dataset.vacuum(**NOW)
        assert report.files_removed == 3
        assert report.folders_removed == 2
        assert {path.name for path in Path(uri).iterdir()} == {"k=a", "empty", "j=1", "_plake"}
        assert ids(uri, catalog) == [2]

    def test_a_file_that_cannot_be_deleted_is_told_and_tried_again(
        self, dataset: lake.Dataset, uri: str
    ) -> None:
        dataset.expire_versions(keep_last=1)
        failure = lake.StorageError(path="x", reason="no permission")
        with mock.patch("lakehouse_source.storage.Storage.delete", side_effect=failure):
            report = dataset.vacuum(**NOW)
        assert what(report.left)["could not be deleted: no permission"] == 1
        assert report.rows_forgotten == 0
        assert dataset.vacuum(**NOW).rows_forgotten == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(
    uri: str, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    for number in range(3):
        lake.write_dataset(rows_of(number), uri, mode="overwrite")
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("lakehouse_source.progress.SHOWN_AFTER_SECONDS", 0.0)
    dataset = lake.open_dataset(uri)
    dataset.expire_versions(keep_last=1)
    assert dataset.vacuum(**NOW).files_removed == 2
    assert ("deleting" in screen.getvalue()) == is_terminal
    assert dataset.verify(checksums=True).ok
    assert ("verifying" in screen.getvalue()) == is_terminal


@pytest.mark.parametrize("asked", [True, False])
def test_progress_is_shown_when_asked_and_not_when_refused(
    uri: str, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    lake.write_dataset(rows_of(1), uri, mode="overwrite")
    lake.write_dataset(rows_of(2), uri, mode="overwrite")
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: not asked)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("lakehouse_source.progress.SHOWN_AFTER_SECONDS", 0.0)
    dataset = lake.open_dataset(uri)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(**NOW, progress=asked)
    dataset.verify(checksums=True, progress=asked)
    assert ("deleting" in screen.getvalue(), "verifying" in screen.getvalue()) == (asked, asked)


class TestPathsThatLeadOut:
    """A row of the catalog must never lead a delete out of its dataset."""

    @pytest.fixture
    def victim(self, tmp_path: Path, dataset: lake.Dataset) -> Path:
        path = tmp_path / name_from(30 * DAY)
        path.write_bytes(b"precious")
        dataset.expire_versions(keep_last=1)
        return path

    @pytest.mark.parametrize("where", ["../../{name}", "{folder}/{name}", "file://{folder}/{name}"])
    def test_a_planted_path_is_refused(
        self, dataset: lake.Dataset, catalog: lake.Catalog, victim: Path, where: str
    ) -> None:
        path = where.format(name=victim.name, folder=victim.parent)
        with catalog.write() as transaction:
            transaction._session.execute(
                "UPDATE files SET file_path = ? WHERE removed_version IS NOT NULL", (path,)
            )
        report = dataset.vacuum(**NOW)
        assert what(report.left)["not where this dataset puts files"] == 1
        assert report.rows_forgotten == 0
        assert victim.read_bytes() == b"precious"

    def test_a_link_is_refused(
        self, dataset: lake.Dataset, uri: str, victim: Path, catalog: lake.Catalog
    ) -> None:
        with catalog.write() as transaction:
            transaction._session.execute(
                "UPDATE files SET file_path = ? WHERE removed_version IS NOT NULL",
                (f"out/{victim.name}",),
            )
        os.symlink(victim.parent, Path(uri, "out"))
        os.symlink(victim, Path(uri, link := name_from(30 * DAY)))
        give_up(catalog, uri, link)
        report = dataset.vacuum(**NOW)
        left = what(report.left)
        assert left["its path leads out of the dataset"] == 1
        assert "not where this dataset puts files" in left
        assert victim.read_bytes() == b"precious"


class TestRecovery:
    def test_a_catalog_opened_for_writing_marks_dead_writes(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        staged, _files = begin_write(uri, catalog, rows_of(5))
        with catalog.write() as transaction:
            transaction._session.execute(
                "UPDATE pending_writes SET heartbeat_at = heartbeat_at - ?", (25 * 3600 * 10**6,)
            )
        shared_connections.close_all()  # of a server; as another process, which has none
        with lake.open_catalog(catalog.url) as opened:
            with opened.read() as reader:
                before = reader.write_states([staged.write_id])
            with opened.write() as transaction:
                states = transaction.write_states([staged.write_id])
        assert before[staged.write_id].state.name == "PENDING"
        assert states[staged.write_id].state.name == "ABANDONED"
        # A longer limit of the vacuum's own counts more than the mark.
        longer = dataset.vacuum(**NOW, abandoned_after_seconds=3 * DAY)
        assert longer.files_removed == 0
        assert what(longer.left)["its write may still be going on"] == 1
        assert dataset.vacuum(**NOW).files_removed == 1


class TestWholeCatalog:
    def test_every_dataset_is_vacuumed_and_a_failure_is_told(
        self, tmp_path: Path, catalog: lake.Catalog
    ) -> None:
        for name in ("a", "b", "c"):
            uri = str(tmp_path / name)
            lake.write_dataset(rows_of(1), uri, catalog=catalog)
            lake.write_dataset(rows_of(2), uri, catalog=catalog, mode="overwrite")
            lake.open_dataset(uri, catalog=catalog).expire_versions(keep_last=1)
        shutil.rmtree(tmp_path / "b")
        report = lake.vacuum(catalog, **NOW)
        assert report.files_removed == 2
        assert [Path(dataset).name for dataset, _reason in report.failed] == ["b"]
        assert ids(str(tmp_path / "a"), catalog) == [2]
        assert "no vacuum of" in str(report)

    def test_the_catalog_inside_a_dataset(self, uri: str) -> None:
        lake.write_dataset(rows_of(1), uri)
        lake.write_dataset(rows_of(2), uri, mode="overwrite")
        lake.open_dataset(uri).expire_versions(keep_last=1)
        report = lake.vacuum(f"sqlite://{uri}/_plake/catalog.db", **NOW)
        assert report.files_removed == 1
        assert not report.failed
        assert lake.read_dataset(uri)["id"].to_pylist() == [2]

    def test_a_second_dataset_in_the_folder_of_the_first_is_left_alone(self, uri: str) -> None:
        """Release 0.1 registered one where the URL of the catalog was spelled in another way."""
        lake.write_dataset(rows_of(1), uri)
        url = f"sqlite://{uri}/_plake/catalog.db"
        with lake.open_catalog(url) as catalog, catalog.write() as transaction:
            columns = "name, current_version, properties_json, created_at"
            transaction._session.execute(
                f"INSERT INTO datasets (base_uri, {columns}) SELECT ?, {columns} FROM datasets",
                (f"file://{uri}",),
            )
        before = stored(uri)
        report = lake.vacuum(url, **NOW, abandoned_after_seconds=0)
        assert [reason for _dataset, reason in report.failed] == [
            f"it is registered as file://{uri} and opened as ."
        ]
        assert stored(uri) == before


class TestVerify:
    def test_what_was_written_is_in_order(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        for version, files in ((None, 3), (1, 1)):
            report = dataset.verify(version, checksums=True)
            assert report.ok
            assert report.files == files
            assert "0 differences" in str(report)
        big = pa.table({"id": range(1000), "k": ["x"] * 1000})
        lake.write_dataset(big, uri, catalog=catalog, row_group_rows=100)
        assert dataset.refresh().verify(checksums=True).ok

    def test_each_difference_is_named(
        self, dataset: lake.Dataset, uri: str, catalog: lake.Catalog
    ) -> None:
        missing, short, swapped = (file.path for file in dataset.files())
        Path(uri, missing).unlink()
        Path(uri, short).write_bytes(Path(uri, short).read_bytes()[:-20])
        pq.write_table(rows_of(1, 2, 3), Path(uri, swapped), row_group_size=2)
        report = dataset.verify()
        assert not report.ok
        assert {(found.path, found.what) for found in report.differences} == {
            (missing, "file"),
            (short, "size in bytes"),
            (short, "footer"),
            (swapped, "size in bytes"),
            (swapped, "rows"),
            (swapped, "row groups"),
            (swapped, "rows of row group 0"),
        }
        for text in (missing, "missing", "footer"):
            assert text in str(report)
        assert dataset.verify(1).ok

    def test_damaged_pages_are_found_when_asked(self, uri: str, catalog: lake.Catalog) -> None:
        table = pa.table({"id": pa.array(range(5000)), "k": [str(n * n) for n in range(5000)]})
        written = lake.write_dataset(table, uri, catalog=catalog).metadata[0]
        path = Path(uri, written.path)
        chunk = pq.read_metadata(path).row_group(0).column(1)
        raw = bytearray(path.read_bytes())
        # Inside the compressed bytes of a page, past its header.
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        raw[start + chunk.total_compressed_size // 2] ^= 1
        path.write_bytes(raw)
        dataset = lake.open_dataset(uri, catalog=catalog)
        assert dataset.verify().ok
        whole, page = dataset.verify(checksums=True).differences
        assert (whole.path, whole.what) == (written.path, "SHA-256")
        assert (page.path, page.what) == (written.path, "pages of row group 0")
        assert "checksum" in page.found.lower()

    def test_a_path_that_leads_out_is_a_difference(
        self, dataset: lake.Dataset, catalog: lake.Catalog
    ) -> None:
        with catalog.write() as transaction:
            transaction._session.execute("UPDATE files SET file_path = ?", ("../x",))
        report = dataset.verify()
        assert "must be relative" in report.differences[-1].found

    def test_a_version_that_never_was_is_not_verified(self, dataset: lake.Dataset) -> None:
        for version in (0, 5):
            with pytest.raises(lake.VersionNotFoundError):
                dataset.verify(version)
            with pytest.raises(lake.VersionNotFoundError):
                dataset.files(version)


def test_a_writer_survives_a_vacuum_that_takes_its_empty_folder(tmp_path: Path) -> None:
    from lakehouse_source.storage import Storage

    storage = Storage(str(tmp_path))
    real = os.mkdir
    turns = []

    def taken_away(path: str, *mode: int, dir_fd: int | None = None) -> None:
        real(path, *mode, dir_fd=dir_fd)
        turns.append(path)
        if len(turns) < 4:
            os.rmdir(path, dir_fd=dir_fd)

    with mock.patch("os.mkdir", taken_away), storage.open_output("k=1/x") as sink:
        sink.write(b"x")
    assert len(turns) == 4


def test_the_catalog_is_not_told_of_a_file_that_is_not_parquet_of_ours(uri: str) -> None:
    """The names that the writer gives match the pattern that vacuum uses."""
    result = lake.write_dataset(rows_of(1), uri)
    from lakehouse_source.parquet.names import is_foreign, own_name

    assert own_name(result.metadata[0].path)
    assert not is_foreign(result.metadata[0].path)
    assert pq.read_metadata(Path(uri, result.metadata[0].path)).num_rows == 1
