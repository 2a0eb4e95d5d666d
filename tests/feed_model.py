"""Random histories of a dataset, and what its change feed should say of them.

What each version holds is read by scans, which know nothing of the feed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakehouse_source as lake

Row = tuple[Any, ...]
Change = tuple[int, int, str, dict[str, Any]]  # version, identity, kind, values by label
LABELS = ("k", "v", "p", "new")  # what a column is, whatever it is called

ACTIONS = (
    *("append", "update", "update", "delete", "delete", "upsert", "merge", "overwrite where"),
    *("update to the same", "overwrite", "dynamic", "restore", "compact", "rename", "promote"),
    *("add", "drop", "transaction", "branch", "add files", "other partitions", "rewrite deleted"),
)
WITHOUT_IMAGES = {"update_preimage": "delete", "update_postimage": "insert"}


class History:
    """A random history, and what each version holds: rows by identity, values by label."""

    def __init__(self, seed: int, uri: str, catalog: lake.Catalog) -> None:
        self.chance = random.Random(seed)
        self.uri, self.catalog = uri, catalog
        self.next_key = 0
        self.default: int | None = None
        self.defaults: dict[int, int | None] = {}  # of the column `new`, by version
        self.oldest = 1  # the first version that was not expired
        self.replaced: list[int] = []  # versions at which all columns were new
        self._begin_columns()
        self.partitioned = self.chance.random() < 0.5
        partition_by = "p" if self.partitioned else None
        lake.write_dataset(self.rows(8), uri, catalog=catalog, partition_by=partition_by)
        self.dataset = lake.open_dataset(uri, catalog=catalog)
        if self.chance.random() < 0.5:
            threshold = self.chance.choice([0.01, 0.9])
            self.dataset.set_properties(rewrite_threshold=threshold)
        self.states: dict[int, dict[int, dict[str, Any]]] = {0: {}}
        self.named: dict[int, dict[str, str]] = {0: {}}
        self.typed: dict[int, dict[str, pa.DataType]] = {}
        self.note()

    def _begin_columns(self) -> None:
        self.names = {"k": "k", "v": "v", "p": "p"}
        self.types = {"k": pa.int32(), "v": pa.string(), "p": pa.int32(), "new": pa.int64()}

    def note(self) -> None:
        """Read the versions that are new, each with the names that its columns have."""
        self.dataset.refresh()
        for version in range(len(self.states), self.dataset.version + 1):
            columns = [*self.names.values(), "_row_id"]
            rows = self.dataset.scan(version=version, columns=columns).to_table().to_pylist()
            self.states[version] = {
                row["_row_id"]: {label: row[name] for label, name in self.names.items()}
                for row in rows
            }
            self.named[version] = dict(self.names)
            self.defaults[version] = self.default
            self.typed[version] = dict(self.types)

    def rows(self, count: int, keys: list[int] | None = None) -> pa.Table:
        if keys is None:
            keys = list(range(self.next_key, self.next_key + count))
            self.next_key += count
        made = {
            self.names["k"]: pa.array(keys, self.types["k"]),
            self.names["p"]: pa.array(
                [self.chance.choice([0, 1, 2, None]) for _ in keys], pa.int32()
            ),
        }
        if "v" in self.names:
            letters = [self.chance.choice(["a", "b", None]) for _ in keys]
            made[self.names["v"]] = pa.array(letters, pa.string())
        if "new" in self.names:
            made["new"] = pa.array([self.chance.choice([7, 8, None]) for _ in keys], pa.int64())
        return pa.table(made)

    def some_keys(self) -> list[int]:
        keys = sorted({row["k"] for row in self.states[self.dataset.version].values()})
        return self.chance.sample(keys, min(len(keys), self.chance.randrange(1, 5)))

    def step(self) -> str:
        action = self.chance.choice(ACTIONS)
        (self._change_rows if action in _OF_ROWS else self._change_layout)(action)
        self.note()
        return action

    def _change_rows(self, action: str) -> None:
        d, k, p = self.dataset, self.names["k"], self.names["p"]
        write: dict[str, Any] = {"catalog": self.catalog}
        keys = ", ".join(map(str, [*self.some_keys(), -1]))
        if action == "append":
            lake.write_dataset(self.rows(4), self.uri, **write)
        elif action == "update":
            target = self.names.get("v", p)
            to = "'u'" if target == self.names.get("v") else str(self.chance.randrange(3))
            d.update({target: to}, where=f"{k} IN ({keys})")
        elif action == "update to the same":
            d.update({p: p}, where=f"{k} IN ({keys})")
        elif action == "delete":
            d.delete(f"{k} IN ({keys})")
        elif action == "upsert":
            some = sorted({*self.some_keys(), self.next_key})
            self.next_key += 1
            d.upsert(self.rows(0, some), on=[k])
        elif action == "merge":
            source = self.rows(0, self.some_keys())
            (
                d.merge(source, f"target.{k} = source.{k}")
                .when_matched_delete(f"source.{p} = 1")
                .when_matched_update({p: f"source.{p}"})
                .when_not_matched_by_source_update({p: "2"}, f"target.{p} = 0")
                .execute()
            )
        elif action == "overwrite" and self.chance.random() < 0.4:
            lake.write_dataset(self.rows(5), self.uri, mode="overwrite", **write)
        elif action == "overwrite where":
            rows = self.rows(3)
            rows = rows.set_column(rows.column_names.index(p), p, pa.array([1, 1, 1], pa.int32()))
            lake.write_dataset(
                rows, self.uri, mode="overwrite", overwrite_where=f"{p} = 1", **write
            )
        elif action == "dynamic" and self.partitioned:
            lake.write_dataset(
                self.rows(2),
                self.uri,
                mode="overwrite",
                partition_overwrite_mode="dynamic",
                **write,
            )
        elif action == "transaction":
            with lake.transaction(self.catalog) as tx:
                tx.write(self.rows(2), self.uri)
                tx.write({"n": [1]}, f"{self.uri}-beside")
        elif action == "branch":
            name = f"b{d.version}"
            branch = d.branch(name)
            lake.write_dataset(self.rows(2), branch.uri, catalog=self.catalog)
            branch.refresh().delete(f"{k} IN ({keys})")
            d.fast_forward(name)
        elif action == "add files":
            self._add_files()

    def _change_layout(self, action: str) -> None:
        d, k = self.dataset, self.names["k"]
        if action == "restore":
            newest = max([self.oldest, *self.replaced])
            same = [v for v, names in self.named.items() if v >= newest and names == self.names]
            version = self.chance.choice(same)
            d.restore(version)
            self.types = dict(self.typed[version])
        elif action == "compact":
            d.compact()
        elif action == "rewrite deleted":
            d.compact(rewrite_deleted=True)
        elif action == "rename":
            self.names["k"] = {"k": "kk", "kk": "k"}[k]
            d.rename_column(k, self.names["k"])
        elif action == "promote" and self.types["k"] != pa.int64():
            d.promote_column(k, pa.int64())
            self.types["k"] = pa.int64()
        elif action == "add" and "new" not in self.names:
            self.default = self.chance.choice([None, 7])
            d.add_column("new", pa.int64(), default=self.default)
            self.names["new"] = "new"
        elif action == "drop" and "v" in self.names:
            d.drop_column("v")
            del self.names["v"]
        elif action == "other partitions" and self.chance.random() < 0.4:
            self.partitioned = not self.partitioned
            self._begin_columns()
            lake.write_dataset(
                self.rows(4),
                self.uri,
                mode="overwrite",
                overwrite_schema=True,
                partition_by=["p"] if self.partitioned else [],
                catalog=self.catalog,
            )
            self.replaced.append(self.dataset.version + 1)

    def _add_files(self) -> None:
        """Add a file that another writer wrote, in a folder of its own."""
        rows = self.rows(3)
        folder = Path(self.uri) / "added" / str(self.next_key)
        if self.partitioned:
            folder /= f"{self.names['p']}=1"
            rows = rows.drop_columns(self.names["p"])
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "rows.parquet", row_group_size=2)
        self.dataset.add_files(Path(self.uri) / "added" / str(self.next_key))

    # --- what the feed should say

    def state(self, version: int, end: int) -> dict[int, dict[str, Any]]:
        """The rows of a version, with the columns that version `end` has."""
        labels = [label for label in LABELS if label in self.named[end]]
        if any(version < one <= end for one in self.replaced):
            # Columns that the rows never had: a column that was added has its default.
            rows: dict[int, dict[str, Any]] = {id: {} for id in self.states[version]}
        else:
            rows = self.states[version]
        default = {"new": self.defaults[end]}
        return {
            id: {label: row.get(label, default.get(label)) for label in labels}
            for id, row in rows.items()
        }

    def difference(self, since: int, version: int, end: int) -> Iterator[Row]:
        before, after = self.state(since, end), self.state(version, end)
        for id in sorted({*before, *after}):
            if id not in before:
                yield id, "insert", after[id]
            elif id not in after:
                yield id, "delete", before[id]
            elif before[id] != after[id]:
                yield id, "update_preimage", before[id]
                yield id, "update_postimage", after[id]

    def feed(self, start: int, end: int) -> list[Change]:
        return [
            (version, *change)
            for version in range(start, end + 1)
            for change in self.difference(version - 1, version, end)
        ]

    def columns(self, end: int) -> list[str]:
        return [*self.named[end].values(), "_row_id"]

    def told(self, table: pa.Table, end: int) -> Iterator[Change]:
        """The changes of a feed that ends with version `end`."""
        labels = {name: label for label, name in self.named[end].items()}
        for row in table.to_pylist():
            values = {label: row[name] for name, label in labels.items()}
            yield row["_commit_version"], row["_row_id"], row["_change_type"], values


_OF_ROWS = (
    *("append", "update", "update to the same", "delete", "upsert", "merge", "overwrite"),
    *("overwrite where", "dynamic", "transaction", "branch", "add files"),
)


def counted(changes: Iterable[Change]) -> Counter[Row]:
    return Counter((version, id, kind, *sorted(row.items())) for version, id, kind, row in changes)


def replayed(
    rows: dict[int, dict[str, Any]], changes: Iterable[Change]
) -> dict[int, dict[str, Any]]:
    """What is left of rows after changes, in the order in which they are told."""
    rows = dict(rows)
    for _, id, kind, values in changes:
        if kind in ("delete", "update_preimage"):
            assert rows.pop(id) == values
        else:
            assert id not in rows
            rows[id] = values
    return rows


def check(seed: int, uri: str, catalog: lake.Catalog, ranges: int | None = None) -> None:
    """Make a history, and compare feeds of its ranges with what its versions hold.

    Of so many ranges, the whole history among them; None: of all. The feed of a range reads each
    of its commits by itself.
    """
    history = History(seed, uri, catalog)
    steps = [history.step() for _ in range(history.chance.randrange(3, 10))]
    newest = history.dataset.version
    pairs = [(start, end) for end in range(1, newest + 1) for start in range(1, end + 1)]
    if ranges is not None:
        pairs = [(1, newest), *history.chance.sample(pairs, min(len(pairs), ranges - 1))]
    for start, end in pairs:
        of_all_kinds = history.chance.random() < (0.15 if ranges is None else 0.5)
        _check_range(history, start, end, of_all_kinds, (seed, steps, start, end))


def _check_range(history: History, start: int, end: int, of_all_kinds: bool, about: Row) -> None:
    def ask(**options: Any) -> list[Change]:
        columns = history.columns(end)
        found = history.dataset.changes(start, end, columns=columns, **options)
        return list(history.told(found.to_table(), end))

    everything = history.feed(start, end)
    found = ask()
    assert counted(found) == counted(everything), about
    assert [one[0] for one in found] == sorted(one[0] for one in found), about
    before, after = history.state(start - 1, end), history.state(end, end)
    assert replayed(before, found) == after, about
    if not of_all_kinds:
        return
    without = [(v, id, WITHOUT_IMAGES.get(kind, kind), row) for v, id, kind, row in everything]
    assert counted(ask(updates=False)) == counted(without), about
    wanted = [change for change in everything if change[3]["p"] == 1]
    assert counted(ask(where=f"{history.named[end]['p']} = 1")) == counted(wanted), about
    found = ask(net=True)
    net = [(0, *change) for change in history.difference(start - 1, end, end)]
    assert counted((0, *change[1:]) for change in found) == counted(net), about
    for version, id, *_ in found:
        last = max(v for v, other, *_ in everything if other == id)
        assert last <= version <= end, (about, id)
