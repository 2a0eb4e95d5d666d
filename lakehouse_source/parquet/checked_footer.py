"""Edge. The only place where a Parquet footer is opened: any bytes give one, or a `PlakeError`.

PyArrow is trusted to parse a footer: it raises for a footer that it cannot parse. PyArrow is not
trusted with the parsed footer. `RowGroupMetaData.column` and `ColumnChunkMetaData.statistics` call
`std::terminate`, which ends the process, when

    the physical type of a column chunk is not that of the schema,
    a row group has more column chunks than the schema has columns,
    a column chunk has no metadata, or encrypted metadata,
    a histogram of the size statistics does not have one entry per level, a bound in the statistics
    does not have the width of its type.

`CheckedFooter.chunk` looks at the Thrift structure of a column chunk first. PyArrow writes
that structure again from its own memory, so both look at the same fields whatever the
file's bytes were. Only the requested column chunks are checked: a footer of 100 row groups and 100
columns takes PyArrow 12 ms to parse, 8 ms to write again, and plake 140 ms, once, to find the
column chunks, and 0.05 ms for each requested one. `prune_file` always requests column chunks; a
reader does so only for bloom filters, for `=` and `IN`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.errors import CorruptDatasetError, StorageError
from lakehouse_source.parquet.footer import variant_groups
from lakehouse_source.parquet.thrift import (
    I64,
    LIST,
    STOP,
    STRUCT,
    Struct,
    ThriftError,
    read_field_head,
    read_list_head,
    read_struct,
    skip_value,
    write_list,
    write_struct,
)
from lakehouse_source.schema.fields import children, is_nested, names_hold
from lakehouse_source.schema.variant import METADATA, holds_variant, is_variant
from lakehouse_source.schema.variant_paths import TypedPath, typed_paths

# --- The Thrift structures of a footer: where its column chunks begin, and their contents.
#
# `CheckedFooter` checks a column chunk here, in the bytes, before it asks PyArrow for the chunk.


# Source: parquet.thrift, `Type`.
PHYSICAL_TYPES = (
    *("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE"),
    *("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"),
)
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Source: parquet.thrift, `FileMetaData`, `RowGroup`, `ColumnChunk`, `ColumnMetaData`,
# `Statistics`, `SizeStatistics`: field ids.
_NUM_ROWS, _ROW_GROUPS, _ENCRYPTION_ALGORITHM = 3, 4, 8
# The version, the schema, the key-value metadata, the writer's name and the order of values.
_COPIED = frozenset((1, 2, 5, 6, 7))
_COLUMNS_HEAD = bytes([1 << 4 | LIST])
_META_DATA = 3
_CRYPTO_METADATA, _ENCRYPTED_METADATA = 8, 9
_TYPE, _STATISTICS, _BLOOM_FILTER_OFFSET, _SIZE_STATISTICS = 1, 12, 14, 16
_BOUNDS = (1, 2, 5, 6)
_BYTE_ARRAY_BYTES, _REPETITION_HISTOGRAM, _DEFINITION_HISTOGRAM = 1, 2, 3


@dataclass(frozen=True, slots=True)
class FooterLayout:
    """The positions of structures in the bytes of a `FileMetaData`.

    `row_groups` has the position of each `ColumnChunk`, by row group. A row group that does not
    start with its column chunks (no known writer does this) counts as having none. `fields` has the
    kind, start and end of each field in `_COPIED`.
    """

    data: bytes
    row_groups: list[list[int]]
    fields: dict[int, tuple[int, int, int]]

    def chunk(self, row_group: int, position: int) -> Struct:
        """The structure `ColumnChunk` of the leaf column at `position`.

        Raises:
            ThriftError: the bytes are not a structure.
        """
        return read_struct(self.data, self.row_groups[row_group][position])[0]

    def with_row_groups(self, row_groups: Sequence[bytes], row_count: int) -> bytes:
        """The footer with other row groups: each one the bytes of a `RowGroup` structure."""
        fields: list[tuple[int, int, int | bytes]] = [
            (field, kind, self.data[start:end]) for field, (kind, start, end) in self.fields.items()
        ]
        fields.append((_NUM_ROWS, I64, row_count))
        fields.append((_ROW_GROUPS, LIST, write_list(STRUCT, row_groups)))
        return write_struct(sorted(fields))


def footer_layout(data: bytes) -> FooterLayout:
    """Find the column chunks in a `FileMetaData`."""
    groups: list[list[int]] = []
    fields: dict[int, tuple[int, int, int]] = {}
    at = field = 0
    while True:
        field, kind, at = read_field_head(data, at, field)
        if kind == STOP:
            return FooterLayout(data, groups, fields)
        if field == _ENCRYPTION_ALGORITHM:
            # PyArrow would encrypt this footer without a key, and so read address 0.
            raise ThriftError("the file is encrypted")
        if (field, kind) != (_ROW_GROUPS, LIST):
            start, at = at, skip_value(data, kind, at)
            if field in _COPIED:
                fields[field] = (kind, start, at)
            continue
        size, _, at = read_list_head(data, at)
        groups = []
        for _ in range(size):
            starts, at = _starts_in_row_group(data, at)
            groups.append(starts)


def _starts_in_row_group(data: bytes, at: int) -> tuple[list[int], int]:
    starts: list[int] = []
    if data[at : at + 1] == _COLUMNS_HEAD:
        size, _, at = read_list_head(data, at + 1)
        for _ in range(size):
            starts.append(at)
            at = skip_value(data, STRUCT, at)
    # The fields after the column chunks are read like a structure of their own.
    return starts, skip_value(data, STRUCT, at)


def chunk_problem(chunk: Struct, column: pq.ColumnSchema) -> str | None:
    """Why PyArrow must not be asked for a column chunk; None: it may be asked."""
    if _CRYPTO_METADATA in chunk or _ENCRYPTED_METADATA in chunk:
        return "is encrypted"
    meta = chunk.get(_META_DATA)
    if meta is None:
        return "has no metadata"
    type_ = meta[_TYPE]
    physical = PHYSICAL_TYPES[type_] if 0 <= type_ < len(PHYSICAL_TYPES) else f"number {type_}"
    if physical != column.physical_type:
        return f"has physical type {physical}; the schema says {column.physical_type}"
    sizes = meta.get(_SIZE_STATISTICS, {})
    levels = (
        (_REPETITION_HISTOGRAM, column.max_repetition_level),
        (_DEFINITION_HISTOGRAM, column.max_definition_level),
    )
    for histogram, highest in levels:
        if len(sizes.get(histogram, ())) not in (0, highest + 1):
            return "has a histogram of levels that the schema does not have"
    if _BYTE_ARRAY_BYTES in sizes and physical != "BYTE_ARRAY":
        return f"has a size of byte arrays and physical type {physical}"
    return None


def bloom_filter_offset(chunk: Struct) -> int | None:
    """Where the bloom filter of a column chunk begins in the file."""
    offset: int | None = chunk[_META_DATA].get(_BLOOM_FILTER_OFFSET)
    return offset


def has_usable_statistics(chunk: Struct, column: pq.ColumnSchema) -> bool:
    """Tell whether there are statistics whose bounds all have the width of the column's type."""
    statistics = chunk[_META_DATA].get(_STATISTICS)
    if statistics is None:
        return False
    physical = column.physical_type
    if physical == "BYTE_ARRAY":
        return True
    width = column.length if physical == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS[physical]
    return all(len(statistics[bound]) == width for bound in _BOUNDS if bound in statistics)


