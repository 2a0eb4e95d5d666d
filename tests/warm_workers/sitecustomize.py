"""Loaded by every Python whose `PYTHONPATH` has this folder: see `tests/conftest.py`.

Spark forks its Python workers from daemons that have imported nothing, and replaces each worker
in which a query failed. A new worker needs a second of a core for its imports. A daemon that has
imported the same modules before gives workers that start at once.
"""

import os
import sys

# Spark puts zips of PySpark and Py4J before the packages that they are of. What comes from a zip is
# compiled anew in each process, 0.6 s, and each task reads the list of what is in it.
_ZIPS = os.path.join("pyspark", "python", "lib", "")
for _one in [one for one in sys.path if _ZIPS in one]:
    if _one.partition(_ZIPS)[0].rstrip(os.sep) in sys.path:
        sys.path.remove(_one)
        sys.path_importer_cache.pop(_one, None)

# The workers that look up which sources there are need none of this.
if "pyspark.daemon" in sys.orig_argv and "lookup" not in sys.orig_argv[-1]:
    import gc
    import importlib
    import pkgutil

    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401
    import sqlite_utils  # noqa: F401  (and pandas, which it and PySpark import)

    from lakehouse_source.catalog.backends import sqlite  # noqa: F401
    from lakehouse_source.spark import reading, writing

    importlib.import_module(sys.orig_argv[-1])
    for room in (reading, writing):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    # A worker collects garbage after each task: not among all of this, 30 ms.
    gc.freeze()
