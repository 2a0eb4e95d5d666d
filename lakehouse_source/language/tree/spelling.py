"""Pure. Parts of expressions as SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lakehouse_source.language.tree.constants import spell as spell_value
from lakehouse_source.language.tree.moments import (
    parse_date,
    parse_time,
    parse_timestamp,
)
from lakehouse_source.language.tree.types import INSTANT, WALL, decimal_of_digits, spark_name
from lakehouse_source.schema.moment_texts import date_text, timestamp_text

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
# The types that may stand before a text, and the function that reads each: a text that the type
# does not have is not a literal.
READ_TYPED: dict[pa.DataType, Callable[[str], Any]] = {
    pa.date32(): parse_date,
    pa.time64("us"): parse_time,
    INSTANT: parse_timestamp,
    WALL: parse_timestamp,
}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that SQL does not read as the name of a column.
_WORDS = re.compile(
    r"(?i:all|and|any|as|between|by|case|cast|current_date|current_timestamp|distinct|div|else|end|"
    r"escape|exists|false|from|ilike|in|interval|is|like|not|null|on|or|order|regexp|rlike|select|"
    r"some|then|true|try_cast|using|values|when|where|with)\Z"
)


def spell_name(parts: Sequence[str]) -> str:
    """A column by its names, in backquotes where SQL needs them."""
    return ".".join(map(_quoted, parts))


def _quoted(name: str) -> str:
    if _PLAIN.match(name) and not _WORDS.match(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def spell_literal(value: Any, type_: pa.DataType) -> str:
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
        return f"{spark_name(type_)} '{spell_moment(value, type_)}'"
    return spell_value(value)


def spell_moment(count: int, type_: pa.DataType) -> str:
    """A count of days, or of microseconds on a wall clock or in UTC, as text that Spark reads."""
    if pa.types.is_date(type_):
        return date_text(count)
    return timestamp_text(count) + ("+00:00" if type_.tz is not None else "")


def spell_typed(text: str, type_: pa.DataType) -> str | None:
    """A text after the name of its type: `DATE '2024-01-01'`; None: the type has no such form."""
    try:
        if type_ not in READ_TYPED or READ_TYPED[type_](text) is None:
            return None
    except ValueError:
        return None
    return f"{spark_name(type_)} {spell_value(text)}"


def spell_call(name: str, arguments: list[tuple[str, int]]) -> str:
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
