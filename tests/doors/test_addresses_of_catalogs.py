"""A row of a catalog names a host: no door sends anything there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pyarrow as pa
import pytest
from fsspec.spec import AbstractFileSystem

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError, PlakeError, StorageError
from lakehouse_source.spark.session.catalog_request import Place
from lakehouse_source.storage import Storage, StorageLocation, UriOfCatalog
from tests.doors.plake_command import plake
from tests.doors.rest_server import client_of
from tests.edges.asking_server import AskingServer, asking_server

CANARY = "CANARY-77d1"
ROWS = pa.table({"n": [1, 2]})
REFUSED = "from the catalog|that the catalog names|that a query names"
KEYS = {"AWS_SESSION_TOKEN": CANARY, "AWS_ACCESS_KEY_ID": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY}
ADDRESSES = {
    "s3": "s3://b/x?endpoint_override={}&scheme=http&region=x",
    "s3 by its bucket": "s3://{}/x",
    "s3 with a user": "s3://u:p@b/x",
    "gs": "gs://b/x?endpoint_override={}&scheme=http",
    "abfs": "abfs://c@{}/x",
    "ftp": "ftp://{}/x",
    "sftp": "sftp://u@{}/x",
    "http": "http://{}/x",
    "webhdfs": "webhdfs://{}/x",
    "another protocol": "hf://datasets/{}/x",
    "no URI": "s3://[{}/x",
}


class Poisoned(NamedTuple):
    """A catalog of three tables, of which `t` is somewhere else by its row."""

    url: str
    server: AskingServer

    def put(self, address: str) -> str:
        """Write the row of `t`, and the warehouse."""
        uri = address.format(f"127.0.0.1:{self.server.port}")
        with lake.open_catalog(self.url) as catalog, catalog.write() as tx:
            tx._session.execute(
                "UPDATE datasets SET base_uri = ? WHERE base_uri LIKE '%/t'", (uri,)
            )
            tx._session.execute(
                "UPDATE catalog_settings SET value = ? WHERE name = 'warehouse'", (uri,)
            )
        return uri


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Poisoned]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    url = f"sqlite:///{tmp_path}/c.db"
    with lake.open_catalog(url, create=True) as catalog:
        catalog.set_warehouse(tmp_path / "w")
        for name in ("a", "t", "z"):
            made = catalog.create_dataset(name, ROWS.schema)
            for mode in ("append", "overwrite"):
                lake.write_dataset(ROWS, made.uri, catalog=catalog, mode=mode)
            lake.open_dataset(made.uri, catalog=catalog).expire_versions(keep_last=1)
    with asking_server() as server:
        yield Poisoned(url, server)


def _refused(act: Callable[[], Any]) -> None:
    with pytest.raises(InvalidOptionError, match=f"{REFUSED}|cannot be read as a URI"):
        act()


def _by_catalog(url: str, act: Callable[[lake.DatasetCatalog], Any]) -> None:
    with lake.open_catalog(url) as catalog:
        _refused(lambda: act(catalog))


def _command(url: str, *words: object) -> None:
    done = plake(*words, "--catalog", url, **KEYS)
    assert done.code not in (0, 70), done
    assert "Traceback" not in done.err
    assert "host" in done.err or "catalog" in done.err or "URI" in done.err


def _served(url: str) -> None:
    with lake.open_catalog(url) as catalog, client_of(catalog) as client:
        path = "/v1/namespaces/default/tables/"
        assert client.get(f"{path}a").status_code == 200
        assert client.get(f"{path}t").status_code in range(400, 500)
        assert client.post(f"{path}t/plan", json={}).status_code in range(400, 500)


def _spark(url: str) -> None:
    with lake.open_catalog(url) as catalog:
        _refused(Place(catalog.locate("t"), url, {}).address)


def _vacuum(url: str) -> None:
    now = {"retention_seconds": 0, "allow_short_retention": True}
    report = lake.vacuum(url, **now)
    assert len(report.failed) == 1
    assert report.files_removed == 2


def _purge(url: str) -> None:
    with lake.open_catalog(url) as catalog:
        with pytest.raises(PlakeError):
            catalog.drop("t", purge=True)
        catalog.drop("a")
        with pytest.raises(PlakeError):
            catalog.finish_drops()


# Every way from a row of a catalog to a store.
DOORS: dict[str, Callable[[str], None]] = {
    "catalog.dataset": lambda url: _by_catalog(url, lambda c: c.dataset("t")),
    "open_dataset": lambda url: _refused(lambda: lake.open_dataset("t", catalog=url)),
    "located": lambda url: _by_catalog(url, lambda c: lake.open_dataset(c.locate("t"), catalog=c)),
    "listed": lambda url: _by_catalog(
        url, lambda c: [lake.open_dataset(one.uri, catalog=c) for one in c.datasets()]
    ),
    "a branch": lambda url: _refused(lambda: lake.open_dataset("t#branch=b", catalog=url)),
    "read_dataset": lambda url: _refused(lambda: lake.read_dataset("t", catalog=url)),
    "write_dataset": lambda url: _refused(lambda: lake.write_dataset(ROWS, "t", catalog=url)),
    "the warehouse": lambda url: _by_catalog(url, lambda c: c.create_dataset("new", ROWS.schema)),
    "vacuum": _vacuum,
    "purge": _purge,
    "plake history": lambda url: _command(url, "history", "t"),
    "plake health": lambda url: _command(url, "health", "t"),
    "plake maintain": lambda url: _command(url, "maintain", "t", "--yes"),
    "plake serve": _served,
    "Spark": _spark,
}


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(3)
def test_no_door_goes_to_a_host_that_a_row_of_the_catalog_names(
    poisoned: Poisoned, door: str, address: str
) -> None:
    """Plain Python, the command line and the server sent the session token there."""
    poisoned.put(ADDRESSES[address])
    DOORS[door](poisoned.url)
    assert poisoned.server.clients == 0


def test_a_run_over_a_catalog_sends_no_password_and_goes_on(poisoned: Poisoned) -> None:
    poisoned.put("ftp://{}/x")
    done = plake(
        *("vacuum-catalog", "--catalog", poisoned.url, "--yes", "--output", "json"),
        *("--retention-seconds", 0, "--allow-short-retention"),
        *("--storage", "password=env:PLAKE_KEY", "--storage", "username=me"),
        PLAKE_KEY=CANARY,
    )
    assert "Traceback" not in done.err, done
    assert "PLAKE_HOSTS_ALLOWED" in done.out + done.err
    assert poisoned.server.clients == 0


@pytest.mark.parametrize(
    ("uri", "options", "variables"),
    [
        ("s3://bucket/key", {"endpoint_override": "minio:9000", "access_key": "x"}, {}),
        ("s3://my.bucket-1/a b/%20", {}, {}),
        ("gs://bucket/key", {"endpoint_override": "emulator:1"}, {}),
        ("abfs://c@a.dfs.core.windows.net/x", {"account_key": "x"}, {}),
        ("abfs://c@a.dfs.core.windows.net/x", {"account_name": "a", "sas_token": "x"}, {}),
        ("abfs://c@a.azurite:1/x", {"sas_token": "x"}, {"PLAKE_HOSTS_ALLOWED": "a.azurite"}),
        ("ftp://files/x", {"host": "files"}, {}),
        ("ftp://files:21/x", {}, {"PLAKE_HOSTS_ALLOWED": "files"}),
        ("https://files/x", {}, {"PLAKE_HOSTS_ALLOWED": "files:443,files"}),
        ("oss://bucket/x", {}, {"PLAKE_PROTOCOLS_ALLOWED": "oss"}),
        ("hdfs://cluster/x", {}, {}),
        ("memory://x/y", {}, {}),
        ("file:///x/y", {}, {}),
    ],
)
def test_what_the_program_named_is_permitted(
    uri: str,
    options: dict[str, str],
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert StorageLocation.of(UriOfCatalog(uri), options).given == uri


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("abfs://c@a.dfs.core.windows.net/x", {"sas_token": "x"}),
        ("ftp://files/x", {"host": "other"}),
        ("ftp://files@evil/x", {"host": "files"}),
        ("oss://bucket/x", {"endpoint": "oss"}),
    ],
)
def test_what_it_did_not_name_is_not(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOptionError, match=REFUSED):
        StorageLocation.of(UriOfCatalog(uri), options)
    if not uri.startswith("ftp"):
        StorageLocation.of(uri, options)  # the program itself may name anything


@contextmanager
def refusing_ftp() -> Iterator[int]:
    """A server of FTP that lets nobody in; its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.sendall(b"220 hello\r\n")
                while client.recv(4096):
                    client.sendall(b"530 no\r\n")

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()


