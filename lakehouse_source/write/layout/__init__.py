"""Verb. Files are written anew so that they are read faster; no row changes."""
