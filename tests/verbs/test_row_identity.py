"""Rows keep their identities, and what changed between two versions follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.deletion import Positions, decode


class ChangedRow(NamedTuple):
    """A row before and after: None where it was inserted, or deleted."""

    before: dict[str, Any] | None
    after: dict[str, Any] | None


def changes(dataset: lake.Dataset, older: int, newer: int) -> dict[int, ChangedRow]:
    """The rows that differ between two versions, by identity.

    From the catalog's records of files and vectors alone: a file that both versions have, with
    the same vector, is not opened. Nothing was switched on for it.
    """
    with dataset._address.open() as catalog, catalog.read() as reader:
        record = reader.dataset(dataset._address.key)
        assert record is not None
        sides = [_rows_at(reader, record.id, version) for version in (older, newer)]
    unequal = {
        path
        for path in sides[0].keys() | sides[1].keys()
        if sides[0].get(path) != sides[1].get(path)
    }
    before, after = (dict(_read(dataset, version, unequal)) for version in (older, newer))
    found = {}
    for identity in before.keys() | after.keys():
        one = ChangedRow(before.get(identity), after.get(identity))
        if one.before != one.after:
            found[identity] = one
    return found


def _rows_at(reader: CatalogReader, dataset_id: int, version: int) -> dict[str, Any]:
    """The files of a version, each with the positions of its deleted rows."""
    vectors = {one.file_id: one.vector for one in reader.all_vectors(dataset_id, version)}
    return {
        file.path: (file.row_count, vectors.get(file.id))
        for file in reader.files(dataset_id, version)
    }


def _read(
    dataset: lake.Dataset, version: int, paths: set[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    names = dataset.schema.names
    scan = dataset.scan(columns=[*names, "_row_id", "_file"], version=version)
    for row in scan.to_table().to_pylist():
        if row.pop("_file") in paths:
            yield row.pop("_row_id"), row


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    rows = {"id": list(range(10)), "k": [n % 3 for n in range(10)]}
    lake.write_dataset(rows, tmp_path / "data", row_group_rows=3)
    return lake.open_dataset(tmp_path / "data")


def identities(dataset: lake.Dataset, version: int | None = None) -> dict[int, int]:
    table = dataset.scan(columns=["id", "_row_id"], version=version).to_table()
    return dict(zip(table["id"].to_pylist(), table["_row_id"].to_pylist()))


def versions(dataset: lake.Dataset) -> dict[int, int]:
    table = dataset.scan(columns=["id", "_commit_version"]).to_table()
    return dict(zip(table["id"].to_pylist(), table["_commit_version"].to_pylist()))


def test_an_update_keeps_the_identity_and_tells_its_version(dataset: lake.Dataset) -> None:
    before = identities(dataset)
    dataset.update({"k": "9"}, "id IN (2, 7)")
    assert identities(dataset) == before
    assert versions(dataset) == {n: 2 if n in (2, 7) else 1 for n in range(10)}


def test_rows_that_are_written_anew_keep_identity_and_version(dataset: lake.Dataset) -> None:
    before = identities(dataset)
    dataset.update({"k": "9"}, "id = 9")
    assert dataset.delete("id < 5").files_added > 0
    assert identities(dataset) == {n: before[n] for n in range(5, 10)}
    assert versions(dataset) == {5: 1, 6: 1, 7: 1, 8: 1, 9: 2}


def test_rows_that_an_overwrite_keeps_keep_identity_and_version(dataset: lake.Dataset) -> None:
    before = identities(dataset)
    new = {"id": [4], "k": [1]}
    lake.write_dataset(new, dataset.uri, mode="overwrite", overwrite_where="id = 4")
    dataset.refresh()
    after = identities(dataset)
    assert {n: after[n] for n in after if n != 4} == {n: before[n] for n in before if n != 4}
    assert after[4] >= 10
    assert versions(dataset) == {n: 2 if n == 4 else 1 for n in range(10)}


def test_a_restored_row_has_its_identity_again(dataset: lake.Dataset) -> None:
    before = identities(dataset)
    dataset.delete("id = 4")
    dataset.delete()
    dataset.restore(1)
    assert identities(dataset.refresh()) == before
    dataset.restore(2)
    assert 4 not in identities(dataset.refresh())
    new = {"id": [11], "k": [0]}
    lake.write_dataset(new, dataset.uri)
    assert identities(dataset.refresh())[11] not in before.values()


def test_identities_of_writers_that_race_are_different(dataset: lake.Dataset) -> None:
    for start in (20, 30, 40):
        lake.write_dataset({"id": [start, start + 1], "k": [0, 0]}, dataset.uri)
    found = identities(dataset.refresh())
    assert sorted(found.values()) == list(range(16))


def test_a_column_of_a_user_hides_a_metadata_column_and_keeps_its_values(tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    rows = {"_pos": ["a", "b", "c"], "_row_id": [7, 8, 9], "_last_updated_version": [1, 1, 1]}
    lake.write_dataset(rows, uri, rewrite_threshold=1.0)
    dataset = lake.open_dataset(uri)
    dataset.update({"_row_id": "_row_id * 10"}, "_pos = 'b'")
    dataset.delete("_row_id = 9")
    found = dataset.scan(columns=["_row_id", "_pos", "_file"]).to_table()
    assert sorted(found["_row_id"].to_pylist()) == [7, 80]
    assert sorted(found["_pos"].to_pylist()) == ["a", "b"]
    assert all(path.endswith(".parquet") for path in found["_file"].to_pylist())
    assert dataset.verify(checksums=True).ok


def test_a_later_column_with_the_name_of_a_hidden_one_is_empty(dataset: lake.Dataset) -> None:
    """Engines find columns by name: the identities in a file must not show up in it."""
    dataset.update({"k": "9"}, "id < 3")
    dataset.add_column("_row_id", pa.int64())
    assert dataset.scan().to_table()["_row_id"].null_count == 10
    assert dataset.scan().to_dataset().to_table()["_row_id"].null_count == 10
    assert dataset.scan().to_polars().collect()["_row_id"].null_count() == 10


def test_hidden_columns_are_in_no_schema_and_no_statistics(dataset: lake.Dataset) -> None:
    dataset.update({"k": "9"})
    assert dataset.schema.names == ["id", "k"]
    assert dataset.scan().to_table().column_names == ["id", "k"]
    assert dataset.scan().to_dataset().schema.names == ["id", "k"]
    with dataset._address.open() as catalog, catalog.read() as reader:
        files = [file.id for file in dataset.files()]
        (groups,) = reader.row_groups(files).values()
    assert {key for group in groups for key in eval(group.stats_min_json)} == {"1", "2"}


def test_the_difference_of_two_versions_follows_from_files_and_vectors(
    dataset: lake.Dataset,
) -> None:
    first = identities(dataset)
    dataset.delete("id = 1")
    dataset.update({"k": "k + 100"}, "id IN (5, 6)")
    dataset.upsert({"id": [6, 50], "k": [0, 0]}, on="id")
    dataset.update({"k": "k"}, "id = 7")  # moved, and equal to what it was
    found = changes(dataset, 1, dataset.version)
    assert found[first[1]] == ChangedRow({"id": 1, "k": 1}, None)
    assert found[first[5]] == ChangedRow({"id": 5, "k": 2}, {"id": 5, "k": 102})
    assert first[6] not in found  # it has its first value again
    inserted = [one for one in found.values() if one.before is None]
    assert inserted == [ChangedRow(None, {"id": 50, "k": 0})]
    assert first[7] not in found
    assert changes(dataset, 2, 2) == {}
    back = changes(dataset, dataset.version, 1)
    assert back == {key: ChangedRow(one.after, one.before) for key, one in found.items()}


def test_each_vector_holds_those_of_the_versions_before(dataset: lake.Dataset) -> None:
    dataset.set_properties(rewrite_threshold=1.0)
    for number in (8, 2, 5):
        dataset.delete(f"id = {number}")
    before = Positions()
    with dataset._address.open() as catalog, catalog.read() as reader:
        record = reader.dataset(dataset._address.key)
        assert record is not None
        for version in range(3, dataset.version + 1):
            (one,) = reader.all_vectors(record.id, version)
            assert one.vector.blob is not None
            now = decode(one.vector.blob, one.vector.cardinality, 10)
            assert before < now
            before = now
    assert sorted(before) == [2, 5, 8]
