"""Lets Spark find the format `plake` by itself.

Spark imports every top-level module named `pyspark_*` and registers its
`DefaultSource`, in every session, classic and Connect.
"""

from lakehouse_source.spark.source import PlakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
