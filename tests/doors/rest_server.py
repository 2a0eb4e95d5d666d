"""A REST catalog that runs in a thread of the tests, and clients of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import requests
import uvicorn
from pyiceberg.catalog import load_catalog

import lakehouse_source as lake
from lakehouse_source.server.run import configuration

TOKEN = "canary-token-4711"
FLIGHTS = pa.table({"month": [1, 1, 2, 3], "carrier": ["UA", "AA", None, "UA"], "miles": range(4)})


def named(catalog: lake.Catalog, name: str, table: pa.Table, **options: Any) -> lake.Dataset:
    made = catalog.create_dataset(name, table.schema, **options)
    lake.write_dataset(table, made.uri, catalog=catalog)
    return lake.open_dataset(made.uri, catalog=catalog)


@contextmanager
def served(catalog: lake.Catalog, **options: Any) -> Iterator[str]:
    """A real server on a port of this machine; its address."""
    config = configuration(lake.server.app(catalog, **options), port=0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


class Client:
    """Sends requests to a server."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        return requests.request(method, self._uri + path, timeout=60, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.request("GET", path, **options)

    def head(self, path: str) -> requests.Response:
        return self.request("HEAD", path)

    def post(self, path: str, **options: Any) -> requests.Response:
        return self.request("POST", path, **options)


@contextmanager
def client_of(catalog: lake.Catalog, **options: Any) -> Iterator[Client]:
    with served(catalog, **options) as uri:
        yield Client(uri)


def client_catalog(uri: str, mode: str) -> Any:
    """PyIceberg, which plans by manifests (`client`) or by `/plan` (`server`)."""
    return load_catalog("p", type="rest", uri=uri, **{"scan-planning-mode": mode, "token": TOKEN})
