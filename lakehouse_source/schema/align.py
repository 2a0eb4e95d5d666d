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
from lakehouse_source.schema.arrow_arrays import (
    NULL_HINT,
    entries,
    parts,
    relabel,
    shown_row,
    typed_nulls,
    with_parts,
    without_hidden_nulls,
    without_offset,
)
from lakehouse_source.schema.fields import (
    IndexedFields,
    children,
    field_id,
    find_field,
    is_list_view,
    is_nested,
    rebuild,
)
from lakehouse_source.schema.texts import cast_to_string
from lakehouse_source.schema.types import prints_as_string
from lakehouse_source.schema.variant_storage import Match, with_variants

# --- Finds values that Arrow's safe cast changes without an error.
#
# Arrow itself checks integers, decimals, times and units of timestamps. It does not check whether a
# float is rounded to a narrower one, or a moment is cut to its day. Such casts are only needed for
# a file that is read under an older schema: its rows were written after a promotion, and a restore
# took the promotion back.


def changed_value(column: pa.ChunkedArray, done: pa.ChunkedArray) -> pa.Scalar | None:
    """The first value of a column that the cast changes; None: there is none."""
    if not _may_change(column.type, done.type):
        return None
    return _changed(column.combine_chunks(), done.combine_chunks())


def _may_change(source: pa.DataType, target: pa.DataType) -> bool:
    t = pa.types
    below = {child.name: child.type for child in children(source)}
    if below:
        return any(
            _may_change(below[child.name], child.type)
            for child in children(target)
            if child.name in below
        )
    if t.is_floating(source) and t.is_floating(target):
        return bool(target.bit_width < source.bit_width)
    return bool(t.is_timestamp(source) and t.is_date(target))


def _changed(before: pa.Array, after: pa.Array) -> pa.Scalar | None:
    if pa.types.is_struct(before.type):
        # Leaves out the values of fields under a NULL struct.
        mine = dict(zip((f.name for f in before.type), before.flatten()))
        pairs = [(mine.get(f.name), one) for f, one in zip(after.type, after.flatten())]
    elif children(before.type):
        pairs = [(entries(before).flatten(), entries(after).flatten())]
    else:
        return _changed_leaf(before, after) if _may_change(before.type, after.type) else None
    found = (_changed(one, other) for one, other in pairs if one is not None)
    return next((value for value in found if value is not None), None)


def _changed_leaf(before: pa.Array, after: pa.Array) -> pa.Scalar | None:
    back = after.cast(before.type)
    differ = pc.not_equal(before, back)
    if pa.types.is_floating(before.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(before), pc.is_nan(back)))
    at = pc.index(differ, True).as_py()
    return before[at] if at >= 0 else None


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
    if isinstance(sources, IndexedFields):
        return sources.with_id(wanted)
    return next((field for field in sources if field_id(field) == wanted), None)


def narrowed(stored: pa.Field, wanted: pa.Field, match: Match) -> pa.Field:
    """The stored field, its structs without the fields that `wanted` lacks.

    A struct without wanted fields stays whole: a field is needed to tell which structs are NULL.
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
    """
    fields = IndexedFields(source)
    places = {id(field): place for place, field in enumerate(fields)}
    columns: list[pa.ChunkedArray] = []
    for field in target:
        found = match(field, fields)
        if found is None:
            column = pa.chunked_array([_repeated(field, table.num_rows, default)])
        else:
            column = convert(table.column(places[id(found)]), found, field, match, default)
        if not field.nullable and column.null_count:
            row = shown_row(table, pc.index(column.is_null(), True).as_py(), [field.name])
            raise SchemaMismatchError(
                column=field.name,
                expected=field.type,
                reason=f"is not nullable and the data has {column.null_count} NULL values, the "
                f"first in the row with {row}",
                hint=NULL_HINT,
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=target)


