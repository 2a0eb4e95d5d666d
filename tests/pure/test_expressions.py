"""SQL expressions: what Spark says of them in `doors`, here without Spark and in the small."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidExpressionError, SchemaMismatchError
from lakehouse_source.language import (
    Expression,
    Scope,
    assign,
    conjuncts,
    equality,
    mask,
    only_of,
    require_assignable,
)
from lakehouse_source.language.parse import parse
from tests.expression_cases import drawn, written

pytestmark = pytest.mark.slow

NAN = math.nan


def value(text: Any, **columns: Any) -> Any:
    """The value of an expression on one row; columns are scalars of Arrow or Python's values."""
    return values(text, **{name: pa.array([one]) for name, one in columns.items()})[0]


def values(text: Any, **columns: pa.Array) -> list[Any]:
    rows = pa.table(columns or {"": pa.nulls(1)})
    scope = Scope({"t": rows.schema})
    return Expression.of(text).bind(scope).evaluate({"t": rows}, rows.num_rows).to_pylist()


def type_of(text: str, **types: pa.DataType) -> pa.DataType:
    return Expression.parse(text).bind(Scope({"t": pa.schema(types)})).type


# --- values -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 1", 2),
        ("7 / 2", 3.5),
        ("-7 div 2", -3),
        ("-7 % 3", -1),
        ("-9223372036854775808L % -1", 0),
        ("5.5D % -2", 1.5),
        ("0.1 + 0.2", Decimal("0.3")),
        ("1.0 / 3", Decimal("0.333333")),
        ("2.5 div 1", 2),
        ("'3' || 1 + 2", 33),
        ("1 + 2 || '3'", "33"),
        ("3 = 1 + 2", True),
        ("2 < 3 = TRUE", True),
        ("1 < NULL IS NULL", True),
        ("-2 * 3 + 10 % 4", -4),
        ("NOT 1 = 2 AND FALSE", False),
        ("r'a\\n' 'b\\n' \"\\u0063\\101\\q\"", "a\\nb\ncAq"),
        ("'\\U0001F600' = '\\uD83D\\uDE00'", True),
        ("'\\ud800'", "?"),  # as Java writes half a pair
        ("INTERVAL -'1' DAY + DATE '2024-01-01'", date(2023, 12, 31)),
        ("`year`(DATE '2024-03-01')", 2024),
        ("NULL AND FALSE", False),
        ("NULL OR TRUE", True),
        ("NOT NULL", None),
        ("NULL <=> NULL", True),
        ("1 <=> NULL", False),
        ("1 IN (2, NULL)", None),
        ("1 NOT IN (2, 3)", True),
        ("CAST('NaN' AS DOUBLE) = CAST('NaN' AS DOUBLE)", True),
        ("CAST('NaN' AS DOUBLE) > CAST('inf' AS DOUBLE)", True),
        ("0.0D = -0.0D", True),
        ("'\uffee' < '\U0001f600'", True),  # as UTF-8; UTF-16 would order them the other way
        ("CASE WHEN 1 = 2 THEN 'a' END", None),
        ("CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'b' END", "b"),
        ("coalesce(NULL, 2, 1 / 0)", 2.0),
        ("nullif(3, 3)", None),
        ("nvl2(NULL, 1, 2)", 2),
        ("'a' || NULL", None),
        ("concat('a', 1, TRUE)", "a1true"),
        ("substring('Spark', 0, 2)", "Sp"),
        ("substring('Spark', -3, 2)", "ar"),
        ("substring('Spark', -9, 6)", "Sp"),
        ("substring('Spark', 2)", "park"),
        ("right('Spark', 2)", "rk"),
        ("trim(' \t ')", "\t"),
        ("upper('straße ŉ ﬁ')", "STRASSE ʼN FI"),
        ("lower('ΑΣ İ')", "ας i̇"),
        ("length('\U0001f600é')", 2),
        ("lpad('abc', 2)", "ab"),
        ("rpad('a', 4, 'xy')", "axyx"),
        ("replace('abc', '', 'z')", "abc"),
        ("'a%b' LIKE 'a!%b' ESCAPE '!'", True),
        ("'a\nb' LIKE 'a_b'", True),
        ("'x\n' RLIKE 'x$'", True),
        ("'x\n' RLIKE 'x.'", False),
        ("round(2.5D)", 3.0),
        ("round(-2.5D)", -3.0),
        ("round(1.005D, 2)", 1.01),  # by its digits, not by the double
        ("round(15, -1)", 20),
        ("round(2.345, 2)", Decimal("2.35")),
        ("floor(-0.5)", Decimal("-1")),
        ("power(2, 10)", 1024.0),
        ("greatest(1, NULL, 3)", 3),
        ("isnan(NULL)", False),
        ("CAST('2024-1-5' AS DATE)", date(2024, 1, 5)),
        ("CAST(' 12 ' AS INT)", 12),
        ("TRY_CAST('1.5' AS INT)", None),
        ("CAST(2.5 AS INT)", 2),
        ("CAST(1.25 AS DECIMAL(2,1))", Decimal("1.3")),
        ("CAST(1e7 AS STRING)", "1.0E7"),
        ("DATE '2024-02-28' + INTERVAL 2 DAY", date(2024, 3, 1)),
        ("datediff(DATE '2024-03-01', DATE '2024-02-01')", 29),
        ("year(DATE '2024-03-01')", 2024),
        ("TIMESTAMP '2024-01-01 00:00:00' - INTERVAL 1 SECOND > '2023-12-31'", True),
        ("named_struct('q', 1, 'r', 'x')", {"q": 1, "r": "x"}),
        ("array(1, 2L, NULL)", [1, 2, None]),
        ("1 IS NOT NULL AND NULL IS NOT TRUE", True),
        ("'it''s'", "it's"),
        ("-128Y", -128),
    ],
)
def test_values(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("type_", "rows"),
    [
        (pa.list_(pa.int8()), [[1], None, [], [2, None]]),
        (pa.large_list(pa.int8()), [[1], None, [], [2, None]]),
        (pa.list_(pa.int8(), 2), [[1, 2], None, [3, 4]]),
        (pa.map_(pa.string(), pa.int8()), [[("a", 1)], None, [], [("a", 1), ("b", None)]]),
    ],
)
def test_the_size_of_lists_and_maps(type_: pa.DataType, rows: list[Any]) -> None:
    expected = [None if row is None else len(row) for row in rows]
    for first in range(len(rows)):
        column = pa.array(rows, type_).slice(first)
        assert values("size(c)", c=column) == expected[first:]
    with pytest.raises(InvalidExpressionError, match="STRING stands where an array or a map"):
        values("size('x')")


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("y + 1", pa.int32()),
        ("y + y", pa.int8()),
        ("i + l", pa.int64()),
        ("i / i", pa.float64()),
        ("f + i", pa.float64()),
        ("f + f", pa.float32()),
        ("c + 1", pa.decimal128(6, 2)),
        ("c + i", pa.decimal128(13, 2)),
        ("c * c", pa.decimal128(11, 4)),
        ("w / w", pa.decimal128(38, 6)),
        ("w * w", pa.decimal128(38, 0)),
        ("coalesce(y, c)", pa.decimal128(5, 2)),
        ("IF(TRUE, 1, 'x')", pa.int64()),
        ("u", pa.uint8()),
        ("u + u", pa.int16()),
        ("coalesce(CAST(1 AS BIGINT), CAST(1 AS DECIMAL(10,2)), '2')", pa.float64()),
        ("coalesce('2', CAST(1 AS BIGINT), CAST(1 AS DECIMAL(10,2)))", pa.decimal128(22, 2)),
    ],
)
def test_types(text: str, type_: pa.DataType) -> None:
    columns = {
        "y": pa.int8(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "u": pa.uint8(),
        "c": pa.decimal128(5, 2),
        "w": pa.decimal128(38, 0),
    }
    assert type_of(text, **columns) == type_


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2147483647 + 1", "overflow of INT at 2147483647 and 1"),
        ("127Y + 1Y", "overflow of TINYINT"),
        ("1 / 0", "division of 1.0 by zero"),
        ("1.5 % 0", "by zero"),
        ("1D / -0.0D", "by zero"),
        ("-9223372036854775808L div -1L", "overflow of BIGINT"),
        ("- (-128Y)", "overflow of TINYINT"),
        ("abs(-128Y)", "overflow of TINYINT"),
        ("CAST('x' AS INT)", "'x' cannot be cast to INT"),
        ("CAST(300 AS TINYINT)", "300 is out of range of TINYINT"),
        ("CAST(CAST('NaN' AS DOUBLE) AS INT)", "nan cannot be cast to INT"),
        ("CAST(99.99 AS DECIMAL(3,2))", "out of range"),
        ("CAST('2023-02-29' AS DATE)", "cannot be cast to DATE"),
        ("99999999999999999999999999999999999999 + 1", "out of range of DECIMAL(38,0)"),
        ("power(2, 0.5)", "not supported"),
        ("CAST('12:30' AS TIMESTAMP)", "today"),
    ],
)
def test_values_without_a_result_are_errors_that_name_them(text: str, told: str) -> None:
    with pytest.raises(InvalidExpressionError) as caught:
        value(text)
    assert told in caught.value.reason


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("foo(1)", "function foo is not supported; the nearest known is floor"),
        ("upper('a', 'b')", "function upper does not take 2 arguments"),
        ("1 + TRUE", "+ does not apply to INT and BOOLEAN"),
        ("1 AND TRUE", "1 is INT, not BOOLEAN"),
        ("TRUE = 1", "values of BOOLEAN and INT are not compared"),
        ("CASE WHEN NULL THEN 1 END", "has no type"),
        ("sum(a) OVER ()", "'OVER' is found"),
        ("a IN (SELECT 1)", "a query inside of an expression is not supported"),
        ("1 = 2 < 3", "values of BOOLEAN and INT are not compared"),
        ("'a' || 1 + 2", "cannot be cast"),
        ("'a' RLIKE '(?i)b'", "regular expression"),
        ("INTERVAL 1 DAY", "an interval is added"),
        ("1 +", "the text ends"),
        ("", "it is empty"),
        ("a -> b", "'->' is found"),
        ("abs(a -> b)", "-> is not supported"),
    ],
)
def test_what_is_not_supported_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidExpressionError) as caught:
        value(text)
    assert told in caught.value.reason


