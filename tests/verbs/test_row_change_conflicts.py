"""Two commits at once, of which one changes rows: what the second one does about the first.

The second statement has found its rows. Before it commits, another connection commits, over
PostgreSQL that of another process. "same" changes the row that the second statement changes,
"other" another row of the same file.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.deletion import Positions
from lakehouse_source.model import SeenVersion
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.merge import dataframe_schema
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit import begin as base_version
from lakehouse_source.write.commit import commit as committing
from lakehouse_source.write.commit import row_changes
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.conflicts import Change
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.row_changes import RowChanges, TouchedRows
from lakehouse_source.write.statements import row_statement
from tests import processes

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

FIRST = pa.table({"id": pa.array(range(10), pa.int64()), "v": pa.array([0] * 10, pa.int64())})
SECOND = pa.table({"id": pa.array(range(10, 20), pa.int64()), "v": pa.array([0] * 10, pa.int64())})
ROWS = dict.fromkeys(range(20), 0)

Rows = dict[int, int]


def merge(dataset: lake.Dataset, ids: list[int], **options: Any) -> lake.ChangeResult:
    source = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([7] * len(ids), pa.int64())})
    return dataset.upsert(source, on="id", **options)


# What a process does, and the rows after it alone.
ACTS: dict[str, tuple[Callable[[lake.Dataset], Any], Callable[[Rows], Rows]]] = {
    "delete same": (lambda d: d.delete("id = 3"), lambda r: {k: r[k] for k in r if k != 3}),
    "delete other": (lambda d: d.delete("id = 4"), lambda r: {k: r[k] for k in r if k != 4}),
    "update same": (lambda d: d.update({"v": 5}, "id = 3"), lambda r: {**r, 3: 5}),
    "update other": (lambda d: d.update({"v": 5}, "id = 4"), lambda r: {**r, 4: 5}),
    "merge same": (lambda d: merge(d, [3, 30]), lambda r: {**r, 3: 7, 30: 7}),
    "merge other": (lambda d: merge(d, [4, 31]), lambda r: {**r, 4: 7, 31: 7}),
    "append": (
        lambda d: lake.write_dataset({"id": [90], "v": [9]}, d.uri, catalog=d._address.catalog),
        lambda r: {**r, 90: 9},
    ),
    "append a key of the merge": (
        lambda d: lake.write_dataset({"id": [50], "v": [9]}, d.uri, catalog=d._address.catalog),
        lambda r: {**r, 50: 9},
    ),
    "overwrite": (
        lambda d: lake.write_dataset(
            {"id": [1], "v": [1]}, d.uri, mode="overwrite", catalog=d._address.catalog
        ),
        lambda r: {1: 1},
    ),
    "overwrite where same": (
        lambda d: lake.write_dataset(
            FIRST.slice(0, 0), d.uri, mode="overwrite", overwrite_where="id < 2",
            catalog=d._address.catalog,
        ),
        lambda r: {k: r[k] for k in r if k >= 2},
    ),
    "overwrite where other": (
        lambda d: lake.write_dataset(
            FIRST.slice(0, 0), d.uri, mode="overwrite", overwrite_where="id > 15",
            catalog=d._address.catalog,
        ),
        lambda r: {k: r[k] for k in r if k <= 15},
    ),
    "schema change": (lambda d: d.add_column("w", pa.int64()), lambda r: r),
    "restore": (lambda d: d.restore(1), lambda r: dict.fromkeys(range(10), 0)),
}  # fmt: skip

STATEMENTS = ("delete", "update", "merge")
# (mine, theirs): True: both commit. Written out: this is the specification.
CELLS: dict[tuple[str, str], bool] = {
    ("delete", "delete same"): True,
    ("delete", "delete other"): True,
    ("delete", "update same"): False,
    ("delete", "update other"): True,
    ("delete", "merge same"): False,
    ("delete", "merge other"): True,
    ("delete", "append"): True,
    ("delete", "append a key of the merge"): True,
    ("delete", "overwrite"): False,
    ("delete", "overwrite where same"): False,
    ("delete", "overwrite where other"): True,
    ("delete", "schema change"): True,
    ("delete", "restore"): False,
    ("update", "delete same"): False,
    ("update", "delete other"): True,
    ("update", "update same"): False,
    ("update", "update other"): True,
    ("update", "merge same"): False,
    ("update", "merge other"): True,
    ("update", "append"): True,
    ("update", "append a key of the merge"): True,
    ("update", "overwrite"): False,
    ("update", "overwrite where same"): False,
    ("update", "overwrite where other"): True,
    ("update", "schema change"): False,
    ("update", "restore"): False,
    ("merge", "delete same"): False,
    ("merge", "delete other"): True,
    ("merge", "update same"): False,
    ("merge", "update other"): True,
    ("merge", "merge same"): False,
    ("merge", "merge other"): True,
    ("merge", "append"): True,
    ("merge", "append a key of the merge"): False,
    ("merge", "overwrite"): False,
    ("merge", "overwrite where same"): False,
    ("merge", "overwrite where other"): True,
    ("merge", "schema change"): False,
    ("merge", "restore"): False,
}
MINE: dict[str, tuple[Callable[..., Any], Callable[[Rows], Rows]]] = {
    "delete": (lambda d, **k: d.delete("id = 3", **k), ACTS["delete same"][1]),
    "update": (lambda d, **k: d.update({"v": 1}, "id = 3", **k), lambda r: {**r, 3: 1}),
    "merge": (lambda d, **k: merge(d, [3, 50], **k), lambda r: {**r, 3: 7, 50: 7}),
}


def sampled(cells: Iterable[tuple[str, ...]]) -> list[Any]:
    """Each cell over SQLite; over PostgreSQL and real processes in the long form."""
    return [
        pytest.param(
            kind, *cell, id=" | ".join((kind, *cell)),
            marks=pytest.mark.long if kind == "postgres" else (),
        )
        for kind in ("sqlite", "postgres")
        for cell in cells
    ]  # fmt: skip


@pytest.fixture
def dataset(catalog: lake.Catalog, tmp_path: Path) -> lake.Dataset:
    """Two files of ten rows. No file is written anew because of its deleted rows."""
    uri = str(tmp_path / "things")
    lake.write_dataset(FIRST, uri, catalog=catalog, rewrite_threshold=1.0)
    lake.write_dataset(SECOND, uri, catalog=catalog)
    return lake.open_dataset(uri, catalog=catalog)


def before_commit(act: Callable[[], None]) -> pytest.MonkeyPatch:
    """Run `act` when the next commit has written everything and begins its transaction."""
    patch = pytest.MonkeyPatch()
    commit = committing._commit_prepared

    def later(*arguments: Any) -> Any:
        patch.undo()
        act()
        return commit(*arguments)

    patch.setattr(committing, "_commit_prepared", later)
    return patch


def act_in_process(url: str, uri: str, name: str) -> None:
    with lake.open_catalog(url) as catalog:
        ACTS[name][0](lake.open_dataset(uri, catalog=catalog))


def content(dataset: lake.Dataset) -> Rows:
    table = dataset.refresh().scan(columns=["id", "v"]).to_table()
    found = dict(zip(table["id"].to_pylist(), table["v"].to_pylist()))
    assert len(found) == table.num_rows == dataset.scan().count_rows()
    return found


def run_both(
    dataset: lake.Dataset, mine: Callable[[], Any], theirs: str
) -> lake.CommitConflictError | None:
    catalog = dataset._address.catalog
    assert isinstance(catalog, lake.Catalog)

    def act() -> None:
        if catalog.is_server:
            assert processes.run(act_in_process, catalog.url, dataset.uri, theirs) == 0
        else:  # the same code, without a process for each of a hundred cases
            act_in_process(catalog.url, dataset.uri, theirs)

    patch = before_commit(act)
    try:
        mine()
    except lake.CommitConflictError as error:
        return error
    finally:
        patch.undo()
    return None


def files_of(dataset: lake.Dataset) -> tuple[set[str], set[str]]:
    """The files that versions have, and those on the disk."""
    root = Path(dataset.uri.removeprefix("file://"))
    known = {file.path for n in range(1, dataset.version + 1) for file in dataset.files(n)}
    disk = {str(path.relative_to(root)) for path in root.rglob("*.parquet")}
    return known, disk


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize(("catalog", "mine", "theirs"), sampled(CELLS), indirect=["catalog"])
def test_a_change_of_rows_meets_another_commit(
    mine: str, theirs: str, dataset: lake.Dataset
) -> None:
    statement, alone = MINE[mine]
    error = run_both(dataset, lambda: statement(dataset), theirs)
    expected = ACTS[theirs][1](ROWS)
    if CELLS[mine, theirs]:
        assert error is None
        # Rows that others added are not touched; a row that both delete is deleted once.
        assert content(dataset) == alone(expected)
        assert dataset.version == 4
    else:
        assert error is not None
        assert error.current_version == 3
        assert content(dataset) == expected
        known, disk = files_of(dataset)
        assert known == disk
    assert dataset.verify(checksums=True).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("catalog", "mine", "theirs"),
    sampled(
        itertools.product(
            [name for name in ACTS if name.split()[0] not in STATEMENTS],
            ["delete other", "update other", "merge other"],
        )
    ),
    indirect=["catalog"],
)
def test_another_change_meets_a_change_of_rows(
    mine: str, theirs: str, dataset: lake.Dataset
) -> None:
    if mine == "restore" or mine == "schema change":
        act_in_process(dataset._address.catalog.url, dataset.uri, theirs)  # type: ignore[union-attr]
        error = None
        ACTS[mine][0](dataset)  # no file is written: it is decided under the lock
    else:
        error = run_both(dataset, lambda: ACTS[mine][0](dataset), theirs)
    expected = ACTS[theirs][1](ROWS)
    if mine == "overwrite where same" or (mine, theirs) == ("overwrite where other", "merge other"):
        # The rows that it keeps were read before: a deleted one would return. The merge adds row 31
        # to what the other one replaces.
        assert error is not None
        assert content(dataset) == expected
    else:
        assert error is None
        assert content(dataset) == ACTS[mine][1](expected)


@pytest.mark.parametrize(
    ("mine", "isolation", "commits"),
    [
        ("delete", "serializable", False),
        ("delete", "snapshot", True),
        ("update", "serializable", False),
        ("merge", "serializable", False),
        ("merge", "write-serializable", False),
        ("merge", "snapshot", True),
    ],
)
def test_isolation_decides_about_added_rows(
    mine: str, isolation: str, commits: bool, dataset: lake.Dataset
) -> None:
    def theirs() -> None:
        lake.write_dataset({"id": [3], "v": [9]}, dataset.uri, catalog=dataset._address.catalog)

    patch = before_commit(theirs)
    error = None
    try:
        MINE[mine][0](dataset, isolation=isolation)
    except lake.CommitConflictError as caught:
        error = caught
    finally:
        patch.undo()
    assert (error is None) is commits
    assert error is None or "may be matched by the condition" in error.reason


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("mine", MINE)
def test_added_rows_around_those_of_a_statement_are_no_conflict(
    mine: str, large: bool, dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of their files hold the keys of the statement; the files are looked into.

    First before the lock is taken, then, where the files are large, without the lock again, and at
    last under it.
    """
    monkeypatch.setattr(committing, "_TRIES_WITHOUT_LOCK", 1)
    if large:
        monkeypatch.setattr(row_changes, "_FEW_BYTES", 0)
    others = [(-5, 60), (-6, 61), (-7, 62)] if large else [(-5, 60), (-6, 61)]
    expected = {id: 9 for pair in others for id in pair}

    def later(name: str) -> None:
        step = getattr(committing, name)

        def run(*arguments: Any) -> Any:
            calls.append(name)
            if others:
                table = {"id": [*others.pop()], "v": [9, 9]}
                with monkeypatch.context() as patch:
                    patch.setattr(committing, "_commit_prepared", commit)
                    lake.write_dataset(table, dataset.uri, catalog=dataset._address.catalog)
            return step(*arguments)

        monkeypatch.setattr(committing, name, run)

    commit, calls = committing._commit_prepared, list[str]()
    later("_looked_ahead")
    later("_commit_prepared")
    MINE[mine][0](dataset, isolation="serializable")
    assert others == []
    assert calls.count("_commit_prepared") == 1 + large, "the lock is waited for once"
    assert content(dataset) == {**MINE[mine][1](ROWS), **expected}


