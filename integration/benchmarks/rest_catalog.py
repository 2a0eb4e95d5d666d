"""Tables through the REST catalog, as clients of Iceberg ask for them.

`plake serve` is a process of its own, on the loopback interface, with a catalog in SQLite; times
are those of its clients. The tables with 10,000 and 100,000 files are those of the planning family:
ten row groups for each file, and no data file but the one that a question reads.

- `GET` of a table: unchanged, with its ETag; first, when no manifest was written, by a new server;
  and after one more commit of one file.
- `/plan` of a point, another one each time, on a connection that stays open.
- PyIceberg: a scan of a point to Arrow, by `/plan` and by manifests, the table loaded before.
- DuckDB 1.5.5: Q1 and Q6 of TPC-H over the table by its name, and over the same files by theirs; it
  runs in an environment of its own, which integration/iceberg_clients.py makes.
- Load: 16 connections together send 200 requests a second, in turn a table, a table with its ETag
  and a `/plan` of a point, among 10,000 files. A time begins when a request was due.

    python -m integration.benchmarks --only engines
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakehouse_source as lake
from integration import iceberg_clients
from integration.benchmarks import data, engine_reads, planning, python_reads
from integration.benchmarks.measure import (
    Result,
    Scale,
    agree,
    data_folder,
    interleaved,
    run_folder,
    seconds,
)

FAMILY = "engines"
OURS = "plake serve"
TABLE = "/v1/namespaces/default/tables/things"
CLIENTS, REQUESTS_PER_SECOND = 16, 200


class Server:
    """A process of `plake serve`."""

    def __init__(self, catalog: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "lakehouse_source.cli", "serve", "--catalog", catalog]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)], stderr=subprocess.DEVNULL
        )
        while not self._answers():
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), contextlib.closing(self.connect()) as connection:
            return ask(connection, "GET", "/health")[0] == 200
        return False

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def peak_mebibytes(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (one for one in text.splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    document: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, str]:
    """Status, body and ETag of an answer."""
    body = None if document is None else json.dumps(document).encode()
    kind = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, body, kind | (headers or {}))
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.getheader("etag") or ""


def expect(status: int, answer: tuple[int, bytes, str]) -> tuple[int, bytes, str]:
    assert answer[0] == status, answer[:2]
    return answer


def point(files: int, number: int) -> dict[str, Any]:
    """A request for the plan of one row."""
    id = number % (files * planning.GROUPS * planning.ROWS)
    return {"filter": {"type": "eq", "term": "id", "value": id}}


# --- tables ---------------------------------------------------------------------------


def things(folder: Path, files: int) -> str:
    """A catalog with a table of so many files, under a name; its URL."""
    folder.mkdir(parents=True)
    url, uri = f"sqlite:///{folder}/catalog.db", str(folder / "things")
    planning.fill(url, uri, files)
    with lake.open_catalog(url) as catalog:
        catalog.register("things", uri)
    return url


def _folder(url: str) -> str:
    return str(Path(url.removeprefix("sqlite:///")).with_name("things"))


def _copy(url: str, number: int) -> str:
    """The catalog as it was before anybody asked; the table's folder is the same."""
    source = Path(url.removeprefix("sqlite:///"))
    target = source.with_name(f"catalog-{number}.db")
    shutil.copy(source, target)
    return f"sqlite:///{target}"


def _one_more_file(url: str, uri: str) -> None:
    rows = {"id": [-1], "at": [None], "customer": [1], "region": ["r000"]}
    table = pa.table(
        {name: pa.array(rows[name], planning.SCHEMA.field(name).type) for name in rows}
    )
    lake.write_dataset(table, uri, catalog=url)


# --- questions ------------------------------------------------------------------------


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    small, large = (10_000, 100_000) if scale.tpch == 1 else (500, 1_000)
    folder = run_folder() / "engines"
    url = things(folder / "small", small)
    yield from tables(url, small, rounds)
    yield from load(_copy(url, rounds), small, 60.0 if scale.tpch == 1 else 3.0)
    url = things(folder / "large", large)
    yield from plans(url, large, rounds)
    yield from duckdb(scale, rounds)


