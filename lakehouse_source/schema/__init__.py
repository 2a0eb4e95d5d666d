"""Pure. Fields and their ids, types and their promotion, values of columns and partitions."""
