"""Door. Tables by name: Spark's catalog, its statements, procedures."""
