"""Pure. The argument of a function that its result follows: larger values, larger results.

A result may stay the same while the argument grows. In a zone whose clocks change, local time runs
backwards for an hour or a day: a `zoned` step keeps the order except there.

Source: the definitions of Spark's functions; rounding to the nearest keeps order too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakehouse_source.language.tree.nodes import Interval, Node
from lakehouse_source.language.tree.types import (
    INSTANT,
    INTEGERS,
    is_decimal,
    is_float,
    is_moment,
    is_number,
)

DATE = pa.date32()


@dataclass(frozen=True, slots=True)
class Step:
    """The place of the argument; `sign` is 1, or -1 if the order is reversed."""

    argument: int
    sign: int = 1
    zoned: bool = False


# The value of an argument that reads no column; a marker for other arguments.
UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call: as nodes, with their types, and the values of constant ones."""

    nodes: Sequence[Node]
    types: Sequence[pa.DataType]
    values: Sequence[Any]

    @property
    def varying(self) -> int | None:
        """The place of the only argument that reads columns; None: there is not exactly one."""
        places = [place for place, value in enumerate(self.values) if value is UNKNOWN]
        return places[0] if len(places) == 1 else None


Order = Callable[[Arguments], Step | None]


def first(given: Arguments) -> Step | None:
    """The result follows the first argument, a number."""
    return Step(0) if given.varying == 0 and is_number(given.types[0]) else None


def turned(given: Arguments) -> Step | None:
    """The result falls as the only argument, a number, grows."""
    return Step(0, -1) if is_number(given.types[0]) else None


def moment(given: Arguments) -> Step | None:
    """The result follows the only argument that varies, a date or a timestamp."""
    place = given.varying
    if place is None or not is_moment(given.types[place]):
        return None
    return Step(place, zoned=given.types[place] == INSTANT)


def plus(given: Arguments) -> Step | None:
    place = given.varying
    if place is None:
        return None
    return _moved(given, place) if _is_shift(given, place) else None


def minus(given: Arguments) -> Step | None:
    place = given.varying
    if place is None:
        return None
    if place == 1:
        numbers = all(is_number(one) for one in given.types)
        return Step(1, -1) if numbers and _is_finite(given.values[0]) else None
    return _moved(given, place) if _is_shift(given, place) else None


def _is_shift(given: Arguments, place: int) -> bool:
    """Tell whether a number is added to a number, or days or an interval to a moment."""
    other, type_ = given.nodes[1 - place], given.types[place]
    if isinstance(other, Interval):
        return is_moment(type_)
    if not _is_finite(given.values[1 - place]):
        return False
    if is_number(type_):
        return is_number(given.types[1 - place])
    return type_ == DATE and place == 0 and given.types[1] in INTEGERS


def _moved(given: Arguments, place: int) -> Step:
    other, type_ = given.nodes[1 - place], given.types[place]
    hours = isinstance(other, Interval) and not other.whole_days
    # Days are added on the wall clock; adding hours turns a date into an instant.
    return Step(place, zoned=(type_ == INSTANT) or (type_ == DATE and hours))


def times(given: Arguments) -> Step | None:
    place = given.varying
    if place is None or not all(is_number(one) for one in given.types):
        return None
    return _by_sign(place, given.values[1 - place])


def over(given: Arguments) -> Step | None:
    """A quotient follows the dividend. Division by a column has a gap at 0."""
    if given.varying != 0 or not all(is_number(one) for one in given.types):
        return None
    return _by_sign(0, given.values[1])


def _by_sign(place: int, factor: Any) -> Step | None:
    if not _is_finite(factor) or factor == 0:
        return None
    return Step(place, 1 if factor > 0 else -1)


def _is_finite(value: Any) -> bool:
    if value is None or value is UNKNOWN or isinstance(value, (bool, str, bytes)):
        return False
    return not isinstance(value, float) or math.isfinite(value)


def days_added(given: Arguments) -> Step | None:
    """`date_add(date, days)` follows both."""
    return _days(given, 1)


def days_taken(given: Arguments) -> Step | None:
    """`date_sub` and `datediff` follow the first argument and fall as the second grows."""
    return _days(given, -1)


def _days(given: Arguments, second: int) -> Step | None:
    place = given.varying
    if place is None or not (given.types[place] == DATE or given.types[place] in INTEGERS):
        return None
    return Step(place, 1 if place == 0 else second)


def of_cast(from_: pa.DataType, to: pa.DataType) -> Step | None:
    """The order of a cast. The order of text differs from that of every other type."""
    if from_ == to:
        return Step(0)
    if is_number(from_) and is_number(to):
        return Step(0)
    if from_ == pa.bool_() and (to in INTEGERS or is_float(to) or is_decimal(to)):
        return Step(0)
    if is_moment(from_) and is_moment(to):
        return Step(0, zoned=INSTANT in (from_, to))
    seconds = (from_ == INSTANT and to in INTEGERS) or (from_ in INTEGERS and to == INSTANT)
    return Step(0) if seconds else None


def cast_to(type_: pa.DataType) -> Order:
    """The order of a function that is a cast."""
    return lambda given: of_cast(given.types[0], type_) if given.varying == 0 else None


OPERATORS: dict[str, Order] = {
    "+": plus,
    "-": minus,
    "*": times,
    "/": over,
    "div": over,
    "negative": turned,
}
