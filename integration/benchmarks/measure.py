"""What every benchmark shares: timing in interleaved rounds, and the record of a result.

Two systems are compared within one round, one right after the other, so that a
machine that is busy for a while slows both. Who goes first changes with the round.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# Of each session of Spark that is measured, also where plake cannot be imported.
SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything. `planning` are numbers of files."""

    tpch: float
    planning: tuple[int, ...]
    memory_files: int
    point_rows: int
    wide_rows: int
    small_files: int
    write_rows: int
    commit_seconds: float
    layout_rows: int
    memory_stream_gib: float


FULL = Scale(1.0, (1_000, 10_000, 100_000, 1_000_000), 1_000_000, 5_000_000, 600_000, 2_000,
             10_000_000, 3.0, 1_000_000, 10.0)  # fmt: skip
QUICK = Scale(0.01, (1_000, 2_000), 2_000, 200_000, 20_000, 100, 50_000, 0.5, 50_000, 0.1)


@dataclass(frozen=True, slots=True)
class Result:
    """What one system needed for one question, round by round.

    `values` are in `unit`; empty where there is no figure, and then `note` says
    why. `base` names the system of the same family, size, question and unit that
    ratios are taken to; None means that there is nothing to compare with.
    """

    family: str
    question: str
    system: str
    unit: str
    values: tuple[float, ...]
    size: str = ""
    base: str | None = None
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def to_json(result: Result) -> str:
    return json.dumps(asdict(result))


def from_json(line: str) -> Result:
    return from_fields(json.loads(line))


def from_fields(fields: Mapping[str, Any]) -> Result:
    return Result(**{**fields, "values": tuple(fields["values"])})


class Ratio(NamedTuple):
    """The median of the rounds' ratios, and the smallest and largest of them."""

    median: float
    low: float
    high: float


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Mine to theirs, round by round; None where one of them has no figures.

    Where the numbers of rounds differ (a slow rival has fewer) no two values belong
    together: the ratio is that of the medians, its limits are the widest possible.
    """
    if not mine or not theirs or min(theirs) <= 0:
        return None
    if len(mine) != len(theirs):
        middle = statistics.median(mine) / statistics.median(theirs)
        return Ratio(middle, min(mine) / max(theirs), max(mine) / min(theirs))
    each = [a / b for a, b in zip(mine, theirs)]
    return Ratio(statistics.median(each), min(each), max(each))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rounds_for(work: Callable[[], object], rounds: int) -> int:
    """Three times as many rounds for brief work: it varies by a third from round to round."""
    return 3 * rounds if seconds(work) < 0.5 else rounds


def interleaved(
    works: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, tuple[float, ...]]:
    """Seconds of each work in each round."""
    names = list(works)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(seconds(works[name]))
    return {name: tuple(values) for name, values in times.items()}


def agree(question: str, works: Mapping[str, Callable[[], Any]]) -> Any:
    """Run each work once, which warms it up too; the answer that all give.

    Raises:
        AssertionError: two answers differ; a time would mean nothing.
    """
    answers = {name: work() for name, work in works.items()}
    first = next(iter(answers.values()))
    different = {name: str(answer)[:300] for name, answer in answers.items() if answer != first}
    if different:
        raise AssertionError(f"{question}: not {str(first)[:300]}: {different}")
    return first


# --- places -----------------------------------------------------------------------


def data_folder() -> Path:
    """Where generated data is kept from run to run: `PLAKE_BENCH_DATA`, or a cache folder."""
    named = os.environ.get("PLAKE_BENCH_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(named) if named else cache / "plake-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def run_folder() -> Path:
    """Where a run keeps what its families share, such as a large catalog; gone after the run."""
    named = os.environ.get("PLAKE_BENCH_RUN")
    if named is None:
        # A benchmark that was started by itself.
        named = os.environ["PLAKE_BENCH_RUN"] = str(data_folder() / f"run-{os.getpid()}")
        atexit.register(shutil.rmtree, named, ignore_errors=True)
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
