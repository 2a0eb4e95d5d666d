"""Pure. The layout of rows: their order by several columns, and how far files overlap.

Works on Arrow arrays. Knows neither files nor the catalog.
"""
