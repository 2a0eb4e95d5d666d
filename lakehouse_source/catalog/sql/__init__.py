"""Edge. The queries of a catalog, in SQL that all databases share; each file has one subject."""
