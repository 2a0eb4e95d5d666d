"""Edge. Parquet page indexes: bounds of each page of a column chunk.

PyArrow 26 writes page indexes and skips no page by them when it reads, so plake
uses them for `prune_file` only: its own reader decodes whole row groups, which
are small (131,072 rows), and the condition's columns first. DataFusion does skip
pages: one point among 5M rows x 8 columns in one file took it 10 ms where plake,
catalog included, took 20 (medians of 25, on two busy cores). Ten milliseconds of a
lookup are not worth a second engine on every executor.

Source: Parquet format, PageIndex.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakehouse_source.model import ColumnBounds
from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.footer import ordinal
from lakehouse_source.parquet.thrift import ThriftError, read_struct
from lakehouse_source.schema.fields import Leaf

ReadAt = Callable[[int, int], bytes]
_LARGEST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """Rows `first_row` to `end_row` (exclusive) of a row group, and one column's bounds there."""

    first_row: int
    end_row: int
    bounds: ColumnBounds


class PageIndex:
    """The page indexes of one file, read as they are asked for."""

    def __init__(self, read_at: ReadAt, file_size: int, footer: CheckedFooter) -> None:
        self._read_at = read_at
        self._file_size = file_size
        self._footer = footer

    def pages(self, row_group: int, position: int, leaf: Leaf) -> list[Page] | None:
        """The pages of a column chunk in row order, None where nothing is known of them.

        `position` is the column's place among the file's leaf columns.
        """
        chunk = self._footer.chunk(row_group, position)
        if chunk.offset_index is None or chunk.column_index is None:
            return None
        try:
            offsets, _ = read_struct(self._bytes(*chunk.offset_index))
            columns, _ = read_struct(self._bytes(*chunk.column_index))
            starts = [location[3] for location in offsets[1]]
            rows = self._footer.row_counts[row_group]
            return _pages(starts, rows, columns, leaf, chunk.physical_type)
        except (LookupError, TypeError, ValueError, OSError, struct.error):
            # A damaged index: the row group's statistics stand.
            return None

    def _bytes(self, offset: int, length: int) -> bytes:
        if offset < 0 or not 0 <= length <= _LARGEST_BYTES or offset + length > self._file_size:
            raise ThriftError("a place outside the file")
        return self._read_at(length, offset)


def _pages(
    starts: list[int], rows: int, columns: dict[int, Any], leaf: Leaf, physical: str
) -> list[Page] | None:
    empty, lowers, uppers = columns[1], columns[2], columns[3]
    null_counts = columns.get(5) or [None] * len(starts)
    lengths = {len(starts), len(empty), len(lowers), len(uppers), len(null_counts)}
    ends = [*starts[1:], rows]
    in_order = starts[:1] == [0] and all(a < b for a, b in zip(starts, ends))
    if len(lengths) != 1 or not in_order:
        return None
    floats = pa.types.is_floating(leaf.type)
    pages = []
    for i, (first, end) in enumerate(zip(starts, ends)):
        count = end - first
        nulls = null_counts[i]
        if nulls is not None and not 0 <= nulls <= count:
            nulls = None
        if empty[i]:
            # Writers without statistics call every page a null page and count -1 nulls in it
            # (datapage_v1-snappy-compressed-checksum.parquet): only both together are believed.
            known = nulls == count
            bounds = ColumnBounds(None, None, nulls, count, floats and not known)
        else:
            lower = ordinal(_plain(lowers[i], physical), physical, leaf.type)
            upper = ordinal(_plain(uppers[i], physical), physical, leaf.type)
            bounds = ColumnBounds(lower, upper, nulls, count, floats)
        pages.append(Page(first, end, bounds))
    return pages


def _plain(raw: bytes, physical: str) -> Any:
    """A value in plain encoding, as PyArrow's `Statistics.min_raw` gives it."""
    if physical in ("INT32", "INT64"):
        return int.from_bytes(raw, "little", signed=True)
    if physical == "FLOAT":
        return struct.unpack("<f", raw)[0]
    if physical == "DOUBLE":
        return struct.unpack("<d", raw)[0]
    if physical == "BOOLEAN":
        return bool(raw[0])
    return raw
