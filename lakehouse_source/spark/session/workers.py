"""Door. Spares Spark's Python workers two waits that take longer than most tasks."""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from contextlib import suppress

_frozen = False


def _is_worker() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name == "pyspark.daemon"


def freeze_gc() -> None:
    """Exclude the objects that exist now from garbage collection, in a worker of Spark's daemon.

    The daemon collects garbage after each task (`gc.collect()` in `pyspark/daemon.py`). This visits
    every object of every imported module and takes 66 ms, longer than most tasks. One call per
    process is enough: the objects frozen here belong to modules. In any other process this does
    nothing.
    """
    global _frozen
    if not _frozen and _is_worker():
        _frozen = True
        gc.freeze()


def acknowledge() -> None:
    """Let the kernel acknowledge now what a worker of Spark's daemon has received.

    Spark's JVM sends a task its function, and then its rows. A small piece waits until the piece
    before it is acknowledged (RFC 896), and Linux puts that off for 40 ms, in case an answer can
    carry it. A task that knows its function and has not read its rows has none. In any other
    process, and where Spark uses sockets of files, this does nothing. It holds once: tcp(7),
    TCP_QUICKACK.
    """
    if not _is_worker() or not hasattr(socket, "TCP_QUICKACK"):
        return
    # Spark hands out no socket. To the other ones of this process it does no harm.
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                one = socket.socket(fileno=number)
                try:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                finally:
                    one.detach()
