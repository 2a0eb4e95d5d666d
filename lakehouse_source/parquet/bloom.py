"""Edge. Parquet bloom filters: is a value definitely absent from a row group?

PyArrow writes the filters, and this module reads them: PyArrow 26 does not use them. A filter that
cannot be trusted (an unknown algorithm, an impossible length, damaged bytes) rules out nothing, as
if the column chunk had no filter.

Source: Parquet format, BloomFilter.md (split block bloom filter, xxHash64 with
seed 0 over the plain encoding of the value).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from lakehouse_source.language import BoundColumn, BoundPredicate
from lakehouse_source.model import ColumnBounds, Ordinal, ScanTask
from lakehouse_source.parquet.checked_footer import CheckedFooter, Remembered, open_footer
from lakehouse_source.parquet.footer import is_covered
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.thrift import ThriftError, read_struct
from lakehouse_source.pruning.evaluate import evaluate, without_absent
from lakehouse_source.schema.fields import leaves
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.storage import Storage

_BLOCK_BYTES = 32
# The specification's limit for a whole filter.
_LARGEST_BYTES = 128 * 1024 * 1024
# A filter up to this size is read whole, a larger one block by block when values are looked up.
_WHOLE_BYTES = 1024 * 1024
# A header is about 20 bytes: four small fields.
_HEADER_BYTES = 64
_WORDS = struct.Struct("<8I")
_SALT = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
    0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip


def hash_of(encoded: bytes) -> int:
    """The hash of a value in plain encoding."""
    return xxhash.xxh64_intdigest(encoded, 0)


class BloomFilter:
    """One column chunk's filter."""

    def __init__(self, read_at: Callable[[int, int], bytes], start: int, size_bytes: int) -> None:
        self._read_at = read_at
        self._start = start
        self.size_bytes = size_bytes
        self._blocks = size_bytes // _BLOCK_BYTES
        self._whole = read_at(size_bytes, start) if size_bytes <= _WHOLE_BYTES else None

    @classmethod
    def open(
        cls, read_at: Callable[[int, int], bytes], file_size: int, offset: int | None
    ) -> BloomFilter | None:
        """The filter at `offset`; None: there is no filter, or it cannot be trusted.

        `read_at(length, offset)` reads from the file.
        """
        if offset is None or not 0 < offset < file_size:
            return None
        try:
            head = read_at(min(_HEADER_BYTES, file_size - offset), offset)
            header, length = read_struct(head)
        except (ThriftError, OSError, pa.ArrowException):
            return None
        size = header.get(1)
        # Unions with their only member set: BLOCK, XXHASH, UNCOMPRESSED.
        known = all(isinstance(header.get(i), dict) and 1 in header[i] for i in (2, 3, 4))
        if not known or not isinstance(size, int) or size <= 0 or size % _BLOCK_BYTES:
            return None
        if size > _LARGEST_BYTES or offset + length + size > file_size:
            return None
        try:
            return cls(read_at, offset + length, size)
        except (OSError, pa.ArrowException):
            return None

    @property
    def is_whole(self) -> bool:
        """Tell whether the filter needs its file no more."""
        return self._whole is not None

    def may_contain(self, encoded: bytes) -> bool:
        """False only where the value, given in plain encoding, is not in the column chunk."""
        return bool(self.left((0,), (hash_of(encoded),)))

    def left(self, places: Iterable[int], hashes: Sequence[int]) -> list[int]:
        """Those of the places of hashes in `hashes` whose value may be in the column chunk."""
        found, blocks, block = [], self._blocks, self._block
        for place in places:
            hashed = hashes[place]
            key = hashed & 0xFFFFFFFF
            for word, salt in zip(block(((hashed >> 32) * blocks) >> 32), _SALT):
                if not word >> (((key * salt) & 0xFFFFFFFF) >> 27) & 1:
                    break
            else:
                found.append(place)
        return found

    def _block(self, index: int) -> tuple[int, ...]:
        at = index * _BLOCK_BYTES
        if self._whole is not None:
            return _WORDS.unpack_from(self._whole, at)
        return _WORDS.unpack(self._read_at(_BLOCK_BYTES, self._start + at))


