"""A transaction takes any statements, reads what it wrote, and is committed whole or not at all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.write.commit.transaction import TransactionCatalog
from tests import processes
from tests.verbs.conftest import EVERY_KIND, catalog_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

catalog = catalog_of(*EVERY_KIND)
ON = "target.id = source.id"


def rows_of(rows: dict[int, int]) -> pa.Table:
    ids, values = list(rows), list(rows.values())
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64())})


def content(dataset: lake.Dataset) -> dict[int, int]:
    found = dataset.scan(columns=["id", "v"]).to_table()
    rows = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows
    return rows


def committed(uri: str, catalog: lake.Catalog) -> dict[int, int]:
    return content(lake.open_dataset(uri, catalog=catalog))


def files_below(folder: str) -> int:
    return len(list(Path(folder).rglob("*.parquet")))


@pytest.fixture
def a(tmp_path: Path, catalog: lake.Catalog) -> str:
    uri = str(tmp_path / "a")
    rows = rows_of({1: 1, 2: 2, 3: 3})
    lake.write_dataset(rows, uri, catalog=catalog, rewrite_threshold=1.0)
    return uri


@pytest.fixture
def b(tmp_path: Path, catalog: lake.Catalog) -> str:
    uri = str(tmp_path / "b")
    lake.write_dataset(rows_of({1: 10, 2: 20}), uri, catalog=catalog)
    return uri


class Stopped(Exception):
    pass


def _step(draw: random.Random, dataset: lake.Dataset, tx: Any, rows: dict[int, int]) -> None:
    """One statement through a transaction, and on a dict."""
    id, value = draw.randrange(6), draw.randrange(100)
    kind = draw.choice(("append", "update", "delete", "upsert", "merge", "where", "all", "restore"))
    if kind == "append":
        new = {id: value} if id not in rows else {}
        tx.write(rows_of(new), dataset.uri)
        rows |= new
    elif kind == "update":
        dataset.update({"v": f"v + {value}"}, f"id <= {id}")
        rows |= {one: v + value for one, v in rows.items() if one <= id}
    elif kind == "delete":
        dataset.delete(f"id = {id}")
        rows.pop(id, None)
    elif kind == "upsert":
        dataset.upsert(rows_of({id: value, 9: value}), on="id")
        rows |= {id: value, 9: value}
    elif kind == "merge":
        merge = dataset.merge(rows_of({id: value}), ON).when_matched_delete()
        merge.when_not_matched_insert_all().execute()
        if rows.pop(id, None) is None:
            rows[id] = value
    elif kind == "where":
        new = {one: value for one in range(id) if draw.random() < 0.5}
        how = {"mode": "overwrite", "overwrite_where": f"id < {id}"}
        tx.write(rows_of(new), dataset.uri, **how)
        kept = {one: v for one, v in rows.items() if one >= id}
        rows.clear()
        rows |= new | kept
    elif kind == "all":
        tx.write(rows_of({id: value}), dataset.uri, mode="overwrite")
        rows.clear()
        rows[id] = value
    else:
        dataset.restore(1)
        rows.clear()
        rows |= content(lake.Dataset(dataset._address).refresh())


@pytest.mark.parametrize("seed", range(4))
def test_random_statements_see_one_another_and_are_committed_together(
    seed: int, a: str, b: str, catalog: lake.Catalog
) -> None:
    draw = random.Random(seed)
    for number in range(3):
        models = {uri: committed(uri, catalog) for uri in (a, b)}
        before = {uri: dict(rows) for uri, rows in models.items()}
        versions = {uri: lake.open_dataset(uri, catalog=catalog).version for uri in (a, b)}
        stops = number == 1
        results: list[lake.WriteResult] = []
        try:
            with lake.transaction(catalog) as tx:
                opened = {uri: tx.open_dataset(uri) for uri in (a, b)}
                for _ in range(draw.randrange(1, 6)):
                    uri = draw.choice((a, b))
                    _step(draw, opened[uri].refresh(), tx, models[uri])
                    assert content(opened[uri].refresh()) == models[uri]
                    assert committed(uri, catalog) == before[uri]
                if stops:
                    raise Stopped
            results = tx.results
        except Stopped:
            models = before
        assert {uri: committed(uri, catalog) for uri in (a, b)} == models
        moved = sum(lake.open_dataset(u, catalog=catalog).version - versions[u] for u in (a, b))
        assert moved == len(results)
    for uri in (a, b):
        assert not lake.open_dataset(uri, catalog=catalog).verify(checksums=True).differences
    with catalog.read() as reader:
        assert reader.silent_writes(-1) == {}


def test_schemas_properties_and_constraints_wait_too(a: str, catalog: lake.Catalog) -> None:
    with lake.transaction(catalog) as tx:
        dataset = tx.open_dataset(a)
        dataset.add_column("w", pa.int64(), default=5)
        dataset.rename_column("v", "u")
        dataset.add_constraint("positive", "w > 0")
        dataset.set_properties(rewrite_threshold=0.1)
        with pytest.raises(lake.ConstraintViolationError, match="positive"):
            tx.write({"id": [4], "u": [4], "w": [-1]}, a)
        tx.write({"id": [4], "u": [4], "w": [7]}, a)
        dataset.refresh().update({"w": "w + 1"}, "w < 6")
        assert lake.open_dataset(a, catalog=catalog).schema.names == ["id", "v"]
    dataset = lake.open_dataset(a, catalog=catalog)
    rows = dataset.scan("id >= 3").to_table().sort_by("id").to_pylist()
    assert rows == [{"id": 3, "u": 3, "w": 6}, {"id": 4, "u": 4, "w": 7}]
    assert list(dataset.constraints) == ["positive"]
    operations = [one.operation for one in dataset.history()]
    assert operations[::-1] == ["append", *["schema change"] * 2, *["set properties"] * 2,
                                "append", "update"]  # fmt: skip


def test_keys_are_compared_with_what_waits_and_with_what_others_commit(
    a: str, catalog: lake.Catalog
) -> None:
    lake.open_dataset(a, catalog=catalog).add_constraint("pk", "PRIMARY KEY (id)")

    def write(*ids: int, others: int | None = None) -> None:
        with lake.transaction(catalog) as tx:
            for id in ids:
                tx.write(rows_of({id: id}), a)
            if others is not None:
                lake.write_dataset(rows_of({others: 0}), a, catalog=catalog)

    for ids in ((3,), (5, 5)):
        with pytest.raises(lake.ConstraintViolationError, match="pk"):
            write(*ids)
    # A write that nothing of the block has read is compared when the block ends.
    with pytest.raises(lake.ConstraintViolationError, match="pk"):
        write(5, others=5)
    write(6, others=7)
    assert set(committed(a, catalog)) == {1, 2, 3, 5, 6, 7}


def test_a_new_dataset_is_changed_before_anybody_sees_it(
    tmp_path: Path, catalog: lake.Catalog
) -> None:
    uri = str(tmp_path / "new")
    with lake.transaction(catalog) as tx:
        tx.write(rows_of({1: 1, 2: 2}), uri, partition_by="id")
        dataset = tx.open_dataset(uri)
        dataset.delete("id = 1")
        assert content(dataset) == {2: 2}
        with pytest.raises(lake.DatasetNotFoundError):
            committed(uri, catalog)
    assert committed(uri, catalog) == {2: 2}


def test_others_who_commit_to_a_dataset_that_is_used_again_are_a_conflict(
    a: str, b: str, catalog: lake.Catalog
) -> None:
    def used_again(how: str) -> None:
        with lake.transaction(catalog) as tx:
            dataset = tx.open_dataset(a)
            dataset.update({"v": "0"}, "id = 1")
            tx.write(rows_of({5: 5}), b)
            if how == "read":
                dataset.scan().to_table()
            elif how == "write":
                tx.write(rows_of({6: 6}), a)
            lake.write_dataset(rows_of({7: 7}), a, catalog=catalog)
            if how == "read later":
                assert dataset.refresh().scan("id = 1").to_table()["v"].to_pylist() == [0]
            lake.write_dataset(rows_of({8: 8}), b, catalog=catalog)

    before = files_below(a)
    for how in ("read", "write"):
        with pytest.raises(lake.CommitConflictError, match="used it again"):
            used_again(how)
    assert files_below(a) == before + 2  # those of the others
    used_again("not at all")
    used_again("read later")
    rows = lake.read_dataset(b, catalog=catalog)["id"].to_pylist()
    assert sorted(rows) == [1, 2, 5, 5, 8, 8, 8, 8]


def test_two_that_change_one_row_do_not_both_commit(a: str, b: str, catalog: lake.Catalog) -> None:
    def change(other: Any) -> None:
        with lake.transaction(catalog) as tx:
            tx.open_dataset(b).update({"v": "v + 1"}, "id = 1")
            tx.open_dataset(a).update({"v": "v + 1"}, "id = 1")
            other(lake.open_dataset(a, catalog=catalog))

    change(lambda dataset: dataset.update({"v": "v + 1"}, "id = 2"))
    assert (committed(a, catalog), committed(b, catalog)[1]) == ({1: 2, 2: 3, 3: 3}, 11)
    with pytest.raises(lake.CommitConflictError, match=r"changed by both|changes rows of it"):
        change(lambda dataset: dataset.update({"v": "v + 10"}, "id = 1"))
    assert (committed(a, catalog)[1], committed(b, catalog)[1]) == (12, 11)


@pytest.mark.parametrize(
    ("other", "commits"),
    [
        (lambda d: d.update({"v": "0"}, "id = 2"), False),
        (lambda d: d.delete("id = 2"), False),
        (lambda d: lake.write_dataset(rows_of({2: 9}), d.uri, catalog=d._address.catalog), False),
        (lambda d: lake.write_dataset(rows_of({90: 9}), d.uri, catalog=d._address.catalog), True),
        (lambda d: d.compact(), True),
        (lambda d: d.add_column("w", pa.int64()), True),
    ],
    ids=["update", "delete", "append", "append elsewhere", "compact", "column"],
)
def test_a_serializable_transaction_conflicts_with_who_changes_what_it_read(
    other: Any, commits: bool, a: str, b: str, catalog: lake.Catalog
) -> None:
    def run(isolation: str | None) -> None:
        with lake.transaction(catalog, isolation=isolation) as tx:
            (value,) = tx.open_dataset(a).scan("id = 2").to_table()["v"].to_pylist()
            tx.open_dataset(b).update({"v": str(value)}, "id = 1")
            other(lake.open_dataset(a, catalog=catalog))

    if commits:
        run("serializable")
    else:
        with pytest.raises(lake.CommitConflictError, match="may have read"):
            run("serializable")
    assert committed(b, catalog)[1] == (2 if commits else 10)
    with lake.transaction(catalog) as tx:  # by default the read is not checked
        assert tx.open_dataset(a).scan("id = 3").count_rows() == 1
        tx.open_dataset(b).update({"v": "77"}, "id = 1")
        lake.open_dataset(a, catalog=catalog).delete("id = 3")
    assert committed(b, catalog)[1] == 77


def test_what_no_transaction_takes_is_refused_by_name(a: str, catalog: lake.Catalog) -> None:
    with lake.transaction(catalog) as tx:
        dataset = tx.open_dataset(a)
        dataset.update({"v": "v + 1"}, "id = 1")
        for refused in (
            lambda: dataset.vacuum(),
            lambda: dataset.expire_versions(keep_last=1),
            lambda: dataset.branch("x"),
            lambda: dataset.tag("x"),
            lambda: dataset.erase("id = 2"),
        ):
            with pytest.raises(lake.InvalidOptionError, match=r"'transaction'.*before it or after"):
                refused()
        assert dataset.version == 2
    assert committed(a, catalog) == {1: 2, 2: 2, 3: 3}
    with pytest.raises(lake.InvalidOptionError, match="has ended"):
        dataset.scan().to_table()
    with pytest.raises(lake.InvalidOptionError, match="'isolation'"):
        lake.transaction(catalog, isolation="strict")


def _dies(url: str, uri: str) -> None:
    import os

    with lake.transaction(url) as tx:
        dataset = tx.open_dataset(uri)
        dataset.update({"v": "v + 1"})
        dataset.add_column("w", pa.int64())
        tx.write(rows_of({5: 5}), uri)
        assert len(content(dataset.refresh())) == 4
        os._exit(7)


def test_a_process_that_dies_in_the_block_leaves_nothing_and_blocks_nobody(
    a: str, catalog: lake.Catalog
) -> None:
    if catalog.url.startswith("duckdb"):
        pytest.skip("one process at a time")
    assert processes.run(_dies, catalog.url, a) == 7
    dataset = lake.open_dataset(a, catalog=catalog)
    assert (content(dataset), dataset.version) == ({1: 1, 2: 2, 3: 3}, 1)
    dataset.update({"v": "v * 2"})
    assert content(dataset) == {1: 2, 2: 4, 3: 6}
    with catalog.read() as reader:
        assert len(reader.silent_writes(-1)) == 2  # a vacuum finds their files


def test_a_write_that_waits_is_registered_for_all_to_see(a: str, catalog: lake.Catalog) -> None:
    """A registration that was rolled back would let nobody find the files of a dead process."""
    with lake.transaction(catalog) as tx:
        tx.write(rows_of({7: 7}), a)
        assert tx.open_dataset(a).scan().count_rows() == 4
        (entry,) = tx._catalog._entries  # type: ignore[union-attr]
        with catalog.read() as reader:
            assert list(reader.silent_writes(-1)) == [entry.write_id]


def test_the_pair_of_an_application_commits_once(a: str, b: str, catalog: lake.Catalog) -> None:
    for number in range(2):
        with lake.transaction(catalog) as tx:
            pair = {"txn_app_id": "app", "txn_version": 1}
            tx.open_dataset(a).update({"v": "v + 1"}, "id = 1", **pair)
            tx.write(rows_of({9: number}), b, **pair)
    assert (committed(a, catalog)[1], committed(b, catalog)[9]) == (2, 0)


def test_upkeep_follows_the_commit(a: str, catalog: lake.Catalog) -> None:
    lake.open_dataset(a, catalog=catalog).set_properties(
        auto_compact=True, auto_compact_min_files=2
    )
    with lake.transaction(catalog) as tx:
        for id in range(10, 14):
            tx.write(rows_of({id: 0}), a)
        assert all(one.operation != "rewrite" for one in tx.open_dataset(a).history())
    assert lake.open_dataset(a, catalog=catalog).history()[0].operation == "rewrite"


def test_datasets_are_locked_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that changed the second one first waited for others, and they for it."""
    with lake.open_catalog(f"sqlite://{tmp_path}/order.db") as catalog:
        a, b = (str(tmp_path / name) for name in "ab")
        for uri in (a, b):
            lake.write_dataset({"id": [1]}, uri, catalog=catalog)
        locked: list[list[int]] = [[]]  # the ids of each transaction of the database
        replayed = TransactionCatalog._replayed

        def beginning(self: Any, *arguments: Any, **keywords: Any) -> Any:
            locked.append([])
            return replayed(self, *arguments, **keywords)

        monkeypatch.setattr(TransactionCatalog, "_replayed", beginning)

        def noted(name: str) -> None:
            lock = getattr(CatalogTransaction, name)

            def locking(tx: CatalogTransaction, *arguments: Any) -> Any:
                found = lock(tx, *arguments)
                record = getattr(found, "dataset", found)
                locked[-1].append(record.id)
                return found

            monkeypatch.setattr(CatalogTransaction, name, locking)

        for name in ("lock_dataset", "lock_for"):
            noted(name)
        with lake.transaction(catalog) as tx:
            tx.open_dataset(b).delete("id = 1")
            tx.open_dataset(a).delete("id = 1")
        firsts = [list(dict.fromkeys(ids)) for ids in locked]
        assert all(ids == sorted(ids) for ids in firsts), locked
        assert [1, 2] in firsts
