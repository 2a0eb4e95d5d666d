"""What writers in processes of their own do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import lakehouse_source as lake
from lakehouse_source import failpoints


def write_once(
    url: str, uri: str, table: pa.Table, arguments: dict[str, Any], point: str | None, answers: Any
) -> None:
    """One write that may be killed; its result or error is sent to `answers`."""
    failpoints.arm(point)
    with lake.open_catalog(url) as catalog:
        try:
            result = lake.write_dataset(table, uri, catalog=catalog, **arguments)
        except lake.PlakeError as error:
            answers.send(error)
        else:
            answers.send(result.version)


def change_rows_once(
    url: str, uri: str, statement: str, arguments: dict[str, Any], point: str | None, answers: Any
) -> None:
    """One statement that may be killed; its result or error is sent to `answers`."""
    failpoints.arm(point)
    with lake.open_catalog(url) as catalog:
        try:
            result = change_rows(lake.open_dataset(uri, catalog=catalog), statement, **arguments)
        except lake.PlakeError as error:
            answers.send(error)
        else:
            answers.send(result.version)


def change_rows(dataset: lake.Dataset, statement: str, **arguments: Any) -> lake.ChangeResult:
    """One of three statements, over a dataset with the columns `id` and `k`."""
    if statement == "delete":
        return dataset.delete("id BETWEEN 1 AND 3", **arguments)
    if statement == "update":
        return dataset.update({"k": "concat(k, k)"}, "id BETWEEN 1 AND 3", **arguments)
    source = pa.table({"id": pa.array([3, 4, 9], pa.int64()), "k": ["x", "y", "z"]})
    merge = dataset.merge(source, "target.id = source.id", **arguments)
    merge = merge.when_matched_delete("source.k = 'x'").when_matched_update_all()
    return merge.when_not_matched_insert_all().execute()


# --- many writers of one dataset ------------------------------------------------


@dataclass(frozen=True)
class Done:
    """A commit that a writer was told of: its version, its change, and what it was made with."""

    version: int
    kind: str
    writer: int
    number: int
    argument: int


def write_many(url: str, uri: str, writer: int, count: int, answers: Any) -> None:
    """Commit `count` changes of all kinds, one after the other; retries conflicts."""
    rng = random.Random(writer)
    done: list[Done] = []
    conflicts = 0
    try:
        with lake.open_catalog(url) as catalog:
            while len(done) < count:
                number = len(done)
                kind = rng.choices(
                    ["append", "overwrite where", "add column", "restore"], [70, 20, 5, 5]
                )[0]
                argument = rng.randrange(4)
                try:
                    version = _change(catalog, uri, kind, writer, number, argument)
                except lake.CommitConflictError:
                    conflicts += 1
                    continue
                done.append(Done(version[0], kind, writer, number, version[1]))
    except BaseException as error:
        answers.send((done, conflicts, f"{type(error).__name__}: {error}"))
        raise
    answers.send((done, conflicts, None))


def _change(
    catalog: lake.Catalog, uri: str, kind: str, writer: int, number: int, argument: int
) -> tuple[int, int]:
    """Make one change; answers its version, and the slot or version that it was made with."""
    if kind == "restore":
        dataset = lake.open_dataset(uri, catalog=catalog)
        back = max(1, dataset.version - argument)
        return dataset.restore(back).version, back
    row: dict[str, Any] = {"writer": [writer], "number": [number], "slot": [argument]}
    arguments: dict[str, Any] = {}
    if kind == "add column":
        row[f"c{writer}_{number}"] = [number]
        arguments["schema_merge"] = True
    if kind == "overwrite where":
        arguments = {"mode": "overwrite", "overwrite_where": f"slot = {argument}"}
    result = lake.write_dataset(pa.table(row), uri, catalog=catalog, **arguments)
    return result.version, argument


# --- writers whose rows others cluster ------------------------------------------


def change_own_rows(url: str, uri: str, writer: int, count: int, answers: Any) -> None:
    """Commit `count` appends, updates and deletes of the writer's own rows; retries conflicts.

    The answer are the commits, and how many attempts conflicted. `argument` is that of the
    condition `n % 7 = argument` on the writer's rows. An append is of 40 rows.
    """
    rng = random.Random(writer)
    done: list[Done] = []
    conflicts = 0
    with lake.open_catalog(url) as catalog:
        while len(done) < count:
            kind = rng.choices(["append", "update", "delete"], [5, 3, 1])[0] if done else "append"
            number, argument = len(done), rng.randrange(7)
            where = f"writer = {writer} AND n % 7 = {argument}"
            dataset = lake.open_dataset(uri, catalog=catalog)
            try:
                if kind == "append":
                    rows = own_rows(writer, number)
                    version = lake.write_dataset(rows, uri, catalog=catalog).version
                else:
                    if kind == "update":
                        changed = dataset.update({"a": "a + 1000"}, where)
                    else:
                        changed = dataset.delete(where)
                    if not changed.rows_updated + changed.rows_deleted:
                        continue  # there was nothing to commit
                    version = changed.version
            except lake.CommitConflictError:
                conflicts += 1
                continue
            done.append(Done(version, kind, writer, number, argument))
    answers.send((done, conflicts))


def own_rows(writer: int, number: int) -> pa.Table:
    """The rows of an append: `a` is any number, NULL or so."""
    rng = random.Random(1000 * writer + number)
    numbers = range(40 * number, 40 * number + 40)
    return pa.table(
        {
            "writer": [writer] * 40,
            "n": list(numbers),
            "a": pa.array([rng.choice([None, rng.randrange(500)]) for _ in numbers], pa.int64()),
            "b": [rng.choice([float("nan"), -0.0, rng.random()]) for _ in numbers],
        }
    )


def cluster_again_and_again(url: str, uri: str, seed: int, ends: Any) -> None:
    """Until `ends` is set, or the process is killed."""
    rng = random.Random(seed)
    with lake.open_catalog(url) as catalog:
        while not ends.is_set():
            dataset = lake.open_dataset(uri, catalog=catalog)
            try:
                if rng.random() < 0.2:
                    dataset.compact()
                else:
                    dataset.cluster(full=rng.random() < 0.3)
            except lake.CommitConflictError:
                continue


# --- many writers of the same keys ------------------------------------------------


def write_keys(url: str, uri: str, writer: int, keys: int, answers: Any) -> None:
    """Try to append or upsert each key; answers those that this writer has inserted."""
    rng = random.Random(writer)
    won: list[tuple[int, int]] = []
    try:
        with lake.open_catalog(url) as catalog:
            dataset = lake.open_dataset(uri, catalog=catalog)
            for key in rng.sample(range(keys), keys):
                row = {"id": [key], "writer": [writer]}
                while True:
                    try:
                        if rng.random() < 0.5:
                            lake.write_dataset(row, uri, catalog=catalog)
                            won.append((key, writer))
                        else:
                            merge = dataset.refresh().merge(
                                row, "target.id = source.id", isolation="snapshot"
                            )
                            if merge.when_not_matched_insert_all().execute().rows_inserted:
                                won.append((key, writer))
                        break
                    except lake.ConstraintViolationError:
                        break
                    except lake.CommitConflictError:
                        continue
        answers.send(won)
    except BaseException as error:
        answers.send(repr(error))
        raise
