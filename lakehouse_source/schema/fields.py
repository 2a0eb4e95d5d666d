"""Pure. Fields and their ids, look-up by name, and columns that no user wrote.

A dataset's schema is an Arrow schema whose fields, nested ones included, carry
an id in their metadata under `PARQUET:field_id`, the key that Arrow's Parquet
writer turns into Parquet's `field_id`. An id is given once and never reused.
Statistics, bounds and files refer to columns by id, so renaming or dropping a
column changes no file.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.variant import is_variant
from lakehouse_source.schema.variant_paths import KINDS, last_id, paths_of

_T = TypeVar("_T")

FIELD_ID = b"PARQUET:field_id"
# Spark's JSON for a type that Arrow has no name for: collations, fields of intervals.
SPARK_TYPE = b"plake:spark_type"
# Spark's metadata of a column, as JSON.
SPARK_METADATA = b"plake:spark_metadata"
# How the values that data lacks are computed (`defaults.py`).
COMPUTED = b"plake:computed"
_KEPT_METADATA = (SPARK_TYPE, SPARK_METADATA, COMPUTED)
# The key in a string column's metadata where Spark keeps the length of char and varchar.
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
_VIEWS = frozenset((pa.list_view(pa.null()).id, pa.large_list_view(pa.null()).id))
_LISTS = _VIEWS | {pa.list_(pa.null()).id, pa.large_list(pa.null()).id, pa.list_(pa.null(), 1).id}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive column. `path` holds the names from the top-level field down.

    `in_list` tells that the leaf is below a list or a map. Its statistics count
    elements, not rows, so they never serve pruning (PARQUET-2067). A path of a column of VARIANT,
    in one type, is a leaf too: `column_id` is the id of the column, and a file may lack the leaf
    and have its values all the same.
    """

    path: tuple[str, ...]
    id: int
    type: pa.DataType
    in_list: bool
    column_id: int | None = None

    @property
    def name(self) -> str:
        """As people write it: `a.b`, or `payload:user.id::BIGINT`."""
        return ("." if self.column_id is None else "").join(self.path)


def field_id(field: pa.Field) -> int | None:
    """The id in a field's metadata, or None."""
    raw = (field.metadata or {}).get(FIELD_ID)
    return None if raw is None else int(raw)


def has_collation(field: pa.Field) -> bool:
    """Tell whether Spark compares the field's text by a collation, not by its bytes."""
    return b"collat" in (field.metadata or {}).get(SPARK_TYPE, b"").lower()


def is_nested(type_: pa.DataType) -> bool:
    """Tell whether a type has child fields."""
    return bool(pa.types.is_nested(type_))


def is_list_like(type_: pa.DataType) -> bool:
    """Tell whether a type is a list of any kind, maps excluded."""
    return type_.id in _LISTS


def is_list_view(type_: pa.DataType) -> bool:
    """Tell whether a type is a list whose elements lie in any order; `rebuild` makes it a list."""
    return type_.id in _VIEWS


def children(type_: pa.DataType) -> list[pa.Field]:
    """The child fields of a nested type: a struct's, a list's element, a map's key and value."""
    if pa.types.is_struct(type_):
        return [type_.field(i) for i in range(type_.num_fields)]
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    if is_list_like(type_):
        return [type_.value_field]
    return []


