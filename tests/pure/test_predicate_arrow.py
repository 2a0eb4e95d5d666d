"""Arrow expressions as conditions: Arrow decides the rows, and pruning never loses one.

The oracle is PyArrow: `table.filter(expression)` in memory.
"""

from __future__ import annotations

import math
import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language import BoundPredicate, PredicateSet
from lakehouse_source.language.bounds.bound import BoundExpression, IfPresent
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.model import RowGroupMetadata
from lakehouse_source.pruning.bounds import decode_row_group, encode_row_group, file_bounds
from lakehouse_source.pruning.evaluate import evaluate
from lakehouse_source.pruning.keys import SearchAll, SearchAny, SearchRanges
from lakehouse_source.pruning.search import search
from lakehouse_source.schema import fields as schemas
from lakehouse_source.schema.merge import initial
from tests.strategies import true_bounds

NAN = math.nan
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int64(), [-1, 0, 1, 2, 100]),
    "i": (pa.int32(), [-1, 0, 1, 2, 100]),
    "u": (pa.uint64(), [0, 1, 2, 2**40]),
    "x": (pa.float64(), [NAN, 0.0, -0.0, 1.0, 1.5, -2.0, math.inf, -math.inf]),
    "f": (pa.float32(), [NAN, 0.0, -0.0, 1.0, 1.5, -2.0, math.inf]),
    "s": (pa.string(), ["", "a", "ab", "b", "é"]),
    "b": (pa.bool_(), [True, False]),
    "d": (pa.decimal128(7, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("-2.00")]),
    "day": (pa.date32(), [date(2020, 1, 1), date(2020, 1, 2), date(1960, 5, 5)]),
    "t": (pa.timestamp("us"), [datetime(2020, 1, 1), datetime(2020, 1, 1, 12)]),
}
OPERATORS = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]


def operand(name: str) -> st.SearchStrategy[pc.Expression]:
    plain = pc.field("st", "x") if name == "st.x" else pc.field(name)
    wider = {"i": [pa.int64(), pa.float64()], "f": [pa.float64()], "day": [pa.timestamp("us")]}
    casts = [plain.cast(type_) for type_ in wider.get(name, [])]
    return st.sampled_from([plain, plain, *casts])


@st.composite
def leaf_expressions(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from([*POOLS, "x", "f", "st.x", "b"]))
    type_, pool = POOLS["x"] if name == "st.x" else POOLS[name]
    column = draw(operand(name))
    form = draw(st.sampled_from(["compare", "compare", "in", "null", "valid", "text", "other"]))
    if form == "in":
        values = draw(st.lists(st.sampled_from([*pool, None]), max_size=3))
        plain = pc.field("st", "x") if name == "st.x" else pc.field(name)
        return plain.isin(pa.array(values, type_))
    if form == "null":
        return column.is_null(nan_is_null=draw(st.booleans()) and pa.types.is_floating(type_))
    if form == "valid":
        return column.is_valid()
    if form == "text":
        return pc.starts_with(pc.field("s"), draw(st.sampled_from(["", "a", "é"])))
    if form == "other" and pa.types.is_floating(type_):
        return draw(st.sampled_from([pc.is_nan(column), pc.abs(column) > 1.0]))
    if form == "other" and name == "b":
        return column
    value = pa.scalar(draw(st.sampled_from([*pool, None])), type_)
    sides = draw(st.permutations([column, pc.scalar(value)]))
    return draw(st.sampled_from(OPERATORS))(*sides)


expressions = st.recursive(
    leaf_expressions(),
    lambda inner: st.one_of(
        inner.map(lambda a: ~a),
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        st.tuples(inner, inner).map(lambda two: pc.Expression._call("and", list(two))),
        st.tuples(inner, inner).map(lambda two: pc.Expression._call("or", list(two))),
        st.tuples(inner, inner, inner).map(lambda three: pc.if_else(*three)),
    ),
    max_leaves=5,
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(0, 5))
    columns = {}
    for name, (type_, pool) in POOLS.items():
        values = st.lists(st.sampled_from([*pool, None]), min_size=count, max_size=count)
        columns[name] = pa.array(draw(values), type_)
    inner = pa.array(columns["x"].to_pylist()[::-1], pa.float64())
    gone = pa.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), pa.bool_())
    columns["st"] = pa.StructArray.from_arrays([inner], ["x"], mask=gone)
    table = pa.table(columns)
    return table.cast(initial(table.schema))


def positions(mask: pa.ChunkedArray) -> set[int]:
    return {at for at, kept in enumerate(mask.to_pylist()) if kept}


