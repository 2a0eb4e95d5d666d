"""The REST catalog: what PyIceberg reads through it, what it refuses, and what it never tells."""

from __future__ import annotations

import datetime
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import BadRequestError

import lakehouse_source as lake
from lakehouse_source.catalog.qualified_names import parse_name
from lakehouse_source.language.values import DEEPEST
from lakehouse_source.server import tables as plans
from lakehouse_source.server.filters import condition
from lakehouse_source.server.run import running, serve
from lakehouse_source.server.tables import Settings as ServerSettings
from lakehouse_source.server.tables import Tables
from lakehouse_source.upkeep.run import Upkeep
from lakehouse_source.upkeep.steps import Settings
from tests.doors.plake_command import plake
from tests.doors.rest_server import (
    FLIGHTS,
    TOKEN,
    Client,
    client_catalog,
    client_of,
    named,
    served,
)
from tests.verbs.test_iceberg import TABLES, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lake.Catalog]:
    url, warehouse = f"sqlite:///{tmp_path}/lake.db", str(tmp_path / "warehouse")
    with lake.open_catalog(url, warehouse=warehouse) as opened:
        opened.create_namespace("sales")
        yield opened


@pytest.mark.parametrize("mode", ["client", "server"])
@pytest.mark.parametrize(
    "name", ["all types", "evolved", "vectors", "added files", "empty", "by string", "by decimal"]
)
@pytest.mark.sampled(2)
def test_pyiceberg_reads_by_name_what_plake_reads(tmp_path: Path, name: str, mode: str) -> None:
    made = TABLES[name](str(tmp_path / "t"))
    folder = made.uri.removeprefix("file://")
    with lake.open_catalog(f"sqlite:///{folder}/_plake/catalog.db") as own:
        own.register("t", folder)
        with served(own, token=TOKEN) as uri:
            table = client_catalog(uri, mode).load_table("default.t")
            if mode == "server" and name.startswith("by "):
                # PyIceberg 0.12 takes no NULL among the partition values of a plan.
                with pytest.raises(BadRequestError, match="'scan-planning-mode': 'client'"):
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
        table = client_catalog(uri, "server").load_table("default.t")
        if name in ("date", "decimal", "timestamp"):
            # PyIceberg 0.12 keeps such values of a plan as texts.
            with pytest.raises(BadRequestError, match="'scan-planning-mode': 'client'"):
                table.scan().to_arrow()
            return
        assert rows_of(table.scan().to_arrow()) == rows_of(dataset.scan().to_table())


@pytest.mark.parametrize("mode", ["client", "server"])
def test_conditions_versions_and_commits_between(catalog: lake.Catalog, mode: str) -> None:
    dataset = named(catalog, "sales.flights", FLIGHTS, partition_by="month")
    with served(catalog, token=TOKEN) as uri:
        client = client_catalog(uri, mode)
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


def test_the_filter_stays_with_files_of_which_not_all_rows_match(catalog: lake.Catalog) -> None:
    table = pa.table({"p": [1, 1, 2, 2], "a": [1, 2, 3, 4], "f": [0.5, 0.5, 0.5, 2.0]})
    named(catalog, "t", table, partition_by="p")

    def leaf(kind: str, term: str, value: Any) -> dict[str, Any]:
        return {"type": kind, "term": term, "value": value}

    def residuals(wanted: Any) -> list[Any]:
        answer = client.post("/v1/namespaces/default/tables/t/plan", json={"filter": wanted})
        tasks = sorted(
            answer.json()["file-scan-tasks"], key=lambda one: one["data-file"]["partition"]
        )
        return [one.get("residual-filter") for one in tasks]

    with client_of(catalog) as client:
        assert residuals(leaf("gt", "a", 0)) == [None, None]
        some = leaf("gt", "a", 1)
        assert residuals(some) == [some, None]
        assert residuals(leaf("eq", "p", 2)) == [None]
        # Readers differ in what these mean, or plake knows less.
        for one in (leaf("lt", "f", 9.0), leaf("not-eq", "a", 9), leaf("what", "a", 0)):
            assert residuals(one) == [one, one]
            both = {"type": "and", "left": leaf("gt", "a", 0), "right": one}
            assert residuals(both) == [both, both]


