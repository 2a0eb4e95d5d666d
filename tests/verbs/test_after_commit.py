"""The server is gone right after a COMMIT that it answered: the verb returns its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.backends import pooled
from tests.postgres_server import PostgresServer
from tests.verbs.cutting_proxy import DOWN, CuttingProxy

pytestmark = pytest.mark.slow

PAIR = {"txn_app_id": "a", "txn_version": 1}


def _columns(dataset: lake.Dataset) -> int:
    with dataset.update_schema() as schema:
        schema.rename_column("v", "w")
        schema.add_column("more", pa.string())
    return schema.committed.version


def _add_files(dataset: lake.Dataset) -> lake.WriteResult:
    folder = Path(dataset.uri.removeprefix("file://")) / "exports"
    folder.mkdir()
    pq.write_table(pa.table({"n": [9], "v": [9]}), folder / "1.parquet")
    return dataset.add_files(folder)


def _merge(dataset: lake.Dataset) -> lake.ChangeResult:
    merge = dataset.merge({"n": [1, 50], "v": [7, 7]}, "target.n = source.n", **PAIR)
    return merge.when_matched_delete().when_not_matched_insert_all().execute()


def _audit(dataset: lake.Dataset) -> None:
    lake.write_dataset(
        pa.table({"n": [8], "v": [8]}), dataset.branch("audit").uri, **_same(dataset)
    )


def _same(dataset: lake.Dataset) -> dict[str, Any]:
    return {"catalog": dataset._address.catalog}


VERBS: dict[str, Callable[[lake.Dataset], Any]] = {
    "delete": lambda d: d.delete("n = 1"),
    "delete with a pair": lambda d: d.delete("n = 1", **PAIR),
    "update": lambda d: d.update({"v": "v + 1"}, "n = 1"),
    "update with a pair": lambda d: d.update({"v": "v + 1"}, "n = 1", **PAIR),
    "upsert": lambda d: d.upsert({"n": [1, 40], "v": [5, 5]}, on="n"),
    "merge": _merge,
    "update_schema": _columns,
    "add_column": lambda d: d.add_column("more", pa.string()),
    "set_default": lambda d: d.set_default("v", 3),
    "rename_column": lambda d: d.rename_column("v", "w"),
    "drop_column": lambda d: d.drop_column("v"),
    "promote_column": lambda d: d.promote_column("v", pa.decimal128(19, 0)),
    "reorder_columns": lambda d: d.reorder_columns(["v"]),
    "set_nullable": lambda d: d.set_nullable("v", False),
    "set_comment": lambda d: d.set_comment("v", "a value"),
    "add_constraint": lambda d: d.add_constraint("positive", "n >= 0"),
    "drop_constraint": lambda d: d.drop_constraint("old"),
    "set_table_properties": lambda d: d.set_table_properties({"owner": "ann"}),
    "set_properties": lambda d: d.set_properties(compression="snappy"),
    "compact": lambda d: d.compact(),
    "add_files": _add_files,
    "restore": lambda d: d.restore(1),
    "tag": lambda d: d.tag("spring"),
    "add_consumer": lambda d: d.add_consumer("billing", version=1),
    "advance_consumer": lambda d: d.advance_consumer("audit", 2),
    "drop_consumer": lambda d: d.drop_consumer("audit"),
    "drop_tag": lambda d: d.drop_tag("old"),
    "branch": lambda d: d.branch("more", version=1).uri.rpartition("#")[2],
    "fast_forward": lambda d: d.fast_forward("audit"),
    "drop_branch": lambda d: d.drop_branch("audit"),
    "clone": lambda d: d.clone(d.uri + "-clone").uri.rpartition("-")[2],
    "expire_versions": lambda d: d.expire_versions(keep_last=1).oldest_version,
    "write_dataset": lambda d: lake.write_dataset({"n": [7], "v": [7]}, d.uri, **_same(d)),
    "write_dataset with a pair": lambda d: lake.write_dataset(
        {"n": [7], "v": [7]}, d.uri, **_same(d), **PAIR
    ),
    "write_dataset that compacts": lambda d: lake.write_dataset(
        {"n": [7], "v": [7]}, d.uri, **_same(d), auto_compact=True, auto_compact_min_files=3
    ),
}
# The COMMIT after which the verb has done what it says; of the others it is the last one.
DECIDES = {"drop_branch": 1, "write_dataset that compacts": 2}
# What each verb finds beside two versions.
BEFORE_IT: dict[str, Callable[[lake.Dataset], None]] = {
    "drop_tag": lambda d: d.tag("old", version=1),
    "drop_constraint": lambda d: d.add_constraint("old", "n >= 0"),
    "advance_consumer": lambda d: d.add_consumer("audit", version=1),
    "drop_consumer": lambda d: d.add_consumer("audit", version=1),
    "fast_forward": _audit,
    "drop_branch": _audit,
}


@pytest.fixture
def url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(pooled, "_FIRST_PAUSE_SECONDS", 0.0005)
    return postgres_server.new_catalog()


@pytest.fixture
def direct(url: str) -> Iterator[lake.catalog.Catalog]:
    with lake.open_catalog(url) as catalog:
        yield catalog


def through(url: str, proxy: CuttingProxy) -> str:
    return url.partition("?")[0] + f"?host={proxy.folder}"


def test_every_verb_of_a_dataset_that_commits_is_tried() -> None:
    assert VERBS.keys() >= {
        name
        for name in dir(lake.Dataset)
        if not name.startswith("_")
        and callable(getattr(lake.Dataset, name))
        and name
        not in {
            *("branches", "files", "history", "read_changes", "refresh", "scan", "tags", "verify"),
            *("consumers", "health", "suggest_layout"),
            # They take several transactions, and do nothing twice that was done.
            *("changes", "cluster", "erase", "export_iceberg", "maintain", "optimize", "vacuum"),
        }
    }


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.sampled(6)
def test_what_was_committed_returns_its_result(
    verb: str,
    url: str,
    direct: lake.catalog.Catalog,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    """It raised CatalogUnavailableError, which says that nothing was committed."""
    answers, found, cut_at = [], [], 0
    with CuttingProxy(
        postgres_server.socket_folder, lambda number: DOWN if number == cut_at else None
    ) as proxy:
        for name in ("plain", "cut"):
            uri = str(tmp_path / name)
            for number in range(2):
                lake.write_dataset({"n": [number], "v": [number]}, uri, catalog=direct)
            known = lake.open_dataset(uri, catalog=direct)
            BEFORE_IT.get(verb, lambda _: None)(known)
            with lake.open_catalog(through(url, proxy)) as catalog:
                dataset = lake.open_dataset(uri, catalog=catalog)
                answers.append(str(VERBS[verb](dataset)))
                assert proxy.down == (name == "cut")
                proxy.down = False
                newest = known.refresh()
                if verb.startswith("write_dataset"):
                    dataset.refresh()
                # The verb moved its handle, or the handle moves now.
                assert dataset.version == newest.version
                assert dataset.schema == newest.schema
                rows = newest.scan().to_table()
                found.append((newest.version, rows, newest.tags(), newest.branches()))
            cut_at = proxy.commits + DECIDES.get(verb, proxy.commits)
    assert answers[0] == answers[1]
    if verb != "write_dataset that compacts":
        assert found[0] == found[1]


def test_a_handle_whose_version_is_not_known_says_so(
    url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    uri = str(tmp_path / "things")
    lake.write_dataset({"n": [1, 2]}, uri, catalog=url)
    with CuttingProxy(
        postgres_server.socket_folder, lambda number: DOWN if number == 2 else None
    ) as proxy:
        dataset = lake.open_dataset(uri, catalog=through(url, proxy))
        assert dataset.delete("n = 1").rows_deleted == 1
        assert repr(dataset) == f"Dataset('file://{uri}', version=unknown)"
        with pytest.raises(lake.CatalogUnavailableError):
            _ = dataset.version
        proxy.down = False
        assert repr(dataset.refresh()).endswith("version=2)")


def test_names_that_were_given_and_taken_away_are_no_error(
    url: str, direct: lake.catalog.Catalog, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    schema = pa.schema([("n", pa.int64())])
    for name in ("old a", "old b"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"n": [1]}), tmp_path / name / "1.parquet")
    cut_at = 0
    with CuttingProxy(
        postgres_server.socket_folder, lambda number: DOWN if number == cut_at else None
    ) as proxy:

        def act(name: str, number: int) -> bool:
            with lake.open_catalog(through(url, proxy), warehouse=tmp_path) as catalog:
                made = None
                if number == 0:
                    made = catalog.create_dataset(name, schema)
                elif number == 1:
                    made = lake.convert(tmp_path / f"old {name}", catalog=catalog)
                else:
                    catalog.drop(name, purge=True)
                was_down, proxy.down = proxy.down, False
                assert made is None or made.version == 1
                return was_down

        act("first", 0)  # the first one of a catalog commits more
        for number in range(3):
            before = proxy.commits
            act("a", number)
            # The last COMMIT; of a drop the first, before the files are deleted.
            cut_at = proxy.commits + (proxy.commits - before if number < 2 else 1)
            assert act("b", number)
    plain = lake.open_catalog(direct, warehouse=tmp_path)
    assert [one.name for one in plain.datasets()] == ["first"]
    assert plain.finish_drops() == 1
