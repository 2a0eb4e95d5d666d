"""Pure. Finds a column by the name that a condition gives it, nested fields included."""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.schema import fields as schemas


def find_path(fields: list[pa.Field], path: tuple[str, ...], dotted: bool) -> list[pa.Field] | None:
    """The fields from the top level down to the column that `path` names, or None.

    With `dotted`, `path` has one name, in which a dot may be part of a field's name or stand
    between a field and one below it; the longest name of a field is taken first.

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
        below = find_path(schemas.children(match.type), rest, dotted)
        if below is not None:
            return [match, *below]
    return None


def _named(fields: list[pa.Field], name: str) -> pa.Field | None:
    found = schemas.find_field(name, fields)
    if found is None or found.name == name:
        return found
    other = schemas.find_field(name, [field for field in fields if field is not found])
    if other is not None:
        raise InvalidPredicateError(
            reason=f"{name} may mean {found.name} or {other.name}: write it as one of them"
        )
    return found
