"""A bound condition as nodes that are bound again: the same rows, or more where it says so."""

from __future__ import annotations

import pytest
from hypothesis import given

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import Node, PredicateSet
from lakehouse_source.language.bounds.as_nodes import as_nodes
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.schema.given_schema import initial
from tests.expression_cases import table as awkward_rows
from tests.implied_conditions import ERROR, Conditions, truths
from tests.strategies import Rows, tables_and_conditions


@given(tables_and_conditions())
def test_comparisons_are_the_same_when_they_are_bound_again(drawn: tuple[Rows, Node]) -> None:
    rows, condition = drawn
    table = rows.table()
    bound = PredicateSet(condition).bind(table.schema)
    node, exact = as_nodes(bound.root)
    assert exact
    again = PredicateSet(node).bind(table.schema)
    assert matching_mask(table, again).to_pylist() == matching_mask(table, bound).to_pylist()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_what_an_expression_implies_holds_on_its_rows_in_every_zone(zone: str) -> None:
    drawn, table = Conditions(3), awkward_rows()
    stored = table.cast(initial(table.schema))
    implied = 0
    for _ in range(200):
        text = drawn.condition(2, table, zone)
        try:
            expected = truths(text, table, zone)
            bound = PredicateSet.of(text).bind(stored.schema, zone)
        except (InvalidExpressionError, InvalidPredicateError):
            continue
        node, exact = as_nodes(bound.root)
        again = PredicateSet(node).bind(stored.schema)  # no zone: it depends on none
        implied += not again.always_true
        mask = matching_mask(stored, again).to_pylist()
        for truth, kept in zip(expected, mask):
            assert kept or truth is not True, text
            assert not exact or truth == ERROR or kept == (truth is True), text
    assert implied > 50
