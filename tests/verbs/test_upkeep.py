"""Upkeep by itself: one process at a time, by the properties of tables, and ended at any moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.upkeep import run as running
from lakehouse_source.upkeep import steps
from lakehouse_source.upkeep.report import State, Table
from lakehouse_source.upkeep.run import HeldLease, Upkeep
from lakehouse_source.upkeep.steps import Budget, Settings
from tests.verbs.conftest import catalog_of

pytestmark = pytest.mark.slow
catalog = catalog_of("sqlite", "postgres")
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64())])


@pytest.fixture(autouse=True)
def warehouse(catalog: lake.Catalog, tmp_path: Path) -> None:
    lake.open_catalog(catalog).set_warehouse(tmp_path / "warehouse")


def table(catalog: lake.Catalog, name: str, files: int = 0, **properties: Any) -> lake.Dataset:
    made = lake.open_catalog(catalog).create_dataset(name, SCHEMA, properties=properties)
    for number in range(files):
        append(made, catalog, number)
    return made.refresh()


def append(dataset: lake.Dataset, catalog: lake.Catalog, number: int) -> None:
    rows = pa.table(
        {"id": range(number * 10, number * 10 + 10), "k": [7, 1, 9, 3, 5, 8, 2, 6, 4, 0]}
    )
    _ = lake.write_dataset(rows, dataset.uri, catalog=catalog)


def ids(dataset: lake.Dataset) -> list[int]:
    return sorted(dataset.refresh().scan().to_table()["id"].to_pylist())


def stored(dataset: lake.Dataset) -> set[str]:
    folder = Path(dataset.uri.removeprefix("file://"))
    return {str(one.relative_to(folder)) for one in folder.rglob("*.parquet")}


@pytest.mark.one_catalog
def test_each_table_gets_what_its_properties_say(catalog: lake.Catalog) -> None:
    quiet = table(catalog, "quiet", 12)
    never = table(catalog, "never", 12, auto_compact=False)
    small = table(catalog, "small", 12, auto_compact=True, auto_compact_min_files=40)
    small.set_properties(auto_compact_min_files=5, keep_versions=2)
    sorted_by = table(catalog, "sorted", 12, cluster_by=["k"], auto_compact=True)
    old = table(catalog, "old", 3)
    old.set_properties(expire_rows="id < 10 AND now() > '2020-01-01'")
    branched = table(catalog, "branched", 12, auto_compact=True)
    branch = branched.branch("audit")
    _ = lake.write_dataset({"id": [1000], "k": [1]}, branch.uri, catalog=catalog)

    done = lake.maintain(catalog)
    counts = {name: len(one.refresh().files()) for name, one in locals().items() if name in NAMES}
    assert counts == {
        "quiet": 12, "never": 12, "small": 1, "sorted_by": 1, "old": 2, "branched": 12,
    }  # fmt: skip
    assert small.history()[-1].version == 1  # vacuum keeps it for its retention
    with pytest.raises(lake.VersionNotFoundError, match="expired"):
        small.scan(version=small.version - 2).to_table()
    assert ids(old) == list(range(10, 30))
    assert [ids(one) for one in (quiet, never, small, sorted_by)] == [list(range(120))] * 4
    assert sorted({row[:2] for row in done.rows()}) == [
        ("default.old", "expire_rows"), ("default.small", "compact"),
        ("default.small", "expire_versions"), ("default.sorted", "cluster"),
    ]  # fmt: skip
    # A commit would have ended the branch.
    waiting = {one.name: one.waits_for for one in done.tables.values() if one.waits_for}
    assert waiting == {"default.branched": "audit"}
    branched.fast_forward("audit")

    _ = lake.maintain(catalog, compact=True, keep_last=1)
    assert (len(quiet.refresh().files()), len(never.refresh().files())) == (1, 12)
    versions = {name: one.refresh().version for name, one in locals().items() if name in NAMES}
    _ = lake.maintain(catalog, compact=True, keep_last=1)
    after = {name: one.refresh().version for name, one in locals().items() if name in NAMES}
    assert after == versions  # it ends


NAMES = ("quiet", "never", "small", "sorted_by", "old", "branched")


# --- it ends at any moment -------------------------------------------------------------


class EndsAfter(threading.Event):
    """Set after it was looked at some times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("properties", [{}, {"cluster_by": ["k"]}], ids=["compact", "cluster"])
