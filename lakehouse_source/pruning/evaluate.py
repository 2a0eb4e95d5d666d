"""Pure. The truth values that a condition may have on rows whose statistics alone are known.

One rule for each thing that may be missing:

    a bound is absent            any value lies there
    the null count is absent     there may be nulls, and there may be values
    NaN may be there             it lies above every bound (it equals itself)
    bounds are wider than data   only values outside of the bounds are ruled out
    lower is above upper         both bounds are taken as absent

Source: Parquet format, `Statistics` (rules for NaN and signed zero).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse_source.language.bounds.bound import (
    FALSE,
    BoundAnd,
    BoundColumn,
    BoundColumns,
    BoundCompare,
    BoundConstant,
    BoundExpression,
    BoundIn,
    BoundIsNull,
    BoundLeaf,
    BoundLike,
    BoundNode,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundText,
    IfPresent,
    conjunction,
    disjunction,
    negation,
    parts,
)
from lakehouse_source.language.functions.text import matches
from lakehouse_source.model import ColumnBounds, Ordinal

# --- Sets of truth values that a condition may take on some rows.
#
# A condition is TRUE, FALSE or NULL on one row. For a row group only statistics are known: on its
# rows the condition has some of the three values, and an `Outcome` says which values are possible.
# AND, OR and NOT of outcomes contain the result of every combination. NULL stays NULL under NOT, so
# both `c = 1` and `NOT c = 1` prune a column that is all null.


# One bit for each truth value. Evaluation works on such integers; `Outcome` wraps the result.
TRUE_BIT = 1
FALSE_BIT = 2
NULL_BIT = 4
ANY_BITS = 7

_BIT_OF = {True: TRUE_BIT, False: FALSE_BIT, None: NULL_BIT}


def _values(bits: int) -> Iterator[bool | None]:
    return (value for value, bit in _BIT_OF.items() if bits & bit)


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _or(a: bool | None, b: bool | None) -> bool | None:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def _not(a: bool | None) -> bool | None:
    return None if a is None else not a


def _lifted(
    operator: Callable[[bool | None, bool | None], bool | None],
) -> tuple[tuple[int, ...], ...]:
    def combine(left: int, right: int) -> int:
        bits = 0
        for a in _values(left):
            for b in _values(right):
                bits |= _BIT_OF[operator(a, b)]
        return bits

    return tuple(tuple(combine(left, right) for right in range(8)) for left in range(8))


AND_TABLE = _lifted(_and)
OR_TABLE = _lifted(_or)
NOT_TABLE = tuple(sum(_BIT_OF[_not(value)] for value in _values(bits)) for bits in range(8))


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """The truth values that a condition may take on some rows."""

    bits: int

    @classmethod
    def of(cls, *values: bool | None) -> Outcome:
        """The set of the truth values given (None is NULL)."""
        bits = 0
        for value in values:
            bits |= _BIT_OF[value]
        return OUTCOMES[bits]

    @property
    def may_match(self) -> bool:
        """Tell whether some row may match: TRUE is in the set."""
        return bool(self.bits & TRUE_BIT)

    @property
    def always(self) -> bool:
        """Tell whether every row matches: TRUE is the only value in the set."""
        return self.bits == TRUE_BIT

    def __contains__(self, value: bool | None) -> bool:
        return bool(self.bits & _BIT_OF[value])

    def __repr__(self) -> str:
        names = {True: "TRUE", False: "FALSE", None: "NULL"}
        return f"Outcome({', '.join(names[value] for value in _values(self.bits))})"


OUTCOMES = tuple(Outcome(bits) for bits in range(8))
UNKNOWN = OUTCOMES[ANY_BITS]


_BITS = {True: TRUE_BIT, False: FALSE_BIT, None: NULL_BIT}
_BOTH = TRUE_BIT | FALSE_BIT


def evaluate(predicate: BoundPredicate, statistics: Callable[[int], ColumnBounds]) -> Outcome:
    """Tell which truth values `predicate` may take on the rows summarised here.

    Sound, not exact: the result has every value that some row really has. `statistics` gives what
    is known of a leaf column, by id; it is not called for nested columns. Zero rows have the empty
    outcome.

    Source: Parquet format, `Statistics` (rules for NaN and signed zero).
    """
    return OUTCOMES[_evaluate(predicate.root, statistics)]


def evaluate_each(
    predicate: BoundPredicate, columns: Mapping[int, Sequence[ColumnBounds]], count: int
) -> list[Outcome]:
    """`evaluate` for each of `count` row groups, with the bounds of each column over them."""
    root = predicate.root
    if isinstance(root, (BoundCompare, BoundIn)) and root.column.kind != "nested":
        return [OUTCOMES[_on_rows(root, known)] for known in columns[root.column.id]]
    group: dict[int, ColumnBounds] = {}
    look_up = group.__getitem__
    outcomes = []
    for number in range(count):
        for column_id, known in columns.items():
            group[column_id] = known[number]
        outcomes.append(OUTCOMES[_evaluate(root, look_up)])
    return outcomes


def _evaluate(node: BoundNode, statistics: Callable[[int], ColumnBounds]) -> int:
    if isinstance(node, (BoundCompare, BoundIn)):  # by far the most frequent
        return _leaf(node, statistics)
    if isinstance(node, BoundAnd):
        bits = TRUE_BIT
        for term in node.terms:
            bits = AND_TABLE[bits][_evaluate(term, statistics)]
            if bits == FALSE_BIT:
                break
        return bits
    if isinstance(node, BoundOr):
        bits = FALSE_BIT
        for term in node.terms:
            bits = OR_TABLE[bits][_evaluate(term, statistics)]
            if bits == TRUE_BIT:
                break
        return bits
    if isinstance(node, BoundNot):
        return NOT_TABLE[_evaluate(node.term, statistics)]
    if isinstance(node, BoundConstant):
        return _BITS[node.value]
    if isinstance(node, BoundExpression):
        # Only what the expression implies where it is true is known.
        may_match = _evaluate(node.implied, statistics) & TRUE_BIT
        return ANY_BITS if may_match else FALSE_BIT | NULL_BIT
    if isinstance(node, BoundColumns):
        may_match = _columns_may_match(node, statistics)
        return ANY_BITS if may_match else FALSE_BIT | NULL_BIT
    return _leaf(node, statistics)


def _columns_may_match(node: BoundColumns, statistics: Callable[[int], ColumnBounds]) -> bool:
    """Tell whether values within two columns' bounds may satisfy the comparison."""
    if "nested" in (node.left.kind, node.right.kind):
        return True
    left, right = statistics(node.left.id), statistics(node.right.id)
    if any(one.null_count == one.row_count for one in (left, right)):
        return False
    low: list[Any] = [left.lower, right.lower]
    high: list[Any] = [left.upper, right.upper]
    if None in (*low, *high) or left.may_contain_nan or right.may_contain_nan:
        return True
    if not (low[0] <= high[0] and low[1] <= high[1]):  # NaN, or bounds that contradict each other
        return True
    if node.op == "=":
        return bool(low[0] <= high[1] and low[1] <= high[0])
    if node.op == "!=":
        return not low[0] == high[0] == low[1] == high[1]
    if node.op in (">", ">="):
        low, high = low[::-1], high[::-1]
    return bool(low[0] < high[1] or (node.op in ("<=", ">=") and low[0] == high[1]))


