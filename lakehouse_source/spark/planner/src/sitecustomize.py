"""Runs before all else in plake's workers. It is in the jar, which is on their path.

- Spark puts a zip of pyspark before the installed package. Python keeps no bytecode of modules in
  a zip, so that each worker would compile them anew: 0.7 s of a processor. The zip leaves the path
  where the package that Python finds without it is the one that has this zip.
- Spark puts a jar of its classes on the path, too. It has no modules, and each worker would read
  the list of what is in it, and once more in its first request: 20 ms each time.
- Spark forks workers from a daemon, and ends those that had no work for a minute. The daemon
  imports what its workers need, so that the next statement does not wait for it.
"""

import contextlib
import gc
import importlib
import importlib.machinery
import os
import sys

# By Spark's worker: what its first request would import.
_NEEDED = {
    "pyspark.sql.worker.plan_data_source_read": (
        "lakehouse_source.spark.reading.batch_read",
        "lakehouse_source.spark.tables.commands",
    ),
    "pyspark.sql.worker.write_into_data_source": ("lakehouse_source.spark.writing.begin_write",),
    "pyspark.sql.worker.commit_data_source_write": (
        "lakehouse_source.spark.writing.on_driver",
        "lakehouse_source.spark.writing.row_change_write",
    ),
    "pyspark.sql.worker.python_streaming_sink_runner": (
        "lakehouse_source.spark.writing.on_driver",
        "lakehouse_source.spark.writing.row_change_write",
    ),
    "pyspark.worker": (
        "pyspark.sql.worker.plan_data_source_read",  # has the function that reads
        "lakehouse_source.spark.reading.task_read",
        "lakehouse_source.spark.writing.row_change_write",
        "lakehouse_source.parquet.writer",
        "pandas",  # Spark's worker imports it, too
    ),
}


def _leave_out(path: str) -> None:
    sys.path[:] = [one for one in sys.path if one != path]
    sys.path_importer_cache.pop(path, None)


def _prefer_installed(home: str) -> None:
    archive = os.path.join(home, "python", "lib", "pyspark.zip")
    others = [one for one in sys.path if one != archive]
    found = importlib.machinery.PathFinder.find_spec("pyspark", others)
    origin = "" if found is None else found.origin or ""
    if origin and os.path.realpath(origin) == os.path.realpath(os.path.join(home, "__init__.py")):
        _leave_out(archive)


def _leave_out_jar() -> None:
    for path in list(sys.path):
        folder, name = os.path.split(path)
        if os.path.basename(folder) == "jars" and name.startswith("spark-core_"):
            _leave_out(path)


def _import_for(worker: str) -> None:
    # What cannot be imported is told by the worker, which tries again.
    with contextlib.suppress(ImportError):
        for module in (worker, "lakehouse_source.spark.source", *_NEEDED.get(worker, ())):
            importlib.import_module(module)
    gc.freeze()


def _others() -> None:
    """Run the module of this name that the machine may have itself."""
    sys.path.remove(os.path.dirname(__file__))
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", this)


_leave_out_jar()
_prefer_installed(os.environ.get("SPARK_HOME", ""))
_others()
if "pyspark.daemon" in sys.orig_argv:
    _import_for(sys.orig_argv[-1])
