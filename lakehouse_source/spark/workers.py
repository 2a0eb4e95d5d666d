"""Door. What plake asks of the Python processes that Spark starts for it."""

from __future__ import annotations

import gc
import sys

_spared = False


def spare_collection() -> None:
    """Keep what is alive now out of later garbage collections, in a worker of Spark's daemon.

    The daemon collects after each task (`gc.collect()` in `pyspark/daemon.py`) and looks at
    every object of every imported module, which takes longer (66 ms) than most tasks. Once for
    a process: what is frozen here are modules. Any other process is left alone.
    """
    global _spared
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if not _spared and main is not None and main.name == "pyspark.daemon":
        _spared = True
        gc.freeze()
