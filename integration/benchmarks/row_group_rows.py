"""How many rows a row group should have, and with which codec: plake's own layouts.

The same rows are written with row groups of five sizes, with snappy and with zstd, then
read in full and by one key. What is chosen by default: 131,072 rows, zstd.

    python integration/benchmarks/row_group_rows.py [rows]
"""

from __future__ import annotations

import dataclasses
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

import lakehouse_source as lake
from integration.benchmarks.measure import FULL, Result, Scale, interleaved, run_folder, seconds

FAMILY = "row_groups"
SIZES = (32_768, 65_536, 131_072, 262_144, 524_288)
CODECS = ("snappy", "zstd")


def table(rows: int) -> pa.Table:
    """Eight columns as they are found in practice: a key, measures, text, times."""
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


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    rows = scale.layout_rows
    data = table(rows)
    needle = f"id = {rows // 3}"
    with tempfile.TemporaryDirectory(dir=run_folder()) as folder:
        uris = {}
        for size, codec in ((size, codec) for size in SIZES for codec in CODECS):
            name = f"{size:,} rows, {codec}"
            uris[name] = f"{folder}/{size}-{codec}"
            layout = {"row_group_rows": size, "compression": codec}
            took = seconds(lambda u=uris[name], o=layout: lake.write_dataset(data, u, **o))
            yield Result(FAMILY, name, "write", "s", (took,))
            stored = sum(file.size_bytes for file in lake.open_dataset(uris[name]).files())
            yield Result(FAMILY, name, "stored", "MB", (stored / 1e6,))
        for question, where in (("full scan", None), ("one row", needle)):
            works = {
                name: lake.open_dataset(uri).scan(where).to_table for name, uri in uris.items()
            }
            for name, values in interleaved(works, rounds).items():
                yield Result(FAMILY, name, question, "s", values)


def main() -> None:
    from integration.benchmarks import report

    rows = int(sys.argv[1]) if len(sys.argv) > 1 else FULL.layout_rows
    scale = dataclasses.replace(FULL, layout_rows=rows)
    print("\n\n".join(report.tables(list(run(scale, 5)))))


if __name__ == "__main__":
    main()
