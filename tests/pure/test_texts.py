"""A text of a condition or an expression is read whole, as Spark reads it, or refused by place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration.fuzz_texts import (
    CONDITION,
    EXPRESSION,
    SCHEMA,
    Texts,
    bound_by_plake,
    read_by_plake,
)
from lakehouse_source.errors import (
    InvalidExpressionError,
    InvalidPredicateError,
    PlakeError,
)
from lakehouse_source.language import Expression, PredicateSet, for_pruning

RECORDED = json.loads(Path(__file__).with_name("texts.json").read_text())

MALFORMED = [
    ("i IN (1, , 2)", 9),
    ("i IN (1,)", 8),
    ("i IN (,1)", 6),
    ("i IN (1 2)", 8),
    ("i = 1L(2)", 6),
    ("i = 1(2)", 5),
    ("i = 'a'(2)", 7),
    ("i = NULL(2)", 8),
    ("coalesce(i, , 2) = 1", 12),
    ("coalesce(i,) = 1", 11),
    ("coalesce(, i) = 1", 9),
    ("s = +'1'", 5),
    ("s = +s", 5),
    ("i = 1e", 4),
    ("i = 1_000", 4),
    ("i = 1e999", 4),
    ("i = 1e39F", 4),
    ("l = 9223372036854775808L", 4),
    ("i = 40000S", 4),
    ("n = 123456789012345678901234567890123456789", 4),
    ("s = X'0G'", 5),
    ("s = N'a'", 5),
    ("s = b'1'", 5),
    ("day = DATE '2024-13-01'", 11),
    ("t = TIMESTAMP '12e00:00'", 14),
    ("t = TIMESTAMP '2024-01-01''2024-01-01'", 14),
    ("i = 1 -- x \\\n + 1", 6),
    ("i = 1 /* x", 6),
    ("i = /*+ x */ 1", 4),
    ("i = 1;", 5),
    ("i = 1; i = 2", 5),
    ("i = 1 i = 2", 6),
    ("i = = 1", 4),
    ("i = 1 AND AND i = 2", 10),
    ("i = 1 AND", 9),
    ("AND i = 1", 0),
    ("(i = 1", 6),
    ("i = 1)", 5),
    ("i IN (1) IN (2)", 9),
    ("i IS NULL = true", 10),
    ("i IS NULL IS NULL", 10),
    ("i BETWEEN 1", 11),
    ("s LIKE 'a' ESCAPE 1", 18),
    ("i = CAST(1 AS INT(5))", 14),
    ("i = CAST(1 AS INT64)", 14),
    ("i = CAST(1 AS text)", 14),
    ("i = CAST(1 AS DECIMAL(a))", 22),
    ("i = CAST(1 AS DECIMAL(10,))", 25),
    ("i = CAST(1, INT)", 10),
    ("i = CASE WHEN b THEN 1", 22),
    ("i = CASE END", 9),
    ("i = 1 AS x", 6),
    ("i. = 1", 3),
    ("i = {1}", 4),
    ("`` = 1", 0),
    ("i = 'a", 4),
    ("i := 1", 2),
    ("i = @x", 4),
    ("i ~= 1", 2),
    ("s COLLATE x = 'a'", 2),
]


@pytest.mark.parametrize(("text", "position"), MALFORMED)
def test_a_malformed_text_is_refused_where_it_is_wrong(text: str, position: int) -> None:
    readers = [
        (PredicateSet.of, InvalidPredicateError),
        (Expression.parse, InvalidExpressionError),
        (lambda text: for_pruning(text, SCHEMA), InvalidPredicateError),
    ]
    for read, error in readers:
        with pytest.raises(error) as place:
            read(text)
        assert (place.value.text, place.value.position) == (text, position)


def test_what_is_not_supported_is_left_out_where_rows_are_not_decided() -> None:
    found = for_pruning("i = 1 AND (i[0] = 2 AND foo(s) < 3) AND i IN (SELECT 1) AND d > 1", SCHEMA)
    assert [text for text, _ in found.used] == ["i = 1", "d > 1"]
    assert [(one.condition, one.reason) for one in found.not_used] == [
        ("i[0] = 2", "an element in [ ] is not supported"),
        ("foo(s) < 3", "function foo is not supported; the nearest known is floor"),
        ("i IN (SELECT 1)", "a query inside of an expression is not supported"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "i = 1e",
        "t > INTERVAL '99999999999' DAY",
        "i = CAST(1 AS DECIMAL(99999999999))",
        "i = " + "9" * 5000,
        "i = 1" + "0" * 5000 + ".5",
        "s = '\\ud800'",
        "d = 1e-99999",
        "i = " + "(" * 3000 + "1" + ")" * 3000,
        "i IN (" + ", ".join("(" * 50 + "1" + ")" * 50 for _ in range(50)),
        "s = X'",
        "\x00",
        "day = DATE '999999999-01-01'",
        "t = TIMESTAMP '-999999999-01-01 00:00:00'",
        "t = INTERVAL '1",
        "endswith('a')",
        "contains()",
        "isnull()",
        "coalesce() IS NULL",
        "",
        " ",
        "-- nothing",
    ],
)
def test_no_text_ends_in_an_error_of_python(text: str) -> None:
    for room in (CONDITION, EXPRESSION):
        read_by_plake(room, text)


@given(st.integers(min_value=0))
def test_a_random_text_has_a_result_or_is_refused(number: int) -> None:
    text = Texts(number).text()
    for room in (CONDITION, EXPRESSION):
        assert isinstance(read_by_plake(room, text), (list, PlakeError))


@given(
    st.text(
        st.sampled_from(" \t\n()[]{}'\"`\\,.;:!=<>+-*/%|&^~@#$?0123456789eELSYDFBxXrRniNUL_é²"),
        max_size=20,
    )
)
def test_random_characters_have_a_result_or_are_refused(text: str) -> None:
    for room in (CONDITION, EXPRESSION):
        assert isinstance(read_by_plake(room, text), (list, PlakeError))


def test_what_spark_refuses_is_refused() -> None:
    """Texts that `integration/fuzz_texts.py` drew, with the verdicts of Spark 4.3.0."""
    wrong = [
        (room, text, verdict)
        for text, *verdicts in RECORDED
        for room, verdict in zip((CONDITION, EXPRESSION), verdicts, strict=True)
        if verdict != "taken" and bound_by_plake(room, text)
    ]
    assert len(RECORDED) >= 1000
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "i = +1 and l=-1 or d >= - 1.5e3D",
        'i IN (1, 2) -- which\n AND s = "it\'s"',
        "/* a /* nested */ one */ i = 1",
        "s = 'it''s' OR s = r'a\\b' OR s = 'a' 'b'",
        "day BETWEEN DATE '2024-01-01' AND '2024-12-31'",
        "`i` <=> 1 AND (NOT b OR b IS NOT TRUE)",
        "s LIKE 'a!%b' ESCAPE '!' AND s NOT LIKE 'x%'",
        "l = -9223372036854775807L AND l <> 9223372036854775807L",
        "n < 1.50BD AND d > .5 AND d < 5.",
    ],
)
def test_texts_as_users_write_them_are_read(text: str) -> None:
    for room in (CONDITION, EXPRESSION):
        found: Any = read_by_plake(room, text)
        assert isinstance(found, list), found


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["a"] * 5000),
        "NOT " * 5000 + "a = 1",
        "a" + "::int" * 5000,
        "abs(" * 3000 + "a" + ")" * 3000,
    ],
)
def test_what_is_too_deep_to_be_walked_is_refused(text):
    with pytest.raises(InvalidExpressionError, match="nested too deeply"):
        Expression.of(text)
    with pytest.raises(InvalidPredicateError, match="nested too deeply"):
        PredicateSet.of(f"{text} = 1")


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("(", " BETWEEN false AND true)"),
        ("CASE ", " WHEN true THEN true WHEN false THEN false END"),
    ],
)
def test_values_that_stand_several_times_are_not_nested_without_end(opening, closing):
    """Bound and computed once for each place, thirty levels would take years."""
    PredicateSet.of(opening * 3 + "a" + closing * 3)
    with pytest.raises(InvalidPredicateError, match="nested too deeply"):
        PredicateSet.of(opening * 30 + "a" + closing * 30)


@pytest.mark.parametrize("function", ["é", "ALL", "nothing"])
def test_an_unknown_function_of_several_terms_is_refused(function: str) -> None:
    with pytest.raises(InvalidPredicateError, match="not"):
        PredicateSet.of(f"NOT {function} (l BETWEEN 1 AND 2 AND '2024' >= '2024')")
