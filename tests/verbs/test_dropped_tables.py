"""A vacuum of a catalog deletes tables that were dropped, and only those that nobody may want."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source import failpoints
from lakehouse_source.maintenance import vacuum_catalog
from lakehouse_source.storage import Storage
from tests import processes
from tests.verbs.conftest import empty_catalog

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
WEEK = 7 * 24 * 3600
DAY = 24 * 3600


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.DatasetCatalog]:
    with empty_catalog(request, tmp_path) as opened:
        yield lake.open_catalog(opened, warehouse=tmp_path / "warehouse")


def make(catalog: lake.DatasetCatalog, name: str, **options: Any) -> lake.Dataset:
    made = catalog.create_dataset(name, SCHEMA, partition_by="day", **options)
    write(catalog, made, *range(6))
    write(catalog, made, 6)
    return made


def write(catalog: lake.Catalog, dataset: lake.Dataset, *ids: int) -> None:
    lake.write_dataset({"id": ids, "day": [f"d{i % 2}" for i in ids]}, dataset.uri, catalog=catalog)


def later(catalog: lake.Catalog, seconds: int) -> None:
    """Let all that has happened be so much longer ago, by the clock of the catalog."""
    with catalog.write() as tx:
        for change in (
            "UPDATE dataset_drops SET dropped_at = dropped_at - ?",
            "UPDATE transactions SET timestamp = timestamp - ?",
        ):
            tx._session.execute(change, (seconds * 1_000_000,))


def files_of(dataset: lake.Dataset) -> list[str]:
    """The paths of data files and deletion vectors."""
    folder = Path(dataset.uri.removeprefix("file://"))
    return sorted(str(one) for one in folder.rglob("*") if one.suffix in (".parquet", ".puffin"))


def ids_of(dataset: lake.Dataset) -> list[int]:
    return sorted(dataset.scan().to_table()["id"].to_pylist())


def rows_in(catalog: lake.Catalog, table: str) -> int:
    with catalog.read() as reader:
        return int(reader._session.query(f"SELECT count(*) FROM {table}")[0][0])


def test_a_dropped_table_is_freed_after_the_retention(catalog: lake.DatasetCatalog) -> None:
    """Its files stayed for ever, and nobody could find them."""
    made, other = make(catalog, "orders"), make(catalog, "others")
    made.delete("id = 2")
    made.branch("audit").delete("id = 1")
    catalog.drop("orders")
    later(catalog, WEEK - 60)
    assert lake.vacuum(catalog).files_removed == 0
    catalog.undrop("orders")
    assert ids_of(catalog.dataset("orders")) == [0, 1, 3, 4, 5, 6]
    catalog.drop("orders")  # the time counts from the second drop
    later(catalog, DAY)
    assert lake.vacuum(catalog).files_removed == 0
    later(catalog, WEEK)
    before = files_of(made)
    told = lake.vacuum(catalog, dry_run=True)
    assert files_of(made) == before
    assert [one.name for one in catalog.dropped()] == ["orders"]
    done = lake.vacuum(catalog)
    assert (done.files_removed, done.bytes_removed) == (told.files_removed, told.bytes_removed)
    assert done.files_removed == len(before) == 5
    (freed,) = (one for one in told.reports if one.dataset == made.uri)
    assert [tally.what for tally in freed.removed] == ["its table was dropped"]
    assert not Path(made.uri.removeprefix("file://")).joinpath("_plake").exists()
    assert files_of(made) == []
    assert catalog.dropped() == []
    for use in (lambda: catalog.undrop("orders"), made.refresh, lambda: catalog.dataset("orders")):
        with pytest.raises(lake.DatasetNotFoundError):
            use()
    # Nothing of it is left in the catalog, and nothing of another one is gone.
    assert [rows_in(catalog, one) for one in ("datasets", "dataset_drops")] == [1, 0]
    assert ids_of(other.refresh()) == [*range(7)]
    again = make(catalog, "orders")
    assert (again.uri, ids_of(again.refresh())) == (made.uri, [*range(7)])


def test_a_table_that_somebody_may_want_stays(catalog: lake.DatasetCatalog, tmp_path: Path) -> None:
    located = make(catalog, "located", location=tmp_path / "mine")
    written = make(catalog, "written")
    branched = make(catalog, "branched")
    branch = branched.branch("audit")
    before = make(catalog, "before")
    kept = [located, written, branched, before]
    for name in ("located", "written", "branched", "before"):
        catalog.drop(name)
    later(catalog, 2 * WEEK)
    write(catalog, written, 7)
    branch.delete("id = 1")
    with catalog.write() as tx:  # a release before this one made it
        record = tx.dataset(before.uri)
        assert record is not None
        tx._session.execute("UPDATE datasets SET managed = NULL WHERE id = ?", (record.id,))
    later(catalog, 2 * WEEK)
    for dry_run in (True, False):
        assert lake.vacuum(catalog, dry_run=dry_run).files_removed == 0
    assert [len(ids_of(one.refresh())) for one in kept] == [7, 8, 7, 7]
    assert len(catalog.dropped()) == 4


def test_a_table_that_got_a_name_back_stays(catalog: lake.DatasetCatalog) -> None:
    """Also where the note of the drop is left, as by a program that died or another release."""
    one, two, three = (make(catalog, name) for name in ("one", "two", "three"))
    for name in ("one", "two"):
        catalog.drop(name)
    catalog.register("again", one.uri)
    catalog.undrop("two")
    catalog.rename("three", "third")
    with catalog.write() as tx:
        for made in (one, two, three):
            record = tx.dataset(made.uri)
            assert record is not None
            tx._session.execute(
                "INSERT INTO dataset_drops (dataset_id, namespace, name) VALUES (?, 'd', 'n')",
                (record.id,),
            )
    later(catalog, 2 * WEEK)
    assert lake.vacuum(catalog).files_removed == 0
    for name in ("again", "two", "third"):
        assert ids_of(catalog.dataset(name)) == [*range(7)]


def test_a_table_that_was_replaced_is_freed_like_a_new_one(catalog: lake.DatasetCatalog) -> None:
    made = make(catalog, "orders")
    catalog.create_dataset("orders", SCHEMA, replace=True)
    write(catalog, made, 7)
    catalog.drop("orders")
    later(catalog, WEEK)
    assert lake.vacuum(catalog).files_removed > 0
    assert files_of(made) == []


def test_a_reader_of_a_freed_table_is_told_and_gets_no_rows(catalog: lake.DatasetCatalog) -> None:
    made = make(catalog, "orders")
    scan, batches = made.scan(), made.refresh().scan().to_batches()
    first = next(iter(batches))
    assert first.num_rows > 0
    catalog.drop("orders")
    later(catalog, WEEK)
    lake.vacuum(catalog)
    with pytest.raises(lake.PlakeError):
        scan.to_table()


@pytest.mark.parametrize("takes", ["register", "undrop", "commit"])
def test_who_takes_a_table_while_it_is_freed_has_it_or_is_refused(
    catalog: lake.DatasetCatalog, takes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two looks at the catalog: the name, or the commit, would lead to nothing."""
    made = make(catalog, "orders")
    catalog.drop("orders")
    later(catalog, WEEK)
    in_transaction = vacuum_catalog.in_transaction
    taken = []

    def overtaken(*arguments: Any, **options: Any) -> Any:
        if not taken:
            taken.append(takes)
            if takes == "register":
                catalog.register("mine", made.uri)
            elif takes == "undrop":
                catalog.undrop("orders")
            else:
                write(catalog, made, 7)
        return in_transaction(*arguments, **options)

    monkeypatch.setattr(vacuum_catalog, "in_transaction", overtaken)
    assert lake.vacuum(catalog).files_removed == 0
    assert len(ids_of(made.refresh())) == (8 if takes == "commit" else 7)


