"""Pure. Fields and their ids, types, values of columns, partition values."""
