"""Verb. Removes rows for good: from every version that can be read, every file, and the catalog.

family        a dataset, its branches, and the files of all their readable versions
condition     what a condition means in versions that have other columns
find_rows     which rows of which files it matches
rewritten     the same files without these rows, and the vectors that mark other rows of them
record        one transaction: rows of the catalog name the new files, versions keep their numbers
texts         values that notes of commits repeat
erase         all of it, the deletion of the old files, and the free pages of the catalog
"""