def test_the_text_of_a_node_is_read_as_the_same_node() -> None:
    for text in (*written()[::7], *drawn(3, 60)):
        node = parse(text)
        assert parse(str(node)) == node, text


@pytest.mark.parametrize(
    "literal",
    [
        *(None, True, 7, -(2**31), 2**40, 1.5, -0.0, b"\x00\xff", Decimal("-1.10")),
        *(date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 5), datetime.max),
        datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_python_values_are_literals(literal: Any) -> None:
    found = value(literal)
    assert found == literal
    assert type(found) is type(literal)
    assert value(str(Expression.of(literal))) == literal


def test_an_unusual_python_value_is_refused() -> None:
    for odd in (Decimal("NaN"), object(), 10**40, timedelta(days=1)):
        with pytest.raises(InvalidExpressionError):
            Expression.of(odd)


# --- laziness ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x != 0 AND 1 / x > 0.3", [False, True, None, True]),
        ("x = 0 OR 1 / x > 0.3", [True, True, None, True]),
        ("CASE WHEN x = 0 THEN -1 WHEN x = 1 THEN 10 div x ELSE 7 END", [-1, 10, 7, 7]),
        ("IF(x = 0, 0, 12 div x)", [0, 12, None, 6]),
        ("coalesce(nullif(x, 0), y, 1 / 0)", [5.0, 1.0, 5.0, 2.0]),
        ("x IN (1, 10 div y, 2)", [False, True, None, True]),
        ("z + 1 / 0", [None] * 4),
        ("nullif(1, 1) / x", [None] * 4),  # NULL / 0 is NULL
    ],
)
def test_parts_that_a_row_does_not_need_are_not_evaluated_there(
    text: str, expected: list[Any]
) -> None:
    columns = {
        "x": pa.array([0, 1, None, 2], pa.int32()),
        "y": pa.array([5, 5, 5, 5], pa.int32()),
        "z": pa.array([None] * 4, pa.float64()),
    }
    assert values(text, **columns) == expected


