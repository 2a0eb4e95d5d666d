"""One-row appends per second: plake on SQLite and PostgreSQL, delta-rs, DuckLake.

Each writer is a process of its own that keeps its connection and appends one row
after the other, each append a commit. All systems write to the same disk; the
PostgreSQL server here syncs its log. DuckLake runs in a virtual environment of its
own (its extensions need a DuckDB of their own version), once with a Parquet file for
each append, as the others, and once as it comes, with rows inside its catalog.

    python integration/benchmarks/commits.py [--seconds 5] [--writers 1,4,8] [--folder /data]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
DUCKLAKE = (
    "duckdb==1.5.5",
    "duckdb-extensions",
    "duckdb-extension-ducklake",
    "duckdb-extension-sqlite-scanner",
    "pyarrow",
)


# --- one writer -------------------------------------------------------------------


def plake(target: str, url: str) -> Callable[[int], None]:
    import pyarrow as pa

    import lakehouse_source as lake

    catalog = lake.open_catalog(url)
    return lambda number: lake.write_dataset(_row(pa, number), target, catalog=catalog) and None


def delta(target: str, _: str) -> Callable[[int], None]:
    import pyarrow as pa
    from deltalake import write_deltalake

    return lambda number: write_deltalake(target, _row(pa, number), mode="append")


def ducklake(target: str, inlined: str) -> Callable[[int], None]:
    import duckdb
    from duckdb_extensions import import_extension

    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name)
    connection = duckdb.connect()
    limit = "" if inlined else ", DATA_INLINING_ROW_LIMIT 0"
    connection.execute("LOAD ducklake")
    connection.execute("LOAD sqlite_scanner")
    connection.execute(
        f"ATTACH 'ducklake:sqlite:{target}/meta.sqlite' AS lake (DATA_PATH '{target}/data'{limit})"
    )
    connection.execute("CREATE TABLE IF NOT EXISTS lake.t (id BIGINT, value DOUBLE, name VARCHAR)")

    def append(number: int) -> None:
        connection.execute("INSERT INTO lake.t VALUES (?, ?, ?)", [number, number / 2, "x"])

    return append


def _row(pa: Any, number: int) -> Any:
    return pa.table({"id": [number], "value": [number / 2], "name": ["x"]})


WRITERS = {"plake": plake, "delta": delta, "ducklake": ducklake}


def write(system: str, target: str, extra: str, start: float, seconds: float) -> None:
    """Append until the time is over; print how many commits there were and how many failed."""
    append = WRITERS[system](target, extra)
    time.sleep(max(0.0, start - time.time()))
    commits = failures = 0
    reasons: set[str] = set()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            append(commits)
            commits += 1
        except Exception as error:  # each system has errors of its own
            failures += 1
            reasons.add(f"{type(error).__name__}: {error}"[:160])
    print(json.dumps({"commits": commits, "failures": failures, "reasons": sorted(reasons)}))


# --- all of them ----------------------------------------------------------------------


def measure(
    python: str, system: str, target: Path, extra: str, writers: int, seconds: float
) -> tuple[float, int]:
    """Commits per second of so many writers together, and how many appends failed."""
    target.mkdir(parents=True, exist_ok=True)
    command = [python, str(HERE), "--write", system, str(target), extra]
    # The first one makes the tables.
    subprocess.run([*command, "0", "0.2"], check=True, capture_output=True, cwd=ROOT)
    start = time.time() + 1.5 + 0.5 * writers
    running = [
        subprocess.Popen(
            [*command, str(start), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        for _ in range(writers)
    ]
    commits = failures = 0
    for process in running:
        output, errors = process.communicate(timeout=seconds + 300)
        if process.returncode:
            raise RuntimeError(f"{system}: {errors[-500:]}")
        answer = json.loads(output.splitlines()[-1])
        commits += answer["commits"]
        failures += answer["failures"]
        for reason in answer["reasons"][:1]:
            print(f"  {system}, {writers} writers: {reason}", file=sys.stderr)
    return commits / seconds, failures


def ducklake_python(folder: Path) -> str | None:
    """The interpreter of an environment with DuckLake; None where it cannot be made."""
    python = folder / "bin" / "python"
    if not python.exists():
        try:
            venv.create(folder, with_pip=True)
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", *DUCKLAKE],
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"DuckLake cannot be installed here: {error}", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
            return None
    return str(python)


def table(results: dict[str, dict[int, tuple[float, int]]], counts: list[int]) -> str:
    """The figures as Markdown; ratios are plake on SQLite to the system of the row."""
    head = [f"{n} writer{'s' * (n > 1)}/s | failed | ratio" for n in counts]
    lines = [f"| | {' | '.join(head)} |", "|---|" + "--:|" * 3 * len(counts)]
    ours = results["plake, SQLite"]
    for name, figures in results.items():
        cells = []
        for n in counts:
            rate, failures = figures[n]
            ratio = f"{ours[n][0] / rate:.2f}" if rate else "–"
            cells.append(f"{rate:,.0f} | {failures} | {ratio}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--writers", default="1,4,8")
    parser.add_argument("--folder", default=None, help="on the disk to measure")
    parser.add_argument("--ducklake", default=None, help="folder of DuckLake's environment")
    parser.add_argument("--write", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        system, target, extra, start, seconds = arguments.write
        write(system, target, extra, float(start), float(seconds))
        return
    sys.path.insert(0, str(ROOT))
    from tests.postgres_server import PostgresServer

    counts = [int(n) for n in arguments.writers.split(",")]
    duck = ducklake_python(Path(arguments.ducklake or Path(sys.prefix) / "ducklake"))
    postgres = PostgresServer()
    base = Path(tempfile.mkdtemp(prefix="commits-", dir=arguments.folder or ROOT))
    try:
        url = postgres.fresh_database()
        postgres.sync_to_disk(True)
        systems = [
            ("plake, SQLite", sys.executable, "plake", f"sqlite://{base}/plake-{{}}.db"),
            ("plake, PostgreSQL", sys.executable, "plake", url),
            ("delta-rs", sys.executable, "delta", ""),
        ]
        if duck is not None:
            systems.append(("DuckLake, Parquet files", duck, "ducklake", ""))
            systems.append(("DuckLake, rows in the catalog", duck, "ducklake", "inlined"))
        results: dict[str, dict[int, tuple[float, int]]] = {}
        for name, python, system, extra in systems:
            results[name] = {}
            for n in counts:
                target = base / f"{len(results)}-{n}"
                results[name][n] = measure(
                    python, system, target, extra.format(n), n, arguments.seconds
                )
        print(table(results, counts))
    finally:
        postgres.stop()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
