"""Pure. Names and texts as DuckDB's SQL spells them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name of a column, table or field."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A literal of type VARCHAR."""
    return "'" + text.replace("'", "''") + "'"
