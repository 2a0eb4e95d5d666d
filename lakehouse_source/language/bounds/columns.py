"""Pure. The columns of a schema that conditions name."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.bounds.bound import BoundColumn
from lakehouse_source.language.conditions.arrow_expressions import (
    NotUnderstood,
    read,
    top_level_names,
)
from lakehouse_source.language.tree.find_path import find_path
from lakehouse_source.language.tree.nodes import Arrow, Name, Node, names, walk
from lakehouse_source.schema import fields as schemas


class Columns:
    """Finds columns of one schema with field ids."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._found: dict[Name, BoundColumn] = {}
        self._collated: set[int] = set()

    def find(self, name: Name) -> BoundColumn:
        """The column that a name means.

        Raises:
            InvalidPredicateError: there is no such column, or it is inside a list or map.
        """
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._resolve(name)
        return found

    def comparable(self, name: Name) -> BoundColumn:
        """A column whose values compare.

        Raises:
            InvalidPredicateError: there is no such column, or plake does not know its order.
        """
        column = self.find(name)
        if column.kind == "nested":
            raise InvalidPredicateError(
                reason=f"column {name} is {column.type}: only IS NULL and IS NOT NULL apply to it"
            )
        if column.kind == "other":
            raise InvalidPredicateError(
                reason=f"column {name} has type {column.type}, which has no order"
            )
        if column.id in self._collated:
            raise InvalidPredicateError(
                reason=f"column {name} has a collation: only Spark compares it, and only "
                "IS NULL and IS NOT NULL apply to it here"
            )
        return column

    def _resolve(self, name: Name) -> BoundColumn:
        fields = find_path(schemas.indexed(self._schema), name.parts, name.dotted)
        if fields is None:
            raise InvalidPredicateError(
                reason=f"there is no column {name}; the columns are "
                + ", ".join(field.name for field in self._schema)
            )
        for above in fields[:-1]:
            if not pa.types.is_struct(above.type):
                raise InvalidPredicateError(
                    reason=f"column {name} is inside {above.name}, a list or map: "
                    "conditions on elements are not supported"
                )
        last = fields[-1]
        identity = schemas.field_id(last)
        if identity is None:
            raise InvalidPredicateError(reason=f"column {name} has no field id")
        column = BoundColumn.of(identity, tuple(field.name for field in fields), last)
        if column.kind == "string" and any(map(schemas.has_collation, fields)):
            self._collated.add(identity)
        return column


def missing_columns(node: Node, schema: pa.Schema) -> set[str]:
    """The top-level names of columns in a condition that the schema does not have."""
    known = schemas.indexed(schema)
    missing = {
        name.parts[0] for name in names(node) if find_path(known, name.parts, name.dotted) is None
    }
    for part in walk(node):
        if isinstance(part, Arrow):
            with suppress(NotUnderstood):
                missing |= set(top_level_names(read(part.expression))) - set(schema.names)
    return missing
