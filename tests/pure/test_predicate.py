"""The three spellings of a condition, and what binding makes of columns and literals."""

from __future__ import annotations

import math
import pickle
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language import (
    Name,
    PredicateSet,
    Timestamp,
    all_of,
    any_of,
    compare,
    constant,
    is_in,
    is_null,
    like,
    matches,
    negated,
)
from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundNot,
    BoundOr,
    BoundText,
    IfPresent,
)
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.language.values import literal
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.merge import initial

DEEPEST = pa.struct([("e", pa.int64()), ("f", pa.struct([("g", pa.int64())]))])
SCHEMA = initial(
    pa.schema(
        [
            ("tiny", pa.int8()),
            ("n", pa.int64()),
            ("u", pa.uint64()),
            ("f", pa.float32()),
            ("d", pa.float64()),
            ("price", pa.decimal128(10, 2)),
            ("Name", pa.string()),
            ("raw", pa.binary()),
            ("flag", pa.bool_()),
            ("day", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("wall", pa.timestamp("ms")),
            ("clock", pa.time64("us")),
            ("span", pa.duration("us")),
            ("a", pa.struct([("b", pa.int32()), ("C", pa.struct([("d e", pa.string())]))])),
            ("a.b", pa.string()),
            ("list", pa.list_(pa.struct([("x", pa.int32())]))),
            ("nothing", pa.null()),
            ("deep", pa.struct([("b", pa.struct([("c", pa.struct([("d", DEEPEST)]))]))])),
        ]
    )
)


def bound(condition, timezone="UTC"):
    return PredicateSet.of(condition).bind(SCHEMA, timezone).root


def leaf(condition, timezone="UTC"):
    """Operator and ordinal of a condition that is one comparison."""
    root = bound(condition, timezone)
    assert isinstance(root, BoundCompare), root
    return root.op, root.value


def refused(condition, *words):
    with pytest.raises(InvalidPredicateError) as caught:
        PredicateSet.of(condition).bind(SCHEMA)
    for word in words:
        assert word in str(caught.value)
    return caught.value


# --- spellings ---


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("n = 1", compare(Name(("n",)), "=", 1)),
        ("n == 1", compare(Name(("n",)), "=", 1)),
        ("n <> 1", compare(Name(("n",)), "!=", 1)),
        ("1 < n", compare(Name(("n",)), ">", 1)),
        ("n <=> NULL", compare(Name(("n",)), "<=>", None)),
        ("n IS DISTINCT FROM 1", negated(compare(Name(("n",)), "<=>", 1))),
        ("n IN (1, -2, NULL)", is_in(Name(("n",)), (1, -2, None))),
        ("n NOT IN (1)", negated(is_in(Name(("n",)), (1,)))),
        (
            "n BETWEEN 1 AND 2",
            all_of((compare(Name(("n",)), ">=", 1), compare(Name(("n",)), "<=", 2))),
        ),
        ("Name NOT LIKE 'x%'", negated(like(Name(("Name",)), "x%"))),
        ("Name NOT LIKE 'x!%' ESCAPE '!'", negated(like(Name(("Name",)), "x!%", "!"))),
        (
            "n NOT BETWEEN 1 AND 2",
            negated(all_of((compare(Name(("n",)), ">=", 1), compare(Name(("n",)), "<=", 2)))),
        ),
        ("n IS NULL", is_null(Name(("n",)))),
        ("n IS NOT NULL", negated(is_null(Name(("n",))))),
        ("isnotnull(n)", negated(is_null(Name(("n",))))),
        ("startswith(Name, 'x')", matches("startswith", Name(("Name",)), "x")),
        ("Name LIKE 'x!%%' ESCAPE '!'", like(Name(("Name",)), "x!%%", "!")),
        ("flag", compare(Name(("flag",)), "=", True)),
        ("NOT flag", negated(compare(Name(("flag",)), "=", True))),
        ("flag IS NOT TRUE", negated(compare(Name(("flag",)), "<=>", True))),
        ("1 = 1", constant(True)),
        ("NULL", constant(None)),
        ("`a.b` = 'x'", compare(Name(("a.b",)), "=", "x")),
        ("a.C.`d e` = 'x'", compare(Name(("a", "C", "d e")), "=", "x")),
        ("deep.b.c.d.e <= 1", compare(Name(("deep", *"bcde")), "<=", 1)),
        ("1 <= deep.b.`c`.d.f.g", compare(Name(("deep", *"bcdfg")), ">=", 1)),
        ("deep.b.c.d.e IN (1)", is_in(Name(("deep", *"bcde")), (1,))),
        ("price = 1.50", compare(Name(("price",)), "=", Decimal("1.50"))),
        ("d = 1e3", compare(Name(("d",)), "=", 1000.0)),
        ("d = -1.5D", compare(Name(("d",)), "=", -1.5)),
        ("f = 1.1F", compare(Name(("f",)), "=", 1.100000023841858)),
        ("n = 5L", compare(Name(("n",)), "=", 5)),
        ("raw = X'00ff'", compare(Name(("raw",)), "=", b"\x00\xff")),
        ("day = DATE '2020-02-29'", compare(Name(("day",)), "=", date(2020, 2, 29))),
        (
            "t = TIMESTAMP '2020-01-01 00:00:00.000000001+00:00'",
            compare(Name(("t",)), "=", Timestamp(1_577_836_800_000_000_001, True)),
        ),
        (
            "wall = TIMESTAMP_NTZ '2020-01-01 00:00:00'",
            compare(Name(("wall",)), "=", Timestamp(1_577_836_800_000_000_000, False)),
        ),
        ("clock = TIME '12:30:00'", compare(Name(("clock",)), "=", time(12, 30))),
        ("span = INTERVAL '1.5' SECOND", compare(Name(("span",)), "=", timedelta(seconds=1.5))),
        ("n = CAST('7' AS BIGINT)", compare(Name(("n",)), "=", 7)),
        ("price = CAST(1.005 AS DECIMAL(5, 2))", compare(Name(("price",)), "=", Decimal("1.01"))),
        (r"Name = 'it\'s'", compare(Name(("Name",)), "=", "it's")),
        ("Name = 'it''s'", compare(Name(("Name",)), "=", "it's")),
        (r"Name = 'tab\t'", compare(Name(("Name",)), "=", "tab\t")),
    ],
)
def test_sql_text_says_the_same_as_nodes(text, node):
    assert bound(text) == bound(node)