def test_rows_in_many_slices_and_chunks_stay_in_order() -> None:
    count = 200_000
    numbers = pa.chunked_array([range(70_000), range(70_000, count)], pa.int64())
    rows = pa.table({"n": numbers})
    text = "CASE WHEN n % 3 = 0 THEN n div (n + 1) WHEN n % 3 = 1 THEN n * 2 ELSE -n END"
    bound = Expression.parse(text).bind(Scope({"t": rows.schema}))
    found = bound.evaluate({"t": rows}, count).to_pylist()
    assert found == [0 if n % 3 == 0 else n * 2 if n % 3 == 1 else -n for n in range(count)]
    assert bound.evaluate({"t": rows.slice(0, 0)}, 0).type == pa.int64()
    assert Expression.parse("1 + 1").bind(Scope({})).evaluate({}, 3).to_pylist() == [2, 2, 2]


# --- names ------------------------------------------------------------------

TARGET = pa.schema([("id", pa.int32()), ("x", pa.float64()), ("Only", pa.int8())])
NESTED = pa.struct([("q", pa.int16())])
SOURCE = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("st", NESTED), ("s", pa.string())])
BOTH = Scope({"target": TARGET, "source": SOURCE})


def test_names_are_found_by_qualifier_and_by_field() -> None:
    text = "TARGET.ID = source.id AND only > st.q AND source.st.Q IS NULL"
    expression = Expression.parse(text)
    assert expression.columns == (
        ("TARGET", "ID"), ("source", "id"), ("only",), ("st", "q"), ("source", "st", "Q"),
    )  # fmt: skip
    assert expression.bind(BOTH).columns == (
        ("target", "id"), ("source", "id"), ("target", "Only"), ("source", "st"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id = 1", "id is a column of target and source"),
        ("other.x", "there is no column other.x: target has id, x, Only; source has"),
        ("target.st.q", "there is no column"),
        ("s.q", "there is no column"),
    ],
)
def test_a_name_that_is_unknown_or_ambiguous_says_so(text: str, told: str) -> None:
    with pytest.raises(InvalidExpressionError) as caught:
        Expression.parse(text).bind(BOTH)
    assert told in caught.value.reason


