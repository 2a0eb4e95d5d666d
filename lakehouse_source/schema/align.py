"""Pure. Converts Arrow columns from one schema to another: names, order, types, nulls.

It has three uses: data is converted to the dataset's schema before it is written
(matched by name), rows of a file to a newer schema (matched by field id), and
batches to the exact types that an engine asked for (matched by name).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.cast_to_string import cast_to_string
from lakehouse_source.schema.fields import (
    children,
    field_id,
    find_field,
    is_list_like,
    is_nested,
    rebuild,
)
from lakehouse_source.schema.promotion import prints_as_string

NULL_HINT = (
    "Fill or drop them, or write with schema_merge=True (Spark: option mergeSchema) to allow them."
)

# Finds the field among the sources that a target field is read from.
Match = Callable[[pa.Field, Sequence[pa.Field]], pa.Field | None]
# The value of a target field that matches no source field, None for NULL (`schema/defaults`).
Default = Callable[[pa.Field], pa.Scalar | None]


def no_default(_field: pa.Field) -> pa.Scalar | None:
    """NULL for every field."""
    return None


def by_name(target: pa.Field, sources: Sequence[pa.Field]) -> pa.Field | None:
    """The field of the same name, or else of a name that differs by case only."""
    return find_field(target.name, sources)


def by_id(target: pa.Field, sources: Sequence[pa.Field]) -> pa.Field | None:
    """The field with the same id."""
    wanted = field_id(target)
    return next((field for field in sources if field_id(field) == wanted), None)


def narrowed(stored: pa.Field, wanted: pa.Field, match: Match) -> pa.Field:
    """The stored field, its structs without the fields that `wanted` lacks.

    A struct of which no field is wanted stays whole: a field is needed to tell
    which structs are NULL.
    """
    if not pa.types.is_struct(stored.type) or not pa.types.is_struct(wanted.type):
        return stored
    below = children(wanted.type)
    kept = []
    for child in children(stored.type):
        found = match(child, below)
        if found is not None:
            kept.append(narrowed(child, found, match))
    return stored.with_type(pa.struct(kept)) if kept else stored


def align(
    table: pa.Table,
    target: pa.Schema,
    source: pa.Schema,
    match: Match,
    default: Default = no_default,
) -> pa.Table:
    """The table with exactly the columns of `target`.

    `source` describes the table's columns: its own schema, or the same with ids.
    A target field that matches no source field has its `default` on every row.

    Raises:
        SchemaMismatchError: a value does not fit its target type, or a NULL is
            in a column that is not nullable.
    """
    fields = list(source)
    columns: list[pa.ChunkedArray] = []
    for field in target:
        found = match(field, fields)
        if found is None:
            column = pa.chunked_array([_repeated(field, table.num_rows, default)])
        else:
            column = convert(table.column(fields.index(found)), found, field, match, default)
        if not field.nullable and column.null_count:
            raise SchemaMismatchError(
                column=field.name,
                expected=field.type,
                reason=f"is not nullable and the data has {column.null_count} NULL values",
                hint=NULL_HINT,
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=target)


def _repeated(field: pa.Field, row_count: int, default: Default) -> pa.Array:
    value = default(field)
    return pa.nulls(row_count, field.type) if value is None else pa.repeat(value, row_count)


def convert(
    column: pa.ChunkedArray,
    source: pa.Field,
    target: pa.Field,
    match: Match,
    default: Default = no_default,
) -> pa.ChunkedArray:
    """One column in the type of `target`; nested fields that it lacks have their `default`.

    Raises:
        SchemaMismatchError: a value does not fit, or a nested field that is not
            nullable has a NULL.
    """
    converted = _converted(column, source, target, match, default)
    return _without_hidden_nulls(converted, source, target)


def _converted(
    column: pa.ChunkedArray, source: pa.Field, target: pa.Field, match: Match, default: Default
) -> pa.ChunkedArray:
    if column.type.equals(target.type) and _pairs_up(source.type, target.type, match):
        return column
    if isinstance(column.type, pa.BaseExtensionType):
        stored = [chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(stored, type=column.type.storage_type)
    if pa.types.is_run_end_encoded(column.type):
        decoded = [pc.run_end_decode(chunk) for chunk in column.chunks]
        column = pa.chunked_array(decoded, type=column.type.value_type)
    if is_nested(column.type):
        column, source = _completed(column, source, target, match, default)
        named = _named_like(column.type, target.type, match, source.type)
        if named != column.type:
            column = pa.chunked_array(
                [relabel(chunk, named) for chunk in column.chunks], type=named
            )
    if column.type.equals(target.type):
        return column
    try:
        if pa.types.is_string(target.type) and prints_as_string(column.type):
            return cast_to_string(column)
        return column.cast(target.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        value = _first_that_does_not_fit(column, target.type)
        raise SchemaMismatchError(
            column=target.name,
            expected=target.type,
            got=source.type,
            reason=f"is {target.type} and the {source.type} value {value} does not fit ({error})",
            hint="Cast the column to the dataset's type first.",
        ) from error


def _completed(
    column: pa.ChunkedArray, source: pa.Field, target: pa.Field, match: Match, default: Default
) -> tuple[pa.ChunkedArray, pa.Field]:
    """The column, and its field, with the nested fields that lack in it and have a default."""
    if default is no_default:
        return column, source
    chunks = column.chunks or [pa.array([], column.type)]
    done = [_with_lacking(chunk, source.type, target.type, match, default) for chunk in chunks]
    if done[0][1] is source.type:
        return column, source
    return pa.chunked_array([array for array, _ in done]), source.with_type(done[0][1])


def _with_lacking(
    array: pa.Array, source: pa.DataType, target: pa.DataType, match: Match, default: Default
) -> tuple[pa.Array, pa.DataType]:
    """An array of type `source`, and that type, with fields of structs that only `target` has."""
    own, known, theirs = children(array.type), children(source), children(target)
    is_struct = bool(pa.types.is_struct(array.type))
    if len(own) != len(known) or not theirs or is_struct != pa.types.is_struct(target):
        return array, source
    if not is_struct and len(known) != len(theirs):
        return array, source
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = relabel(array, rebuild(array.type, own))
    if array.offset != 0:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    pairs: list[tuple[pa.Field, pa.Field | None]] = list(zip(theirs, known))
    if is_struct:
        arrays = [array.field(i) for i in range(len(own))]
        pairs = [(wanted, match(wanted, known)) for wanted in theirs]
    elif pa.types.is_map(array.type):
        arrays = [array.keys, array.items]
    else:
        arrays = [array.values]
    fields = list(known)
    changed = False
    for wanted, field in pairs:
        if field is None:
            if default(wanted) is not None:
                arrays.append(_repeated(wanted, len(array), default))
                fields.append(wanted)
                own.append(wanted)
                changed = True
            continue
        at = _position(field, known)
        arrays[at], inner = _with_lacking(arrays[at], field.type, wanted.type, match, default)
        if inner is not field.type:
            fields[at], own[at] = field.with_type(inner), own[at].with_type(arrays[at].type)
            changed = True
    if not changed:
        return array, source
    type_, validity = rebuild(array.type, own), array.buffers()[:1]
    if pa.types.is_map(type_):
        entries = [type_.key_field, type_.item_field]
        arrays = [pa.StructArray.from_arrays(arrays, fields=entries)]
    if not is_struct and not pa.types.is_fixed_size_list(type_):
        validity = array.buffers()[:2]
    done = pa.Array.from_buffers(type_, len(array), validity, array.null_count, 0, arrays)
    return done, rebuild(source, fields)


def _first_that_does_not_fit(column: pa.ChunkedArray, type_: pa.DataType) -> str:
    """The text of the first value that Arrow does not cast to the type, for an error."""

    def fits(start: int, count: int) -> bool:
        try:
            column.slice(start, count).cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    start, count = 0, len(column)
    while count > 1:
        half = count // 2
        if fits(start, half):
            start, count = start + half, count - half
        else:
            count = half
    try:
        text = str(column[start]) if count else ""
    except (OverflowError, ValueError):  # Python has no name for the year
        text = f"with the count {getattr(column[start], 'value', 'of an unnamed year')}"
    return text if len(text) <= 80 else text[:77] + "..."


def _pairs_up(source: pa.DataType, target: pa.DataType, match: Match) -> bool:
    """Tell whether nested fields match by position, so that equal types need no conversion."""
    mine, theirs = children(source), children(target)
    if pa.types.is_struct(target) and any(
        match(wanted, mine) is not mine[i] for i, wanted in enumerate(theirs)
    ):
        return False
    return all(_pairs_up(a.type, b.type, match) for a, b in zip(mine, theirs))


def _position(field: pa.Field, fields: Sequence[pa.Field]) -> int:
    """The place of a field object; fields that differ in their ids only are equal."""
    return next(at for at, one in enumerate(fields) if one is field)


def _named_like(
    own: pa.DataType, target: pa.DataType, match: Match, source: pa.DataType
) -> pa.DataType:
    """`own` with its nested fields named, and declared nullable, as in `target`.

    `source` is the same type with the ids that `match` may need.
    """
    if not is_nested(own) or not is_nested(target):
        return own
    mine, known, theirs = children(own), children(source), children(target)
    if len(mine) != len(known):
        return own  # the file differs from the catalog's record of it: the cast below refuses it
    if pa.types.is_struct(own) and pa.types.is_struct(target):
        found = {}
        for wanted in theirs:
            field = match(wanted, known)
            if field is not None:
                found[_position(field, known)] = wanted
        named = []
        for position, field in enumerate(mine):
            wanted = found.get(position)
            if wanted is None:
                # Arrow casts structs by name. This field has no target: its name must match none.
                named.append(pa.field(f"\0{position}", field.type, field.nullable))
            else:
                inner = _named_like(field.type, wanted.type, match, known[position].type)
                named.append(pa.field(wanted.name, inner, wanted.nullable))
        return rebuild(own, named)
    if len(mine) != len(theirs):
        return own
    return rebuild(
        own,
        [
            pa.field(b.name, _named_like(a.type, b.type, match, c.type), b.nullable)
            for a, b, c in zip(mine, theirs, known)
        ],
    )


def relabel(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array under a type that differs in names and nullability of nested fields only.

    List views become lists: Arrow's own cast of views loses elements
    (PyArrow 26: `[[1], None, [2, 3]]` becomes `[[1], None, []]`).
    """
    if not is_nested(array.type) or array.type.equals(type_):
        return array
    if array.offset != 0:
        # Below, buffers are used without the offset, so the slice needs buffers of its own.
        array = pa.concat_arrays([array, array.slice(0, 0)])
    if pa.types.is_struct(type_):
        count = array.type.num_fields
        inner = [relabel(array.field(i), type_.field(i).type) for i in range(count)]
        own = 1
    elif pa.types.is_map(type_):
        entries = pa.StructArray.from_arrays(
            [relabel(array.keys, type_.key_type), relabel(array.items, type_.item_type)],
            fields=[type_.key_field, type_.item_field],
        )
        inner, own = [entries], 2
    elif pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        return _list_of_view(array, type_)
    elif is_list_like(type_):
        inner = [relabel(array.values, type_.value_type)]
        own = 1 if pa.types.is_fixed_size_list(type_) else 2
    else:
        return array
    return pa.Array.from_buffers(
        type_, len(array), array.buffers()[:own], array.null_count, 0, inner
    )


