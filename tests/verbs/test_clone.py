"""A version begins a dataset of its own: nothing is copied, and each goes on alone."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.storage import Storage, StorageLocation
from lakehouse_source.write.metadata import clone as clone_module
from tests import processes
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = pytest.mark.slow

catalog = catalog_of(*EVERY_KIND)
NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}
ROWS = pa.table({"id": range(8), "p": ["a", "b"] * 4, "x": [0.5] * 8})


@pytest.fixture
def source(tmp_path: Path, catalog: lake.Catalog) -> lake.Dataset:
    """Two files, three rows deleted by vectors, two versions."""
    lake.write_dataset(ROWS, tmp_path / "source", catalog=catalog, partition_by="p")
    dataset = lake.open_dataset(tmp_path / "source", catalog=catalog)
    dataset.delete("id IN (1, 2, 5)")
    return dataset


@pytest.fixture
def local(tmp_path: Path) -> Iterator[lake.DatasetCatalog]:
    """A SQLite catalog with a warehouse."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    with lake.open_catalog(url, warehouse=tmp_path / "warehouse") as opened:
        yield opened


@pytest.fixture
def orders(local: lake.DatasetCatalog) -> lake.Dataset:
    dataset = local.create_dataset("orders", ROWS.schema, partition_by="p")
    lake.write_dataset(ROWS, dataset.uri, catalog=local)
    return dataset.refresh()


def ids(dataset: lake.Dataset, **version: Any) -> list[int]:
    return sorted(dataset.refresh().scan(**version).to_table()["id"].to_pylist())


def stored(folder: str | Path) -> set[str]:
    folder = Path(str(folder).removeprefix("file://"))
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.suffix == ".parquet"}


def test_each_goes_on_alone(source: lake.Dataset, tmp_path: Path) -> None:
    before = {one: one.read_bytes() for one in (tmp_path / "source").rglob("*.p*")}
    clone = source.clone(tmp_path / "clone")
    assert [one.name[:6] for one in (tmp_path / "clone").rglob("*") if one.is_file()] == ["owner-"]
    assert clone.version == source.version == 2
    assert clone.history()[0].metadata["cloned"]["version"] == 2
    assert clone.history()[0].summary["live_rows"] == 5
    assert ids(clone) == ids(source) == [0, 3, 4, 6, 7]
    assert clone.partition_by == ("p",)

    clone.update({"id": "id + 100"}, where="id = 3")
    clone.delete("p = 'a' AND id = 4")
    clone.add_column("y", pa.int32())
    source.refresh().delete("id = 7")
    source.compact(rewrite_deleted=True)
    source.rename_column("x", "z")
    assert ids(clone) == [0, 6, 7, 103]
    assert ids(clone, version=2) == [0, 3, 4, 6, 7]
    assert ids(source) == [0, 3, 4, 6]
    assert clone.schema.names == ["id", "p", "x", "y"]
    clone.compact(rewrite_deleted=True)
    assert clone.verify(checksums=True).differences == ()
    assert source.verify(checksums=True).differences == ()
    source.expire_versions(keep_last=1)
    source.vacuum(**NOW)
    assert ids(clone, version=2) == [0, 3, 4, 6, 7]
    clone.expire_versions(keep_last=1)
    clone.vacuum(**NOW)
    source.vacuum(**NOW)
    assert stored(source.uri) == {one.path for one in source.refresh().files()}
    assert {one: one.read_bytes() for one in before if one.exists()} == {}
    assert ids(clone) == [0, 6, 7, 103]


def test_a_retention_runs_from_the_expiry_in_the_clone(
    source: lake.Dataset, tmp_path: Path
) -> None:
    """A reader of the clone that planned just before the expiry still finds its files."""
    before = {one.path for one in source.files()}
    clone = source.clone(tmp_path / "clone")
    source.compact(rewrite_deleted=True)
    source.expire_versions(keep_last=1)
    clone.delete("id >= 0")
    clone.expire_versions(keep_last=1)
    clone.vacuum()
    left = source.vacuum(**NOW).left
    assert "a clone has it" in {one.what for one in left}
    assert before < stored(source.uri)


