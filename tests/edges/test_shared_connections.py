"""The connections to one server that all catalogs of a process share, on a real server."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import open_catalog
from lakehouse_source.catalog.backends import postgres_connections as server_connections
from lakehouse_source.catalog.backends.postgres_connections import shared_connections
from tests.postgres_server import PostgresServer

# Python 3.12 and later warn of forks in a process with threads: that is what is tested.
pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.slow]

DATASETS, THREADS = 1000, 32
ROWS = pa.table({"id": [1]})


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    shared_connections.close_all()
    yield postgres_server.new_catalog()
    shared_connections.close_all()


class Watched:
    """The largest number of connections to one database that was seen while a block ran."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._asking = psycopg.connect(server.url(), autocommit=True)
        self._database = url.rpartition("/")[2].partition("?")[0]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.most = 0

    def now(self) -> int:
        asked = b"SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        row = self._asking.execute(asked, (self._database,)).fetchone()
        assert row is not None
        return int(row[0])

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.most = max(self.most, self.now())

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.most = max(self.most, self.now())
        self._asking.close()


@pytest.mark.long
def test_a_thousand_open_datasets_leave_the_server_to_others(
    url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    where = [str(tmp_path / str(number)) for number in range(10)]
    for path in where:
        lake.write_dataset(ROWS, path, catalog=url)

    def opened(number: int) -> lake.Dataset:
        return lake.open_dataset(where[number % len(where)], catalog=url)

    with Watched(postgres_server, url) as seen, ThreadPoolExecutor(THREADS) as pool:
        datasets = list(pool.map(opened, range(DATASETS)))
        counts = list(pool.map(lambda one: one.scan().count_rows(), datasets))
        assert counts == [1] * DATASETS
        written = list(pool.map(lambda one: _append(one.uri, url), datasets[:40]))
    assert len(written) == 40
    assert seen.most <= 4


def _append(uri: str, url: str) -> int:
    return lake.write_dataset(ROWS, uri, catalog=url).version


@pytest.mark.parametrize("most", [1, 2])
def test_a_thread_never_waits_for_itself(
    most: int, url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_CATALOG_CONNECTIONS", str(most))
    monkeypatch.setattr(server_connections, "WAIT_SECONDS", 20.0)
    together = threading.Barrier(most)

    def nested(number: int) -> int:
        # Another catalog object, as a dataset that is opened in a transaction of the program.
        with open_catalog(url) as outer, open_catalog(url) as inner:
            for _ in range(5):
                with outer.read() as reader:
                    if number < most:
                        together.wait(10)
                    with inner.write() as transaction:
                        transaction.mark_abandoned(3600)
                    assert list(reader.datasets()) == []
        return number

    with Watched(postgres_server, url) as seen:
        with ThreadPoolExecutor(most) as pool:
            assert list(pool.map(nested, range(most))) == list(range(most))
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(nested, range(most, 24))) == list(range(most, 24))
    assert seen.most <= 2 * most


def test_a_transaction_while_rows_are_read_works_with_one_connection(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_CATALOG_CONNECTIONS", "1")
    where = str(tmp_path / "d")
    lake.write_dataset(ROWS, where, catalog=url)
    dataset = lake.open_dataset(where, catalog=url)
    for batch in dataset.scan().to_batches():
        assert lake.write_dataset(batch, where, catalog=url).version == 2
        with lake.transaction(url) as tx:
            tx.write(batch, where)
    assert lake.open_dataset(where, catalog=url).version == 3


def test_who_waits_for_too_long_is_told_of_the_setting(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_CATALOG_CONNECTIONS", "1")
    monkeypatch.setattr("lakehouse_source.catalog.backends.postgres_connections.WAIT_SECONDS", 0.2)
    refused = pytest.raises(lake.CatalogUnavailableError, match="PLAKE_CATALOG_CONNECTIONS")
    with open_catalog(url) as catalog, catalog.read(), ThreadPoolExecutor(1) as pool, refused:
        pool.submit(lambda: catalog.read().__enter__()).result()


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_number_that_is_none_is_refused(
    text: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_CATALOG_CONNECTIONS", text)
    with pytest.raises(lake.InvalidOptionError, match="whole number"), open_catalog(url) as one:
        one.read().__enter__()


def test_idle_connections_of_open_datasets_go_back(
    url: str, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connections, "KEPT_SECONDS", 0.2)
    lake.write_dataset(ROWS, str(tmp_path / "d"), catalog=url)
    dataset = lake.open_dataset(str(tmp_path / "d"), catalog=url)
    assert dataset.scan().count_rows() == 1
    with Watched(postgres_server, url) as seen:
        give_up = time.monotonic() + 20
        while seen.now() > 0:
            assert time.monotonic() < give_up
            time.sleep(0.1)
        assert dataset.scan().to_table().num_rows == 1


def test_a_fork_in_a_transaction_leaves_the_connection_to_the_parent(url: str) -> None:
    with open_catalog(url) as catalog, catalog.read() as reader:
        mine = reader._session.query("SELECT pg_backend_pid()")
        child = os.fork()
        if child == 0:
            status = 1
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)  # a child that hangs ends
            try:
                with open_catalog(url) as again, again.read() as other:
                    other_one = other._session.query("SELECT pg_backend_pid()")
                status = 0 if other_one != mine else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert reader._session.query("SELECT pg_backend_pid()") == mine
