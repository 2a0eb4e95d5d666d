"""A process is killed at each point of a write: then the old version or the new one is there."""

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

pytestmark = [pytest.mark.slow, pytest.mark.sampled(8)]

FIRST = pa.table({"id": [0, 1, 2, 3, 4, 5], "k": ["a", "a", "b", "b", "c", "c"]})
# Some files match the condition whole, one in part, one not at all.
CONDITION = "id BETWEEN 1 AND 3"
NEW = pa.table({"id": [1, 2], "k": ["a", "z"], "added": [True, None]})

ARGUMENTS: dict[str, dict[str, Any]] = {
    "append": {},
    "overwrite": {"mode": "overwrite"},
    "overwrite where": {"mode": "overwrite", "overwrite_where": CONDITION},
}
ABORTING = {"abort begun", "write fenced", "fence committed", "file deleted", "aborted"}
OF_OVERWRITE_WHERE = {"rows to keep found", "rows to keep written"}
OF_ROW_CHANGES = {  # in test_row_change_crashes.py
    *("changed files found", "rows written anew"),
    *("vectors written", "vectors synced", "vectors recorded"),
}
OVERTAKEN = "files moved"  # in test_overtaken.py
CASES = [
    (mode, point)
    for mode in ARGUMENTS
    for point in failpoints.POINTS
    if point not in {OVERTAKEN, *OF_ROW_CHANGES}
    and (mode == "overwrite where" or point not in OF_OVERWRITE_WHERE)
]


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in ("id", "k")]
    added = table["added"].to_pylist() if "added" in table.column_names else [None] * len(table)
    return sorted(zip(*columns, added), key=repr)


OLD_ROWS = rows(FIRST)
NEW_ROWS = {
    "append": sorted([*OLD_ROWS, *rows(NEW)], key=repr),
    "overwrite": rows(NEW),
    "overwrite where": sorted(
        [row for row in OLD_ROWS if not 1 <= row[0] <= 3] + rows(NEW), key=repr
    ),
}


@pytest.fixture
def uri(tmp_path: Path, shared: lake.Catalog) -> str:
    """A dataset of three files at version 1."""
    uri = str(tmp_path / "things")
    lake.write_dataset(FIRST, uri, catalog=shared, partition_by="k")
    return uri


def kill_at(
    point: str, mode: str, url: str, uri: str, more: dict[str, Any] | None = None
) -> object:
    """Kill a writing process at a point; answers what its write returned, if it did."""
    ours, theirs = processes.CONTEXT.Pipe(duplex=False)
    arguments = {**ARGUMENTS[mode], "schema_merge": True, **(more or {})}
    # Files are recorded before the lock only where the schema does not change.
    table = NEW.drop_columns("added") if point == "files recorded" else NEW
    code = processes.run(writers.write_once, url, uri, table, arguments, point, theirs)
    theirs.close()
    assert code == -signal.SIGKILL, f"never came to {point!r}"
    try:
        return ours.recv()
    except EOFError:
        return None


def check(catalog: lake.Catalog, uri: str) -> tuple[int, list[tuple[Any, ...]]]:
    """Check what must hold of every dataset at any time; answers its version and rows."""
    dataset = lake.open_dataset(uri, catalog=catalog)
    history = dataset.history()
    assert [one.version for one in history] == list(range(dataset.version, 0, -1))
    known = {}
    for version in range(1, dataset.version + 1):
        for file in dataset.files(version):
            known[file.path] = file.size_bytes
    on_disk = {
        str(path.relative_to(uri)): path.stat().st_size for path in Path(uri).rglob("*.parquet")
    }
    assert {path: on_disk.get(path) for path in known} == known
    orphans = {os.path.basename(path)[:36] for path in on_disk.keys() - known.keys()}
    assert len(orphans) <= 1
    assert not orphans & {one.write_id for one in history}
    with catalog.write() as tx:
        pending = {*tx.silent_writes(-1)}
        for write_id in orphans - pending:
            # Given up: it can never commit, and its files are free to go.
            assert tx.write_states([write_id])[write_id].state.name == "FENCED"
    return dataset.version, rows(dataset.scan().to_table())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "mode", "point"),
    [
        # An overwrite of a condition reaches every point.
        pytest.param(
            catalog,
            *case,
            id=" ".join((catalog, *case)).replace(" ", "_"),
            marks=pytest.mark.long
            if catalog == "postgres" and case[0] != "overwrite where"
            else (),
        )
        for catalog in CRASH_CATALOGS
        for case in CASES
    ],
    indirect=["url"],
)
def test_a_killed_write_leaves_the_old_version_or_the_new_one(
    mode: str, point: str, url: str, shared: lake.Catalog, uri: str
) -> None:
    # Metadata that JSON cannot hold makes a write fail as late as in its commit.
    more = {"commit_metadata": {"bad": {1, 2}}} if point in ABORTING else None
    acknowledged = kill_at(point, mode, url, uri, more)
    version, found = check(shared, uri)
    assert acknowledged is None
    if point == "after COMMIT":
        assert (version, found) == (2, NEW_ROWS[mode])
    else:
        assert (version, found) == (1, OLD_ROWS)

    # Vacuum deletes exactly the files that the killed write left.
    dataset = lake.open_dataset(uri, catalog=shared)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    names = {str(path.relative_to(uri)) for path in Path(uri).rglob("*.parquet")}
    assert names == {file.path for n in range(1, version + 1) for file in dataset.files(n)}
    for n in range(1, version + 1):
        assert dataset.verify(n).ok

    # The killed write does not block the next one.
    result = lake.write_dataset(NEW, uri, catalog=shared, schema_merge=True, **ARGUMENTS[mode])
    assert result.version == version + 1
    if version == 1:
        assert check(shared, uri) == (2, NEW_ROWS[mode])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "overwrite where"])
@pytest.mark.parametrize("count", [2, 3])
def test_a_write_killed_between_its_files(
    mode: str, count: int, url: str, shared: lake.Catalog, uri: str
) -> None:
    more = {"row_group_rows": 1, "target_file_size_bytes": 1}
    if mode == "overwrite where":
        more["overwrite_where"] = "id BETWEEN 1 AND 4"
    for point in ("file opened", "row group written", "file verified"):
        if mode == "append" and count == 3:
            continue
        assert kill_at(f"{point}:{count}", mode, url, uri, more) is None
        dataset = lake.open_dataset(uri, catalog=shared)
        assert (dataset.version, rows(dataset.scan().to_table())) == (1, OLD_ROWS)


def test_an_unknown_point_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no point 'nowhere'"):
        failpoints.arm("nowhere")
    failpoints.arm(None)
    failpoints.reach("begin")
