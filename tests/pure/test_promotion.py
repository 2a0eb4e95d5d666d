"""Promotion: no pair of types ever rounds a value. The oracle is Python's exact arithmetic."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from math import copysign, isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.align import align, by_name
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.merge import initial, merge
from lakehouse_source.schema.types import RULES, Fit, fit

pytestmark = pytest.mark.slow

INTEGERS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(),
]  # fmt: skip
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal128(3, 0), pa.decimal128(10, 2), pa.decimal128(19, 0), pa.decimal128(20, 0),
    pa.decimal128(38, 10), pa.decimal128(38, 38), pa.decimal256(10, 2), pa.decimal256(76, 30),
    pa.decimal32(5, 2), pa.decimal64(18, 3),
]  # fmt: skip
UNITS = ("s", "ms", "us", "ns")
TIMESTAMPS = [pa.timestamp(unit, tz) for unit in UNITS for tz in (None, "UTC", "Asia/Kolkata")]
TEMPORAL = [
    pa.date32(), pa.date64(), *TIMESTAMPS, *(pa.duration(unit) for unit in UNITS),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
]  # fmt: skip
OTHERS = [
    pa.null(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
    pa.large_binary(), pa.binary(3), pa.binary(4), pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.int64()), pa.run_end_encoded(pa.int32(), pa.float32()),
]  # fmt: skip
TYPES = [*INTEGERS, *FLOATS, *DECIMALS, *TEMPORAL, *OTHERS]

SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6),
           "ns": Fraction(1, 10**9)}  # fmt: skip
EXACT = Context(prec=200, Emax=10**6, Emin=-(10**6))
BITS = {pa.float16(): 16, pa.float32(): 32, pa.float64(): 64}


def _signed(bits: int) -> st.SearchStrategy[int]:
    ends = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1, 1]
    near = [n for n in (2**53, 2**53 + 1, 2**24 + 1, 2932896, -719162) if abs(n) < 2 ** (bits - 1)]
    return st.sampled_from([*ends, *near]) | st.integers(*ends[:2])


def raw_values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """What `array_of` makes a value of the type of: counts for temporal types."""
    t = pa.types
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return raw_values(type_.value_type)
    if t.is_integer(type_):
        bits = type_.bit_width
        return _signed(bits) if t.is_signed_integer(type_) else _signed(bits).map(
            lambda value: value + 2 ** (bits - 1)
        )  # fmt: skip
    if t.is_floating(type_):
        return st.floats(width=BITS[type_]) | st.sampled_from([-0.0, 0.0, 1.5])
    if t.is_decimal(type_):
        top = 10**type_.precision - 1
        unscaled = st.sampled_from([-top, top, 0, 1]) | st.integers(-top, top)
        return unscaled.map(lambda value: Decimal(value).scaleb(-type_.scale, EXACT))
    if t.is_date32(type_):
        return _signed(32)
    if t.is_date64(type_):
        return _signed(32).map(lambda day: day * 86_400_000)
    if t.is_time(type_):
        return st.integers(0, int(86_400 / SECONDS[type_.unit]) - 1)
    if t.is_timestamp(type_) or t.is_duration(type_):
        return _signed(64)
    if t.is_boolean(type_):
        return st.booleans()
    if t.is_fixed_size_binary(type_):
        return st.binary(min_size=type_.byte_width, max_size=type_.byte_width)
    if t.is_null(type_):
        return st.none()
    return st.text(max_size=5) if "string" in str(type_) else st.binary(max_size=5)


def array_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    t = pa.types
    if t.is_dictionary(type_):
        return array_of(values, type_.value_type).dictionary_encode().cast(type_)
    if t.is_run_end_encoded(type_):
        ends = pa.array(range(1, len(values) + 1), pa.int32())
        return pa.RunEndEncodedArray.from_arrays(ends, array_of(values, type_.value_type))
    if t.is_float16(type_):
        return pa.array([None if v is None else np.float16(v) for v in values], type_)
    if t.is_temporal(type_):
        wide = not (t.is_date32(type_) or t.is_time32(type_))
        return pa.array(values, pa.int64() if wide else pa.int32()).cast(type_)
    return pa.array(values, type_)


def meaning(value: Any, type_: pa.DataType) -> Any:
    """What a raw value of a type means, exactly; equal meanings are equal values."""
    t = pa.types
    if value is None:
        return None
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return meaning(value, type_.value_type)
    if t.is_boolean(type_):
        return ("truth", value)
    if t.is_floating(type_):
        if not isfinite(value):
            return ("number", repr(float(value)))
        return ("number", Fraction(float(value)), copysign(1, value) < 0 and value == 0)
    if t.is_integer(type_) or t.is_decimal(type_):
        return ("number", Fraction(value), False)
    if t.is_date(type_):
        return ("moment", value * (86_400 if t.is_date32(type_) else SECONDS["ms"]), False)
    if t.is_timestamp(type_):
        return ("moment", value * SECONDS[type_.unit], type_.tz is not None)
    if t.is_temporal(type_):
        return ("time" if t.is_time(type_) else "span", value * SECONDS[type_.unit])
    return ("text", value) if isinstance(value, str) else ("bytes", value)


def meanings(column: pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if pa.types.is_temporal(type_):
        wide = not (pa.types.is_date32(type_) or pa.types.is_time32(type_))
        raw = column.cast(pa.int64() if wide else pa.int32()).to_pylist()
    else:
        raw = column.to_pylist()
    return [meaning(value, type_) for value in raw]


@cache
def merged(mine: pa.DataType, theirs: pa.DataType, promote: bool) -> pa.Schema | None:
    """The schema of a column of type `mine` that took in data of type `theirs`; None: refused."""
    try:
        return merge(initial(one(mine)), one(theirs), add_columns=promote)
    except SchemaMismatchError:
        return None


def one(type_: pa.DataType) -> pa.Schema:
    return pa.schema([("c", type_)])


@pytest.mark.parametrize("narrow", TYPES, ids=str)
@settings(max_examples=max(10, settings.default.max_examples // 8))  # each tries all types
@given(st.data())
@pytest.mark.sampled(2)
def test_a_value_is_exact_in_every_type_that_takes_it_or_is_refused(
    narrow: pa.DataType, data: st.DataObject
) -> None:
    values = [*data.draw(st.lists(raw_values(narrow), min_size=1, max_size=9)), None]
    table = pa.table({"c": array_of(values, narrow)})
    expected = [meaning(value, narrow) for value in values]
    stored = align(table, without_metadata(initial(one(narrow))), table.schema, by_name) if (
        fits_storage(table)
    ) else None  # fmt: skip
    if stored is not None:
        assert meanings(stored.column(0)) == expected
    for wide in TYPES:
        taken = merged(wide, narrow, False)
        if taken is not None:  # data written into a column of another type
            try:
                found = align(table, without_metadata(taken), table.schema, by_name)
            except SchemaMismatchError:
                found = None  # a value does not fit, and the write is refused
            if found is not None:
                assert meanings(found.column(0)) == expected, wide
        promoted = merged(narrow, wide, True)
        if promoted is not None and stored is not None:  # files read under a newer schema
            assert meanings(
                align(stored, without_metadata(promoted), stored.schema, by_name).column(0)
            ) == expected, wide  # fmt: skip


def fits_storage(table: pa.Table) -> bool:
    """Tell whether the values can be stored at all: far seconds do not fit milliseconds."""
    type_ = table.schema.field(0).type
    if not pa.types.is_timestamp(type_) or type_.unit != "s":
        return True
    counts = table.column(0).cast(pa.int64()).to_pylist()
    return all(c is None or -(2**63) <= c * 1000 < 2**63 for c in counts)


@pytest.mark.parametrize("decimal", DECIMALS, ids=str)
@pytest.mark.parametrize("floating", FLOATS, ids=str)
def test_floats_and_decimals_never_meet(floating: pa.DataType, decimal: pa.DataType) -> None:
    for promote in (False, True):
        assert merged(floating, decimal, promote) is None
        assert merged(decimal, floating, promote) is None


PROMOTIONS = [
    (pa.int8(), pa.int64(), True),
    (pa.int64(), pa.int8(), False),
    (pa.uint32(), pa.int64(), True),
    (pa.uint64(), pa.int64(), False),
    (pa.int32(), pa.float64(), True),
    (pa.int16(), pa.float32(), True),
    (pa.int32(), pa.float32(), False),
    (pa.int64(), pa.float64(), False),
    (pa.uint8(), pa.float16(), True),
    (pa.int16(), pa.float16(), False),
    (pa.int64(), pa.decimal128(19, 0), True),
    (pa.int64(), pa.decimal128(20, 2), False),
    (pa.float32(), pa.float64(), True),
    (pa.float64(), pa.float32(), False),
    (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
    (pa.decimal128(10, 2), pa.decimal128(11, 4), False),
    (pa.date32(), pa.timestamp("ms"), True),
    (pa.date32(), pa.timestamp("us"), False),
    (pa.timestamp("ms"), pa.timestamp("us"), False),
    (pa.date32(), pa.timestamp("ms", "UTC"), False),
    (pa.time32("ms"), pa.time64("ns"), True),
    (pa.time64("ns"), pa.time64("us"), False),
    (pa.duration("ms"), pa.duration("us"), False),
    (pa.binary(3), pa.binary(), True),
    (pa.binary(3), pa.binary(4), False),
    (pa.null(), pa.list_(pa.int8()), True),
    (pa.bool_(), pa.int8(), False),
    (pa.string(), pa.binary(), False),
]


@pytest.mark.parametrize(("narrow", "wide", "promotes"), PROMOTIONS, ids=str)
def test_a_column_is_promoted_where_every_value_of_its_type_is_exact(
    narrow: pa.DataType, wide: pa.DataType, promotes: bool
) -> None:
    found = merged(narrow, wide, True)
    assert (found is not None and without_metadata(found) == one(wide)) == promotes


@pytest.mark.parametrize("proved", [True, False])
def test_a_shorter_range_needs_the_proof_that_stored_values_are_in_it(proved: bool) -> None:
    asked = []

    def check(field: pa.Field, type_: pa.DataType) -> bool:
        asked.append((field.name, type_))
        return proved

    current, wider = initial(one(pa.date32())), one(pa.timestamp("us"))
    if proved:
        found = merge(current, wider, add_columns=True, stored_values_fit=check)
        assert without_metadata(found) == wider
    else:
        with pytest.raises(SchemaMismatchError, match="do not show that every value fits"):
            merge(current, wider, add_columns=True, stored_values_fit=check)
    assert asked == [("c", pa.timestamp("us"))]


@given(st.lists(st.sampled_from([*INTEGERS, *FLOATS, *DECIMALS]), min_size=2, max_size=5))
def test_types_stored_so_far_stay_exact_whatever_the_order_of_writes(
    types: list[pa.DataType],
) -> None:
    schema = initial(one(types[0]))
    columns = [schema.field("c").type]
    for type_ in types[1:]:
        try:
            schema = merge(schema, one(type_), add_columns=True)
        except SchemaMismatchError:
            continue
        columns.append(schema.field("c").type)
        assert all(fit(column, columns[-1]) is Fit.EVERY for column in columns)


def test_every_rule_names_its_source() -> None:
    assert all(rule.source.endswith(".") for rule in RULES)


@pytest.mark.parametrize(
    ("value", "narrow", "wide"),
    [
        (2**53 + 1, pa.int64(), pa.float64()),
        (2**24 + 1, pa.int32(), pa.float32()),
        (2**63, pa.uint64(), pa.float64()),
    ],
)
def test_an_integer_that_a_float_would_round_is_refused_by_its_value(
    value: int, narrow: pa.DataType, wide: pa.DataType
) -> None:
    table = pa.table({"c": pa.array([1, None, 2, value, 3, value + 4], narrow)})
    with pytest.raises(SchemaMismatchError, match=f"'c' .* {narrow} value {value} does not fit"):
        align(table, one(wide), table.schema, by_name)
    fits = table.slice(0, 3)
    assert align(fits, one(wide), table.schema, by_name).to_pylist() == fits.to_pylist()