def _leaf(node: BoundLeaf, statistics: Callable[[int], ColumnBounds]) -> int:
    if node.column.kind == "nested":
        return _BOTH  # only IS NULL applies to it
    return _on_rows(node, statistics(node.column.id))


def _on_rows(node: BoundLeaf, known: ColumnBounds) -> int:
    rows, nulls = known.row_count, known.null_count
    if nulls is None or not 0 <= nulls <= rows:
        may_be_null = may_have_value = rows != 0
    else:
        may_be_null, may_have_value = nulls > 0, nulls < rows

    if isinstance(node, BoundIsNull):
        return (TRUE_BIT if may_be_null else 0) | (FALSE_BIT if may_have_value else 0)
    bits = _on_values(node, known) if may_have_value else 0
    if may_be_null:
        null_safe = isinstance(node, BoundCompare) and node.op == "<=>"
        bits |= FALSE_BIT if null_safe else NULL_BIT
    return bits


def _on_values(node: BoundLeaf, known: ColumnBounds) -> int:
    """The outcome on rows in which the column is not null."""
    # Ordinals of one column have one type, or are None if unknown.
    lower: Any = known.lower
    upper: Any = known.upper
    if node.column.kind == "float":
        may_be_nan = known.may_contain_nan
        if lower != lower or upper != upper:
            lower, upper, may_be_nan = None, None, True
    else:
        may_be_nan = False
    if lower is not None and upper is not None and lower > upper:
        lower = upper = None

    if isinstance(node, BoundCompare):
        bits = _compare(node.op, node.value, lower, upper)
        return bits | _compare_nan(node.op, node.value) if may_be_nan else bits
    if isinstance(node, BoundIn):
        return _in(node, lower, upper, may_be_nan)
    if isinstance(node, IfPresent):
        return TRUE_BIT if node.truth else FALSE_BIT
    if isinstance(node, BoundText):
        return _text(node, lower, upper)
    if isinstance(node, BoundLike):
        return _like(node, lower, upper)
    return ANY_BITS


