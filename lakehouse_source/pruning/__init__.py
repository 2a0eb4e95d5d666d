"""Pure. Which files and row groups cannot hold a matching row, and which hold only matching rows.

evaluate  sets of truth values, and a condition over the statistics of some rows
bounds    bounds of columns as JSON (the record) and as byte keys (the search index)
keys      byte keys of values, which order as the values do; ranges of them, by level
search    a condition as ranges of byte keys

These modules import `language`, `schema` and `model`, and nothing above imports them back.
"""
