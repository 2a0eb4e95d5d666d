"""What `health()` takes on catalogs of many files: seconds and the most memory of a process.

python -m integration.benchmarks.layout 100000 sqlite:////tmp/layout/c.db
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import lakehouse_source as lake
from integration.benchmarks.planning import fill


def measure(url: str, uri: str) -> None:
    """In a process of its own; prints one JSON line."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    report = lake.open_dataset(uri, catalog=url).health()
    took = time.perf_counter() - started
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    depths = {name: round(one.average, 2) for name, one in report.depths.items()}
    print(json.dumps([took, before / 1024, most / 1024, report.files, depths]))


FILES, ROWS, VALUES = 1000, 2000, 1_000_000


def bytes_read(dataset: lake.Dataset, column: str) -> tuple[float, float]:
    """Of a point and of a range of 1 %, on average."""
    draw = random.Random(2)
    points = [draw.randrange(VALUES) for _ in range(30)]
    ranges = [f"{column} BETWEEN {at} AND {at + VALUES // 100}" for at in points]
    equal = [f"{column} = {at}" for at in points]
    point, wide = (
        statistics.mean(dataset.scan(one).explain().bytes_read for one in some)
        for some in (equal, ranges)
    )
    return point, wide


def clustering() -> None:
    draw = random.Random(1)
    rows = pa.table(
        {
            "a": [draw.randrange(VALUES) for _ in range(FILES * ROWS)],
            "b": [draw.randrange(VALUES) for _ in range(FILES * ROWS)],
            "pad": [draw.random() for _ in range(FILES * ROWS)],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        layout = {"row_group_rows": ROWS, "target_file_size_bytes": 1}
        shuffled, exact = f"{folder}/shuffled", f"{folder}/exact"
        lake.write_dataset(rows, shuffled, **layout)
        lake.write_dataset(rows.sort_by("a"), exact, **layout)
        dataset = lake.open_dataset(shuffled)
        before = {column: bytes_read(dataset, column) for column in "ab"}
        wanted = bytes_read(lake.open_dataset(exact), "a")
        print("| clustered by | condition | point | 1 % range |\n|---|---|---|---|")
        dataset.set_properties(cluster_by=["a"])
        dataset.cluster()
        one = bytes_read(dataset, "a")
        ratios = [mine / theirs for mine, theirs in zip(one, wanted)]
        print(f"| a | a, ÷ exact sort | {ratios[0]:.2f} | {ratios[1]:.2f} |")
        dataset.set_properties(cluster_by=["a", "b"])
        dataset.cluster(full=True)
        for column in "ab":
            ratios = [m / t for m, t in zip(bytes_read(dataset, column), before[column])]
            print(f"| a, b | {column}, ÷ before | {ratios[0]:.3f} | {ratios[1]:.3f} |")


def main() -> None:
    if sys.argv[1:] == ["bytes"]:
        clustering()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["health"])
    parser.add_argument("files", type=int)
    parser.add_argument("url")
    parser.add_argument("--measure", action="store_true")
    given = parser.parse_args()
    name = hashlib.sha256(given.url.encode()).hexdigest()[:16]
    uri = Path(f"{tempfile.gettempdir()}/layout-health/{name}").as_uri()
    if given.measure:
        measure(given.url, uri)
        return
    fill(given.url, uri, given.files)
    print("| files | s | MiB at the start | MiB at most | depths |\n|---|---|---|---|---|")
    for _ in range(3):
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            "health",
            str(given.files),
            given.url,
            "--measure",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took, before, most, files, depths = json.loads(done.stdout)
        print(f"| {files:,} | {took:.2f} | {before:.0f} | {most:.0f} | {depths} |", flush=True)


if __name__ == "__main__":
    main()
