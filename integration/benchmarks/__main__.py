"""Run the benchmarks and write the report.

    python -m integration.benchmarks [--quick] [--only planning,spark] [--rounds 5]
                                     [--report integration/benchmarks/report.md]

Each family runs in a process of its own: one that fails is named in the report and
takes no other with it. A family that is left out is reported from its last run on this
machine: each section says when it was measured, and which commit. Data is kept in the
folder that `PLAKE_BENCH_DATA` names, by default `~/.cache/plake-bench`. With `--quick`
everything is small and each question is asked once: it says whether the benchmarks work,
its figures mean nothing; without `--report` it writes to that folder.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import importlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from integration.benchmarks import machine, measure, plots, report
from integration.benchmarks.measure import FULL, QUICK, ROOT, Result

HERE = Path(__file__).parent


class Family(NamedTuple):
    """A module with `run(scale, rounds)`; its docstring says in the report how it measures."""

    module: str
    title: str
    limit_seconds: int


FAMILIES = {
    "planning": Family("planning_rivals", "Planning over many files", 1500),
    "spark": Family("spark_scan", "Reads through Spark", 4800),
    "parts": Family("query_parts", "Where the time of a query goes", 1500),
    "statements": Family("statements", "What a statement costs", 1800),
    "python": Family("python_reads", "Reads from Python", 600),
    "engines": Family("rest_catalog", "Other engines through the REST catalog", 1200),
    "writes": Family("writes", "Writes", 900),
    "commits": Family("commit_rates", "Small commits", 600),
    "changes": Family("row_changes", "Rows that change", 900),
    "promises": Family("promises", "Constraints", 600),
    "iceberg": Family("iceberg_spark", "Iceberg's own Spark runtime", 1800),
    "streams": Family("streams", "Streams", 900),
    "micro_batches": Family("micro_batches", "A stream of 50,000 batches", 1800),
    "memory": Family("memory", "Memory", 900),
    "layout": Family("layout", "Clustering", 2400),
    "variant": Family("variants", "Documents", 3600),
    "row_groups": Family("row_group_rows", "Row groups and codecs", 300),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small, one round: a smoke run")
    parser.add_argument("--only", default=",".join(FAMILIES), help="families, with commas between")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--family", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    if arguments.family:
        name, file = arguments.family
        run_family(name, Path(file), arguments.quick, rounds)
        return
    names = arguments.only.split(",")
    unknown = sorted(set(names) - set(FAMILIES))
    if unknown:
        parser.error(f"no such family: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    target = arguments.report or _default_report(arguments.quick, names)
    failed = run_all(names, target, arguments.quick, rounds)
    print(f"{target}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    sys.exit(bool(failed))


def _default_report(quick: bool, names: list[str]) -> Path:
    """Only a whole run replaces the report in the repository."""
    whole = not quick and set(names) == set(FAMILIES)
    return (HERE if whole else measure.data_folder() / "partial") / "report.md"


def run_all(names: list[str], target: Path, quick: bool, rounds: int) -> list[str]:
    """Run the families and write the report; the names of those that failed."""
    # As pip does for what it installs, the rivals among it. Where Python writes no bytecode, every
    # process would compile the modules that it uses.
    compileall.compile_dir(ROOT / "lakehouse_source", quiet=1)
    head = machine.facts()
    shared = measure.data_folder() / f"run-{os.getpid()}"
    kept = shared / "sections" if quick else measure.data_folder() / "sections"
    shared.mkdir()
    kept.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PLAKE_BENCH_RUN": str(shared)}
    started = time.perf_counter()
    failed = []
    try:
        for name in names:
            section = _section(name, shared, quick, rounds, environment)
            (kept / f"{name}.json").write_text(section.to_json())
            failed += [name] if section.failure else []
        sections = [
            report.Section.from_json(file.read_text())
            for family in FAMILIES
            if (file := kept / f"{family}.json").exists()
        ]
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    head["command"] = f"`python -m integration.benchmarks {shlex.join(sys.argv[1:])}`".replace(
        " `", "`"
    )
    head["run"] = f"{rounds} rounds, {(time.perf_counter() - started) / 60:.0f} minutes"
    head["load after the run"] = f"{os.getloadavg()[0]:.1f}"
    if quick:
        head["quick"] = "a smoke run: the sizes are small, the figures mean nothing"
    pictures = {}
    for section in sections:
        path = target.parent / "plots" / f"{section.name}.png"
        if plots.plot(section.title, section.results, path):
            pictures[section.name] = f"plots/{section.name}.png"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(report.markdown(sections, head, pictures))
    return failed


def _section(
    name: str, shared: Path, quick: bool, rounds: int, environment: dict[str, str]
) -> report.Section:
    """Run a family in a process of its own; what it measured before it failed counts."""
    family = FAMILIES[name]
    lines, log = shared / f"{name}.jsonl", shared / f"{name}.log"
    lines.touch()
    command = [sys.executable, "-W", "ignore", "-m", "integration.benchmarks"]
    command += ["--family", name, str(lines), "--rounds", str(rounds)]
    command += ["--quick"] if quick else []
    print(f"{name} …", flush=True)
    started = time.perf_counter()
    run = f"Run at {machine.now()}, {machine.commit()}, {rounds} rounds, load {machine.load()}."
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(family.limit_seconds)
            failure = f"exit code {code}: {log.read_text()[-2000:]}" if code else ""
        except subprocess.TimeoutExpired:
            failure = f"stopped after {family.limit_seconds} s"
        finally:
            _end(process)
    took = time.perf_counter() - started
    print(f"{name}: {took:.0f} s{'; FAILED: ' + failure if failure else ''}", flush=True)
    results = tuple(measure.from_json(line) for line in lines.read_text().splitlines())
    return report.Section(name, family.title, _about(family), results, took, failure, run)


def _about(family: Family) -> str:
    """The module's docstring up to its command line; read, not imported: it may be broken."""
    text = ast.get_docstring(ast.parse((HERE / f"{family.module}.py").read_text())) or ""
    return text.split("\n\n    python")[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the family's process, and whatever it started and left, such as a JVM."""
    if process.poll() is None:
        # It stops its own servers; those may be in a group of their own.
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_family(name: str, file: Path, quick: bool, rounds: int) -> None:
    """Write each result to the file as soon as it is there."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    module = importlib.import_module(f"integration.benchmarks.{FAMILIES[name].module}")
    with file.open("a") as lines:
        result: Result
        for result in module.run(QUICK if quick else FULL, rounds):
            print(f"{result.size} {result.question}, {result.system}: {result.values}", flush=True)
            lines.write(measure.to_json(result) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
