"""The row filter decides as the oracle does."""

from __future__ import annotations

from hypothesis import given

from lakehouse_source.language import PredicateSet
from lakehouse_source.language.row_filter import matching_mask
from tests.oracle import decide
from tests.strategies import tables_and_conditions


@given(tables_and_conditions())
def test_the_filter_keeps_exactly_the_rows_that_match(drawn):
    table, condition = drawn
    bound = PredicateSet.of(condition).bind(table.schema)
    expected = [decide(condition, row, table.types) is True for row in table.rows]
    data = table.table()
    assert matching_mask(data, bound).to_pylist() == expected
    for batch in data.to_batches():
        assert matching_mask(batch, bound).to_pylist() == expected


@given(tables_and_conditions())
def test_a_condition_printed_as_sql_means_the_same(drawn):
    table, condition = drawn
    predicate = PredicateSet.of(condition)
    again = PredicateSet.of(str(predicate))
    expected = [decide(condition, row, table.types) is True for row in table.rows]
    assert matching_mask(table.table(), again.bind(table.schema)).to_pylist() == expected
