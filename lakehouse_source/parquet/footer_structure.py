"""Edge. The Thrift structures of a footer: where its column chunks begin, and their contents.

`CheckedFooter` checks a column chunk here, in the bytes, before it asks PyArrow for the chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

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
