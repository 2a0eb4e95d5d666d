"""The change feed, against the difference of neighbouring versions row by row."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import (
    InvalidOptionError,
    InvalidPredicateError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakehouse_source.read.feed import LAST_CHANGED
from lakehouse_source.schema.fields import ROW
from tests.feed_model import Row, check
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

catalog = catalog_of(*EVERY_KIND)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(5)
def test_the_feed_is_the_difference_of_neighbouring_versions(seed: int, tmp_path: Path) -> None:
    with lake.open_catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        check(seed, str(tmp_path / "data"), catalog)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 3_000))
def test_the_feed_is_the_difference_in_many_histories(seed: int, tmp_path: Path) -> None:
    with lake.open_catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        check(seed, str(tmp_path / "data"), catalog)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 104))
def test_the_feed_is_the_difference_on_every_catalog(
    seed: int, catalog: lake.Catalog, tmp_path: Path
) -> None:
    check(seed, str(tmp_path / "data"), catalog)


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    """Version 1: ids 1 to 3; 2: id 1 updated; 3: id 3 deleted."""
    uri = str(tmp_path / "data")
    lake.write_dataset({"id": [1, 2, 3], "v": ["a", "b", "c"]}, uri, rewrite_threshold=1.0)
    dataset = lake.open_dataset(uri)
    dataset.update({"v": "'A'"}, where="id = 1")
    dataset.delete("id = 3")
    return dataset.refresh()


def kinds(changes: lake.Changes) -> list[Row]:
    rows = changes.to_table().to_pylist()
    return [(row["_commit_version"], row["_change_type"], row["id"]) for row in rows]


EVERYTHING = [
    *((1, "insert", 1), (1, "insert", 2), (1, "insert", 3)),
    *((2, "update_preimage", 1), (2, "update_postimage", 1), (3, "delete", 3)),
]


def test_commits_of_few_rows_are_told_together(tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    for number in range(20):
        lake.write_dataset({"id": [2 * number, 2 * number + 1]}, uri)
    dataset = lake.open_dataset(uri)
    dataset.delete("id = 7 OR id = 8")
    lake.write_dataset({"id": range(100_000, 140_000)}, uri)
    lake.write_dataset({"id": [40]}, uri)
    batches = list(dataset.refresh().changes(1).to_batches())
    assert [batch.num_rows for batch in batches] == [40, 2, 40_000, 1]
    told = pa.Table.from_batches(batches)
    ids = [*range(40), 7, 8, *range(100_000, 140_000), 40]
    versions = [n // 2 + 1 for n in range(40)] + [21] * 2 + [22] * 40_000 + [23]
    times = {record.version: record.timestamp for record in dataset.refresh().history()}
    assert told["id"].to_pylist() == ids
    assert told["_commit_version"].to_pylist() == versions
    assert told["_commit_timestamp"].to_pylist() == [times[version] for version in versions]
    kinds = ["insert"] * 40 + ["delete"] * 2 + ["insert"] * 40_001
    assert told["_change_type"].to_pylist() == kinds


def test_commits_of_few_rows_with_many_bytes_are_told_one_by_one(tmp_path: Path) -> None:
    for number in range(3):
        lake.write_dataset({"id": [number], "text": [str(number) * 3_000_000]}, tmp_path)
    batches = list(lake.open_dataset(tmp_path).changes(1).to_batches())
    assert [batch["id"].to_pylist() for batch in batches] == [[0], [1], [2]]


def test_a_range_is_named_by_numbers_tags_and_times(dataset: lake.Dataset) -> None:
    assert kinds(dataset.changes(1)) == EVERYTHING
    assert kinds(dataset.changes("2", 2)) == EVERYTHING[3:5]
    dataset.tag("first", version=1)
    assert kinds(dataset.changes("first", "first")) == EVERYTHING[:3]
    second = dataset.history()[1].timestamp
    assert kinds(dataset.changes(second)) == EVERYTHING[3:]
    assert kinds(dataset.changes(second.isoformat(), second)) == EVERYTHING[3:5]
    assert kinds(dataset.changes(1, second - timedelta(microseconds=1))) == EVERYTHING[:3]
    assert kinds(dataset.changes(second + timedelta(days=1))) == []
    assert kinds(dataset.changes(4)) == []


def test_a_range_that_does_not_exist_is_refused(dataset: lake.Dataset) -> None:
    for start, end in ((0, 1), (3, 1), (-1, None)):
        with pytest.raises(InvalidOptionError, match="start"):
            dataset.changes(start, end).to_table()
    for start, end in ((1, 4), (5, None)):
        with pytest.raises(VersionNotFoundError, match=f"version {end or start}"):
            dataset.changes(start, end).to_table()
    with pytest.raises(VersionNotFoundError, match="at or before"):
        dataset.changes(1, "2001-01-01").to_table()
    with pytest.raises(InvalidOptionError, match="nobody's tag"):
        dataset.changes("nobody's tag").to_table()
    with pytest.raises(InvalidOptionError, match="True"):
        dataset.changes(True).to_table()


def test_expired_changes_are_refused_with_the_first_that_can_be_asked(
    dataset: lake.Dataset,
) -> None:
    lake.write_dataset({"id": [4], "v": ["d"]}, dataset.uri)
    dataset.refresh().expire_versions(keep_last=2)  # 3 and 4
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    with pytest.raises(VersionNotFoundError, match=r"changes of version 2 .*4"):
        dataset.changes(2).to_table()
    with pytest.raises(VersionNotFoundError, match="changes of version 3"):
        dataset.changes(3).to_table()  # the row that it deleted was in a version that expired
    assert kinds(dataset.changes(4)) == [(4, "insert", 4)]
    dataset.expire_versions(keep_last=1)
    assert kinds(dataset.changes(4)) == [(4, "insert", 4)]  # it took nothing away
    dataset.delete("id = 4")
    dataset.expire_versions(keep_last=1)
    with pytest.raises(VersionNotFoundError, match="only what comes later can be read"):
        dataset.changes(5).to_table()  # not "versions 6 to 5"


def test_columns_and_conditions_are_those_of_a_scan(dataset: lake.Dataset) -> None:
    found = dataset.changes(2, columns=["V", "_row_id"]).to_table()
    assert found.column_names == [
        *("v", "_row_id", "_change_type", "_commit_version", "_commit_timestamp")
    ]
    assert found["_row_id"].to_pylist() == [0, 0, 2]
    assert dataset.changes(2, columns=[]).to_table().num_columns == 3
    upper = dataset.changes(1, where="v = 'A'")
    assert kinds(upper) == [(2, "update_postimage", 1)]
    with pytest.raises(InvalidPredicateError, match="nope"):
        dataset.changes(1, where="nope = 1").to_table()
    with pytest.raises(SchemaMismatchError, match="nope"):
        dataset.changes(1, columns=["nope"]).to_table()


def test_a_column_with_a_name_of_the_feed_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    lake.write_dataset({"id": [1], "_CHANGE_TYPE": ["x"]}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    with pytest.raises(SchemaMismatchError, match="_change_type"):
        dataset.changes(1).to_table()
    assert kinds(dataset.changes(1, columns=["id"])) == [(1, "insert", 1)]


def test_a_feed_is_counted_explained_and_handed_to_engines(dataset: lake.Dataset) -> None:
    import datafusion
    import duckdb

    changes = dataset.changes(1)
    assert changes.count_rows() == {
        "insert": 3,
        "delete": 1,
        "update_preimage": 1,
        "update_postimage": 1,
    }
    cost = changes.explain()
    assert (cost.commits, cost.files_read, cost.row_groups_read) == (3, 2, 4)
    assert "3 commits" in str(cost)
    assert dataset.changes(1, where="id > 90").explain().files_read == 0
    expected = changes.to_table().select(["id", "_change_type"]).to_pylist()
    with duckdb.connect() as connection:
        changes.to_duckdb(connection, "fed")
        rows = connection.sql("SELECT id, _change_type FROM fed").fetchall()
        assert [dict(zip(("id", "_change_type"), row)) for row in rows] == expected
    assert changes.to_polars().select("id", "_change_type").collect().to_dicts() == expected
    context = datafusion.SessionContext()
    frame = changes.to_datafusion(context).select("id", "_change_type")
    assert frame.to_arrow_table().to_pylist() == expected


def test_rows_of_a_dataset_that_was_replaced_have_no_value_in_new_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    lake.write_dataset({"id": [1]}, uri)
    other = pa.table({"key": [9]}, pa.schema([pa.field("key", pa.int64(), nullable=False)]))
    lake.write_dataset(other, uri, mode="overwrite", overwrite_schema=True)
    rows = lake.open_dataset(uri).changes(1).to_table().to_pylist()
    assert [(row["_change_type"], row["key"]) for row in rows] == [
        *(("insert", None), ("delete", None), ("insert", 9))
    ]


def test_a_row_that_has_no_value_is_found_by_is_null(tmp_path: Path) -> None:
    """The column allows no NULL, and the row is older than the column."""
    uri = str(tmp_path / "data")
    lake.write_dataset({"id": [1]}, uri)
    other = pa.table({"key": [9]}, pa.schema([pa.field("key", pa.int64(), nullable=False)]))
    lake.write_dataset(other, uri, mode="overwrite", overwrite_schema=True)
    changes = lake.open_dataset(uri).changes(1, where="key IS NULL")
    assert changes.count_rows()["insert"] == changes.count_rows()["delete"] == 1


def test_values_are_told_that_a_later_version_forbids(tmp_path: Path) -> None:
    """A file has NULL in a column that allows none any more."""
    uri = str(tmp_path / "data")
    lake.write_dataset({"id": [1, 2], "v": [None, "b"]}, uri)
    dataset = lake.open_dataset(uri)
    dataset.delete("v IS NULL")
    dataset.set_nullable("v", False)
    for where in (None, "v IS NULL"):
        told = dataset.changes(1, where=where).to_table().to_pylist()
        rows = [(row["_change_type"], row["v"]) for row in told if row["id"] == 1]
        assert rows == [("insert", None), ("delete", None)]


def test_a_net_change_has_the_version_that_changed_the_row_and_not_one_that_moved_it(
    tmp_path: Path,
) -> None:
    uri = str(tmp_path / "data")
    rows = {"id": [1, 2, 3], "v": ["a", "b", "c"]}
    lake.write_dataset(rows, uri, rewrite_threshold=0.01)  # an update writes the file anew
    dataset = lake.open_dataset(uri)
    dataset.update({"v": "'B'"}, where="id <= 2")
    dataset.update({"v": "'A'"}, where="id = 1")  # moves the other row that was changed
    told = dataset.refresh().changes(2, net=True).to_table().to_pylist()
    assert {row["id"]: row["_commit_version"] for row in told} == {2: 2, 1: 3}


@pytest.mark.parametrize("net", [False, True])
def test_columns_that_are_told_do_not_depend_on_each_other(
    dataset: lake.Dataset, net: bool
) -> None:
    """Identities are read only where they are told, or pair the images of an update."""
    lake.write_dataset({"id": [7, 8], "v": ["g", None]}, dataset.uri)
    dataset = dataset.refresh()
    every = ["v", "id", ROW.name, LAST_CHANGED.name]
    whole = dataset.changes(1, columns=every, net=net).to_table()
    # The updated row keeps its identity; its file took the next one.
    by_id = set(zip(*(whole.column(name).to_pylist() for name in ("id", ROW.name))))
    assert by_id == {(1, 0), (2, 1), (7, 4), (8, 5)} | (set() if net else {(3, 2)})
    assert whole.num_rows == (4 if net else 8)
    for columns in (["v"], ["id", "v"], [ROW.name], ["v", LAST_CHANGED.name]):
        some = dataset.changes(1, columns=columns, net=net).to_table()
        told = [*columns, "_change_type", "_commit_version", "_commit_timestamp"]
        assert some == whole.select(told)
