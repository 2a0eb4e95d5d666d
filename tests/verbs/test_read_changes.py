"""Appended rows with their version, without Spark, on every kind of catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakehouse_source as lake
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.changes import AppendedFiles, starting_position
from lakehouse_source.streaming import Limits, Position, Rules
from tests.verbs.conftest import empty_catalog


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def any_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
    with empty_catalog(request, tmp_path) as opened:
        yield opened


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
        assert starting_position(reader, newest, 1, None, "2100-01-01") == Position(2)
