"""Pruning, hazard by hazard: each test is named after what went wrong elsewhere."""

from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest

from lakehouse_source.language import PredicateSet
from lakehouse_source.language.bounds.bound import BoundConstant, IfPresent
from lakehouse_source.model import ColumnBounds
from lakehouse_source.pruning.bounds import decode_row_group
from lakehouse_source.pruning.evaluate import (
    AND_TABLE,
    NOT_TABLE,
    OR_TABLE,
    OUTCOMES,
    UNKNOWN,
    Outcome,
    evaluate,
    without_absent,
)
from lakehouse_source.pruning.keys import (
    KeyRange,
    SearchAll,
    SearchAny,
    SearchRanges,
    encoding,
    key,
)
from lakehouse_source.pruning.search import MAX_RANGES, merged, search
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.merge import initial
from tests.oracle import decide
from tests.strategies import Rows, true_bounds

NAN = float("nan")
TRUTHS = (True, False, None)


def outcome(condition, type_, bounds):
    """The outcome of a condition on column `c`, known by its bounds."""
    schema = initial(pa.schema([("c", type_)]))
    return evaluate(PredicateSet.of(condition).bind(schema), lambda _: bounds)


def over(condition, found, type_):
    """The outcome over some values, by perfect statistics; sound in any case."""
    schema = initial(pa.schema([("c", type_)]))
    predicate = PredicateSet.of(condition)
    result = evaluate(predicate.bind(schema), lambda _: true_bounds(found, type_))
    for value in found:
        assert decide(predicate.root, {("c",): value}, {("c",): type_}) in result, (
            condition,
            value,
        )
    return result


def known(lower, upper, null_count=0, row_count=10, nan=False):
    return ColumnBounds(lower, upper, null_count, row_count, nan)


# --- the algebra ---


def test_the_tables_lift_three_valued_logic_pointwise():
    def both(a, b):
        return False if False in (a, b) else None if None in (a, b) else True

    def inverted(a):
        return None if a is None else not a

    for a, b in itertools.product(OUTCOMES, OUTCOMES):
        pairs = [(x, y) for x in TRUTHS for y in TRUTHS if x in a and y in b]
        assert AND_TABLE[a.bits][b.bits] == Outcome.of(*(both(x, y) for x, y in pairs)).bits
        either = (inverted(both(inverted(x), inverted(y))) for x, y in pairs)
        assert OR_TABLE[a.bits][b.bits] == Outcome.of(*either).bits
    for a in OUTCOMES:
        assert NOT_TABLE[a.bits] == Outcome.of(*(inverted(x) for x in TRUTHS if x in a)).bits


def test_outcomes_say_what_pruning_asks():
    assert UNKNOWN.may_match
    assert not UNKNOWN.always
    assert Outcome.of(True).always
    assert not Outcome.of(True, None).always
    assert not Outcome.of(False, None).may_match
    assert repr(Outcome.of(True, None)) == "Outcome(TRUE, NULL)"
    with pytest.raises(AttributeError):
        UNKNOWN.bits = 1


# --- NaN and signed zero ---

OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]
FLOATS = ["1D", "0D", "-0.0D", "1.5D", "CAST('nan' AS DOUBLE)", "CAST('inf' AS DOUBLE)"]


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(
    "found",
    [[1.0, 1.0], [1.0, NAN, 1.0], [NAN, NAN], [NAN, None], [0.0, -0.0], [-0.0], [None, 1.0, NAN]],
    ids=str,
)
def test_nan_and_signed_zero_under_every_operator(found, op, negated):
    for literal in FLOATS:
        condition = f"c {op} {literal}"
        over(f"NOT ({condition})" if negated else condition, found, pa.float64())


def test_nan_left_out_of_min_and_max_is_still_found():
    one_to_one = known(1.0, 1.0, nan=True)
    for condition in ("c != 1", "NOT (c = 1)", "NOT (c < 5)", "c > 5", "c = CAST('nan' AS DOUBLE)"):
        assert outcome(condition, pa.float64(), one_to_one).may_match
        assert not outcome(condition, pa.float64(), known(1.0, 1.0)).may_match


