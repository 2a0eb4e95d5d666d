"""A SQLite catalog of strangers with a wrong value in one column: only errors of plake come.

SQLite keeps a value of any type in any column, whatever the column's declaration says.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.backends.sqlite_checks import expected_types
from lakehouse_source.catalog.sql import migrations

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3)]

WRONG = {
    "text": "x",
    "number": 7,
    "fraction": 1.5,
    "bytes": b"\xff\x00",
    "null": None,
    "negative": -5,
    "huge": 2**63 - 1,
    "object": "{}",
    "list": '[1, "a"]',
    "deep": "[" * 100_000,
}
SAMPLE = ("text", "null", "huge")
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("tags", pa.list_(pa.string()))])


def make(folder: Path) -> str:
    """A catalog with a row in each table; answers the URI of its dataset."""
    url = f"sqlite://{folder}/catalog.db"
    with lake.open_catalog(url, warehouse=folder / "warehouse") as catalog:
        catalog.create_namespace("sales", properties={"owner": "ann"})
        catalog.set_warehouse(folder / "warehouse")
        dataset = catalog.create_dataset(
            "sales.orders", SCHEMA, partition_by="day", table_properties={"a": "b"}
        )
        for number in range(3):
            lake.write_dataset(
                {
                    "id": range(30 * number, 30 * number + 30),
                    "day": [f"d{i % 2}" for i in range(30)],
                    "tags": [["a"]] * 30,
                },
                dataset.uri,
                catalog=catalog,
                txn_app_id="a",
                txn_version=number,
                commit_metadata={"number": number},
            )
        dataset.refresh()
        dataset.delete("id IN (3, 40)")
        dataset.add_column("x", pa.int32())
        dataset.tag("old", version=2)
        dataset.branch("audit").delete("id = 5")
        dataset.refresh()
        dataset.compact(rewrite_deleted=True)
        dataset.delete("id = 7")
        dataset.expire_versions(keep_last=3)
        dataset.clone(folder / "clone")
        catalog.create_dataset("gone", pa.schema([("id", pa.int64())]))
        catalog.drop("gone")
        with catalog.write() as tx:
            tx.names.put_view(("sales", "v"), {"sql": "SELECT 1"})
            record = tx.dataset(dataset.uri)
            assert record is not None
            assert tx.take_lease("upkeep", None, "me", 60) is not None
            assert tx.take_lane("numbers", 10, "01a20b68-0000-7000-8000-000000000000") == (0, 0)
            tx.register_pending("01a20b68-0000-7000-8000-000000000000", record.id)
            tx._session.execute(
                "INSERT INTO dataset_consumers (dataset_id, name, version, keep_seconds) "
                "VALUES (?, 'etl', 1, 1)",
                (record.id,),
            )
            tx._session.execute(
                "INSERT INTO iceberg_files (dataset_id, file_path, version, kind, erased_version, "
                "location, document_json) VALUES (?, 'x', 1, 'metadata', 0, 'l', '{}')",
                (record.id,),
            )
        return dataset.uri


def readings(catalog: lake.DatasetCatalog, uri: str) -> Iterator[Callable[[], object]]:
    """All that a reader may ask of a catalog that it got from somebody."""

    def opened() -> lake.Dataset:
        return lake.open_dataset(uri, catalog=catalog)

    def views() -> object:
        with catalog.read() as reader:
            return reader.names.view_names("sales"), reader.names.view(("sales", "v"))

    def inspected() -> object:
        tables = ("history", "files", "refs", "versions", "row_groups", "partitions")
        return [opened().inspect.table(name) for name in tables]

    yield lambda: [catalog.namespace(name).properties for name in catalog.namespaces()]

    def leased() -> object:
        with catalog.read() as reader:
            lease = reader.lease("upkeep")
            return lease is not None and (lease.holder < "n", lease.beats + lease.lease_seconds)

    yield leased
    yield lambda: (catalog.datasets(), catalog.dropped(), catalog.warehouse)
    yield views
    yield lambda: catalog.dataset("sales.orders").scan().to_table()
    yield lambda: opened().scan("id > 10 AND id < 50 AND day = 'd1'").to_table()
    yield lambda: str(opened().scan("id = 10").explain())
    yield lambda: opened().scan("id >= 0").count_rows()
    yield lambda: lake.read_dataset(uri, catalog=catalog, version="old")
    yield lambda: lake.read_dataset(uri, catalog=catalog, version=opened().version - 1)
    yield lambda: lake.read_dataset(uri, catalog=catalog, as_dataset=True)
    yield lambda: lake.open_dataset(f"{uri}#branch=audit", catalog=catalog).scan().to_table()
    yield lambda: [str(commit) for commit in opened().history()]
    yield lambda: opened().files()
    yield lambda: (opened().properties, opened().schema, opened().tags(), opened().branches())
    yield inspected
    yield lambda: list(opened().read_changes(opened().version - 2, skip_change_commits=True))
    yield lambda: opened().changes(opened().version - 2).to_table()
    yield lambda: str(opened().vacuum(dry_run=True))
    yield lambda: str(opened().verify(checksums=True))
    yield lambda: str(lake.vacuum(catalog, dry_run=True))


def columns_of(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def put(path: Path, table: str, column: str, value: object) -> bool:
    """Put a value into a column of all rows, past its constraints; False where SQLite does not."""
    with closing(sqlite3.connect(path)) as database:
        (made,) = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,))
        database.execute("PRAGMA writable_schema = ON")
        loose = made[0].replace(" NOT NULL", "")
        database.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (loose, table))
        database.commit()
    try:
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA ignore_check_constraints = ON")
            changed = database.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
            database.commit()
            return changed.rowcount > 0
    except sqlite3.IntegrityError:  # a key that is an integer for SQLite too
        return False
    finally:
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA writable_schema = ON")
            database.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (*made, table))
            database.commit()


def check(folder: Path, kinds: tuple[str, ...], tables: tuple[str, ...]) -> None:
    uri, path = make(folder), folder / "catalog.db"
    good = path.read_bytes()
    changes = 0
    for table in tables:
        for column in columns_of(path, table):
            for kind in kinds:
                path.write_bytes(good)
                changes += put(path, table, column, WRONG[kind])
                with lake.open_catalog(f"sqlite://{path}") as catalog:
                    for number, reading in enumerate(readings(catalog, uri)):
                        try:
                            reading()
                        except lake.PlakeError:
                            continue
                        except Exception as error:
                            what = f"{table}.{column} = {kind}: reading {number} raised {error!r}"
                            raise AssertionError(what) from error
    assert changes > len(tables)


def test_a_catalog_as_it_was_made_is_read(tmp_path: Path) -> None:
    """So that the next tests are about the wrong values."""
    uri = make(tmp_path)
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
        assert all(reading() is not None for reading in readings(catalog, uri))
    for table in migrations.TABLES:
        with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
            assert database.execute(f"SELECT 1 FROM {table}").fetchone(), f"{table} is empty"


@pytest.mark.long
@pytest.mark.parametrize("table", ["files"])
def test_only_errors_of_plake_come(tmp_path: Path, table: str) -> None:
    """`'>=' not supported between instances of 'int' and 'str'`."""
    check(tmp_path, SAMPLE, (table,))


@pytest.mark.long
@pytest.mark.parametrize("table", [*migrations.TABLES, migrations.FORMAT_TABLE])
def test_only_errors_of_plake_come_whatever_the_value(tmp_path: Path, table: str) -> None:
    check(tmp_path, tuple(WRONG), (table,))


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        ("datasets", "current_version", "x", "type str, not int"),
        ("datasets", "oldest_version", None, "type NULL, not int"),
        ("files", "row_count", "many", "type str, not int"),
        ("files", "file_path", b"a", "type bytes, not str"),
        ("transactions", "timestamp", 1.5, "type float, not int"),
        ("schema_versions", "version", "x", "type str, not int"),
        ("schema_versions", "arrow_schema", "x", "type str, not bytes"),
    ],
)
def test_the_error_names_table_column_and_kind(
    tmp_path: Path, table: str, column: str, value: object, said: str
) -> None:
    uri, path = make(tmp_path), tmp_path / "catalog.db"
    assert put(path, table, column, value)
    with lake.open_catalog(f"sqlite://{path}") as catalog:

        def read() -> None:
            lake.open_dataset(uri, catalog=catalog).scan().to_table()
            lake.open_dataset(uri, catalog=catalog).history()

        with pytest.raises(lake.CorruptDatasetError) as caught:
            read()
        assert f"column {table}.{column} has a value of {said}" in str(caught.value)


def test_columns_of_one_name_have_one_type() -> None:
    """By which a column of a statement is known by its name alone."""
    for name, types in expected_types().items():
        assert len(types - {type(None)}) == 1, name
