"""Pure. Which files and row groups cannot hold a matching row, and which hold only matching rows.

outcome      sets of truth values and their algebra
evaluate     a condition over the statistics of some rows
absent       a condition when some values are known to be absent
statistics   what the catalog's records say about a column over a row group
bounds       bounds of columns as JSON (the record) and as byte keys (the search index)
keys         byte keys of values, which order as the values do
search       a condition as ranges of byte keys
ranges       ranges of byte keys in order, and flattened ORs of them
levels       files in the search index, grouped by the width of their ranges
indexed      which columns the search index covers

These modules import `language`, `schema` and `model`, and nothing above imports them back.
"""