@pytest.mark.parametrize(
    "text",
    [
        "n = 1 AND (tiny = 2 OR NOT day < DATE '2020-01-01')",
        "Name LIKE '50!%%' ESCAPE '!' OR startswith(Name, 'it\\'s \\\\ x')",
        "price IN (1.10, -2) AND d > CAST('nan' AS DOUBLE)",
        "NOT (a.b IS NULL) AND `a.b` <=> 'q'",
        "raw = X'00FF' OR t >= TIMESTAMP '2020-01-01 00:00:00.000001+00:00'",
        "clock < TIME '12:30:00' AND span = INTERVAL '1.5' SECOND",
    ],
)
def test_a_condition_prints_as_sql_that_means_the_same(text):
    first = PredicateSet.of(text)
    again = PredicateSet.of(str(first))
    assert str(again) == str(first)
    assert again.bind(SCHEMA) == first.bind(SCHEMA)


@pytest.mark.parametrize(
    ("triple", "text"),
    [
        (("n", "=", 1), "n = 1"),
        (("n", "==", 1), "n = 1"),
        (("n", "<>", 1), "n <> 1"),
        (("n", "in", {1}), "n IN (1)"),
        (("n", "in", pa.array([1, None])), "n IN (1, NULL)"),
        (("n", "NOT  IN", [1, 2]), "n NOT IN (1, 2)"),
        (("n", "is null", None), "n IS NULL"),
        (("n", "is not null"), "n IS NOT NULL"),
        (("n", "between", (1, 2)), "n BETWEEN 1 AND 2"),
        (("Name", "starts_with", "x"), "startswith(Name, 'x')"),
        (("Name", "like", "x%"), "Name LIKE 'x%'"),
        (("Name", "contains", "x"), "contains(Name, 'x')"),
        ((("a", "b"), ">", 1), "a.b > 1"),
        (("a.b", "=", "x"), "`a.b` = 'x'"),
        (("a.C.d e", "=", "x"), "a.C.`d e` = 'x'"),
        (("t", "<", datetime(2020, 1, 1)), "t < TIMESTAMP '2020-01-01'"),
    ],
)
def test_triples_say_the_same_as_sql(triple, text):
    assert bound([triple]) == bound(triple) == bound(text)


