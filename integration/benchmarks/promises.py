"""Writes to a dataset with constraints, beside the same writes without.

CHECK: rows of four columns from memory, one append for each time, by `write_dataset`. The
constraints compare a number, a text's length and two columns with each other.

Keys: 10,000 rows are appended to 1,000 files in the order of the key. New keys follow the last one,
or lie anywhere between the others, so that each file may hold some. Then 8 processes upsert rows of
2,000 keys, 10 in a commit, and repeat each commit that conflicts; a key that is there twice fails
the benchmark.

    python integration/benchmarks/promises.py
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks.measure import FULL, Result, Scale, interleaved, run_folder

FAMILY = "promises"
PLAIN, CHECKED = "no constraint", "three CHECKs"
CHECKS = ("price > 0", "length(code) = 8", "sold <= bought AND price < 1000000")


def _rows(count: int) -> pa.Table:
    draw = np.random.default_rng(7)
    bought = draw.integers(0, 1_000_000, count)
    return pa.table(
        {
            "price": draw.uniform(0.01, 1000, count),
            "code": pa.array(bought + 10_000_000).cast(pa.string()),
            "sold": bought // 2,
            "bought": bought,
        }
    )


UNKEYED, KEYED = "no key", "PRIMARY KEY"
FILES, NEW_ROWS, WRITERS = 1_000, 10_000, 8


def _keyed(ids: np.ndarray) -> pa.Table:
    return pa.table({"id": ids, "price": ids.astype(float)})


def _keys(scale: Scale, rounds: int, folder: Path) -> Iterator[Result]:
    rows, most = max(FILES, scale.write_rows * 10), 4 * rounds + 2
    step = 2 * most  # room between two keys
    names, draw = (UNKEYED, KEYED), np.random.default_rng(7)
    for name in names:
        layout = {"row_group_rows": rows // FILES, "target_file_size_bytes": 1}
        lake.write_dataset(_keyed(np.arange(1) - 1), folder / name, **layout)
    lake.open_dataset(folder / KEYED).add_constraint("pk", "PRIMARY KEY (id)")
    for name in names:
        parts = (np.arange(at, min(at + 1_000_000, rows)) for at in range(0, rows, 1_000_000))
        lake.write_dataset((_keyed(part * step) for part in parts), folder / name)
    new = min(NEW_ROWS, rows // 2)
    taken = dict.fromkeys(names, 0)

    def append(name: str, ids: Callable[[int], np.ndarray]) -> None:
        taken[name] += 1
        lake.write_dataset(_keyed(ids(taken[name])), folder / name, target_file_size_bytes=1 << 28)

    def ascending(turn: int) -> np.ndarray:
        return np.arange(new) + step * rows + turn * new

    def anywhere(turn: int) -> np.ndarray:
        return draw.choice(rows, new, replace=False) * step + turn

    for question, ids in (("keys ascending", ascending), ("keys anywhere", anywhere)):
        works = {name: partial(append, name, ids) for name in names}
        for work in works.values():
            work()
        times = interleaved(works, rounds)
        for name, base in ((UNKEYED, None), (KEYED, UNKEYED)):
            size = f"{rows:,} rows, {FILES:,} files"
            yield Result(FAMILY, question, name, "s", times[name], size, base)


def _upserts(folder: str, seed: int, seconds: float, ready: Any, answers: Any) -> None:
    draw, commits = random.Random(seed), 0
    dataset = lake.open_dataset(folder)
    dataset.scan("id = 0").to_table()
    ready.wait()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ids = draw.sample(range(2_000), 10)
        try:
            dataset.refresh().upsert({"id": ids, "price": [float(seed)] * 10})
            commits += 1
        except (lake.CommitConflictError, lake.ConstraintViolationError):
            continue  # another writer was first
    answers.put(commits)


def _writers(scale: Scale, rounds: int, folder: Path) -> Iterator[Result]:
    spawn = multiprocessing.get_context("spawn")
    rates = []
    for number in range(min(rounds, 3)):
        place = str(folder / f"upserts-{number}")
        lake.write_dataset(_keyed(np.arange(1)), place)
        lake.open_dataset(place).add_constraint("pk", "PRIMARY KEY (id)")
        ready, answers = spawn.Barrier(WRITERS), spawn.Queue()
        arguments = (scale.commit_seconds, ready, answers)
        running = [
            spawn.Process(target=_upserts, args=(place, seed, *arguments))
            for seed in range(WRITERS)
        ]
        for process in running:
            process.start()
        rates.append(sum(answers.get() for _ in running) / scale.commit_seconds)
        for process in running:
            process.join()
        ids = lake.read_dataset(place)["id"].to_pylist()
        assert len(ids) == len(set(ids)), "a key is there twice"
    yield Result(FAMILY, "8 writers upsert", KEYED, "commits/s", tuple(rates))


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    yield from _checks(scale, rounds)
    folder = run_folder() / FAMILY
    yield from _keys(scale, rounds, folder)
    yield from _writers(scale, rounds, folder)
    shutil.rmtree(folder)


def _checks(scale: Scale, rounds: int) -> Iterator[Result]:
    rows = _rows(min(1_000_000, scale.write_rows))
    folder = run_folder() / FAMILY
    for name in (PLAIN, CHECKED):
        lake.write_dataset(rows.slice(0, 1000), folder / name)
    dataset = lake.open_dataset(folder / CHECKED)
    for number, check in enumerate(CHECKS):
        dataset.add_constraint(f"check {number}", check)
    works = {name: partial(lake.write_dataset, rows, folder / name) for name in (PLAIN, CHECKED)}
    for work in works.values():
        work()
    times = interleaved(works, 3 * rounds)
    shutil.rmtree(folder)
    size = f"{rows.num_rows:,} rows"
    for name, base in ((PLAIN, None), (CHECKED, PLAIN)):
        yield Result(FAMILY, "append", name, "s", times[name], size, base)


if __name__ == "__main__":
    for found in run(FULL, 5):
        print(found.system, found.median, found.values)
