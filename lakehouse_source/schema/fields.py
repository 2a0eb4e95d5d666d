"""Pure. Field ids, storage types, and how one schema takes in another.

A dataset's schema is an Arrow schema whose fields, nested ones included, carry
an id in their metadata under `PARQUET:field_id`, the key that Arrow's Parquet
writer turns into Parquet's `field_id`. An id is given once and never reused:
statistics, bounds and files refer to columns by id, so renaming and dropping a
column touch no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError

FIELD_ID = b"PARQUET:field_id"
# Spark's own spelling of a type (JSON), kept where Arrow has no name for it: collations, char(n).
SPARK_TYPE = b"plake:spark_type"
SPARK_METADATA = b"plake:spark_metadata"
_KEPT_METADATA = (SPARK_TYPE, SPARK_METADATA)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive column. `path` holds the names from the top-level field down.

    `in_list` tells that the leaf sits below a list or a map: its statistics count
    elements, not rows, and never serve pruning (PARQUET-2067).
    """

    path: tuple[str, ...]
    id: int
    type: pa.DataType
    in_list: bool


def field_id(field: pa.Field) -> int | None:
    """The id in a field's metadata, or None."""
    raw = (field.metadata or {}).get(FIELD_ID)
    return None if raw is None else int(raw)


def is_nested(type_: pa.DataType) -> bool:
    """Tell whether a type has child fields."""
    return bool(pa.types.is_nested(type_))


def is_list_like(type_: pa.DataType) -> bool:
    """Tell whether a type is a list of any kind, maps excluded."""
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def children(type_: pa.DataType) -> list[pa.Field]:
    """The child fields of a nested type: a struct's, a list's element, a map's key and value."""
    if pa.types.is_struct(type_):
        return [type_.field(i) for i in range(type_.num_fields)]
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    if is_list_like(type_):
        return [type_.value_field]
    return []


