"""Lists of conditions: AND, and OR of ANDs as PyArrow reads `filters`."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language import Name, PredicateSet, compare, is_null

A, B, C = ("a", "=", 1), ("b", "=", 2), ("c", "=", 3)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ([A, B], "a = 1 AND b = 2"),
        ((A, B), "a = 1 AND b = 2"),
        ([["a", "=", 1], ["b", "=", 2]], "a = 1 AND b = 2"),
        ([("a", "=", "x"), ("b", "=", "y")], "a = 'x' AND b = 'y'"),
        ([[A], [B]], "a = 1 OR b = 2"),
        ([(A,), (B,)], "a = 1 OR b = 2"),
        ([[A, B], [C]], "(a = 1 AND b = 2) OR c = 3"),
        ([[["a", "=", 1]], [["b", "=", 2]]], "a = 1 OR b = 2"),
        ([[A, B]], "a = 1 AND b = 2"),
        ([["a = 1 OR b = 2", C], [is_null(Name(("d",)))]],
         "((a = 1 OR b = 2) AND c = 3) OR d IS NULL"),
        ([PredicateSet.of([[A], [B]]), C], "(a = 1 OR b = 2) AND c = 3"),
        ([(("s", "x"), "=", 1), (("s", "y"), "=", 2)], "s.x = 1 AND s.y = 2"),
    ],
)  # fmt: skip
def test_a_list_of_lists_is_an_or_of_ands(condition: Any, text: str) -> None:
    assert str(PredicateSet.of(condition)) == str(PredicateSet.of(text))


@pytest.mark.parametrize("second", ["b = 2", ("b", "=", 2), compare(Name(("b",)), "=", 2)])
def test_a_triple_of_texts_before_another_condition_is_no_column(second: Any) -> None:
    assert str(PredicateSet.of([("a", "=", "x"), second])) == "a = 'x' AND b = 2"


@pytest.mark.parametrize(
    ("condition", "word"),
    [
        ([A, [B, C]], "ambiguous"),
        (["a = 1", ["b = 2"]], "ambiguous"),
        ([[A], "b = 2"], "ambiguous"),
        ([[]], "ambiguous"),
        ([[A], []], "ambiguous"),
        ([[[A]], [[B]]], "nested too deeply"),
        ([[A, [B]], [C]], "nested too deeply"),
        ([("a", "~", 1)], "triple"),
        ((("a", "b"), "~", 1), "triple"),
    ],
)
def test_what_a_list_may_not_mix_is_refused(condition: Any, word: str) -> None:
    with pytest.raises(InvalidPredicateError, match=word):
        PredicateSet.of(condition)


def test_arrow_expressions_stand_wherever_a_condition_does() -> None:
    expression = pc.field("a") > 1
    assert str(PredicateSet.of(expression)) == "(a > 1)"
    assert str(PredicateSet.of([expression, B, "c = 3"])) == "(a > 1) AND b = 2 AND c = 3"
    assert str(PredicateSet.of([[expression], [B]])) == "(a > 1) OR b = 2"
    assert PredicateSet.of([expression]) == PredicateSet.of(pc.field("a") > 1)
