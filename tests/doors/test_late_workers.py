"""The Python process of a stream does not connect within the 10 s that Spark waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

LATE = """
import sys, time
from pathlib import Path

if "pyspark.sql.streaming.python_streaming_source_runner" in sys.orig_argv:
    folder = Path(__file__).parent
    with open(folder / "starts", "a") as file:
        file.write("start\\n")
    if len((folder / "starts").read_text().split()) <= int((folder / "late").read_text()):
        time.sleep(15)
"""
SCRIPT = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import lakehouse_source as lake

folder = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = lake.spark.configure(builder).getOrCreate()
lake.write_dataset({"id": [1, 2]}, str(folder / "t"))

def begun(name, late):
    (folder / "starts").write_text("")
    (folder / "late").write_text(str(late))
    stream = spark.readStream.format("plake").load(str(folder / "t"))
    return stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()

def starts():
    return len((folder / "starts").read_text().split())

begun("busy", 1).awaitTermination()
print("BUSY", spark.table("busy").count(), starts())
stopped = begun("stopped", 99)
while not starts():
    time.sleep(0.1)
stopped.stop()
time.sleep(4)
print("STOPPED", starts())
"""


def test_a_stream_whose_python_process_is_late_starts_again_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    """Many streams that began at once failed: `Python worker failed to connect back`."""
    (tmp_path / "sitecustomize.py").write_text(LATE)
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith(("BUSY", "STOPPED"))]
    # Spark's text of a failed query asks for the stream once more.
    assert told == ["BUSY 2 2", "STOPPED 2"], done.stdout + done.stderr[-3000:]
