"""Edge. A small Parquet file in memory, made of some pages of another file.

Its schema is copied byte for byte from the real footer, and its column chunks are the dictionary
page and the chosen data pages of the real chunks. The offset index alone is not trusted: the header
of each page must be that of a data page, and have the size and, for a column without lists, the
number of rows that the index says.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakehouse_source.parquet.byte_ranges import ByteRange, ByteRanges
from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.footer_structure import PHYSICAL_TYPES
from lakehouse_source.parquet.page_index import PageLocation, RowRange
from lakehouse_source.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    read_struct,
    write_binary,
    write_list,
    write_struct,
)

_MAGIC = b"PAR1"
# Source: parquet.thrift, `PageType`.
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
# Source: parquet.thrift, `Encoding`: PLAIN_DICTIONARY, RLE_DICTIONARY.
_IN_DICTIONARY = frozenset((2, 8))
# Text is decoded as a dictionary if each entry stands for this many values on average.
_VALUES_OF_ENTRY = 4
# A column chunk that is not in the file in memory: only `file_offset`, which is required.
_NO_CHUNK = write_struct([(2, I64, 0)])
# For the nth requested column, PyArrow before 26 reads as many rows as the nth column chunk has
# values, even if this chunk belongs to another column.
_COUNTS_BY_POSITION = int(pa.__version__.split(".")[0]) < 26
# The errors that parsing damaged bytes may raise.
_DAMAGE = (LookupError, TypeError, ValueError, OverflowError, struct.error)


class UnusablePages(ValueError):
    """A row group that cannot be read by pages."""


@dataclass(slots=True)
class PageLeaf:
    """A leaf column of the file in memory: the dictionary and data pages of a column chunk.

    `value_count` counts the values of all pages, NULLs included. `in_dictionary`: all values are in
    a small dictionary.
    """

    position: int
    has_lists: bool
    dictionary: ByteRange | None
    pages: list[PageLocation]
    spans: list[ByteRange]
    value_count: int = 0
    in_dictionary: bool = False


@dataclass(slots=True)
class PageGroup:
    """Columns whose chosen pages hold the same rows, which are `runs`."""

    runs: tuple[RowRange, ...]
    row_count: int
    has_lists: bool
    paths: list[str] = field(default_factory=list)
    leaves: list[PageLeaf] = field(default_factory=list)


def file_of_pages(
    source: ByteRanges, footer: CheckedFooter, row_group: int, groups: Sequence[PageGroup]
) -> bytes:
    """A Parquet file of the pages of one row group, with a row group for each of `groups`.

    Raises:
        OutsideFile: a page is not in the file.
    """
    spans = [span for group in groups for leaf in group.leaves for span in leaf.spans]
    fetched = source.read(spans)
    parts = [_MAGIC]
    size = len(_MAGIC)
    row_groups = []
    for group in groups:
        # PyArrow reads no more rows than a row group declares. If one more is declared, it reads
        # all of them, and rows of lists can be counted.
        row_count = group.row_count + group.has_lists
        chunks = [_NO_CHUNK] * footer.leaf_count
        if _COUNTS_BY_POSITION:
            for position in range(min(len(chunks), len(group.paths))):
                chunks[position] = _empty_chunk(footer, position, row_count)
        group_size = 0
        for leaf in group.leaves:
            pieces = [fetched[span] for span in leaf.spans]
            meta = footer.structure(row_group, leaf.position)[3]
            try:
                chunk, length = _column_chunk(meta, leaf, pieces, size)
            except _DAMAGE as error:
                raise UnusablePages(str(error)) from error
            counts = _COUNTS_BY_POSITION and leaf.position < len(group.paths)
            if counts and leaf.value_count < row_count:
                raise UnusablePages("this PyArrow would not read one row more")
            chunks[leaf.position] = chunk
            parts += pieces
            size += length
            group_size += length
        row_groups.append(
            write_struct(
                [
                    (1, LIST, write_list(STRUCT, chunks)),
                    (2, I64, group_size),
                    (3, I64, row_count),
                ]
            )
        )
    end = footer.with_row_groups(row_groups, sum(group.row_count for group in groups))
    return b"".join((*parts, end, len(end).to_bytes(4, "little"), _MAGIC))


def _empty_chunk(footer: CheckedFooter, position: int, value_count: int) -> bytes:
    """A `ColumnChunk` of which PyArrow uses only the number of values."""
    type_ = PHYSICAL_TYPES.index(footer.metadata.schema.column(position).physical_type)
    # Source: parquet.thrift, `ColumnMetaData`: field ids.
    meta: list[tuple[int, int, int | bytes]] = [
        (1, I32, type_),
        (2, LIST, write_list(I32, [])),
        (3, LIST, write_list(BINARY, [])),
        (4, I32, 0),
        (5, I64, value_count),
        (6, I64, 0),
        (7, I64, 0),
        (9, I64, 0),
    ]
    return write_struct([(2, I64, 0), (3, STRUCT, write_struct(meta))])


def _column_chunk(
    meta: Struct, leaf: PageLeaf, pieces: Sequence[bytes], start: int
) -> tuple[bytes, int]:
    """A `ColumnChunk` for the pages in `pieces`, which begin at `start`; and their length."""
    length = sum(len(piece) for piece in pieces)
    dictionary = 0
    distinct = None
    if leaf.dictionary is not None:
        dictionary = len(pieces[0])
        distinct = _page_header(pieces[0], 0, dictionary, (_DICTIONARY_PAGE,))[7][1]
        pieces = pieces[1:]
    value_count = 0
    encodings = set()
    piece = at = 0
    for page in leaf.pages:
        if at == len(pieces[piece]):
            piece, at = piece + 1, 0
        values, encoding = _data_page(pieces[piece], at, page, leaf.has_lists)
        value_count += values
        encodings.add(encoding)
        at += page.size_bytes
    leaf.value_count = value_count
    if distinct is not None and encodings <= _IN_DICTIONARY:
        leaf.in_dictionary = distinct * _VALUES_OF_ENTRY <= value_count
    # Source: parquet.thrift, `ColumnMetaData`: field ids.
    fields: list[tuple[int, int, int | bytes]] = [
        (1, I32, meta[1]),
        (2, LIST, write_list(I32, meta[2])),
        (3, LIST, write_list(BINARY, [write_binary(name) for name in meta[3]])),
        (4, I32, meta[4]),
        (5, I64, value_count),
        (6, I64, meta[6]),
        (7, I64, length),
        (9, I64, start + dictionary),
    ]
    if dictionary:
        fields.append((11, I64, start))
    return write_struct([(2, I64, start), (3, STRUCT, write_struct(fields))]), length


def _data_page(data: bytes, at: int, page: PageLocation, has_lists: bool) -> tuple[int, int]:
    """How many values a data page has, NULLs included, and their encoding, by its header."""
    header = _page_header(data, at, page.size_bytes, (_DATA_PAGE, _DATA_PAGE_V2))
    rows = page.end_row - page.first_row
    # Source: parquet.thrift, `DataPageHeader`: num_values, encoding; `DataPageHeaderV2`:
    # num_values, num_rows, encoding.
    if header[1] == _DATA_PAGE:
        values, encoding = header[5][1], header[5][2]
    else:
        values, encoding = header[8][1], header[8][4]
        if header[8][3] != rows:
            raise UnusablePages(f"a page has {header[8][3]} rows, not {rows}")
    if not isinstance(values, int) or values < 0:
        raise UnusablePages("a page has a negative number of values")
    if not has_lists and values != rows:
        raise UnusablePages(f"a page has {values} rows, not {rows}")
    return values, encoding


def _page_header(data: bytes, at: int, size: int, types: Sequence[int]) -> Struct:
    """The `PageHeader` of a page of `size` bytes, of one of these types."""
    header, end = read_struct(data, at)
    if header[1] not in types or end + header[3] != at + size:
        raise UnusablePages("a page is not where the index says")
    return header
