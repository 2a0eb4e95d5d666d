"""Door. plake for Spark: `configure` and `enable` load the planner extension.

The data source itself is found by Spark through the module `pyspark_plake`.
Importing this package does not import pyspark.
"""

from lakehouse_source.spark.session import configure, enable, is_enabled, planner_jar

__all__ = ["configure", "enable", "is_enabled", "planner_jar"]
