"""The REST catalog: what PyIceberg reads through it, what it refuses, and what it never tells."""

from __future__ import annotations

import datetime
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
import uvicorn
from pyiceberg.catalog import load_catalog

import lakehouse_source as lake
from lakehouse_source.server import plans
from lakehouse_source.server.__main__ import main, serve
from lakehouse_source.server.filters import condition
from tests.verbs.test_iceberg import TABLES, rows_of

TOKEN = "canary-token-4711"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lake.Catalog]:
    url, warehouse = f"sqlite:///{tmp_path}/lake.db", str(tmp_path / "warehouse")
    with lake.open_catalog(url, warehouse=warehouse) as opened:
        opened.create_namespace("sales")
        yield opened


def named(catalog: lake.Catalog, name: str, table: pa.Table, **options: Any) -> lake.Dataset:
    made = catalog.create_dataset(name, table.schema, **options)
    lake.write_dataset(table, made.uri, catalog=catalog)
    return lake.open_dataset(made.uri, catalog=catalog)


@contextmanager
def served(catalog: lake.Catalog, **options: Any) -> Iterator[str]:
    """A real server on a port of this machine; its address."""
    config = uvicorn.Config(
        lake.server.app(catalog, **options), port=0, log_level="error", access_log=False
    )
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


FLIGHTS = pa.table({"month": [1, 1, 2, 3], "carrier": ["UA", "AA", None, "UA"], "miles": range(4)})


def _client_catalog(uri: str, mode: str) -> Any:
    return load_catalog("p", type="rest", uri=uri, **{"scan-planning-mode": mode, "token": TOKEN})


@pytest.mark.parametrize("mode", ["client", "server"])
@pytest.mark.parametrize(
    "name", ["all types", "evolved", "vectors", "added files", "empty", "by string", "by decimal"]
)
def test_pyiceberg_reads_by_name_what_plake_reads(tmp_path: Path, name: str, mode: str) -> None:
    made = TABLES[name](str(tmp_path / "t"))
    folder = made.uri.removeprefix("file://")
    with lake.open_catalog(f"sqlite:///{folder}/_plake/catalog.db") as own:
        own.register("t", folder)
        with served(own, token=TOKEN) as uri:
            table = _client_catalog(uri, mode).load_table("default.t")
            if mode == "server" and name.startswith("by "):
                # PyIceberg 0.12 takes no NULL among the partition values of a plan: it raises.
                with pytest.raises(ValueError, match="partition"):
                    table.scan().to_arrow()
                return
            assert rows_of(table.scan().to_arrow()) == rows_of(made.scan().to_table())


