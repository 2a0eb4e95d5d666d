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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lakehouse_source.language import BoundColumn, BoundPredicate
from lakehouse_source.model import ColumnBounds, FileRecord, Ordinal
from lakehouse_source.parquet.checked_footer import CheckedFooter, open_footer
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
_PRIME = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
    0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip

Words = npt.NDArray[np.uint32]  # eight in each row, which is a block
Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


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
    def words(self) -> Words | None:
        """All blocks; None: the filter is so large that blocks are read one by one."""
        return None if self._whole is None else np.frombuffer(self._whole, "<u4").reshape(-1, 8)

    def may_contain(self, encoded: bytes) -> bool:
        """False only where the value, given in plain encoding, is not in the column chunk."""
        hashed = hash_of(encoded)
        key = hashed & 0xFFFFFFFF
        for word, salt in zip(self._block(((hashed >> 32) * self._blocks) >> 32), _SALT):
            if not word >> (((key * salt) & 0xFFFFFFFF) >> 27) & 1:
                return False
        return True

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
    values: npt.NDArray[Any], written: pa.DataType, now: pa.DataType, physical: str
) -> Hashes | None:
    """The hashes of the values' encodings; None: one of them is unknown, or has two encodings."""
    size = {"INT32": 4, "INT64": 8}.get(physical)
    if size and written.equals(now) and not pa.types.is_unsigned_integer(now):
        return _hashes_of_numbers(values.astype(f"<i{size}").view(f"<u{size}"))
    found = []
    for value in values.tolist():
        encoded = encodings_of(value, written, now, physical)
        if encoded is None or len(encoded) != 1:
            return None
        found.append(hash_of(encoded[0]))
    return np.array(found, np.uint64)


def _hashes_of_numbers(values: npt.NDArray[Any]) -> Hashes:
    """The hashes of numbers of 4 or 8 bytes, all at once: xxHash64 of the bytes, with seed 0.

    Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, XXH64, steps 1, 5 and 6.
    """
    is_long, values = values.itemsize == 8, values.astype(np.uint64)
    hashes: Any
    if is_long:
        lane = _turned(values * _PRIME[1], 31) * _PRIME[0]
        hashes = _turned((_PRIME[4] + 8) ^ lane, 27) * _PRIME[0] + _PRIME[3]
    else:
        hashes = _turned((_PRIME[4] + 4) ^ (values * _PRIME[0]), 23) * _PRIME[1] + _PRIME[2]
    hashes = (hashes ^ (hashes >> 33)) * _PRIME[1]
    hashes = (hashes ^ (hashes >> 29)) * _PRIME[2]
    found: Hashes = hashes ^ (hashes >> 32)
    return found


def _turned(values: Any, bits: int) -> Any:
    return (values << bits) | (values >> (64 - bits))


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
        places, ids = footer.places, frozenset(predicate.column_ids)
        self._columns: Mapping[int, tuple[int, pa.DataType]] = {
            leaf.id: places[leaf.path]
            for leaf in leaves(file_schema)
            if leaf.id in ids and not leaf.in_list and leaf.path in places
        }
        self._paths = list(footer.typed_paths(file_schema, ids))

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


@dataclass(frozen=True, slots=True, eq=False)
class FilterKind:
    """The types of a column chunk: see `encodings_of`. Equal ones are one object."""

    written: pa.DataType
    physical: str


_kind = lru_cache(FilterKind)


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The filter of a column chunk: `count` of the `blocks` from `start` on."""

    blocks: Words
    start: int
    count: int
    kind: FilterKind

    @classmethod
    def of(cls, words: Words, kind: FilterKind) -> KeyFilter:
        """The filter of all of the words."""
        return cls(words, 0, len(words), kind)

    @property
    def size_bytes(self) -> int:
        return self.count * _BLOCK_BYTES


HOLDS_ALL = KeyFilter.of(np.full((1, len(_SALT)), 0xFFFFFFFF, np.uint32), FilterKind(pa.null(), ""))


def side_by_side(filters: Sequence[KeyFilter]) -> list[KeyFilter]:
    """The same filters in one array, in which they are looked up in one step."""
    parts = [one.blocks[one.start : one.start + one.count] for one in filters]
    blocks = np.concatenate(parts)
    ends = accumulate(one.count for one in filters)
    return [KeyFilter(blocks, end - one.count, one.count, one.kind)
            for one, end in zip(filters, ends)]  # fmt: skip


def may_hold(filters: Sequence[KeyFilter], counts: Sequence[int], hashes: Hashes) -> Places:
    """The places of hashes that a filter may hold: the first `counts[0]` are for the first filter.

    The words of all their blocks are tested at once.
    """
    sizes = np.repeat(np.array([one.count for one in filters], np.uint64), counts)
    index = (((hashes >> 32) * sizes) >> 32).astype(np.int64)
    index += np.repeat(np.array([one.start for one in filters], np.int64), counts)
    found = np.empty((len(hashes), len(_SALT)), np.uint32)
    begin = end = 0
    for one, following, count in zip(filters, (*filters[1:], None), counts):
        end += count
        if following is None or following.blocks is not one.blocks:
            one.blocks.take(index[begin:end], 0, found[begin:end], "clip")  # not outside anyhow
            begin = end
    keys, left = hashes.astype(np.uint32), np.arange(len(hashes))
    for salt, word in zip(_SALT, found.T):  # a third of the keys passes the test of a word
        left = left[((word[left] >> ((keys[left] * salt) >> 27)) & 1).astype(bool)]
    return left


def key_filters(
    storage: Storage, file: FileRecord, file_schema: pa.Schema, ids: Collection[int]
) -> Mapping[int, list[KeyFilter]]:
    """The bloom filters of columns, one for each row group of a file.

    Raises:
        StorageError, CorruptDatasetError: the file cannot be read.
    """
    if is_foreign(file.path):
        return {id: [HOLDS_ALL] for id in ids}
    found: dict[int, list[KeyFilter]] = {id: [] for id in ids}
    with storage.open_input(file.path) as opened:
        footer = open_footer(opened, storage.display(file.path), remembered=True)
        places = {
            leaf.id: footer.places[leaf.path]
            for leaf in leaves(file_schema)
            if leaf.id in found and not leaf.in_list and leaf.path in footer.places
        }
        for id, filters in found.items():
            for index in range(len(footer.row_counts)):
                filters.append(HOLDS_ALL)
                if id not in places:
                    continue
                position, written = places[id]
                chunk = footer.chunk(index, position)
                at = chunk.bloom_filter_offset
                bloom = BloomFilter.open(opened.read_at, opened.size(), at)
                if bloom is not None and bloom.words is not None:
                    filters[-1] = KeyFilter.of(bloom.words, _kind(written, chunk.physical_type))
    return found
