"""A catalog in another database: nothing of it is lost, and a copy that was interrupted is none."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import lakehouse_source as lake
from lakehouse_source import failpoints
from lakehouse_source.catalog import copy, open_catalog
from lakehouse_source.catalog.copy import copy_catalog
from lakehouse_source.errors import CatalogUnavailableError, InvalidOptionError
from tests import processes

pytestmark = pytest.mark.slow

DATASETS = 20


def dump(path: Path) -> list[str]:
    """Everything in a SQLite database, its sequences too, as SQLite itself tells it."""
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.iterdump())


def filled(folder: Path, datasets: int) -> str:
    """A catalog with all kinds of rows that catalogs have; answers its URL."""
    url = f"sqlite://{folder}/first.db"
    with lake.open_catalog(url, warehouse=folder / "warehouse") as catalog:
        catalog.set_warehouse(folder / "warehouse")
        catalog.create_namespace("sales", properties={"owner": "änn"})
        for number in range(datasets):
            fill(catalog, folder / f"d{number}", number)
        catalog.rename("sales.d0", "sales.First")
        catalog.drop(f"sales.d{datasets - 1}")
    return url


def fill(catalog: lake.DatasetCatalog, path: Path, number: int) -> None:
    rows = {"id": list(range(100)), "p": [i % 2 for i in range(100)], "s": ["x", None] * 50}
    pair = {"txn_app_id": "job", "txn_version": number}
    lake.write_dataset(rows, path, catalog=catalog, partition_by="p", **pair)
    catalog.register(f"sales.{path.name}", path)
    dataset = catalog.dataset(f"sales.{path.name}")
    dataset.delete("id = 3")
    if number % 3 == 0:
        odd = {"id": [1], "p": [1], "s": ["y"]}
        how = {"mode": "overwrite", "overwrite_where": "p = 1"}
        lake.write_dataset(odd, path, catalog=catalog, **how)
    else:
        dataset.add_column("n", dataset.schema.field("id").type)
    dataset.refresh().tag("here", 2)
    dataset.branch("audit").delete("id = 4")
    dataset.add_consumer("billing", version=1)
    if number % 5 == 0:
        dataset.refresh().expire_versions(keep_last=1)
    if number == 0:
        assert processes.run(_dies, catalog.url, str(path)) == -signal.SIGKILL


def _dies(url: str, path: str) -> None:
    """A write that the catalog knows, and that nobody ends."""
    failpoints.arm("files checked")
    lake.write_dataset({"id": [7], "p": [1], "s": ["z"]}, path, catalog=url)


def versions(url: str) -> dict[tuple[str, int], Any]:
    """The rows of each version of each dataset that can be read."""
    found = {}
    with lake.open_catalog(url, create=False) as catalog:
        for entry in catalog.datasets():
            dataset = catalog.dataset((entry.namespace, entry.name))
            for one in dataset.history():
                if dataset.history().is_readable(one):
                    table = dataset.scan(version=one.version).to_table()
                    found[entry.name, one.version] = table.sort_by("id")
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(tmp_path_factory.mktemp("source"), DATASETS)


@pytest.fixture(params=["postgresql", "duckdb"])
def between(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a catalog."""
    if request.param == "duckdb":
        return f"duckdb://{tmp_path}/between.duckdb"
    url: str = request.getfixturevalue("postgres_server").fresh_database()
    return url


def copied(source: str, target: str) -> dict[str, int]:
    with open_catalog(source, create=False) as one, open_catalog(target) as other:
        return copy_catalog(one, other, progress=False).rows


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite://"))


@pytest.mark.long
def test_there_and_back_again_nothing_is_lost(source: str, between: str, tmp_path: Path) -> None:
    back = f"sqlite://{tmp_path}/back.db"
    counts = copied(source, between)
    assert counts == copied(between, back)
    kinds = ("deletion_vectors", "dataset_branches", "pending_writes", "dataset_consumers")
    assert all(counts[table] for table in (*kinds, "dataset_drops", "column_bounds"))
    assert dump(path_of(source)) == dump(tmp_path / "back.db")
    assert versions(between) == versions(source) != {}


def test_the_copy_goes_on_as_the_first_one_would(source: str, between: str, tmp_path: Path) -> None:
    copied(source, between)
    with lake.open_catalog(between, create=False) as catalog:
        assert catalog.warehouse == f"file://{path_of(source).parent}/warehouse"
        dataset = catalog.dataset("sales.FIRST")
        assert dict(dataset.branches()) == {"audit": 4}
        version = dataset.version
        rows = {"id": [1], "p": [1], "s": [""]}
        again = {"txn_app_id": "job", "txn_version": 0}
        assert lake.write_dataset(rows, dataset.uri, catalog=catalog, **again).version == 1
        assert dataset.refresh().version == version
        catalog.undrop(f"sales.d{DATASETS - 1}")
        with catalog.read() as reader:
            before = max(file.id for one in reader.datasets() for file in
                         reader.files(one.id, one.current_version))  # fmt: skip
        assert lake.write_dataset(rows, dataset.uri, catalog=catalog).version == version + 1
        assert dataset.refresh().verify(checksums=True).ok
        with catalog.read() as reader:
            one = next(one for one in reader.datasets() if one.base_uri == dataset.uri)
            assert max(file.id for file in reader.files(one.id, version + 1)) > before
        dataset.restore(version)  # leave the files as the next test has to find them


