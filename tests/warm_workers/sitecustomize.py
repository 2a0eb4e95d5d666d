"""Loaded by every Python whose `PYTHONPATH` has this folder: see `tests/conftest.py`.

Spark forks its Python workers from daemons that have imported nothing, and replaces each worker
in which a query failed. A new worker needs half a second of a core and more for its imports. A
daemon that has imported the same modules before gives workers that start at once.
"""

import os
import sys

# Spark puts a zip of PySpark before the package that the zip is in, and what comes from a zip is
# compiled anew in each process: 0.6 s.
_ZIP = os.path.join("pyspark", "python", "lib", "pyspark.zip")
sys.path[:] = [
    one for one in sys.path if not one.endswith(_ZIP) or one.removesuffix(_ZIP)[:-1] not in sys.path
]

# The workers that look up which sources there are need none of this.
if "pyspark.daemon" in sys.orig_argv and "lookup" not in sys.orig_argv[-1]:
    import importlib
    import pkgutil

    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401

    from lakehouse_source.spark import reading, writing

    for room in (reading, writing):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
