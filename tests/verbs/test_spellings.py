"""One dataset stays one, however its folder and its catalog are spelled."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.locate import is_default_catalog
from lakehouse_source.catalog.sql.history_reader import HistoryReader
from lakehouse_source.read.address import Address
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3), pytest.mark.one_catalog]

Spell = Callable[[Path], str]


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def values(uri: object, catalog: Any = None) -> list[int]:
    read = lake.read_dataset(str(uri), catalog=catalog)
    assert isinstance(read, pa.Table)
    return sorted(read["n"].to_pylist())


def link(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


@pytest.fixture(autouse=True)
def no_catalog_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAKE_CATALOG", raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A dataset written by default: its catalog is in its own folder."""
    folder = tmp_path / "the ds"
    lake.write_dataset(numbers(1), str(folder))
    assert (folder / "_plake" / "catalog.db").exists()
    return folder


# Given the dataset's folder, URLs that open its own catalog.
URLS: dict[str, Spell] = {
    "three slashes": lambda home: f"sqlite://{home}/_plake/catalog.db",
    "four slashes": lambda home: f"sqlite:///{home}/_plake/catalog.db",
    "an option": lambda home: f"sqlite://{home}/_plake/catalog.db?timeout=5",
    "upper case": lambda home: f"SQLite://{home}/_plake/catalog.db",
    "percent": lambda home: f"sqlite://{home}/_plake/c%61talog%2Edb".replace(" ", "%20"),
    "percent and option": lambda home: f"sqlite:///{home}/%5Fplake/catalog.db?timeout=1.5",
    "doubled slashes": lambda home: f"sqlite://{home}//_plake//catalog.db",
    "dots": lambda home: f"sqlite://{home}/./_plake/../_plake/catalog.db",
    "a linked folder": lambda home: f"sqlite://{link(home.parent / 'l', home)}/_plake/catalog.db",
    "a linked catalog folder": lambda home: (
        f"sqlite://{link(home.parent / 'l', home / '_plake')}/catalog.db"
    ),
    "dots behind a link": lambda home: (
        f"sqlite://{link(home.parent / 'l', home / '_plake')}/../_plake/catalog.db"
    ),
}


@pytest.mark.parametrize("spelling", URLS)
def test_another_spelling_of_its_own_catalog_finds_the_dataset_and_appends_to_it(
    spelling: str, home: Path
) -> None:
    """It was not found; an append made version 1 of a second dataset in the same folder."""
    url = URLS[spelling](home)
    assert lake.open_dataset(str(home), catalog=url).version == 1
    assert lake.write_dataset(numbers(2), str(home), catalog=url).version == 2
    assert values(home) == values(home, url) == [1, 2]
    with lake.open_catalog(url) as opened:
        assert lake.write_dataset(numbers(3), str(home), catalog=opened).version == 3
        with opened.read() as reader:
            assert len(reader.datasets()) == 1
    assert values(home) == [1, 2, 3]


@pytest.mark.parametrize("variable", ["PLAKE_CATALOG", "PLAKE_ELSEWHERE"])
def test_a_catalog_named_by_the_environment_is_the_same_one(
    variable: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"sqlite:///{home}/_plake/catalog.db?timeout=5")
    catalog = None if variable == "PLAKE_CATALOG" else f"env:{variable}"
    assert lake.write_dataset(numbers(2), str(home), catalog=catalog).version == 2
    monkeypatch.delenv(variable)
    assert values(home) == [1, 2]


@pytest.mark.parametrize("spelling", URLS)
def test_a_dataset_made_by_another_spelling_is_found_by_default(
    spelling: str, tmp_path: Path
) -> None:
    home = tmp_path / "new"
    (home / "_plake").mkdir(parents=True)
    (home / "_plake" / "catalog.db").touch()
    url = URLS[spelling](home)
    assert lake.write_dataset(numbers(1), str(home), catalog=url).version == 1
    assert lake.write_dataset(numbers(2), str(home)).version == 2
    assert values(home, url) == [1, 2]


FOLDERS: dict[str, Spell] = {
    "slash": lambda home: f"{home}/",
    "slashes": lambda home: f"/{home}//",
    "dots": lambda home: f"{home}/../{home.name}/.",
    "file:/": lambda home: f"file:{home}",
    "file:///": lambda home: f"file://{home}/",
    "localhost": lambda home: f"file://localhost{home}".replace(" ", "%20"),
    "linked": lambda home: str(link(home.parent / "linked", home)),
    "linked twice": lambda home: str(
        link(home.parent / "again", link(home.parent / "linked", home))
    ),
    "a linked parent": lambda home: (
        f"file://{link(home.parent.parent / (home.parent.name + '-l'), home.parent)}/{home.name}"
    ),
}
CATALOGS = ("its own", "sqlite", "duckdb", "postgres")


