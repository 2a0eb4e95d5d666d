"""Edge. Reads some rows of a row group by fetching only the pages that hold them.

PyArrow reads whole column chunks. So the needed pages are put together as a small Parquet file in
memory. PyArrow decodes this file and checks the pages' checksums, and the rows are
cut out.

Columns whose chosen pages begin and end at the same rows form one row group of that file. If pages
of a nested column's leaves end at different rows, the pages between common ends are read together.
The rows of a column with lists are counted after decoding. A contradiction raises `UnusablePages`,
and the caller reads the whole row group.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.parquet.checked_footer import PHYSICAL_TYPES, CheckedFooter
from lakehouse_source.parquet.foreign import INT96_UNIT
from lakehouse_source.parquet.page_index import ChunkPages, PageIndex, PageLocation, RowRange
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
from lakehouse_source.storage.files import ByteRange, ByteRanges, OutsideFile

# --- A small Parquet file in memory, made of some pages of another file.
#
# Its schema is copied byte for byte from the real footer, and its column chunks are the dictionary
# page and the chosen data pages of the real chunks. The offset index alone is not trusted: the
# header of each page must be that of a data page, and have the size and, for a column without
# lists, the number of rows that the index says.


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


# The cost of a row group of the file in memory, of a leaf column and of a page, in decoded values.
# With these figures, up to 10 of the 16 pages of a row group of 131,072 rows are read by pages.
# Measured on tables of 1, 2 and 8 columns, pages cost less than whole column chunks up to 11 to
# 13 of 16.
_ROW_GROUP_VALUES, _LEAF_VALUES, _PAGE_VALUES = 8_000, 6_000, 4_000
# Fewer rows are decoded in the calling thread.
ROWS_FOR_THREADS = 40_000


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A top-level column, or the part of it that is read, as leaf columns of the file.

    `paths` are the leaf columns' paths, `positions` their places. `has_lists` tells that a
    row may have several values.
    """

    name: str
    paths: tuple[str, ...]
    positions: tuple[int, ...]
    has_lists: bool


@dataclass(frozen=True, slots=True)
class ChosenPages:
    """The pages of one row group that hold some rows of some columns."""

    row_group: int
    columns: Sequence[FileColumn]
    rows: Sequence[RowRange]
    groups: list[PageGroup]
    rows_in_row_group: int

    @property
    def pays(self) -> bool:
        """Tell whether these pages cost less than the columns' whole chunks."""
        cost = whole = 0
        for group in self.groups:
            pages = sum(len(leaf.pages) for leaf in group.leaves)
            cost += _ROW_GROUP_VALUES + _PAGE_VALUES * pages
            cost += len(group.leaves) * (_LEAF_VALUES + group.row_count)
            whole += len(group.leaves) * self.rows_in_row_group
        return cost < whole


