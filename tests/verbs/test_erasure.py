"""Erased rows are in no version, no file and no page of the catalog; all other rows stay."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.schema.fields import field_id

pytestmark = pytest.mark.slow

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"
PLACE = ["_file", "_pos", "_row_id", "_commit_version"]


def people(first: int, after: int) -> pa.Table:
    numbers = range(first, after)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "email": [f"person-{n:06d}@example.org" for n in numbers],
            "part": pa.array([n % 2 for n in numbers], pa.int32()),
        }
    )


def email(number: int) -> str:
    return f"person-{number:06d}@example.org"


def holding(folder: Path, text: str) -> set[str]:
    """The names of files that have a text in their bytes or in their paths."""
    found = set()
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if text.encode() in content or text in str(path.relative_to(folder)):
            found.add(path.name)
    return found


def rows(dataset: lake.Dataset, version: int | None = None) -> list[dict[str, Any]]:
    schema = dataset.scan(version=version).to_table().schema
    found = dataset.scan(version=version, columns=[*schema.names, *PLACE]).to_table().to_pylist()
    return sorted(found, key=lambda row: (row["_row_id"], row["_file"], row["_pos"]))


def bare(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without where they are stored."""
    return [{k: v for k, v in row.items() if k not in ("_file", "_pos")} for row in found]


def readable(dataset: lake.Dataset) -> list[int]:
    """The versions that can be read: those that no expiry took, and those with a tag."""
    dataset.refresh()
    first = dataset._snapshot.dataset.oldest_version
    return sorted({*range(first, dataset.version + 1), *dataset.tags().values()})


def family(dataset: lake.Dataset) -> list[lake.Dataset]:
    return [dataset, *(dataset.branch(name) for name in dataset.branches())]


# --- random histories --------------------------------------------------------------------


