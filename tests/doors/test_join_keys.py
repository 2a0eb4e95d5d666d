"""Many keys of a join become few ranges, in which every key is."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.schema.merge import initial
from lakehouse_source.spark.protocol.vocabulary import Key
from lakehouse_source.spark.reading import pushdown
from lakehouse_source.spark.reading.pushdown import decode_all
from tests.doors.pushed import call, comparison

SCHEMA = initial(pa.schema([("k", pa.int64()), ("d", pa.date32())]))


def keys(
    values: list[int], column: str = "k", type_: str = "bigint", null: bool = False
) -> dict[str, Any]:
    return comparison(column, "in", type_, *map(str, values), null=null)


def covered(term: Any, numbers: list[int]) -> set[int]:
    """The numbers of which the term is true."""
    table = pa.table({"k": numbers, "d": pa.array([0] * len(numbers), pa.date32())})
    decoded = decode_all([term], SCHEMA)
    assert decoded is not None
    mask = matching_mask(table, decoded).to_pylist()
    return {number for number, keep in zip(numbers, mask) if keep}


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 4))
def test_the_ranges_are_the_smallest_that_hold_every_key(values: list[int], most: int) -> None:
    found = covered(pushdown._ranges(keys(values), most), list(range(-1, 42)))
    distinct = sorted(set(values))
    parts = min(most, len(distinct))
    smallest = min(
        sum(
            distinct[end - 1] - distinct[start] + 1
            for start, end in zip((0, *cuts), (*cuts, len(distinct)))
        )
        for cuts in combinations(range(1, len(distinct)), parts - 1)
    )
    assert found >= set(values)
    assert len(found) == smallest


def test_few_keys_and_other_types_stay_as_they_are() -> None:
    few = keys(list(range(64)))
    texts = keys(list(range(500)), type_="string")
    with_null = keys(list(range(500)), null=True)
    assert pushdown.coarsened([few, texts, with_null], 0) == [few, texts, with_null]
    assert pushdown.coarsened([keys(list(range(500)))], 250) == [keys(list(range(500)))]


def test_a_join_without_keys_reads_nothing() -> None:
    column, _ = keys([])[Key.TERMS]
    (found,) = pushdown.coarsened([call("in", column)], 0)
    assert covered(found, [1, 2]) == set()


@pytest.mark.parametrize(("column", "type_"), [("k", "bigint"), ("d", "date")])
def test_keys_of_numbers_and_dates_become_ranges(column: str, type_: str) -> None:
    (found,) = pushdown.coarsened([keys([*range(0, 5000, 7), 10**6], column, type_)], 10)
    assert found[Key.NAME] == "or"
    assert len(found[Key.TERMS]) == 64
    assert decode_all([found], SCHEMA) is not None
