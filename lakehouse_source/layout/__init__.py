"""Pure. Where rows should lie: the order of rows by several columns, and how far files overlap.

Works on Arrow arrays. Knows neither files nor the catalog.
"""
