from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import Catalog, open_catalog
from lakehouse_source.catalog.backends.duckdb import SETTINGS
from lakehouse_source.catalog.copy import copy_catalog
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.errors import CatalogUnavailableError, DatasetNotFoundError
from tests import processes
from tests.catalog_contract import (
    NEW_IN_FORMAT_7,
    NEW_IN_FORMAT_8,
    NEW_IN_FORMAT_10,
    URI,
    CatalogContract,
    commit,
    file_of,
)
from tests.made_catalogs import copy_of_new_catalog

pytestmark = pytest.mark.slow

HOLD = """
import sys
from lakehouse_source.catalog import open_catalog
from tests.catalog_contract import commit
with open_catalog(sys.argv[1]) as catalog:
    commit(catalog)
    print("open", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def _die(url: str, commits: int) -> None:
    with open_catalog(url) as catalog, catalog.read():
        for _ in range(commits):
            commit(catalog)
        with catalog.write():
            os._exit(3)


def _use_in_child(catalog: Catalog, answers: Any) -> None:
    try:
        with catalog.read() as reader:
            reader.datasets()
        answers.put("read")
    except CatalogUnavailableError as error:
        answers.put(error.reason)


@pytest.mark.slow  # `make test-quick` has the contract with two other catalogs
class TestDuckDBContract(CatalogContract):
    SEARCHES = 100  # each takes 10 ms: others 1 ms

    @pytest.fixture
    def url(self, request: pytest.FixtureRequest, path: Path) -> str:
        if "catalog" in request.fixturenames:
            return copy_of_new_catalog("duckdb", path)
        return f"duckdb://{path}"

    @pytest.fixture
    def plant(self, path: Path) -> Callable[[str], None]:
        def run(statement: str) -> None:
            # Of one file, all connections of a process have the same settings.
            with duckdb.connect(str(path), config=SETTINGS) as connection:
                connection.execute(statement)

        return run

    def take_back_to_format(self, number: int, url: str, plant: Callable[[str], None]) -> None:
        """DuckDB drops no column of a table with an index: the rows go to a new catalog."""
        path = Path(url.removeprefix("duckdb://"))
        before = path.with_name("before.db")
        path.rename(before)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(migrations, "LATEST", number)
            with open_catalog(url) as old, suppress(CatalogUnavailableError), old.write():
                pass  # the tables are made; the statements are those of another format
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"ATTACH '{before}' AS source")
            later = ["catalog_leases", "identity_lanes"]
            later += ["dataset_clones"] if number < 12 else []
            later += [*NEW_IN_FORMAT_10, *NEW_IN_FORMAT_8] if number < 10 else []
            later += NEW_IN_FORMAT_7 if number < 7 else ()
            later += ["deletion_vectors"] if number < 6 else []
            for table in (t for t in migrations.TABLES if t not in later):
                found = connection.execute(f"PRAGMA table_info('{table}')").fetchall()
                names = ", ".join(row[1] for row in found)
                connection.execute(f"DELETE FROM {table}")  # rows that the format begins with
                connection.execute(
                    f"INSERT INTO {table} ({names}) SELECT {names} FROM source.{table}"
                )
            # Ids of new rows come after those of the rows that were copied.
            connection.execute("SELECT nextval('plake_ids') FROM range(1000)")

    def test_a_catalog_whose_migration_ended_half_way_is_brought_up_to_date(
        self, url: str, plant: Callable[[str], None], tmp_path: Path
    ) -> None:
        """DuckDB 1 needs columns to be added before the transaction of the migration."""
        uri = str(tmp_path / "data")
        lake.write_dataset(pa.table({"a": [1, 2]}), uri, catalog=url)
        self.take_back_to_format(5, url, plant)
        plant("ALTER TABLE datasets ADD COLUMN next_row_id BIGINT DEFAULT 0")
        found = lake.read_dataset(uri, catalog=url, columns=["a", "_row_id"])
        assert found.to_pylist() == [{"a": 1, "_row_id": 0}, {"a": 2, "_row_id": 1}]

    def test_processes_that_register_at_once_get_one_dataset(self, url: str) -> None:
        """Not at once here: the second process is told who is in its way."""
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            with (
                open_catalog(url) as catalog,
                pytest.raises(CatalogUnavailableError, match="another process") as caught,
                catalog.write(),
            ):
                pass
            assert "one process at a time" in caught.value.reason
            assert not caught.value.retryable
            assert caught.value.attempts > 1
            holder.communicate("\n")
        with open_catalog(url) as catalog:
            assert commit(catalog).current_version == 2

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_opens_its_own_connection(self, catalog: Catalog) -> None:
        """Not here: it is refused, because it would write to the parent's open database."""
        commit(catalog)
        with processes.forked(_use_in_child, catalog) as answers:
            assert "forked" in answers.get(timeout=30)
        assert commit(catalog).current_version == 2


