"""A table of versions in memory, compared with plake after every kind of change."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import lakehouse_source as lake
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions

pytestmark = pytest.mark.slow

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"
NOW: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}

Row = dict[str, Any]
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 9), "k": st.sampled_from(["a", "b", "a/b=%", None])}
    ),
    max_size=4,
)
CUTS = st.integers(0, 10)
KINDS = st.sampled_from(["append", "overwrite", "overwrite where"])


def table(rows: list[Row], columns: list[str]) -> pa.Table:
    types = {"id": pa.int64(), "k": pa.string()}
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in columns])
    return pa.Table.from_pylist(rows, schema)


def counted(rows: list[Row], columns: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.get(name) for name in columns) for row in rows)


class Versions(RuleBasedStateMachine):
    """`model` maps each version that can be read to its rows and columns."""

    kind = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="plake-model-"))
        self.uri = str(self.folder / "things")
        self.catalog = self.open()
        self.model: dict[int, tuple[list[Row], list[str]]] = {}
        self.newest = 0
        self.added = 0

    def open(self) -> lake.Catalog:
        return lake.open_catalog(f"{self.kind}://{self.folder}/catalog.db")

    def teardown(self) -> None:
        self.catalog.close()
        shutil.rmtree(self.folder)

    # --- what the model says

    @property
    def rows(self) -> list[Row]:
        return self.model[self.newest][0]

    @property
    def columns(self) -> list[str]:
        return self.model[self.newest][1]

    def committed(self, version: int, rows: list[Row], columns: list[str] | None = None) -> None:
        assert version == self.newest + 1
        columns = self.columns if columns is None else columns
        self.newest = version
        self.model[version] = (rows, columns)

    def dataset(self) -> lake.Dataset:
        return lake.open_dataset(self.uri, catalog=self.catalog)

    def write(self, rows: list[Row], columns: list[str], **keywords: Any) -> int:
        data = table(rows, columns)
        return lake.write_dataset(data, self.uri, catalog=self.catalog, **keywords).version

    # --- what can happen

    @initialize(rows=ROWS)
    def first_write(self, rows: list[Row]) -> None:
        self.model[0] = ([], ["id", "k"])
        version = self.write(rows, ["id", "k"], partition_by="k", mode="error")
        self.committed(version, rows)
        del self.model[0]

    @rule(rows=ROWS)
    def append(self, rows: list[Row]) -> None:
        self.committed(self.write(rows, self.columns), [*self.rows, *rows])

    @rule(rows=ROWS)
    def overwrite(self, rows: list[Row]) -> None:
        self.committed(self.write(rows, self.columns, mode="overwrite"), rows)

    @rule(rows=ROWS, cut=CUTS)
    def overwrite_where(self, rows: list[Row], cut: int) -> None:
        rows = [row for row in rows if row["id"] >= cut]
        version = self.write(
            rows, self.columns, mode="overwrite", overwrite_where=[("id", ">=", cut)]
        )
        self.committed(version, [*(row for row in self.rows if row["id"] < cut), *rows])

    @rule(rows=ROWS)
    def overwrite_partitions(self, rows: list[Row]) -> None:
        version = self.write(
            rows, self.columns, mode="overwrite", partition_overwrite_mode="dynamic"
        )
        replaced = {row["k"] for row in rows}
        self.committed(version, [*(row for row in self.rows if row["k"] not in replaced), *rows])

    @precondition(lambda self: self.added < 3)
    @rule(rows=ROWS, value=st.integers(0, 3))
    def add_a_column(self, rows: list[Row], value: int) -> None:
        self.added += 1
        name = f"c{self.added}"
        columns = [*self.columns, name]
        rows = [{**row, name: value} for row in rows]
        version = self.write(rows, columns, schema_merge=True)
        self.committed(version, [*self.rows, *rows], columns)

    @rule(back=st.integers(0, 6))
    def restore(self, back: int) -> None:
        version = self.newest - back
        if version in self.model:
            self.committed(self.dataset().restore(version).version, *self.model[version])
        else:
            with pytest.raises(lake.VersionNotFoundError):
                self.dataset().restore(version)

    @rule(keep_last=st.integers(1, 4))
    def expire(self, keep_last: int) -> None:
        report = self.dataset().expire_versions(keep_last=keep_last)
        oldest = max(min(self.model), self.newest - keep_last + 1)
        assert report.oldest_version == oldest
        for version in report.expired:
            del self.model[version]
        assert min(self.model) == oldest

    @rule()
    def vacuum(self) -> None:
        dataset = self.dataset()
        dataset.vacuum(**NOW)
        reached = {file.path for version in self.model for file in dataset.files(version)}
        found = {str(path.relative_to(self.uri)) for path in Path(self.uri).rglob("*.parquet")}
        assert found == reached

    @rule()
    def reopen(self) -> None:
        self.catalog.close()
        self.catalog = self.open()

    @rule(
        kinds=st.tuples(KINDS, KINDS),
        some=st.tuples(ROWS, ROWS),
        cuts=st.tuples(CUTS, CUTS),
        between=st.sampled_from(["nothing", "vacuum", "expire and vacuum", "give up"]),
    )
    def two_writes_at_once(
        self,
        kinds: tuple[str, str],
        some: tuple[list[Row], list[Row]],
        cuts: tuple[int, int],
        between: str,
    ) -> None:
        writes = [self.begun(*given) for given in zip(kinds, some, cuts)]
        (first, files, rows), (second, more_files, more_rows) = writes
        before = self.rows
        result = commit(self.catalog, first, files)
        self.committed(result.version, self.replaced(kinds[0], before, rows, cuts[0]))
        if between == "give up":
            assert abort(self.catalog, second, more_files)
            return
        if between == "expire and vacuum":
            self.expire(1)
        if between != "nothing":
            self.dataset().vacuum(**NOW)
        if self.collide(kinds, rows, cuts[1], between):
            with pytest.raises(lake.CommitConflictError):
                commit(self.catalog, second, more_files)
            assert abort(self.catalog, second, more_files)
            return
        result = commit(self.catalog, second, more_files)
        self.committed(result.version, self.replaced(kinds[1], self.rows, more_rows, cuts[1]))

    def begun(
        self, kind: str, rows: list[Row], cut: int
    ) -> tuple[StagedWrite, list[FileMetadata], list[Row]]:
        where = None
        if kind == "overwrite where":
            where = PredicateSet.of([("id", ">=", cut)])
            rows = [row for row in rows if row["id"] >= cut]
        mode = "append" if kind == "append" else "overwrite"
        options = WriteOptions(mode=mode, overwrite_where=where)
        address = Address(self.uri, self.catalog)
        data = table(rows, self.columns)
        staged = begin(self.catalog, address, data.schema, options)
        return staged, write_files(staged.spec, data.to_batches()), rows

    @staticmethod
    def replaced(kind: str, old: list[Row], rows: list[Row], cut: int) -> list[Row]:
        if kind == "append":
            return [*old, *rows]
        if kind == "overwrite":
            return rows
        return [*(row for row in old if row["id"] < cut), *rows]

    @staticmethod
    def collide(kinds: tuple[str, str], theirs: list[Row], cut: int, between: str) -> bool:
        """The conflict table, for a second write that began before the first committed."""
        if kinds[1] != "overwrite where":
            return False
        if kinds[0] != "append" or between == "expire and vacuum":
            return True
        return any(row["id"] >= cut for row in theirs)

    # --- what always holds

    @invariant()
    def every_version_has_its_rows(self) -> None:
        if not self.model:
            return
        dataset = self.dataset()
        assert dataset.version == self.newest
        for version in {self.newest, min(self.model)}:
            rows, columns = self.model[version]
            found = lake.read_dataset(self.uri, catalog=self.catalog, version=version)
            assert found.column_names == columns
            assert counted(found.to_pylist(), columns) == counted(rows, columns)
        if min(self.model) > 1:
            with pytest.raises(lake.VersionNotFoundError, match="expired"):
                lake.read_dataset(self.uri, catalog=self.catalog, version=min(self.model) - 1)

    @invariant()
    def files_are_what_was_committed(self) -> None:
        if self.model:
            assert self.dataset().verify().ok
            assert self.dataset().history()[0].summary["live_rows"] == len(self.rows)


class VersionsInDuckDB(Versions):
    kind = "duckdb"


@pytest.mark.hypothesis
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "machine", [Versions, pytest.param(VersionsInDuckDB, marks=pytest.mark.long)]
)
def test_the_product_and_a_table_of_versions_agree(machine: type[Versions]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100 if THOROUGH else 5,
            stateful_step_count=30 if THOROUGH else 12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
