"""The history tells who made each commit, on which machine and by which engine."""

from __future__ import annotations

import getpass
import json
import platform
import socket
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import committer
from lakehouse_source.catalog.sql import writer
from tests.postgres_server import PostgresServer
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = pytest.mark.one_catalog

catalog = catalog_of(*EVERY_KIND)


def test_every_commit_tells_who_made_it(
    catalog: lake.Catalog, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri = str(tmp_path / "things")
    lake.write_dataset({"n": [1, 2]}, uri, catalog=catalog, commit_metadata={"by": "mallory"})
    lake.write_dataset({"n": [3]}, uri, catalog=catalog, writer="duckdb")
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.delete("n = 1")
    dataset.add_column("more", pa.string())
    dataset.restore(1)
    branch = dataset.branch("audit")
    lake.write_dataset({"n": [4]}, branch.uri, catalog=catalog)
    dataset.fast_forward("audit")
    history = dataset.history()
    assert len(history) == 6
    on_server = "postgres" in request.node.name
    assert {one.committed_by for one in history} == {"postgres" if on_server else getpass.getuser()}
    for one in history:
        assert one.committer["user"] == getpass.getuser()
        assert one.committer["host"] == socket.gethostname()
        assert one.committer["engine"] == ("duckdb" if one.version == 2 else "pyarrow")
        assert one.committer["engine_version"][0].isdigit()
    # What the caller says of itself stays beside it.
    assert history[-1].metadata == {"by": "mallory"}
    assert history[0].committer["branch_by"] == history[0].committed_by
    assert [one.committed_by for one in branch.history()] == [history[0].committed_by] * 6
    table = dataset.inspect.history()
    assert table["committed_by"].to_pylist() == [one.committed_by for one in history]
    assert dict(table["committer"].to_pylist()[0]) == history[0].committer
    assert f" {history[0].committed_by}" in str(history)


def test_a_client_cannot_claim_another_login(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new_catalog()
    lake.write_dataset({"n": [1]}, tmp_path / "things", catalog=url)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS ann")
        admin.execute("CREATE ROLE ann LOGIN")
        admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO ann")
        admin.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO ann")
    monkeypatch.setattr(writer, "system_user", lambda: "postgres")
    lake.write_dataset({"n": [2]}, tmp_path / "things", catalog=url.replace("postgres@", "ann@"))
    history = lake.open_dataset(tmp_path / "things", catalog=url).history()
    assert [one.committed_by for one in history] == ["ann", "postgres"]


def test_long_and_odd_names_are_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    committer._host.cache_clear()
    monkeypatch.setattr(platform, "node", lambda: "h\0" * 1000)
    try:
        lake.write_dataset({"n": [1]}, tmp_path)
    finally:
        committer._host.cache_clear()
    (one,) = lake.open_dataset(tmp_path).history()
    assert one.committer["host"] == "h" * 200


def test_a_document_of_strangers_is_shown_as_texts(tmp_path: Path) -> None:
    import sqlite3

    lake.write_dataset({"n": [1]}, tmp_path)
    with closing(sqlite3.connect(tmp_path / "_plake" / "catalog.db")) as connection, connection:
        odd = json.dumps({"host": ["a", 1], "engine": None})
        connection.execute("UPDATE transactions SET committer_json = ?", (odd,))
    connection.close()
    (row,) = lake.open_dataset(tmp_path).inspect.history().to_pylist()
    assert row["committer"] == [("host", "['a', 1]"), ("engine", "None")]
