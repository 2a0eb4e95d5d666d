"""Loaded by every Python whose `PYTHONPATH` has this folder: kills it at a point that a file names.

The file of `PLAKE_FAULT` holds the name of a failpoint and `task` or `driver`. A task dies in its
first attempt only. A process of the driver removes the file first, so that only one dies.
"""

import os
import signal

from lakehouse_source import failpoints

_FILE = os.environ.get("PLAKE_FAULT", "")


def _reach(point: str) -> None:
    try:
        with open(_FILE) as file:
            wanted, where = file.read().rsplit(" ", 1)
    except FileNotFoundError:
        return
    if wanted != point:
        return
    from pyspark import TaskContext

    context = TaskContext.get()
    if where == "task" and context is not None and context.attemptNumber() == 0:
        with open(f"{_FILE}.deaths", "a") as file:
            file.write(f"{point} of partition {context.partitionId()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    if where == "driver" and context is None:
        os.remove(_FILE)
        with open(f"{_FILE}.deaths", "a") as file:
            file.write(f"{point} of the driver\n")
        os.kill(os.getpid(), signal.SIGKILL)


# Before any module binds the function.
failpoints.reach = _reach