@pytest.fixture
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str | None]:
    def catalog(kind: str) -> str | None:
        if kind == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            return server.fresh_database()
        return None if kind == "its own" else f"{kind}://{tmp_path}/shared.db"

    return catalog


@pytest.mark.parametrize("kind", CATALOGS)
@pytest.mark.parametrize("spelling", FOLDERS)
def test_another_spelling_of_its_folder_does_not_make_a_second_dataset(
    spelling: str, kind: str, shared: Callable[[str], str | None], tmp_path: Path
) -> None:
    catalog = shared(kind)
    home = tmp_path / "the ds"
    assert lake.write_dataset(numbers(1), str(home), catalog=catalog).version == 1
    other = FOLDERS[spelling](home)
    assert lake.open_dataset(other, catalog=catalog).version == 1
    assert lake.write_dataset(numbers(2), other, catalog=catalog).version == 2
    assert lake.write_dataset(numbers(3), str(home), catalog=catalog).version == 3
    assert values(home, catalog) == values(other, catalog) == [1, 2, 3]
    dataset = lake.open_dataset(other, catalog=catalog)
    assert [one.version for one in dataset.history()] == [3, 2, 1]
    dataset.restore(1)
    assert values(home, catalog) == [1]
    assert dataset.vacuum(retention_seconds=0, allow_short_retention=True).files_removed == 0
    assert values(other, catalog) == [1]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_a_dataset_that_was_registered_through_a_link_is_found_by_its_real_folder(
    kind: str, shared: Callable[[str], str | None], tmp_path: Path
) -> None:
    catalog = shared(kind)
    (tmp_path / "real").mkdir()
    via = link(tmp_path / "via", tmp_path / "real")
    lake.write_dataset(numbers(1), str(via), catalog=catalog)
    assert lake.write_dataset(numbers(2), str(tmp_path / "real"), catalog=catalog).version == 2
    via.unlink()
    # The link that the catalog knows the dataset by is gone: nothing tells that it was this one.
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(str(tmp_path / "real"), catalog=catalog)
    link(via, tmp_path / "real")
    assert values(tmp_path / "real", catalog) == [1, 2]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
