"""From a condition to the data files that can hold a match, over many files.

The metadata is synthetic and the same for all: one row of statistics for each file (ten
row groups each with plake), committed 20,000 files at a time; ids and times ascend from
file to file, customers lie anywhere, `region` is a partition column of 100 values. No data
file exists, and only planning is timed. All keep their tables open. plake asks its catalog
for the newest version before each plan, which the rivals do not. "First" is the first plan of
a new process, after the imports and before any connection.

- DuckLake: catalog in SQLite, attached; a query up to where it opens its first data file.
- delta-rs, dataset: `to_pyarrow_dataset()` and its fragments that pass the filter.
- delta-rs, predicate: `file_uris(file_pruning_predicate=…)`, which newer versions have.
- PyIceberg: SQL catalog in SQLite, `table.scan(row_filter=…).plan_files()`.

    python -m integration.benchmarks --only planning
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from integration.benchmarks import planning, rivals
from integration.benchmarks.measure import Result, Scale, run_folder
from tests.postgres_server import PostgresServer

FAMILY = "planning"
OURS = "plake, SQLite"
SLOW_SECONDS = 2.0  # a rival this slow is asked once
# To build and to plan; where more is to be expected, a rival stops at the size below.
MOST_SECONDS = {"build": 90.0, "plan": 60.0}
Condition = list[tuple[str, str, Any]]


class Planner:
    """A process of `planners.py`."""

    def __init__(self, python: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name("planners.py")), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._read()

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Raises: RuntimeError: the system's own error."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in found:
            raise RuntimeError(str(found["error"]))
        return found


def questions(files: int) -> dict[str, Condition]:
    draw = random.Random(3)
    rows = files * planning.GROUPS * planning.ROWS
    start = planning.EPOCH_US + files // 2 * 1_000_000
    return {
        "clustered point": [("id", "=", rows // 2 + 12_345)],
        # A file for each second.
        "clustered range": [("at", ">=", start), ("at", "<=", start + 240_000_000)],
        "IN of 100": [("id", "IN", [draw.randrange(rows) for _ in range(100)])],
        "partition": [("region", "=", "r042"), ("id", "<", rows // 10)],
        "random column": [("customer", "=", planning.CUSTOMERS // 3)],
    }


def file_table(files: int) -> pa.Table:
    """The statistics of `planning.synthetic` for each file."""
    columns: dict[str, list[Any]] = {}
    names = {"id": 1, "at": 2, "customer": 3}
    for start in range(0, files, planning.BATCH):
        stop = min(start + planning.BATCH, files)
        for file in planning.synthetic(start, stop, names):
            low = json.loads(file.row_groups[0].stats_min_json)
            high = json.loads(file.row_groups[-1].stats_max_json)
            row = {"path": file.path, "region": json.loads(file.partitions["region"])}
            for name, number in names.items():
                row |= {f"{name}_low": low[str(number)], f"{name}_high": high[str(number)]}
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
    return pa.table(columns)


def matching(table: pa.Table, condition: Condition) -> frozenset[str]:
    """The files that can hold a match by their bounds, the plain way."""
    kept = pa.array([True] * table.num_rows)
    for name, op, value in condition:
        low, high = (
            table[name if name == "region" else f"{name}_{end}"] for end in ("low", "high")
        )
        if op == "IN":
            within = [pc.and_(pc.less_equal(low, v), pc.greater_equal(high, v)) for v in value]
            term = within[0]
            for one in within[1:]:
                term = pc.or_(term, one)
        elif op == "=":
            term = pc.and_(pc.less_equal(low, value), pc.greater_equal(high, value))
        elif op == ">=":
            term = pc.greater_equal(high, value)
        else:
            term = pc.less(low, value) if op == "<" else pc.less_equal(low, value)
        kept = pc.and_(kept, term)
    return frozenset(table["path"].filter(kept).to_pylist())


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    folder = run_folder() / "planning"
    folder.mkdir()
    server = PostgresServer()
    asked, missing = _rivals()
    for name, reason in missing.items():
        yield Result(FAMILY, "clustered point", name, "ms", (), "", None, reason)
    try:
        for files in scale.planning:
            place = folder / str(files)
            place.mkdir()
            # A folder belongs to one catalog.
            catalogs = {
                OURS: (f"sqlite:///{catalog_path(files)}", dataset_path(files)),
                "plake, PostgreSQL": (server.fresh_database(), f"{dataset_path(files)}-pg"),
            }
            fill(list(catalogs.values()), files)
            yield from _one_size(files, place, catalogs, asked, rounds)
            shutil.rmtree(place)
            if files != scale.memory_files:
                catalog_path(files).unlink()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def catalog_path(files: int) -> Path:
    """The SQLite catalog of so many files; the family `memory` uses the largest again."""
    return run_folder() / f"catalog-{files}.db"


def dataset_path(files: int) -> str:
    """Where those files would be."""
    return str(run_folder() / f"things-{files}")


def fill(catalogs: Sequence[tuple[str, str]], files: int) -> None:
    """Record the files in catalogs (URL and dataset), at a time, each by a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(catalogs), mp_context=spawn) as pool:
        started = time.perf_counter()
        for done in [pool.submit(planning.fill, *one, files) for one in catalogs]:
            done.result()
        print(f"{files:,} files filled in {time.perf_counter() - started:.0f} s", flush=True)