@pytest.mark.parametrize("takes", ["register", "undrop"])
def test_nobody_names_a_table_that_is_being_freed(
    request: pytest.FixtureRequest, tmp_path: Path, takes: str
) -> None:
    """On a server both transactions are open at once; the second one waits for the first."""
    request.param = "postgres"
    with empty_catalog(request, tmp_path) as opened:
        catalog = lake.open_catalog(opened, warehouse=tmp_path / "warehouse")
        made = make(catalog, "orders")
        catalog.drop("orders")
        refused: list[BaseException] = []

        def take() -> None:
            try:
                if takes == "register":
                    catalog.register("mine", made.uri)
                else:
                    catalog.undrop("orders")
            except lake.PlakeError as error:
                refused.append(error)

        with catalog.write() as tx:
            vacuum_catalog.drop_dataset(tx, made.uri)
            thread = threading.Thread(target=take)
            thread.start()
            thread.join(0.5)
            assert thread.is_alive()
        thread.join(30)
        assert [type(error) for error in refused] == [lake.DatasetNotFoundError]
        assert catalog.datasets() == []


def test_a_store_that_refuses_is_named_and_tried_again(
    catalog: lake.DatasetCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = make(catalog, "orders"), make(catalog, "other")
    for name in ("orders", "other"):
        catalog.drop(name)
    later(catalog, WEEK)
    delete = Storage.delete

    def refuse(storage: Storage, path: str) -> None:
        if storage.uri == made.uri:
            raise lake.StorageError(path=path, reason="read-only")
        delete(storage, path)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "delete", refuse)
        report = lake.vacuum(catalog)
    ((uri, reason),) = report.failed
    assert (uri, "read-only" in reason) == (made.uri, True)
    assert (files_of(other), len(files_of(made))) == ([], 3)
    with pytest.raises(lake.DatasetNotFoundError):
        made.refresh()
    told = lake.vacuum(catalog, dry_run=True)
    assert lake.vacuum(catalog).files_removed == told.files_removed == 3
    assert files_of(made) == []


