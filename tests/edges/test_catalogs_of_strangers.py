"""A catalog file that somebody else made: reading it harms nothing of the reader."""

from __future__ import annotations

import os
import sqlite3
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import open_catalog
from lakehouse_source.catalog.backends.duckdb import SETTINGS
from lakehouse_source.errors import CatalogUnavailableError, CorruptDatasetError
from tests.catalog_contract import commit
from tests.made_catalogs import copy_of_new_catalog

PAGE = 4096
MAGIC = bytes.fromhex("d9d505f920a163d7")


def hot_journal(database: Path, super_journal: Path) -> bytes:
    """A journal as a crash leaves it, which names a super-journal.

    Source: https://www.sqlite.org/fileformat.html, "The Rollback Journal".
    """
    pages = database.stat().st_size // PAGE
    header = MAGIC + struct.pack(">IIIII", 0, 0, pages, 512, PAGE)
    name = str(super_journal).encode()
    record = struct.pack(">I", 0x40000000 // PAGE + 1) + name
    record += struct.pack(">II", len(name), sum(name)) + MAGIC
    return header.ljust(512, b"\0") + record


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    path = tmp_path / "canary"
    path.write_text("the reader's own")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset as it is downloaded, with its catalog."""
    lake.write_dataset(pa.table({"n": [1]}), tmp_path / "got")
    return tmp_path / "got"


def test_sqlite_itself_deletes_the_file_that_a_journal_names(folder: Path, canary: Path) -> None:
    """So that the next test is about what it says."""
    database = folder / "_plake" / "catalog.db"
    Path(f"{database}-journal").write_bytes(hot_journal(database, canary))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("SELECT count(*) FROM datasets")
    assert not canary.exists()


def test_a_journal_that_a_writer_begins_meanwhile_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is empty when its length is asked for, and then begins with what ends a name."""
    database = folder / "_plake" / "catalog.db"
    journal = Path(f"{database}-journal")
    whole = hot_journal(database, folder)[:512]
    journal.touch()
    real, begun = os.lseek, []

    def begins(descriptor: int, position: int, whence: int) -> int:
        found = real(descriptor, position, whence)
        if whence == os.SEEK_END and not begun:
            begun.append(found)
            journal.write_bytes(whole)
        return found

    with open_catalog(f"sqlite://{database}") as catalog:
        monkeypatch.setattr(os, "lseek", begins)
        with catalog.read() as reader:
            assert len(reader.datasets()) == 1
    assert begun[0] == 0


@pytest.mark.parametrize("idle", [False, True])
def test_reading_a_folder_whose_journal_names_a_file_keeps_that_file(
    folder: Path, canary: Path, idle: bool
) -> None:
    database = folder / "_plake" / "catalog.db"
    with open_catalog(f"sqlite://{database}") as catalog:
        if idle:  # the journal comes when there is a connection already
            with catalog.read():
                pass
        Path(f"{database}-journal").write_bytes(hot_journal(database, canary))
        with pytest.raises(CatalogUnavailableError, match="would delete"), catalog.read():
            pass
    with pytest.raises(CatalogUnavailableError, match="would delete"):
        lake.read_dataset(folder)
    assert canary.read_text() == "the reader's own"


def test_a_journal_that_a_crash_left_is_played_back(folder: Path) -> None:
    database = folder / "_plake" / "catalog.db"
    before = database.read_bytes()
    header = MAGIC + struct.pack(">IIIII", 1, 0, len(before) // PAGE, 512, PAGE)
    first = before[:PAGE]
    checksum = sum(first[at] for at in range(PAGE - 200, 0, -200))
    record = struct.pack(">I", 1) + first + struct.pack(">I", checksum)
    with closing(sqlite3.connect(database)) as connection:  # a change of page 1, half written
        connection.execute("PRAGMA user_version = 7")
    Path(f"{database}-journal").write_bytes(header.ljust(512, b"\0") + record)
    assert lake.read_dataset(folder)["n"].to_pylist() == [1]
    assert database.read_bytes() == before


def test_a_pipe_in_the_place_of_a_journal_is_refused_and_not_waited_for(folder: Path) -> None:
    pipe = folder / "_plake" / "catalog.db-journal"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # who waits for one would hang here otherwise
    try:
        with pytest.raises(CatalogUnavailableError, match="no plain file"):
            lake.read_dataset(folder)
    finally:
        os.close(writer)


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm"])
def test_links_in_the_place_of_a_catalog_file_are_refused(
    folder: Path, canary: Path, suffix: str
) -> None:
    database = folder / "_plake" / "catalog.db"
    link = Path(f"{database}{suffix}")
    if not suffix:
        database.rename(folder / "elsewhere.db")
        canary = folder / "elsewhere.db"
    else:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    before = canary.read_bytes()
    link.symlink_to(canary)
    with pytest.raises(CatalogUnavailableError, match="no plain file"):
        lake.read_dataset(folder)
    assert canary.read_bytes() == before


def test_a_link_in_the_place_of_the_catalog_folder_is_refused(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "_plake").symlink_to(folder / "_plake")
    with pytest.raises(CatalogUnavailableError, match="symbolic link"):
        lake.write_dataset(pa.table({"n": [2]}), other)
    assert lake.read_dataset(folder)["n"].to_pylist() == [1]


STRANGE_IN_SQLITE = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON transactions BEGIN DELETE FROM datasets; END",
    "view": "CREATE VIEW v AS SELECT 1",
    "virtual": "CREATE VIRTUAL TABLE v USING fts5(x)",
    "index": "CREATE INDEX i ON files (abs(row_count))",
    "table": "CREATE TABLE mine (x)",
    "generated": "ALTER TABLE files ADD COLUMN g GENERATED ALWAYS AS (abs(row_count))",
    "check": "ALTER TABLE files ADD COLUMN c CHECK (length(randomblob(9)) > 1)",
    "default": "ALTER TABLE files ADD COLUMN d DEFAULT 'x'",
}
STRANGE_IN_DUCKDB = {
    "view": "CREATE VIEW v AS SELECT 1",
    "macro": "CREATE MACRO epoch_us(x) AS 0",
    "type": "CREATE TYPE t AS ENUM ('a')",
    "schema": "CREATE SCHEMA s",
    "sequence": "CREATE SEQUENCE q",
    "index": "CREATE INDEX i ON files ((row_count + 1))",
    "table": "CREATE TABLE mine (x INTEGER)",
    "generated": "CREATE OR REPLACE TABLE catalog_settings "
    "(name TEXT PRIMARY KEY, value TEXT GENERATED ALWAYS AS (name) VIRTUAL)",
    "check": "CREATE OR REPLACE TABLE catalog_settings "
    "(name TEXT PRIMARY KEY, value TEXT NOT NULL, CHECK (getvariable('a') IS NULL))",
}


def run_in_sqlite(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)


def run_in_duckdb(path: Path, statement: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("scheme", "run", "statement"),
    [
        *(("sqlite", run_in_sqlite, text) for text in STRANGE_IN_SQLITE.values()),
        *(("duckdb", run_in_duckdb, text) for text in STRANGE_IN_DUCKDB.values()),
    ],
    ids=[*(f"sqlite-{k}" for k in STRANGE_IN_SQLITE), *(f"duckdb-{k}" for k in STRANGE_IN_DUCKDB)],
)
def test_a_catalog_with_more_in_it_than_a_catalog_has_is_refused(
    tmp_path: Path, scheme: str, run: Callable[[Path, str], None], statement: str
) -> None:
    path = tmp_path / "catalog.db"
    url = copy_of_new_catalog(scheme, path)
    run(path, statement)
    before = path.read_bytes()
    with (
        open_catalog(url) as catalog,
        pytest.raises(CatalogUnavailableError, match=r"not plake's|lacks"),
        catalog.write(),
    ):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("with_wal", [False, True])
def test_the_database_of_another_program_is_not_changed(tmp_path: Path, with_wal: bool) -> None:
    """It was turned from WAL to a rollback journal, and got plake's tables."""
    path = tmp_path / "places.db"
    url = f"sqlite://{path}"
    with closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("PRAGMA journal_mode = WAL")
        mine.execute("CREATE TABLE places (name)")
        if with_wal:
            mine.execute("PRAGMA wal_checkpoint")
            mine.execute("INSERT INTO places VALUES ('here')")
        else:
            mine.close()
        path.chmod(0o644)
        before = [(one.name, one.read_bytes()) for one in sorted(tmp_path.glob("places.db*"))]
        with (
            open_catalog(url) as catalog,
            pytest.raises(CatalogUnavailableError, match="not plake's"),
            catalog.write(),
        ):
            pass
        assert before == [(p.name, p.read_bytes()) for p in sorted(tmp_path.glob("places.db*"))]
        assert path.stat().st_mode & 0o777 == 0o644


def test_a_duckdb_file_of_another_program_keeps_its_log(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    run_in_duckdb(path, "CREATE TABLE a (x INTEGER)")
    with duckdb.connect(str(path)) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("CREATE TABLE b (x INTEGER)")
    before = [(one.name, one.read_bytes()) for one in sorted(tmp_path.iterdir())]
    assert len(before) == 2
    with (
        open_catalog(f"duckdb://{path}") as catalog,
        pytest.raises(CatalogUnavailableError, match="not plake's"),
        catalog.write(),
    ):
        pass
    assert before == [(one.name, one.read_bytes()) for one in sorted(tmp_path.iterdir())]


def test_no_statement_in_a_duckdb_catalog_reads_another_file(tmp_path: Path, canary: Path) -> None:
    with open_catalog(f"duckdb://{tmp_path}/catalog.db") as catalog:
        commit(catalog)  # rows go in as Arrow tables
        with catalog.read() as reader:
            for statement in (
                f"SELECT * FROM read_text('{canary}')",
                "SET enable_external_access = true",
                "INSTALL httpfs",
                f"ATTACH '{canary}' AS other",
            ):
                with pytest.raises(CatalogUnavailableError):
                    reader._session.query(statement)
    assert SETTINGS["enable_external_access"] == "false"


def test_a_schema_of_strangers_is_not_trusted_in_sqlite(tmp_path: Path) -> None:
    with open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog, catalog.read() as reader:
        assert reader._session.query("PRAGMA trusted_schema") == [(0,)]
        assert reader._session.query("PRAGMA cell_size_check") == [(1,)]
        with pytest.raises(CatalogUnavailableError, match="not authorized"):
            reader._session.query("SELECT load_extension('x')")


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_data_file_is_refused(folder: Path) -> None:
    """To open one waits for another program."""
    (file,) = folder.glob("*.parquet")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CorruptDatasetError, match="no plain file"):
        lake.read_dataset(folder)


@pytest.mark.parametrize("column", ["small_blob", "sha256"])
def test_a_number_in_the_place_of_bytes_takes_no_memory(column: str, tmp_path: Path) -> None:
    lake.write_dataset(pa.table({"n": range(20_000)}), tmp_path / "got")
    lake.open_dataset(tmp_path / "got").delete("n = 2")
    with closing(sqlite3.connect(tmp_path / "got/_plake/catalog.db")) as database:
        changed = database.execute(f"UPDATE deletion_vectors SET {column} = {10**8}")
        assert changed.rowcount == 1
        database.commit()
    tracemalloc.start()
    try:
        with pytest.raises(
            CorruptDatasetError,
            match=rf"deletion_vectors.{column} has a value of type int, not bytes",
        ):
            lake.read_dataset(tmp_path / "got")
        assert tracemalloc.get_traced_memory()[1] < 5 * 10**7
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "column",
    ["datasets.properties_json", "transactions.summary_json", "transactions.committer_json"],
)
def test_json_that_is_nested_without_end_is_a_damaged_catalog(column: str, folder: Path) -> None:
    table, _, name = column.partition(".")
    with closing(sqlite3.connect(folder / "_plake/catalog.db")) as database:
        database.execute(f"UPDATE {table} SET {name} = ?", ("[" * 200_000,))
        database.commit()
    with pytest.raises(CorruptDatasetError):
        lake.open_dataset(folder).history()