_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
# After the footer: its length in four bytes, and the magic.
_FRAME_BYTES = 8
# Bytes read at once from the file's end; most footers are shorter.
_TAIL_BYTES = 64 * 1024
# A footer of 10,000 columns and 100 row groups has 100 MB. PyArrow needs about ten times as much
# memory for the parsed footer, so the footers of foreign files need a limit.
LARGEST_FOOTER_BYTES = 128 * 1024 * 1024
# PyArrow allocates a list before it reads the items, about a kilobyte for each. An item that
# occurs more often than once per few columns takes at least 8 bytes in a valid footer.
_ITEM_BYTES = 8
_SHORTEST_LIMIT = 1000
_LONGEST_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a footer says about one column chunk.

    `statistics` is None if there are none or they cannot be used.
    """

    physical_type: str
    statistics: pq.Statistics | None
    bloom_filter_offset: int | None


class CheckedFooter:
    """A footer whose column chunks are checked before PyArrow is asked for them.

    `path` names the file in errors. `arrow_schema` is the file's schema, whose names all can be
    read. `leaf_count` is the number of leaf columns, and of chunks in each row group.
    """

    def __init__(self, metadata: pq.FileMetaData, path: str, raw: bytes = b"\x00") -> None:
        self.path = path
        self.metadata = metadata
        self._raw = raw
        with _arrow_errors(path):
            self.arrow_schema = metadata.schema.to_arrow_schema()
            self.created_by: str | None = metadata.created_by
            _read_names(self.arrow_schema)
        self.row_count: int = metadata.num_rows
        self.leaf_count: int = metadata.num_columns
        self.row_counts = tuple(
            metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)
        )
        if self.row_count < 0 or min(self.row_counts, default=0) < 0:
            raise CorruptDatasetError(path=path, reason="its footer says a negative row count")
        if sum(self.row_counts) != self.row_count:
            raise CorruptDatasetError(
                path=path,
                reason=f"its footer says {self.row_count} rows, and its row groups have "
                f"{sum(self.row_counts)}",
            )
        # The position of the first row of each row group, and the row after the last.
        self.row_starts = tuple(accumulate(self.row_counts, initial=0))
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self._checked_structures: dict[tuple[int, int], Struct] = {}

    def chunk(self, row_group: int, position: int) -> Chunk:
        """The column chunk of the leaf column at `position`.

        Raises:
            CorruptDatasetError: the column chunk contradicts the schema, or is encrypted.
        """
        key = (row_group, position)
        if key not in self._chunks:
            self._chunks[key] = self._checked(row_group, position)
        return self._chunks[key]

    def structure(self, row_group: int, position: int) -> Struct:
        """The Thrift structure `ColumnChunk` of the leaf column at `position`.

        Raises:
            CorruptDatasetError: the column chunk contradicts the schema, or is encrypted.
        """
        key = (row_group, position)
        if key not in self._checked_structures:
            chunk_count = len(self._layout.row_groups[row_group])
            if chunk_count != self.leaf_count:
                raise self._corrupt(
                    f"row group {row_group} has {chunk_count} column chunks, not {self.leaf_count}"
                )
            try:
                raw = self._layout.chunk(row_group, position)
                problem = chunk_problem(raw, self.metadata.schema.column(position))
            except ThriftError as error:
                raise self._corrupt(str(error)) from error
            if problem is not None:
                raise self._corrupt(f"column {position} of row group {row_group} {problem}")
            self._checked_structures[key] = raw
        return self._checked_structures[key]

    def with_row_groups(self, row_groups: Sequence[bytes], row_count: int) -> bytes:
        """This footer with other row groups: each one the bytes of a `RowGroup` structure.

        The schema, the key-value metadata and the name of the writer are copied byte for byte.
        """
        return self._layout.with_row_groups(row_groups, row_count)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the top-level columns."""
        return frozenset(self.arrow_schema.names)

    @cached_property
    def leaf_paths(self) -> tuple[str, ...]:
        """The path of each leaf column, as Parquet spells it: names with dots between them."""
        schema = self.metadata.schema
        return tuple(schema.column(at).path for at in range(self.leaf_count))

    @cached_property
    def leaves_by_path(self) -> Mapping[str, tuple[int, ...]]:
        """The places of the leaf columns at and below each path."""
        found: dict[str, tuple[int, ...]] = {}
        for at, leaf_path in enumerate(self.leaf_paths):
            names = leaf_path.split(".")
            for depth in range(1, len(names) + 1):
                path = ".".join(names[:depth])
                found[path] = (*found.get(path, ()), at)
        return found

    def typed_paths(self, schema: pa.Schema, ids: Collection[int]) -> Iterator[TypedPath]:
        """The paths of VARIANT with one of some ids, which the file has as columns of their own.

        `schema` is the one that the file was written under.
        """
        for field in schema:
            first = self.places.get((field.name, METADATA)) if is_variant(field.type) else None
            if first is not None:
                stored = self.arrow_schema.field(field.name).type
                found = typed_paths(field, stored, first[0])
                yield from (one for one in found if not {*one.ids}.isdisjoint(ids))

    def other_type(self, field: pa.Field) -> pa.DataType | None:
        """The type of a column in the file where it is not that of `field`; None: it is.

        `field` is the column as it was written. Only the footer says how stored numbers are meant,
        and it has no checksum.
        """
        stored = self.arrow_schema.field(field.name).type
        return None if _is_stored_as(field.type, stored) else stored

    @cached_property
    def variants(self) -> frozenset[tuple[str, ...]]:
        """The paths of the groups that are annotated as VARIANT."""
        try:
            return variant_groups(self._raw)
        except ThriftError as error:
            raise self._corrupt(str(error)) from error

    @cached_property
    def has_dots(self) -> bool:
        """Tell whether a name in the schema has a dot, so that paths are ambiguous."""
        return names_hold(self.arrow_schema, ".")

    @cached_property
    def places(self) -> Mapping[tuple[str, ...], tuple[int, pa.DataType]]:
        """The place and type of each leaf column by its path. Empty where paths are ambiguous."""
        found: list[tuple[tuple[str, ...], pa.DataType]] = []

        def walk(field: pa.Field, above: tuple[str, ...]) -> None:
            path = (*above, field.name)
            if is_nested(field.type):
                for child in children(field.type):
                    walk(child, path)
            else:
                found.append((path, field.type))

        for field in self.arrow_schema:
            walk(field, ())
        places = {path: (place, type_) for place, (path, type_) in enumerate(found)}
        return places if len(places) == len(found) == self.leaf_count else {}

    @cached_property
    def _layout(self) -> FooterLayout:
        """The positions of structures in the footer as PyArrow understood it."""
        try:
            given = footer_layout(self._raw)
            sink = pa.BufferOutputStream()
            with _arrow_errors(self.path):
                self.metadata.write_metadata_file(sink)
            written: bytes = _between_frames(sink.getvalue().to_pybytes())
            # Most writers order a footer like PyArrow.
            return given if given.data == written else footer_layout(written)
        except ThriftError as error:
            raise self._corrupt(str(error)) from error

    def _checked(self, row_group: int, position: int) -> Chunk:
        raw = self.structure(row_group, position)
        column = self.metadata.schema.column(position)
        statistics = None
        if has_usable_statistics(raw, column):
            statistics = self.metadata.row_group(row_group).column(position).statistics
        return Chunk(
            physical_type=column.physical_type,
            statistics=statistics,
            bloom_filter_offset=bloom_filter_offset(raw),
        )

    def _corrupt(self, reason: str) -> CorruptDatasetError:
        return CorruptDatasetError(path=self.path, reason=reason)


