"""Arrow expressions and lists of lists through every call that takes a condition."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.errors import InvalidPredicateError, SchemaMismatchError

pytestmark = pytest.mark.slow

NAN = math.nan


def sample() -> pa.Table:
    xs = [0.0, -0.0, NAN, None, 1.5, -2.0]
    return pa.table(
        {
            "id": pa.array(range(60), pa.int32()),
            "k": pa.array([("a", "b", "c")[n // 20] for n in range(60)]),
            "x": pa.array([xs[n % 6] for n in range(60)], pa.float64()),
            "s": pa.array([None if n % 7 == 0 else f"s{n:02}" for n in range(60)]),
            "st": pa.array([{"q": n} if n % 5 else None for n in range(60)]),
        }
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six files of two row groups each."""
    uri = str(tmp_path_factory.mktemp("expressions") / "t")
    for start in range(0, 60, 10):
        lake.write_dataset(sample().slice(start, 10), uri, row_group_rows=5)
    return uri


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


EXPRESSIONS = [
    pc.field("id") > 41,
    ~(pc.field("x") > 1),
    pc.field("x") != 0.0,
    (pc.field("x") == NAN) | (pc.field("id") == 7),
    pc.field("x").isin([0.0, NAN]),
    ~pc.field("s").isin(["s01", "s59"]),
    pc.field("x").is_null(nan_is_null=True) & (pc.field("k") == "b"),
    pc.starts_with(pc.field("s"), "s4"),
    pc.field("st", "q") < 8,
    pc.field("st").is_null(),
    (pc.field("id").cast(pa.int64()) + 1 > 50) & (pc.field("k") > "a"),
    pc.scalar(False),
    pc.field("id") < -1,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_rows_are_those_that_arrow_keeps(uri: str, expression: pc.Expression) -> None:
    expected = ids(sample().filter(expression))
    scan = lake.open_dataset(uri).scan(expression)
    assert ids(scan.to_table()) == expected
    assert scan.count_rows() == len(expected)
    assert ids(lake.read_dataset(uri, predicates=expression, columns=["id"])) == expected
    assert sorted(n for batch in scan.to_batches() for n in batch["id"].to_pylist()) == expected


def test_an_expression_prunes_files_and_row_groups(uri: str) -> None:
    explained = lake.open_dataset(uri).scan(pc.field("id").isin([3, 58])).explain()
    assert (explained.files_total, explained.files_read) == (6, 2)
    assert (explained.row_groups_total, explained.row_groups_read) == (12, 2)
    assert explained.conditions_not_used == ()


def test_an_expression_prunes_partitions(tmp_path: Path) -> None:
    lake.write_dataset(sample(), tmp_path / "t", partition_by="k")
    scan = lake.open_dataset(tmp_path / "t").scan(pc.field("k") == "b")
    explained = scan.explain()
    assert (explained.files_read, explained.files_pruned_by_partition) == (1, 2)
    assert ids(scan.to_table()) == list(range(20, 40))


def test_what_cannot_prune_is_reported_and_filters_all_the_same(uri: str) -> None:
    expression = (pc.field("id") < 10) & (pc.abs(pc.field("x")) > 1.7)
    scan = lake.open_dataset(uri).scan(expression)
    explained = scan.explain()
    assert explained.files_read == 1
    assert explained.conditions_not_used == ("greater(abs(x), 1.7)",)
    assert "not used for pruning: greater(abs(x), 1.7)" in str(explained)
    assert ids(scan.to_table()) == [5]


def test_expressions_mix_with_other_conditions(uri: str) -> None:
    condition = [pc.field("x") > -1, ("k", "=", "a"), "id >= 4"]
    scan = lake.open_dataset(uri).scan(condition)
    assert ids(scan.to_table()) == [4, 6, 7, 10, 12, 13, 16, 18, 19]
    assert scan.explain().files_read == 2
    either = [[pc.field("x") == 1.5, "id < 5"], [("id", "=", 59)]]
    assert ids(lake.read_dataset(uri, predicates=either)) == [4, 59]


def test_as_a_dataset_an_expression_prunes_fragments(uri: str) -> None:
    found = lake.read_dataset(uri, predicates=pc.field("id") == 3, as_dataset=True)
    assert len(list(found.get_fragments())) == 1


@pytest.mark.parametrize(
    "expression", [pc.field("nowhere") > 1, pc.field("id") + 1, pc.field("s") > 1], ids=str
)
def test_an_expression_that_does_not_fit_is_refused(uri: str, expression: Any) -> None:
    with pytest.raises(InvalidPredicateError):
        lake.read_dataset(uri, predicates=expression)


@pytest.mark.parametrize(
    "expression", [pc.field("x") > 0, ~(pc.field("x") > 0), pc.field("id").isin([3, 44])], ids=str
)
def test_overwrite_where_replaces_the_rows_that_arrow_keeps(
    tmp_path: Path, expression: pc.Expression
) -> None:
    lake.write_dataset(sample(), tmp_path / "t", row_group_rows=5)
    matching = sample().filter(expression)
    stays = set(ids(sample())) - set(ids(matching))
    lake.write_dataset(
        matching.slice(0, 1), tmp_path / "t", mode="overwrite", overwrite_where=expression
    )
    left = ids(lake.read_dataset(tmp_path / "t"))
    assert left == sorted([*stays, matching["id"][0].as_py()])
    other = sample().filter(~expression)
    with pytest.raises(SchemaMismatchError, match="do not satisfy"):
        lake.write_dataset(other, tmp_path / "t", mode="overwrite", overwrite_where=expression)


# --- lists of lists ---

TRIPLES = st.one_of(
    st.tuples(
        st.just("id"), st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="]), st.integers(-1, 60)
    ),
    st.tuples(st.just("k"), st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from("abcd")),
    st.tuples(
        st.just("id"),
        st.sampled_from(["in", "not in"]),
        st.lists(st.integers(0, 59), min_size=1, max_size=4),
    ),
)
GROUPS = st.lists(TRIPLES, min_size=1, max_size=3)


@given(filters=st.one_of(GROUPS, st.lists(GROUPS, min_size=1, max_size=3)))
def test_lists_mean_what_pyarrow_means_by_filters(uri: str, filters: list[Any]) -> None:
    expected = ids(sample().filter(pq.filters_to_expression(filters)))
    assert ids(lake.read_dataset(uri, predicates=filters, columns=["id"])) == expected


def test_a_list_of_lists_is_an_or(uri: str) -> None:
    found = lake.read_dataset(
        uri, predicates=[[("id", "=", 1)], [("k", "=", "c"), ("id", ">", 57)]]
    )
    assert ids(found) == [1, 58, 59]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("CAST(id AS BIGINT) = 5", [5]),
        ("CAST(id AS INT) IN (5, 6)", [5, 6]),
        ("CAST(id AS DOUBLE) < 1.5", [0, 1]),
        ("CAST(k AS STRING) = 'c' AND CAST(id AS DECIMAL(12, 2)) > 57.99", [58, 59]),
    ],
)
def test_a_cast_that_keeps_values_prunes(uri: str, condition: str, expected: list[int]) -> None:
    scan = lake.open_dataset(uri).scan(condition)
    assert ids(scan.to_table()) == expected
    assert scan.explain().files_read == 1


