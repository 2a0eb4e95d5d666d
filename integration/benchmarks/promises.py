"""Appends to a dataset with CHECK constraints, beside the same appends without.

Rows of four columns from memory, one append for each time, by `write_dataset`. The constraints
compare a number, a text's length and two columns with each other.

    python integration/benchmarks/promises.py
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

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


def run(scale: Scale, rounds: int) -> Iterator[Result]:
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
