"""A catalog in a file is written only where nobody else can put a journal beside it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import open_catalog
from lakehouse_source.catalog.backends.file_catalog import TRUSTED
from lakehouse_source.catalog.backends.sqlite import SqliteCatalog, idle_connections
from lakehouse_source.catalog.copy import copy_catalog
from lakehouse_source.errors import CatalogUnavailableError, PlakeError
from tests.edges.test_catalogs_of_strangers import hot_journal

OTHER = 54321
ROWS = pa.table({"n": [1]})
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    path = tmp_path / "canary"
    path.write_text("the reader's own")
    return path


@pytest.fixture(params=["sqlite", "duckdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "above" / "folder").mkdir(parents=True)
    found = f"{request.param}:///{tmp_path}/above/folder/catalog.db"
    lake.write_dataset(ROWS, tmp_path / "data", catalog=found)
    return found


def _read(catalog: lake.Catalog) -> None:
    with catalog.read() as reader:
        reader.datasets()


def _write(catalog: lake.Catalog) -> None:
    with catalog.write():
        pass


def _still(catalog: lake.Catalog) -> None:
    with catalog.still():
        pass


# Every way by which a connection to a SQLite file is made or used.
WAYS: dict[str, Callable[[lake.Catalog, Path], Any]] = {
    "read": lambda catalog, folder: _read(catalog),
    "write": lambda catalog, folder: _write(catalog),
    "still": lambda catalog, folder: _still(catalog),
    "copy": lambda catalog, folder: copy_catalog(catalog, open_catalog(f"sqlite:///{folder}/to")),
    "free pages": lambda catalog, folder: catalog.overwrite_free_pages(),
    "dataset": lambda catalog, folder: lake.read_dataset(folder / "data", catalog=catalog.url),
    "append": lambda catalog, folder: lake.write_dataset(
        ROWS, folder / "data", catalog=catalog.url
    ),
}


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_journal_that_wins_the_race_against_the_check_deletes_nothing(
    tmp_path: Path, canary: Path, way: str, idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write to the folder puts the journal there after it was looked for."""
    database = tmp_path / "shared" / "catalog.db"
    database.parent.mkdir()
    lake.write_dataset(ROWS, tmp_path / "data", catalog=f"sqlite:///{database}")
    idle_connections.close_all()
    database.parent.chmod(0o777)
    real = SqliteCatalog._refuse_super_journal

    def lost(self: SqliteCatalog) -> None:
        real(self)
        if self.path == str(database):
            Path(f"{database}-journal").write_bytes(hot_journal(database, canary))

    with open_catalog(f"sqlite:///{database}") as catalog:
        if idle:
            _read(catalog)
        monkeypatch.setattr(SqliteCatalog, "_refuse_super_journal", lost)
        with pytest.raises(PlakeError, match=r"only read|not plake's|would delete"):
            WAYS[way](catalog, tmp_path)
    assert canary.read_text() == "the reader's own"


@pytest.mark.parametrize("way", WAYS)
def test_a_journal_that_names_a_file_is_refused_on_every_way(
    tmp_path: Path, canary: Path, way: str
) -> None:
    """A backup looked for none, so that no race was needed."""
    database = tmp_path / "got" / "catalog.db"
    database.parent.mkdir()
    lake.write_dataset(ROWS, tmp_path / "data", catalog=f"sqlite:///{database}")
    with open_catalog(f"sqlite:///{database}") as catalog:
        _read(catalog)  # there is an open connection
        Path(f"{database}-journal").write_bytes(hot_journal(database, canary))
        with pytest.raises(CatalogUnavailableError, match="would delete"):
            WAYS[way](catalog, tmp_path)
    assert canary.read_text() == "the reader's own"


def _chmod(above: bool, mode: int) -> Callable[[Path], None]:
    return lambda file: (file.parent.parent if above else file.parent).chmod(mode)


def _give(file: Path, group: int = -1) -> None:
    os.chown(file, OTHER if group == -1 else -1, group)
    if group != -1:
        file.chmod(file.stat().st_mode | 0o020)


