"""Edge. Reads some rows of a row group by fetching only the pages that hold them.

PyArrow reads whole column chunks. So the needed pages are put together as a small Parquet file in
memory (`page_file`). PyArrow decodes this file and checks the pages' checksums, and the rows are
cut out.

Columns whose chosen pages begin and end at the same rows form one row group of that file. If pages
of a nested column's leaves end at different rows, the pages between common ends are read together.
The rows of a column with lists are counted after decoding. A contradiction raises `UnusablePages`,
and the caller reads the whole row group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.parquet.byte_ranges import ByteRanges, OutsideFile
from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.foreign import INT96_UNIT
from lakehouse_source.parquet.page_file import (
    PageGroup,
    PageLeaf,
    UnusablePages,
    file_of_pages,
)
from lakehouse_source.parquet.page_index import ChunkPages, PageIndex, PageLocation, RowRange

# The cost of a row group of the file in memory, of a leaf column and of a page, in decoded values.
# With these figures, up to 10 of the 16 pages of a row group of 131,072 rows are read by pages.
# Measured on tables of 1, 2 and 8 columns, pages cost less than whole column chunks up to 11 to
# 13 of 16.
_ROW_GROUP_VALUES, _LEAF_VALUES, _PAGE_VALUES = 8_000, 6_000, 4_000
# Fewer rows are decoded in the calling thread.
_ROWS_FOR_THREADS = 40_000


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
                use_threads=self._use_threads and group.row_count > _ROWS_FOR_THREADS,
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
