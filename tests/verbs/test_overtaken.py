"""Another commit takes the lock after a commit has recorded its files and before its own lock.

This can happen on PostgreSQL only. The other catalogs have a single lock for everything,
which a commit holds from its first statement on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.model import FileMetadata
from lakehouse_source.write.commit.commit import commit, commit_all
from lakehouse_source.write.commit.options import StagedWrite
from tests import processes
from tests.postgres_server import PostgresServer
from tests.verbs import writers
from tests.verbs.test_commit_protocol import numbers, stage, values

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.new_catalog()


@pytest.fixture
def catalog(url: str) -> Iterator[lake.Catalog]:
    with lake.open_catalog(url) as opened:
        yield opened


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "things")


def overtaken_by(act: Callable[[], object]) -> pytest.MonkeyPatch:
    """Run `act` just before the next commit locks its dataset."""
    patch = pytest.MonkeyPatch()
    lock = CatalogTransaction.lock_for

    def locking(self: CatalogTransaction, *arguments: Any) -> Any:
        patch.undo()
        # Send the buffered statements, so that `act` meets the recorded rows in the database.
        self._session.flush()
        act()
        return lock(self, *arguments)

    patch.setattr(CatalogTransaction, "lock_for", locking)
    return patch


def commit_overtaken(
    catalog: lake.Catalog,
    mine: tuple[StagedWrite, list[FileMetadata]],
    theirs: Callable[[], object],
) -> lake.WriteResult:
    patch = overtaken_by(theirs)
    try:
        return commit(catalog, *mine)
    finally:
        patch.undo()


def check(catalog: lake.Catalog, uri: str) -> None:
    """Check what must hold of the catalog's rows, whatever was recorded and deleted again."""
    dataset = lake.open_dataset(uri, catalog=catalog)
    live = dataset.files()
    summary = dataset.history()[0].summary
    assert summary["live_files"] == len(live)
    assert summary["live_rows"] == sum(file.row_count for file in live)
    assert len({file.path for file in live}) == len(live)
    assert dataset.verify().ok
    with catalog.read() as reader:
        ask = reader._session.query
        ((files,),) = ask("SELECT count(*) FROM files")
        assert files == sum(record.summary["files_added"] for record in dataset.history())
        assert ask("SELECT count(DISTINCT file_id) FROM row_groups") == [(files,)]
        assert ask("SELECT count(*) FROM files WHERE version > ?", (dataset.version,)) == [(0,)]
        assert ask("SELECT count(*) FROM pending_writes WHERE state = 'pending'") == [(0,)]
    # The search index finds the same rows as reading everything.
    everything = values(catalog, uri)
    for n in sorted({n for n in everything if n is not None}):
        assert values(catalog, uri, predicates=f"n = {n}") == [m for m in everything if m == n]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 10, 20]),
        ({"mode": "overwrite"}, [5, 6]),
        ({"mode": "overwrite", "overwrite_where": "n BETWEEN 2 AND 7"}, [1, 5, 6, 10, 20]),
    ],
    ids=["append", "overwrite", "overwrite where"],
)
def test_files_move_to_the_version_that_is_next_by_then(
    catalog: lake.Catalog, uri: str, mode: dict[str, Any], expected: list[int]
) -> None:
    lake.write_dataset(numbers(1, 2, 3, 4), uri, catalog=catalog)
    mine = stage(catalog, uri, numbers(5, 6), **mode)

    def theirs() -> None:
        for n in (10, 20):
            lake.write_dataset(numbers(n), uri, catalog=catalog)

    assert commit_overtaken(catalog, mine, theirs).version == 4
    assert values(catalog, uri) == expected
    assert values(catalog, uri, version=3) == [1, 2, 3, 4, 10, 20]
    assert values(catalog, uri, version=2) == [1, 2, 3, 4, 10]
    check(catalog, uri)


def test_dynamic_partitions_are_looked_for_in_what_came_first(
    catalog: lake.Catalog, uri: str
) -> None:
    def rows(k: str, n: int) -> pa.Table:
        return pa.table({"k": [k], "n": [n]})

    dynamic = {"mode": "overwrite", "partition_overwrite_mode": "dynamic"}
    lake.write_dataset(rows("a", 1), uri, catalog=catalog, partition_by="k")
    mine = stage(catalog, uri, rows("a", 2), mode="overwrite", dynamic_partitions=True)
    other = lambda: lake.write_dataset(rows("b", 3), uri, catalog=catalog, **dynamic)  # noqa: E731
    assert commit_overtaken(catalog, mine, other).version == 3
    assert values(catalog, uri) == [2, 3]
    again = stage(catalog, uri, rows("a", 2), mode="overwrite", dynamic_partitions=True)
    append = lambda: lake.write_dataset(rows("b", 4), uri, catalog=catalog)  # noqa: E731
    assert commit_overtaken(catalog, again, append).version == 5
    assert values(catalog, uri) == [2, 3, 4]
    third = stage(catalog, uri, rows("a", 5), mode="overwrite", dynamic_partitions=True)
    mine_too = lambda: lake.write_dataset(rows("a", 6), uri, catalog=catalog)  # noqa: E731
    with pytest.raises(lake.CommitConflictError, match="may be replaced"):
        commit_overtaken(catalog, third, mine_too)
    assert values(catalog, uri) == [2, 3, 4, 6]


