"""Pure. Finds a column by the name that a condition gives it, nested fields included.

The fields are PyArrow's, or any other objects that have a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.schema.fields import IndexedFields, children


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
