"""plake: ACID tables on plain Parquet, for PySpark and Python."""