def test_a_field_of_a_null_struct_is_null_and_a_bare_column_keeps_its_type() -> None:
    rows = pa.table(
        {
            "st": pa.array([{"q": 1}, None], pa.struct([("q", pa.int32())])),
            "ns": pa.array([1, 2], pa.timestamp("ns")),
            "u": pa.array(["a", None], pa.large_string()).dictionary_encode(),
        }
    )
    scope = Scope({"t": rows.schema})
    assert Expression.parse("st.q").bind(scope).evaluate({"t": rows}, 2).to_pylist() == [1, None]
    assert Expression.parse("t.ns").bind(scope).evaluate({"t": rows}, 2).equals(rows["ns"])
    upper = Expression.parse("upper(u)").bind(scope).evaluate({"t": rows}, 2)
    assert upper.to_pylist() == ["A", None]
    with pytest.raises(InvalidExpressionError):  # finer than a microsecond
        Expression.parse("year(ns)").bind(scope).evaluate({"t": rows}, 2)


def test_now_is_one_moment_for_a_scope() -> None:
    now = datetime(2024, 1, 1, 3, tzinfo=timezone.utc)
    scope = Scope({}, timezone="America/New_York", now=now)
    for text, expected in (
        ("current_timestamp()", now),
        ("now()", now),
        ("current_date", date(2023, 12, 31)),
    ):
        assert Expression.parse(text).bind(scope).evaluate({}, 1).to_pylist() == [expected]


# --- conditions taken apart -------------------------------------------------


def test_conjuncts_and_equalities_of_a_merge_condition() -> None:
    text = "target.id = source.id AND (source.x > target.x AND Only <=> st.q) AND s = 'a'"
    terms = conjuncts(Expression.parse(text))
    assert [str(term) for term in terms] == [
        "target.id = source.id",
        "source.x > target.x",
        "Only <=> st.q",
        "s = 'a'",
    ]
    found = [equality(term, BOTH) for term in terms]
    assert [None if one is None else one.null_safe for one in found] == [False, None, True, None]
    assert found[0] is not None
    assert [side.qualifier for side in found[0].sides] == ["target", "source"]
    assert [side.value.bind(BOTH).type for side in found[0].sides] == [pa.int64(), pa.int64()]
    assert [only_of(term, BOTH, "SOURCE") for term in terms] == [False, False, False, True]


