"""Verb. Removes rows for good: from every version that can be read, every file, and the catalog.

find_rows  a dataset with its branches, what a condition means in each version, which rows match
rewrite    the same files without these rows, and the transaction that records them
erase      all of it, the deletion of the old files, and the free pages of the catalog
"""