def tables(url: str, files: int, rounds: int) -> Iterator[Result]:
    times: dict[str, list[float]] = {"first": [], "one more commit": [], "unchanged": []}
    for number in range(rounds):
        copy = _copy(url, number)
        with Server(copy) as server, contextlib.closing(server.connect()) as connection:
            get = partial(ask, connection, "GET", TABLE)
            times["first"].append(seconds(lambda get=get: expect(200, get())))
            _one_more_file(copy, _folder(url))
            times["one more commit"].append(seconds(lambda get=get: expect(200, get())))
            same = partial(get, headers={"If-None-Match": get()[2]})
            some = [seconds(lambda same=same: expect(304, same())) for _ in range(50)]
            times["unchanged"].append(sorted(some)[len(some) // 2])
    for question, values in times.items():
        found = tuple(1000 * one for one in values)
        yield Result(FAMILY, f"GET, {question}", OURS, "ms", found, f"{files:,} files")


def plans(url: str, files: int, rounds: int) -> Iterator[Result]:
    size = f"{files:,} files"
    draw = random.Random(3)
    with Server(url) as server, contextlib.closing(server.connect()) as connection:
        expect(200, ask(connection, "GET", TABLE))
        times = []
        for _ in range(rounds):
            some = []
            for _ in range(20):
                wanted = point(files, draw.randrange(2**62))
                begun = time.perf_counter()
                answer = expect(200, ask(connection, "POST", f"{TABLE}/plan", wanted))
                some.append(time.perf_counter() - begun)
                assert len(json.loads(answer[1])["file-scan-tasks"]) == 1
            times.append(1000 * sorted(some)[len(some) // 2])
        yield Result(FAMILY, "/plan of a point", OURS, "ms", tuple(times), size)
        yield from _pyiceberg(server, url, files, rounds)


def _pyiceberg(server: Server, url: str, files: int, rounds: int) -> Iterator[Result]:
    from pyiceberg.catalog import load_catalog

    id = _make_file(server, url, files // 2)
    loaded = {
        mode: load_catalog(
            mode, type="rest", uri=server.uri, **{"scan-planning-mode": mode}
        ).load_table("default.things")
        for mode in ("client", "server")
    }
    systems = {"client": "PyIceberg by manifests", "server": "PyIceberg by /plan"}

    def scan(mode: str) -> Callable[[], Any]:
        return lambda: loaded[mode].scan(f"id = {id}").to_arrow().to_pylist()

    answer = agree("a point by PyIceberg", {mode: scan(mode) for mode in loaded})
    assert [row["id"] for row in answer] == [id]
    times = interleaved({mode: scan(mode) for mode in loaded}, max(1, rounds // 2))
    for mode, system in systems.items():
        base = None if mode == "client" else systems["client"]
        size = f"{files:,} files"
        yield Result(FAMILY, "scan of a point", system, "s", times[mode], size, base)


def _make_file(server: Server, url: str, number: int) -> int:
    """Write the first rows of one data file of the table; an id that it has."""
    with contextlib.closing(server.connect()) as connection:
        document = json.loads(expect(200, ask(connection, "GET", TABLE))[1])
    fields = document["metadata"]["schemas"][-1]["fields"]
    ids = {field["name"]: field["id"] for field in fields}
    (file,) = planning.synthetic(number, number + 1, ids)
    first = number * planning.GROUPS * planning.ROWS
    schema = pa.schema(
        field.with_metadata({"PARQUET:field_id": str(ids[field.name])})
        for field in planning.SCHEMA
        if field.name != "region"
    )
    columns = [range(first, first + 1000), [None] * 1000, [1] * 1000]
    rows = [pa.array(column, field.type) for column, field in zip(columns, schema)]
    path = Path(_folder(url)) / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(rows, schema=schema), path)
    return first + 7


# --- DuckDB ---------------------------------------------------------------------------


def duckdb(scale: Scale, rounds: int) -> Iterator[Result]:
    """Q1 and Q6 in a process of DuckDB's own, through the server and over the files."""
    catalog, folder = data.lineitem_served(data_folder(), scale.tpch)
    python = iceberg_clients.environment(iceberg_clients.FOLDER)
    files = data.paths(folder, catalog)
    queries = {"Q1": python_reads.Q1, "Q6": engine_reads.Q6}
    with Server(catalog) as server:
        request = {"uri": server.uri, "files": files, "queries": queries, "rounds": 2 * rounds}
        command = [str(python), str(Path(__file__).with_name("duckdb_by_name.py"))]
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    for question, found in json.loads(done.stdout).items():
        for system, values in found.items():
            base = None if system.endswith("files") else "DuckDB over the files"
            size = f"TPC-H scale {scale.tpch:g}"
            yield Result(FAMILY, question, system, "s", tuple(values), size, base)


# --- load -----------------------------------------------------------------------------


def load(url: str, files: int, length_seconds: float) -> Iterator[Result]:
    """What the 16 clients waited, and the memory that the server had at most."""
    with Server(url) as server:
        with contextlib.closing(server.connect()) as connection:
            tag = expect(200, ask(connection, "GET", TABLE))[2]
        found: list[list[float]] = [[] for _ in range(CLIENTS)]
        failures: list[str] = []
        start = time.perf_counter() + 0.5
        threads = [
            threading.Thread(
                target=_client, args=(server, number, start, length_seconds, tag, files,
                                      found[number], failures)
            )
            for number in range(CLIENTS)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - start
        memory = server.peak_mebibytes()
    assert not failures, failures[:3]
    times = sorted(1000 * one for some in found for one in some)
    note = f"{len(times):,} requests in {took:.1f} s, no error"
    for question, share in (("load, median", 0.5), ("load, 99 %", 0.99), ("load, most", 1.0)):
        value = times[min(len(times) - 1, int(share * len(times)))]
        yield Result(FAMILY, question, OURS, "ms", (value,), f"{files:,} files", note=note)
    yield Result(FAMILY, "load, peak memory", OURS, "MiB", (memory,), f"{files:,} files")


def _client(
    server: Server,
    number: int,
    start: float,
    length_seconds: float,
    tag: str,
    files: int,
    found: list[float],
    failures: list[str],
) -> None:
    draw = random.Random(number)
    period = CLIENTS / REQUESTS_PER_SECOND
    with contextlib.closing(server.connect()) as connection:
        for turn in range(int(length_seconds / period)):
            due = start + (turn + number / CLIENTS) * period
            time.sleep(max(0.0, due - time.perf_counter()))
            try:
                kind = (turn + number) % 3
                if kind == 0:
                    expect(200, ask(connection, "GET", TABLE))
                elif kind == 1:
                    expect(304, ask(connection, "GET", TABLE, headers={"If-None-Match": tag}))
                else:
                    wanted = point(files, draw.randrange(2**62))
                    expect(200, ask(connection, "POST", f"{TABLE}/plan", wanted))
            except (AssertionError, OSError, http.client.HTTPException) as error:
                failures.append(repr(error))
            found.append(time.perf_counter() - due)
