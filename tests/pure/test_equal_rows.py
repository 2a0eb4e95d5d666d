"""Rows with the same values, against a comparison in plain Python."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

from lakehouse_source.schema.arrow_arrays import equal_rows

TYPES = (
    *(pa.null(), pa.bool_(), pa.int32(), pa.float64(), pa.float32(), pa.string(), pa.binary()),
    *(pa.decimal128(5, 2), pa.timestamp("us", "UTC"), pa.dictionary(pa.int8(), pa.string())),
    pa.list_(pa.float32()),
    pa.large_list(pa.string()),
    pa.list_(pa.int8(), 2),
    pa.struct([("a", pa.float64()), ("b", pa.list_(pa.int32()))]),
    pa.map_(pa.string(), pa.float64()),
    pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int8())))])),
    pa.list_(pa.list_(pa.float64())),
)


def same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, dict):
        return all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def value(type_: pa.DataType, chance: random.Random) -> Any:
    t = pa.types
    if t.is_null(type_) or chance.random() < 0.2:
        return None
    if t.is_floating(type_):
        return chance.choice([0.0, -0.0, math.nan, 1.5])
    if t.is_struct(type_):
        return {field.name: value(field.type, chance) for field in type_}
    if t.is_map(type_):
        return [(key, value(type_.item_type, chance)) for key in "xy"[: chance.randrange(3)]]
    if t.is_fixed_size_list(type_):
        return [value(type_.value_type, chance) for _ in range(type_.list_size)]
    if t.is_list(type_) or t.is_large_list(type_):
        return [value(type_.value_type, chance) for _ in range(chance.randrange(3))]
    few = pa.array([0, 1], pa.int8())
    if t.is_binary(type_):
        few = few.cast(pa.string())
    if t.is_dictionary(type_):
        return chance.choice("ab")
    target = pa.int64() if t.is_timestamp(type_) else type_
    return chance.choice(few.cast(target).cast(type_).to_pylist())


def column(type_: pa.DataType, count: int, chance: random.Random) -> pa.ChunkedArray:
    """Values in several chunks that begin in the middle of their buffers."""
    parts = [count // 2, count - count // 2]
    arrays = [pa.array([value(type_, chance) for _ in range(n + 2)], type_)[2:] for n in parts]
    return pa.chunked_array(arrays, type_)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_rows_are_equal_where_every_value_is(type_: pa.DataType) -> None:
    chance = random.Random(str(type_))
    for count in (0, 1, 2, 40, 41):
        left = pa.table({"a": column(type_, count, chance), "b": column(pa.int8(), count, chance)})
        right = pa.table({"a": column(type_, count, chance), "b": column(pa.int8(), count, chance)})
        expected = [
            same(one, other) for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)
        ]
        assert equal_rows(left, right).to_pylist() == expected
        assert equal_rows(left, left).to_pylist() == [True] * count
