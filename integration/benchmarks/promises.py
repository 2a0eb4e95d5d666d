"""Writes to a dataset with constraints, beside the same writes without.

CHECK: rows of four columns from memory, one append for each time, by `write_dataset`. The
constraints compare a number, a text's length and two columns with each other.

Keys: 10,000 rows are appended to 1,000 files in the order of the key. New keys follow the last one,
or lie anywhere between the others, so that each file may hold some. Then 8 processes upsert rows of
2,000 keys, 10 in a commit, and repeat each commit that conflicts; a key that is there twice fails
the benchmark.

Identity: rows of eight columns through Spark into a table. The numbers of the first column are
Spark's own, or those that an identity column gives; a number that is there twice fails the
benchmark.

    python integration/benchmarks/promises.py [--only keys,writers] [--rows 1000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks.measure import FULL, Result, Scale, interleaved, ratio, run_folder
from integration.benchmarks.targets import TARGETS, judge

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


def _upserted(dataset: lake.Dataset, ids: list[int], seed: int) -> bool:
    """Tell whether an upsert was committed, and no other writer was first."""
    try:
        dataset.refresh().upsert({"id": ids, "price": [float(seed)] * len(ids)})
    except (lake.CommitConflictError, lake.ConstraintViolationError):
        return False
    return True


def _upserts(folder: str, seed: int, seconds: float, ready: Any, answers: Any) -> None:
    draw, commits = random.Random(seed), 0
    dataset = lake.open_dataset(folder)
    # The first commit of a process loads modules: each begins with one, of a key of its own.
    while commits < 1:
        commits += _upserted(dataset, [-1 - seed], seed)
    ready.wait()
    commits = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        commits += _upserted(dataset, draw.sample(range(2_000), 10), seed)
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
    times = tuple(1000 / rate for rate in rates)
    yield Result(FAMILY, "8 writers upsert", KEYED, "ms/commit, all together", times)


NUMBERED, GIVEN = "identity column", "numbers of Spark"


def _identity(scale: Scale, rounds: int, folder: Path) -> Iterator[Result]:
    from integration.benchmarks.spark_scan import session
    from integration.benchmarks.spark_write import COLUMNS

    folder.mkdir(parents=True, exist_ok=True)
    spark = lake.spark.enable(
        session(), catalog=f"sqlite:///{folder / 'lake.db'}", warehouse=str(folder)
    )
    try:
        spark.sql("CREATE NAMESPACE plake.numbers")
        rows = spark.range(scale.write_rows, numPartitions=2)
        rows = rows.selectExpr(*(f"{text} AS {name}" for name, text in COLUMNS.items()))
        columns = [f"{field.name} {field.dataType.simpleString()}" for field in rows.schema][1:]
        works: dict[str, Callable[[], object]] = {}
        for table, name, data, identity in (
            ("given", GIVEN, rows, ""),
            ("numbered", NUMBERED, rows.drop("id"), " GENERATED ALWAYS AS IDENTITY"),
        ):
            declared = ", ".join([f"id BIGINT{identity}", *columns])
            spark.sql(f"CREATE TABLE plake.numbers.{table} ({declared})")
            works[name] = data.writeTo(f"plake.numbers.{table}").append
        for work in works.values():
            work()
        times = interleaved(works, rounds)
        size = f"{scale.write_rows:,} rows"
        for name, base in ((GIVEN, None), (NUMBERED, GIVEN)):
            yield Result(FAMILY, "append through Spark", name, "s", times[name], size, base)
        query = "SELECT count(*) - count(DISTINCT id) FROM plake.numbers.numbered"
        assert spark.sql(query).first()[0] == 0, "a number is there twice"
    finally:
        spark.stop()


def run(scale: Scale, rounds: int, only: Collection[str] = ()) -> Iterator[Result]:
    folder = run_folder() / FAMILY
    parts = {"checks": _checks, "keys": _keys, "writers": _writers, "identity": _identity}
    for name, part in parts.items():
        if not only or name in only:
            yield from part(scale, rounds, folder / name)
            shutil.rmtree(folder / name)


def _checks(scale: Scale, rounds: int, folder: Path) -> Iterator[Result]:
    rows = _rows(min(1_000_000, scale.write_rows))
    for name in (PLAIN, CHECKED):
        lake.write_dataset(rows.slice(0, 1000), folder / name)
    dataset = lake.open_dataset(folder / CHECKED)
    for number, check in enumerate(CHECKS):
        dataset.add_constraint(f"check {number}", check)
    works = {name: partial(lake.write_dataset, rows, folder / name) for name in (PLAIN, CHECKED)}
    for work in works.values():
        work()
    times = interleaved(works, 3 * rounds)
    size = f"{rows.num_rows:,} rows"
    for name, base in ((PLAIN, None), (CHECKED, PLAIN)):
        yield Result(FAMILY, "append", name, "s", times[name], size, base)


def _table(results: Sequence[Result]) -> Iterator[str]:
    """The figures, their ratios and what the targets say of them, line by line."""
    times = {(one.question, one.system): one.values for one in results}
    for one in results:
        base = None if one.base is None else ratio(one.values, times[one.question, one.base])
        compared = "" if base is None else f"{base.median:.2f} x ({base.low:.2f}–{base.high:.2f})"
        what = f"{one.question} ({one.size})" if one.size else one.question
        yield f"{what:48} {one.system:18} {one.median:9.4f} {one.unit:24} {compared}"
    for verdict in judge(results, [one for one in TARGETS if one.family == FAMILY]):
        met = {True: "met", False: "NOT met", None: "not measured"}[verdict.met]
        yield f"{verdict.target.text}: {verdict.figure}, {met}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="parts, with commas between")
    parser.add_argument("--rows", type=int, default=FULL.write_rows)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    scale = replace(FULL, write_rows=given.rows)
    results = [*run(scale, given.rounds, [name for name in given.only.split(",") if name])]
    print(*_table(results), sep="\n")


if __name__ == "__main__":
    main()
