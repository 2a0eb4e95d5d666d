"""A catalog that was copied is fenced: afterwards only one of the two is written to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import copy, open_catalog
from lakehouse_source.catalog.copy import copy_catalog, move_catalog, unfence_catalog
from lakehouse_source.errors import CatalogUnavailableError, InvalidOptionError
from lakehouse_source.write.commit import apply

pytestmark = pytest.mark.one_catalog

NOW = {"retention_seconds": 0, "allow_short_retention": True}
ROWS = {"n": [1, 2, 3]}


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        made: str = request.getfixturevalue("postgres_server").new_catalog()
        return made
    return f"{request.param}://{tmp_path}/old.db"


@pytest.fixture
def catalog(url: str, tmp_path: Path) -> Iterator[lake.DatasetCatalog]:
    """A catalog that a process has had open since before it was copied."""
    with lake.open_catalog(url, warehouse=tmp_path / "warehouse") as opened:
        made = opened.create_dataset("things", pa.schema([("n", pa.int64())]))
        for _ in range(3):
            lake.write_dataset(ROWS, made.uri, catalog=opened)
        opened.dataset("things").tag("old", 2)
        opened.create_dataset("spare", pa.schema([("n", pa.int64())]))
        yield opened


def moved(catalog: lake.DatasetCatalog, folder: Path) -> str:
    target = f"sqlite://{folder}/new.db"
    with open_catalog(target) as opened:
        move_catalog(catalog.database, opened, progress=False)
    return target


DOORS: dict[str, Callable[[lake.DatasetCatalog, lake.Dataset], Any]] = {
    "append": lambda c, d: lake.write_dataset(ROWS, d.uri, catalog=c),
    "overwrite": lambda c, d: lake.write_dataset(ROWS, d.uri, catalog=c, mode="overwrite"),
    "new dataset": lambda c, d: lake.write_dataset(ROWS, d.uri + "2", catalog=c),
    "delete": lambda c, d: d.delete("n = 1"),
    "update": lambda c, d: d.update({"n": "n + 1"}),
    "compact": lambda c, d: d.compact(),
    "restore": lambda c, d: d.restore(2),
    "add_column": lambda c, d: d.add_column("x", pa.string()),
    "tag": lambda c, d: d.tag("new"),
    "drop_tag": lambda c, d: d.drop_tag("old"),
    "branch": lambda c, d: d.branch("audit"),
    "add_consumer": lambda c, d: d.add_consumer("billing"),
    "expire_versions": lambda c, d: d.expire_versions(keep_last=1),
    "vacuum": lambda c, d: d.vacuum(**NOW),
    "erase": lambda c, d: d.erase("n = 1"),
    "set_properties": lambda c, d: d.set_properties(index_columns=["n"]),
    "create_dataset": lambda c, d: c.create_dataset("more", d.schema),
    "create_namespace": lambda c, d: c.create_namespace("sales"),
    "rename": lambda c, d: c.rename("spare", "other"),
    "drop": lambda c, d: c.drop("spare"),
    "purge": lambda c, d: c.drop("spare", purge=True),
    "set_warehouse": lambda c, d: c.set_warehouse("/elsewhere"),
}


def _refusal(door: Any, opened: lake.DatasetCatalog, uri: str) -> lake.PlakeError | None:
    try:
        door(opened, lake.open_dataset(uri, catalog=opened))
    except CatalogUnavailableError as error:
        return error
    return None


def test_no_door_writes_to_a_catalog_that_was_copied(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    dataset = catalog.dataset("things")
    new = moved(catalog, tmp_path)
    files = sorted(path for path in tmp_path.rglob("*.parquet"))
    with lake.open_catalog(catalog.url, warehouse=tmp_path / "warehouse") as later:
        for opened in (catalog, later):
            for name, door in DOORS.items():
                refused = _refusal(door, opened, dataset.uri)
                assert refused is not None, f"{name} wrote"
                assert f"was copied to {new}" in str(refused)
                assert not refused.retryable
        assert later.dataset("things").scan().to_table().num_rows == 9
        assert later.dataset("things").version == 4
    assert sorted(path for path in tmp_path.rglob("*.parquet")) == files
    with lake.open_catalog(new, warehouse=tmp_path / "warehouse") as written:
        for name, door in DOORS.items():
            if name not in ("set_warehouse", "drop", "purge"):
                door(written, written.dataset("things"))


def test_a_fence_is_taken_off_by_the_name_of_the_copy(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOptionError, match="has none"):
        unfence_catalog(catalog.database, "sqlite:///x")
    new = moved(catalog, tmp_path)
    with pytest.raises(InvalidOptionError, match="not what the fence names"):
        unfence_catalog(catalog.database, "sqlite:///x")
    with (
        open_catalog(f"sqlite://{tmp_path}/third.db") as third,
        pytest.raises(CatalogUnavailableError, match="was copied to"),
    ):
        move_catalog(catalog.database, third, progress=False)
    unfence_catalog(catalog.database, new)
    assert lake.write_dataset(ROWS, catalog.dataset("things").uri, catalog=catalog).version == 5


def test_a_copy_that_fails_leaves_no_fence(
    catalog: lake.DatasetCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(copy, "_check", fails)
    with pytest.raises(RuntimeError):
        moved(catalog, tmp_path)
    assert lake.write_dataset(ROWS, catalog.dataset("things").uri, catalog=catalog).version == 5
    monkeypatch.undo()
    moved(catalog, tmp_path)


def test_a_backup_is_a_catalog_like_any_other(catalog: lake.DatasetCatalog, tmp_path: Path) -> None:
    moved(catalog, tmp_path)
    backup = f"sqlite://{tmp_path}/backup.db"
    with open_catalog(backup) as opened:
        copy_catalog(catalog.database, opened, progress=False)
    lake.write_dataset(ROWS, catalog.dataset("things").uri, catalog=backup)


@pytest.mark.parametrize("first", ["commit", "fence"])
def test_a_running_commit_is_in_the_copy_or_is_refused(
    first: str, catalog: lake.DatasetCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit holds its dataset's lock while the catalog is fenced, or waits for it meanwhile."""
    uri = catalog.dataset("things").uri
    point = "dataset locked" if first == "commit" else "transaction begun"
    there, go_on = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def reach(name: str) -> None:
        if name == point and threading.current_thread() is writer:
            there.set()
            go_on.wait(2 if first == "commit" else 30)

    def write() -> None:
        try:
            lake.write_dataset(ROWS, uri, catalog=catalog.url)
        except Exception as error:
            failures.append(error)

    monkeypatch.setattr(apply, "reach", reach)
    monkeypatch.setattr("lakehouse_source.write.commit.prerecord.reach", reach)
    writer = threading.Thread(target=write)
    writer.start()
    assert there.wait(30)
    if first == "fence" and not catalog.database.is_server:
        go_on.set()  # its transaction has begun: no other one begins
    new = moved(catalog, tmp_path)
    go_on.set()
    writer.join()
    with lake.open_catalog(catalog.url) as old, lake.open_catalog(new) as copied:
        versions = {one.dataset("things").version for one in (old, copied)}
    assert versions == ({4} if failures else {5})
    if catalog.database.is_server:
        assert bool(failures) == (first == "fence")