def test_a_cast_that_changes_values_is_computed_on_the_rows(uri: str) -> None:
    assert ids(lake.read_dataset(uri, predicates="CAST(id AS STRING) = '5'")) == [5]
    with pytest.raises(InvalidPredicateError, match=r"CAST\(st AS STRING\)"):
        lake.read_dataset(uri, predicates="CAST(st AS STRING) = '5'")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (pc.multiply_checked(ds.field("id"), 2**62) > 0, "overflow"),
        (pc.divide_checked(ds.field("id"), ds.field("id")) > 2, "divide by zero"),
        (ds.field("k").cast(pa.int64()) == 1, "k|parse|convert"),
    ],
)
def test_an_expression_that_fails_on_a_row_is_no_damaged_file(
    uri: str, expression: pc.Expression, reason: str
) -> None:
    scan = lake.open_dataset(uri).scan(expression)
    for act in (scan.to_table, scan.count_rows, lambda: list(scan.to_batches())):
        with pytest.raises(InvalidPredicateError, match=reason) as caught:
            act()
        assert caught.value.text == str(expression)
    with pytest.raises(InvalidPredicateError, match="Arrow cannot evaluate it on a row"):
        lake.write_dataset(sample(), uri, mode="overwrite", overwrite_where=expression)
    assert lake.open_dataset(uri).version == 6
