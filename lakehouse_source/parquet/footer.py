"""Edge. What a Parquet footer says: statistics, as bounds and `FileMetadata`, and VARIANT.

Statistics are taken from the footer in physical form and turned into ordinals
by the column's own type: so rounding by a Python class (a `datetime` has no nanoseconds) never
makes a bound narrower than the data.

PyArrow writes and reads a column of VARIANT as a struct. The annotation is written into the schema
of the finished footer, and found there.

Source: parquet.thrift, `SchemaElement` and `LogicalType`.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.model import ColumnBounds, FileMetadata, Ordinal, RowGroupMetadata
from lakehouse_source.parquet.thrift import (
    LIST,
    STOP,
    ThriftError,
    read_field_head,
    read_list_head,
    read_struct,
    skip_value,
)
from lakehouse_source.pruning import bounds
from lakehouse_source.schema.fields import Leaf, children, is_reserved, leaves
from lakehouse_source.schema.variant import STORAGE, is_variant
from lakehouse_source.schema.variant_paths import TypedPath, typed_paths

_JSON_NULL = b"\0"
_MOST_DECIMAL = 10**38
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
    stored: pa.Schema | None = None,
) -> FileMetadata:
    """Describe a file from its footer.

    `schema` is the file's Arrow schema with ids, in the file's column order, and `stored` what
    Arrow's writer was given for it, if that differs.
    `nan_columns` gives, per row group, the ids of the float columns that hold a NaN; None: they are
    not known, because Parquet statistics leave NaN out without saying so.
    """
    stored = schema if stored is None else stored
    columns = [leaf for leaf in leaves(schema) if leaf.column_id is None]
    at = stored_positions(columns, stored)
    shredded = list(_shredded(schema, dict(zip((leaf.path for leaf in columns), at)), stored))
    by = footer.created_by
    groups = []
    for index in range(footer.num_row_groups):
        group, nans = footer.row_group(index), nan_columns[index]
        described = [*_of_columns(group, zip(columns, at), nans, by)]
        described += [one for path in shredded for one in path.bounds(group, nans, by)]
        groups.append(_row_group(group, index, described))
    return FileMetadata(
        path=path,
        row_count=footer.num_rows,
        file_size_bytes=file_size_bytes,
        schema=schema,
        row_groups=tuple(groups),
        partitions=dict(partitions),
        parquet_metadata=footer,
        sha256=sha256,
    )


def stored_positions(columns: Iterable[Leaf], stored: pa.Schema) -> list[int]:
    """Where a file has each leaf; of VARIANT the first of its parts, NULL where the column is."""
    found, position = [], 0
    for leaf in columns:
        found.append(position)
        if not is_variant(leaf.type):
            position += 1
        elif len(leaf.path) > 1:
            position += len(STORAGE)  # what is inside of other types is not shredded
        else:
            position += _width(stored.field(leaf.path[0]).type)
    return found


def _width(type_: pa.DataType) -> int:
    below = children(type_)
    return sum(_width(field.type) for field in below) if below else 1


def is_covered(rest: pq.Statistics | None, rows: int) -> bool:
    """Tell whether the typed part of a path has all values; `rest` are of the other values.

    JSON's null among them is NULL in each type.
    """
    if rest is None or not rest.has_null_count:
        return False
    only_nulls = rest.has_min_max and rest.min_raw == rest.max_raw == _JSON_NULL
    return bool(rest.null_count == rows or only_nulls)


@dataclass(frozen=True, slots=True)
class _Shredded:
    """A path of VARIANT in a file, and its leaves, one for each type."""

    place: TypedPath
    leaves: Sequence[Leaf]

    def bounds(
        self, group: pq.RowGroupMetaData, nans: frozenset[int] | None, created_by: str | None
    ) -> list[tuple[Leaf, ColumnBounds]]:
        """What is known of the path in each type: nothing where it has values of other types."""
        place, rows = self.place, group.num_rows
        if not is_covered(group.column(place.value).statistics, rows):
            return []
        leaf = next(one for one in self.leaves if one.id == place.id)
        may_have_nan = pa.types.is_floating(place.type) and (nans is None or leaf.id in nans)
        written = Leaf(leaf.path, leaf.id, place.type, False)
        statistics = group.column(place.typed).statistics
        known = chunk_bounds(statistics, written, rows, may_have_nan, created_by)
        if pa.types.is_decimal(place.type):
            if place.type.scale > leaf.type.scale:
                return []
            known = bounds.promoted(known, place.type, leaf.type)
            if any(abs(int(one or 0)) >= _MOST_DECIMAL for one in (known.lower, known.upper)):
                return []
        nothing = ColumnBounds(None, None, rows, rows, False)
        return [(one, known if one is leaf else nothing) for one in self.leaves]


def _shredded(
    schema: pa.Schema, at: Mapping[tuple[str, ...], int], stored: pa.Schema
) -> Iterator[_Shredded]:
    every = {leaf.id: leaf for leaf in leaves(schema)}
    for field in schema:
        for one in typed_paths(field, stored.field(field.name).type, at.get((field.name,), 0)):
            yield _Shredded(one, [every[id] for id in one.ids])


def _of_columns(
    group: pq.RowGroupMetaData,
    columns: Iterable[tuple[Leaf, int]],
    nans: frozenset[int] | None,
    created_by: str | None,
) -> Iterator[tuple[Leaf, ColumnBounds]]:
    for leaf, position in columns:
        if not leaf.in_list and not is_reserved(leaf.id):
            statistics = group.column(position).statistics
            may_have_nan = pa.types.is_floating(leaf.type) and (nans is None or leaf.id in nans)
            yield leaf, chunk_bounds(statistics, leaf, group.num_rows, may_have_nan, created_by)


def _row_group(
    group: pq.RowGroupMetaData, index: int, described: Iterable[tuple[Leaf, ColumnBounds]]
) -> RowGroupMetadata:
    lower, upper, nulls, nan = bounds.encode_row_group(described)
    compressed = sum(group.column(at).total_compressed_size for at in range(group.num_columns))
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


_FRAME_BYTES = 8
_SCHEMA, _NAME, _CHILDREN, _LOGICAL_TYPE, _VARIANT = 2, 4, 5, 10, 16
_STRUCT = 12
# The field VARIANT of the union, with a structure whose specification_version is 1.
_ANNOTATION = bytes((_STRUCT, _VARIANT << 1, 0x13, 1, 0, 0))


def annotated_end(end: bytes, paths: Collection[Sequence[str]]) -> bytes:
    """The end of a file, from anywhere before its footer, whose groups at paths are annotated."""
    size = int.from_bytes(end[-_FRAME_BYTES:-4], "little")
    start = len(end) - _FRAME_BYTES - size
    footer = end[start:-_FRAME_BYTES]
    asked = {*map(tuple, paths)}
    wanted = [element for element in _elements(footer) if element[0] in asked]
    if len(wanted) != len(asked):
        raise ThriftError(f"the footer lacks one of the columns {', '.join(map('.'.join, paths))}")
    for _, last, stop, _ in reversed(wanted):
        if last >= _LOGICAL_TYPE:
            raise ThriftError("a column of VARIANT has another logical type already")
        head = bytes(((_LOGICAL_TYPE - last) << 4 | _STRUCT,))
        footer = b"".join((footer[:stop], head, _ANNOTATION, footer[stop:]))
    return b"".join((end[:start], footer, len(footer).to_bytes(4, "little"), end[-4:]))


def annotate(path: str, paths: Collection[Sequence[str]]) -> None:
    """Annotate groups of a finished file of this machine."""
    if not paths:
        return
    with open(path, "r+b") as file:
        file.seek(-_FRAME_BYTES, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little") + _FRAME_BYTES
        start = file.seek(-size, os.SEEK_END)
        end = file.read()
        file.seek(start)
        file.write(annotated_end(end, paths))


def variant_groups(footer: bytes) -> frozenset[tuple[str, ...]]:
    """The paths of the groups that are annotated as VARIANT.

    Raises:
        ThriftError: the bytes are no footer.
    """
    return frozenset(
        path
        for path, _, _, element in _elements(footer)
        if _VARIANT in (element.get(_LOGICAL_TYPE) or {})
    )


def _elements(footer: bytes) -> Iterator[tuple[tuple[str, ...], int, int, dict[int, Any]]]:
    """The elements of a schema: path, last field of the element, its stop, itself."""
    at = field = 0
    while True:
        field, kind, at = read_field_head(footer, at, field)
        if kind == STOP:
            raise ThriftError("the footer has no schema")
        if (field, kind) == (_SCHEMA, LIST):
            break
        at = skip_value(footer, kind, at)
    count, _, at = read_list_head(footer, at)
    above: list[str] = []
    missing: list[int] = []  # elements that are still missing below each name, and below the root
    for number in range(count):
        element, end = read_struct(footer, at)
        at = end
        if number:
            name = element.get(_NAME)
            if not isinstance(name, bytes):
                raise ThriftError("a column has no name")
            above.append(name.decode(errors="replace"))
            yield (*above,), max(element), end - 1, element
        missing.append(int(element.get(_CHILDREN) or 0))
        while missing and not missing[-1]:
            missing.pop()
            if missing:
                above.pop()
                missing[-1] -= 1
