"""Edge. Which rows of a row group are read: in ranges, matching, and not deleted."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.parquet.open_file import OpenFile
from lakehouse_source.parquet.page_index import RowRange


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of an open file. `first_row` is the position of its first row in the file.

    `live` marks the rows that are not deleted; None: no row is deleted.
    """

    file: OpenFile
    index: int
    row_count: int
    first_row: int
    live: pa.BooleanArray | None


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a row group, in order: the rows of `rows` that `mask` marks."""

    group: RowGroup
    ranges: tuple[RowRange, ...]
    mask: pa.ChunkedArray | None = None

    @property
    def count(self) -> int:
        if self.mask is not None:
            return int(pc.sum(self.mask).as_py() or 0)
        return sum(end - first for first, end in self.ranges)

    @property
    def positions(self) -> pa.Array:
        """The positions of the rows in the file."""
        start = self.group.first_row
        parts = [pa.arange(start + first, start + end) for first, end in self.ranges]
        found = pa.chunked_array(parts, pa.int64()).combine_chunks()
        return found if self.mask is None else found.filter(_one_array(self.mask))

    @property
    def live(self) -> pa.Array | None:
        """Which of the rows are not deleted; None: all, or `mask` marks no deleted row."""
        live = self.group.live
        if live is None or self.mask is not None:
            return None
        return pa.concat_arrays([live.slice(first, end - first) for first, end in self.ranges])


def of_live(
    mask: pa.ChunkedArray | pa.BooleanArray, live: pa.BooleanArray | None
) -> pa.ChunkedArray | pa.BooleanArray:
    """The rows that `mask` marks and that are not deleted."""
    return mask if live is None else pc.and_(_one_array(mask), live)


def most_of(
    columns: list[pa.ChunkedArray], schema: pa.Schema, mask: pa.BooleanArray | pa.ChunkedArray
) -> pa.Table:
    """The rows that a mask marks, if it marks most rows.

    `Table.filter` takes twice as long for this. `columns` is empty afterwards. If nothing else
    refers to a column, its memory is used again for the rows of the next column; new memory takes
    as long as the copying (page faults).
    """
    found = []
    columns.reverse()
    while columns:
        found.append(pc.filter(columns.pop(), mask))
    return pa.Table.from_arrays(found, schema=schema)


def marked(rows: tuple[RowRange, ...], mask: pa.ChunkedArray) -> tuple[RowRange, ...]:
    """The rows that `mask` marks; the mask has an item for each row in `rows`."""
    found: list[RowRange] = []
    before = at = 0
    for place in pc.indices_nonzero(mask).to_pylist():
        while place - before >= rows[at][1] - rows[at][0]:
            before += rows[at][1] - rows[at][0]
            at += 1
        row = rows[at][0] + place - before
        if found and found[-1][1] == row:
            found[-1] = (found[-1][0], row + 1)
        else:
            found.append((row, row + 1))
    return tuple(found)


def _one_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
