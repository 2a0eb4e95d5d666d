"""What four processes commit at once has the anomalies that its isolation allows, and no others.

`serializable` allows none. By default a transaction may miss what others commit between its reads,
and between its reads and its end; docs/concepts.md shows each case.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from tests import processes
from tests.histories import Done, anomalies
from tests.verbs.conftest import empty_catalog

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

PROCESSES = 4
TRANSACTIONS = 3
ITEMS = [(dataset, id) for dataset in ("a", "b") for id in (0, 1)]
ALLOWED = {"G-single", "write skew", "G2-item", "lost update"}


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lake.Catalog]:
    with empty_catalog(request, tmp_path) as opened:
        yield opened


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split()]


def value(dataset: lake.Dataset, id: int) -> list[int]:
    (text,) = dataset.scan(f"id = {id}").to_table()["v"].to_pylist()
    return numbers(text)


def append(dataset: lake.Dataset, id: int, number: int, how: str, isolation: str) -> None:
    if how == "merge":
        # The other row is matched too, and left alone.
        source = pa.table({"id": [id, 1 - id], "w": [f"{number} ", ""]})
        merge = dataset.merge(source, "target.id = source.id", isolation=isolation)
        merge = merge.when_matched_update({"v": "concat(target.v, source.w)"}, f"source.id = {id}")
        merge.when_not_matched_insert({"id": "source.id", "v": "source.w"}).execute()
    else:
        dataset.update({"v": f"concat(v, '{number} ')"}, f"id = {id}", isolation=isolation)


def run(
    catalog: lake.Catalog, folder: str, draw: random.Random, name: str, isolation: str | None
) -> Done:
    """One transaction, or one statement alone, of random acts."""
    acts: list[Any] = []
    each = isolation or "write-serializable"
    try:
        if draw.random() < 0.25:
            where, id = draw.choice(ITEMS)
            acts.append(("append", where + str(id), draw.getrandbits(48)))
            dataset = lake.open_dataset(f"{folder}/{where}", catalog=catalog)
            append(dataset, id, acts[0][2], draw.choice(("update", "merge")), each)
            return Done(name, True, acts)
        with lake.transaction(catalog, isolation=isolation) as tx:
            for _ in range(draw.choice((1, 2, 2, 3))):
                where, id = draw.choice(ITEMS)
                dataset = tx.open_dataset(f"{folder}/{where}")
                how = draw.choice(("read", "read", "update", "merge", "computed"))
                number = draw.getrandbits(48)
                seen = value(dataset, id) if how in ("read", "computed") else []
                if how in ("read", "computed"):
                    acts.append(("read", where + str(id), seen))
                if how == "computed":
                    text = "".join(f"{one} " for one in [*seen, number])
                    dataset.update({"v": f"'{text}'"}, f"id = {id}")
                elif how != "read":
                    append(dataset, id, number, how, each)
                if how != "read":
                    acts.append(("append", where + str(id), number))
        return Done(name, True, acts)
    except lake.CommitConflictError:
        return Done(name, False, acts)


def worker(url: str, number: int, jobs: Any, answers: Any) -> None:
    with lake.open_catalog(url) as catalog:
        while (job := jobs.get()) is not None:
            folder, seed, isolation = job
            draw = random.Random(f"{seed} {number}")
            answers.put(
                [
                    run(catalog, folder, draw, f"{number}.{count}", isolation)
                    for count in range(TRANSACTIONS)
                ]
            )


@contextmanager
def workers(catalog: lake.Catalog) -> Iterator[Callable[[str, int, str | None], list[Done]]]:
    jobs = [processes.CONTEXT.Queue() for _ in range(PROCESSES)]
    answers = processes.CONTEXT.Queue()
    every = [
        processes.start(worker, catalog.url, number, one, answers)
        for number, one in enumerate(jobs)
    ]

    def history(folder: str, seed: int, isolation: str | None) -> list[Done]:
        for one in jobs:
            one.put((folder, seed, isolation))
        return [done for _ in jobs for done in answers.get(timeout=120)]

    try:
        yield history
        for one in jobs:
            one.put(None)
        for process in every:
            process.join(30)
            assert process.exitcode == 0
    finally:
        for process in every:
            process.kill()


def check(
    catalog: lake.Catalog, tmp_path: Path, seeds: range, isolation: str | None, allowed: set[str]
) -> tuple[set[str], int]:
    """Run histories; returns the anomalies that were seen, and how many transactions committed."""
    seen: set[str] = set()
    committed = 0
    with workers(catalog) as history:
        for seed in seeds:
            folder = str(tmp_path / str(seed))
            rows = pa.table({"id": pa.array([0, 1], pa.int64()), "v": ["", ""]})
            draw = random.Random(seed)
            for where in "ab":
                lake.write_dataset(
                    rows,
                    f"{folder}/{where}",
                    catalog=catalog,
                    rewrite_threshold=draw.choice((0.3, 1.0)),
                )
            found = history(folder, seed, isolation)
            last = {}
            for where, id in ITEMS:
                dataset = lake.open_dataset(f"{folder}/{where}", catalog=catalog)
                last[where + str(id)] = value(dataset, id)
            told = anomalies(found, last)
            assert told <= allowed, (seed, told, found, last)
            seen |= told
            committed += sum(one.committed for one in found)
    return seen, committed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", [0])
def test_serializable_transactions_of_four_processes_have_an_order(
    first: int, catalog: lake.Catalog, tmp_path: Path
) -> None:
    _, committed = check(catalog, tmp_path, range(first, first + 5), "serializable", set())
    assert committed > 5


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_a_thousand_serializable_histories_have_an_order(
    first: int, catalog: lake.Catalog, tmp_path: Path
) -> None:
    _, committed = check(catalog, tmp_path, range(first, first + 100), "serializable", set())
    assert committed > 100


@pytest.mark.long
def test_the_default_allows_no_more_than_it_says(catalog: lake.Catalog, tmp_path: Path) -> None:
    seen, _ = check(catalog, tmp_path, range(5000, 5100), None, ALLOWED)
    assert seen & ALLOWED  # else the histories would show nothing


# --- an example of each anomaly that the default allows ----------------------------------


@pytest.fixture
def pair(catalog: lake.Catalog, tmp_path: Path) -> tuple[str, str]:
    rows = pa.table({"id": pa.array([0, 1], pa.int64()), "v": ["", ""]})
    for where in "ab":
        lake.write_dataset(rows, str(tmp_path / where), catalog=catalog)
    return str(tmp_path / "a"), str(tmp_path / "b")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("isolation", [None, "serializable"])
@pytest.mark.parametrize("anomaly", ["write skew", "G-single", "lost update"])
def test_what_the_default_allows_and_serializable_refuses(
    anomaly: str, isolation: str | None, catalog: lake.Catalog, pair: tuple[str, str]
) -> None:
    a, b = pair

    def one() -> Done:
        acts: list[Any] = []
        try:
            with lake.transaction(catalog, isolation=isolation) as tx:
                acts.append(("read", "a0", value(tx.open_dataset(a), 0)))
                two()
                if anomaly == "write skew":
                    append(tx.open_dataset(b), 0, 1, "update", "snapshot")
                    acts.append(("append", "b0", 1))
                elif anomaly == "G-single":
                    acts.append(("read", "b0", value(tx.open_dataset(b), 0)))
                else:
                    tx.open_dataset(a).update({"v": "'1 '"}, "id = 0")
                    acts.append(("append", "a0", 1))
            return Done("one", True, acts)
        except lake.CommitConflictError:
            return Done("one", False, acts)

    done: list[Done] = []

    def two() -> None:
        with lake.transaction(catalog, isolation=isolation) as tx:
            seen = value(tx.open_dataset(b), 0) if anomaly == "write skew" else None
            acts: list[Any] = [] if seen is None else [("read", "b0", seen)]
            for where, item in ((a, "a0"), (b, "b0"))[: 2 if anomaly == "G-single" else 1]:
                append(tx.open_dataset(where), 0, 2, "update", "snapshot")
                acts.append(("append", item, 2))
        done.append(Done("two", True, acts))

    done.append(one())
    last = {
        "a0": value(lake.open_dataset(a, catalog=catalog), 0),
        "b0": value(lake.open_dataset(b, catalog=catalog), 0),
    }
    assert done[-1].committed is (isolation is None)
    told = anomalies(done, last)
    assert (anomaly in told) if isolation is None else not told