def test_a_list_of_conditions_means_all_of_them():
    assert bound([("n", ">", 1), "tiny = 2", is_null(Name(("d",)))]) == bound(
        "n > 1 AND tiny = 2 AND d IS NULL"
    )
    assert bound(["n = 1", "tiny = 2", "d = 3"]) == bound("n = 1 AND tiny = 2 AND d = 3")


def test_sets_combine_with_and():
    both = PredicateSet.of("n = 1") & PredicateSet.of("tiny = 2 AND d = 3") & PredicateSet.of(None)
    assert str(both) == "n = 1 AND tiny = 2 AND d = 3"
    assert PredicateSet.of(None).bind(SCHEMA).always_true
    assert (PredicateSet.of(None) & PredicateSet.of(None)).bind(SCHEMA).always_true


def test_numpy_and_pandas_values_are_literals():
    np = pytest.importorskip("numpy")
    pd = pytest.importorskip("pandas")
    assert leaf([("n", "=", np.int32(5))]) == ("=", 5)
    assert leaf([("f", "=", np.float32(1.1))]) == leaf("f = 1.1F")
    assert leaf([("t", "=", np.datetime64("2020-01-01T00:00:00.000001"))])[1] % 10**6 == 1
    late = pd.Timestamp("2020-01-01 00:00:00.000000001")
    assert isinstance(bound([("t", "=", late)]), IfPresent)
    assert leaf([("t", ">", late)]) == (">", 1_577_836_800_000_000)
    for missing in (pd.NaT, pd.NA, np.datetime64("NaT"), np.timedelta64("NaT", "ns")):
        assert bound([("t", "=", missing)]) == BoundConstant(None)
    midnight = leaf("t = TIMESTAMP '2020-02-01 00:00:00+00:00'")
    for unit in ("M", "D", "h", "m", "s", "ms", "us", "ns"):
        assert leaf([("t", "=", np.datetime64("2020-02-01").astype(f"M8[{unit}]"))]) == midnight
    assert leaf([("day", "=", np.datetime64("2020-02-01", "D"))]) == ("=", 18_293)
    span = timedelta(days=14)
    for unit in ("W", "D", "h", "m", "s", "ms", "us", "ns"):
        assert literal(np.timedelta64(span).astype(f"m8[{unit}]")) == span
    assert leaf([("t", ">", np.datetime64(1, "ns"))]) == (">", 0)
    assert isinstance(bound([("t", "=", np.datetime64(1, "ns"))]), IfPresent)
    assert leaf([("t", "<", np.datetime64("20000-01-01", "s"))])[1] == 568_971_820_800 * 10**6
    for far in (np.timedelta64(1, "M"), np.timedelta64(1, "ns"), np.datetime64(1, "ps")):
        with pytest.raises(InvalidPredicateError, match=r"is (neither|no|finer)"):
            PredicateSet.of([("t", "=", far)])


def test_predicates_pickle_and_stay_small():
    predicate = PredicateSet.of("n = 1 AND Name LIKE 'x%' AND t > TIMESTAMP '2020-01-01'")
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    made = predicate.bind(SCHEMA)
    assert pickle.loads(pickle.dumps(made)) == made
    assert len(pickle.dumps(made)) < 1000


# --- refusals ---


