"""What was tried against `plake serve`, and what came of it: each of these worked once."""

from __future__ import annotations

import datetime
import io
import json
import socket
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import BadRequestError

import lakehouse_source as lake
from lakehouse_source.read.snapshot import known_files
from lakehouse_source.server import guard, run
from lakehouse_source.server.run import serve
from tests.doors.plake_command import plake
from tests.doors.rest_server import FLIGHTS, TOKEN, client_catalog, client_of, named, served
from tests.verbs.test_iceberg import TABLES, rows_of

pytestmark = pytest.mark.slow

PATH = "/v1/namespaces/default/tables/flights"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lake.DatasetCatalog]:
    url = f"sqlite:///{tmp_path}/lake.db"
    with lake.open_catalog(url, warehouse=str(tmp_path / "warehouse")) as opened:
        named(opened, "flights", FLIGHTS)
        yield opened


def raw(uri: str, text: bytes, seconds: float = 10) -> bytes:
    """What comes back of bytes, until the server closes the connection."""
    found = b""
    with connected(uri) as connection, suppress(ConnectionResetError):
        connection.settimeout(seconds)
        connection.sendall(text)
        while some := connection.recv(65536):
            found += some
    return found


def connected(uri: str) -> socket.socket:
    host, _, port = uri.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), 10)


# --- who asks -------------------------------------------------------------------------


# A request for a plan, up to the length of its body.
PLAN = f"POST {PATH}/plan HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HOSTS = (
    "[::1]evil",
    "localhost:evil.com",
    "evil.example",
    "evil.example:8181",
    "127.0.0.1.evil.example",
    "",
    "[::2]:1",
    "localhost.x",
)


def test_a_page_reads_no_table_by_a_name_that_leads_to_this_machine(
    catalog: lake.DatasetCatalog,
) -> None:
    """DNS rebinding: the browser believes that the server belongs to the page."""
    with client_of(catalog) as client:
        for path in (PATH, "/v1/config", "/v1/namespaces", "/health", "/metrics", "/nothing"):
            for host in HOSTS:
                answer = client.get(path, headers={"Host": host})
                assert (answer.status_code, "miles" in answer.text) == (403, False), (path, host)
        assert client.post(f"{PATH}/plan", json={}, headers={"Host": HOSTS[0]}).status_code == 403
        for host in ("localhost", "127.0.0.1:1", "[::1]:8181", "LOCALHOST:80"):
            assert client.get(PATH, headers={"Host": host}).status_code == 200, host


def test_names_of_this_machine_are_known_where_they_are_listed(
    catalog: lake.DatasetCatalog,
) -> None:
    options = {"token": TOKEN, "allowed_hosts": ["lake.example.com"]}
    with client_of(catalog, **options) as client:
        for host, status in (("lake.example.com:8181", 200), ("evil.example", 403)):
            answer = client.get(PATH, headers={**BEARER, "Host": host})
            assert answer.status_code == status
    with client_of(catalog, token=TOKEN) as client:  # no page has the token
        assert client.get(PATH, headers={**BEARER, "Host": "any.example"}).status_code == 200


def test_a_page_may_not_ask(catalog: lake.DatasetCatalog) -> None:
    for options in ({}, {"token": TOKEN}):
        with client_of(catalog, **options) as client:
            for origin in ("https://evil.example", "null", "http://127.0.0.1"):
                headers = {**BEARER, "Origin": origin}
                assert client.get(PATH, headers=headers).status_code == 403
                answer = client.post(f"{PATH}/plan", json={}, headers=headers)
                assert answer.status_code == 403
                assert not [one for one in answer.headers if one.lower().startswith("access-")]


@pytest.mark.parametrize("type_", ["text/plain", "application/x-www-form-urlencoded", "", None])
def test_a_body_that_forms_can_send_is_no_question(
    catalog: lake.DatasetCatalog, type_: str | None
) -> None:
    headers = {} if type_ is None else {"Content-Type": type_}
    with client_of(catalog) as client:
        for tail in ("plan", "tasks", "metrics"):
            answer = client.post(f"{PATH}/{tail}", data=b"{}", headers=headers)
            assert answer.status_code == 415, tail
        headers = {"Content-Type": "application/json; charset=utf-8"}
        assert client.post(f"{PATH}/plan", data=b"{}", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_body_has_one_length(catalog: lake.DatasetCatalog, lengths: bytes) -> None:
    """A proxy in front may have believed the other one: the rest is no second request."""
    smuggled = b"2\r\n{}\r\n0\r\n\r\nGET /v1/config HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(catalog) as uri:
        found = raw(uri, PLAN.encode() + lengths + b"\r\n" + smuggled)
        assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), found
        assert found.count(b"HTTP/1.1 ") == 1


