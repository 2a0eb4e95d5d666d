"""Verb. Scans handed over to other engines, one file for each engine."""