UNTRUSTED = {
    "all write to the folder": _chmod(False, 0o777),
    "all write to a sticky folder": _chmod(False, 0o1777),
    "all write above": _chmod(True, 0o777),
    "all write to the file": lambda file: file.chmod(0o666),
}
OF_OTHERS = {
    "the file": _give,
    "the folder": lambda file: _give(file.parent),
    "above": lambda file: _give(file.parent.parent),
    "the group of the file": lambda file: _give(file, OTHER),
    "the group of the folder": lambda file: _give(file.parent, OTHER),
    "the group above": lambda file: _give(file.parent.parent, OTHER),
}
TRUSTED_ANYWAY = {
    "all read": _chmod(False, 0o755),
    "all write to a sticky folder above": _chmod(True, 0o1777),
}


@pytest.mark.parametrize(
    "how",
    [*UNTRUSTED, *(pytest.param(one, marks=as_root) for one in OF_OTHERS)],
)
@pytest.mark.one_catalog
def test_a_catalog_beside_which_others_can_put_files_is_read_and_not_written(
    url: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = Path(url.partition("://")[2]), tmp_path / "data"
    idle_connections.close_all()  # of this process; they are kept if only a folder above changes
    {**UNTRUSTED, **OF_OTHERS}[how](file)
    before = file.read_bytes()
    assert lake.read_dataset(data, catalog=url).num_rows == 1
    assert [one.version for one in lake.open_dataset(data, catalog=url).history()] == [1]
    with pytest.raises(CatalogUnavailableError, match=f"only read.*{TRUSTED}=/"):
        lake.write_dataset(ROWS, data, catalog=url)
    with pytest.raises(CatalogUnavailableError, match="only read"):
        open_catalog(url).overwrite_free_pages()
    assert file.read_bytes() == before
    for line in (str(file.parent), f"/nowhere:{file.parent.parent}", "*"):
        with monkeypatch.context() as patched:
            patched.setenv(TRUSTED, line)
            lake.write_dataset(ROWS, data, catalog=url)
    assert lake.read_dataset(data, catalog=url).num_rows == 4


@pytest.mark.parametrize("how", TRUSTED_ANYWAY)
def test_a_catalog_beside_which_nobody_else_puts_files_is_written(
    url: str, how: str, tmp_path: Path
) -> None:
    TRUSTED_ANYWAY[how](Path(url.partition("://")[2]))
    lake.write_dataset(ROWS, tmp_path / "data", catalog=url)


def test_the_group_that_a_system_makes_for_one_user_is_no_other_user(
    url: str, tmp_path: Path
) -> None:
    """Many systems have the umask 002, and a group for each user."""
    import grp

    me = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(me.pw_gid)
    if group.gr_name != me.pw_name or set(group.gr_mem) > {me.pw_name}:
        pytest.skip("this user has no group of its own")
    folder = Path(url.partition("://")[2]).parent
    os.chown(folder, -1, me.pw_gid)
    folder.chmod(0o775)
    lake.write_dataset(ROWS, tmp_path / "data", catalog=url)


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_no_catalog_is_made_where_others_can_put_files(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    new = f"{scheme}:///{tmp_path}/open/catalog.db"
    lake.write_dataset(ROWS, tmp_path / "mine")
    for act in (
        lambda: lake.write_dataset(ROWS, tmp_path / "data", catalog=new),
        lambda: lake.write_dataset(ROWS, tmp_path / "open" / "data"),
        lambda: copy_catalog(
            open_catalog(f"sqlite:///{tmp_path}/mine/_plake/catalog.db"), open_catalog(new)
        ),
    ):
        with pytest.raises(CatalogUnavailableError, match=f"{TRUSTED}="):
            act()
    assert list((tmp_path / "open").iterdir()) == []


def test_a_kept_connection_is_not_used_when_others_may_write_to_the_folder(
    tmp_path: Path,
) -> None:
    database = tmp_path / "folder" / "catalog.db"
    database.parent.mkdir()
    for mode in (0o755, 0o777):
        database.parent.chmod(mode)
        if mode == 0o755:
            lake.write_dataset(ROWS, tmp_path / "data", catalog=f"sqlite:///{database}")
    with pytest.raises(CatalogUnavailableError, match="only read"):
        lake.write_dataset(ROWS, tmp_path / "data", catalog=f"sqlite:///{database}")
