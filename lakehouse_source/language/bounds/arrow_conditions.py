"""Pure. Arrow expressions as parts of bound conditions, with casts of paths into VARIANT.

Arrow has no kernels for VARIANT. `pc.field("event", "user", "id").cast("int64")` names a place in
a column of VARIANT as if this were a struct. A column of the values, as SQL's cast makes them,
stands in for the cast, and Arrow decides the rest as it does in any other expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.bounds.arrow_expressions import (
    AND,
    Entries,
    NotUnderstood,
    Pickled,
    compute,
    implied,
    on_rows,
    read,
    top_level_names,
)
from lakehouse_source.language.bounds.arrow_expressions import Implied as ImpliedByArrow
from lakehouse_source.language.bounds.bound import (
    TRUE,
    BoundConstant,
    BoundExpression,
    BoundNode,
    conjunction,
)
from lakehouse_source.language.bounds.comparisons import (
    CAST_PATHS,
    Columns,
    Comparisons,
    with_paths,
)
from lakehouse_source.language.bounds.implied import Implied
from lakehouse_source.language.expression import Expression, SqlRows, scope_of
from lakehouse_source.language.nodes import (
    Call,
    Cast,
    Literal,
    Name,
    Node,
    Value,
    literal_of,
    mapped,
    names,
)
from lakehouse_source.language.types import spark_type
from lakehouse_source.schema.arrow_arrays import empty
from lakehouse_source.schema.fields import children, names_hold
from lakehouse_source.schema.variant import is_variant
from lakehouse_source.schema.variant_storage import has_variant

# What stands in for places in VARIANT, by the names of the columns that an expression has of them.
Paths: TypeAlias = Mapping[str, Node]


@dataclass(frozen=True, eq=False)
class ArrowRows(SqlRows):
    """An Arrow expression over columns of one table, and over `paths`. `node` is what it reads."""

    expression: pc.Expression
    paths: Paths

    def equals(self, other: object) -> bool:
        """Tell whether both are the same condition."""
        return (
            isinstance(other, ArrowRows)
            and super().equals(other)
            and self.expression.equals(other.expression)
        )

    def matching(self, rows: pa.Table) -> pa.ChunkedArray:
        """True for the rows on which the expression is true, false for the others.

        Raises:
            InvalidExpressionError: a cast of a path has no value on a row.
            InvalidPredicateError: Arrow cannot compute the expression on a row.
        """
        return pc.fill_null(self.values(rows), False)

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """True, false or NULL for each row. Raises as `matching` does."""
        scope, given = scope_of(self.fields, self.zone), rows
        for name, node in self.paths.items():
            made = Expression(node, name).bind(scope).evaluate({"": given}, given.num_rows)
            rows = rows.append_column(name, made)
        return on_rows(self.expression, rows)


class ArrowConditions:
    """Binds Arrow expressions over one schema. `zone` is the time zone of wall clocks."""

    def __init__(
        self, schema: pa.Schema, zone: str, columns: Columns, comparisons: Comparisons
    ) -> None:
        self._schema, self._zone = schema, zone
        self._columns, self._comparisons = columns, comparisons

    def bind(self, expression: pc.Expression) -> BoundNode:
        """The expression as a part of a condition.

        Raises:
            InvalidPredicateError: it does not fit the schema, or is not of bool.
        """
        if has_variant(self._schema):
            try:
                terms = self._terms(expression)
            except NotUnderstood:
                terms = []
            if any(paths for _, paths in terms):
                return conjunction([self._bound(term, paths) for term, paths in terms])
        return self._bound(expression, {})

    def _bound(self, expression: pc.Expression, paths: Paths) -> BoundNode:
        scope = scope_of(self._schema, self._zone)
        try:
            made = [
                pa.field(name, Expression(node, str(node)).bind(scope).type)
                for name, node in paths.items()
            ]
        except InvalidExpressionError as exc:
            raise InvalidPredicateError(reason=exc.reason, text=exc.text) from exc
        schema = pa.schema([*self._schema, *made])
        try:
            kind = compute(expression, empty(schema)).type if len(schema) else pa.null()
        except (pa.ArrowException, KeyError) as exc:
            raise InvalidPredicateError(
                reason=f"the Arrow expression {expression} does not fit the schema: {exc}"
                + (CAST_PATHS if has_variant(schema) else "")
            ) from exc
        if not pa.types.is_boolean(kind):
            raise InvalidPredicateError(
                reason=f"the Arrow expression {expression} is {kind}: a condition is bool"
            )
        try:
            if names_hold(schema, "\n"):
                raise NotUnderstood
            tree = read(expression)
        except NotUnderstood:
            top = tuple(self._schema.names)
            found = ImpliedByArrow(TRUE, (str(expression),))
        else:
            top = top_level_names(tree)
            if not top:  # the same on every row
                return BoundConstant(compute(expression, pa.table({"": [0]}))[0].as_py())
            found = implied(tree, schema, self._test(paths, {one.name: one.type for one in made}))
        reads = [paths.get(name, Name((name,))) for name in top]
        above = dict.fromkeys(name.parts[0] for node in reads for name in names(node))
        columns = tuple(self._columns.find(Name((name,))) for name in above)
        if not paths:
            return BoundExpression(expression, columns, found.condition, found.unused)
        fields = pa.schema([self._schema.field(name) for name in above])
        text, node = str(expression), Call("and", tuple(reads))
        rows = ArrowRows(node, text, fields, self._zone, expression, paths)
        return BoundExpression(rows, columns, found.condition, found.unused)

    def _test(self, paths: Paths, types: Mapping[str, pa.DataType]) -> Callable[[Node], BoundNode]:
        """Binds a test of one column, or of what stands in for a place, for pruning."""
        if not paths:
            return self._comparisons.test
        scope = scope_of(with_paths(self._schema), self._zone)
        reader = Implied(scope, self._comparisons, self._columns)

        def test(node: Node) -> BoundNode:
            of = next((name.parts[0] for name in names(node) if name.parts[0] in paths), None)
            if of is None:
                return self._comparisons.test(node)

            def as_sql(part: Node) -> Node:
                if isinstance(part, Name):
                    return paths[of]
                if isinstance(part, Value) and not isinstance(part.value, tuple):
                    return _literal(part.value, types[of])
                if isinstance(part, Call) and part.name == "in":
                    value, listed = part.arguments
                    assert isinstance(listed, Value)
                    assert isinstance(listed.value, tuple)
                    return Call("in", (value, *(_literal(one, types[of]) for one in listed.value)))
                return part

            return reader.when(mapped(node, as_sql), True)

        return test

    # --- paths ---

    def _terms(self, expression: pc.Expression) -> list[tuple[pc.Expression, Paths]]:
        """The terms of an expression's ANDs, with columns for the places in VARIANT of each.

        Raises:
            NotUnderstood: the form of the expression is unknown.
            InvalidPredicateError: a place has no path in SQL, or the expression is nested too deep.
        """
        form = Pickled.of(expression)
        form.tree()
        again = form.expression(form.entries)
        # A list with NaN is not equal to itself, but prints alike.
        if not again.equals(expression) and str(again) != str(expression):
            raise NotUnderstood
        found: list[tuple[pc.Expression, Paths]] = []
        for entries in _terms_of_and(form.entries):
            paths: dict[str, Node] = {}
            found.append((form.expression(self._replaced(entries, form.batch, paths)), paths))
        return found

    def _replaced(
        self, entries: Entries, batch: pa.RecordBatch, paths: dict[str, Node]
    ) -> list[tuple[str, str]]:
        """The entries with columns in place of places in VARIANT, which are added to `paths`."""
        found, at = list[tuple[str, str]](), 0
        while at < len(entries):
            is_cast = entries[at] == ("call", "cast")
            path, end = _reference(entries, at + is_cast)
            node = self._place(path)
            if node is None or (isinstance(node, Name) and not is_cast):
                end = at + 1 if is_cast else end
                found += entries[at:end]
                at = end
                continue
            head: Entries = ()
            rest: Entries = ()
            if is_cast:
                options = batch.column(int(entries[end][1]))[0]
                to = options["to_type"].type
                lenient = all(one for name, one in options.as_py().items() if "allow" in name)
                node = Cast(node, spark_type(to), safe=lenient)
                if to != node.to:  # Arrow casts to a type that SQL has not
                    head, rest = entries[at : at + 1], entries[end : end + 2]
                end += 2
            name = str(node)
            paths[name] = node
            found += [*head, ("field_ref", name), *rest]
            at = end
        return found

    def _place(self, path: Sequence[str]) -> Node | None:
        """What SQL calls a place in a column of VARIANT; None: it is in no such column."""
        fields = list(self._schema)
        for place, name in enumerate(path, 1):
            matches = [one for one in fields if one.name == name]
            if len(matches) != 1:
                return None
            if is_variant(matches[0].type):
                column = Name(tuple(path[:place]))
                steps = "".join(map(_step, path[place:]))
                text = Literal(f"${steps}", pa.string())
                return Call("variant_get", (column, text)) if steps else column
            fields = children(matches[0].type) if pa.types.is_struct(matches[0].type) else []
        return None


def _reference(entries: Entries, at: int) -> tuple[list[str], int]:
    """The names of the reference at a place, from the top down, and where the next entry is."""
    kind, value = entries[at]
    if kind == "field_ref":
        return [value], at + 1
    end = at + 1 + (int(value) if kind == "nested_field_ref" else 0)
    return [name for _, name in entries[at + 1 : end]], end


def _step(name: str) -> str:
    if name and not {".", "["}.intersection(name):
        return f".{name}"
    mark = "'" if "'" not in name else '"'
    if mark in name:
        raise InvalidPredicateError(reason=f"no path of VARIANT leads to {name!r}")
    return f"[{mark}{name}{mark}]"


def _terms_of_and(entries: Entries) -> list[Entries]:
    """The terms of nested ANDs: a row that one rules out is not asked for the next."""
    if entries[0] not in {("call", name) for name in AND}:
        return [entries]
    found, start, depth, below = list[Entries](), 1, 0, 0
    for at, (kind, value) in enumerate(entries[1:-1], 1):
        below = int(value) if kind == "nested_field_ref" else max(0, below - 1)
        depth += (kind == "call") - (kind == "end")
        if not depth and not below:
            found += _terms_of_and(entries[start : at + 1])
            start = at + 1
    return found


def _literal(value: Any, type_: pa.DataType) -> Node:
    """A constant in the type of what it is compared with."""
    if value != value and pa.types.is_floating(type_):
        return Literal(value, type_)
    try:
        literal = literal_of(value)
        assert isinstance(literal, Literal)
        given = pa.scalar(literal.value, literal.type)
        cast = given.cast(type_)
        if cast.cast(given.type).equals(given):
            return literal_of(cast)
    except (pa.ArrowException, InvalidExpressionError):
        pass
    raise InvalidPredicateError(reason=f"{value!r} is not held by {type_}")
