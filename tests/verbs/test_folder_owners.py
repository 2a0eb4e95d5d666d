"""A folder belongs to one catalog: no other one writes to it, or deletes from it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import base
from lakehouse_source.storage import Storage, claim_folder, owner_files
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

NOW = {"retention_seconds": 0, "allow_short_retention": True, "abandoned_after_seconds": 0}


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def values(uri: object, catalog: object = None) -> list[int]:
    found = lake.read_dataset(str(uri), catalog=catalog)  # type: ignore[arg-type]
    return sorted(found["n"].to_pylist())


def files_in(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*.parquet") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.DatasetCatalog]:
    """A catalog that somebody else made."""
    url = f"{request.param}://{tmp_path}/stranger.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.fresh_database()
    with lake.open_catalog(url) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A dataset with two versions, an orphan and a catalog elsewhere."""
    folder, catalog = tmp_path / "home", f"sqlite://{tmp_path}/mine.db"
    lake.write_dataset(numbers(1), folder, catalog=catalog)
    lake.write_dataset(numbers(2), folder, catalog=catalog, mode="overwrite")
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/mine.db"


def forge(stranger: lake.DatasetCatalog, folder: Path, *, dropped: bool) -> None:
    """Rows as a stranger's catalog may have them: a dataset in the folder of somebody else.

    With the names of its files, whose writes it says were its own.
    """
    lake.write_dataset(numbers(9), folder.parent / "bait", catalog=stranger)
    with stranger.write() as tx:
        run = tx._session.execute
        run(
            "UPDATE datasets SET base_uri = ?, claimed_at = 1, dropped_at = CAST(? AS BIGINT)",
            (f"file://{folder}", 1 if dropped else None),
        )
        run("UPDATE files SET expired_at = 1, removed_version = 1", ())
        for path in files_in(folder):
            tx.register_pending(path[:36], 1)
            tx.fence_write(path[:36])


def test_a_forged_time_of_dropping_deletes_nothing(
    home: Path, mine: str, stranger: lake.DatasetCatalog
) -> None:
    """`finish_drops` deleted every file there with a name of plake."""
    before = files_in(home)
    forge(stranger, home, dropped=True)
    with pytest.raises(lake.ForeignFolderError, match="another catalog"):
        stranger.finish_drops()
    assert files_in(home) == before
    assert values(home, mine) == [2]


def test_a_vacuum_of_a_strangers_catalog_deletes_nothing_of_the_readers(
    home: Path, mine: str, stranger: lake.DatasetCatalog
) -> None:
    before = files_in(home)
    forge(stranger, home, dropped=False)
    report = lake.vacuum(stranger, **NOW)  # type: ignore[arg-type]
    assert [reason for _, reason in report.failed if "another catalog" in reason]
    assert files_in(home) == before


def test_without_an_owner_only_recorded_writes_are_deleted(
    home: Path, mine: str, stranger: lake.DatasetCatalog
) -> None:
    """A folder of an older release, which the catalog of a stranger names."""
    shutil.rmtree(home / "_plake")
    before = files_in(home)
    lake.write_dataset(numbers(9), home.parent / "bait", catalog=stranger)
    with stranger.write() as tx:
        tx._session.execute(
            "UPDATE datasets SET base_uri = ?, claimed_at = 1, dropped_at = 1", (f"file://{home}",)
        )
    stranger.finish_drops()
    assert files_in(home) == before


def test_a_dataset_is_not_made_in_the_folder_of_another_catalog(
    home: Path, mine: str, stranger: lake.DatasetCatalog
) -> None:
    before = files_in(home)
    for write in (
        lambda: lake.write_dataset(numbers(3), home, catalog=stranger),
        lambda: stranger.create_dataset("t", numbers().schema, location=home),
        lambda: lake.write_dataset(numbers(3), home),
    ):
        with pytest.raises(lake.ForeignFolderError, match="belongs to another"):
            write()
    assert files_in(home) == before
    assert stranger.datasets() == []
    assert not (home / "_plake" / "catalog.db").exists()
    assert values(home, mine) == [2]


@pytest.mark.long
def test_a_folder_of_an_older_release_belongs_to_who_writes_next(
    home: Path, mine: str, stranger: lake.DatasetCatalog
) -> None:
    shutil.rmtree(home / "_plake")
    with lake.open_catalog(mine) as catalog, catalog.write() as tx:
        tx._session.execute("UPDATE datasets SET claimed_at = NULL")
    with pytest.raises(lake.ForeignFolderError, match="does not have"):
        lake.write_dataset(numbers(3), home, catalog=stranger)
    assert not (home / "_plake").exists()
    lake.write_dataset(numbers(3), home, catalog=mine)
    assert len(list((home / "_plake").glob("owner-*"))) == 1
    assert values(home, mine) == [2, 3]


@pytest.mark.long
def test_a_dataset_in_the_partition_folder_of_another_is_not_vacuumed(
    tmp_path: Path, stranger: lake.DatasetCatalog
) -> None:
    """Nor by a catalog that does not know it."""
    outer = tmp_path / "outer"
    for n in (1, 2):
        table = {"n": [n], "day": ["a"]}
        lake.write_dataset(table, outer, catalog=stranger, partition_by="day", mode="overwrite")
    inner = outer / "day=b"
    lake.write_dataset(numbers(7), inner)
    lake.write_dataset(numbers(8), inner, mode="overwrite")
    before = files_in(inner)
    dataset = lake.open_dataset(outer, catalog=stranger)
    dataset.expire_versions(keep_last=1)
    assert dataset.vacuum(**NOW).files_removed == 1  # type: ignore[arg-type]
    with stranger.write() as tx:
        tx.names.give(("default", "outer"), 1)
    stranger.drop("outer", purge=True)
    assert files_in(inner) == before
    assert values(inner) == [8]


