"""Plans that use what earlier plans of the process learned give what a first plan gives.

The oracle is a plan with nothing known, in this process or in a new one, and the rows.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.catalog.sql import records
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.model import ScanTask
from lakehouse_source.read import candidates as candidates_module
from lakehouse_source.read import snapshot as snapshot_module
from lakehouse_source.read.address import Address
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.snapshot import KnownFiles, known_files
from tests import processes

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

SMALL = {"row_group_rows": 2}
CONDITIONS = [
    "n = 3",
    "n BETWEEN 2 AND 6",
    "n > 4 OR s = 'b'",
    "n IN (1, 5, 9)",
    "n IS NULL",
    "NOT (n < 5)",
    "s LIKE 'b%'",
    "x > 2.5",
    "p = 'one' AND n < 6",
    "p IS NOT NULL AND x <= 4",
]


@contextmanager
def nothing_known() -> Iterator[None]:
    """As in a new process."""
    fresh = KnownFiles()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(candidates_module, "known_files", fresh)
        patched.setattr(snapshot_module, "known_files", fresh)
        patched.setattr(records, "description", records.description.__wrapped__)
        patched.setattr(snapshot_module, "_snapshot", snapshot_module._snapshot.__wrapped__)
        yield


def rows(*numbers: int | None, p: str = "one", **more: Any) -> pa.Table:
    floats = [None if n is None else float("nan") if n == 7 else n / 2 for n in numbers]
    texts = [None if n is None else "abc"[n % 3] for n in numbers]
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "s": pa.array(texts, pa.string()),
            "x": pa.array(floats, pa.float64()),
            "p": pa.array([p] * len(numbers), pa.string()),
            **more,
        }
    )


def tasks(uri: Any, catalog: Any, condition: Any, version: int | None = None) -> list[ScanTask]:
    return list(
        lake.open_dataset(uri, catalog=catalog).scan(condition, version=version).plan().tasks
    )


def by_records(uri: Any, catalog: Any, condition: str, version: int) -> list[Any]:
    """The files and row groups that their statistics in the catalog leave, decoded anew."""
    address = Address(uri, catalog)
    with nothing_known(), address.open() as opened, opened.read() as reader:
        snapshot = address.snapshot(opened, reader, version)
        bound = lake.PredicateSet.of(condition).bind(snapshot.schema)
        return [
            (one.file.path, tuple(group.index for group in one.row_groups), not one.always)
            for one in candidates(reader, snapshot, bound, statistics=True)
        ]


def check(uri: Any, catalog: Any, conditions: list[str], versions: list[int]) -> None:
    """Plans of this process are those of a new one, and lose no row."""
    for version in versions:
        names = set(
            lake.open_dataset(uri, catalog=catalog).scan(version=version).to_table().schema.names
        )
        for condition in [*conditions, "TRUE"]:
            try:
                warm = tasks(uri, catalog, condition, version)
            except lake.InvalidPredicateError:
                assert not {"n", "s", "x", "p"} <= names
                continue
            with nothing_known():
                assert tasks(uri, catalog, condition, version) == warm
            assert [(task.path, task.row_groups, task.filtered) for task in warm] == by_records(
                uri, catalog, condition, version
            )
            scan = lake.open_dataset(uri, catalog=catalog).scan(condition, version=version)
            assert scan.count_rows() == scan.to_table().num_rows


# --- random histories -----------------------------------------------------------

numbers = st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=5)
changes = st.one_of(
    st.tuples(st.just("append"), numbers),
    st.tuples(st.just("append sorted"), st.integers(0, 6)),
    st.tuples(st.just("overwrite"), numbers),
    st.tuples(st.just("overwrite where"), st.integers(0, 9)),
    st.tuples(st.just("add"), numbers),
    st.tuples(st.just("rename"), st.none()),
    st.tuples(st.just("promote"), st.none()),
    st.tuples(st.just("restore"), st.integers(1, 3)),
    st.tuples(st.just("expire"), st.integers(1, 3)),
)


@dataclass
class Maker:
    """Applies changes to a dataset."""

    uri: Path
    catalog: Any
    names: dict[str, str] = field(default_factory=lambda: {name: name for name in "nsxp"})

    def apply(self, kind: str, argument: Any) -> None:
        dataset = lake.open_dataset(self.uri, catalog=self.catalog)
        if kind == "append":
            self.write(rows(*argument))
        elif kind == "append sorted":
            self.write(rows(*range(argument, argument + 4), p="two"))
        elif kind == "overwrite":
            self.write(rows(*argument), mode="overwrite")
        elif kind == "overwrite where":
            where = f"{dataset.schema.names[0]} = {argument}"
            self.write(rows(argument), mode="overwrite", overwrite_where=where)
        elif kind == "add":
            extra = pa.array(range(len(argument)), pa.int64())
            self.write(rows(*argument, extra=extra), schema_merge=True)
        elif kind == "rename":
            first = dataset.schema.names[0]
            dataset.rename_column(first, "m" if first == "n" else "n")
        elif kind == "promote" and dataset.schema.field(0).type == pa.int32():
            dataset.promote_column(dataset.schema.names[0], pa.int64())
        elif kind == "restore":
            oldest = dataset._snapshot.dataset.oldest_version
            dataset.restore(max(oldest, dataset.version - argument))
        elif kind == "expire":
            dataset.expire_versions(keep_last=argument)

    def write(self, table: pa.Table, **options: Any) -> None:
        schema = lake.open_dataset(self.uri, catalog=self.catalog).schema
        table = table.rename_columns([schema.names[0], *table.schema.names[1:]])
        if schema.field(0).type == pa.int64():
            table = table.set_column(0, schema.names[0], table[0].cast(pa.int64()))
        for name in schema.names[4:]:
            if name not in table.schema.names:
                table = table.append_column(name, pa.nulls(len(table), pa.int64()))
        lake.write_dataset(table, self.uri, catalog=self.catalog, **SMALL, **options)


@settings(max_examples=6)
@given(st.lists(changes, max_size=5), st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2))
def test_plans_of_a_random_history_are_those_of_a_new_process(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], conditions: list[str]
) -> None:
    uri = tmp_path_factory.mktemp("history") / "t"
    lake.write_dataset(rows(1, 2, 3, None, 8), uri, partition_by="p", **SMALL)
    maker = Maker(uri, None)
    check(uri, None, conditions, [1])
    for change in history:
        maker.apply(*change)
        dataset = lake.open_dataset(uri)
        oldest = dataset._snapshot.dataset.oldest_version
        named = [c.replace("n ", "m ").replace("(n", "(m") for c in conditions]
        present = conditions if dataset.schema.names[0] == "n" else [*named]
        check(uri, None, present, [dataset.version])
        check(uri, None, conditions, sorted({oldest, max(oldest, dataset.version - 1)}))


# --- other processes ------------------------------------------------------------


def commit_elsewhere(url: str, uri: str, kind: str, argument: Any) -> None:
    Maker(Path(uri), url).apply(kind, argument)


def plan_elsewhere(url: str, uri: str, conditions: list[str], answers: Any) -> None:
    answers.send([tasks(uri, url, condition) for condition in conditions])


@pytest.mark.long
def test_a_commit_of_another_process_is_in_the_next_plan(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    uri, url = str(tmp_path / "t"), catalog.url
    lake.write_dataset(rows(1, 2, 3, 4), uri, catalog=url, partition_by="p", **SMALL)
    seen: list[Any] = []
    for change in (
        ("append", [3, 3, None]),
        ("append sorted", 2),
        ("overwrite where", 3),
        ("promote", None),
        ("overwrite", [5, 6]),
        ("restore", 2),
        ("expire", 1),
    ):
        assert processes.run(commit_elsewhere, url, uri, *change) == 0
        mine = [tasks(uri, url, condition) for condition in CONDITIONS]
        assert mine != seen or change[0] in ("promote", "expire")
        seen = mine
        receive, send = processes.CONTEXT.Pipe(False)
        assert processes.run(plan_elsewhere, url, uri, CONDITIONS, send) == 0
        assert receive.recv() == mine
        version = lake.open_dataset(uri, catalog=url).version
        check(uri, url, CONDITIONS[:3], [version])


# --- other catalogs with the same ids ----------------------------------------------


def count(uri: Path, url: str, condition: str) -> tuple[int, int]:
    dataset = lake.open_dataset(uri, catalog=url)
    return len(tasks(uri, url, condition)), dataset.scan(condition).count_rows()


def test_two_catalogs_whose_files_have_the_same_ids_are_kept_apart(tmp_path: Path) -> None:
    for name, numbers_ in (("a", (1, 2, 3)), ("b", (7, 8, 9))):
        lake.write_dataset(
            rows(*numbers_), tmp_path / name, catalog=f"sqlite://{tmp_path}/{name}.db"
        )
    for _ in range(2):
        assert count(tmp_path / "a", f"sqlite://{tmp_path}/a.db", "n < 5") == (1, 3)
        assert count(tmp_path / "b", f"sqlite://{tmp_path}/b.db", "n < 5") == (0, 0)


def test_two_datasets_of_a_catalog_are_kept_apart(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/catalog.db"
    for name, numbers_ in (("a", (1, 2, 3)), ("b", (7, 8, 9))):
        lake.write_dataset(rows(*numbers_), tmp_path / name, catalog=url)
    for _ in range(2):
        assert count(tmp_path / "a", url, "n < 5") == (1, 3)
        assert count(tmp_path / "b", url, "n < 5") == (0, 0)


def test_a_catalog_that_was_deleted_and_made_anew_has_other_files(tmp_path: Path) -> None:
    """Same path, same dataset, same version, same file ids; most likely the same inode."""
    url, uri = f"sqlite://{tmp_path}/catalog.db", tmp_path / "t"
    lake.write_dataset(rows(1, 2, 3), uri, catalog=url)
    assert count(uri, url, "n < 5") == (1, 3)
    (tmp_path / "catalog.db").unlink()
    shutil.rmtree(uri)  # it belongs to the catalog that is gone
    lake.write_dataset(rows(7, 8, 9, 4), uri, catalog=url)
    assert count(uri, url, "n < 5") == (1, 1)
    assert count(uri, url, "n < 3") == (0, 0)


def test_a_catalog_put_back_from_a_backup_that_goes_on_differently(tmp_path: Path) -> None:
    """The version after the backup is there again, with the same file ids and other files."""
    url, uri, path = f"sqlite://{tmp_path}/catalog.db", tmp_path / "t", tmp_path / "catalog.db"
    lake.write_dataset(rows(1, 2, 3), uri, catalog=url)
    shutil.copy(path, tmp_path / "backup.db")
    lake.write_dataset(rows(4, 4), uri, catalog=url)
    assert count(uri, url, "n = 4") == (1, 2)
    assert count(uri, url, "n = 9") == (0, 0)
    shutil.copy(tmp_path / "backup.db", path)
    assert count(uri, url, "n = 4") == (0, 0)
    lake.write_dataset(rows(9, 9, 9), uri, catalog=url)
    assert count(uri, url, "n = 9") == (1, 3)
    assert count(uri, url, "n = 4") == (0, 0)


def test_an_uncommitted_file_is_not_remembered(tmp_path: Path) -> None:
    """SQLite gives the ids of a transaction that was rolled back to the next one."""
    url, uri = f"sqlite://{tmp_path}/catalog.db", tmp_path / "t"
    lake.write_dataset(rows(1, 2, 3), uri, catalog=url)
    address = Address(uri, url)
    with address.open() as catalog, catalog.write() as transaction:
        assert address.snapshot(catalog, transaction).history is None


# --- how much is read, and kept ------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many files' row groups were read, and whether with statistics."""
    calls: list[tuple[int, bool]] = []
    row_groups = CatalogReader.row_groups

    def counted(self: CatalogReader, ids: Any, *, statistics: bool = True) -> Any:
        calls.append((len(ids), statistics))
        return row_groups(self, ids, statistics=statistics)

    monkeypatch.setattr(CatalogReader, "row_groups", counted)
    return calls


