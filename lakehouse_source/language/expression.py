"""Pure. SQL expressions with Spark's meaning, evaluated over Arrow tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError
from lakehouse_source.language.bind import Binder, Scope, load
from lakehouse_source.language.functions.rows import Bound, Key, Rows, flat
from lakehouse_source.language.nodes import Call, Literal, Name, Node, literal_of, mapped, names
from lakehouse_source.language.parse import parse
from lakehouse_source.language.types import spark_name

# --- SQL expressions with Spark's meaning, evaluated over Arrow tables in memory.
#
# The meaning is that of Spark 4 in ANSI mode: an overflow, a division by zero and a cast that is
# not possible are errors; NULL is unknown; parts that a row does not need are not evaluated there.
# Functions that are not exact are refused.
#
#     scope = Scope({"target": flights.schema, "source": changes.schema})
#     bound = Expression.parse("target.delay + source.delay / 2").bind(scope)
#     values = bound.evaluate({"target": flights, "source": changes}, flights.num_rows)
#
# There is one exception: a cast of FLOAT or DOUBLE to STRING or DECIMAL, and `round`, use the
# shortest digits, as Java 19 and later do; older versions sometimes print one more digit.


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that is not bound to tables yet."""

    root: Node
    text: str

    @classmethod
    def parse(cls, text: str) -> Expression:
        """The expression in SQL text.

        Raises:
            InvalidExpressionError: the text is not an expression, or is not supported.
        """
        return cls(parse(text), text)

    @classmethod
    def of(cls, value: Any) -> Expression:
        """SQL text, or any other Python value as a literal.

        Raises:
            InvalidExpressionError: the text is not an expression, or no Spark type holds the value.
        """
        if isinstance(value, Expression):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        root = literal_of(value)
        return cls(root, str(root))

    def bind(self, scope: Scope) -> BoundValue:
        """The expression over tables of the scope's schemas.

        Raises:
            InvalidExpressionError: a name or function is not known, or types do not fit.
        """
        binder = Binder(scope)
        if isinstance(self.root, Name):
            # A plain column keeps its stored type.
            found = scope.find(self.root)
            column = ((found.qualifier, found.path[0].name),)
            return BoundValue(found.type, column, None, found.key)
        try:
            bound = binder.bind(self.root)
        except RecursionError:
            raise InvalidExpressionError(reason="it is nested too deeply", text=self.text) from None
        return BoundValue(bound.type, tuple(binder.columns), bound, None)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """The names of columns as written, with their parts from left to right.

        Only a scope knows whether the first part is a qualifier.
        """
        return tuple(name.parts for name in names(self.root))

    def __str__(self) -> str:
        return self.text


# Rows are evaluated in slices of this many, which bounds the memory of intermediate values.
_SLICE_ROWS = 1 << 16
_SLICE_BYTES = 1 << 29


