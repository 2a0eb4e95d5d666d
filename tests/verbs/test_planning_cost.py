"""What planning costs outside of its own code: connections, round trips, modules."""

from __future__ import annotations

import ast
import importlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.backends import postgres
from lakehouse_source.catalog.backends.postgres_connections import shared_connections
from lakehouse_source.catalog.sql.statements import Session
from lakehouse_source.errors import VersionNotFoundError
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

TABLE = pa.table({"n": [1, 2, 3], "p": ["a", "b", "b"]})


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.fresh_database()


@pytest.fixture
def connections(url: str) -> Callable[[], int]:
    def count() -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name LIKE 'plake %'"
            )
            return rows.fetchall()[0][0]

    return count


def test_a_dataset_and_its_scans_share_one_connection_to_the_server(
    url: str, connections: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write_dataset(TABLE, tmp_path / "t", catalog=url)
    shared_connections.close_all()
    made: list[str] = []
    connect = postgres.connect

    def counted(*given: object, **named: object) -> object:
        made.append("one")
        return connect(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(postgres, "connect", counted)
        dataset = lake.open_dataset(tmp_path / "t", catalog=url)
        scan = dataset.scan("n = 2")
        assert scan.explain().files_read == 1
        assert scan.count_rows() == dataset.scan("n = 3").count_rows() == 1
    assert made == ["one"]
    assert connections() == 1
    assert scan.count_rows() == 1
    shared_connections.close_all()  # as after a few seconds without a question
    assert connections() == 0


def test_a_kept_connection_that_was_lost_is_made_again(
    url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    lake.write_dataset(TABLE, tmp_path / "t", catalog=url)
    dataset = lake.open_dataset(tmp_path / "t", catalog=url)
    postgres_server.run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name LIKE 'plake %'"
    )
    assert dataset.scan("n = 2").count_rows() == 1


def test_a_dataset_held_open_sees_that_its_version_was_expired(url: str, tmp_path: Path) -> None:
    lake.write_dataset(TABLE, tmp_path / "t", catalog=url)
    held = lake.open_dataset(tmp_path / "t", catalog=url)
    scan = held.scan("n = 2")
    lake.write_dataset(TABLE, tmp_path / "t", catalog=url, mode="overwrite")
    lake.open_dataset(tmp_path / "t", catalog=url).expire_versions(keep_last=1)
    with pytest.raises(VersionNotFoundError):
        scan.explain()


@pytest.mark.parametrize(
    ("condition", "most"), [(None, 4), ("n = 2", 6), ("p = 'b'", 10), ("n = 2 AND p = 'b'", 12)]
)
def test_a_plan_takes_few_round_trips(
    url: str, tmp_path: Path, condition: str | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write_dataset(TABLE, tmp_path / "t", catalog=url, partition_by="p")
    scan = lake.open_dataset(tmp_path / "t", catalog=url).scan(condition)
    asked: list[str] = []
    from lakehouse_source.catalog.backends.postgres import _PostgresSession

    query = _PostgresSession.query

    def counted(self: Session, statement: str, values: tuple[object, ...] = ()) -> object:
        asked.append(statement)
        return query(self, statement, values)

    monkeypatch.setattr(_PostgresSession, "query", counted)
    scan.explain()
    assert len(asked) <= most, asked


@pytest.mark.long
def test_no_condition_waits_for_another_parser_of_sql(tmp_path: Path) -> None:
    lake.write_dataset(TABLE, tmp_path / "t")
    code = f"""
import sys
import lakehouse_source as lake
from lakehouse_source.language import Name, compare
conditions = [("n", "=", 2)], compare(Name.of("n"), "=", 2), None
for condition in conditions:
    lake.open_dataset({str(tmp_path / "t")!r}).scan(condition).explain()
assert lake.read_dataset({str(tmp_path / "t")!r}, predicates="n = 2").num_rows == 1
assert "sqlglot" not in sys.modules, "loaded"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_small_write_and_read_load_no_pandas_driver_or_dataset_module(tmp_path: Path) -> None:
    """Each takes longer to load than the write and the read take."""
    lake.write_dataset(TABLE, tmp_path)  # the first write makes the catalog, by sqlite-utils
    code = f"""
import sys
import pyarrow.parquet as pq
import lakehouse_source as lake
assert "pyarrow.compute" not in sys.modules, "the import alone loaded it"
uri = {str(tmp_path)!r}
table = pq.ParquetFile(uri + "/" + lake.open_dataset(uri).files()[0].path).read()
lake.write_dataset(table, uri)
assert lake.read_dataset(uri).num_rows == lake.open_dataset(uri).scan().count_rows() == 6
assert not {{"pandas", "psycopg", "pyarrow.dataset"}} & set(sys.modules)
assert lake.read_dataset(uri, predicates="n = 2").num_rows == 2
assert not {{"psycopg", "pyarrow.dataset"}} & set(sys.modules)
lake.read_dataset(uri, as_dataset=True)
assert "pyarrow.dataset" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_public_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(lake.__file__).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        name.name: getattr(importlib.import_module(found.module), name.name)
        for found in checked.body
        if isinstance(found, ast.ImportFrom) and found.module
        for name in found.names
    }
    assert {*seen, "spark", "server"} == set(lake.__all__)
    assert {name: getattr(lake, name) for name in seen} == seen
    assert set(lake.__all__) <= set(dir(lake))
    with pytest.raises(AttributeError, match="'nope'"):
        lake.nope  # noqa: B018


class TestCountingAllRows:
    """`count_rows()` without a condition is answered by the summary of the version's commit."""

    def test_reads_no_files_and_no_records_of_files(self, tmp_path: Path) -> None:
        lake.write_dataset(TABLE, tmp_path, partition_by="p")
        dataset = lake.open_dataset(tmp_path)
        with closing(sqlite3.connect(tmp_path / "_plake" / "catalog.db")) as database, database:
            database.execute("DELETE FROM files")
        assert dataset.scan().count_rows() == dataset.scan(columns=["n"]).count_rows() == 3

    def test_each_version_has_its_own_number(self, tmp_path: Path) -> None:
        lake.write_dataset(TABLE, tmp_path)
        lake.write_dataset(TABLE.slice(1), tmp_path)
        lake.write_dataset(TABLE.slice(2), tmp_path, mode="overwrite", overwrite_where="n = 3")
        dataset = lake.open_dataset(tmp_path)
        counts = [dataset.scan(version=v).count_rows() for v in (1, 2, 3)]
        assert counts == [dataset.scan(version=v).to_table().num_rows for v in (1, 2, 3)]
        assert counts == [3, 5, 4]
        dataset.restore(2)
        assert dataset.scan().count_rows() == 5

    def test_columns_are_still_checked(self, tmp_path: Path) -> None:
        lake.write_dataset(TABLE, tmp_path)
        with pytest.raises(lake.SchemaMismatchError, match="'nope'"):
            lake.open_dataset(tmp_path).scan(columns=["nope"]).count_rows()

    def test_a_summary_without_the_number_is_not_used_or_continued(self, tmp_path: Path) -> None:
        lake.write_dataset(TABLE, tmp_path, partition_by="p")
        with closing(sqlite3.connect(tmp_path / "_plake" / "catalog.db")) as database, database:
            database.execute("UPDATE transactions SET summary_json = '{}'")
        assert lake.open_dataset(tmp_path).scan().count_rows() == 3
        lake.write_dataset(TABLE, tmp_path)
        assert lake.open_dataset(tmp_path).scan().count_rows() == 6

    def test_a_condition_reads_only_its_own_columns(self, tmp_path: Path) -> None:
        lake.write_dataset(TABLE.append_column("wide", [["x", None, "y"]]), tmp_path)
        scan = lake.open_dataset(tmp_path).scan("n <> 2 OR p = 'a'", columns=["wide"])
        assert scan.count_rows() == 2