def _list_of_view(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A list view as a list: its elements in the order of the rows, without gaps."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    width = pa.int64() if pa.types.is_large_list(type_) else pa.int32()
    ends = pc.cumulative_sum(lengths.cast(width))
    offsets = pa.concat_arrays([pa.array([0], width), ends])
    values = relabel(array.flatten(), type_.value_type)
    valid = pa.array(pc.is_valid(array)).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        type_, len(array), [valid, offsets.buffers()[1]], array.null_count, 0, [values]
    )


def _without_hidden_nulls(
    column: pa.ChunkedArray, source: pa.Field, target: pa.Field
) -> pa.ChunkedArray:
    """The column with no NULL in nested fields that are not nullable.

    Arrow gives such a field a NULL where its parent is NULL, and its Parquet writer
    then refuses the column, so these NULLs are removed. Any other NULL is an error.

    Raises:
        SchemaMismatchError: a nested field that is not nullable has NULL values.
    """
    if not _has_required(target.type):
        return column
    for chunk in column.chunks:
        _check_nested_nulls(chunk, source, target)
    return pa.chunked_array(
        [_without_child_validity(chunk) for chunk in column.chunks], type=column.type
    )


def _has_required(type_: pa.DataType) -> bool:
    """Tell whether a nested field of the type, keys of maps excepted, is not nullable."""
    below = children(type_)[1:] if pa.types.is_map(type_) else children(type_)
    return any(not field.nullable or _has_required(field.type) for field in below)


