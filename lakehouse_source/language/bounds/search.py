"""Pure. Finds the range of a column's values on which a comparison of an expression is TRUE.

The ends are searched with the expression itself, evaluated as on rows. A cast has its ends near the
value that it is compared with: there the search looks first, and has mostly found them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError
from lakehouse_source.language.bind import Binder, Scope
from lakehouse_source.language.functions.comparison import compare
from lakehouse_source.language.functions.rows import Bound, Rows, listed, unlisted
from lakehouse_source.language.nodes import Call, Cast, Name, Node
from lakehouse_source.language.types import INSTANT, INTEGERS, WALL, is_decimal, is_float
from lakehouse_source.language.values import DAY_US, SECOND_US, Timestamp, days_of
from lakehouse_source.language.values import Literal as Value
from lakehouse_source.schema.ordinal import DAY_NS, EXACT

DATE = pa.date32()
_PROBES = 16
_YEARS = (days_of(1, 1, 1), days_of(9999, 12, 31))

# --- the values of a type in order ------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """The values of a type by their place in the type's order. NaN has no place."""

    type: pa.DataType
    low: int
    high: int
    is_float: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last value that Spark has."""
        if self.type == DATE:
            return _YEARS
        if self.type in (INSTANT, WALL):
            return _YEARS[0] * DAY_US, (_YEARS[1] + 1) * DAY_US - 1
        return self.low, self.high

    def array(self, places: Sequence[int]) -> pa.Array:
        if self.is_float:
            return pa.array([self.float_at(one) for one in places], self.type)
        if is_decimal(self.type):
            scale = -self.type.scale
            return pa.array([Decimal(one).scaleb(scale, EXACT) for one in places], self.type)
        if pa.types.is_boolean(self.type):
            return pa.array([bool(one) for one in places])
        return unlisted(places, self.type)

    def value(self, place: int) -> Value:
        """As a literal of a condition."""
        if self.is_float:
            return self.float_at(place)
        if is_decimal(self.type):
            return Decimal(place).scaleb(-self.type.scale, EXACT)
        if pa.types.is_boolean(self.type):
            return bool(place)
        if self.type == DATE:
            return Timestamp(place * DAY_NS, zoned=False)
        if self.type in (INSTANT, WALL):
            return Timestamp(place * 1000, zoned=self.type == INSTANT)
        return place

    def around(self, number: Fraction) -> range:
        """The places beside a number; of moments, in seconds."""
        if not self.is_float:
            place = number // _unit(self.type)
            return range(place - 1, place + 2)
        form, count = self._forms
        try:
            packed = struct.pack(form, abs(number))
        except OverflowError:
            packed = struct.pack(form, math.inf)
        place = struct.unpack(count, packed)[0]
        if number < 0:
            place = -place - 1
        return range(place - 2, place + 2)

    @property
    def _forms(self) -> tuple[str, str]:
        return ("<f", "<I") if self.type == pa.float32() else ("<d", "<Q")

    def float_at(self, place: int) -> float:
        form, count = self._forms
        size = abs(place + 1) if place < 0 else place
        value = float(struct.unpack(form, struct.pack(count, size))[0])
        return -value if place < 0 else value


def line_of(type_: pa.DataType) -> Line | None:
    if type_ in INTEGERS or type_ == DATE or type_ in (INSTANT, WALL):
        half = 1 << (type_.bit_width - 1)
        return Line(type_, -half, half - 1)
    if is_decimal(type_):
        most = 10**type_.precision - 1
        return Line(type_, -most, most)
    if is_float(type_):
        # Patterns of positive floats count up to infinity; -0.0 comes before 0.0.
        infinity = 0x7F800000 if type_ == pa.float32() else 0x7FF << 52
        return Line(type_, -infinity - 1, infinity, is_float=True)
    return Line(type_, 0, 1) if pa.types.is_boolean(type_) else None


# --- the search -------------------------------------------------------------


class Probe:
    """Evaluates comparisons of an expression over values of its only column, `x`.

    The search runs on an axis on which the expression grows: places times the sign.
    """

    def __init__(self, scope: Scope, left: Node, right: Node, line: Line, sign: int) -> None:
        self._line, self._sign = line, sign
        binder = Binder(scope)
        # NULL where a cast fails, so that no error ends the evaluation of other values.
        given = binder.bind(_without_errors(left))
        value, constant = binder.compared(given, binder.bind(right))
        value = replace(value, run=_Kept(value))
        self._truth = cache(lambda op: compare(Call(op, (left, right)), op, value, constant))
        self._low, self._high = sorted((line.low * sign, line.high * sign))
        self._ends = sorted(one * sign for one in line.ends)
        guessed = _near(constant, given.type, line) if _is_cast(left) else ()
        # The place 0 tells whether an overflow lies above or below.
        first = {0, *self._ends, *(one for one in guessed if self._low <= one <= self._high)}
        self._places = sorted(first)
        values = self._values(self._places)
        if line.is_float:
            values = pa.concat_arrays([values, pa.array([math.nan], line.type)])
        rows = _rows(values)
        # What is TRUE, FALSE, or None at the first places, and then at NaN.
        self._found = cache(lambda op: _run(self._truth(op), values, rows))
        # What was found last. Where `>` begins to be TRUE is near where `>=` does.
        self._last: int | None = None

    def between(self, op: str) -> tuple[int, int] | None:
        """The first and the last place at which `op` is TRUE; None: they are unknown."""
        low, high = self._low, self._high
        if self._found(">=" if op in ("=", "<=>") else op)[self._places.index(0)] is None:
            return None
        if op in ("=", "<=>", ">="):
            low = self._first(">=")
        elif op == ">":
            low = self._first(">")
        if op in ("=", "<=>", "<="):
            high = self._first(">") - 1
        elif op == "<":
            high = self._first(">=") - 1
        return (low, high) if self._sign > 0 else (-high, -low)

    def has_values(self) -> bool:
        """Tell whether the comparison has a value at both ends, and at NaN.

        For dates and timestamps the ends are those of the years that Spark has.
        """
        found = self._found(">=")
        ends = [found[self._places.index(one)] for one in self._ends]
        return None not in ends and not (self._line.is_float and found[-1] is None)

    def at_nan(self, op: str) -> bool:
        """Tell whether the comparison may be TRUE where the column is NaN."""
        return self._line.is_float and self._found("=" if op == "<=>" else op)[-1] is not False

    def _first(self, op: str) -> int:
        """The first place on the axis at which `op` is TRUE; one above the last if none is."""
        low, high = self._low, self._high
        # Outside Spark's years a value may fail, but nearly all ends lie inside.
        places, found = self._places, self._truths(self._places, self._found(op))
        near, self._last = self._last, None
        is_true = False  # at `high`
        while True:
            hit = next((at for at, truth in enumerate(found) if truth), None)
            if hit is None:
                low = places[-1] + 1
            else:
                low, high, is_true = places[hit - 1] + 1 if hit else low, places[hit], True
            if low > high or (low == high and is_true):
                break
            step = (high - low) // _PROBES + 1
            places = [*range(low, high, step), high]
            if near is not None:
                beside = (near, *(near + (1 << bit) for bit in range(0, 64, 4)))
                places = sorted({*places, *(one for one in beside if low <= one <= high)})
                near = None
            values = self._values(places)
            found = self._truths(places, _run(self._truth(op), values, _rows(values)))
        self._last = low
        return low

    def _values(self, places: Sequence[int]) -> pa.Array:
        return self._line.array([place * self._sign for place in places])

    def _truths(self, places: Sequence[int], found: Sequence[bool | None]) -> list[bool]:
        # Above its last value, an expression is assumed to be as large as possible.
        return [place > 0 if one is None else one for place, one in zip(places, found)]


class _Kept:
    """Runs a bound node, and keeps its values on the last rows: all comparisons ask for them."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._known: tuple[Rows, pa.Array] | None = None

    def __call__(self, rows: Rows) -> pa.Array:
        if self._known is None or self._known[0] is not rows:
            self._known = rows, self._bound.run(rows)
        return self._known[1]


