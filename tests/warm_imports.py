"""What child processes of tests import: the server that they are forked from imports it once.

A process that begins with nothing needs more than a second of a core for it. Polars is left
out: it starts threads when it is imported, and a process with threads must not be forked.
"""

import importlib
import pkgutil

import duckdb  # noqa: F401
import hypothesis  # noqa: F401
import pandas  # noqa: F401
import psycopg  # noqa: F401
import pyarrow.dataset
import pyarrow.parquet  # noqa: F401
import pytest  # noqa: F401

import lakehouse_source

LEFT_OUT = ("lakehouse_source.spark", "lakehouse_source.engines.polars")

for module in pkgutil.walk_packages(lakehouse_source.__path__, "lakehouse_source."):
    if not module.name.startswith(LEFT_OUT):
        importlib.import_module(module.name)
