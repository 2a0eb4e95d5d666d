"""Verb. What keeps a dataset small and sound: expire versions, delete files, verify files.

expiry          makes old versions unreadable, unless a consumer needs them
dataset_folder  where the files of a dataset and its branches are
vacuum          decides which files no version needs, and deletes those files
vacuum_catalog  a dataset ends; a whole catalog is vacuumed
verify          compares files with the catalog
reports         the results, as values that print as tables
"""
