"""Door. Spares a task of Spark 40 ms of waiting for its rows."""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import suppress


def acknowledge() -> None:
    """Let the kernel acknowledge now what a worker of Spark's daemon has received.

    Spark's JVM sends a task its function, and then its rows. A small piece waits until the piece
    before it is acknowledged (RFC 896), and Linux puts that off for 40 ms, in case an answer can
    carry it. A task that knows its function and has not read its rows has none. In any other
    process, and where Spark uses sockets of files, this does nothing. It holds once: tcp(7),
    TCP_QUICKACK.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is None or main.name != "pyspark.daemon" or not hasattr(socket, "TCP_QUICKACK"):
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