def rows_of(k: str, *values: int) -> pa.Table:
    return pa.table({"k": [k] * len(values), "n": pa.array(values, pa.int64())})


# What another writer does to partition `k`.
OTHERS: dict[str, Callable[[lake.Dataset, str], Any]] = {
    "overwrite of partitions": lambda d, k: lake.write_dataset(
        rows_of(k, 7), d.uri, mode="overwrite", partition_overwrite_mode="dynamic",
        catalog=d._address.catalog,
    ),
    "overwrite where": lambda d, k: lake.write_dataset(
        rows_of(k, 7), d.uri, mode="overwrite", overwrite_where=f"k = '{k}'",
        catalog=d._address.catalog,
    ),
    "delete": lambda d, k: d.delete(f"k = '{k}' AND n < 2"),
    "update": lambda d, k: d.update({"n": "n + 7"}, f"k = '{k}' AND n = 1"),
    "compaction": lambda d, k: d.compact(where=f"k = '{k}'"),
}  # fmt: skip


@pytest.mark.parametrize("place", ["same", "other"])
@pytest.mark.parametrize("theirs", OTHERS)
@pytest.mark.parametrize("mine", ["dynamic", "where"])
@pytest.mark.sampled(2)
def test_an_overwrite_of_a_part_conflicts_only_where_others_changed_the_part(
    catalog: lake.Catalog, uri: str, mine: str, theirs: str, place: str
) -> None:
    for k, n in (("a", 1), ("b", 1), ("a", 2), ("b", 2)):
        lake.write_dataset(rows_of(k, n), uri, catalog=catalog, partition_by="k")
    options = {"dynamic": {"dynamic_partitions": True}, "where": {"overwrite_where": "k = 'a'"}}
    staged = stage(catalog, uri, rows_of("a", 9), mode="overwrite", **options[mine])
    dataset = lake.open_dataset(uri, catalog=catalog)
    done: list[list[Any]] = []

    def others() -> None:
        OTHERS[theirs](dataset, "a" if place == "same" else "b")
        done.append(values(catalog, uri))

    # Which rows a compaction moves does not matter to a write that replaces them all unseen.
    if place == "other" or (mine, theirs) == ("dynamic", "compaction"):
        assert commit_overtaken(catalog, staged, others).version == 6
        left = lake.read_dataset(uri, catalog=catalog)
        kept = left.filter(pc.equal(left["k"], "b"))["n"].to_pylist()
        assert values(catalog, uri) == sorted([9, *kept])
        changed = {"delete": [2], "update": [2, 8], "compaction": [1, 2]}.get(theirs, [7])
        assert sorted(kept) == (changed if place == "other" else [1, 2])
    else:
        with pytest.raises(lake.CommitConflictError, match=r"replace|rewrites it"):
            commit_overtaken(catalog, staged, others)
        assert values(catalog, uri) == done[0]
    check(catalog, uri)


def test_an_overwrite_of_partitions_from_own_rows_conflicts_with_a_change_of_others(
    catalog: lake.Catalog, uri: str
) -> None:
    for k in "ab":
        lake.write_dataset(rows_of(k, 1), uri, catalog=catalog, partition_by="k")
    staged = stage(
        catalog,
        uri,
        rows_of("a", 9),
        mode="overwrite",
        dynamic_partitions=True,
        reads_own_rows=True,
    )
    dataset = lake.open_dataset(uri, catalog=catalog)
    with pytest.raises(lake.CommitConflictError, match="computed from those before it"):
        commit_overtaken(catalog, staged, lambda: OTHERS["delete"](dataset, "b"))


def test_an_overwrite_where_collides_with_rows_that_came_in_between(
    catalog: lake.Catalog, uri: str
) -> None:
    lake.write_dataset(numbers(1, 2, 3), uri, catalog=catalog)
    mine = stage(catalog, uri, numbers(2), mode="overwrite", overwrite_where="n = 2")
    with pytest.raises(lake.CommitConflictError, match="may be replaced"):
        commit_overtaken(
            catalog, mine, lambda: lake.write_dataset(numbers(2), uri, catalog=catalog)
        )
    assert values(catalog, uri) == [1, 2, 2, 3]


