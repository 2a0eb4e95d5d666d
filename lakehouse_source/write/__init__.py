"""Verb. A write from its first byte to its version."""
