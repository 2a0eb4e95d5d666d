"""The columns of the search index: the default, those that a first write names, later ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import CommitConflictError, InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.pruning.keys import SearchRanges
from lakehouse_source.pruning.search import search
from lakehouse_source.read.address import Address
from lakehouse_source.schema.fields import leaves
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.rows import write_options
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3), pytest.mark.one_catalog]

FILES = 5


catalog = catalog_of(*EVERY_KIND)


def rows(number: int, **more: Any) -> pa.Table:
    """Ten rows of a file: every column ascends with the number of the file."""
    values = [number * 10 + i for i in range(10)]
    return pa.table(
        {
            "a": values,
            "b": [float(v) for v in values],
            "st": [{"x": v, "y": [v]} for v in values],
            "p": [f"p{number}"] * 10,
            **{name: [make(v) for v in values] for name, make in more.items()},
        }
    )


def filled(uri: Path, catalog: lake.Catalog, files: int = FILES, **options: Any) -> lake.Dataset:
    for number in range(files):
        lake.write_dataset(rows(number), uri, catalog=catalog, **(options if number == 0 else {}))
    return lake.open_dataset(uri, catalog=catalog)


def in_the_index(dataset: lake.Dataset) -> set[str]:
    """The names of the columns of which the catalog has keys."""
    with dataset._address.open() as catalog, catalog.read() as reader:
        found = reader._session.query("SELECT DISTINCT column_id FROM column_bounds")
    names = {leaf.id: ".".join(leaf.path) for leaf in leaves(dataset._snapshot.schema)}
    return {names[row[0]] for row in found}


def found_by_the_index(dataset: lake.Dataset, condition: str) -> int:
    """How many files are left after the search of the catalog's index."""
    snapshot = dataset._snapshot
    question = search(PredicateSet.of(condition).bind(snapshot.schema), snapshot.indexed)
    with dataset._address.open() as catalog, catalog.read() as reader:
        return len(reader.files(snapshot.dataset.id, snapshot.version, question))


@pytest.mark.parametrize(
    ("names", "indexed"),
    [
        (None, {"a", "b", "st.x", "p"}),
        (["b"], {"b", "p"}),
        ("b", {"b", "p"}),
        (["ST.X", "A"], {"a", "st.x", "p"}),
        (["st"], {"st.x", "p"}),
        ([], {"p"}),
    ],
)
def test_named_columns_and_partition_columns_are_found_by_the_index(
    tmp_path: Path, catalog: lake.Catalog, names: Any, indexed: set[str]
) -> None:
    dataset = filled(tmp_path / "t", catalog, partition_by="p", index_columns=names)
    assert in_the_index(dataset) == indexed
    for column, value in (("a", "23"), ("b", "23.0"), ("st.x", "23"), ("p", "'p2'")):
        condition = f"{column} = {value}"
        scan = dataset.scan(condition)
        assert found_by_the_index(dataset, condition) == (1 if column in indexed else FILES)
        assert scan.explain().files_read == 1  # the statistics of every column are in the catalog
        assert scan.to_table()["a"].to_pylist() == (list(range(20, 30)) if column == "p" else [23])
    both = dataset.scan("a = 23 AND b = 33.0")
    assert both.count_rows() == 0
    assert dataset.scan("a = 23 OR b = 33.0").to_table()["a"].to_pylist() == [23, 33]


