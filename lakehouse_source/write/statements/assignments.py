"""Pure. Values that a statement assigns to the columns of a dataset, computed from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lakehouse_source.arguments import mapping, text
from lakehouse_source.errors import InvalidExpressionError, InvalidOptionError, SchemaMismatchError
from lakehouse_source.language import BoundValue, Expression, Scope, assign, require_assignable
from lakehouse_source.language.nodes import Call, Literal, Name, Node
from lakehouse_source.schema.defaults import Identity, computed
from lakehouse_source.schema.fields import children, find_field, indexed, without_metadata
from lakehouse_source.schema.paths import Named, find_path
from lakehouse_source.schema.spark_metadata import fitted, fitted_sql

# --- Builds the values of whole columns from new values for some fields of structs.
#
# A `Structs` says what a field and a value are: fields of PyArrow and expressions of plake, or
# types and columns of Spark.


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


@dataclass(frozen=True, slots=True)
class Assignments:
    """The value that each of some columns gets. `values` has them by column name.

    `stored` are the columns with their metadata, `fields` without it.
    """

    fields: Mapping[str, pa.Field]
    values: Mapping[str, BoundValue]
    stored: Mapping[str, pa.Field]

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        schema: pa.Schema,
        scope: Scope,
        target: str | None,
        alias: str | None = None,
    ) -> Assignments:
        """Assignments by column: SQL text, an `Expression`, or another Python value.

        A field of a struct is named `column.field`. Other fields keep their values in the table
        whose qualifier is `target`; None: there is no old row, as for an INSERT. A name that is no
        column as it stands is read as SQL: with backticks, and with `alias` before it.

        Raises:
            SchemaMismatchError: there is no such column, or it does not take the values.
            InvalidExpressionError: an expression cannot be read.
        """
        if not given:
            raise InvalidOptionError(option="updates", reason="is empty: name a column at least.")
        bare = without_metadata(schema)
        trees: dict[str, Any] = {}
        for name, value in mapping("updates", given).items():
            path = assigned_path(
                text("updates", name), bare, has_row=target is not None, alias=alias
            )
            place_at(trees, path, Expression.of(value), name)
        fields = {name: bare.field(name) for name in trees}
        for name in trees if target is not None else ():
            how = computed(schema.field(name))
            if isinstance(how, Identity) and how.always:
                raise SchemaMismatchError(
                    column=name, reason=f"is {how.sql}: its numbers stay", hint="Leave it out."
                )
        values: dict[str, BoundValue] = {}
        for name, tree in trees.items():
            if isinstance(tree, dict):
                assert target is not None
                node = struct_with(fields[name], tree, Name((target, name)), _Nodes())
                tree = Expression(node, str(node))
            values[name] = tree.bind(scope)
            require_assignable(values[name].type, fields[name])
        return cls(fields, values, {name: schema.field(name) for name in fields})

    def columns(self, qualifier: str) -> list[str]:
        """The columns of one table that the values are computed from."""
        found = (column for value in self.values.values() for column in value.columns)
        return list(dict.fromkeys(name for table, name in found if table == qualifier))

    def evaluate(self, tables: Mapping[str, pa.Table], rows: int) -> dict[str, pa.ChunkedArray]:
        """The values of the assigned columns, by name, in the columns' types.

        Raises:
            InvalidExpressionError: an expression fails on a row.
            SchemaMismatchError: a value does not fit its column.
        """
        return {
            name: fitted(assign(value.evaluate(tables, rows), self.fields[name]), self.stored[name])
            for name, value in self.values.items()
        }


def assigned_path(
    name: str, schema: pa.Schema, *, has_row: bool, alias: str | None = None
) -> tuple[pa.Field, ...]:
    """The column that an assignment names, or the fields down to a field of a struct."""
    path = find_path(indexed(schema), (name,), dotted=True)
    if path is None:
        parts = _parts(name, alias)
        path = find_path(indexed(schema), parts, dotted=False) if parts else None
    if path is None:
        raise SchemaMismatchError(
            column=name, reason="is not in the dataset", hint=f"It has: {', '.join(schema.names)}."
        )
    if len(path) == 1:
        return (path[0],)
    reason = None
    if not has_row:
        reason = "is a field of a struct: an insert assigns whole columns"
    elif not all(pa.types.is_struct(field.type) for field in path[:-1]):
        reason = "is inside of a list or a map, which is assigned as a whole"
    if reason is not None:
        raise SchemaMismatchError(column=name, reason=reason, hint=f"Assign {path[0].name}.")
    return tuple(path)


def _parts(name: str, alias: str | None) -> tuple[str, ...]:
    """The parts of a name in SQL, without the table's alias; none: it is no name."""
    try:
        root = Expression.of(name).root
    except InvalidExpressionError:
        return ()
    parts = root.parts if isinstance(root, Name) else ()
    is_qualified = alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower()
    return parts[1:] if is_qualified else parts


