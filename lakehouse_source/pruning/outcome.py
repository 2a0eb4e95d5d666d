"""Pure. Sets of truth values that a condition may take on some rows.

A condition is TRUE, FALSE or NULL on one row. For a row group only statistics are known: on its
rows the condition has some of the three values, and an `Outcome` says which values are possible.
AND, OR and NOT of outcomes contain the result of every combination. NULL stays NULL under NOT, so
both `c = 1` and `NOT c = 1` prune a column that is all null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
