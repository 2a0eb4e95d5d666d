"""Verb. Parquet files that were there before become part of a dataset."""
