"""Peak memory: of planning, of a Python process that writes a stream, of Spark's workers.

Planning: a new process turns all files of a synthetic catalog into scan tasks; the peak is
what its resident memory reached above what it was after the imports. Streams: a new process writes
10 GiB of Arrow batches that it makes one by one (`memory_stream_gib`); the peak is all that its
resident memory ever was. Workers: the largest
resident memory (`VmHWM`) of any Python process that Spark starts, each job in new ones, over
TPC-H lineitem (scale 1 by default); "nothing" is a worker that passes ten rows through, the
floor of the others.

    python -m integration.benchmarks --only memory
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from integration.benchmarks.measure import ROOT, Result, Scale, data_folder, run_folder

FAMILY = "memory"
SAMPLE_SECONDS = 0.02
# So much of the machine's memory a plan may ask for; more is a result too.
SHARE = 0.7


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    yield from driver(scale)
    yield from streams(scale)
    yield from workers(scale)


# --- the driver -------------------------------------------------------------------


def driver(scale: Scale) -> Iterator[Result]:
    from integration.benchmarks import planning_rivals

    files = scale.memory_files
    size = f"{files:,} files"
    catalog, uri = planning_rivals.catalog_path(files), planning_rivals.dataset_path(files)
    if not catalog.exists():
        planning_rivals.fill([(f"sqlite:///{catalog}", uri)], files)
    command = [sys.executable, __file__, f"sqlite:///{catalog}", uri, str(files)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    question, system = "plan all files", "plake, SQLite"
    if done.returncode:
        note = f"it failed: {done.stderr.strip()[-300:]}"
        yield Result(FAMILY, question, system, "MiB", (), size, note=note)
        return
    mebibytes, seconds = json.loads(done.stdout)
    yield Result(FAMILY, question, system, "MiB", (mebibytes,), size)
    yield Result(FAMILY, question, system, "s", (seconds,), size)


def plan_all(catalog: str, uri: str, files: int) -> None:
    """In a process of its own; prints MiB above the start, and seconds."""
    import lakehouse_source as lake

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = int(SHARE * total)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    open_dataset = lake.open_dataset  # imports what `lake` does not
    start = _resident_kib("VmRSS")
    # The imports may have needed more for a moment.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    started = time.perf_counter()
    found = open_dataset(uri, catalog=catalog).scan().plan().tasks
    took = time.perf_counter() - started
    assert len(found) == files, f"{len(found)} tasks"
    print(json.dumps([(_resident_kib("VmHWM") - start) / 1024, took]))


def _resident_kib(what: str, pid: int | str = "self") -> int:
    """A line of /proc/PID/status; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{what}:")), 0)


# --- a stream of batches ----------------------------------------------------------

STREAMS: dict[str, dict[str, str]] = {
    "write a stream": {},
    "write a stream, partitioned": {"partition_by": "part"},
    "write a stream, sorted": {"sort_by": "amount"},
}


def streams(scale: Scale) -> Iterator[Result]:
    size = f"{scale.memory_stream_gib:g} GiB"
    for question in STREAMS:
        target = run_folder() / "memory-stream"
        command = [sys.executable, __file__, "stream", question, str(target)]
        try:
            done = subprocess.run(
                [*command, str(scale.memory_stream_gib)], capture_output=True, text=True, cwd=ROOT
            )
        finally:
            shutil.rmtree(target, ignore_errors=True)
        if done.returncode:
            note = f"it failed: {done.stderr.strip()[-300:]}"
            yield Result(FAMILY, question, "plake", "MiB", (), size, note=note)
            continue
        mebibytes, seconds = json.loads(done.stdout)
        yield Result(FAMILY, question, "plake", "MiB", (mebibytes,), size)
        yield Result(FAMILY, question, "plake", "s", (seconds,), size)


def write_stream(question: str, uri: str, gibibytes: float) -> None:
    """In a process of its own; prints the peak of its resident memory in MiB, and seconds."""
    import numpy as np
    import pyarrow as pa

    import lakehouse_source as lake

    rows, draw = 65_536, np.random.default_rng(1)
    texts = pa.array([f"{number:040d}" for number in range(1000)])
    parts = pa.array([f"part {number}" for number in range(50)])

    def batch(number: int) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "id": pa.array(np.arange(number * rows, (number + 1) * rows)),
                "part": parts.take(pa.array(draw.integers(0, 50, rows))),
                "amount": pa.array(draw.integers(0, 100_000, rows) / 4),
                "price": pa.array(draw.random(rows)),
                "text": texts.take(pa.array(draw.integers(0, 1000, rows))),
            }
        )

    count = int(gibibytes * 2**30 / batch(0).nbytes)
    reader = pa.RecordBatchReader.from_batches(batch(0).schema, map(batch, range(count)))
    started = time.perf_counter()
    written = lake.write_dataset(reader, uri, progress=False, **STREAMS[question])
    took = time.perf_counter() - started
    assert written.row_count == count * rows, f"{written.row_count} rows"
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([peak_kib / 1024, took]))


# --- Spark's Python workers -------------------------------------------------------


def workers(scale: Scale) -> Iterator[Result]:
    from integration.benchmarks import data, spark_scan

    dataset = data.lineitem_plake(data_folder(), scale.tpch)
    target = run_folder() / "memory-writes"
    size = f"TPC-H scale {scale.tpch:g}"
    settings = {"spark.python.worker.reuse": "false"}
    spark = spark_scan.session(**settings)
    try:
        extended = spark_scan.with_extension(spark)
        rows = spark.read.parquet(*data.paths(dataset))

        def read(session: Any) -> Callable[[], object]:
            frame = session.read.format("plake").load(str(dataset))
            return lambda: frame.write.format("noop").mode("overwrite").save()

        def write(name: str, **options: str) -> Callable[[], object]:
            writer = rows.write.format("plake").mode("append").options(**options)
            return lambda: writer.save(str(target / name))

        nothing = spark.range(10).mapInArrow(lambda batches: batches, "id long")
        jobs: dict[str, Callable[[], object]] = {
            "nothing": nothing.collect,
            "full scan, stock": read(spark),
            "full scan, extension": read(extended),
            "append": write("plain"),
            "append, partitioned by ship mode": write("parts", partitionBy="l_shipmode"),
        }
        for question, job in jobs.items():
            with Peak() as peak:
                job()
            yield Result(FAMILY, question, "largest Python worker", "MiB", (peak.mebibytes,), size)
    finally:
        spark.stop()
        shutil.rmtree(target, ignore_errors=True)


class Peak:
    """The largest resident memory of any Python process below this one, while it is open."""

    def __init__(self) -> None:
        self.mebibytes = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            for pid in _python_children():
                self.mebibytes = max(self.mebibytes, _resident_kib("VmHWM", pid) / 1024)


def _python_children() -> list[int]:
    """Processes below this one whose program is Python."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # pid (name) state parent …; a name may hold blanks and brackets.
                head, _, tail = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
                parents[int(entry)] = int(tail.split()[1])
                names[int(entry)] = head.partition("(")[2]
    below = {os.getpid()}
    found: list[int] = []
    waiting = True
    while waiting:
        waiting = False
        for pid, parent in parents.items():
            if parent in below and pid not in below:
                below.add(pid)
                waiting = True
                if names[pid].startswith("python"):
                    found.append(pid)
    return found


if __name__ == "__main__" and sys.argv[1] == "stream":
    write_stream(sys.argv[2], sys.argv[3], float(sys.argv[4]))
elif __name__ == "__main__":
    plan_all(sys.argv[1], sys.argv[2], int(sys.argv[3]))
