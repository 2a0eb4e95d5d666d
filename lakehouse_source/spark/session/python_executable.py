"""Door. Makes Spark run the Python that runs now, unless the user names another.

Spark finds the format `plake`, plans its scans and runs its tasks with one Python
executable. When the JVM starts, it reads the executable's path from PYSPARK_DRIVER_PYTHON or
PYSPARK_PYTHON, and otherwise uses the `python3` on the PATH (`defaultPythonExec` in Spark's
`PythonUtils.scala`). The JVM ignores the setting `spark.pyspark.python` (tried on Spark 4.3, with
and without `spark-submit`). So the Python of a virtual environment that is not activated is not
used, and a read ends in DATA_SOURCE_NOT_FOUND.

Executors start the same path as the driver. If a cluster has its Python elsewhere, the user must
name it in PYSPARK_PYTHON.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_SETTING = "spark.pyspark.python"
# Spark sets it for the Python program that `spark-submit` starts: the JVM is older than we are.
_GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"


def use_this_python(options: Mapping[str, Any]) -> None:
    """Set PYSPARK_PYTHON for a JVM that is not started yet. `options` are a builder's.

    Changes nothing if the JVM runs already, because it does not read the variable again.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is None and _GATEWAY_PORT not in os.environ:
        python = _python_to_set(options.get(_SETTING))
        if python is not None:
            os.environ["PYSPARK_PYTHON"] = python


def register_if_missing(spark: Any) -> None:
    """Register format `plake` for a session whose JVM runs a Python without plake.

    A registered source runs in the Python that the SparkContext names at that moment. This Python
    is named for this call only: functions of the user keep theirs.
    """
    python = _python_to_set(spark.conf.get(_SETTING, None))
    if python is None:
        return
    # This starts the other Python to look for data sources, as the first query would anyway.
    if spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists("plake"):
        return
    from pyspark_plake import DefaultSource  # the name under which Spark itself finds the format

    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = python
    try:
        spark.dataSource.register(DefaultSource)
    finally:
        context.pythonExec = before


def _python_to_set(named: str | None) -> str | None:
    """The executable that must be named to Spark; None: Spark runs the right one by itself.

    `named`: the value of `spark.pyspark.python`.
    """
    if any(os.environ.get(variable) for variable in _VARIABLES):
        return None
    if named:
        return named
    # A path that Spark finds by itself stays `python3`: executors may have it in another folder.
    return None if _is_this_python(shutil.which("python3")) else sys.executable or None


def _is_this_python(path: str | None) -> bool:
    """Tell whether an executable is the one that runs now.

    The folder counts too: in a virtual environment the file is a link to another Python, which
    lacks the packages.
    """
    if path is None or not sys.executable:
        return False
    mine, other = (os.path.realpath(os.path.dirname(one)) for one in (sys.executable, path))
    return mine == other and os.path.samefile(path, sys.executable)
