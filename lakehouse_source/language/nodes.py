"""Pure. The nodes of an unbound expression, made of texts or in Python, and their SQL.

SQL texts, triples, Arrow expressions and Spark's filters become these nodes. `str` of a node is SQL
for the same condition. An Arrow expression has no SQL: it prints as in Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import values as constants
from lakehouse_source.language.types import (
    INSTANT,
    INTEGERS,
    MAX_PRECISION,
    WALL,
    decimal_of_digits,
    is_atomic,
    spark_name,
)
from lakehouse_source.language.values import READ_TYPED, check_count
from lakehouse_source.language.values import render as render_value
from lakehouse_source.schema.json_values import plain
from lakehouse_source.schema.ordinal import EPOCH_DATE, instant_ns
from lakehouse_source.schema.texts import date_text, timestamp_text

# --- Parts of expressions as SQL.


# How strongly operators bind, as in Spark's grammar. What is no operator is an atom.
LEVELS = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("=", "<=>", "!=", "<", "<=", ">", ">="), 4),
    **dict.fromkeys(("in", "like", "ilike", "rlike", "isnull"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "%", "div"), 6),
    "negative": 7,
}
ATOM = 8
_SUFFIXES = {pa.int8(): "Y", pa.int16(): "S", pa.int32(): "", pa.int64(): "L"}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that SQL does not read as the name of a column.
_WORDS = re.compile(
    r"(?i:all|and|any|as|between|by|case|cast|current_date|current_timestamp|distinct|div|else|end|"
    r"escape|exists|false|from|ilike|in|interval|is|like|not|null|on|or|order|regexp|rlike|select|"
    r"some|then|true|try_cast|using|values|when|where|with)\Z"
)


def render_name(parts: Sequence[str]) -> str:
    """A column by its names, in backquotes where SQL needs them."""
    return ".".join(map(_quoted, parts))


def _quoted(name: str) -> str:
    if _PLAIN.match(name) and not _WORDS.match(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def render_literal(value: Any, type_: pa.DataType) -> str:
    """A value of one of Spark's types."""
    if value is None:
        known = pa.types.is_null(type_) or pa.types.is_boolean(type_)
        return "NULL" if known else f"CAST(NULL AS {spark_name(type_)})"
    if type_ in _SUFFIXES:
        is_long = type_ == pa.int64() and not -(1 << 31) <= value < 1 << 31
        return str(value) if is_long else f"{value}{_SUFFIXES[type_]}"
    if pa.types.is_decimal(type_):
        text = f"{value:f}"
        return text if "." in text and decimal_of_digits(value) == type_ else f"{text}BD"
    if pa.types.is_float32(type_):
        return f"CAST('{value!r}' AS FLOAT)"
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        # The count has no text of its own within all years: a typed value says both.
        return f"{spark_name(type_)} '{render_moment(value, type_)}'"
    return render_value(value)


def render_moment(count: int, type_: pa.DataType) -> str:
    """A count of days, or of microseconds on a wall clock or in UTC, as text that Spark reads."""
    if pa.types.is_date(type_):
        return date_text(count)
    return timestamp_text(count) + ("+00:00" if type_.tz is not None else "")


def render_typed(text: str, type_: pa.DataType) -> str | None:
    """A text after the name of its type: `DATE '2024-01-01'`; None: the type has no such form."""
    try:
        if type_ not in READ_TYPED or READ_TYPED[type_](text) is None:
            return None
    except ValueError:
        return None
    return f"{spark_name(type_)} {render_value(text)}"


def render_call(name: str, arguments: list[tuple[str, int]]) -> str:
    """An operator or a function; `arguments` are texts and how strongly each binds."""
    level = LEVELS.get(name)
    if level is None or (name == "isnull" and len(arguments) != 1):
        return f"{name}({', '.join(text for text, _ in arguments)})"
    first, own = arguments[0]
    if name == "not":
        is_null = own == LEVELS["isnull"] and first.endswith(" IS NULL")
        return first[: -len("NULL")] + "NOT NULL" if is_null else f"NOT ({first})"
    if name == "negative":
        return f"-({first})"
    # An operator of the same level on the left needs no parentheses, except in comparisons.
    left = first if own > level or (own == level and level > 4) else f"({first})"
    if name == "isnull":
        return f"{left} IS NULL"
    if name == "in":
        values = ", ".join(text for text, _ in arguments[1:])
        return f"{left} IN ({values})" if values else "FALSE"
    others = [text if own > level else f"({text})" for text, own in arguments[1:]]
    if name in ("like", "ilike"):
        escape = "" if arguments[2][0] == r"'\\'" else f" ESCAPE {arguments[2][0]}"
        return f"{left} {name.upper()} {others[0]}{escape}"
    return f" {name.upper()} ".join([left, *others])