@pytest.mark.parametrize(
    ("text", "word", "position"),
    [
        ("n > 1 AND myfunc(n)", "function myfunc", 10),
        ("n > 1 AND yeer(day) = 2020", "the nearest known is year", 10),
        ("n > rand()", "not deterministic", 4),
        ("Name LIKE ANY ('x', 'y')", "LIKE ANY", 10),
        ("n BETWEEN SYMMETRIC 2 AND 1", "AND is expected", 20),
        ("n IN (SELECT 1)", "a query", 6),
        ("n = ?", "no meaning", 4),
        ("n >", "the text ends", 3),
        ("n = 1 tiny", "an operator or the end", 6),
        ("n = 1; tiny = 2", "no meaning", 5),
        ("", "empty", None),
        ("n IN ()", "a value is expected", 6),
        ("a[0] = 1", "an element", 0),
        ("day = DATE '2020-13-01'", "a value of DATE", 11),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_position(text, word, position):
    with pytest.raises(InvalidPredicateError) as caught:
        PredicateSet.of(text)
    assert word in str(caught.value)
    assert caught.value.text == text
    if position is not None:
        assert caught.value.position == position


def test_deep_nesting_is_refused_and_long_chains_are_not():
    refused("(" * 3000 + "n = 1" + ")" * 3000, "nested too deeply")
    long = PredicateSet.of(" OR ".join(f"n = {i} AND tiny = 1" for i in range(2000)))
    assert len(long.bind(SCHEMA).root.terms) == 2000


def test_columns_that_cannot_be_compared_are_refused():
    refused("missing = 1", "no column missing")
    refused("a = 1", "only IS NULL")
    refused("list = 1", "only IS NULL")
    refused([(("list", "item", "x"), "=", 1)], "list or map")
    refused("a.zzz = 1", "no column a.zzz")
    assert isinstance(bound("a IS NULL"), BoundIsNull)
    assert isinstance(bound("list IS NOT NULL"), BoundNot)


def test_triples_that_make_no_sense_are_refused():
    refused([("n", "~", 1)], "operators")
    refused([("n", "in", "abc")], "list of values")
    refused([("n", "between", 1)], "two values")
    refused([("n", "is null", 3)], "no value")
    refused([("n", "=", object())], "cannot be compared")
    refused(5, "int")
    refused([5], "int")


@pytest.mark.parametrize(
    "condition",
    [
        "n = TRUE",
        "n = 'five'",
        "n = CAST('x' AS INT)",
        "tiny = CAST(300 AS TINYINT)",
        "year(day) = 1 / 0",
        "n = DATE '2020-01-01'",
        "day = 5",
        "flag = 1",
        "day = 'soon'",
        "t = '2020-01-01 25:00:00'",
        r"Name LIKE 'a\\b'",
        "price = CAST('nan' AS DECIMAL(10, 2))",
    ],
)
def test_literals_that_do_not_compare_with_the_column_are_refused(condition):
    with pytest.raises(InvalidPredicateError):
        bound(condition)


def test_an_aware_datetime_against_a_column_without_zone_is_refused():
    refused([("wall", "=", datetime(2020, 1, 1, tzinfo=timezone.utc))], "without zone")


def test_a_time_with_a_zone_and_a_number_are_no_times():
    refused([("clock", "=", time(12, tzinfo=timezone.utc))], "cannot be compared")
    refused("clock = 5", "cannot be compared")


@pytest.mark.parametrize(
    "spelling", ['"string collate UTF8_LCASE"', '{"collation": "icu.COLLATE"}']
)
def test_collated_columns_are_refused(spelling):
    field = pa.field("c", pa.string(), metadata={schemas.SPARK_TYPE: spelling.encode()})
    schema = initial(pa.schema([field, ("n", pa.int32())]))
    for condition in ("c = 'x'", "c LIKE 'x%'", "c IN ('x')", "NOT c > 'x'"):
        with pytest.raises(InvalidPredicateError, match="collation"):
            PredicateSet.of(condition).bind(schema)
    assert isinstance(PredicateSet.of("c IS NULL").bind(schema).root, BoundIsNull)
    assert PredicateSet.of("n = 1").bind(schema).columns == ("n",)


def test_a_char_column_is_compared_as_it_is_stored():
    field = pa.field("c", pa.string(), metadata={schemas.SPARK_TYPE: b'"char(5)"'})
    schema = initial(pa.schema([field]))
    assert PredicateSet.of("c = 'ab   '").bind(schema).root.value == b"ab   "


# --- columns ---


def test_names_match_without_regard_to_case_and_exact_ones_win():
    made = PredicateSet.of("NAME = 'x' AND A.c.`D E` = 'y'").bind(SCHEMA)
    assert made.columns == ("Name", "a")
    assert made.root.terms[1].column.path == ("a", "C", "d e")
    twins = pa.schema([initial(pa.schema([(n, pa.int32())])).field(0) for n in ("x", "X")])
    assert PredicateSet.of("X = 1").bind(twins).root.column.path == ("X",)
    twins = pa.schema([twins.field(0).with_name("aB"), twins.field(1).with_name("Ab")])
    with pytest.raises(InvalidPredicateError, match="may mean"):
        PredicateSet.of("AB = 1").bind(twins)


def test_a_column_named_a_dot_b_is_not_field_b_of_a():
    assert bound([("a.b", "=", "x")]).column.path == ("a.b",)
    assert bound([(("a", "b"), "=", 1)]).column.path == ("a", "b")
    assert bound("a.b = 1").column.path == ("a", "b")
    assert bound("`a.b` = 'x'").column.path == ("a.b",)


def test_columns_and_ids_are_told():
    made = PredicateSet.of("a.b = 1 AND n > 2 AND a.C.`d e` = 'x'").bind(SCHEMA)
    assert made.columns == ("a", "n")
    ids = {leaf.path: leaf.id for leaf in schemas.leaves(SCHEMA)}
    assert made.column_ids == (ids[("a", "b")], ids[("n",)], ids[("a", "C", "d e")])


# --- literals are never narrowed ---


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("tiny = 300", False),
        ("tiny != 300", True),
        ("tiny < 300", True),
        ("tiny <= 127", True),
        ("tiny > 300", False),
        ("tiny >= -129", True),
        ("tiny IN (300, -300)", False),
        ("n = 1.5", False),
        ("n != 1.5", True),
        ("n < 1e300", True),
        ("n < CAST('nan' AS DOUBLE)", True),
        ("n >= CAST('nan' AS DOUBLE)", False),
        ("n > CAST('-inf' AS DOUBLE)", True),
        ("u >= 0", True),
        ("u < 0", False),
        ("price = 1.123", False),
        ("price < 1e20", True),
        ("f = 1.1", False),
        ("d > CAST('nan' AS DOUBLE)", False),
        ("d <= CAST('nan' AS DOUBLE)", True),
        ("wall = TIMESTAMP_NTZ '2020-01-01 00:00:00.0001'", False),
        ("Name LIKE '%'", True),
        ("startswith(Name, '')", True),
    ],
)
def test_what_a_column_cannot_hold_is_folded_but_null_stays_null(condition, truth):
    made = PredicateSet.of(condition).bind(SCHEMA)
    assert isinstance(made.root, IfPresent)
    assert made.root.truth is truth
    assert made.never_true is not truth
    assert not made.always_true


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("n < 1.5", ("<", 2)),
        ("n <= 1.5", ("<=", 1)),
        ("n > -1.5", (">", -2)),
        ("n = 2.0", ("=", 2)),
        ("n = 2.0D", ("=", 2)),
        ("n = '7'", ("=", 7)),
        ("price = 1.1", ("=", 110)),
        ("price = 1.1D", ("=", 110)),
        ("price <= 1.129", ("<=", 112)),
        ("f = 1.1F", ("=", 1.100000023841858)),
        ("f < 1.1", ("<", 1.100000023841858)),
        ("f <= 1.1", ("<=", 1.0999999046325684)),
        ("d = 9007199254740993", ("=", 9007199254740992.0)),
        ("d = -0.0D", ("=", 0.0)),
        ("u = 18446744073709551615", ("=", 2**64 - 1)),
        ("day < TIMESTAMP_NTZ '2020-01-01 12:00:00'", ("<", 18263)),
        ("day <= TIMESTAMP_NTZ '2020-01-01 12:00:00'", ("<=", 18262)),
        ("day = '2020-01-01'", ("=", 18262)),
        ("wall = DATE '2020-01-01'", ("=", 1_577_836_800_000)),
        ("wall < TIMESTAMP_NTZ '2020-01-01 00:00:00.0001'", ("<", 1_577_836_800_001)),
        ("wall >= TIMESTAMP_NTZ '1969-12-31 23:59:59.9999'", (">=", 0)),
        ("t = '2020-01-01T00:00:00.000001Z'", ("=", 1_577_836_800_000_001)),
        ("t = '2020-01-01 01:00:30+01:00:30'", ("=", 1_577_836_800_000_000)),
        ("t = '1850-06-01'", ("=", -3_773_779_200_000_000)),
        ("flag = 'true'", ("=", 1)),
        ("raw = 'ab'", ("=", b"ab")),
        ("clock > '12:00'", (">", 43_200_000_000)),
        ("Name = '\U0001f600'", ("=", "\U0001f600".encode())),
    ],
)
def test_literals_are_placed_among_the_columns_values(condition, expected):
    assert leaf(condition) == expected


