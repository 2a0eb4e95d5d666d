"""Pure. Rebuilds nested Arrow arrays from their buffers, where Arrow's casts do not work."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import (
    children,
    is_list_like,
    is_list_view,
    is_nested,
    rebuild,
)

NULL_HINT = (
    "Fill or drop them, or write with schema_merge=True (Spark: option mergeSchema) to allow them."
)


def parts(array: pa.Array, kind: pa.DataType | None = None) -> list[pa.Array]:
    """The arrays of the child fields of an array without offset, as `children` orders the fields.

    A map is read as a list of its entries if `kind` is a list.
    """
    kind = array.type if kind is None else kind
    if pa.types.is_struct(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if is_list_like(kind) else []


def with_parts(
    array: pa.Array, type_: pa.DataType, inner: list[pa.Array], *, valid: bool = False
) -> pa.Array:
    """An array without offset under a type of its kind, with other arrays as its `parts`.

    `valid` tells that no value is NULL, whatever the array says.
    """
    own = 3 if is_list_view(type_) else 2
    if pa.types.is_struct(type_) or pa.types.is_fixed_size_list(type_):
        own = 1
    elif pa.types.is_map(type_):
        inner = [pa.StructArray.from_arrays(inner, fields=children(type_))]
    buffers = array.buffers()[: own if inner else None]
    if valid:
        buffers[0] = None
    nulls = 0 if valid else array.null_count
    return pa.Array.from_buffers(type_, len(array), buffers, nulls, 0, inner)


def without_offset(array: pa.Array) -> pa.Array:
    """The array with buffers of its own if it is a slice: `parts` ignores the offset of buffers."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def relabel(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array under a type that differs in names and nullability of nested fields only.

    List views become lists: Arrow's own cast of views loses elements
    (PyArrow 26: `[[1], None, [2, 3]]` becomes `[[1], None, []]`). NULLs without a type get one, or
    lose it.
    """
    if array.type.equals(type_):
        return array
    if pa.types.is_null(array.type) or pa.types.is_null(type_):
        return pa.nulls(len(array), type_)
    if not is_nested(array.type):
        return array
    array = without_offset(array)
    if is_list_view(array.type):
        return _list_of_view(array, type_)
    inner = [relabel(one, field.type) for one, field in zip(parts(array, type_), children(type_))]
    return with_parts(array, type_, inner)


def entries(array: pa.Array) -> pa.Array:
    """A map as the list of its entries, because Arrow flattens no map; a list as it is."""
    if not pa.types.is_map(array.type):
        return array
    return relabel(array, pa.list_(pa.struct(children(array.type))))


def typed_nulls(type_: pa.DataType) -> pa.DataType:
    """The type with a type for nested NULLs that have none.

    Arrow's casts of lists miscount such NULLs, and end the process (PyArrow 26).
    """
    if pa.types.is_null(type_):
        return pa.int8()
    own = children(type_)
    below = [field.with_type(typed_nulls(field.type)) for field in own]
    return rebuild(type_, below) if below != own else type_


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


def without_hidden_nulls(
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
    if not _has_required(array.type):
        return array
    array = without_offset(array)
    inner = [_without_child_validity(one) for one in parts(array)]
    pairs = zip(inner, children(array.type))
    inner = [one if field.nullable else _without_validity(one) for one, field in pairs]
    return with_parts(array, array.type, inner)


def _without_validity(array: pa.Array) -> pa.Array:
    """The array without its validity bitmap: values under a NULL of the parent are never read."""
    if array.null_count == 0 or pa.types.is_null(array.type):
        return array
    array = without_offset(array)
    return with_parts(array, array.type, parts(array), valid=True)