@pytest.mark.parametrize("how", [shutil.copytree, shutil.move])
def test_a_folder_with_its_own_catalog_goes_on_elsewhere(
    tmp_path: Path, how: Callable[[Path, Path], object]
) -> None:
    lake.write_dataset(numbers(1), tmp_path / "a")
    how(tmp_path / "a", tmp_path / "b")
    for n in (2, 3):
        lake.write_dataset(numbers(n), tmp_path / "b", mode="overwrite")
    dataset = lake.open_dataset(tmp_path / "b")
    dataset.expire_versions(keep_last=1)
    assert dataset.vacuum(**NOW).files_removed == 2  # type: ignore[arg-type]
    assert values(tmp_path / "b") == [3]


def test_a_lost_catalog_does_not_begin_a_second_dataset(tmp_path: Path) -> None:
    lake.write_dataset(numbers(1), tmp_path / "a")
    (tmp_path / "a" / "_plake" / "catalog.db").unlink()
    with pytest.raises(lake.ForeignFolderError):
        lake.write_dataset(numbers(2), tmp_path / "a")
    assert not (tmp_path / "a" / "_plake" / "catalog.db").exists()
    shutil.rmtree(tmp_path / "a" / "_plake")
    with pytest.raises(lake.ForeignFolderError, match="does not have"):
        lake.write_dataset(numbers(2), tmp_path / "a")
    assert len(files_in(tmp_path / "a")) == 1


def test_a_folder_is_free_again_after_a_purge(tmp_path: Path) -> None:
    with lake.open_catalog(f"sqlite://{tmp_path}/one.db") as one:
        one.create_dataset("t", numbers().schema, location=tmp_path / "t")
        lake.write_dataset(numbers(1), tmp_path / "t", catalog=one)
        one.drop("t", purge=True)
    other = f"sqlite://{tmp_path}/other.db"
    assert lake.write_dataset(numbers(2), tmp_path / "t", catalog=other).version == 1


def test_an_orphan_of_a_branch_that_was_dropped_is_vacuumed(
    tmp_path: Path, stranger: lake.DatasetCatalog
) -> None:
    """The catalog forgets the branch, and not that it has written its files."""
    folder = tmp_path / "t"
    lake.write_dataset(numbers(1), folder, catalog=stranger)
    dataset = lake.open_dataset(folder, catalog=stranger)
    branch = dataset.branch("audit")
    lake.write_dataset(numbers(2), branch.uri, catalog=stranger)
    lake.write_dataset(numbers(3), branch.uri, catalog=stranger, mode="overwrite")
    dataset.drop_branch("audit")
    with stranger.write() as tx:  # as after a vacuum that died
        tx._session.execute("DELETE FROM files WHERE version = 0")
    assert dataset.vacuum(**NOW).files_removed == 2  # type: ignore[arg-type]
    assert values(folder, stranger) == [1]


def test_of_catalogs_that_claim_a_folder_at_once_no_two_get_it(tmp_path: Path) -> None:
    for turn in range(60):
        storage = Storage(str(tmp_path / str(turn)))
        together = threading.Barrier(4)

        def claim(letter: str, storage: Storage = storage, all: Any = together) -> str | None:
            all.wait()
            return claim_folder(storage, letter * 32)

        with ThreadPoolExecutor(4) as pool:
            answers = list(zip("aabc", pool.map(claim, "aabc")))
        won = {letter for letter, other in answers if other is None}
        assert len(won) <= 1
        assert set(owner_files(storage).values()) == {letter * 32 for letter in won}


def test_a_claim_of_the_same_catalog_that_may_be_taken_back_is_not_relied_on(
    tmp_path: Path,
) -> None:
    """Another thread has put its file, and will take it away because it saw another catalog's."""
    storage = Storage(str(tmp_path))
    (tmp_path / "_plake").mkdir()
    pending = tmp_path / "_plake" / f"owner-{'a' * 32}-00000000"
    pending.touch()
    assert claim_folder(storage, "a" * 32) is None
    pending.unlink()
    assert claim_folder(storage, "c" * 32) is not None
    files = owner_files(storage)
    assert claim_folder(storage, "a" * 32) is None
    assert owner_files(storage) == files  # nothing more is put into a folder that is claimed


def test_a_linked_reserved_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "_plake").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(lake.CorruptDatasetError, match="symbolic link"):
        lake.write_dataset(numbers(1), tmp_path / "t", catalog=f"sqlite://{tmp_path}/c.db")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_catalog_keeps_its_id(tmp_path: Path) -> None:
    with lake.open_catalog(f"sqlite://{tmp_path}/c.db") as catalog:
        first = base.catalog_id(catalog)
        assert base.catalog_id(catalog) == first
    shutil.copy(tmp_path / "c.db", tmp_path / "backup.db")
    with lake.open_catalog(f"sqlite://{tmp_path}/backup.db") as restored:
        assert base.catalog_id(restored) == first