def test_row_groups_that_do_not_match_leave_the_filter(catalog: lake.Catalog) -> None:
    made = catalog.create_dataset("t", pa.schema([("a", pa.int64())]))
    lake.write_dataset({"a": range(10)}, made.uri, catalog=catalog, row_group_rows=5)
    with served(catalog, token=TOKEN) as uri:
        table = client_catalog(uri, "server").load_table("default.t")
        # Plake's own reader would need no filter: it reads the second row group alone.
        assert table.scan("a >= 5").count() == 5


@pytest.mark.parametrize("mode", ["client", "server"])
def test_counts_are_those_of_the_rows(catalog: lake.Catalog, mode: str) -> None:
    dataset = named(catalog, "flights", FLIGHTS, partition_by="month")
    dataset.delete("miles = 1")
    with served(catalog, token=TOKEN) as uri:
        table = client_catalog(uri, mode).load_table("default.flights")
        for text in ("miles = 0", "miles >= 2", "month = 1", "carrier is null", "miles != 0"):
            scan = table.scan(text)
            assert scan.count() == scan.to_arrow().num_rows, text


def test_a_long_filter_makes_small_pages(
    catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens hold the filter: a page has that of the next page alone."""
    monkeypatch.setattr(plans, "_MOST_RESIDUALS", 20_000)
    monkeypatch.setattr(plans, "_MOST_FILTER", 10_000)
    made = catalog.create_dataset("t", pa.schema([("a", pa.int64())]))
    layout = {"target_file_size_bytes": 1, "row_group_rows": 1}
    lake.write_dataset({"a": range(40)}, made.uri, catalog=catalog, **layout)
    path = "/v1/namespaces/default/tables/t"
    wanted = {"type": "in", "term": "a", "values": list(range(400))}
    with client_of(catalog) as client:
        answer = client.post(f"{path}/plan", json={"filter": wanted})
        pages = [answer]
        while answer.json()["plan-tasks"]:
            (token,) = answer.json()["plan-tasks"]
            answer = client.post(f"{path}/tasks", json={"plan-task": token})
            pages.append(answer)
        assert len(pages) > 3
        assert max(len(one.content) for one in pages) < 40_000
        tasks = [task for one in pages for task in one.json()["file-scan-tasks"]]
        assert len({task["data-file"]["file-path"] for task in tasks}) == len(tasks) == 40
        too_long = {**wanted, "values": list(range(2_000))}
        assert client.post(f"{path}/plan", json={"filter": too_long}).status_code == 400


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


def test_a_refusal_that_is_kept_does_not_grow_with_each_request(catalog: lake.Catalog) -> None:
    named(catalog, "bad", pa.table({"took": pa.array([1], pa.duration("s"))}))
    tables, lengths = Tables(catalog, ServerSettings({}, {}, 10)), list[int]()
    address = tables.address(parse_name("default.bad"))
    for _ in range(4):
        with pytest.raises(lake.IcebergUnsupportedError) as caught:
            tables.loaded(address, tables.state(address), refs_only=False)
        lengths.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert len(set(lengths[1:])) == 1


@pytest.mark.parametrize("kinds", [("and",), ("and", "or")])
def test_filters_are_read_to_the_depth_that_is_allowed(
    catalog: lake.Catalog, kinds: tuple[str, ...]
) -> None:
    named(catalog, "flights", FLIGHTS)
    leaf = {"type": "eq", "term": "month", "value": 2}

    def nested(depth: int) -> dict[str, Any]:
        found: dict[str, Any] = leaf
        for number in range(depth):
            found = {"type": kinds[number % len(kinds)], "left": found, "right": leaf}
        return found

    with client_of(catalog) as client:
        path = "/v1/namespaces/default/tables/flights/plan"
        assert client.post(path, json={"filter": nested(DEEPEST)}).status_code == 200
        assert client.post(path, json={"filter": nested(DEEPEST + 1)}).status_code == 400


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


def test_each_endpoint_that_it_offers_answers(catalog: lake.Catalog) -> None:
    named(catalog, "flights", FLIGHTS)
    with client_of(catalog) as client:
        offered = client.get("/v1/config").json()["endpoints"]
        assert len(offered) == len(set(offered)) == 9
        for one in offered:
            method, path = one.split()
            path = path.replace("/{prefix}", "").replace("{namespace}", "default")
            # The tokens of `/tasks` come from `/plan`: an empty body has none.
            expected = (400,) if path.endswith("/tasks") else (200, 204)
            path = path.replace("{table}", "flights")
            assert client.request(method, path, json={}).status_code in expected, one


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
    with client_of(catalog, vend_credentials={"s3.access-key-id": "k"}, token=TOKEN) as client:
        answer = client.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.json()["config"] == {"s3.access-key-id": "k"}


def test_without_a_token_it_listens_on_this_machine_only(catalog: lake.Catalog) -> None:
    with pytest.raises(lake.InvalidOptionError, match="other machines"):
        serve(catalog.url, host="0.0.0.0")
    with pytest.raises(lake.InvalidOptionError, match="env:NAME"):
        serve(catalog.url, token="a-token-in-the-arguments")
    done = plake("serve", "--catalog", catalog.url, "--host", "10.0.0.1")
    assert done.code == 1
    assert "PLAKE_INVALID_OPTION" in done.err


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
        table = client_catalog(uri, "client").load_table("default.flights")
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


def test_filters_never_become_stronger() -> None:
    def find(name: str) -> Any:
        types = {"a": pa.int64(), "f": pa.float64(), "d": pa.date32(), "s": pa.string()}
        return ((name,), types[name]) if name in types else None

    def text(document: Any) -> str:
        return str(condition(document, find).node)

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
    assert text({"type": "not", "child": both}) == "a != 1 OR a IS NULL OR TRUE"
    assert json.dumps(True) == "true"
    assert text(True) == "TRUE"
    assert text({"type": "not", "child": True}) == "FALSE"
    assert text({"type": "in", "term": "a", "values": [1, 2]}) == "a IN (1, 2)"
    assert text({"type": "not-in", "term": "a", "values": [1]}).endswith("OR a IS NULL")


def test_the_server_does_the_upkeep_of_its_catalog_and_shows_it(catalog: lake.Catalog) -> None:
    for _ in range(12):
        dataset = named_or_more(catalog)
    dataset.set_properties(auto_compact=True)
    upkeep = Upkeep(catalog, Settings())
    with client_of(catalog, upkeep=upkeep) as client, running(upkeep, 600.0):
        give_up = time.monotonic() + 60
        while "plake_upkeep_rounds_total 1" not in client.get("/metrics").text:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        assert 'plake_upkeep_files_total{step="compact"} 12' in client.get("/metrics").text
        page = client.get("/upkeep")
        assert page.headers["content-type"].startswith("text/html")
        assert "default.t" in page.text
        with catalog.read() as reader:
            assert reader.lease("upkeep") is not None
    with catalog.read() as reader:
        assert reader.lease("upkeep") is None
    assert len(dataset.refresh().files()) == 1
    with client_of(catalog) as client:
        assert client.get("/upkeep").status_code == 404
    with client_of(catalog, upkeep=upkeep, token=TOKEN) as client:
        assert client.get("/upkeep").status_code == 401


def named_or_more(catalog: lake.Catalog) -> lake.Dataset:
    """A table with one more file."""
    made = catalog.create_dataset("t", FLIGHTS.schema, exist_ok=True)
    lake.write_dataset(FLIGHTS, made.uri, catalog=catalog)
    return made
