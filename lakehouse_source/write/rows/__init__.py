"""Verb. What callers give as rows, and the files that are written from it."""
