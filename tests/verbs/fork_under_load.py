"""A program whose threads use a SQLite catalog while it forks: it prints how its children ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from lakehouse_source.catalog import open_catalog

SECONDS = 20.0


def look(url: str) -> None:
    with open_catalog(url) as catalog, catalog.read() as reader:
        assert reader.datasets()


def work(url: str, ended: threading.Event, number: int) -> None:
    shared = open_catalog(url)
    while not ended.is_set():
        if number % 2:
            look(url)
            continue
        with shared.write() as transaction:
            transaction.mark_abandoned(3600)
        time.sleep(0.002)  # SQLite's waiting is not fair: children would find it locked


def child(url: str, writes: bool) -> None:
    """Read, and write, as the parent does; never returns."""
    signal.alarm(0)
    status = 1
    try:
        look(url)
        if writes:
            with open_catalog(url) as catalog, catalog.write() as transaction:
                transaction.mark_abandoned(3600)
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    url, forks = sys.argv[1], int(sys.argv[2])
    ended = threading.Event()
    threads = [threading.Thread(target=work, args=(url, ended, n)) for n in range(4)]
    for thread in threads:
        thread.start()
    ends = {"right": 0, "failed": 0, "hung": 0}
    waiting: dict[int, float] = {}
    started = 0
    slowest = 0.0
    while started < forks or waiting:
        if started < forks and len(waiting) < 8:
            before = time.monotonic()
            pid = os.fork()
            if pid == 0:
                child(url, started % 20 == 0)
            slowest = max(slowest, time.monotonic() - before)
            started += 1
            waiting[pid] = time.monotonic() + SECONDS
        for pid, until in list(waiting.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ends["right" if status == 0 else "failed"] += 1
            elif time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                ends["hung"] += 1
            else:
                continue
            del waiting[pid]
        time.sleep(0.001)
    ended.set()
    for thread in threads:
        thread.join()
    print(ends["right"], ends["failed"], ends["hung"], round(slowest, 2))


if __name__ == "__main__":
    main()
