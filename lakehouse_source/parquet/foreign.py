"""Edge. Parquet files that plake did not write: what their footers say, and how they are read.

Their columns are matched with the dataset's by name (`schema/name_mapping`). Only what the format
makes certain is believed: float columns may hold NaN, INT96 has no order, bounds count only if
Arrow trusts their writer, and a bound whose unit is not certain is left out. Only footers are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.errors import CorruptDatasetError, PlakeError, SchemaMismatchError
from lakehouse_source.model import ColumnBounds, FileMetadata, Ordinal, RowGroupMetadata
from lakehouse_source.parquet.checked_footer import CheckedFooter, Chunk, open_footer
from lakehouse_source.parquet.footer import chunk_bounds, has_wrong_bytes
from lakehouse_source.pruning import bounds
from lakehouse_source.schema.defaults import initial_ordinals
from lakehouse_source.schema.fields import (
    Leaf,
    children,
    field_id,
    is_nested,
    leaves,
    rebuild,
    storage_type,
)
from lakehouse_source.schema.merge import storage_schema
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.schema.paths import (
    ToShow,
    leaf_types,
    replaced_leaves,
    with_ids_by_name,
)
from lakehouse_source.schema.variant import METADATA, VARIANT, holds_variant, is_variant
from lakehouse_source.schema.variant_storage import names_below
from lakehouse_source.storage import Storage

# INT96 has a wider range than nanoseconds since 1970, which overflow in Arrow. So INT96 is read in
# microseconds, as in Spark; digits below a microsecond are cut off.
INT96_UNIT = "us"
# Spark, Hive and Impala write INT96, as instants; Arrow gives them without a zone.
INT96_TYPE = pa.timestamp(INT96_UNIT, "UTC")
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ForeignRowGroup:
    """A row group. `columns` has the bounds of each leaf column, in the file's order."""

    row_count: int
    total_byte_size: int
    compressed_byte_size: int
    columns: tuple[ColumnBounds, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ForeignSchema:
    """The schema of a file; files with equal schemas share one object.

    `physical` is the schema that Arrow reads the file with. `schema` is the same with INT96
    as timestamps in UTC; `int96` are the top-level columns with such a leaf. For each leaf column,
    in the file's order, `columns` has the name of its top-level column, and `leaf_types` the type
    of its bounds; None: the bounds have no certain meaning.
    """

    physical: pa.Schema
    schema: pa.Schema
    int96: frozenset[str]
    columns: tuple[str, ...]
    leaf_types: tuple[pa.DataType | None, ...]


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """The contents of a file's footer."""

    size_bytes: int
    row_count: int
    described: ForeignSchema
    row_groups: tuple[ForeignRowGroup, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.described.schema

    def shows(self, wanted: ToShow) -> bool:
        """Tell whether the statistics of each row group show the required facts."""
        at = self._position(wanted.column)
        if at is None:
            return False
        for group in self.row_groups:
            known = group.columns[at]
            if wanted.type is None:
                if known.null_count != 0:
                    return False
            elif known.null_count != group.row_count:
                # Bounds that do not fit the type become unknown.
                found = _in_type(known, self.described.leaf_types[at], wanted.type)
                if found is None or found.lower is None or found.upper is None:
                    return False
        return True

    def holds_only(self, column: str, ordinal: Ordinal | None, type_: pa.DataType) -> bool:
        """Tell whether the statistics show that each row of a column has one value.

        `ordinal` is the value as an ordinal of `type_`, None for NULL.
        """
        at = self._position(column)
        if at is None:
            return False
        for group in self.row_groups:
            known = _in_type(group.columns[at], self.described.leaf_types[at], type_)
            if known is None:
                return False
            if ordinal is None:
                if known.null_count != group.row_count:
                    return False
            elif (known.null_count, known.lower, known.upper) != (0, ordinal, ordinal):
                return False
        return True

    def _position(self, column: str) -> int | None:
        """The position of a column that is a leaf, None for a nested one."""
        columns = self.described.columns
        return columns.index(column) if columns.count(column) == 1 else None


class FooterReader:
    """Reads the footers of files, and remembers their few different schemas."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[bytes, tuple[str, ...]], ForeignSchema] = {}

    def read(self, storage: Storage, path: str) -> ForeignFile:
        """Read the footer of a file.

        Raises:
            StorageError: the file cannot be read.
            SchemaMismatchError: the file has columns that a dataset cannot have.
        """
        shown = storage.display(path)
        try:
            with storage.open_input(path) as file:
                size = int(file.size())
                footer = open_footer(file, shown)
                described = self._described(footer, file)
            if sum(footer.row_counts) != footer.row_count:
                raise CorruptDatasetError(
                    path=shown, reason="its row groups do not have as many rows as its footer says"
                )
            groups = tuple(_row_groups(footer, described, size))
            return ForeignFile(size, footer.row_count, described, groups)
        except PlakeError:
            raise
        except (pa.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
            raise CorruptDatasetError(path=shown, reason=str(error)) from error

    def _described(self, footer: CheckedFooter, file: pa.NativeFile) -> ForeignSchema:
        columns = [footer.metadata.schema.column(at) for at in range(footer.leaf_count)]
        physical = footer.arrow_schema.remove_metadata()
        # The key has everything that decides how bounds are read.
        units = [
            column.logical_type.to_json() if column.physical_type == "INT64" else ""
            for column in columns
        ]
        kinds = tuple(column.physical_type + unit for column, unit in zip(columns, units))
        kinds += tuple(".".join(path) for path in sorted(footer.variants))
        key = (physical.serialize().to_pybytes(), kinds)
        if key not in self._schemas:
            self._schemas[key] = _schema_of(footer, columns, physical, file)
        return self._schemas[key]


def _schema_of(
    footer: CheckedFooter,
    columns: Sequence[pq.ColumnSchema],
    physical: pa.Schema,
    file: pa.NativeFile,
) -> ForeignSchema:
    int96 = _int96_positions(footer)
    if int96:
        physical = pq.ParquetFile(
            file, metadata=footer.metadata, coerce_int96_timestamp_unit=INT96_UNIT
        ).schema_arrow.remove_metadata()
    schema = pa.schema(
        replaced_leaves(list(physical), lambda at: INT96_TYPE if at in int96 else None)
    )
    found = [(field.name, type_) for field in schema for type_ in leaf_types(field.type)]
    if len(found) != footer.leaf_count:
        raise CorruptDatasetError(
            path=footer.path,
            reason=f"its schema has {len(found)} columns, not {footer.leaf_count}",
        )
    with_variants = {path[0] for path in footer.variants}
    schema = _with_variants(schema, footer)
    storage_schema(schema)  # refuses names and types that no dataset can have
    return ForeignSchema(
        physical=physical,
        schema=schema,
        int96=frozenset(found[at][0] for at in int96),
        columns=tuple(name for name, _ in found),
        leaf_types=tuple(
            storage_type(type_, name)
            if has_certain_order(column, type_) and name not in with_variants
            else None
            for column, (name, type_) in zip(columns, found)
        ),
    )


def _with_variants(schema: pa.Schema, footer: CheckedFooter) -> pa.Schema:
    """The schema with VARIANT for the groups that are annotated so."""

    def walk(field: pa.Field, path: tuple[str, ...]) -> pa.Field:
        if path in footer.variants:
            metadata = [one for one in children(field.type) if one.name == METADATA]
            if not holds_variant(field.type) or metadata[0].nullable:
                raise SchemaMismatchError(
                    column=field.name,
                    got=field.type,
                    reason=f"is called a VARIANT in {footer.path}, and does not have its parts",
                    hint="Write the rows of the file anew, with a column of another type.",
                )
            return field.with_type(VARIANT)
        below = zip(children(field.type), names_below(field.type))
        inner = [walk(child, (*path, *names)) for child, names in below]
        return field.with_type(rebuild(field.type, inner)) if inner else field

    if not footer.variants:
        return schema
    return pa.schema([walk(field, (field.name,)) for field in schema])


def read_schema(parquet: pq.ParquetFile, logical: pa.Schema) -> pa.Schema:
    """The schema that an open file is read with, with the ids of the dataset's columns."""
    return with_ids_by_name(parquet.schema_arrow.remove_metadata(), logical)


def schema_for_engines(storage: Storage, path: str, logical: pa.Schema) -> pa.Schema | None:
    """As `read_schema`; None: Arrow must not scan the file on its own.

    Arrow reads INT96 in nanoseconds, and prunes decimals by bounds that are known to be wrong.
    """
    with storage.open_input(path) as file, storage.errors(path):
        footer = open_footer(file, storage.display(path))
        if _int96_positions(footer) or has_wrong_bytes(footer.created_by):
            return None
        return with_ids_by_name(footer.arrow_schema.remove_metadata(), logical)


def _int96_positions(footer: CheckedFooter) -> frozenset[int]:
    schema = footer.metadata.schema
    return frozenset(
        at for at in range(footer.leaf_count) if schema.column(at).physical_type == "INT96"
    )


def _row_groups(
    footer: CheckedFooter, described: ForeignSchema, file_size: int
) -> Iterator[ForeignRowGroup]:
    for index, row_count in enumerate(footer.row_counts):
        columns = []
        compressed = total = 0
        for at, type_ in enumerate(described.leaf_types):
            chunk = footer.chunk(index, at)  # checked before PyArrow is asked below
            group = footer.metadata.row_group(index)
            compressed += max(0, group.column(at).total_compressed_size)
            total = min(max(0, group.total_byte_size), _LARGEST)
            columns.append(_bounds(chunk, type_, row_count, footer.created_by))
        yield ForeignRowGroup(row_count, total, min(compressed, file_size), tuple(columns))


def _bounds(
    chunk: Chunk, type_: pa.DataType | None, row_count: int, created_by: str | None
) -> ColumnBounds:
    # `chunk_bounds` has bounds of rows, so bounds of leaves below lists are never used.
    leaf = Leaf((), 0, type_ or pa.null(), False)
    may_have_nan = bool(pa.types.is_floating(leaf.type))
    unknown = ColumnBounds(None, None, None, row_count, may_have_nan)
    try:
        known = chunk_bounds(chunk.statistics, leaf, row_count, may_have_nan, created_by)
        if pa.types.is_string(leaf.type):
            for bound in (known.lower, known.upper):
                if isinstance(bound, bytes):
                    bound.decode()
    except (ValueError, OverflowError):  # a text bound that was cut inside a character
        return unknown
    if type_ is None:
        return replace(unknown, null_count=known.null_count)
    return known


def has_certain_order(column: pq.ColumnSchema, type_: pa.DataType) -> bool:
    """Tell whether bounds mean what the Arrow type says.

    Arrow takes some types from a copy of the Arrow schema in the footer, but only the Parquet type
    tells whether the stored integers have that type's unit.
    """
    if pa.types.is_timestamp(type_):
        logical = json.loads(column.logical_type.to_json())
        unit = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
        return bool(unit.get(logical.get("timeUnit")) == storage_type(type_, "").unit)
    return pa.types.is_date(type_) or not domain(type_).temporal


def _in_type(
    known: ColumnBounds, stored: pa.DataType | None, wanted: pa.DataType
) -> ColumnBounds | None:
    """Bounds of a column as bounds of another type; None where that is not possible."""
    if stored is None or stored.equals(wanted):
        return known
    if not domain(stored).ordered or not domain(wanted).ordered:
        return None
    leaf = Leaf((), 1, stored, False)
    group = RowGroupMetadata(0, known.row_count, *bounds.encode_row_group([(leaf, known)]))
    return bounds.decode_row_group(group, 1, stored, wanted)


class Recorder:
    """Describes files of one schema as the catalog records them, under the dataset's schema.

    Statistics are recorded in the dataset's types. A column that the files lack is recorded
    with its initial default, or as all NULL. `logical` is the dataset's schema, with ids.
    """

    def __init__(
        self, described: ForeignSchema, logical: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        data = pa.schema([field for field in logical if field.name not in partition_by])
        matched = with_ids_by_name(described.schema, data)
        positions = _positions(matched, described.physical)
        self._columns = [
            (leaf, positions.get(leaf.id))
            for leaf in leaves(data)
            if not leaf.in_list and leaf.column_id is None
        ]
        self._described = described
        self._defaults = initial_ordinals(data)
        present = {leaf.id for leaf in leaves(matched)}
        self._schema = pa.schema([field for field in data if _has_any(field, present)])

    def record(self, file: ForeignFile, path: str, partitions: Mapping[str, Any]) -> FileMetadata:
        """Describe one file; `path` is the path to record."""
        return FileMetadata(
            path=path,
            row_count=file.row_count,
            file_size_bytes=file.size_bytes,
            schema=self._schema,
            row_groups=tuple(self._row_group(i, group) for i, group in enumerate(file.row_groups)),
            partitions=dict(partitions),
        )

    def _row_group(self, index: int, group: ForeignRowGroup) -> RowGroupMetadata:
        known: list[tuple[Leaf, ColumnBounds]] = []
        for leaf, at in self._columns:
            if at is None:
                known += self._without_data(leaf, group.row_count)
                continue
            found = _in_type(group.columns[at], self._described.leaf_types[at], leaf.type)
            if found is not None:
                known.append((leaf, found))
        return RowGroupMetadata(
            index,
            group.row_count,
            *bounds.encode_row_group(known),
            group.total_byte_size,
            group.compressed_byte_size,
        )

    def _without_data(self, leaf: Leaf, row_count: int) -> list[tuple[Leaf, ColumnBounds]]:
        """The bounds of a column that the files lack: its initial default or NULL."""
        default = self._defaults.get(leaf.id)
        if default is not None and len(leaf.path) > 1:
            return []  # NULL where the struct is NULL
        return [(leaf, bounds.constant_bounds(leaf, default, row_count)[0])]


def _has_any(field: pa.Field, present: set[int]) -> bool:
    return any(leaf.id in present for leaf in leaves(pa.schema([field])))


def _positions(matched: pa.Schema, physical: pa.Schema) -> dict[int, int]:
    """Per id of a leaf column: its position among the file's leaf columns.

    That of VARIANT is the position of its metadata, which is NULL where the column is.
    """
    found: dict[int, int] = {}
    position = 0

    def walk(field: pa.Field, stored: pa.DataType) -> None:
        nonlocal position
        if pa.types.is_struct(field.type):
            for child, below in zip(children(field.type), children(stored)):
                walk(child, below.type)
            return
        identity = field_id(field)
        if identity is not None and is_variant(field.type):
            above = takewhile(lambda one: one.name != METADATA, children(stored))
            found[identity] = position + sum(1 for one in above for _ in leaf_types(one.type))
        elif identity is not None and not is_nested(field.type):
            found[identity] = position
        # Lists, maps and nested extension types have no bounds of rows.
        position += sum(1 for _ in leaf_types(stored))

    for field, stored in zip(matched, physical):
        walk(field, stored.type)
    return found
