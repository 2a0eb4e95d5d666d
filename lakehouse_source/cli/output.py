"""Door. Rows as a table, as JSON or as CSV; nothing that strangers named reaches the terminal raw.

JSON is an array with one object a row. Times are ISO 8601, bytes base64, decimals texts, durations
counts of their unit, maps lists of pairs, and NaN and the infinities the texts "NaN", "Infinity"
and "-Infinity". In CSV, NULL is an empty field, the empty text is "", and nested values are JSON.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timezone
from itertools import chain, islice
from math import isfinite, isnan
from typing import Any, TextIO

from lakehouse_source.pictures.markup import UNSAFE, visible
from lakehouse_source.result_tables import laid_out

Row = Sequence[Any]
# Rows after which the widths of a table are fixed.
_MEASURED_ROWS = 1000
_WIDEST = 100


class NoReaderError(Exception):
    """Nobody reads the output any more."""


def one_line(text: str) -> str:
    """A text in one line, for an error."""
    return visible(" ".join(text.split()))


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return (
            value
            if isfinite(value)
            else "NaN"
            if isnan(value)
            else ("Infinity" if value > 0 else "-Infinity")
        )
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return str(value)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _text(value: Any, null: str) -> str:
    found = plain(value)
    if found is None:
        return null
    return found if isinstance(found, str) else _json(found)


def write_rows(
    names: Sequence[str],
    rows: Iterable[Row],
    how: str,
    *,
    upright: bool = False,
    to: TextIO | None = None,
) -> None:
    """Write rows with columns of these names: `how` is table, json, jsonl or csv."""
    sink = sys.stdout if to is None else to
    lines = _UPRIGHT if upright and how == "table" else _WRITERS[how]
    if how == "table" and not upright and sink.isatty():
        _rich_table(names, rows)
        return
    try:
        for line in lines(names, rows):
            sink.write(line if how != "csv" or not sink.isatty() else visible(line[:-1]) + "\n")
    except BrokenPipeError as error:
        raise NoReaderError from error  # which click would not make an exit code of its own


def _json_array(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    separator = "[\n"
    for line in _json_lines(names, rows):
        yield f"{separator}{line[:-1]}"
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


def _json_lines(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield f"{_json(dict(zip(names, map(plain, row))))}\n"


def _csv(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    for row in chain([names], rows):
        yield ",".join("" if cell is None else _csv_cell(_text(cell, "")) for cell in row) + "\n"


def _csv_cell(text: str) -> str:
    if text and text == text.strip() and not any(c in text for c in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _table(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    left = iter(rows)
    first = list(islice(left, _MEASURED_ROWS))
    right = [
        position
        for position in range(len(names))
        if all(isinstance(row[position], (int, float, type(None))) for row in first)
    ]
    cells = (tuple(visible(_text(cell, "NULL")) for cell in row) for row in chain(first, left))
    titles = [visible(name) for name in names]
    for line in laid_out(titles, cells, right, measured=_MEASURED_ROWS, widest=_WIDEST):
        yield f"{line}\n"


def _upright(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    width = max(map(len, names))
    for row in rows:
        for name, cell in zip(names, row):
            is_list = isinstance(cell, (list, tuple)) and all(
                isinstance(one, Mapping) for one in cell
            )
            texts = [_text(one, "NULL") for one in (cell if is_list else [cell])]
            for number, text in enumerate(texts or ["none"]):
                yield f"{'' if number else name:<{width}}  {visible(text)}\n"


def _rich_table(names: Sequence[str], rows: Iterable[Row]) -> None:
    """A table for a terminal: it fits its width, and the header has a colour."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    left = iter(rows)
    while True:
        some = list(islice(left, _MEASURED_ROWS))
        table = Table(box=None, header_style="bold cyan", pad_edge=False)
        for number, name in enumerate(names):
            numeric = bool(some) and all(isinstance(row[number], (int, float)) for row in some)
            table.add_column(
                Text(visible(name)), justify="right" if numeric else "left", overflow="fold"
            )
        for row in some:
            table.add_row(*(Text(visible(_text(cell, "NULL"))) for cell in row))
        console.print(table)
        if len(some) < _MEASURED_ROWS:
            return


_UPRIGHT: Callable[[Sequence[str], Iterable[Row]], Iterator[str]] = _upright
_WRITERS: Mapping[str, Callable[[Sequence[str], Iterable[Row]], Iterator[str]]] = {
    "table": _table,
    "json": _json_array,
    "jsonl": _json_lines,
    "csv": _csv,
}
