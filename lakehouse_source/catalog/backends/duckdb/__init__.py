"""Edge. Catalogs in a file of DuckDB."""
