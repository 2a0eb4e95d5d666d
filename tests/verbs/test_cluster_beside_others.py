"""Processes change rows while others cluster them, some of which are killed."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

import pytest

import lakehouse_source as lake
from tests import processes
from tests.verbs import writers
from tests.verbs.conftest import catalog_of
from tests.verbs.writers import Done

pytestmark = pytest.mark.slow

catalog = catalog_of("sqlite", "postgres")
COMMITS = int(os.environ.get("PLAKE_COMMITS", "12"))
WRITERS = 2

Rows = dict[tuple[int, int], tuple[int | None, str]]


def replay(done: list[Done]) -> dict[int, Rows]:
    """The rows after each commit of a writer, by its version."""
    content: dict[int, Rows] = {}
    now: Rows = {}
    for one in sorted(done, key=lambda one: one.version):
        if one.kind == "append":
            for row in writers.own_rows(one.writer, one.number).to_pylist():
                now = now | {(row["writer"], row["n"]): (row["a"], repr(row["b"]))}
        mine = [key for key in now if key[0] == one.writer and key[1] % 7 == one.argument]
        if one.kind == "delete":
            now = {key: row for key, row in now.items() if key not in mine}
        elif one.kind == "update":
            raised = {k: (None if now[k][0] is None else now[k][0] + 1000, now[k][1]) for k in mine}
            now = now | raised
        content[one.version] = now
    return content


def changed_and_clustered(catalog: lake.Catalog, uri: str) -> tuple[list[Done], int, int]:
    """What the writers committed, how many attempts conflicted, and how many were killed."""
    rng = random.Random(5)
    ends = processes.CONTEXT.Event()
    pipes, running = [], []
    for writer in range(WRITERS):
        ours, theirs = processes.CONTEXT.Pipe(duplex=False)
        arguments = (catalog.url, uri, writer, COMMITS, theirs)
        running.append(processes.start(writers.change_own_rows, *arguments))
        theirs.close()
        pipes.append(ours)

    def clustering(seed: int) -> Any:
        return processes.start(writers.cluster_again_and_again, catalog.url, uri, seed, ends)

    steady, victim, killed = clustering(1), clustering(2), 0
    done: list[Done] = []
    conflicts = 0
    for ours in pipes:
        while not ours.poll(rng.uniform(0.3, 0.9)):
            victim.kill()
            victim.join()
            killed += 1
            victim = clustering(2 + killed)
        mine, collided = ours.recv()
        done += mine
        conflicts += collided
    ends.set()
    for process in (*running, steady, victim):
        process.join(60)
        assert process.exitcode == 0
    return done, conflicts, killed


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_rows_are_those_of_the_writers_whatever_is_clustered(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    uri = str(tmp_path / "d")
    lake.write_dataset(
        writers.own_rows(9, 0).slice(0, 0), uri, catalog=catalog, cluster_by=["a", "b"],
        row_group_rows=20, target_file_size_bytes=1500, rewrite_threshold=0.5,
    )  # fmt: skip
    done, conflicts, killed = changed_and_clustered(catalog, uri)
    print(f"{len(done)} commits, {conflicts} conflicts, {killed} killed")
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.cluster()
    assert dataset.verify(checksums=True).ok
    # An append conflicts with nothing, and every commit is there.
    assert len({one.version for one in done}) == len(done) == WRITERS * COMMITS
    content, ids, now = replay(done), {}, {}
    by_version = {one.version: one for one in done}
    clustered = 0
    for version in range(2, dataset.version + 1):
        now = content.get(version, now)
        table = dataset.scan(version=version, columns=["writer", "n", "a", "b", "_row_id"])
        found: Rows = {}
        for row in table.to_table().to_pylist():
            key = (row["writer"], row["n"])
            assert key not in found
            found[key] = (row["a"], repr(row["b"]))
            assert ids.setdefault(key, row["_row_id"]) == row["_row_id"], (version, key)
        assert found == now, version
        nans = sum(math.isnan(float(b)) for _, b in now.values())
        assert dataset.scan("b = double('NaN')", version=version).count_rows() == nans
        if version not in by_version:
            clustered += 1
            assert not any(dataset.changes(version, version).count_rows().values())
    assert len(set(ids.values())) == len(ids)
    assert clustered > 0
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    assert dataset.verify(checksums=True).ok
    assert dataset.cluster().files_removed == 0
