"""Pure. Trees are bound to tables and decide rows, with the meaning of Spark's ANSI mode."""
