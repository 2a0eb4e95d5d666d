from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlite_utils import Database

import lakehouse_source
from lakehouse_source.catalog import open_catalog, redact
from lakehouse_source.catalog.backends.sqlite import SqliteCatalog, idle_connections
from lakehouse_source.catalog.backends.sqlite_checks import (
    NEW_CATALOG,
    definitions_in,
    digest_of,
    is_new_catalog,
)
from lakehouse_source.catalog.sql.migrations import TABLES
from lakehouse_source.catalog.sql.statements import TRANSACTION_COLUMNS
from lakehouse_source.catalog.sql.write_states import described
from lakehouse_source.errors import (
    CatalogUnavailableError,
    DatasetNotFoundError,
    InvalidOptionError,
)
from lakehouse_source.model import TransactionRecord
from tests.catalog_contract import URI, CatalogContract, bound, commit, file_of, point

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


class TestSqliteContract(CatalogContract):
    @pytest.fixture
    def url(self, path: Path) -> str:
        return f"sqlite://{path}"

    @pytest.fixture
    def plant(self, path: Path) -> Callable[[str], None]:
        def run(statement: str) -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(statement)

        return run


@pytest.mark.parametrize(
    ("numbers", "answers"),
    [
        ([70], 1),  # a low key: nearly all files lie above it
        ([99_950], 1),
        ([50_005], 1),
        (range(200, 260), 6),
        (range(5, 100_000, 5_000), 20),
    ],
)
@pytest.mark.sampled(3)
def test_what_a_search_reads_does_not_grow_with_the_table(
    path: Path, numbers: Sequence[int], answers: int
) -> None:
    """Steps of SQLite's machine, over ten thousand files and over a tenth of them."""

    def steps(files: int) -> int:
        at = path.with_name(f"{files}.db")
        width = 100_000 // files
        with open_catalog(f"sqlite://{at}") as catalog:
            dataset = commit(
                catalog,
                [
                    (file_of(f"f{n}"), [bound(1, n * width, (n + 1) * width - 1)])
                    for n in range(files)
                ],
            )
            taken = [0]
            with catalog.read() as reader:
                count = taken.__setitem__
                reader._session.connection.set_progress_handler(lambda: count(0, taken[0] + 1), 10)
                found = reader.files(dataset.id, 1, point(1, *numbers))
                reader._session.connection.set_progress_handler(None, 0)
            if files == 10_000:
                assert len(found) == answers
            return taken[0]

    assert steps(10_000) < 3 * steps(1_000)


def test_the_file_is_readable_by_its_owner_only(path: Path) -> None:
    old = os.umask(0)
    try:
        with open_catalog(f"sqlite://{path}") as catalog:
            commit(catalog)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_commits_go_through_a_rollback_journal_and_are_synced(path: Path) -> None:
    with open_catalog(f"sqlite://{path}") as catalog, catalog.read() as reader:
        ask = reader._session.query
        assert ask("PRAGMA journal_mode") == [("delete",)]
        assert ask("PRAGMA synchronous") == [(2,)]
        assert ask("PRAGMA foreign_keys") == [(1,)]


def test_a_wal_database_is_turned_back(path: Path) -> None:
    with open_catalog(f"sqlite://{path}") as catalog:
        commit(catalog)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with open_catalog(f"sqlite://{path}") as catalog, catalog.read() as reader:
        assert reader._session.query("PRAGMA journal_mode") == [("delete",)]
        assert len(reader.datasets()) == 1


def test_sqlite_utils_sees_the_documented_tables(path: Path) -> None:
    with open_catalog(f"sqlite://{path}") as catalog:
        commit(catalog, [(file_of("a", partitions={"year": "2013"}), [])])
    with closing(sqlite3.connect(path)) as connection:
        database = Database(connection)
        assert {*TABLES, "catalog_format"} <= set(database.table_names())
        assert [row["file_path"] for row in database["files"].rows] == ["a"]
        assert list(database["row_groups"].columns_dict)[:6] == [
            "id", "file_id", "row_group_index", "row_count", "stats_min_json", "stats_max_json",
        ]  # fmt: skip