def test_a_text_in_a_list_is_the_number_that_it_names():
    assert leaf([("n", "=", " 7 ")]) == ("=", 7)
    assert leaf([("price", "<", "1.129")]) == leaf("price < 1.129")
    refused([("n", "=", "1.5")], "the text '1.5' is not a whole number")
    refused([("n", "=", "9223372036854775808")], "out of range of a BIGINT")


def test_a_long_against_a_double_compares_as_doubles():
    # 2^53 and 2^53 + 1 are one double.
    made = bound("n = 9007199254740992D")
    assert isinstance(made, BoundAnd)
    assert [(term.op, term.value) for term in made.terms] == [(">=", 2**53), ("<=", 2**53 + 1)]
    assert bound("n IN (9007199254740992D, 1)") == bound("n = 1 OR n = 9007199254740992D")


def test_zoneless_text_is_read_in_the_sessions_zone():
    assert leaf("t = '2020-07-01 12:00:00'", "America/New_York")[1] == (
        datetime(2020, 7, 1, 16, tzinfo=timezone.utc).timestamp() * 10**6
    )
    assert leaf("t = DATE '2020-01-01'", "+02:00")[1] == 1_577_829_600_000_000
    assert leaf("t = '2020-01-01 00:00:00Z'", "Asia/Tokyo")[1] == 1_577_836_800_000_000
    assert leaf("wall = '2020-01-01 00:00:00'", "Asia/Tokyo")[1] == 1_577_836_800_000
    refused_zone = pytest.raises(InvalidPredicateError, match="time zone")
    with refused_zone:
        PredicateSet.of("n = 1").bind(SCHEMA, timezone="Mars/Olympus")


