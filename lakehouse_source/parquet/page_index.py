"""Edge. Pages of a column chunk: where they are, which may match a condition, and their sizes.

An index is trusted like footer statistics. An index that contradicts itself, its column chunk or
the statistics is not used. An index with consistent errors cannot be detected, if these are in its
bounds and null counts, or in the first rows of pages that nobody reads. `page_reader` checks the
headers of the pages that it reads against the index.

Source: Parquet format, PageIndex.md; parquet.thrift, `OffsetIndex`, `ColumnIndex`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.language import BoundPredicate
from lakehouse_source.model import ColumnBounds
from lakehouse_source.parquet.checked_footer import CheckedFooter
from lakehouse_source.parquet.footer import has_wrong_bytes, is_covered, ordinal
from lakehouse_source.parquet.foreign import has_certain_order
from lakehouse_source.parquet.thrift import ThriftError, read_struct
from lakehouse_source.pruning.bounds import promoted
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.schema.fields import Leaf, leaves, storage_type
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.schema.variant_paths import TypedPath
from lakehouse_source.storage.files import ByteRange, ByteRanges, OutsideFile

# --- Checks the sizes in the headers of pages before anything decodes the pages.
#
# A page of a few kilobytes may decompress to 2 GiB, and PyArrow allocates the size in the header.


# The limit if the catalog does not know the sizes.
LARGEST_PAGE_BYTES = 512 * 1024 * 1024
# How much larger a page may be than its row group in the catalog.
_SLACK_BYTES = 1 << 20
# A header has bounds of the page's values in it, which may be long texts.
_HEADER_BYTES = (256, 64 * 1024, 4 * 1024 * 1024)


def oversized_page(
    file: pa.NativeFile, footer: CheckedFooter, row_group: int, limit_bytes: int
) -> str | None:
    """What is wrong with the headers of a row group's pages; None: nothing.

    No header may declare more than `limit_bytes` of decompressed bytes.

    Raises:
        CorruptDatasetError: a column chunk contradicts the schema.
    """
    for position in range(footer.leaf_count):
        meta = footer.structure(row_group, position)[3]
        begins = [meta[id] for id in (9, 11) if isinstance(meta.get(id), int) and meta[id] > 0]
        at = min(begins, default=0)
        end = at + meta[7]
        if at < 0 or meta[7] < 0 or end > file.size():
            return f"column {position} is not in the file"
        while at < end:
            header, length = _header(file, at, end)
            decoded, stored = header.get(2), header.get(3)
            if not isinstance(decoded, int) or not isinstance(stored, int) or stored < 0:
                return f"a page of column {position} has no size"
            if not 0 <= decoded <= limit_bytes + _SLACK_BYTES:
                return f"a page of column {position} says that it has {decoded:,} bytes"
            at += length + stored
    return None


def _header(file: pa.NativeFile, at: int, end: int) -> tuple[dict[int, object], int]:
    for size in _HEADER_BYTES:
        data = file.read_at(min(size, end - at), at)
        try:
            return read_struct(data)
        except ThriftError:
            if len(data) == end - at:
                break
    return {}, 0


# The first row, and the one after the last.
RowRange: TypeAlias = tuple[int, int]

# Parsing takes about a second for this many bytes.
_LARGEST_BYTES = 4 * 1024 * 1024
# Parsed indexes up to this size are remembered, by all of their bytes.
_REMEMBERED_BYTES = 8 * 1024
# Source: parquet.thrift, `ColumnChunk`, `ColumnMetaData`, `Statistics`: field ids.
_META_DATA, _OFFSET_INDEX, _COLUMN_INDEX = 3, 4, 6
_STATISTICS, _MAX_VALUE, _MIN_VALUE = 12, 5, 6
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
# The errors that parsing a damaged index may raise.
_DAMAGE = (LookupError, TypeError, ValueError, OverflowError, struct.error)


class PageLocation(NamedTuple):
    """A data page with rows `first_row` to `end_row` (exclusive) of its row group.

    `size_bytes` includes the page's header.
    """

    offset: int
    size_bytes: int
    first_row: int
    end_row: int


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """All pages of a column chunk. `dictionary` are the bytes before the first data page.

    `starts` are the first rows of the pages.
    """

    dictionary: ByteRange | None
    pages: list[PageLocation]
    starts: list[int]


@dataclass(frozen=True, slots=True)
class PageBounds:
    """Rows `first_row` to `end_row` (exclusive) of a row group, and one column's bounds there."""

    first_row: int
    end_row: int
    bounds: ColumnBounds