def test_a_store_whose_driver_has_errors_of_its_own_does_not_end_a_run(
    poisoned: Poisoned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ftplib.error_perm` is not even an OSError, and ended `vacuum-catalog` with a traceback."""
    with refusing_ftp() as port:
        poisoned.put(f"ftp://127.0.0.1:{port}/x")
        monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", f"127.0.0.1:{port}")
        with pytest.raises(StorageError, match="530 no"):
            Storage(f"ftp://127.0.0.1:{port}/x")
        _vacuum(poisoned.url)
        with lake.open_catalog(poisoned.url) as catalog, pytest.raises(PlakeError):
            catalog.drop("t", purge=True)


class Broken(AbstractFileSystem):
    """A driver that fails as no driver should."""

    protocol = "broken"

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise KeyError(CANARY)

    info = ls = find = _open = open = exists = isfile = rm_file = rm = makedirs = mkdir = _fail


OPERATIONS: dict[str, Callable[[Storage], Any]] = {
    "size": lambda storage: storage.size("x"),
    "open_input": lambda storage: storage.open_input("x"),
    "open_output": lambda storage: storage.open_output("x").close(),
    "delete": lambda storage: storage.delete("x"),
    "files": lambda storage: list(storage.files()),
    "names_in": lambda storage: storage.names_in("x"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_error_of_a_driver_is_one_of_plake(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_PROTOCOLS_ALLOWED", "broken")
    fsspec.register_implementation("broken", Broken, clobber=True)
    storage = Storage(StorageLocation.of("broken://b/x", {"token": CANARY}))
    with pytest.raises(StorageError) as caught:
        OPERATIONS[operation](storage)
    assert CANARY not in str(caught.value) + repr(caught.value.__cause__)


def test_the_uri_of_a_row_stays_one_with_a_branch() -> None:
    """So that no step between the row and the store makes it the program's own."""
    from lakehouse_source.storage import split_branch, with_branch

    uri = with_branch(UriOfCatalog("ftp://files/x"), "b")
    assert isinstance(uri, UriOfCatalog)
    assert isinstance(split_branch(uri)[0], UriOfCatalog)