def is_same_with_ids(one: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether two types are equal, with the names and ids of their nested fields."""
    if not is_nested(one) or not is_nested(other):
        return bool(one.equals(other))
    mine, theirs = children(one), children(other)
    return (
        one.id == other.id
        and len(mine) == len(theirs)
        and all(
            a.name == b.name and field_id(a) == field_id(b) and is_same_with_ids(a.type, b.type)
            for a, b in zip(mine, theirs)
        )
    )


def rebuild(type_: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The nested type of `type_`'s kind with other child fields; a list view becomes a list."""
    if pa.types.is_struct(type_):
        return pa.struct(list(fields))
    if pa.types.is_map(type_):
        return pa.map_(fields[0].with_nullable(False), fields[1], keys_sorted=type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(fields[0], type_.list_size)
    if pa.types.is_large_list(type_) or pa.types.is_large_list_view(type_):
        return pa.large_list(fields[0])
    return pa.list_(fields[0])


def map_children(type_: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """The type with each child field changed; a type without child fields as it is."""
    below = children(type_)
    return rebuild(type_, [change(one) for one in below]) if below else type_


def is_same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether both are structs, both maps, both lists of any kind, or one other kind."""
    return bool(one.id == other.id) or (is_list_like(one) and is_list_like(other))


def find_name(name: str, names: Iterable[str]) -> str | None:
    """The name among `names` that equals `name`, or else the first that differs by case only."""
    return _find(name, ((candidate, candidate) for candidate in names))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_F = TypeVar("_F", bound=_Named)


class IndexedFields(list[_F]):
    """Fields that are looked up many times by their names or ids. Nobody changes the list."""

    @cached_property
    def _by_name(self) -> dict[str, _F]:
        return {field.name: field for field in reversed(self)}

    @cached_property
    def _by_lower(self) -> dict[str, list[_F]]:
        found: dict[str, list[_F]] = {}
        for field in self:
            found.setdefault(field.name.lower(), []).append(field)
        return found

    @cached_property
    def _by_id(self: IndexedFields[pa.Field]) -> dict[int | None, pa.Field]:
        return {field_id(field): field for field in reversed(self)}

    def named(self, name: str) -> list[_F]:
        """The first field with a name; without one, all fields whose names differ by case only."""
        exact = self._by_name.get(name)
        return self._by_lower.get(name.lower(), []) if exact is None else [exact]

    def with_id(self: IndexedFields[pa.Field], number: int | None) -> pa.Field | None:
        """The first field with an id."""
        return self._by_id.get(number)


# Keyed by the identities of living schemas: comparing two schemas takes too long.
_INDEXED: dict[int, tuple[weakref.ref[pa.Schema], IndexedFields[pa.Field]]] = {}


def indexed(schema: pa.Schema) -> IndexedFields[pa.Field]:
    """The fields of a schema, to be looked up.

    Statements look up each column of a schema: by searching all fields, 2,000 columns took 22 s.
    """
    number = id(schema)
    known = _INDEXED.get(number)
    if known is None or known[0]() is not schema:
        forget = weakref.ref(schema, lambda _: _INDEXED.pop(number, None))
        known = _INDEXED[number] = (forget, IndexedFields(schema))
    return known[1]


def find_field(name: str, fields: Iterable[pa.Field]) -> pa.Field | None:
    """The field of a schema, or of a list of fields, that `find_name` finds by its name."""
    if isinstance(fields, pa.Schema):
        fields = indexed(fields)
    if isinstance(fields, IndexedFields):
        return next(iter(fields.named(name)), None)
    return _find(name, ((field.name, field) for field in fields))


def _find(name: str, candidates: Iterable[tuple[str, _T]]) -> _T | None:
    lowered, found = name.lower(), None
    for other, value in candidates:
        if other == name:
            return value
        if found is None and other.lower() == lowered:
            found = value
    return found


def leaves(schema: pa.Schema) -> Iterator[Leaf]:
    """Every leaf of a schema with ids, depth first, in schema order."""

    def walk(field: pa.Field, above: tuple[str, ...], in_list: bool) -> Iterator[Leaf]:
        path = (*above, field.name)
        if is_nested(field.type):
            inside = in_list or not pa.types.is_struct(field.type)
            for child in children(field.type):
                yield from walk(child, path, inside)
        else:
            identity = field_id(field)
            if identity is not None:
                yield Leaf(path, identity, field.type, in_list)
            for names, first in paths_of(field).items():
                for number, (kind, type_) in enumerate(KINDS.items()):
                    place = (field.name, f":{'.'.join(names)}::{kind}")
                    yield Leaf(place, first + number, type_, False, identity)

    for field in schema:
        yield from walk(field, (), False)


def leaves_of_file(written: pa.Schema, now: Iterable[Leaf]) -> list[Leaf]:
    """The leaves of a file, and the paths that its columns of VARIANT got after it was written.

    `now` are leaves of other schemas.
    """
    own = list(leaves(written))
    known, columns = {leaf.id for leaf in own}, {field_id(field) for field in written}
    later = {leaf.id: leaf for leaf in now if leaf.column_id in columns and leaf.id not in known}
    return [*own, *(leaf for leaf in later.values() if leaf.column_id is not None)]


def names_hold(fields: Iterable[pa.Field], text: str) -> bool:
    """Tell whether a name among the fields, nested ones included, holds a text."""
    return any(text in field.name or names_hold(children(field.type), text) for field in fields)


def max_id(schema: pa.Schema) -> int:
    """The highest field id in use, 0 where there is none."""

    def walk(field: pa.Field) -> int:
        below = (walk(child) for child in children(field.type))
        return max([field_id(field) or 0, last_id(field), *below])

    return max((walk(field) for field in schema), default=0)


def with_metadata(field: pa.Field, extra: dict[bytes, bytes]) -> pa.Field:
    """The field with `extra` added to its metadata."""
    return field.with_metadata({**(field.metadata or {}), **extra})


def assign_ids(field: pa.Field, next_id: Iterator[int]) -> pa.Field:
    """The field with a fresh id for itself and everything below it."""
    own = next(next_id)
    type_ = map_children(field.type, lambda child: assign_ids(child, next_id))
    return with_metadata(field.with_type(type_), {FIELD_ID: str(own).encode()})


def without_metadata(schema: pa.Schema) -> pa.Schema:
    """The schema without ids and other metadata, as users of Arrow see it."""

    def bare(field: pa.Field) -> pa.Field:
        return pa.field(field.name, map_children(field.type, bare), field.nullable)

    return pa.schema([bare(field) for field in schema])


def nullable_field(field: pa.Field) -> pa.Field:
    """The field, nullable like everything below it except the keys of maps."""
    return field.with_type(map_children(field.type, nullable_field)).with_nullable(True)


# --- storage types ----------------------------------------------------------


def storage_type(type_: pa.DataType, column: str) -> pa.DataType:
    """The type in which values of `type_` are stored.

    Arrow has several types for the same values (views, large offsets, dictionaries,
    date64, small decimals). Datasets use one of them, so that every writer and
    engine sees the same. Timestamps with a zone are stored as instants in UTC.
    Parquet has no timestamps in seconds: they are stored in milliseconds.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return type_ if is_variant(type_) else storage_type(type_.storage_type, column)
    if pa.types.is_dictionary(type_):
        return storage_type(type_.value_type, column)
    if pa.types.is_run_end_encoded(type_):
        return storage_type(type_.value_type, column)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_date64(type_):
        return pa.date32()
    if pa.types.is_timestamp(type_):
        unit = "ms" if type_.unit == "s" else type_.unit
        return pa.timestamp(unit, "UTC" if type_.tz is not None else None)
    if pa.types.is_time32(type_):
        return pa.time32("ms")
    if pa.types.is_interval(type_) or pa.types.is_union(type_) or _holds_nothing(type_):
        raise SchemaMismatchError(
            column=column,
            got=type_,
            reason=f"has type {type_}, which Parquet cannot hold",
            hint="Cast or drop it.",
        )
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    if is_nested(type_):
        below = [storage_field(child, column) for child in children(type_)]
        if is_list_like(type_) and not pa.types.is_fixed_size_list(type_):
            return pa.list_(below[0])
        return rebuild(type_, below)
    return type_


def _holds_nothing(type_: pa.DataType) -> bool:
    """Types that no file has: nested types and texts of no width, and decimals of impossible scale.

    Arrow writes an array of no width without an error, and cannot read the file.
    """
    if pa.types.is_struct(type_):
        return bool(type_.num_fields == 0)
    if pa.types.is_fixed_size_list(type_):
        return bool(type_.list_size == 0)
    if pa.types.is_fixed_size_binary(type_):
        return bool(type_.byte_width == 0)
    return bool(pa.types.is_decimal(type_) and not 0 <= type_.scale <= type_.precision)


def storage_field(field: pa.Field, parent: str = "") -> pa.Field:
    """The field with its storage type, and only the metadata that plake itself wrote."""
    column = f"{parent}.{field.name}" if parent else field.name
    type_ = storage_type(field.type, column)
    kept = {k: v for k, v in (field.metadata or {}).items() if k in _KEPT_METADATA}
    return pa.field(field.name, type_, field.nullable, metadata=kept or None)


# --- Columns that no user wrote: the place of a row, and its identity.
#
#     _file            the path of the row's data file, relative to the dataset
#     _pos             the row's position in the file, from 0, across row groups
#     _row_id          the row's identity, which an update and a rewrite keep
#     _commit_version  the version that last changed the row
#
# Each can be read by its name, unless the dataset has a column of that name. The identity and the
# version of a row that was moved are stored in its new file, in two hidden columns. If a file lacks
# these columns, or they are NULL, the identity is the file's first identity plus the position, and
# the version is the one that added the file.
#
# Source: Apache Iceberg, table specification, "reserved field ids" and "row lineage".


FILE_ID = 2147483646
POSITION_ID = 2147483645
ROW_ID = 2147483540
# Iceberg's `_last_updated_sequence_number`.
VERSION_ID = 2147483539
# Iceberg reserves the ids above this one, and no file has the first two.
_LAST_ID_OF_USERS = 2147483447
FILE_URI_ID = _LAST_ID_OF_USERS + 1
FILE_SIZE_ID = _LAST_ID_OF_USERS + 2


def _field(name: str, type_: pa.DataType, id: int, nullable: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable, {FIELD_ID: str(id).encode()})


FILE = _field("_file", pa.string(), FILE_ID)
POSITION = _field("_pos", pa.int64(), POSITION_ID)
ROW = _field("_row_id", pa.int64(), ROW_ID)
VERSION = _field("_commit_version", pa.int64(), VERSION_ID)
METADATA_COLUMNS = (FILE, POSITION, ROW, VERSION)
# For Spark's `_metadata` and `input_file_name()`: the URI and the size of the row's data file.
FILE_URI = _field("_file_uri", pa.string(), FILE_URI_ID)
FILE_SIZE = _field("_file_size", pa.int64(), FILE_SIZE_ID)
# As files store them.
_HIDDEN = (
    _field("_row_id", pa.int64(), ROW_ID, nullable=True),
    _field("_last_updated_version", pa.int64(), VERSION_ID, nullable=True),
)


def is_reserved(id: int) -> bool:
    """Tell whether a field id is reserved: no column of a user gets it."""
    return id > _LAST_ID_OF_USERS


def is_metadata(field: pa.Field) -> bool:
    """Tell whether a field is one of these columns, by its id."""
    id = field_id(field)
    return id is not None and is_reserved(id)


def with_metadata_columns(
    schema: pa.Schema,
    names: Sequence[str] | None,
    columns: Sequence[pa.Field] = METADATA_COLUMNS,
) -> pa.Schema:
    """The schema with the named metadata columns, unless it has columns of these names."""
    for column in columns if names is not None else ():
        if find_field(column.name, schema) is None and find_name(column.name, names or ()):
            schema = schema.append(column)
    return schema


def unused_names(columns: Sequence[pa.Field], taken: Collection[str]) -> list[pa.Field]:
    """The same columns, under names that differ from all in `taken` by more than case."""
    lowered = {name.lower() for name in taken}
    found = []
    for column in columns:
        name = column.name
        while name.lower() in lowered:
            name = f"_{name}"
        found.append(column.with_name(name))
    return found


def hidden_columns(schema: pa.Schema) -> list[pa.Field]:
    """The hidden columns of files with moved rows, for a dataset of a schema."""
    return unused_names(_HIDDEN, schema.names)


def may_be_hidden(name: str) -> bool:
    """Tell whether a file may store a hidden column under this name."""
    bare = name.lower().lstrip("_")
    return any(bare == column.name.lstrip("_") for column in _HIDDEN)
