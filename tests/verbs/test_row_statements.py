"""DELETE, UPDATE and MERGE from Python: what they mean, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.write import rows as stage

pytestmark = pytest.mark.slow


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    rows = {
        "id": [1, 2, 3, 4],
        "name": ["a", "b", None, "d"],
        "n": pa.array([10, None, 30, 40], pa.int32()),
        "f": [0.5, math.nan, -0.0, None],
    }
    lake.write_dataset(pa.table(rows), tmp_path / "data")
    return lake.open_dataset(tmp_path / "data")


def rows(dataset: lake.Dataset, *columns: str) -> list[tuple[Any, ...]]:
    names = columns or tuple(dataset.schema.names)
    found = dataset.scan(columns=names).to_table().to_pylist()
    return sorted(tuple(row[name] for name in names) for row in found)


# --- DELETE -----------------------------------------------------------------------


def test_a_delete_without_a_match_commits_nothing(dataset: lake.Dataset) -> None:
    assert dataset.delete("id = 99") == lake.ChangeResult(version=1)
    assert dataset.version == 1
    assert not list(Path(dataset.uri.removeprefix("file://")).glob("*.puffin"))


def test_a_delete_of_everything_leaves_an_empty_dataset(dataset: lake.Dataset) -> None:
    found = dataset.delete()
    assert (found.rows_deleted, found.files_removed, found.vectors_written) == (4, 1, 0)
    assert rows(dataset) == []
    assert dataset.schema.names == ["id", "name", "n", "f"]


@pytest.mark.parametrize("empty", [[], ()], ids=str)
def test_an_empty_list_of_conditions_does_not_mean_every_row(
    empty: Any, dataset: lake.Dataset
) -> None:
    new = dataset.scan().to_table()
    for change in (
        lambda: dataset.delete(empty),
        lambda: dataset.update({"id": "id"}, empty),
        lambda: dataset.erase(empty),
        lambda: lake.write_dataset(new, dataset.uri, mode="overwrite", overwrite_where=empty),
    ):
        with pytest.raises(lake.InvalidPredicateError, match="give None for that"):
            change()
    assert dataset.refresh().version == 1
    assert dataset.scan(empty).count_rows() == 4, "no condition on what is read"


def test_a_condition_that_scans_do_not_know(dataset: lake.Dataset) -> None:
    assert dataset.delete("n > id * 10 - 1 AND id < 4").rows_deleted == 2
    assert rows(dataset, "id") == [(2,), (4,)]


def test_null_and_nan_in_a_condition(dataset: lake.Dataset) -> None:
    """NULL is unknown, and NaN is greater than every number."""
    assert dataset.delete("name != 'a' AND n IS NOT NULL").rows_deleted == 1
    assert dataset.delete("f > 1e300").rows_deleted == 1
    assert rows(dataset, "id") == [(1,), (3,)]
    assert dataset.delete("f = 0").rows_deleted == 1
    assert rows(dataset, "id") == [(1,)]


@pytest.mark.parametrize(
    ("where", "words"),
    [("nothing = 1", "nothing"), ("id =", "id ="), ("sometimes(id)", "sometimes"), (7, "int")],
)
def test_a_condition_that_is_none_changes_nothing(
    where: Any, words: str, dataset: lake.Dataset
) -> None:
    with pytest.raises(lake.PlakeError, match=words):
        dataset.delete(where)
    assert dataset.refresh().version == 1


@pytest.mark.parametrize("where", ["id IN (1, , 2)", "id IN (1,)", "id = 1L(2)", "name = +'a'"])
def test_no_part_of_a_malformed_condition_is_left_out(where: str, dataset: lake.Dataset) -> None:
    none = dataset.scan("id < 0").to_table()
    for act in (
        lambda: dataset.scan(where).to_table(),
        lambda: dataset.delete(where),
        lambda: dataset.update({"name": "'b'"}, where),
        lambda: lake.write_dataset(
            none, dataset.uri, mode="overwrite", overwrite_where=where,
            catalog=dataset._address.catalog,
        ),
    ):  # fmt: skip
        with pytest.raises(lake.InvalidPredicateError) as caught:
            act()
        assert (caught.value.text, caught.value.position is None) == (where, False)
    with pytest.raises(lake.InvalidExpressionError, match="at character 12"):
        dataset.update({"name": "coalesce(a, , name)"})
    assert dataset.refresh().version == 1


def test_options_that_a_statement_does_not_know(dataset: lake.Dataset) -> None:
    with pytest.raises(lake.InvalidOptionError, match=r"'isolation'.*write-serializable"):
        dataset.delete("id = 1", isolation="strict")
    with pytest.raises(lake.InvalidOptionError, match=r"'colour'.*commit_metadata"):
        dataset.delete("id = 1", colour="red")
    with pytest.raises(lake.CommitConflictError, match="version 7 was expected"):
        dataset.delete("id = 1", expected_version=7)
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(dataset.uri + "-other")


def test_a_statement_with_an_idempotency_pair_is_carried_out_once(dataset: lake.Dataset) -> None:
    pair = {"txn_app_id": "job", "txn_version": 1}
    assert dataset.update({"n": "n + 1"}, "id = 1", **pair).version == 2
    before = set(Path(dataset.uri.removeprefix("file://")).iterdir())
    assert dataset.update({"n": "n + 1"}, "id = 1", **pair).version == 2
    assert (11, 1) in rows_of(dataset, "n", "id")
    assert set(Path(dataset.uri.removeprefix("file://")).iterdir()) == before


def test_a_repeated_statement_that_finds_its_rows_gone_answers_the_first_commit(
    dataset: lake.Dataset,
) -> None:
    pair = {"txn_app_id": "job", "txn_version": 1}
    first = dataset.delete("id < 3", **pair)
    lake.write_dataset(dataset.scan("id = 3").to_table(), dataset.uri)
    assert dataset.delete("id < 3", **pair) == replace(first, skipped=True)
    assert (first.version, first.rows_deleted) == (2, 2)


@pytest.mark.parametrize("verb", ["delete", "update", "merge"])
def test_a_long_statement_gives_signs_of_life(
    dataset: lake.Dataset, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "HEARTBEAT_SECONDS", 0.0)
    statements: dict[str, Callable[[], lake.ChangeResult]] = {
        "delete": lambda: dataset.delete("n > id"),
        "update": lambda: dataset.update({"n": "n + 1"}, "n > id"),
        "merge": lambda: dataset.upsert(dataset.scan().to_table(), on="id"),
    }
    with mock.patch("lakehouse_source.catalog.CatalogTransaction.heartbeat") as beat:
        statements[verb]()
    assert beat.called


def test_commit_metadata_and_history(dataset: lake.Dataset) -> None:
    dataset.delete("id = 1", commit_metadata={"why": "test"})
    newest = dataset.history()[0]
    assert (newest.operation, newest.metadata) == ("delete", {"why": "test"})
    wanted = {"rows_deleted": 1, "rows_updated": 0, "rows_inserted": 0, "live_rows": 3}
    assert wanted.items() <= newest.summary.items()


# --- UPDATE -----------------------------------------------------------------------


def test_values_are_computed_from_the_old_row(dataset: lake.Dataset) -> None:
    dataset.update({"id": "n", "n": "id"}, "n IS NOT NULL AND id < 4")
    assert rows(dataset, "id") == [(2,), (4,), (10,), (30,)]
    assert dataset.scan("id = 10", columns=["n"]).to_table().to_pylist() == [{"n": 1}]


def test_python_values_and_null(dataset: lake.Dataset) -> None:
    dataset.update({"name": None, "n": 7, "f": -0.0}, "id = 1")
    (row,) = dataset.scan("id = 1").to_table().to_pylist()
    assert (row["name"], row["n"], math.copysign(1, row["f"])) == (None, 7, -1.0)


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        ({}, "name a column"),
        ({"colour": "1"}, "'colour'.*id, name, n, f"),
        ({"n": "n + "}, "n \\+"),
        ({"n": "nothing + 1"}, "nothing"),
        ({"n": "'x'"}, "'n'"),
        ({"n": "3000000000"}, "'n'"),
        ({"n": "1", "N": "2"}, "twice"),
        ({"n": "id / (id - 1)"}, "zero"),
    ],
)
def test_an_update_that_is_refused_leaves_nothing(
    updates: dict[str, Any], words: str, dataset: lake.Dataset
) -> None:
    root = Path(dataset.uri.removeprefix("file://"))
    before = set(root.iterdir())
    with pytest.raises(lake.PlakeError, match=words):
        dataset.update(updates)
    assert dataset.refresh().version == 1
    assert set(root.iterdir()) == before


def test_a_not_null_column_refuses_null(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lake.write_dataset(pa.table({"id": [1, 2]}, schema=schema), tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    with pytest.raises(lake.SchemaMismatchError, match="'id'"):
        dataset.update({"id": "nullif(id, 2)"})
    assert dataset.update({"id": "id + 1"}).rows_updated == 2


def test_every_type_survives_a_move(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": [1, 2],
            "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(20, 2)),
            "day": [date(1, 1, 1), date(9999, 12, 31)],
            "moment": pa.array([datetime(1969, 1, 1, tzinfo=timezone.utc)] * 2),
            "bytes": [b"\xff\x00", None],
            "list": [[1, None], []],
            "struct": [{"a": 1, "b": None}, None],
            "map": pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64())),
            "flag": [True, None],
            "half": pa.array([0.5, None], pa.float32()),
        }
    )
    lake.write_dataset(table, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    before = dataset.scan().to_table()
    dataset.update({"k": "k + 10"})
    after = dataset.scan().to_table()
    assert after["k"].to_pylist() == [11, 12]
    for name in before.column_names[1:]:
        assert after[name].equals(before[name]), name


def test_a_row_moves_to_the_partition_of_its_new_value(tmp_path: Path) -> None:
    rows_ = {"id": [1, 2, 3], "p": ["x", "x", None]}
    lake.write_dataset(rows_, tmp_path / "data", partition_by="p")
    dataset = lake.open_dataset(tmp_path / "data")
    dataset.update({"p": "'y'"}, "id IN (1, 3)")
    assert rows(dataset) == [(1, "y"), (2, "x"), (3, "y")]
    assert dataset.scan("p = 'y'").explain().files_read == 1
    assert dataset.scan("p IS NULL").count_rows() == 0


def test_rows_of_a_file_without_a_column_get_its_default(dataset: lake.Dataset) -> None:
    dataset.add_column("extra", pa.int64(), default=5)
    dataset.update({"extra": "extra + 1"}, "id = 1")
    assert rows(dataset, "id", "extra") == [(1, 6), (2, 5), (3, 5), (4, 5)]


# --- MERGE ------------------------------------------------------------------------


def test_clauses_are_tried_in_their_order(dataset: lake.Dataset) -> None:
    source = {"id": [1, 2, 3, 9], "what": ["drop", "set", "none", "new"]}
    merge = dataset.merge(source, "target.id = source.id")
    merge = merge.when_matched_delete("source.what = 'drop'")
    merge = merge.when_matched_update({"name": "source.what"}, "source.what = 'set'")
    merge = merge.when_matched_delete("source.what = 'set'")
    merge = merge.when_not_matched_insert({"id": "source.id", "name": "what"})
    found = merge.execute()
    assert (found.rows_deleted, found.rows_updated, found.rows_inserted) == (1, 1, 1)
    expected = {(2, "set"), (3, None), (4, "d"), (9, "new")}
    assert set(rows_of(dataset, "id", "name")) == expected


def rows_of(dataset: lake.Dataset, *names: str) -> list[tuple[Any, ...]]:
    table = dataset.scan(columns=names).to_table()
    return list(zip(*(table[name].to_pylist() for name in names)))


def test_null_keys_match_nothing_and_null_safe_ones_do(dataset: lake.Dataset) -> None:
    source = {"name": [None, "zz"], "n": [1, 2]}
    for on in ("target.name = source.name", "lower(target.name) = lower(source.name)"):
        merge = dataset.merge(source, on)
        assert merge.when_matched_delete().execute().rows_deleted == 0
    merge = dataset.merge(source, "target.name <=> source.name")
    assert merge.when_matched_delete().execute().rows_deleted == 1
    assert [row[0] for row in rows_of(dataset, "id")] == [1, 2, 4]


def test_nan_and_the_zeros_are_keys(dataset: lake.Dataset) -> None:
    merge = dataset.merge({"f": [math.nan, 0.0]}, "target.f = source.f")
    assert merge.when_matched_delete().execute().rows_deleted == 2
    assert [row[0] for row in rows_of(dataset, "id")] == [1, 4]


@pytest.mark.parametrize("on", ["target.id < source.id", "source.id - target.id = 1", "true"])
def test_conditions_that_are_no_equality(on: str, dataset: lake.Dataset) -> None:
    merge = dataset.merge({"id": [3]}, on)
    found = merge.when_matched_update({"name": "'m'"}).execute()
    expected = {"target.id < source.id": 2, "source.id - target.id = 1": 1, "true": 4}[on]
    assert found.rows_updated == expected


def test_other_names_for_the_two_sides(dataset: lake.Dataset) -> None:
    merge = dataset.merge({"id": [1]}, "t.id = s.id", target_alias="t", source_alias="s")
    assert merge.when_matched_update({"n": "t.n + s.id"}).execute().rows_updated == 1
    same = dataset.merge({"id": [1]}, "t.id = t.id", target_alias="t", source_alias="T")
    same.when_matched_delete()
    with pytest.raises(lake.InvalidOptionError, match="target's alias"):
        same.execute()


def test_two_source_rows_for_one_row_are_refused_but_for_a_plain_delete(
    dataset: lake.Dataset,
) -> None:
    """As in Spark: deleting a row twice is no question of order."""
    source = {"id": [1, 1]}
    for merge in (
        dataset.merge(source, "target.id = source.id").when_matched_update({"n": 1}),
        dataset.merge(source, "target.id = source.id").when_matched_delete("target.n > 0"),
    ):
        with pytest.raises(lake.AmbiguousMergeError, match="id = 1"):
            merge.execute()
    assert dataset.refresh().version == 1
    plain = dataset.merge(source, "target.id = source.id").when_matched_delete()
    assert plain.execute().rows_deleted == 1
    # Rows of the source that match nothing may be equal.
    new = dataset.merge({"id": [9, 9]}, "target.id = source.id")
    assert new.when_not_matched_insert({"id": "source.id"}).execute().rows_inserted == 2


def test_empty_sources_and_targets(dataset: lake.Dataset) -> None:
    nothing = dataset.scan("id = 99").to_table()
    assert dataset.upsert(nothing, on="id") == lake.ChangeResult(version=1)
    alone = dataset.merge(nothing, "target.id = source.id")
    assert alone.when_not_matched_by_source_delete().execute().rows_deleted == 4
    some = {"id": [5], "name": ["e"], "n": [1], "f": [1.0]}
    assert dataset.upsert(some, on="id").rows_inserted == 1
    assert rows(dataset) == [(5, "e", 1, 1.0)]


def test_a_merge_that_is_refused(dataset: lake.Dataset) -> None:
    source = {"id": [1], "other": [2]}
    on = "target.id = source.id"
    refused: list[tuple[Any, str]] = [
        (dataset.merge(source, on), "no clause"),
        (dataset.merge(source, on).when_matched_update_all(), "'name' is not in the source"),
        (dataset.merge(source, "target.id").when_matched_delete(), "BOOLEAN"),
        (dataset.merge(source, "id = 1").when_matched_delete(), "id"),
        (dataset.merge(source, on).when_matched_delete("source.nothing = 1"), "nothing"),
        (dataset.merge(source, on).when_not_matched_insert({"id": "target.id"}), "target"),
    ]
    for merge, words in refused:
        with pytest.raises(lake.PlakeError, match=words):
            merge.execute()
    with pytest.raises(lake.InvalidOptionError, match="without a condition"):
        dataset.merge(source, on).when_matched_delete().when_matched_delete()
    with pytest.raises(lake.InvalidOptionError, match="'on'"):
        dataset.upsert(source, on="nothing")
    assert dataset.refresh().version == 1


def test_a_merge_may_add_columns(dataset: lake.Dataset) -> None:
    source = {"id": [1, 9], "name": ["x", "y"], "n": [1, 2], "f": [1.0, 2.0], "more": ["p", "q"]}
    merge = dataset.merge(source, "target.id = source.id", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert dataset.schema.names == ["id", "name", "n", "f", "more"]
    assert set(rows_of(dataset, "id", "more")) == {
        (1, "p"), (2, None), (3, None), (4, None), (9, "q"),
    }  # fmt: skip
    assert dataset.scan(version=1).to_table().column_names == ["id", "name", "n", "f"]


def test_a_merge_reads_only_files_that_can_match(tmp_path: Path) -> None:
    for start in range(0, 50, 10):
        ids = list(range(start, start + 10))
        lake.write_dataset({"id": ids, "v": [0] * 10}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    paths = {file.path: file for file in dataset.files()}
    keep = dataset.scan("id IN (12, 34)").plan().tasks
    for path in paths.keys() - {task.path for task in keep}:
        (tmp_path / "data" / path).unlink()  # a file that is opened would be missing
    found = dataset.upsert({"id": [12, 34, 99], "v": [1, 2, 3]}, on="id")
    assert (found.rows_updated, found.rows_inserted, found.vectors_written) == (2, 1, 2)


@pytest.mark.parametrize("kind", ["polars", "pandas", "reader", "dicts"])
def test_every_input_of_a_write_is_a_source(kind: str, dataset: lake.Dataset) -> None:
    table = pa.table({"id": [1, 9], "name": ["x", "y"], "n": [1, 2], "f": [1.0, 2.0]})
    if kind == "polars":
        source: Any = __import__("polars").DataFrame(table)
    elif kind == "pandas":
        source = table.to_pandas()
    elif kind == "reader":
        source = table.to_reader()
    else:
        source = table.to_pylist()
    found = dataset.upsert(source, on=["ID"])
    assert (found.rows_updated, found.rows_inserted) == (1, 1)


def test_a_merge_took_neither_condition_nor_qualified_names(tmp_path: Path) -> None:
    lake.write_dataset({"a b": [1, None], "m": [1, 2], "s": [{"x": 1}, {"x": 2}]}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    merge = dataset.merge(
        {"k": [1, 9]}, "old.`a b` = new.k", source_alias="new", target_alias="old"
    )
    values = {"OLD.`a b`": "old.`a b` + 1", "`m`": "7", "old.s.x": "9"}
    merge = merge.when_matched_update(values, condition="old.m = 1")
    merge = merge.when_not_matched_insert({"old.`a b`": "new.k"}, condition="new.k > 5")
    merge.execute()
    rows = lake.read_dataset(tmp_path).to_pylist()
    assert sorted(rows, key=str) == [
        {"a b": 2, "m": 7, "s": {"x": 9}},
        {"a b": 9, "m": None, "s": None},
        {"a b": None, "m": 2, "s": {"x": 2}},
    ]
    with pytest.raises(lake.SchemaMismatchError, match="is not in the dataset"):
        dataset.merge({"k": [1]}, "target.m = source.k").when_matched_update(
            {"source.m": "1"}
        ).execute()
    with pytest.raises(lake.InvalidOptionError, match="by another name"):
        dataset.merge({"k": [1]}, "target.m = source.k").when_matched_delete(
            "1 = 1", condition="1 = 1"
        )


@pytest.mark.parametrize("nulls_equal", [False, True])
def test_an_upsert_of_a_null_key(nulls_equal: bool, tmp_path: Path) -> None:
    old = {"a": [1, None, None], "b": [None, None, 2], "v": [1, 2, 3]}
    lake.write_dataset(old, tmp_path)
    new = {"a": [None, 1], "b": pa.array([None, None], pa.int64()), "v": [20, 10]}
    schema = pa.schema([(name, pa.int64()) for name in "abv"])
    new_rows = pa.table(new, schema)
    lake.open_dataset(tmp_path).upsert(new_rows, on=["a", "b"], nulls_equal=nulls_equal)
    found = sorted(lake.read_dataset(tmp_path)["v"].to_pylist())
    assert found == ([3, 10, 20] if nulls_equal else [1, 2, 3, 10, 20])
