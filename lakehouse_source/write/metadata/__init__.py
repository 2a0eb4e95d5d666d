"""Verb. Commits that write no rows: schema, properties, restore, branches, tags."""
