"""Writes to several datasets become visible together, or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.write import rows as stage
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]


def rows_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array(["a"] * len(ids))})


def ids(uri: str, catalog: lake.Catalog) -> list[int]:
    return sorted(lake.read_dataset(uri, catalog=catalog)["id"].to_pylist())


def files_below(folder: str) -> int:
    return len(list(Path(folder).rglob("*.parquet")))


catalog = catalog_of(*EVERY_KIND)


@pytest.fixture
def a(tmp_path: Path) -> str:
    return str(tmp_path / "a")


@pytest.fixture
def b(tmp_path: Path) -> str:
    return str(tmp_path / "b")


def test_all_writes_become_visible_at_once(a: str, b: str, catalog: lake.Catalog) -> None:
    lake.write_dataset(rows_of(1), b, catalog=catalog)
    with lake.transaction(catalog) as tx:
        tx.write(rows_of(1, 2), a, partition_by="k")
        tx.write(rows_of(3), b, mode="overwrite", commit_metadata={"by": "tx"})
        assert ids(b, catalog) == [1]
        with pytest.raises(lake.DatasetNotFoundError):
            ids(a, catalog)
    assert ids(a, catalog) == [1, 2]
    assert ids(b, catalog) == [3]
    assert [(result.version, result.row_count) for result in tx.results] == [(1, 2), (2, 1)]
    assert lake.open_dataset(b, catalog=catalog).history()[0].metadata == {"by": "tx"}
    with catalog.read() as reader:
        moments = [reader.transactions(record.id)[0].timestamp for record in reader.datasets()]
        assert len(moments) == 2
    with catalog.write() as transaction:
        assert transaction.silent_writes(-1) == {}


def test_an_error_in_the_block_leaves_nothing(a: str, b: str, catalog: lake.Catalog) -> None:
    lake.write_dataset(rows_of(1), a, catalog=catalog)

    def write_and_fail() -> None:
        with lake.transaction(catalog) as tx:
            tx.write(rows_of(2), a)
            tx.write(rows_of(2), b)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert ids(a, catalog) == [1]
    assert (files_below(a), files_below(b)) == (1, 0)
    with pytest.raises(lake.DatasetNotFoundError):
        ids(b, catalog)


def test_a_conflict_of_one_undoes_all(a: str, b: str, catalog: lake.Catalog) -> None:
    for uri in (a, b):
        lake.write_dataset(rows_of(1, 2), uri, catalog=catalog)

    def collide() -> None:
        with lake.transaction(catalog) as tx:
            tx.write(rows_of(3), a)
            tx.write(rows_of(2), b, mode="overwrite", overwrite_where="id >= 2")
            lake.write_dataset(rows_of(5), b, catalog=catalog)

    with pytest.raises(lake.CommitConflictError):
        collide()
    assert ids(a, catalog) == [1, 2]
    assert ids(b, catalog) == [1, 2, 5]
    assert (files_below(a), files_below(b)) == (1, 2)


def test_appends_are_rebased(a: str, b: str, catalog: lake.Catalog) -> None:
    with lake.transaction(catalog) as tx:
        tx.write(rows_of(1), a)
        tx.write(rows_of(1), b)
        lake.write_dataset(rows_of(2), a, catalog=catalog)
    assert ids(a, catalog) == [1, 2]
    assert [result.version for result in tx.results] == [2, 1]


def test_overwriting_a_condition_keeps_the_other_rows(
    a: str, b: str, catalog: lake.Catalog
) -> None:
    lake.write_dataset(rows_of(1, 2, 3), a, catalog=catalog)
    with lake.transaction(catalog) as tx:
        tx.write(rows_of(9), b)
        tx.write(rows_of(3, 4), a, mode="overwrite", overwrite_where="id >= 2")
    assert ids(a, catalog) == [1, 3, 4]


def test_the_same_idempotency_pair_commits_once(a: str, b: str, catalog: lake.Catalog) -> None:
    for _ in range(2):
        with lake.transaction(catalog) as tx:
            tx.write(rows_of(1), a, txn_app_id="app", txn_version=1)
            tx.write(rows_of(1), b)
    assert ids(a, catalog) == [1]
    assert ids(b, catalog) == [1, 1]
    assert (files_below(a), files_below(b)) == (1, 2)
    assert [result.version for result in tx.results] == [1, 2]


def test_a_dataset_is_written_several_times(a: str, tmp_path: Path, catalog: lake.Catalog) -> None:
    with lake.transaction(catalog) as tx:
        tx.write(rows_of(1), a)
        tx.write(rows_of(2), f"file://{tmp_path}/x/../a/")
    assert ids(a, catalog) == [1, 2]
    assert [result.version for result in tx.results] == [1, 2]


def test_rows_get_the_types_of_a_schema(a: str, catalog: lake.Catalog) -> None:
    schema = pa.schema([("id", pa.int16())])
    with lake.transaction(catalog) as tx:
        tx.write([{"id": 1}], a, schema=schema, progress=False)
    assert lake.open_dataset(a, catalog=catalog).schema == schema


def test_a_transaction_without_writes_does_nothing(catalog: lake.Catalog) -> None:
    with lake.transaction(catalog) as tx:
        pass
    assert tx.results == []
    with pytest.raises(lake.InvalidOptionError, match="with block"):
        tx.write(rows_of(1), "/nowhere")


def test_keywords_are_those_of_write_dataset(a: str, catalog: lake.Catalog) -> None:
    with lake.transaction(catalog) as tx:
        for wrong in ({"catalog": catalog}, {"no_such": 1}, {"mode": "upsert"}):
            with pytest.raises(lake.InvalidOptionError):
                tx.write(rows_of(1), a, **wrong)  # type: ignore[arg-type]
        tx.write(rows_of(1), a, row_group_rows=10)
    assert ids(a, catalog) == [1]


def test_a_catalog_by_its_url_is_opened_and_closed(tmp_path: Path, a: str, b: str) -> None:
    url = f"sqlite://{tmp_path}/catalog.db"
    with lake.transaction(url) as tx:
        tx.write(rows_of(1), a)
        tx.write(rows_of(2), b)
    assert [lake.read_dataset(uri, catalog=url)["id"].to_pylist() for uri in (a, b)] == [[1], [2]]


@pytest.mark.long
def test_transactions_that_name_the_same_datasets_in_other_orders_do_not_block_each_other(
    a: str, b: str, catalog: lake.Catalog
) -> None:
    barrier = threading.Barrier(2)

    def write(order: tuple[str, str]) -> None:
        barrier.wait(30)
        for _ in range(5):
            with lake.transaction(catalog) as tx:
                for uri in order:
                    tx.write(rows_of(1), uri)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [(a, b), (b, a)]))
    for uri in (a, b):
        assert lake.open_dataset(uri, catalog=catalog).version == 10
        assert len(ids(uri, catalog)) == 10


def test_a_long_write_gives_signs_of_life(
    a: str, catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "HEARTBEAT_SECONDS", 0.0)
    beats: list[Any] = []

    def batches() -> Any:
        for number in range(3):
            with catalog.read() as reader:
                rows = reader._session.query("SELECT heartbeat_at FROM pending_writes")
                beats.append(rows[0][0])
            threading.Event().wait(0.01)
            yield rows_of(number).to_batches()[0]

    rows = pa.RecordBatchReader.from_batches(rows_of(1).schema, batches())
    lake.write_dataset(rows, a, catalog=catalog)
    assert beats[0] < beats[1] < beats[2]


def test_a_heartbeat_that_fails_does_not_fail_the_write(
    a: str, catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "HEARTBEAT_SECONDS", 0.0)
    failure = lake.CatalogUnavailableError(catalog="x", reason="away")
    with mock.patch(
        "lakehouse_source.catalog.CatalogTransaction.heartbeat", side_effect=failure
    ) as beat:
        lake.write_dataset(rows_of(1), a, catalog=catalog)
    assert beat.called
    assert ids(a, catalog) == [1]