class PageIndex:
    """The page indexes of one file, read on request."""

    def __init__(self, source: ByteRanges, footer: CheckedFooter) -> None:
        self._source = source
        self._footer = footer
        self._loaded: dict[ByteRange, bytes] = {}
        self._located: dict[tuple[int, int], ChunkPages | None] = {}

    def load(
        self,
        row_group: int,
        located: Iterable[int],
        bounded: Iterable[int] = (),
        *,
        keep: bool = False,
    ) -> None:
        """Read indexes of one row group together, for the leaf columns at these positions.

        `located` need the places of their pages, `bounded` also the bounds. Drops the indexes that
        were read before, if it should not `keep` them.
        """
        if not keep:
            self._located, self._loaded = {}, {}
        bounded = set(bounded)
        wanted = [(position, _OFFSET_INDEX) for position in {*located, *bounded}]
        wanted += [(position, _COLUMN_INDEX) for position in bounded]
        places = (self._place(row_group, position, field) for position, field in wanted)
        with suppress(OutsideFile):  # `_bytes` tells which
            self._loaded |= self._source.read(place for place in places if place is not None)

    def locations(self, row_group: int, position: int) -> ChunkPages | None:
        """The pages of a column chunk; None: their places are not certain.

        The places are certain if the pages follow each other without a gap from the first data page
        to the chunk's end, and their rows from the first row to the last.
        """
        key = (row_group, position)
        if key not in self._located:
            try:
                data = self._bytes(row_group, position, _OFFSET_INDEX)
                meta = self._footer.structure(row_group, position)[_META_DATA]
                # Source: parquet.thrift, `ColumnMetaData`: data_page_offset,
                # dictionary_page_offset, total_compressed_size.
                first, dictionary = meta[9], meta.get(11)
                start = dictionary if dictionary and dictionary < first else first
                rows = self._footer.row_counts[row_group]
                if data is None:
                    self._located[key] = None
                else:
                    read = _located if len(data) <= _REMEMBERED_BYTES else _located.__wrapped__
                    self._located[key] = read(data, start, meta[7], rows)
            except _DAMAGE:
                self._located[key] = None
        return self._located[key]

    def bounds(self, row_group: int, position: int, leaf: Leaf) -> Sequence[PageBounds] | None:
        """The bounds of each page in row order; None: they are not known.

        `position` is the column's place among the file's leaf columns, `leaf.type` the type
        that the file was written with.
        """
        try:
            offsets = self._bytes(row_group, position, _OFFSET_INDEX)
            columns = self._bytes(row_group, position, _COLUMN_INDEX)
            if offsets is None or columns is None:
                return None
            column = self._footer.metadata.schema.column(position)
            physical: str = column.physical_type
            if "BYTE_ARRAY" in physical and has_wrong_bytes(self._footer.created_by):
                return None
            width = column.length if physical == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(physical)
            meta = self._footer.structure(row_group, position)[_META_DATA]
            statistics = meta.get(_STATISTICS, {})
            read = _bounded if len(columns) <= _REMEMBERED_BYTES else _bounded.__wrapped__
            return read(
                offsets,
                columns,
                self._footer.row_counts[row_group],
                _Values(physical, width, leaf.type),
                (statistics.get(_MIN_VALUE), statistics.get(_MAX_VALUE)),
            )
        except _DAMAGE:
            # The index is damaged, so the row group's statistics are used.
            return None

    def _bytes(self, row_group: int, position: int, field: int) -> bytes | None:
        place = self._place(row_group, position, field)
        if place is None:
            return None
        if place not in self._loaded:
            self._loaded |= self._source.read([place])
        return self._loaded[place]

    def _place(self, row_group: int, position: int, field: int) -> ByteRange | None:
        """Where an index is. The length is the field after the offset."""
        chunk = self._footer.structure(row_group, position)
        offset, length = chunk.get(field), chunk.get(field + 1)
        if not isinstance(offset, int) or not isinstance(length, int) or length > _LARGEST_BYTES:
            return None
        return offset, length


def matching_rows(
    predicate: BoundPredicate,
    row_count: int,
    pages: Mapping[int, Sequence[PageBounds]],
    otherwise: Callable[[int], ColumnBounds],
) -> tuple[RowRange, ...]:
    """The rows of a row group on which `predicate` may be TRUE, in order.

    `pages` has the bounds of columns by id; `otherwise` gives those of other columns over the whole
    row group.
    """
    # Pages of different columns end at different rows, so the pieces between all ends are
    # evaluated.
    cuts = sorted({0, row_count, *(page.end_row for found in pages.values() for page in found)})
    places = dict.fromkeys(pages, 0)
    ranges: list[RowRange] = []
    for first, end in itertools.pairwise(cuts):
        for column_id, found in pages.items():
            while found[places[column_id]].end_row <= first:
                places[column_id] += 1

        def on_pages(column_id: int) -> ColumnBounds:
            found = pages.get(column_id)
            if found is None:
                return otherwise(column_id)
            return found[places[column_id]].bounds

        if evaluate(predicate, on_pages).may_match:
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((first, end))
    return tuple(ranges)


