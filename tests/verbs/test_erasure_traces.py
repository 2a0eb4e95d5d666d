"""Where erased values could be left, whom an erasure meets, and ends that come early.

`test_erasure.py` has random histories; here each case has its own.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.backends.sqlite import SqliteCatalog
from lakehouse_source.erasure import erase as erasure
from lakehouse_source.errors import StorageError
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.options import WriteOptions
from lakehouse_source.write.statements import row_statement
from tests import processes
from tests.postgres_server import PostgresServer
from tests.verbs.conftest import catalog_of
from tests.verbs.test_erasure import bare, email, holding, people, rows

pytestmark = pytest.mark.slow

local = catalog_of("sqlite", "duckdb")
AT_ONCE: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    uri = str(tmp_path / "people")
    for first in (0, 10):
        table = people(first, first + 10)
        lake.write_dataset(table, uri, rewrite_threshold=1.0, compression="none")
    return lake.open_dataset(uri)


def ids(dataset: lake.Dataset, version: int | None = None) -> list[int]:
    return sorted(dataset.scan(version=version).to_table()["id"].to_pylist())


# --- no byte is left ----------------------------------------------------------------------


@pytest.mark.long
def test_no_byte_of_a_value_is_left_in_files_names_and_catalog(
    local: lake.Catalog, tmp_path: Path
) -> None:
    """Partition folders, footers, bloom filters, notes, dropped columns, expired files, vectors."""
    uri = str(tmp_path / "people")
    lake.write_dataset(
        people(0, 10).append_column("again", pa.array([email(n) for n in range(10)])),
        uri,
        catalog=local,
        partition_by="email",
        bloom_filter_columns=["again"],
        rewrite_threshold=1.0,
        compression="none",
    )
    dataset = lake.open_dataset(uri, catalog=local)
    dataset.compact()
    more = people(3, 6).append_column("again", pa.array([email(n) for n in range(3, 6)]))
    lake.write_dataset(more, uri, catalog=local, commit_metadata={"for": [{"who": email(3)}]})
    lake.write_dataset(more, uri, catalog=local)
    dataset.refresh()
    dataset.delete("id IN (3, 5)", commit_metadata={"why": f"{email(3)} asked"})
    dataset.update({"part": "7"}, "id = 4")
    dataset.expire_versions(keep_last=2)
    dataset.drop_column("again")
    lake.write_dataset(people(3, 4), uri, catalog=local)
    assert len(holding(tmp_path, email(3))) > 3
    before = {v: rows(dataset, v) for v in range(5, dataset.refresh().version + 1)}
    report = dataset.erase(f"email = '{email(3)}'")
    assert holding(tmp_path, email(3)) == set()
    assert holding(tmp_path, email(4)) != set()
    assert (report.rows, report.notes_changed, report.left) == (1, 2, ())
    for version, then in before.items():
        kept = [row for row in then if row["email"] != email(3)]
        assert bare(rows(dataset, version)) == bare(kept)
        assert dataset.verify(version, checksums=True).ok
    assert dataset.history()[0].operation == "erase"
    assert dataset.history()[0].summary["rows_erased"] == 1
    assert not dataset.history()[0].metadata


def test_a_dropped_column_finds_the_rows_that_still_hold_its_values(
    dataset: lake.Dataset, tmp_path: Path
) -> None:
    dataset.drop_column("email")
    dataset.expire_versions(keep_last=1)
    assert holding(tmp_path, email(3))
    assert dataset.erase(f"email = '{email(3)}'").rows == 1
    assert 3 not in ids(dataset)
    assert holding(tmp_path, email(3)) == set()


def test_a_column_means_what_it_meant_in_each_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "people")
    lake.write_dataset(people(0, 4), uri)
    lake.write_dataset(people(2, 6), uri, mode="overwrite", overwrite_schema=True)
    dataset = lake.open_dataset(uri)
    dataset.drop_column("email")
    dataset.add_column("email", pa.string(), default=email(5))
    assert dataset.scan(f"email = '{email(5)}'").count_rows() == 4
    dataset.erase(f"email = '{email(3)}'")
    assert [ids(dataset, version) for version in (1, 2, 4, 5)] == [[0, 1, 2], *[[2, 4, 5]] * 3]
    # By the newest schema, every row of the second schema has the default.
    report = dataset.erase(f"email = '{email(5)}'")
    assert [ids(dataset, version) for version in (1, 2, 4, 6)] == [[0, 1, 2], [], [], []]
    assert any("schema of version 4" in one for one in report.left)


def test_a_condition_on_rows_that_no_statistics_tell(dataset: lake.Dataset) -> None:
    assert dataset.erase("concat(email, '') = 'person-000007@example.org' AND id > part").rows == 1
    assert 7 not in ids(dataset, 1)


def test_an_erasure_tells_where_else_the_catalog_repeats_its_literals(tmp_path: Path) -> None:
    with lake.open_catalog(f"sqlite://{tmp_path}/c.db", warehouse=tmp_path) as catalog:
        made = catalog.create_dataset("people", pa.schema([("id", "int64"), ("email", "string")]))
        rows = {"id": [7, 8], "email": [email(7), email(8)]}
        lake.write_dataset(rows, made.uri, catalog=catalog, commit_metadata={"batch": {"ids": [7]}})
        lake.write_dataset(rows, made.uri, catalog=catalog, commit_metadata={"who": "number 17"})
        dataset = catalog.dataset("people")
        dataset.set_properties(expire_rows=f"email = '{email(7)}'")
        catalog.set_namespace_properties("default", {"asked by": email(7)})
        with catalog.write() as tx:
            tx.names.put_view(("default", "mine"), {"sql": f"SELECT '{email(7)}'"})
        report = dataset.refresh().erase(f"id = 7 AND email = '{email(7)}'")
    assert report.rows == 2
    for place in ("property expire_rows", "namespace default", "view default.mine"):
        assert any(place in one for one in report.left), place
    noted = [one for one in report.left if "a number of the condition" in one]
    assert len(noted) == 1
    assert "version 2 " in noted[0]


@pytest.mark.long
def test_a_reader_that_an_erasure_waits_for_stalls_no_writer(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Who waits for a whole table makes everybody wait who comes later."""
    url, uri = postgres_server.new_catalog(), str(tmp_path / "people")
    lake.write_dataset(people(0, 10), uri, catalog=url)
    failures: list[Exception] = []

    def erase() -> None:
        try:
            lake.open_dataset(uri, catalog=url).erase("id = 3")
        except Exception as error:
            failures.append(error)

    with psycopg.connect(url) as reader:
        reader.execute("SELECT count(*) FROM files")
        eraser = threading.Thread(target=erase)
        eraser.start()
        while lake.open_dataset(uri, catalog=url).version < 2:
            time.sleep(0.05)
        time.sleep(1)  # it waits for the table of files
        began = time.monotonic()
        lake.write_dataset(people(20, 21), uri, catalog=url)
        assert time.monotonic() - began < 15
        assert eraser.is_alive()
    eraser.join()
    assert not failures


