"""Door. Spark's types, and Spark's texts of conditions and values."""
