"""Verb. The rows that callers give, and the files that are written from them."""
