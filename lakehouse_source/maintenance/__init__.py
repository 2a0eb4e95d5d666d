"""Verb. What keeps a dataset small and sound: expire versions, delete files, verify files.

expiry          makes old versions unreadable
dataset_folder  where the files of a dataset and its branches are
vacuum_plan     decides which files no version needs
vacuum          deletes those files
verify          compares files with the catalog
reports         the results of all three, as values that print as tables
"""