def kept_by_arrow(table: pa.Table, expression: pc.Expression) -> set[int]:
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    return set(numbered.filter(expression)["row"].to_pylist())


def implied(table: pa.Table, expression: pc.Expression) -> BoundPredicate:
    root = PredicateSet.of(expression).bind(table.schema).root
    assert isinstance(root, BoundExpression)
    return BoundPredicate(root.implied)


SCHEMA = initial(
    pa.schema([*((name, type_) for name, (type_, _) in POOLS.items()), ("l", pa.list_(pa.int8()))])
)


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        (pc.field("i") > 5, "i > 5"),
        (pc.scalar(5) < pc.field("i"), "i > 5"),
        (pc.field("i").isin([1, 2]), "i IN (1, 2)"),
        (~pc.field("i").isin([1, 2]), "i NOT IN (1, 2) OR i IS NULL"),
        (pc.field("i").isin([1, None]), "i = 1 OR i IS NULL"),
        (pc.field("i").cast(pa.int64()) == 5, "i = 5"),
        (pc.field("i").cast(pa.int64()).isin([5]), "i = 5"),
        (pc.field("i") == pc.scalar(5).cast(pa.int8()), "i = 5"),
        (pc.field("s") >= "é", "s >= 'é'"),
        (pc.starts_with(pc.field("s"), "ab"), "startswith(s, 'ab')"),
        (pc.field("b"), "b = TRUE"),
        (~pc.field("b"), "b = FALSE"),
        (pc.field("x") > 1.0, "x > 1 AND x < CAST('nan' AS DOUBLE)"),
        (~(pc.field("x") > 1.0), "x <= 1 OR x = CAST('nan' AS DOUBLE)"),
        (pc.field("x").is_null(nan_is_null=True), "x IS NULL OR x = CAST('nan' AS DOUBLE)"),
        (~pc.field("x").isin([0.0, 1.0]), "x NOT IN (1.0) OR x IS NULL"),
        (pc.field("n").is_valid(), "n IS NOT NULL"),
        (pc.field("day") < date(2020, 1, 1), "day < DATE '2020-01-01'"),
        (pc.field("day").cast(pa.timestamp("us")) <= datetime(2020, 1, 1, 12),
         "day <= '2020-01-01'"),
        (pc.field("d") > Decimal("1.500"), "d > 1.5"),
        (pc.if_else(pc.field("b"), pc.field("n") == 1, pc.field("n") == 2),
         "(b = TRUE AND n = 1) OR (b = FALSE AND n = 2)"),
    ],
)  # fmt: skip
def test_translations(expression: pc.Expression, condition: str) -> None:
    root = PredicateSet.of(expression).bind(SCHEMA).root
    assert isinstance(root, BoundExpression)
    # As text: NaN is not equal to itself.
    assert repr(root.implied) == repr(PredicateSet.of(condition).bind(SCHEMA).root)
    assert root.unused == ()


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("n") == pc.field("i"),
        pc.abs(pc.field("n")) > 1,
        pc.field("d") > 0.5,  # Arrow compares doubles that it may have rounded
        pc.field("n").cast(pa.float32(), safe=False) > 0.5,
        pc.field("n").cast(pa.float64()) > 0.5,
        pc.field("i").cast(pa.string()) > "5",
        pc.field("day").cast(pa.timestamp("ns"), safe=False) < datetime(2020, 1, 1),
        pc.starts_with(pc.field("s"), "ab", ignore_case=True),
        pc.field("f").isin([0.1]),
        pc.field(0) > 1,
    ],
    ids=str,
)
def test_what_has_no_translation_is_reported_and_prunes_nothing(
    expression: pc.Expression,
) -> None:
    for both in (expression, ~expression):
        bound = PredicateSet.of(both).bind(SCHEMA)
        assert implied(SCHEMA.empty_table(), both).always_true
        assert len(bound.unused) == 1
    found = PredicateSet.of(pc.field("n").is_valid() & expression).bind(SCHEMA)
    assert len(found.unused) == 1


def test_an_or_with_an_unknown_branch_prunes_nothing() -> None:
    unknown = pc.abs(pc.field("n")) > 1
    bound = PredicateSet.of((pc.field("n") == 1) | unknown).bind(SCHEMA)
    assert implied(SCHEMA.empty_table(), (pc.field("n") == 1) | unknown).always_true
    assert len(bound.unused) == 1
    chosen = pc.if_else(unknown, pc.field("n") == 1, unknown)
    assert implied(SCHEMA.empty_table(), chosen).always_true