def test_an_old_version_with_another_schema_is_cloned(tmp_path: Path, catalog: Any) -> None:
    uri = tmp_path / "source"
    rows = pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]})
    lake.write_dataset(rows, uri, catalog=catalog, sort_by="b")
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.tag("first")
    more = pa.table({"a": pa.array([2**40], pa.int64()), "b": ["z"]})
    lake.write_dataset(more, uri, catalog=catalog, schema_merge=True)
    dataset.refresh().rename_column("b", "c")
    dataset.drop_column("a")
    clone = dataset.clone(tmp_path / "clone", version="first")
    assert clone.schema.equals(rows.schema)
    assert clone.properties["sort_by"] == ["b"]
    assert clone.scan("a = 2 AND b = 'y'").to_table().to_pylist() == [{"a": 2, "b": "y"}]
    lake.write_dataset(rows, clone.uri, catalog=catalog)
    assert clone.refresh().scan("a = 2").count_rows() == 2


def test_changes_and_streams_begin_at_the_clone(source: lake.Dataset, tmp_path: Path) -> None:
    clone = source.clone(tmp_path / "clone")
    clone.update({"x": "x + 1"}, where="id = 3")
    found = clone.changes(3, columns=["id", "x"]).to_table().to_pylist()
    assert [(one["id"], one["x"], one["_change_type"]) for one in found] == [
        (3, 0.5, "update_preimage"), (3, 1.5, "update_postimage"),
    ]  # fmt: skip
    lake.write_dataset(ROWS[:1], clone.uri, catalog=clone._address.catalog)
    batches = clone.refresh().read_changes(3)
    assert [(version, rows.num_rows) for version, rows in batches] == [(4, 1)]


def test_clones_of_clones_branches_and_of_branches_of_clones(
    source: lake.Dataset, tmp_path: Path
) -> None:
    first = source.clone(tmp_path / "first")
    branch = first.branch("b")
    branch.delete("id = 3")
    second = branch.clone(tmp_path / "second")
    first.drop_branch("b")
    assert ids(second) == [0, 4, 6, 7]
    for one in (source, first):
        one.refresh().delete("id >= 0")
        one.expire_versions(keep_last=1)
        one.vacuum(**NOW)
    assert ids(second) == [0, 4, 6, 7]
    assert second.verify(checksums=True).differences == ()
    merged = second.branch("c")
    lake.write_dataset(ROWS[:1], merged.uri, catalog=source._address.catalog)
    second.fast_forward("c")
    assert ids(second) == [0, 0, 4, 6, 7]


def test_a_dropped_dataset_keeps_the_files_of_its_clones(
    orders: lake.Dataset, local: lake.DatasetCatalog
) -> None:
    orders.branch("b").delete("id = 0")
    clone = orders.branch("b").clone("trial")
    local.drop("orders", purge=True)
    assert ids(clone) == list(range(1, 8))
    assert len(stored(orders.uri)) == 2
    # The name is free, and gets another folder.
    again = local.create_dataset("orders", ROWS.schema)
    assert again.uri.endswith("/orders-2")
    with pytest.raises(lake.InvalidOptionError, match="are those of clones too"):
        lake.write_dataset(ROWS, orders.uri, catalog=local)
    local.drop("trial", purge=True)
    assert stored(orders.uri) == set()
    lake.write_dataset(ROWS, orders.uri, catalog=local)


def test_deep_clones_share_nothing(source: lake.Dataset, tmp_path: Path) -> None:
    shallow = source.clone(tmp_path / "shallow")
    for number, one in enumerate((source, shallow)):
        deep = one.clone(tmp_path / f"deep {number}", deep=True)
        assert ids(deep) == [0, 3, 4, 6, 7]
        assert deep.verify(checksums=True).differences == ()
        assert {file.path for file in deep.files()} == stored(tmp_path / f"deep {number}")
    shutil.rmtree(tmp_path / "source")
    deep.delete("id = 3")
    deep.vacuum(**NOW)
    assert ids(deep) == [0, 4, 6, 7]


