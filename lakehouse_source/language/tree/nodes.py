"""Pure. The nodes of an unbound expression; a condition is a boolean expression.

SQL texts, triples, Arrow expressions and Spark's filters become these nodes. `str` of a node is SQL
for the same condition. An Arrow expression has no SQL: it prints as in Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.tree import constants
from lakehouse_source.language.tree.spelling import (
    ATOM,
    LEVELS,
    spell_call,
    spell_literal,
    spell_name,
    spell_typed,
)
from lakehouse_source.language.tree.types import spark_name


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of one of Spark's types. Dates and timestamps are counts of days or microseconds."""

    value: Any
    type: pa.DataType

    def __str__(self) -> str:
        return spell_literal(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Value:
    """A value without an SQL type, or the values of an IN, for a comparison without a cast.

    So a column is compared with values that no SQL literal has, such as nanoseconds; text is not
    cast.
    """

    value: constants.Literal | tuple[constants.Literal | None, ...] | None

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return ", ".join(constants.spell(one) for one in self.value)
        return constants.spell(self.value)


@dataclass(frozen=True, slots=True)
class Interval:
    """A day-time interval. `whole_days`: its unit is the day, so date + interval is a date."""

    microseconds: int
    whole_days: bool

    def __str__(self) -> str:
        if self.whole_days:
            return f"INTERVAL '{self.microseconds // (86_400 * 10**6)}' DAY"
        return f"INTERVAL '{Decimal(self.microseconds).scaleb(-6):f}' SECOND"


@dataclass(frozen=True, slots=True)
class Name:
    """A column or nested field as written, with or without a qualifier.

    `dotted`: the only part is either the name of a top-level column, with dots in it, or a path of
    names; the schema decides, the longest name first.
    """

    parts: tuple[str, ...]
    dotted: bool = False

    @classmethod
    def of(cls, name: str | tuple[str, ...] | list[str] | Name) -> Name:
        """A column from dotted text, a sequence of names or a name."""
        if isinstance(name, Name):
            return name
        if isinstance(name, str):
            return cls((name,), dotted="." in name)
        if name and all(isinstance(part, str) for part in name):
            return cls(tuple(name))
        raise InvalidPredicateError(reason=f"{name!r} is not the name of a column")

    def __str__(self) -> str:
        return spell_name(self.parts[0].split(".") if self.dotted else self.parts)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function, by its lower-case name."""

    name: str
    arguments: tuple[Node, ...]

    def __str__(self) -> str:
        return spell_call(self.name, [(str(one), _level(one)) for one in self.arguments])


@dataclass(frozen=True, slots=True)
class Cast:
    """`CAST(value AS to)`; `safe` is TRY_CAST, which gives NULL instead of an error."""

    value: Node
    to: pa.DataType
    safe: bool = False

    def __str__(self) -> str:
        if isinstance(self.value, Literal) and isinstance(self.value.value, str) and not self.safe:
            typed = spell_typed(self.value.value, self.to)
            if typed is not None:
                return typed
        word = "TRY_CAST" if self.safe else "CAST"
        return f"{word}({self.value} AS {spark_name(self.to)})"


@dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN condition THEN value … ELSE otherwise END`."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node

    def __str__(self) -> str:
        whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.branches)
        return f"CASE {whens} ELSE {self.otherwise} END"


@dataclass(frozen=True, slots=True)
class Refused:
    """A part of a text, from `position` on, that is not supported. Only texts give such a node."""

    text: str
    reason: str
    position: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Arrow:
    """An Arrow expression. Arrow's own rules decide on which rows it is true."""

    expression: pc.Expression

    def __eq__(self, other: object) -> bool:
        # `==` of expressions makes a new expression.
        return isinstance(other, Arrow) and self.expression.equals(other.expression)

    def __hash__(self) -> int:
        return hash(str(self.expression))

    def __str__(self) -> str:
        return str(self.expression)


@dataclass(frozen=True, slots=True)
class Hint:
    """A condition of an engine that applies it to rows again, and the zone of its wall clocks.

    It only prunes: it is true wherever the condition is, and wherever only rows can tell.
    """

    condition: Node
    zone: str

    def __str__(self) -> str:
        return f"({self.condition})"


Node: TypeAlias = Literal | Value | Interval | Name | Call | Cast | Case | Refused | Arrow | Hint
NODES = (Literal, Value, Interval, Name, Call, Cast, Case, Refused, Arrow, Hint)

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
# The comparison with exchanged sides, and the comparison that is TRUE where this is FALSE.
FLIPPED = {**{op: op for op in COMPARISONS}, "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def joined(name: str, terms: Sequence[Node]) -> Node:
    """Terms of an AND or an OR: one term stays itself, several become one flat call."""
    if len(terms) == 1:
        return terms[0]
    flat: list[Node] = []
    for term in terms:
        flat += term.arguments if isinstance(term, Call) and term.name == name else (term,)
    return Call(name, tuple(flat))


def below(node: Node) -> tuple[Node, ...]:
    """The nodes directly below a node."""
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Cast):
        return (node.value,)
    if isinstance(node, Case):
        return (*(part for branch in node.branches for part in branch), node.otherwise)
    return ()


def walk(node: Node) -> list[Node]:
    """A node and every one below it, in the order of the text."""
    found, waiting = list[Node](), [node]
    while waiting:
        top = waiting.pop()
        found.append(top)
        waiting += reversed(below(top))
    return found


def names(node: Node) -> list[Name]:
    """Every name in a node, in the order of the text, each once."""
    return list(dict.fromkeys([one for one in walk(node) if isinstance(one, Name)]))


def with_below(node: Node, parts: tuple[Node, ...]) -> Node:
    """The node with other nodes below it, in the order of `below`."""
    if isinstance(node, Call):
        return Call(node.name, parts)
    if isinstance(node, Cast):
        return Cast(parts[0], node.to, node.safe)
    if isinstance(node, Case):
        pairs = tuple(zip(parts[:-1:2], parts[1:-1:2]))
        return Case(pairs, parts[-1])
    return node


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with `change` made to each part of it, from the leaves up."""
    parts = below(node)
    return change(with_below(node, tuple(mapped(part, change) for part in parts)))


def replaced(node: Node, old: Node, new: Node) -> Node:
    """The node with each node that equals `old` replaced by another one."""
    return mapped(node, lambda one: new if one == old else one)


def _level(node: Node) -> int:
    """How strongly the outermost operator of a node binds."""
    if isinstance(node, Literal):
        return ATOM if str(node)[0] != "-" else LEVELS["negative"]
    return LEVELS.get(node.name, ATOM) if isinstance(node, Call) else ATOM
