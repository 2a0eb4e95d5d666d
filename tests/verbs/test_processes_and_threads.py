"""A dataset in other processes and threads: pickled, forked, spawned, shared."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from tests.postgres_server import PostgresServer

# Python 3.12 and later warn of forks in a process with threads: that is what is tested.
pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.slow]

CANARY = "CANARY-25c0"
ROWS = pa.table({"id": list(range(100))})


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog as `env:NAME`."""
    if request.param == "sqlite":
        url = f"sqlite://{tmp_path}/catalog.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.fresh_database(CANARY)
    monkeypatch.setenv("PLAKE_LAKE", url)
    return "env:PLAKE_LAKE"


@pytest.fixture
def dataset(catalog: str, tmp_path: Path) -> lake.Dataset:
    lake.write_dataset(ROWS, str(tmp_path / "d"), catalog=catalog)
    return lake.open_dataset(str(tmp_path / "d"), catalog=catalog)


def _count(one: Any) -> int:
    found = one.scan("id < 50") if isinstance(one, lake.Dataset) else one
    return int(found.to_table().num_rows)


def _append(dataset: lake.Dataset) -> int:
    return lake.write_dataset(ROWS, dataset.uri, catalog="env:PLAKE_LAKE").version


PICKLED: dict[str, Callable[[lake.Dataset], Any]] = {
    "dataset": lambda dataset: dataset,
    "scan": lambda dataset: dataset.scan("id < 50"),
    "branch": lambda dataset: dataset.branch("b"),
}


@pytest.mark.parametrize("kind", PICKLED)
def test_it_is_pickled_by_the_name_of_the_variable(kind: str, dataset: lake.Dataset) -> None:
    thing = PICKLED[kind](dataset)
    packed = pickle.dumps(thing)
    assert CANARY.encode() not in packed
    assert _count(pickle.loads(packed)) == _count(thing) == 50
    assert _count(pickle.loads(pickle.dumps(pickle.loads(packed)))) == 50


def test_the_default_of_the_environment_is_pickled_by_its_name(
    dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_CATALOG", os.environ["PLAKE_LAKE"])
    packed = pickle.dumps(lake.open_dataset(dataset.uri))
    assert CANARY.encode() not in packed
    assert _count(pickle.loads(packed)) == 50


def test_a_password_in_the_url_is_not_pickled_and_the_error_says_how(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.fresh_database(CANARY)
    lake.write_dataset(ROWS, str(tmp_path), catalog=url)
    dataset = lake.open_dataset(str(tmp_path), catalog=url)
    assert dataset.branch("b").scan().count_rows() == 100  # which is not pickled
    for thing in (dataset, dataset.scan()):
        with pytest.raises(lake.PlakeError, match="catalog='env:PLAKE_NAME'") as caught:
            pickle.dumps(thing)
        assert CANARY not in str(caught.value) + repr(vars(caught.value))


def test_a_url_without_a_password_is_pickled(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.fresh_database()
    lake.write_dataset(ROWS, str(tmp_path), catalog=url)
    with lake.open_catalog(url) as opened:
        for catalog in (url, opened):
            dataset = lake.open_dataset(str(tmp_path), catalog=catalog)
            assert _count(pickle.loads(pickle.dumps(dataset))) == 50


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_and_write_it(method: str, dataset: lake.Dataset) -> None:
    pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method))
    try:
        assert list(pool.map(_count, [dataset] * 4, timeout=120)) == [50] * 4
        assert sorted(pool.map(_append, [dataset] * 4, timeout=120)) == [2, 3, 4, 5]
    finally:
        for process in pool._processes.values():
            process.kill()  # one that hangs would keep this process for ever
        pool.shutdown()
    assert dataset.refresh().version == 5


def test_threads_share_one(dataset: lake.Dataset) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(_count, [dataset] * 40)) == [50] * 40
        assert sorted(pool.map(_append, [dataset] * 8)) == list(range(2, 10))


@pytest.mark.long
def test_children_that_are_forked_while_threads_use_a_sqlite_catalog_do_not_hang(
    tmp_path: Path,
) -> None:
    catalog = f"sqlite://{tmp_path}/catalog.db"
    lake.write_dataset(ROWS, str(tmp_path / "d"), catalog=catalog)
    done = subprocess.run(
        [sys.executable, "-m", "tests.verbs.fork_under_load", catalog, "200"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[:3] == ["200", "0", "0"]


def test_a_fork_waits_for_other_threads_and_not_for_itself(tmp_path: Path) -> None:
    catalog = f"sqlite://{tmp_path}/catalog.db"
    lake.write_dataset(ROWS, str(tmp_path / "d"), catalog=catalog)
    left = threading.Event()
    entered = threading.Event()

    def read() -> None:
        with lake.open_catalog(catalog) as opened, opened.read() as reader:
            entered.set()
            assert len(reader.datasets()) == 1
            time.sleep(0.3)
            left.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert entered.wait(10)
    with lake.open_catalog(catalog) as mine, mine.read():
        child = os.fork()
        if child == 0:
            os._exit(0)
    assert left.is_set()
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