def test_the_repeated_hour_is_its_first_and_the_skipped_one_lies_behind_the_gap():
    berlin = "Europe/Berlin"
    first = datetime(2020, 10, 25, 0, 30, tzinfo=timezone.utc)
    assert leaf("t = '2020-10-25 02:30:00'", berlin)[1] == first.timestamp() * 10**6
    behind = datetime(2020, 3, 29, 1, 30, tzinfo=timezone.utc)
    assert leaf("t = '2020-03-29 02:30:00'", berlin)[1] == behind.timestamp() * 10**6
    # Before time zones Berlin was 53 minutes and 28 seconds ahead.
    old = leaf("t = '1850-01-01 00:53:28'", berlin)[1]
    assert old == leaf("t = '1850-01-01 00:00:00Z'")[1]


def test_a_date_against_an_instant_is_its_midnight_in_the_sessions_zone():
    tokyo = "Asia/Tokyo"
    assert leaf("day <= TIMESTAMP '2020-01-01 00:00:00+09:00'", tokyo) == ("<=", 18262)
    assert leaf("day <= TIMESTAMP '2019-12-31 23:59:59+09:00'", tokyo) == ("<=", 18261)


def test_timestamps_beyond_pythons_years_are_literals():
    assert leaf("t = '+10000-01-01'") == ("=", 253_402_300_800_000_000)
    assert leaf("day = '+10000-01-01'") == leaf("day = DATE '+10000-01-01'") == ("=", 2_932_897)
    assert leaf("wall < '-0001-12-31 00:00:00'")[1] < leaf("wall < '0000-01-01'")[1]
    last = pa.scalar(2**63 - 1, pa.timestamp("us", "UTC"))
    assert leaf([("t", "=", last)]) == ("=", 2**63 - 1)
    assert isinstance(
        bound([("wall", "<", pa.scalar(2**63 - 1, pa.timestamp("ms")))]), BoundCompare
    )
    assert isinstance(
        PredicateSet.of([("x", "<", pa.scalar(2**63 - 1, pa.timestamp("s")))])
        .bind(initial(pa.schema([("x", pa.timestamp("ns"))])))
        .root,
        IfPresent,
    )


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(2_932_897, pa.date32()),  # 10000-01-01
        pa.scalar(-(2**31), pa.date32()),
        pa.scalar(2**63 - 1, pa.duration("s")),
    ],
    ids=["10000", "first", "duration"],
)
def test_scalars_of_arrow_beyond_python_are_refused_and_arrow_compares_them(value):
    with pytest.raises(InvalidPredicateError, match="out of the range of Python's"):
        PredicateSet.of([("x", "=", value)])
    rows = pa.table({"x": pa.array([None, value.value], value.type)})
    for expression in (pc.field("x") == value, pc.field("x").isin([value])):
        condition = PredicateSet.of(expression).bind(initial(rows.schema))
        assert matching_mask(rows, condition).to_pylist()[1] is True