def test_postgresql_keeps_values_in_no_table_and_no_file_of_a_table(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url, uri = postgres_server.new_catalog(), str(tmp_path / "people")
    with lake.open_catalog(url) as catalog:
        lake.write_dataset(people(0, 10), uri, catalog=catalog, partition_by="email")
        lake.write_dataset(people(3, 4), uri, catalog=catalog, commit_metadata={"who": email(3)})
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.delete("id = 3")
        report = dataset.erase(f"email = '{email(3)}'")
    assert len(report.left) == 1
    assert "WAL" in report.left[0]
    assert holding(tmp_path, email(3)) == set()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 2200"
        ).fetchall()
        for (table,) in tables:
            dump = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
            assert email(3) not in repr(dump), table
        found = connection.execute(
            "SELECT current_setting('data_directory') || '/base/' || oid FROM pg_database "
            "WHERE datname = current_database()"
        ).fetchone()
    assert found is not None
    folder = Path(found[0])
    assert holding(folder, email(4))
    assert holding(folder, email(3)) == set()


def test_a_role_that_may_not_write_tables_anew_is_told(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url, uri = postgres_server.new_catalog(), str(tmp_path / "people")
    postgres_server.run("DROP ROLE IF EXISTS clerk")
    postgres_server.run("CREATE ROLE clerk LOGIN")
    with psycopg.connect(url, autocommit=True) as connection:
        for what in ("TABLES", "SEQUENCES"):
            rights = "SELECT, UPDATE" + (", INSERT, DELETE" if what == "TABLES" else "")
            connection.execute(f"GRANT {rights} ON ALL {what} IN SCHEMA public TO clerk".encode())
    with lake.open_catalog(url.replace("//postgres@", "//clerk@")) as catalog:
        lake.write_dataset(people(0, 4), uri, catalog=catalog)
        report = lake.open_dataset(uri, catalog=catalog).erase("id = 1")
    assert report.rows == 1
    assert any("files" in one for one in report.left)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY clerk")
    postgres_server.run("DROP ROLE clerk")


# --- files of others ----------------------------------------------------------------------


def test_files_of_others_are_rewritten_only_if_asked_and_never_deleted(
    dataset: lake.Dataset, tmp_path: Path
) -> None:
    folder = tmp_path / "people" / "exports"
    folder.mkdir()
    pq.write_table(people(20, 24), folder / "theirs.parquet")
    dataset.add_files(folder / "theirs.parquet")
    before = rows(dataset)
    with pytest.raises(lake.InvalidOptionError, match=r"exports/theirs\.parquet"):
        dataset.erase("id IN (3, 21)")
    assert rows(dataset.refresh()) == before
    report = dataset.erase("id IN (3, 21)", foreign="rewrite")
    assert bare(rows(dataset)) == bare([row for row in before if row["id"] not in (3, 21)])
    assert ids(dataset, 3) == ids(dataset)
    assert report.left == ("exports/theirs.parquet (yours to delete)",)
    assert (folder / "theirs.parquet").exists()
    (folder / "theirs.parquet").unlink()
    assert dataset.verify(3, checksums=True).ok
    assert holding(tmp_path, email(21)) == set()


# --- others at the same time --------------------------------------------------------------


@contextmanager
def before_the_lock(act: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Run `act` before the next transactions of an erasure."""
    record, left = erasure._Erasure._record, [times]

    def recording(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if left[0]:
            left[0] -= 1
            act()
        return record(self, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erasure._Erasure, "_record", recording)
        yield


@pytest.mark.parametrize("times", [1, 9])
def test_rows_that_are_appended_meanwhile_are_erased_too(
    dataset: lake.Dataset, tmp_path: Path, times: int
) -> None:
    def append() -> None:
        lake.write_dataset(people(3, 5), dataset.uri)
        lake.open_dataset(dataset.uri).delete("id = 11")

    with before_the_lock(append, times):
        report = dataset.erase("id = 3")
    appended = min(times, 5)  # the last try holds the lock
    assert report.rows == 1 + appended
    assert 3 not in ids(dataset)
    assert ids(dataset).count(4) == 1 + appended
    assert all(3 not in ids(dataset, version) for version in range(1, dataset.version + 1))
    assert dataset.verify(checksums=True).ok
    assert holding(tmp_path, email(3)) == set()


def test_writers_that_began_before_conflict_and_appends_do_not(dataset: lake.Dataset) -> None:
    other = lake.open_dataset(dataset.uri)
    statement = row_statement.RowStatement.commit

    def erase_first(self: Any, *arguments: Any, **keywords: Any) -> Any:
        dataset.erase("id = 3")
        return statement(self, *arguments, **keywords)

    for change in (
        lambda: other.delete("id = 7"),
        lambda: other.update({"part": "9"}, "id = 7"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_statement.RowStatement, "commit", erase_first)
            lake.write_dataset(people(3, 4), dataset.uri)
            with pytest.raises(lake.CommitConflictError, match="erase"):
                change()
    folder = dataset.uri.removeprefix("file://")
    with lake.transaction(f"sqlite://{folder}/_plake/catalog.db") as tx:
        tx.write(people(30, 31), dataset.uri)
        dataset.erase("id = 4")
    assert ids(dataset.refresh()) == [n for n in range(20) if n not in (3, 4)] + [30]


def test_a_handle_from_before_finds_the_file_gone_and_then_the_new_one(
    dataset: lake.Dataset,
) -> None:
    """What processes remember of files ends with an erasure."""
    scan = dataset.scan("id > 1", version=1)
    assert scan.count_rows() == 8
    other = lake.open_dataset(dataset.uri)
    assert other.scan("id > 1").count_rows() == 18
    assert processes.run(erase_in_another_process, dataset.uri) == 0
    assert other.scan("id > 1", version=1).count_rows() == 7
    assert scan.count_rows() == 7
    assert sorted(scan.to_table()["id"].to_pylist()) == [2, 4, 5, 6, 7, 8, 9]


def erase_in_another_process(uri: str) -> None:
    lake.open_dataset(uri).erase("id = 3")


def test_streams_go_on_at_their_place_without_the_erased_rows(dataset: lake.Dataset) -> None:
    with dataset._address.open() as catalog, catalog.read() as reader:
        files = [(one.id, one.version) for one in reader.files_added_since(1, 0)]
    read = [batch.to_pydict()["id"] for _, batch in dataset.read_changes(0)]
    dataset.erase("id IN (3, 12)")
    with dataset._address.open() as catalog, catalog.read() as reader:
        assert [(one.id, one.version) for one in reader.files_added_since(1, 0)] == files
    lake.write_dataset(people(40, 41), dataset.uri)
    again = [batch.to_pydict()["id"] for _, batch in dataset.refresh().read_changes(0)]
    assert again == [[n for n in some if n not in (3, 12)] for some in read] + [[40]]


def test_the_change_feed_tells_of_all_rows_but_the_erased_ones(dataset: lake.Dataset) -> None:
    dataset.delete("id IN (3, 4)")
    dataset.update({"part": "9"}, "id IN (3, 5)")
    dataset.compact()

    def told() -> list[tuple[Any, ...]]:
        table = dataset.changes(1).to_table()
        columns = [table[name].to_pylist() for name in ("_commit_version", "_change_type", "id")]
        return sorted(zip(*columns))

    before = told()
    assert [one[2] for one in before].count(3) == 2
    dataset.erase("id = 3")
    assert told() == [one for one in before if one[2] != 3]


def test_a_branch_loses_the_rows_too(dataset: lake.Dataset, tmp_path: Path) -> None:
    branch = dataset.branch("work")
    lake.write_dataset(people(20, 22), branch.uri)
    report = dataset.erase("id IN (3, 21)")
    assert (report.rows, report.version) == (2, 3)
    assert ids(branch.refresh()) == [n for n in range(21) if n != 3]
    assert branch.history()[0].operation == "erase"
    assert holding(tmp_path, email(21)) == set()
    with pytest.raises(lake.InvalidOptionError, match="is a branch"):
        branch.erase("id = 4")


# --- ends that come early -----------------------------------------------------------------


POINTS = (
    *("pending committed", "rows to keep found", "file opened", "file verified"),
    *("rows written anew", "vectors synced", "dataset locked", "transaction written"),
    *("files removed", "after COMMIT"),
)


@pytest.mark.parametrize("point", POINTS)
def test_an_erasure_that_dies_is_finished_by_the_next_one(
    dataset: lake.Dataset, tmp_path: Path, point: str
) -> None:
    dataset.delete("id = 5")
    before = {version: rows(dataset, version) for version in (1, 2, 3)}
    code = processes.run(die_erasing, dataset.uri, point)
    assert code == -signal.SIGKILL
    dataset.refresh()
    committed = dataset.version == 4
    assert committed == (point == "after COMMIT")
    for version in (1, 2, 3):
        found = bare(rows(dataset, version))
        kept = [row for row in before[version] if row["id"] != 3 or not committed]
        assert found == bare(kept)
    report = dataset.erase("id = 3")
    assert report.rows == (0 if committed else 1)
    assert holding(tmp_path, email(3)) == set()
    dataset.vacuum(**AT_ONCE, abandoned_after_seconds=0)
    for version in (1, 2, 3, 4):
        assert dataset.verify(version, checksums=True).ok


def die_erasing(uri: str, point: str) -> None:
    from lakehouse_source import failpoints

    failpoints.arm(point)
    lake.open_dataset(uri).erase("id = 3")


def test_a_file_that_cannot_be_deleted_is_named_and_the_next_erasure_deletes_it(
    dataset: lake.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Storage, relative: str) -> bool:
        raise StorageError(path=relative, reason="permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "delete", refuse)
        with pytest.raises(lake.ErasureIncompleteError, match="permission denied") as caught:
            dataset.erase("id = 3")
    assert len(caught.value.left) == 1
    assert ".parquet" in caught.value.left[0]
    assert holding(tmp_path, email(3))
    assert 3 not in ids(dataset.refresh(), 1)
    assert dataset.erase("id = 3").rows == 0
    assert holding(tmp_path, email(3)) == set()


def test_a_catalog_in_use_is_told_and_the_next_erasure_overwrites_its_pages(
    dataset: lake.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(self: SqliteCatalog) -> tuple[str, ...]:
        raise self._unavailable("it is locked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteCatalog, "overwrite_free_pages", busy)
        with pytest.raises(lake.ErasureIncompleteError, match="free pages"):
            dataset.erase("id = 3")
    dataset.erase("id = 3")
    assert holding(tmp_path, email(3)) == set()


def test_a_write_that_goes_on_is_told_in_the_report(dataset: lake.Dataset) -> None:
    with dataset._address.open() as catalog:
        staged = begin(catalog, dataset._address, people(0, 1).schema, WriteOptions())
        path = f"{staged.write_id}-{staged.write_id}.parquet"
        Path(dataset.uri.removeprefix("file://"), path).write_bytes(b"half")
    report = dataset.erase("id = 3")
    assert len(report.left) == 1
    assert "may still be going on" in report.left[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": None}, "say which rows"),
        ({"where": "id = 1", "foreign": "delete"}, "foreign"),
        ({"where": "nothing = 1"}, "no column nothing"),
        ({"where": "id = "}, "predicate"),
    ],
)
def test_wrong_arguments_change_nothing(
    dataset: lake.Dataset, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(lake.PlakeError, match=message):
        dataset.erase(**arguments)
    assert dataset.refresh().version == 2


def test_nothing_matches(dataset: lake.Dataset) -> None:
    report = dataset.erase("id = 99")
    assert (report.rows, report.version, report.files_rewritten) == (0, 2, 0)
    assert dataset.refresh().version == 2


# --- without an erasure -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_delete_compact_expire_and_vacuum_leave_no_byte_either(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "people")
    with lake.open_catalog(f"{kind}://{tmp_path}/catalog.db") as catalog:
        for first in (0, 10):
            table = people(first, first + 10)
            lake.write_dataset(
                table,
                uri,
                catalog=catalog,
                partition_by="part",
                rewrite_threshold=1.0,
                compression="none",
                target_file_size_bytes=1,  # no file is small
                **({} if first else {"bloom_filter_columns": ["email"]}),
            )
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.delete("id = 1")  # the first row of its file: a bound in the catalog
        dataset.compact()
        assert holding(tmp_path, email(1))
        result = dataset.compact(rewrite_deleted=True)
        assert (result.files_removed, result.files_added) == (1, 1)
        assert dataset.compact(rewrite_deleted=True).files_added == 0
        dataset.expire_versions(keep_last=1)
        dataset.vacuum(**AT_ONCE)
        assert ids(dataset) == [n for n in range(20) if n != 1]
        assert dataset.verify(checksums=True).ok
        assert holding(tmp_path / "people", email(1)) == set()
        left = holding(tmp_path, email(1))
        # DuckDB keeps deleted rows in its file until that is written anew.
        assert left <= ({"catalog.db", "catalog.db.wal"} if kind == "duckdb" else set())