@pytest.mark.one_catalog
def test_wherever_it_is_told_to_end_nothing_is_half_written(
    catalog: lake.Catalog, properties: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "STEP_BYTES", 12_000)
    dataset = table(catalog, "t", 12, **properties)
    first, ended = dataset.version, 0
    for looks in range(1, 60):
        dataset.restore(first)
        with catalog.read() as reader:
            known = {file.path for file in reader.files_added_since(1, 0)}
        done = lake.maintain(catalog, compact=True, stop=EndsAfter(looks))
        assert ids(dataset) == list(range(120))
        with catalog.read() as reader:
            recorded = {file.path for file in reader.files_added_since(1, 0)}
            assert reader.lease("upkeep") is None
        assert stored(dataset) == recorded
        ended += done.rounds == 0 and recorded == known  # files were written for nothing, and went
        if done.rounds:
            break
    assert done.rounds == 1
    assert ended > 2
    assert len(dataset.refresh().files()) < 12


@pytest.mark.one_catalog
def test_of_two_processes_one_works_a_dead_one_is_replaced_and_sigterm_ends_it(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    """Beside a writer."""
    dataset = table(catalog, "t", auto_compact=True, auto_compact_min_files=500)
    dataset.set_properties(auto_compact_min_files=5, keep_versions=3)

    def start(name: str) -> tuple[subprocess.Popen[bytes], Callable[[], float]]:
        command = [
            *(sys.executable, "-m", "lakehouse_source.cli", "maintain", "--every", "1s", "--yes"),
            *("--catalog", catalog.url, "--lease-seconds", "1", "-q"),
            *("--metrics-file", str(tmp_path / name)),
        ]
        process = subprocess.Popen(command, env={**os.environ, "PYTHONWARNINGS": "default"})

        def rounds() -> float:
            text = (tmp_path / name).read_text() if (tmp_path / name).exists() else ""
            found = re.search(r"^plake_upkeep_rounds_total (\d+)", text, re.MULTILINE)
            return float(found[1]) if found else 0.0

        return process, rounds

    written = 0

    def until(is_so: Callable[[], bool]) -> None:
        nonlocal written
        give_up = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < give_up
            append(dataset, catalog, written)
            written += 1
            time.sleep(0.1)

    first, of_first = start("first")
    try:
        until(lambda: of_first() > 0)
        second, of_second = start("second")
        try:
            until(lambda: (tmp_path / "second").exists() and of_first() > 2)
            assert of_second() == 0
            first.kill()
            first.wait()
            until(lambda: of_second() > 0)
            second.send_signal(signal.SIGTERM)
            assert second.wait(30) == 0
        finally:
            second.kill()
            second.wait()
    finally:
        first.kill()
        first.wait()
    with catalog.read() as reader:
        assert reader.lease("upkeep") is None
    assert lake.maintain(catalog).leads
    assert ids(dataset) == list(range(written * 10))
    # A killed compaction may be behind, and its lease is free.
    assert len(dataset.files()) < 10


@pytest.mark.one_catalog
def test_a_process_that_was_suspended_learns_that_another_one_has_the_lease(
    catalog: lake.Catalog,
) -> None:
    first, second = (HeldLease(catalog, "upkeep", 1) for _ in range(2))
    assert first.hold()
    assert not second.hold()
    first._end_beats()  # as if it were suspended
    time.sleep(0.5)
    assert not second.hold()  # by its own clock it waits for the whole time
    time.sleep(1.1)
    assert second.hold()
    assert not first.is_held
    assert not first.hold()
    first.release()  # not its own any more
    assert second.is_held
    second.release()
    assert first.hold()
    first.release()


# --- limits ----------------------------------------------------------------------------


@pytest.mark.one_catalog
def test_a_table_that_fails_is_left_alone_and_stops_no_other(catalog: lake.Catalog) -> None:
    broken = table(catalog, "broken", 12)
    good = table(catalog, "good", 12)
    lost = Path(broken.uri.removeprefix("file://"), broken.files()[0].path)
    content = lost.read_bytes()
    lost.unlink()
    upkeep = Upkeep(catalog, Settings(compact=True))
    assert upkeep.round()
    assert len(good.refresh().files()) == 1
    (failed,) = (one for one in upkeep.state.tables.values() if one.error)
    assert (failed.name, failed.failures) == ("default.broken", 1)
    assert 'plake_upkeep_failing{table="default.broken",code="PLAKE_' in upkeep.metrics
    assert "failed 1 times: PLAKE_" in upkeep.page
    lost.write_bytes(content)
    assert upkeep.round()
    assert failed.failures == 1  # not tried
    failed.retry_at = 0.0
    assert upkeep.round()
    assert (failed.error, len(broken.refresh().files())) == ("", 1)
    upkeep.release()


def test_metrics_name_a_table_as_it_is() -> None:
    """`{}` was left out of names."""
    state = State("sqlite://")
    state.tables[1] = Table('a{}b"\n', files=7)
    lines = state.metrics().splitlines()
    assert 'plake_upkeep_table_files{table="a{}b\\"\\\\n"} 7' in lines
    assert "plake_upkeep_leads 0" in lines


def test_bytes_come_in_evenly_and_those_of_an_hour_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(3600)
    found = []
    for seconds, spent in ((0, 0), (10, 10), (5, 9), (5, 0), (3600, 5000), (1, 0), (2000, 0)):
        now[0] += seconds
        found.append(budget.most())
        budget.spend(spent)
    assert found == [0, 10, 5, 1, None, 0, 601]
    assert Budget(None).most() is None


@pytest.mark.one_catalog
def test_limits_of_bytes_and_memory_hold(
    catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = table(catalog, "t", 12)
    done = lake.maintain(catalog, compact=True, max_bytes_per_hour="1k")
    assert (len(dataset.refresh().files()), done.tables[1].behind["compact"][0]) == (12, 12)
    monkeypatch.setattr(running.pa, "total_allocated_bytes", lambda: 65 * 1024 * 1024)
    upkeep = Upkeep(catalog, Settings(compact=True, max_memory=64 * 1024 * 1024))
    # Whatever holds the memory, no rewriting goes on.
    with pytest.raises(lake.InvalidOptionError, match="max_memory"):
        upkeep.round()
    upkeep.release()


@pytest.mark.one_catalog
def test_what_cannot_be_is_refused_and_says_why(catalog: lake.Catalog, tmp_path: Path) -> None:
    for wrong, reason in (
        ({"every": "10x"}, "must be a time .* such as 90s, 10m"),
        ({"every": 0}, "must be a time"),
        ({"every": True}, "must be a time"),
        ({"max_bytes_per_hour": "much"}, "must be a size in bytes"),
        ({"max_memory": "1m"}, "must be at least 67108864"),
        ({"lease_seconds": 0}, "must be at least 1"),
        ({"keep_last": 0}, "must be at least 1"),
        ({"keep_seconds": -1}, "must be a number of seconds"),
        ({"retention_seconds": 5.0}, "allow_short_retention"),
    ):
        option = next(iter(wrong))
        with pytest.raises(lake.InvalidOptionError, match=f"(?s){option}.*{reason}|{reason}"):
            lake.maintain(catalog, **wrong)  # type: ignore[arg-type]
    with pytest.raises(lake.StorageError, match="cannot be written"):
        lake.maintain(catalog, metrics_file=tmp_path / "none" / "m.prom")
    with pytest.raises(lake.InvalidOptionError, match="keepVersions"):
        table(catalog, "t", keep_versions=0)
