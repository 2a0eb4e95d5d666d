"""Pure. Conditions given as `(column, op, value)` triples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.conditions.nodes import (
    Column,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Node,
    Not,
    StartsWith,
    between,
)
from lakehouse_source.language.tree.constants import literal


def _compare(op: str) -> Callable[[Column, Any], Node]:
    return lambda column, value: Compare(column, op, literal(value))


def _text(kind: Callable[[Column, Any], Node]) -> Callable[[Column, Any], Node]:
    return lambda column, value: kind(column, literal(value))


def _not(build: Callable[[Column, Any], Node]) -> Callable[[Column, Any], Node]:
    return lambda column, value: Not(build(column, value))


def _in(column: Column, values: Any) -> Node:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidPredicateError(reason=f"IN on {column} takes a list of values, not {values!r}")
    return In(column, tuple(literal(value) for value in values))


def _between(column: Column, value: Any) -> Node:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InvalidPredicateError(reason=f"BETWEEN on {column} takes two values, not {value!r}")
    return between(column, literal(value[0]), literal(value[1]))


def _null(column: Column, value: Any) -> Node:
    if value is not None:
        raise InvalidPredicateError(reason=f"IS NULL on {column} takes no value, not {value!r}")
    return IsNull(column)


def _is(column: Column, value: Any) -> Node:
    return IsNull(column) if value is None else Compare(column, "<=>", literal(value))


_BUILDERS: dict[str, Callable[[Column, Any], Node]] = {
    **{op: _compare(op) for op in ("=", "!=", "<", "<=", ">", ">=", "<=>")},
    "==": _compare("="),
    "<>": _compare("!="),
    "in": _in,
    "not in": _not(_in),
    "between": _between,
    "not between": _not(_between),
    "is null": _null,
    "is not null": _not(_null),
    "is": _is,
    "is not": _not(_is),
    "like": _text(Like),
    "not like": _not(_text(Like)),
    "startswith": _text(StartsWith),
    "starts with": _text(StartsWith),
    "endswith": _text(EndsWith),
    "ends with": _text(EndsWith),
    "contains": _text(Contains),
}


def _operator(text: Any) -> str | None:
    if not isinstance(text, str):
        return None
    return " ".join(text.lower().replace("_", " ").split())


def is_triple(value: Any) -> bool:
    """Tell a `(column, op, value)` triple from a list of conditions.

    A triple with a misspelt operator is a triple too, so that the error names the
    operator.
    """
    if not isinstance(value, (list, tuple)) or len(value) not in (2, 3):
        return False
    column, op = value[0], value[1]
    if _operator(op) in _BUILDERS:
        return isinstance(column, (str, Column)) or _is_path(column)
    # A list of texts is a list of SQL conditions, as is what follows another triple.
    texts = isinstance(value, list) and all(isinstance(part, str) for part in value)
    path = _is_path(column) and not is_triple(column)
    return isinstance(op, str) and not texts and (isinstance(column, (str, Column)) or path)


def _is_path(column: Any) -> bool:
    return (
        isinstance(column, (list, tuple))
        and bool(column)
        and all(isinstance(part, str) for part in column)
    )


def from_triple(triple: Any) -> Node:
    column = Column.of(triple[0])
    op = _operator(triple[1])
    build = _BUILDERS.get(op or "")
    if build is None or (len(triple) == 2 and op not in ("is null", "is not null")):
        raise InvalidPredicateError(
            reason=f"{triple!r} is not a (column, op, value) triple; operators: "
            + ", ".join(_BUILDERS)
        )
    return build(column, triple[2] if len(triple) == 3 else None)
