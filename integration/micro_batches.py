"""Commits many small batches to one dataset, as a stream does, and shows that nothing grows.

    python integration/micro_batches.py [--batches 50000] [--without-compaction]

Every batch is written and committed as the sink of a stream does it: with an idempotency pair, by
a writer that keeps its connection. The dataset has `auto_compact`, and its versions are
expired and its files vacuumed now and then, as a nightly job would. It prints, for each twentieth
of the batches, medians of the time of a batch and of the plan of a point query, and the sizes of
the dataset and its catalog. It ends with an error where a row is lost or doubled.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

import lakehouse_source as lake

ROWS = 20
PARTS = 20
PLANS = 5
EXPIRE_EVERY = 2500
KEPT_VERSIONS = 500
APPLICATION = "stream"
BAR = 30


@dataclass(frozen=True, slots=True)
class Measured:
    """One part of the run: medians in milliseconds, sizes at its end."""

    batches: int
    batch_ms: float
    cpu_ms: float
    slowest_ms: float
    plan_ms: float
    live_files: int
    catalog_mib: float


def batch(number: int) -> pa.Table:
    first = number * ROWS
    ids = pa.array(range(first, first + ROWS), pa.int64())
    return pa.table({"id": ids, "value": pc.multiply(ids.cast(pa.float64()), 0.5)})


def run(uri: str, catalog: str, batches: int, compacts: bool) -> list[Measured]:
    lake.write_dataset(batch(0).slice(0, 0), uri, catalog=catalog, auto_compact=compacts)
    size = max(1, batches // PARTS)
    found = []
    with lake.open_catalog(catalog) as opened:
        for start in range(0, batches, size):
            wall, cpu = [], []
            for number in range(start, min(start + size, batches)):
                before, busy = time.perf_counter(), time.process_time()
                lake.write_dataset(
                    batch(number), uri, catalog=opened, txn_app_id=APPLICATION, txn_version=number
                )
                wall.append((time.perf_counter() - before) * 1000)
                cpu.append((time.process_time() - busy) * 1000)
                if number % EXPIRE_EVERY == EXPIRE_EVERY - 1:
                    keep_house(uri, opened)
            dataset = lake.open_dataset(uri, catalog=opened)
            found.append(
                Measured(
                    batches=start + len(wall),
                    batch_ms=median(wall),
                    cpu_ms=median(cpu),
                    slowest_ms=max(wall),
                    plan_ms=median(plan(dataset, start) for _ in range(PLANS)),
                    live_files=int(dataset.inspect.versions()["live_files"][0].as_py()),
                    catalog_mib=catalog_bytes(catalog) / 2**20,
                )
            )
            show(found[-1:], header=len(found) == 1)
    return found


def keep_house(uri: str, catalog: lake.Catalog) -> None:
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.expire_versions(keep_last=KEPT_VERSIONS)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, progress=False)


def plan(dataset: lake.Dataset, number: int) -> float:
    before = time.perf_counter()
    dataset.refresh().scan(f"id = {number * ROWS}").fragments()
    return (time.perf_counter() - before) * 1000


def catalog_bytes(catalog: str) -> int:
    path = Path(catalog.removeprefix("sqlite://"))
    return sum(one.stat().st_size for one in path.parent.glob(path.name + "*"))


def check(uri: str, catalog: str, batches: int) -> None:
    """Compare the rows with those that were written."""
    found = lake.open_dataset(uri, catalog=catalog).scan().to_table()
    ids = sorted(found["id"].to_pylist())
    if ids != list(range(batches * ROWS)):
        raise SystemExit(f"rows were lost or doubled: {len(ids):,} for {batches * ROWS:,}")
    if pc.any(pc.not_equal(found["value"], pc.multiply(found["id"].cast("double"), 0.5))).as_py():
        raise SystemExit("values are wrong")


def show(found: Sequence[Measured], *, header: bool) -> None:
    if header:
        print(
            f"{'batches':>8} {'batch ms':>9} {'cpu ms':>7} {'slowest':>8} {'plan ms':>8} "
            f"{'files':>6} {'catalog MiB':>12}"
        )
    for one in found:
        print(
            f"{one.batches:>8,} {one.batch_ms:>9.1f} {one.cpu_ms:>7.1f} {one.slowest_ms:>8.0f} "
            f"{one.plan_ms:>8.2f} {one.live_files:>6,} {one.catalog_mib:>12.1f}",
            flush=True,
        )


def plot(found: Sequence[Measured]) -> None:
    """The processor time of a batch and the time of a plan, as bars."""
    for label, values in (
        ("processor time of a batch, ms", [one.cpu_ms for one in found]),
        ("plan of a point query, ms", [one.plan_ms for one in found]),
    ):
        print(f"\n{label}")
        for one, value in zip(found, values):
            print(f"{one.batches:>8,} {'#' * round(BAR * value / max(values)):<{BAR}} {value:.2f}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batches", type=int, default=50_000)
    parser.add_argument("--without-compaction", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="plake-batches-") as folder:
        uri, catalog = os.path.join(folder, "events"), f"sqlite://{folder}/catalog.db"
        found = run(uri, catalog, options.batches, not options.without_compaction)
        plot(found)
        check(uri, catalog, options.batches)
    print(f"\n{options.batches * ROWS:,} rows, each once")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
