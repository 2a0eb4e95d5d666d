"""Loaded by every Python whose `PYTHONPATH` has this folder: see the fixture `spark`.

Spark forks its Python workers from a daemon that has imported nothing, and replaces each worker
in which a query failed. A new worker needs half a second of a core and more for its imports. A
daemon that has imported the same modules before gives workers that start at once.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import importlib
    import pkgutil

    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
    import pyspark.sql.streaming.stateful_processor_util
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401

    import lakehouse_source

    # What no worker imports, or what starts threads.
    LEFT_OUT = ("cli", "engines", "server", "spark.planner")

    for module in pkgutil.walk_packages(lakehouse_source.__path__, "lakehouse_source."):
        if not module.name.partition(".")[2].startswith(LEFT_OUT):
            importlib.import_module(module.name)