def _compare(op: str, value: Any, lower: Any, upper: Any) -> int:
    """The outcome on values between two bounds, without NaN."""
    if value != value:  # NaN: no other value equals it, all are less
        return TRUE_BIT if op in ("<", "!=") else FALSE_BIT
    if op in ("=", "<=>"):
        return _equal(value, lower, upper)
    if op == "!=":
        return NOT_TABLE[_equal(value, lower, upper)]
    if op == "<":
        may = lower is None or lower < value
        may_not = upper is None or upper >= value
    elif op == "<=":
        may = lower is None or lower <= value
        may_not = upper is None or upper > value
    elif op == ">":
        may = upper is None or upper > value
        may_not = lower is None or lower <= value
    else:
        may = upper is None or upper >= value
        may_not = lower is None or lower < value
    return (TRUE_BIT if may else 0) | (FALSE_BIT if may_not else 0)


def _equal(value: Any, lower: Any, upper: Any) -> int:
    if (lower is not None and value < lower) or (upper is not None and value > upper):
        return FALSE_BIT
    if lower is not None and lower == upper:
        return TRUE_BIT
    return _BOTH


def _compare_nan(op: str, value: Any) -> int:
    """The outcome where the column's value is NaN."""
    equal = value != value
    truth = equal if op in ("=", "<=>") else not equal if op == "!=" else op in (">", ">=")
    return TRUE_BIT if truth else FALSE_BIT


def _in(node: BoundIn, lower: Any, upper: Any, may_be_nan: bool) -> int:
    values: Any = node.values
    start = 0 if lower is None else bisect_left(values, lower)
    stop = len(values) if upper is None else bisect_right(values, upper)
    missed = NULL_BIT if node.has_null else FALSE_BIT
    bits = TRUE_BIT if stop > start else 0
    found_all = False
    if lower is not None and upper is not None:
        if lower == upper:
            found_all = stop > start
        elif isinstance(lower, int):  # every whole number between the bounds is listed
            found_all = stop - start == upper - lower + 1
    if not found_all:
        bits |= missed
    if may_be_nan:
        bits |= TRUE_BIT if node.has_nan else missed
    return bits


def _text(node: BoundText, lower: bytes | None, upper: bytes | None) -> int:
    text = node.text
    if lower is not None and lower == upper:  # one value, known to the last byte
        if node.form == "prefix":
            match = lower.startswith(text)
        elif node.form == "suffix":
            match = lower.endswith(text)
        else:
            match = text in lower
        return TRUE_BIT if match else FALSE_BIT
    if node.form != "prefix":
        return _BOTH
    if (lower is not None and lower[: len(text)] > text) or (upper is not None and upper < text):
        return FALSE_BIT
    if (
        lower is not None
        and upper is not None
        and lower.startswith(text)
        and upper.startswith(text)
    ):
        return TRUE_BIT
    return _BOTH


def _like(node: BoundLike, lower: bytes | None, upper: bytes | None) -> int:
    if lower is None or lower != upper:
        return _BOTH
    try:
        value = lower.decode()
    except UnicodeDecodeError:
        return _BOTH
    return TRUE_BIT if matches(node.pieces, value) else FALSE_BIT


# --- A condition rewritten for rows in which some values are known to be absent.
#
# If a bloom filter tells that no row has a value, `c = value` is FALSE where `c` is not null, and
# NULL where `c` is null. The rewritten condition is equivalent on these rows, so the rule also
# holds under NOT.


Absent = Callable[[BoundColumn, Ordinal], bool]


def without_absent(predicate: BoundPredicate, absent: Absent) -> BoundPredicate:
    """The condition on rows that hold none of the values for which `absent` says True."""
    return BoundPredicate(_without(predicate.root, absent))


def _without(node: BoundNode, absent: Absent) -> BoundNode:
    if isinstance(node, BoundAnd):
        return conjunction([_without(term, absent) for term in node.terms])
    if isinstance(node, BoundOr):
        return disjunction([_without(term, absent) for term in node.terms])
    if isinstance(node, BoundNot):
        inner = _without(node.term, absent)
        return node if inner is node.term else negation(inner)
    if isinstance(node, BoundExpression):
        return replace(node, implied=_without(node.implied, absent))
    if isinstance(node, BoundCompare) and absent_value(node, absent):
        return IfPresent(node.column, False) if node.op == "=" else FALSE
    if isinstance(node, BoundIn):
        left = tuple(value for value in node.values if not absent(node.column, value))
        if len(left) == len(node.values):
            return node
        if left or node.has_nan or node.has_null:
            return replace(node, values=left)
        return IfPresent(node.column, False)
    return node


def absent_value(node: BoundCompare, absent: Absent) -> bool:
    """Tell whether an equality compares with an absent value."""
    return node.op in ("=", "<=>") and node.value == node.value and absent(node.column, node.value)


def asks_for_values(node: BoundNode) -> bool:
    """Tell whether bloom filters can decide any part of a condition."""
    return any(
        isinstance(part, BoundIn) or (isinstance(part, BoundCompare) and part.op in ("=", "<=>"))
        for part in parts(node)
    )