# --- The nodes of an unbound expression; a condition is a boolean expression.
#
# SQL texts, triples, Arrow expressions and Spark's filters become these nodes. `str` of a node is
# SQL for the same condition. An Arrow expression has no SQL: it prints as in Arrow.


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of one of Spark's types. Dates and timestamps are counts of days or microseconds."""

    value: Any
    type: pa.DataType

    def __str__(self) -> str:
        return render_literal(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Value:
    """A value without an SQL type, or the values of an IN, for a comparison without a cast.

    So a column is compared with values that no SQL literal has, such as nanoseconds; text is not
    cast.
    """

    value: constants.Literal | tuple[constants.Literal | None, ...] | None

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return ", ".join(map(render_value, self.value))
        return render_value(self.value)


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
        return render_name(self.parts[0].split(".") if self.dotted else self.parts)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function, by its lower-case name."""

    name: str
    arguments: tuple[Node, ...]

    def __str__(self) -> str:
        return render_call(self.name, [(str(one), _level(one)) for one in self.arguments])


@dataclass(frozen=True, slots=True)
class Cast:
    """`CAST(value AS to)`; `safe` is TRY_CAST, which gives NULL instead of an error."""

    value: Node
    to: pa.DataType
    safe: bool = False

    def __str__(self) -> str:
        if isinstance(self.value, Literal) and isinstance(self.value.value, str) and not self.safe:
            typed = render_typed(self.value.value, self.to)
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


# --- Python values as literals.


def literal_of(value: Any) -> Node:
    """A Python value, or a scalar of Arrow or NumPy, as a literal.

    Integers are INT or BIGINT, floats DOUBLE, datetimes TIMESTAMP or (without a time zone)
    TIMESTAMP_NTZ.

    Raises:
        InvalidExpressionError: no type of Spark holds the value.
    """
    if isinstance(value, pa.Scalar):
        if not is_atomic(value.type) and not pa.types.is_null(value.type):
            raise InvalidExpressionError(reason=f"{value!r} is not supported as a literal")
        if not value.is_valid:
            return Literal(None, value.type)
        if pa.types.is_temporal(value.type):
            return Literal(value.value, value.type)
        return Literal(value.as_py(), value.type)
    of_numpy = type(value).__module__ == "numpy" and hasattr(value, "dtype")
    if of_numpy and value.dtype.kind not in "mM" and not value.ndim:
        return literal_of(pa.scalar(value))  # of its own width
    try:
        value = plain(value)
    except ValueError as error:
        raise InvalidExpressionError(reason=f"{value!r} {error}") from None
    if value is None:
        return Literal(None, pa.null())
    if isinstance(value, bool):
        return Literal(value, pa.bool_())
    if isinstance(value, int):
        return integer_literal(int(value))
    if isinstance(value, float):
        return Literal(float(value), pa.float64())
    if isinstance(value, str):
        return Literal(str(value), pa.string())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Literal(bytes(value), pa.binary())
    if isinstance(value, Decimal) and value.is_finite():
        return decimal_literal(value)
    if isinstance(value, datetime):
        micros, rest = divmod(instant_ns(value), 1000)
        if value == value and not rest:
            return Literal(micros, WALL if value.tzinfo is None else INSTANT)
    elif isinstance(value, date):
        return Literal((value - EPOCH_DATE).days, pa.date32())
    elif isinstance(value, timedelta):
        raise InvalidExpressionError(reason="write an interval as SQL: INTERVAL '1' DAY")
    raise InvalidExpressionError(
        reason=f"{value!r} ({type(value).__name__}) is not supported as a literal"
    )


def integer_literal(value: int) -> Literal:
    """An INT, a BIGINT or a decimal.

    Raises:
        InvalidExpressionError: the number has too many digits.
    """
    for type_ in INTEGERS[2:]:
        bound = 1 << (type_.bit_width - 1)
        if -bound <= value < bound:
            return Literal(value, type_)
    return decimal_literal(Decimal(value))


def decimal_literal(value: Decimal) -> Literal:
    """A DECIMAL with the written number of digits.

    Raises:
        InvalidExpressionError: there are too many digits.
    """
    type_ = decimal_of_digits(value)
    if type_ is None:
        raise InvalidExpressionError(reason=f"{value} has more than {MAX_PRECISION} digits")
    return Literal(value, type_)


# --- Conditions made in Python, of columns and of values that are compared without a cast.


def constant(value: bool | None) -> Node:
    """TRUE, FALSE or (None) NULL."""
    return Literal(value, pa.bool_())


def compare(column: Name, op: str, value: constants.Literal | None) -> Node:
    """`column op value`; a value of None is NULL.

    Raises:
        InvalidPredicateError: `op` is not a comparison.
    """
    if op not in COMPARISONS:
        raise InvalidPredicateError(
            reason=f"{op!r} is not a comparison; known: {', '.join(COMPARISONS)}"
        )
    return Call(op, (column, Value(value)))


def is_in(column: Name, values: Iterable[constants.Literal | None]) -> Node:
    """`column IN (values)`; None among the values is NULL."""
    given = tuple(values)
    check_count(len(given))
    return Call("in", (column, Value(given)))


def is_null(column: Name) -> Node:
    """`column IS NULL`. Like `<=>` it is TRUE or FALSE on every row, never NULL."""
    return Call("isnull", (column,))


def matches(form: str, column: Name, text: str | bytes | None) -> Node:
    """`startswith(column, text)`, `endswith` or `contains`, by the form."""
    return Call(form, (column, Value(text)))


def like(column: Name, pattern: str | None, escape: str = "\\") -> Node:
    """`column LIKE pattern`: `%` is any text, `_` one character, `escape` quotes both."""
    return Call("like", (column, Value(pattern), Literal(escape, pa.string())))


def all_of(terms: Sequence[Node]) -> Node:
    """Every term holds. Without terms it is TRUE."""
    return joined("and", terms) if terms else constant(True)


def any_of(terms: Sequence[Node]) -> Node:
    """At least one term holds. Without terms it is FALSE."""
    return joined("or", terms) if terms else constant(False)


def negated(term: Node) -> Node:
    """`NOT term`; NULL stays NULL."""
    return Call("not", (term,))
