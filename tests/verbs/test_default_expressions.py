"""Defaults that are expressions: one time for all rows of a write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        pa.field("key", pa.string(), nullable=False),
    ]
)
NEW = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    catalog = f"sqlite://{tmp_path}/catalog.db"
    lake.write_dataset(SCHEMA.empty_table(), tmp_path / "t", catalog=catalog)
    dataset = lake.open_dataset(tmp_path / "t", catalog=catalog)
    dataset.set_default("at", sql="current_timestamp()")
    dataset.set_default("day", sql="current_date()")
    dataset.set_default("key", sql="concat('key of ', CAST(year(current_date()) AS STRING))")
    return dataset


def _in_transaction(dataset: lake.Dataset) -> None:
    catalog = dataset._address.catalog
    assert catalog is not None
    with lake.transaction(catalog) as transaction:
        transaction.write(NEW, dataset.uri)


def _merge(dataset: lake.Dataset) -> None:
    merge = dataset.merge(NEW, "target.id = source.id")
    merge.when_not_matched_insert({"id": "source.id"}).execute()


def _duckdb(dataset: lake.Dataset) -> None:
    relation = duckdb.sql("SELECT * FROM (VALUES (1::BIGINT), (2), (3)) AS v (id)")
    lake.write_dataset(relation, dataset.uri, writer="duckdb", catalog=dataset._address.catalog)


DOORS: dict[str, Callable[[lake.Dataset], Any]] = {
    "append": lambda d: lake.write_dataset(NEW, d.uri, catalog=d._address.catalog),
    "overwrite": lambda d: lake.write_dataset(
        NEW, d.uri, mode="overwrite", catalog=d._address.catalog
    ),
    "batches": lambda d: lake.write_dataset(
        iter([NEW.slice(0, 1), NEW.slice(1)]), d.uri, catalog=d._address.catalog
    ),
    "merge": _merge,
    "transaction": _in_transaction,
    "duckdb": _duckdb,
}


@pytest.mark.parametrize("door", DOORS)
def test_rows_get_what_data_lacks(door: str, dataset: lake.Dataset) -> None:
    begin = datetime.now(timezone.utc)
    DOORS[door](dataset)
    rows = dataset.refresh().scan().to_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 2, 3]
    (at,) = {row["at"] for row in rows}
    assert begin <= at <= datetime.now(timezone.utc)
    assert {row["day"] for row in rows} <= {begin.date(), datetime.now(timezone.utc).date()}
    assert {row["key"] for row in rows} <= {f"key of {begin.year}", f"key of {begin.year + 1}"}


def test_what_data_brings_stays(dataset: lake.Dataset) -> None:
    row = {"id": 1, "at": None, "day": date(2020, 1, 2), "key": "mine"}
    lake.write_dataset(
        pa.Table.from_pylist([row], SCHEMA), dataset.uri, catalog=dataset._address.catalog
    )
    assert dataset.refresh().scan().to_table().to_pylist() == [row]
    dataset.update({"day": None}, "id = 1")
    dataset.compact()
    assert dataset.refresh().scan().to_table().to_pylist() == [{**row, "day": None}]
    with pytest.raises(SchemaMismatchError, match="not nullable"):
        lake.write_dataset(
            {"id": [2], "key": pa.array([None], pa.string())},
            dataset.uri,
            catalog=dataset._address.catalog,
        )


def test_each_write_has_its_own_time(dataset: lake.Dataset) -> None:
    for _ in range(2):
        lake.write_dataset(NEW, dataset.uri, catalog=dataset._address.catalog)
    assert len(set(dataset.refresh().scan().to_table()["at"].to_pylist())) == 2


def test_a_column_has_one_default(dataset: lake.Dataset) -> None:
    dataset.set_default("day", date(2020, 1, 1))
    dataset.set_default("at", None)
    dataset.rename_column("key", "name")
    lake.write_dataset(NEW, dataset.uri, catalog=dataset._address.catalog)
    rows = dataset.refresh().scan().to_table().to_pylist()
    assert {(row["day"], row["at"]) for row in rows} == {(date(2020, 1, 1), None)}
    assert all(row["name"].startswith("key of 20") for row in rows)
    dataset.set_default("name", None)
    with pytest.raises(SchemaMismatchError, match="does not have it"):
        lake.write_dataset(NEW, dataset.uri, catalog=dataset._address.catalog)


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        ("at", "id"),
        ("at", "current_timestamp("),
        ("key", "uuid()"),
        ("day", "'yesterday' || 1"),
        ("id", "current_timestamp()"),
        ("id", "rand()"),
    ],
)
def test_what_is_no_default(column: str, sql: str, dataset: lake.Dataset) -> None:
    version = dataset.version
    with pytest.raises(SchemaMismatchError, match=f"'{column}'|{column}"):
        dataset.set_default(column, sql=sql)
    assert dataset.refresh().version == version
    with pytest.raises(InvalidOptionError, match="together with a value"):
        dataset.set_default(column, 1, sql=sql)
