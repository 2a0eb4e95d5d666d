"""How many rows make a good row group, and which codec: the defaults come from here.

Writes one dataset per size and codec, then times a full scan and a point lookup
on each, in interleaved rounds, and prints the medians as a Markdown table.
Run it with `python integration/benchmarks/row_group_rows.py [rows]`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake

SIZES = (32_768, 65_536, 131_072, 262_144, 524_288)
CODECS = ("snappy", "zstd")
ROUNDS = 5


def table(rows: int) -> pa.Table:
    """Eight columns as they are found in practice: a key, measures, text, times."""
    import random

    generator = random.Random(7)
    words = [f"word-{number:05d}" for number in range(5_000)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "customer": pa.array([generator.randrange(100_000) for _ in range(rows)], pa.int32()),
            "price": pa.array([round(generator.uniform(1, 1000), 2) for _ in range(rows)]),
            "discount": pa.array([generator.randrange(11) / 100 for _ in range(rows)]),
            "flag": pa.array([generator.random() < 0.5 for _ in range(rows)]),
            "city": pa.array([generator.choice(words) for _ in range(rows)]),
            "comment": pa.array([f"{generator.getrandbits(64):016x}" for _ in range(rows)]),
            "at": pa.array([1_700_000_000_000_000 + 1000 * n for n in range(rows)]).cast(
                pa.timestamp("us", "UTC")
            ),
        }
    )


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
    data = table(rows)
    needle = f"id = {rows // 3}"
    kinds = [(size, codec) for size in SIZES for codec in CODECS]
    figures: dict[tuple[int, str], dict[str, list[float]]] = {
        kind: {"write": [], "scan": [], "point": []} for kind in kinds
    }
    stored: dict[tuple[int, str], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size, codec in kinds:
            uri = f"{folder}/{size}-{codec}"
            layout = {"row_group_rows": size, "compression": codec}
            took = timed(lambda u=uri, o=layout: lake.write_dataset(data, u, **o))
            figures[size, codec]["write"].append(took)
            stored[size, codec] = sum(f.size_bytes for f in lake.open_dataset(uri).files())
        for _ in range(ROUNDS):
            for size, codec in kinds:
                uri = f"{folder}/{size}-{codec}"
                dataset = lake.open_dataset(uri)
                figures[size, codec]["scan"].append(timed(dataset.scan().to_table))
                figures[size, codec]["point"].append(timed(dataset.scan(needle).to_table))
    print(f"{rows:,} rows x {data.num_columns} columns, medians of {ROUNDS} rounds\n")
    print("| rows per group | codec | MB | write s | full scan s | point lookup ms |")
    print("|---|---|---|---|---|---|")
    for size, codec in kinds:
        found = {name: statistics.median(times) for name, times in figures[size, codec].items()}
        print(
            f"| {size:,} | {codec} | {stored[size, codec] / 1e6:.0f} | {found['write']:.2f} | "
            f"{found['scan']:.2f} | {1000 * found['point']:.1f} |"
        )


if __name__ == "__main__":
    main()
