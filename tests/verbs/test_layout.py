"""The layout of a dataset: chosen once, followed by every write, kept through schema changes."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import CommitConflictError, InvalidOptionError, SchemaMismatchError
from tests.verbs.conftest import EVERY_KIND, catalog_of
from tests.verbs.test_index_columns import (
    FILES,
    filled,
    found_by_the_index,
    in_the_index,
    rows,
)

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

catalog = catalog_of(*EVERY_KIND)


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    return tmp_path / "t"


def numbers(count: int = 1000, **more: Any) -> pa.Table:
    """Values that descend, so that no file is sorted by chance."""
    return pa.table({"n": list(range(count, 0, -1)), "k": ["a", "b"] * (count // 2), **more})


def newest(dataset: lake.Dataset) -> pq.FileMetaData:
    """The footer of the file that was written last."""
    file = dataset.refresh().files()[-1]
    return pq.read_metadata(Path(dataset.uri.removeprefix("file://")) / file.path)


def sizes(footer: pq.FileMetaData) -> list[int]:
    return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]


def columns_in_order(dataset: lake.Dataset) -> list[Any]:
    file = dataset.refresh().files()[-1]
    path = Path(dataset.uri.removeprefix("file://")) / file.path
    return pq.read_table(path, partitioning=None)["n"].to_pylist()


# --- which choice a write follows -----------------------------------------------------


def test_the_choices_of_the_first_write_are_followed_and_shown(uri: Path) -> None:
    lake.write_dataset(
        numbers(),
        uri,
        sort_by="N",
        row_group_rows=300,
        compression="snappy",
        bloom_filter_columns=["k"],
        target_file_size_bytes=10**6,
        promote_to_string=True,
    )
    dataset = lake.open_dataset(uri)
    shown = dict(dataset.properties)
    for name in ("partition_by", "indexed_columns", "last_field_id"):
        del shown[name]
    assert shown == {
        "sort_by": ["n"],
        "row_group_rows": 300,
        "compression": "snappy",
        "bloom_filter_columns": ["k"],
        "target_file_size_bytes": 10**6,
        "promote_to_string": True,
    }
    lake.write_dataset(numbers(), uri)
    footer = newest(dataset)
    assert sizes(footer) == [300, 300, 300, 100]
    assert footer.row_group(0).column(0).compression == "SNAPPY"
    assert columns_in_order(dataset) == list(range(1, 1001))
    path = str(uri / dataset.files()[-1].path)
    blooms = duckdb.sql(
        f"SELECT path_in_schema FROM parquet_metadata('{path}') "
        "WHERE bloom_filter_offset IS NOT NULL"
    ).fetchall()
    assert set(blooms) == {("k",)}
    text = pa.table({"n": ["x"], "k": ["y"]})
    lake.write_dataset(text, uri, schema_merge=True)  # only promote_to_string allows it
    assert lake.open_dataset(uri).schema.field("n").type == pa.string()


@pytest.mark.parametrize(
    ("rows", "codec", "stored"),
    [
        (100, None, "UNCOMPRESSED"),
        (100, "ZSTD", "ZSTD"),
        (100, "snappy", "SNAPPY"),
        (1000, None, "ZSTD"),
    ],
)
def test_few_bytes_are_not_compressed_where_nobody_chose_a_codec(
    uri: Path, rows: int, codec: str | None, stored: str
) -> None:
    lake.write_dataset(numbers().slice(0, rows), uri, compression=codec)
    [path] = uri.glob("*.parquet")
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {stored}
    assert pq.read_table(path).equals(numbers().slice(0, rows))


def test_what_one_write_chooses_wins_for_that_write_only(uri: Path) -> None:
    lake.write_dataset(
        numbers(), uri, sort_by="n", row_group_rows=300, compression="snappy",
        promote_to_string=True,
    )  # fmt: skip
    dataset = lake.open_dataset(uri)
    before = dataset.properties
    lake.write_dataset(numbers(), uri, sort_by=[], row_group_rows=600, compression="none")
    footer = newest(dataset)
    assert sizes(footer) == [600, 400]
    assert footer.row_group(0).column(0).compression == "UNCOMPRESSED"
    assert columns_in_order(dataset) == list(range(1000, 0, -1))
    assert footer.row_group(0).sorting_columns == ()
    text = pa.table({"n": ["x"], "k": ["y"]})
    with pytest.raises(SchemaMismatchError):
        lake.write_dataset(text, uri, schema_merge=True, promote_to_string=False)
    assert dataset.refresh().properties == before
    lake.write_dataset(numbers(), uri)
    assert sizes(newest(dataset)) == [300, 300, 300, 100]
    assert columns_in_order(dataset) == list(range(1, 1001))


def test_files_that_are_added_turn_no_column_into_strings(uri: Path) -> None:
    lake.write_dataset(numbers(2), uri, promote_to_string=True)
    pq.write_table(pa.table({"n": ["x"], "k": ["y"]}), uri / "foreign.parquet")
    dataset = lake.open_dataset(uri)
    with pytest.raises(SchemaMismatchError):
        dataset.add_files([str(uri / "foreign.parquet")], schema_merge=True)
    assert dataset.refresh().schema.field("n").type == pa.int64()


def test_target_file_size_is_followed(uri: Path) -> None:
    lake.write_dataset(numbers(2), uri)
    lake.open_dataset(uri).set_properties(target_file_size_bytes=1, row_group_rows=100)
    assert lake.write_dataset(numbers(), uri).files == 10
    with lake.transaction(f"sqlite:///{uri}/_plake/catalog.db") as tx:
        tx.write(numbers(), uri)
    assert tx.results[0].files == 10


def test_an_overwrite_of_a_condition_follows_the_properties(uri: Path) -> None:
    lake.write_dataset(numbers(), uri)
    dataset = lake.open_dataset(uri)
    dataset.set_properties(sort_by="n")
    lake.write_dataset(numbers(10), uri, mode="overwrite", overwrite_where="n <= 10")
    written = dataset.refresh().files()
    assert len(written) == 2  # the rows that stay, and the new ones
    for file in written:
        values = pq.read_table(uri / file.path)["n"].to_pylist()
        assert values == sorted(values)
    assert sorted(dataset.scan().to_table()["n"].to_pylist()) == list(range(1, 1001))


# --- set_properties ---------------------------------------------------------------------


def test_a_change_is_one_commit_in_the_history(catalog: lake.Catalog, uri: Path) -> None:
    lake.write_dataset(numbers(), uri, catalog=catalog)
    dataset = lake.open_dataset(uri, catalog=catalog)
    result = dataset.set_properties(sort_by=["N"], compression="gzip")
    assert (result.version, result.schema_version, dataset.version) == (2, 1, 2)
    entry = dataset.history()[0]
    assert entry.operation == "set properties"
    assert entry.metadata == {"properties": {"sort_by": ["N"], "compression": "gzip"}}
    assert entry.summary["live_rows"] == 1000
    assert dataset.properties["sort_by"] == ["n"]
    assert dataset.set_properties(compression="gzip").version == 2  # nothing changes
    dataset.set_properties(compression=None)
    assert "compression" not in dataset.properties
    assert dataset.properties["sort_by"] == ["n"]
    assert dataset.scan().count_rows() == 1000


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sort": "n"}, "is not a property"),
        ({"indexed_columns": [1]}, "is not a property"),
        ({"sort_by": "nothing"}, "is not a column"),
        ({"sort_by": "l"}, "has type list"),
        ({"bloom_filter_columns": "l"}, "has type list"),
        ({"row_group_rows": 0}, "at least 1"),
        ({"target_file_size_bytes": "64m"}, "whole number"),
        ({"compression": "lzma"}, "not a codec"),
        ({"promote_to_string": "yes"}, "must be a bool"),
        ({"index_columns": ["n", "l"]}, "no values that can be ordered"),
        ({"partition_by": "k"}, "holds files"),
    ],
)
def test_a_wrong_property_is_refused(uri: Path, given: dict[str, Any], why: str) -> None:
    lake.write_dataset(numbers(2, l=[[1], [2]]), uri)
    dataset = lake.open_dataset(uri)
    with pytest.raises(InvalidOptionError, match=why):
        dataset.set_properties(**given)
    assert lake.open_dataset(uri).version == 1


def test_the_partition_columns_of_a_dataset_without_files_can_be_chosen(uri: Path) -> None:
    lake.write_dataset(numbers(2).slice(0, 0), uri, index_columns=[])
    dataset = lake.open_dataset(uri)
    dataset.set_properties(partition_by=["K"])
    assert dataset.partition_by == ("k",)
    lake.write_dataset(numbers(), uri)
    dataset.refresh()
    assert dataset.scan("k = 'a'").explain().files_pruned_by_partition == 1
    assert dataset.scan("k = 'a'").count_rows() == 500
    assert in_the_index(dataset) == {"k"}
    dataset.set_properties(partition_by="k")  # the same: nothing changes
    with pytest.raises(InvalidOptionError, match="holds files"):
        dataset.set_properties(partition_by=None)


def test_a_newer_change_of_the_schema_or_of_the_properties_is_a_conflict(
    catalog: lake.Catalog, uri: Path
) -> None:
    lake.write_dataset(numbers(), uri, catalog=catalog)
    old = lake.open_dataset(uri, catalog=catalog)
    new = lake.open_dataset(uri, catalog=catalog)
    lake.write_dataset(numbers(), uri, catalog=catalog)
    new.set_properties(sort_by="n")  # an append does not matter
    with pytest.raises(CommitConflictError, match="set properties"):
        old.set_properties(sort_by="k")
    with pytest.raises(CommitConflictError, match="set properties"):
        old.rename_column("n", "m")
    old.refresh().rename_column("n", "m")
    with pytest.raises(CommitConflictError, match="schema change"):
        new.set_properties(sort_by="n")


def test_a_column_added_by_an_append_is_no_property_of_the_old_schema(uri: Path) -> None:
    lake.write_dataset(numbers(), uri)
    old = lake.open_dataset(uri)
    lake.write_dataset(numbers(2, x=[1, 2]), uri, schema_merge=True)
    with pytest.raises(CommitConflictError, match="the schema changed"):
        old.set_properties(sort_by="n")
    assert old.refresh().set_properties(sort_by="x").version == 3


# --- columns that are renamed, dropped, restored -----------------------------------------


def test_renamed_columns_keep_their_place(uri: Path) -> None:
    lake.write_dataset(
        numbers(), uri, sort_by=["k", "n"], bloom_filter_columns="k", index_columns=["n"]
    )
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        schema.rename_column("k", "x")
        schema.rename_column("n", "k")
        schema.rename_column("x", "n")
    assert dataset.properties["sort_by"] == ["n", "k"]
    assert dataset.properties["bloom_filter_columns"] == ["n"]
    assert dataset.properties["index_columns"] == ["k"]
    lake.write_dataset(pa.table({"k": [3, 1, 2], "n": ["b", "b", "a"]}), uri)
    path = uri / dataset.refresh().files()[-1].path
    written = pq.read_table(path).to_pydict()
    assert written == {"k": [2, 1, 3], "n": ["a", "b", "b"]}
    dataset.restore(1)
    assert dataset.properties["sort_by"] == ["k", "n"]


def test_a_sort_column_cannot_be_dropped_and_others_leave_the_lists(uri: Path) -> None:
    lake.write_dataset(numbers(x=[1] * 1000), uri, sort_by="n", bloom_filter_columns=["k", "x"])
    dataset = lake.open_dataset(uri)
    with pytest.raises(SchemaMismatchError, match=r"'n'.*sorted by.*set_properties"):
        dataset.drop_column("n")
    dataset.drop_column("x")
    assert dataset.properties["bloom_filter_columns"] == ["k"]
    dataset.set_properties(sort_by=None)
    dataset.drop_column("n")
    lake.write_dataset(pa.table({"k": ["z"]}), uri)


def test_a_version_from_before_a_sort_column_is_restored_without_it(uri: Path) -> None:
    lake.write_dataset(numbers(), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("x", pa.int64())
    dataset.set_properties(sort_by=["x", "n"])
    dataset.restore(1)
    assert dataset.properties["sort_by"] == ["n"]
    lake.write_dataset(numbers(), uri)
    assert columns_in_order(dataset) == list(range(1, 1001))


# --- the columns of the search index -------------------------------------------------------


def test_other_index_columns_find_the_files_that_are_there(
    catalog: lake.Catalog, uri: Path
) -> None:
    dataset = filled(uri, catalog, partition_by="p", index_columns=["a"])
    for names, indexed in (
        (["b", "st"], {"b", "st.x", "p"}),
        ([], {"p"}),
        (None, {"a", "b", "st.x", "p"}),
        ("ST.X", {"st.x", "p"}),
    ):
        dataset.set_properties(index_columns=names)
        assert in_the_index(dataset) == indexed
        for column, value in (("a", "23"), ("b", "23.0"), ("st.x", "23"), ("p", "'p2'")):
            condition = f"{column} = {value}"
            assert found_by_the_index(dataset, condition) == (1 if column in indexed else FILES)
            assert dataset.scan(condition).count_rows() == (10 if column == "p" else 1)
    lake.write_dataset(rows(7), uri, catalog=catalog)
    dataset.refresh()
    assert found_by_the_index(dataset, "st.x = 73") == 1
    assert dataset.scan("a = 73 AND st.x = 73").count_rows() == 1


def test_files_of_old_versions_are_found_by_a_column_that_joins(
    catalog: lake.Catalog, uri: Path
) -> None:
    """Rows that only an old version has, under the type that the column had then."""
    lake.write_dataset(rows(1), uri, catalog=catalog, index_columns=[])
    lake.write_dataset(rows(2), uri, catalog=catalog, mode="overwrite")
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.promote_column("a", pa.string())
    lake.write_dataset(
        rows(3).set_column(0, "a", pa.array([str(n) for n in range(30, 40)])),
        uri,
        catalog=catalog,
    )
    dataset.refresh().set_properties(index_columns=["a"])
    assert dataset.scan("a = 13", version=1).to_table()["b"].to_pylist() == [13.0]
    assert dataset.scan("a = 23", version=2).to_table()["b"].to_pylist() == [23.0]
    assert dataset.scan("a = '23'").to_table()["b"].to_pylist() == [23.0]
    assert dataset.scan("a = '33'").to_table()["b"].to_pylist() == [33.0]
    assert dataset.scan("a = '24' OR a = '35'").count_rows() == 2
    dataset.restore(2)
    assert dataset.scan("a = 23").to_table()["b"].to_pylist() == [23.0]


def test_old_versions_are_searched_with_keys_of_their_own_type(
    catalog: lake.Catalog, uri: Path
) -> None:
    """Integers and decimals have other keys, and bounds of the one can be told in the other."""
    for number in (1, 2, 3):
        lake.write_dataset(rows(number), uri, catalog=catalog, index_columns=[])
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.promote_column("a", pa.decimal128(20, 0))
    decimals = rows(4).set_column(0, "a", pa.array(range(40, 50)).cast(pa.decimal128(20, 0)))
    lake.write_dataset(decimals, uri, catalog=catalog)
    dataset.refresh().set_properties(index_columns=["a"])
    for version, condition, found in ((3, "a = 13", 1), (None, "a = 13", 1), (None, "a > 38", 11)):
        assert dataset.scan(condition, version=version).count_rows() == found
    assert found_by_the_index(dataset, "a = 43") == 4  # old files match each search


def test_a_column_with_nan_and_null_that_joins_loses_no_row(
    catalog: lake.Catalog, uri: Path
) -> None:
    values: list[list[float | None]] = [[1.0, math.nan], [None, None], [2.0, None], [-0.0, 5.0]]
    for one in values:
        table = pa.table({"x": pa.array(one, pa.float64()), "n": [1, 2]})
        lake.write_dataset(table, uri, catalog=catalog, index_columns=["n"])
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.set_properties(index_columns=["x"])
    for condition, count, files in (
        ("x > 100", 1, 1),
        ("x = 0.0", 1, 1),
        ("x IS NULL", 3, 4),
        ("x = 1.0", 1, 2),
    ):
        assert dataset.scan(condition).count_rows() == count
        assert found_by_the_index(dataset, condition) <= files


def test_a_write_that_began_before_the_index_changed_has_keys_of_the_new_columns(
    uri: Path,
) -> None:
    from lakehouse_source.read.address import Address
    from lakehouse_source.write.commit.commit import commit
    from lakehouse_source.write.rows import stage, write_options

    lake.write_dataset(rows(1), uri, index_columns=["a"])
    dataset = lake.open_dataset(uri)
    address = Address(uri, None)
    with address.open() as opened:
        staged, files = stage(opened, address, rows(5).to_reader(), write_options())
        dataset.set_properties(index_columns=["b"], sort_by="b")
        commit(opened, staged, files)
    dataset.refresh()
    assert in_the_index(dataset) == {"b"}
    assert dataset.scan("b = 53.0").count_rows() == 1
    assert found_by_the_index(dataset, "b = 53.0") == 1


# --- what footers say of the order -----------------------------------------------------------


ODD = {
    "text": pa.array(["b", None, "a", "B", "", "é", None, "a"]),
    "number": pa.array([3, None, -1, 2, 2, None, 0, 9]),
    "float": pa.array([1.0, math.nan, None, -0.0, 0.0, -math.inf, math.nan, 2.0]),
}


@pytest.mark.parametrize(
    ("by", "declared"),
    [
        (["text"], [0]),
        (["number", "text"], [1, 0]),
        (["text", "float", "number"], [0]),
        (["float"], []),
    ],
)
def test_an_order_is_declared_as_far_as_the_rows_have_it(
    uri: Path, by: list[str], declared: list[int]
) -> None:
    """Parquet has no order of NaN and of the two zeros, so no float is declared."""
    table = pa.table({**ODD, "n": list(range(8, 0, -1))})
    big = pa.concat_tables([table] * 40)
    lake.write_dataset(big, uri, sort_by=by, row_group_rows=7)
    file = pq.ParquetFile(uri / lake.open_dataset(uri).files()[0].path)
    assert file.num_row_groups > 8
    for number in range(file.num_row_groups):
        said = file.metadata.row_group(number).sorting_columns
        assert [(one.column_index, one.descending, one.nulls_first) for one in said] == [
            (index, False, False) for index in declared
        ]
        group = file.read_row_group(number)
        keys = [
            tuple((value is None, value or "") if isinstance(value, str) or value is None
                  else (False, value) for value in row)
            for row in zip(*(group.column(index).to_pylist() for index in declared))
        ]  # fmt: skip
        for one, other in pairwise(keys):
            for left, right in zip(one, other):
                if left == right:
                    continue
                assert (left[0], right[0]) == (False, True) or left[1] < right[1]
                break
    assert lake.open_dataset(uri).scan().count_rows() == 320


def test_rows_that_nobody_sorted_are_not_declared_sorted(uri: Path) -> None:
    lake.write_dataset(numbers(), uri)
    assert newest(lake.open_dataset(uri)).row_group(0).sorting_columns == ()
