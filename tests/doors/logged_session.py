"""A Spark session in a process of its own, and everything that it prints and logs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_BEFORE = """
import os, sys
from pyspark.sql import SparkSession
import lakehouse_source as lake

log = sys.argv.pop(1)
builder = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", log)
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.log.level", "INFO")
)
spark = lake.spark.configure(builder, catalog=CATALOG).getOrCreate()
"""


class Logged(NamedTuple):
    """What a script printed, what it printed and logged, and the lines of Spark's event log."""

    printed: str
    output: str
    events: list[str]


def run_logged(
    script: str,
    arguments: list[str],
    environment: Mapping[str, str],
    folder: Path,
    catalog: str | None = None,
) -> Logged:
    """Run a script that has `spark`, `lake`, `os` and its arguments from `sys.argv[1]` on.

    The script and the event log are in `folder`. The session is configured with `catalog`.
    """
    log, file = folder / "log", folder / "script.py"
    log.mkdir()
    file.write_text(
        f"CATALOG = {catalog!r}\n" + _BEFORE + textwrap.dedent(script) + "\nspark.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, str(file), f"file://{log}", *arguments],
        capture_output=True,
        text=True,
        env={**environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=folder,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    events = b"".join(file.read_bytes() for file in log.rglob("*") if file.is_file()).decode()
    assert "SparkListenerSQLExecutionStart" in events
    return Logged(done.stdout, done.stdout + done.stderr, events.splitlines())
