"""Malformed requests: the REST catalog refuses each, and tells and changes nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.server import guard
from tests.doors.rest_server import FLIGHTS, TOKEN, named

pytestmark = pytest.mark.slow

TABLE = "/v1/namespaces/default/tables/flights"
LISTS = ("/v1/namespaces", "/v1/namespaces/default/tables")
ODD_NAMES = (
    *("..", ".", "../../etc/passwd", "..\\..", "'; DROP TABLE files; --", "flights' OR '1'='1"),
    *('flights"', "a" * 3000, "\0", "é\U0001f600", "{}", "default\x1fa", "$(id)", "outside.txt"),
    *(" ", "%", "%2e%2e", "flights--", "flights\n", "FLIGHTS ", "-1", "catalog.db", "*", "?", "#"),
)
BODIES = (
    *(b"{", b"[]", b"null", b"3", b'"x"', b"\xff\xfe", b"9" * 10_000, b'{"filter": }', b"{'a': 1}"),
    b'{"filter": ' + b'{"type":"not","child":' * 3000 + b"true" + b"}" * 3001,
    b'{"filter": ' + b'{"type":"not","child":' * 700 + b"true" + b"}" * 701,
    b"[" * 100_000,
    b'{"a":' * 50_000,
    *(b'{"snapshot-id": %s}' % one for one in
      (b'"1"', b"1.5", b"true", b"[]", b"99999999999999999999999", b"-1", b"0", b"77")),
    *(b'{"filter": %s}' % one for one in
      (b"[]", b"7", b'"a"', b"{}", b'{"type": 5}', b'{"type":"and"}', b'{"type":"not"}',
       b'{"type":"or","left":true,"right":null}', b'{"type":"in","term":"month","values":7}',
       b'{"type":"and","left":{"type":"eq"},"right":7}')),
    b'{"start-snapshot-id": 1, "end-snapshot-id": 2}', b'{"case-sensitive": 3}',
    b'{"use-snapshot-schema": "yes"}',
    b'{"filter": {"type":"in","term":"miles","values":[' + b"1," * 700_000 + b"1]}}",
)  # fmt: skip
TOKENS = (
    *("", "e30=", "x", "!!!", "\0", "W10=", "bnVsbA==", "eyJzdGFydCI6IC0xfQ==", "a" * 5000),
    "eyJzdGFydCI6IDF9bm8=",
)


PAGES = (
    *("pageSize=-1", "pageSize=0", "pageSize=x", "pageSize=1e9", "pageSize=", "pageToken=%FF"),
    *("pageToken=a", "pageToken=%00%00%00", "pageToken=____"),
)


class Asked(NamedTuple):
    """A request: `path` is decoded, `query` is not."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def malformed(chance: random.Random) -> Asked:
    """A request that no server should answer with success."""
    pick = chance.choice
    kind = pick(("name", "method", "body", "plan task", "page", "path", "huge", "table body"))
    if kind == "name":
        at = pick((0, 1, 2))
        names = [pick(ODD_NAMES) if at != 1 else "default", pick(ODD_NAMES) if at else "flights"]
        tail = pick(("", "/plan", "/tasks", "/metrics"))
        path = f"/v1/namespaces/{names[0]}/tables/{names[1]}{tail}"
        return Asked("POST" if tail else pick(("GET", "HEAD")), path, body=b"{}" if tail else b"")
    if kind == "method":
        path = pick((TABLE, *LISTS, "/v1/config", f"{TABLE}/plan", "/v1/transactions/commit"))
        methods = ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW", "TRACE", "get"]
        methods += ["GET"] if path.endswith(("/plan", "commit")) else ["POST"]
        return Asked(pick(methods), path, body=pick((b"", b"{}", *BODIES)))
    if kind == "body":
        return Asked("POST", f"{TABLE}/{pick(('plan', 'tasks'))}", body=pick(BODIES))
    if kind == "plan task":
        task = pick((*TOKENS, 5, None, [], {"a": 1}, True))
        return Asked("POST", f"{TABLE}/tasks", body=json.dumps({"plan-task": task}).encode())
    if kind == "page":
        return Asked("GET", pick(LISTS), pick(PAGES))
    if kind == "huge":
        path = pick((f"{TABLE}/plan", f"{TABLE}/metrics", "/v1/config", "/nothing"))
        return Asked(pick(("POST", "PUT")), path, body=b" " * (guard.MOST_BODY_BYTES + 1))
    if kind == "table body":
        return Asked("GET", TABLE, pick(("snapshots=none", "snapshots=%00", "snapshots=")))
    path = "/" + "/".join(pick((*ODD_NAMES, "v1", "v2", "")) for _ in range(chance.randint(1, 6)))
    return Asked(pick(("GET", "POST", "HEAD")), path + "/nothing", body=pick((b"", *BODIES)))


class Answer(NamedTuple):
    status: int
    body: bytes


def check(asked: Asked, answer: Answer) -> None:
    """A refusal with a sentence in JSON, without anything that is nobody's business."""
    about = (asked.method, asked.path[:200], asked.query, asked.body[:100], answer)
    assert 400 <= answer.status < 500, about
    text = answer.body.decode()
    for secret in ("Traceback", 'File "', "canary", "lake.db", "sqlite", TOKEN):
        assert secret not in text, about
    if asked.method != "HEAD":
        error = json.loads(text)["error"]
        assert (error["code"], bool(error["message"])) == (answer.status, True), about


