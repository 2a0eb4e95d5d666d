"""Datasets by name: every rule of a `DatasetCatalog`, on every kind of catalog."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source import failpoints
from lakehouse_source.storage import FoundFile, Storage
from tests import processes
from tests.verbs.conftest import empty_catalog

pytestmark = [pytest.mark.slow, pytest.mark.sampled(4), pytest.mark.one_catalog]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string())])


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.DatasetCatalog]:
    with empty_catalog(request, tmp_path) as opened:
        yield lake.open_catalog(opened, warehouse=tmp_path / "warehouse")


class Raising:
    """A function that raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, *_: Any) -> None:
        raise self.error


def rows(dataset: lake.Dataset, **scan: Any) -> list[dict[str, Any]]:
    found = dataset.scan(**scan).to_table().to_pylist()
    return sorted(found, key=str)


def write(catalog: lake.Catalog, dataset: lake.Dataset, *ids: int, **columns: Any) -> None:
    data = columns or {"id": list(ids), "day": [f"d{i % 2}" for i in ids]}
    lake.write_dataset(data, dataset.uri, catalog=catalog)


# --- names ----------------------------------------------------------------------------


def test_a_dataset_is_made_found_listed_and_renamed(catalog: lake.DatasetCatalog) -> None:
    catalog.create_namespace("Sales")
    made = catalog.create_dataset("Sales.Orders", SCHEMA, partition_by="day")
    assert (made.version, made.partition_by, made.schema) == (1, ("day",), SCHEMA)
    assert [one.operation for one in made.history()] == ["create"]
    write(catalog, made, 1, 2)
    found = catalog.dataset("sales.ORDERS")
    assert [row["id"] for row in rows(found)] == [1, 2]
    assert catalog.locate(("SALES", "orders")) == made.uri
    (entry,) = catalog.datasets("sales")
    assert (entry.namespace, entry.name, entry.version) == ("Sales", "Orders", 2)
    catalog.rename("sales.orders", "Sold")
    assert [(one.namespace, one.name) for one in catalog.datasets()] == [("default", "Sold")]
    assert catalog.locate("default.sold") == made.uri
    with pytest.raises(lake.DatasetNotFoundError, match=r"Sales\.Orders"):
        catalog.dataset("Sales.Orders")


