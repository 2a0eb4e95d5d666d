"""Appended rows with their version, without Spark, on every kind of catalog."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.language import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.changes import AppendedFiles, starting_position
from lakehouse_source.streaming import Limits, Position, Rules
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

any_catalog = catalog_of(*EVERY_KIND)


@pytest.fixture
def dataset(any_catalog: lake.Catalog, tmp_path: Path) -> lake.Dataset:
    uri = str(tmp_path / "source")
    for number in range(3):
        lake.write_dataset({"id": [number]}, uri, catalog=any_catalog)
    return lake.open_dataset(uri, catalog=any_catalog)


def changed(dataset: lake.Dataset, since: int, *given: Any, **options: Any) -> Any:
    found = dataset.read_changes(since, *given, **options)
    return [(version, rows["id"].to_pylist()) for version, rows in found]


def test_appended_rows_come_with_their_version(
    dataset: lake.Dataset, any_catalog: lake.Catalog
) -> None:
    def write(rows: dict[str, Any], **options: Any) -> None:
        lake.write_dataset(rows, dataset.uri, catalog=any_catalog, **options)

    assert changed(dataset, 0) == [(1, [0]), (2, [1]), (3, [2])]
    assert changed(dataset, 1, "id > 1") == [(3, [2])]
    assert changed(dataset, 3) == []
    write({"id": [3], "note": ["x"]}, schema_merge=True)
    dataset.delete("id = 0")
    write({"id": [4]})
    dataset.compact()
    got = []
    with pytest.raises(lake.StreamChangeError):
        got.extend(version for version, _ in dataset.read_changes(2))
    assert got == [3, 4]
    found = dataset.read_changes(2, ignore_deletes=True)
    assert [rows.schema.names for _, rows in found] == [["id", "note"]] * 3
    later = [(3, [2]), (4, [3]), (6, [4])]
    assert changed(dataset, 2, columns=["id"], skip_change_commits=True) == later
    with pytest.raises(lake.VersionNotFoundError):
        changed(dataset, 8)
    dataset.expire_versions(keep_last=1)
    with pytest.raises(lake.StreamDataLossError):
        changed(dataset, 0)
    assert changed(dataset, 6) == []


@pytest.mark.parametrize(
    ("deleted", "deleted_then", "counts"),
    [
        ("id = 0", "id = 1", (1, 1)),
        ("id = 0", "id IN (1, 2)", (2, 1)),
        ("id IN (0, 1)", "id = 1", (0, 1)),
        ("id = 1", "id IN (0, 1)", (1, 0)),
    ],
)
def test_a_restore_that_brings_rows_back_ends_a_reader_whatever_else_it_deletes(
    any_catalog: lake.Catalog,
    tmp_path: Path,
    deleted: str,
    deleted_then: str,
    counts: tuple[int, int],
) -> None:
    """Only the difference was counted: a restore that swapped two rows did nothing."""
    uri = str(tmp_path / "source")
    lake.write_dataset({"id": list(range(10))}, uri, catalog=any_catalog)
    dataset = lake.open_dataset(uri, catalog=any_catalog)
    dataset.delete(deleted)
    dataset.restore(1)
    dataset.delete(deleted_then)
    left = dataset.scan().count_rows()
    dataset.restore(2)
    summary = dataset.history()[0].summary
    assert (summary["rows_added"], summary["rows_removed"]) == counts
    assert summary["live_rows"] == left + counts[0] - counts[1] == dataset.scan().count_rows()
    if counts[0]:
        with pytest.raises(lake.StreamChangeError, match="skipChangeCommits"):
            list(dataset.read_changes(4, ignore_deletes=True))
    else:
        assert list(dataset.read_changes(4, ignore_deletes=True)) == []


def test_rows_from_before_a_restore_are_not_rounded_to_the_types_of_today(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    lake.write_dataset({"day": [date(2020, 1, 1)]}, uri)
    dataset = lake.open_dataset(uri)
    dataset.promote_column("day", pa.timestamp("ms"))
    noon = pa.array([datetime(1899, 12, 31, 12)], pa.timestamp("ms"))
    lake.write_dataset(pa.table({"day": noon}), uri)
    dataset.refresh().restore(1)
    with pytest.raises(lake.SchemaMismatchError, match=r"1899-12-31 12:00:00.* does not fit"):
        list(dataset.read_changes(1, skip_change_commits=True))


def test_rows_of_a_replaced_schema_are_not_read_as_rows_of_nothing(
    any_catalog: lake.Catalog, tmp_path: Path
) -> None:
    """Each value was NULL, or that of another partition column with the same name."""
    uri = str(tmp_path / "source")
    rows = {"id": [1], "p": ["a"], "q": ["5"]}
    lake.write_dataset(rows, uri, catalog=any_catalog, partition_by=["p", "q"])
    lake.write_dataset(
        {"id": [2], "p": ["b"], "q": [5]},
        uri,
        catalog=any_catalog,
        mode="overwrite",
        overwrite_schema=True,
        partition_by=["p", "q"],
    )
    lake.write_dataset({"id": [3], "p": ["c"], "q": [6]}, uri, catalog=any_catalog)
    dataset = lake.open_dataset(uri, catalog=any_catalog)
    with pytest.raises(lake.StreamSchemaError, match="replaced") as raised:
        list(dataset.read_changes(0, skip_change_commits=True))
    assert (raised.value.version, raised.value.replaced) == (1, True)
    assert changed(dataset, 1, skip_change_commits=True) == [(3, [3])]
    dataset.restore(1)
    found = dataset.read_changes(0, skip_change_commits=True)
    assert next(found)[1].to_pylist() == [{"id": 1, "p": "a", "q": "5"}]
    with pytest.raises(lake.StreamSchemaError, match="version 3"):
        next(found)


def test_a_consumer_that_keeps_the_version_gets_each_row_once(
    dataset: lake.Dataset, any_catalog: lake.Catalog
) -> None:
    seen: list[int] = []
    last = 0
    for number in range(10, 20):
        for version, rows in dataset.read_changes(last):
            seen += rows["id"].to_pylist()
            last = version
        lake.write_dataset({"id": [number]}, dataset.uri, catalog=any_catalog)
        if number % 3 == 0:
            dataset.compact()
    assert seen == [0, 1, 2, *range(10, 19)]


def test_every_catalog_finds_files_by_their_order_and_versions_by_time(
    dataset: lake.Dataset, any_catalog: lake.Catalog
) -> None:
    lake.write_dataset(
        {"id": [5, 6, 7], "p": [1, 2, 3]}, f"{dataset.uri}2", catalog=any_catalog, partition_by="p"
    )
    address = Address(f"{dataset.uri}2", any_catalog)
    with any_catalog.read() as reader:
        newest = address.snapshot(any_catalog, reader)
        files = AppendedFiles(
            reader, newest, newest.schema_version, None, PredicateSet.of(None), Rules()
        )
        start = starting_position(reader, newest, 1, None, None)
        assert start == Position(0, 0, 1)
        ends = []
        while start.snapshot is not None:
            start, some = files.advance(start, Limits(max_files=1), 1)
            assert some
            ends.append(start)
        assert [end.snapshot for end in ends] == [1, 1, None]
        assert ends[-1] == Position(2)
        moment = reader.transactions(newest.dataset.id)[0].timestamp
        assert starting_position(reader, newest, 1, None, moment) == Position(1)
        assert starting_position(reader, newest, 1, None, reader.now()) == Position(2)
        with pytest.raises(lake.InvalidOptionError, match="in the future"):
            starting_position(reader, newest, 1, None, "2100-01-01")


def test_an_overwrite_of_a_condition_that_no_row_satisfies_is_an_append(
    any_catalog: lake.Catalog, tmp_path: Path
) -> None:
    """A file whose statistics left it open was written anew: a stream skipped the new rows."""
    uri = str(tmp_path / "source")
    lake.write_dataset({"id": [1, 5, 9]}, uri, catalog=any_catalog)
    lake.write_dataset({"id": [2, 6, 7]}, uri, catalog=any_catalog)
    dataset = lake.open_dataset(uri, catalog=any_catalog)
    dataset.delete("id = 6")
    for version, number in ((4, 3), (5, 6)):
        lake.write_dataset(
            {"id": [number]},
            uri,
            catalog=any_catalog,
            mode="overwrite",
            overwrite_where=f"id = {number}",
        )
        summary = dataset.refresh().history()[0].summary
        assert (summary["files_removed"], summary["rows_removed"]) == (0, 0)
        assert changed(dataset, version - 1) == [(version, [number])]
    lake.write_dataset(
        {"id": [5]}, uri, catalog=any_catalog, mode="overwrite", overwrite_where="id = 5"
    )
    assert dataset.refresh().history()[0].summary["files_removed"] == 1
    assert sorted(dataset.scan().to_table()["id"].to_pylist()) == [1, 2, 3, 5, 6, 7, 9]
