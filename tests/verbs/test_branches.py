"""Branches: what is written to one, the dataset shows only after a fast-forward."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uuid6

import lakehouse_source as lake
from lakehouse_source.catalog import CatalogTransaction, base
from lakehouse_source.write.metadata import refs
from tests.verbs.conftest import EVERY_KIND, catalog_of
from tests.verbs.test_maintenance import local_clock_off_by

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

NOW = {
    "retention_seconds": 0,
    "abandoned_after_seconds": 0,
    "allow_short_retention": True,
}


catalog = catalog_of(*EVERY_KIND)


@pytest.fixture
def dataset(catalog: lake.Catalog, tmp_path: Path) -> lake.Dataset:
    """Rows 0 to 9 in two files, and a deletion vector over one of them."""
    uri = tmp_path / "things"
    properties: dict[str, Any] = {"sort_by": "id"}
    lake.write_dataset({"id": list(range(5)), "k": ["a"] * 5}, uri, catalog=catalog, **properties)
    lake.write_dataset({"id": list(range(5, 10)), "k": ["b"] * 5}, uri, catalog=catalog)
    opened = lake.open_dataset(uri, catalog=catalog)
    opened.delete("id = 2")
    return opened


def ids(dataset: lake.Dataset, where: str | None = None, **scan: Any) -> list[int]:
    found = dataset.scan(where, columns=["id"], **scan).to_table()
    return sorted(found["id"].to_pylist())


def add(catalog: lake.Catalog, dataset: lake.Dataset, *new: int) -> lake.WriteResult:
    data = {"id": list(new), "k": ["new"] * len(new)}
    return lake.write_dataset(data, dataset.uri, catalog=catalog)


def identities(dataset: lake.Dataset, version: int | None = None) -> list[dict[str, Any]]:
    schema = dataset.scan(version=version).to_table().schema
    columns = [*schema.names, "_row_id", "_commit_version"]
    found = dataset.scan(columns=columns, version=version).to_table().to_pylist()
    return sorted(found, key=lambda row: row["_row_id"])


def test_a_branch_begins_as_the_newest_version_and_goes_its_own_way(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")
    assert branch.uri == f"{dataset.uri}#branch=audit"
    assert (branch.name, branch.version) == (dataset.name, 3)
    assert identities(branch) == identities(dataset)
    assert ids(branch, "id BETWEEN 1 AND 5") == [1, 3, 4, 5]
    assert add(catalog, branch, 100).version == 4
    branch.refresh()
    branch.delete("id IN (3, 100)")
    branch.update({"k": "'x'"}, "id = 9")
    assert add(catalog, dataset, 200).version == 4
    dataset.refresh()
    assert ids(branch) == [0, 1, 4, 5, 6, 7, 8, 9]
    assert ids(dataset) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 200]
    assert ids(branch, version=4) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 100]
    assert branch.scan("k = 'x'").to_table()["id"].to_pylist() == [9]
    assert dataset.branches() == {"audit": 6}
    assert dataset.branch("audit").version == 6
    assert [one.operation for one in branch.history()] == [
        *("update", "delete", "append"),
        *(one.operation for one in dataset.history(4)[1:]),
    ]
    assert branch.verify(checksums=True).ok
    assert dataset.verify(checksums=True).ok
    assert dataset.inspect.refs().to_pylist() == [
        {"name": "main", "type": "BRANCH", "version": 4},
        {"name": "audit", "type": "BRANCH", "version": 6},
    ]


def test_a_branch_of_an_older_version(catalog: lake.Catalog, dataset: lake.Dataset) -> None:
    branch = dataset.branch("before", version=2)
    assert ids(branch) == list(range(10))
    assert identities(branch) == identities(dataset, 2)
    dataset.drop_column("k")
    with pytest.raises(lake.InvalidOptionError, match="Make a branch of version 4"):
        dataset.branch("other", version=2)
    for version in (0, 5):
        with pytest.raises(lake.VersionNotFoundError):
            dataset.branch("other", version=version)
    assert list(dataset.branches()) == ["before"]


def test_a_fast_forward_commits_each_version_of_the_branch(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")
    lake.write_dataset(
        {"id": [20, 21], "k": ["c", "d"]},
        branch.uri,
        catalog=catalog,
        commit_metadata={"who": "me"},
        txn_app_id="app",
        txn_version=7,
    )
    branch.refresh()
    branch.delete("id IN (3, 4, 20)")
    branch.delete("id = 5")
    branch.restore(4)
    branch.rename_column("k", "kind")
    branch.add_column("size", pa.int32(), default=5)
    branch.promote_column("size", pa.int64())
    branch.set_properties(index_columns=["size"], compression="snappy")
    lake.write_dataset({"id": [30], "kind": ["e"], "size": [2**40]}, branch.uri, catalog=catalog)
    branch.refresh()
    branch.update({"size": "size + 1"}, "id < 2")
    branch.compact()
    branch.refresh()
    assert ids(dataset.refresh()) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    result = dataset.fast_forward("audit")
    assert result.version == dataset.version == branch.version
    assert dataset.schema == branch.schema
    assert dataset.properties == branch.properties
    for version in range(3, branch.version + 1):
        assert identities(dataset, version) == identities(branch, version)
    assert ids(dataset, "size > 5") == [0, 1, 30]
    assert ids(dataset, "size > 5 AND id = 30") == [30]
    assert ids(dataset, "kind = 'a'") == [0, 1, 3, 4]
    assert ids(dataset, "k = 'b'", version=2) == [5, 6, 7, 8, 9]
    mine, theirs = dataset.history(), branch.history()
    for ours, other in zip(mine, theirs):
        assert ours.operation == other.operation
        assert (ours.metadata, ours.summary) == (other.metadata, other.summary)
    assert dataset.verify(checksums=True).ok
    # The identities of rows go on after those of the branch.
    lake.write_dataset({"id": [40], "kind": ["f"], "size": [1]}, dataset.uri, catalog=catalog)
    found = identities(dataset.refresh())
    assert len({row["_row_id"] for row in found}) == len(found)
    again = lake.write_dataset(
        {"id": [20], "kind": ["c"]},
        dataset.uri,
        catalog=catalog,
        txn_app_id="app",
        txn_version=7,
    )
    assert again.version == 4


def test_columns_that_a_branch_puts_into_the_index_find_the_files_of_the_dataset(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    uri = tmp_path / "things"
    for start in (0, 10):
        data = {"id": list(range(start, start + 10)), "k": ["a"] * 10}
        lake.write_dataset(data, uri, catalog=catalog, index_columns=None if start else ["k"])
    dataset = lake.open_dataset(uri, catalog=catalog)
    branch = dataset.branch("audit")
    branch.set_properties(index_columns=["id"])
    branch.promote_column("id", pa.decimal128(19, 0))
    add(catalog, branch, 50)
    dataset.fast_forward("audit")
    for number in (7, 15, 50):
        assert ids(dataset, f"id = {number}") == [number]
    assert ids(dataset, "k = 'a' AND id < 3") == [0, 1, 2]
    assert ids(dataset, "id = 7", version=2) == [7]


def test_a_branch_that_was_taken_over_goes_on(catalog: lake.Catalog, dataset: lake.Dataset) -> None:
    branch = dataset.branch("audit")
    for number in range(3):
        add(catalog, branch, 50 + number)
        assert dataset.fast_forward("audit").version == 4 + number
    assert dataset.fast_forward("audit").version == 6
    assert ids(dataset) == ids(branch.refresh()) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 50, 51, 52]


def test_a_dataset_that_moved_on_takes_over_nothing(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")
    add(catalog, branch, 50)
    add(catalog, dataset, 60)
    with pytest.raises(lake.CommitConflictError, match="branch 'audit' begins at version 3"):
        dataset.fast_forward("audit")
    assert ids(dataset.refresh()) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 60]
    assert dataset.version == 4


def test_a_branch_whose_versions_expired_is_not_taken_over(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")
    add(catalog, branch, 50)
    branch.refresh().expire_versions(keep_last=1)
    with pytest.raises(lake.VersionNotFoundError, match="expired"):
        dataset.fast_forward("audit")


def test_streams_of_the_dataset_see_what_it_took_over(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")
    add(catalog, branch, 50)
    add(catalog, branch, 51, 52)
    assert next(iter(branch.refresh().read_changes(4)))[0] == 5
    dataset.fast_forward("audit")
    seen = [(version, rows["id"].to_pylist()) for version, rows in dataset.read_changes(3)]
    assert seen == [(4, [50]), (5, [51, 52])]


def test_a_branch_does_not_skip_what_was_committed_before_it(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    for number in range(3):
        lake.write_dataset({"id": [number]}, tmp_path / "t", catalog=catalog)
    branch = lake.open_dataset(tmp_path / "t", catalog=catalog).branch("audit")
    lake.write_dataset({"id": [3]}, branch.uri, catalog=catalog)
    branch.refresh()
    seen = [(version, rows["id"].to_pylist()) for version, rows in branch.read_changes(2)]
    assert seen == [(3, [2]), (4, [3])]
    for since in (0, 1):
        with pytest.raises(lake.StreamDataLossError):
            list(branch.read_changes(since))


@pytest.mark.long
def test_what_an_application_committed_before_the_branch_is_not_committed_again(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    def write(uri: str, number: int) -> lake.WriteResult:
        data = {"id": [100 + number], "k": ["q"]}
        return lake.write_dataset(data, uri, catalog=catalog, txn_app_id="q", txn_version=number)

    for number in range(3):
        write(dataset.uri, number)
    branch = dataset.branch("audit")
    for number in range(1, 5):
        write(branch.uri, number)
    dataset.fast_forward("audit")
    assert ids(dataset, "k = 'q'") == [100, 101, 102, 103, 104]
    assert write(dataset.uri, 4).version == dataset.version


CHANGES: dict[str, Any] = {
    "promoted": lambda branch: branch.promote_column("a", pa.float64()),
    "promoted and back": lambda branch: (
        branch.promote_column("a", pa.float64()),
        branch.restore(branch.version - 1),
    ),
    "promoted and dropped": lambda branch: (
        branch.promote_column("a", pa.float64()),
        branch.drop_column("a"),
    ),
    "indexed and dropped": lambda branch: (
        branch.set_properties(index_columns=["id", "a"]),
        branch.drop_column("a"),
    ),
    "renamed": lambda branch: branch.rename_column("a", "b"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("index", [None, ["id"]])
def test_every_version_is_searched_right_after_a_fast_forward(
    catalog: lake.Catalog, tmp_path: Path, change: str, index: list[str] | None
) -> None:
    """The oracle is a scan without a condition."""
    values = (1, 50, 100)
    for number, value in enumerate(values):
        row = {"id": pa.array([number]), "a": pa.array([value], pa.int32())}
        layout: dict[str, Any] = {} if number else {"index_columns": index}
        lake.write_dataset(pa.table(row), tmp_path / "t", catalog=catalog, **layout)
    dataset = lake.open_dataset(tmp_path / "t", catalog=catalog)
    branch = dataset.branch("audit")
    CHANGES[change](branch)
    dataset.fast_forward("audit")
    for version in range(3, dataset.version + 1):
        rows = dataset.scan(version=version).to_table()
        for name in rows.column_names:
            for value in rows[name].to_pylist():
                scan = dataset.scan(f"{name} = {value}", version=version)
                expected = rows[name].to_pylist().count(value)
                assert scan.count_rows() == scan.to_table().num_rows == expected


def test_a_write_to_a_branch_that_was_made_anew_fails(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")

    def rows() -> Iterator[pa.RecordBatch]:
        dataset.drop_branch("audit")
        dataset.branch("audit")
        yield pa.record_batch({"id": [70], "k": ["x"]})

    schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
    with pytest.raises(lake.CommitConflictError, match="removed from the catalog"):
        lake.write_dataset(rows(), branch.uri, catalog=catalog, schema=schema)
    assert ids(branch.refresh()) == ids(dataset)


def test_a_drop_that_was_interrupted_is_finished(
    catalog: lake.Catalog, dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = dataset.branch("audit")
    add(catalog, branch, 50)

    def fail(*_: Any) -> None:
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(CatalogTransaction, "forget_dataset", fail)
        with pytest.raises(RuntimeError, match="interrupted"):
            dataset.drop_branch("audit")
    assert dataset.branches() == {}
    assert ids(dataset.branch("audit")) == ids(dataset)
    assert dataset.vacuum(**NOW).files_removed == 1


def test_paths_of_files_do_not_name_branches(
    catalog: lake.Catalog, dataset: lake.Dataset, tmp_path: Path
) -> None:
    folder = Path(dataset.uri.removeprefix("file://"))
    pq.write_table(pa.table({"id": [1], "k": ["x"]}), folder / "a#branch=1")
    with pytest.raises(lake.InvalidOptionError, match="reads like a branch"):
        dataset.add_files(folder / "a#branch=1")
    with pytest.raises(lake.InvalidOptionError, match="reads like a branch"):
        lake.open_catalog(catalog, warehouse=tmp_path / "w#branch=1")
    with lake.transaction(catalog) as tx:
        tx.write({"id": [1], "k": ["x"]}, dataset.uri)
        tx.write({"id": [1], "k": ["x"]}, dataset.branch("audit").uri)
    assert dataset.refresh().version == 4
    assert dataset.branches() == {"audit": 4}


def test_vacuum_keeps_the_files_of_branches_and_deletes_those_of_dropped_ones(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    kept, dropped = dataset.branch("kept"), dataset.branch("dropped")
    add(catalog, kept, 50)
    add(catalog, dropped, 60)
    kept.refresh().delete("id = 6")
    lake.write_dataset({"id": [1], "k": ["x"]}, dataset.uri, catalog=catalog, mode="overwrite")
    dataset.refresh().expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    assert ids(kept.refresh()) == [0, 1, 3, 4, 5, 7, 8, 9, 50]
    assert ids(dropped.refresh()) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 60]
    assert ids(kept, version=3) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    dataset.drop_branch("dropped")
    assert dataset.vacuum(**NOW).files_removed == 1
    assert ids(kept) == [0, 1, 3, 4, 5, 7, 8, 9, 50]
    with pytest.raises(lake.DatasetNotFoundError, match="Make the branch first"):
        dropped.refresh()
    kept.expire_versions(keep_last=1)
    dataset.vacuum(**NOW)
    assert ids(kept) == [0, 1, 3, 4, 5, 7, 8, 9, 50]
    assert kept.verify(checksums=True).ok
    dataset.drop_branch("kept")
    dataset.vacuum(**NOW)
    assert ids(dataset) == [1]
    folder = Path(dataset.uri.removeprefix("file://"))
    assert len(list(folder.glob("**/*.parquet"))) == 1
    assert not list(folder.glob("**/*.puffin"))


DAY = 24 * 3600


def test_the_files_of_a_dropped_branch_stay_for_the_retention(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    """They were deleted at once where they were old, under readers that had planned before."""
    branch = dataset.branch("audit")
    with local_clock_off_by(-30 * DAY):
        uuid6._last_v7_timestamp = None  # the files have old names
        add(catalog, branch, 50)
        branch.refresh().delete("id = 6")
    branch.refresh()
    expected = ids(branch)
    batches = branch.scan().to_batches()
    read = next(batches)["id"].to_pylist()
    dataset.drop_branch("audit")
    for _ in range(2):
        report = dataset.vacuum()
        assert report.files_removed == 0
        left = {one.what: one.files for one in report.left}
        assert left["younger than the retention"] == 2
        dataset.branch("audit")  # another one, of the same name
    for batch in batches:
        read += batch["id"].to_pylist()
    assert sorted(read) == expected
    report = dataset.vacuum(**NOW)
    assert (report.files_removed, report.rows_forgotten) == (2, 2)
    assert dataset.vacuum(**NOW).files_removed == 0
    assert dataset.verify(checksums=True).ok
    assert ids(dataset) == ids(dataset.branch("audit")) == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def test_the_retention_of_a_file_that_a_branch_has_begins_when_the_branch_is_dropped(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")
    lake.write_dataset({"id": [1], "k": ["x"]}, dataset.uri, catalog=catalog, mode="overwrite")
    dataset.refresh().expire_versions(keep_last=1)
    with catalog.write() as tx:  # a month ago
        for table in ("files", "deletion_vectors"):
            tx._session.execute(f"UPDATE {table} SET expired_at = expired_at - {30 * DAY}000000")
    before = ids(branch.refresh())
    dataset.drop_branch("audit")
    assert dataset.vacuum().files_removed == 0
    assert before == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert dataset.vacuum(**NOW).files_removed == 3
    assert ids(dataset) == [1]


def test_a_dropped_branch_leaves_no_file_whatever_its_partition_columns_were(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    """Nothing told any more that such a folder is one of the dataset."""
    lake.write_dataset({"id": [1], "k": ["x"]}, tmp_path / "t", catalog=catalog, partition_by="k")
    dataset = lake.open_dataset(tmp_path / "t", catalog=catalog)
    branch = dataset.branch("audit")
    branch.rename_column("k", "kind")
    lake.write_dataset({"id": [2], "kind": ["x"]}, branch.uri, catalog=catalog)
    assert list((tmp_path / "t").glob("kind=x/*.parquet"))
    dataset.drop_branch("audit")
    assert dataset.vacuum(**NOW).files_removed == 1
    assert not list((tmp_path / "t").glob("kind=x/*.parquet"))
    assert ids(dataset) == [1]


def test_vacuum_leaves_the_open_writes_of_a_branch_alone(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    branch = dataset.branch("audit")

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [70], "k": ["x"]})
        options = {**NOW, "abandoned_after_seconds": 7200}
        assert dataset.vacuum(**options).files_removed == 0
        yield pa.record_batch({"id": [71], "k": ["x"]})

    schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
    lake.write_dataset(rows(), branch.uri, catalog=catalog, schema=schema, target_file_size_bytes=1)
    assert ids(branch.refresh(), "id >= 70") == [70, 71]


def test_a_write_to_a_dropped_branch_fails(catalog: lake.Catalog, dataset: lake.Dataset) -> None:
    branch = dataset.branch("audit")

    def rows() -> Iterator[pa.RecordBatch]:
        dataset.drop_branch("audit")
        yield pa.record_batch({"id": [70], "k": ["x"]})

    schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
    with pytest.raises(lake.CommitConflictError, match="removed from the catalog"):
        lake.write_dataset(rows(), branch.uri, catalog=catalog, schema=schema)
    assert dataset.branches() == {}


def test_names_and_addresses_that_are_refused(
    catalog: lake.Catalog, dataset: lake.Dataset, tmp_path: Path
) -> None:
    for name in ("", "a/b", "-a", "a b", "main", "MAIN", "ä", "a#b", "x" * 129):
        with pytest.raises(lake.InvalidOptionError, match="branch"):
            dataset.branch(name)
    branch = dataset.branch("audit")
    with pytest.raises(lake.InvalidOptionError, match="exists already"):
        dataset.branch("audit", version=3)
    with pytest.raises(lake.InvalidOptionError, match="is one"):
        branch.branch("other")
    with pytest.raises(lake.InvalidOptionError, match="Vacuum the dataset"):
        branch.vacuum()
    for refused in (dataset.fast_forward, dataset.drop_branch):
        with pytest.raises(lake.VersionNotFoundError, match="branch 'none'"):
            refused("none")
    for uri in (f"{dataset.uri}#branch=none", f"{tmp_path}/nothing#branch=audit"):
        with pytest.raises(lake.DatasetNotFoundError):
            lake.open_dataset(uri, catalog=catalog)
        with pytest.raises(lake.DatasetNotFoundError, match="Make the branch first"):
            lake.write_dataset({"id": [1]}, uri, catalog=catalog)
    assert not (tmp_path / "nothing").exists()


def test_a_branch_is_found_by_every_spelling_of_its_folder(tmp_path: Path) -> None:
    uri = tmp_path / "things"
    lake.write_dataset({"id": [1], "k": ["a"]}, uri)
    lake.open_dataset(uri).branch("audit")
    (tmp_path / "link").symlink_to(uri)
    lake.write_dataset({"id": [2], "k": ["b"]}, f"{tmp_path}/link#branch=audit")
    uri.rename(tmp_path / "moved")
    moved = lake.open_dataset(tmp_path / "moved")
    assert ids(moved) == [1]
    assert ids(lake.open_dataset(f"{moved.uri}#branch=audit")) == [1, 2]
    assert moved.fast_forward("audit").version == 2
    with lake.open_catalog(f"sqlite://{tmp_path}/moved/_plake/catalog.db") as catalog:
        assert lake.vacuum(catalog).failed == ()


def test_a_dataset_is_dropped_with_its_branches(catalog: lake.Catalog, tmp_path: Path) -> None:
    named = lake.open_catalog(catalog, warehouse=tmp_path / "warehouse")
    made = named.create_dataset("t", pa.schema([("id", pa.int64()), ("k", pa.string())]))
    branch = made.branch("audit")
    add(catalog, branch, 1)
    branch.refresh().delete("id = 1")
    add(catalog, made, 2)
    assert [one.name for one in named.datasets()] == ["t"]
    named.drop("t", purge=True)
    assert not list((tmp_path / "warehouse").glob("**/*.parquet"))
    for uri in (made.uri, branch.uri):
        with pytest.raises(lake.DatasetNotFoundError):
            lake.open_dataset(uri, catalog=catalog)
    again = named.create_dataset("t", pa.schema([("id", pa.int64())]))
    assert again.branches() == {}


def test_the_files_of_a_branch_with_other_partition_columns_are_deleted_with_its_dataset(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    """They stayed: nobody looked at the columns of a branch that was dropped."""
    named = lake.open_catalog(catalog, warehouse=tmp_path / "warehouse")
    schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
    branch = named.create_dataset("t", schema, partition_by="k").branch("audit")
    branch.rename_column("k", "kind")
    lake.write_dataset({"id": [1], "kind": ["x"]}, branch.uri, catalog=catalog)
    assert list((tmp_path / "warehouse").glob("**/kind=x/*.parquet"))
    named.drop("t", purge=True)
    assert not list((tmp_path / "warehouse").glob("**/*.parquet"))


def test_a_fast_forward_that_fails_before_its_commit_changes_nothing(
    catalog: lake.Catalog, dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = dataset.branch("audit")
    add(catalog, branch, 50)
    branch.refresh().add_column("size", pa.int32())

    def fail(point: str) -> None:
        raise RuntimeError(point)

    with monkeypatch.context() as patched:
        patched.setattr(base, "reach", fail)
        for change in (lambda: dataset.fast_forward("audit"), lambda: dataset.branch("other")):
            with pytest.raises(RuntimeError, match="before COMMIT"):
                change()
    dataset.refresh()
    assert (dataset.version, list(dataset.branches())) == (3, ["audit"])
    assert dataset.verify().ok
    assert dataset.fast_forward("audit").version == 5


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 30))]
)
def test_random_programs_on_two_branches(seed: int, tmp_path: Path) -> None:
    """The oracle is a list of rows for each branch, changed by hand."""
    draw = random.Random(seed)
    uri = tmp_path / "things"
    lake.write_dataset({"id": list(range(20)), "k": ["a"] * 20}, uri)
    main = lake.open_dataset(uri)
    rows: dict[str, dict[int, str]] = {"": dict.fromkeys(range(20), "a")}
    datasets = {"": main}
    next_id = 100
    for _ in range(40):
        name = draw.choice(list(datasets))
        here, mine = datasets[name].refresh(), rows[name]
        step = draw.choice(["add", "delete", "update", "branch", "forward", "vacuum", "drop"])
        low = draw.randrange(0, 30)
        chosen = [one for one in mine if low <= one < low + 6 or one % 7 == low % 7]
        where = f"id BETWEEN {low} AND {low + 5} OR id % 7 = {low % 7}"
        if step == "add":
            lake.write_dataset({"id": [next_id], "k": ["n"]}, here.uri)
            mine[next_id] = "n"
            next_id += 1
        elif step == "delete":
            here.delete(where)
            for one in chosen:
                del mine[one]
        elif step == "update":
            here.update({"k": f"'{low}'"}, where)
            mine.update(dict.fromkeys(chosen, str(low)))
        elif step == "branch" and len(datasets) < 4:
            new = f"b{next_id}"
            next_id += 1
            datasets[new], rows[new] = main.branch(new), dict(rows[""])
        elif step == "forward" and name:
            try:
                main.fast_forward(name)
            except (lake.CommitConflictError, lake.VersionNotFoundError):
                continue  # the dataset moved on, or versions of the branch were expired
            rows[""] = dict(mine)
        elif step == "vacuum":
            here.expire_versions(keep_last=draw.randint(1, 3))
            main.vacuum(**NOW)
        elif step == "drop" and name and draw.random() < 0.3:
            main.drop_branch(name)
            del datasets[name], rows[name]
        for one, opened in datasets.items():
            found = opened.refresh().scan().to_table().to_pylist()
            assert {row["id"]: row["k"] for row in found} == rows[one]
            assert len(found) == opened.scan().count_rows() == len(rows[one])
    assert all(opened.verify(checksums=True).ok for opened in datasets.values())


TRANSACTION = "transaction-" + str(uuid6.uuid7())


def branch_of_transaction(catalog: lake.Catalog, dataset: lake.Dataset) -> lake.Dataset:
    refs.make_branch(catalog, dataset._address, TRANSACTION, None, of_transaction=True)
    return dataset.branch(TRANSACTION)


def test_branches_of_one_name_become_visible_together_or_not_at_all(
    catalog: lake.Catalog, dataset: lake.Dataset, tmp_path: Path
) -> None:
    lake.write_dataset({"id": [0], "k": ["c"]}, tmp_path / "others", catalog=catalog)
    other = lake.open_dataset(tmp_path / "others", catalog=catalog)
    both = [dataset, other]

    def begin() -> list[lake.Dataset]:
        return [branch_of_transaction(catalog, one) for one in both]

    def end(*, serializable: bool = False) -> None:
        addresses = [one._address for one in both]
        refs.commit_branches(catalog, addresses, TRANSACTION, serializable=serializable)

    mine, theirs = begin()
    mine.delete("id = 3")
    add(catalog, mine, 20)
    add(catalog, theirs, 21)
    expected = ids(mine.refresh()), ids(theirs.refresh())
    end()
    assert tuple(ids(one.refresh()) for one in both) == expected
    assert [one.branches() for one in both] == [{}, {}]
    changed = dataset.changes(4).to_table()
    assert changed.select(["id", "_change_type", "_commit_version"]).to_pylist() == [
        {"id": 3, "_change_type": "delete", "_commit_version": 4},
        {"id": 20, "_change_type": "insert", "_commit_version": 5},
    ]
    # One that was only read may have changed, unless the reads are to be as they were.
    mine, theirs = begin()
    add(catalog, theirs, 22)
    add(catalog, dataset, 23)
    with pytest.raises(lake.CommitConflictError, match="things"):
        end(serializable=True)
    end()
    assert ids(dataset.refresh()) == sorted([*expected[0], 23])
    assert ids(other.refresh()) == [0, 21, 22]
    # The second one fails: the first one shows nothing, and both branches are still there.
    for first, second in (both, both[::-1]):
        mine, theirs = begin()
        add(catalog, mine, 30)
        add(catalog, theirs, 31)
        add(catalog, second, 32)
        with pytest.raises(lake.CommitConflictError, match=f"{Path(second.uri).name}"):
            end()
        assert not {30, 31} & {*ids(first.refresh()), *ids(second.refresh())}
        for one in both:
            one.drop_branch(TRANSACTION)


def test_a_transaction_whose_process_died_is_dropped_by_vacuum(
    catalog: lake.Catalog, dataset: lake.Dataset
) -> None:
    mine = {"transaction-of-mine", "transaction-customer-2026-7abc-abcd-abcdefghijkl", "audit"}
    for branch in (branch_of_transaction(catalog, dataset), *map(dataset.branch, mine)):
        add(catalog, branch, 20)
    report = dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert len(dataset.branches()) == 4, "it began less than a day ago"
    report = dataset.vacuum(**NOW)
    assert set(dataset.branches()) == mine
    assert report.files_removed == 1  # the one that only this branch had
    assert ids(dataset.refresh()) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    for name in dataset.branches():
        assert ids(dataset.branch(name)) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 20]


def test_a_user_does_not_give_a_branch_the_name_that_vacuum_drops(dataset: lake.Dataset) -> None:
    with pytest.raises(lake.InvalidOptionError, match="Choose another name"):
        dataset.branch(TRANSACTION)
    assert dataset.branches() == {}
