"""No matching row is ever pruned, no condition called always true that is not."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from lakehouse_source.language import Node, PredicateSet
from lakehouse_source.model import ColumnBounds, FileBounds, RowGroupMetadata
from lakehouse_source.pruning.bounds import (
    constant_bounds,
    decode_row_group,
    encode_row_group,
    file_bounds,
    of_index_row,
)
from lakehouse_source.pruning.evaluate import evaluate, evaluate_each
from lakehouse_source.pruning.keys import (
    KeyRange,
    Search,
    SearchAll,
    SearchRanges,
    encoding,
    key_of,
    ordinal_of_key,
)
from lakehouse_source.pruning.search import certain, search
from lakehouse_source.schema.merge import initial
from lakehouse_source.schema.ordinal import domain, to_ordinal
from tests.oracle import decide
from tests.strategies import (
    Rows,
    conditions,
    pool,
    poorer,
    row_groups,
    tables,
    tables_and_conditions,
    true_bounds,
)


def statistics(table: Rows, group: RowGroupMetadata):
    types = {leaf.id: leaf.type for leaf in table.leaves}

    def look_up(column_id: int) -> ColumnBounds:
        return decode_row_group(group, column_id, types[column_id], types[column_id])

    return look_up


def results(table: Rows, condition: Node) -> set[bool | None]:
    return {decide(condition, row, table.types) for row in table.rows}


def meets(wanted: Search, rows: dict[int, FileBounds]) -> bool:
    """What a catalog does with a search."""
    if isinstance(wanted, SearchRanges):
        found = rows.get(wanted.column_id)
        return found is not None and any(_overlap(found, part) for part in wanted.ranges)
    parts = [meets(term, rows) for term in wanted.terms]
    return all(parts) if isinstance(wanted, SearchAll) else any(parts)


def _overlap(found: FileBounds, part: KeyRange) -> bool:
    return (part.lower is None or found.upper >= part.lower) and (
        part.upper is None or found.lower <= part.upper
    )


@given(st.data())
def test_pruning_never_drops_a_matching_row(data):
    table, condition = data.draw(tables_and_conditions())
    group = data.draw(row_groups(table))
    outcome = evaluate(PredicateSet.of(condition).bind(table.schema), statistics(table, group))
    for result in results(table, condition):
        assert result in outcome


@given(st.data())
def test_row_groups_are_evaluated_together_as_each_by_itself(data):
    table, condition = data.draw(tables_and_conditions())
    bound = PredicateSet.of(condition).bind(table.schema)
    look_ups = [statistics(table, data.draw(row_groups(table))) for _ in range(3)]
    columns = {leaf.id: [look_up(leaf.id) for look_up in look_ups] for leaf in table.leaves}
    assert evaluate_each(bound, columns, 3) == [evaluate(bound, one) for one in look_ups]


@given(st.data())
def test_blanking_any_statistic_only_adds_outcomes(data):
    table, condition = data.draw(tables_and_conditions())
    bound = PredicateSet.of(condition).bind(table.schema)
    known = {
        leaf.id: true_bounds([row[leaf.path] for row in table.rows], leaf.type)
        for leaf in table.leaves
    }
    before = evaluate(bound, known.__getitem__)
    blanked = {leaf.id: data.draw(poorer(known[leaf.id], leaf.type)) for leaf in table.leaves}
    after = evaluate(bound, blanked.__getitem__)
    assert before.bits | after.bits == after.bits


@given(st.data())
def test_search_finds_every_file_with_a_matching_row(data):
    table, condition = data.draw(tables_and_conditions())
    cut = data.draw(st.integers(0, len(table.rows)))
    parts = [table.part(0, cut), table.part(cut, len(table.rows))]
    groups = [data.draw(row_groups(part)) for part in parts]
    rows = {row.column_id: row for row in file_bounds(groups, table.leaves)}
    chosen = data.draw(st.sets(st.sampled_from([leaf.id for leaf in table.leaves])))
    indexed = {
        leaf.id: encoding(leaf.type)
        for leaf in table.leaves
        if leaf.id in chosen and leaf.id in rows
    }
    bound = PredicateSet.of(condition).bind(table.schema)
    wanted = search(bound, indexed if data.draw(st.booleans()) else frozenset(indexed))
    if True in results(table, condition):
        assert not bound.never_true
        assert wanted is None or meets(wanted, rows)
    if bound.always_true:
        assert results(table, condition) <= {True}


def within(wanted: Search, rows: dict[int, FileBounds]) -> bool:
    """What a catalog does with a search for files in which every row matches."""
    if isinstance(wanted, SearchRanges):
        found = rows.get(wanted.column_id)
        return (
            found is not None
            and found.null_count == 0
            and any(
                (part.lower is None or found.lower >= part.lower)
                and (part.upper is None or found.upper <= part.upper)
                for part in wanted.ranges
            )
        )
    parts = [within(term, rows) for term in wanted.terms]
    return all(parts) if isinstance(wanted, SearchAll) else any(parts)


@given(st.data())
def test_every_row_matches_in_files_that_lie_within_a_condition(data):
    table, condition = data.draw(tables_and_conditions())
    group = data.draw(row_groups(table, perfect=data.draw(st.booleans())))
    rows = {row.column_id: row for row in file_bounds([group], table.leaves)}
    bound = PredicateSet.of(condition).bind(table.schema)
    wanted = certain(bound, frozenset(rows))
    if wanted is not None and within(wanted, rows):
        assert results(table, condition) <= {True}


def test_files_that_lie_within_a_condition_are_found():
    """The property above would hold of a search that finds none."""
    schema = initial(pa.schema([("n", pa.int64()), ("t", pa.string()), ("x", pa.float64())]))
    table = Rows(schema, tuple({("n",): n, ("t",): "b", ("x",): float(n)} for n in (3, 4)))
    group = RowGroupMetadata(
        0,
        2,
        *encode_row_group(
            [
                (leaf, true_bounds([r[leaf.path] for r in table.rows], leaf.type))
                for leaf in table.leaves
            ]
        ),
    )
    rows = {row.column_id: row for row in file_bounds([group], table.leaves)}
    for text, expected in {
        "n >= 3": True,
        "n > 3": False,
        "n < 5 AND n > 2": True,
        "n <= 3": False,
        "t = 'b'": True,
        "t > 'a'": True,
        "t < 'c'": None,
        "t >= 'b' AND n = 3": False,
        "t <= 'b' OR n = 3": True,
        "n IS NOT NULL": True,
        "n <> 7": None,
        "x >= 3.0 AND x <= 4.0": True,
        "x > 3.0": False,
        "x > CAST('Infinity' AS DOUBLE)": None,
    }.items():
        wanted = certain(PredicateSet.of(text).bind(schema), frozenset(rows))
        found = None if wanted is None else within(wanted, rows)
        assert found is expected, text


@given(st.data())
def test_bounds_that_the_index_has_of_a_file_never_drop_a_matching_row(data):
    table, condition = data.draw(tables_and_conditions())
    cut = data.draw(st.integers(0, len(table.rows)))
    groups = [
        data.draw(row_groups(part))
        for part in (table.part(0, cut), table.part(cut, len(table.rows)))
    ]
    rows = {row.column_id: row for row in file_bounds(groups, table.leaves)}
    count = len(table.rows)
    whole = {
        leaf.id: of_index_row(rows[leaf.id], leaf.type, count)
        if leaf.id in rows
        else ColumnBounds(None, None, None, count, True)
        for leaf in table.leaves
    }
    bound = PredicateSet.of(condition).bind(table.schema)
    outcome = evaluate(bound, whole.__getitem__)
    for result in results(table, condition):
        assert result in outcome
    # What is decided of the file is decided in the same way of each row group.
    for part in groups:
        of_part = evaluate(bound, statistics(table, part))
        assert not of_part.bits & ~outcome.bits


@given(st.data())
def test_keys_are_read_back_as_values(data):
    table = data.draw(tables(max_rows=1))
    leaf = data.draw(st.sampled_from(table.leaves))
    values = pool(leaf.type)
    assume(values)  # the type of columns that are always NULL has none
    value = data.draw(st.sampled_from(values))
    kind = domain(leaf.type)
    if kind.ordered:
        ordinal = to_ordinal(value, leaf.type)
        if not isinstance(ordinal, bytes):
            back = ordinal_of_key(key_of(ordinal, kind), kind)
            assert back == ordinal if ordinal == ordinal else back is None


@given(st.data())
def test_partition_values_are_bounds(data):
    table = data.draw(tables(max_rows=1))
    leaf = data.draw(st.sampled_from([one for one in table.leaves if len(one.path) == 1]))
    value = data.draw(st.sampled_from([None, *pool(leaf.type)]))
    one = Rows(pa.schema([table.schema.field(leaf.path[0])]), ({leaf.path: value},))
    condition = data.draw(conditions(one))
    bound = PredicateSet.of(condition).bind(one.schema)
    ordinal = None if value is None else to_ordinal(value, leaf.type)
    known, row = constant_bounds(leaf, ordinal, 1)
    outcome = evaluate(bound, {leaf.id: known}.__getitem__)
    (result,) = results(one, condition)
    assert result in outcome
    if result is True and encoding(leaf.type) is not None:
        wanted = search(bound, {leaf.id: encoding(leaf.type)})
        assert wanted is None or meets(wanted, {leaf.id: row})


PROMOTIONS = [
    (pa.int8(), pa.int32()),
    (pa.uint8(), pa.int16()),
    (pa.uint32(), pa.uint64()),
    (pa.uint32(), pa.int64()),
    (pa.int32(), pa.decimal128(12, 2)),
    (pa.float32(), pa.float64()),
    (pa.decimal128(5, 2), pa.decimal128(12, 4)),
    (pa.decimal128(5, 2), pa.decimal256(60, 2)),
    (pa.date32(), pa.timestamp("us")),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
    (pa.duration("ms"), pa.duration("ns")),
]


@given(st.data())
def test_statistics_from_before_a_promotion_stay_sound(data):
    old, new = data.draw(st.sampled_from(PROMOTIONS))
    schema = initial(pa.schema([("p", new)]))
    day = 86_400 * 10**9
    unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

    def promoted(value):
        if value is None or not (pa.types.is_temporal(old)):
            return value
        source = day if pa.types.is_date(old) else unit[old.unit]
        return value * source // unit[new.unit]

    def fits(value):
        return not pa.types.is_temporal(old) or -(2**63) <= promoted(value) < 2**63

    fitting = [value for value in pool(old) if fits(value)]
    found = data.draw(st.lists(st.sampled_from([None, *fitting]), max_size=5))
    now = Rows(schema, tuple({("p",): promoted(value)} for value in found))
    condition = data.draw(conditions(now))
    (leaf,) = now.leaves
    written = type(leaf)(leaf.path, leaf.id, old, False)
    group = RowGroupMetadata(0, len(found), *encode_row_group([(written, true_bounds(found, old))]))
    bound = PredicateSet.of(condition).bind(schema)
    known = decode_row_group(group, leaf.id, old, new)
    outcome = evaluate(bound, {leaf.id: known}.__getitem__)
    actual = results(now, condition)
    for result in actual:
        assert result in outcome
    if True in actual:
        wanted = search(bound, {leaf.id: encoding(new)})
        again = file_bounds([group], [written], {leaf.id: new})
        assert wanted is None or meets(wanted, {row.column_id: row for row in again})
        if encoding(old) == encoding(new):  # the rows of the index stay as they are
            kept = file_bounds([group], [written])
            assert wanted is None or meets(wanted, {row.column_id: row for row in kept})
