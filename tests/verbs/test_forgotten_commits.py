"""A vacuum removes old commits of expired versions from the history, and nothing is misled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.language import PredicateSet
from lakehouse_source.maintenance import vacuum
from lakehouse_source.read.address import Address
from lakehouse_source.read.changes import AppendedFiles, identity_of
from lakehouse_source.streaming import Limits, Position, Rules
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}


catalog = catalog_of(*EVERY_KIND)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "events")


@pytest.fixture
def append(catalog: lake.Catalog, uri: str) -> Callable[..., lake.Dataset]:
    """Append one number for each commit, as the numbered batch of an application if it has one."""

    def append(*numbers: int, app: str | None = None, to: str = uri) -> lake.Dataset:
        for number in numbers:
            pair: dict[str, Any] = {} if app is None else {"txn_app_id": app, "txn_version": number}
            lake.write_dataset({"id": [number]}, to, catalog=catalog, **pair)
        return lake.open_dataset(to, catalog=catalog)

    return append


def versions(dataset: lake.Dataset) -> list[int]:
    return sorted(record.version for record in dataset.history())


def ids(dataset: lake.Dataset, version: int | None = None) -> list[int]:
    return sorted(dataset.scan(version=version).to_table()["id"].to_pylist())


def expire_all(dataset: lake.Dataset, **options: Any) -> int:
    """Compact, so that nothing needs the old files; expire and vacuum."""
    dataset.compact()
    dataset.expire_versions(keep_last=1)
    return dataset.vacuum(**NOW, **options).commits_forgotten


def test_commits_are_forgotten_whose_files_are_gone(append: Callable[..., lake.Dataset]) -> None:
    dataset = append(*range(1, 7))
    dataset.compact()  # version 7
    dataset.expire_versions(keep_last=1)
    assert dataset.vacuum(dry_run=True, **NOW).commits_forgotten == 0
    assert versions(dataset) == [1, 2, 3, 4, 5, 6, 7]
    assert dataset.vacuum(**NOW).commits_forgotten == 5
    assert versions(dataset) == [1, 7], "version 1 identifies the dataset"
    assert dataset.vacuum(**NOW).commits_forgotten == 0
    assert ids(append(7)) == [1, 2, 3, 4, 5, 6, 7]
    assert versions(dataset) == [1, 7, 8]


def test_young_commits_stay(append: Callable[..., lake.Dataset]) -> None:
    dataset = append(1)
    for size in (1, 2, 3):
        dataset.set_properties(target_file_size_bytes=size * 1_000_000)
    dataset.expire_versions(keep_last=1)
    assert dataset.vacuum(retention_seconds=3600).commits_forgotten == 0
    report = dataset.vacuum(**NOW)
    assert report.commits_forgotten == 2
    assert "commits removed from the history: 2" in str(report)
    assert versions(dataset) == [1, 4]


def test_a_crash_before_commits_are_forgotten_is_made_good_by_the_next_vacuum(
    append: Callable[..., lake.Dataset],
) -> None:
    dataset = append(1, 2, 3)
    dataset.compact()
    dataset.expire_versions(keep_last=1)
    with (
        mock.patch.object(vacuum, "_forget_commits", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        dataset.vacuum(**NOW)
    assert versions(dataset) == [1, 2, 3, 4]
    assert ids(dataset, 4) == [1, 2, 3]
    assert dataset.vacuum(**NOW).commits_forgotten == 2
    assert versions(dataset) == [1, 4]


def test_without_expiry_no_commit_is_forgotten(append: Callable[..., lake.Dataset]) -> None:
    dataset = append(1, 2, 3)
    dataset.compact()
    assert dataset.vacuum(**NOW).commits_forgotten == 0
    assert versions(dataset) == [1, 2, 3, 4]


def test_commits_stay_whose_files_or_vectors_are_there(
    append: Callable[..., lake.Dataset], catalog: lake.Catalog, uri: str
) -> None:
    """A vacuum of another dataset in the same folder asks the history whose a file is."""
    dataset = append(1, 2)
    dataset.delete("id = 2")  # drops the file that version 2 added
    append(3, 4)
    lake.write_dataset({"id": [5, 6, 7, 8]}, uri, catalog=catalog)
    dataset.refresh()
    dataset.delete("id = 5")  # version 7: a vector
    dataset.refresh()
    append(9)
    dataset.expire_versions(keep_last=1)
    assert dataset.vacuum(**NOW).commits_forgotten == 2
    assert versions(dataset) == [1, 4, 5, 6, 7, 8]
    dataset.refresh()
    assert ids(dataset) == [1, 3, 4, 6, 7, 8, 9]


def test_what_was_committed_after_a_removal_stays_as_long_as_the_removed_file(
    append: Callable[..., lake.Dataset], catalog: lake.Catalog, uri: str
) -> None:
    """It decides whether rows of a file that is added in place are in the dataset already."""
    dataset = append(1, 2)
    dataset.set_properties(target_file_size_bytes=10_000_000)  # version 3
    dataset.delete("id = 2")  # version 4
    dataset.set_properties(target_file_size_bytes=20_000_000)
    dataset = append(6)
    dataset.expire_versions(keep_last=1)
    with catalog.read() as reader:
        record = reader.dataset(Address(uri, catalog).key)
        assert record is not None
        assert reader.commits_to_forget(record.id, 0) == [3]
    assert dataset.vacuum(**NOW).commits_forgotten == 4
    assert versions(dataset) == [1, 6]


def test_the_last_number_of_every_application_stays(
    append: Callable[..., lake.Dataset], catalog: lake.Catalog, uri: str
) -> None:
    append(1, 2, 3, app="left")
    append(5, 6, app="right")
    dataset = append(4, app="left")
    assert expire_all(dataset) == 3
    assert versions(dataset) == [1, 5, 6, 7]
    for app, number in (("left", 2), ("left", 4), ("right", 5), ("right", 6)):
        append(number, app=app)
    assert ids(dataset) == [1, 2, 3, 4, 5, 6], "all of these are repetitions"
    dataset = append(7, app="right")
    assert ids(dataset) == [1, 2, 3, 4, 5, 6, 7]


def test_a_branch_of_an_old_version_knows_the_last_number_of_then(
    append: Callable[..., lake.Dataset],
) -> None:
    append(1, 2, 3, app="job")
    dataset = append(4)
    dataset.compact()  # version 5
    dataset = append(6, app="job")
    dataset.expire_versions(keep_last=2)
    dataset.vacuum(**NOW)
    assert versions(dataset) == [1, 3, 5, 6]
    branch = dataset.branch("audit", version=5)
    append(3, app="job", to=branch.uri)
    branch.refresh()
    assert ids(branch) == [1, 2, 3, 4]
    append(6, app="job", to=branch.uri)
    branch.refresh()
    assert ids(branch) == [1, 2, 3, 4, 6]


def test_the_history_of_branches_is_forgotten_too(append: Callable[..., lake.Dataset]) -> None:
    dataset = append(1, 2, 3)
    branch = dataset.branch("audit")
    append(4, 5, to=branch.uri)
    branch.refresh()
    branch.compact()  # version 6
    branch.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    branch.refresh()
    assert versions(branch) == [1, 6]
    assert ids(branch) == [1, 2, 3, 4, 5]
    assert versions(dataset) == [1, 2, 3], "not one of its versions is expired"
    append(6, to=branch.uri)
    branch.refresh()
    branch.expire_versions(keep_last=1)
    with pytest.raises(lake.VersionNotFoundError):
        dataset.fast_forward("audit")


def test_commits_stay_as_long_as_a_write_that_began_before_them_goes_on(
    append: Callable[..., lake.Dataset], catalog: lake.Catalog, uri: str
) -> None:
    dataset = append(1, 2)
    dataset.compact()  # version 3

    def slow() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [100]})
        append(4, 5)
        dataset.refresh()
        assert expire_all(dataset) == 2
        assert versions(dataset) == [1, 4, 5, 6]

    source = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), slow())
    lake.write_dataset(source, uri, catalog=catalog)
    dataset.refresh()
    assert ids(dataset) == [1, 2, 4, 5, 100]
    assert dataset.vacuum(**NOW).commits_forgotten == 2
    assert versions(dataset) == [1, 6, 7]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_that_began_before_what_is_forgotten_is_refused(
    append: Callable[..., lake.Dataset], catalog: lake.Catalog, uri: str, mode: str
) -> None:
    dataset = append(1)

    def slow() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [100]})
        append(2, 3)
        dataset.refresh()
        dataset.delete("id = 2")
        dataset.refresh()
        assert expire_all(dataset, abandoned_after_seconds=0) == 3

    source = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), slow())
    with pytest.raises(lake.CommitConflictError, match="removed them from the history"):
        lake.write_dataset(source, uri, catalog=catalog, mode=mode)
    dataset.refresh()
    assert ids(dataset) == [1, 3]


def test_a_column_change_that_was_asked_for_before_what_is_forgotten_is_refused(
    append: Callable[..., lake.Dataset],
) -> None:
    before = append(1)
    dataset = append(2, 3)
    assert expire_all(dataset) == 2
    with pytest.raises(lake.CommitConflictError, match="removed them from the history"):
        before.add_column("note", pa.string())
    before.refresh()
    before.add_column("note", pa.string())
    assert before.version == 5


def test_times_and_numbers_of_forgotten_versions_are_expired(
    append: Callable[..., lake.Dataset],
) -> None:
    dataset = append(1, 2, 3, 4)
    moments = {record.version: record.timestamp for record in dataset.history()}
    assert expire_all(dataset) == 3
    for moment in moments.values():
        with pytest.raises(lake.VersionNotFoundError, match="was expired: versions 5 to 5"):
            dataset.scan(timestamp=moment).to_table()
    for version in moments:
        with pytest.raises(lake.VersionNotFoundError, match="was expired: versions 5 to 5"):
            dataset.scan(version=version).to_table()


def test_a_commit_that_began_a_schema_stays(append: Callable[..., lake.Dataset]) -> None:
    """A stream that reads on after it, whatever was lost, must end there."""
    dataset = append(1, 2)
    dataset.add_column("note", pa.string())  # version 3
    append(4)
    dataset.refresh()
    assert expire_all(dataset) == 2
    assert versions(dataset) == [1, 3, 5]
    assert [record.operation for record in dataset.history()][1] == "schema change"


class TestReadersThatComeBack:
    @pytest.fixture
    def dataset(self, append: Callable[..., lake.Dataset]) -> lake.Dataset:
        """Versions 2 to 5 are forgotten, 6 is a compaction, 7 and 8 appended."""
        expire_all(append(1, 2, 3, 4, 5))
        return append(7, 8)

    @pytest.mark.parametrize("since", [0, 1, 3])
    def test_what_they_missed_is_an_error(self, dataset: lake.Dataset, since: int) -> None:
        with pytest.raises(lake.StreamDataLossError) as caught:
            list(dataset.read_changes(since))
        assert caught.value.version == since + 1
        assert caught.value.oldest == 6

    def test_they_go_on_where_nothing_is_missed(self, dataset: lake.Dataset) -> None:
        for since in (5, 6):
            found = [(one, rows["id"].to_pylist()) for one, rows in dataset.read_changes(since)]
            assert found == [(7, [7]), (8, [8])]

    @pytest.mark.parametrize("version", [1, 2, 4, 6])
    @pytest.mark.parametrize("end", [4, 6, 9])
    def test_they_go_on_with_what_is_left_if_told_to(
        self, dataset: lake.Dataset, catalog: lake.Catalog, version: int, end: int
    ) -> None:
        address = Address(dataset.uri, catalog)
        with catalog.read() as reader:
            snapshot = address.snapshot(catalog, reader, None)
            files = AppendedFiles(
                reader,
                snapshot,
                snapshot.schema_version,
                None,
                PredicateSet.of(None),
                Rules(fail_on_data_loss=False),
            )
            assert files.advance(Position(version), Limits(), 8) == (Position(9), True)
            if version < 6:
                assert files.advance(Position(version), Limits(), 4)[0] == Position(5)
            plan = files.plan(Position(version), Position(max(version, end)), ["id"], dataset.uri)
        rows = sum(task.row_count for task in plan.tasks)
        assert rows == (2 if end == 9 else 0)

    def test_the_dataset_is_known_by_its_first_commit(
        self, dataset: lake.Dataset, catalog: lake.Catalog
    ) -> None:
        with catalog.read() as reader:
            record = reader.dataset(Address(dataset.uri, catalog).key)
            assert record is not None
            assert identity_of(reader, record.id) == dataset.history()[-1].write_id
