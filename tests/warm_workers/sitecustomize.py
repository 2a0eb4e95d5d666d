"""Loaded by every Python whose `PYTHONPATH` has this folder: see the fixture `spark`.

Spark forks its Python workers from a daemon that has imported nothing, and replaces each worker
in which a query failed. A new worker needs about half a second of a core for its imports. A
daemon that has imported the same modules before gives workers that start at once.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.plan_data_source_read  # noqa: F401

    import lakehouse_source.spark.source  # noqa: F401
