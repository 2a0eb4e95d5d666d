"""Checks with faults: nothing is lost, doubled or half visible, and vacuum leaves no orphan."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from integration.cluster.jobs import ROWS
from integration.cluster.running import BUCKET, Cluster

# Of the driver's processes. A kill at the last one leaves a commit that nobody acknowledged.
POINTS = ("commit begun", "files written", "after COMMIT")


def database_restarts(cluster: Cluster, appends: int) -> None:
    """Two drivers append to one dataset while PostgreSQL crashes, twice."""

    def restart() -> None:
        for _ in range(2):
            time.sleep(5)
            cluster.database.restart()

    what = "PostgreSQL crashes and starts again, twice"
    _two_drivers(cluster, f"{BUCKET}/restarts", appends, what, meanwhile=restart)


def store_fails(cluster: Cluster, appends: int) -> None:
    """Two drivers append while 5 % of the requests to S3 fail."""
    _two_drivers(cluster, f"{BUCKET}/failing", appends, "S3 fails 5 % of requests", fails=0.05)


def store_stalls(cluster: Cluster, appends: int) -> None:
    """Two drivers append while S3 lets some requests wait for five seconds."""
    what = "S3 stalls 3 % of requests for 5 s"
    _two_drivers(cluster, f"{BUCKET}/stalling", appends, what, stalls=0.03)


def _two_drivers(
    cluster: Cluster,
    uri: str,
    appends: int,
    what: str,
    *,
    fails: float = 0.0,
    stalls: float = 0.0,
    meanwhile: Callable[[], None] | None = None,
) -> None:
    proxy = cluster.proxy
    proxy.requests = proxy.failed = proxy.stalled = 0
    proxy.probability, proxy.stall_probability = fails, stalls
    both = [cluster.start("append", uri, appends=appends, who=who, cores="1") for who in ("a", "b")]
    if meanwhile is not None:
        _wait_for_a_commit(cluster, uri)
        meanwhile()
    results = [cluster.finish(one) for one in both]
    proxy.probability = proxy.stall_probability = 0.0
    happened = f"two drivers, {2 * appends} appends"
    happened += f"; {proxy.requests} requests, {proxy.failed} failed, {proxy.stalled} stalled"
    good = cluster.check(f"{what}: two drivers end", not any("failed" in one for one in results))
    retries = sum(one.get("errors", 0) for one in results)
    rows = cluster.open(uri).scan().to_table()
    seen = sorted(zip(rows["who"].to_pylist(), rows["id"].to_pylist()))
    expected = sorted((who, i) for who in "ab" for i in range(appends * 100))
    good &= cluster.check("each row is there once", seen == expected, len(seen))
    versions = [one.version for one in cluster.open(uri).history()]
    good &= cluster.check("the history is serial", versions == list(range(2 * appends, 0, -1)))
    clean, orphans = cluster.tidy(uri)
    good &= cluster.check("the dataset is clean", clean, f"{orphans} orphans deleted")
    cluster.fault(what, f"{happened}; {retries} appends were tried again", good, orphans)


def _wait_for_a_commit(cluster: Cluster, uri: str) -> None:
    from lakehouse_source import DatasetNotFoundError

    give_up = time.monotonic() + 180
    while time.monotonic() < give_up:
        try:
            cluster.open(uri)
            return
        except DatasetNotFoundError:
            time.sleep(0.5)


def worker_dies(cluster: Cluster) -> None:
    """A worker dies with its executors in the middle of a task: its tasks are run again."""
    uri = f"{BUCKET}/worker"
    with _started(cluster, uri) as running:
        time.sleep(6)
        cluster.workers.kill(1)
        result = cluster.finish(running)
    cluster.workers.start_again(1)
    good = cluster.check("a job survives a killed worker", "failed" not in result)
    ids = sorted(cluster.open(uri).scan().to_table()["id"].to_pylist())
    good &= cluster.check("each row is there once", ids == list(range(ROWS // 4)), len(ids))
    clean, orphans = cluster.tidy(uri)
    good &= cluster.check("the dataset is clean", clean, f"{orphans} orphans deleted")
    cluster.fault("a worker is killed in a task", "8 tasks, 1 of 2 workers", good, orphans)


@contextmanager
def _started(cluster: Cluster, uri: str) -> Iterator[subprocess.Popen[str]]:
    """A driver whose tasks run."""
    driver = cluster.start("slow", uri)
    assert driver.stdout is not None
    while "started" not in (line := driver.stdout.readline()):
        if not line:
            break
    yield driver


def drivers_die(cluster: Cluster) -> None:
    """Drivers die at named points of a commit: it is whole or absent."""
    from lakehouse_source import failpoints
    from tests.doors.stream_driver import kill_session

    uri = f"{BUCKET}/drivers"
    cluster.finish(cluster.start("append", uri, appends=1, who="first"))
    good = True
    for number, point in enumerate(POINTS):
        hold = cluster.folder / f"hold-{number}"
        before = cluster.open(uri).version
        armed = {failpoints.VARIABLE: point, failpoints.HOLD: str(hold)}
        driver = cluster.start("append", uri, appends=1, who=f"k{number}", environment=armed)
        give_up = time.monotonic() + 300
        while not hold.exists() and driver.poll() is None and time.monotonic() < give_up:
            time.sleep(0.1)
        reached = hold.exists()
        kill_session(driver.pid)
        driver.communicate()
        committed = cluster.open(uri).version - before
        rows = cluster.open(uri).scan(f"who = 'k{number}'").count_rows()
        whole = committed == (point == "after COMMIT") and rows == 100 * committed
        good &= cluster.check(f"killed at {point!r}", reached and whole, f"{committed} commits")
    # The same appends once more: each is committed unless it was.
    everybody = ",".join(f"k{number}" for number in range(len(POINTS)))
    again = cluster.finish(cluster.start("append", uri, appends=1, who=everybody))
    good &= cluster.check("the appends are repeated", "failed" not in again, again.get("log", ""))
    seen = sorted(cluster.open(uri).scan().to_table()["who"].to_pylist())
    expected = sorted(["first", *everybody.split(",")] * 100)
    good &= cluster.check("each row is there once", seen == expected, len(seen))
    clean, orphans = cluster.tidy(uri)
    good &= cluster.check("the dataset is clean", clean, f"{orphans} orphans deleted")
    cluster.fault("a driver is killed in a commit", f"at {len(POINTS)} points", good, orphans)


def late_task(cluster: Cluster) -> None:
    """A task has written its file and hangs before it can tell. A speculative copy overtakes it."""
    from lakehouse_source import failpoints

    uri = f"{BUCKET}/late"
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "2s",
    }
    hold = cluster.folder / "hold-late"
    cluster.workers.kill(1)
    cluster.workers.start_again(
        1, {failpoints.VARIABLE: "files closed", failpoints.HOLD: str(hold)}
    )
    result = cluster.finish(cluster.start("slow", uri, settings=settings))
    hung = len(hold.read_text().split()) if hold.exists() else 0
    cluster.workers.kill(1)
    cluster.workers.start_again(1)
    good = cluster.check("a job with a speculative task ends", "failed" not in result)
    files, live = len(cluster.objects(uri)), len(cluster.open(uri).files())
    detail = f"{hung} hung, {files} files, {live} live"
    good &= cluster.check(
        "a task was overtaken that had written", hung > 0 and files > live, detail
    )
    ids = sorted(cluster.open(uri).scan().to_table()["id"].to_pylist())
    good &= cluster.check("each row is there once", ids == list(range(ROWS // 4)), len(ids))
    clean, orphans = cluster.tidy(uri)
    good &= cluster.check("the dataset is clean", clean and orphans > 0, f"{orphans} deleted")
    cluster.fault("a task hangs after it wrote, its copy wins", detail, good, orphans)
