"""Pure. The bounds of what is parsed: SQL texts, values of Python and Arrow, filters of clients.

A short text can mean a number of a billion digits, or a tree that no stack holds. What is beyond a
bound is refused where it is read, before anything works with it.
"""

from __future__ import annotations

from decimal import Decimal

from lakehouse_source.errors import InvalidPredicateError

MOST_CHARACTERS = 4 * 1024 * 1024
# Spark's own parser also ends at a few hundred; binding a tree takes several calls per level.
DEEPEST = 250
MOST_VALUES = 1_000_000
# Wider than every decimal (76 digits) and every double: 5E-324 has 751 digits.
LARGEST_EXPONENT = 400
MOST_DIGITS = 1100
MOST_BITS = 1400


def check_length(text: str) -> None:
    """Refuse a text that is too long to be read."""
    if len(text) > MOST_CHARACTERS:
        reason = f"it has {len(text)} characters: {MOST_CHARACTERS} at most"
        raise InvalidPredicateError(reason=reason)


def check_depth(depth: int) -> None:
    """Refuse a part that is nested too deep for the functions that walk trees."""
    if depth > DEEPEST:
        reason = f"it is nested too deeply: {DEEPEST} levels at most"
        raise InvalidPredicateError(reason=reason)


def check_count(count: int) -> None:
    """Refuse a list of too many values."""
    if count > MOST_VALUES:
        reason = f"a list has {count} values: {MOST_VALUES} at most. Write them to a table and join"
        raise InvalidPredicateError(reason=reason)


def check_number(value: Decimal | int) -> None:
    """Refuse a number that no column holds, and whose digits could fill the memory."""
    if isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            reason = f"a number of {value.bit_length()} bits is out of range of every type"
            raise InvalidPredicateError(reason=reason)
    elif value and value.is_finite():
        digits, exponent = len(value.as_tuple().digits), value.adjusted()
        if digits > MOST_DIGITS or abs(exponent) > LARGEST_EXPONENT:
            reason = f"1E{exponent:+}, with {digits} digits, is out of range of every type"
            raise InvalidPredicateError(reason=reason)
