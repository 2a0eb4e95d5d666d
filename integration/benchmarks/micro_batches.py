"""50,000 small batches committed to one dataset, as a stream does in a day: does anything grow?

Every batch has 20 rows and an idempotency pair, as those of a stream's sink, and is written by a
process that keeps its connection. The dataset has `auto_compact`. Every 2,500 batches all but
the newest 500 versions are expired and the files are vacuumed, as a nightly job would do. In
the end the rows are compared with those that were written, each once.

Medians of each twentieth of the batches: the time of a batch, its time on a processor, and the
plan of a point query; the files of the newest version and the size of the catalog at its end.

    python integration/benchmarks/micro_batches.py [--batches 50000] [--without-compaction]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks.measure import Result, Scale, run_folder

FAMILY = "micro_batches"
BATCHES = 50_000
ROWS = 20
PARTS = 20
PLANS = 5
EXPIRE_EVERY = 2500
KEPT_VERSIONS = 500
APPLICATION = "stream"


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

    def results(self) -> Iterator[Result]:
        question = f"batches to {self.batches:,}"
        for system, unit, value in (
            ("batch", "ms", self.batch_ms),
            ("batch, processor", "ms", self.cpu_ms),
            ("plan of a point", "ms", self.plan_ms),
            ("slowest batch", "ms, slowest", self.slowest_ms),
            ("files", "files", self.live_files),
            ("catalog", "MiB", self.catalog_mib),
        ):
            yield Result(FAMILY, question, system, unit, (value,))


def batch(number: int) -> pa.Table:
    first = number * ROWS
    ids = pa.array(range(first, first + ROWS), pa.int64())
    return pa.table({"id": ids, "value": pc.multiply(ids.cast(pa.float64()), 0.5)})


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    """The figures of the report; there is one round whatever `rounds` is."""
    batches = BATCHES if scale.commit_seconds > 1 else 400
    with tempfile.TemporaryDirectory(dir=run_folder()) as folder:
        for one in measured(Path(folder), batches, compacts=True):
            yield from one.results()


def measured(folder: Path, batches: int, *, compacts: bool) -> Iterator[Measured]:
    """Commit the batches, and check in the end that each row is there once."""
    uri, catalog = os.path.join(folder, "events"), f"sqlite://{folder}/catalog.db"
    lake.write_dataset(batch(0).slice(0, 0), uri, catalog=catalog, auto_compact=compacts)
    size = max(1, batches // PARTS)
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
            yield Measured(
                batches=start + len(wall),
                batch_ms=median(wall),
                cpu_ms=median(cpu),
                slowest_ms=max(wall),
                plan_ms=median(plan(dataset, start) for _ in range(PLANS)),
                live_files=int(dataset.inspect.versions()["live_files"][0].as_py()),
                catalog_mib=catalog_bytes(catalog) / 2**20,
            )
    check(uri, catalog, batches)


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


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--without-compaction", action="store_true")
    options = parser.parse_args(arguments)
    print(
        f"{'batches':>8} {'batch ms':>9} {'cpu ms':>7} {'slowest':>8} {'plan ms':>8} "
        f"{'files':>6} {'catalog MiB':>12}"
    )
    with tempfile.TemporaryDirectory(prefix="plake-batches-") as folder:
        for one in measured(Path(folder), options.batches, compacts=not options.without_compaction):
            print(
                f"{one.batches:>8,} {one.batch_ms:>9.1f} {one.cpu_ms:>7.1f} "
                f"{one.slowest_ms:>8.0f} {one.plan_ms:>8.2f} {one.live_files:>6,} "
                f"{one.catalog_mib:>12.1f}",
                flush=True,
            )
    print(f"{options.batches * ROWS:,} rows, each once")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