def check_digits(table: pa.Table) -> None:
    """Check that every decimal has at most the digits of its type.

    Arrow does not check this when it takes data from another library: a DuckDB HUGEINT arrives as
    decimal128(38, 0) and may have 39 digits.
    """
    for field, column in zip(table.schema, table.columns):
        if _has_decimals(field.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise SchemaMismatchError(
                    column=field.name,
                    expected=field.type,
                    reason=f"is {field.type} and a value of the data does not fit: {error}",
                    hint="Cast the column to a type that holds it, such as text.",
                ) from error


def _has_decimals(type_: pa.DataType) -> bool:
    if pa.types.is_decimal(type_):
        return True
    return any(_has_decimals(child.type) for child in children(type_))


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
    if not column.type.equals(target.type):
        column, source = with_variants(column, source, target, match)
    converted = _converted(column, source, target, match, default)
    return without_hidden_nulls(converted, source, target)


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
        column = _relabelled(column, named)
        typed = typed_nulls(target.type)
        if typed != target.type and named != target.type:
            column, wide = _relabelled(column, typed_nulls(named)), target.with_type(typed)
            return _relabelled(_converted(column, source, wide, match, default), target.type)
    if column.type.equals(target.type):
        return column
    decodable = _without_views(column.type)
    try:
        if decodable != column.type:
            column = column.cast(decodable)
        if pa.types.is_string(target.type) and prints_as_string(column.type):
            return cast_to_string(column)
        done = column.cast(target.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        value = _first_that_does_not_fit(column, target.type)
        raise _does_not_fit(target, source, value, error) from error
    changed = changed_value(column, done)
    if changed is not None:
        raise _does_not_fit(target, source, changed, "it would be rounded")
    return done


def _relabelled(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    return pa.chunked_array([relabel(chunk, type_) for chunk in column.chunks], type=type_)


def _does_not_fit(
    target: pa.Field, source: pa.Field, value: object, why: object
) -> SchemaMismatchError:
    return SchemaMismatchError(
        column=target.name,
        expected=target.type,
        got=source.type,
        reason=f"is {target.type} and the {source.type} value {value} does not fit ({why})",
        hint="Cast the column to the dataset's type first.",
    )


def _without_views(type_: pa.DataType) -> pa.DataType:
    """The type with plain `string` and `binary` in dictionaries: Arrow decodes none of views."""
    if is_nested(type_):
        below = children(type_)
        done = [child.with_type(_without_views(child.type)) for child in below]
        return type_ if done == below else rebuild(type_, done)
    if not pa.types.is_dictionary(type_):
        return type_
    values = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(type_.value_type)
    return type_ if values is None else pa.dictionary(type_.index_type, values, type_.ordered)


def _completed(
    column: pa.ChunkedArray, source: pa.Field, target: pa.Field, match: Match, default: Default
) -> tuple[pa.ChunkedArray, pa.Field]:
    """The column and its field, with missing nested fields that have a default."""
    if default is no_default:
        return column, source
    chunks = column.chunks or [pa.nulls(0, column.type)]
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
    if is_list_view(array.type):
        array = relabel(array, rebuild(array.type, own))
    array = without_offset(array)
    arrays = parts(array)
    pairs: list[tuple[pa.Field, pa.Field | None]] = list(zip(theirs, known))
    if is_struct:
        pairs = [(wanted, match(wanted, known)) for wanted in theirs]
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
    return with_parts(array, rebuild(array.type, own), arrays), rebuild(source, fields)


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
    """`own` with its nested fields named, and declared nullable, as in `target`, and NULLs typed.

    `source` is the same type with the ids that `match` may need.
    """
    if pa.types.is_null(own):
        return target
    if not is_nested(own) or not is_nested(target):
        return own
    mine, known, theirs = children(own), children(source), children(target)
    if len(mine) != len(known):
        return own  # the file differs from its record: the cast below refuses the file
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
                # Arrow casts structs by name. This field has no target, so its name must match no
                # field.
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