def test_a_nan_bound_means_nothing():
    for bounds in (known(NAN, NAN), known(NAN, 5.0), known(1.0, NAN)):
        assert outcome("c > 100", pa.float64(), bounds).may_match
        assert outcome("c < -100", pa.float64(), bounds).may_match


def test_nan_in_a_list_and_nan_outside_of_it():
    nan = "CAST('nan' AS DOUBLE)"
    for found in ([1.0, NAN], [NAN], [NAN, None], [1.0, 2.0, NAN, None]):
        over(f"c IN (5D, {nan})", found, pa.float64())
        over("c NOT IN (1D, 2D)", found, pa.float64())
        over("c NOT IN (1D, NULL)", found, pa.float64())
    bounds = known(1.0, 2.0, nan=True)
    assert outcome(f"c IN (5D, {nan})", pa.float64(), bounds).may_match
    assert not outcome("c IN (5D, 6D)", pa.float64(), bounds).may_match
    assert outcome("c NOT IN (1D, 2D)", pa.float64(), known(1.0, 1.0, nan=True)).may_match


def test_in_finds_both_zeros():
    for found in ([0.0], [-0.0]):
        assert over("c IN (0.0, 5)", found, pa.float64()).always
        assert over("c = 0", found, pa.float64()).always
        assert over("c <= -0.0D", found, pa.float64()).always


# --- NULL ---


def test_an_unknown_null_count_is_not_zero():
    some = ColumnBounds(5, 5, None, 10, False)
    assert None in outcome("c = 5", pa.int32(), some)
    assert outcome("c IS NULL", pa.int32(), some).may_match
    assert not outcome("c = 5", pa.int32(), some).always
    assert outcome("c = 5 OR c IS NULL", pa.int32(), some).may_match
    assert outcome("c = 5", pa.int32(), known(5, 5)).always


def test_a_null_count_that_cannot_be_is_unknown():
    for wrong in (-1, 11):
        bounds = ColumnBounds(5, 5, wrong, 10, False)
        assert outcome("c IS NULL", pa.int32(), bounds).may_match
        assert outcome("c = 5", pa.int32(), bounds).may_match


def test_all_null_without_bounds_is_known_to_be_null():
    gone = known(None, None, 10)
    for condition in ("c = 1", "NOT (c = 1)", "c IN (1)", "c NOT IN (1)", "c < 300000000000"):
        assert outcome(condition, pa.int32(), gone) is Outcome.of(None)
    assert outcome("c IS NULL", pa.int32(), gone).always
    assert outcome("c <=> NULL", pa.int32(), gone).always
    assert outcome("NOT (c <=> 1)", pa.int32(), gone).always
    assert not outcome("c IS NOT NULL", pa.int32(), gone).may_match


def test_null_count_without_bounds_prunes_by_nulls_alone():
    assert not outcome("c IS NULL", pa.int32(), known(None, None, 0)).may_match
    assert outcome("c = 1", pa.int32(), known(None, None, 0)).may_match


def test_in_with_null_is_null_and_not_false():
    bounds = known(5, 9)
    assert outcome("c IN (1, NULL)", pa.int32(), bounds) is Outcome.of(None)
    assert outcome("c NOT IN (1, NULL)", pa.int32(), bounds) is Outcome.of(None)
    assert outcome("c NOT IN (6, NULL)", pa.int32(), bounds) is Outcome.of(False, None)
    assert outcome("c IN (6, NULL)", pa.int32(), bounds) is Outcome.of(True, None)
    assert outcome("c IN (1) OR c IN (2, NULL)", pa.int32(), bounds) is Outcome.of(None)


