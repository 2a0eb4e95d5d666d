"""The range of a column on which a comparison of its cast is TRUE: where it ends, and how fast."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import Expression, PredicateSet, Scope
from lakehouse_source.language.bounds import search
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.merge import initial
from tests.strategies import true_bounds

# Types of the column, and how many of its values there are to one, or to a second.
COLUMNS = {
    pa.int64(): 1,
    pa.int16(): 1,
    pa.decimal128(38, 18): 10**18,
    pa.decimal128(10, 2): 100,
    pa.float64(): None,
    pa.float32(): None,
    pa.timestamp("us", "UTC"): 10**6,
}
CASTS = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,0)")
NUMBERS = st.one_of(
    st.integers(-9, 9).map(Fraction),
    st.integers(-2000, 2000).map(lambda n: Fraction(n, 200)),
    st.integers(-(10**19), 10**19).map(Fraction),
    st.sampled_from([127, 128, -128, -129, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1]).map(
        Fraction
    ),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(Fraction),
)


def written(number: Fraction, form: str) -> str:
    if form == "whole":
        return str(round(number))
    return f"{float(number)!r}D" if form == "float" else f"{Decimal(round(number * 1000)) / 1000:f}"


def beside(number: Fraction, type_: pa.DataType, units: int | None) -> list[Any]:
    """Values of a type near a number: beside it, beside its neighbours, and halfway there."""
    near = [
        number + part * step
        for part in (0, Fraction(1, 200), Fraction(1, 2), 1)
        for step in (-1, 1)
    ]
    near += [Fraction(0), -number]
    if units is not None:
        places = {one * units // 1 + step for one in near for step in (-1, 0, 1)}
        if pa.types.is_decimal(type_):
            return [Decimal(place).scaleb(-type_.scale) for place in places]
        return [*places]
    found = [float(one) for one in near]
    found += [math.nextafter(one, end) for one in found for end in (-math.inf, math.inf)]
    return [*found, -0.0, math.inf, -math.inf]


def fitting(values: list[Any], type_: pa.DataType) -> list[Any]:
    if type_ == pa.float32():
        return [pa.scalar(one, pa.float64()).cast(type_, safe=False).as_py() for one in values]
    if pa.types.is_timestamp(type_):
        return [one for one in values if abs(one) < 2**63]
    found = []
    for one in values:
        try:
            found.append(pa.scalar(one, type_).as_py())
        except (pa.ArrowInvalid, OverflowError):
            continue
    return found


@given(
    st.sampled_from([*COLUMNS]),
    st.sampled_from(CASTS),
    NUMBERS,
    st.sampled_from(("whole", "float", "decimal")),
    st.sampled_from(("=", "<", "<=", ">", ">=")),
    st.sampled_from(("CAST", "TRY_CAST")),
)
def test_a_value_is_in_the_range_where_the_comparison_is_true(
    type_: pa.DataType, to: str, number: Fraction, form: str, op: str, cast: str
) -> None:
    text = f"{cast}(x AS {to}) {op} {written(number, form)}"
    schema = initial(pa.schema({"x": type_}))
    (leaf,) = schemas.leaves(schema)
    try:
        condition = PredicateSet.of(text).bind(schema)
        rows = Expression.parse(text).bind(Scope({"": pa.schema({"x": type_})}))
    except (InvalidExpressionError, InvalidPredicateError):
        assume(False)
    for value in fitting(beside(number, type_, COLUMNS[type_]), type_):
        table = pa.table({"x": pa.array([value], type_)})
        try:
            (truth,) = rows.evaluate({"": table}, 1).to_pylist()
        except InvalidExpressionError:
            continue
        bounds = true_bounds([value], leaf.type)
        kept = evaluate(condition, lambda _, bounds=bounds: bounds).may_match
        assert kept or truth is not True, value
        assert truth is not False or not kept, value


@pytest.mark.parametrize("op", ["=", "<", ">="])
@pytest.mark.parametrize(
    ("type_", "cast"),
    [
        (pa.decimal128(38, 18), "CAST(x AS BIGINT)"),
        (pa.float64(), "CAST(x AS BIGINT)"),
        (pa.int64(), "CAST(x AS TIMESTAMP)"),
        (pa.float64(), "CAST(x AS DECIMAL(10,2))"),
        (pa.timestamp("us", "UTC"), "CAST(x AS INT)"),
    ],
)
def test_the_ends_of_a_cast_take_no_search(
    type_: pa.DataType, cast: str, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    run = search._run

    def counted(bound: Any, values: pa.Array, rows: Any) -> Any:
        counts.append(len(values))
        return run(bound, values, rows)

    monkeypatch.setattr(search, "_run", counted)
    literal = "TIMESTAMP '2024-02-29 01:02:03Z'" if "TIMESTAMP" in cast else "333333"
    PredicateSet.of(f"{cast} {op} {literal}").bind(initial(pa.schema({"x": type_})))
    assert 1 <= len(counts) <= 4
    assert max(counts) < 40
