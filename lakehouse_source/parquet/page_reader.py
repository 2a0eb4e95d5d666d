"""Edge. Reads some rows of a file by fetching only the pages that hold them.

PyArrow reads whole column chunks. So the needed pages are put together as a small Parquet file in
memory. PyArrow decodes this file and checks the pages' checksums, and the rows are
cut out.

Columns whose chosen pages begin and end at the same rows are read together: they form a row group
of that file for each row group that the pages come from. If pages of a nested column's leaves end
at different rows, the pages between common ends are read together. The rows of a column with lists
are counted after decoding. A contradiction raises `UnusablePages`, and the caller reads whole row
groups.
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
    """Rows that cannot be read by pages."""


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
class PagePart:
    """The chosen pages of some columns in one row group."""

    row_group: int
    row_count: int
    leaves: list[PageLeaf] = field(default_factory=list)


@dataclass(slots=True)
class PageGroup:
    """Columns whose chosen pages hold the same rows, which are `runs`, by row group."""

    runs: tuple[RowRange, ...]
    has_lists: bool
    parts: list[PagePart]
    paths: list[str] = field(default_factory=list)

    @property
    def row_count(self) -> int:
        return sum(part.row_count for part in self.parts)

    @property
    def leaves(self) -> list[PageLeaf]:
        return [leaf for part in self.parts for leaf in part.leaves]


def file_of_pages(source: ByteRanges, footer: CheckedFooter, groups: Sequence[PageGroup]) -> bytes:
    """A Parquet file of the pages of `groups`, with a row group for each of their parts.

    Raises:
        OutsideFile: a page is not in the file.
    """
    spans = [span for group in groups for leaf in group.leaves for span in leaf.spans]
    fetched = source.read(spans)
    parts = [_MAGIC]
    size = len(_MAGIC)
    row_groups = []
    for has_lists, names, part in (
        (group.has_lists, len(group.paths), part) for group in groups for part in group.parts
    ):
        # PyArrow reads no more rows than a row group declares. If one more is declared, it reads
        # all of them, and rows of lists can be counted.
        row_count = part.row_count + has_lists
        chunks = [_NO_CHUNK] * footer.leaf_count
        if _COUNTS_BY_POSITION:
            for position in range(min(len(chunks), names)):
                chunks[position] = _empty_chunk(footer, position, row_count)
        group_size = 0
        for leaf in part.leaves:
            pieces = [fetched[span] for span in leaf.spans]
            meta = footer.structure(part.row_group, leaf.position)[3]
            try:
                chunk, length = _column_chunk(meta, leaf, pieces, size)
            except _DAMAGE as error:
                raise UnusablePages(str(error)) from error
            counts = _COUNTS_BY_POSITION and leaf.position < names
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
    """The pages that hold some rows of some columns. `whole` has the rows of each row group."""

    columns: Sequence[FileColumn]
    rows: Sequence[RowRange]
    groups: list[PageGroup]
    whole: dict[int, RowRange]

    @property
    def pays(self) -> bool:
        """Tell whether these pages cost less than the columns' whole chunks."""
        cost = whole = 0
        for group in self.groups:
            for part in group.parts:
                first, end = self.whole[part.row_group]
                pages = sum(len(leaf.pages) for leaf in part.leaves)
                cost += _ROW_GROUP_VALUES + _PAGE_VALUES * pages
                cost += len(part.leaves) * (_LEAF_VALUES + part.row_count)
                whole += len(part.leaves) * (end - first)
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

    def choose(self, columns: Sequence[FileColumn], rows: Sequence[RowRange]) -> ChosenPages:
        """The pages that hold `rows`.

        They are rows of the file, in order, do not overlap, and no range leaves its row group.
        """
        starts = self._footer.row_starts
        by_row_group: dict[int, list[RowRange]] = {}
        for first, end in rows:
            row_group = bisect_right(starts, first) - 1
            start = starts[row_group]
            by_row_group.setdefault(row_group, []).append((first - start, end - start))
        groups: dict[tuple[bool, tuple[RowRange, ...]], PageGroup] = {}
        for column in columns:
            if not column.positions:
                raise UnusablePages(f"no leaf column of {column.name!r}")
            runs: list[RowRange] = []
            parts = []
            for row_group, within in by_row_group.items():
                chunks = [self._chunk(row_group, position) for position in column.positions]
                found = _runs(_common_starts(chunks), self._footer.row_counts[row_group], within)
                start = starts[row_group]
                runs += ((start + first, start + end) for first, end in found)
                part = PagePart(row_group, sum(end - first for first, end in found))
                for position, chunk in zip(column.positions, chunks):
                    part.leaves.append(_leaf(position, column.has_lists, chunk, found))
                parts.append(part)
            # Rows of lists are counted separately, see `file_of_pages`.
            group = PageGroup(tuple(runs), column.has_lists, parts)
            same = groups.setdefault((column.has_lists, group.runs), group)
            same.paths += column.paths
            if same is not group:
                for part, more in zip(same.parts, parts):
                    part.leaves += more.leaves
        whole = {one: (starts[one], starts[one + 1]) for one in by_row_group}
        return ChosenPages(columns, rows, list(groups.values()), whole)

    def read(self, chosen: ChosenPages) -> pa.Table:
        """The rows of the columns, one after the other.

        Raises:
            ArrowException, OSError: the file cannot be read.
        """
        groups = chosen.groups
        try:
            data = file_of_pages(self._source, self._footer, groups)
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
                self._footer.leaf_paths[first.position]
                for group in groups
                for first, *others in zip(*(part.leaves for part in group.parts))
                if self._is_text(first.position)
                and all(leaf.in_dictionary for leaf in (first, *others))
            ],
            coerce_int96_timestamp_unit=INT96_UNIT,
            page_checksum_verification=True,
            thrift_string_size_limit=len(data),
        )
        found, number = list[pa.Table](), 0
        for group in groups:
            tables = []
            # The rows of lists are counted in each row group.
            for parts in ([part] for part in group.parts) if group.has_lists else (group.parts,):
                row_count = sum(part.row_count for part in parts)
                table = parquet.read_row_groups(
                    range(number, number + len(parts)),
                    columns=group.paths,
                    # Handing a column to a thread takes as long as decoding 10,000 values.
                    use_threads=self._use_threads and row_count > ROWS_FOR_THREADS,
                )
                if table.num_rows != row_count:
                    raise UnusablePages(f"{table.num_rows} rows in pages of {row_count}")
                tables.append(table)
                number += len(parts)
            found.append(pa.concat_tables(tables))
        return found

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
