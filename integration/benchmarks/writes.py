"""Appends through Spark and from Python, beside those that do less.

Rows of eight columns, each system to a new folder.

- append, partitioned (by seven carriers): through Spark; "discard" is a Python data source
  that lets its batches go, the floor of any Python writer.
- stream: `write_dataset` of a stream of batches of 10,000 rows, a fifth of the rows, beside
  PyArrow's Parquet writer and its dataset writer.

    python integration/benchmarks/spark_write.py
"""

from __future__ import annotations

from collections.abc import Iterator

from integration.benchmarks.measure import Result, Scale

FAMILY = "writes"


def run(scale: Scale, rounds: int) -> Iterator[Result]:
    from integration.benchmarks import spark_write

    for found in spark_write.run(rows=scale.write_rows, rounds=rounds):
        yield Result(FAMILY, size=f"{scale.write_rows:,} rows", **found)