PARTITIONS = {
    "bool": pa.array([True, False]),
    "string": pa.array(["", "x"]),
    "int": pa.array([1, -(2**40)]),
    "date": pa.array([datetime.date(2026, 1, 31), datetime.date(1850, 1, 1)]),
    "decimal": pa.array([Decimal("-1.20"), Decimal("12.34")]),
    "timestamp": pa.array([datetime.datetime(2026, 1, 31, 1, 2, 3, 4)] * 2, pa.timestamp("us")),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values_of_plans(catalog: lake.Catalog, name: str) -> None:
    dataset = named(catalog, "t", pa.table({"p": PARTITIONS[name], "v": [1, 2]}), partition_by="p")
    with served(catalog, token=TOKEN) as uri:
        table = _client_catalog(uri, "server").load_table("default.t")
        if name in ("date", "decimal", "timestamp"):
            # PyIceberg 0.12 keeps such values of a plan as texts, and raises.
            with pytest.raises((pa.ArrowTypeError, TypeError)):
                table.scan().to_arrow()
            return
        assert rows_of(table.scan().to_arrow()) == rows_of(dataset.scan().to_table())


@pytest.mark.parametrize("mode", ["client", "server"])
def test_conditions_versions_and_commits_between(catalog: lake.Catalog, mode: str) -> None:
    dataset = named(catalog, "sales.flights", FLIGHTS, partition_by="month")
    with served(catalog, token=TOKEN) as uri:
        client = _client_catalog(uri, mode)
        assert client.list_namespaces() == [("default",), ("sales",)]
        assert client.list_tables("sales") == [("sales", "flights")]
        table = client.load_table("sales.flights")
        for text in ("month = 1", "carrier = 'UA' and miles > 0", "carrier is null", "miles = 9"):
            got = table.scan(text).to_arrow()
            assert rows_of(got) == rows_of(dataset.scan(text).to_table()), text
        first = dataset.version
        dataset.delete("miles = 0")
        dataset.refresh()
        assert rows_of(table.refresh().scan().to_arrow()) == rows_of(dataset.scan().to_table())
        old = table.scan(snapshot_id=first).to_arrow()
        assert rows_of(old) == rows_of(dataset.scan(version=first).to_table())
        assert len(list(table.scan("month = 2").plan_files())) == 1


def test_a_large_plan_comes_in_pages(
    catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "PAGE", 2)
    named(catalog, "flights", FLIGHTS, partition_by="month")
    with client_of(catalog) as client:
        path = "/v1/namespaces/default/tables/flights"
        first = client.post(f"{path}/plan", json={}).json()
        assert len(first["file-scan-tasks"]) == 2
        (token,) = first["plan-tasks"]
        rest = client.post(f"{path}/tasks", json={"plan-task": token}).json()
        assert len(rest["file-scan-tasks"]) == 1
        wrong = client.post(f"{path}/tasks", json={"plan-task": "e30="})
        assert wrong.status_code == 400


def test_an_unchanged_table_is_304(catalog: lake.Catalog) -> None:
    dataset = named(catalog, "flights", FLIGHTS)
    path = "/v1/namespaces/default/tables/flights"
    with client_of(catalog) as client:
        found = client.get(path)
        tag = found.headers["etag"]
        again = client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get(f"{path}?snapshots=refs").headers["etag"] != tag
        dataset.tag("t")
        changed = client.get(path, headers={"If-None-Match": tag})
        assert changed.status_code == 200
        assert "t" in changed.json()["metadata"]["refs"]
        assert client.head(path).status_code == 204


def test_only_what_a_reference_names(catalog: lake.Catalog) -> None:
    dataset = named(catalog, "flights", FLIGHTS)
    for _ in range(3):
        lake.write_dataset(FLIGHTS, dataset.uri, catalog=catalog)
    with client_of(catalog) as client:
        path = "/v1/namespaces/default/tables/flights"
        few = client.get(f"{path}?snapshots=refs").json()["metadata"]["snapshots"]
        every = client.get(path).json()["metadata"]["snapshots"]
    assert len(few) == 1
    assert len(every) == dataset.refresh().version


def test_lists_have_pages(catalog: lake.Catalog) -> None:
    for number in range(5):
        named(catalog, f"t{number}", FLIGHTS)
    with client_of(catalog) as client:
        seen: list[str] = []
        token = ""
        while True:
            answer = client.get(
                "/v1/namespaces/default/tables", params={"pageToken": token, "pageSize": 2}
            ).json()
            seen += [one["name"] for one in answer["identifiers"]]
            if "next-page-token" not in answer:
                break
            token = answer["next-page-token"]
    assert seen == [f"t{number}" for number in range(5)]


def test_a_table_that_iceberg_cannot_say_is_refused_and_the_others_are_served(
    catalog: lake.Catalog,
) -> None:
    named(catalog, "bad", pa.table({"took": pa.array([1], pa.duration("s"))}))
    named(catalog, "good", FLIGHTS)
    with client_of(catalog) as client:
        refused = client.get("/v1/namespaces/default/tables/bad")
        assert refused.status_code == 400
        assert "'took'" in refused.json()["error"]["message"]
        plan = client.post("/v1/namespaces/default/tables/bad/plan", json={})
        assert plan.status_code == 400
        assert client.get("/v1/namespaces/default/tables/good").status_code == 200
        listed = client.get("/v1/namespaces/default/tables").json()["identifiers"]
        assert [one["name"] for one in listed] == ["bad", "good"]


def test_what_writes_is_406(catalog: lake.Catalog) -> None:
    named(catalog, "flights", FLIGHTS)
    with client_of(catalog) as client:
        for method, path in (
            ("POST", "/v1/namespaces"),
            ("DELETE", "/v1/namespaces/default"),
            ("POST", "/v1/namespaces/default/tables"),
            ("POST", "/v1/namespaces/default/tables/flights"),
            ("DELETE", "/v1/namespaces/default/tables/flights"),
            ("POST", "/v1/transactions/commit"),
            ("POST", "/v1/tables/rename"),
            ("POST", "/v1/oauth/tokens"),
        ):
            answer = client.request(method, path, json={})
            assert answer.status_code == 406, path
            assert "read only" in answer.json()["error"]["message"]
        config = client.get("/v1/config").json()
        assert not [one for one in config["endpoints"] if one.startswith(("DELETE", "PUT"))]


def test_without_the_token_nothing_is_told(catalog: lake.Catalog) -> None:
    named(catalog, "flights", FLIGHTS)
    with client_of(catalog, token=TOKEN) as client:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN},
                       {"Authorization": f"Basic {TOKEN}"}):  # fmt: skip
            for path in ("/v1/config", "/v1/namespaces", "/metrics", "/nothing"):
                answer = client.get(path, headers=header)
                assert answer.status_code == 401
                assert TOKEN not in answer.text
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/config", headers=right).status_code == 200
        assert client.get("/health").json() == {"status": "ok"}
        text = client.get("/metrics", headers=right).text
        assert 'plake_requests_total{method="GET",status="401"} 16' in text


