"""Pure. The columns of a file that plake did not write: found by name, not by field id.

Such a file has no field ids, or those of another system. The file is recorded with the schema
version whose columns were matched by name when the file was added. A column that is renamed or
dropped later keeps its id in that version, and is still found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.defaults import initial_default
from lakehouse_source.schema.fields import (
    FIELD_ID,
    children,
    field_id,
    find_field,
    is_list_view,
    is_nested,
    is_same_kind,
    rebuild,
    storage_type,
)
from lakehouse_source.schema.types import Fit, fit, is_provable


def with_ids_by_name(physical: pa.Schema, logical: pa.Schema) -> pa.Schema:
    """The file's schema, each field with the id of the field of the same name in `logical`.

    The order and types stay those of the file. A field that `logical` lacks has no id.
    """
    return pa.schema(_matched(list(physical), list(logical)))


def _matched(mine: Sequence[pa.Field], theirs: Sequence[pa.Field]) -> list[pa.Field]:
    names = [field.name for field in mine]
    found: list[pa.Field] = []
    for field in mine:
        logical = find_field(field.name, theirs)
        # If two names differ by case only, the name that is spelled as in the dataset is meant.
        if logical is not None and logical.name != field.name and logical.name in names:
            logical = None
        found.append(_with_id(field, logical))
    return found


def _with_id(field: pa.Field, logical: pa.Field | None) -> pa.Field:
    type_ = field.type
    below = children(type_)
    if below:
        other = [] if logical is None else children(logical.type)
        if pa.types.is_struct(type_):
            struct = logical is not None and pa.types.is_struct(logical.type)
            below = _matched(below, other if struct else [])
        else:
            same = logical is not None and is_same_kind(type_, logical.type)
            below = [_with_id(b, other[i] if same else None) for i, b in enumerate(below)]
        type_ = rebuild(type_, below) if not is_list_view(type_) else type_
    identity = None if logical is None else field_id(logical)
    metadata = None if identity is None else {FIELD_ID: str(identity).encode()}
    return pa.field(field.name, type_, field.nullable, metadata=metadata)


def known_fields(stored: Sequence[pa.Field], logical: Sequence[pa.Field]) -> list[pa.Field]:
    """The columns of a file that `logical` has by name, without nested fields that it lacks."""

    def known(field: pa.Field) -> pa.Field:
        below = children(field.type)
        if pa.types.is_struct(field.type):
            below = [one for one in below if field_id(one) is not None]
        return (
            field.with_type(rebuild(field.type, [known(one) for one in below])) if below else field
        )

    return [known(one) for one in _matched(stored, logical) if field_id(one) is not None]


def leaf_types(type_: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the leaf columns of a field, in the order that Parquet stores them."""
    if isinstance(type_, pa.BaseExtensionType):
        yield from leaf_types(type_.storage_type)
    elif is_nested(type_):
        for child in children(type_):
            yield from leaf_types(child.type)
    else:
        yield type_


def replaced_leaves(
    fields: Sequence[pa.Field], replace: Callable[[int], pa.DataType | None]
) -> list[pa.Field]:
    """The fields with other leaf types: `replace` gives the type for a leaf's position or None."""
    position = -1

    def of(type_: pa.DataType) -> pa.DataType:
        nonlocal position
        if isinstance(type_, pa.BaseExtensionType):
            position += sum(1 for _ in leaf_types(type_))
            return type_
        if is_nested(type_):
            changed = [child.with_type(of(child.type)) for child in children(type_)]
            same = all(a.type is b.type for a, b in zip(changed, children(type_)))
            return type_ if same else rebuild(type_, changed)
        position += 1
        return replace(position) or type_

    return [field.with_type(of(field.type)) for field in fields]


@dataclass(frozen=True, slots=True)
class ToShow:
    """What the statistics of each file must show about a top-level column of the file.

    The column has no NULL, or, if `type` is given, each value fits this type.
    """

    column: str
    type: pa.DataType | None


def check_reads_exactly(
    stored: Sequence[pa.Field],
    wanted: Sequence[pa.Field],
    above: str = "",
) -> list[ToShow]:
    """Check that every value of a file can be read as the dataset's columns, unchanged.

    The values of an added file are not seen before the file is read. A type that only some values
    fit is refused, unless statistics can show that all values fit.

    Returns:
        What the statistics of a file with these columns must show.
    """
    to_show: list[ToShow] = []
    for field in stored:
        if find_field(field.name, wanted) is None:
            raise SchemaMismatchError(
                column=above + field.name,
                got=field.type,
                reason=f"({field.type}) is in the file and not in the dataset",
                hint="Add it with schema_merge=True.",
            )
    for target in wanted:
        field = find_field(target.name, stored)
        name = above + target.name
        if field is None:
            if not target.nullable and initial_default(target) is None:
                raise _has_nulls(name, target, "the file does not have it")
            continue
        if field.nullable and not target.nullable:
            if above:
                raise _has_nulls(name, target, "the file may have NULL values")
            to_show.append(ToShow(field.name, None))
        if not above and is_provable(storage_type(field.type, name), target.type):
            to_show.append(ToShow(field.name, target.type))
        else:
            _check_type(field, target, name)
    return to_show


def _check_type(field: pa.Field, target: pa.Field, name: str) -> None:
    mine, theirs = children(field.type), children(target.type)
    if pa.types.is_struct(field.type) and pa.types.is_struct(target.type):
        check_reads_exactly(mine, theirs, name + ".")
        return
    if mine and theirs and is_same_kind(field.type, target.type):
        for a, b in zip(mine, theirs):
            inner = f"{name}.{b.name}"
            if a.nullable and not b.nullable and not pa.types.is_map(target.type):
                raise _has_nulls(inner, b, "the file may have NULL values")
            _check_type(a, b, inner)
        return
    if mine or theirs or fit(storage_type(field.type, name), target.type) is not Fit.EVERY:
        raise SchemaMismatchError(
            column=name,
            expected=target.type,
            got=field.type,
            reason=f"is {target.type} and the file has {field.type}, whose values may not fit",
            hint="Promote the column, or write the file's rows with write_dataset, which checks "
            "each value.",
        )


def _has_nulls(name: str, target: pa.Field, why: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        column=name,
        expected=target.type,
        reason=f"is not nullable and {why}",
        hint="Make the column nullable, or write the file's rows with write_dataset.",
    )
