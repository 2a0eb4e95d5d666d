"""Clients read while writers commit, compact, expire and vacuum: the rows of one version, whole."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake
from tests.doors.rest_server import TOKEN, client_catalog, named, served

pytestmark = pytest.mark.slow


class Writer:
    """Changes a dataset until it is stopped. `states` are the ids that each version holds."""

    def __init__(self, catalog: lake.Catalog, dataset: lake.Dataset, seed: int) -> None:
        self._catalog = catalog
        self._dataset = dataset
        self._chance = random.Random(seed)
        self._ids = set(range(20))
        self._next = 20
        self.states = {dataset.version: frozenset(self._ids)}
        self.stopped = threading.Event()
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self._step()
        except BaseException as error:
            self.failures.append(error)

    def _step(self) -> None:
        action = self._chance.choice(("append", "append", "delete", "update", "compact", "vacuum"))
        dataset = self._dataset
        if action == "append":
            new = range(self._next, self._next + 5)
            self._next += 5
            # Before the commit: a reader may see the version at once.
            self._note(self._ids | set(new))
            lake.write_dataset(_rows(new), dataset.uri, catalog=self._catalog)
        elif action == "delete" and len(self._ids) > 5:
            some = set(self._chance.sample(sorted(self._ids), 3))
            self._note(self._ids - some)
            dataset.delete(f"id IN ({', '.join(map(str, some))})")
        elif action == "update":
            self._note(self._ids)
            dataset.update({"text": "'changed'"}, where=f"id % 5 = {self._chance.randrange(5)}")
        elif action == "compact":
            self._note(self._ids)
            dataset.compact(rewrite_deleted=self._chance.random() < 0.5)
        else:
            dataset.expire_versions(keep_last=1)
            dataset.vacuum()
        dataset.refresh()
        assert self.states[dataset.version] == self._ids

    def _note(self, ids: set[int]) -> None:
        self._ids = set(ids)
        self.states[self._dataset.version + 1] = frozenset(ids)


def _rows(ids: range) -> pa.Table:
    return pa.table({"id": ids, "part": [id % 2 for id in ids], "text": [f"t{id}" for id in ids]})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lake.Catalog]:
    url = f"sqlite:///{tmp_path}/lake.db"
    with lake.open_catalog(url, warehouse=str(tmp_path / "warehouse")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("seed", "length_seconds"),
    [(1, 4), *(pytest.param(seed, 20, marks=pytest.mark.long) for seed in range(2, 8))],
)
def test_a_table_that_was_loaded_is_read_to_its_end(
    catalog: lake.Catalog, seed: int, length_seconds: int
) -> None:
    dataset = named(catalog, "t", _rows(range(20)), partition_by="part")
    writer = Writer(catalog, dataset, seed)
    read: list[int] = []
    failures: list[str] = []

    def reads(uri: str, mode: str) -> None:
        while not writer.stopped.is_set():
            table = client_catalog(uri, mode).load_table("default.t")
            version = table.current_snapshot().snapshot_id
            time.sleep(0.3)  # several commits, and perhaps a vacuum
            try:
                ids = table.scan().to_arrow()["id"].to_pylist()
            except Exception as error:
                failures.append(f"version {version} by {mode}: {error!r}")
                return
            # Where PyIceberg names no version, `/plan` is of the newest one.
            newest = version if mode == "client" else max(writer.states)
            may_be = [sorted(writer.states.get(v, ())) for v in range(version, newest + 1)]
            if sorted(ids) not in may_be:
                failures.append(f"version {version} by {mode}: {sorted(ids)}")
            read.append(version)

    with served(catalog, token=TOKEN) as uri:
        threads = [threading.Thread(target=writer.run)]
        threads += [threading.Thread(target=reads, args=(uri, mode)) for mode in
                    ("client", "server")]  # fmt: skip
        for thread in threads:
            thread.start()
        time.sleep(length_seconds)
        writer.stopped.set()
        for thread in threads:
            thread.join()
    assert not writer.failures
    assert not failures
    assert len(set(read)) > 1
    assert len(writer.states) > 10