def test_a_taken_name_is_refused_whatever_its_case(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    catalog.create_dataset("a", SCHEMA)
    catalog.create_dataset("b", SCHEMA)
    for refused in (
        lambda: catalog.create_dataset("A", SCHEMA),
        lambda: catalog.rename("b", "A"),
        lambda: catalog.register("A", catalog.locate("b")),
    ):
        with pytest.raises(lake.PlakeError, match=r"exists already|is named"):
            refused()
    assert [one.name for one in catalog.datasets()] == ["a", "b"]
    assert catalog.create_dataset("A", SCHEMA, exist_ok=True).uri == catalog.locate("a")


@pytest.mark.parametrize(("given", "version"), [("exist_ok", 1), ("replace", 2)])
def test_who_creates_a_name_second_is_told_that_it_exists(
    catalog: lake.DatasetCatalog, given: str, version: int
) -> None:
    """Two callers that both found no dataset: the later one did not get what it asked for."""
    both = Barrier(2)

    def create(_caller: int) -> int:
        both.wait()
        return catalog.create_dataset("a", SCHEMA, **{given: True}).version

    for _ in range(5):
        with ThreadPoolExecutor(2) as threads:
            assert max(threads.map(create, range(2))) == version
        catalog.drop("a", purge=True)


def test_a_dataset_has_one_name(catalog: lake.DatasetCatalog, tmp_path: Path) -> None:
    lake.write_dataset({"x": [1]}, tmp_path / "plain", catalog=catalog)
    catalog.register("plain", tmp_path / "plain")
    catalog.register("Plain", tmp_path / "plain")  # the same name
    with pytest.raises(lake.InvalidOptionError, match=r"is named default\.plain already"):
        catalog.register("other", tmp_path / "plain")


def test_a_location_that_is_taken_is_refused_and_keeps_its_rows(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    lake.write_dataset({"x": [1]}, tmp_path / "plain", catalog=catalog)
    with pytest.raises(lake.DatasetExistsError, match="plain"):
        catalog.create_dataset("plain", SCHEMA, location=tmp_path / "plain")
    assert catalog.datasets() == []
    assert lake.read_dataset(tmp_path / "plain", catalog=catalog).to_pylist() == [{"x": 1}]


@pytest.mark.parametrize("name", ["", " ", "a.b.c", "a..b", "x/y", ("a", "b", "c"), "`open", "a\0"])
def test_what_is_no_name_is_refused(catalog: lake.DatasetCatalog, name: Any) -> None:
    with pytest.raises((lake.InvalidOptionError, lake.NamespaceNotFoundError)):
        catalog.create_dataset(name, SCHEMA)
    assert catalog.datasets() == []


def test_names_may_hold_dots_backticks_and_any_script(catalog: lake.DatasetCatalog) -> None:
    for spelled, name in (
        ("`a.b`", "a.b"),
        ("`tick``s`", "tick`s"),
        ("данные", "данные"),
        ("with space", "with space"),
        ("50% ü?#", "50% ü?#"),
    ):
        made = catalog.create_dataset(spelled, SCHEMA)
        write(catalog, made, 1)
        assert catalog.dataset(("default", name)).scan().count_rows() == 1
    assert len({one.uri for one in catalog.datasets()}) == 5


def test_a_catalog_without_a_warehouse_says_so(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    bare = lake.open_catalog(catalog.database)
    assert bare.warehouse is None
    with pytest.raises(lake.InvalidOptionError, match="no warehouse"):
        bare.create_dataset("a", SCHEMA)
    bare.set_warehouse(tmp_path / "stored")
    bare.set_warehouse(tmp_path / "other")
    assert bare.create_dataset("a", SCHEMA).uri == f"file://{tmp_path}/other/default/a"
    assert catalog.warehouse == f"file://{tmp_path}/warehouse"


# --- namespaces -----------------------------------------------------------------------


def test_namespaces(catalog: lake.DatasetCatalog) -> None:
    assert catalog.namespaces() == ["default"]
    with pytest.raises(lake.NamespaceNotFoundError, match="'sales'"):
        catalog.create_dataset("sales.orders", SCHEMA)
    catalog.create_namespace("sales", properties={"owner": "ann"})
    with pytest.raises(lake.NamespaceExistsError):
        catalog.create_namespace("SALES")
    catalog.create_namespace("sales", exist_ok=True)
    catalog.set_namespace_properties("sales", {"team": "x", "owner": None})
    assert catalog.namespace("sales").properties == {"team": "x"}
    catalog.create_dataset("sales.orders", SCHEMA)
    with pytest.raises(lake.NamespaceNotEmptyError, match="1 dataset"):
        catalog.drop_namespace("sales")
    uri = catalog.locate("sales.orders")
    catalog.drop_namespace("Sales", cascade=True)
    assert catalog.namespaces() == ["default"]
    assert catalog.datasets() == []
    assert lake.open_dataset(uri, catalog=catalog).version == 1  # only the name is gone
    with pytest.raises(lake.InvalidOptionError, match="always there"):
        catalog.drop_namespace("default")


def test_a_view_shares_its_namespace_with_datasets(catalog: lake.DatasetCatalog) -> None:
    catalog.create_namespace("sales")
    catalog.create_dataset("sales.orders", SCHEMA)
    view, other = {"sql": "SELECT 'ü'"}, {"sql": "SELECT 2"}
    with catalog.write() as tx:
        tx.names.put_view(("sales", "Totals"), view)
        with pytest.raises(lake.DatasetExistsError, match="OR REPLACE"):
            tx.names.put_view(("SALES", "totals"), other)
        with pytest.raises(lake.DatasetExistsError, match="no view"):
            tx.names.put_view(("sales", "ORDERS"), other, replace=True)
        with pytest.raises(lake.NamespaceNotFoundError):
            tx.names.put_view(("nosuch", "v"), other)
        with pytest.raises(lake.InvalidOptionError, match="NUL"):
            tx.names.put_view(("sales", "nul"), {"sql": "\0"})
    with pytest.raises(lake.DatasetExistsError, match="A view has it"):
        catalog.create_dataset("sales.totals", SCHEMA)
    with pytest.raises(lake.DatasetExistsError, match="A view has it"):
        catalog.rename("sales.orders", "sales.totals")
    with catalog.read() as reader:
        assert reader.names.view(("Sales", "TOTALS")) == view
        assert reader.names.view_names("sales") == ["Totals"]
        assert reader.names.dataset_names("sales") == ["orders"]
    with catalog.write() as tx:
        tx.names.put_view(("sales", "totals"), other, replace=True)
    with catalog.read() as reader:
        assert reader.names.view(("sales", "totals")) == other
    catalog.drop("sales.orders")
    with pytest.raises(lake.NamespaceNotEmptyError):
        catalog.drop_namespace("sales")
    with catalog.write() as tx:
        assert tx.names.remove_view(("sales", "totals"))
        assert not tx.names.remove_view(("sales", "totals"))
        tx.names.put_view(("sales", "again"), view)
    catalog.drop_namespace("sales", cascade=True)
    catalog.create_namespace("sales")
    with catalog.read() as reader:
        assert reader.names.view_names("sales") == []


# --- drop -----------------------------------------------------------------------------


def test_a_dropped_dataset_can_get_its_name_again(catalog: lake.DatasetCatalog) -> None:
    made = catalog.create_dataset("a", SCHEMA)
    write(catalog, made, 1)
    catalog.drop("a")
    with pytest.raises(lake.DatasetNotFoundError):
        catalog.dataset("a")
    again = catalog.create_dataset("a", SCHEMA)
    assert again.uri != made.uri
    assert rows(again) == []
    catalog.drop("a")
    catalog.register("a", made.uri)
    assert len(rows(catalog.dataset("a"))) == 1


def test_a_purge_deletes_what_plake_wrote_and_nothing_else(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    made = catalog.create_dataset("a", SCHEMA, partition_by="day", location=tmp_path / "a")
    write(catalog, made, 1, 2, 3)
    made.refresh()
    made.delete("id = 3")
    inner = catalog.create_dataset("inner", SCHEMA, location=tmp_path / "a" / "inner")
    write(catalog, inner, 7)
    # Its folder looks like one of a partition. Its files were deleted.
    alike = catalog.create_dataset("alike", SCHEMA, location=tmp_path / "a" / "day=d9")
    write(catalog, alike, 8)
    (tmp_path / "a" / "notes.txt").write_text("mine")
    (tmp_path / "else" / "day=d1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [9]}), tmp_path / "else" / "day=d1" / "copied.parquet")
    made.add_files(tmp_path / "else", copy=True)
    catalog.drop("a", purge=True)
    left = sorted(p.name for p in (tmp_path / "a").rglob("*") if p.is_file())
    others = [name for name in left if not name.endswith(".parquet")]
    assert [name for name in others if not name.startswith("owner-")] == ["notes.txt"]
    assert not (tmp_path / "a" / "_plake").exists()
    assert [row["id"] for row in rows(catalog.dataset("inner"))] == [7]
    assert [row["id"] for row in rows(catalog.dataset("alike"))] == [8]
    assert [p.name for p in (tmp_path / "a").iterdir() if "=" in p.name] == ["day=d9"]
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(tmp_path / "a", catalog=catalog)
    fresh = catalog.create_dataset("a", SCHEMA, location=tmp_path / "a")
    assert (fresh.version, rows(fresh)) == (1, [])


def test_a_purge_spares_a_dataset_inside_that_another_catalog_knows(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    """Its files were deleted: they have names of plake, and this catalog does not know them."""
    made = catalog.create_dataset("a", SCHEMA, partition_by="day", location=tmp_path / "a")
    write(catalog, made, 1, 2)
    lake.write_dataset({"x": [1, 2]}, tmp_path / "a" / "inner")  # in a catalog of its own
    catalog.drop("a", purge=True)
    assert lake.read_dataset(tmp_path / "a" / "inner").num_rows == 2
    assert not [path for path in (tmp_path / "a").iterdir() if path.name != "inner"]


def test_a_purge_that_was_interrupted_is_finished(
    catalog: lake.DatasetCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = catalog.create_dataset("a", SCHEMA)
    write(catalog, made, 1)
    pending = lake.open_dataset(made.uri, catalog=catalog)
    fail = lake.StorageError(path="x", reason="was made to fail")
    with monkeypatch.context() as patched:
        patched.setattr("lakehouse_source.storage.files.Storage.delete", Raising(fail))
        with pytest.raises(lake.StorageError):
            catalog.drop("a", purge=True)
    assert catalog.datasets() == []
    for use in (pending.refresh, lambda: lake.open_dataset(made.uri, catalog=catalog)):
        with pytest.raises(lake.DatasetNotFoundError):
            use()
    with pytest.raises(lake.InvalidOptionError, match="finish_drops"):
        write(catalog, made, 2)
    assert catalog.create_dataset("a", SCHEMA).uri != made.uri
    assert catalog.finish_drops() == 1
    assert catalog.finish_drops() == 0
    write(catalog, made, 2)
    assert len(rows(lake.open_dataset(made.uri, catalog=catalog))) == 1


def test_a_store_that_refuses_does_not_keep_the_others_from_being_emptied(
    catalog: lake.DatasetCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one that failed ended it, each time."""
    made = {name: catalog.create_dataset(name, SCHEMA) for name in "abcd"}
    for dataset in made.values():
        write(catalog, dataset, 1)
    delete = Storage.delete
    refusing = {made[name].uri for name in "abc"}

    def refuse(storage: Storage, path: str) -> None:
        if storage.uri in refusing:
            raise lake.StorageError(path=storage.uri, reason="read-only")
        delete(storage, path)

    monkeypatch.setattr(Storage, "delete", refuse)
    for name in "abc":
        with pytest.raises(lake.StorageError):
            catalog.drop(name, purge=True)
    refusing.remove(made["b"].uri)
    with pytest.raises(lake.StorageError) as caught:
        catalog.drop("d", purge=True)
    assert caught.value.path == f"{made['a'].uri}, {made['c'].uri}"
    assert caught.value.reason.count("read-only") == 2
    left = {path.parent.name for path in (tmp_path / "warehouse").rglob("*.parquet")}
    assert left == {"a", "c"}
    write(catalog, made["b"], 2)  # its place is free
    refusing.remove(made["a"].uri)
    with pytest.raises(lake.StorageError) as caught:
        catalog.finish_drops()
    assert caught.value.path == made["c"].uri
    refusing.clear()
    assert catalog.finish_drops() == 1
    assert catalog.datasets() == []
    assert len(rows(lake.open_dataset(made["b"].uri, catalog=catalog))) == 1


def test_two_purges_at_once_spare_the_dataset_that_is_made_anew(
    catalog: lake.DatasetCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one deleted the files of the new one: it knew that the old one was dropped."""
    made = catalog.create_dataset("a", SCHEMA)
    write(catalog, made, 1)
    fail = lake.StorageError(path="x", reason="was made to fail")
    with monkeypatch.context() as patched:
        patched.setattr("lakehouse_source.storage.files.Storage.delete", Raising(fail))
        with pytest.raises(lake.StorageError):
            catalog.drop("a", purge=True)
    files = Storage.files

    def overtaken(self: Storage) -> Iterator[FoundFile]:
        monkeypatch.undo()
        assert catalog.finish_drops() == 1
        write(catalog, made, 2, 3)
        yield from files(self)

    monkeypatch.setattr(Storage, "files", overtaken)
    catalog.finish_drops()
    again = lake.open_dataset(made.uri, catalog=catalog)
    assert [row["id"] for row in rows(again)] == [2, 3]


def test_a_write_under_way_cannot_be_committed_to_a_dropped_dataset(
    catalog: lake.DatasetCatalog,
) -> None:
    made = catalog.create_dataset("a", SCHEMA)

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1], "day": ["x"]}, SCHEMA)
        catalog.drop("a", purge=True)

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    with pytest.raises(lake.PlakeError):
        lake.write_dataset(reader, made.uri, catalog=catalog)
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(made.uri, catalog=catalog)


# --- replace --------------------------------------------------------------------------

OTHER = pa.schema([("day", pa.int64()), ("id", pa.string()), ("new", pa.float64())])


def test_a_replaced_dataset_keeps_its_history_and_every_version_reads(
    catalog: lake.DatasetCatalog,
) -> None:
    made = catalog.create_dataset("a", SCHEMA, partition_by="day")
    write(catalog, made, 1, 2, 3)
    made = catalog.create_dataset(
        "a", OTHER, partition_by=["day"], replace=True, properties={"sort_by": "id"}
    )
    assert (made.version, made.partition_by, made.schema) == (3, ("day",), OTHER)
    write(catalog, made, day=[5, 6], id=["x", "y"], new=[1.5, None])  # type: ignore[arg-type]
    made = catalog.create_dataset("a", SCHEMA, replace=True)
    write(catalog, made, 9)
    made.refresh()
    old = [{"id": i, "day": f"d{i % 2}"} for i in (1, 2, 3)]
    middle = [{"day": 5, "id": "x", "new": 1.5}, {"day": 6, "id": "y", "new": None}]
    expected = {1: [], 2: old, 3: [], 4: middle, 5: [], 6: [{"id": 9, "day": "d1"}]}
    for version, wanted in expected.items():
        assert rows(made, version=version) == wanted, version
        assert made.verify(version, checksums=True).ok
        for condition, keeps in (
            ("day = 'd1'", lambda row: row["day"] == "d1"),
            ("id = 'x'", lambda row: row["id"] == "x"),
            ("new IS NULL", lambda row: row.get("new", 0) is None),
        ):
            try:
                found = rows(made, predicates=condition, version=version)
            except lake.InvalidPredicateError:
                continue  # that version has no such column, or it has another type
            assert found == [row for row in wanted if keeps(row)], (version, condition)
    assert [one.operation for one in made.history()] == [
        "append", "replace", "append", "replace", "append", "create",
    ]  # fmt: skip


def test_an_old_version_of_a_replaced_dataset_is_restored_with_its_partitions(
    catalog: lake.DatasetCatalog,
) -> None:
    made = catalog.create_dataset("a", SCHEMA, partition_by="day")
    write(catalog, made, 1, 2)
    catalog.create_dataset("a", OTHER, partition_by="day", replace=True)
    write(catalog, made, day=[5], id=["x"], new=[1.5])
    made.refresh()
    made.restore(2)
    made.refresh()
    assert made.partition_by == ("day",)
    write(catalog, made, 3)
    made.refresh()
    assert [row["id"] for row in rows(made, predicates="day = 'd1'")] == [1, 3]
    assert rows(made, version=4) == [{"day": 5, "id": "x", "new": 1.5}]
    made.update({"day": "'d0'"}, "id = 3")
    assert [row["id"] for row in rows(made, predicates="day = 'd0'")] == [2, 3]
    report = made.vacuum(retention_seconds=0, allow_short_retention=True)
    assert report.files_removed == 0  # all versions are kept
    assert all(made.verify(version, checksums=True).ok for version in range(1, made.version + 1))


def test_a_replacement_and_other_writers_conflict_or_rebase(
    catalog: lake.DatasetCatalog,
) -> None:
    """An append that was begun before is refused: its columns are no longer there."""
    made = catalog.create_dataset("a", SCHEMA)

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1], "day": ["x"]}, SCHEMA)
        catalog.create_dataset("a", OTHER, replace=True)

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    with pytest.raises(lake.CommitConflictError):
        lake.write_dataset(reader, made.uri, catalog=catalog)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1], "day": ["x"]}, SCHEMA)
        lake.open_dataset(made.uri, catalog=catalog).add_column("more", pa.int8())

    reader = pa.RecordBatchReader.from_batches(SCHEMA, overtaken())
    with pytest.raises(lake.CommitConflictError, match="schema changed"):
        lake.write_dataset(
            reader, made.uri, catalog=catalog, mode="overwrite", overwrite_schema=True
        )
    found = catalog.dataset("a")
    assert found.schema.names == ["day", "id", "new", "more"]
    assert rows(found) == []


