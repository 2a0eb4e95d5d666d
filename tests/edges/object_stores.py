"""Real servers of object stores on loopback; tests skip those that are not installed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.fs as pafs
import pytest

ROOT = Path(__file__).parents[2]
_numbers = count(1)

# The account that every Azurite has. The key is public.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class ObjectStore:
    """A store: URIs in it, the options to reach it, and another client, which is the oracle."""

    name: str
    base: str
    options: dict[str, Any]
    client: pafs.FileSystem
    root: str

    def objects(self, path: str) -> dict[str, int]:
        """Every object of datasets below a path, with its size, as the other client lists them."""
        root = f"{self.root}/{path}"
        selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)
        return {
            info.path[len(root) + 1 :]: info.size
            for info in self.client.get_file_info(selector)
            if info.type == pafs.FileType.File and "/_plake/owner-" not in info.path
        }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def s3_server() -> Iterator[int]:
    """The port of an S3 server that lives in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        _, port = running.get_host_and_port()
        try:
            yield port
        finally:
            running.stop()


@contextmanager
def s3() -> Iterator[ObjectStore]:
    with s3_server() as port:
        bucket = f"bucket-{next(_numbers)}"
        options = {
            "access_key": "user",
            "secret_key": "canary-secret",
            "region": "us-east-1",
            "endpoint_override": f"http://127.0.0.1:{port}",
        }
        client = pafs.S3FileSystem(allow_bucket_creation=True, **options)
        client.create_dir(bucket)
        yield ObjectStore("s3", f"s3://{bucket}", options, client, bucket)


# Not in this process: PyArrow's client of GCS holds Python's lock in some calls, and a server
# that needs it would never answer. One thread per connection, since clients keep theirs open.
_GCS_SERVER = """
import http.server, sys
http.server.HTTPServer = http.server.ThreadingHTTPServer
from gcp_storage_emulator.server import create_server
create_server("127.0.0.1", int(sys.argv[1]), in_memory=True).run()
"""


@contextmanager
def gcs() -> Iterator[ObjectStore]:
    pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator is not installed")
    port = free_port()
    with process([sys.executable, "-c", _GCS_SERVER, str(port)], port):
        options = {
            "anonymous": True,
            "endpoint_override": f"http://127.0.0.1:{port}",
            "project_id": "test",
            "retry_time_limit": 5,
        }
        client = pafs.GcsFileSystem(
            anonymous=True,
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            project_id="test",
            retry_time_limit=timedelta(seconds=5),
        )
        client.create_dir("bucket")
        yield ObjectStore("gcs", "gs://bucket", options, client, "bucket")


def azurite() -> str | None:
    """The program of Azure's emulator: npm installs it, `make integration` for example."""
    installed = ROOT / "integration" / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
    for found in (os.environ.get("PLAKE_AZURITE"), str(installed), "azurite-blob"):
        if found and shutil.which(found):
            return found
    return None


@contextmanager
def azure(folder: Path) -> Iterator[ObjectStore]:
    program = azurite()
    if program is None:
        pytest.skip(
            "azurite is not installed: npm install --prefix integration/.azurite azurite@3.37.0"
        )
    port = free_port()
    command = [program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck"]
    command += ["--disableTelemetry", "--blobPort", str(port)]
    with process(command, port):
        place = f"127.0.0.1:{port}"
        options = {
            "account_name": AZURE_ACCOUNT,
            "account_key": AZURE_KEY,
            "blob_storage_authority": place,
            "dfs_storage_authority": place,
            "blob_storage_scheme": "http",
            "dfs_storage_scheme": "http",
        }
        client = pafs.AzureFileSystem(**options)
        client.create_dir("container")
        yield ObjectStore("azure", "abfs://container", options, client, "container")


def account_signature() -> str:
    """A shared access signature that allows everything for an hour.

    Source: Microsoft, "Create an account SAS", string to sign of version 2020-12-06.
    """
    until = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    version, rights, services, kinds = "2021-08-06", "rwdlac", "b", "sco"
    fields = (AZURE_ACCOUNT, rights, services, kinds, "", until, "", "https,http", version, "", "")
    digest = hmac.new(base64.b64decode(AZURE_KEY), "\n".join(fields).encode(), hashlib.sha256)
    parts = {"sv": version, "ss": services, "srt": kinds, "sp": rights, "se": until}
    parts |= {"spr": "https,http", "sig": base64.b64encode(digest.digest()).decode()}
    return urlencode(parts)


@contextmanager
def process(command: list[str], port: int) -> Iterator[None]:
    """A server in a process of its own, once it listens."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            assert running.poll() is None, f"{command[0]} ended"
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"{command[0]} does not listen")
        yield
    finally:
        running.terminate()
        running.wait()


@contextmanager
def memory() -> Iterator[ObjectStore]:
    import fsspec

    client = pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("memory")))
    name = f"plake-{next(_numbers)}"
    yield ObjectStore("memory", f"memory://{name}", {}, client, f"/{name}")


@contextmanager
def local(folder: Path) -> Iterator[ObjectStore]:
    yield ObjectStore("local", str(folder), {}, pafs.LocalFileSystem(), str(folder))


STORES: dict[str, Callable[[Path], Any]] = {
    "local": local,
    "memory": lambda _folder: memory(),
    "s3": lambda _folder: s3(),
    "gcs": lambda _folder: gcs(),
    "azure": azure,
}
