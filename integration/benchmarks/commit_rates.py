"""One-row appends, each a commit of its own, by one, four and eight processes at once.

All systems write to the same disk, one after the other within a round. plake on SQLite and
PostgreSQL (whose log is synced), delta-rs, and DuckLake (catalog in SQLite), once with a
Parquet file for each append, as the others, and once as it comes, with the rows inside its
catalog. Ratios are rates: below 1 is slower than plake on SQLite. An append that raised
counts as failed, not as a commit. The milliseconds are those for which a commit of 100 files
keeps the other writers of its dataset out; "behind" is one that was overtaken just before.

    python integration/benchmarks/commits.py
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

from integration.benchmarks import commit_lock, commits
from integration.benchmarks.measure import Result, Scale, run_folder
from integration.benchmarks.rivals import ducklake_python
from tests.postgres_server import PostgresServer

FAMILY, OURS = "commits", "plake, SQLite"
WRITERS = (1, 4, 8)
FILES = 100
MOST_ROUNDS = 2  # a round takes two minutes


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    base = run_folder() / "commits"
    base.mkdir()
    server = PostgresServer()
    try:
        url = server.fresh_database()
        server.sync_to_disk(True)
        # The interpreter, the system's name in commits.py, and its last argument.
        systems = {
            OURS: (sys.executable, "plake", f"sqlite://{base}/plake-{{}}.db"),
            "plake, PostgreSQL": (sys.executable, "plake", url),
            "delta-rs": (sys.executable, "delta", ""),
        }
        try:
            duck = ducklake_python()
            systems["DuckLake, Parquet files"] = (duck, "ducklake", "")
            systems["DuckLake, rows in the catalog"] = (duck, "ducklake", "inlined")
        except RuntimeError as error:
            yield Result(FAMILY, "", "DuckLake", "commits/s", (), note=str(error))
        for writers in WRITERS[: 1 if scale.commit_seconds < 1 else None]:
            question = f"{writers} writer{'s' * (writers > 1)}"
            rates: dict[str, list[float]] = {name: [] for name in systems}
            failures = dict.fromkeys(systems, 0)
            for number in range(min(rounds, MOST_ROUNDS)):
                for name, (python, system, extra) in systems.items():
                    place = f"{writers}-{number}"
                    rate, failed = commits.measure(
                        python, system, base / f"{name}-{place}".replace(" ", "-"),
                        extra.format(place), writers, scale.commit_seconds,
                    )  # fmt: skip
                    rates[name].append(rate)
                    failures[name] += failed
            for name, values in rates.items():
                note = f"{failures[name]:,} appends failed" if failures[name] else ""
                base_name = None if name == OURS else OURS
                yield Result(
                    FAMILY, question, name, "commits/s", tuple(values), "", base_name, note
                )
        locks = 3 if scale.commit_seconds < 1 else 30
        for name, catalog, behind in (
            (OURS, f"sqlite://{base}/lock.db", False),
            ("plake, PostgreSQL", server.fresh_database(), False),
            ("plake, PostgreSQL, behind", server.fresh_database(), True),
        ):
            place = str(base / f"lock-{name}".replace(" ", "-"))
            taken = commit_lock.measure(catalog, place, FILES, locks, behind)
            yield Result(FAMILY, f"lock of {FILES} files", name, "ms", tuple(taken))
    finally:
        server.stop()
        shutil.rmtree(base, ignore_errors=True)
