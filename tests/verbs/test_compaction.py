"""Small files become few large ones: no row is changed, lost, doubled or brought back."""

from __future__ import annotations

import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.model import FileRecord
from lakehouse_source.read.address import Address
from lakehouse_source.write import layout as compaction
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import commit_rewrite
from lakehouse_source.write.commit.conflicts import Change
from lakehouse_source.write.commit.options import WriteOptions
from lakehouse_source.write.layout import worth_rewriting
from tests import processes

pytestmark = pytest.mark.slow

EVERYTHING = ["id", "p", "_row_id", "_commit_version"]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Eight commits of four rows each, in two partitions; some rows are deleted or updated."""
    uri = str(tmp_path / "data")
    for number in range(8):
        first = 4 * number
        ids = pa.array(range(first, first + 4), pa.int64())
        table = pa.table({"id": ids, "p": [0, 1, 0, 1]})
        lake.write_dataset(table, uri, partition_by="p", rewrite_threshold=1.0)
    dataset = lake.open_dataset(uri)
    dataset.delete("id IN (4, 9)")
    dataset.update({"id": "id + 100"}, "id = 13")
    return uri


def rows(dataset: lake.Dataset, version: int | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        dataset.scan(columns=EVERYTHING, version=version).to_table().to_pylist()
    )
    return sorted(found, key=lambda row: row["_row_id"])


def test_rows_keep_their_identity_version_and_order(uri: str) -> None:
    dataset = lake.open_dataset(uri)
    before, version = rows(dataset), dataset.version
    in_order = [row["id"] for row in dataset.scan("p = 0").to_table().to_pylist()]
    result = dataset.compact()
    assert (result.version, result.files_removed, result.files_added) == (version + 1, 17, 2)
    assert dataset.version == version + 1
    assert rows(dataset) == before
    assert rows(dataset, version) == before
    assert [row["id"] for row in dataset.scan("p = 0").to_table().to_pylist()] == in_order
    assert dataset.verify(checksums=True).ok
    record = dataset.history()[0]
    assert record.operation == "rewrite"
    assert record.summary["data_change"] == 0
    assert (record.summary["rows_added"], record.summary["rows_removed"]) == (0, 0)
    assert (record.summary["live_rows"], record.summary["live_files"]) == (30, 2)
    # No vector is left, and the rows can be changed as before.
    assert dataset.scan().explain().rows_deleted == 0
    dataset.delete("id = 8")
    assert [row["id"] for row in rows(dataset)] == [row["id"] for row in before if row["id"] != 8]


def test_a_second_compaction_rewrites_nothing(uri: str) -> None:
    dataset = lake.open_dataset(uri)
    dataset.compact()
    assert dataset.compact() == lake.CompactionResult(dataset.version)
    # Nor does one whose rows fill several files.
    chance = random.Random(1)
    for _ in range(6):
        values = [chance.randbytes(2000) for _ in range(500)]
        lake.write_dataset({"v": values}, f"{uri}2", row_group_rows=100)
    large = lake.open_dataset(f"{uri}2")
    before = large.scan().to_table()
    result = large.compact(target_file_size=2_500_000)
    assert (result.files_removed, result.files_added) == (6, 3)
    assert large.compact(target_file_size=2_500_000).files_removed == 0
    assert large.scan().to_table().equals(before)


def test_only_small_files_that_may_match_are_compacted(uri: str) -> None:
    dataset = lake.open_dataset(uri)
    assert dataset.compact("p = 1", max_concurrent=2).files_added == 1
    assert {file.partitions["p"]: 0 for file in dataset.files()} == {"0": 0, "1": 0}
    assert sum(file.partitions["p"] == "1" for file in dataset.files()) == 1
    assert dataset.compact(target_file_size=100).files_removed == 0
    with pytest.raises(lake.InvalidOptionError, match="max_concurrent"):
        dataset.compact(max_concurrent=0)
    with pytest.raises(lake.InvalidOptionError, match="targetFileSize"):
        dataset.compact(target_file_size=0)
    with pytest.raises(lake.InvalidPredicateError):
        dataset.compact("nothing = 1")


# --- other commits meanwhile -----------------------------------------------------------


class Slow:
    """A compaction that has written its files and waits before its commit."""

    def __init__(self, uri: str) -> None:
        self.address = Address(uri, None)
        with self.address.open() as catalog:
            with catalog.read() as reader:
                snapshot = self.address.snapshot(catalog, reader)
                self.work = compaction.find_work(reader, snapshot, min_files=2, repeated=False)
            options = WriteOptions(row_change=Change.REWRITE)
            schema = lake.open_dataset(uri).schema
            self.staged = begin(catalog, self.address, schema, options, base=snapshot.seen)
            self.files = compaction._write(catalog, self.staged, self.work, 1)

    def commit(self) -> lake.WriteResult:
        with self.address.open() as catalog:
            return commit_rewrite(
                catalog, self.staged, self.files, self.work.files, self.work.row_groups
            )


def test_an_append_meanwhile_is_no_conflict(uri: str) -> None:
    slow = Slow(uri)
    dataset = lake.open_dataset(uri)
    before = rows(dataset)
    lake.write_dataset({"id": [500], "p": [1]}, uri)
    slow.commit()
    assert [row["id"] for row in rows(dataset.refresh())] == [*(row["id"] for row in before), 500]
    assert len(dataset.files()) == 3


@pytest.mark.parametrize("statement", ["delete", "update", "overwrite", "compact", "schema"])
def test_a_commit_that_touches_the_files_meanwhile_is_a_conflict(uri: str, statement: str) -> None:
    slow = Slow(uri)
    dataset = lake.open_dataset(uri)
    if statement == "delete":
        dataset.delete("id = 8")
    elif statement == "update":
        dataset.update({"id": 77}, "id = 8")
    elif statement == "overwrite":
        lake.write_dataset({"id": [1], "p": [1]}, uri, mode="overwrite")
    elif statement == "compact":
        dataset.compact()
    else:
        dataset.add_column("more", pa.int64())
    after = rows(dataset.refresh())
    with pytest.raises(lake.CommitConflictError):
        slow.commit()
    assert rows(dataset.refresh()) == after
    assert not any(Path(uri, file.path).exists() for file in slow.files)


def test_changes_of_other_files_meanwhile_are_no_conflict(uri: str) -> None:
    lake.open_dataset(uri).compact("p = 1")
    lake.write_dataset({"id": [300], "p": [1]}, uri)
    slow = Slow(uri)  # two files of p = 1, and those of p = 0
    slow.work = compaction.Work(
        slow.work.snapshot,
        tuple(group for group in slow.work.groups if group[0].partitions["p"] == "0"),
        slow.work.vectors,
        slow.work.row_groups,
        slow.work.target_bytes,
    )
    slow.files = [file for file in slow.files if file.partitions["p"] == 0]
    dataset = lake.open_dataset(uri)
    dataset.delete("p = 1 AND id < 10")
    after = rows(dataset)
    slow.commit()
    assert rows(dataset.refresh()) == after
    assert sum(file.partitions["p"] == "0" for file in dataset.files()) == 1


def test_a_statement_that_began_before_a_compaction_gives_up(uri: str) -> None:
    dataset = lake.open_dataset(uri)
    merge = dataset.merge({"id": [8, 900], "p": [0, 0]}, "target.id = source.id")
    merge = merge.when_matched_delete()
    slow = Slow(uri)
    merge.execute()
    with pytest.raises(lake.CommitConflictError):
        slow.commit()


def test_rows_that_a_compaction_moved_are_not_new_to_a_merge(uri: str) -> None:
    """A MERGE looks at files that others added meanwhile; those of a compaction hold no new row."""
    from lakehouse_source.write.statements.row_statement import RowStatement

    address = Address(uri, None)
    with address.open() as catalog:
        statement = RowStatement(catalog, address, Change.MERGE, "write-serializable", {})
        batch = pa.record_batch({"id": pa.array([600], pa.int64()), "p": pa.array([0], pa.int64())})
        statement.write(iter([batch]), moved_rows=False)
        lake.open_dataset(uri).compact()
        statement.commit({}, inserted=1)
    assert 600 in [row["id"] for row in rows(lake.open_dataset(uri))]


# --- after commits -------------------------------------------------------------------


def test_files_stay_few_with_auto_compact(tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    most = 0
    for number in range(60):
        lake.write_dataset(
            {"id": [number], "p": [number % 2]},
            uri,
            partition_by="p",
            **({"auto_compact": True, "auto_compact_min_files": 5} if number == 0 else {}),
        )
        most = max(most, len(lake.open_dataset(uri).files()))
    dataset = lake.open_dataset(uri)
    assert dataset.properties["auto_compact"] is True
    assert most <= 2 * 5 + 5
    assert sorted(dataset.scan().to_table()["id"].to_pylist()) == list(range(60))
    rewrites = [one.version for one in dataset.history() if one.operation == "rewrite"]
    # Only each fifth commit looks for small files.
    assert rewrites
    assert all((version - 1) % 5 == 0 for version in rewrites)
    dataset.set_properties(auto_compact=None)
    version = dataset.version
    for number in range(8):
        lake.write_dataset({"id": [number], "p": [0]}, uri)
    assert lake.open_dataset(uri).version == version + 8


@pytest.mark.long
def test_a_repeated_compaction_does_not_rewrite_its_own_large_files(tmp_path: Path) -> None:
    """200 commits of the same size: a row is rewritten a few times, not once per compaction."""
    uri = str(tmp_path / "data")
    values = random.Random(0)
    for number in range(200):
        batch = {"id": [number] * 20, "text": [values.randbytes(500).hex() for _ in range(20)]}
        lake.write_dataset(
            batch,
            uri,
            **({"auto_compact": True, "auto_compact_min_files": 5} if number == 0 else {}),
        )
    dataset = lake.open_dataset(uri)
    history = dataset.history()
    rewritten = sum(one.summary["rows_added"] for one in history if one.operation == "rewrite")
    live = dataset.files()
    assert dataset.scan().count_rows() == 4000
    assert len(live) <= 5 + 6  # log2 of the 40 compactions, and what came since
    # Each of 40 compactions would rewrite all rows so far: 20 times the rows on average.
    assert rewritten <= 6 * 4000


@given(st.lists(st.integers(1, 10**9), max_size=60))
def test_what_a_repeated_compaction_takes_is_much_more_than_its_largest_file(
    sizes: list[int],
) -> None:
    files = [
        FileRecord(id, f"{id}.parquet", size, 1, 1, 1, {}, True) for id, size in enumerate(sizes)
    ]
    taken = worth_rewriting(files)
    assert taken == [file for file in files if file in taken]
    if taken:
        largest = max(file.size_bytes for file in taken)
        assert sum(file.size_bytes for file in taken) >= 1.8 * largest
    left = sorted(file.size_bytes for file in files if file not in taken)
    # What is left grows by more than a constant factor: it is few.
    assert all(1.25 * sum(left[:n]) < left[n] for n in range(1, len(left)))


def test_auto_compact_also_follows_transactions_and_statements(tmp_path: Path) -> None:
    uri, catalog = str(tmp_path / "data"), f"sqlite:///{tmp_path}/catalog.db"
    with lake.open_catalog(catalog) as opened:
        lake.write_dataset(
            {"id": [0]}, uri, catalog=opened, auto_compact=True, auto_compact_min_files=2
        )
        with lake.transaction(opened) as tx:
            tx.write({"id": [1]}, uri)
        dataset = lake.open_dataset(uri, catalog=opened)
        assert [record.operation for record in dataset.history()] == ["rewrite", "append", "append"]
        dataset.upsert({"id": [2]}, on="id")
        assert len(dataset.refresh().files()) == 1
        assert dataset.history()[0].operation == "rewrite"


def test_a_failing_auto_compaction_leaves_the_commit_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = str(tmp_path / "data")
    options = {"auto_compact": True, "auto_compact_min_files": 3}
    first = lake.write_dataset({"id": [0]}, uri, **options).metadata[0]
    os.remove(Path(uri, first.path))
    lake.write_dataset({"id": [1]}, uri)
    with caplog.at_level(logging.WARNING, logger="lakehouse_source"):
        assert lake.write_dataset({"id": [2]}, uri).version == 3
    assert "compaction of file://" in caplog.text
    assert lake.open_dataset(uri).version == 3
    # Its files are gone: one was removed above, two were appended.
    assert len(list(Path(uri).glob("*.parquet"))) == 2


def test_wrong_properties_are_refused(uri: str) -> None:
    dataset = lake.open_dataset(uri)
    with pytest.raises(lake.InvalidOptionError, match="autoCompactMinFiles"):
        dataset.set_properties(auto_compact_min_files=0)
    with pytest.raises(lake.InvalidOptionError, match="autoCompact"):
        dataset.set_properties(auto_compact="yes")


# --- crashes ---------------------------------------------------------------------------


def compact_once(uri: str, point: str, answers: Any) -> None:
    """One compaction that is killed at a point; an error is sent to `answers`."""
    from lakehouse_source import failpoints

    failpoints.arm(point)
    try:
        answers.send(lake.open_dataset(uri).compact().version)
    except lake.PlakeError as error:
        answers.send(error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["pending committed", "file closed", "rows written anew", "before COMMIT",
              "files removed", "after COMMIT"]
)  # fmt: skip
def test_a_killed_compaction_leaves_the_old_files_or_the_new(uri: str, point: str) -> None:
    dataset = lake.open_dataset(uri)
    before, version = rows(dataset), dataset.version
    _ours, theirs = processes.CONTEXT.Pipe(duplex=False)
    assert processes.run(compact_once, uri, point, theirs) == -signal.SIGKILL
    dataset.refresh()
    assert dataset.version == version + (point == "after COMMIT")
    assert rows(dataset) == before
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    assert dataset.verify(checksums=True).ok
    result = dataset.compact()
    assert (result.files_removed == 0) == (point == "after COMMIT")
    assert rows(dataset) == before