@contextmanager
def in_process(catalog: str | lake.Catalog) -> Iterator[Callable[[Asked], Answer]]:
    """Asks the application as a server does."""
    application = lake.server.app(catalog, token=TOKEN)

    def ask(asked: Asked) -> Answer:
        headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
        headers += [(b"content-type", b"application/json")]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": asked.method, "path": asked.path, "raw_path": quote(asked.path).encode(),
            "root_path": "", "query_string": asked.query.encode(), "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        }  # fmt: skip
        given: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": asked.body}]
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        loop.run_until_complete(application(scope, receive, send))
        body = b"".join(one.get("body", b"") for one in sent[1:])
        return Answer(sent[0]["status"], body)

    with closing(asyncio.new_event_loop()) as loop:
        yield ask


def _files(folder: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and "-journal" not in path.name and "-wal" not in path.name
    }


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lake.Catalog]:
    (tmp_path / "outside.txt").write_text("canary-file")
    url = f"sqlite:///{tmp_path}/lake.db"
    with lake.open_catalog(url, warehouse=str(tmp_path / "warehouse")) as opened:
        dataset = named(opened, "flights", FLIGHTS)
        dataset.export_iceberg()
        yield opened


LONG = [pytest.param(1, 1000, marks=pytest.mark.long), (7, 150)]


@pytest.mark.parametrize(("seed", "count"), LONG)
def test_malformed_requests_are_refused(
    catalog: lake.Catalog, tmp_path: Path, seed: int, count: int
) -> None:
    before = _files(tmp_path)
    chance = random.Random(seed)
    with in_process(catalog) as ask:
        for _ in range(count):
            asked = malformed(chance)
            check(asked, ask(asked))
        assert ask(Asked("GET", TABLE)).status == 200
    assert _files(tmp_path) == before


class Process:
    """A server as a process of its own. `told` is what it wrote, once it has ended."""

    def __init__(self, url: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  a pipe that nobody reads fills up
        command = [sys.executable, "-m", "lakehouse_source.cli", "serve", "--catalog", url]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port), "--token", "env:PLAKE_TEST_TOKEN"],
            env={**os.environ, "PLAKE_TEST_TOKEN": TOKEN}, stderr=self._log,
        )  # fmt: skip
        self.told = ""
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)
        with self._log:
            self._log.seek(0)
            self.told = self._log.read().decode()

    def ask(self, asked: Asked) -> Answer:
        """Answers that of uvicorn itself, which is no JSON, as JSON."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        path = quote(asked.path, safe="/") + (f"?{asked.query}" if asked.query else "")
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            # A body that is too large is not read to its end.
            with suppress(ConnectionResetError, BrokenPipeError):
                connection.request(asked.method, path, asked.body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())

    def raw(self, text: bytes) -> bytes:
        """What comes back of bytes that are no request, perhaps."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            try:
                while some := connection.recv(65536):
                    found += some
            except ConnectionResetError:
                pass
            return found


RAW = (
    b"\0\0\0\0\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /v1/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://example.com/v1/config HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/config HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\r\n\r\n",
    b"GET /v1/config HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"POST /v1/config HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/config HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    b"POST /v1/config HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/config HTTP/9.9\r\nHost: a\r\n\r\n",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "count"), [pytest.param(2, 1000, marks=pytest.mark.long), (8, 60)]
)
def test_a_process_refuses_malformed_requests(
    catalog: lake.Catalog, tmp_path: Path, seed: int, count: int
) -> None:
    before = _files(tmp_path)
    chance = random.Random(seed)
    with Process(catalog.url) as server:
        for _ in range(count):
            asked = malformed(chance)
            check(asked, server.ask(asked))
        for text in RAW:
            found = server.raw(text)
            # None has the token.
            assert not found or found.split()[1][:1] == b"4", (text[:100], found[:300])
            assert b"Traceback" not in found
            assert b"canary" not in found
        assert server.ask(Asked("GET", TABLE)).status == 200
    assert TOKEN not in server.told
    assert _files(tmp_path) == before


def test_a_name_is_no_path(catalog: lake.Catalog, tmp_path: Path) -> None:
    """A folder beside the catalog with a table of its own is not served."""
    lake.write_dataset(pa.table({"secret": ["canary-row"]}), tmp_path / "beside")
    with in_process(catalog) as ask:
        for name in ("beside", "../beside", str(tmp_path / "beside"), f"file://{tmp_path}/beside"):
            asked = Asked("GET", f"/v1/namespaces/default/tables/{name}")
            check(asked, ask(asked))


def test_the_whole_token_is_compared_however_much_of_it_is_right(
    catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(guard.hmac, "compare_digest", compare)
    with in_process(catalog) as ask:
        assert ask(Asked("GET", TABLE)).status == 200
    ((given, known),) = compared
    assert TOKEN.encode() not in (given, known)
    assert len(given) == len(known) == 32


def test_a_catalog_that_cannot_be_used_is_503(catalog: lake.Catalog, tmp_path: Path) -> None:
    with in_process(catalog.url) as ask:
        assert ask(Asked("GET", "/health")).status == 200
        (tmp_path / "lake.db").write_bytes(b"no database" * 1000)
        for path in ("/health", TABLE, "/v1/namespaces"):
            answer = ask(Asked("GET", path))
            assert answer.status == 503, answer
            assert "lake.db" not in answer.body.decode()