def test_statistics_of_row_groups_are_read_only_where_the_file_leaves_it_open(
    tmp_path: Path, asked: list[tuple[int, bool]]
) -> None:
    for start in range(0, 50, 5):
        lake.write_dataset(pa.table({"n": range(start, start + 5)}), tmp_path, **SMALL)
    del asked[:]
    condition = "n >= 7 AND n < 40"
    first = tasks(tmp_path, None, condition)
    assert len(first) == 7
    assert asked == [(6, False), (1, True)]
    del asked[:]
    assert tasks(tmp_path, None, condition) == first
    assert asked == []
    assert len(tasks(tmp_path, None, "n >= 8 AND n < 41")) == 8
    assert asked == [(1, True)]  # of the file with 40 to 44
    lake.write_dataset(pa.table({"n": [20]}), tmp_path)
    del asked[:]
    assert len(tasks(tmp_path, None, condition)) == 8
    assert asked == [(1, False)]


def test_a_scan_of_everything_reads_only_what_it_does_not_know(
    tmp_path: Path, asked: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 50, 5):
        lake.write_dataset(pa.table({"n": range(start, start + 5)}), tmp_path, **SMALL)
    del asked[:]
    first = tasks(tmp_path, None, None)
    assert (len(first), asked) == (10, [(10, False)])
    lake.write_dataset(pa.table({"n": [20]}), tmp_path)
    del asked[:]
    assert tasks(tmp_path, None, None)[:-1] == first
    assert asked == [(1, False)]
    # Of a large dataset a scan keeps nothing: it would push out what others need.
    monkeypatch.setattr(candidates_module, "_MOST_WHOLE", 10)
    known_files.forget()
    kept = known_files.size_bytes
    assert [len(tasks(tmp_path, None, None)) for _ in range(2)] == [11, 11]
    assert known_files.size_bytes == kept


