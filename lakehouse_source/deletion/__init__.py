"""Pure. Deletion vectors: which rows of a data file are deleted, and their form in a file."""
