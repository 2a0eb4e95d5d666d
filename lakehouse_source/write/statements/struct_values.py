"""Pure. Builds the values of whole columns from new values for some fields of structs.

A `Structs` says what a field and a value are: fields of PyArrow and expressions of plake, or types
and columns of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language.tree.find_path import Named

F = TypeVar("F", bound=Named)
V = TypeVar("V")


class Structs(Protocol[F, V]):
    """The fields of structs, and the values that structs are made of."""

    def children(self, field: F) -> Sequence[F]:
        """The fields of a field that is a struct."""

    def get(self, struct: V, field: F) -> V:
        """The value that a field has in a struct."""

    def assigned(self, value: Any) -> V:
        """A value as `place_at` got it."""

    def make(self, values: Sequence[tuple[F, V]]) -> V:
        """The struct with these fields and values."""


def place_at(trees: dict[str, Any], path: Sequence[Named], value: Any, name: str) -> None:
    """Put a value into nested dicts, with one level for each field of a path."""
    level = trees
    for field in path[:-1]:
        level = level.setdefault(field.name, {})
        if not isinstance(level, dict):
            break
    if not isinstance(level, dict) or path[-1].name in level:
        raise InvalidOptionError(option="updates", value=name, reason="is assigned twice.")
    level[path[-1].name] = value


def struct_with(field: F, tree: Mapping[str, Any], before: V, structs: Structs[F, V]) -> V:
    """The struct `before` with other values of some fields. A NULL struct becomes a struct.

    `tree` is the result of `place_at`: a dict for a struct with assigned fields.
    Source: Spark, `AssignmentUtils`.
    """
    values: list[tuple[F, V]] = []
    for child in structs.children(field):
        old = structs.get(before, child)
        new = tree.get(child.name)
        if isinstance(new, dict):
            value = struct_with(child, new, old, structs)
        else:
            value = old if new is None else structs.assigned(new)
        values.append((child, value))
    return structs.make(values)
