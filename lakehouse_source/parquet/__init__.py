"""Edge. Parquet files: batches to files, scan tasks to rows, footers to metadata."""
