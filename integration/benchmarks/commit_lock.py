"""How long a commit of 100 files keeps the other writers of its dataset out.

From the moment at which the dataset's lock is granted until COMMIT has returned, with
everything that Python does in between. On PostgreSQL the clock starts before the statement
that locks is sent, which is earlier; on SQLite, whose only write lock is that of the file,
when BEGIN IMMEDIATE returns. "behind" is a commit that finds another one done between the
look at the dataset and the lock, and has to be rebased.

    python integration/benchmarks/commit_lock.py [--files 100] [--commits 30] [--folder /data]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import lakehouse_source as lake  # noqa: E402
from lakehouse_source.catalog.sql.writer import CatalogTransaction  # noqa: E402
from lakehouse_source.parquet.writer import write_files  # noqa: E402
from lakehouse_source.read.address import Address  # noqa: E402
from lakehouse_source.write.commit.begin import begin  # noqa: E402
from lakehouse_source.write.commit.commit import commit  # noqa: E402
from lakehouse_source.write.commit.options import WriteOptions  # noqa: E402


@contextmanager
def held(catalog: Any, before_lock: Callable[[], None] | None) -> Iterator[list[float]]:
    """The milliseconds of each lock that is taken in the block."""
    kind = type(catalog.database)
    begin_, commit_, lock = kind._begin, kind._commit, CatalogTransaction.lock_for
    is_file = catalog.url.startswith("sqlite")
    started = 0.0
    found: list[float] = []

    def beginning(self: Any, connection: Any, read_only: bool) -> None:
        nonlocal started
        begin_(self, connection, read_only)
        if is_file and not read_only:
            started = time.perf_counter()

    def locking(self: CatalogTransaction, *arguments: Any) -> Any:
        nonlocal started
        if before_lock is not None:
            before_lock()
        if not is_file:
            started = time.perf_counter()
        return lock(self, *arguments)

    def committing(self: Any, *arguments: Any) -> None:
        commit_(self, *arguments)
        found.append((time.perf_counter() - started) * 1000)

    kind._begin, kind._commit = beginning, committing
    CatalogTransaction.lock_for = locking  # type: ignore[method-assign]
    try:
        yield found
    finally:
        kind._begin, kind._commit = begin_, commit_
        CatalogTransaction.lock_for = lock  # type: ignore[method-assign]


def measure(url: str, target: str, files: int, commits: int, behind: bool) -> list[float]:
    """Milliseconds under the lock, of commits of `files` files of three columns each."""
    taken = []
    with lake.open_catalog(url) as catalog, lake.open_catalog(url) as other:
        one = pa.table({"part": [0], "id": [0], "value": [0.5], "name": ["x"]})
        lake.write_dataset(one, target, catalog=catalog, partition_by="part")
        address = Address(target, catalog)
        parts = list(range(files))
        original = CatalogTransaction.lock_for

        def overtake() -> None:
            # Its own lock is taken in the same way: it must not count.
            CatalogTransaction.lock_for = original  # type: ignore[method-assign]
            lake.write_dataset(one, target, catalog=other)

        for number in range(commits):
            rows = pa.table(
                {
                    "part": parts,
                    "id": [number * files + part for part in parts],
                    "value": [part / 7 for part in parts],
                    "name": [f"name {part}" for part in parts],
                }
            )
            options = WriteOptions()
            staged = begin(catalog, address, rows.schema, options)
            written = write_files(staged.spec, rows.to_batches())
            with held(catalog, overtake if behind else None) as found:
                commit(catalog, staged, written)
            taken.append(found[-1])
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--commits", type=int, default=30)
    parser.add_argument("--folder", default=None, help="on the disk to measure")
    arguments = parser.parse_args()
    from tests.postgres_server import PostgresServer

    postgres = PostgresServer()
    base = Path(tempfile.mkdtemp(prefix="lock-", dir=arguments.folder or ROOT))
    try:
        url = postgres.fresh_database()
        postgres.sync_to_disk(True)
        print(f"| lock of a commit of {arguments.files} files, ms | median | worst |")
        print("|---|--:|--:|")
        for name, catalog, behind in (
            ("SQLite", f"sqlite://{base}/catalog.db", False),
            ("PostgreSQL", url, False),
            ("PostgreSQL, behind", url, True),
        ):
            target = str(base / name.replace(", ", "-"))
            taken = measure(catalog, target, arguments.files, arguments.commits, behind)
            print(f"| {name} | {statistics.median(taken):.1f} | {max(taken):.1f} |", flush=True)
    finally:
        postgres.stop()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
