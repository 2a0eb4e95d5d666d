"""Edge. Statistics in a Parquet footer, as bounds and as `FileMetadata`.

Statistics are taken from the footer in physical form and turned into ordinals
by the column's own type: so rounding by a Python class (a `datetime` has no nanoseconds) never
makes a bound narrower than the data.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.model import ColumnBounds, FileMetadata, Ordinal, RowGroupMetadata
from lakehouse_source.pruning import bounds
from lakehouse_source.schema.fields import Leaf, is_reserved, leaves
from lakehouse_source.schema.variant import stored_positions

_PARQUET_MR = re.compile(r"parquet-mr(?: version (\d+)\.(\d+))?")


def file_metadata(
    footer: pq.FileMetaData,
    *,
    path: str,
    file_size_bytes: int,
    schema: pa.Schema,
    partitions: Mapping[str, Any],
    nan_columns: Sequence[frozenset[int] | None],
    sha256: bytes | None = None,
) -> FileMetadata:
    """Describe a file from its footer.

    `schema` is the file's Arrow schema with ids, in the file's column order.
    `nan_columns` gives, per row group, the ids of the float columns that hold a NaN; None: they are
    not known, because Parquet statistics leave NaN out without saying so.
    """
    columns = list(leaves(schema))
    groups = tuple(
        _row_group(footer.row_group(index), index, columns, nan_columns[index], footer.created_by)
        for index in range(footer.num_row_groups)
    )
    return FileMetadata(
        path=path,
        row_count=footer.num_rows,
        file_size_bytes=file_size_bytes,
        schema=schema,
        row_groups=groups,
        partitions=dict(partitions),
        parquet_metadata=footer,
        sha256=sha256,
    )


def _row_group(
    group: pq.RowGroupMetaData,
    index: int,
    columns: Sequence[Leaf],
    nans: frozenset[int] | None,
    created_by: str | None,
) -> RowGroupMetadata:
    described: list[tuple[Leaf, ColumnBounds]] = []
    compressed = sum(group.column(at).total_compressed_size for at in range(group.num_columns))
    for leaf, position in zip(columns, stored_positions(leaf.type for leaf in columns)):
        chunk = group.column(position)
        if not leaf.in_list and not is_reserved(leaf.id):
            may_have_nan = pa.types.is_floating(leaf.type) and (nans is None or leaf.id in nans)
            bounds_ = chunk_bounds(chunk.statistics, leaf, group.num_rows, may_have_nan, created_by)
            described.append((leaf, bounds_))
    lower, upper, nulls, nan = bounds.encode_row_group(described)
    return RowGroupMetadata(
        index=index,
        row_count=group.num_rows,
        stats_min_json=lower,
        stats_max_json=upper,
        null_counts_json=nulls,
        nan_json=nan,
        total_byte_size=group.total_byte_size,
        compressed_byte_size=compressed,
    )


def chunk_bounds(
    statistics: pq.Statistics | None,
    leaf: Leaf,
    row_count: int,
    may_have_nan: bool,
    created_by: str | None,
) -> ColumnBounds:
    """The bounds in a column chunk's statistics; `leaf.type` is its type in the file.

    `created_by` is the footer's name of its writer. Statistics that cannot be true count as absent.
    """
    lower = upper = null_count = None
    if statistics is not None:
        if statistics.has_null_count and 0 <= statistics.null_count <= row_count:
            null_count = statistics.null_count
        in_bytes = statistics.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
        if statistics.has_min_max and not (in_bytes and has_wrong_bytes(created_by)):
            lower = ordinal(statistics.min_raw, statistics.physical_type, leaf.type)
            upper = ordinal(statistics.max_raw, statistics.physical_type, leaf.type)
            if lower is not None and upper is not None and lower > upper:  # type: ignore[operator]
                lower = upper = None
    return ColumnBounds(lower, upper, null_count, row_count, may_have_nan)


def has_wrong_bytes(created_by: str | None) -> bool:
    """Tell whether a writer is known for wrong bounds of bytes (PARQUET-251, PARQUET-686).

    Arrow reports such bounds for decimals: fixed_length_decimal.parquet of the public test
    files has a value below its minimum.
    """
    found = _PARQUET_MR.match(created_by or "")
    return found is not None and (int(found[1] or 0), int(found[2] or 0)) < (1, 10)


def ordinal(raw: Any, physical: str, type_: pa.DataType) -> Ordinal | None:
    """A bound in the footer's physical form as an ordinal of `type_`; None: it has none.

    Source: Parquet format, LogicalTypes.md (order of each type) and `Statistics`
    (a NaN bound means nothing). INT96 has no defined order and is never used.
    """
    t = pa.types
    if physical == "INT96" or raw is None:
        return None
    if t.is_floating(type_):
        value = struct.unpack("<e", raw)[0] if physical == "FIXED_LEN_BYTE_ARRAY" else float(raw)
        return None if math.isnan(value) else value
    if t.is_decimal(type_):
        return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    if t.is_unsigned_integer(type_):
        # Physical integers are signed: the same bits, read without a sign.
        return int(raw) & ((1 << (64 if physical == "INT64" else 32)) - 1)
    if t.is_string(type_) or t.is_binary(type_) or t.is_fixed_size_binary(type_):
        return raw.encode() if isinstance(raw, str) else bytes(raw)
    if isinstance(raw, (bool, int)):
        return int(raw)
    return None
