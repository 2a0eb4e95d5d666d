"""Edge. Catalogs in a file of SQLite."""
