"""Pure. Sets of truth values: what a condition may be on some rows. Knows no conditions.

A condition is TRUE, FALSE or NULL on a row. On a set of rows of which only a
summary is known it takes some of the three; an `Outcome` says which it may take.
AND, OR and NOT of outcomes hold every result of every combination ("lifted
pointwise"): NULL stays NULL under NOT, so a column that is all null is pruned by
`c = 1` and by `NOT c = 1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# Bits of a set. Evaluation works on these integers; `Outcome` wraps the result.
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


class Outcome:
    """The truth values that a condition may take. Eight instances exist; compare with `is`.

    `a | b` is the union of two sets: what a condition may be on the rows of both.
    AND, OR and NOT of conditions are the tables of this module, over `bits`.
    """

    __slots__ = ("bits",)

    bits: int
    _all: tuple[Outcome, ...] = ()

    def __new__(cls, bits: int) -> Outcome:
        if cls._all:
            return cls._all[bits]
        return super().__new__(cls)

    def __init__(self, bits: int) -> None:
        object.__setattr__(self, "bits", bits)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("outcomes do not change")

    def __reduce__(self) -> tuple[type[Outcome], tuple[int]]:
        return (Outcome, (self.bits,))

    @classmethod
    def of(cls, *values: bool | None) -> Outcome:
        """The set of the truth values given (None is NULL)."""
        bits = 0
        for value in values:
            bits |= _BIT_OF[value]
        return cls._all[bits]

    @property
    def may_match(self) -> bool:
        """Tell whether some row may match: TRUE is in the set."""
        return bool(self.bits & TRUE_BIT)

    @property
    def always(self) -> bool:
        """Tell whether every row matches: TRUE is all there is."""
        return self.bits == TRUE_BIT

    def __contains__(self, value: bool | None) -> bool:
        return bool(self.bits & _BIT_OF[value])

    def __or__(self, other: Outcome) -> Outcome:
        return Outcome._all[self.bits | other.bits]

    def __repr__(self) -> str:
        names = {True: "TRUE", False: "FALSE", None: "NULL"}
        return f"Outcome({', '.join(names[value] for value in _values(self.bits))})"


Outcome._all = tuple(Outcome(bits) for bits in range(8))
OUTCOMES = Outcome._all
NOTHING = OUTCOMES[0]
UNKNOWN = OUTCOMES[ANY_BITS]
