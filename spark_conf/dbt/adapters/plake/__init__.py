"""dbt's adapter `type: plake`: dbt-spark on Spark's catalog `plake`.

`dbt` is a namespace that dbt-core, adapters and this share; none of it works without dbt.
"""

from pathlib import Path

try:
    from dbt.adapters.base import AdapterPlugin
    from dbt.adapters.spark import SparkAdapter as _  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError(
        f"dbt's adapter for plake needs {missing.name}: pip install 'plake[dbt]'"
    ) from missing

from dbt.adapters.plake.impl import PlakeAdapter, PlakeCredentials

Plugin = AdapterPlugin(
    adapter=PlakeAdapter,
    credentials=PlakeCredentials,
    include_path=str(Path(__file__).parents[2] / "include" / "plake"),
    dependencies=["spark"],
)
