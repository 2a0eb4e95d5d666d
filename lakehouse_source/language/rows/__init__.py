"""Pure. Trees are bound to tables and evaluated on rows, with the meaning of Spark's ANSI mode."""