Key = TypeVar("Key")
Value = TypeVar("Value")


def open_footer(file: pa.NativeFile, path: str, *, remembered: bool = False) -> CheckedFooter:
    """Read the footer of a Parquet file. `path` names the file in errors.

    With `remembered`, a footer is not parsed again if the same bytes were parsed lately.

    Raises:
        CorruptDatasetError: the file is not a Parquet file, or its footer is damaged or
            encrypted.
    """
    try:
        footer = _footer_bytes(file, path)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(path=path, reason=str(error)) from error
    known = _REMEMBERED.get((path, footer)) if remembered else None
    if known is not None:
        return known
    limit = min(max(len(footer) // _ITEM_BYTES, _SHORTEST_LIMIT), _LONGEST_LIMIT)
    framed = b"".join((_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC))
    with _arrow_errors(path):
        metadata = pq.ParquetFile(
            pa.BufferReader(framed),
            thrift_string_size_limit=len(framed),
            thrift_container_size_limit=limit,
        ).metadata
    checked = CheckedFooter(metadata, path, footer)
    if remembered:
        _REMEMBERED.put((path, footer), checked, len(footer))
    return checked


def open_alike(
    data: bytes, schema: pa.Schema, row_count: int, *, verify_checksums: bool
) -> pq.ParquetFile | None:
    """A file of few bytes, whose footer must say what a footer that was checked says.

    None: it has another schema than that file, or other than `row_count` rows. Its row groups are
    not looked at: who reads one must count its rows.

    Raises:
        ArrowException, OSError, ValueError, LookupError, OverflowError: the file is damaged.
    """
    file = pq.ParquetFile(
        pa.BufferReader(data),
        page_checksum_verification=verify_checksums,
        thrift_string_size_limit=len(data),
        thrift_container_size_limit=_SHORTEST_LIMIT,
    )
    is_alike = file.metadata.num_rows == row_count
    return file if is_alike and file.schema_arrow.equals(schema, check_metadata=True) else None


class Remembered(Generic[Key, Value]):
    """What was used last, up to a size in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            return
        with self._lock:
            self._size_bytes += size_bytes - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, size_bytes
            while self._size_bytes > self._limit_bytes:
                self._size_bytes -= self._values.popitem(last=False)[1][1]


# Footers by path and by all of their bytes, which are read from the file each time, so that an old
# footer never stands in for a file that was replaced. PyArrow needs about ten times the bytes for a
# parsed footer.
_REMEMBERED: Remembered[tuple[str, bytes], CheckedFooter] = Remembered(2 * 1024 * 1024)


def _footer_bytes(file: pa.NativeFile, path: str) -> bytes:
    size = file.size()
    if size < len(_MAGIC) + _FRAME_BYTES:
        raise CorruptDatasetError(
            path=path, reason=f"it has {size} bytes, too few for a Parquet file"
        )
    start = max(0, size - _TAIL_BYTES)
    tail: bytes = file.read_at(size - start, start)
    magic = tail[-len(_MAGIC) :]
    if magic == _ENCRYPTED_MAGIC:
        raise CorruptDatasetError(path=path, reason="its footer is encrypted")
    if magic != _MAGIC:
        raise CorruptDatasetError(
            path=path, reason=f"it does not end as a Parquet file does, with {_MAGIC!r}"
        )
    length = int.from_bytes(tail[-_FRAME_BYTES : -len(_MAGIC)], "little")
    if length > size - len(_MAGIC) - _FRAME_BYTES:
        raise CorruptDatasetError(
            path=path, reason=f"it says that its footer has {length} bytes; the file has {size}"
        )
    if length > LARGEST_FOOTER_BYTES:
        raise CorruptDatasetError(
            path=path,
            reason=f"it says that its footer has {length:,} bytes; more than "
            f"{LARGEST_FOOTER_BYTES:,} are not read",
        )
    if length + _FRAME_BYTES > len(tail):
        tail = file.read_at(length + _FRAME_BYTES, size - length - _FRAME_BYTES)
    return _between_frames(tail)


def _between_frames(data: bytes) -> bytes:
    """The footer at the end of `data`, without its length and the magic."""
    end = len(data) - _FRAME_BYTES
    return data[end - int.from_bytes(data[end : end + 4], "little") : end]


@contextmanager
def _arrow_errors(path: str) -> Iterator[None]:
    """Name the file in any error that PyArrow raises for a footer."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
        # A name that is not UTF-8 is a ValueError, a type that PyArrow does not know a KeyError.
        raise CorruptDatasetError(path=path, reason=str(error)) from error


def _read_names(fields: Iterable[pa.Field]) -> None:
    """Read the name of every field: PyArrow decodes it only then."""
    for field in fields:
        _ = field.name
        _read_names(children(field.type))


def _is_stored_as(written: pa.DataType, stored: pa.DataType) -> bool:
    if is_variant(written):
        return holds_variant(stored)
    if not is_nested(written):
        return bool(stored.equals(written))
    inside, found = children(written), children(stored)
    # Writers do not agree on the names of what lists and maps hold.
    named = pa.types.is_struct(written)
    return len(inside) == len(found) and all(
        _is_stored_as(one.type, other.type) and (not named or one.name == other.name)
        for one, other in zip(inside, found)
    )
