"""Pure. Store assignment: values of one type into a column of another, by Spark's ANSI policy.

Numbers go into every number, dates and timestamps into each other, all single values into
strings. A value that does not fit is an error that names the column.

Source: Spark's `Cast.canANSIStoreAssign` and `TableOutputResolver`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, SchemaMismatchError
from lakehouse_source.language.functions.casts import cast_kernel
from lakehouse_source.language.tree.failures import Failure
from lakehouse_source.language.tree.moments import parse_zone
from lakehouse_source.language.tree.types import (
    is_atomic,
    is_moment,
    is_number,
    spark_name,
    spark_type,
)
from lakehouse_source.schema.fields import children, is_list_like

t = pa.types


def require_assignable(from_: pa.DataType, to: pa.Field) -> None:
    """Refuse a type whose values a column does not accept.

    Raises:
        SchemaMismatchError: the column does not take them.
    """
    if not _assignable(from_, to.type):
        raise SchemaMismatchError(
            column=to.name,
            expected=to.type,
            got=from_,
            reason=f"is {to.type} and the value assigned to it is {from_}",
            hint="Cast the value.",
        )


def _assignable(from_: pa.DataType, to: pa.DataType) -> bool:
    if from_ == to or t.is_null(from_):
        return True
    source, target = spark_type(from_), spark_type(to)
    if source == target:
        return not t.is_dictionary(to)
    if t.is_struct(source) and t.is_struct(target):
        mine, theirs = children(source), children(target)
        return [x.name for x in mine] == [x.name for x in theirs] and all(
            _assignable(x.type, y.type) for x, y in zip(mine, theirs)
        )
    if is_list_like(source) and is_list_like(target):
        return _assignable(source.value_type, target.value_type)
    if not (is_atomic(source) and is_atomic(target)):
        return False
    return bool(
        (is_number(source) and is_number(target))
        or (is_moment(source) and is_moment(target))
        or target == pa.string()
    )


def assign(
    values: pa.Array | pa.ChunkedArray, to: pa.Field, timezone: str = "UTC"
) -> pa.ChunkedArray:
    """The values as the column `to` stores them.

    Raises:
        SchemaMismatchError: the column does not take the type or one of the values.
    """
    require_assignable(values.type, to)
    try:
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        found = [_converted(chunk, to.type, timezone) for chunk in chunks]
    except (Failure, InvalidExpressionError, pa.ArrowInvalid) as exc:
        raise _refusal(to, values.type, f"cannot store a value: {exc}") from exc
    _require_values(pa.chunked_array(found, to.type), to, to.name)
    return pa.chunked_array(found, to.type)


def _refusal(to: pa.Field, got: pa.DataType, reason: str) -> SchemaMismatchError:
    hint = "Cast the value, or change the type of the column."
    return SchemaMismatchError(column=to.name, expected=to.type, got=got, reason=reason, hint=hint)


def _require_values(values: pa.ChunkedArray, to: pa.Field, name: str) -> None:
    if not to.nullable and values.null_count:
        raise SchemaMismatchError(
            column=name,
            expected=to.type,
            got=to.type,
            reason="is NOT NULL and a value assigned to it is NULL",
            hint="Give a value, by COALESCE for example.",
        )
    if t.is_struct(to.type):
        for place, child in enumerate(children(to.type)):
            inner = pc.struct_field(values.filter(values.is_valid()), [place])
            _require_values(inner, child, f"{name}.{child.name}")


def _converted(values: pa.Array, to: pa.DataType, timezone: str) -> pa.Array:
    if values.type == to:
        return values
    if t.is_null(values.type):
        return pa.nulls(len(values), to)
    source, target = spark_type(values.type), spark_type(to)
    if t.is_struct(source) and source != target:
        parts = [
            _converted(values.field(place), child.type, timezone)
            for place, child in enumerate(children(to))
        ]
        return pa.StructArray.from_arrays(parts, fields=children(to), mask=pc.is_null(values))
    if is_list_like(source) and source != target:
        if not (t.is_list(values.type) and t.is_list(to)):
            raise Failure(f"{values.type} is not converted to {to}")
        inner = _converted(values.values, to.value_type, timezone)
        return pa.ListArray.from_arrays(values.offsets, inner, type=to, mask=pc.is_null(values))
    if values.type != source:
        values = values.cast(source)
    if source != target:
        kernel, _ = cast_kernel(source, target, parse_zone(timezone))
        values = kernel(values)
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
    if target == to:
        return values
    try:
        return values.cast(to)  # a narrower or finer form of storage; Arrow checks the range
    except pa.ArrowNotImplementedError:
        raise Failure(f"{spark_name(target)} is not stored as {to}") from None