class _Nodes:
    """Structs of PyArrow's types, as nodes of expressions."""

    def children(self, field: pa.Field) -> list[pa.Field]:
        return children(field.type)

    def get(self, struct: Node, field: pa.Field) -> Node:
        assert isinstance(struct, Name)  # a column, or a field of one
        return Name((*struct.parts, field.name))

    def assigned(self, value: Expression) -> Node:
        return value.root

    def make(self, values: Sequence[tuple[pa.Field, Node]]) -> Node:
        arguments = [(Literal(field.name, pa.string()), value) for field, value in values]
        return Call("named_struct", tuple(chain.from_iterable(arguments)))


def everything_from(schema: pa.Schema, source: pa.Schema, qualifier: str) -> dict[str, Expression]:
    """Assignments of each column from the column of the same name in the source."""
    found: dict[str, Expression] = {}
    for field in schema:
        mine = find_field(field.name, source)
        if mine is None and computed(field) is not None:
            continue
        if mine is None:
            raise SchemaMismatchError(
                column=field.name,
                reason="is not in the source",
                hint="Name the columns to assign: when_matched_update({...}), "
                "when_not_matched_insert({...}).",
            )
        column = Name((qualifier, mine.name))
        found[field.name] = Expression(column, str(column))
    return found


def assembled(
    schema: pa.Schema, before: pa.Table | None, assigned: Mapping[str, pa.ChunkedArray]
) -> dict[str, pa.ChunkedArray]:
    """The columns of new rows: assigned columns, and the other columns unchanged.

    Without rows before, columns that are not assigned are left out: they get their defaults. So are
    columns that are computed from others.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for field in schema:
        if field.name in assigned:
            columns[field.name] = assigned[field.name]
        elif before is not None and not isinstance(computed(field), str):
            columns[field.name] = before.column(field.name)
    return columns


def equal_columns(
    fields: Sequence[pa.Field], target: str, source: str, *, nulls_equal: bool = False
) -> str:
    """The condition that the source has the values that some columns of the target have, as SQL.

    The target has its texts in the form of CHAR and VARCHAR, and the source may not.
    """
    pairs = ((Name((target, one.name)), Name((source, one.name)), one) for one in fields)
    equals = "<=>" if nulls_equal else "="
    return " AND ".join(
        f"{mine} {equals} {fitted_sql(str(other), one)}" for mine, other, one in pairs
    )


def checked_columns(names: Sequence[str], schema: pa.Schema, option: str) -> list[pa.Field]:
    """Columns of a schema by their names in any case."""
    if not names:
        raise InvalidOptionError(option=option, reason="names no column.")
    found = []
    for name in names:
        field = find_field(name, schema)
        if field is None:
            raise InvalidOptionError(
                option=option, value=name, reason="is not a column.", known=schema.names
            )
        found.append(field)
    return found
