"""Pure. The places of a column's values on an axis, and the values that label the axis.

Numbers and times have proportional distances. Texts and bytes have no distances, so their values
have equal distances, in their order.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from lakehouse_source.language.values import days_of
from lakehouse_source.model import Ordinal
from lakehouse_source.pictures.markup import shortened
from lakehouse_source.schema.ordinal import domain, from_ordinal
from lakehouse_source.schema.texts import civil, date_text, timestamp_text

# About the width of a character in a drawing, and the room between two labels.
CHARACTER = 6.8
_ROOM = 14.0
_LONGEST = 22  # characters of a label
_MOST_TICKS = 12
# Up to this many whole numbers, dates or texts are drawn with a width. Neighbours do not touch.
_WIDE_VALUES = 200
_HALF = 0.49
_DAY = 86_400
# Steps of times, in seconds up to days; longer ones are months.
_SECONDS = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3600 * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, *(12 * n * 10**p for p in range(6) for n in (1, 2, 5)))


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at an axis; `at` is between 0 and 1."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Scale:
    """The axis of a column. `place` returns a number between 0 and 1, `ticks` takes the width.

    If the axis has few values, each is as wide as possible: `half` to each side.
    """

    place: Callable[[Ordinal], float]
    ticks: Callable[[float], list[Tick]]
    half: float = 0.0


def scale_of(type_: pa.DataType, values: Iterable[Ordinal]) -> Scale:
    """The axis on which all of these values of a type lie."""
    kind = domain(type_)
    if kind.kind in ("string", "binary"):
        return _ranked(type_, sorted({one for one in values if isinstance(one, bytes)}))
    factor = 1.0
    if kind.temporal:
        factor = kind.unit_ns / 1e9
    elif kind.kind == "decimal":
        factor = 10.0**-kind.scale

    def value_of(ordinal: Ordinal) -> float:
        assert not isinstance(ordinal, bytes)
        try:
            return float(ordinal) * factor
        except OverflowError:
            return math.inf if ordinal > 0 else -math.inf

    numbers = [value for value in map(value_of, values) if math.isfinite(value)]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    half = 0.0
    if kind.kind in ("int", "bool", "date") and high - low <= _WIDE_VALUES * factor:
        low, high, half = low - factor / 2, high + factor / 2, _HALF * factor
    elif not math.isfinite(high - low):
        low, high = low / 2, high / 2
    if high - low <= abs(high) * 1e-12:  # no number between them differs from both
        around = max(factor / 2, abs(high) * 1e-6)
        low, high, half = low - around, high + around, 0.0
    width = high - low
    steps = _moments if kind.kind in ("date", "timestamp") else _numbers
    is_whole = kind.kind in ("int", "bool")
    return Scale(
        lambda ordinal: min(1.0, max(0.0, (value_of(ordinal) - low) / width)),
        lambda wide: _fitting(
            wide,
            lambda most: [
                Tick(min(1.0, max(0.0, (at - low) / width)), text)
                for at, text in steps(low, high, most, is_whole)
            ],
        ),
        half / width,
    )


def counted(most: float) -> Scale:
    """The axis of a count from 0 on, whose ticks are whole numbers."""
    top = max(1.0, most)
    return Scale(
        lambda count: min(1.0, max(0.0, float(count) / top)),
        lambda room: [
            Tick(at / top, text)
            for at, text in _numbers(0.0, top, max(2, min(5, int(room // 30))), True)
        ],
    )


def value_text(ordinal: Ordinal | None, type_: pa.DataType) -> str:
    """A value for people; None: it is not known."""
    if ordinal is None:
        return "?"
    kind = domain(type_)
    if isinstance(ordinal, bytes):
        return ordinal.decode(errors="replace") if kind.kind == "string" else ordinal.hex()
    if isinstance(ordinal, int) and kind.kind in ("date", "timestamp"):
        if pa.types.is_date32(type_):
            return date_text(ordinal)
        return timestamp_text(ordinal * kind.unit_ns // 1000)
    return str(from_ordinal(ordinal, type_))


def size_text(size_bytes: float) -> str:
    """Bytes in the largest unit that fits at least once."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size_bytes < 1024 or unit == "TiB":
            break
        size_bytes /= 1024
    return f"{size_bytes:,.0f} {unit}" if size_bytes >= 10 else f"{size_bytes:.3g} {unit}"


# --- ticks ----------------------------------------------------------------------------


def _fitting(width: float, ticks: Callable[[int], list[Tick]]) -> list[Tick]:
    """As many ticks as fit side by side in a width."""
    for most in range(_MOST_TICKS, 1, -1):
        found = ticks(most)
        ends = [(one.at * width, len(one.text) * CHARACTER / 2) for one in found]
        if all(b - a > u + v + _ROOM for (a, u), (b, v) in pairwise(ends)):
            return found
    return ticks(1)[:1]


def _ranked(type_: pa.DataType, values: Sequence[bytes]) -> Scale:
    count = max(1, len(values))

    def place(ordinal: Ordinal) -> float:
        assert isinstance(ordinal, bytes)
        return min(1.0, (bisect_left(values, ordinal) + 0.5) / count)

    def ticks(most: int) -> list[Tick]:
        some = min(most, len(values))
        ranks = sorted({round(n * (len(values) - 1) / max(1, some - 1)) for n in range(some)})
        return [
            Tick((rank + 0.5) / count, shortened(value_text(values[rank], type_), _LONGEST))
            for rank in ranks
        ]

    half = _HALF / count if count <= _WIDE_VALUES else 0.0
    return Scale(place, lambda width: _fitting(width, ticks), half)


def _numbers(low: float, high: float, most: int, is_whole: bool) -> Iterator[tuple[float, str]]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    if is_whole:
        step = max(1.0, step)
    for count in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        at = count * step
        yield at, _number_text(at, step)


def _number_text(value: float, step: float) -> str:
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if step >= unit / 10 and abs(value) >= unit and abs(value) < 1e15:
            return f"{value / unit:g} {letter}"
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals > 6:
        return f"{value:.3g}"
    # A year has no comma.
    return f"{value:,.{decimals}f}" if abs(value) >= 10_000 else f"{value:.{decimals}f}"


def _moments(low: float, high: float, most: int, _is_whole: bool) -> Iterator[tuple[float, str]]:
    """Times in seconds, at which days, hours, months or years begin."""
    rough = (high - low) / most
    step = next((one for one in _SECONDS if one >= rough), None)
    if step is None:
        yield from _months(low, high, rough)
        return
    if rough < 0.5:
        yield from _numbers(low, high, most, False)
        return
    shown_day = None
    for count in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        at = count * step
        day, clock = date_text(at // _DAY), timestamp_text(at * 10**6)[11:]
        clock = clock[:5] if step >= 60 else clock
        if step >= _DAY:
            yield at, day
        else:
            yield at, f"{day} {clock}" if day != shown_day else clock
        shown_day = day


def _months(low: float, high: float, rough: float) -> Iterator[tuple[float, str]]:
    wanted = rough / (_DAY * 30.44)
    step = next((one for one in _MONTHS if one >= wanted), _MONTHS[-1])
    year, month, _ = civil(math.floor(low / _DAY))
    count = (year * 12 + month - 1) // step
    while True:
        year, month = divmod(count * step, 12)
        at = days_of(year, month + 1, 1) * _DAY
        if at > high:
            return
        if at >= low:
            text = date_text(at // _DAY)
            yield at, text[:-6] if step % 12 == 0 else text[:-3]
        count += 1