def _rows(values: pa.Array) -> Rows:
    return Rows(len(values), lambda _: values)


def _run(bound: Bound, values: pa.Array, rows: Rows) -> list[Any]:
    """The value at each place; None: there is no value."""
    try:
        return listed(bound.run(rows))
    except (InvalidExpressionError, pa.ArrowException):
        if len(values) == 1:
            return [None]
    parts = [values.slice(at, 1) for at in range(len(values))]
    return [_run(bound, one, _rows(one))[0] for one in parts]


# --- where a cast has its ends ----------------------------------------------

# How much one more of a type's values, as integers, is as a number; of moments, in seconds.
_SECOND_US = Fraction(1, SECOND_US)
_UNITS = {DATE: Fraction(DAY_US, SECOND_US), INSTANT: _SECOND_US, WALL: _SECOND_US}


def _unit(type_: pa.DataType) -> Fraction:
    return Fraction(1, 10**type_.scale) if is_decimal(type_) else _UNITS.get(type_, Fraction(1))


def _is_cast(node: Node) -> bool:
    """Tell whether a node is a column that is cast, or that stands alone."""
    while isinstance(node, Cast):
        node = node.value
    return isinstance(node, Name)


def _without_errors(node: Node) -> Node:
    """A cast column with NULL where there is an error; another node as it is."""
    if not isinstance(node, Cast) or not _is_cast(node):
        return node
    return replace(node, value=_without_errors(node.value), safe=True)


def _near(constant: Bound, type_: pa.DataType, line: Line) -> set[int]:
    """Places where a cast to `type_` may become greater than, or equal to, a constant.

    Casts round down, towards zero or to the nearest value: these are the places of the value, of
    the one before, and of the middle between both. Zones are left out.
    """
    try:
        number = _number(constant)
        return {
            place
            for below, value in _neighbours(number, type_)
            for one in (below, (below + value) / 2, value)
            for place in line.around(one)
        }
    except (InvalidExpressionError, pa.ArrowException, ArithmeticError, TypeError, ValueError):
        return set()  # NaN, infinity, text, or it has no value


def _number(constant: Bound) -> Fraction:
    (value,) = listed(constant.run(_rows(pa.nulls(1))))
    unit = 1 if is_decimal(constant.type) else _unit(constant.type)
    return Fraction(value) * unit


def _neighbours(number: Fraction, type_: pa.DataType) -> Iterator[tuple[Fraction, Fraction]]:
    """The first value of a type that is not below a number, and the first above it.

    Each stands after the value before it.
    """
    line = line_of(type_)
    if line is not None and line.is_float:
        places = line.around(number)
        values = [Fraction(line.float_at(one)) for one in range(places[0] - 1, places[-1] + 3)]
    else:
        unit = _unit(type_)
        values = [(number // unit + step) * unit for step in range(-1, 3)]
    for is_reached in (number.__le__, number.__lt__):
        place = next(place for place, one in enumerate(values) if is_reached(one))
        yield values[place - 1], values[place]
