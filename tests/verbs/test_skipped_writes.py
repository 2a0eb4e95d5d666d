"""A write whose pair, or a higher one, was committed says that it was skipped."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import lakehouse_source as lake
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = pytest.mark.one_catalog

catalog = catalog_of(*EVERY_KIND)


@pytest.mark.parametrize("number", [7, 6, 0])
def test_a_write_with_a_pair_that_is_not_higher_says_that_it_was_skipped(
    catalog: lake.Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    uri = tmp_path / "t"
    pair = {"txn_app_id": "job", "txn_version": 7}
    first = lake.write_dataset({"id": [1]}, uri, catalog=catalog, **pair)
    lake.write_dataset({"id": [2]}, uri, catalog=catalog)
    assert (first.skipped, "skipped" in repr(first)) == (False, False)
    again = {**pair, "txn_version": number}
    with caplog.at_level(logging.WARNING, logger="plake.commit"):
        found = lake.write_dataset({"id": [3]}, uri, catalog=catalog, **again)
    assert (found.skipped, found.version, found.row_count) == (True, first.version, 0)
    assert "skipped=True" in repr(found)
    (line,) = caplog.messages
    assert f"'job' committed txn_version {number}, or a higher one, as version 1" in line
    assert lake.read_dataset(uri, catalog=catalog)["id"].to_pylist() == [1, 2]
    assert not lake.write_dataset(
        {"id": [3]}, uri, catalog=catalog, **{**pair, "txn_version": 8}
    ).skipped


@pytest.mark.parametrize("where", ["id = 1", "id = 77"], ids=["rows", "no rows"])
def test_a_statement_with_a_pair_that_was_committed_says_that_it_was_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    uri = tmp_path / "t"
    lake.write_dataset({"id": [1, 2]}, uri)
    dataset = lake.open_dataset(uri)
    pair = {"txn_app_id": "job", "txn_version": 1}
    first = dataset.delete("id = 2", **pair)
    assert (first.skipped, first.rows_deleted) == (False, 1)
    found = dataset.delete(where, **pair)
    assert (found.skipped, found.version, len(caplog.messages)) == (True, first.version, 1)
    assert lake.read_dataset(uri)["id"].to_pylist() == [1]


def test_a_restore_tells_the_pairs_of_what_it_takes_back_and_how_to_load_it_again(
    catalog: lake.Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = tmp_path / "t"

    def load(number: int, app: str = "job") -> lake.WriteResult:
        rows = {"id": [number]}
        return lake.write_dataset(rows, uri, catalog=catalog, txn_app_id=app, txn_version=number)

    for number in (1, 2, 3):
        load(number)
    load(9, "other")
    dataset = lake.open_dataset(uri, catalog=catalog)
    with caplog.at_level(logging.WARNING, logger="plake.commit"):
        result = dataset.restore(1)
    assert result.pairs_left == {"job": 3, "other": 9}
    assert "'job' up to txn_version 3, txn_app_id 'other' up to txn_version 9" in caplog.text
    assert (result.summary["rows_added"], result.summary["rows_removed"]) == (0, 3)
    assert load(3).skipped
    assert not load(4).skipped
    assert sorted(lake.read_dataset(uri, catalog=catalog)["id"].to_pylist()) == [1, 4]
    assert dataset.restore(dataset.refresh().version).pairs_left == {}
