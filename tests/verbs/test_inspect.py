"""Metadata tables: what they say is what DuckDB finds in the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.read.inspect import SCHEMAS

DATA = pa.table(
    {
        "p": pa.array(["a", "a", None, "b/ü", "b/ü", "b/ü"]),
        "n": pa.array([1, 2, 3, 4, 5, None], pa.int64()),
        "s": pa.array([{"x": 1.5}, {"x": float("nan")}, {"x": None}, None, {"x": 0.0}, {"x": 7.0}]),
        "b": pa.array([b"\x00", b"\xff", None, b"x", b"y", b"z"]),
    }
)

# A deleted row gets a deletion vector; its file is not written anew.
WHOLE: dict[str, Any] = {"rewrite_threshold": 1.0}


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    lake.write_dataset(DATA, tmp_path / "d", partition_by="p", row_group_rows=2, **WHOLE)
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.delete("n = 4")
    dataset.rename_column("n", "number")
    dataset.tag("before", version=1)
    return dataset


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def test_files_are_those_on_disk(dataset: lake.Dataset, tmp_path: Path) -> None:
    found = rows(dataset.inspect.files())
    for file in found:
        path = tmp_path / "d" / file["file_path"]
        assert file["file_size_bytes"] == path.stat().st_size
        counted = duckdb.sql(f"SELECT count(*) FROM read_parquet('{path}')").fetchall()
        assert counted == [(file["row_count"],)]
    assert {file["partitions"]["p"]: file["row_count"] for file in found} == {
        "a": 2, None: 1, "b/ü": 3,
    }  # fmt: skip
    assert sum(file["deleted_rows"] for file in found) == 1
    assert sum(file["deleted_rows"] for file in rows(dataset.inspect.files("before"))) == 0


def test_row_groups_have_bounds_that_can_be_read(dataset: lake.Dataset, tmp_path: Path) -> None:
    found = rows(dataset.inspect.row_groups())
    assert len(found) == 4
    for group in found:
        path = tmp_path / "d" / group["file_path"]
        statistics = duckdb.sql(
            "SELECT stats_min_value, stats_max_value, stats_null_count FROM "
            f"parquet_metadata('{path}') WHERE row_group_id = {group['row_group']} "
            "AND path_in_schema = 'n'"
        ).fetchall()
        bounds = group["bounds"]["number"]
        assert (bounds["lower"], bounds["upper"], bounds["null_count"]) == statistics[0]
    nan = {group["bounds"]["s.x"]["may_contain_nan"] for group in found}
    assert nan == {True, False}
    assert found[0]["bounds"]["b"]["lower"] == "AA=="


def test_partitions_count_live_rows(dataset: lake.Dataset) -> None:
    found = rows(dataset.inspect.partitions())
    assert {row["partitions"]["p"]: row["rows"] for row in found} == {"a": 2, None: 1, "b/ü": 2}
    assert sum(row["files"] for row in found) == 3
    lake.write_dataset({"x": [1, 2]}, dataset.uri + "/plain")
    plain = lake.open_dataset(dataset.uri + "/plain")
    assert rows(plain.inspect.partitions())[0]["rows"] == 2


def test_history_versions_vectors_and_refs(dataset: lake.Dataset) -> None:
    history = rows(dataset.inspect.history())
    assert [one["operation"] for one in history] == ["schema change", "delete", "append"]
    assert [one["live_rows"] for one in history] == [5, 5, 6]
    versions = rows(dataset.inspect.versions())
    assert [(one["version"], one["tags"]) for one in versions] == [
        (3, []),
        (2, []),
        (1, ["before"]),
    ]
    assert [one["schema_version"] for one in versions] == [3, 1, 1]
    (vector,) = rows(dataset.inspect.deletion_vectors())
    assert (vector["cardinality"], vector["version"]) == (1, 2)
    assert dataset.inspect.deletion_vectors(1).num_rows == 0
    assert [(one["name"], one["type"], one["version"]) for one in rows(dataset.inspect.refs())] == [
        ("main", "BRANCH", 3), ("before", "TAG", 1),
    ]  # fmt: skip
    dataset.drop_tag("before")
    dataset.expire_versions(keep_last=1)
    assert [one["is_readable"] for one in rows(dataset.inspect.history())] == [True, False, False]
    assert [one["version"] for one in rows(dataset.inspect.versions())] == [3]
    with pytest.raises(lake.VersionNotFoundError):
        dataset.inspect.files(1)


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_empty_dataset_has_every_table(tmp_path: Path, name: str) -> None:
    catalog = lake.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path)
    empty = catalog.create_dataset("a", pa.schema([("x", pa.int64())]))
    table = empty.inspect.table(name)
    assert table.schema == SCHEMAS[name]
    assert table.num_rows == {"history": 1, "versions": 1, "refs": 1, "detail": 1, "health": 8}.get(
        name, 0
    )


def test_an_unknown_table_is_refused(dataset: lake.Dataset) -> None:
    with pytest.raises(lake.InvalidOptionError, match=r"'snapshots'.*row_groups"):
        dataset.inspect.table("snapshots")
