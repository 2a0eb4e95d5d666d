"""Random programs over chains of clones and branches, beside a model of plain Python.

No readable version of anyone loses a file or a row, and what nobody has is gone in the end.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakehouse_source as lake

pytestmark = pytest.mark.slow

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"
STEPS = 50  # of a program
NOW = {"retention_seconds": 0, "allow_short_retention": True}
MOST_DATASETS = 5
Rows = dict[int, int]


@dataclass
class Table:
    """A dataset or a branch: the rows of each version by their keys, and which can be read."""

    dataset: lake.Dataset
    newest: int
    versions: dict[int, Rows]
    oldest: int
    tags: dict[str, int] = field(default_factory=dict)
    branches: dict[str, Table] = field(default_factory=dict)
    base: int = 0  # of a branch

    @property
    def rows(self) -> Rows:
        return self.versions[self.newest]

    def readable(self) -> list[int]:
        tagged = set(self.tags.values())
        return [one for one in self.versions if one >= self.oldest or one in tagged]

    def committed(self, rows: Rows) -> None:
        self.newest += 1
        self.versions[self.newest] = rows
        assert self.dataset.refresh().version == self.newest


class Program:
    def __init__(self, seed: int, path: Path) -> None:
        self.draw = random.Random(seed)
        self.path = path
        self.catalog = lake.open_catalog(f"sqlite:///{path}/catalog.db", warehouse=path / "tables")
        self.tables: dict[str, Table] = {}
        self.keys = 0
        self.told: list[str] = []

    def run(self) -> None:
        self.create()
        steps: list[tuple[Callable[[], None], int]] = [
            (self.create, 1), (self.append, 6), (self.delete, 6), (self.update, 2),
            (self.overwrite, 1), (self.compact, 4), (self.clone, 6), (self.branch, 2),
            (self.fast_forward, 2), (self.drop_branch, 2), (self.expire, 6), (self.tag, 1),
            (self.drop_tag, 1), (self.restore, 2), (self.vacuum, 6), (self.drop, 2),
            (self.vacuum_catalog, 2), (self.add_column, 1),
        ]  # fmt: skip
        for _ in range(STEPS):
            step = self.draw.choices([one for one, _ in steps], [many for _, many in steps])[0]
            self.told.append(step.__name__)
            step()
            self.check(self.some())
        self.everything()
        for name in list(self.tables):
            self.drop(name)
            self.everything()
        self.vacuum_catalog()
        assert self.stored() == set()
        self.catalog.close()

    # --- what is checked

    def check(self, table: Table, *, whole: bool = False) -> None:
        found = table.readable()
        for version in found if whole else [self.draw.choice(found)]:
            rows = table.dataset.scan(version=version).to_table().to_pydict()
            assert dict(zip(rows["k"], rows["v"])) == table.versions[version], version
            assert len(rows["k"]) == len(table.versions[version])

    def everything(self) -> None:
        """Vacuum all, clones and those that have their files: only needed files are left."""
        for _ in range(MOST_DATASETS):  # a file that a chain of clones has goes from its end on
            self.vacuum_catalog()
        needed: set[str] = set()
        for table in self.all():
            self.check(table, whole=True)
            for version in table.readable():
                needed |= {one.path.rpartition("/")[2] for one in table.dataset.files(version)}
        with closing(sqlite3.connect(self.path / "catalog.db")) as database:
            vectors = database.execute("SELECT file_path FROM deletion_vectors").fetchall()
        assert needed <= self.stored()
        # Rows of vectors in a Puffin file of which another vector is readable stay, as it does.
        assert self.stored() - needed <= {path.rpartition("/")[2] for (path,) in vectors}

    def stored(self) -> set[str]:
        files = (self.path / "tables").rglob("*")
        return {one.name for one in files if one.suffix in (".parquet", ".puffin")}

    # --- the steps

    def all(self) -> list[Table]:
        return [one for each in self.tables.values() for one in (each, *each.branches.values())]

    def some(self) -> Table:
        return self.draw.choice(self.all())

    def new_rows(self, most: int = 6) -> Rows:
        first = self.keys
        self.keys += self.draw.randint(1, most)
        return {key: self.draw.randint(0, 9) for key in range(first, self.keys)}

    def create(self) -> None:
        if len(self.tables) >= MOST_DATASETS:
            return
        name = f"t{self.keys}"
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("p", pa.int64())])
        partitions = self.draw.choice([None, "p"])
        made = self.catalog.create_dataset(name, schema, partition_by=partitions)
        self.tables[name] = Table(made, 1, {1: {}}, 1)
        self.append(self.tables[name])

    def append(self, table: Table | None = None) -> None:
        table = table or self.some()
        rows = self.new_rows()
        lake.write_dataset(_arrow(rows), table.dataset.uri, catalog=self.catalog)
        table.committed(table.rows | rows)

    def delete(self) -> None:
        table, value = self.some(), self.draw.randint(0, 9)
        left = {key: one for key, one in table.rows.items() if one != value}
        if left != table.rows:
            table.dataset.refresh().delete(f"v = {value}")
            table.committed(left)

    def update(self) -> None:
        table, value = self.some(), self.draw.randint(0, 9)
        changed = {key: 9 - one if one == value else one for key, one in table.rows.items()}
        if value in table.rows.values():
            table.dataset.refresh().update({"v": "9 - v"}, where=f"v = {value}")
            table.committed(changed)

    def overwrite(self) -> None:
        table, rows = self.some(), self.new_rows()
        lake.write_dataset(_arrow(rows), table.dataset.uri, catalog=self.catalog, mode="overwrite")
        table.committed(rows)

    def compact(self) -> None:
        table = self.some()
        before = table.dataset.refresh().version
        table.dataset.compact(rewrite_deleted=self.draw.choice([True, False]))
        if table.dataset.refresh().version != before:
            table.committed(table.rows)

    def add_column(self) -> None:
        table = self.some()
        if not table.base and not table.branches:
            table.dataset.refresh().add_column(f"c{self.keys}", pa.int64())
            self.keys += 1
            table.committed(table.rows)

    def clone(self) -> None:
        if len(self.tables) >= MOST_DATASETS:
            return
        source, name = self.some(), f"c{len(self.told)}"
        version = self.draw.choice(source.readable())
        made = source.dataset.clone(name, version=version, deep=self.draw.random() < 0.2)
        assert made.version == version
        self.tables[name] = Table(made, version, {version: source.versions[version]}, version)

    def branch(self) -> None:
        table, name = self.draw.choice(list(self.tables.values())), f"b{len(self.told)}"
        if len(table.branches) < 2:
            made = table.dataset.refresh().branch(name, table.newest)
            table.branches[name] = Table(
                made, table.newest, {table.newest: table.rows}, table.newest, base=table.newest
            )

    def fast_forward(self) -> None:
        for table in self.tables.values():
            for name, one in table.branches.items():
                if one.base == table.newest and one.oldest <= one.base:
                    table.dataset.refresh().fast_forward(name)
                    table.versions |= {n: r for n, r in one.versions.items() if n > one.base}
                    table.newest = one.base = one.newest
                    assert table.dataset.refresh().version == table.newest
                    return

    def drop_branch(self) -> None:
        for table in self.tables.values():
            if table.branches:
                name = self.draw.choice(list(table.branches))
                table.dataset.drop_branch(name)
                del table.branches[name]
                return

    def expire(self) -> None:
        table, keep = self.some(), self.draw.randint(1, 3)
        table.dataset.expire_versions(keep_last=keep)
        table.oldest = max(table.oldest, table.newest - keep + 1)
        table.versions = {one: table.versions[one] for one in table.readable()}

    def tag(self) -> None:
        table, name = self.some(), f"g{len(self.told)}"
        version = self.draw.choice(table.readable())
        table.dataset.tag(name, version)
        table.tags[name] = version

    def drop_tag(self) -> None:
        table = self.some()
        if table.tags:
            name = self.draw.choice(list(table.tags))
            table.dataset.drop_tag(name)
            del table.tags[name]
            table.versions = {one: table.versions[one] for one in table.readable()}

    def restore(self) -> None:
        table = self.some()
        version = self.draw.choice(table.readable())
        if not table.base and not table.branches:
            table.dataset.refresh().restore(version)
            table.committed(table.versions[version])

    def vacuum(self) -> None:
        self.draw.choice(list(self.tables.values())).dataset.vacuum(**NOW)

    def vacuum_catalog(self) -> None:
        assert lake.vacuum(self.catalog, **NOW).failed == ()

    def drop(self, name: str | None = None) -> None:
        if name is None and len(self.tables) < 2:
            return
        name = name or self.draw.choice(list(self.tables))
        self.catalog.drop(name, purge=True)
        del self.tables[name]


def _arrow(rows: Rows) -> pa.Table:
    keys = list(rows)
    return pa.table({"k": keys, "v": list(rows.values()), "p": [key % 2 for key in keys]})


@pytest.mark.timeout(7200)
@settings(
    max_examples=10_000 // STEPS if THOROUGH else 2,
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
)
@given(seed=st.integers(0, 2**32))
def test_no_version_loses_a_row_and_no_file_stays_for_nobody(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    program = Program(seed, tmp_path_factory.mktemp("clones"))
    try:
        program.run()
    except BaseException as error:
        error.add_note(f"seed {seed}: {' '.join(program.told)}")
        raise