@dataclass(frozen=True, slots=True, eq=False)
class BoundValue:
    """An expression that is bound to a scope.

    `columns` are the qualifiers and top-level columns that it reads.
    """

    type: pa.DataType
    columns: tuple[tuple[str, str], ...]
    _root: Bound | None
    _key: Key | None

    def evaluate(self, tables: Mapping[str, pa.Table], rows: int) -> pa.ChunkedArray:
        """One value for each row. Row *i* of each table belongs to row *i* of the others.

        `tables` are by the scope's qualifiers and hold the columns of `columns` at least.

        Raises:
            InvalidExpressionError: a value has no result, as in an overflow.
        """
        columns = {name: tables[name[0]].column(name[1]) for name in self.columns}
        if self._root is None:
            assert self._key is not None
            return load(columns[self.columns[0]], self._key)
        nbytes = sum(column.nbytes for column in columns.values())
        step = max(1, min(_SLICE_ROWS, rows * _SLICE_BYTES // max(nbytes, 1)))
        run, found = self._root.run, []
        for start in range(0, rows, step):
            part = {name: column.slice(start, step) for name, column in columns.items()}
            found.append(run(Rows(min(step, rows - start), _loader(part))))
        return pa.chunked_array(found, self.type)


def _loader(part: Mapping[tuple[str, str], pa.ChunkedArray]) -> Callable[[Key], pa.Array]:
    return lambda key: flat(load(part[key[0], key[1]], key))


def mask(bound: BoundValue, tables: Mapping[str, pa.Table], rows: int) -> pa.ChunkedArray:
    """True on the rows where a condition is TRUE, false on the others.

    Raises:
        InvalidExpressionError: it is not a condition, or a value has no result.
    """
    require_condition(bound)
    found = bound.evaluate(tables, rows)
    return pc.fill_null(found.cast(pa.bool_()), False)


def require_condition(bound: BoundValue) -> None:
    """Refuse an expression that is not BOOLEAN.

    Raises:
        InvalidExpressionError: it is of another type.
    """
    if not (pa.types.is_boolean(bound.type) or pa.types.is_null(bound.type)):
        raise InvalidExpressionError(
            reason=f"a condition is BOOLEAN, and this one is {spark_name(bound.type)}"
        )


# --- conditions taken apart -------------------------------------------------


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The terms of the outermost AND; the expression itself if it is not an AND."""
    found, waiting = [], [expression.root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Call) and node.name == "and":
            waiting += reversed(node.arguments)
        else:
            found.append(node)
    if len(found) == 1:
        return (expression,)
    return tuple(Expression(node, str(node)) for node in found)


def qualifiers(expression: Expression, scope: Scope) -> frozenset[str]:
    """The qualifiers, as the scope writes them, of all columns that an expression reads.

    Raises:
        InvalidExpressionError: a name is not known.
    """
    return frozenset(scope.find(name).qualifier for name in names(expression.root))


def only_of(expression: Expression, scope: Scope, qualifier: str) -> bool:
    """Tell whether an expression reads no column of another qualifier.

    Raises:
        InvalidExpressionError: a name is not known.
    """
    return all(found.lower() == qualifier.lower() for found in qualifiers(expression, scope))


# --- An SQL condition that is evaluated on the rows of one table.
#
# It can be pickled: a condition that is bound to a schema is bound again where rows are read.


_NOW = frozenset({"now", "current_timestamp", "current_date", "curdate"})
_TABLE = ""


@dataclass(frozen=True, eq=False)
class SqlRows:
    """A condition over columns of one table, `fields`; `text` is its SQL.

    `zone` is the time zone of its wall clocks.
    """

    node: Node
    text: str
    fields: pa.Schema
    zone: str

    def equals(self, other: object) -> bool:
        """Tell whether both are the same condition. Their texts tell -0.0 from 0.0."""
        return (
            isinstance(other, SqlRows)
            and (str(self.node), self.zone) == (str(other.node), other.zone)
            and self.fields.equals(other.fields)
        )

    def __str__(self) -> str:
        return self.text

    @property
    def is_true(self) -> bool:
        """Tell whether it is TRUE on every row: its condition only prunes."""
        return isinstance(self.node, Literal) and self.node.value is True

    def __getstate__(self) -> Mapping[str, object]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def matching(self, rows: pa.Table) -> pa.ChunkedArray:
        """True for the rows on which the condition is TRUE, false for the others.

        Raises:
            InvalidExpressionError: the condition has no value on a row, as in an overflow.
        """
        return mask(self._bound(), {_TABLE: rows}, rows.num_rows)

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """TRUE, FALSE or NULL for each row.

        Raises:
            InvalidExpressionError: it has no value on a row.
        """
        return self._bound().evaluate({_TABLE: rows}, rows.num_rows).cast(pa.bool_())

    def _bound(self) -> BoundValue:
        known = self.__dict__.get("_value")
        if known is None:
            known = Expression(self.node, self.text).bind(scope_of(self.fields, self.zone))
            require_condition(known)
            self.__dict__["_value"] = known
        return known


def scope_of(fields: pa.Schema, zone: str, now: datetime | None = None) -> Scope:
    """The scope of a condition on one table."""
    return Scope({_TABLE: fields}, zone, now or datetime.now(timezone.utc))


def at_one_time(node: Node, scope: Scope) -> Node:
    """The node with literals in place of `now()` and the like."""

    def fixed(part: Node) -> Node:
        if not isinstance(part, Call) or part.name not in _NOW or part.arguments:
            return part
        value = Expression(part, str(part)).bind(scope).evaluate({}, 1).combine_chunks()
        count = pa.int32() if pa.types.is_date(value.type) else pa.int64()
        return Literal(value.view(count)[0].as_py(), value.type)

    return mapped(node, fixed)
