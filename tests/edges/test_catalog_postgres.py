from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

from lakehouse_source import write_dataset
from lakehouse_source.catalog import open_catalog, redact
from lakehouse_source.catalog.backends import postgres_connections as server_connections
from lakehouse_source.catalog.backends.postgres import PostgresCatalog
from lakehouse_source.catalog.backends.postgres_connections import shared_connections
from lakehouse_source.catalog.base import Catalog, CatalogReader
from lakehouse_source.catalog.sql.statements import Row
from lakehouse_source.errors import (
    CatalogUnavailableError,
    CommitAcknowledgementLostError,
    CommitConflictError,
    PlakeError,
)
from tests.catalog_contract import (
    SCHEMA,
    URI,
    CatalogContract,
    bound,
    commit,
    file_of,
    point,
)
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

CANARY = "canary-Passw0rd"


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.fresh_database(CANARY)


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with open_catalog(url) as catalog:
        yield catalog


class TestPostgresContract(CatalogContract):
    @pytest.fixture
    def url(self, request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[str]:
        has_tables = "catalog" in request.fixturenames
        new = postgres_server.new_catalog if has_tables else postgres_server.fresh_database
        yield (url := new(CANARY))
        postgres_server.drop(url)

    @pytest.fixture
    def plant(self, url: str) -> Callable[[str], None]:
        def run(statement: str) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(statement.encode())

        return run


@pytest.mark.long
def test_a_low_key_takes_no_more_of_the_index_than_a_high_one(catalog: Catalog) -> None:
    """Pages of the search index that the database looks at, ten thousand files in it."""
    files = [(file_of(f"f{n}"), [bound(1, n * 10, n * 10 + 9)]) for n in range(10_000)]
    dataset = commit(catalog, files)

    def pages(plan: dict[str, Any]) -> int:
        if plan.get("Relation Name") == "column_bounds":
            return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return sum(pages(below) for below in plan.get("Plans", ()))

    def looked_at(number: int) -> int:
        seen: list[int] = []
        with catalog.read() as reader:
            session = reader._session
            query = session.query

            def explained(statement: str, values: Sequence[object] = ()) -> list[Row]:
                asked = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
                seen.append(pages(query(asked, values)[0][0][0]["Plan"]))
                return query(statement, values)

            with patch.object(session, "query", explained):
                found = reader.files(dataset.id, 1, point(1, number))
            assert [file.path for file in found] == [f"f{number // 10}"]
        return sum(seen)

    high = looked_at(99_990)
    assert high > 0
    assert looked_at(70) < 2 * high
    assert looked_at(50_005) < 2 * high


def kill_backends(postgres_server: PostgresServer, url: str) -> None:
    database = url.rpartition("/test_")[2].partition("?")[0]
    postgres_server.run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        f"WHERE datname = 'test_{database}' AND pid <> pg_backend_pid()"
    )