def test_keys_are_handed_out_only_to_who_has_the_token(catalog: lake.DatasetCatalog) -> None:
    keys = ("s3.secret-access-key=canary",)
    with pytest.raises(lake.InvalidOptionError, match="token"):
        lake.server.app(catalog, vend_credentials={"s3.secret-access-key": "canary"})
    with pytest.raises(lake.InvalidOptionError, match="token"):
        serve(catalog.url, vend_credentials=keys)
    done = plake("serve", "--catalog", catalog.url, "--vend-credentials", keys[0])
    assert done.code == 1
    assert "canary" not in done.err
    with pytest.raises(lake.InvalidOptionError, match="TLS in front"):
        serve(catalog.url, host="0.0.0.0")


# --- how much ---------------------------------------------------------------------------


def test_idle_connections_shut_nobody_out(
    catalog: lake.DatasetCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_CONNECTIONS", 20)
    with served(catalog) as uri, ExitStack() as opened:
        idle = [opened.enter_context(connected(uri)) for _ in range(60)]
        for one in idle[::2]:
            one.sendall(b"GET /v1/config HTTP/1.1\r\nHost: 127")
        assert requests.get(uri + PATH, timeout=10).status_code == 200
        idle[0].settimeout(10)
        with suppress(ConnectionResetError):  # the longest idle one made room
            assert idle[0].recv(1) == b""


def test_connections_that_are_answered_are_not_closed_for_new_ones(
    catalog: lake.DatasetCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_CONNECTIONS", 2)
    with served(catalog) as uri, connected(uri) as one, connected(uri) as two:
        for each in (one, two):
            each.sendall(f"{PLAN}Content-Length: 2\r\nConnection: close\r\n\r\n".encode())
        time.sleep(0.5)
        with pytest.raises(requests.ConnectionError):
            requests.get(uri + PATH, timeout=10)
        for each in (one, two):
            each.sendall(b"{}")
            assert each.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.long
def test_headers_and_bodies_have_their_time(
    catalog: lake.DatasetCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "HEADERS_SECONDS", 0.3)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    whole = b"GET /v1/config HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(catalog) as uri:
        started = time.monotonic()
        for text in (b"", b"GET /v1/config HTTP/1.1\r\n", whole + b"GET /v1/con"):
            found = raw(uri, text)  # until the server closes the connection
            assert found.count(b"HTTP/1.1 200 ") == text.count(whole)
        found = raw(uri, PLAN.encode() + b"Content-Length: 20\r\n\r\n{")
        assert found.startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - started < 8


def test_requests_at_once_have_a_bound(
    catalog: lake.DatasetCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_REQUESTS", 2)
    with served(catalog) as uri, connected(uri) as one, connected(uri) as two:
        for each in (one, two):
            each.sendall(f"{PLAN}Content-Length: 2\r\n\r\n".encode())
        time.sleep(0.5)
        answer = requests.get(uri + PATH, timeout=10)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        for each in (one, two):
            each.sendall(b"{}")
            assert each.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert requests.get(uri + PATH, timeout=10).status_code == 200


# --- what is handed out, and written ------------------------------------------------------


def test_a_planted_manifest_names_no_other_file(tmp_path: Path) -> None:
    """Somebody who can write to the folder replaced a manifest: `/plan` handed out its paths."""
    made = TABLES["vectors"](str(tmp_path / "t"))
    folder = made.uri.removeprefix("file://")
    made.export_iceberg()
    changed = 0
    for path in Path(folder).rglob("*.avro"):
        with open(path, "rb") as source:
            reader: Any = fastavro.reader(source)
            entries = list(reader)
        if "data_file" not in entries[0] or entries[0]["data_file"]["content"] != 1:
            continue
        for entry in entries:
            entry["data_file"]["file_path"] = "/etc/passwd"
        new = io.BytesIO()
        metadata = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
        fastavro.writer(new, reader.writer_schema, entries, metadata=metadata)
        path.write_bytes(new.getvalue())
        changed += 1
    assert changed
    with lake.open_catalog(f"sqlite:///{folder}/_plake/catalog.db") as own:
        own.register("t", folder)
        with client_of(own) as client:
            answer = client.post("/v1/namespaces/default/tables/t/plan", json={})
            assert "passwd" not in answer.text
            assert answer.status_code == 500


@pytest.mark.parametrize("padded", [False, True])
def test_a_planted_manifest_takes_no_gigabytes(tmp_path: Path, padded: bool) -> None:
    """Two hundred bytes of Avro can hold a list of any number of NULLs: the server ran out."""
    made = TABLES["vectors"](str(tmp_path / "t"))
    folder = made.uri.removeprefix("file://")
    made.export_iceberg()
    nulls = {"name": "data_file", "type": {"type": "array", "items": "null"}}
    schema = {"type": "record", "name": "manifest_entry", "fields": [nulls]}
    bomb = io.BytesIO()
    fastavro.writer(bomb, schema, [{"data_file": [None] * 10_000_000}], codec="deflate")
    for path in Path(folder).rglob("*.avro"):
        size_bytes, planted = path.stat().st_size, bomb.getvalue()
        # To the size that the catalog recorded: bytes behind the last block.
        path.write_bytes(planted.ljust(size_bytes, b"\0") if padded else planted)
    with lake.open_catalog(f"sqlite:///{folder}/_plake/catalog.db") as own:
        own.register("t", folder)
        with client_of(own) as client:
            tracemalloc.start()
            try:
                answer = client.post("/v1/namespaces/default/tables/t/plan", json={})
                assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
            finally:
                tracemalloc.stop()
            assert answer.status_code == 500


@pytest.mark.parametrize("planted", ["../secret.parquet", "/etc/passwd", "a/../../secret.parquet"])
def test_a_path_that_leads_out_of_the_dataset_is_not_handed_out(
    catalog: lake.DatasetCatalog, planted: str
) -> None:
    with client_of(catalog) as client:
        assert client.post(f"{PATH}/plan", json={}).status_code == 200  # manifests exist
        with catalog.write() as tx:
            tx._session.execute("UPDATE files SET file_path = ?", (planted,))
        # What the server knows of files that it told of before, and what it reads now.
        for status in (200, 500):
            answer = client.post(f"{PATH}/plan", json={})
            assert "passwd" not in answer.text
            assert "secret" not in answer.text
            assert answer.status_code == status
            known_files.forget()


@pytest.mark.parametrize("door", ["plan", "tasks", "table", "export_iceberg"])
def test_nothing_is_written_into_the_folder_of_another_catalog(
    tmp_path: Path, catalog: lake.DatasetCatalog, door: str
) -> None:
    folder = tmp_path / "home"
    lake.write_dataset(FLIGHTS, folder, catalog=f"sqlite:///{tmp_path}/mine.db")
    with catalog.write() as tx:  # as a catalog of strangers may have it
        tx._session.execute("UPDATE datasets SET base_uri = ?", (f"file://{folder}",))
    before = sorted(folder.rglob("*"))
    named_path = "/v1/namespaces/default/tables/flights"
    if door in ("plan", "tasks", "table"):
        with client_of(catalog) as client:
            if door == "table":
                answer = client.get(named_path)
            else:
                body = {"plan-task": "eyJzdGFydCI6IDAsICJzbmFwc2hvdC1pZCI6IDJ9"}
                answer = client.post(f"{named_path}/{door}", json=body if door == "tasks" else {})
            assert answer.status_code == 403
            assert "home" not in answer.text
    else:
        dataset = catalog.dataset("flights")
        with pytest.raises(lake.ForeignFolderError, match="another catalog"):
            dataset.export_iceberg()
    assert sorted(folder.rglob("*")) == before


# --- what a request may cost ---------------------------------------------------------------


def numbers() -> pa.Table:
    table = pa.table({"i": [1], "d": pa.array([1], pa.int64()).cast(pa.decimal128(19, 0))})
    return table.append_column("f", pa.array([1.0]))


@pytest.mark.parametrize("text", ["1E+999999999", "1E-999999999", "-1E+999999999", "9" * 79])
def test_a_short_number_takes_no_gigabytes(catalog: lake.DatasetCatalog, text: str) -> None:
    named(catalog, "numbers", numbers())
    with client_of(catalog) as client:
        path = "/v1/namespaces/default/tables/numbers/plan"
        started = time.monotonic()
        for column in ("i", "d", "f"):
            for kind in ("eq", "lt", "gt-eq", "not-eq"):
                wanted = {"type": kind, "term": column, "value": text}
                assert client.post(path, json={"filter": wanted}).status_code in (200, 400)
            wanted = {"type": "in", "term": column, "values": [text] * 50}
            assert client.post(path, json={"filter": wanted}).status_code in (200, 400)
        assert time.monotonic() - started < 5


# --- clients that read plans wrongly ---------------------------------------------------------


def test_pyiceberg_loses_no_row_of_a_table_by_days(catalog: lake.DatasetCatalog) -> None:
    """It left out each file: the text of a day in a plan equals no day."""
    day = datetime.date(2026, 1, 31)
    named(catalog, "days", pa.table({"d": [day] * 7, "v": range(7)}), partition_by="d")
    with served(catalog, token=TOKEN) as uri:
        for mode, expected in (("client", 7), ("server", None)):
            table = client_catalog(uri, mode).load_table("default.days")
            for text in ("d = '2026-01-31'", "d >= '2026-01-31'", "d in ('2026-01-31')", "v >= 0"):
                if expected is not None:
                    assert table.scan(text).to_arrow().num_rows == expected
                    continue
                with pytest.raises(BadRequestError, match="'scan-planning-mode': 'client'"):
                    table.scan(text).to_arrow()
        # Others get the plan.
        body = json.dumps({"filter": {"type": "eq", "term": "d", "value": "2026-01-31"}})
        headers = {**BEARER, "Content-Type": "application/json"}
        path = f"{uri}/v1/namespaces/default/tables/days/plan"
        answer = requests.post(path, data=body, headers=headers, timeout=10)
        assert len(answer.json()["file-scan-tasks"]) == 1


PARTITIONS: dict[str, pa.Array] = {
    "bool": pa.array([True, False, True]),
    "string": pa.array(["", "x", "2026-01-31"]),
    "int8": pa.array([1, -1, 0], pa.int8()),
    "int": pa.array([1, -(2**40), 0]),
    "date": pa.array([datetime.date(2026, 1, day) for day in (1, 2, 3)]),
    "timestamp": pa.array(
        [datetime.datetime(2026, 1, day) for day in (1, 2, 3)], pa.timestamp("us")
    ),
    "decimal": pa.array(["1.20", "2.00", "-3.45"]).cast(pa.decimal128(9, 2)),
    "null": pa.array([1, None, 3]),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_plan_is_read_rightly_or_refused(catalog: lake.DatasetCatalog, name: str) -> None:
    """Every kind of partition value × comparison, against PyIceberg's own plans by manifests."""
    from pyiceberg import expressions as e

    values = PARTITIONS[name]
    named(catalog, "t", pa.table({"p": values, "v": [1, 2, 3]}), partition_by="p")
    one = values[0].as_py()
    scans = [e.EqualTo("p", one), e.NotEqualTo("p", one), e.LessThan("p", one),
             e.GreaterThanOrEqual("p", one), e.In("p", {one, values[2].as_py()}),
             e.NotIn("p", {one, values[2].as_py()}), e.IsNull("p"), e.NotNull("p"),
             e.And(e.EqualTo("p", one), e.GreaterThan("v", 0)),
             e.Not(e.EqualTo("p", one))]  # fmt: skip
    refused = 0
    with served(catalog, token=TOKEN) as uri:
        right = client_catalog(uri, "client").load_table("default.t")
        table = client_catalog(uri, "server").load_table("default.t")
        for scan in scans:
            expected = rows_of(right.scan(scan).to_arrow())
            if name in ("date", "timestamp", "decimal"):
                with pytest.raises(BadRequestError, match="'scan-planning-mode': 'client'"):
                    table.scan(scan).to_arrow()
                continue
            try:
                found = table.scan(scan).to_arrow()
            except BadRequestError:
                refused += 1
                continue
            assert rows_of(found) == expected, scan
    assert bool(refused) == (name == "null")  # in plans with the partition of NULL