def test_two_writers_that_make_a_dataset_at_once_by_two_spellings_make_one(
    kind: str,
    shared: Callable[[str], str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = shared(kind)
    (tmp_path / "real").mkdir()
    spellings = (tmp_path / "real", link(tmp_path / "via", tmp_path / "real"))
    both, asked, look_up = Barrier(2), threading.local(), HistoryReader.dataset

    def dataset(self: HistoryReader, base_uri: str) -> Any:
        found = look_up(self, base_uri)
        if found is None and not hasattr(asked, "before"):
            asked.before = True
            with suppress(BrokenBarrierError):  # where writers take turns, the other one waits
                both.wait(timeout=1)
        return found

    monkeypatch.setattr(HistoryReader, "dataset", dataset)
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(
            lambda place: lake.write_dataset(numbers(1), str(place), catalog=catalog), spellings
        )
        assert sorted(one.version for one in results) == [1, 2]
    assert values(spellings[0], catalog) == values(spellings[1], catalog) == [1, 1]


def test_two_folders_with_their_own_catalogs_stay_two(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lake.write_dataset(numbers(ord(name)), str(tmp_path / name))
    assert values(tmp_path / "a") == [97]
    assert values(tmp_path / "b") == [98]
    url = f"sqlite://{tmp_path}/a/_plake/catalog.db"
    with pytest.raises(lake.ForeignFolderError):
        lake.write_dataset(numbers(3), str(tmp_path / "b"), catalog=url)
    assert values(tmp_path / "b") == [98]
    # The catalog of one may hold others too.
    assert lake.write_dataset(numbers(3), str(tmp_path / "c"), catalog=url).version == 1
    assert values(tmp_path / "c", url) == [3]


def test_a_folder_with_its_catalog_may_be_moved(home: Path) -> None:
    moved = home.rename(home.with_name("moved"))
    assert lake.write_dataset(numbers(2), str(moved)).version == 2
    linked = link(moved.with_name("linked"), moved)
    assert values(linked) == values(moved) == [1, 2]


def plant(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "_plake" / "catalog.db", isolation_level=None)) as raw:
        raw.execute(statement)


def test_a_catalog_in_which_its_own_dataset_has_a_full_uri_stays_readable(home: Path) -> None:
    """Version 0.1 registered it so where its catalog was named with four slashes."""
    plant(home, f"UPDATE datasets SET base_uri = '{Address(str(home), None).uri}'")
    for catalog in (None, URLS["four slashes"](home)):
        assert values(home, catalog) == [1]
    assert lake.write_dataset(numbers(2), str(home)).version == 2
    assert lake.write_dataset(numbers(3), str(home), catalog=URLS["an option"](home)).version == 3
    assert values(home) == [1, 2, 3]
    with lake.open_catalog(URLS["dots"](home)) as opened, opened.read() as reader:
        assert len(reader.datasets()) == 1


def test_of_two_datasets_in_one_folder_every_spelling_finds_that_of_the_default(
    home: Path,
) -> None:
    """Version 0.1 could make the second one; nothing of it is deleted."""
    shadow = "SELECT 'x', '" + Address(str(home), None).uri + "', current_version FROM datasets"
    plant(home, f"INSERT INTO datasets (name, base_uri, current_version) {shadow}")
    for catalog in (None, URLS["four slashes"](home)):
        assert values(home, catalog) == [1]


@pytest.mark.parametrize("spelling", ["four slashes", "a linked folder"])
def test_vacuum_of_a_catalog_finds_the_folder_around_it(spelling: str, home: Path) -> None:
    report = lake.vacuum(URLS[spelling](home))
    assert report.failed == ()
    (one,) = report.reports
    assert os.path.samefile(one.dataset.removeprefix("file://").replace("%20", " "), home)


def test_an_orphan_is_not_taken_for_another_catalogs_because_of_a_spelling(home: Path) -> None:
    (file,) = home.glob("*.parquet")
    unknown = "0190a5d3-0000-7000-8000-000000000000"
    (home / f"{unknown}-{unknown}.parquet").write_bytes(file.read_bytes())
    dataset = lake.open_dataset(str(home), catalog=URLS["four slashes"](home))
    with lake.open_catalog(URLS["dots"](home)) as catalog, catalog.write() as tx:
        tx.register_pending(unknown, 1)
        tx.fence_write(unknown)
    report = dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert report.files_removed == 1


def test_one_transaction_makes_one_dataset_of_a_folder_however_it_is_spelled(
    tmp_path: Path,
) -> None:
    home, url = tmp_path / "new", f"sqlite://{tmp_path}/shared.db"
    other = str(link(tmp_path / "linked", home))
    with lake.transaction(url) as tx:
        tx.write(numbers(1), str(home))
        tx.write(numbers(2), other)
    assert [one.version for one in tx.results] == [1, 2]
    with closing(sqlite3.connect(tmp_path / "shared.db")) as db:
        assert db.execute("SELECT count(*) FROM datasets").fetchone() == (1,)
    assert values(home, url) == values(other, url) == [1, 2]


@pytest.mark.parametrize("spelling", ["three slashes", "four slashes", "an option"])
@pytest.mark.parametrize("parent", ["real", "linked"])
def test_a_new_dataset_may_name_its_own_catalog(parent: str, spelling: str, tmp_path: Path) -> None:
    """Users were told to create its folder first, though by default it is made."""
    (tmp_path / "real").mkdir()
    link(tmp_path / "linked", tmp_path / "real")
    url = URLS[spelling](tmp_path / "real" / "new")
    home = tmp_path / parent / "new"
    assert lake.write_dataset(numbers(1), str(home), catalog=url).version == 1
    assert lake.write_dataset(numbers(2), str(home)).version == 2
    assert values(tmp_path / "real" / "new") == [1, 2]


def test_other_catalogs_are_not_taken_for_the_default_one(home: Path, tmp_path: Path) -> None:
    uri = Address(str(home), None).uri
    assert is_default_catalog(None, uri)
    copied = tmp_path / "copy.db"
    copied.write_bytes((home / "_plake" / "catalog.db").read_bytes())
    for url in (
        f"sqlite://{copied}",
        f"sqlite://{home}/_plake/catalog.db2",
        f"duckdb://{home}/_plake/catalog.db",
        "postgresql://h/d",
    ):
        assert not is_default_catalog(url, uri)
        assert not is_default_catalog(url, "s3://bucket/ds")
