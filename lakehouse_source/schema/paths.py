"""Pure. Fields by name: their paths in a schema, and the columns of files that have no field ids.

A path names a nested field: `"address.street"`, `"tags.element"` for the elements of a
list, `"m.key"` and `"m.value"` for those of a map, or a tuple of names. Names match without
regard to case.

The columns of a file that plake did not write are found by name.
Such a file has no field ids, or those of another system. The file is recorded with the schema
version whose columns were matched by name when the file was added. A column that is renamed or
dropped later keeps its id in that version, and is still found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError, InvalidPredicateError, SchemaMismatchError
from lakehouse_source.schema.defaults import initial_default
from lakehouse_source.schema.fields import (
    FIELD_ID,
    IndexedFields,
    Leaf,
    children,
    field_id,
    find_field,
    is_list_like,
    is_list_view,
    is_nested,
    is_same_kind,
    leaves,
    rebuild,
    storage_type,
)
from lakehouse_source.schema.types import Fit, fit, is_provable
from lakehouse_source.schema.variant_paths import paths_of

Path: TypeAlias = "str | tuple[str, ...]"
# Positions of fields, from the top-level field down.
Place: TypeAlias = tuple[int, ...]


def shown(path: Path) -> str:
    """A path as texts show it."""
    return path if isinstance(path, str) else ".".join(path)


def checked_path(path: object, option: str) -> Path:
    """A path as a user gave it."""
    if isinstance(path, str) and path:
        return path
    if isinstance(path, (list, tuple)) and path and all(isinstance(part, str) for part in path):
        return tuple(path)
    raise InvalidOptionError(
        option=option, value=path, reason="is not a column name, nor a tuple of names."
    )


def find(schema: pa.Schema, path: Path) -> Place:
    """Where a field is."""
    lowered = path.lower() if isinstance(path, str) else tuple(name.lower() for name in path)
    found = list(_places(list(schema), lowered, None))
    if len(found) == 1:
        return found[0]
    if found:
        raise SchemaMismatchError(
            column=shown(path),
            reason="means several fields, because a name contains a dot",
            hint="Give the path as a tuple of names.",
        )
    known = ", ".join(".".join(one) for one, _field in walk(schema))
    raise SchemaMismatchError(
        column=shown(path), reason="is not in the dataset", hint=f"It has: {known}."
    )


def _places(fields: Sequence[pa.Field], path: Path, parent: pa.DataType | None) -> Iterator[Place]:
    """Every place that a path, in lower case, can mean."""
    for position, field in enumerate(fields):
        for name in {field.name.lower(), _standard_name(parent, position, field.name).lower()}:
            if isinstance(path, str):
                matches, below = path == name, path.startswith(name + ".")
                rest: Path = path[len(name) + 1 :]
            else:
                matches, below = path == (name,), path[0] == name
                rest = path[1:]
            if matches:
                yield (position,)
            elif below and rest:
                for place in _places(children(field.type), rest, field.type):
                    yield (position, *place)


def _standard_name(parent: pa.DataType | None, position: int, name: str) -> str:
    """The name that paths use for elements of lists, and for keys and values of maps."""
    if parent is not None and pa.types.is_map(parent):
        return ("key", "value")[position]
    return "element" if parent is not None and is_list_like(parent) else name


def walk(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], pa.Field]]:
    """Every field with its path, nested ones after the field that they are in."""

    def below(
        fields: Sequence[pa.Field], above: tuple[str, ...], parent: pa.DataType | None
    ) -> Iterator[tuple[tuple[str, ...], pa.Field]]:
        for position, field in enumerate(fields):
            path = (*above, _standard_name(parent, position, field.name))
            yield path, field
            yield from below(children(field.type), path, field.type)

    yield from below(list(schema), (), None)


def parent_of(schema: pa.Schema, path: Path) -> tuple[Place, str]:
    """Where a new field is added (empty: at the top), and its name."""
    above: Path
    if isinstance(path, str):
        above, _, name = path.rpartition(".")
    else:
        above, name = path[:-1], path[-1]
    if not above:
        return (), name
    place = find(schema, above)
    type_ = field_at(schema, place).type
    if not pa.types.is_struct(type_):
        raise SchemaMismatchError(
            column=shown(path),
            reason=f"cannot be added: {shown(above)} is {type_} and not a struct",
            hint="Fields of structs in lists and maps are named like 'tags.element.name'. "
            "Give a name that contains a dot as a tuple.",
        )
    return place, name


# --- fields at places ---------------------------------------------------------


def field_at(schema: pa.Schema, place: Place) -> pa.Field:
    """The field at a place."""
    field = schema.field(place[0])
    for position in place[1:]:
        field = children(field.type)[position]
    return field


def with_field(schema: pa.Schema, place: Place, field: pa.Field) -> pa.Schema:
    """The schema with another field at a place."""

    def put(fields: list[pa.Field]) -> list[pa.Field]:
        fields[place[-1]] = field
        return fields

    return with_children(schema, place[:-1], put)


def with_children(
    schema: pa.Schema, place: Place, change: Callable[[list[pa.Field]], list[pa.Field]]
) -> pa.Schema:
    """The schema with other fields inside the field at a place, or at the top (empty place)."""

    def inside(fields: list[pa.Field], place: Place) -> list[pa.Field]:
        if not place:
            return change(fields)
        field = fields[place[0]]
        below = inside(children(field.type), place[1:])
        fields[place[0]] = field.with_type(rebuild(field.type, below))
        return fields

    return pa.schema(inside(list(schema), place), metadata=schema.metadata)


def order_paths(names: Sequence[str], schema: pa.Schema) -> tuple[tuple[str, ...], ...]:
    """Where the values are by which rows are ordered: names from the column down, see below."""
    known = {".".join(leaf.path): leaf.path for leaf in leaves(schema)}
    found = []
    for name in names:
        column, _, path = name.partition(":")
        found.append(known.get(name) or (column, *path.split(".")))
    return tuple(found)


def order_leaves(schema: pa.Schema) -> dict[str, Leaf]:
    """What rows can be ordered by, by its name in properties: `a.b`, or `payload:user.id`.

    A path of VARIANT is a leaf of all its types, with the first of its ids.
    """
    found = {".".join(leaf.path): leaf for leaf in leaves(schema) if leaf.column_id is None}
    for field in schema:
        for path, id in paths_of(field).items():
            leaf = Leaf((field.name, *path), id, field.type, False, field_id(field))
            found[f"{field.name}:{'.'.join(path)}"] = leaf
    return found


# --- Finds a column by the name that a condition gives it, nested fields included.
#
# The fields are PyArrow's, or any other objects that have a name.


class Named(Protocol):
    """A field, of a schema or of a struct."""

    @property
    def name(self) -> str: ...


F = TypeVar("F", bound=Named)


def arrow_children(field: pa.Field) -> list[pa.Field]:
    """The fields below a field of an Arrow schema: those of a struct, a list or a map."""
    return children(field.type)


def find_path(
    fields: Sequence[F],
    path: tuple[str, ...],
    dotted: bool,
    below: Callable[[F], Sequence[F]] = arrow_children,
) -> list[F] | None:
    """The fields from the top level down to the column that `path` names, or None.

    With `dotted`, `path` has one name, in which a dot is part of a field's name or separates a
    field from a field below it; the longest field name is tried first. `below` gives the fields
    below a field.

    Raises:
        InvalidPredicateError: a name means two fields, which differ in case only.
    """
    parts = path[0].split(".") if dotted else list(path)
    for taken in range(len(parts) if dotted else 1, 0, -1):
        match = _named(fields, ".".join(parts[:taken]) if dotted else parts[0])
        if match is None:
            continue
        if taken == len(parts):
            return [match]
        rest = (".".join(parts[taken:]),) if dotted else tuple(parts[1:])
        found = find_path(below(match), rest, dotted, below)
        if found is not None:
            return [match, *found]
    return None


def _named(fields: Sequence[F], name: str) -> F | None:
    known = fields if isinstance(fields, IndexedFields) else IndexedFields(fields)
    found = known.named(name)
    if len(found) > 1:
        raise InvalidPredicateError(
            reason=f"{name} may mean {found[0].name} or {found[1].name}: write it as one of them"
        )
    return found[0] if found else None


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