def test_what_is_kept_stays_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 200, 5):
        lake.write_dataset(pa.table({"n": range(start, start + 5)}), tmp_path, **SMALL)
    conditions = [f"n > {n} AND n <= {n + 60}" for n in range(0, 150, 7)]
    expected = [tasks(tmp_path, None, condition) for condition in conditions]
    small = KnownFiles(most_bytes=10_000)
    monkeypatch.setattr(candidates_module, "known_files", small)
    monkeypatch.setattr(snapshot_module, "known_files", small)
    snapshot_module._snapshot.cache_clear()
    for condition, wanted in zip(conditions, expected):
        assert tasks(tmp_path, None, condition) == wanted
        assert 0 < small.size_bytes <= 10_000
        assert small.size_bytes == sum(size for _file, size in small._files.values())


def test_threads_share_what_is_known(tmp_path: Path) -> None:
    for start in range(0, 100, 5):
        lake.write_dataset(pa.table({"n": range(start, start + 5)}), tmp_path, **SMALL)
    conditions = [f"n > {n} AND n <= {n + 30}" for n in range(0, 60, 3)]
    with nothing_known():
        expected = [tasks(tmp_path, None, condition) for condition in conditions]
    known_files.forget()
    snapshot_module._snapshot.cache_clear()
    wrong: list[Any] = []

    def work(shift: int) -> None:
        for number in range(2 * len(conditions)):
            at = (number * 7 + shift) % len(conditions)
            if tasks(tmp_path, None, conditions[at]) != expected[at]:
                wrong.append(conditions[at])

    threads = [threading.Thread(target=work, args=(shift,)) for shift in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_catalog_in_a_transaction_of_reading_sees_its_own_version(tmp_path: Path) -> None:
    """A reader that began before a commit plans the version before it, whoever has seen more."""
    url, uri = f"sqlite://{tmp_path}/catalog.db", tmp_path / "t"
    lake.write_dataset(rows(1, 2, 3), uri, catalog=url)
    first = tasks(uri, url, "n < 9")
    lake.write_dataset(rows(4, 5), uri, catalog=url)
    both = tasks(uri, url, "n < 9")
    assert len(both) == 2
    assert tasks(uri, url, "n < 9", version=1) == first
    assert tasks(uri, url, "n < 9") == both


class TestCountingRowsByTheIndex:
    def test_no_record_of_files_within_the_condition_is_read(
        self, tmp_path: Path, asked: list[tuple[int, bool]]
    ) -> None:
        for start in range(0, 50, 5):
            lake.write_dataset(pa.table({"n": range(start, start + 5)}), tmp_path, **SMALL)
        del asked[:]
        assert lake.open_dataset(tmp_path).scan("n >= 7 AND n < 40").count_rows() == 33
        assert asked == [(1, True)]
        assert lake.open_dataset(tmp_path).scan("n >= 10").count_rows() == 40
        assert len(asked) == 1

    @pytest.mark.parametrize("condition", CONDITIONS)
    def test_the_number_is_that_of_the_rows(self, tmp_path: Path, condition: str) -> None:
        for number in range(4):
            numbers_ = [number, number + 1, None if number == 2 else 7]
            lake.write_dataset(rows(*numbers_), tmp_path, partition_by="p", **SMALL)
        lake.write_dataset(rows(5, 5, p="two"), tmp_path, **SMALL)
        scan = lake.open_dataset(tmp_path).scan(condition)
        assert scan.count_rows() == scan.to_table().num_rows