def test_a_commit_is_read_copied_and_recorded_with_all_of_its_columns(path: Path) -> None:
    with open_catalog(f"sqlite://{path}") as catalog, catalog.read():
        pass
    with closing(sqlite3.connect(path)) as connection:
        stored = {row[1] for row in connection.execute("PRAGMA table_info(transactions)")}
    assert stored == {"id", "dataset_id", *TRANSACTION_COLUMNS}
    names = [field.name for field in fields(TransactionRecord)]
    assert names == [column.removesuffix("_json") for column in TRANSACTION_COLUMNS]


def test_a_new_catalog_does_not_wait_for_sqlite_utils(path: Path) -> None:
    """It imports pandas: a third of the processor time of the first write in a process."""
    code = (
        "import sys, lakehouse_source as lake; lake.write_dataset({'a': [1]}, sys.argv[1]); "
        "assert 'sqlite_utils' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(path.parent / "data")], check=True)
    assert (path.parent / "data" / "_plake" / "catalog.db").exists()


def test_a_locked_catalog_says_so_after_the_timeout(path: Path) -> None:
    with open_catalog(f"sqlite://{path}?timeout=0.2") as catalog:
        commit(catalog)
        with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            for act in (catalog.write, catalog.read):
                with (
                    pytest.raises(CatalogUnavailableError, match="locked") as caught,
                    act() as transaction,
                ):
                    transaction.datasets()
                assert not caught.value.retryable
            blocker.execute("ROLLBACK")
        commit(catalog)


def test_a_commit_that_readers_keep_out_is_undone(path: Path) -> None:
    url = f"sqlite://{path}?timeout=0.2"
    with open_catalog(url) as catalog, open_catalog(url) as other:
        commit(catalog)
        with other.read() as reader:
            before = reader.datasets()
            with pytest.raises(CatalogUnavailableError, match="locked"):
                commit(catalog)
        with other.read() as reader:
            assert reader.datasets() == before
        assert commit(catalog).current_version == 2


def test_a_writer_waits_for_the_lock(path: Path) -> None:
    """ducklake #1309: a read that became a write did not wait."""
    url = f"sqlite://{path}"
    with open_catalog(url) as catalog, open_catalog(url) as other:
        commit(catalog)
        with catalog.write() as transaction:
            thread = threading.Thread(target=lambda: commit(other))
            thread.start()
            thread.join(0.2)
            assert thread.is_alive()
            transaction.datasets()
        thread.join(30)
        with catalog.read() as reader:
            assert reader.datasets()[0].current_version == 2


def test_opening_the_file_again_keeps_the_lock_of_a_writer_of_the_same_process(path: Path) -> None:
    """POSIX: closing any descriptor of a file drops all locks that the process has on it.

    Another process could then write at the same time, and the file is damaged.
    """
    url = f"sqlite://{path}"
    other_process = f"""
import sqlite3
connection = sqlite3.connect({str(path)!r}, timeout=0.1, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
"""
    with open_catalog(url) as catalog:
        commit(catalog)
        with catalog.write() as transaction:
            transaction.datasets()
            with open_catalog(url) as other, other.read() as reader:
                assert len(reader.datasets()) == 1
            done = subprocess.run([sys.executable, "-c", other_process], capture_output=True)
            assert b"database is locked" in done.stderr


@pytest.fixture
def connections_made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    made: list[object] = []
    connect = sqlite3.connect

    def counted(*given: object, **named: object) -> object:
        made.append(given[0])
        return connect(*given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(sqlite3, "connect", counted)
    return made


class TestConnectionsKeptForTheNextCatalog:
    def versions(self, path: Path) -> list[int]:
        catalog = open_catalog(f"sqlite://{path}")
        try:
            with catalog.read() as reader:
                return [dataset.current_version for dataset in reader.datasets()]
        finally:
            catalog.release()

    def test_a_released_connection_is_used_again(
        self, path: Path, connections_made: list[object]
    ) -> None:
        with open_catalog(f"sqlite://{path}") as catalog:
            commit(catalog)
        del connections_made[:]
        assert [self.versions(path) for _ in range(5)] == [[1]] * 5
        assert len(connections_made) == 1

    def test_a_closed_connection_is_not(self, path: Path, connections_made: list[object]) -> None:
        for _ in range(2):
            with open_catalog(f"sqlite://{path}") as catalog:
                commit(catalog)
        assert len(connections_made) == 2

    def test_a_file_that_was_deleted_and_made_anew_is_opened_anew(self, path: Path) -> None:
        with open_catalog(f"sqlite://{path}") as catalog:
            commit(catalog)
            commit(catalog)
        assert self.versions(path) == [2]
        path.unlink()
        with open_catalog(f"sqlite://{path}") as catalog:
            commit(catalog)
        assert self.versions(path) == [1]

    def test_a_file_whose_content_was_replaced_is_opened_anew(
        self, path: Path, tmp_path: Path
    ) -> None:
        """SQLite tells versions of a file by a counter, which may be equal in both."""
        other = tmp_path / "other.db"
        for at, uri in ((path, URI), (other, "file:///other/and/longer")):
            with open_catalog(f"sqlite://{at}") as catalog:
                commit(catalog, uri=uri)
        catalog = open_catalog(f"sqlite://{path}")
        with catalog.read() as reader:
            assert [dataset.base_uri for dataset in reader.datasets()] == [URI]
        catalog.release()
        time.sleep(0.05)  # longer than a tick of the clock that stamps files
        path.write_bytes(other.read_bytes())
        with open_catalog(f"sqlite://{path}") as catalog, catalog.read() as reader:
            assert [d.base_uri for d in reader.datasets()] == ["file:///other/and/longer"]

    def test_a_forked_child_makes_its_own(self, path: Path) -> None:
        with open_catalog(f"sqlite://{path}") as catalog:
            commit(catalog)
        assert self.versions(path) == [1]
        code = f"""
import os, sys
from pathlib import Path
from typing import Any
from lakehouse_source.catalog import open_catalog
from lakehouse_source.catalog.backends import sqlite
def look():
    catalog = open_catalog("sqlite://{path}")
    with catalog.read() as reader:
        assert len(reader.datasets()) == 1
    catalog.release()
look()
(kept,) = sqlite.idle_connections._kept[sqlite._RELEASED]
child = os.fork()
if child == 0:
    assert not sqlite.idle_connections._kept
    look()
    assert sqlite.idle_connections._kept[sqlite._RELEASED] != [kept]
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
look()
assert sqlite.idle_connections._kept[sqlite._RELEASED] == [kept]
"""
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_is_forked_in_a_transaction_does_not_keep_its_connection(path: Path) -> None:
    status = 1
    with open_catalog(f"sqlite://{path}") as catalog:
        commit(catalog)
        with catalog.read() as reader:
            mine = reader._session.connection  # type: ignore[attr-defined]
            child = os.fork()
        if child == 0:
            try:
                kept = [*chain(*idle_connections._kept.values())]
                with catalog.read() as reader:
                    is_own = reader._session.connection is not mine  # type: ignore[attr-defined]
                    status = 0 if mine not in kept and is_own and reader.datasets() else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        with catalog.read() as reader:
            assert reader._session.connection is mine  # type: ignore[attr-defined]


def test_a_catalog_that_is_forgotten_waits_for_no_thread(path: Path) -> None:
    """The garbage collector ran in a thread whose start another one awaited with the lock."""
    catalogs = [open_catalog(f"sqlite://{path}")]
    commit(catalogs[0])
    with idle_connections._lock:
        forgetting = threading.Thread(target=catalogs.clear, daemon=True)
        forgetting.start()
        forgetting.join(10)
        assert not forgetting.is_alive()


def test_a_transaction_looks_once_at_the_file_its_folder_and_each_file_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: Counter[str] = Counter()

    def count(name: str) -> None:
        real = getattr(os, name)

        def counted(at: object, *given: object, **named: object) -> object:
            looked[str(at)] += 1
            return real(at, *given, **named)

        monkeypatch.setattr(os, name, counted)

    with open_catalog(f"sqlite://{path}") as catalog:
        commit(catalog)
        for name in ("stat", "lstat", "open", "readlink"):
            count(name)
        for transaction in (catalog.read, catalog.write):
            looked.clear()
            with transaction() as reader:
                assert len(reader.datasets()) == 1
            beside = [f"{path}{suffix}" for suffix in ("-journal", "-wal", "-shm")]
            assert looked == Counter([str(path), str(path.parent), *beside])


@pytest.mark.parametrize("folder", ["no/such", "link"])
def test_a_missing_folder_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with (
        open_catalog(f"sqlite://{tmp_path}/{folder}/catalog.db") as catalog,
        pytest.raises(CatalogUnavailableError, match=r"does not exist\. Create it first"),
        catalog.read(),
    ):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["link"]


def test_a_file_that_is_no_database_is_refused_and_kept(path: Path) -> None:
    path.write_text("these are my notes, not a database at all")
    with (
        open_catalog(f"sqlite://{path}") as catalog,
        pytest.raises(CatalogUnavailableError, match="not a SQLite database"),
        catalog.read(),
    ):
        pass
    assert path.read_text().startswith("these are my notes")


def test_a_damaged_database_is_refused(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with (
        open_catalog(f"sqlite://{path}") as catalog,
        pytest.raises(CatalogUnavailableError),
        catalog.read(),
    ):
        pass


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with (
        open_catalog(f"sqlite://{tmp_path}") as catalog,
        pytest.raises(CatalogUnavailableError, match="cannot be opened"),
        catalog.read(),
    ):
        pass


def test_an_empty_file_becomes_a_catalog(path: Path) -> None:
    """A crash between making the file and making its tables leaves one."""
    path.touch()
    with open_catalog(f"sqlite://{path}") as catalog, catalog.read() as reader:
        assert reader.datasets() == []


def test_a_crash_while_the_tables_are_made_leaves_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sqlite-utils must not commit inside our transaction."""
    from lakehouse_source.catalog.sql import migrations

    with monkeypatch.context() as patched:
        broken = [[*migrations.MIGRATIONS[0][:5], "BROKEN"], *migrations.MIGRATIONS[1:]]
        patched.setattr(migrations, "MIGRATIONS", broken)
        with (
            open_catalog(f"sqlite://{path}") as catalog,
            pytest.raises(CatalogUnavailableError, match="syntax"),
            catalog.read(),
        ):
            pass
    with closing(sqlite3.connect(path)) as connection:
        assert Database(connection).table_names() == []
    with open_catalog(f"sqlite://{path}") as catalog:
        commit(catalog)


def test_a_deleted_catalog_does_not_swallow_commits(path: Path) -> None:
    with open_catalog(f"sqlite://{path}") as catalog:
        commit(catalog)
        path.unlink()
        assert commit(catalog).current_version == 1
        assert path.exists()


def test_a_read_only_catalog_can_be_read(path: Path) -> None:
    with open_catalog(f"sqlite://{path}") as catalog:
        commit(catalog)
    path.chmod(0o400)
    with open_catalog(f"sqlite://{path}") as catalog:
        with catalog.read() as reader:
            assert len(reader.datasets()) == 1
        if os.geteuid() != 0:
            with pytest.raises(CatalogUnavailableError, match="read-only"):
                commit(catalog)


def test_a_local_dataset_has_its_catalog_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLAKE_CATALOG", raising=False)
    folder = tmp_path / "my flights ☃ 100%"
    uri = "file://" + quote(str(folder))
    with pytest.raises(DatasetNotFoundError) as caught:
        open_catalog(None, dataset_uri=uri, create=False)
    assert caught.value.dataset == uri
    assert not folder.exists()
    with open_catalog(None, dataset_uri=uri) as catalog:
        assert not folder.exists()
        commit(catalog, uri=uri)
        assert catalog.url == f"sqlite://{quote(str(folder))}/_plake/catalog.db"
    assert (folder / "_plake" / "catalog.db").exists()
    with open_catalog(None, dataset_uri=uri, create=False) as catalog, catalog.read() as reader:
        assert reader.dataset(uri) is not None


def test_the_states_of_a_write_have_their_sql_in_one_file() -> None:
    catalog = Path(lakehouse_source.__file__).parent / "catalog"
    named = {
        path.relative_to(catalog).as_posix()
        for path in catalog.rglob("*.py")
        if "pending_writes" in path.read_text()
    }
    # Its table is made by a migration; a stuck lock on it is looked for in PostgreSQL.
    assert named == {"sql/write_states.py", "sql/migrations.py", "backends/postgres_connections.py"}


def test_the_page_of_formats_has_the_states_of_a_write() -> None:
    pages = Path(lakehouse_source.__file__).parents[1] / "docs"
    if not pages.exists():
        pytest.skip("this is not a checkout")
    assert described() in (pages / "formats.md").read_text()


def test_the_environment_names_a_catalog(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAKE_CATALOG", f"sqlite://{path}")
    monkeypatch.setenv("PLAKE_ELSEWHERE", f"sqlite://{path}2")
    for url, named in ((None, f"sqlite://{path}"), ("env:PLAKE_ELSEWHERE", f"sqlite://{path}2")):
        with open_catalog(url, dataset_uri=URI) as catalog:
            assert catalog.url == named
    monkeypatch.setenv("PLAKE_CATALOG", "env:PLAKE_ELSEWHERE")
    with open_catalog(None, dataset_uri=URI) as catalog:
        assert isinstance(catalog, SqliteCatalog)
        assert catalog.path == f"{path}2"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("catalog.db", "Known: sqlite:///absolute/path.db"),
        ("/abs/catalog.db", "Known: sqlite:///absolute/path.db"),
        ("mysql://u:canary@h/d", "Known: sqlite:///absolute/path.db"),
        ("duckdb://relative.db", "duckdb:///folder/catalog.db"),
        ("duckdb:///", "absolute path"),
        ("sqlite://relative.db", "absolute path"),
        ("sqlite:relative.db", "absolute path"),
        ("sqlite://", "absolute path"),
        ("sqlite:///", "absolute path"),
        ("sqlite:///folder/", "absolute path"),
        ("sqlite:///x.db?mode=memory", "parameter 'mode'"),
        ("sqlite:///x.db?timeout=soon", "number of seconds"),
        ("env:PLAKE_NO_SUCH", "PLAKE_NO_SUCH"),
        ("postgresql:u:canary@h", "Known:"),
        ("postgresql://u:canary/1@h:port/d", "percent-encoded"),
        ("postgresql://u:can@ary:canary@h/d", "percent-encoded"),
        ("postgresql://h/d?password=canary&bogus=1", "percent-encoded"),
    ],
)
def test_urls_that_name_no_catalog(url: str, said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        open_catalog(url)
    assert said in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in f"{error!s} {error!r} {vars(error)}"
        error = error.__cause__ or error.__context__


def test_no_catalog_and_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAKE_CATALOG", raising=False)
    for uri in (None, "s3://bucket/flights"):
        with pytest.raises(InvalidOptionError, match="PLAKE_CATALOG"):
            open_catalog(None, dataset_uri=uri)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:canary@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://u:can/ary?ca#na@r:y@host/db", "postgresql://u:***@host/db"),
        ("postgresql://:canary@host/db", "postgresql://:***@host/db"),
        (
            "postgresql://h/db?user=u&password=canary&sslpassword=canary&user=me",
            "postgresql://h/db?user=u&password=***&sslpassword=***&user=me",
        ),
        ("sqlite:///a@b:c@d.db", "sqlite:///a@b:c@d.db"),
        ("env:NAME", "env:NAME"),
    ],
)
def test_redaction(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_a_new_catalog_is_known_by_its_digest(path: Path) -> None:
    """Otherwise each process makes one in memory to compare with, when it opens its first."""
    with open_catalog(f"sqlite://{path}") as catalog, catalog.read():
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert digest_of(definitions_in(connection)) == NEW_CATALOG
        assert is_new_catalog(definitions_in(connection))
        connection.execute("CREATE TABLE catalog_more (id INTEGER)")
        assert not is_new_catalog(definitions_in(connection))


def test_opening_a_catalog_reads_its_definitions_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement of Spark opens it in four processes, each time after another one wrote."""
    with open_catalog(f"sqlite://{path}") as catalog, catalog.read():
        pass
    told: list[str] = []
    connect = sqlite3.connect

    def traced(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*given, **named)
        connection.set_trace_callback(told.append)
        return connection

    os.utime(path)  # no connection that was released is used again
    monkeypatch.setattr(sqlite3, "connect", traced)
    with open_catalog(f"sqlite://{path}") as catalog, catalog.read():
        pass
    assert len([one for one in told if "sqlite_master" in one]) == 1
