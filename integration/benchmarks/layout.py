"""Clustering: what conditions read of clustered files, and what it costs to keep them so.

Bytes read are those of the three columns in the row groups that a scan plans to read (rows that
moved have their ids beside them, which a scan leaves out): 30 points, and 30 ranges of 1 % of the
values, over 1,000 files of 2,000 shuffled rows. The exact sort is a write of the sorted rows. Forty
appends: after each, `auto_compact` clusters and compacts when it is time (every fourth commit);
bytes rewritten are those of the files that these commits added, and the depth is taken after each
of them, over the ends of all files; values are nearly distinct, because a value at which two files
of one sort meet is in both. `cluster(full=True)` of TPC-H lineitem by two columns is
compared with reading and writing the same files by PyArrow, one after the other; its memory is
all that its process ever had resident. `health()` runs in new processes over synthetic catalogs.

    python -m integration.benchmarks --only layout
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks.measure import ROOT, Result, Scale, data_folder, run_folder, seconds

FAMILY = "layout"
FILES, ROWS, VALUES, CONDITIONS = 1000, 2000, 1_000_000, 30
DISTINCT = 10**12
COLUMNS = ("a", "b", "pad")
APPENDS = 40
KEYS = ["l_shipdate", "l_partkey"]


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    # The sizes of this family's other questions are those of the tables.
    share = min(1.0, scale.layout_rows / 1_000_000)
    yield from bytes_read(int(FILES * share))
    yield from appends(int(5_000_000 * share))
    yield from whole(scale, rounds)
    yield from health(scale, rounds)


# --- bytes that conditions read ----------------------------------------------------------


def shuffled(rows: int, seed: int, values: int = VALUES) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "a": [draw.randrange(values) for _ in range(rows)],
            "b": [draw.randrange(values) for _ in range(rows)],
            "pad": [draw.random() for _ in range(rows)],
        }
    )


def planned_bytes(dataset: lake.Dataset, where: str) -> int:
    """Of the dataset's own columns in the row groups to read, by the files' footers."""
    folder, found = dataset.uri.removeprefix("file://"), 0
    for task in dataset.scan(where).plan().tasks:
        footer = pq.read_metadata(f"{folder}/{task.path}")
        for index in task.row_groups or range(footer.num_row_groups):
            columns = map(footer.row_group(index).column, range(footer.num_columns))
            found += sum(
                one.total_compressed_size for one in columns if one.path_in_schema in COLUMNS
            )
    return found


def read_by(dataset: lake.Dataset, column: str) -> dict[str, tuple[float, ...]]:
    """KiB of each point and of each range of 1 %."""
    draw = random.Random(2)
    points = [draw.randrange(VALUES) for _ in range(CONDITIONS)]
    wheres = {
        f"point of {column}": [f"{column} = {at}" for at in points],
        f"1 % of {column}": [f"{column} BETWEEN {at} AND {at + VALUES // 100}" for at in points],
    }
    return {
        question: (statistics.mean(planned_bytes(dataset, one) for one in some) / 1024,)
        for question, some in wheres.items()
    }


def bytes_read(files: int) -> Iterator[Result]:
    rows = shuffled(files * ROWS, 1)
    layout: dict[str, Any] = {"row_group_rows": ROWS, "target_file_size_bytes": 1}
    with tempfile.TemporaryDirectory(dir=run_folder()) as folder:
        lake.write_dataset(rows, f"{folder}/shuffled", **layout)
        lake.write_dataset(rows.sort_by("a"), f"{folder}/exact", **layout)
        dataset = lake.open_dataset(f"{folder}/shuffled")
        before = read_by(dataset, "a") | read_by(dataset, "b")
        exact = read_by(lake.open_dataset(f"{folder}/exact"), "a")
        dataset.set_properties(cluster_by=["a"])
        dataset.cluster()
        one = read_by(dataset, "a")
        dataset.set_properties(cluster_by=["a", "b"])
        dataset.cluster(full=True)
        both = read_by(dataset, "a") | read_by(dataset, "b")
    for question in both:
        yield Result(FAMILY, question, "shuffled", "KiB", before[question])
        yield Result(FAMILY, question, "by a and b", "KiB", both[question], base="shuffled")
    for question in one:
        question_of_one = f"{question}, one column"
        yield Result(FAMILY, question_of_one, "exact sort", "KiB", exact[question])
        yield Result(FAMILY, question_of_one, "by a", "KiB", one[question], base="exact sort")


# --- appends ------------------------------------------------------------------------------


def appends(rows: int) -> Iterator[Result]:
    """Forty that all overlap, and then one more."""
    layout: dict[str, Any] = {
        "row_group_rows": 8192,
        "target_file_size_bytes": 1024 * 1024,
        "cluster_by": ["a"],
        "auto_compact": True,
        "auto_compact_min_files": 4,
    }
    with tempfile.TemporaryDirectory(dir=run_folder()) as folder:
        depths, known = [], 0
        for number in range(APPENDS):
            part = shuffled(rows // APPENDS, number, DISTINCT)
            known = lake.write_dataset(part, f"{folder}/d", **layout).version
            dataset = lake.open_dataset(f"{folder}/d")
            if dataset.version > known:
                depths.append(dataset.health("a").depths["a"])
        appended = rewritten = 0
        for entry in dataset.history():
            size = sum(
                file.size_bytes
                for file in dataset.files(entry.version)
                if file.version == entry.version
            )
            if entry.operation == "append":
                appended += size
            else:
                rewritten += size
        question, system = "40 appends", "auto clustering"
        factor = (rewritten / appended,)
        yield Result(FAMILY, question, system, "bytes rewritten ÷ appended", factor)
        averages = tuple(depth.average for depth in depths)
        yield Result(FAMILY, question, "average", "files at a value", (max(averages),))
        most = (float(max(depth.most for depth in depths)),)
        yield Result(FAMILY, question, "most", "files at a value", most)
        dataset.set_properties(auto_compact=False)
        dataset.cluster(full=True)
        size = sum(file.size_bytes for file in dataset.files())
        lake.write_dataset(shuffled(rows // APPENDS, 99, DISTINCT), f"{folder}/d")
        done = dataset.refresh().cluster()
        parts = (done.bytes_added * APPENDS / size,)
        yield Result(FAMILY, "1 append to 40", "cluster()", "parts rewritten", parts)


# --- a whole table ------------------------------------------------------------------------


def whole(scale: Scale, rounds: int) -> Iterator[Result]:
    from integration.benchmarks import data

    source = data.lineitem(data_folder(), scale.tpch)
    size = f"TPC-H scale {scale.tpch:g}"
    with tempfile.TemporaryDirectory(dir=run_folder()) as folder:
        reader = pq.ParquetFile(source)
        stream = pa.RecordBatchReader.from_batches(reader.schema_arrow, reader.iter_batches())
        files = {"target_file_size_bytes": 32 * 2**20}
        lake.write_dataset(stream, f"{folder}/d", cluster_by=KEYS, **files)
        paths = [f"{folder}/d/{file.path}" for file in lake.open_dataset(f"{folder}/d").files()]

        def copy() -> None:
            for number, path in enumerate(paths):
                pq.write_table(
                    pq.read_table(path, partitioning=None),
                    f"{folder}/{number}.parquet",
                    compression="zstd",
                    row_group_size=131_072,
                )

        ours, theirs, memory = [], [], []
        for _ in range(min(rounds, 3)):
            target = f"{folder}/copy"
            shutil.copytree(f"{folder}/d", target)
            theirs.append(seconds(copy))
            took, most = _in_a_process("cluster", target)
            ours.append(took)
            memory.append(most)
            shutil.rmtree(target)
    question = "cluster all of lineitem"
    yield Result(FAMILY, question, "read and write", "s", tuple(theirs), size)
    yield Result(FAMILY, question, "cluster()", "s", tuple(ours), size, base="read and write")
    yield Result(FAMILY, question, "cluster()", "MiB", tuple(memory), size)


def health(scale: Scale, rounds: int) -> Iterator[Result]:
    from integration.benchmarks import planning_rivals

    for files in scale.planning[-2:]:
        catalog, uri = planning_rivals.catalog_path(files), planning_rivals.dataset_path(files)
        if not catalog.exists():
            shutil.rmtree(uri, ignore_errors=True)  # of a catalog of the family `planning`
            planning_rivals.fill([(f"sqlite:///{catalog}", uri)], files)
        found = [_in_a_process("health", uri, f"sqlite:///{catalog}") for _ in range(rounds)]
        times, memory = zip(*found)
        for unit, values in (("s", times), ("MiB", memory)):
            yield Result(FAMILY, "health()", "plake, SQLite", unit, values, f"{files:,} files")


def _in_a_process(verb: str, uri: str, catalog: str = "") -> tuple[float, float]:
    """Seconds of a verb, without imports, and MiB that a new process has at most."""
    command = [sys.executable, __file__, verb, uri, catalog]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    took, most = json.loads(done.stdout)
    return took, most


def main(verb: str, uri: str, catalog: str) -> None:
    given: Mapping[str, str] = {"catalog": catalog} if catalog else {}
    started = time.perf_counter()
    dataset = lake.open_dataset(uri, **given)
    if verb == "cluster":
        dataset.cluster(full=True)
    else:
        dataset.health()
    took = time.perf_counter() - started
    # Not `ru_maxrss`: a process has that of the one that started it.
    status = Path("/proc/self/status").read_text()
    most = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps([took, most]))


if __name__ == "__main__":
    main(*sys.argv[1:])
