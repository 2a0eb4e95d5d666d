"""Verb. From the begin of a write to its version: options, conflicts, one transaction."""