def test_files_of_other_writers_are_cloned(tmp_path: Path, catalog: lake.Catalog) -> None:
    (tmp_path / "source/p=a").mkdir(parents=True)
    pq.write_table(ROWS.drop_columns("p"), tmp_path / "source/p=a/rows.parquet")
    dataset = lake.convert(tmp_path / "source", catalog=catalog)
    clone = dataset.clone(tmp_path / "clone")
    deep = dataset.clone(tmp_path / "deep", deep=True)
    assert ids(clone) == ids(deep) == list(range(8))
    for one in (clone, deep, dataset):
        one.delete("id >= 0")
        one.expire_versions(keep_last=1)
        one.vacuum(**NOW)
    assert stored(tmp_path) == {"source/p=a/rows.parquet"}


def test_rows_of_a_clone_are_erased_first(source: lake.Dataset, tmp_path: Path) -> None:
    clone = source.clone(tmp_path / "clone")
    with pytest.raises(lake.InvalidOptionError, match=re.escape(clone.uri)):
        source.erase("id = 3")
    assert ids(source) == [0, 3, 4, 6, 7]
    report = clone.erase("id = 3")
    assert report.rows == 1
    assert [one for one in report.left if "was cloned from: erase the rows there too" in one]
    assert ids(clone) == [0, 4, 6, 7]
    assert ids(clone, version=2) == [0, 4, 6, 7]
    assert clone.verify(checksums=True).differences == ()
    source.erase("id = 3")
    held = [pq.ParquetFile(tmp_path / one).read()["id"].to_pylist() for one in stored(tmp_path)]
    assert not [one for one in held if 3 in one]


def test_an_erasure_tells_how_the_file_of_a_dropped_dataset_goes(
    orders: lake.Dataset, local: lake.DatasetCatalog
) -> None:
    clone = orders.clone("trial")
    local.drop("orders", purge=True)
    left = [one for one in clone.erase("id = 3").left if "lake.vacuum(catalog) deletes" in one]
    assert len(left) == 1
    lake.vacuum(local, **NOW)
    folder = Path(orders.uri.removeprefix("file://"))
    held = [pq.ParquetFile(folder / one).read()["id"].to_pylist() for one in stored(folder)]
    assert not [one for one in held if 3 in one]
    assert ids(clone) == [0, 1, 2, 4, 5, 6, 7]


def test_an_erasure_tells_of_expired_files_that_a_clone_has(
    source: lake.Dataset, tmp_path: Path
) -> None:
    clone = source.clone(tmp_path / "clone")
    source.refresh().delete("id = 3")
    source.compact(rewrite_deleted=True)
    source.expire_versions(keep_last=1)
    assert any("a clone has it" in one for one in source.erase("id = 3").left)
    assert 3 in ids(clone)


def test_names_are_taken_replaced_and_answered(
    orders: lake.Dataset, local: lake.DatasetCatalog
) -> None:
    first = orders.clone("trial", version=1)
    assert (first.version, ids(first)) == (1, [])
    # `clone` has no mode, and is not `create_dataset`.
    with pytest.raises(lake.DatasetExistsError, match="another name, or pass replace=True or exi"):
        orders.clone("TRIAL")
    with pytest.raises(lake.DatasetExistsError, match="or another place"):
        orders.clone(orders.uri)
    same = orders.clone("trial", exist_ok=True)
    assert (same.uri, same.version) == (first.uri, 1)
    second = orders.clone("trial", replace=True)
    assert (second.version, ids(second)) == (2, list(range(8)))
    assert local.locate("trial") == second.uri != first.uri
    assert ids(first) == []  # by its URI it is there still
    itself = orders.clone("orders", version=1, replace=True)
    assert local.dataset("orders").uri == itself.uri
    assert ids(itself) == []
    assert ids(orders) == list(range(8))
    with pytest.raises(lake.InvalidOptionError, match="location"):
        orders.clone("/somewhere", location="/elsewhere")
    with pytest.raises(lake.NamespaceNotFoundError):
        orders.clone("none.trial")