@pytest.mark.parametrize(
    ("isolation", "predicate", "commits"),
    [
        ("serializable", None, False),
        ("serializable", "target.v = 9", False),
        ("serializable", "target.v = 8", True),
        ("write-serializable", None, True),
    ],
)
def test_a_serializable_merge_does_not_miss_added_rows_that_its_source_lacks(
    isolation: str, predicate: str | None, commits: bool, dataset: lake.Dataset
) -> None:
    def theirs() -> None:
        lake.write_dataset({"id": [70], "v": [9]}, dataset.uri, catalog=dataset._address.catalog)

    merge = dataset.merge({"id": [3], "v": [7]}, "target.id = source.id", isolation=isolation)
    merge = merge.when_matched_update_all().when_not_matched_by_source_delete(predicate)
    patch = before_commit(theirs)
    error = None
    try:
        merge.execute()
    except lake.CommitConflictError as caught:
        error = caught
    finally:
        patch.undo()
    assert (error is None) is commits


def test_a_file_that_was_written_anew_gets_a_vector_where_another_commit_came_first(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    """It was to save space: it must not make two changes of different rows conflict."""
    uri = str(tmp_path / "things")
    lake.write_dataset(FIRST, uri, catalog=catalog, rewrite_threshold=0.3)
    dataset = lake.open_dataset(uri, catalog=catalog)
    patch = before_commit(lambda: lake.open_dataset(uri, catalog=catalog).delete("id = 9"))
    try:
        result = dataset.delete("id < 5")
    finally:
        patch.undo()
    assert (result.rows_deleted, result.vectors_written, result.files_added) == (5, 1, 0)
    assert content(dataset) == {5: 0, 6: 0, 7: 0, 8: 0}
    known, disk = files_of(dataset)
    assert known == disk


@pytest.mark.parametrize("change", ["rename", "promote", "drop"])
def test_a_delete_that_was_planned_before_a_schema_change_leaves_the_rows_readable(
    change: str, tmp_path: Path
) -> None:
    """Spark finds the rows at one version, and begins to write when there may be a newer one."""
    lake.write_dataset(FIRST, tmp_path, rewrite_threshold=0.0)
    dataset = lake.open_dataset(tmp_path)
    (file,) = dataset.files()
    if change == "rename":
        dataset.rename_column("v", "w")
    elif change == "promote":
        dataset.promote_column("v", pa.string())
    else:
        dataset.drop_column("v")
    address, options = dataset._address, WriteOptions(row_change=Change.DELETE)
    rows = RowChanges({file.path: TouchedRows(Positions([0]), Positions())})
    with address.open() as catalog:
        incoming = dataframe_schema(without_metadata(dataset.schema))
        staged = begin(catalog, address, incoming, options, base=SeenVersion(1))
        committing.commit(catalog, staged, [], rows)
    assert dataset.refresh().verify().ok
    expected = {"rename": {"w": 0}, "promote": {"v": "0"}, "drop": {}}[change]
    found = dataset.scan().to_table().to_pylist()
    assert found == [{"id": id, **expected} for id in range(1, 10)]


def test_a_statement_on_a_dataset_that_was_made_anew_since_it_was_read_is_a_conflict(
    tmp_path: Path,
) -> None:
    """Spark read version 2 of a dataset that is dropped, and made anew, before the write begins."""
    catalog = lake.open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path)
    before = catalog.create_dataset("t", FIRST.schema)
    lake.write_dataset(FIRST, before.uri, catalog=catalog)
    catalog.drop("t", purge=True)
    dataset = catalog.create_dataset("t", FIRST.schema)
    assert dataset.uri == before.uri
    options = WriteOptions(mode="overwrite", reads_own_rows=True)
    with (
        dataset._address.open() as opened,
        pytest.raises(lake.CommitConflictError, match="made again"),
    ):
        begin(opened, dataset._address, FIRST.schema, options, base=SeenVersion(2))
    assert lake.write_dataset(FIRST, dataset.uri, catalog=catalog).version == 2


