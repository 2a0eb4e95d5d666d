"""plake on a standalone cluster, with faults: see `__main__.py`."""
