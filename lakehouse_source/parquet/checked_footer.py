"""Edge. The only place where a Parquet footer is opened. Any bytes: a footer or a `PlakeError`.

PyArrow is trusted to parse a footer: what it cannot parse is an exception. It is not
trusted with what it parsed. `RowGroupMetaData.column` and `ColumnChunkMetaData.statistics`
call `std::terminate`, which ends the process, when

    the physical type of a column chunk is not that of the schema,
    a row group has more column chunks than the schema has columns,
    a column chunk has no metadata, or encrypted metadata,
    a histogram of the size statistics has not one entry per level,
    a bound in the statistics has not the width of its type.

`CheckedFooter.chunk` looks at the Thrift structure of a column chunk first. PyArrow writes
that structure again from its own memory, so both look at the same fields whatever the
file's bytes were. Only the column chunks that are asked for are checked: a footer of
100 row groups and 100 columns takes PyArrow 12 ms to parse, 8 ms to write again, and
plake 140 ms to find the column chunks in, once, and 0.05 ms for each that is asked for.
`prune_file` always asks. A reader asks only for bloom filters, for `=` and `IN`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.errors import CorruptDatasetError, StorageError
from lakehouse_source.parquet.thrift import (
    LIST,
    STOP,
    STRUCT,
    Struct,
    ThriftError,
    read_field_head,
    read_list_head,
    read_struct,
    skip_value,
)
from lakehouse_source.schema.fields import children

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
# After the footer: its length in four bytes, and the magic.
_FRAME_BYTES = 8
# Read at once from the file's end; most footers are shorter.
_TAIL_BYTES = 64 * 1024
# PyArrow allocates a list before it reads the items, about a kilobyte for each. An item that
# occurs more often than once per few columns takes at least 8 bytes in a valid footer.
_ITEM_BYTES = 8
_SHORTEST_LIMIT = 1000
_LONGEST_LIMIT = 1_000_000
# Source: parquet.thrift, `Type`.
_TYPES = (
    *("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE"),
    *("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"),
)
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a footer says of one column chunk.

    `statistics` is None where there are none that can be used. The offset and column
    indexes are given as (offset, length in bytes).
    """

    physical_type: str
    statistics: pq.Statistics | None
    bloom_filter_offset: int | None
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None


