"""Processes change one dataset at the same time: the result equals one change after the other.

`PLAKE_WRITERS` and `PLAKE_COMMITS` set how many there are; `make integration` runs
8 processes with 200 commits each.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from tests import processes
from tests.verbs import writers
from tests.verbs.writers import Done

pytestmark = pytest.mark.slow

WRITERS = int(os.environ.get("PLAKE_WRITERS", "4"))
COMMITS = int(os.environ.get("PLAKE_COMMITS", "25"))

Row = tuple[int, int, int]


def start_table() -> pa.Table:
    return pa.table({"writer": [-1], "number": [0], "slot": [0]})


def change_at_once(
    catalog: lake.Catalog, uri: str, count: int, commits: int
) -> tuple[list[Done], int]:
    """Let processes change a dataset; answer their commits, and how many writes conflicted."""
    pipes = []
    running = []
    for writer in range(count):
        ours, theirs = processes.CONTEXT.Pipe(duplex=False)
        arguments = (catalog.url, uri, writer, commits, theirs)
        running.append(processes.start(writers.write_many, *arguments))
        theirs.close()
        pipes.append(ours)
    done: list[Done] = []
    conflicts = 0
    for ours in pipes:
        mine, collided, error = ours.recv()
        assert error is None
        done += mine
        conflicts += collided
    for process in running:
        process.join(30)
        process.close()
    return done, conflicts


def replay(done: list[Done]) -> dict[int, Counter[Row]]:
    """The rows of every version, found by making one change after the other."""
    content: dict[int, Counter[Row]] = {1: Counter({(-1, 0, 0): 1})}
    for one in sorted(done, key=lambda one: one.version):
        before = content[one.version - 1]
        row = (one.writer, one.number, one.argument)
        if one.kind == "restore":
            after = content[one.argument].copy()
        elif one.kind == "overwrite where":
            after = Counter({r: n for r, n in before.items() if r[2] != one.argument})
            after[row] += 1
        else:
            after = before + Counter([row])
        content[one.version] = after
    return content


def content(catalog: lake.Catalog, uri: str, version: int | None = None) -> Counter[Row]:
    table = lake.read_dataset(uri, catalog=catalog, version=version)
    columns: list[list[Any]] = [table[name].to_pylist() for name in ("writer", "number", "slot")]
    return Counter(zip(*columns))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_changes_by_many_processes_equal_one_change_after_the_other(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    uri = str(tmp_path / "things")
    lake.write_dataset(start_table(), uri, catalog=catalog)
    done, conflicts = change_at_once(catalog, uri, WRITERS, COMMITS)
    print(f"{len(done)} commits, {conflicts} conflicts")

    # Every commit is one version, and every version is one commit.
    last = 1 + WRITERS * COMMITS
    assert sorted(one.version for one in done) == list(range(2, last + 1))
    history = lake.open_dataset(uri, catalog=catalog).history()
    assert [record.version for record in history] == list(range(last, 0, -1))
    times = [record.timestamp for record in reversed(history)]
    assert times == sorted(set(times))
    operations = {one.version: one.kind.replace("add column", "append") for one in done}
    assert {r.version: r.operation for r in history if r.version > 1} == operations

    expected = replay(done)
    for version in {last, *range(1, last, max(1, last // 20))}:
        assert content(catalog, uri, version) == expected[version], version
        for slot in range(4):
            found = lake.read_dataset(
                uri, catalog=catalog, version=version, predicates=f"slot = {slot}"
            )
            rows = sum(n for row, n in expected[version].items() if row[2] == slot)
            assert found.num_rows == rows
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert dataset.history()[0].summary["live_rows"] == expected[last].total()
    assert dataset.history()[0].summary["live_files"] == len(dataset.files())
    # Writes that lost a conflict left no files.
    known = {file.path for n in range(1, last + 1) for file in dataset.files(n)}
    on_disk = {str(path.relative_to(uri)) for path in Path(uri).rglob("*.parquet")}
    assert on_disk == known


def test_two_processes_that_want_the_same_version_both_commit(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    """Lost update (delta #1410, #1830): one commits n + 1, the other is rebased to n + 2."""
    uri = str(tmp_path / "things")
    lake.write_dataset(start_table(), uri, catalog=catalog)
    pipes = []
    running = []
    for number in (1, 2):
        ours, theirs = processes.CONTEXT.Pipe(duplex=False)
        table = pa.table({"writer": [number], "number": [0], "slot": [0]})
        arguments = (catalog.url, uri, table, {}, None, theirs)
        running.append(processes.start(writers.write_once, *arguments))
        pipes.append(ours)
    assert sorted(ours.recv() for ours in pipes) == [2, 3]
    for process in running:
        process.join(30)
    assert content(catalog, uri) == Counter([(-1, 0, 0), (1, 0, 0), (2, 0, 0)])