def test_overwrite_schema_by_write_dataset(catalog: lake.DatasetCatalog, tmp_path: Path) -> None:
    where = {"catalog": catalog}
    lake.write_dataset({"a": [1], "b": ["x"]}, tmp_path / "d", partition_by="b", **where)  # type: ignore[arg-type]
    lake.write_dataset(
        {"b": [2.5], "c": [True]}, tmp_path / "d", mode="overwrite", overwrite_schema=True, **where
    )  # type: ignore[arg-type]
    found = lake.open_dataset(tmp_path / "d", catalog=catalog)
    assert rows(found) == [{"b": 2.5, "c": True}]
    assert rows(found, version=1) == [{"a": 1, "b": "x"}]
    assert found.partition_by == ()
    for refused in ({"mode": "append"}, {"mode": "overwrite", "overwrite_where": "b = 2.5"}):
        with pytest.raises(lake.InvalidOptionError, match="overwriteSchema"):
            lake.write_dataset(
                {"z": [1]}, tmp_path / "d", overwrite_schema=True, **refused, **where
            )  # type: ignore[arg-type]


def test_table_properties_and_comment(catalog: lake.DatasetCatalog) -> None:
    made = catalog.create_dataset(
        "a", SCHEMA, comment="first", table_properties={"k": "v"}, properties={"sort_by": ["id"]}
    )
    assert made.properties["table_properties"] == {"k": "v", "comment": "first"}
    assert made.properties["sort_by"] == ["id"]
    made.set_table_properties({"k": None, "n": "1"})
    assert catalog.dataset("a").table_properties == {"comment": "first", "n": "1"}
    made.rename_column("day", "night")  # properties survive other commits
    assert catalog.dataset("a").table_properties == {"comment": "first", "n": "1"}


