"""The exact filter: NaN, signed zero, NULL, nested columns, names with dots."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language import PredicateSet
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.schema.merge import initial

NAN = float("nan")


def matching(table, condition):
    """Numbers of the rows that match."""
    bound = PredicateSet.of(condition).bind(initial(table.schema))
    mask = matching_mask(table, bound).to_pylist()
    return [number for number, keep in enumerate(mask) if keep]


def test_nan_equals_itself_and_is_greater_than_everything():
    table = pa.table({"x": [1.0, NAN, None, float("inf")]})
    assert matching(table, "x > 0.5") == [0, 1, 3]
    assert matching(table, "x < 5") == [0]
    assert matching(table, "NOT (x < 5)") == [1, 3]
    assert matching(table, "x != 1") == [1, 3]
    assert matching(table, "x > CAST('inf' AS DOUBLE)") == [1]
    assert matching(table, [("x", "=", NAN)]) == [1]
    assert matching(table, [("x", "in", [NAN, 1.0])]) == [0, 1]
    assert matching(table, [("x", "not in", [NAN, 1.0])]) == [3]


def test_zeros_are_equal():
    table = pa.table({"x": [0.0, -0.0, 1.0]})
    for condition in ("x = 0", "x = -0.0D", "x IN (0, 7)", "x <= -0.0D", "x IN (-0.0D, 5D)"):
        assert matching(table, condition) == [0, 1]
    assert matching(table, "x > 0") == [2]


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_are_equal_among_many_values(zero: float) -> None:
    table = pa.table({"x": [0.0, -0.0, 1.0, 50.0, None, NAN]})
    values = [zero, *map(float, range(2, 20))]
    assert matching(table, [("x", "in", values)]) == [0, 1]
    assert matching(table, [("x", "not in", values)]) == [2, 3, 5]
    assert matching(table, [("x", "in", [*values, NAN])]) == [0, 1, 5]
    assert matching(table, [("x", "in", values[1:])]) == []
    assert matching(table, [("x", "not in", values[1:])]) == [0, 1, 2, 3, 5]


def test_not_of_several_conditions() -> None:
    truth = [True, False, None]
    table = pa.table({"a": [a for a in truth for _ in truth], "b": truth * 3})
    pairs = [(a, b) for a in truth for b in truth]
    both = [place for place, pair in enumerate(pairs) if False in pair]
    either = [place for place, pair in enumerate(pairs) if pair == (False, False)]
    assert matching(table, "NOT (a = true AND b = true)") == both
    assert matching(table, "NOT (a = true OR b = true)") == either


def test_not_in_with_null_matches_nothing():
    table = pa.table({"x": [1, 2, None]})
    assert matching(table, "x NOT IN (1, NULL)") == []
    assert matching(table, "x IN (1, NULL)") == [0]
    assert matching(table, "x NOT IN (1)") == [1]
    assert matching(table, "x IN (1, NULL) OR x = 2") == [0, 1]


def test_null_safe_equality():
    table = pa.table({"x": [1, None]})
    assert matching(table, "x <=> NULL") == [1]
    assert matching(table, "NOT (x <=> 1)") == [1]
    assert matching(table, "x <=> 1") == [0]


def test_fields_of_null_structs_are_null():
    table = pa.table({"s": [{"x": 1}, {"x": None}, None]})
    assert matching(table, "s.x IS NULL") == [1, 2]
    assert matching(table, "s IS NULL") == [2]
    assert matching(table, "s.x = 1") == [0]
    assert matching(table, "s.x != 1") == []


def test_a_field_below_a_null_struct_is_null_even_with_a_value_in_its_place():
    inner = pa.array([1, 1])
    column = pa.StructArray.from_arrays([inner], ["x"], mask=pa.array([False, True]))
    table = pa.table({"s": column})
    assert matching(table, "s.x = 1") == [0]
    assert matching(table, "s.x IS NULL") == [1]
    assert matching(table, "s.x < 300") == [0]


def test_a_column_named_a_dot_b_is_not_field_b_of_a():
    table = pa.table({"a": [{"b": 1}, {"b": 2}], "a.b": [2, 1]})
    assert matching(table, "a.b = 1") == [0]
    assert matching(table, "`a.b` = 1") == [1]
    assert matching(table, [("a.b", "=", 1)]) == [1]


def test_strings_compare_as_utf8():
    table = pa.table({"x": ["\uffee", "\U0001f600", "aé", "az", "b"]})
    assert matching(table, "x > '\uffee'") == [1]
    assert matching(table, "x < 'aé'") == [3]


def test_like():
    table = pa.table({"x": ["abc", "a_c", "a\nc", "a%", "", None, "ab"]})
    assert matching(table, "x LIKE 'a_c'") == [0, 1, 2]
    assert matching(table, r"x LIKE 'a\_c'") == [1]
    assert matching(table, r"x LIKE '%\%'") == [3]
    assert matching(table, "x LIKE 'a%c'") == [0, 1, 2]
    assert matching(table, "x NOT LIKE '%b%'") == [1, 2, 3, 4]
    assert matching(table, "x LIKE ''") == [4]
    assert matching(table, "x LIKE '%'") == [0, 1, 2, 3, 4, 6]


def matches_by_trying(text, pattern):
    """LIKE by its definition: each `%` takes every length in turn."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(matches_by_trying(text[at:], rest) for at in range(len(text) + 1))
    return bool(text) and first in (text[0], "_") and matches_by_trying(text[1:], rest)