def test_no_keys_are_handed_out_unless_told(catalog: lake.Catalog) -> None:
    named(catalog, "flights", FLIGHTS)
    path = "/v1/namespaces/default/tables/flights"
    with client_of(catalog, storage_options={"secret_key": TOKEN}) as client:
        answer = client.get(path)
        assert answer.json()["config"] == {}
        assert TOKEN not in answer.text
    with client_of(catalog, vend_credentials={"s3.access-key-id": "k"}) as client:
        assert client.get(path).json()["config"] == {"s3.access-key-id": "k"}


def test_without_a_token_it_listens_on_this_machine_only(
    catalog: lake.Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(lake.InvalidOptionError, match="other machines"):
        serve(catalog.url, host="0.0.0.0")
    with pytest.raises(lake.InvalidOptionError, match="env:NAME"):
        serve(catalog.url, token="a-token-in-the-arguments")
    assert main(["--catalog", catalog.url, "--host", "10.0.0.1"]) == 1
    assert "PLAKE_INVALID_OPTION" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_until_it_is_told_to_end(catalog: lake.Catalog) -> None:
    named(catalog, "flights", FLIGHTS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lakehouse_source.cli", "serve", "--catalog", catalog.url]
    command += ["--port", str(port), "--token", "env:PLAKE_TEST_TOKEN"]
    environment = {**os.environ, "PLAKE_TEST_TOKEN": TOKEN}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        client = Client(f"http://127.0.0.1:{port}")
        try:
            for _ in range(600):
                try:
                    if client.get("/health").ok:
                        break
                except requests.ConnectionError:
                    time.sleep(0.1)
            path = "/v1/namespaces/default/tables/flights"
            assert client.get(path).status_code == 401
            right = {"Authorization": f"Bearer {TOKEN}"}
            assert client.get(path, headers=right).status_code == 200
        finally:
            process.terminate()
            _, told = process.communicate(timeout=60)
    assert "/tables/flights' 200" in told
    assert TOKEN not in told


def test_malformed_requests_are_refused_without_a_traceback(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    named(catalog, "flights", FLIGHTS)
    (tmp_path / "outside.txt").write_text("canary-file")
    chance = random.Random(7)
    odd = ["..", "%2e%2e", "..%2f..%2fetc", "'; DROP TABLE files; --", "a" * 5000, "%00"]
    odd += ["flights' OR '1'='1", "é", "{}", "default\x1fa", "$(id)", "outside.txt", " "]
    bodies = [b"", b"{", b"[]", b"null", b'{"filter": {"type": "and"}}', b"\xff\xfe", b"9" * 10000,
              b'{"filter": ' + b'{"type":"not","child":' * 3000 + b"true" + b"}" * 3001,
              b'{"snapshot-id": "1"}', b'{"snapshot-id": 99999999999999999999999}',
              b'{"snapshot-id": -1}', b'{"filter": {"type":"eq","term":5,"value":1}}',
              b'{"filter": {"type":"in","term":"month","values":7}}', b'{"plan-task": 5}',
              b'{"start-snapshot-id": 1}', b'{"case-sensitive": 3}', b'{"snapshot-id": 77}',
              b'{"filter": {"type":"eq","term":"month","value":"\\u0000"}}']  # fmt: skip
    methods = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "BREW"]
    with client_of(catalog) as client:
        for _ in range(1000):
            parts = ["v1", "namespaces", chance.choice(["default", *odd]), "tables"]
            parts += [chance.choice(["flights", *odd]), chance.choice(["plan", "tasks", *odd])]
            path = "/" + "/".join(parts[: chance.randint(1, 6)])
            answer = client.request(
                chance.choice(methods),
                path,
                data=chance.choice(bodies),
                params={
                    "pageToken": chance.choice(odd),
                    "pageSize": chance.choice(["-1", "x", "3"]),
                },
            )
            assert answer.status_code < 500, (path, answer.text)
            for secret in ("Traceback", "canary-file", "lake.db", "sqlite3"):
                assert secret not in answer.text, answer.text
        large = client.post("/v1/namespaces", data=b"x" * (5 * 1024 * 1024))
        assert large.status_code == 413


def test_a_failure_inside_tells_nothing(
    catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_of(catalog) as client:
        from lakehouse_source.server.tables import Tables

        def fails(_: Tables) -> list[str]:
            raise RuntimeError(TOKEN)

        monkeypatch.setattr(Tables, "namespaces", fails)
        answer = client.get("/v1/namespaces")
        assert answer.status_code == 500
        assert TOKEN not in answer.text


def test_readers_go_on_during_commits_compaction_expiry_and_vacuum(catalog: lake.Catalog) -> None:
    dataset = named(catalog, "flights", FLIGHTS)
    with served(catalog, token=TOKEN) as uri:
        table = _client_catalog(uri, "client").load_table("default.flights")
        expected = rows_of(dataset.scan().to_table())
        for _ in range(3):
            lake.write_dataset(FLIGHTS, dataset.uri, catalog=catalog)
        dataset.refresh().compact()
        dataset.delete("miles = 1")
        dataset.expire_versions(keep_last=1)
        dataset.vacuum()
        # The table that was loaded before, within the retention.
        assert rows_of(table.scan().to_arrow()) == expected
        assert rows_of(table.refresh().scan().to_arrow()) == rows_of(dataset.scan().to_table())


@pytest.mark.parametrize("mode", ["client", "server"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_histories_are_the_same_at_every_version(
    catalog: lake.Catalog, seed: int, mode: str
) -> None:
    chance = random.Random(seed)
    table = pa.table({"p": [0, 1], "k": [0, 1], "v": pa.array([0.5, None])})
    dataset = named(catalog, "t", table, partition_by="p")
    for number in range(12):
        step = chance.choice(["append", "append", "delete", "update", "compact", "column", "over"])
        rows = pa.table({"p": [0, 1, 2], "k": [number, number + 1, 5], "v": [1.5, None, 2.0]})
        if step == "append":
            lake.write_dataset(rows, dataset.uri, catalog=catalog)
        elif step == "delete":
            dataset.delete(f"k % 3 = {chance.randint(0, 2)} AND p = 1")
        elif step == "update":
            dataset.update({"v": "coalesce(v, 0) + 1"}, where=f"k > {chance.randint(0, 9)}")
        elif step == "compact":
            dataset.compact()
        elif step == "column":
            dataset.add_column(f"c{number}", pa.string())
        else:
            lake.write_dataset(
                rows.slice(0, 1), dataset.uri, catalog=catalog, mode="overwrite",
                overwrite_where="p = 0",
            )  # fmt: skip
        dataset.refresh()
    with served(catalog, token=TOKEN, newest_versions=100) as uri:
        found = _client_catalog(uri, mode).load_table("default.t")
        versions = [one.snapshot_id for one in found.snapshots()]
        assert versions == list(range(1, dataset.version + 1))
        for version in versions:
            got = found.scan(snapshot_id=version).to_arrow()
            assert rows_of(got) == rows_of(dataset.scan(version=version).to_table()), version


def test_filters_never_become_stronger() -> None:
    def find(name: str) -> Any:
        types = {"a": pa.int64(), "f": pa.float64(), "d": pa.date32(), "s": pa.string()}
        return ((name,), types[name]) if name in types else None

    def text(document: Any) -> str:
        return str(condition(document, find))

    def leaf(kind: str, term: Any = "a", value: Any = 1) -> dict[str, Any]:
        return {"type": kind, "term": term, "value": value}

    assert text(leaf("eq")) == "a = 1"
    assert text(leaf("not-eq")) == "a != 1 OR a IS NULL"
    assert text({"type": "not", "child": leaf("eq")}) == "a != 1 OR a IS NULL"
    assert text({"type": "not", "child": leaf("lt")}) == "a >= 1"
    assert text(leaf("lt", "f", 0.0)).startswith("f <= ")
    assert text(leaf("not-eq", "f", 0.0)) == "TRUE"
    assert text(leaf("eq", {"type": "transform", "transform": "bucket[4]", "term": "a"})) == "TRUE"
    assert text(leaf("eq", "unknown")) == "TRUE"
    assert text({"type": "not", "child": leaf("is-nan", "f")}) == "TRUE"
    assert text(leaf("eq", "d", 20000)) == "TRUE"
    both = {"type": "and", "left": leaf("eq"), "right": leaf("what")}
    assert text({"type": "not", "child": both}) == "(a != 1 OR a IS NULL) OR TRUE"
    assert json.dumps(True) == "true"
    assert text(True) == "TRUE"
    assert text({"type": "not", "child": True}) == "FALSE"
    assert text({"type": "in", "term": "a", "values": [1, 2]}) == "a IN (1, 2)"
    assert text({"type": "not-in", "term": "a", "values": [1]}).endswith("OR a IS NULL")