class CheckedFooter:
    """A footer whose column chunks are checked before PyArrow is asked for them.

    `path` names the file in errors. `arrow_schema` is the file's schema, every name of which
    can be read. `leaf_count` is the number of leaf columns, and of chunks in each row group.
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
        self._chunks: dict[tuple[int, int], Chunk] = {}

    def chunk(self, row_group: int, position: int) -> Chunk:
        """The column chunk of the leaf column at `position`.

        Raises:
            CorruptDatasetError: the column chunk contradicts the schema, or is encrypted.
        """
        key = (row_group, position)
        if key not in self._chunks:
            self._chunks[key] = self._checked(row_group, position)
        return self._chunks[key]

    @cached_property
    def _structures(self) -> tuple[bytes, list[list[int]]]:
        """The footer as PyArrow understood it, and where each column chunk in it starts."""
        try:
            given, starts = self._raw, _chunk_starts(self._raw)
            sink = pa.BufferOutputStream()
            with _arrow_errors(self.path):
                self.metadata.write_metadata_file(sink)
            written: bytes = _between_frames(sink.getvalue().to_pybytes())
            # Most writers lay a footer out as PyArrow does.
            return (given, starts) if given == written else (written, _chunk_starts(written))
        except ThriftError as error:
            raise self._corrupt(str(error)) from error

    def _checked(self, row_group: int, position: int) -> Chunk:
        structures, groups = self._structures
        starts = groups[row_group]
        if len(starts) != self.leaf_count:
            raise self._corrupt(
                f"row group {row_group} has {len(starts)} column chunks, not {self.leaf_count}"
            )
        raw, _ = read_struct(structures, starts[position])
        column = self.metadata.schema.column(position)
        problem = _problem(raw, column)
        if problem is not None:
            raise self._corrupt(f"column {position} of row group {row_group} {problem}")
        statistics = None
        if _usable(raw[_META_DATA].get(_STATISTICS), column):
            statistics = self.metadata.row_group(row_group).column(position).statistics
        return Chunk(
            physical_type=column.physical_type,
            statistics=statistics,
            bloom_filter_offset=raw[_META_DATA].get(_BLOOM_FILTER_OFFSET),
            offset_index=_place(raw, _OFFSET_INDEX),
            column_index=_place(raw, _COLUMN_INDEX),
        )

    def _corrupt(self, reason: str) -> CorruptDatasetError:
        return CorruptDatasetError(path=self.path, reason=reason)


def open_footer(file: pa.NativeFile, path: str) -> CheckedFooter:
    """Read the footer of a Parquet file. `path` names the file in errors.

    Raises:
        CorruptDatasetError: the file is not a Parquet file, or its footer is damaged or
            encrypted.
        StorageError: the file could not be read.
    """
    try:
        footer = _footer_bytes(file, path)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(path=path, reason=str(error)) from error
    limit = min(max(len(footer) // _ITEM_BYTES, _SHORTEST_LIMIT), _LONGEST_LIMIT)
    framed = b"".join((_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC))
    with _arrow_errors(path):
        metadata = pq.ParquetFile(
            pa.BufferReader(framed),
            thrift_string_size_limit=len(framed),
            thrift_container_size_limit=limit,
        ).metadata
    return CheckedFooter(metadata, path, footer)


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
    if length + _FRAME_BYTES > len(tail):
        tail = file.read_at(length + _FRAME_BYTES, size - length - _FRAME_BYTES)
    return _between_frames(tail)


def _between_frames(data: bytes) -> bytes:
    """The footer at the end of `data`, without its length and the magic."""
    end = len(data) - _FRAME_BYTES
    return data[end - int.from_bytes(data[end : end + 4], "little") : end]


@contextmanager
def _arrow_errors(path: str) -> Iterator[None]:
    """Name the file in whatever PyArrow raises over a footer."""
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


# --- the Thrift structure of a column chunk ----------------------------------------
# Source: parquet.thrift, `FileMetaData`, `RowGroup`, `ColumnChunk`, `ColumnMetaData`,
# `Statistics`, `SizeStatistics`: field ids.

_ROW_GROUPS, _ENCRYPTION_ALGORITHM = 4, 8
_COLUMNS_HEAD = bytes([1 << 4 | LIST])
_META_DATA = 3
_OFFSET_INDEX, _COLUMN_INDEX = 4, 6
_CRYPTO_METADATA, _ENCRYPTED_METADATA = 8, 9
_TYPE, _STATISTICS, _BLOOM_FILTER_OFFSET, _SIZE_STATISTICS = 1, 12, 14, 16
_BOUNDS = (1, 2, 5, 6)
_BYTE_ARRAY_BYTES, _REPETITION_HISTOGRAM, _DEFINITION_HISTOGRAM = 1, 2, 3


def _chunk_starts(data: bytes) -> list[list[int]]:
    """Where each `ColumnChunk` starts in a `FileMetaData`, by row group.

    A row group that does not start with its column chunks, as no known writer leaves it,
    counts as one without any.

    Raises:
        ThriftError: the bytes are not a structure, or say that the file is encrypted.
    """
    groups: list[list[int]] = []
    at = field = 0
    while True:
        field, kind, at = read_field_head(data, at, field)
        if kind == STOP:
            return groups
        if field == _ENCRYPTION_ALGORITHM:
            # PyArrow would write the footer encrypted, without a key: it reads address 0.
            raise ThriftError("the file is encrypted")
        if (field, kind) != (_ROW_GROUPS, LIST):
            at = skip_value(data, kind, at)
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
    # The fields that follow the column chunks read like a structure of their own.
    return starts, skip_value(data, STRUCT, at)


def _problem(chunk: Struct, column: pq.ColumnSchema) -> str | None:
    """Why PyArrow must not be asked for a column chunk, None where it may be."""
    if _CRYPTO_METADATA in chunk or _ENCRYPTED_METADATA in chunk:
        return "is encrypted"
    meta = chunk.get(_META_DATA)
    if meta is None:
        return "has no metadata"
    type_ = meta[_TYPE]
    physical = _TYPES[type_] if 0 <= type_ < len(_TYPES) else f"number {type_}"
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


def _usable(statistics: Struct | None, column: pq.ColumnSchema) -> bool:
    """Tell whether every bound has the width of the column's type."""
    if statistics is None:
        return False
    physical = column.physical_type
    if physical == "BYTE_ARRAY":
        return True
    width = column.length if physical == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS[physical]
    return all(len(statistics[bound]) == width for bound in _BOUNDS if bound in statistics)


def _place(chunk: Struct, offset: int) -> tuple[int, int] | None:
    """The offset and length of an index; the length is the field after the offset."""
    if offset not in chunk or offset + 1 not in chunk:
        return None
    return chunk[offset], chunk[offset + 1]
