"""Pure. The nodes of a condition and its literals as written, before a schema is known.

    a = 1, a <> 1, a < 1, a <=> 1   Compare
    a IN (1, 2, NULL)               In
    a IS NULL                       IsNull
    a LIKE 'p%'                     Like, StartsWith, EndsWith, Contains
    AND, OR, NOT, TRUE, NULL        And, Or, Not, Constant
    an Arrow expression             ArrowExpression

`str` of a node is SQL that parses to the same condition. An Arrow expression has no
such text: it prints as Arrow prints it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.schema.ordinal import (
    EPOCH,
    UNIT_NS,
    YEARS,
    YEARS_DAYS,
    domain,
    instant_ns,
    timedelta_ns,
)

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time to the nanosecond, in any year.

    `zoned`: nanoseconds from the epoch to an instant. Otherwise: nanoseconds from
    1970-01-01 00:00 on a wall clock whose time zone is not known.
    """

    nanoseconds: int
    zoned: bool


Literal: TypeAlias = (
    bool | int | float | Decimal | str | bytes | date | datetime | time | timedelta | Timestamp
)


@dataclass(frozen=True, slots=True)
class Cast:
    """The type that a condition casts a column to, as SQL names it, and the cast as written."""

    kind: str
    parameters: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the names from the top level down.

    `dotted`: one text that may be the name of a top-level column with dots in
    it or a path of names; the schema decides, the longest name first. `cast`: what
    the condition casts the column to before it compares.
    """

    path: tuple[str, ...]
    dotted: bool = False
    cast: Cast | None = None

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
        if self.cast is not None:
            return self.cast.text
        parts = self.path[0].split(".") if self.dotted else self.path
        return ".".join(_quoted(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op value`; a value of None is NULL."""

    column: Column
    op: str
    value: Literal | None

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise InvalidPredicateError(
                reason=f"{self.op!r} is not a comparison; known: {', '.join(OPERATORS)}"
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
class StartsWith:
    """`startswith(column, text)`."""

    column: Column
    text: str | bytes | None

    def __str__(self) -> str:
        return f"startswith({self.column}, {spell(self.text)})"


@dataclass(frozen=True, slots=True)
class EndsWith:
    """`endswith(column, text)`."""

    column: Column
    text: str | bytes | None

    def __str__(self) -> str:
        return f"endswith({self.column}, {spell(self.text)})"


@dataclass(frozen=True, slots=True)
class Contains:
    """`contains(column, text)`."""

    column: Column
    text: str | bytes | None

    def __str__(self) -> str:
        return f"contains({self.column}, {spell(self.text)})"


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
)
NODES = (
    *(Compare, In, IsNull, StartsWith, EndsWith, Contains, Like),
    *(And, Or, Not, Constant, ArrowExpression),
)


def between(column: Column, low: Literal | None, high: Literal | None) -> Node:
    """`column BETWEEN low AND high`."""
    return And((Compare(column, ">=", low), Compare(column, "<=", high)))


# --- literals ---------------------------------------------------------------


def literal(value: Any) -> Literal | None:
    """A value as a literal; scalars of Arrow, NumPy and pandas become Python's.

    Raises:
        InvalidPredicateError: no column can be compared with the value.
    """
    if value is None or type(value) in (bool, int, float, str, bytes, Decimal, Timestamp):
        return value  # type: ignore[no-any-return]
    if isinstance(value, pa.Scalar):
        return _of_scalar(value)
    if isinstance(value, (datetime, timedelta)):
        return _of_temporal(value)
    if isinstance(value, (date, time)):
        return value
    module = type(value).__module__
    if module == "numpy":
        if type(value).__name__ in ("datetime64", "timedelta64"):
            return _of_scalar(pa.scalar(value))
        return literal(value.item())
    if type(value).__name__ == "NAType" and module.startswith("pandas"):
        return None
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    bases: tuple[Any, ...] = (str, int, float, bytes, Decimal)
    for base in bases:
        if isinstance(value, base):
            return base(value)  # type: ignore[no-any-return]
    raise InvalidPredicateError(
        reason=f"{value!r} ({type(value).__name__}) cannot be compared with a column"
    )


def _of_temporal(value: datetime | timedelta) -> Literal | None:
    if value != value:  # pandas' NaT
        return None
    if isinstance(value, timedelta):
        nanoseconds = timedelta_ns(value)
        if nanoseconds % 1000:
            raise InvalidPredicateError(reason=f"{value!r} is finer than a microsecond")
        return timedelta(microseconds=nanoseconds // 1000)
    if getattr(value, "nanosecond", 0):
        zoned = value.tzinfo is not None
        return Timestamp(instant_ns(value), zoned)
    return value


def _of_scalar(scalar: pa.Scalar) -> Literal | None:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return _of_scalar(scalar.value)
    kind = domain(scalar.type)
    if kind.kind == "timestamp":
        return Timestamp(scalar.value * UNIT_NS[scalar.type.unit], kind.zoned)
    if kind.kind in ("time", "duration") and scalar.value * kind.unit_ns % 1000:
        raise InvalidPredicateError(reason=f"{scalar} is finer than a microsecond")
    if not kind.ordered:
        raise InvalidPredicateError(reason=f"a literal of type {scalar.type} cannot be compared")
    return literal(scalar.as_py())


def spell(value: Literal | None) -> str:
    """A literal as SQL."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return f"CAST('{value}' AS DOUBLE)"
        return repr(value) if "e" in repr(value) else f"{value!r}D"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, Timestamp):
        return _spell_timestamp(value)
    if isinstance(value, datetime):
        return _spell_timestamp(Timestamp(instant_ns(value), value.tzinfo is not None))
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, timedelta):
        seconds = Decimal(timedelta_ns(value)).scaleb(-9)
        return f"INTERVAL '{seconds:f}' SECOND"
    return str(value)


def _spell_timestamp(value: Timestamp) -> str:
    seconds, rest = divmod(value.nanoseconds, 10**9)
    cycles, within = divmod(seconds, YEARS_DAYS * 86_400)
    near = EPOCH + timedelta(seconds=within)
    year = near.year + cycles * YEARS
    # Years of other than four digits carry a sign, as Java writes them.
    name = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    text = name + near.isoformat(" ")[4:] + f".{rest:09}".rstrip("0").rstrip(".")
    return f"TIMESTAMP '{text}+00:00'" if value.zoned else f"TIMESTAMP_NTZ '{text}'"


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
    return f"({node})" if isinstance(node, (*looser, And)) else str(node)
