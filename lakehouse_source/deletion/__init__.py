"""Pure. Deletion vectors: which rows of a data file are deleted, and how a file stores that."""