def test_without_names_the_first_32_leaf_columns_and_the_partition_columns(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    table = pa.table({f"c{n:02}": [n] for n in range(40)})
    lake.write_dataset(table, tmp_path / "t", catalog=catalog, partition_by="c39")
    dataset = lake.open_dataset(tmp_path / "t", catalog=catalog)
    assert in_the_index(dataset) == {f"c{n:02}" for n in range(32)} | {"c39"}
    assert dataset.scan("c35 = 35").count_rows() == 1
    assert dataset.scan("c35 = 36").explain().files_read == 0


def test_columns_that_a_merge_adds(tmp_path: Path, catalog: lake.Catalog) -> None:
    """New fields of a named struct are indexed; other new columns are not."""
    uri = tmp_path / "t"
    dataset = filled(uri, catalog, index_columns=["st"])
    more = pa.table(
        {
            "a": [100, 101],
            "b": [None, 1.0],
            "st": [{"x": 100, "y": [1], "z": "new"}, {"x": 101, "y": [], "z": None}],
            "p": ["p9", "p9"],
            "c": [7, 8],
        }
    )
    lake.write_dataset(more, uri, catalog=catalog, schema_merge=True)
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert in_the_index(dataset) == {"st.x", "st.z"}
    for condition, expected, by_index in (
        ("st.z = 'new'", [100], 1),
        ("st.z IS NOT NULL", [100], 1),
        ("c = 8", [101], FILES + 1),
        ("c IS NULL", list(range(50)), FILES + 1),
        ("st.x > 48", [49, 100, 101], 2),
        ("a > 48 AND c = 7", [100], FILES + 1),
    ):
        assert dataset.scan(condition).to_table()["a"].to_pylist() == expected
        assert found_by_the_index(dataset, condition) == by_index


def test_the_default_indexes_columns_that_a_merge_adds(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    uri = tmp_path / "t"
    filled(uri, catalog)
    lake.write_dataset(rows(9, c=str), uri, catalog=catalog, schema_merge=True)
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert found_by_the_index(dataset, "c = '93'") == 1
    assert dataset.scan("c = '93'").to_table()["a"].to_pylist() == [93]
    assert dataset.scan("c IS NULL").count_rows() == FILES * 10


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "is not a column"),
        ("st.nothing", "is not a column"),
        ("a.x", "is not a column"),
        ("st.y", "no values that can be ordered"),
    ],
)
def test_columns_that_cannot_be_indexed_are_refused(
    tmp_path: Path, catalog: lake.Catalog, name: str, why: str
) -> None:
    with pytest.raises(InvalidOptionError, match=why) as caught:
        lake.write_dataset(rows(0), tmp_path / "t", catalog=catalog, index_columns=["a", name])
    assert caught.value.value == name
    assert "st.x" in str(caught.value)
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(tmp_path / "t", catalog=catalog)


def test_a_later_write_cannot_choose_other_columns(tmp_path: Path, catalog: lake.Catalog) -> None:
    uri = tmp_path / "t"
    filled(uri, catalog, 1, index_columns=["b", "a"])
    for same in (["a", "b"], ["B", "A"], None):
        for mode in ("append", "overwrite"):
            lake.write_dataset(rows(1), uri, catalog=catalog, index_columns=same, mode=mode)
    for other in (["a"], ["a", "b", "st"], []):
        with pytest.raises(InvalidOptionError, match=r"\(a, b\), which set_properties changes"):
            lake.write_dataset(rows(1), uri, catalog=catalog, index_columns=other)
    assert lake.open_dataset(uri, catalog=catalog).version == 7


def test_a_dataset_made_without_names_takes_the_names_it_has(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    uri = tmp_path / "t"
    filled(uri, catalog, 1, partition_by="p")
    lake.write_dataset(rows(1), uri, catalog=catalog, index_columns=["a", "b", "st.x"])
    with pytest.raises(InvalidOptionError, match="does not match the indexed columns"):
        lake.write_dataset(rows(1), uri, catalog=catalog, index_columns=["a", "b"])


def test_two_first_writes_at_once_with_other_columns_are_a_conflict(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    address = Address(tmp_path / "t", catalog)
    with address.open(create=True) as opened:
        begun = []
        for names in (["a"], ["b"], ["a"], None):
            options = write_options(index_columns=names)
            staged = begin(opened, address, rows(0).schema, options)
            written = write_files(
                staged.spec, rows(len(begun)).to_batches(), Storage(address.location)
            )
            begun.append((staged, written))
        for number, (staged, written) in enumerate(begun):
            if number == 1:
                with pytest.raises(CommitConflictError, match="other columns in its index"):
                    commit(opened, staged, written)
                abort(opened, staged, written)
            else:
                commit(opened, staged, written)
    dataset = lake.open_dataset(tmp_path / "t", catalog=catalog)
    assert in_the_index(dataset) == {"a"}
    # The third write was staged with keys of the same column, the fourth with those of all.
    for value, number in ((3, 0), (23, 2), (33, 3)):
        assert found_by_the_index(dataset, f"a = {value}") == 1
        assert dataset.scan(f"b = {value}").to_table()["p"].to_pylist() == [f"p{number}"]


def test_a_column_of_the_index_that_was_promoted_still_finds_its_rows(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    uri = tmp_path / "t"
    filled(uri, catalog, index_columns=["a"])
    text = rows(7).set_column(0, "a", pa.array([f"v{n}" for n in range(10)]))
    lake.write_dataset(
        text, uri, catalog=catalog, schema_merge=True, promote_to_string=True, index_columns=["a"]
    )
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert dataset.scan("a = '23'").count_rows() == 1
    assert dataset.scan("a = 'v3'").count_rows() == 1


def test_the_search_over_columns_that_are_not_there_asks_nothing(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    dataset = filled(tmp_path / "t", catalog, 2, index_columns=["a"])
    snapshot = dataset._snapshot
    bound = PredicateSet.of("b = 1.0 AND a = 3").bind(snapshot.schema)
    asked = search(bound, snapshot.indexed)
    assert isinstance(asked, SearchRanges)
    assert {asked.column_id} == snapshot.indexed
