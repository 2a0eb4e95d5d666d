"""Pure. Conditions given as `(column, op, value)` triples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.conditions import build
from lakehouse_source.language.tree.constants import literal
from lakehouse_source.language.tree.nodes import COMPARISONS, Name, Node

Builder = Callable[[Name, Any], Node]


def _compare(op: str) -> Builder:
    return lambda column, value: build.compare(column, op, literal(value))


def _text(form: str) -> Builder:
    return lambda column, value: build.matches(form, column, literal(value))  # type: ignore[arg-type]


def _not(positive: Builder) -> Builder:
    return lambda column, value: build.negated(positive(column, value))


def _like(column: Name, value: Any) -> Node:
    return build.like(column, literal(value))  # type: ignore[arg-type]


def _in(column: Name, values: Any) -> Node:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidPredicateError(reason=f"IN on {column} takes a list of values, not {values!r}")
    return build.is_in(column, (literal(value) for value in values))


def _between(column: Name, value: Any) -> Node:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InvalidPredicateError(reason=f"BETWEEN on {column} takes two values, not {value!r}")
    ends = zip((">=", "<="), value)
    return build.all_of([build.compare(column, op, literal(end)) for op, end in ends])


def _null(column: Name, value: Any) -> Node:
    if value is not None:
        raise InvalidPredicateError(reason=f"IS NULL on {column} takes no value, not {value!r}")
    return build.is_null(column)


_BUILDERS: dict[str, Builder] = {
    **{op: _compare(op) for op in COMPARISONS},
    "==": _compare("="),
    "<>": _compare("!="),
    "in": _in,
    "not in": _not(_in),
    "between": _between,
    "not between": _not(_between),
    "is null": _null,
    "is not null": _not(_null),
    "is": _compare("<=>"),
    "is not": _not(_compare("<=>")),
    "like": _like,
    "not like": _not(_like),
    "startswith": _text("startswith"),
    "starts with": _text("startswith"),
    "endswith": _text("endswith"),
    "ends with": _text("endswith"),
    "contains": _text("contains"),
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
        return isinstance(column, (str, Name)) or _is_path(column)
    # A list of texts is a list of SQL conditions, and so is a list that begins with a triple.
    texts = isinstance(value, list) and all(isinstance(part, str) for part in value)
    path = _is_path(column) and not is_triple(column)
    return isinstance(op, str) and not texts and (isinstance(column, (str, Name)) or path)


def _is_path(column: Any) -> bool:
    return (
        isinstance(column, (list, tuple))
        and bool(column)
        and all(isinstance(part, str) for part in column)
    )


def from_triple(triple: Any) -> Node:
    column = Name.of(triple[0])
    op = _operator(triple[1])
    build = _BUILDERS.get(op or "")
    if build is None or (len(triple) == 2 and op not in ("is null", "is not null")):
        raise InvalidPredicateError(
            reason=f"{triple!r} is not a (column, op, value) triple; operators: "
            + ", ".join(_BUILDERS)
        )
    return build(column, triple[2] if len(triple) == 3 else None)
