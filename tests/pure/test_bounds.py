"""Values as ordinals, JSON and byte keys: order, round trips, widening only."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.model import ColumnBounds, FileBounds, RowGroupMetadata
from lakehouse_source.pruning.bounds import (
    constant_bounds,
    decode_row_group,
    encode_row_group,
    file_bounds,
)
from lakehouse_source.pruning.keys import (
    EMPTY_LOWER,
    EMPTY_UPPER,
    UNBOUNDED_LOWER,
    UNBOUNDED_UPPER,
    encoding,
    key,
    prefix_range,
    upper_key,
)
from lakehouse_source.schema.fields import Leaf
from lakehouse_source.schema.json_values import from_json_value, to_json_value
from lakehouse_source.schema.ordinal import from_ordinal, to_ordinal, to_scalar
from tests.strategies import TYPES, ordinal, pool

ORDERED = [type_ for type_ in dict.fromkeys(TYPES) if not pa.types.is_null(type_)]


def leaf(type_: pa.DataType, id: int = 1, in_list: bool = False) -> Leaf:
    return Leaf(("c",), id, type_, in_list)


def group(type_: pa.DataType, bounds: ColumnBounds) -> RowGroupMetadata:
    return RowGroupMetadata(0, bounds.row_count, *encode_row_group([(leaf(type_), bounds)]))


def decoded(type_: pa.DataType, bounds: ColumnBounds, now: pa.DataType | None = None):
    return decode_row_group(group(type_, bounds), 1, type_, now or type_)


def order_key(value):
    return (value != value, 0.0 if value != value else value)


@pytest.mark.parametrize("type_", ORDERED, ids=str)
def test_keys_order_as_values_do(type_):
    found = sorted((ordinal(value, type_) for value in pool(type_)), key=order_key)
    keys = [key(value, type_) for value in found]
    assert keys == sorted(keys)
    for value, lower in zip(found, keys):
        upper = upper_key(value, type_)
        assert UNBOUNDED_LOWER <= lower <= upper <= UNBOUNDED_UPPER
        assert len(lower) <= 33
        for other, at in zip(found, keys):
            if other == other and value == value and other > value and lower != at:
                assert at > lower
            if isinstance(value, bytes) and other <= value:
                assert upper >= other[:40]


@given(st.data())
def test_keys_of_random_values_order_as_values_do(data):
    numbers = st.floats() | st.integers(-(2**53), 2**53).map(float)
    a, b = data.draw(numbers), data.draw(numbers)
    if a == a and b == b:
        assert (key(a, pa.float64()) < key(b, pa.float64())) == (a < b)
        assert (key(a, pa.float64()) == key(b, pa.float64())) == (a == b)
    x, y = data.draw(st.binary(max_size=40)), data.draw(st.binary(max_size=40))
    assert not (x <= y) or key(x, pa.binary()) <= key(y, pa.binary())
    assert not (x <= y) or x <= upper_key(y, pa.binary())
    m = data.draw(st.integers(-(2**63), 2**64 - 1))
    n = data.draw(st.integers(-(2**63), 2**64 - 1))
    assert (key(m, pa.int64()) < key(n, pa.uint64())) == (m < n)


@pytest.mark.parametrize("type_", ORDERED, ids=str)
def test_json_gives_back_what_it_was_given(type_):
    for value in pool(type_):
        found = ordinal(value, type_)
        written = json.loads(json.dumps(to_json_value(found, type_)))
        again = from_json_value(written, type_)
        assert again == found or (found != found and again != again)


@pytest.mark.parametrize("type_", ORDERED, ids=str)
def test_python_and_arrow_values_give_back_their_ordinal(type_):
    for value in pool(type_):
        found = ordinal(value, type_)
        for spelled in (from_ordinal(found, type_), to_scalar(found, type_)):
            again = to_ordinal(spelled, type_)
            assert again == found or (found != found and again != again)


@given(st.text(st.characters(codec="utf-8"), min_size=60, max_size=70))
def test_long_text_is_cut_outward(text):
    whole = text.encode()
    lower = to_json_value(whole, pa.string(), limit=64)
    upper = to_json_value(whole, pa.string(), upper=True, limit=64)
    assert lower.encode() <= whole
    assert upper is None or upper.encode() >= whole
    assert len(lower) <= 64


@given(st.binary(min_size=60, max_size=70))
def test_long_binaries_are_cut_outward(data):
    lower = from_json_value(to_json_value(data, pa.binary(), limit=64), pa.binary())
    upper = from_json_value(to_json_value(data, pa.binary(), upper=True, limit=64), pa.binary())
    assert lower <= data
    assert upper is None or upper >= data
    assert upper is not None or data[63] == 0xFF
    whole = from_json_value(to_json_value(data, pa.binary(), limit=64), pa.binary())
    assert (len(whole) < 64) == (len(data) < 64)  # what is cut is as long as the limit
    assert to_json_value(b"a" * 70, pa.binary(), upper=True, limit=64) is not None


def test_an_upper_bound_is_raised_past_the_surrogates():
    text = "x" * 63 + "\ud7ff" + "tail"
    assert to_json_value(text.encode(), pa.string(), upper=True, limit=64) == "x" * 63 + "\ue000"
    text = "x" * 63 + "\U0010ffff" + "tail"
    # A shorter one would be a bound as well, and would look like a value that was not cut.
    assert to_json_value(text.encode(), pa.string(), upper=True, limit=64) is None


def test_an_upper_bound_that_cannot_be_raised_is_left_out():
    most = ("\U0010ffff" * 70).encode()
    assert to_json_value(most, pa.string(), upper=True, limit=64) is None
    assert to_json_value(b"\xff" * 70, pa.binary(), upper=True, limit=64) is None
    assert upper_key(most, pa.string()) > most
    assert upper_key(b"\xff" * 33, pa.binary()) == UNBOUNDED_UPPER
    known = decoded(pa.string(), ColumnBounds(b"a", most, 0, 3, False))
    assert (known.lower, known.upper) == (b"a", None)


def test_text_cut_inside_of_a_character_by_its_writer_is_no_bound():
    cut = "ab€".encode()[:-1]
    assert to_json_value(cut, pa.string()) is None
    assert to_json_value(cut, pa.string(), upper=True) is None


def test_json_reads_as_people_expect():
    assert to_json_value(18_262, pa.date32()) == "2020-01-01"
    assert to_json_value(1_577_836_800_000_001, pa.timestamp("us")) == "2020-01-01T00:00:00.000001"
    assert to_json_value(1_577_836_800_000, pa.timestamp("ms", "UTC")) == "2020-01-01T00:00:00Z"
    assert to_json_value(2**63 - 1, pa.timestamp("us")) == 2**63 - 1
    assert to_json_value(-110, pa.decimal128(10, 2)) == "-1.10"
    assert to_json_value(math.inf, pa.float64()) == "Infinity"
    assert to_json_value(1, pa.bool_()) is True
    assert to_json_value(b"\x00\xff", pa.binary()) == {"base64": "AP8="}
    assert to_json_value(2**64 - 1, pa.uint64()) == 2**64 - 1


def test_json_of_another_kind_is_unknown_and_no_crash():
    for type_ in ORDERED:
        for junk in (None, [], {}, "what", {"base64": "?"}, "2020-99-99"):
            if not (pa.types.is_string(type_) and isinstance(junk, str)):
                assert from_json_value(junk, type_) is None
    assert from_json_value(True, pa.int64()) is None
    broken = RowGroupMetadata(0, 3, "{", "[]", "null", "1")
    assert decode_row_group(broken, 1, pa.int64(), pa.int64()) == ColumnBounds(
        None, None, None, 3, False
    )


def test_json_from_before_a_promotion_keeps_its_meaning():
    assert from_json_value(5, pa.decimal128(10, 2)) == 500
    assert from_json_value("2020-01-01", pa.timestamp("us")) == 1_577_836_800_000_000
    assert from_json_value(5, pa.string()) is None


def test_values_that_would_lose_precision_are_refused():
    fine = datetime(2020, 1, 1, 0, 0, 0, 1)
    for value, type_ in [
        (fine, pa.timestamp("ms")),
        (Decimal("1.001"), pa.decimal128(10, 2)),
        (time(0, 0, 0, 1), pa.time32("ms")),
        (timedelta(microseconds=1), pa.duration("ms")),
        ("1", pa.int32()),
        (True, pa.int32()),
        (None, pa.int32()),
        (pa.scalar(None, pa.int32()), pa.int32()),
        (datetime(2020, 1, 1), pa.date32()),
    ]:
        with pytest.raises(ValueError):
            to_ordinal(value, type_)


def test_aware_datetimes_are_instants():
    there = datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert to_ordinal(there, pa.timestamp("us", "UTC")) == 1_577_833_200_000_000
    assert from_ordinal(0, pa.timestamp("us", "UTC")) == datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert to_ordinal(date(2020, 1, 1), pa.timestamp("us")) == 1_577_836_800_000_000


def test_encodings_survive_widening_and_tell_apart_what_does_not_compare():
    assert encoding(pa.int8()) == encoding(pa.uint64()) == encoding(pa.int64())
    assert encoding(pa.float16()) == encoding(pa.float64())
    assert encoding(pa.date32()) == encoding(pa.timestamp("ns"))
    assert encoding(pa.timestamp("ms", "UTC")) == encoding(pa.timestamp("us", "UTC"))
    assert encoding(pa.timestamp("us", "UTC")) != encoding(pa.timestamp("us"))
    assert encoding(pa.decimal128(5, 2)) == encoding(pa.decimal128(12, 2))
    names = [pa.int32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(9, 4), pa.string()]
    assert len({encoding(type_) for type_ in names}) == len(names)
    assert encoding(pa.null()) is None
    assert encoding(pa.list_(pa.int32())) is None
    assert key(18_262, pa.date32()) == key(1_577_836_800_000, pa.timestamp("ms"))


# --- row groups and files ---


def test_a_missing_statistic_is_unknown_and_never_zero():
    known = decoded(pa.int32(), ColumnBounds(None, None, None, 5, False))
    assert known == ColumnBounds(None, None, None, 5, False)
    assert encode_row_group([(leaf(pa.int32()), ColumnBounds(None, 3, None, 5, False))]) == (
        "{}",
        '{"1":3}',
        "{}",
        "{}",
    )


def test_json_that_another_program_laid_out_is_read():
    for text in ('{"1":5}', ' \n{ "1" : 5 }\t', '{"1": 5}\n'):
        group = RowGroupMetadata(0, 10, text, text, text, "{}")
        assert decode_row_group(group, 1, pa.int64(), pa.int64()) == ColumnBounds(
            5, 5, 5, 10, False
        )
    for text in ("", "{", '{"1":5}}', '{"1":5} x', "[5]", "5", "nul"):
        group = RowGroupMetadata(0, 10, text, text, text, "{}")
        assert decode_row_group(group, 1, pa.int64(), pa.int64()) == ColumnBounds(
            None, None, None, 10, False
        )


def test_a_null_count_outside_of_the_rows_is_unknown():
    assert decoded(pa.int32(), ColumnBounds(1, 2, 9, 5, False)).null_count is None


def test_nan_is_never_a_bound_and_absent_only_where_known():
    nan = float("nan")
    assert decoded(pa.float64(), ColumnBounds(nan, nan, 0, 2, False)) == ColumnBounds(
        None, None, 0, 2, True
    )
    assert decoded(pa.float64(), ColumnBounds(1.0, 2.0, 0, 2, False)).may_contain_nan is False
    lower, upper, nulls, _ = encode_row_group(
        [(leaf(pa.float64()), ColumnBounds(1.0, 2.0, 0, 2, False))]
    )
    silent = RowGroupMetadata(0, 2, lower, upper, nulls, "{}")
    assert decode_row_group(silent, 1, pa.float64(), pa.float64()).may_contain_nan is True


def test_statistics_of_list_elements_are_not_recorded():
    bounds = ColumnBounds(1, 2, 7, 3, False)
    assert encode_row_group([(leaf(pa.int32(), in_list=True), bounds)]) == ("{}",) * 4
    assert file_bounds([], [leaf(pa.int32(), in_list=True)]) == []


def test_bounds_are_promoted_or_unknown():
    ints = ColumnBounds(-3, 7, 1, 9, False)
    assert decoded(pa.int32(), ints, pa.int64()) == ints
    assert decoded(pa.int32(), ints, pa.decimal128(12, 2)) == ColumnBounds(-300, 700, 1, 9, False)
    assert decoded(pa.int32(), ints, pa.string()) == ColumnBounds(None, None, 1, 9, False)
    days = decoded(pa.date32(), ColumnBounds(0, 1, 0, 2, False), pa.timestamp("us"))
    assert (days.lower, days.upper) == (0, 86_400_000_000)
    floats = decoded(pa.float64(), ColumnBounds(1.25, 2.5, 0, 2, False), pa.decimal128(10, 2))
    assert floats.lower <= 125
    assert floats.upper >= 250
    assert floats.may_contain_nan is False
    unknown = decoded(pa.float64(), ColumnBounds(1.25, 2.5, 0, 2, True), pa.decimal128(10, 2))
    assert unknown == ColumnBounds(None, None, None, 2, False)
    far = decoded(pa.timestamp("ms"), ColumnBounds(0, 2**63 - 1, 0, 2, False), pa.timestamp("ns"))
    assert (far.lower, far.upper) == (None, None)


def row(type_: pa.DataType, *bounds: ColumnBounds) -> FileBounds:
    groups = [group(type_, one) for one in bounds]
    (found,) = file_bounds(groups, [leaf(type_)])
    return found


def test_a_file_merges_its_row_groups():
    found = row(pa.int32(), ColumnBounds(5, 9, 1, 4, False), ColumnBounds(-2, 6, 0, 3, False))
    assert (found.lower, found.upper) == (key(-2, pa.int32()), key(9, pa.int32()))
    assert (found.null_count, found.row_count) == (1, 7)


def test_one_row_group_without_statistics_makes_the_file_unbounded():
    found = row(
        pa.int32(), ColumnBounds(5, 9, 1, 4, False), ColumnBounds(None, None, None, 3, False)
    )
    assert (found.lower, found.upper) == (UNBOUNDED_LOWER, UNBOUNDED_UPPER)
    assert found.null_count is None


def test_row_groups_of_nulls_do_not_widen_a_file():
    found = row(pa.int32(), ColumnBounds(5, 9, 0, 4, False), ColumnBounds(None, None, 3, 3, False))
    assert (found.lower, found.upper) == (key(5, pa.int32()), key(9, pa.int32()))
    assert found.null_count == 3


def test_a_column_of_nulls_has_the_empty_interval():
    found = row(pa.int32(), ColumnBounds(None, None, 3, 3, False))
    assert (found.lower, found.upper) == (EMPTY_LOWER, EMPTY_UPPER)


def test_nan_raises_the_upper_key_and_an_all_nan_file_is_unbounded():
    nan = key(float("nan"), pa.float64())
    assert nan > key(math.inf, pa.float64())
    found = row(pa.float64(), ColumnBounds(1.0, 2.0, 0, 3, True))
    assert (found.lower, found.upper) == (key(1.0, pa.float64()), nan)
    assert found.may_contain_nan
    only = row(pa.float64(), ColumnBounds(None, None, 0, 3, True))
    assert (only.lower, only.upper) == (UNBOUNDED_LOWER, UNBOUNDED_UPPER)


def test_bounds_that_contradict_each_other_say_nothing():
    found = row(pa.int32(), ColumnBounds(9, 5, 0, 4, False))
    assert (found.lower, found.upper) == (UNBOUNDED_LOWER, UNBOUNDED_UPPER)


def test_a_partition_value_is_both_bounds():
    known, index = constant_bounds(leaf(pa.string()), b"UA", 5)
    assert known == ColumnBounds(b"UA", b"UA", 0, 5, False)
    assert (index.lower, index.upper) == (b"UA", b"UA")
    known, index = constant_bounds(leaf(pa.string()), None, 5)
    assert known == ColumnBounds(None, None, 5, 5, False)
    assert (index.lower, index.upper) == (EMPTY_LOWER, EMPTY_UPPER)
    known, index = constant_bounds(leaf(pa.string()), b"", 5)
    assert known.lower == b""
    assert (index.lower, index.null_count) == (b"", 0)


def test_a_prefix_spans_everything_that_begins_with_it():
    lower, upper = prefix_range("é".encode(), pa.string())
    assert lower <= "é".encode() <= "é\U0010ffff".encode()[:32] <= upper
    assert not (lower <= "ê".encode() <= upper)
    lower, upper = prefix_range(b"a\xff", pa.binary())
    assert upper == b"b"
    assert prefix_range(b"\xff\xff", pa.binary())[1] == UNBOUNDED_UPPER
