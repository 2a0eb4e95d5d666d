"""Arrow expressions rewritten: the order of engines, and nothing misread."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.parquet import fragments
from lakehouse_source.parquet.fragments import as_engines_mean, names_any

NAN = float("nan")
VALUES = [NAN, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.5, None]
OPERATORS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compared(op: str, a: float | None, b: float | None) -> bool | None:
    if a is None or b is None:
        return None
    left, right = ((v != v, 0.0 if v != v else v) for v in (a, b))
    return {
        "=": left == right, "!=": left != right, "<": left < right,
        "<=": left <= right, ">": left > right, ">=": left >= right,
    }[op]  # fmt: skip


def inverted(value: bool | None) -> bool | None:
    return None if value is None else not value


@given(
    st.sampled_from(sorted(OPERATORS)),
    st.sampled_from(VALUES),
    st.lists(st.sampled_from(VALUES), max_size=6),
    st.booleans(),
)
def test_comparisons_follow_the_order_of_engines(
    op: str, literal: float | None, found: list[float | None], negated: bool
) -> None:
    table = pa.table({"x": pa.array(found, pa.float64())})
    expression = OPERATORS[op](pc.field("x"), pa.scalar(literal, pa.float64()))
    expected = [compared(op, value, literal) for value in found]
    if negated:
        expression, expected = ~expression, [inverted(value) for value in expected]
    rewritten, names = as_engines_mean(expression, table.schema)
    assert names == ("x",)
    kept = table.filter(rewritten).num_rows
    assert kept == sum(value is True for value in expected)


@given(st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)), max_size=6))
def test_columns_compared_with_each_other(pairs: list[tuple[float | None, float | None]]) -> None:
    columns = {"x": [a for a, _ in pairs], "y": [b for _, b in pairs]}
    table = pa.table({name: pa.array(v, pa.float64()) for name, v in columns.items()})
    for op, build in OPERATORS.items():
        rewritten, _ = as_engines_mean(build(pc.field("x"), pc.field("y")), table.schema)
        expected = sum(compared(op, a, b) is True for a, b in pairs)
        assert table.filter(rewritten).num_rows == expected


@pytest.mark.parametrize("function", ["and", "or"])
def test_connectives_that_know_no_kleene_logic_are_not_refused(function: str) -> None:
    table = pa.table({"x": [1.0, NAN, None, 0.0], "b": [True, True, False, None]})
    over_nan = pc.Expression._call(function, [pc.field("x") > 0.5, pc.field("b")])
    rewritten, names = as_engines_mean(over_nan, table.schema)
    assert names == ("x", "b")
    # Without Kleene logic NULL makes the whole NULL: the last two rows never match.
    assert table.filter(rewritten).to_pydict()["b"] == [True, True]


def test_null_is_not_outside_of_a_list() -> None:
    table = pa.table({"s": ["a", None, "b"], "x": [0.0, None, NAN]})

    def kept(expression: pc.Expression) -> int:
        return int(table.filter(as_engines_mean(expression, table.schema)[0]).num_rows)

    assert kept(~pc.field("s").isin(["a"])) == 1
    assert kept(pc.field("s").isin(["a", None])) == 2  # Arrow's own way to ask for NULL
    assert kept(pc.field("x").isin([-0.0])) == 1
    assert kept(~pc.field("x").isin([1.0])) == 2
    assert kept(pc.field("x").isin([NAN])) == 1


@pytest.mark.parametrize(
    "name", ["it's", "a\nb", "x'\ncall: 'and", "end: 'greater'", "", " ", "é", "a.b", "\\", "st"]
)
def test_names_and_texts_of_any_kind_are_not_misread(name: str) -> None:
    table = pa.table({name: [1.0, NAN], "t": [name, name + "!"]})
    expression = (pc.field((name,)) > 0.5) & (pc.field("t") == name + "!")
    try:
        rewritten, _ = as_engines_mean(expression, table.schema)
    except InvalidPredicateError:
        return  # refused is not misread
    assert table.filter(rewritten).num_rows == 1


def test_fields_of_structs() -> None:
    table = pa.table({"st": [{"x": NAN}, {"x": 1.0}, None]})
    expression = pc.field("st", "x") > 0.5
    rewritten, names = as_engines_mean(expression, table.schema)
    assert names == ("st",)
    assert table.filter(rewritten).num_rows == 2


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("x") * 2 > 1,
        pc.field("x").cast(pa.float32()) > 1,
        pc.abs(pc.field("x")) > 1,
        pc.field("x").isin(pa.array([1.0])) == (pc.field("x") > pc.negate(pc.field("x"))),
    ],
)
def test_what_is_not_understood_is_refused(expression: pc.Expression) -> None:
    with pytest.raises(InvalidPredicateError, match="predicates="):
        as_engines_mean(expression, pa.schema([("x", pa.float64())]))


def test_a_misreading_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    other = fragments.read(pc.field("x") < 5.0)
    monkeypatch.setattr(fragments, "read", lambda _: other)
    with pytest.raises(InvalidPredicateError, match="predicates="):
        as_engines_mean(pc.field("x") > 5.0, pa.schema([("x", pa.float64())]))


def test_which_columns_are_named() -> None:
    schema = pa.schema(
        [("x", pa.float64()), ("n", pa.int64()), ("st", pa.struct([("x", pa.int8())]))]
    )
    assert names_any(pc.field("x") * 2 > 1, schema, frozenset({"x"}))
    assert not names_any(pc.field("n") * 2 > 1, schema, frozenset({"x"}))
    assert not names_any(pc.field("st", "x") > 1, schema, frozenset({"x"}))
    assert names_any(pc.field("st", "x") > 1, schema, frozenset({"st"}))
