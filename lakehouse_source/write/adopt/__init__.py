"""Verb. Existing Parquet files become part of a dataset."""
