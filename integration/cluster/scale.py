"""What a driver with 1 GiB of memory carries: many tasks, files in messages, files to plan."""

from __future__ import annotations

import time
from typing import Any

from integration.cluster.running import BUCKET, KEYS, Cluster


def many_tasks(cluster: Cluster, tasks: int, files: int) -> None:
    """A job of many tasks, whose messages name many files, all of them in S3."""
    uri = f"{BUCKET}/many"
    result = cluster.finish(cluster.start("scale", uri, tasks=tasks, files=files), 7200)
    log = result.get("log", "")
    if not cluster.check(f"a job of {tasks:,} tasks ends", "failed" not in result, log):
        return
    dataset = cluster.open(uri)
    live, rows = len(dataset.files()), dataset.scan().count_rows()
    cluster.check(f"its messages name {files:,} files", (live, rows) == (files, files * 5), live)
    cluster.check("half of the rows are read", result["count"] * 2 == files * 5)
    print(f"      write {result['seconds']:.0f} s, read {result['read_seconds']:.0f} s")
    _memory(cluster, result)


def many_files(cluster: Cluster, files: int) -> None:
    """A scan of many files is planned into tasks.

    The files are rows of the catalog, with ten row groups each; the store has none of them, and
    planning opens none.
    """
    from integration.benchmarks import planning

    url, uri = cluster.database.fresh(), f"{BUCKET}/planned"
    begun = time.monotonic()
    planning.fill(url, uri, files, cluster.store | KEYS)
    print(f"      {files:,} files recorded in {time.monotonic() - begun:.0f} s", flush=True)
    condition = planning.conditions(files)["clustered point"]
    result = cluster.finish(cluster.start("plan", uri, catalog=url, condition=condition))
    log = result.get("log", "")
    if cluster.check(f"{files:,} files are planned", "failed" not in result, log):
        cluster.check("a point needs one task", result["some"] == 1, result["some"])
        print(
            f"      {result['partitions']:,} partitions in {result['seconds']:.1f} s, "
            f"the point in {result['some_seconds']:.2f} s"
        )
        _memory(cluster, result)


def _memory(cluster: Cluster, result: dict[str, Any]) -> None:
    """The driver's JVM has 1 GiB of heap: with too little of it the job would have failed."""
    peaks: dict[str, int] = result["driver_mib"]
    print(f"      peak MiB of the driver's processes, by program: {peaks}")
    python = max(size for name, size in peaks.items() if name != "java")
    cluster.check("no Python process of the driver above 1 GiB", python <= 1024, f"{python} MiB")
