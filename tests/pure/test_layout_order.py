"""The order of rows: the Hilbert curve by its definition, and values as Spark orders them."""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left, bisect_right
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.layout import (
    Curve,
    boundaries,
    comparable,
    hilbert_keys,
    places,
    sorted_places,
)

CUBES = [(2, bits) for bits in range(1, 7)] + [
    (3, 1),
    (3, 2),
    (3, 3),
    (3, 4),
    (4, 1),
    (4, 2),
    (4, 3),
]


@pytest.mark.parametrize(("dimensions", "bits"), CUBES)
def test_the_curve_visits_each_cell_once_and_steps_to_neighbours(
    dimensions: int, bits: int
) -> None:
    """These two are the definition of a Hilbert curve of a cube, up to its symmetries."""
    cells = list(itertools.product(range(1 << bits), repeat=dimensions))
    keys = hilbert_keys([pa.array(axis) for axis in zip(*cells)], bits).to_pylist()
    assert sorted(keys) == list(range(len(cells)))
    walk = [cell for _, cell in sorted(zip(keys, cells))]
    for one, following in itertools.pairwise(walk):
        assert sum(abs(a - b) for a, b in zip(one, following)) == 1


@pytest.mark.parametrize(("dimensions", "bits"), CUBES)
def test_a_part_of_the_curve_fills_a_part_of_the_cube(dimensions: int, bits: int) -> None:
    """Each cube of half the side is one stretch of the curve, at every scale."""
    cells = list(itertools.product(range(1 << bits), repeat=dimensions))
    keys = hilbert_keys([pa.array(axis) for axis in zip(*cells)], bits).to_pylist()
    for scale in range(1, bits):
        parts: dict[tuple[int, ...], set[int]] = {}
        for cell, key in zip(cells, keys):
            parts.setdefault(tuple(at >> scale for at in cell), set()).add(
                key >> (dimensions * scale)
            )
        assert all(len(part) == 1 for part in parts.values())


def spark_order(value: Any) -> tuple[Any, ...]:
    """NULL first, NaN last, -0.0 as 0.0, text as UTF-8."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value + 0.0)
    return (1, value.encode() if isinstance(value, str) else value)


INSTANTS = st.datetimes(datetime(1600, 1, 1), datetime(9999, 1, 1))
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text("ab\U0001f600\uffee\x00", max_size=4)),
    (pa.large_string(), st.text("ab", max_size=3).map(lambda end: "common prefix " * 9 + end)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    (pa.timestamp("us"), INSTANTS),
    (pa.timestamp("ns", "UTC"), st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(
        lambda at: at.replace(tzinfo=timezone.utc))),
    (pa.duration("us"), st.integers(-(10**9), 10**9).map(lambda us: timedelta(microseconds=us))),
    (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2, allow_nan=False)),
]  # fmt: skip
IDS = [str(type_) for type_, _ in COLUMNS]


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=IDS)
def test_one_column_has_its_own_order(type_: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(st.none() | values, max_size=25))
    def check(drawn: list[Any]) -> None:
        column = pa.array(drawn, type_)
        found = sorted_places([column], None).to_pylist()
        back = column.to_pylist()
        assert found == sorted(range(len(back)), key=lambda place: spark_order(back[place]))

    check()


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=IDS)
def test_comparable_values_are_never_turned_around(
    type_: pa.DataType, values: st.SearchStrategy[Any]
) -> None:
    @given(values, values)
    def check(one: Any, other: Any) -> None:
        column = pa.array([one, other], type_)
        left, right = column.to_pylist()
        a, b = comparable(column).to_pylist()
        if spark_order(left) < spark_order(right):
            assert a <= b
            assert a < b or pa.types.is_decimal(type_)
        elif spark_order(left) == spark_order(right):
            assert a == b

    check()


@pytest.mark.parametrize("has_search", [True, False])
@given(
    drawn=st.lists(st.none() | st.integers(-3, 9), max_size=20), among=st.sets(st.integers(0, 6))
)
def test_places_are_those_of_a_bisection(
    has_search: bool, drawn: list[int | None], among: set[int]
) -> None:
    steps = sorted(among)
    for after, find in ((True, bisect_right), (False, bisect_left)):
        with pytest.MonkeyPatch.context() as patch:
            if not has_search and hasattr(pc, "search_sorted"):
                patch.delattr(pc, "search_sorted")
            found = places(
                pa.array(drawn, pa.int64()), pa.array(steps, pa.int64()), after_equal=after
            )
        assert found.to_pylist() == [None if one is None else find(steps, one) for one in drawn]


@given(st.lists(st.none() | st.integers(0, 50), max_size=200), st.integers(1, 20))
def test_boundaries_divide_a_sample_evenly(drawn: list[int | None], most: int) -> None:
    found = boundaries(pa.array(drawn, pa.int64()), most).to_pylist()
    values = sorted(one for one in drawn if one is not None)
    assert found == sorted(set(found))
    assert len(found) <= most
    assert set(found) <= set(values)
    for low, high in itertools.pairwise(found):
        inside = sum(low < one < high for one in values)
        assert inside <= 2 * len(values) / min(most, len(values)) + 1


def test_rows_by_two_columns_lie_in_narrow_boxes() -> None:
    """1,024 files of 100 rows: a point of either column is in few of them, not in all."""
    rng = random.Random(5)
    rows = 102_400
    columns = [
        pa.array([rng.gauss(0, 1) for _ in range(rows)]),
        pa.array([f"common prefix {rng.randrange(10**6):06}" for _ in range(rows)]),
    ]
    curve = Curve.of([column.slice(0, 20_000) for column in columns])
    found = sorted_places(columns, curve)
    for column in columns:
        held = 0
        at = column[17].as_py()
        for start in range(0, rows, 100):
            some = pc.min_max(column.take(found.slice(start, 100))).as_py()
            held += some["min"] <= at <= some["max"]
        assert held <= 1024 / 8


def test_null_constant_and_skewed_columns_have_ranks() -> None:
    rows = 1000
    columns = [
        pa.array([None] * rows, pa.int64()),
        pa.array([7] * rows),
        pa.array([None, *[1] * (rows // 2), *range(rows - rows // 2 - 1)]),
    ]
    curve = Curve.of(columns)
    assert [len(one) for one in curve.boundaries] == [0, 1, 499]
    assert sorted(sorted_places(columns, curve).to_pylist()) == list(range(rows))
