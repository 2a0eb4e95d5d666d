"""Overlap depth is what counting the ranges that hold each end gives."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.layout import Depth, depth_of_boxes, depth_of_ranges

KEYS = st.binary(max_size=2)
RANGES = st.tuples(KEYS, KEYS).map(sorted)


def power(depth: int) -> int:
    return 1 << (depth - 1).bit_length()


def arrays(ranges: list[list[bytes]]) -> tuple[pa.Array, pa.Array]:
    lower, upper = ([one[end] for one in ranges] for end in (0, 1))
    return pa.array(lower, pa.binary()), pa.array(upper, pa.binary())


@given(st.lists(st.tuples(RANGES, st.integers(0, 2)), max_size=30))
def test_depth_counts_ranges_at_their_ends(files: list[tuple[list[bytes], int]]) -> None:
    def at(point: bytes, group: int) -> int:
        return sum(g == group and low <= point <= high for (low, high), g in files)

    found = depth_of_ranges(
        *arrays([one for one, _ in files]), pa.array([group for _, group in files], pa.int64())
    )
    ends = [at(point, group) for one, group in files for point in one]
    assert found.files == len(files)
    assert found.most == max(ends, default=0)
    assert found.average == (sum(ends) / len(ends) if ends else 0)
    begins = [power(at(low, group)) for (low, _), group in files]
    assert found.histogram == {depth: begins.count(depth) for depth in begins}


@given(st.lists(st.tuples(RANGES, RANGES), min_size=1, max_size=20))
def test_depth_of_boxes_counts_those_that_hold_a_middle(
    files: list[tuple[list[bytes], list[bytes]]],
) -> None:
    order = [
        {end: rank for rank, end in enumerate(sorted({e for f in files for e in f[c]}), 1)}
        for c in (0, 1)
    ]
    boxes = [[[order[c][end] for end in file[c]] for c in (0, 1)] for file in files]
    depths = []
    for box in boxes:
        point = [(low + high) // 2 for low, high in box]
        depths.append(sum(all(low <= p <= high for (low, high), p in zip(b, point)) for b in boxes))
    found = depth_of_boxes([arrays([file[c] for file in files]) for c in (0, 1)])
    assert found == Depth(
        len(files),
        sum(depths) / len(depths),
        max(depths),
        {p: sum(power(d) == p for d in depths) for p in {power(d) for d in depths}},
    )


def test_no_files_have_no_depth() -> None:
    empty = pa.array([], pa.binary())
    assert depth_of_ranges(empty, empty) == depth_of_boxes([(empty, empty)]) == Depth()
