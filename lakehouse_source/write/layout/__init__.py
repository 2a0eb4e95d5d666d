"""Verb. Files are rewritten so that they are read faster; no row changes."""