class Rival:
    """How to start a rival, and what it needed at the size before."""

    def __init__(self, python: str, kind: str, shares: str | None = None) -> None:
        self.python, self.kind = python, kind
        self.shares = shares  # the kind whose table it reads
        self.files, self.build_seconds, self.plan_seconds = 0, 0.0, 0.0

    def hopeless(self, files: int) -> str:
        """Why the size is left out; empty where it is not."""
        for what, needed in (("build", self.build_seconds), ("plan", self.plan_seconds)):
            expected = needed * files / self.files if self.files else 0.0
            if expected > MOST_SECONDS[what]:
                return (
                    f"not asked: at {self.files:,} files it took {needed:.1f} s to {what}, "
                    f"so about {expected:.0f} s here"
                )
        return ""


def _rivals() -> tuple[dict[str, Rival], dict[str, str]]:
    """The rivals that can be installed, and why the others cannot."""
    found: dict[str, Rival] = {}
    missing: dict[str, str] = {}
    for name, kind, interpreter in (
        ("DuckLake", "ducklake", rivals.ducklake_python),
        ("PyIceberg", "iceberg", rivals.pyiceberg_python),
    ):
        try:
            found[name] = Rival(interpreter(), kind)
        except RuntimeError as error:
            missing[name] = str(error)
    found["delta-rs, dataset"] = Rival(sys.executable, "delta")
    found["delta-rs, predicate"] = Rival(sys.executable, "delta-predicate", shares="delta")
    return found, missing


def _one_size(
    files: int,
    place: Path,
    catalogs: dict[str, tuple[str, str]],
    asked: dict[str, Rival],
    rounds: int,
) -> Iterator[Result]:
    size = f"{files:,} files"
    table = file_table(files)
    pq.write_table(table, place / "files.parquet")
    with contextlib.ExitStack() as stack:
        planners: dict[str, Planner] = {}
        for name, rival in asked.items():
            try:
                planners[name] = stack.enter_context(_built(rival, place, files))
            except RuntimeError as error:
                yield Result(FAMILY, "clustered point", name, "ms", (), size, OURS, str(error))
        for number, (question, condition) in enumerate(questions(files).items()):
            wanted = matching(table, condition)
            count = float(len(wanted))
            yield Result(FAMILY, question, "that can match", "files", (count,), size)
            ours = {}
            for name, (catalog, uri) in catalogs.items():
                # A new process for each first plan; more of them where a target depends on it.
                arguments = (sys.executable, "plake", uri, catalog)
                values = []
                for _ in range(1 if number else rounds):
                    with Planner(*arguments) as planner:
                        values.append(1000 * _checked(planner, condition, wanted))
                yield Result(FAMILY, question, f"{name}, first", "ms", tuple(values), size)
                ours[name] = stack.enter_context(Planner(*arguments))
            yield from _ask(question, condition, wanted, size, {**ours, **planners}, asked, rounds)


def _built(rival: Rival, place: Path, files: int) -> Planner:
    """The rival's process with its table built and open.

    Raises:
        RuntimeError: it would take too long, or the system's own error.
    """
    reason = rival.hopeless(files)
    if reason:
        raise RuntimeError(reason)
    planner = Planner(rival.python, rival.kind, str(place / (rival.shares or rival.kind)))
    try:
        took = 0.0
        if not (rival.shares and (place / rival.shares).exists()):
            took = float(planner.ask(build=str(place / "files.parquet"))["seconds"])
        planner.ask(open=True)
    except RuntimeError:
        planner.__exit__()
        raise
    rival.files, rival.build_seconds, rival.plan_seconds = files, took, 0.0
    return planner


def _checked(planner: Planner, condition: Condition, wanted: frozenset[str]) -> float:
    """Seconds of one of our plans, which must have exactly the files that can match."""
    answer = planner.ask(plan=condition)
    different = _difference(answer["found"], wanted)
    assert not different, f"{condition}: {different}"
    return float(answer["seconds"])


def _difference(found: int | str, wanted: frozenset[str]) -> str:
    """What is wrong with an answer: a number of files, or the path of the first one."""
    if isinstance(found, int):
        right = found == len(wanted)
        return "" if right else f"keeps {found:,} files where {len(wanted):,} can match"
    right = any(found.endswith(path) for path in wanted)
    return "" if right else "opens a file that cannot match"


def _ask(
    question: str,
    condition: Condition,
    wanted: frozenset[str],
    size: str,
    planners: dict[str, Planner],
    asked: dict[str, Rival],
    rounds: int,
) -> Iterator[Result]:
    """All systems in interleaved rounds, after one plan each that is not counted."""
    values: dict[str, list[float]] = {}
    notes = dict.fromkeys(planners, "")
    once: set[str] = set()
    for name, planner in planners.items():
        try:
            answer = planner.ask(plan=condition)
        except RuntimeError as error:
            notes[name] = str(error)
            continue
        values[name] = []
        notes[name] = _difference(answer["found"], wanted)
        assert not notes[name] or name in asked, f"{name}, {question}: {notes[name]}"
        if name in asked:
            asked[name].plan_seconds = max(asked[name].plan_seconds, answer["seconds"])
            if answer["seconds"] > SLOW_SECONDS:
                once.add(name)
                values[name] = [1000 * answer["seconds"]]
    for number in range(rounds):
        names = [name for name in values if name not in once]
        first = number % len(names)
        for name in names[first:] + names[:first]:
            values[name].append(1000 * planners[name].ask(plan=condition)["seconds"])
    for name in planners:
        base = None if name == OURS else OURS
        figures = tuple(values.get(name, ()))
        yield Result(FAMILY, question, name, "ms", figures, size, base, notes[name])
