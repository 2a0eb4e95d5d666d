"""Pure. The nodes of an expression, as SQL text spells them; nothing is bound yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.language.tree.constants import spell as spell_value
from lakehouse_source.language.tree.moments import date_text, timestamp_text


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of one of Spark's types. Dates and timestamps are counts of days or microseconds."""

    value: Any
    type: pa.DataType

    def __str__(self) -> str:
        return _spell_literal(self.value, self.type)


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
    """A column or a field of one, with or without a qualifier before it, as written."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.parts)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function, by its lower-case name."""

    name: str
    arguments: tuple[Node, ...]

    def __str__(self) -> str:
        return _spell_call(self.name, [str(argument) for argument in self.arguments])


@dataclass(frozen=True, slots=True)
class Cast:
    """`CAST(value AS to)`; `safe` is TRY_CAST, which gives NULL instead of an error."""

    value: Node
    to: pa.DataType
    safe: bool = False

    def __str__(self) -> str:
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
    """A part of a text, from `position` on, that is not supported. No other tree has one."""

    text: str
    reason: str
    position: int

    def __str__(self) -> str:
        return self.text


Node: TypeAlias = Literal | Interval | Name | Call | Cast | Case | Refused

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
# The same comparison with its sides exchanged, and what is TRUE where one is FALSE.
FLIPPED = {**{op: op for op in COMPARISONS}, "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def below(node: Node) -> tuple[Node, ...]:
    """The nodes directly below a node."""
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Cast):
        return (node.value,)
    if isinstance(node, Case):
        return (*(part for branch in node.branches for part in branch), node.otherwise)
    return ()


def names(node: Node) -> list[Name]:
    """Every name in a node, in the order of the text, each once."""
    found: dict[Name, None] = {}
    waiting = [node]
    while waiting:
        top = waiting.pop()
        if isinstance(top, Name):
            found[top] = None
        waiting += reversed(below(top))
    return list(found)


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
    """The node with another one in place of each that is equal to `old`."""
    return mapped(node, lambda one: new if one == old else one)


# --- spelling ---------------------------------------------------------------

_TYPE_NAMES = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}
_SUFFIXES = {pa.int8(): "Y", pa.int16(): "S", pa.int32(): "", pa.int64(): "L"}


def spark_name(type_: pa.DataType) -> str:
    """A type as Spark SQL names it; Arrow's name for types that Spark lacks."""
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    return _TYPE_NAMES.get(type_, str(type_))


def _spell_literal(value: Any, type_: pa.DataType) -> str:
    if value is None:
        return "NULL" if pa.types.is_null(type_) else f"CAST(NULL AS {spark_name(type_)})"
    if type_ in _SUFFIXES:
        return f"{value}{_SUFFIXES[type_]}"
    if pa.types.is_decimal(type_):
        return f"{value:f}BD"
    if pa.types.is_float32(type_):
        return f"CAST('{value!r}' AS FLOAT)"
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        # The count has no text of its own within all years: a typed value says both.
        return f"{spark_name(type_)} '{spell_moment(value, type_)}'"
    return spell_value(value)


def spell_moment(count: int, type_: pa.DataType) -> str:
    """A count of days, or of microseconds on a wall clock or in UTC, as text that Spark reads."""
    if pa.types.is_date(type_):
        return date_text(count)
    return timestamp_text(count) + ("+00:00" if type_.tz is not None else "")


_INFIX = {
    *("+", "-", "*", "/", "%", "div", "=", "<=>", "!=", "<", "<=", ">", ">="),
    *("and", "or", "||"),
}


def _spell_call(name: str, arguments: list[str]) -> str:
    if name in _INFIX:
        return "(" + f" {name.upper()} ".join(arguments) + ")"
    if name == "not":
        return f"(NOT {arguments[0]})"
    if name == "negative":
        return f"(- {arguments[0]})"
    if name == "in":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if name in ("like", "ilike"):
        return f"({arguments[0]} {name.upper()} {arguments[1]} ESCAPE {arguments[2]})"
    if name == "rlike":
        return f"({arguments[0]} RLIKE {arguments[1]})"
    return f"{name}({', '.join(arguments)})"