@given(
    st.lists(st.sampled_from([0.0, -0.0, NAN, -NAN, 1.0, 2.5, None]), min_size=1, max_size=6),
    st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=6),
)
def test_sides_of_an_equality_have_the_same_form_where_they_are_equal(
    left: list[float | None], right: list[int | None]
) -> None:
    term = Expression.parse("target.x = source.x")
    found = equality(term, BOTH)
    assert found is not None
    pairs = [(a, b) for a in left for b in right]
    rows = {
        "target": pa.table({"x": pa.array([a for a, _ in pairs], pa.float64())}),
        "source": pa.table({"x": pa.array([b for _, b in pairs], pa.int32())}),
    }
    equal = mask(term.bind(BOTH), rows, len(pairs)).to_pylist()
    (a,), (b,) = (
        side.form(side.value.bind(BOTH).evaluate(rows, len(pairs)).combine_chunks())
        for side in found.sides
    )
    a, b = a.to_pylist(), b.to_pylist()
    assert equal == [x is not None and x == y for x, y in zip(a, b)]


# --- algebra ----------------------------------------------------------------

_WIDTHS = {"y": pa.int8(), "h": pa.int16(), "i": pa.int32(), "l": pa.int64()}


@given(st.sampled_from(list(_WIDTHS)), st.sampled_from(["+", "-", "*", "%"]), st.data())
def test_integers_are_exact_or_an_error(name: str, op: str, data: st.DataObject) -> None:
    high = (1 << (_WIDTHS[name].bit_width - 1)) - 1
    numbers = st.one_of(
        st.integers(-high - 1, high), st.sampled_from([-high - 1, high, -1, 0, 1]), st.none()
    )
    a, b = data.draw(numbers), data.draw(numbers)
    columns = {"a": pa.array([a], _WIDTHS[name]), "b": pa.array([b], _WIDTHS[name])}
    if a is None or b is None:
        expected = None
    elif op == "%":
        expected = 0 if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)
    else:
        expected = {"+": a + b, "-": a - b, "*": a * b}[op]
    fits = expected is None or (-high - 1 <= expected <= high and not (op == "%" and b == 0))
    if fits:
        assert values(f"a {op} b", **columns) == [expected]
    else:
        with pytest.raises(InvalidExpressionError):
            values(f"a {op} b", **columns)


@given(
    st.lists(
        st.tuples(*[st.sampled_from([True, False, None])] * 3), min_size=1, max_size=27
    )
)  # fmt: skip
def test_truth_has_three_values(rows: list[tuple[bool | None, ...]]) -> None:
    columns = {name: pa.array(column, pa.bool_()) for name, column in zip("abc", zip(*rows))}

    def both(x: bool | None, y: bool | None) -> bool | None:
        return False if x is False or y is False else None if None in (x, y) else True

    def either(x: bool | None, y: bool | None) -> bool | None:
        return True if x is True or y is True else None if None in (x, y) else False

    found = values("a AND NOT b OR c", **columns)
    denied = [(a, None if b is None else not b, c) for a, b, c in rows]
    assert found == [either(both(a, b), c) for a, b, c in denied]
    assert values("(a <=> b) AND a IS NOT NULL", **columns) == [
        a == b and a is not None for a, b, _ in rows
    ]


@given(st.lists(st.tuples(*[st.sampled_from([NAN, math.inf, 0.0, -0.0, -1.5, None])] * 2)))
def test_nan_is_the_greatest_and_zeros_are_equal(rows: list[tuple[Any, Any]]) -> None:
    columns = {n: pa.array([row[p] for row in rows], pa.float64()) for p, n in enumerate("ab")}

    def key(number: float) -> tuple[bool, float]:
        return (True, 0.0) if number != number else (False, number + 0.0)

    for op, test in (
        ("=", lambda x, y: x == y),
        ("!=", lambda x, y: x != y),
        ("<", lambda x, y: x < y),
        ("<=", lambda x, y: x <= y),
        (">", lambda x, y: x > y),
        (">=", lambda x, y: x >= y),
    ):
        assert values(f"a {op} b", **columns) == [
            None if None in row else test(key(row[0]), key(row[1])) for row in rows
        ]


@pytest.mark.long
@given(st.text(max_size=6), st.integers(-8, 8), st.integers(-2, 8))
def test_substring_counts_as_spark_says(text: str, start: int, count: int) -> None:
    # Characters have the places 1 to n, and from the end -1 to -n. A start before the first
    # one takes places that hold nothing.
    first = start if start > 0 else len(text) + start + 1 if start < 0 else 1
    expected = "".join(
        character for place, character in enumerate(text, 1) if first <= place < first + count
    )
    found = values(f"substring(s, {start}, {count})", s=pa.array([text], pa.string()))
    assert found == [expected]