def test_a_catalog_in_the_folder_is_named_or_nothing_is_cloned(tmp_path: Path) -> None:
    lake.write_dataset(ROWS, tmp_path / "own")
    dataset = lake.open_dataset(tmp_path / "own")
    with pytest.raises(lake.InvalidOptionError, match="a clone is in the same catalog"):
        dataset.clone(tmp_path / "clone")
    url = f"sqlite:///{tmp_path}/own/_plake/catalog.db"
    lake.open_dataset(tmp_path / "own", catalog=url).clone(tmp_path / "clone")
    assert ids(lake.open_dataset(tmp_path / "clone", catalog=url)) == list(range(8))


def test_other_stores_get_copies_only(source: lake.Dataset) -> None:
    with pytest.raises(lake.InvalidOptionError, match="deep=True"):
        source.clone("memory://bucket/clone")


def test_duckdb_polars_and_iceberg_find_the_files(source: lake.Dataset, tmp_path: Path) -> None:
    source.update({"id": "id + 10"}, where="id = 7")
    clone = source.refresh().clone(tmp_path / "clone")
    wanted = [0, 3, 4, 6, 17]
    with duckdb.connect() as connection:
        clone.scan().to_duckdb(connection, "t")
        assert connection.sql("SELECT id FROM t ORDER BY id").fetchall() == [(i,) for i in wanted]
    assert sorted(clone.scan().to_polars().collect()["id"].to_list()) == wanted
    assert sorted(clone.scan().to_dataset().to_table()["id"].to_pylist()) == wanted
    metadata = clone.export_iceberg()
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata).scan().to_arrow()
    assert sorted(table["id"].to_pylist()) == wanted


# --- a row of a catalog that names files elsewhere -------------------------------------


def plant(local: lake.DatasetCatalog, statement: str) -> None:
    with closing(sqlite3.connect(local.url.removeprefix("sqlite://"))) as database:
        database.execute(statement)
        database.commit()


ELSEWHERE = "UPDATE files SET file_path = '_plake/of/{}/' || file_path WHERE dataset_id = 2"


def strangers(local: lake.DatasetCatalog, orders: lake.Dataset, tmp_path: Path) -> lake.Dataset:
    other = orders.clone("other", deep=True)
    for one in stored(orders.uri):
        (tmp_path / "private" / one).parent.mkdir(parents=True, exist_ok=True)
    for one in stored(other.uri):
        shutil.copy(f"{other.uri.removeprefix('file://')}/{one}", tmp_path / "private" / one)
    return other


@pytest.mark.parametrize("registers", [False, True])
def test_a_folder_that_was_not_cloned_from_is_not_read(
    local: lake.DatasetCatalog, orders: lake.Dataset, tmp_path: Path, registers: bool
) -> None:
    """With a row in every table, the folder itself does not say that it is the catalog's."""
    other = strangers(local, orders, tmp_path)
    plant(local, "INSERT INTO datasets (id, name, base_uri) "
                 f"VALUES (99, 'x', 'file://{tmp_path}/private')")  # fmt: skip
    plant(local, ELSEWHERE.format(99))
    if registers:
        plant(local, "INSERT INTO dataset_clones (dataset_id, origin_id) VALUES (2, 99)")
        plant(local, "UPDATE datasets SET properties_json = json_set(properties_json, "
                     "'$.origins', json('[99]')) WHERE id = 2")  # fmt: skip
    expected = lake.ForeignFolderError if registers else lake.CorruptDatasetError
    for read in (
        lambda: lake.read_dataset(other.uri, catalog=local),
        lambda: list(lake.open_dataset(other.uri, catalog=local).scan().to_batches()),
        lambda: lake.open_dataset(other.uri, catalog=local).scan().to_polars().collect(),
        lambda: lake.open_dataset(other.uri, catalog=local).update({"x": "x"}, where="id > 2"),
        lambda: lake.open_dataset(other.uri, catalog=local).clone("deep", deep=True),
        lambda: lake.open_dataset(other.uri, catalog=local).erase("id = 0"),
    ):
        with pytest.raises(expected, match=r"cloned"):
            read()
    other.vacuum(**NOW) if not registers else None
    assert len(stored(tmp_path / "private")) == 2


