"""Consumers of the change feed: expiry keeps what they have not read, and only that."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import lakehouse_source as lake
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

catalog = catalog_of(*EVERY_KIND)
NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}


@pytest.fixture
def dataset(catalog: lake.Catalog, tmp_path: Path) -> lake.Dataset:
    """Version 1 has the numbers 1 to 9; each of the versions 2 to 6 deletes the least."""
    uri = tmp_path / "t"
    lake.write_dataset({"n": range(1, 10)}, uri, catalog=catalog, rewrite_threshold=1.0)
    dataset = lake.open_dataset(uri, catalog=catalog)
    for number in range(1, 6):
        dataset.delete(f"n = {number}")
    return dataset.refresh()


def told(changes: lake.Changes) -> list[tuple[int, str, int]]:
    rows = changes.to_table().to_pylist()
    return [(row["_commit_version"], row["_change_type"], row["n"]) for row in rows]


def test_a_consumer_reads_each_change_once_and_moves_when_it_is_told(dataset: lake.Dataset) -> None:
    dataset.add_consumer("billing", version=3)
    assert told(dataset.changes(consumer="billing", end=4)) == [(4, "delete", 3)]
    assert told(dataset.changes(consumer="billing", end=4)) == [(4, "delete", 3)]
    dataset.advance_consumer("billing", 4)
    assert told(dataset.changes(consumer="billing")) == [(5, "delete", 4), (6, "delete", 5)]
    dataset.advance_consumer("billing", 6)
    assert told(dataset.changes(consumer="billing")) == []
    dataset.delete("n = 6")
    assert told(dataset.changes(consumer="billing")) == [(7, "delete", 6)]
    dataset.add_consumer("all", version=0)
    assert told(dataset.changes(consumer="all"))[:2] == [(1, "insert", 1), (1, "insert", 2)]


@pytest.mark.long
def test_expiry_and_vacuum_keep_what_a_consumer_has_not_read_and_nothing_else(
    dataset: lake.Dataset,
) -> None:
    dataset.compact(rewrite_deleted=True)  # version 7: the old file and its vectors are needed
    dataset.add_consumer("billing", version=3)
    dataset.add_consumer("done")
    expected = told(dataset.changes(4))
    report = dataset.expire_versions(keep_last=1)
    assert (report.expired, report.oldest_version, report.consumers) == ((1, 2), 3, ("billing",))
    assert "kept for consumers: billing" in str(report)
    dataset.vacuum(**NOW)
    assert told(dataset.changes(consumer="billing")) == expected
    with pytest.raises(lake.VersionNotFoundError, match=r"changes of version 3 .*versions 4 to 7"):
        dataset.changes(3).to_table()
    dataset.advance_consumer("billing", 6)
    assert dataset.expire_versions(keep_last=1).oldest_version == 6
    dataset.advance_consumer("billing", 7)
    report = dataset.expire_versions(keep_last=1)
    assert (report.oldest_version, report.consumers) == (7, ())
    assert dataset.vacuum(**NOW).files_removed > 0
    # A version that no limit expires needs no consumer.
    assert dataset.expire_versions(keep_last=3).consumers == ()


def test_a_consumer_of_nothing_keeps_the_first_version(dataset: lake.Dataset) -> None:
    dataset.add_consumer("new", version=0)
    assert dataset.expire_versions(keep_last=1).oldest_version == 1
    dataset.vacuum(**NOW)
    assert len(told(dataset.changes(consumer="new"))) == 14


@pytest.mark.long
def test_a_consumer_whose_time_has_passed_keeps_nothing_and_is_told_what_it_missed(
    dataset: lake.Dataset,
) -> None:
    dataset.add_consumer("gone", version=2, keep_seconds=1)
    dataset.add_consumer("there", version=4)
    assert dataset.expire_versions(keep_last=1).consumers == ("gone", "there")
    time.sleep(1.1)
    shown = dataset.inspect.consumers().to_pylist()
    assert [(one["name"], one["versions_behind"], one["is_expired"]) for one in shown] == [
        ("gone", 4, True), ("there", 2, False),
    ]  # fmt: skip
    # Nothing was expired yet: it can go on, and its time begins anew.
    dataset.advance_consumer("gone", 3)
    assert dataset.expire_versions(keep_last=1).oldest_version == 3
    time.sleep(1.1)
    assert dataset.expire_versions(keep_last=1).oldest_version == 4
    dataset.vacuum(**NOW)
    with pytest.raises(lake.VersionNotFoundError, match=r"changes of version 4 .*versions 5 to 6"):
        dataset.changes(consumer="gone").to_table()
    with pytest.raises(lake.VersionNotFoundError, match=r"version 3 .*was expired"):
        dataset.advance_consumer("gone", 3)
    assert len(told(dataset.changes(consumer="there"))) == 2


def test_a_tag_keeps_its_own_version_beside_a_consumer(dataset: lake.Dataset) -> None:
    dataset.tag("spring", version=2)
    dataset.add_consumer("billing", version=5)
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    assert sorted(dataset.scan(version="spring").to_table()["n"].to_pylist()) == list(range(2, 10))
    assert told(dataset.changes(consumer="billing")) == [(6, "delete", 5)]
    for version in (1, 3, 4):
        with pytest.raises(lake.VersionNotFoundError):
            dataset.scan(version=version).to_table()


def test_wrong_names_and_positions_are_refused(dataset: lake.Dataset) -> None:
    dataset.add_consumer("billing", version=3)
    dataset.add_consumer("billing", version=3)  # the same again, after an answer that was lost
    with pytest.raises(lake.InvalidOptionError, match="has read version 3"):
        dataset.add_consumer("billing", version=4)
    with pytest.raises(lake.InvalidOptionError, match="before version 3"):
        dataset.advance_consumer("billing", 2)
    with pytest.raises(lake.VersionNotFoundError, match="version 7"):
        dataset.advance_consumer("billing", 7)
    assert dataset.consumers()["billing"].version == 3
    for position in (-1, 7):
        with pytest.raises(lake.VersionNotFoundError):
            dataset.add_consumer("other", version=position)
    for wrong in ("", " ", "a\0b", "x" * 256):
        with pytest.raises(lake.InvalidOptionError, match="consumer"):
            dataset.add_consumer(wrong)
    for seconds in (0, -1, 10**12):
        with pytest.raises(lake.InvalidOptionError, match="keep_seconds"):
            dataset.add_consumer("other", keep_seconds=seconds)
    with pytest.raises(lake.InvalidOptionError, match="version"):
        dataset.add_consumer("other", version=True)
    for act in (
        lambda: dataset.changes(consumer="nobody").to_table(),
        lambda: dataset.advance_consumer("nobody", 6),
        lambda: dataset.drop_consumer("nobody"),
    ):
        with pytest.raises(lake.VersionNotFoundError, match="no consumer 'nobody'"):
            act()
    with pytest.raises(lake.InvalidOptionError, match="start"):
        dataset.changes()
    with pytest.raises(lake.InvalidOptionError, match="start"):
        dataset.changes(1, consumer="billing")
    dataset.drop_consumer("billing")
    assert dataset.consumers() == {}
    assert dataset.expire_versions(keep_last=1).oldest_version == 6


def test_consumers_leave_with_their_dataset(catalog: lake.Catalog, dataset: lake.Dataset) -> None:
    dataset.add_consumer("billing", version=3)
    branch = dataset.branch("audit")
    assert branch.consumers() == {}
    assert branch.inspect.consumers().num_rows == 0
    branch.add_consumer("billing")
    dataset.drop_branch("audit")
    with catalog.write() as tx:
        record = tx.dataset(dataset.uri)
        assert record is not None
        tx.drop_dataset(record.id)
        tx.forget_dataset(record.id)
        assert tx.consumers(record.id) == {}