@pytest.mark.parametrize("promoted", [False, True])
def test_rows_of_the_index_follow_the_schema_that_came_in_between(
    catalog: lake.Catalog, uri: str, promoted: bool
) -> None:
    small = pa.table({"n": pa.array([1], pa.int32())})
    lake.write_dataset(small, uri, catalog=catalog)
    mine = stage(catalog, uri, pa.table({"n": pa.array([2], pa.int32())}))
    wider = numbers(2**40) if promoted else pa.table({"n": pa.array([7], pa.int32()), "m": ["x"]})

    def theirs() -> None:
        lake.write_dataset(wider, uri, catalog=catalog, schema_merge=True)

    if promoted:
        with pytest.raises(lake.CommitConflictError, match="the schema changed"):
            commit_overtaken(catalog, mine, theirs)
        assert values(catalog, uri) == [1, 2**40]
        return
    result = commit_overtaken(catalog, mine, theirs)
    assert (result.version, result.schema_version) == (3, 2)
    assert values(catalog, uri) == [1, 2, 7]
    assert values(catalog, uri, predicates="m IS NULL") == [1, 2]
    # A file is recorded with the schema that it was written under: mine lacks `m`.
    files = lake.open_dataset(uri, catalog=catalog).files()
    assert [file.schema_version for file in files] == [1, 2, 1]
    check(catalog, uri)


def test_the_same_write_committed_in_between_is_there_once(
    url: str, catalog: lake.Catalog, uri: str
) -> None:
    """The answer to a COMMIT was lost, and the COMMIT was still under way when it was repeated."""
    lake.write_dataset(numbers(0), uri, catalog=catalog)
    mine = stage(catalog, uri, numbers(1, 2))
    with lake.open_catalog(url) as other:
        result = commit_overtaken(catalog, mine, lambda: commit(other, *mine))
    assert result.version == 2
    assert [file.path for file in result.metadata] == [file.path for file in mine[1]]
    assert values(catalog, uri) == [0, 1, 2]
    check(catalog, uri)


def test_the_same_batch_committed_in_between_is_there_once(catalog: lake.Catalog, uri: str) -> None:
    pair = {"txn_app_id": "loader", "txn_version": 1}
    lake.write_dataset(numbers(0), uri, catalog=catalog)
    mine = stage(catalog, uri, numbers(1), **pair)
    result = commit_overtaken(
        catalog, mine, lambda: lake.write_dataset(numbers(1), uri, catalog=catalog, **pair)
    )
    assert (result.version, result.metadata) == (2, ())
    assert values(catalog, uri) == [0, 1]
    check(catalog, uri)


def test_several_datasets_are_recorded_before_the_first_is_locked(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    uris = [str(tmp_path / name) for name in ("a", "b")]
    for uri in uris:
        lake.write_dataset(numbers(0), uri, catalog=catalog)
    writes = [stage(catalog, uri, numbers(1)) for uri in uris]

    def theirs() -> None:
        for uri in uris:
            lake.write_dataset(numbers(2), uri, catalog=catalog)

    patch = overtaken_by(theirs)
    try:
        assert [one.version for one in commit_all(catalog, writes)] == [3, 3]
    finally:
        patch.undo()
    for uri in uris:
        assert values(catalog, uri) == [0, 1, 2]


def _write_overtaken(url: str, uri: str, point: str, answers: Any) -> None:
    with lake.open_catalog(url) as other:
        overtaken_by(lambda: lake.write_dataset(numbers(7), uri, catalog=other))
        writers.write_once(url, uri, numbers(1), {}, point, answers)


@pytest.mark.slow
def test_a_write_that_is_killed_while_its_files_move(
    url: str, catalog: lake.Catalog, uri: str
) -> None:
    lake.write_dataset(numbers(0), uri, catalog=catalog)
    ours, theirs = processes.CONTEXT.Pipe(duplex=False)
    code = processes.run(_write_overtaken, url, uri, "files moved", theirs)
    theirs.close()
    assert code == -signal.SIGKILL
    with pytest.raises(EOFError):
        ours.recv()
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert (dataset.version, values(catalog, uri)) == (2, [0, 7])
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    left = {os.path.basename(path) for path in Path(uri).rglob("*.parquet")}
    assert left == {os.path.basename(file.path) for file in dataset.files()}
    assert lake.write_dataset(numbers(1), uri, catalog=catalog).version == 3
