"""Pure. What is known of parts of an SQL condition, and for which values of a column they hold.

The ends of the range are searched with the expression itself (`search.py`), so rounding, overflow
and calendars are included. If the expression has no value (an overflow), or clocks of the zone
change near an end, the range is wider and holds only in one direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone, tzinfo
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language.bind import Binder, Scope
from lakehouse_source.language.bounds.bound import FALSE, TRUE, BoundNode, conjunction, disjunction
from lakehouse_source.language.bounds.comparisons import Columns, Comparisons, NoComparison
from lakehouse_source.language.bounds.search import DATE, Line, Probe, line_of
from lakehouse_source.language.functions import FUNCTIONS, entry
from lakehouse_source.language.functions.rows import Bound, Rows, listed
from lakehouse_source.language.nodes import (
    COMPARISONS,
    Call,
    Case,
    Cast,
    Interval,
    Literal,
    Name,
    Node,
    all_of,
    any_of,
    below,
    compare,
    is_null,
    names,
    negated,
    replaced,
)
from lakehouse_source.language.types import INSTANT, WALL, is_float
from lakehouse_source.language.values import DAY_US, offset_at
from lakehouse_source.schema.ordinal import DAY_NS
from lakehouse_source.schema.variant import is_variant

_X = Name(("x",))


@dataclass(frozen=True, slots=True)
class Path:
    """A column, and the direction of an expression of it: `sign` is -1 if the expression falls.

    `zoned` counts the steps over the wall clock of a zone.
    """

    column: Name
    sign: int
    zoned: int


@dataclass(frozen=True, slots=True)
class Range:
    """A condition that follows from a comparison; if `exact`, both are equal on every row."""

    condition: Node
    exact: bool


@dataclass(frozen=True, slots=True)
class Session:
    """What the value of an expression depends on besides its columns."""

    zone_name: str
    zone: tzinfo
    now: datetime


def range_of(
    path: Path, type_: pa.DataType, left: Node, op: str, right: Node, session: Session
) -> Range | None:
    """The range of `path.column`, of a Spark type, on which `left op right` is TRUE.

    `left` is the expression of the column; `right` reads no column. None: the range is unknown.
    """
    line, moves = line_of(type_), bool(path.zoned) and session.zone is not timezone.utc
    if line is None or (moves and type_ not in (DATE, INSTANT, WALL)):
        return None
    scope = Scope({"": pa.schema([pa.field("x", type_)])}, session.zone_name, session.now)
    inner = replaced(left, path.column, _X)
    probe = Probe(scope, inner, right, line, path.sign)
    found = probe.between(op)
    if found is None:
        return None
    # There is a value at both ends and at NaN, so there is a value everywhere.
    exact = probe.has_values()
    first, last = found
    if moves:
        first, last, calm = _widened(first, last, line, path.zoned, session.zone)
        exact = exact and calm and path.zoned == 1
    return Range(_spelled(path.column, line, first, last, probe.at_nan(op)), exact)


def _spelled(column: Name, line: Line, first: int, last: int, nan: bool) -> Node:
    low, high = max(first, line.low), min(last, line.high)
    terms: list[Node] = []
    if low > high:  # FALSE where the column has a value
        terms.append(compare(column, "<", line.value(line.low)))
    elif low == high and not line.is_float and line.type not in (INSTANT, WALL):
        terms.append(compare(column, "=", line.value(low)))
    else:
        if low > line.low:
            terms.append(compare(column, ">=", line.value(low)))
        if line.is_float and not (nan and high == line.high):
            terms.append(compare(column, "<=", line.value(high)))
        elif high < line.high:
            # Not `<= high`: a column of a finer unit has values between `high` and the next value.
            terms.append(compare(column, "<", line.value(high + 1)))
        if not terms:
            terms.append(compare(column, ">=", line.value(low)))
    covered = len(terms) == 1 and low <= high == line.high and line.is_float
    within = all_of(terms)
    return any_of((within, compare(column, "=", math.nan))) if nan and not covered else within


# --- zones whose clocks change ----------------------------------------------

# Local time has been set back by a day at most.
_MARGIN_DAYS = 2


def _widened(first: int, last: int, line: Line, steps: int, zone: tzinfo) -> tuple[int, int, bool]:
    """The range with a margin at ends near a change of clocks, and whether there is no such end."""
    day = 1 if line.type == DATE else DAY_US
    margin = _MARGIN_DAYS * day * steps
    calm = [
        not line.low < end <= line.high or (steps == 1 and _is_calm(end, day, zone))
        for end in (first, last + 1)
    ]
    first = first if calm[0] else first - margin
    last = last if calm[1] else last + margin
    return first, last, all(calm)


def _is_calm(place: int, day: int, zone: tzinfo) -> bool:
    """Tell whether no clock of the zone changes within three days of a place."""
    around = range(-12, 13)
    moments = (place * (DAY_NS // day) + quarter * (DAY_NS // 4) for quarter in around)
    return len({offset_at(moment, zone) for moment in moments}) == 1


# --- the path from a column to an expression of it --------------------------


def follow(node: Node, step: Callable[[Node], tuple[Node, int, bool] | None]) -> Path | None:
    """The path from the only column of an expression; None: it is not monotone.

    `step` gives, for a node, the child that it follows, the sign, and whether a zone matters.
    """
    if len(names(node)) != 1:
        return None
    sign, zoned = 1, 0
    while not isinstance(node, Name):
        found = step(node)
        if found is None:
            return None
        node, turn, by_zone = found
        sign, zoned = sign * turn, zoned + by_zone
    return Path(node, sign, zoned)


def with_cast(path: Path, zoned: bool) -> Path:
    """The path with one more step."""
    return replace(path, zoned=path.zoned + zoned)


# --- What is known of the parts of an SQL condition: constants, NULL, and failures.


# Only the first argument is evaluated on every row; the others where a row needs them.
_LAZY = frozenset({"and", "or", "coalesce", "nvl", "ifnull", "nvl2"})
# Operators whose result is NULL exactly if an operand is NULL.
_STRICT = frozenset({*COMPARISONS, *entry.OPERATORS, "%", "not"} - {"<=>"})
# NULL if an argument is NULL, and in other cases too.
_NULL_PASSES = frozenset({"trunc", "date_trunc"})


class Parts:
    """The parts of conditions over one schema."""

    def __init__(self, scope: Scope, comparisons: Comparisons, columns: Columns) -> None:
        self._scope, self._comparisons, self._columns = scope, comparisons, columns
        self._binder = Binder(scope)
        self._session = Session(scope.timezone, self._binder.zone, scope.now)

    def without_value(self, node: Node) -> str | None:
        """Why a part without columns, as `CAST('x' AS INT)`, fails on each row that evaluates it.

        Parts that a row may not evaluate are left alone.
        """
        if isinstance(node, (Literal, Name, Interval, Case)):
            return None
        if isinstance(node, Call) and node.name in _LAZY:
            return self.without_value(node.arguments[0])
        if not names(node):
            return self._failure(node)
        if isinstance(node, Call) and node.name in (*COMPARISONS, "in"):
            bound = [self._binder.bind(one) for one in node.arguments]
            type_ = (
                self._binder.alike(bound)[0].type
                if node.name == "in"
                else self._binder.comparison_type(*bound)
            )
            for one in node.arguments:
                failure = None if names(one) else self._failure(Cast(one, type_))
                if failure is not None:
                    return failure
        parts = (self.without_value(part) for part in below(node))
        return next((part for part in parts if part is not None), None)

    def _failure(self, node: Node) -> str | None:
        try:
            self._binder.bind(node).run(Rows(1, _no_column))
        except InvalidExpressionError as exc:
            return exc.reason
        return None

    def _plain(self, condition: Node) -> BoundNode | None:
        """A condition as tests of columns with constants; None: the condition is something else."""
        try:
            return self._comparisons.test(condition)
        except (NoComparison, InvalidPredicateError):  # it does not compare such values
            return None

    def _is_text(self, node: Node) -> bool:
        return isinstance(node, Name) and self._binder.bind(node).type == pa.string()

    # --- NULL ---

    def _null(self, node: Node) -> BoundNode:
        """A condition that holds wherever `node` is NULL."""
        if isinstance(node, Literal):
            return TRUE if node.value is None else FALSE
        if isinstance(node, Name):
            return self._tested(node, null=True)
        if not self._is_strict(node):
            return TRUE
        return disjunction([self._null(one) for one in below(node)])

    def _present(self, node: Node) -> BoundNode:
        """A condition that holds wherever `node` is not NULL."""
        if isinstance(node, Name):
            return self._tested(node, null=False)
        if isinstance(node, Call) and node.name == "in":
            return self._present(node.arguments[0])
        passes = isinstance(node, Cast) or (isinstance(node, Call) and node.name in _NULL_PASSES)
        if not passes and not self._is_strict(node):
            return TRUE
        return conjunction([self._present(one) for one in below(node)])

    def _tested(self, node: Name, null: bool) -> BoundNode:
        found = self._plain(is_null(node) if null else negated(is_null(node)))
        return TRUE if found is None else found

    def _is_strict(self, node: Node) -> bool:
        """Tell whether a node is NULL exactly where one of its parts is NULL."""
        if isinstance(node, Cast):
            from_ = self._binder.bind(node.value).type
            # NaN, infinity and JSON's null become NULL.
            if is_variant(from_):
                return False
            return not node.safe and not (is_float(from_) and pa.types.is_decimal(node.to))
        if not isinstance(node, Call):
            return False
        known = FUNCTIONS.get(node.name)
        return node.name in _STRICT if known is None else known.is_strict

    # --- constants ---

    def _constant(self, node: Node) -> Any:
        """The value of a node without columns; UNKNOWN: it has no value that can be compared."""
        if isinstance(node, Interval):
            return node
        if names(node):
            return entry.UNKNOWN
        try:
            bound: Bound = self._binder.bind(node)
            return listed(bound.run(Rows(1, _no_column)))[0]
        except (InvalidExpressionError, pa.ArrowException):
            return entry.UNKNOWN


def _no_column(key: object) -> pa.Array:
    raise AssertionError(f"a constant reads the column {key}")