@pytest.mark.parametrize("kind", ["rename", "promote", "add", "text"])
def test_a_compaction_gives_up_where_another_commit_changes_the_schema_as_it_begins(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {"id": [1], "v": pa.array([10], pa.int32())}
    lake.write_dataset(first, tmp_path)
    lake.write_dataset(first, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    added: dict[str, dict[str, Any]] = {
        "promote": {"id": [2], "v": [2**40]},
        "add": {"id": [2], "v": pa.array([1], pa.int32()), "new": ["x"]},
        "text": {"id": [2], "v": ["x"]},
    }

    def begin_late(*given: Any) -> StagedWrite:
        if kind == "rename":
            lake.open_dataset(tmp_path).rename_column("v", "w")
        else:
            lake.write_dataset(added[kind], tmp_path, schema_merge=True, promote_to_string=True)
        return begin(*given)

    monkeypatch.setattr(base_version, "begin", begin_late)
    with pytest.raises(lake.CommitConflictError, match="schema changed"):
        dataset.compact()
    assert dataset.refresh().version == 3
    assert dataset.verify().ok


def test_a_column_is_renamed_as_a_delete_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No data of the caller mismatches the schema: the error is that of a conflict."""
    lake.write_dataset(FIRST, tmp_path)
    dataset = lake.open_dataset(tmp_path)

    def begin_late(*given: Any) -> StagedWrite:
        lake.open_dataset(tmp_path).rename_column("v", "w")
        return begin(*given)

    monkeypatch.setattr(base_version, "begin", begin_late)
    with pytest.raises(lake.CommitConflictError, match="schema changed"):
        dataset.delete("id = 3")
    assert dataset.refresh().scan().count_rows() == 10


def test_two_deletes_of_one_row_count_it_once(dataset: lake.Dataset) -> None:
    patch = before_commit(
        lambda: lake.open_dataset(dataset.uri, catalog=dataset._address.catalog).delete("id = 3")  # type: ignore[func-returns-value, arg-type]
    )
    try:
        result = dataset.delete("id IN (3, 4)")
    finally:
        patch.undo()
    assert (result.version, result.rows_deleted) == (4, 1)
    assert dataset.scan().count_rows() == 18


def test_the_last_rows_of_a_file_are_deleted_by_two_commits(dataset: lake.Dataset) -> None:
    patch = before_commit(
        lambda: lake.open_dataset(dataset.uri, catalog=dataset._address.catalog).delete("id < 5")  # type: ignore[func-returns-value, arg-type]
    )
    try:
        result = dataset.delete("id >= 5 AND id < 10")
    finally:
        patch.undo()
    assert (result.files_removed, result.vectors_written) == (1, 0)
    assert content(dataset) == dict.fromkeys(range(10, 20), 0)


@pytest.mark.parametrize("isolation", ["write-serializable", "serializable"])
def test_a_column_of_the_condition_is_renamed_meanwhile(
    isolation: str, dataset: lake.Dataset
) -> None:
    """Positions mean the same under every name; which added rows match cannot be told."""

    def theirs() -> None:
        other = lake.open_dataset(dataset.uri, catalog=dataset._address.catalog)
        other.rename_column("id", "key")
        lake.write_dataset({"key": [90], "v": [0]}, other.uri, catalog=dataset._address.catalog)

    patch = before_commit(theirs)
    error = None
    try:
        dataset.delete("id = 3", isolation=isolation)
    except lake.CommitConflictError as caught:
        error = caught
    finally:
        patch.undo()
    assert (error is None) is (isolation == "write-serializable")
    found = set(dataset.refresh().scan().to_table()["key"].to_pylist())
    assert found == {*range(20), 90} - (set() if error else {3})


@pytest.mark.parametrize("times", [1, 4])
def test_no_commit_waits_while_a_restore_reads_storage(
    catalog: lake.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """It read deletion vectors under the lock of the dataset."""
    rows = range(30_000)
    uri = str(tmp_path / "large")
    lake.write_dataset({"id": list(rows)}, uri, catalog=catalog, rewrite_threshold=1)
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.delete("id % 3 = 0")
    dataset.restore(1)
    dataset.delete("id % 5 = 0")
    deleted = {row for row in rows if row % 5 == 0}
    reads = []
    main = threading.current_thread()
    open_input = Storage.open_input

    def read_slowly(storage: Storage, path: str, *given: Any) -> Any:
        if path.endswith(".puffin") and threading.current_thread() is main:
            reads.append(path)
            number, second = divmod(len(reads), 2)  # a comparison reads two vectors
            if second and number < times:
                # Another connection; it would wait for the lock in vain.
                with ThreadPoolExecutor(1) as pool:
                    other = lake.open_dataset(uri, catalog=catalog)
                    pool.submit(other.delete, f"id % 7 = {number}").result()
                deleted.update(row for row in rows if row % 7 == number)
        return open_input(storage, path, *given)

    monkeypatch.setattr(Storage, "open_input", read_slowly)
    dataset.restore(2)
    assert len(reads) == 2 * (times + 1)
    restored = {row for row in rows if row % 3}
    assert set(dataset.scan().to_table()["id"].to_pylist()) == restored
    summary = dataset.history()[0].summary
    assert summary["rows_added"] == len(restored & deleted)
    assert summary["rows_removed"] == len(set(rows) - restored - deleted)
    assert summary["live_rows"] == dataset.scan().count_rows() == len(restored)
    assert dataset.verify(checksums=True).ok


@pytest.mark.parametrize("times", [1, 2, 4])
def test_no_commit_waits_while_a_delete_reads_and_writes_vectors(
    catalog: lake.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """It read the vectors of other commits, and wrote its own anew, under the lock."""
    rows = range(30_000)
    uri = str(tmp_path / "large")
    lake.write_dataset({"id": list(rows)}, uri, catalog=catalog, rewrite_threshold=1)
    dataset = lake.open_dataset(uri, catalog=catalog)
    deleted = {row for row in rows if row % 3 == 0}
    others, waited = 0, 0
    main = threading.current_thread()

    def delete_elsewhere() -> None:
        nonlocal others
        others += 1
        # Another connection. Under the lock of the statement it would wait in vain.
        with ThreadPoolExecutor(1) as pool:
            other = lake.open_dataset(uri, catalog=catalog)
            pool.submit(other.delete, f"id % 11 = {others}").result()

    def opened_slowly(opened: Callable[..., Any]) -> Callable[..., Any]:
        def run(storage: Storage, path: str, *given: Any) -> Any:
            nonlocal waited
            if path.endswith(".puffin") and threading.current_thread() is main:
                waited += 1
                if others < times:  # after four times the statement holds the lock
                    delete_elsewhere()
            return opened(storage, path, *given)

        return run

    monkeypatch.setattr(Storage, "open_input", opened_slowly(Storage.open_input))
    monkeypatch.setattr(Storage, "open_output", opened_slowly(Storage.open_output))
    result = dataset.delete("id % 3 = 0")
    assert others == times
    assert waited > others
    theirs = {row for row in rows if 0 < row % 11 <= others}
    assert result.rows_deleted == len(deleted - theirs)
    left = set(rows) - deleted - theirs
    assert set(dataset.scan().to_table()["id"].to_pylist()) == left
    assert dataset.history()[0].summary["live_rows"] == len(left)
    assert dataset.verify(checksums=True).ok


@pytest.mark.parametrize("change", ["drop", "rename", "require"])
def test_a_merge_of_schemas_undoes_no_change_of_the_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A column came back that another commit dropped after the merge had read the schema."""
    lake.write_dataset(pa.table({"id": [1, 2], "w": [1, 2]}), tmp_path)
    real = row_statement.begin_after

    def late(*args: Any) -> Any:
        other = lake.open_dataset(tmp_path)
        if change == "drop":
            other.drop_column("w")
        elif change == "rename":
            other.rename_column("w", "z")
        else:
            other.set_nullable("w", False)
        return real(*args)

    monkeypatch.setattr(row_statement, "begin_after", late)
    dataset = lake.open_dataset(tmp_path)
    source = pa.table({"id": [2, 3], "n": ["x", "y"]})
    merge = dataset.merge(source, "target.id = source.id", merge_schema=True)
    values = {"id": "source.id", "n": "source.n"}
    with pytest.raises(lake.CommitConflictError, match="the schema changed"):
        merge.when_not_matched_insert(values).execute()
    dataset.refresh()
    assert dataset.version == 2
    assert dataset.schema.names == {"drop": ["id"], "rename": ["id", "z"]}.get(change, ["id", "w"])
    assert dataset.scan().count_rows() == 2
    assert len(list(tmp_path.glob("*.parquet"))) == 1
