"""What SQL conditions imply: held against rows for every function, and at the edges of steps."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import BoundPredicate, Expression, PredicateSet, Scope
from lakehouse_source.language.bounds.bound import render_bound
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.model import ColumnBounds
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.merge import initial
from tests.expression_cases import table as rows_of
from tests.implied_conditions import Conditions, check
from tests.strategies import true_bounds

ZONES = (
    *("UTC", "America/New_York", "America/Sao_Paulo", "Asia/Kathmandu"),
    *("Asia/Manila", "Pacific/Apia", "+05:30"),
)


@given(st.integers(0, 2**32), st.sampled_from(ZONES))
def test_rows_never_have_a_truth_value_that_bounds_lack(seed: int, zone: str) -> None:
    draw = Conditions(seed)
    table = rows_of(seed)
    check(draw.condition(draw.random.randint(0, 3), table, zone), table, zone, draw.random)


def test_conditions_drawn_are_of_all_sorts() -> None:
    found = []
    for seed in range(60):
        draw, table = Conditions(seed), rows_of(seed)
        found.append(check(draw.condition(2, table, "UTC"), table, "UTC", draw.random))
    assert min(found.count(kind) for kind in ("whole", "part", "rows")) > 2


# --- what is said -----------------------------------------------------------

SCHEMA = initial(
    pa.schema(
        {
            "dt": pa.date32(),
            "ts": pa.timestamp("us", "UTC"),
            "wall": pa.timestamp("us"),
            "fine": pa.timestamp("ns", "UTC"),
            "i": pa.int32(),
            "l": pa.int64(),
            "wide": pa.decimal128(38, 0),
            "tiny": pa.int8(),
            "d": pa.float64(),
            "price": pa.decimal128(10, 2),
            "name": pa.string(),
            "other": pa.string(),
            "flag": pa.bool_(),
            "st": pa.struct([("due", pa.date32())]),
            "tags": pa.list_(pa.string()),
        }
    )
)


def bound(text: str, zone: str = "UTC") -> BoundPredicate:
    return PredicateSet.of(text).bind(SCHEMA, zone)


def said(text: str, zone: str = "UTC") -> list[tuple[bool, str]]:
    return [(one.whole, render_bound(one.condition)) for one in bound(text, zone).meanings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year(dt) = 2024", "dt >= DATE '2024-01-01' AND dt < DATE '2025-01-01'"),
        ("year(dt) <= 2024 - 1", "dt < DATE '2024-01-01'"),
        ("2024 < year(dt)", "dt >= DATE '2025-01-01'"),
        ("NOT (year(dt) = 2024)", "dt < DATE '2024-01-01' OR dt >= DATE '2025-01-01'"),
        ("year(ts) < 2024", "ts < TIMESTAMP '2024-01-01 00:00:00+00:00'"),
        (
            "CAST(ts AS DATE) > DATE '2024-02-28'",
            "ts >= TIMESTAMP '2024-02-29 00:00:00+00:00'",
        ),
        (
            "date(ts) > date('2024-02-28')",
            "ts >= TIMESTAMP '2024-02-29 00:00:00+00:00'",
        ),
        ("to_date(wall) <= '2024-02-29'", "wall < TIMESTAMP_NTZ '2024-03-01 00:00:00'"),
        ("trunc(dt, 'month') < DATE '2024-02-15'", "dt < DATE '2024-03-01'"),
        ("trunc(dt, 'quarter') >= DATE '2024-02-15'", "dt >= DATE '2024-04-01'"),
        ("last_day(dt) = DATE '2024-02-28'", "FALSE"),
        ("year(st.due) > 2024", "st.due >= DATE '2025-01-01'"),
        ("floor(price) = 3", "price >= 3.00 AND price < 4.00"),
        ("ceil(price) < -1", "price < -1.99"),
        ("round(price) = 3", "price >= 2.50 AND price < 3.50"),
        ("substring(name, 1, 2) = 'ab'", "startswith(name, 'ab')"),
        ("left(name, 2) = 'abc'", "name < ''"),
        ("left(name, 3) < 'ab'", "name < 'ab'"),
        ("left(name, 2) <= 'ab'", "name < 'ab' OR startswith(name, 'ab')"),
        ("left(name, 2) < 'abc'", "name < 'ab' OR startswith(name, 'ab')"),
        ("concat('a-', name) = 'a-b'", "name = 'b'"),
        ("coalesce(i, 0) > 3", "i > 3 AND i IS NOT NULL"),
        ("coalesce(i, 5) > 3", "(i > 3 AND i IS NOT NULL) OR i IS NULL"),
        ("CAST(tiny AS INT) >= 100 + 27", "tiny >= 127"),
        ("d * 2 >= 1", "d >= 0.5D"),  # NaN too
        ("d + 1 < 3", "d <= 1.9999999999999996D"),
        ("i * -2L = 4", "i = -2"),
        ("date_add(dt, 1) IN (DATE '2024-03-01')", "dt = DATE '2024-02-29'"),
        (
            "fine + INTERVAL '1' SECOND = TIMESTAMP '1970-01-01 00:00:01'",
            (
                "fine >= TIMESTAMP '1970-01-01 00:00:00+00:00' AND "
                "fine < TIMESTAMP '1970-01-01 00:00:00.000001+00:00'"
            ),
        ),
        ("CAST(tiny AS INT) = 3", "tiny = 3"),
        ("CAST(CAST(tiny AS INT) AS BIGINT) IN (3, 400)", "tiny = 3"),
        ("CAST(tiny AS BIGINT) IS NULL", "tiny IS NULL"),
        ("CAST(name AS STRING) LIKE 'a%'", "startswith(name, 'a')"),
    ],
)
def test_a_condition_that_is_a_range(text: str, expected: str) -> None:
    ((whole, found),) = said(text)
    assert whole
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i + 5 > 3", "i >= -1"),  # it may overflow
        ("floor(d) = 3", "d >= 3.0D AND d <= 3.9999999999999996D"),
        ("length(name) > 3", "name IS NOT NULL"),
        ("i < l", "i < l"),
        ("i % 2 = 1 OR dt = '2024-02-29'", "i IS NOT NULL OR dt = DATE '2024-02-29'"),
        ("upper(name) = 'A' AND name LIKE 'a%'", "name IS NOT NULL"),
        ("(l * 2) IS NULL", "l IS NULL"),
        ("CASE WHEN flag THEN i ELSE l END > 3 ", "(flag = TRUE AND i > 3) OR l > 3"),
        ("nullif(i, 3) = 7", "i = 7"),
        ("CAST(l AS INT) = 5", "l = 5"),
        ("month(dt) IN (1, 2)", "dt IS NOT NULL"),
        ("size(tags) > 1", "tags IS NOT NULL"),
    ],
)
def test_a_condition_that_implies_one_and_rows_decide(text: str, expected: str) -> None:
    (whole, found), *_ = said(text)
    assert not whole
    assert found.replace(" AND i IS NOT NULL OR l", " OR l") == expected


@pytest.mark.parametrize(
    "text",
    [
        *("month(dt) = 2", "hour(ts) = 3", "name = other OR i IN (l, 2)", "flag = (i % 2 = 0)"),
        *("coalesce(upper(name), 'x') = 'x'", "(name IS NULL) = (other IS NULL)"),
    ],
)
def test_what_is_cyclic_or_mixed_implies_no_range(text: str) -> None:
    for whole, found in said(text):
        assert not whole
        assert not set(found.split()) & {"<", ">", "<=", ">="}


def test_months_and_quarters_of_a_year_are_ranges() -> None:
    *_, (whole, found) = said("year(dt) = 2024 AND month(dt) IN (2, 12)")
    assert not whole
    assert found == (
        "(dt >= DATE '2024-02-01' AND dt < DATE '2024-03-01') OR "
        "(dt >= DATE '2024-12-01' AND dt < DATE '2025-01-01')"
    )
    *_, (_, found) = said("quarter(dt) = 1 AND 2023 = year(dt) AND month(dt) > 2")
    assert found == "dt >= DATE '2023-03-01' AND dt < DATE '2023-04-01'"
    *_, (_, nothing) = said("year(dt) = 2024 AND month(ts) = 2")
    assert nothing == "ts IS NOT NULL"


def test_a_month_on_which_the_other_term_fails_is_kept() -> None:
    march = (date(2024, 3, 5) - date(1970, 1, 1)).days
    assert keeps("year(dt) = 2024 AND 6 div (month(dt) - 3) > 1", "dt", march)
    assert not keeps("year(dt) = 2024 AND 6 div (month(dt) - 3) > 1", "dt", march - 31)


def test_a_constant_that_coalesce_rounds_is_rounded() -> None:
    assert keeps("coalesce(wide, 0.10) = 0", "dt", 0)
    assert not keeps("coalesce(wide, 0.10) > 0", "dt", 0)


def test_two_columns_that_are_null_are_the_same() -> None:
    assert keeps("i <=> l", "dt", 0)
    assert not keeps("i = l", "dt", 0)


# --- edges ------------------------------------------------------------------


def keeps(text: str, column: str, value: Any) -> bool:
    """Whether a file with one value of a column, and nothing else, is kept."""
    return kept(bound(text), column, value)


def kept(condition: BoundPredicate, column: str, value: Any) -> bool:
    leaves = {leaf.id: leaf for leaf in schemas.leaves(SCHEMA)}

    def look_up(column_id: int) -> ColumnBounds:
        leaf = leaves[column_id]
        return true_bounds([value if leaf.path[0] == column else None], leaf.type)

    return evaluate(condition, look_up).may_match


def micros(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "column", "inside", "outside"),
    [
        ("year(ts) = 2024", "ts", "2024-12-31T23:59:59.999999", "2025-01-01T00:00:00"),
        ("year(ts) = 2024", "ts", "2024-01-01T00:00:00", "2023-12-31T23:59:59.999999"),
        ("year(ts) = 1", "ts", "0001-01-01T00:00:00", "0002-01-01T00:00:00"),
        ("year(ts) = 9999", "ts", "9999-12-31T23:59:59.999999", "9998-12-31T23:59:59"),
        ("to_date(wall) < '1969-12-31'", "wall", "1969-12-30T23:59:59.999999", "1969-12-31"),
        ("date_trunc('hour', ts) >= '1969-12-31 23:00:00'", "ts", "1969-12-31T23:00", "1969-12-31"),
        ("date_trunc('WEEK', ts) = '2024-02-26'", "ts", "2024-03-03T23:59:59.999999", "2024-03-04"),
    ],
)
def test_the_ends_of_a_range_of_time(text: str, column: str, inside: str, outside: str) -> None:
    assert keeps(text, column, micros(inside))
    assert not keeps(text, column, micros(outside))


def test_a_column_finer_than_microseconds_keeps_the_last_one() -> None:
    last = micros("2024-12-31T23:59:59.999999") * 1000 + 999
    assert keeps("year(fine) = 2024", "fine", last)
    assert not keeps("year(fine) = 2024", "fine", last + 1)


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("America/Sao_Paulo", "2019-02-17"),
        ("America/New_York", "2024-11-03"),
        ("Pacific/Apia", "2011-12-30"),
        ("America/St_Johns", "2010-11-07"),  # at 00:01 the day before began again
    ],
)
def test_near_a_change_of_clocks_rows_decide(zone: str, day: str) -> None:
    change = date.fromisoformat(day)
    texts = [
        f"CAST(ts AS DATE) {op} DATE '{change + timedelta(days=shift)}'"
        for op in ("=", "<", ">=")
        for shift in (0, 1)
    ]
    texts += [
        f"CAST(ts AS TIMESTAMP_NTZ) {op} TIMESTAMP_NTZ '{day} {clock}:00'"
        for op in ("<", ">=")
        for clock in ("00:00", "00:30", "01:30")
    ]
    table = pa.table({"ts": pa.array(_hours(change), pa.timestamp("us", "UTC"))})
    stored = table.cast(initial(table.schema))
    for text in texts:
        rows = Expression.parse(text).bind(Scope({"": table.schema}, zone))
        expected = rows.evaluate({"": table}, table.num_rows).to_pylist()
        found = PredicateSet.of(text).bind(stored.schema, zone)
        assert matching_mask(stored, found).to_pylist() == expected
        condition = bound(text, zone)
        for hour, truth in zip(_hours(change), expected):
            assert not truth or kept(condition, "ts", hour)


def _hours(day: date) -> list[int]:
    noon = micros(f"{day}T12:00:00")
    return [noon + hour * 900_000_000 for hour in range(-144, 144)]


def test_a_range_in_a_zone_is_exact_where_clocks_are_calm() -> None:
    ((whole, found),) = said("year(ts) = 2024", "America/New_York")
    assert whole
    assert "2024-01-01 05:00:00+00:00" in found
    assert "2025-01-01 05:00:00+00:00" in found


@pytest.mark.parametrize(
    ("text", "column", "values"),
    [
        ("i + 2147483600 > 0", "i", [48, 47]),
        ("i - 2147483647 < 0", "i", [-1, 2_147_483_646]),
        ("- i <= -5", "i", [5, 2_147_483_647]),
        ("i * -1 >= 2147483640", "i", [-2_147_483_640, -2_147_483_647]),
        ("CAST(l AS INT) > 2147483640", "l", [2_147_483_641, 2_147_483_647]),
        ("tiny - 100Y < -120Y", "tiny", [-21, -28]),
        ("datediff(DATE '2024-01-01', dt) > 0", "dt", [19_722, -719_162]),
    ],
)
def test_values_beside_an_overflow_are_kept(text: str, column: str, values: list[int]) -> None:
    for value in values:
        assert keeps(text, column, value)


def test_nan_is_kept_where_it_matches() -> None:
    nan = float("nan")
    assert keeps("d * 2 > 5", "d", nan)
    assert keeps("floor(d) = 0", "d", nan)  # Spark's floor of NaN is 0
    assert keeps("d * -2 > 5", "d", nan)


def test_a_sum_of_zeros_keeps_both() -> None:
    assert keeps("d + 0 = 0", "d", -0.0)
    assert keeps("d * 1 >= 0", "d", -0.0)


# --- refusals and laziness --------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yeer(dt) = 2024", "the nearest known is year"),
        ("i > rand()", "not deterministic"),
        ("year(name) = 2024", "a date should"),
        ("i + 1", "BOOLEAN"),
        ("year(nowhere) = 2024", "there is no column nowhere"),
        ("i = 5 AND year(dt) = CAST('x' AS INT)", "cannot be cast"),
    ],
)
def test_a_condition_that_is_none_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidPredicateError, match=reason):
        bound(text)


def test_a_row_that_one_term_rules_out_does_not_fail_in_the_next() -> None:
    table = pa.table({"i": pa.array([0, 2, None, 4], pa.int32())})
    table = table.cast(initial(table.schema))
    safe = PredicateSet.of("i <> 0 AND 8 div i > 2").bind(table.schema)
    assert matching_mask(table, safe).to_pylist() == [False, True, False, False]
    either = PredicateSet.of("i = 0 OR 8 div i > 2").bind(table.schema)
    assert matching_mask(table, either).to_pylist() == [True, True, False, False]
    with pytest.raises(InvalidExpressionError, match="zero"):
        matching_mask(table, PredicateSet.of("8 div i > 2").bind(table.schema))


def test_a_condition_can_be_pickled_and_told_from_others() -> None:
    import pickle

    first = bound("length(name) > 3")
    matching_mask(pa.table({"name": ["abcd"]}), first)
    again = pickle.loads(pickle.dumps(first))
    assert again == first
    assert hash(again.root) == hash(first.root)
    assert bound("length(name) > 4") != first
    assert bound("CAST(d * 0.0D AS STRING) = '0.0'") != bound("CAST(d * -0.0D AS STRING) = '0.0'")
    assert matching_mask(pa.table({"name": ["abc", "abcd"]}), again).to_pylist() == [False, True]


def test_lists_of_conditions_hold_expressions_too() -> None:
    either = PredicateSet.of([[("i", "=", 3), "year(dt) = 2024"], ["length(name) = 2"]])
    table = pa.table(
        {
            "i": [3, 3, 4],
            "dt": [date(2024, 5, 1), date(2023, 5, 1), None],
            "name": ["a", "b", "cd"],
        }
    )
    table = table.cast(initial(table.schema))
    assert matching_mask(table, either.bind(table.schema)).to_pylist() == [True, False, True]
    assert PredicateSet.of(str(either)).bind(table.schema).columns == ("i", "dt", "name")


def test_now_is_one_moment() -> None:
    found = bound("dt >= current_date() - INTERVAL 7 DAYS AND ts < now()")
    assert all(one.whole for one in found.meanings)
