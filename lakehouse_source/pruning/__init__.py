"""Pure. Which files and row groups cannot hold a matching row, and which hold nothing else.

outcome    sets of truth values and their algebra
bounds     values as JSON (the record) and as byte keys (the search index)
absent     a condition when some values are known to be absent
evaluate   a condition over the statistics of some rows
search     a condition as ranges of byte keys
"""