class Life:
    """A dataset with a random history. A value of `email` and of `k` is never told twice."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.draw = random.Random(seed)
        self.uri = str(folder / "life")
        self.next = 0
        partition_by = self.draw.choice([None, "part", "email"])
        lake.write_dataset(
            self.table(8),
            self.uri,
            partition_by=partition_by,
            rewrite_threshold=self.draw.choice([0.3, 1.0]),
            row_group_rows=self.draw.choice([3, 1000]),
            compression="none",
            bloom_filter_columns=None if partition_by == "email" else ["email"],
        )
        self.dataset = lake.open_dataset(self.uri)
        self.partitioned = partition_by
        self.branch: lake.Dataset | None = None
        self.steps: list[str] = []

    def table(self, count: int) -> pa.Table:
        first, self.next = self.next, self.next + count
        # Few values, so that other rows may have the same.
        numbers = [self.draw.randint(0, 9) for _ in range(count)]
        return pa.table(
            {
                "id": pa.array(range(first, first + count), pa.int32()),
                "email": [None if n == 9 else email(n) for n in numbers],
                "k": pa.array([self.draw.choice([None, n]) for n in numbers], pa.int32()),
                "part": pa.array([n % 2 for n in numbers], pa.int32()),
            }
        )

    def run(self) -> None:
        steps: list[Callable[[], Any]] = [
            *[self.append] * 4,
            *[self.delete] * 4,
            *[self.update] * 2,
            lambda: self.dataset.compact(),
            lambda: self.dataset.restore(self.draw.choice(readable(self.dataset))),
            lambda: self.dataset.expire_versions(keep_last=self.draw.randint(2, 6)),
            self.overwrite,
            self.rename,
            self.promote,
            self.add,
            self.on_branch,
            self.on_branch,
            lambda: self.dataset.tag(f"t{len(self.steps)}"),
            self.replace_all,
        ]
        for _ in range(self.draw.randint(3, 12)):
            step = self.draw.choice(steps)
            self.steps.append(getattr(step, "__name__", "?"))
            step()
            self.dataset.refresh()

    def names(self) -> dict[str, str]:
        """Present names of the first columns, whose names end as they did."""
        return {name.rpartition("_")[2]: name for name in self.dataset.schema.names}

    def fitted(self, count: int) -> pa.Table:
        names = self.names()
        table = self.table(count)
        return table.rename_columns([names[name] for name in table.column_names])

    def some(self) -> str:
        names = self.names()
        return f"{names['id']} % {self.draw.randint(2, 5)} = {self.draw.randint(0, 1)}"

    def append(self) -> None:
        lake.write_dataset(self.fitted(self.draw.randint(1, 5)), self.uri)

    def overwrite(self) -> None:
        table, part = self.fitted(6), self.names()["part"]
        kept = table.filter(pa.compute.equal(table[part], 1))
        lake.write_dataset(kept, self.uri, mode="overwrite", overwrite_where=f"{part} = 1")

    def delete(self) -> None:
        self.dataset.delete(self.some())

    def update(self) -> None:
        name = self.names()["k"]
        self.dataset.update({name: f"{name} + 1"}, self.some())

    def rename(self) -> None:
        name = self.names()["email"]
        self.dataset.rename_column(name, f"r{len(self.steps)}_email")

    def promote(self) -> None:
        name = self.names()["k"]
        if self.dataset.schema.field(name).type == pa.int32():
            self.dataset.promote_column(name, pa.int64())

    def add(self) -> None:
        self.dataset.add_column(f"extra{len(self.steps)}", pa.int32())

    def on_branch(self) -> None:
        if self.branch is None:
            self.branch = self.dataset.branch("work")
        names = self.branch.refresh().schema.names
        if names == ["id", "email", "k", "part"]:
            lake.write_dataset(self.table(2), self.branch.uri)
            self.branch.refresh().delete(f"id % 3 = {self.draw.randint(0, 2)}")

    def replace_all(self) -> None:
        partition_by = self.partitioned
        lake.write_dataset(
            self.table(4),
            self.uri,
            mode="overwrite",
            overwrite_schema=True,
            partition_by=partition_by,
        )


def erased_places(dataset: lake.Dataset, condition: dict[str, Any]) -> set[tuple[str, int]]:
    """Where the rows are stored that the condition (a value by present name) matches, in Python."""
    found = set()
    newest = {field.name: field_id(field) for field in dataset._snapshot.schema}
    for member in family(dataset):
        member.refresh()
        schemas = member._snapshot.file_schemas
        for version in readable(member):
            schema = schemas[max(n for n in schemas if n <= version)]
            names = {field_id(field): field.name for field in schema}
            for row in rows(member, version):
                for name, value in condition.items():
                    same_id = names.get(newest.get(name))
                    if value in (row.get(name), None if same_id is None else row[same_id]):
                        found.add((row["_file"], row["_pos"]))
    return found


@settings(max_examples=120 if THOROUGH else 4, phases=(Phase.explicit, Phase.generate))
@given(seed=st.integers(0, 2**32))
def test_every_version_has_all_rows_but_the_erased_ones(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("erasure")
    life = Life(seed, folder)
    life.run()
    dataset = life.dataset.refresh()
    name = life.names()[life.draw.choice(["email", "email", "k"])]
    is_email = name.endswith("email")
    value: Any = email(life.draw.randint(0, 8)) if is_email else life.draw.randint(0, 8)
    gone = erased_places(dataset, {name: value})
    before = {
        (member.uri, version): [
            row for row in rows(member, version) if (row["_file"], row["_pos"]) not in gone
        ]
        for member in family(dataset)
        for version in readable(member)
    }
    history = [(one.version, one.operation, one.timestamp) for one in dataset.history()]
    report = dataset.erase(f"{name} = {value!r}")
    assert (report.rows > 0) == bool(gone), life.steps
    for member in family(dataset):
        member.refresh()
        for version in readable(member):
            if (member.uri, version) not in before:
                assert member.history()[0].operation == "erase"
                continue
            expected = before[member.uri, version]
            found = rows(member, version)
            assert bare(found) == bare(expected), (life.steps, member.uri, version)
            assert member.scan(version=version).count_rows() == len(expected)
            assert member.verify(version, checksums=True).ok
            schema = member.scan(version=version).to_table().schema
            if "id" in schema.names:  # what is pruned by the new statistics
                ids = [row["id"] for row in expected]
                middle = ids[len(ids) // 2] if ids else 0
                scan = member.scan(f"id >= {middle}", version=version)
                assert scan.count_rows() == sum(one >= middle for one in ids)
    then = [one for one in dataset.history() if one.operation != "erase"]
    assert [(one.version, one.operation, one.timestamp) for one in then] == [
        one for one in history if one[1] != "erase"
    ]
    # A column of a schema that was replaced may have another name in every version.
    if is_email and not {"rename", "replace_all"} <= set(life.steps):
        assert holding(folder, value) == set(), life.steps
    # A second erasure finds nothing, and makes no version.
    again = dataset.erase(f"{name} = {value!r}")
    assert (again.rows, again.version) == (0, dataset.version)
    shutil.rmtree(folder)
