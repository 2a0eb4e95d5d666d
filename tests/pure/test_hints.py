"""A hint is true on the rows of its condition, and on no others where no rows must tell."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import Node, PredicateSet
from lakehouse_source.language.nodes import Call, Hint
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.schema.merge import initial
from tests.expression_cases import table as awkward_rows
from tests.implied_conditions import ERROR, Conditions, truths
from tests.strategies import Rows, tables_and_conditions


@given(tables_and_conditions())
def test_a_hint_of_comparisons_is_the_condition(drawn: tuple[Rows, Node]) -> None:
    rows, condition = drawn
    table = rows.table()
    bound = PredicateSet(condition).bind(table.schema)
    hint = PredicateSet(Hint(condition, "UTC")).bind(table.schema)
    assert repr(hint.root) == repr(bound.root)  # a NaN equals none


@pytest.mark.parametrize(
    ("zone", "draws"),
    [
        ("America/New_York", 80),
        pytest.param("America/New_York", 200, marks=pytest.mark.long),
        pytest.param("UTC", 200, marks=pytest.mark.long),
    ],
)
def test_what_an_expression_implies_holds_on_its_rows_in_every_zone(zone: str, draws: int) -> None:
    drawn, table = Conditions(3), awkward_rows()
    stored = table.cast(initial(table.schema))
    implied = 0
    for _ in range(draws):
        text = drawn.condition(2, table, zone)
        try:
            expected = truths(text, table, zone)
            bound = PredicateSet.of(text).bind(stored.schema, zone)
        except (InvalidExpressionError, InvalidPredicateError):
            continue
        hint = PredicateSet(Hint(PredicateSet.of(text).root, zone)).bind(stored.schema)
        implied += not hint.always_true
        exact = hint.root == bound.root
        mask = matching_mask(stored, hint).to_pylist()
        for truth, kept in zip(expected, mask):
            assert kept or truth is not True, text
            assert not exact or truth == ERROR or kept == (truth is True), text
    assert implied > draws // 4


def test_the_opposite_of_what_rows_decide_is_no_hint() -> None:
    table = pa.table({"i": [1, 2, 3]})
    schema = initial(table.schema)
    arrow = PredicateSet.of(pc.field("i") > 2).root
    negated = Hint(Call("not", (arrow,)), "UTC")
    assert matching_mask(table, PredicateSet(negated).bind(schema)).to_pylist() == [True] * 3


def test_a_hint_does_not_fail_on_a_row() -> None:
    table = pa.table({"i": [0, 1, 9]})
    schema = initial(table.schema)
    condition = PredicateSet.of("10 div i > 2 AND i < 5").root
    hint = PredicateSet(Hint(condition, "UTC")).bind(schema)
    assert matching_mask(table, hint).to_pylist() == [True, True, False]


@pytest.mark.parametrize("text", ["lost = 1", "i = 'x' AND i = 1"])
def test_a_hint_that_does_not_fit_prunes_nothing(text: str) -> None:
    schema = initial(pa.schema([("i", pa.int64())]))
    assert PredicateSet(Hint(PredicateSet.of(text).root, "UTC")).bind(schema).always_true
    assert (
        PredicateSet(Hint(PredicateSet.of("i = 1").root, "Mars/Olympus")).bind(schema).always_true
    )