class Cutter:
    """A TCP proxy that can lose the answer to COMMIT, or everything."""

    def __init__(self, socket_folder: str) -> None:
        self._target = f"{socket_folder}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut_after_commit = False
        self._threads: list[threading.Thread] = []
        self._serve(self._accept)

    def _serve(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._serve(self._forward, client, server)
            self._serve(self._back, server, client)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                cut = self.cut_after_commit and b"COMMIT\0" in data
                if cut:
                    client.shutdown(socket.SHUT_RDWR)
                server.sendall(data)
                if cut:
                    time.sleep(0.2)
                    break
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def cutter(postgres_server: PostgresServer) -> Iterator[Cutter]:
    cutter = Cutter(postgres_server.socket_folder)
    yield cutter
    cutter.close()


def test_a_commit_whose_answer_is_lost_has_an_unknown_outcome(
    url: str, catalog: Catalog, cutter: Cutter
) -> None:
    """iceberg #2317: it was taken for a failure, and its files were deleted."""
    name = url.rpartition("@/")[2].partition("?")[0]
    through = f"postgresql://postgres:{CANARY}@127.0.0.1:{cutter.port}/{name}?sslmode=disable"
    with open_catalog(through) as cut:
        commit(cut)
        cutter.cut_after_commit = True
        with pytest.raises(CommitAcknowledgementLostError) as caught:
            commit(cut, write_id="was it?")
        assert (caught.value.outcome_unknown, caught.value.retryable) == (True, False)
        assert CANARY not in str(caught.value)
        cutter.cut_after_commit = False
        # The client may know of the cut before the server has the statement.
        done, until = None, time.monotonic() + 20
        while done is None and time.monotonic() < until:
            with cut.read() as reader:
                done = reader.transaction_by_write_id("was it?")
    assert done is not None
    assert done.version == 2


def test_what_is_sent_with_commit_has_its_outcome(
    url: str, catalog: Catalog, cutter: Cutter
) -> None:
    """The statements that nobody waits for go to the server together with COMMIT."""
    dataset = commit(catalog)
    name = url.rpartition("@/")[2].partition("?")[0]
    through = f"postgresql://postgres:{CANARY}@127.0.0.1:{cutter.port}/{name}?sslmode=disable"

    def register(opened: Catalog, write_id: str) -> None:
        with opened.write() as transaction:
            transaction.register_pending(write_id, dataset.id)

    with open_catalog(through) as cut:
        register(cut, "one")
        cutter.cut_after_commit = True
        with pytest.raises(CommitAcknowledgementLostError):
            register(cut, "two")
        cutter.cut_after_commit = False

    def register_and_fail() -> None:
        with catalog.write() as transaction:
            transaction.register_pending("three", dataset.id)
            transaction._session.send(
                "INSERT INTO schema_versions (dataset_id, version, arrow_schema) "
                "SELECT dataset_id, version, arrow_schema FROM schema_versions"
            )
            transaction.register_pending("four", dataset.id)

    with pytest.raises(CommitConflictError, match="refused a row"):
        register_and_fail()
    for _ in range(100):  # the server may still be at the COMMIT whose answer was lost
        with catalog.read() as reader:
            found = set(reader.silent_writes(-1))
        if "two" in found:
            break
        time.sleep(0.1)
    assert found == {"one", "two"}


def test_a_connection_lost_before_commit_committed_nothing(
    url: str, catalog: Catalog, postgres_server: PostgresServer
) -> None:
    dataset = commit(catalog)

    def write_on() -> None:
        with catalog.write() as transaction:
            transaction.insert_schema(dataset.id, 2, SCHEMA)
            kill_backends(postgres_server, url)
            transaction.insert_schema(dataset.id, 3, SCHEMA)

    with pytest.raises(CatalogUnavailableError) as caught:
        write_on()
    assert caught.value.retryable
    with catalog.read() as reader:
        assert list(reader.schemas(dataset.id)) == [1]


def test_idle_connections_that_were_lost_are_replaced(
    url: str, catalog: Catalog, postgres_server: PostgresServer
) -> None:
    commit(catalog)
    with catalog.read(), catalog.read(), catalog.read(), catalog.read():
        pass
    kill_backends(postgres_server, url)
    with catalog.read() as reader:
        assert len(reader.datasets()) == 1
    kill_backends(postgres_server, url)
    assert commit(catalog).current_version == 2


def test_a_deadlock_is_retryable(url: str) -> None:
    with open_catalog(url) as one, open_catalog(url) as two:
        commit(one, uri="file:///a")
        commit(one, uri="file:///b")
        barrier, errors = threading.Barrier(2), []

        def lock(catalog: Catalog, first: str, second: str) -> None:
            try:
                with catalog.write() as transaction:
                    transaction.lock_dataset(first)
                    barrier.wait(30)
                    transaction.lock_dataset(second)
            except PlakeError as exc:
                errors.append(exc)

        threads = [
            threading.Thread(target=lock, args=(one, "file:///a", "file:///b")),
            threading.Thread(target=lock, args=(two, "file:///b", "file:///a")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    (error,) = errors
    assert isinstance(error, CatalogUnavailableError)
    assert error.retryable


def test_what_is_retryable_does_not_depend_on_the_servers_language(catalog: Catalog) -> None:
    """ducklake #1311: retries were decided by English error text."""
    for name, expected in (
        ("SerializationFailure", True),
        ("DeadlockDetected", True),
        ("AdminShutdown", True),
        ("ConnectionFailure", True),
        ("UniqueViolation", False),
        ("UndefinedTable", False),
        ("DiskFull", False),
        ("InsufficientPrivilege", False),
    ):
        error = getattr(psycopg.errors, name)("Verbindung verloren")
        translated = catalog._translate(error)  # type: ignore[attr-defined]
        assert (translated.retryable, translated.outcome_unknown) == (expected, False), name


def test_writers_of_two_datasets_do_not_wait_for_each_other(catalog: Catalog) -> None:
    commit(catalog, uri="file:///a")
    commit(catalog, uri="file:///b")
    with catalog.write() as transaction:
        dataset = transaction.lock_dataset("file:///a")
        assert dataset is not None
        transaction.insert_transaction(dataset.id, 2, "append", {}, {}, "held")
        transaction.record_file_metadata(
            dataset, 2, [file_of("x")], schema_version=1, bounds=lambda _: []
        )
        done = threading.Thread(
            target=lambda: commit(catalog, [(file_of("y"), [])], uri="file:///b")
        )
        done.start()
        done.join(10)
        assert not done.is_alive()


def test_announcing_a_write_does_not_wait_for_a_commit(catalog: Catalog) -> None:
    dataset = commit(catalog)

    def announce() -> None:
        with catalog.write() as transaction:
            transaction.register_pending("next", dataset.id)

    with catalog.write() as transaction:
        transaction.lock_dataset(URI)
        thread = threading.Thread(target=announce)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


def test_a_lock_is_waited_for_so_long_and_its_holder_is_named(url: str, catalog: Catalog) -> None:
    dataset = commit(catalog)
    with (
        PostgresCatalog(url, redact(url), busy_seconds=0.2) as waiting,
        psycopg.connect(url, application_name="the stuck one") as holder,
    ):
        holder.execute("SELECT 1 FROM datasets FOR UPDATE")

        def lock() -> None:
            with waiting.write() as transaction:
                transaction.lock_dataset(URI)

        with pytest.raises(CatalogUnavailableError, match=r"for 0\.2 seconds") as caught:
            lock()
        shown = str(caught.value)
        assert f"process {holder.info.backend_pid} (the stuck one, idle in transaction" in shown
        assert CANARY not in shown
        assert not caught.value.retryable  # it was waited for
        with waiting.read() as reader:  # nobody waits to read
            assert reader.dataset(URI) == dataset
        holder.rollback()
        assert commit(waiting).current_version == 2


def test_a_writer_that_was_stopped_loses_its_locks_and_may_try_again(
    url: str, catalog: Catalog
) -> None:
    commit(catalog)

    def stop() -> None:
        with stopped.write() as transaction:
            transaction.lock_dataset(URI)
            # The lock is free as soon as the server has ended this one.
            assert commit(catalog).current_version == 2
            transaction.lock_dataset(URI)

    with PostgresCatalog(url, redact(url), idle_seconds=0.2) as stopped:
        with pytest.raises(CatalogUnavailableError) as caught:
            stop()
        assert caught.value.retryable
        assert commit(stopped).current_version == 3


def test_a_swallowed_error_does_not_look_like_a_commit(catalog: Catalog) -> None:
    """PostgreSQL answers COMMIT of a failed transaction with ROLLBACK, and no error."""
    dataset = commit(catalog)

    def write_on() -> None:
        with catalog.write() as transaction:
            transaction.insert_schema(dataset.id, 2, SCHEMA)
            with pytest.raises(PlakeError):
                transaction.insert_schema(dataset.id, 2, SCHEMA)

    with pytest.raises(CatalogUnavailableError, match="nothing was committed"):
        write_on()
    with catalog.read() as reader:
        assert list(reader.schemas(dataset.id)) == [1]


def test_nothing_outlives_a_transaction(url: str, catalog: Catalog) -> None:
    """pgbouncer #418: with a transaction pooler, session state is somebody else's."""
    commit(catalog, [(file_of("x"), [])])
    with psycopg.connect(url) as connection:
        held = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        ).fetchone()
    assert held == (0,)
    with catalog.read() as reader:
        assert reader._session.query("SELECT count(*) FROM pg_prepared_statements") == [(0,)]
    (*_, connection_) = chain(*shared_connections._kept.values())
    assert connection_.execute("SHOW enable_seqscan").fetchone() == ("on",)
    for setting in ("lock_timeout", "idle_in_transaction_session_timeout"):
        assert connection_.execute(f"SHOW {setting}").fetchone() == ("0",)
    with catalog.read_autocommit() as reader:
        assert reader.current(URI) is not None
    assert connection_.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert connection_.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF


@pytest.mark.parametrize("kind", ["refused", "no such host", "no such database", "not a server"])
def test_a_server_that_cannot_be_reached(
    kind: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = {
        "refused": f"postgresql://user:{CANARY}@127.0.0.1:{port}/db",
        "no such host": f"postgresql://user:{CANARY}@plake.invalid/db",
        "no such database": postgres_server.url("nowhere", password=CANARY),
        "not a server": f"postgresql://user:{CANARY}@/db?host={tmp_path}",
    }[kind]
    started = time.monotonic()
    with (
        open_catalog(address) as catalog,
        pytest.raises(CatalogUnavailableError) as caught,
        catalog.read(),
    ):
        pass
    assert time.monotonic() - started < 20
    assert "user:***@" in str(caught.value) or kind == "no such database"
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert not caught.value.retryable  # it was tried several times
    assert caught.value.attempts > 1 or kind == "no such database"
    assert caught.value.later == "the database of the catalog answers"


@pytest.mark.long
def test_a_server_that_does_not_answer_is_given_up(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://u:{CANARY}@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2"
        started = time.monotonic()
        with (
            open_catalog(address) as catalog,
            pytest.raises(CatalogUnavailableError),
            catalog.read(),
        ):
            pass
    assert time.monotonic() - started < 15


def test_the_password_is_never_shown(url: str, catalog: Catalog) -> None:
    assert CANARY in url
    shown = [repr(catalog), str(catalog), catalog.redacted_url]
    for act in (
        lambda: commit(catalog, remove=[5]),
        lambda: [commit(catalog, write_id="same") for _ in range(2)],
        lambda: pickle.dumps(catalog),
    ):
        with pytest.raises((PlakeError, TypeError)) as caught:
            act()
        shown.append("".join(traceback.format_exception(caught.value)))
        if isinstance(caught.value, PlakeError):
            shown += [repr(vars(caught.value)), repr(pickle.dumps(caught.value))]
    assert CANARY not in "".join(shown)


def test_an_interrupted_round_trip_leaves_no_answers_behind(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers to one caller's statements must never reach the next one."""
    dataset = commit(catalog)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), catalog.read_autocommit() as reader:
            reader.current(URI)
    with catalog.read_autocommit() as reader:
        found = reader.current(URI)
    assert found is not None
    assert (found.dataset, found.schema_version, found.schema) == (dataset, 1, SCHEMA)


def test_the_first_statement_that_fails_names_the_error(catalog: Catalog) -> None:
    dataset = commit(catalog)

    def write_on() -> None:
        with catalog.write() as transaction:
            send = transaction._session.send
            send("UPDATE datasets SET name = 'other' WHERE id = ?", (dataset.id,))
            send(
                "INSERT INTO schema_versions (dataset_id, version, arrow_schema) "
                "SELECT dataset_id, version, arrow_schema FROM schema_versions"
            )
            send("SELECT 1 / 0")

    with pytest.raises(CommitConflictError, match="refused a row"):
        write_on()
    assert commit(catalog).name == dataset.name


class TestConnectionsKeptForTheNextCatalog:
    @pytest.fixture(autouse=True)
    def none_before(self) -> Iterator[None]:
        shared_connections.close_all()
        yield
        shared_connections.close_all()

    @pytest.fixture(autouse=True)
    def made(self, url: str) -> None:
        with open_catalog(url) as catalog:
            commit(catalog)

    def server_process(self, url: str) -> int:
        """That of the connection of a new catalog, which is left as `write_dataset` does it."""
        catalog = open_catalog(url)
        try:
            with catalog.read() as reader:
                assert [dataset.current_version for dataset in reader.datasets()] == [1]
                return int(reader._session.query("SELECT pg_backend_pid()")[0][0])
        finally:
            catalog.release()

    def connections(self, postgres_server: PostgresServer, url: str) -> int:
        database = url.rpartition("/")[2].partition("?")[0]
        with psycopg.connect(postgres_server.url()) as connection:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            row = connection.execute(asked, (database,)).fetchone()
        assert row is not None
        return int(row[0])

    def test_a_released_connection_is_used_again(self, url: str) -> None:
        assert len({self.server_process(url) for _ in range(5)}) == 1

    def test_a_closed_one_is_not(self, url: str, postgres_server: PostgresServer) -> None:
        self.server_process(url)
        shared_connections.close_all()
        for _ in range(50):
            if self.connections(postgres_server, url) == 0:
                return
            time.sleep(0.1)
        pytest.fail("a connection stays")

    def test_one_that_the_server_ended_is_replaced(
        self, url: str, postgres_server: PostgresServer
    ) -> None:
        first = self.server_process(url)
        catalogs = [open_catalog(url) for _ in range(4)]
        with ExitStack() as reading:
            for catalog in catalogs:
                reading.enter_context(catalog.read())
        for catalog in catalogs:
            catalog.release()
        kill_backends(postgres_server, url)
        assert self.server_process(url) != first
        kill_backends(postgres_server, url)
        catalog = open_catalog(url)
        assert commit(catalog).current_version == 2
        catalog.release()

    def test_one_to_a_catalog_whose_format_others_changed_is_not_used(self, url: str) -> None:
        self.server_process(url)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("UPDATE catalog_format SET version = 99")
        with pytest.raises(CatalogUnavailableError, match="format 99"):
            self.server_process(url)

    def test_one_that_was_made_with_other_variables_is_not_used(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = self.server_process(url)
        with monkeypatch.context() as patch:
            patch.setenv("PGOPTIONS", "-c statement_timeout=60000")
            assert self.server_process(url) != first
        assert self.server_process(url) == first

    def test_it_is_closed_in_time(
        self, url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server_connections, "KEPT_SECONDS", 0.3)
        for _ in range(2):  # the thread that closes them ends, and is started again
            self.server_process(url)
            for _ in range(100):
                if self.connections(postgres_server, url) == 0:
                    break
                time.sleep(0.1)
            else:
                pytest.fail("a connection stays")

    def test_an_old_one_is_closed_at_once(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_connections, "LIFETIME_SECONDS", 0.0)
        assert self.server_process(url) != self.server_process(url)

    def test_few_are_kept(self, url: str) -> None:
        catalogs = [open_catalog(url) for _ in range(7)]
        with ExitStack() as reading:
            for catalog in catalogs:
                reading.enter_context(catalog.read())
        for catalog in catalogs:
            catalog.release()
        assert len([*chain(*shared_connections._kept.values())]) == 4

    def test_abandoned_writes_are_looked_for_once(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[object] = []
        silent = CatalogReader.silent_writes

        def counted(self: CatalogReader, seconds: float) -> Any:
            looked.append(self)
            return silent(self, seconds)

        monkeypatch.setattr(CatalogReader, "silent_writes", counted)

        def write() -> None:
            catalog = open_catalog(url)
            with catalog.write() as transaction:
                transaction.mark_abandoned(3600)
            catalog.release()

        for _ in range(3):
            self.server_process(url)
            write()
        assert len(looked) == 1
        shared_connections.close_all()
        write()
        assert len(looked) == 2

    def test_no_two_threads_have_the_same(self, url: str) -> None:
        in_use: set[int] = set()
        lock = threading.Lock()

        def ask(_: int) -> None:
            for _ in range(20):
                catalog = open_catalog(url)
                with catalog.read() as reader:
                    process = reader._session.query("SELECT pg_backend_pid()")[0][0]
                    with lock:
                        assert process not in in_use
                        in_use.add(process)
                    reader._session.query("SELECT pg_sleep(0.001)")
                    with lock:
                        in_use.remove(process)
                catalog.release()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(ask, range(6)))

    def test_a_forked_child_makes_its_own(self, url: str) -> None:
        code = f"""
import os
from itertools import chain
from lakehouse_source.catalog import open_catalog
from lakehouse_source.catalog.backends.postgres_connections import shared_connections
def look():
    catalog = open_catalog({url!r})
    with catalog.read() as reader:
        assert len(reader.datasets()) == 1
    catalog.release()
look()
(kept,) = chain(*shared_connections._kept.values())
child = os.fork()
if child == 0:
    assert not shared_connections._kept
    look()
    assert kept not in chain(*shared_connections._kept.values())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
look()
assert [*chain(*shared_connections._kept.values())] == [kept]
"""
        strict = [] if sys.version_info >= (3, 12) else ["-W", "error"]  # it warns of the thread
        done = subprocess.run([sys.executable, *strict, "-c", code], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr == b""


def test_a_commit_takes_few_round_trips(url: str, tmp_path: Path) -> None:
    """There were 17, and a new connection."""
    trips: list[object] = []
    wait = psycopg.Connection.wait

    def counted(self: Any, *given: Any) -> Any:
        trips.append(given)
        return wait(self, *given)

    def write(number: int) -> int:
        trips.clear()
        given = {"catalog": url, "txn_app_id": "stream", "txn_version": number}
        write_dataset({"i": [number]}, str(tmp_path / "d"), **given)  # type: ignore[arg-type]
        return len(trips)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Connection, "wait", counted)
        counts = [write(number) for number in range(4)]
    # That the connection is usable; BEGIN, the dataset, the registration with COMMIT; BEGIN, the
    # dataset, the lock, the version, COMMIT. The pair of a repetition is asked for once more.
    assert counts[1:] == [10, 10, 10]


def test_a_catalog_is_own_for_who_owns_its_tables(postgres_server: PostgresServer) -> None:
    """Views of others do not run by themselves."""
    url = postgres_server.new_catalog()
    with psycopg.connect(url, autocommit=True) as admin:
        if admin.execute("SELECT FROM pg_roles WHERE rolname = 'views_reader'").fetchone() is None:
            admin.execute("CREATE ROLE views_reader LOGIN")
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO views_reader")
    for login, is_own in (("postgres", True), ("views_reader", False)):
        with open_catalog(url.replace("postgres@", f"{login}@"), create=False) as catalog:
            assert catalog.is_own() is is_own
