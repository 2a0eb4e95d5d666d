"""Under `serializable`, statements at once have the result of some order, one after the other.

A statement has found its rows. Before it commits, others begin and commit, which may be overtaken
in the same way. What those that committed left is compared with a plain program that runs them in
every order.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.write.commit import commit as committing

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

Row = tuple[int, int]
ON = "target.id = source.id"
HISTORIES = 60


def table(rows: Iterable[Row]) -> pa.Table:
    ids, values = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64())})


def content(dataset: lake.Dataset) -> Counter[Row]:
    found = dataset.refresh().scan(columns=["id", "v"]).to_table()
    return Counter(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture
def dataset(catalog: lake.Catalog, tmp_path: Path) -> lake.Dataset:
    """Rows 3 and 5 in one file."""
    uri = str(tmp_path / "things")
    lake.write_dataset(table([(3, 0), (5, 0)]), uri, catalog=catalog, rewrite_threshold=1.0)
    return lake.open_dataset(uri, catalog=catalog)


def overtaken(mine: Callable[[], Any], others: Callable[[], Any]) -> bool:
    """Run `others` when `mine` has written everything; tell whether `mine` then commits."""
    commit = committing._commit_prepared
    patch = pytest.MonkeyPatch()

    def later(*arguments: Any) -> Any:
        patch.undo()
        others()
        return commit(*arguments)

    patch.setattr(committing, "_commit_prepared", later)
    try:
        mine()
    except lake.CommitConflictError:
        return False
    finally:
        patch.undo()
    return True


def swap(dataset: lake.Dataset, gone: int, new: int, isolation: str = "serializable") -> None:
    """Delete a row if it is there, and insert another one if it is not."""
    merge = dataset.merge(table([(gone, 1), (new, 1)]), ON, isolation=isolation)
    merge = merge.when_matched_delete(f"source.id = {gone}")
    merge.when_not_matched_insert_all(f"source.id = {new}").execute()


@pytest.mark.parametrize(("mine", "theirs"), [((3, 5), (5, 3)), ((5, 3), (3, 5))])
def test_two_merges_that_read_what_the_other_deletes_do_not_both_commit(
    dataset: lake.Dataset, mine: tuple[int, int], theirs: tuple[int, int]
) -> None:
    assert not overtaken(lambda: swap(dataset, *mine), lambda: swap(dataset, *theirs))
    assert content(dataset) == Counter({(theirs[1], 0): 1})
    swap(dataset, *mine)
    assert content(dataset) == Counter({(mine[1], 1): 1})


def test_snapshot_takes_both_merges(dataset: lake.Dataset) -> None:
    assert overtaken(lambda: swap(dataset, 3, 5, "snapshot"), lambda: swap(dataset, 5, 3))
    assert content(dataset) == Counter()


def test_two_merges_that_touch_other_rows_of_one_file_both_commit(dataset: lake.Dataset) -> None:
    def merge(id: int) -> None:
        one = dataset.merge(table([(id, 1)]), ON, isolation="serializable")
        one.when_matched_update_all().when_not_matched_insert_all().execute()

    lake.write_dataset(table([(7, 0)]), dataset.uri, catalog=dataset._address.catalog)
    assert overtaken(lambda: merge(3), lambda: merge(5))
    assert content(dataset) == Counter([(3, 1), (5, 1), (7, 0)])


def test_a_merge_does_not_miss_that_the_row_it_left_alone_was_deleted(
    dataset: lake.Dataset,
) -> None:
    def merge() -> None:
        one = dataset.merge(table([(3, 1), (9, 1)]), ON, isolation="serializable")
        one.when_not_matched_insert_all().execute()

    assert not overtaken(merge, lambda: dataset.delete("id = 3"))
    assert overtaken(merge, lambda: dataset.delete("id = 5"))
    assert content(dataset) == Counter([(3, 1), (9, 1)])


def test_updates_of_each_others_condition_do_not_both_commit(dataset: lake.Dataset) -> None:
    """Each would make the rows of the other one its own: black ones white, white ones black."""
    dataset.update({"v": 1}, "id = 5")

    def paint(old: int, new: int) -> None:
        dataset.update({"v": new}, f"v = {old}", isolation="serializable")

    assert not overtaken(lambda: paint(0, 1), lambda: paint(1, 0))
    assert content(dataset) == Counter([(3, 0), (5, 0)])


@pytest.mark.parametrize(("id", "commits"), [(4, False), (40, True)])
def test_a_delete_does_not_miss_a_row_that_was_inserted(
    dataset: lake.Dataset, id: int, commits: bool
) -> None:
    def insert() -> None:
        lake.write_dataset(table([(id, 0)]), dataset.uri, catalog=dataset._address.catalog)

    def delete() -> None:
        dataset.delete("id < 5", isolation="serializable")

    assert overtaken(delete, insert) is commits


# --- random histories -----------------------------------------------------------------


@dataclass
class Statement:
    """What a writer does, and the same in plain Python. `inner` run before it commits."""

    told: str
    run: Callable[[lake.Dataset], Any]
    plain: Callable[[Counter[Row]], Counter[Row]]
    inner: list[Statement] = field(default_factory=list)


def drawn(draw: random.Random, partitioned: bool, depth: int = 2) -> Statement:
    kinds = [_delete, _update, _insert, _merge, _merge, _swap, _swap, _overwrite_where]
    kinds += [_overwrite_partitions] * 2 if partitioned else []
    one = draw.choice(kinds)(draw)
    if depth:
        inner = range(draw.choice((0, 1, 1, 2)))
        one.inner = [drawn(draw, partitioned, depth - 1) for _ in inner]
    return one


def _overwrite(told: str, new: Sequence[Row], replaced: Callable[[Row], bool], **how: Any) -> Any:
    return Statement(
        f"{told} {new}",
        lambda d: lake.write_dataset(
            table(new), d.uri, mode="overwrite", catalog=d._address.catalog, **how
        ),
        lambda rows: Counter({r: n for r, n in rows.items() if not replaced(r)}) + Counter(new),
    )


def _overwrite_where(draw: random.Random) -> Statement:
    text, holds = _condition(draw)
    every = [(id, v) for id in range(4) for v in range(4) if holds((id, v))]
    new = draw.sample(every, min(len(every), draw.choice((1, 2))))
    if not new:  # a table of no rows has no columns here
        return _insert(draw)
    return _overwrite(f"OVERWRITE WHERE {text}", new, holds, overwrite_where=text)


def _overwrite_partitions(draw: random.Random) -> Statement:
    new = [(draw.randrange(4), draw.randrange(4)) for _ in range(draw.choice((1, 2)))]
    ids = {id for id, _ in new}
    dynamic = {"partition_overwrite_mode": "dynamic"}
    return _overwrite("OVERWRITE PARTITIONS", new, lambda row: row[0] in ids, **dynamic)


def _condition(draw: random.Random) -> tuple[str, Callable[[Row], bool]]:
    place, name = draw.choice(((0, "id"), (1, "v")))
    value = draw.randrange(4)
    return draw.choice(
        (
            (f"{name} = {value}", lambda row: row[place] == value),
            (f"{name} < {value}", lambda row: row[place] < value),
            (f"{name} % 2 = {value % 2}", lambda row: row[place] % 2 == value % 2),
        )
    )


def _delete(draw: random.Random) -> Statement:
    text, holds = _condition(draw)
    return Statement(
        f"DELETE {text}",
        lambda dataset: dataset.delete(text, isolation="serializable"),
        lambda rows: Counter({row: n for row, n in rows.items() if not holds(row)}),
    )


def _update(draw: random.Random) -> Statement:
    text, holds = _condition(draw)
    step = draw.randrange(1, 4)

    def plain(rows: Counter[Row]) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for (id, v), n in rows.items():
            found[(id, (v + step) % 4) if holds((id, v)) else (id, v)] += n
        return found

    value = f"(v + {step}) % 4"
    return Statement(
        f"UPDATE v = {value} WHERE {text}",
        lambda dataset: dataset.update({"v": value}, text, isolation="serializable"),
        plain,
    )


def _insert(draw: random.Random) -> Statement:
    row = (draw.randrange(4), draw.randrange(4))
    return Statement(
        f"INSERT {row}",
        lambda d: lake.write_dataset(table([row]), d.uri, catalog=d._address.catalog),
        lambda rows: rows + Counter([row]),
    )


def _merge(draw: random.Random) -> Statement:
    source = {id: draw.randrange(4) for id in draw.sample(range(4), draw.choice((1, 2, 3)))}
    matched = draw.choice(("none", "delete", "update", "delete some", "update some"))
    inserts = draw.random() < 0.7 or matched == "none"
    by_source = draw.choice((None, None, None, 0, 1))

    def run(dataset: lake.Dataset) -> None:
        one = dataset.merge(table(source.items()), ON, isolation="serializable")
        if matched != "none":
            some = "target.v < source.v" if matched.endswith("some") else None
            add = one.when_matched_delete
            one = one.when_matched_update_all(some) if "update" in matched else add(some)
        if inserts:
            one = one.when_not_matched_insert_all()
        if by_source is not None:
            one = one.when_not_matched_by_source_delete(f"target.v = {by_source}")
        one.execute()

    def plain(rows: Counter[Row]) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for (id, v), n in rows.items():
            if id not in source:
                if v != by_source:
                    found[id, v] += n
            elif matched == "none" or (matched.endswith("some") and not v < source[id]):
                found[id, v] += n
            elif "update" in matched:
                found[id, source[id]] += n
        there = {id for id, _ in rows}
        if inserts:
            found.update((id, v) for id, v in source.items() if id not in there)
        return found

    return Statement(f"MERGE {source} {matched} {inserts} {by_source}", run, plain)


def _swap(draw: random.Random) -> Statement:
    gone, new = draw.sample(range(4), 2)

    def plain(rows: Counter[Row]) -> Counter[Row]:
        left = Counter({row: n for row, n in rows.items() if row[0] != gone})
        return left if any(id == new for id, _ in rows) else left + Counter([(new, 1)])

    return Statement(f"SWAP {gone} {new}", lambda d: swap(d, gone, new), plain)


def carried_out(dataset: lake.Dataset, one: Statement, done: list[Statement]) -> None:
    """Run a statement and what overtakes it; `done` gets those that committed."""

    def others() -> None:
        for inner in one.inner:
            carried_out(dataset, inner, done)

    began: list[bool] = []

    def overtake() -> None:
        began.append(True)
        others()

    fresh = lake.open_dataset(dataset.uri, catalog=dataset._address.catalog)
    if overtaken(lambda: one.run(fresh), overtake):
        done.append(one)
    if not began:  # it changed nothing, and so had nothing to commit
        others()


def serial(rows: Counter[Row], order: Sequence[Statement]) -> Counter[Row]:
    for one in order:
        rows = +one.plain(rows)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, HISTORIES, 20))
def test_random_histories_are_those_of_some_order(
    first: int, catalog: lake.Catalog, tmp_path: Path
) -> None:
    refused = 0
    for number in range(first, first + 20):
        draw = random.Random(number)
        rows = Counter((draw.randrange(4), draw.randrange(4)) for _ in range(draw.randrange(1, 5)))
        uri = str(tmp_path / f"history{number}")
        threshold = 1.0 if number % 2 else 0.3
        elements = list(rows.elements())
        cut = draw.randrange(len(elements)) + 1
        by = ["id"] if number % 3 else []
        options: dict[str, Any] = {"rewrite_threshold": threshold, "partition_by": by}
        lake.write_dataset(table(elements[:cut]), uri, catalog=catalog, **options)
        if elements[cut:]:
            lake.write_dataset(table(elements[cut:]), uri, catalog=catalog)
        dataset = lake.open_dataset(uri, catalog=catalog)
        one = drawn(draw, bool(by))
        done: list[Statement] = []
        carried_out(dataset, one, done)
        left = content(dataset)
        refused += len(done) == 0
        orders = itertools.permutations(done)
        told = [statement.told for statement in done]
        assert any(serial(rows, order) == left for order in orders), (number, rows, told, left)
    assert refused < 20