def _vacuum_and_die(url: str, at: str) -> None:
    passed = {"hidden": "drop_dataset", "file": "delete", "rows": "forget_dataset"}[at]
    room: Any = {
        "hidden": vacuum_catalog,
        "file": Storage,
        "rows": lake.catalog.CatalogTransaction,
    }[at]
    real = getattr(room, passed)

    def dies(*arguments: Any, **options: Any) -> Any:
        if at == "rows":
            failpoints._passes = 1
            failpoints._die()
        result = real(*arguments, **options)
        failpoints._passes = 1
        failpoints._die()
        return result

    setattr(room, passed, dies)
    lake.vacuum(url)


@pytest.mark.parametrize("at", ["hidden", "file", "rows"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "duckdb"])
def test_a_vacuum_that_dies_leaves_all_of_a_table_or_what_the_next_one_deletes(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, at: str
) -> None:
    request.param = kind
    with empty_catalog(request, tmp_path) as opened:
        catalog = lake.open_catalog(opened, warehouse=tmp_path / "warehouse")
        made, other = make(catalog, "orders"), make(catalog, "other")
        catalog.drop("orders")
        later(catalog, WEEK)
        url = catalog.url
    assert processes.run(_vacuum_and_die, url, at) == -signal.SIGKILL
    with lake.open_catalog(url) as opened:
        catalog = lake.open_catalog(opened, warehouse=tmp_path / "warehouse")
        if at == "hidden":  # its transaction was not committed
            catalog.undrop("orders")
            assert ids_of(catalog.dataset("orders")) == [*range(7)]
            catalog.drop("orders")
            later(catalog, WEEK)
        else:
            assert catalog.dropped() == []
        lake.vacuum(catalog)
        assert files_of(made) == []
        assert rows_in(catalog, "datasets") == 1
        assert ids_of(lake.open_dataset(other.uri, catalog=catalog)) == [*range(7)]
