"""The levels of the search index: what a search of one has to look at."""

from __future__ import annotations

from itertools import pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.pruning.keys import (
    EMPTY_LOWER,
    EMPTY_UPPER,
    UNBOUNDED_LOWER,
    UNBOUNDED_UPPER,
    last_of_level,
    level,
    spans,
)

# Few different bytes, so that keys begin alike.
alike = st.lists(st.sampled_from([0x00, 0x0F, 0x10, 0x1F, 0x80, 0xF0, 0xFF]), max_size=5).map(bytes)
keys = st.one_of(
    alike,
    st.binary(max_size=40),
    st.tuples(alike, alike).map(lambda parts: b"customer" + parts[0] + parts[1]),
    st.sampled_from([UNBOUNDED_LOWER, UNBOUNDED_UPPER, EMPTY_LOWER, EMPTY_UPPER]),
)
intervals = st.tuples(keys, keys).map(lambda pair: (min(pair), max(pair)))


def digits_in_common(lower: bytes, upper: bytes) -> int:
    pairs = zip(lower.hex(), upper.hex())
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


@given(keys, keys)
def test_the_level_is_the_digits_that_two_keys_have_in_common(one: bytes, other: bytes) -> None:
    assert level(one, other) == digits_in_common(one, other)


@pytest.mark.parametrize(
    ("lower", "upper"), [(UNBOUNDED_LOWER, UNBOUNDED_UPPER), (EMPTY_LOWER, EMPTY_UPPER)]
)
def test_intervals_of_what_is_unknown_and_what_is_empty_are_on_the_lowest_level(
    lower: bytes, upper: bytes
) -> None:
    assert level(lower, upper) == 0


@given(intervals, keys, st.integers(0, 80))
def test_no_file_that_overlaps_lies_behind_the_last_key(
    held: tuple[bytes, bytes], highest: bytes, any_level: int
) -> None:
    lower, upper = held
    at_most = min(any_level, digits_in_common(lower, upper))
    if lower <= highest:
        assert upper <= last_of_level(highest, at_most)


def test_the_last_key_leaves_out_files_that_begin_later() -> None:
    # Three digits in common with 0x12345678: nothing from 0x12400000 on can begin before it.
    last = last_of_level(bytes.fromhex("12345678"), 3)
    assert bytes.fromhex("123fffffffff") < last < bytes.fromhex("1240")
    last = last_of_level(bytes.fromhex("12345678"), 4)
    assert bytes.fromhex("1234ffffffff") < last < bytes.fromhex("1235")


@given(st.lists(intervals, max_size=8), st.lists(intervals, max_size=8))
def test_spans_hold_every_file_that_overlaps_and_no_key_twice(
    wanted: list[tuple[bytes, bytes]], files: list[tuple[bytes, bytes]]
) -> None:
    ranges: list[tuple[bytes, bytes]] = []
    for one in sorted(wanted):
        if not ranges or one[0] > ranges[-1][1]:
            ranges.append(one)
    for depth in range(12):
        found = spans(ranges, depth)
        assert all(before[2] < after[1] for before, after in pairwise(found))
        assert all(own == depth for own, *_ in found)
        for lower, upper in files:
            if digits_in_common(lower, upper) < depth:
                continue
            if any(low <= upper and high >= lower for low, high in ranges):
                assert any(
                    first <= upper <= last and lower <= highest for _, first, last, highest in found
                )
            elif len(ranges) == 1:  # of one range, nothing else is found
                assert not any(
                    first <= upper <= last and lower <= highest for _, first, last, highest in found
                )
