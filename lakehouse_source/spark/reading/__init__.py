"""Door. Batch reads and streams, and what of a query becomes a plan."""
