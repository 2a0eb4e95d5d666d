"""Parquet files that no writer here makes: valid ones whose footers are changed as Thrift trees."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FUZZ = Path(__file__).parents[2] / "integration" / "fuzz_parquet.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_parquet", FUZZ)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_parquet"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


fuzz = _load()
I32, I64, BINARY, STRUCT = fuzz.I32, fuzz.I64, fuzz.BINARY, fuzz.STRUCT


def file_of(table: pa.Table, **options: Any) -> bytes:
    """A valid file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def field(kind: int, id_: int, value: Any) -> Any:
    """A Thrift field."""
    return fuzz.Field(id_, kind, value)


class Node:
    """A structure or list in a footer. `node[id]` is a field's value, or an item of a list."""

    def __init__(self, fields: list[Any]) -> None:
        self.fields = fields

    def _find(self, key: int) -> Any:
        if self.fields and self.fields[0].id == 0:
            return self.fields[key]
        return next(found for found in self.fields if found.id == key)

    def __getitem__(self, key: int) -> Any:
        value = self._find(key).value
        if isinstance(value, tuple):
            return Node(value[1])
        return Node(value) if isinstance(value, list) else value

    def __setitem__(self, key: int, value: Any) -> None:
        """Change the value of a field that is there."""
        self._find(key).value = value

    def __delitem__(self, key: int) -> None:
        self.fields.remove(self._find(key))

    def add(self, *fields: Any) -> None:
        """Add fields, in the order of their ids where they have one."""
        self.fields += fields
        self.fields.sort(key=lambda found: found.id)


def chunk(footer: Node, row_group: int = 0, column: int = 0) -> Node:
    """A `ColumnChunk`; its field 3 is the `ColumnMetaData`, whose field 12 are statistics."""
    found = footer[4][row_group][1][column]
    assert isinstance(found, Node)
    return found


def edited(data: bytes, change: Callable[[Node], None], *, appended: bytes = b"") -> bytes:
    """The file with another footer, and with bytes before it that the footer may point to."""
    start, footer = fuzz.footer_of(data)
    tree = fuzz.Reader(footer).struct()
    change(Node(tree))
    framed: bytes = fuzz.framed(data[:start] + appended, fuzz.write_struct(tree))
    return framed
