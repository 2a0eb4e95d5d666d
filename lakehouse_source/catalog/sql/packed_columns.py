"""Edge. Columns of many rows, which a database hands out as one value for each column.

Handing out a row of four values takes SQLite and Python longer than finding the row in an index. So
the database joins the values of a column, and Arrow divides them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from lakehouse_source.catalog.sql.statements import Row

# Columns of integers and of bytes, by their names. None of the values is NULL.
Columns: TypeAlias = Sequence[tuple[str, pa.DataType]]

# Stands between values of bytes. It begins with the only byte of its kind in it, so that two
# occurrences never overlap: if there are as many as there are values less one, each of them was put
# there, and no value has it.
SEPARATOR = b"\xfdplake\x01\xfe"


def of_rows(columns: Columns, rows: Sequence[Row]) -> list[pa.Array]:
    """The columns of rows that were handed out one by one."""
    return [
        pa.array([row[place] for row in rows], type_) for place, (_, type_) in enumerate(columns)
    ]


def count_of(columns: Columns) -> str:
    """The number of rows, in SQL; NULL where bytes are NULL.

    A value with the separator in it would stand for another one that is NULL and left out.
    """
    whole = [f"count({name}) = count(*)" for name, type_ in columns if pa.types.is_binary(type_)]
    return f"CASE WHEN {' AND '.join(whole)} THEN count(*) END" if whole else "count(*)"


def unpack(columns: Columns, row: Row) -> list[pa.Array] | None:
    """The columns of a row that begins with `count_of` them, and has the values of each column.

    None: a value was not of its column's type, was NULL, or had the separator in it.
    """
    import pyarrow.compute as pc  # 10 ms, which most commands do not need

    count, *packed = row
    if count is None:
        return None
    found = []
    for (_, type_), values in zip(columns, packed):
        if not count:
            found.append(pa.array([], type_))
            continue
        if pa.types.is_binary(type_):
            # pa.array makes a copy of the value; a buffer does not.
            whole = pa.Array.from_buffers(
                pa.large_binary(), 1, [None, _ends(len(values)), pa.py_buffer(values)]
            )
            column = pc.split_pattern(whole, SEPARATOR).flatten().cast(type_)
        else:
            texts = pc.split_pattern(pa.array([values], pa.large_string()), ",").flatten()
            try:
                column = pc.cast(texts, type_)
            except pa.ArrowInvalid:
                return None
        if len(column) != count:
            return None
        found.append(column)
    return found


def _ends(size: int) -> pa.Buffer:
    return pa.array([0, size], pa.int64()).buffers()[1]
