"""Edge. Catalogs on a server of PostgreSQL."""