def test_all_rows_match_is_not_claimed_over_nulls_or_nan():
    assert outcome("c != 1", pa.int32(), known(5, 9)).always
    assert not outcome("c != 1", pa.int32(), known(5, 9, 1)).always
    assert outcome("c NOT IN (1, 2)", pa.int32(), known(5, 9)).always
    assert not outcome("c NOT IN (1, 2)", pa.int32(), known(5, 9, 1)).always
    assert not outcome("c < 10", pa.float64(), known(5.0, 9.0, nan=True)).always
    assert outcome("c > 1", pa.float64(), known(5.0, 9.0, nan=True)).always
    assert not outcome("c > 1", pa.float64(), known(5.0, 9.0, 1, nan=True)).always


def test_null_safe_equality_is_never_null():
    assert outcome("c <=> 5", pa.int32(), known(5, 5, 3)) is Outcome.of(True, False)
    assert outcome("NOT (c <=> 1)", pa.int32(), known(5, 9, 3)).always
    assert not outcome("c <=> 1", pa.int32(), known(5, 9, 3)).may_match


def test_a_column_that_the_file_lacks_is_null():
    gone = known(None, None, 10)
    assert outcome("c IS NULL", pa.int32(), gone).always
    assert not outcome("c = 0", pa.int32(), gone).may_match


def test_no_rows_have_no_outcome():
    assert outcome("c = 1", pa.int32(), known(None, None, 0, 0)) is Outcome.of()
    assert outcome("c IS NULL", pa.int32(), known(None, None, None, 0)) is Outcome.of()


# --- bounds of every type ---


def test_absent_bounds_prune_nothing():
    for type_, literal in [(pa.int32(), "5"), (pa.string(), "'x'"), (pa.float64(), "5D")]:
        for op in OPERATORS:
            assert outcome(f"c {op} {literal}", type_, known(None, None)).may_match


def test_one_bound_is_enough_to_prune_on_its_side():
    assert not outcome("c < 5", pa.int32(), known(5, None)).may_match
    assert outcome("c < 5", pa.int32(), known(None, 5)).may_match
    assert not outcome("c > 5", pa.int32(), known(None, 5)).may_match
    assert not outcome("c = 4", pa.int32(), known(5, None)).may_match


def test_bounds_that_contradict_each_other_are_not_used():
    assert outcome("c = 7", pa.int32(), known(9, 5)).may_match


def test_unsigned_values_beyond_the_sign_bit():
    big = known(2**63, 2**64 - 1)
    assert outcome("c = 18446744073709551615", pa.uint64(), big).may_match
    assert not outcome("c < 9223372036854775808", pa.uint64(), big).may_match
    assert not outcome("c = 1", pa.uint64(), big).may_match
    over("c > 2147483648", [2**31, 2**32 - 1], pa.uint32())
    assert not over("c < 0", [2**31], pa.uint32()).may_match


def test_decimals_of_both_signs():
    bounds = known(-150, 250)
    assert outcome("c = -1.50", pa.decimal128(10, 2), bounds).may_match
    assert not outcome("c < -1.50", pa.decimal128(10, 2), bounds).may_match
    assert outcome("c < -1.499", pa.decimal128(10, 2), bounds).may_match
    assert outcome("c > 2.4999999999", pa.decimal128(10, 2), bounds).may_match
    assert not outcome("c > 2.5", pa.decimal128(10, 2), bounds).may_match


