"""Pure. The nodes of a condition and its literals as written, before a schema is known.

    a = 1, a <> 1, a < 1, a <=> 1   Compare
    a IN (1, 2, NULL)               In
    a IS NULL                       IsNull
    a LIKE 'p%'                     Like, StartsWith, EndsWith, Contains
    AND, OR, NOT, TRUE, NULL        And, Or, Not, Constant
    other SQL                       SqlExpression
    an Arrow expression             ArrowExpression

`str` of a node is SQL that parses to the same condition. An Arrow expression has no
such text: it prints as Arrow prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.conditions.arrow_expressions import (
    NotUnderstood,
    read,
    top_level_names,
)
from lakehouse_source.language.tree import nodes as expressions
from lakehouse_source.language.tree.constants import Literal, spell
from lakehouse_source.language.tree.find_path import find_path
from lakehouse_source.language.tree.nodes import COMPARISONS, names
from lakehouse_source.schema import fields as schemas


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the names from the top level down.

    `dotted`: one text that may be the name of a top-level column with dots in
    it or a path of names; the schema decides, the longest name first. `sql`: the conjunct of
    an SQL text in which it stands: there, what does not compare as it is, is cast as Spark does.
    """

    path: tuple[str, ...]
    dotted: bool = False
    sql: SqlExpression | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, name: str | tuple[str, ...] | list[str] | Column) -> Column:
        """A column from dotted text, a sequence of names or a column."""
        if isinstance(name, Column):
            return name
        if isinstance(name, str):
            return cls((name,), dotted="." in name)
        if name and all(isinstance(part, str) for part in name):
            return cls(tuple(name))
        raise InvalidPredicateError(reason=f"{name!r} is not the name of a column")

    def __str__(self) -> str:
        parts = self.path[0].split(".") if self.dotted else self.path
        return ".".join(_quoted(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op value`; a value of None is NULL."""

    column: Column
    op: str
    value: Literal | None

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise InvalidPredicateError(
                reason=f"{self.op!r} is not a comparison; known: {', '.join(COMPARISONS)}"
            )

    def __str__(self) -> str:
        return f"{self.column} {self.op} {spell(self.value)}"


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`; None among the values is NULL."""

    column: Column
    values: tuple[Literal | None, ...]

    def __str__(self) -> str:
        if not self.values:
            return "FALSE"
        return f"{self.column} IN ({', '.join(spell(value) for value in self.values)})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`. Like `<=>` it is TRUE or FALSE on every row, never NULL."""

    column: Column

    def __str__(self) -> str:
        return f"{self.column} IS NULL"


@dataclass(frozen=True, slots=True)
class _TextTest:
    column: Column
    text: str | bytes | None

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({self.column}, {spell(self.text)})"


class StartsWith(_TextTest):
    """`startswith(column, text)`."""

    __slots__ = ()


class EndsWith(_TextTest):
    """`endswith(column, text)`."""

    __slots__ = ()


class Contains(_TextTest):
    """`contains(column, text)`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Like:
    """`column LIKE pattern`: `%` is any text, `_` one character, `escape` quotes both."""

    column: Column
    pattern: str | None
    escape: str = "\\"

    def __str__(self) -> str:
        tail = "" if self.escape == "\\" else f" ESCAPE {spell(self.escape)}"
        return f"{self.column} LIKE {spell(self.pattern)}{tail}"


@dataclass(frozen=True, slots=True)
class And:
    """Every term holds. Without terms it is TRUE."""

    terms: tuple[Node, ...]

    def __str__(self) -> str:
        return " AND ".join(_inside(term, Or) for term in self.terms) or "TRUE"


@dataclass(frozen=True, slots=True)
class Or:
    """At least one term holds. Without terms it is FALSE."""

    terms: tuple[Node, ...]

    def __str__(self) -> str:
        return " OR ".join(_inside(term, Or) for term in self.terms) or "FALSE"


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT term`; NULL stays NULL."""

    term: Node

    def __str__(self) -> str:
        if isinstance(self.term, IsNull):
            return f"{self.term.column} IS NOT NULL"
        return f"NOT ({self.term})"


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or (None) NULL."""

    value: bool | None

    def __str__(self) -> str:
        return spell(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class ArrowExpression:
    """An Arrow expression. Arrow's own rules decide on which rows it is true."""

    expression: pc.Expression

    def __eq__(self, other: object) -> bool:
        # `==` of expressions makes a new expression.
        return isinstance(other, ArrowExpression) and self.expression.equals(other.expression)

    def __hash__(self) -> int:
        return hash(str(self.expression))

    def __str__(self) -> str:
        return str(self.expression)


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """An SQL condition that is no comparison of a column with literals: `year(day) = 2024`.

    `written` is its SQL where that is a whole text.
    """

    root: expressions.Node
    written: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        """Its SQL."""
        return self.written or str(self.root)

    def __str__(self) -> str:
        return self.text


Node: TypeAlias = (
    Compare
    | In
    | IsNull
    | StartsWith
    | EndsWith
    | Contains
    | Like
    | And
    | Or
    | Not
    | Constant
    | ArrowExpression
    | SqlExpression
)
NODES = (
    *(Compare, In, IsNull, StartsWith, EndsWith, Contains, Like),
    *(And, Or, Not, Constant, ArrowExpression, SqlExpression),
)


def leaves(node: Node) -> Iterator[Node]:
    """The parts of a condition below AND, OR and NOT, constants left out."""
    if isinstance(node, (And, Or)):
        for term in node.terms:
            yield from leaves(term)
    elif isinstance(node, Not):
        yield from leaves(node.term)
    elif not isinstance(node, Constant):
        yield node


def missing_columns(node: Node, schema: pa.Schema) -> set[str]:
    """The top-level names of columns in a condition that the schema does not have."""
    return set().union(*(_missing(leaf, schema) for leaf in leaves(node)))


def _missing(leaf: Node, schema: pa.Schema) -> set[str]:
    if isinstance(leaf, ArrowExpression):
        try:
            return set(top_level_names(read(leaf.expression))) - set(schema.names)
        except NotUnderstood:
            return set()
    if isinstance(leaf, SqlExpression):
        paths = [(name.parts, False) for name in names(leaf.root)]
    else:
        column = _column(leaf)
        paths = [] if column is None else [(column.path, column.dotted)]
    known = schemas.indexed(schema)
    return {path[0] for path, dotted in paths if find_path(known, path, dotted) is None}


def origin(node: Node) -> SqlExpression | None:
    """The conjunct of an SQL text that a node was read from; None: it was not."""
    columns = [_column(leaf) for leaf in leaves(node)]
    found = [None if column is None else column.sql for column in columns]
    return found[0] if found and all(one is found[0] for one in found) else None


def _column(leaf: Node) -> Column | None:
    return getattr(leaf, "column", None)


def between(column: Column, low: Literal | None, high: Literal | None) -> Node:
    """`column BETWEEN low AND high`."""
    return And((Compare(column, ">=", low), Compare(column, "<=", high)))


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that SQL does not read as the name of a column.
_WORDS = re.compile(
    r"(?i:all|and|any|as|between|by|case|cast|date|day|distinct|else|end|escape|exists|false|from|"
    r"hour|ilike|in|interval|is|like|month|not|null|on|or|order|regexp|rlike|select|some|then|time|"
    r"timestamp|true|using|values|when|where|with|year)\Z"
)


def _quoted(name: str) -> str:
    if _PLAIN.match(name) and not _WORDS.match(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def _inside(node: Node, *looser: type) -> str:
    bare = isinstance(node, SqlExpression) and node.written
    return f"({node})" if bare or isinstance(node, (*looser, And)) else str(node)
