"""Door. Batch writes, streams and changes of rows."""
