"""Edge. What is asked of a catalog, in SQL that all databases share, one subject a file."""
