"""Pure. SQL texts become trees, by Spark's grammar."""
