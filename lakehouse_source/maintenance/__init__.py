"""Verb. What keeps a dataset small and sound: expire versions, delete files, verify.

expiry       gives up old versions
removal      deletes files that no version can have, by what `doomed` decides
inspection   compares files with the catalog
reports      what each of them found and did, as values that print as tables
"""