class PageReader:
    """Reads rows of one file by pages. `use_threads`: decode columns of many rows in parallel."""

    def __init__(
        self,
        source: ByteRanges,
        footer: CheckedFooter,
        index: PageIndex,
        *,
        use_threads: bool = True,
    ) -> None:
        self._source = source
        self._footer = footer
        self._index = index
        self._use_threads = use_threads

    def choose(
        self, row_group: int, columns: Sequence[FileColumn], rows: Sequence[RowRange]
    ) -> ChosenPages:
        """The pages that hold `rows`, which are in order and do not overlap."""
        row_count = self._footer.row_counts[row_group]
        groups: dict[tuple[bool, tuple[RowRange, ...]], PageGroup] = {}
        for column in columns:
            chunks = [self._chunk(row_group, position) for position in column.positions]
            if not chunks:
                raise UnusablePages(f"no leaf column of {column.name!r}")
            runs = _runs(_common_starts(chunks), row_count, rows)
            # Rows of lists are counted separately, see `file_of_pages`.
            key = (column.has_lists, runs)
            if key not in groups:
                count = sum(end - first for first, end in runs)
                groups[key] = PageGroup(runs, count, column.has_lists)
            groups[key].paths += column.paths
            for position, chunk in zip(column.positions, chunks):
                groups[key].leaves.append(_leaf(position, column.has_lists, chunk, runs))
        return ChosenPages(row_group, columns, rows, list(groups.values()), row_count)

    def read(self, chosen: ChosenPages) -> pa.Table:
        """The rows of the columns, one after the other.

        Raises:
            ArrowException, OSError: the file cannot be read.
        """
        groups = chosen.groups
        try:
            data = file_of_pages(self._source, self._footer, chosen.row_group, groups)
        except OutsideFile as error:
            raise UnusablePages(str(error)) from error
        try:
            tables = self._decoded(data, groups)
        except (pa.ArrowException, OSError) as error:
            if any(group.has_lists for group in groups):
                # This PyArrow may refuse a row group with fewer rows than declared.
                raise UnusablePages(str(error)) from error
            raise CorruptDatasetError(path=self._footer.path, reason=str(error)) from error
        read: dict[str, pa.ChunkedArray] = {}
        for table, group in zip(tables, groups):
            if table.num_rows != group.row_count:
                raise UnusablePages(f"{table.num_rows} rows in pages of {group.row_count}")
            found = cut(table, group.runs, chosen.rows)
            read |= dict(zip(found.column_names, found.columns))
            for name in found.column_names:
                # Decoded as a dictionary and cut: now only few values must become text.
                type_ = self._footer.arrow_schema.field(name).type
                if pa.types.is_dictionary(read[name].type) and not pa.types.is_dictionary(type_):
                    read[name] = read[name].cast(type_)
        return pa.table({column.name: read[column.name] for column in chosen.columns})

    def _decoded(self, data: bytes, groups: Sequence[PageGroup]) -> list[pa.Table]:
        parquet = pq.ParquetFile(
            pa.BufferReader(data),
            read_dictionary=[
                self._footer.leaf_paths[leaf.position]
                for group in groups
                for leaf in group.leaves
                if leaf.in_dictionary and self._is_text(leaf.position)
            ],
            coerce_int96_timestamp_unit=INT96_UNIT,
            page_checksum_verification=True,
            thrift_string_size_limit=len(data),
        )
        return [
            parquet.read_row_group(
                number,
                columns=group.paths,
                # Handing a column to a thread takes as long as decoding 10,000 values.
                use_threads=self._use_threads and group.row_count > ROWS_FOR_THREADS,
            )
            for number, group in enumerate(groups)
        ]

    def _is_text(self, position: int) -> bool:
        """Tell whether a leaf column is a top-level column of strings or bytes."""
        _, type_ = self._footer.places.get((self._footer.leaf_paths[position],), (0, None))
        return type_ is not None and (pa.types.is_string(type_) or pa.types.is_binary(type_))

    def _chunk(self, row_group: int, position: int) -> ChunkPages:
        found = self._index.locations(row_group, position)
        if found is None:
            raise UnusablePages(f"no offset index of column {position} can be used")
        return found


def cut(table: pa.Table, runs: Sequence[RowRange], rows: Sequence[RowRange]) -> pa.Table:
    """The requested rows of a table that holds the rows of `runs` one after the other.

    Each range of rows lies within one run.
    """
    if tuple(rows) == tuple(runs):
        return table
    places = []
    before, at = 0, 0
    for first, end in rows:
        while end > runs[at][1]:
            before += runs[at][1] - runs[at][0]
            at += 1
        places.append((before + first - runs[at][0], end - first))
    if len(places) == 1:
        return table.slice(*places[0])
    count = sum(length for _, length in places)
    if count < 64 * len(places):
        indices = [place for start, length in places for place in range(start, start + length)]
        return table.take(pa.array(indices, pa.int64()))
    return pa.concat_tables([table.slice(*place) for place in places])


def _common_starts(chunks: Sequence[ChunkPages]) -> list[int]:
    """The rows at which a page of each leaf column begins."""
    if len(chunks) == 1:
        return chunks[0].starts
    common = set(chunks[0].starts)
    for chunk in chunks[1:]:
        common &= set(chunk.starts)
    return sorted(common)


def _runs(starts: Sequence[int], row_count: int, rows: Sequence[RowRange]) -> tuple[RowRange, ...]:
    """The smallest ranges between starts that hold all rows; neighbouring ones are joined."""
    ends = [*starts[1:], row_count]
    runs: list[RowRange] = []
    for first, end in rows:
        start = starts[bisect_right(starts, first) - 1]
        stop = ends[bisect_left(ends, end)]
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(stop, runs[-1][1]))
        else:
            runs.append((start, stop))
    return tuple(runs)


def _leaf(position: int, has_lists: bool, chunk: ChunkPages, runs: Sequence[RowRange]) -> PageLeaf:
    """The pages that hold the rows of `runs`; each run begins and ends with a page."""
    pages: list[PageLocation] = []
    spans = [] if chunk.dictionary is None else [chunk.dictionary]
    for first, end in runs:
        within = chunk.pages[bisect_left(chunk.starts, first) : bisect_left(chunk.starts, end)]
        offset, last = within[0].offset, within[-1]
        spans.append((offset, last.offset + last.size_bytes - offset))
        pages += within
    return PageLeaf(position, has_lists, chunk.dictionary, pages, spans)
