"""A process is killed at each point of a DELETE, UPDATE or MERGE: nothing is half visible."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source import failpoints
from tests import processes
from tests.verbs import writers
from tests.verbs.conftest import CRASH_CATALOGS
from tests.verbs.test_crash_points import (
    ABORTING,
    OF_OVERWRITE_WHERE,
    OF_ROW_CHANGES,
    OVERTAKEN,
)

pytestmark = [pytest.mark.slow, pytest.mark.sampled(8)]

# One file keeps most of its rows, one loses more than it keeps, one loses all.
FIRST = [
    pa.table({"id": pa.array(range(3, 20), pa.int64()), "k": [f"k{n}" for n in range(3, 20)]}),
    pa.table({"id": pa.array([2, 0], pa.int64()), "k": ["k2", "k0"]}),
    pa.table({"id": pa.array([1], pa.int64()), "k": ["k1"]}),
]
OLD = {number: f"k{number}" for number in range(20)}
NEW: dict[str, dict[int, str]] = {
    "delete": {number: k for number, k in OLD.items() if not 1 <= number <= 3},
    "update": {number: k * 2 if 1 <= number <= 3 else k for number, k in OLD.items()},
    "merge": {**{number: k for number, k in OLD.items() if number != 3}, 4: "y", 9: "z"},
}
NEVER = {*OF_OVERWRITE_WHERE, OVERTAKEN, "schema written"}
CASES = [
    (statement, point) for statement in NEW for point in failpoints.POINTS if point not in NEVER
]


def in_short_form(statement: str, point: str) -> bool:
    """A delete is killed everywhere; an update, which writes rows, where it differs from one."""
    return statement == "delete" or (statement == "update" and point in OF_ROW_CHANGES)


@pytest.fixture
def uri(tmp_path: Path, shared: lake.Catalog) -> str:
    uri = str(tmp_path / "things")
    for table in FIRST:
        lake.write_dataset(table, uri, catalog=shared)
    return uri


def content(dataset: lake.Dataset, version: int | None = None) -> dict[int, str]:
    scan = dataset.scan(version=version)
    table = scan.to_table()
    found = dict(zip(table["id"].to_pylist(), table["k"].to_pylist()))
    assert len(found) == table.num_rows == scan.count_rows()
    return found


def on_disk(uri: str) -> set[str]:
    return {path.name for path in Path(uri).iterdir() if path.suffix in (".parquet", ".puffin")}


def known(shared: lake.Catalog, dataset: lake.Dataset) -> set[str]:
    """The data files and deletion vectors of all versions."""
    found = set()
    with shared.read() as reader:
        record = reader.dataset(dataset.uri)
        assert record is not None
        for version in range(1, dataset.version + 1):
            found |= {file.path for file in reader.files(record.id, version)}
            found |= {one.vector.path for one in reader.all_vectors(record.id, version)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "statement", "point"),
    [
        pytest.param(
            catalog,
            *case,
            id=" ".join((catalog, *case)).replace(" ", "_"),
            marks=() if catalog == "sqlite" and in_short_form(*case) else pytest.mark.long,
        )
        for catalog in CRASH_CATALOGS
        for case in CASES
    ],
    indirect=["url"],
)
def test_a_killed_statement_leaves_the_old_version_or_the_new_one(
    statement: str, point: str, url: str, shared: lake.Catalog, uri: str
) -> None:
    # Metadata that JSON cannot hold makes a statement fail as late as in its commit.
    bad: dict[str, Any] = {"commit_metadata": {"bad": {1, 2}}}
    more = bad if point in ABORTING else {}
    ours, theirs = processes.CONTEXT.Pipe(duplex=False)
    code = processes.run(writers.change_rows_once, url, uri, statement, more, point, theirs)
    theirs.close()
    assert code == -signal.SIGKILL, f"never came to {point!r}"
    with pytest.raises(EOFError):
        ours.recv()
    dataset = lake.open_dataset(uri, catalog=shared)
    if point == "after COMMIT":
        assert (dataset.version, content(dataset)) == (4, NEW[statement])
    else:
        assert (dataset.version, content(dataset)) == (3, OLD)
    assert content(dataset, 3) == OLD
    orphans = {name[:36] for name in on_disk(uri) - known(shared, dataset)}
    assert len(orphans) <= 1

    # Vacuum deletes exactly what the killed statement left.
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    assert on_disk(uri) == known(shared, dataset)
    assert dataset.verify(checksums=True).ok

    # It does not block the next one.
    if point != "after COMMIT":
        assert writers.change_rows(dataset, statement).version == 4
    assert content(dataset) == NEW[statement]
    assert os.path.exists(uri)


@pytest.mark.parametrize("statement", list(NEW))
def test_a_statement_that_cannot_be_committed_leaves_no_file(
    statement: str, shared: lake.Catalog, uri: str
) -> None:
    dataset = lake.open_dataset(uri, catalog=shared)
    before = on_disk(uri)
    with pytest.raises(lake.InvalidOptionError, match="JSON"):
        writers.change_rows(dataset, statement, commit_metadata={"bad": {1, 2}})
    assert on_disk(uri) == before
    assert content(dataset.refresh()) == OLD
