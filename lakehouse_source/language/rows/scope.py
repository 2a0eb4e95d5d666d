"""Pure. The meaning of names in an expression: columns of tables side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.functions.rows import Key
from lakehouse_source.language.tree.find_path import find_path
from lakehouse_source.language.tree.nodes import Name
from lakehouse_source.schema import fields as schemas


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True)
class Scope:
    """The tables of a statement by their qualifiers, which are case-insensitive.

    `timezone` (an IANA name or an offset) is the session's time zone. `now` is what
    `current_timestamp()` gives, for every expression that is bound in this scope.

    >>> scope = Scope({"target": flights.schema, "source": changes.schema})
    """

    schemas: Mapping[str, pa.Schema]
    timezone: str = "UTC"
    now: datetime = field(default_factory=_now)

    def find(self, name: Name) -> Found:
        """The column that a name means.

        Raises:
            InvalidExpressionError: there is no such column, or there are several.
        """
        first, *rest = name.parts
        found = []
        if rest:
            found = [
                Found(qualifier, path)
                for qualifier, schema in self.schemas.items()
                if qualifier.lower() == first.lower()
                and (path := _path(name, schema, tuple(rest))) is not None
            ]
        if not found:
            found = [
                Found(qualifier, path)
                for qualifier, schema in self.schemas.items()
                if (path := _path(name, schema, name.parts)) is not None
            ]
        if len(found) == 1:
            return found[0]
        if found:
            several = " and ".join(one.qualifier for one in found)
            raise InvalidExpressionError(
                reason=f"{name} is a column of {several}: write the qualifier before it",
                text=str(name),
            )
        listed = "; ".join(
            f"{qualifier} has {', '.join(schema.names)}"
            for qualifier, schema in self.schemas.items()
        )
        raise InvalidExpressionError(reason=f"there is no column {name}: {listed}", text=str(name))


@dataclass(frozen=True, slots=True)
class Found:
    """A column, or a field inside it: the qualifier and the fields from the top level down."""

    qualifier: str
    path: tuple[pa.Field, ...]

    @property
    def type(self) -> pa.DataType:
        return self.path[-1].type

    @property
    def has_collation(self) -> bool:
        """Tell whether only Spark can compare the column's text."""
        return any(map(schemas.has_collation, self.path))

    @property
    def key(self) -> Key:
        """The place of the column in its table."""
        places = tuple(
            above.type.get_field_index(below.name) for above, below in zip(self.path, self.path[1:])
        )
        if -1 in places:
            raise InvalidExpressionError(
                reason=f"the name of a field in {self.path[0].name} stands there twice"
            )
        return self.qualifier, self.path[0].name, places


def _path(name: Name, schema: pa.Schema, parts: tuple[str, ...]) -> tuple[pa.Field, ...] | None:
    try:
        path = find_path(schemas.indexed(schema), parts, dotted=False)
    except InvalidPredicateError as exc:
        raise InvalidExpressionError(reason=exc.reason, text=str(name)) from exc
    if path is None:
        return None
    for above in path[:-1]:
        if not pa.types.is_struct(above.type):
            raise InvalidExpressionError(
                reason=f"{name} is inside {above.name}, a list or map", text=str(name)
            )
    return tuple(path)