def test_a_store_writes_and_deletes_no_file_of_an_origin(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / "origin/x").write_text("x")
    location = StorageLocation.of(tmp_path / "clone")
    location = StorageLocation(location.given, location.uri, origins={
        7: StorageLocation.of(tmp_path / "origin")})  # fmt: skip
    storage = Storage(location)
    path = "_plake/of/7/x"
    assert storage.open_input(path).read() == b"x"
    assert storage.size(path) == 1
    assert storage.path(path) == f"{tmp_path}/origin/x"
    for refused in (storage.delete, storage.open_output, storage.sync_file):
        with pytest.raises(lake.CorruptDatasetError, match="only read here"):
            refused(path)
    for bad in ("_plake/of/8/x", "_plake/of/7/../x", "_plake/of/7//etc/passwd", "_plake/of/7/"):
        with pytest.raises(lake.CorruptDatasetError):
            storage.open_input(bad)
    assert (tmp_path / "origin/x").read_text() == "x"


# --- crashes and races -------------------------------------------------------------------


def clone_until(point: str, url: str, source: str, to: str, deep: bool) -> None:
    def reach(reached: str) -> None:
        if reached == point:
            os._exit(9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clone_module, "reach", reach)
        lake.open_dataset(source, catalog=url).clone(to, deep=deep)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    "point", ["file copied", "dataset locked", "transaction written", "after COMMIT"]
)
def test_a_process_is_killed_while_it_clones(
    point: str, deep: bool, orders: lake.Dataset, local: lake.DatasetCatalog, tmp_path: Path
) -> None:
    to = str(tmp_path / "clone")
    child = processes.start(clone_until, point, local.url, orders.uri, to, deep)
    child.join(60)
    assert child.exitcode == (0 if point == "file copied" and not deep else 9)
    committed = child.exitcode == 0 or point == "after COMMIT"
    orders.delete("id = 0")
    if not committed:
        with pytest.raises(lake.DatasetNotFoundError):
            lake.open_dataset(to, catalog=local)
        assert orders.clone(to, version=2, deep=deep).version == 2
    clone = lake.open_dataset(to, catalog=local)
    assert ids(clone) == list(range(8))
    clone.vacuum(**NOW, abandoned_after_seconds=0)
    assert len(stored(to)) == (2 if deep else 0)
    assert ids(clone) == list(range(8))


def vacuum_again_and_again(url: str, uri: str, stop: Any) -> None:
    with lake.open_catalog(url) as catalog:
        while not stop.is_set():
            dataset = lake.open_dataset(uri, catalog=catalog)
            dataset.compact(rewrite_deleted=True)
            dataset.expire_versions(keep_last=1)
            dataset.vacuum(**NOW)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_vacuums_of_the_origin_run_while_it_is_cloned(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each clone is whole, or the version was expired before."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    if kind == "postgres":
        url = request.getfixturevalue("postgres_server").new_catalog()
    uri = f"{tmp_path}/source"
    lake.write_dataset(ROWS, uri, catalog=url)
    stop = processes.CONTEXT.Event()
    child = processes.start(vacuum_again_and_again, url, uri, stop)
    clones: list[tuple[lake.Dataset, list[int]]] = []
    try:
        for number in range(30):
            lake.write_dataset(ROWS[:2], uri, catalog=url)
            dataset = lake.open_dataset(uri, catalog=url)
            try:
                made = dataset.clone(tmp_path / f"clone {number}", deep=number % 10 == 9)
            except (lake.VersionNotFoundError, lake.StorageError):
                continue  # expired, and its files deleted while they were copied
            clones.append((made, sorted([*range(8), *([0, 1] * (number + 1))])))
    finally:
        stop.set()
        child.join(60)
    assert child.exitcode == 0
    assert len(clones) > 5
    for made, wanted in clones:
        assert ids(made) == wanted