@lru_cache(maxsize=2048)
def _located(data: bytes, start: int, size_bytes: int, row_count: int) -> ChunkPages | None:
    """The pages of a column chunk of `size_bytes` at `start`, by its offset index `data`."""
    index, _ = read_struct(data)
    end = start + size_bytes
    places = [(place[1], place[2], place[3]) for place in index[1]]
    if not places or places[0][2] != 0 or places[0][0] < start:
        return None
    pages = []
    for (offset, size, first), (next_offset, _, next_first) in zip(
        places, [*places[1:], (end, 0, row_count)]
    ):
        # A page may be empty: PyArrow ends some column chunks with lists that way.
        if size <= 0 or offset + size != next_offset or first > next_first:
            return None
        pages.append(PageLocation(offset, size, first, next_first))
    head = places[0][0] - start
    return ChunkPages((start, head) if head else None, pages, [page.first_row for page in pages])


@dataclass(frozen=True, slots=True)
class _Values:
    """The encoding of a column's bounds. `width` is in bytes; None: values have any width."""

    physical: str
    width: int | None
    type: pa.DataType

    def ordinal(self, raw: bytes) -> Any:
        """A bound in plain encoding as an ordinal."""
        if self.width is not None and len(raw) != self.width:
            raise ThriftError("a bound of another width than the column's type has")
        return ordinal(_plain(raw, self.physical), self.physical, self.type)

    def ordinals(self, raws: Sequence[bytes | None]) -> Sequence[Any]:
        """As `ordinal`, for many bounds. None stays None."""
        code = {"INT32": "i", "INT64": "q"}.get(self.physical)
        signed = not pa.types.is_unsigned_integer(self.type)
        if code is not None and signed and {len(raw or b"") for raw in raws} == {self.width}:
            return struct.unpack(f"<{len(raws)}{code}", b"".join(raw or b"" for raw in raws))
        return [None if raw is None else self.ordinal(raw) for raw in raws]


@lru_cache(maxsize=1024)
def _bounded(
    offset_index: bytes,
    column_index: bytes,
    row_count: int,
    values: _Values,
    extremes: tuple[bytes | None, bytes | None],
) -> Sequence[PageBounds] | None:
    """The bounds of a column chunk's pages. `extremes` are from its statistics."""
    starts = [location[3] for location in read_struct(offset_index)[0][1]]
    columns, _ = read_struct(column_index)
    empty, lowers, uppers = columns[1], columns[2], columns[3]
    null_counts = columns.get(5) or [None] * len(starts)
    lengths = {len(starts), len(empty), len(lowers), len(uppers), len(null_counts)}
    ends = [*starts[1:], row_count]
    in_order = starts[:1] == [0] and all(a < b for a, b in zip(starts, ends))
    if len(lengths) != 1 or not in_order:
        return None
    if True in empty:
        lowers = [None if gone else raw for raw, gone in zip(lowers, empty)]
        uppers = [None if gone else raw for raw, gone in zip(uppers, empty)]
    floats = pa.types.is_floating(values.type)
    pages = []
    for first, end, gone, lower, upper, nulls in zip(
        starts, ends, empty, values.ordinals(lowers), values.ordinals(uppers), null_counts
    ):
        count = end - first
        if nulls is not None and not 0 <= nulls <= count:
            nulls = None
        # Writers without statistics call every page a null page and count -1 nulls in it
        # (datapage_v1-snappy-compressed-checksum.parquet): a page counts as all NULL only if
        # both agree.
        may_be_nan = floats and not (gone and nulls == count)
        pages.append(PageBounds(first, end, ColumnBounds(lower, upper, nulls, count, may_be_nan)))
    if not _as_declared(pages, columns[4]) or _contradicts(pages, extremes, values):
        return None
    return pages


def _as_declared(pages: Sequence[PageBounds], boundary_order: int) -> bool:
    """Tell whether bounds ascend (1) or descend (2) from page to page, if the index says so."""
    if boundary_order not in (1, 2):
        return True
    step = 1 if boundary_order == 1 else -1
    for name in ("lower", "upper"):
        known = [value for page in pages if (value := getattr(page.bounds, name)) is not None]
        if any(a > b for a, b in itertools.pairwise(known[::step])):
            return False
    return True


