"""Door. Keeps Python's garbage collection in Spark's workers short."""

from __future__ import annotations

import gc
import sys

_frozen = False


def freeze_gc() -> None:
    """Exclude the objects that exist now from garbage collection, in a worker of Spark's daemon.

    The daemon collects garbage after each task (`gc.collect()` in `pyspark/daemon.py`). This visits
    every object of every imported module and takes 66 ms, longer than most tasks. One call per
    process is enough: the objects frozen here belong to modules. In any other process this does
    nothing.
    """
    global _frozen
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if not _frozen and main is not None and main.name == "pyspark.daemon":
        _frozen = True
        gc.freeze()
