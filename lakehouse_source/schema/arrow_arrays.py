"""Pure. What PyArrow lacks for arrays in memory: nested, empty, without columns, equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import children, is_list_like, is_list_view, is_nested, rebuild

# --- Tables with rows but no columns: PyArrow often loses their number of rows.


def rows_alone(count: int) -> pa.Table:
    """A table of this many rows without columns."""
    return pa.table({"": pa.nulls(count)}).select([])


def empty(schema: pa.Schema) -> pa.Table:
    """No rows. Arrow's own `empty_table` makes none of VARIANT inside of other types."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def concatenated(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """The rows of tables with a schema, one after the other."""
    if not tables:
        return empty(schema)
    if not len(schema):
        return rows_alone(sum(table.num_rows for table in tables))
    return pa.concat_tables(tables)


def first(table: pa.Table, rows: int) -> pa.Table:
    """The first rows of a table. Arrow cuts columns, and there may be none."""
    return table.slice(0, rows) if table.num_columns else rows_alone(min(rows, table.num_rows))


def batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The batches of a table."""
    if table.num_columns or not table.num_rows:
        return list(table.to_batches())
    return [pa.record_batch({"": pa.nulls(table.num_rows)}).select([])]


# --- Rebuilds nested Arrow arrays from their buffers, where Arrow's casts do not work.


# Characters of a row in an error.
_SHOWN = 200
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


# --- Gives empty arrays the offsets that PyArrow reads without checking that they exist.
#
# Arrow's format lets an array without values have no buffer of offsets, and the Arrow library of
# Spark 4.1 sends such arrays inside lists that are all empty. `nbytes` of PyArrow 26 crashes on
# such arrays.
#
# Source: Arrow columnar format, "Variable-size list layout" (legacy arrays of length 0).


_TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, where every array with offsets has a buffer of them."""
    if batch.num_rows and not any(is_nested(field.type) for field in batch.schema):
        return batch  # a column of a batch with rows has offsets
    given = batch.columns
    columns = [_completed(column) for column in given]
    if all(column is one for column, one in zip(columns, given)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _completed(array: pa.Array) -> pa.Array:
    type_ = array.type
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    if len(array) == 0 and (is_list or pa.types.is_map(type_) or type_ in _TEXTS):
        offsets = array.buffers()[1]
        if offsets is None or offsets.size == 0:
            return pa.nulls(0, type_)
    if array.offset or not is_nested(type_):
        return array
    given = parts(array)
    completed = [_completed(child) for child in given]
    if all(child is one for child, one in zip(completed, given)):
        return array
    return with_parts(array, type_, completed)


# --- Which rows of two tables have the same values, as a reader would print them.
#
# NULL is equal to NULL and NaN to NaN. -0.0 and 0.0 are different values. Columns may be nested.


_BITS = {pa.float16(): pa.uint16(), pa.float32(): pa.uint32(), pa.float64(): pa.uint64()}


def equal_rows(left: pa.Table, right: pa.Table) -> pa.BooleanArray:
    """For each row: whether both tables have the same values.

    The tables have equal schemas and equally many rows.
    """
    found = _constant(True, left.num_rows)
    for mine, theirs in zip(left.columns, right.columns):
        found = pc.and_(found, _equal(_one(mine), _one(theirs)))
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return _plain(pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)]))


def _plain(array: pa.Array) -> pa.Array:
    """The array with what stores extension types: kernels of lists lack them."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain(array.storage)
    below = children(array.type)
    inner = [_plain(one) for one in parts(without_offset(array))] if below else []
    if all(one.type == field.type for one, field in zip(inner, below)):
        return array
    fields = [field.with_type(one.type) for one, field in zip(inner, below)]
    return with_parts(without_offset(array), rebuild(array.type, fields), inner)


def _constant(value: bool, count: int) -> pa.BooleanArray:
    return pa.nulls(count, pa.bool_()).fill_null(value)


def _equal(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    type_ = left.type
    if pa.types.is_null(type_):
        return _constant(True, len(left))
    both_null = pc.and_(left.is_null(), right.is_null())
    same_validity = pc.equal(left.is_valid(), right.is_valid())
    return pc.or_(both_null, pc.and_(same_validity, _values_equal(left, right)))


def _values_equal(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """As `_equal`, for rows where neither is NULL; other rows get any value except NULL."""
    t, type_ = pa.types, left.type
    if t.is_struct(type_):
        found = _constant(True, len(left))
        for number in range(type_.num_fields):
            found = pc.and_(
                found,
                _equal(pc.struct_field(left, [number]), pc.struct_field(right, [number])),
            )
        return found
    if children(type_):
        return _lists_equal(entries(left), entries(right))
    if t.is_floating(type_):
        left, right = _as_bits(left), _as_bits(right)
    return pc.fill_null(pc.equal(left, right), False)


def _as_bits(values: pa.Array) -> pa.Array:
    """The bits of floats, with the same bits for every NaN."""
    nan = pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.is_nan(values), nan, values).view(_BITS[values.type])


def _lists_equal(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    lengths = [pc.fill_null(pc.list_value_length(one), -1) for one in (left, right)]
    same_length = pc.equal(*lengths)
    if not pc.any(same_length).as_py():
        return same_length
    mine, theirs = left.filter(same_length), right.filter(same_length)
    items = _equal(mine.flatten(), theirs.flatten())
    # Items of a list are equal if as many items differ up to its end as up to its begin.
    differing = pc.cumulative_sum(pc.invert(items).cast(pa.int64()))
    zero = pa.array([0], pa.int64())
    counts = pa.concat_arrays([zero, differing])
    sizes = pc.if_else(mine.is_valid(), pc.list_value_length(mine), 0).cast(pa.int64())
    ends = pc.cumulative_sum(sizes)
    begins = pc.subtract(ends, sizes)
    equal = pc.equal(counts.take(begins), counts.take(ends))
    # Back to the places of all rows.
    places = pc.subtract(pc.cumulative_sum(same_length.cast(pa.int64())), 1)
    return pc.and_(same_length, equal.take(pc.max_element_wise(places, 0)))


def shown_row(rows: pa.Table, number: int, columns: Iterable[str]) -> str:
    """Some values of a row on one line, first those of the columns that a condition reads."""
    names = rows.column_names
    shown = dict.fromkeys((*(name for name in columns if name in names), *names))
    text = ", ".join(f"{name} = {_value(rows.column(name)[number])}" for name in shown)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _value(scalar: pa.Scalar) -> str:
    try:
        return repr(scalar.as_py())
    except (OverflowError, ValueError):  # Python has no such moment
        return str(scalar.cast(pa.string()).as_py())