def test_a_catalog_in_a_folder_knows_the_dataset_by_its_uri_afterwards(tmp_path: Path) -> None:
    lake.write_dataset({"a": [1]}, tmp_path / "d")
    lake.open_dataset(tmp_path / "d").branch("audit").delete("a = 1")
    url = f"sqlite://{tmp_path}/copy.db"
    copied(f"sqlite://{tmp_path}/d/_plake/catalog.db", url)
    assert lake.read_dataset(tmp_path / "d", catalog=url).num_rows == 1
    assert lake.read_dataset(f"{tmp_path}/d#branch=audit", catalog=url).num_rows == 0
    assert lake.open_dataset(tmp_path / "d", catalog=url).verify().ok
    # Back in its place it is the folder's own again.
    os.replace(tmp_path / "copy.db", tmp_path / "d/_plake/catalog.db")
    assert lake.write_dataset({"a": [2]}, tmp_path / "d").version == 2
    os.rename(tmp_path / "d", tmp_path / "e")


def test_a_database_with_a_catalog_is_refused(source: str, tmp_path: Path, between: str) -> None:
    copied(source, between)
    with pytest.raises(InvalidOptionError, match="has a catalog"):
        copied(source, between)
    taken = tmp_path / "taken.db"
    taken.write_bytes(b"")
    for url in (source, f"sqlite://{taken}"):
        with pytest.raises(InvalidOptionError, match="has a catalog"):
            copied(source, url)
    assert taken.read_bytes() == b""


def _killed(source: str, target: str) -> None:
    copy._check = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    copied(source, target)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgresql"])
def test_a_copy_that_was_killed_leaves_nothing_that_opens(
    source: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is killed when all rows are in, and none is compared."""
    if kind == "postgresql":
        url = request.getfixturevalue("postgres_server").fresh_database()
    else:
        url = f"{kind}://{tmp_path}/target.db"
    assert processes.run(_killed, source, url) == -signal.SIGKILL
    with pytest.raises((CatalogUnavailableError, lake.DatasetNotFoundError)):
        open_catalog(url, create=False).read().__enter__()
    if kind == "postgresql":
        with psycopg.connect(url) as asking:
            tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
            assert asking.execute(tables).fetchone() == (0,)
    assert copied(source, url)["datasets"] == 2 * DATASETS


def test_a_row_that_came_out_otherwise_ends_the_copy(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakehouse_source.catalog.backends.sqlite import _SqliteSession

    insert = _SqliteSession.insert

    def bad(self: Any, table: str, columns: Any, rows: Any) -> None:
        if table == "dataset_tags":
            rows = [(*row[:2], row[2] + 1, *row[3:]) for row in rows]
        insert(self, table, columns, rows)

    monkeypatch.setattr(_SqliteSession, "insert", bad)
    with pytest.raises(CatalogUnavailableError, match="dataset_tags differs"):
        copied(source, f"sqlite://{tmp_path}/target.db")
    assert not list(tmp_path.iterdir())


def _writes(url: str, path: str, number: int, stop: str) -> None:
    count = 0
    while not os.path.exists(stop):
        lake.write_dataset({"w": [number], "n": [count]}, path, catalog=url)
        count += 1


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Callable[..., None]]:
    started: list[Any] = []
    stop = tmp_path / "stop"

    def start(url: str, path: str) -> None:
        started.extend(processes.start(_writes, url, path, i, str(stop)) for i in range(2))

    yield start
    stop.touch()
    for process in started:
        process.join(60)
        assert process.exitcode == 0, "a writer failed"
        process.close()


def test_a_backup_while_others_write_opens_and_verifies(
    tmp_path: Path, writers: Callable[..., None]
) -> None:
    url, path = f"sqlite://{tmp_path}/lake.db", str(tmp_path / "d")
    lake.write_dataset({"w": [9], "n": [0]}, path, catalog=url)
    writers(url, path)
    seen = [0]
    for number in range(4):
        end = time.monotonic() + 60
        while lake.open_dataset(path, catalog=url).version < seen[-1] + 3:
            assert time.monotonic() < end, "the writers went on"
            time.sleep(0.05)
        target = f"sqlite://{tmp_path}/backup{number}.db"
        copied(url, target)
        dataset = lake.open_dataset(path, catalog=target)
        assert dataset.verify(checksums=True).ok
        assert [one.version for one in dataset.history()] == list(range(dataset.version, 0, -1))
        assert dataset.scan().count_rows() == dataset.version
        for writer in (0, 1):  # what each has written, without a gap
            rows = dataset.scan(f"w = {writer}").to_table()["n"].to_pylist()
            assert sorted(rows) == list(range(len(rows)))
        seen.append(dataset.version)
    assert seen == sorted(set(seen))


@pytest.mark.long
def test_a_hundred_thousand_files_come_over(tmp_path: Path, postgres_server: Any) -> None:
    lake.write_dataset({"a": [1], "b": ["x"]}, tmp_path / "d", catalog=f"sqlite://{tmp_path}/1.db")
    many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
    with closing(sqlite3.connect(tmp_path / "1.db")) as raw:
        for table, changed in (
            ("files", {"id": "id + i", "file_path": "file_path || '-' || i"}),
            ("row_groups", {"id": "id + i", "file_id": "file_id + i"}),
            ("column_bounds", {"file_id": "file_id + i"}),
        ):
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            values = [changed.get(name, name) for name in columns]
            raw.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) {many} "
                f"SELECT {', '.join(values)} FROM {table}, n"
            )
        raw.commit()
    pg = postgres_server.fresh_database()
    started = time.monotonic()
    assert copied(f"sqlite://{tmp_path}/1.db", pg)["files"] == 100_001
    copied(pg, f"sqlite://{tmp_path}/2.db")
    print(f"there and back in {time.monotonic() - started:.1f} s")
    assert dump(tmp_path / "1.db") == dump(tmp_path / "2.db")
