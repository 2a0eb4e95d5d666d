"""Columns with a default: rows in files without the column, through every reader of Python."""

from __future__ import annotations

import decimal
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.language import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.aggregates import Aggregate, aggregate
from lakehouse_source.schema.merge import initial
from lakehouse_source.write.commit.commit import commit
from tests.oracle import decide
from tests.strategies import TYPES, Rows, conditions, pool, values
from tests.verbs.test_commit_protocol import stage

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

NAN = float("nan")
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def rows(uri: str, **how: Any) -> list[dict[str, Any]]:
    return sorted(lake.read_dataset(uri, **how).to_pylist(), key=repr)


def numbers(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


# --- any type, any condition ----------------------------------------------------------


def same_column(found: pa.ChunkedArray, expected: pa.Array) -> bool:
    if pa.types.is_floating(expected.type):
        return found.type == expected.type and repr(found.to_pylist()) == repr(expected.to_pylist())
    return bool(found.combine_chunks().equals(expected))


def tables_of_every_reader(scan: lake.Scan) -> dict[str, pa.Table]:
    with duckdb.connect() as connection:
        in_duckdb = scan.to_duckdb(connection).to_arrow_table()
    return {
        "table": scan.to_table(),
        "duckdb": in_duckdb,
        "polars": scan.to_polars().collect().to_arrow(),
        "datafusion": scan.to_datafusion(datafusion.SessionContext()).to_arrow_table(),
    }


def through_every_reader(scan: lake.Scan) -> dict[str, list[int]]:
    """The values of `k`, sorted, as each reader gives them."""
    return {
        name: sorted(table["k"].to_pylist()) for name, table in tables_of_every_reader(scan).items()
    }


@pytest.mark.long
@settings(max_examples=400 if THOROUGH else 12)
@given(data=st.data())
def test_any_condition_on_a_column_that_old_files_lack(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from([one for one in TYPES if not pa.types.is_null(one)]))
    default = data.draw(st.sampled_from(pool(type_)))
    old = data.draw(st.integers(1, 3))
    new = data.draw(st.lists(values(type_), max_size=3))
    schema = initial(pa.schema([("k", pa.int32()), ("c", type_)]))
    column = [default] * old + new
    table = Rows(schema, tuple({("k",): k, ("c",): value} for k, value in enumerate(column)))
    whole = table.table()
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/data"
        lake.write_dataset(whole.select(["k"])[:old], uri, row_group_rows=2)
        dataset = lake.open_dataset(uri)
        dataset.add_column("c", type_, default=pa.array([default], type_)[0])
        if new:
            lake.write_dataset(whole[old:], uri)
        dataset.refresh()
        found = dataset.scan().to_table().sort_by("k")
        assert same_column(found["c"], whole["c"].combine_chunks())
        arrow = dataset.scan().to_dataset().to_table().sort_by("k")
        assert same_column(arrow["c"], whole["c"].combine_chunks())
        for _ in range(3):
            node = data.draw(conditions(table))
            expected = [k for k, row in enumerate(table.rows) if decide(node, row, table.types)]
            scan = dataset.scan(PredicateSet.of(node), columns=["k"])
            assert scan.count_rows() == len(expected), node
            for name, some in through_every_reader(scan).items():
                assert some == expected, (name, node)
            fragments = dataset.scan(PredicateSet.of(node)).to_dataset()
            assert set(expected) <= set(fragments.to_table(columns=["k"])["k"].to_pylist())


FILTERS: list[tuple[Callable[[Any], Any], Callable[[float | None], bool | None]]] = [
    (lambda c: c == NAN, lambda v: None if v is None else v != v),
    (lambda c: c > 5.0, lambda v: None if v is None else v != v or v > 5),
    (lambda c: c <= 0.0, lambda v: None if v is None else v <= 0),
    (lambda c: c == 0.0, lambda v: None if v is None else v == 0),
    (lambda c: ~(c == 0.0), lambda v: None if v is None else v != 0),
    (lambda c: c.is_null(), lambda v: v is None),
    (lambda c: c.is_valid(), lambda v: v is not None),
    (lambda c: c.isin([0.0, 5.0]), lambda v: None if v is None else v in (0, 5)),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("default", [NAN, -0.0, 0.0, 5.0, float("inf"), None])
@pytest.mark.parametrize("kept", FILTERS)
def test_arrow_filters_on_a_float_that_old_files_lack(
    uri: str,
    default: float | None,
    kept: tuple[Callable[[Any], Any], Callable[[float | None], bool | None]],
) -> None:
    lake.write_dataset(numbers(k=[0, 1]), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.float64(), default=default)
    lake.write_dataset(numbers(k=[2, 3, 4, 5], c=[NAN, 0.0, None, 7.0]), uri)
    column = [default, default, NAN, 0.0, None, 7.0]
    expression, oracle = kept
    expected = [k for k, value in enumerate(column) if oracle(value)]
    found = dataset.refresh().scan().to_dataset().to_table(filter=expression(pc.field("c")))
    assert sorted(found["k"].to_pylist()) == expected
    parts = dataset.scan().to_dataset().get_fragments(expression(pc.field("c")))
    kept_rows = [k for part in parts for k in part.to_table(columns=["k"])["k"].to_pylist()]
    assert set(expected) <= set(kept_rows)


# --- which default a row has ------------------------------------------------------------


def test_a_later_default_changes_no_row_that_was_written_before(uri: str) -> None:
    lake.write_dataset(numbers(k=[1]), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.int64(), default=5)
    lake.write_dataset(numbers(k=[2]), uri)
    dataset.refresh().set_default("c", 6)
    lake.write_dataset(numbers(k=[3]), uri)
    lake.write_dataset(numbers(k=[4], c=[None]), uri)
    dataset.refresh().set_default("c", None)
    lake.write_dataset(numbers(k=[5]), uri)
    expected = [(1, 5), (2, 5), (3, 6), (4, None), (5, None)]
    assert rows(uri) == [{"k": k, "c": c} for k, c in expected]
    assert rows(uri, version=1) == [{"k": 1}]
    assert rows(uri, version=3) == [{"k": 1, "c": 5}, {"k": 2, "c": 5}]
    changes = [entry.metadata.get("changes") for entry in dataset.history()]
    assert ["add c int64 default 5"] in changes
    assert ["set default of c to 6"] in changes
    dataset.refresh().restore(3)
    lake.write_dataset(numbers(k=[9]), uri)
    assert rows(uri) == [{"k": 1, "c": 5}, {"k": 2, "c": 5}, {"k": 9, "c": 5}]


def test_a_default_that_is_set_on_a_column_of_the_first_version(uri: str) -> None:
    lake.write_dataset(numbers(k=[1, 2], c=["x", None]), uri)
    lake.open_dataset(uri).set_default("c", "new")
    lake.write_dataset(numbers(k=[3]), uri)
    assert [row["c"] for row in rows(uri)] == ["x", None, "new"]


def test_a_column_of_the_same_name_has_its_own_default(uri: str) -> None:
    lake.write_dataset(numbers(k=[1]), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.int64(), default=5)
    lake.write_dataset(numbers(k=[2], c=[5]), uri)
    dataset.refresh().drop_column("c")
    assert rows(uri) == [{"k": 1}, {"k": 2}]
    dataset.add_column("c", pa.int64(), default=7)
    for where, expected in ((None, [1, 2]), ("c = 7", [1, 2]), ("c = 5", []), ("c IS NULL", [])):
        assert [row["k"] for row in rows(uri, predicates=where)] == expected
        found = through_every_reader(dataset.scan(where))
        assert all(some == expected for some in found.values()), (where, found)
    dataset.rename_column("c", "d")
    dataset.promote_column("d", pa.string())
    assert rows(uri, predicates="d = '7'") == [{"k": 1, "d": "7"}, {"k": 2, "d": "7"}]


def test_a_column_that_is_not_null_needs_a_default_and_refuses_null(uri: str) -> None:
    lake.write_dataset(numbers(k=[1]), uri)
    dataset = lake.open_dataset(uri)
    with pytest.raises(lake.SchemaMismatchError, match="without a default"):
        dataset.add_column("c", pa.int64(), nullable=False)
    dataset.add_column("c", pa.int64(), default=5, nullable=False)
    assert not dataset.schema.field("c").nullable
    lake.write_dataset(numbers(k=[2]), uri)
    with pytest.raises(lake.SchemaMismatchError, match="NULL"):
        lake.write_dataset(pa.table({"k": [3], "c": pa.nulls(1, pa.int64())}), uri)
    assert rows(uri) == [{"k": 1, "c": 5}, {"k": 2, "c": 5}]
    dataset.refresh().set_default("c", None)
    with pytest.raises(lake.SchemaMismatchError, match="does not have it"):
        lake.write_dataset(numbers(k=[4]), uri)


def test_a_column_becomes_not_null_where_its_default_fills_the_old_files(uri: str) -> None:
    lake.write_dataset(pa.table({"k": [1], "s": [{"x": 1}]}), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.int64(), default=5)
    dataset.add_column("n", pa.int64())
    dataset.add_column("s.y", pa.int64(), default=5)
    dataset.set_nullable("c", False)
    dataset.set_nullable("s.y", False)
    with pytest.raises(lake.SchemaMismatchError, match="cannot become NOT NULL"):
        dataset.set_nullable("n", False)
    assert dataset.scan().to_table().to_pylist() == [
        {"k": 1, "s": {"x": 1, "y": 5}, "c": 5, "n": None}
    ]


def test_fields_of_structs_in_lists_and_maps_have_defaults(uri: str) -> None:
    inner = pa.struct([("x", pa.int64())])
    schema = pa.schema(
        [("k", pa.int64()), ("s", inner), ("l", pa.list_(inner)), ("m", pa.map_("string", inner))]
    )
    old = [
        {"k": 1, "s": {"x": 1}, "l": [{"x": 1}, None], "m": [("a", {"x": 1})]},
        {"k": 2, "s": None, "l": None, "m": None},
    ]
    lake.write_dataset(pa.Table.from_pylist(old, schema), uri)
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as change:
        change.add_column("s.y", pa.string(), default="d")
        change.add_column("l.element.y", pa.string(), default="d")
        change.add_column("m.value.y", pa.string(), default="d")
    lake.write_dataset(pa.Table.from_pylist([{**old[0], "k": 3}], schema), uri)
    dataset.refresh().set_default("l.element.y", "later")
    lake.write_dataset(pa.Table.from_pylist([{**old[0], "k": 4}], schema), uri)
    full = {"x": 1, "y": "d"}
    expected = [
        {"k": 1, "s": full, "l": [full, None], "m": [("a", full)]},
        {"k": 2, "s": None, "l": None, "m": None},
        {"k": 3, "s": full, "l": [full, None], "m": [("a", full)]},
        {"k": 4, "s": full, "l": [{"x": 1, "y": "later"}, None], "m": [("a", full)]},
    ]
    assert rows(uri) == expected
    dataset.refresh()
    for where, found in (
        ("s.y = 'd'", [1, 3, 4]),
        ("s.y IS NULL", [2]),
        ("s.y IS NOT NULL", [1, 3, 4]),
        ("s.y = 'x'", []),
        ("NOT (s.y = 'x')", [1, 3, 4]),
    ):
        scan = dataset.scan(where)
        assert scan.count_rows() == len(found)
        assert all(some == found for some in through_every_reader(scan).values()), where
    assert dataset.scan().to_dataset().to_table().sort_by("k").to_pylist() == expected


# --- the catalog's index and statistics -----------------------------------------------------


def test_the_index_finds_files_without_the_column_only_where_the_default_matches(
    uri: str,
) -> None:
    for k in range(4):
        lake.write_dataset(numbers(k=[k]), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.int64(), default=5)
    for k in range(4, 8):
        lake.write_dataset(numbers(k=[k], c=[10 * k]), uri)
    dataset.refresh()
    for where, files in (
        ("c = 5", 4),
        ("c = 70", 1),
        ("c > 5", 4),
        ("c >= 5", 8),
        ("c BETWEEN 41 AND 61", 2),
        ("c IN (5, 70)", 5),
        ("c = 5 OR k = 7", 5),
        ("c = 5 AND k = 2", 1),
        ("c = 40 AND k = 2", 0),
        ("c IS NULL", 0),
        ("c IS NOT NULL", 8),
        ("NOT (c = 5)", 4),
        ("c < 5", 0),
    ):
        assert dataset.scan(where).explain().files_read == files, where


def test_counts_minima_and_maxima_of_the_catalog_know_the_default(uri: str) -> None:
    lake.write_dataset(numbers(k=[1, 2, 3]), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.int64(), default=-5)
    dataset.add_column("n", pa.int64())
    lake.write_dataset(numbers(k=[4], c=[9], n=[1]), uri)
    address = Address(uri, None)
    asked = [Aggregate(function, name) for name in "cn" for function in ("count", "min", "max")]
    with address.open() as catalog, catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
        bound = PredicateSet.of(None).bind(snapshot.schema)
        assert aggregate(reader, snapshot, bound, [], asked) == [(4, -5, 9, 1, 1, 1)]


def test_a_default_decides_whole_files_without_reading_them(uri: str) -> None:
    lake.write_dataset(numbers(k=[1, 2, 3]), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("c", pa.string(), default="x")
    for file in Path(uri).glob("*.parquet"):
        file.unlink()
    assert dataset.scan("c = 'x'").count_rows() == 3
    assert dataset.scan("c LIKE 'y%'").count_rows() == 0
    assert dataset.scan("c <> 'x' OR c IS NULL").to_table().num_rows == 0


def test_rows_replaced_by_a_condition_on_the_default(uri: str) -> None:
    lake.write_dataset(numbers(k=[1, 2]), uri)
    lake.open_dataset(uri).add_column("c", pa.int64(), default=5)
    lake.write_dataset(numbers(k=[3], c=[6]), uri)
    lake.write_dataset(numbers(k=[9]), uri, mode="overwrite", overwrite_where="c = 5 AND k = 9")
    assert [row["k"] for row in rows(uri)] == [1, 2, 3, 9]
    lake.write_dataset(numbers(k=[8]), uri, mode="overwrite", overwrite_where="c = 5")
    assert rows(uri) == [{"k": 3, "c": 6}, {"k": 8, "c": 5}]


# --- files of others ---------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_of_others_has_the_initial_default_whenever_it_was_added(
    uri: str, when: str
) -> None:
    lake.write_dataset(pa.table({"k": [0], "s": [{"x": 0}]}), uri)
    pq.write_table(pa.table({"k": [1, 2], "s": [{"x": 1}, None]}), f"{uri}/theirs.parquet")
    dataset = lake.open_dataset(uri)
    if when == "before":
        dataset.add_files(f"{uri}/theirs.parquet")
    with dataset.refresh().update_schema() as schema:
        schema.add_column("c", pa.int64(), default=5, nullable=False)
        schema.add_column("s.y", pa.int64(), default=6)
        schema.set_default("c", 7)
    if when == "after":
        dataset.refresh().add_files(f"{uri}/theirs.parquet")
    lake.write_dataset(pa.table({"k": [3], "s": [{"x": 1}]}), uri)
    dataset.refresh()
    column = {0: 5, 1: 5, 2: 5, 3: 7}
    inner = {0: {"x": 0, "y": 6}, 1: {"x": 1, "y": 6}, 2: None, 3: {"x": 1, "y": 6}}
    expected = [{"k": k, "s": inner[k], "c": column[k]} for k in range(4)]
    assert dataset.scan().to_table().sort_by("k").to_pylist() == expected
    assert dataset.scan().to_dataset().to_table().sort_by("k").to_pylist() == expected
    for where, found in (
        ("c = 5", [0, 1, 2]),
        ("c = 7", [3]),
        ("c IS NULL", []),
        ("c < 6", [0, 1, 2]),
        ("s.y = 6", [0, 1, 3]),
        ("s.y IS NULL", [2]),
    ):
        scan = dataset.scan(where)
        assert scan.count_rows() == len(found), where
        assert all(some == found for some in through_every_reader(scan).values()), where
    dataset.promote_column("c", pa.decimal128(21, 1))
    found = rows(uri, predicates="c = 5.0")
    assert [row["c"] for row in found] == [decimal.Decimal("5.0")] * 3


# --- beside other writers -----------------------------------------------------------------


def test_an_append_that_began_before_the_column_was_added_has_its_initial_default(
    catalog: lake.Catalog, uri: str
) -> None:
    lake.write_dataset(numbers(k=[1]), uri, catalog=catalog)
    staged, files = stage(catalog, uri, numbers(k=[2]))
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.add_column("c", pa.int64(), default=5, nullable=False)
    dataset.set_default("c", 6)
    commit(catalog, staged, files)
    expected = [{"k": 1, "c": 5}, {"k": 2, "c": 5}]
    assert rows(uri, catalog=catalog) == expected
    dataset.refresh()
    for where, found in (("c = 5", [1, 2]), ("c = 6", []), ("c IS NULL", [])):
        scan = dataset.scan(where)
        assert scan.count_rows() == len(found)
        assert all(some == found for some in through_every_reader(scan).values()), where
    assert dataset.scan().to_dataset().to_table().sort_by("k").to_pylist() == expected
    assert len({file.schema_version for file in files_of(catalog, uri)}) == 1


def files_of(catalog: lake.Catalog, uri: str) -> list[Any]:
    address = Address(uri, catalog)
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
        return list(reader.files(snapshot.dataset.id, snapshot.version))


def test_an_append_that_promotes_a_column_conflicts_with_a_new_column_with_a_default(
    catalog: lake.Catalog, uri: str
) -> None:
    """No version has the schema of its files, so that nothing would tell that they lack `c`."""
    lake.write_dataset(pa.table({"k": pa.array([1], pa.int32())}), uri, catalog=catalog)
    staged, files = stage(catalog, uri, numbers(k=[2]), schema_merge=True)
    lake.open_dataset(uri, catalog=catalog).add_column("c", pa.int64(), default=5)
    with pytest.raises(lake.CommitConflictError, match="lack column 'c'"):
        commit(catalog, staged, files)


def test_an_append_conflicts_where_its_rows_would_be_null_in_a_column_that_is_not(
    catalog: lake.Catalog, uri: str
) -> None:
    lake.write_dataset(numbers(k=[1]), uri, catalog=catalog, mode="append")
    staged, files = stage(catalog, uri, numbers(k=[2]))
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.add_column("c", pa.int64())
    lake.write_dataset(numbers(k=[3], c=[3]), uri, catalog=catalog, mode="overwrite")
    dataset.refresh().set_nullable("c", False)
    dataset.set_default("c", 6)
    with pytest.raises(lake.CommitConflictError, match="lack column 'c'"):
        commit(catalog, staged, files)


# --- what is refused -------------------------------------------------------------------------

REFUSED: list[tuple[Callable[[lake.Dataset], object], str]] = [
    (lambda d: d.add_column("c", pa.int32(), default="x"), "'c' .* default 'x'.* type str"),
    (lambda d: d.add_column("c", pa.int32(), default=2**40), "default 1099511627776: .* range"),
    (lambda d: d.add_column("c", pa.list_(pa.int32()), default=[1]), "not nested"),
    (lambda d: d.add_column("s.c", pa.float32(), default=0.1), "'s.c' .* rounded"),
    (lambda d: d.set_default("k", "x"), "type str"),
    (lambda d: d.set_default("s", {"x": 1}), "not nested"),
    (lambda d: d.set_default("l.element", 1), "part of a list or map"),
    (lambda d: d.set_default("p", 1), "is a partition column"),
    (lambda d: d.set_default("zz", 1), "is not in the dataset"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_a_default_that_cannot_be_is_refused_and_nothing_is_committed(
    uri: str, change: Callable[[lake.Dataset], object], message: str
) -> None:
    table = pa.table({"k": [1], "p": [1], "s": [{"x": 1}], "l": [[1]]})
    lake.write_dataset(table, uri, partition_by="p")
    with pytest.raises(lake.SchemaMismatchError, match=message):
        change(lake.open_dataset(uri))
    assert lake.open_dataset(uri).version == 1


@pytest.mark.long
def test_defaults_that_engines_cannot_be_given_are_filled_in_by_plake(uri: str) -> None:
    lake.write_dataset(numbers(k=[1]), uri)
    dataset = lake.open_dataset(uri)
    defaults = [
        (pa.string(), "a\0'\"\\ü"),
        (pa.binary(), b"\xff\0"),
        (pa.float64(), NAN),
        (pa.float32(), -0.0),
        (pa.date32(), pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32())),
        (pa.timestamp("us", "UTC"), pa.scalar(-(2**62), pa.timestamp("us", "UTC"))),
        (pa.time64("ns"), pa.scalar(5, pa.time64("ns"))),
        (pa.decimal128(38, 10), decimal.Decimal("-1.5")),
        (pa.bool_(), False),
        (pa.uint64(), 2**64 - 1),
    ]
    for number, (type_, value) in enumerate(defaults):
        dataset.add_column(f"c{number}", type_, default=value)
    for count in range(1, len(defaults) + 1):
        for names in itertools.islice(
            itertools.combinations([f"c{i}" for i in range(len(defaults))], count), 2
        ):
            scan = dataset.scan(columns=["k", *names])
            assert all(some == [1] for some in through_every_reader(scan).values()), names
    for number, (type_, value) in enumerate(defaults):
        expected = value if isinstance(value, pa.Scalar) else pa.scalar(value, type_)
        for name, table in tables_of_every_reader(
            dataset.scan(columns=["k", f"c{number}"])
        ).items():
            found = table[f"c{number}"].cast(type_)
            assert same_column(found, pa.array([expected], type_)), (name, type_)
        for scan in (dataset.scan(columns=["k", f"c{number}"]), dataset.scan()):
            assert same_column(scan.to_table()[f"c{number}"], pa.array([expected], type_))
            arrow = scan.to_dataset().to_table()
            assert same_column(arrow[f"c{number}"], pa.array([expected], type_))
