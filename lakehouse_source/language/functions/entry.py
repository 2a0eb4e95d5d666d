"""Pure. A function's description: its arguments, types, NULL, and what a comparison implies.

Spark's documentation defines each function: docs/latest/api/sql/index.html.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from lakehouse_source.language.functions.rows import Bound, Kernel, each, strict
from lakehouse_source.language.nodes import Call, Interval, Literal, Node
from lakehouse_source.language.types import (
    INSTANT,
    INTEGERS,
    WALL,
    is_atomic,
    is_decimal,
    is_float,
    is_moment,
    is_number,
    spark_name,
)
from lakehouse_source.language.values import Failure

# --- The argument of a function that its result follows: larger values, larger results.
#
# A result may stay the same while the argument grows. In a zone whose clocks change, local time
# runs backwards for an hour or a day: a `zoned` step keeps the order except there.
#
# Source: the definitions of Spark's functions; rounding to the nearest keeps order too.


_DATE = pa.date32()


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
    return type_ == _DATE and place == 0 and given.types[1] in INTEGERS


def _moved(given: Arguments, place: int) -> Step:
    other, type_ = given.nodes[1 - place], given.types[place]
    hours = isinstance(other, Interval) and not other.whole_days
    # Days are added on the wall clock; adding hours turns a date into an instant.
    return Step(place, zoned=(type_ == INSTANT) or (type_ == _DATE and hours))


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
    if place is None or not (given.types[place] == _DATE or given.types[place] in INTEGERS):
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


NULL_IN = "NULL where an argument is NULL"
NEVER = "never NULL"


class Context(Protocol):
    """The part of the binder that functions need."""

    zone: tzinfo
    now_us: int

    def bind(self, node: Node) -> Bound: ...

    def cast(self, value: Bound, to: pa.DataType) -> Bound: ...

    def alike(self, values: Sequence[Bound]) -> list[Bound]: ...

    def chosen(self, values: Sequence[Bound]) -> list[Bound]: ...


Builder = Callable[[Context, Call, list[Bound]], Bound]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of expressions.

    It takes from `least` to `most` arguments; None: any number. `build` finds the types and makes
    the bound node. `takes` and `result` are the types, or describe them. `order` tells which
    argument the result follows, so that a comparison of it is a range of that argument. `nulls` is
    the rule for NULL. `prunes` says what else a comparison implies.
    """

    least: int
    most: int | None
    build: Builder
    takes: str
    result: str
    order: Order | None = None
    nulls: str = NULL_IN
    prunes: str = ""

    @property
    def is_strict(self) -> bool:
        """Tell whether the result is NULL exactly if an argument is NULL."""
        return self.nulls == NULL_IN


class Argument(NamedTuple):
    """An argument: its text in lists, its types, and the type to which Spark casts it.

    `to` None: there is no cast.
    """

    name: str
    what: str
    takes: Callable[[pa.DataType], bool]
    to: pa.DataType | None

    def of(self, context: Context, value: Bound) -> Bound:
        """A value as the argument.

        Raises:
            Failure: Spark does not cast the value's type implicitly.
        """
        if not self.takes(value.type) and not (
            self.to is not None and pa.types.is_null(value.type)
        ):
            raise Failure(f"{spark_name(value.type)} stands where {self.what} should: cast it")
        return value if self.to is None else context.cast(value, self.to)


def _is_text(type_: pa.DataType) -> bool:
    return is_atomic(type_) and type_ != pa.binary()


TEXT = Argument("STRING", "text", _is_text, pa.string())
INT = Argument("INT", "an INT", lambda type_: type_ in INTEGERS[:3], pa.int32())
NUMBER = Argument("a number", "a number", is_number, None)
DOUBLE = Argument("DOUBLE", "a number", is_number, pa.float64())
MOMENT = Argument("DATE or TIMESTAMP", "a date", is_moment, pa.date32())
DATE = Argument("DATE", "a date", lambda type_: type_ == pa.date32(), pa.date32())
CLOCK = Argument("TIMESTAMP", "a timestamp", lambda type_: type_ in (INSTANT, WALL), None)


def function(
    kernel: Kernel,
    result: pa.DataType,
    *takes: Argument,
    defaults: Sequence[Any] = (),
    can_fail: bool = False,
    order: Order | None = None,
    prunes: str = "",
) -> Function:
    """A function that is NULL if an argument is. `defaults` are for omitted last arguments."""

    def build(context: Context, call: Call, given: list[Bound]) -> Bound:
        left_out = zip(takes[len(given) :], defaults[len(given) - len(takes) :])
        given = [*given, *(context.bind(Literal(value, one.to)) for one, value in left_out)]
        values = [one.of(context, value) for one, value in zip(takes, given)]
        return strict(call, result, values, kernel, can_fail=can_fail)

    least, listed = len(takes) - len(defaults), ", ".join(one.name for one in takes)
    return Function(
        least, len(takes), build, listed, spark_name(result), order=order, prunes=prunes
    )


def by_row(one: Callable[..., Any], result: pa.DataType, *takes: Argument, **said: Any) -> Function:
    """The same for a Python function that is called for each row without NULL."""
    return function(each(one, result), result, *takes, **said)
