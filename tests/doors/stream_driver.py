"""A driver of a streaming query in a process of its own, which a test kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lakehouse_source import failpoints


def main(source: str, target: str, checkpoint: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    frame = spark.readStream.format("plake").option("maxFilesPerTrigger", 1).load(source)
    query = (
        frame.writeStream.format("plake")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()


def killed_at(point: str, folder: Path, *arguments: str) -> None:
    """Run a driver until one of its processes comes to a point, and kill all of them there."""
    hold = folder / "hold"
    environment = {**os.environ, failpoints.VARIABLE: point, failpoints.HOLD: str(hold)}
    log = folder / "log"
    with log.open("w") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.doors.stream_driver", *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    give_up = time.monotonic() + 240
    while not hold.exists():
        ended = driver.poll() is not None
        if ended or time.monotonic() > give_up:
            kill_session(driver.pid)
            raise AssertionError(f"never came to {point!r}:\n{log.read_text()[-3000:]}")
        time.sleep(0.05)
    kill_session(driver.pid)
    driver.wait()


def kill_session(session: int) -> None:
    """Kill the processes of a session, by their ids, until there is none."""
    while True:
        running = map(int, filter(str.isdigit, os.listdir("/proc")))
        found = [pid for pid in running if _is_of(pid, session)]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _is_of(pid: int, session: int) -> bool:
    """Tell whether a process of a session still runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    state, _parent, _group, found = text.rpartition(")")[2].split()[:4]
    return int(found) == session and state != "Z"


if __name__ == "__main__":
    main(*sys.argv[1:])