def test_timestamps_are_compared_below_the_millisecond():
    noon = 1_577_880_000_000_000
    bounds = known(noon, noon + 999)
    text = "TIMESTAMP_NTZ '2020-01-01 12:00:00.000999'"
    assert outcome(f"c = {text}", pa.timestamp("us"), bounds).may_match
    assert outcome(f"c >= {text}", pa.timestamp("us"), bounds).may_match
    assert not outcome(f"c > {text}", pa.timestamp("us"), bounds).may_match
    millis = known(noon // 1000, noon // 1000)
    assert outcome(f"c < {text}", pa.timestamp("ms"), millis).always
    assert not outcome(f"c = {text}", pa.timestamp("ms"), millis).may_match


def test_timestamps_of_1850():
    bounds = known(-3_786_825_600_000_000, -3_786_825_600_000_000)
    assert outcome("c = '1850-01-01 00:00:00'", pa.timestamp("us", "UTC"), bounds).always


def test_literals_are_not_narrowed_to_the_column():
    bounds = known(-128, 127)
    assert not outcome("c = 300", pa.int8(), bounds).may_match
    assert outcome("c < 300", pa.int8(), bounds).always
    assert outcome("c != 300", pa.int8(), bounds).always
    assert outcome("c < 300", pa.int8(), known(-128, 127, 1)) is Outcome.of(True, None)


def test_utf8_order_and_not_utf16_order():
    found = ["\uffee", "\U0001f600"]
    assert over("c > '\uffee'", found, pa.string()).may_match
    assert not over("c < '\uffee'", found, pa.string()).may_match


def test_prefixes_prune_and_suffixes_do_not():
    bounds = known(b"abc", b"abz")
    assert outcome("c LIKE 'ab%'", pa.string(), bounds).always
    assert outcome("c LIKE 'abd%'", pa.string(), bounds).may_match
    assert not outcome("c LIKE 'ac%'", pa.string(), bounds).may_match
    assert not outcome("c LIKE 'aa%'", pa.string(), bounds).may_match
    assert outcome("NOT c LIKE 'ac%'", pa.string(), bounds).always
    assert not outcome("c LIKE 'ac_%q'", pa.string(), bounds).may_match
    assert outcome("c LIKE 'abz%'", pa.string(), bounds).may_match
    assert outcome("c LIKE 'abc%'", pa.string(), bounds).may_match
    for condition in ("c LIKE '%q'", "c LIKE '%q%'", "contains(c, 'q')", "c LIKE '_q'"):
        assert outcome(condition, pa.string(), bounds) is Outcome.of(True, False)


def test_a_single_value_is_matched_exactly():
    bounds = known(b"abc", b"abc")
    assert outcome("c LIKE '%bc'", pa.string(), bounds).always
    assert not outcome("c LIKE '%bd'", pa.string(), bounds).may_match
    assert not outcome("c LIKE '%b'", pa.string(), bounds).may_match
    assert outcome("c LIKE '%b%'", pa.string(), bounds).always
    assert outcome("c LIKE 'a_c'", pa.string(), bounds).always
    assert not outcome("contains(c, 'x')", pa.string(), bounds).may_match


def test_one_value_against_many_wildcards_takes_no_time():
    bounds = known(b"a" * 60, b"a" * 60)
    assert not outcome(f"c LIKE '{'%a' * 20}%c'", pa.string(), bounds).may_match
    assert outcome(f"c LIKE '{'%a' * 20}%_'", pa.string(), bounds).always


def test_a_list_of_every_whole_number_between_the_bounds_is_all_of_them():
    assert outcome("c IN (1, 2, 3, 4)", pa.int32(), known(1, 4)).always
    assert not outcome("c IN (1, 2, 4)", pa.int32(), known(1, 4)).always
    assert outcome("c NOT IN (1, 2, 3, 4)", pa.int32(), known(1, 4)) is Outcome.of(False)


def test_a_truncated_bound_is_no_value():
    # Seventy characters, recorded as 64 of them, the upper ones raised.
    from lakehouse_source.model import RowGroupMetadata
    from lakehouse_source.pruning.bounds import encode_row_group

    schema = initial(pa.schema([("c", pa.string())]))
    (leaf,) = schemas.leaves(schema)
    value = "x" * 70
    perfect = ColumnBounds(value.encode(), value.encode(), 0, 1, False)
    group = RowGroupMetadata(0, 1, *encode_row_group([(leaf, perfect)]))
    bounds = decode_row_group(group, leaf.id, pa.string(), pa.string())
    assert bounds.lower < value.encode() < bounds.upper
    for condition in (f"c = '{value}'", f"c >= '{value}'", "c LIKE '%x'", f"c IN ('{value}', 'y')"):
        assert outcome(condition, pa.string(), bounds).may_match
    assert not outcome(f"c = '{'x' * 64}'", pa.string(), bounds).always


def test_nested_columns_and_columns_with_dots_keep_their_own_statistics():
    schema = initial(pa.schema([("a", pa.struct([("b", pa.int32())])), ("a.b", pa.int32())]))
    ids = {leaf.path: leaf.id for leaf in schemas.leaves(schema)}
    statistics = {ids[("a", "b")]: known(1, 1), ids[("a.b",)]: known(2, 2)}
    for condition, matches in [
        ("a.b = 1", True),
        ("a.b = 2", False),
        ("`a.b` = 2", True),
        ("`a.b` = 1", False),
    ]:
        bound = PredicateSet.of(condition).bind(schema)
        assert evaluate(bound, statistics.__getitem__).may_match is matches


def test_statistics_are_not_asked_of_nested_columns():
    schema = initial(pa.schema([("s", pa.struct([("x", pa.int32())]))]))
    bound = PredicateSet.of("s IS NULL").bind(schema)
    assert evaluate(bound, {}.__getitem__) is Outcome.of(True, False)


# --- search ---

SCHEMA = initial(
    pa.schema([("n", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.binary())])
)
ALL = {leaf.id: encoding(leaf.type) for leaf in schemas.leaves(SCHEMA)}


def asked(condition, indexed=None):
    return search(PredicateSet.of(condition).bind(SCHEMA), ALL if indexed is None else indexed)


def n(*spans):
    def at(value):
        return None if value is None else key(value, pa.int64())

    return SearchRanges(1, tuple(KeyRange(at(low), at(high)) for low, high in spans))


def test_comparisons_become_ranges():
    assert asked("n = 5") == n((5, 5))
    assert asked("n <=> 5") == n((5, 5))
    assert asked("n > 5") == n((6, None))
    assert asked("n <= 5") == n((None, 5))
    assert asked("n BETWEEN 2 AND 7 AND n < 5") == n((2, 4))
    assert asked("n IN (3, 1, NULL)") == n((1, 1), (3, 3))
    assert asked("n = 1 OR n > 5") == n((1, 1), (6, None))
    assert asked("(n = 1 OR n = 3) AND n > 2") == n((3, 3))


def test_nan_in_a_list_is_searched():
    nan = key(NAN, pa.float64())
    wanted = asked("f IN (CAST('nan' AS DOUBLE), 5D)")
    assert wanted.ranges[-1] == KeyRange(nan, nan)
    assert len(wanted.ranges) == 2


def test_a_range_inside_of_another_does_not_shorten_it():
    outer, inner = KeyRange(b"a", b"d"), KeyRange(b"b", b"c")
    assert merged([outer, inner]) == (outer,)
    assert merged([KeyRange(b"a", None), inner]) == (KeyRange(b"a", None),)
    assert asked("n BETWEEN 1 AND 9 OR n BETWEEN 2 AND 3") == n((1, 9))


def test_an_absent_value_leaves_null_where_the_column_is_null():
    schema = initial(pa.schema([("c", pa.int32())]))

    def left(condition):
        return without_absent(PredicateSet.of(condition).bind(schema), lambda _, v: v == 5).root

    column = PredicateSet.of("c = 5").bind(schema).root.column
    assert left("c = 5") == IfPresent(column, False)
    assert left("c <=> 5") == BoundConstant(False)
    assert left("c IN (5, 6)").values == (6,)
    assert left("c IN (5)") == IfPresent(column, False)
    assert left("c IN (5, NULL)").has_null
    assert left("NOT (c IN (5, 6))").term.values == (6,)
    assert left("c > 5") == PredicateSet.of("c > 5").bind(schema).root


def test_what_cannot_narrow_asks_nothing():
    for condition in ("n != 5", "n IS NULL", "n = 1 OR n IS NULL", "NOT (n <=> 1)", "n NOT IN (1)"):
        assert asked(condition) is None
    assert asked("n = 1 OR s != 'x'") is None
    assert asked("n = 1 AND s != 'x'") == n((1, 1))
    assert asked("n = 1 AND s = 'x'", {1}) == n((1, 1))
    assert asked("n = 1", {2}) is None
    assert asked("n = 1", {1: "decimal128:2"}) is None


def test_conditions_on_several_columns_are_nested():
    assert asked("n = 1 AND s = 'x'") == SearchAll(
        (n((1, 1)), SearchRanges(2, (KeyRange(b"x", b"x"),)))
    )
    assert asked("n = 1 OR s = 'x' OR n = 2") == SearchAny(
        (n((1, 1), (2, 2)), SearchRanges(2, (KeyRange(b"x", b"x"),)))
    )


def test_never_true_asks_nothing_and_says_so():
    for condition in ("FALSE", "n = NULL", "n = 1.5", "n = 1 AND n = 1.5"):
        bound = PredicateSet.of(condition).bind(SCHEMA)
        assert bound.never_true
        assert search(bound, ALL) is None
    assert asked("n = 1 OR n = 1.5") == n((1, 1))


def test_nan_is_searched_as_the_greatest_value():
    (part,) = asked("f > 5").ranges
    assert part.upper is None
    assert part.lower < key(NAN, pa.float64())
    (part,) = asked("f = CAST('nan' AS DOUBLE)").ranges
    assert part.lower == part.upper == key(NAN, pa.float64())
    (part,) = asked("f < CAST('nan' AS DOUBLE)").ranges
    assert part.upper == key(math.inf, pa.float64()) < key(NAN, pa.float64())


def test_long_literals_are_cut_outward():
    long = "x" * 40
    (part,) = asked(f"s = '{long}'").ranges
    assert part.lower <= long.encode() <= part.upper
    assert max(len(part.lower), len(part.upper)) <= 40
    (part,) = asked(f"s LIKE '{long}%'").ranges
    assert part.lower <= long.encode() <= part.upper


def test_is_not_null_leaves_out_files_without_a_value():
    (part,) = asked("n IS NOT NULL").ranges
    from lakehouse_source.pruning.keys import EMPTY_LOWER, UNBOUNDED_LOWER

    assert part.lower is None
    assert UNBOUNDED_LOWER <= key(2**64 - 1, pa.int64()) <= part.upper < EMPTY_LOWER
    assert asked("n <= 5 OR n >= 5") == asked("n IS NOT NULL")


def test_ranges_are_joined_and_never_too_many():
    many = merged(
        [
            KeyRange(bytes([i // 256, i % 256]), bytes([i // 256, i % 256]))
            for i in range(0, 4000, 7)
        ],
        most=256,
    )
    assert len(many) == 256
    for i in range(0, 4000, 7):
        at = bytes([i // 256, i % 256])
        assert any(part.lower <= at <= part.upper for part in many)
    assert merged([KeyRange(b"c", b"d"), KeyRange(b"a", b"b"), KeyRange(b"b", b"c")]) == (
        KeyRange(b"a", b"d"),
    )
    for count, ranges in ((5000, 5000), (MAX_RANGES + 1, MAX_RANGES)):
        assert len(asked([("n", "in", [i * 3 for i in range(count)])]).ranges) == ranges


def test_rows_of_the_oracle_are_rows():
    # The oracle and the strategies are themselves held to one plain example.
    table = Rows(SCHEMA.remove(3), ({("n",): 1, ("s",): None, ("f",): NAN},))
    row = table.rows[0]
    for condition, expected in [
        ("n = 1", True),
        ("s = 'x'", None),
        ("f > 5", True),
        ("NOT (s = 'x' AND n = 2)", True),
        ("n IN (2, NULL)", None),
    ]:
        assert decide(PredicateSet.of(condition).root, row, table.types) is expected
