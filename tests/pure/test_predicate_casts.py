"""Casts of columns in conditions. The oracle computes the cast: PyArrow's kernels, or Decimal."""

from __future__ import annotations

import operator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language import PredicateSet
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.schema.merge import initial

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# A stored type, the cast, what the cast makes of a value, awkward values and literals.
BIG = [-(2**63), -1, 0, 1, 5, 2**53, 2**53 + 1, 2**63 - 1]
CASTS: list[tuple[pa.DataType, str, Any, list[Any], list[Any]]] = [
    (pa.int8(), "BIGINT", int, [-128, 0, 5, 127], [-129, 5, 128, 2**40]),
    (pa.int64(), "BIGINT", int, BIG, BIG),
    (pa.uint32(), "BIGINT", int, [0, 5, 2**32 - 1], [-1, 5, 2**32]),
    (pa.int16(), "FLOAT", float, [-5, 0, 5], [4.5, 5.0, 1e30]),
    (pa.int32(), "DOUBLE", float, [-(2**31), 0, 5], [4.5, 5.0, 5]),
    (pa.int64(), "DOUBLE", float, BIG, [*map(float, BIG), 4.5, 2**53 + 1]),
    (pa.int32(), "DECIMAL(12, 2)", Decimal, [-5, 0, 5], [Decimal("4.99"), Decimal("5.00"), 5]),
    (pa.decimal128(4, 2), "DECIMAL(8, 3)", Decimal, [Decimal("1.10"), Decimal("-0.01")],
     [Decimal("1.1"), Decimal("1.1005"), 1, 1000000]),
    (pa.decimal128(4, 1), "DOUBLE", float, [Decimal("1.1"), Decimal("-0.3")],
     [1.1, -0.3, 1.0999999999999999, 1]),
    (pa.float32(), "DOUBLE", float, [0.5, -0.0, 0.10000000149011612], [0.1, 0.5, 0.0]),
    (pa.string(), "STRING", str, ["", "a", "é"], ["a", "z"]),
    (pa.date32(), "DATE", lambda d: d, [date(2020, 1, 1)], [date(2020, 1, 1), date(2021, 1, 1)]),
    (pa.date32(), "TIMESTAMP_NTZ", lambda d: datetime(d.year, d.month, d.day),
     [date(2020, 1, 1), date(2020, 1, 2)], [datetime(2020, 1, 1), datetime(2020, 1, 1, 12)]),
    (pa.date32(), "TIMESTAMP", lambda d: datetime(d.year, d.month, d.day, tzinfo=timezone.utc),
     [date(2020, 1, 1), date(2020, 1, 2)],
     [datetime(2020, 1, 1, 12, tzinfo=timezone.utc), datetime(2020, 1, 2, tzinfo=timezone.utc)]),
]  # fmt: skip


def spelled(value: Any) -> str:
    if isinstance(value, float):
        return f"{value!r}D" if "e" not in repr(value) else repr(value)
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        return f"TIMESTAMP{'' if zoned else '_NTZ'} '{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


@given(st.data())
def test_a_cast_column_compares_as_the_cast_values_do(data: st.DataObject) -> None:
    type_, to, cast, pool, literals = data.draw(st.sampled_from(CASTS))
    values = data.draw(st.lists(st.sampled_from([*pool, None]), max_size=5))
    op = data.draw(st.sampled_from(sorted(OPERATORS)))
    literal = data.draw(st.sampled_from(literals))
    table = pa.table({"c": pa.array(values, type_)})
    table = table.cast(initial(table.schema))
    bound = PredicateSet.of(f"CAST(c AS {to}) {op} {spelled(literal)}").bind(table.schema)
    right = float(literal) if cast is float else literal
    expected = [value is not None and OPERATORS[op](cast(value), right) for value in values]
    assert matching_mask(table, bound).to_pylist() == expected


def schema_of(type_: pa.DataType) -> pa.Schema:
    return initial(pa.schema([("c", type_)]))


@pytest.mark.parametrize(
    ("type_", "condition"),
    [
        (pa.int64(), "CAST(c AS INT) = 5"),
        (pa.int64(), "CAST(c AS STRING) = '5'"),
        (pa.int64(), "CAST(c AS STRING) IS NULL"),
        (pa.int32(), "CAST(c AS FLOAT) = 5"),
        (pa.int32(), "CAST(c AS DECIMAL(9, 2)) = 5"),
        (pa.uint64(), "CAST(c AS BIGINT) = 5"),
        (pa.float64(), "CAST(c AS FLOAT) = 5"),
        (pa.float32(), "CAST(c AS DECIMAL(38, 10)) = 5"),
        (pa.float64(), "CAST(c AS INT) = 5"),
        (pa.string(), "CAST(c AS INT) = 5"),
        (pa.string(), "TRY_CAST(c AS DOUBLE) = 5"),
        (pa.decimal128(10, 2), "CAST(c AS DECIMAL(9, 2)) = 5"),
        (pa.timestamp("us"), "CAST(c AS TIMESTAMP) = TIMESTAMP '2020-01-01'"),
        (pa.timestamp("ns", "UTC"), "CAST(c AS TIMESTAMP) = TIMESTAMP '2020-01-01'"),
        (pa.timestamp("us", "UTC"), "CAST(c AS DATE) = DATE '2020-01-01'"),
    ],
)
def test_other_casts_are_computed_on_the_rows(type_: pa.DataType, condition: str) -> None:
    bound = PredicateSet.of(condition).bind(schema_of(type_))
    assert [one.text for one in bound.meanings] == [str(PredicateSet.of(condition))]


def test_a_cast_that_spark_lacks_is_refused_by_its_text() -> None:
    with pytest.raises(InvalidPredicateError) as caught:
        PredicateSet.of("CAST(c AS STRING) IS NULL").bind(schema_of(pa.list_(pa.int32())))
    assert "a cast from list" in caught.value.reason
    assert caught.value.text == "CAST(c AS STRING) IS NULL"


def test_a_condition_with_a_cast_prints_as_sql_that_means_the_same() -> None:
    first = PredicateSet.of("CAST(c AS BIGINT) = 5 AND CAST(c AS DOUBLE) IN (1, 2.5)")
    assert PredicateSet.of(str(first)).root == first.root


def test_a_date_cast_to_a_timestamp_is_midnight_in_the_zone_of_the_session() -> None:
    table = pa.table({"c": pa.array([date(2020, 1, 1), date(2020, 1, 2)])})
    table = table.cast(initial(table.schema))
    condition = "CAST(c AS TIMESTAMP) >= '2020-01-01 00:00:00'"
    for zone in ("UTC", "America/New_York"):
        bound = PredicateSet.of(condition).bind(table.schema, zone)
        assert pc.sum(matching_mask(table, bound)).as_py() == 2
    instant = "CAST(c AS TIMESTAMP) > TIMESTAMP '2020-01-01 00:00:00+00:00'"
    assert pc.sum(matching_mask(table, PredicateSet.of(instant).bind(table.schema))).as_py() == 1
    there = PredicateSet.of(instant).bind(table.schema, "America/New_York")
    assert pc.sum(matching_mask(table, there)).as_py() == 2  # midnight is five hours later there
