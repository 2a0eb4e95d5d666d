"""Verb. Upkeep by itself: one process at a time keeps the datasets of a catalog small."""