# --- masks and store assignment ---------------------------------------------


def test_a_mask_is_true_where_the_condition_is_true() -> None:
    rows = pa.table({"x": [1, None, 3]})
    scope = Scope({"t": rows.schema})
    for text, expected in (("x > 1", [False, False, True]), ("NULL", [False] * 3)):
        found = mask(Expression.parse(text).bind(scope), {"t": rows}, 3)
        assert found.to_pylist() == expected
    with pytest.raises(InvalidExpressionError, match="a condition is BOOLEAN"):
        mask(Expression.parse("x").bind(scope), {"t": rows}, 3)


@pytest.mark.parametrize(
    ("given_", "to", "expected"),
    [
        (pa.array([1, None], pa.int64()), pa.int8(), [1, None]),
        (pa.array([1.9, -1.9]), pa.int32(), [1, -1]),
        (pa.array([Decimal("1.25")]), pa.decimal128(2, 1), [Decimal("1.3")]),
        (pa.array([5], pa.int32()), pa.uint8(), [5]),
        (pa.array([5], pa.int32()), pa.string(), ["5"]),
        (pa.array([5], pa.int32()), pa.large_string(), ["5"]),
        (pa.array([date(2024, 1, 1)]), pa.timestamp("ms"), [datetime(2024, 1, 1)]),
        (pa.nulls(2), pa.list_(pa.int8()), [None, None]),
        (
            pa.array([{"q": 1}, None], pa.struct([("q", pa.int64())])),
            pa.struct([("q", pa.int16())]),
            [{"q": 1}, None],
        ),
        (pa.array([[1, None], None], pa.list_(pa.int64())), pa.list_(pa.int8()), [[1, None], None]),
    ],
)
def test_store_assignment(given_: pa.Array, to: pa.DataType, expected: list[Any]) -> None:
    found = assign(given_, pa.field("c", to))
    assert found.type == to
    assert found.to_pylist() == expected
    assert assign(pa.chunked_array([given_]), pa.field("c", to)).equals(found)


@pytest.mark.parametrize(
    ("given_", "to", "told"),
    [
        (pa.array([300]), pa.field("c", pa.int8()), "300 is out of range of TINYINT"),
        (pa.array([-1]), pa.field("c", pa.uint8()), "cannot store a value"),
        (pa.array([None, 1]), pa.field("c", pa.int64(), False), "is NOT NULL"),
        (pa.nulls(1), pa.field("c", pa.int64(), False), "is NOT NULL"),
        (pa.array(["1"]), pa.field("c", pa.int32()), "is int32 and the value"),
        (pa.array([True]), pa.field("c", pa.int32()), "is int32 and the value"),
        (pa.array([1]), pa.field("c", pa.bool_()), "is bool and the value"),
        (pa.array([1]), pa.field("c", pa.date32()), "the value assigned to it is int64"),
        (
            pa.array([datetime(2024, 1, 1, microsecond=1)]),
            pa.field("c", pa.timestamp("ms")),
            "cannot store a value",
        ),
    ],
)
def test_what_a_column_cannot_store_is_an_error_that_names_it(
    given_: pa.Array, to: pa.Field, told: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=told) as caught:
        assign(given_, to)
    assert caught.value.column == "c"
    require_assignable(to.type, to)


def test_moments_of_numpy_and_pandas_are_literals() -> None:
    moment = datetime(2024, 2, 29, 12)
    for value in (np.datetime64(moment, "ns"), np.datetime64(moment, "h"), pd.Timestamp(moment)):
        assert Expression.of(value).bind(Scope({})).evaluate({}, 1).to_pylist() == [moment]
    day = Expression.of(np.datetime64("2024-02-29")).bind(Scope({}))
    assert day.evaluate({}, 1).to_pylist() == [date(2024, 2, 29)]
    for value in (pd.NaT, pd.NA, np.datetime64("NaT")):
        assert Expression.of(value).bind(Scope({})).evaluate({}, 1).to_pylist() == [None]
    for value in (np.datetime64(1, "ns"), np.datetime64(1, "ps"), np.timedelta64(1, "M"), [1]):
        with pytest.raises(InvalidExpressionError):
            Expression.of(value)