def rebuild(type_: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The nested type of `type_`'s kind over other child fields."""
    if pa.types.is_struct(type_):
        return pa.struct(list(fields))
    if pa.types.is_map(type_):
        return pa.map_(fields[0].with_nullable(False), fields[1], keys_sorted=type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(fields[0], type_.list_size)
    return pa.list_(fields[0])


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

    for field in schema:
        yield from walk(field, (), False)


def max_id(schema: pa.Schema) -> int:
    """The highest field id in use, 0 where there is none."""

    def walk(field: pa.Field) -> int:
        return max([field_id(field) or 0, *(walk(child) for child in children(field.type))])

    return max((walk(field) for field in schema), default=0)


def with_metadata(field: pa.Field, extra: dict[bytes, bytes]) -> pa.Field:
    """The field with `extra` laid over its metadata."""
    return field.with_metadata({**(field.metadata or {}), **extra})


def assign_ids(field: pa.Field, next_id: Iterator[int]) -> pa.Field:
    """The field with a fresh id for itself and everything below it."""
    own = next(next_id)
    type_ = field.type
    if is_nested(type_):
        type_ = rebuild(type_, [assign_ids(child, next_id) for child in children(type_)])
    return with_metadata(field.with_type(type_), {FIELD_ID: str(own).encode()})


def strip(schema: pa.Schema) -> pa.Schema:
    """The schema without ids or other metadata: what users of Arrow see."""

    def bare(field: pa.Field) -> pa.Field:
        type_ = field.type
        if is_nested(type_):
            type_ = rebuild(type_, [bare(child) for child in children(type_)])
        return pa.field(field.name, type_, field.nullable)

    return pa.schema([bare(field) for field in schema])


# --- storage types ----------------------------------------------------------


def storage_type(type_: pa.DataType, column: str) -> pa.DataType:
    """The type in which values of `type_` are kept.

    Arrow has several spellings of one type (views, large offsets, dictionaries,
    date64, small decimals); datasets keep one, so that every writer and engine
    meets the same. Zoned timestamps are kept as instants in UTC. Parquet has no
    second-resolution timestamps: they are kept in milliseconds.

    Raises:
        SchemaMismatchError: Parquet cannot hold the type.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return storage_type(type_.storage_type, column)
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
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    if pa.types.is_interval(type_) or pa.types.is_union(type_):
        raise SchemaMismatchError(
            column=column,
            got=type_,
            reason=f"has type {type_}, which Parquet cannot hold",
            hint="Cast or drop it.",
        )
    if is_nested(type_):
        return rebuild(type_, [storage_field(child, column) for child in children(type_)])
    return type_


def storage_field(field: pa.Field, parent: str = "") -> pa.Field:
    """The field as a dataset keeps it: storage type, only the metadata that plake knows."""
    column = f"{parent}.{field.name}" if parent else field.name
    type_ = storage_type(field.type, column)
    kept = {k: v for k, v in (field.metadata or {}).items() if k in _KEPT_METADATA}
    return pa.field(field.name, type_, field.nullable, metadata=kept or None)


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which data of `schema` is kept, without ids.

    Raises:
        SchemaMismatchError: two names collide by case, a name is empty, there is
            no column, or Parquet cannot hold a type.
    """
    if len(schema) == 0:
        raise SchemaMismatchError(
            column="", reason="is missing: the data has no columns", hint="Give it at least one."
        )

    def check(fields: Sequence[pa.Field], above: str) -> None:
        seen: dict[str, str] = {}
        for field in fields:
            name = above + field.name
            if field.name == "":
                raise SchemaMismatchError(
                    column=name, reason="has an empty name", hint="Name every column."
                )
            other = seen.get(field.name.lower())
            seen[field.name.lower()] = field.name
            if other is not None:
                raise SchemaMismatchError(
                    column=name,
                    reason=f"collides with {above + other!r}: names are told apart by more "
                    "than case",
                    hint="Rename one of them.",
                )
            if pa.types.is_struct(field.type):
                check(children(field.type), name + ".")

    check(list(schema), "")
    return pa.schema([storage_field(field) for field in schema])


def initial(schema: pa.Schema) -> pa.Schema:
    """The schema of a new dataset: `storage_schema` with ids from 1."""
    numbers = iter(range(1, 1 << 31))
    return pa.schema([assign_ids(field, numbers) for field in storage_schema(schema)])


# --- merge ------------------------------------------------------------------

_INT_RANGE = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
# Decimal digits that hold every value of an integer type.
_INT_DIGITS = {t: len(str(hi)) for t, (_lo, hi) in _INT_RANGE.items()}
_UNITS = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Tell whether every value of `narrow` can be kept as `wide` without loss of meaning.

    Integers and floats to wider ones, integers and floats to a decimal (an
    integer only where all its digits fit), date to timestamp without zone, a
    timestamp or duration to a finer unit, a decimal to one with room for its
    digits on both sides of the point, null to anything.
    """
    t = pa.types
    if narrow == wide or t.is_null(narrow):
        return True
    if narrow in _INT_RANGE and wide in _INT_RANGE:
        low, high = _INT_RANGE[narrow]
        return _INT_RANGE[wide][0] <= low and high <= _INT_RANGE[wide][1]
    if t.is_floating(narrow) and t.is_floating(wide):
        return bool(narrow.bit_width <= wide.bit_width)
    if t.is_decimal(wide):
        room = wide.precision - wide.scale
        if narrow in _INT_RANGE:
            return bool(room >= _INT_DIGITS[narrow])
        if t.is_decimal(narrow):
            return bool(wide.scale >= narrow.scale and room >= narrow.precision - narrow.scale)
        return bool(t.is_floating(narrow))
    if t.is_date(narrow):
        return bool(t.is_timestamp(wide) and wide.tz is None)
    if t.is_timestamp(narrow) and t.is_timestamp(wide):
        return narrow.tz == wide.tz and _UNITS[narrow.unit] <= _UNITS[wide.unit]
    if t.is_duration(narrow) and t.is_duration(wide):
        return _UNITS[narrow.unit] <= _UNITS[wide.unit]
    return False


def prints_as_string(type_: pa.DataType) -> bool:
    """Tell whether `promote_to_string` can turn values of the type into text."""
    return not is_nested(type_) and not pa.types.is_binary(type_)


def merge(
    current: pa.Schema,
    incoming: pa.Schema,
    *,
    add_columns: bool = False,
    promote_to_string: bool = False,
    next_id: int | None = None,
    dataset: str | None = None,
) -> pa.Schema:
    """The schema that `current` (with ids) becomes to take in data of `incoming`.

    Answers `current` itself where nothing has to change. Columns match without
    regard to case and keep the name they have. With `add_columns` new columns
    are added (nullable), types are promoted (`widens`) and a column that allows
    no NULL becomes nullable when the data's is; without it the data may only be
    narrower than the dataset. `promote_to_string` lets a column whose
    type cannot be widened become a string. `next_id` is the first unused id
    (default: one above the highest in `current`; a dataset that dropped columns
    gives its own).

    Raises:
        SchemaMismatchError: a column does not fit.
    """
    numbers = iter(range(next_id or max_id(current) + 1, 1 << 31))
    incoming = storage_schema(incoming)

    def merge_field(mine: pa.Field, theirs: pa.Field, path: str) -> pa.Field:
        type_ = merge_type(mine.type, theirs.type, path)
        # Frames of literals and ranges allow no NULL by accident: there is a way out of it.
        nullable = mine.nullable or (add_columns and theirs.nullable)
        if type_ is mine.type and nullable == mine.nullable:
            return mine
        return mine.with_type(type_).with_nullable(nullable)

    def merge_type(mine: pa.DataType, theirs: pa.DataType, path: str) -> pa.DataType:
        as_text = promote_to_string and prints_as_string(theirs)
        if is_nested(mine) and is_nested(theirs):
            if pa.types.is_struct(mine) and pa.types.is_struct(theirs):
                merged = merge_fields(children(mine), children(theirs), path + ".")
                return mine if merged is None else rebuild(mine, merged)
            same_kind = (is_list_like(mine) and is_list_like(theirs)) or (
                pa.types.is_map(mine) and pa.types.is_map(theirs)
            )
            if same_kind and getattr(mine, "list_size", -1) == getattr(theirs, "list_size", -1):
                old, new = children(mine), children(theirs)
                merged = [merge_field(a, b, f"{path}.{a.name}") for a, b in zip(old, new)]
                return mine if all(a is b for a, b in zip(merged, old)) else rebuild(mine, merged)
        elif widens(theirs, mine) or (
            promote_to_string and prints_as_string(theirs) and pa.types.is_string(mine)
        ):
            return mine
        elif add_columns and widens(mine, theirs):
            if is_nested(theirs):
                return assign_ids(pa.field("x", theirs), numbers).type
            return theirs
        elif as_text and prints_as_string(mine):
            return pa.string()
        if widens(mine, theirs):
            hint = "Cast it, or write with schema_merge=True to promote the column."
        elif prints_as_string(mine) and prints_as_string(theirs):
            hint = "Cast it, or write with promote_to_string=True."
        else:
            hint = "Cast it."
        raise SchemaMismatchError(
            column=path, expected=mine, got=theirs, dataset=dataset, hint=hint
        )

    def merge_fields(
        old: Sequence[pa.Field], new: Sequence[pa.Field], above: str
    ) -> list[pa.Field] | None:
        """The merged fields, or None where they are `old` unchanged."""
        by_name = {field.name.lower(): field for field in new}
        result: list[pa.Field] = []
        for mine in old:
            theirs = by_name.pop(mine.name.lower(), None)
            if theirs is not None:
                result.append(merge_field(mine, theirs, above + mine.name))
            elif mine.nullable:
                result.append(mine)
            else:
                raise SchemaMismatchError(
                    column=above + mine.name,
                    expected=mine.type,
                    dataset=dataset,
                    reason="is not nullable and the data does not have it",
                    hint="Add it to the data.",
                )
        if by_name and not add_columns:
            unknown = next(iter(by_name.values()))
            raise SchemaMismatchError(
                column=above + unknown.name,
                got=unknown.type,
                dataset=dataset,
                reason=f"({unknown.type}) is in the data and not in the dataset",
                hint="Drop it, or write with schema_merge=True (Spark: option mergeSchema) "
                "to add it.",
            )
        result += [assign_ids(field.with_nullable(True), numbers) for field in by_name.values()]
        unchanged = len(result) == len(old) and all(a is b for a, b in zip(result, old))
        return None if unchanged else result

    merged = merge_fields(list(current), list(incoming), "")
    return current if merged is None else pa.schema(merged)