def _contradicts(
    pages: Sequence[PageBounds], extremes: tuple[bytes | None, bytes | None], values: _Values
) -> bool:
    """Tell whether pages have other extremes than the column chunk's statistics.

    Bounds of bytes may be cut at different lengths, and are not compared.
    """
    if values.width is None or values.physical == "FIXED_LEN_BYTE_ARRAY":
        return False
    known = [page.bounds for page in pages if page.bounds.null_count != page.bounds.row_count]
    lowers: list[Any] = [one.lower for one in known]
    uppers: list[Any] = [one.upper for one in known]
    lowest, highest = extremes
    if not known or None in lowers or None in uppers or lowest is None or highest is None:
        return False
    return bool(min(lowers) != values.ordinal(lowest) or max(uppers) != values.ordinal(highest))


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


# --- Which rows of a row group may match the condition of a scan, by the page indexes.
#
# Sound, as pruning by statistics is: rows that are left out cannot match, if the index tells the
# truth. A column without usable bounds in an index may have any value: a partition column, a column
# that the file lacks, a column without an index or of a type whose bounds have no certain meaning.


class PagePruning:
    """The page indexes of one file that is read for a condition.

    `file_schema` has the columns of the file and `schema` those of the dataset, both with ids.
    `is_foreign` tells that plake did not write the file.
    """

    def __init__(
        self,
        predicate: BoundPredicate,
        schema: pa.Schema,
        file_schema: pa.Schema,
        footer: CheckedFooter,
        index: PageIndex,
        *,
        is_foreign: bool,
    ) -> None:
        self._predicate = predicate
        self._footer = footer
        self._index = index
        ids = frozenset(predicate.column_ids)
        wanted = {leaf.id: leaf for leaf in leaves(schema) if leaf.id in ids}
        self._columns: dict[int, tuple[int, Leaf, pa.DataType]] = {}
        for leaf in leaves(file_schema):
            if leaf.id not in wanted or leaf.in_list or wanted[leaf.id].in_list:
                continue
            position, type_ = footer.places.get(leaf.path, (0, None))
            if type_ is not None and type_.equals(leaf.type):
                written = _bounds_type(footer, position, type_, is_foreign)
                now = wanted[leaf.id].type
                if written is not None and (written.equals(now) or _are_ordered(written, now)):
                    found = Leaf(leaf.path, leaf.id, written, False)
                    self._columns[leaf.id] = position, found, now

        self._paths = list[TypedPath]()
        if not is_foreign:
            self._paths += footer.typed_paths(file_schema, ids)
        for one in self._paths:
            leaf = Leaf(one.path, one.id, one.type, False)
            self._columns[one.id] = one.typed, leaf, one.indexed_type

    def rows(
        self, row_group: int, located: Iterable[int], *, keep: bool = False
    ) -> tuple[RowRange, ...] | None:
        """The rows that may match; None: the indexes rule out nothing.

        Also reads the offset indexes of the leaf columns at the positions `located`; `keep`: beside
        those of other row groups.
        """
        if not self._columns:
            return None
        bounded = [position for position, _, _ in self._columns.values()]
        self._index.load(row_group, located, bounded, keep=keep)
        rows = self._footer.row_counts[row_group]
        pages: dict[int, Sequence[PageBounds]] = {}
        for column_id, (position, leaf, now) in self._columns.items():
            found = self._index.bounds(row_group, position, leaf)
            if found is not None:
                pages[column_id] = (
                    found
                    if leaf.type.equals(now)
                    else [
                        PageBounds(
                            page.first_row, page.end_row, promoted(page.bounds, leaf.type, now)
                        )
                        for page in found
                    ]
                )
        for one in self._paths:
            rest = self._footer.chunk(row_group, one.value).statistics
            nothing = ColumnBounds(None, None, rows, rows, False)
            if not is_covered(rest, rows):
                pages.pop(one.id, None)
            elif one.id in pages:
                pages |= {id: [PageBounds(0, rows, nothing)] for id in one.ids if id != one.id}
        if not pages:
            return None
        unknown = ColumnBounds(None, None, None, rows, True)
        return matching_rows(self._predicate, rows, pages, lambda _: unknown)


def _bounds_type(
    footer: CheckedFooter, position: int, type_: pa.DataType, is_foreign: bool
) -> pa.DataType | None:
    """The type of a leaf column's bounds; None: the bounds have no certain meaning."""
    if not is_foreign:
        return type_
    try:
        stored = storage_type(type_, "")
    except SchemaMismatchError:
        return None
    return stored if has_certain_order(footer.metadata.schema.column(position), type_) else None


def _are_ordered(written: pa.DataType, now: pa.DataType) -> bool:
    return domain(written).ordered and domain(now).ordered