def test_the_file_is_readable_by_its_owner_only(path: Path) -> None:
    old = os.umask(0o022)
    try:
        with open_catalog(f"duckdb://{path}") as catalog:
            commit(catalog)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_catalogs_of_one_process_share_the_file(path: Path) -> None:
    url = f"duckdb://{path}"
    with open_catalog(url) as one, open_catalog(f"duckdb:///{path}") as other:
        commit(one, [(file_of("a"), [])])
        commit(other, [(file_of("b"), [])])
        with one.read() as reader:
            assert [file.path for file in reader.files(1, 2)] == ["a", "b"]


@pytest.mark.parametrize("commits", [0, 1])
def test_a_catalog_opens_whose_first_process_was_killed(path: Path, commits: int) -> None:
    """DuckDB 1 could not play its journal back, and every commit was out of reach."""
    url = f"duckdb://{path}"
    assert processes.run(_die, url, commits) == 3
    with open_catalog(url) as catalog:
        assert commit(catalog).current_version == commits + 1


def test_a_writer_that_waits_too_long_says_so(path: Path) -> None:
    with open_catalog(f"duckdb://{path}?timeout=0.1") as catalog:
        commit(catalog)
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with catalog.write():
                held.set()
                done.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        with pytest.raises(CatalogUnavailableError, match="locked by this process"):
            commit(catalog)
        done.set()
        thread.join(30)
        assert commit(catalog).current_version == 2


def test_a_file_of_another_kind_is_refused_and_kept(path: Path) -> None:
    path.write_text("these are my notes, not a database at all")
    with (
        open_catalog(f"duckdb://{path}") as catalog,
        pytest.raises(CatalogUnavailableError),
        catalog.read(),
    ):
        pass
    assert path.read_text().startswith("these are my notes")


@pytest.mark.long
def test_no_file_of_a_duckdb_catalog_is_ever_readable_by_others(tmp_path: Path) -> None:
    """DuckDB makes files with all rights of the umask, and its log anew after each checkpoint."""
    (tmp_path / "own").mkdir()
    path, ended = tmp_path / "own" / "catalog.db", threading.Event()
    seen: dict[str, int] = {}

    def look() -> None:
        for name in os.listdir(path.parent):
            with suppress(OSError):
                kind = name.removeprefix(path.name).rpartition(".")[2]
                seen[kind] = seen.get(kind, 0) | (path.parent / name).stat().st_mode & 0o077

    def watch() -> None:
        while not ended.is_set():
            look()

    watching = threading.Thread(target=watch)
    before = os.umask(0)
    watching.start()
    try:
        for _ in range(3):
            with open_catalog(f"duckdb://{path}") as catalog:
                for _ in range(4):
                    commit(catalog)
                    look()
                with catalog.read():
                    look()
        copy_catalog(open_catalog(f"duckdb://{path}"), open_catalog(f"duckdb://{path}2"))
        open_catalog(f"duckdb://{path}").overwrite_free_pages()
    finally:
        os.umask(before)
        ended.set()
        watching.join()
    look()
    assert {"", "wal"} <= seen.keys()
    assert set(seen.values()) == {0}, {kind: oct(mode) for kind, mode in seen.items()}
    assert sorted(one.name for one in path.parent.iterdir()) == ["catalog.db", "catalog.db2"]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with (
        open_catalog(f"duckdb://{tmp_path}/no/catalog.db") as catalog,
        pytest.raises(CatalogUnavailableError, match="does not exist"),
        catalog.read(),
    ):
        pass
    with pytest.raises(DatasetNotFoundError):
        open_catalog(f"duckdb://{tmp_path}/catalog.db", dataset_uri=URI, create=False)
    assert list(tmp_path.iterdir()) == []


def test_plain_users_do_not_load_duckdb() -> None:
    code = "import sys, lakehouse_source; assert not {'duckdb', 'sqlite_utils'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