def _check_nested_nulls(chunk: pa.Array, source: pa.Field, target: pa.Field) -> None:
    def walk(array: pa.Array, path: str) -> None:
        if pa.types.is_struct(array.type):
            # `flatten` makes a child NULL where its parent is NULL.
            for field, values in zip(children(array.type), array.flatten()):
                check(field, values, values.null_count - array.null_count, f"{path}.{field.name}")
        elif pa.types.is_map(array.type):
            present = array.drop_null()
            first, end = (present.offsets[i].as_py() for i in (0, len(present)))
            values = present.items.slice(first, end - first)
            check(array.type.item_field, values, values.null_count, f"{path}.value")
        elif is_list_like(array.type):
            values = array.flatten()
            check(array.type.value_field, values, values.null_count, f"{path}.element")

    def check(field: pa.Field, values: pa.Array, null_count: int, path: str) -> None:
        if not field.nullable and null_count:
            raise SchemaMismatchError(
                column=path,
                expected=target.type,
                got=source.type,
                reason=f"is not nullable and the data has {null_count} NULL values",
                hint=NULL_HINT,
            )
        if _has_required(field.type):
            walk(values, path)

    walk(chunk, target.name)


def _without_child_validity(array: pa.Array) -> pa.Array:
    """The array without the validity bitmaps of nested fields that are not nullable."""
    type_ = array.type
    if not is_nested(type_) or not _has_required(type_):
        return array
    if array.offset != 0:
        array = pa.concat_arrays([array, array.slice(0, 0)])

    def below(field: pa.Field, values: pa.Array) -> pa.Array:
        values = _without_child_validity(values)
        return values if field.nullable else _without_validity(values)

    own = 2
    if pa.types.is_struct(type_):
        inner = [below(type_.field(i), array.field(i)) for i in range(type_.num_fields)]
        own = 1
    elif pa.types.is_map(type_):
        fields = [type_.key_field, type_.item_field]
        values = [below(fields[0], array.keys), below(fields[1], array.items)]
        inner = [pa.StructArray.from_arrays(values, fields=fields)]
    else:
        inner = [below(type_.value_field, array.values)]
        own = 1 if pa.types.is_fixed_size_list(type_) else 2
    return pa.Array.from_buffers(
        type_, len(array), array.buffers()[:own], array.null_count, 0, inner
    )


def _without_validity(array: pa.Array) -> pa.Array:
    """The array without its validity bitmap: what is under a NULL of the parent is never read."""
    if array.null_count == 0 or pa.types.is_null(array.type):
        return array
    if array.offset != 0:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    type_, inner = array.type, []
    if pa.types.is_struct(type_):
        inner = [array.field(i) for i in range(type_.num_fields)]
        own = 1
    elif pa.types.is_map(type_):
        fields = [type_.key_field, type_.item_field]
        inner = [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
        own = 2
    elif is_list_like(type_):
        inner = [array.values]
        own = 1 if pa.types.is_fixed_size_list(type_) else 2
    else:
        own = len(array.buffers())
    buffers = [None, *array.buffers()[1:own]]
    return pa.Array.from_buffers(type_, len(array), buffers, 0, 0, inner)