# --- several writers ------------------------------------------------------------------


def _create(url: str, warehouse: str, number: int, done: Any) -> None:
    with lake.open_catalog(url, warehouse=warehouse) as catalog:
        try:
            location = f"{warehouse}/at{number}"
            catalog.create_dataset("once", SCHEMA, location=location)
        except lake.DatasetExistsError:
            done.put("refused")
        else:
            done.put("made")


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"], indirect=True)
def test_of_processes_that_create_one_name_one_succeeds(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    catalog.namespaces()
    done = processes.CONTEXT.Queue()
    workers = [
        processes.start(_create, catalog.url, str(tmp_path), number, done) for number in range(4)
    ]
    results = sorted(done.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert results == ["made", "refused", "refused", "refused"]
    assert len(catalog.datasets()) == 1
    assert rows(catalog.dataset("once")) == []


def _create_until(point: str, url: str, warehouse: str) -> None:
    failpoints.arm(point)
    with lake.open_catalog(url, warehouse=warehouse) as catalog:
        catalog.create_dataset("killed", SCHEMA, replace=True)
    os._exit(0)


POINTS = ("begin", "pending committed", "dataset locked", "transaction written", "before COMMIT")


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_killed_creation_leaves_nothing_of_it(
    catalog: lake.DatasetCatalog, tmp_path: Path, point: str, replaced: bool
) -> None:
    if replaced:
        write(catalog, catalog.create_dataset("killed", OTHER), day=[1], id=["x"], new=[1.5])  # type: ignore[arg-type]
    arguments = (point, catalog.url, str(tmp_path / "warehouse"))
    assert processes.run(_create_until, *arguments) == -signal.SIGKILL
    if replaced:
        assert rows(catalog.dataset("killed")) == [{"day": 1, "id": "x", "new": 1.5}]
    else:
        assert catalog.datasets() == []
    made = catalog.create_dataset("killed", SCHEMA, replace=True)
    assert (made.version, made.schema, rows(made)) == (3 if replaced else 1, SCHEMA, [])


# --- tags -----------------------------------------------------------------------------


def test_tags_are_read_and_hold_back_expiry(catalog: lake.DatasetCatalog) -> None:
    made = catalog.create_dataset("a", SCHEMA)
    for number in range(1, 5):
        write(catalog, made, number)
    made.refresh()
    made.tag("first", version=2)
    made.tag("now")
    made.tag("now")  # once more, the same
    assert made.tags() == {"first": 2, "now": 5}
    assert [row["id"] for row in rows(made, version="first")] == [1]
    assert lake.read_dataset(made.uri, catalog=catalog, version="2").num_rows == 1
    assert made.expire_versions(keep_last=1).expired == (1, 3, 4)
    made.vacuum(retention_seconds=0, allow_short_retention=True)
    assert len(rows(made, version="first")) == 1
    with pytest.raises(lake.InvalidOptionError, match="that of version 2"):
        made.tag("first")
    with pytest.raises(lake.VersionNotFoundError, match="tag 'none'"):
        made.scan(version="none").to_table()
    with pytest.raises(lake.VersionNotFoundError, match="version 1 "):
        made.tag("gone", version=1)
    for name in ("", "7", " -3 ", "x" * 300):
        with pytest.raises(lake.InvalidOptionError, match="tag"):
            made.tag(name)
    made.drop_tag("first")
    with pytest.raises(lake.VersionNotFoundError, match="tag 'first'"):
        made.drop_tag("first")
    assert made.expire_versions(keep_last=1).oldest_version == 5


def test_a_password_is_not_shown(catalog: lake.DatasetCatalog) -> None:
    assert catalog.url == catalog.database.url
    assert repr(catalog).count("***") == repr(catalog.database).count("***")
    with pytest.raises(TypeError, match="cannot be pickled"):
        catalog.__reduce__()


@pytest.mark.parametrize(
    "part",
    [
        *("..", ".", " .. ", "%2e%2E", "%252e%252e", "%25252e.", "_plake", "a/b", "a%2fb"),
        *("a%252Fb", "..\\t", "a%5Cb", "a\nb", "a%00b", "a\x7fb", "a%25%30%30b", "%20"),
    ],
)
def test_a_name_never_leads_out_of_the_warehouse(catalog: lake.DatasetCatalog, part: str) -> None:
    """A table named `..` was made beside the warehouse."""
    made = catalog.create_dataset("fine", SCHEMA)
    for change in (
        lambda: catalog.create_namespace(part),
        lambda: catalog.create_dataset((part, "t"), SCHEMA),
        lambda: catalog.create_dataset(("default", part), SCHEMA),
        lambda: catalog.new_location((part, "t")),
        lambda: catalog.new_location(("default", part)),
        lambda: catalog.rename("fine", ("default", part)),
        lambda: catalog.register(("default", part), made.uri),
    ):
        with pytest.raises(lake.InvalidOptionError, match=r"folder|slash"):
            change()
    assert [entry.name for entry in catalog.datasets()] == ["fine"]


def test_names_that_differ_in_case_or_encoding_get_folders_of_their_own(
    catalog: lake.DatasetCatalog,
) -> None:
    uris = []
    for name in ("Orders", "orders", "a b", "a%20b"):
        made = catalog.create_dataset(("default", name), SCHEMA)
        write(catalog, made, len(uris))
        uris.append(made.uri.lower())
        if name == "Orders":
            catalog.drop(name)  # it keeps its folder
        else:
            found = rows(catalog.dataset(("default", name)))
            assert [row["id"] for row in found] == [len(uris) - 1]
    assert len(set(uris)) == 4


@pytest.mark.parametrize("path", ["..", "%2e%2e", "%252E%252e", "..%2fx", "%5c..%5cx", "a%2F%2e."])
@pytest.mark.parametrize("store", ["s3://bucket", "gs://bucket", "memory://host"])
def test_a_warehouse_in_a_store_has_no_way_up(store: str, path: str) -> None:
    with pytest.raises(lake.InvalidOptionError, match=r"must not hold '\.\.'"):
        lake.open_catalog("sqlite:////tmp/c.db", warehouse=f"{store}/a/{path}/b")


def test_a_text_that_is_a_name_in_the_catalog_is_the_name(
    catalog: lake.DatasetCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder `./sales.o` was made, with a dataset that the table does not show."""
    monkeypatch.chdir(tmp_path)
    catalog.create_namespace("sales")
    made = catalog.create_dataset("sales.o", SCHEMA)
    data = pa.table({"id": [1], "day": ["d1"]}, schema=SCHEMA)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert lake.write_dataset(data, "sales.o", catalog=catalog).version == 2
    with lake.transaction(catalog) as tx:
        tx.write(data, "SALES.O")
    assert [row["id"] for row in rows(made.refresh())] == [1, 1]
    assert lake.open_dataset("sales.o", catalog=catalog).uri == made.uri
    assert lake.read_dataset("sales.o", catalog=catalog).num_rows == 2
    made.branch("audit")
    lake.write_dataset(data, "sales.o#branch=audit", catalog=catalog)
    assert made.branches() == {"audit": 4}
    monkeypatch.setenv("PLAKE_CATALOG", catalog.url)
    if not catalog.url.startswith("duckdb"):
        assert lake.read_dataset("sales.o").num_rows == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_text_that_reads_like_a_name_makes_no_folder(
    catalog: lake.DatasetCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLAKE_CATALOG", raising=False)
    data = pa.table({"id": [1], "day": ["d1"]}, schema=SCHEMA)
    for given in (catalog, None):
        with pytest.raises(lake.InvalidOptionError, match=r"write '\./sales\.p' for a folder"):
            lake.write_dataset(data, "sales.p", catalog=given)
    with lake.transaction(catalog) as tx, pytest.raises(lake.InvalidOptionError, match="folder"):
        tx.write(data, "sales.p")
    assert not Path("sales.p").exists()
    assert lake.write_dataset(data, "./sales.p", catalog=catalog).version == 1
    assert lake.write_dataset(data, "sales.p", catalog=catalog).version == 2  # it is there
    assert lake.write_dataset(data, "plain", catalog=catalog).version == 1


def test_a_dropped_dataset_is_listed_and_taken_back(
    catalog: lake.DatasetCatalog, tmp_path: Path
) -> None:
    """Nobody could find the folder of a table that was dropped by mistake."""
    catalog.create_namespace("sales")
    first = catalog.create_dataset("sales.Orders", SCHEMA)
    write(catalog, first, 1)
    catalog.drop("sales.orders")
    second = catalog.create_dataset("sales.Orders", SCHEMA)
    write(catalog, second, 2)
    catalog.drop_namespace("sales", cascade=True)
    gone = catalog.create_dataset("gone", SCHEMA, location=tmp_path / "gone")
    write(catalog, gone, 3)
    catalog.drop("gone", purge=True)
    listed = [(one.namespace, one.name, one.uri) for one in catalog.dropped()]
    assert listed == [("sales", "Orders", second.uri), ("sales", "Orders", first.uri)]
    with pytest.raises(lake.NamespaceNotFoundError):
        catalog.undrop("sales.orders")
    catalog.create_namespace("sales")
    catalog.undrop("SALES.orders")
    assert [row["id"] for row in rows(catalog.dataset("sales.Orders"))] == [2]
    with pytest.raises(lake.DatasetExistsError):
        catalog.undrop("sales.orders")
    catalog.rename("sales.orders", "newer")
    catalog.undrop("sales.orders")
    assert [row["id"] for row in rows(catalog.dataset("sales.orders"))] == [1]
    assert catalog.dropped() == []
    for name in ("gone", "sales.orders", "sales.none"):
        with pytest.raises(lake.DatasetNotFoundError):
            catalog.undrop(name)
