"""Pure. The place of a field in a schema: paths and names as users write them.

A path names a nested field: `"address.street"`, `"tags.element"` for the elements of a
list, `"m.key"` and `"m.value"` for those of a map, or a tuple of names. Names match without
regard to case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError, InvalidPredicateError, SchemaMismatchError
from lakehouse_source.schema.fields import (
    IndexedFields,
    Leaf,
    children,
    field_id,
    is_list_like,
    leaves,
    rebuild,
)
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