def encodings_of(
    value: Ordinal, written: pa.DataType, now: pa.DataType, physical: str
) -> tuple[bytes, ...] | None:
    """The plain encodings that mean `value` in a column chunk; None: they are unknown.

    `written` is the type that the file was written with, `now` that of the
    dataset. 0.0 and -0.0 are one value with two encodings; NaN has too many.
    """
    t = pa.types
    if isinstance(value, bytes):
        if physical == "BYTE_ARRAY" and domain(written).kind in ("string", "binary"):
            return (value,)
        if physical == "FIXED_LEN_BYTE_ARRAY" and t.is_fixed_size_binary(written):
            return (value,) if len(value) == written.byte_width else None
        return None
    if isinstance(value, float):
        code = {"FLOAT": "<f", "DOUBLE": "<d"}.get(physical)
        if code is None or math.isnan(value):
            return None
        if value == 0.0:
            return (struct.pack(code, 0.0), struct.pack(code, -0.0))
        try:
            packed = struct.pack(code, value)
        except OverflowError:
            return None
        # A narrower column cannot hold this double. Statistics rule the value out, not the filter.
        return (packed,) if struct.unpack(code, packed)[0] == value else None
    same = written.equals(now) or (t.is_integer(written) and t.is_integer(now))
    size = {"INT32": 4, "INT64": 8}.get(physical)
    if not same or t.is_boolean(written):
        return None
    if size is None:
        if physical == "FIXED_LEN_BYTE_ARRAY" and t.is_decimal(written):
            # As many bytes as the precision needs, big-endian (LogicalTypes.md, DECIMAL).
            width = _decimal_width(written.precision)
            return (int(value).to_bytes(width, "big", signed=True),)
        return None
    bits = 8 * size
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        return None
    return ((int(value) & ((1 << bits) - 1)).to_bytes(size, "little"),)


def hashes_of(
    values: Sequence[Ordinal], written: pa.DataType, now: pa.DataType, physical: str
) -> list[int] | None:
    """The hashes of the values' encodings; None: one of them is unknown, or has two encodings."""
    size = {"INT32": 4, "INT64": 8}.get(physical)
    if size and written.equals(now) and not pa.types.is_unsigned_integer(now):
        # The encoding of all whole numbers together: ten times as fast as one by one.
        stored = pa.array(values, pa.int32() if size == 4 else pa.int64()).buffers()[1].to_pybytes()
        return [hash_of(stored[at : at + size]) for at in range(0, len(values) * size, size)]
    found = []
    for value in values:
        encoded = encodings_of(value, written, now, physical)
        if encoded is None or len(encoded) != 1:
            return None
        found.append(hash_of(encoded[0]))
    return found


def _decimal_width(precision: int) -> int:
    width = 1
    while 10**precision - 1 > 2 ** (8 * width - 1) - 1:
        width += 1
    return width


class ChunkFilters:
    """The bloom filters of one row group, opened when a value is looked up.

    `columns` gives, by field id, the column's place in the file and its type in the file.
    """

    def __init__(
        self,
        footer: CheckedFooter,
        row_group: int,
        read_at: Callable[[int, int], bytes],
        file_size: int,
        columns: Mapping[int, tuple[int, pa.DataType]],
    ) -> None:
        self._footer = footer
        self._row_group = row_group
        self._read_at = read_at
        self._file_size = file_size
        self._columns = columns
        self._opened: dict[int, BloomFilter | None] = {}

    def absent(self, column: BoundColumn, value: Ordinal) -> bool:
        """Tell whether certainly no row of the row group has the value."""
        if column.id not in self._columns:
            return False
        position, written = self._columns[column.id]
        chunk = self._footer.chunk(self._row_group, position)
        if column.id not in self._opened:
            self._opened[column.id] = BloomFilter.open(
                self._read_at, self._file_size, chunk.bloom_filter_offset
            )
        bloom = self._opened[column.id]
        if bloom is None:
            return False
        encodings = encodings_of(value, written, column.type, chunk.physical_type)
        if encodings is None:
            return False
        try:
            return not any(bloom.may_contain(encoded) for encoded in encodings)
        except (OSError, pa.ArrowException, struct.error):
            return False


