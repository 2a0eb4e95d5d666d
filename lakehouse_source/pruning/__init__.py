"""Pure. Which files and row groups cannot hold a matching row, and which hold only matching rows.

outcome        sets of truth values and their algebra
evaluate       a condition over the statistics of some rows
absent_values  a condition when some values are known to be absent
statistics     what the catalog's records say of a column over a row group
bounds         bounds of columns as JSON (the record) and as byte keys (the search index)
keys           byte keys of values, which order as the values do
ranges         what the search index is asked: ranges of byte keys, AND and OR of them
search         a condition as ranges of byte keys
index_levels   files in the search index, apart by the width of what they hold
indexed        which columns the search index covers

These modules import `language`, `schema` and `model`, and nothing above imports them back.
"""