@pytest.mark.parametrize("form", ["x LIKE '{}'", "x ILIKE '{}'", "x LIKE p"])
def test_like_is_what_trying_every_length_gives(form):
    draw = random.Random(1)
    texts = sorted({"".join(draw.choices("ab", k=draw.randint(0, 7))) for _ in range(80)})
    for _ in range(60):
        pattern = "".join(draw.choices("ab%%_", k=draw.randint(1, 6)))
        table = pa.table({"x": texts, "p": [pattern] * len(texts)})
        wanted = [n for n, text in enumerate(texts) if matches_by_trying(text, pattern)]
        assert matching(table, form.format(pattern)) == wanted, pattern


@pytest.mark.parametrize("form", ["x LIKE '{}'", "x ILIKE '{}'", "x LIKE p"])
@pytest.mark.parametrize("pattern", ["%a" * 20 + "%c", "%a" * 100_000, "a%" + "b" * 100_000 + "%"])
def test_like_with_many_wildcards_takes_no_time_and_is_no_damage(form, pattern):
    """Tried one after the other, the lengths of 20 wildcards have no end; RE2 refuses 100,000."""
    table = pa.table({"x": ["a" * 60, "a" * 100_000], "p": [pattern] * 2})
    wanted = [1] if pattern == "%a" * 100_000 else []
    assert matching(table, form.format(pattern)) == wanted


def test_a_very_long_regular_expression_is_refused():
    """RE2 took a minute for it, and wrote a line to standard error for each character."""
    table = pa.table({"x": ["a"]})
    with pytest.raises(InvalidPredicateError, match="at most 10,000 characters"):
        matching(table, f"x RLIKE '{'a?' * 6_000}'")


@pytest.mark.parametrize("condition", ["TRUE", "FALSE", "NULL", "1 = 1 OR x = 1"])
def test_constants(condition):
    table = pa.table({"x": [1, None]})
    expected = [0, 1] if condition.startswith(("TRUE", "1")) else []
    assert matching(table, condition) == expected


def test_literals_out_of_range_under_not_leave_null_out():
    table = pa.table({"x": pa.array([1, None], pa.int8())})
    assert matching(table, "x != 300") == [0]
    assert matching(table, "NOT (x = 300)") == [0]
    assert matching(table, "x < 300") == [0]
    assert matching(table, "x = 300 OR x IS NULL") == [1]


def test_batches_and_slices():
    batch = pa.record_batch({"x": [1, 2, 3, None], "s": [{"y": i} for i in range(4)]})[1:]
    schema = initial(batch.schema)
    bound = PredicateSet.of("x >= 3 OR s.y = 1").bind(schema)
    mask = matching_mask(batch, bound)
    assert isinstance(mask, pa.BooleanArray)
    assert mask.to_pylist() == [True, True, False]
    constant = PredicateSet.of("NULL").bind(schema)
    assert matching_mask(batch, constant).to_pylist() == [False] * 3


def test_thousands_of_alternatives():
    table = pa.table({"x": list(range(10))})
    condition = " OR ".join(f"(x = {i} AND x < 8)" for i in range(3000))
    assert matching(table, condition) == list(range(8))
    assert matching(table, [("x", "in", list(range(5, 100_000)))]) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_list_of_numbers_among_many_rows(is_sorted: bool, chunks: int) -> None:
    draw = random.Random(5)
    numbers = [draw.randrange(1_000_000) for _ in range(300_000)]
    numbers = sorted(numbers) if is_sorted else numbers
    numbers[::7] = [None] * len(numbers[::7])  # type: ignore[list-item]
    step = len(numbers) // chunks
    parts = [numbers[n : n + step] for n in range(0, len(numbers), step)]
    table = pa.table({"x": pa.chunked_array(parts, pa.int64())})
    known = [(place, number) for place, number in enumerate(numbers) if number is not None]
    some = [number for _, number in draw.sample(known, 30)]
    values = {*some, *(draw.randrange(1_200_000) for _ in range(10))}
    found = [place for place, number in known if number in values]
    assert matching(table, [("x", "in", sorted(values))]) == found
    assert matching(table, [("x", "not in", sorted(values))]) == [
        place for place, number in known if number not in values
    ]


@pytest.mark.parametrize("type_", [pa.int8(), pa.int64(), pa.uint64()])
@pytest.mark.parametrize("count", [1, 5, 100])
def test_a_long_list_of_numbers_finds_what_a_set_finds(type_, count):
    values = list(range(0, count, 1 if count < 10 else 3))
    for numbers in ([], [None, None], [0, 1, 2, 3, None], [40, 42], [120, 126], [0, 99, None, 51]):
        table = pa.table({"x": pa.array(numbers, type_)})
        known = [(place, number) for place, number in enumerate(numbers) if number is not None]
        found = [place for place, number in known if number in values]
        missed = [place for place, number in known if number not in values]
        assert matching(table, [("x", "in", values)]) == found
        assert matching(table, [("x", "not in", values)]) == missed
        assert matching(table, f"x IN (NULL, {', '.join(map(str, values))})") == found
        assert matching(table, f"x NOT IN (NULL, {', '.join(map(str, values))})") == []
