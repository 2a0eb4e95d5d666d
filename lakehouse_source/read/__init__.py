"""Verb. A version and a condition become rows."""