class FileFilters:
    """The bloom filters of one file that is read for a condition.

    `file_schema` names the file's columns as its writer recorded them, ids included.
    A filter is read from `file` when a value is first looked up in it.
    """

    def __init__(
        self,
        predicate: BoundPredicate,
        footer: CheckedFooter,
        file_schema: pa.Schema,
        file: pa.NativeFile,
    ) -> None:
        self._predicate = predicate
        self._footer = footer
        self._file = file
        places = footer.places
        self._columns: Mapping[int, tuple[int, pa.DataType]] = {
            leaf.id: places[leaf.path]
            for leaf in leaves(file_schema)
            if leaf.id in predicate.column_ids and not leaf.in_list and leaf.path in places
        }
        self._paths = list(footer.typed_paths(file_schema, predicate.column_ids))

    def rule_out(self, index: int) -> bool:
        """Tell whether no row of the row group at `index` can match."""
        rows, columns, missing = self._footer.row_counts[index], {**self._columns}, set[int]()
        for path in self._paths:
            # Where all values of a path have one type, it has none of the others.
            if is_covered(self._footer.chunk(index, path.value).statistics, rows):
                columns[path.id] = path.typed, path.type
                missing.update(id for id in path.ids if id != path.id)
        chunks = [self._footer.chunk(index, position) for position, _ in columns.values()]
        if all(chunk.bloom_filter_offset is None for chunk in chunks):
            return False
        filters = ChunkFilters(self._footer, index, self._file.read_at, self._file.size(), columns)
        left = without_absent(self._predicate, filters.absent)

        def known(column_id: int) -> ColumnBounds:
            nulls = rows if column_id in missing else None
            return ColumnBounds(None, None, nulls, rows, nulls is None)

        return not evaluate(left, known).may_match


# --- The filters of files that are looked into again and again, for keys.


@dataclass(frozen=True, slots=True)
class KeptFilter:
    """The filter of a column chunk. `written` and `physical` are its types: see `encodings_of`."""

    bloom: BloomFilter
    written: pa.DataType
    physical: str


# The filters of a row group, by the ids of their columns.
RowGroupFilters = Mapping[int, KeptFilter]
# Files never change, so a filter that was read once is right as long as its file is live. A filter
# has two to four bytes for each row.
_KEPT: Remembered[tuple[object, ...], tuple[RowGroupFilters, ...]] = Remembered(64 * 1024 * 1024)


def kept_filters(
    storage: Storage, task: ScanTask, file_schema: pa.Schema, ids: Collection[int]
) -> tuple[RowGroupFilters, ...]:
    """The bloom filters of these columns for each row group of a file; none where none are usable.

    Raises:
        StorageError, CorruptDatasetError: the file cannot be read.
    """
    key = (storage.uri, task.path, task.size_bytes, task.schema_version, *ids)
    known = _KEPT.get(key)
    if known is not None:
        return known
    if is_foreign(task.path):
        return ()
    with storage.open_input(task.path) as file:
        footer = open_footer(file, storage.display(task.path), remembered=True)
        places = [
            (leaf.id, *footer.places[leaf.path])
            for leaf in leaves(file_schema)
            if leaf.id in ids and not leaf.in_list and leaf.path in footer.places
        ]
        found: list[RowGroupFilters] = []
        size = 0
        for index in range(len(footer.row_counts)):
            filters = {}
            for id, position, written in places:
                chunk = footer.chunk(index, position)
                bloom = BloomFilter.open(file.read_at, file.size(), chunk.bloom_filter_offset)
                if bloom is not None and bloom.is_whole:
                    filters[id] = KeptFilter(bloom, written, chunk.physical_type)
                    size += bloom.size_bytes
            found.append(filters)
    _KEPT.put(key, tuple(found), size)
    return tuple(found)
