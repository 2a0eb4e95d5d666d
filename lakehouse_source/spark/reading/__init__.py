"""Door. Batch reads and streams, and the parts of a query that are pushed down."""