def test_a_name_with_a_line_break_is_not_misread() -> None:
    name = "x'\ncall: 'and"
    table = pa.table({name: [1, 2], "x": [5, 6]})
    table = table.cast(initial(table.schema))
    bound = PredicateSet.of(pc.field((name,)) > 1).bind(table.schema)
    assert bound.unused
    assert positions(matching_mask(table, bound)) == {1}


def test_an_expression_without_columns_is_decided_at_once() -> None:
    assert PredicateSet.of(pc.scalar(True)).bind(SCHEMA).always_true
    assert PredicateSet.of(pc.scalar(1) > 2).bind(SCHEMA).never_true
    assert PredicateSet.of(pc.scalar(pa.scalar(None, pa.bool_()))).bind(SCHEMA).never_true


def test_a_nan_literal_selects_nothing_by_equality() -> None:
    root = PredicateSet.of(pc.field("x") == NAN).bind(SCHEMA).root
    assert isinstance(root, BoundExpression)
    assert BoundPredicate(root.implied).never_true
    root = PredicateSet.of(pc.field("x") != NAN).bind(SCHEMA).root
    assert isinstance(root, BoundExpression)
    assert not isinstance(root.implied, IfPresent)


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        (pc.field("nowhere") > 1, "nowhere"),
        (pc.field("s") > 1, "does not fit"),
        (pc.field("n") + 1, "int64"),
        (pc.scalar(None), "null"),
    ],
)
def test_an_expression_that_is_no_condition_of_the_schema_is_refused(
    expression: pc.Expression, word: str
) -> None:
    with pytest.raises(InvalidPredicateError, match=word):
        PredicateSet.of(expression).bind(SCHEMA)


def test_a_collated_column_is_left_to_arrow() -> None:
    field = pa.field(
        "s", pa.string(), metadata={schemas.SPARK_TYPE: b'"string collate UNICODE_CI"'}
    )
    schema = initial(pa.schema([field]))
    assert PredicateSet.of(pc.field("s") > "a").bind(schema).unused


# --- properties; they come last because a failure takes long to shrink ---


@given(tables(), expressions)
def test_rows_are_those_that_arrow_keeps(table: pa.Table, expression: pc.Expression) -> None:
    bound = PredicateSet.of(expression).bind(table.schema)
    assert positions(matching_mask(table, bound)) == kept_by_arrow(table, expression)
    again = pickle.loads(pickle.dumps(bound))
    assert str(again) == str(bound)
    assert positions(matching_mask(table, again)) == kept_by_arrow(table, expression)


@given(tables(), expressions)
def test_what_an_expression_implies_holds_on_every_row_that_arrow_keeps(
    table: pa.Table, expression: pc.Expression
) -> None:
    held = positions(matching_mask(table, implied(table, expression)))
    assert kept_by_arrow(table, expression) <= held


def overlaps(found: Any, keys: dict[int, tuple[bytes, bytes]]) -> bool:
    if isinstance(found, SearchRanges):
        lower, upper = keys[found.column_id]
        return any(
            (r.upper is None or lower <= r.upper) and (r.lower is None or upper >= r.lower)
            for r in found.ranges
        )
    combine = any if isinstance(found, SearchAny) else all
    assert isinstance(found, (SearchAny, SearchAll))
    return combine(overlaps(term, keys) for term in found.terms)


@given(tables(), expressions)
def test_pruning_loses_no_row_that_arrow_keeps(table: pa.Table, expression: pc.Expression) -> None:
    leaves = list(schemas.leaves(table.schema))
    described = []
    for leaf in leaves:
        values: Any = table[leaf.path[0]]
        if len(leaf.path) == 2:
            values = pc.struct_field(values, leaf.path[1])
        kind = leaf.type
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            values = values.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
        described.append((leaf, true_bounds(values.to_pylist(), kind)))
    group = RowGroupMetadata(0, table.num_rows, *encode_row_group(described))
    bound = PredicateSet.of(expression).bind(table.schema)
    types = {leaf.id: leaf.type for leaf in leaves}
    outcome = evaluate(bound, lambda id: decode_row_group(group, id, types[id], types[id]))
    keys = {row.column_id: (row.lower, row.upper) for row in file_bounds([group], leaves)}
    found = search(bound, frozenset(keys))
    if kept_by_arrow(table, expression):
        assert outcome.may_match
        assert not bound.never_true
        assert found is None or overlaps(found, keys)
    assert not outcome.always  # Arrow decides every row itself