def test_huge_decimals_do_not_blow_up():
    assert isinstance(bound([("n", "<", Decimal("1e400"))]), IfPresent)
    assert leaf([("n", "<", Decimal("1e-400"))]) == ("<", 1)
    assert leaf([("n", ">", Decimal("-1e-400"))]) == (">", -1)
    for beyond in ("1e999999", "-1e-999999"):
        with pytest.raises(InvalidPredicateError, match="out of range of every type"):
            bound([("n", "<", Decimal(beyond))])


# --- NULL and normal form ---


def test_null_literals_make_null():
    for condition in ("n = NULL", "n != NULL", "n < NULL", "n IN (NULL)", "tiny IN (300, NULL)"):
        made = PredicateSet.of(condition).bind(SCHEMA)
        assert made.root == BoundConstant(None)
        assert made.never_true
        assert PredicateSet.of(f"NOT ({condition})").bind(SCHEMA).root == BoundConstant(None)
    assert isinstance(bound("n <=> NULL"), BoundIsNull)
    assert bound("tiny <=> 300") == BoundConstant(False)
    assert bound([("n", "in", [])]) == BoundConstant(False)


def test_an_in_list_keeps_null_and_nan_apart():
    made = bound("d IN (2, NULL, CAST('nan' AS DOUBLE), 1, 2)")
    assert isinstance(made, BoundIn)
    assert made.values == (1.0, 2.0)
    assert made.has_nan
    assert made.has_null
    assert math.isnan(leaf([("d", "in", [float("nan")])])[1])


def test_not_is_pushed_inward():
    assert bound("NOT (n < 1 OR n > 5)") == bound("n >= 1 AND n <= 5")
    assert bound("NOT NOT n = 1") == bound("n = 1")
    assert bound("NOT n = 1") == bound("n != 1")
    assert bound("NOT (n IN (1, 2))") == bound("n NOT IN (1, 2)")
    nan = "CAST('nan' AS DOUBLE)"
    assert bound(f"NOT d < {nan}").op == "="
    assert bound(f"NOT d = {nan}").op == "!="


def test_constants_fold_and_lists_flatten():
    assert bound("n = 1 AND TRUE") == bound("n = 1")
    assert bound("n = 1 AND FALSE") == BoundConstant(False)
    assert bound("n = 1 OR TRUE") == BoundConstant(True)
    assert PredicateSet.of("n = 1 AND NULL").bind(SCHEMA).never_true
    assert not PredicateSet.of("n = 1 OR NULL").bind(SCHEMA).never_true
    nested = bound(
        any_of((any_of((compare(Name(("n",)), "=", 1),)), compare(Name(("n",)), "=", 2)))
    )
    assert isinstance(nested, BoundOr)
    assert len(nested.terms) == 2
    assert bound("n = 1 AND n = 1") == bound("n = 1")


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("abc", BoundCompare),
        ("ab%", BoundText),
        ("%ab", BoundText),
        ("%ab%", BoundText),
        ("%%a%%", BoundText),
        (r"a\_b%", BoundText),
        ("a_", BoundAnd),
        ("_a", BoundLike),
        ("a%b", BoundAnd),
    ],
)
def test_like_is_as_simple_as_its_pattern(pattern, kind):
    assert isinstance(bound([("Name", "like", pattern)]), kind)


def test_a_column_of_type_null_is_always_null():
    assert bound("nothing IS NULL") == BoundConstant(True)
    assert bound("nothing = 1") == BoundConstant(None)
    assert bound("nothing <=> 1") == BoundConstant(False)
    assert bound("nothing <=> NULL") == BoundConstant(True)
