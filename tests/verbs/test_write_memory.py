"""Memory while a stream is written, measured as the peak of a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lakehouse_source as lake

pytestmark = pytest.mark.slow

# 384 MiB of rows that Parquet makes small, so that the test is about memory and not the disk.
CHILD = """
import json, resource, sys
import pyarrow as pa
import lakehouse_source as lake

uri, partitions = sys.argv[1], int(sys.argv[2])
columns = {"id": pa.int64(), "p": pa.int64(), "text": pa.string()}
texts = pa.array([f"{i:0200d}" for i in range(100)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def batches():
    for start in range(0, 1_800_000, 20_000):
        numbers = pa.array(range(start, start + 20_000), pa.int64())
        p = pa.array([i % max(1, partitions) for i in range(20_000)], pa.int64())
        chosen = texts.take(pa.array([i % 100 for i in range(20_000)], pa.int64()))
        yield pa.record_batch({"id": numbers, "p": p, "text": chosen})

reader = pa.RecordBatchReader.from_batches(pa.schema(columns.items()), batches())
layout = {"partition_by": "p"} if partitions else {"sort_by": "text"}
result = lake.write_dataset(reader, uri, progress=False, **layout)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([result.row_count, before / 1024, peak / 1024]))
"""


@pytest.mark.parametrize("partitions", [pytest.param(0, marks=pytest.mark.long), 60])
def test_a_long_stream_is_written_in_little_memory(tmp_path: Path, partitions: int) -> None:
    uri = tmp_path / "t"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(uri), str(partitions)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, before_mib, peak_mib = json.loads(done.stdout)
    assert rows == 1_800_000
    assert peak_mib - before_mib < 340
    dataset = lake.open_dataset(uri)
    assert dataset.scan("id BETWEEN 1000 AND 1999").count_rows() == 1000
    assert dataset.scan().count_rows() == 1_800_000
