"""PRIMARY KEY and UNIQUE: no writer of Python commits a key twice, alone or beside others."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import (
    CommitConflictError,
    ConstraintViolationError,
    InvalidOptionError,
    SchemaMismatchError,
)
from lakehouse_source.language import PredicateSet
from lakehouse_source.parquet.checked_footer import Remembered
from lakehouse_source.parquet.reader import read_each, read_task
from lakehouse_source.schema.fields import SPARK_METADATA
from lakehouse_source.write.commit import key_search, keys, rewrite
from lakehouse_source.write.commit.commit import commit
from lakehouse_source.write.rows import stage, write_options
from lakehouse_source.write.statements import row_statement
from tests import processes
from tests.verbs import writers
from tests.verbs.adding_doors import ADDING

pytestmark = pytest.mark.slow

ROWS = 9
# Types of keys, and how a number becomes a key, in the same order.
SPREAD: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int32(), lambda n: n - 700),
    "long": (pa.int64(), lambda n: n << 40),
    "decimal": (pa.decimal128(12, 2), lambda n: Decimal(n - 700) / 4),
    "date": (pa.date32(), lambda n: date(1969, 1, 1) + timedelta(n)),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda n: datetime(1969, 12, 31) + timedelta(0, n * 97),
    ),
    "text": (pa.string(), lambda n: f"key {n:06}"),
    "bytes": (pa.binary(), lambda n: n.to_bytes(4, "big")),
}
# Several row groups in a file, two partitions.
LAYOUT = {"partition_by": "p", "row_group_rows": 2}


def pairs(keys: list[tuple[int, int]]) -> pa.Table:
    return pa.table({"a": [a for a, _ in keys], "b": [b for _, b in keys]})


def rows(bad: int | None = None, start: int = 100, other: int = 4) -> pa.Table:
    """Rows with keys of their own, but for one that has the key `other` of the dataset."""
    ids = list(range(start, start + ROWS))
    if bad is not None:
        ids[bad] = other
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": pa.array([None if n % 4 == 1 else n for n in range(ROWS)], pa.int64()),
            "p": pa.array([n % 2 for n in range(ROWS)], pa.int64()),
        }
    )


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    lake.write_dataset(rows(start=0), tmp_path / "data", **LAYOUT)
    dataset = lake.open_dataset(tmp_path / "data")
    dataset.add_constraint("pk", "PRIMARY KEY (id)")
    return dataset


def content(dataset: lake.Dataset) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in dataset.scan().to_table().to_pylist()), key=repr)


def _restore(dataset: lake.Dataset, table: pa.Table) -> None:
    dataset.drop_constraint("pk")
    lake.write_dataset(table, dataset.uri)
    dataset.refresh().delete("id >= 100 OR id = 4")
    dataset.add_constraint("pk", "PRIMARY KEY (id)")
    dataset.restore(4)


DOORS: dict[str, Callable[[lake.Dataset, pa.Table], Any]] = {
    **ADDING,
    "overwrite where": lambda d, t: lake.write_dataset(
        t.set_column(1, "v", pa.array([None] * ROWS, pa.int64())),
        d.uri,
        mode="overwrite",
        overwrite_where="v IS NULL",
    ),
    "restore": _restore,
}


def on_disk(dataset: lake.Dataset) -> set[str]:
    folder = Path(dataset.uri.partition("#")[0].removeprefix("file://"))
    return {path.name for path in folder.rglob("*.parquet") if "exports" not in path.parts}


def _refused(dataset: lake.Dataset, change: Callable[[], Any]) -> ConstraintViolationError:
    version, files = dataset.version, {file.path for file in dataset.files()}
    before, stored = content(dataset), on_disk(dataset)
    with pytest.raises(ConstraintViolationError) as caught:
        change()
    error = caught.value
    assert (error.constraint, error.expression) == ("pk", "PRIMARY KEY (id)")
    dataset.refresh()
    assert (dataset.version, {file.path for file in dataset.files()}) == (version, files)
    assert content(dataset) == before
    assert on_disk(dataset) == stored
    return error


@pytest.mark.parametrize("bad", [0, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(13)
def test_no_door_commits_a_key_that_the_dataset_has(
    door: str, bad: int, dataset: lake.Dataset
) -> None:
    if door == "restore":
        with pytest.raises(ConstraintViolationError, match=r"id = 4, .* another row"):
            DOORS[door](dataset, rows(bad))
        return
    branch = dataset.branch("b") if door == "branch" else dataset
    error = _refused(branch, lambda: DOORS[door](dataset, rows(bad)))
    v = None if bad % 4 == 1 or door == "overwrite where" else bad
    assert str(error.row).startswith(f"id = 4, v = {v}, p = {bad % 2}")
    assert "a row of the dataset has this key too" in str(error)


@pytest.mark.parametrize("bad", [0, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize("door", [*DOORS, "overwrite", "overwrite schema"])
@pytest.mark.sampled(13)
def test_no_door_commits_a_key_twice_or_without_a_value(
    door: str, bad: int, dataset: lake.Dataset
) -> None:
    if door == "restore":
        return
    run = DOORS.get(door) or (
        lambda d, t: lake.write_dataset(
            t, d.uri, mode="overwrite", overwrite_schema=door == "overwrite schema"
        )
    )
    branch = dataset.branch("b") if door == "branch" else dataset
    other = 100 if bad else 101
    error = _refused(branch, lambda: run(dataset, rows(bad, other=other)))
    assert str(error.row).startswith(f"id = {other}, ")
    assert "another row of this commit" in str(error)
    table = rows()
    nulls = pa.array([None if n == bad else n + 100 for n in range(ROWS)], pa.int64())
    error = _refused(branch, lambda: run(dataset, table.set_column(0, "id", nulls)))
    assert str(error.row).startswith("id = None, ")


@pytest.mark.parametrize("door", DOORS)
def test_every_door_commits_new_keys(door: str, dataset: lake.Dataset) -> None:
    if door == "restore":
        return
    DOORS[door](dataset, rows())
    dataset = dataset.branch("b") if door == "branch" else dataset.refresh()
    gone = 2 if door == "overwrite where" else 0
    assert dataset.scan().count_rows() == 2 * ROWS - gone
    assert dict(dataset.constraints) == {"pk": "PRIMARY KEY (id)"}


class TestRowsThatTheCommitTakesOut:
    def test_update(self, dataset: lake.Dataset) -> None:
        error = _refused(dataset, lambda: dataset.update({"id": "id + 1"}, "id = 3"))
        assert error.row == "id = 4, v = 3, p = 1"
        _refused(dataset, lambda: dataset.update({"id": "7"}, "id < 2"))
        dataset.update({"id": "id + 1"})
        _refused(dataset, lambda: dataset.update({"id": "10 - id"}, "id > 2"))
        dataset.update({"id": "12 - id"}, "id > 2")
        assert sorted(row[0] for row in content(dataset)) == list(range(1, 10))

    def test_merge_and_upsert(self, dataset: lake.Dataset) -> None:
        table = pa.table({"id": [4, 200], "v": [40, 200], "p": [1, 1]})
        assert dataset.upsert(table).rows_updated == 1
        assert dataset.upsert(table, on="v").rows_updated == 2
        _refused(dataset, lambda: dataset.upsert(table.set_column(1, "v", pa.array([0, 1])), "v"))
        merge = dataset.merge(table, "target.id = source.id")
        merge = merge.when_matched_delete().when_not_matched_insert_all()
        assert merge.execute().rows_deleted == 2
        assert dataset.upsert(table).rows_inserted == 2
        moved = dataset.merge({"id": [4], "n": [5]}, "target.id = source.id")
        _refused(dataset, lambda: moved.when_matched_update({"id": "source.n"}).execute())

    def test_a_merge_that_is_no_upsert(self, dataset: lake.Dataset) -> None:
        """Only an upsert on the key has compared the keys already."""
        row = {"id": [3], "v": [7], "p": [1]}
        for on, values in (
            ("target.id = source.id AND target.v = 99", None),
            ("target.id = source.id + 90", None),
            ("target.v = source.v + 90", None),
            ("target.id = source.id + 97", {"id": "3", "p": "1"}),
        ):
            merge = dataset.merge(row, on)
            if values is None:
                merge.when_not_matched_insert_all()
            else:
                merge.when_not_matched_insert(values)
            _refused(dataset, merge.execute)
        merge = dataset.merge(row, "target.id = source.id")
        _refused(dataset, merge.when_matched_update({"id": "2"}).execute)
        merge = dataset.merge({**row, "id": [300]}, "target.id = source.id")
        _refused(dataset, merge.when_not_matched_insert({"id": "2", "p": "0"}).execute)

    def test_keys_that_are_equal_only_when_they_are_stored(self, tmp_path: Path) -> None:
        """CHAR is filled with spaces."""
        told = {SPARK_METADATA: b'{"__CHAR_VARCHAR_TYPE_STRING":"char(3)"}'}
        schema = pa.schema([pa.field("c", pa.string(), metadata=told)])
        with lake.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path) as catalog:
            dataset = catalog.create_dataset("t", schema, constraints={"pk": "primary key (C)"})
            lake.write_dataset({"c": ["a", "b"]}, dataset.uri, catalog=catalog)
            with pytest.raises(ConstraintViolationError):
                lake.write_dataset({"c": ["a"]}, dataset.uri, catalog=catalog)
            dataset.refresh()
            merge = dataset.merge({"c": ["a"]}, "target.c = source.c")
            with pytest.raises(ConstraintViolationError):
                merge.when_not_matched_insert_all().execute()
            assert dataset.upsert({"c": ["a", "d"]}).rows_updated == 1

    def test_overwrites(self, dataset: lake.Dataset) -> None:
        def overwrite(**arguments: Any) -> Any:
            return lake.write_dataset(rows(start=0), dataset.uri, mode="overwrite", **arguments)

        overwrite(overwrite_where="id < 100")
        overwrite(partition_overwrite_mode="dynamic")
        overwrite()
        half = rows(start=0).filter(pa.compute.equal(rows()["p"], 1))
        half = half.set_column(2, "p", pa.array([0] * len(half), pa.int64()))
        dataset.refresh()

        def dynamic() -> None:
            lake.write_dataset(
                half, dataset.uri, mode="overwrite", partition_overwrite_mode="dynamic"
            )

        _refused(dataset, dynamic)  # the rows of the other partition stay
        dataset.delete("p = 1")
        dynamic()
        assert sorted(row[0] for row in content(dataset.refresh())) == [1, 3, 5, 7]

    def test_deleted_rows_are_none(self, dataset: lake.Dataset) -> None:
        dataset.delete("id IN (0, 1)")
        lake.write_dataset({"id": [0, 1], "v": [1, 1], "p": [0, 0]}, dataset.uri)
        dataset.refresh().compact(rewrite_deleted=True)
        _refused(dataset.refresh(), lambda: lake.write_dataset(rows(8, other=1), dataset.uri))


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "int8": (pa.int8(), -1, 5),
    "uint64": (pa.uint64(), 2**64 - 1, 2**63),
    "decimal": (pa.decimal128(38, 2), Decimal("1.10"), Decimal("999999999999999999.99")),
    "string": (pa.string(), "ä\U0001f600", "a" * 5000),
    "binary": (pa.binary(), b"\xff\x00", b""),
    "fixed": (pa.binary(3), b"abc", b"abd"),
    "bool": (pa.bool_(), True, False),
    "date": (pa.date32(), datetime(1, 1, 1).date(), datetime(9999, 12, 31).date()),
    "timestamp": (pa.timestamp("us"), datetime(1850, 1, 1), datetime(2026, 1, 1)),
    "instant": (pa.timestamp("ns", "UTC"), 1, 2),
    "time": (pa.time64("us"), timedelta(hours=1), timedelta(hours=2)),
}


class TestKeys:
    def test_null_repeats_in_unique(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset({"a": [1, None, None, 1], "b": ["x", "x", "x", None]}, uri)
        dataset = lake.open_dataset(uri)
        dataset.add_constraint("u", "unique(B, `a`)")
        assert dict(dataset.constraints) == {"u": "UNIQUE (b, a)"}
        lake.write_dataset({"a": [1, None, 2], "b": [None, "x", "x"]}, uri)
        with pytest.raises(ConstraintViolationError, match=r"b = 'x', a = 2: a row of the dataset"):
            lake.write_dataset({"a": [None, 2], "b": ["x", "x"]}, uri)

    @pytest.mark.parametrize("kind", VALUES)
    def test_types(self, kind: str, tmp_path: Path) -> None:
        type_, one, two = VALUES[kind]
        if kind == "time":
            one, two = ((datetime.min + value).time() for value in (one, two))

        def table(*values: Any) -> pa.Table:
            return pa.table(
                {"k": pa.array(values, type_), "n": pa.array([*map(int, "1" * len(values))])}
            )

        lake.write_dataset(table(one), tmp_path / "t")
        dataset = lake.open_dataset(tmp_path / "t")
        dataset.add_constraint("pk", "PRIMARY KEY (k)")
        for wrong in (table(two, two), table(two, one)):
            with pytest.raises(ConstraintViolationError):
                lake.write_dataset(wrong, dataset.uri)
        lake.write_dataset(table(two), dataset.uri)
        assert dataset.refresh().upsert(table(one, two)).rows_updated == 2

    @pytest.mark.parametrize("kind", SPREAD)
    def test_many_new_keys_open_only_files_that_may_have_one(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Old keys are the even ones, new keys lie between them, and one of all is old."""
        type_, of = SPREAD[kind]
        rows, uri = 600, tmp_path / "t"

        def table(numbers: list[int]) -> pa.Table:
            other = pa.array([n % 2 for n in numbers], pa.int8())
            return pa.table({"k": pa.array(map(of, numbers), type_), "other": other})

        lake.write_dataset(table([0]), uri, row_group_rows=75, target_file_size_bytes=1)
        dataset = lake.open_dataset(uri)
        dataset.add_constraint("pk", "PRIMARY KEY (other, k)" if kind == "text" else "UNIQUE (k)")
        dataset.set_properties(target_file_size_bytes=1 << 28)
        for begin in range(2, 2 * rows, 300):
            lake.write_dataset(table([*range(begin, begin + 300, 2)]), uri)
        for old in (2, 300, 750):
            numbers = [*range(1, 2 * rows, 40), old]
            with pytest.raises(ConstraintViolationError, match="a row of the dataset"):
                lake.write_dataset(table(numbers), uri)
        read: list[str] = []

        def reading(spec: Any, task: Any, storage: Any) -> Any:
            read.append(task.path)
            return read_task(spec, task, storage)

        monkeypatch.setattr(keys, "read_task", reading)
        lake.write_dataset(table([*range(1, 2 * rows, 40)]), uri)
        assert len(read) <= 1, "one key in a thousand that is not there may seem to be"

    @pytest.mark.parametrize("kind", ["long", "date", "timestamp", "text"])
    @pytest.mark.sampled(1)
    def test_keys_that_ascend_are_not_read(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        type_, of = SPREAD[kind]
        uri = tmp_path / "t"

        def append(*numbers: int | None, parts: tuple[int, ...] = (), **options: Any) -> None:
            values = [None if n is None else of(n) for n in numbers]
            other = parts or [0] * len(numbers)
            rows = pa.table({"k": pa.array(values, type_), "p": pa.array(other, pa.int8())})
            lake.write_dataset(rows, uri, **options)

        append(0, partition_by="p")
        lake.open_dataset(uri).add_constraint("u", "UNIQUE (k)")
        with monkeypatch.context() as patch:
            patch.setattr(keys, "read_all", None)
            append(3)
            append(7, 8, 9, 10, 11, row_group_rows=2)
            append(12, 13, 14, 15, parts=(0, 0, 1, 1))
            append(5, 6)  # between others
        with monkeypatch.context() as patch:
            patch.setattr(keys, "MOST_VALUES", 2)
            with pytest.raises(ConstraintViolationError):
                append(1, 2, 3)
        for wrong in ((5,), (4, 5), (16, 17, 18, 18), (18, 17, 17), (16, 16), (4, None, 4)):
            with pytest.raises(ConstraintViolationError):
                append(*wrong, row_group_rows=3)
        with pytest.raises(ConstraintViolationError):
            append(16, 17, 17, 18, parts=(0, 0, 1, 1))
        with pytest.raises(ConstraintViolationError):
            append(16, 18, 16, 18, parts=(0, 0, 1, 1))
        append(16, 18, 17, 19, None, None, parts=(0, 0, 1, 1, 1, 0))

    @pytest.mark.parametrize("room", [pytest.param(0, marks=pytest.mark.long), 5_000])
    def test_filters_that_do_not_fit_are_read_again(
        self, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(key_search, "_KEPT", Remembered(room))
        monkeypatch.setattr(key_search, "_KEPT_BYTES", room)
        monkeypatch.setattr(key_search, "_KEYS_AT_ONCE", 50)
        draw, uri = random.Random(7), tmp_path / "t"
        every = [(a, b) for a in range(40) for b in range(20)]
        draw.shuffle(every)
        files = [every[start : start + 80] for start in range(0, 400, 80)]
        for number, some in enumerate(files):
            lake.write_dataset(pairs(some), uri, row_group_rows=9)
            if number == 0:
                lake.open_dataset(uri).add_constraint("pk", "PRIMARY KEY (a, b)")
        for some in files:
            a, b = draw.choice(some)
            with pytest.raises(ConstraintViolationError, match=f"a = {a}, b = {b}: a row of"):
                lake.write_dataset(pairs([*draw.sample(every[400:], 39), (a, b)]), uri)
        lake.write_dataset(pairs(every[400:]), uri)

    @pytest.mark.parametrize("loose", [1, 4])
    def test_keys_of_files_that_were_looked_into(
        self, loose: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each key of each file is refused, alone and among others, until its row is deleted."""
        monkeypatch.setattr(key_search, "_LOOSE_FILES", loose)
        remembered: list[list[int]] = []
        remember = key_search.KeySearch.remember

        def spy(self: Any, file: Any, keys: Any) -> None:
            remember(self, file, keys)
            remembered.append([value.as_py() for one in keys for value in one])

        monkeypatch.setattr(key_search.KeySearch, "remember", spy)
        uri, draw = tmp_path / "t", random.Random(11)
        every = [draw.randrange(-(1 << 63), 1 << 63) for _ in range(96)]
        files = [every[start : start + 16] for start in range(0, 80, 16)]
        for number, some in enumerate(files):
            lake.write_dataset({"k": some, "v": [number] * 16}, uri, row_group_rows=5)
            if number == 0:
                lake.open_dataset(uri).add_constraint("u", "UNIQUE (k)")
        new = every[80:]

        def refused(keys: list[int]) -> None:
            with pytest.raises(ConstraintViolationError, match=f"k = {keys[0]}, v = 9: a row of"):
                lake.write_dataset({"k": keys, "v": [9] * len(keys)}, uri)

        for some in files:
            for key in some:
                refused([key])
                refused([key, *new])
        assert sorted(remembered) == sorted(files), "each file is read once"
        dataset = lake.open_dataset(uri)
        gone, *_, kept = files[2]
        dataset.delete(f"k = {gone}")
        lake.write_dataset({"k": [gone, *new], "v": [9] * 17}, uri)
        for key in (gone, kept, new[0]):
            refused([key])

    def test_an_upsert_opens_only_files_that_may_have_a_key(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uri = tmp_path / "t"
        lake.write_dataset({"k": [-5], "v": [0]}, uri)
        lake.open_dataset(uri).add_constraint("u", "UNIQUE (k)")
        for number in range(6):  # all in one range, and each with NULL
            keys = [*range(number, 600, 6), None]
            lake.write_dataset({"k": keys, "v": [number] * 101}, uri, row_group_rows=30)
        read: set[str] = set()

        def reading(spec: Any, tasks: Any, storage: Any) -> Any:
            read.update(task.path for task in tasks)
            return read_each(spec, tasks, storage)

        monkeypatch.setattr(row_statement, "read_each", reading)
        dataset = lake.open_dataset(uri)
        done = dataset.upsert({"k": [-5, 300, 305, 700], "v": [9] * 4}, on="k")
        assert (done.rows_updated, done.rows_inserted, len(read)) == (3, 1, 3)
        assert {*dataset.scan("v = 9").to_table()["k"].to_pylist()} == {-5, 300, 305, 700}
        merge = dataset.merge({"k": [None, 7]}, "target.k <=> source.k")
        assert merge.when_matched_delete().execute().rows_deleted == 7
        merge = dataset.merge({"k": [8]}, "target.k = source.k").when_matched_delete()
        merge = merge.when_not_matched_by_source_delete("target.k > 690")
        assert merge.execute().rows_deleted == 2

    def test_what_is_known_of_a_file_is_not_taken_for_another_with_its_id(
        self, tmp_path: Path
    ) -> None:
        """Ids of files that were rolled back are given to other files."""
        lake.write_dataset({"k": [1, 5], "v": [0, 0]}, tmp_path / "t")
        dataset = lake.open_dataset(tmp_path / "t")
        dataset.add_constraint("u", "UNIQUE (k)")
        with dataset._address.open() as catalog, catalog.read() as reader:
            snapshot = dataset._address.snapshot(catalog, reader)
            bound = PredicateSet.of("k = 1").bind(snapshot.schema)
            known = key_search.KeyFiles(reader, snapshot, bound)
            (file,) = known.files
            file.values = np.array([1, 5])
            known.keep()
            other = replace(file.record, path="other.parquet")
            for record, values in ((file.record, file.values), (other, None)):
                (found,) = key_search.KeyFiles(reader, snapshot, bound, [record]).files
                assert (found.record, found.values) == (record, values)

    @pytest.mark.parametrize("isolation", ["write-serializable", "snapshot"])
    def test_an_upsert_that_brings_a_key_twice(self, isolation: str, dataset: lake.Dataset) -> None:
        before = dataset.refresh().version
        for ids in ([900, 901, 900], [901, 901]):
            merge = dataset.merge(
                {"id": ids, "v": ids, "p": ids},
                "target.id = source.id",
                isolation=isolation,
            )
            with pytest.raises(ConstraintViolationError, match="another row of this commit"):
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
        assert dataset.refresh().version == before

    def test_convert_adds_no_rows_to_a_dataset_with_a_key(
        self, dataset: lake.Dataset, tmp_path: Path
    ) -> None:
        pq.write_table(rows(8), Path(dataset.uri.removeprefix("file://")) / "more.parquet")
        with pytest.raises(lake.DatasetExistsError):
            lake.convert(dataset.uri)
        (tmp_path / "twice").mkdir()
        pq.write_table(rows(8, other=101), tmp_path / "twice" / "1.parquet")
        made = lake.convert(tmp_path / "twice")
        with pytest.raises(ConstraintViolationError, match="id = 101"):
            made.add_constraint("pk", "PRIMARY KEY (id)")

    def test_what_is_no_key(self, tmp_path: Path) -> None:
        lake.write_dataset({"f": [1.5], "a": [1], "b": [1], "s": [{"x": 1}]}, tmp_path / "t")
        dataset = lake.open_dataset(tmp_path / "t")
        for text, said in (
            ("PRIMARY KEY (f)", "type double"),
            ("UNIQUE (s)", "whose values are no keys"),
            ("UNIQUE (a, A)", "is twice"),
            ("UNIQUE (c)", "not a column"),
            ("UNIQUE ()", "does not name columns"),
            ("PRIMARY KEY (s.x)", "does not name columns"),
            ("PRIMARY KEY (a + 1)", "does not name columns"),
        ):
            with pytest.raises(InvalidOptionError, match=said):
                dataset.add_constraint("k", text)
        dataset.add_constraint("k", "PRIMARY KEY (a)")
        with pytest.raises(InvalidOptionError, match="second primary key beside 'k'"):
            dataset.add_constraint("l", "PRIMARY KEY (b)")
        with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
            texts = {"k": "PRIMARY KEY (a)", "l": "PRIMARY KEY (b)"}
            schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
            with pytest.raises(InvalidOptionError, match="second primary key"):
                catalog.create_dataset("u", schema, location=tmp_path / "u", constraints=texts)

    def test_its_columns_stay(self, dataset: lake.Dataset) -> None:
        for change in (
            lambda: dataset.rename_column("id", "b"),
            lambda: dataset.rename_column("id", "ID"),
            lambda: dataset.drop_column("id"),
        ):
            with pytest.raises(SchemaMismatchError, match=r"'pk', PRIMARY KEY \(id\)"):
                change()
        dataset.rename_column("v", "w")

    def test_a_promoted_key_is_compared_with_older_files(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "t")
        lake.write_dataset(pa.table({"k": pa.array([1, 2], pa.int32())}), uri)
        dataset = lake.open_dataset(uri)
        dataset.add_constraint("pk", "PRIMARY KEY (k)")
        dataset.promote_column("k", pa.int64())
        with pytest.raises(ConstraintViolationError):
            lake.write_dataset({"k": [2**40, 2]}, uri)
        lake.write_dataset({"k": [2**40]}, uri)

    def test_clones_and_branches_keep_it(self, dataset: lake.Dataset, tmp_path: Path) -> None:
        branch = dataset.branch("b")
        lake.write_dataset(rows(), branch.uri)
        lake.write_dataset(rows(start=200), dataset.uri)
        with pytest.raises(CommitConflictError):  # so no key of both comes in
            dataset.refresh().fast_forward("b")

    def test_adding_finds_one_pair_among_many_rows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More rows than are held in memory are sorted in a temporary folder."""
        monkeypatch.setattr(keys, "SORTED_BYTES", 100_000)
        uri, draw = str(tmp_path / "t"), random.Random(7)
        ids = draw.sample(range(1 << 40), 60_000)
        table = pa.table({"a": pa.array(ids), "b": [str(one % 5) for one in ids]})
        for start in range(0, 60_000, 20_000):
            lake.write_dataset(table.slice(start, 20_000), uri, row_group_rows=5_000)
        dataset = lake.open_dataset(uri)
        dataset.add_constraint("u", "UNIQUE (b, a)")
        dataset.drop_constraint("u")
        lake.write_dataset(table.slice(31_000, 1), uri)
        with pytest.raises(ConstraintViolationError, match=f"a = {ids[31_000]}: another row"):
            dataset.refresh().add_constraint("u", "UNIQUE (b, a)")


def commit_beside(
    dataset: lake.Dataset, table: pa.Table, others: Callable[[], Any]
) -> lake.WriteResult:
    """Append rows while others commit, after the keys were compared with the dataset."""
    check = keys.NewKeys.check
    with dataset._address.open() as catalog, pytest.MonkeyPatch.context() as patched:
        staged, files = stage(catalog, dataset._address, table.to_reader(), write_options())

        def beside(found: keys.NewKeys, opened: Any) -> None:
            check(found, opened)
            patched.setattr(keys.NewKeys, "check", check)
            others()

        patched.setattr(keys.NewKeys, "check", beside)
        return commit(catalog, staged, files)


def test_equal_keys_in_two_sorted_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SORTED_BYTES", 2_000)
    monkeypatch.setattr(rewrite, "_SLICE_ROWS", 1)
    for repeated in (None, 500):
        rows = [*range(1000), -1 if repeated is None else repeated]
        tables = [
            pa.table({"k0": rows[at : at + 100], "row": list(range(at, min(at + 100, 1001)))})
            for at in range(0, 1001, 100)
        ]
        assert keys.first_repeated(tables) == repeated


class TestBesideOthers:
    @pytest.mark.parametrize("busy", [1, 10])
    def test_one_of_two_appends_of_a_key_wins(self, busy: int, dataset: lake.Dataset) -> None:
        def others() -> None:
            for number in range(1, busy):
                lake.write_dataset(rows(start=1000 * number), dataset.uri)
            lake.write_dataset(rows(5, start=50_000, other=104), dataset.uri)

        with pytest.raises(CommitConflictError, match=r"'pk', PRIMARY KEY \(id\).*id = 104"):
            commit_beside(dataset, rows(), others)
        assert dataset.refresh().scan("id = 104").count_rows() == 1

    def test_others_keys_are_compared_under_the_lock_in_the_end(
        self, dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Files of others overlap each time, and hold no key: the commit is not starved."""
        again, starts = keys.NewKeys.check_again, iter(range(100))

        def append() -> None:
            table = pa.table({"id": [90 - next(starts), 990 + next(starts)], "v": [1, 1]})
            lake.write_dataset(table.append_column("p", pa.array([0, 0])), dataset.uri)

        def beside(found: keys.NewKeys, catalog: Any) -> None:
            again(found, catalog)
            append()

        monkeypatch.setattr(keys.NewKeys, "check_again", beside)
        spread = rows().set_column(0, "id", pa.array([one * 100 + 7 for one in range(1, 10)]))
        assert commit_beside(dataset, spread, append).version == 8
        assert dataset.refresh().scan().count_rows() == 2 * ROWS + 10

    def test_a_key_that_a_restore_brings_back(self, dataset: lake.Dataset) -> None:
        dataset.delete("id = 4")
        with pytest.raises(CommitConflictError, match="id = 4"):
            commit_beside(dataset, rows(3), lambda: dataset.restore(2))

    def test_a_key_that_a_compaction_moved_is_found(self, dataset: lake.Dataset) -> None:
        def others() -> None:
            lake.write_dataset(rows(5, start=3000, other=104), dataset.uri)
            dataset.refresh().compact()

        with pytest.raises(CommitConflictError, match="id = 104"):
            commit_beside(dataset, rows(), others)

    def test_what_others_move_or_take_out_is_no_conflict(self, dataset: lake.Dataset) -> None:
        def others() -> None:
            lake.write_dataset(rows(start=3000), dataset.uri)
            dataset.refresh().compact()
            dataset.delete("id < 4")
            dataset.update({"v": "v + 1"})
            dataset.set_properties(compression="snappy")

        commit_beside(dataset, rows(), others)
        assert dataset.refresh().scan().count_rows() == 3 * ROWS - 4

    def test_the_writes_of_a_transaction(self, dataset: lake.Dataset) -> None:
        """They see each other's keys, and conflict with those that others commit meanwhile."""
        catalog = f"sqlite://{dataset.uri.removeprefix('file://')}/_plake/catalog.db"

        def run(key: int, meanwhile: int | None = None) -> None:
            with lake.transaction(catalog) as transaction:
                transaction.open_dataset(dataset.uri).delete("id = 4")
                transaction.write(rows(4), dataset.uri)
                if meanwhile is not None:
                    lake.write_dataset({"id": [meanwhile], "v": [1], "p": [1]}, dataset.uri)
                transaction.write({"id": [key], "v": [1], "p": [1]}, dataset.uri)

        with pytest.raises(ConstraintViolationError, match="id = 103"):
            run(103)
        with pytest.raises((ConstraintViolationError, CommitConflictError)):
            run(200, meanwhile=200)
        run(104)
        ids = [row[0] for row in content(dataset.refresh())]
        assert sorted(ids) == [*range(9), *range(100, 109), 200]

    def test_an_append_that_did_not_check_it_conflicts(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset(rows(), uri)
        address = lake.open_dataset(uri)._address
        with address.open() as catalog:
            staged, files = stage(catalog, address, rows().to_reader(), write_options())
            lake.open_dataset(uri).add_constraint("pk", "PRIMARY KEY (id)")
            with pytest.raises(CommitConflictError, match="'pk' was added"):
                commit(catalog, staged, files)

    def test_a_repeated_batch_is_skipped_and_not_refused(self, dataset: lake.Dataset) -> None:
        pair = {"txn_app_id": "q", "txn_version": 1}
        first = lake.write_dataset(rows(), dataset.uri, **pair)
        again = lake.write_dataset(rows(), dataset.uri, **pair)
        assert (again.skipped, again.version) == (True, first.version)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("count", "most"), [(2, 10), pytest.param(8, 40, marks=pytest.mark.long)]
    )
    def test_processes_that_write_the_same_keys(
        self, count: int, most: int, catalog: lake.Catalog, tmp_path: Path
    ) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset({"id": [-1], "writer": [-1]}, uri, catalog=catalog)
        lake.open_dataset(uri, catalog=catalog).add_constraint("pk", "PRIMARY KEY (id)")
        running = []
        for writer in range(count):
            ours, theirs = processes.CONTEXT.Pipe(duplex=False)
            running.append(
                (ours, processes.start(writers.write_keys, catalog.url, uri, writer, most, theirs))
            )
            theirs.close()
        won: list[tuple[int, int]] = []
        for ours, process in running:
            mine = ours.recv()
            assert not isinstance(mine, str), mine
            won += mine
            process.join(30)
        found = lake.read_dataset(uri, catalog=catalog)
        ids = found["id"].to_pylist()
        assert len(ids) == len(set(ids)) == most + 1
        assert sorted(won) == sorted(zip(ids, found["writer"].to_pylist()))[1:]


# --- random programs, with SQLite as the judge of keys --------------------------------

KEYS = ("PRIMARY KEY (a)", "PRIMARY KEY (b, a)", "UNIQUE (a)", "UNIQUE (b)", "UNIQUE (a, b)")
WHERE: dict[str, Callable[[tuple[Any, ...]], bool | None]] = {
    "a < 4": lambda row: None if row[0] is None else row[0] < 4,
    "b = 'x'": lambda row: None if row[1] is None else row[1] == "x",
    "v > 2": lambda row: row[2] > 2,
    "a IS NULL": lambda row: row[0] is None,
}
Row = tuple[Any, ...]


class Program:
    """Random changes of a dataset; the rows after each are judged by a table of SQLite."""

    def __init__(self, seed: int, uri: str) -> None:
        self.draw = random.Random(seed)
        self.uri, self.steps = uri, list[Any]()
        self.rows: list[Row] = []
        self.keys: dict[str, str] = {}
        self.names = 0
        lake.write_dataset(self.table([(-1, "z", 0)]), uri, row_group_rows=2)
        self.dataset = lake.open_dataset(uri)
        self.rows = [(-1, "z", 0)]

    def table(self, rows: list[Row]) -> pa.Table:
        columns = list(zip(*rows)) or [(), (), ()]
        types = (pa.int64(), pa.string(), pa.int64())
        return pa.table([pa.array(c, t) for c, t in zip(columns, types)], ["a", "b", "v"])

    def drawn(self) -> list[Row]:
        draw = self.draw
        return [
            (draw.choice([*range(8), None]), draw.choice(["x", "y", "z", None]), draw.randrange(5))
            for _ in range(draw.randint(1, 3))
        ]

    def holds(self, rows: list[Row], keys: dict[str, str]) -> bool:
        texts = "".join(f", {text}" for text in keys.values())
        strict = [one for one in keys.values() if one.startswith("PRIMARY")]
        named = {name for text in strict for name in text[text.index("(") + 1 : -1].split(", ")}
        nulls = {name: " NOT NULL" if name in named else "" for name in "ab"}
        with closing(sqlite3.connect(":memory:")) as judge, judge:
            judge.execute(f"CREATE TABLE t (a INT{nulls['a']}, b TEXT{nulls['b']}, v INT{texts})")
            try:
                judge.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            except sqlite3.IntegrityError:
                return False
        return True

    def change(self, told: Any, after: list[Row], run: Callable[[], Any]) -> None:
        self.steps.append(told)
        right = self.holds(after, self.keys)
        self.compare(right, run)
        if right:
            self.rows = after

    def compare(self, right: bool, run: Callable[[], Any]) -> None:
        try:
            run()
        except ConstraintViolationError:
            assert not right, self.steps
        else:
            assert right, self.steps

    def append(self) -> None:
        new = self.drawn()
        self.change(
            ("append", new),
            self.rows + new,
            lambda: lake.write_dataset(self.table(new), self.uri),
        )

    def overwrite(self) -> None:
        where = self.draw.choice(list(WHERE))
        new = [row for row in self.drawn() if WHERE[where](row)]
        self.change(
            ("overwrite", where, new),
            [row for row in self.rows if not WHERE[where](row)] + new,
            lambda: lake.write_dataset(
                self.table(new), self.uri, mode="overwrite", overwrite_where=where
            ),
        )

    def update(self) -> None:
        where = self.draw.choice(list(WHERE))
        column, text, value = self.draw.choice(
            [
                (0, "a + 1", lambda row: None if row[0] is None else row[0] + 1),
                (0, "v", lambda row: row[2]),
                (1, "'x'", lambda row: "x"),
                (2, "v + 1", lambda row: row[2] + 1),
            ]
        )

        def changed(row: Row) -> Row:
            return (*row[:column], value(row), *row[column + 1 :]) if WHERE[where](row) else row

        self.change(
            ("update", text, where),
            [changed(row) for row in self.rows],
            lambda: self.dataset.update({"abv"[column]: text}, where),
        )

    def upsert(self) -> None:
        new = list({row[0]: row for row in self.drawn() if row[0] is not None}.values())
        given = {row[0]: row for row in new}
        kept = [given.get(row[0], row) for row in self.rows]
        there = {row[0] for row in self.rows}
        self.change(
            ("upsert", new),
            kept + [row for row in new if row[0] not in there],
            lambda: self.dataset.upsert(self.table(new), on="a"),
        )

    def delete(self) -> None:
        where = self.draw.choice(list(WHERE))
        self.change(
            ("delete", where),
            [row for row in self.rows if not WHERE[where](row)],
            lambda: self.dataset.delete(where),
        )

    def compact(self) -> None:
        self.change("compact", self.rows, lambda: self.dataset.compact(rewrite_deleted=True))

    def add(self) -> None:
        self.names += 1
        name, text = f"k{self.names}", self.draw.choice(KEYS)
        if text.startswith("PRIMARY") and any(k.startswith("P") for k in self.keys.values()):
            return
        self.steps.append((name, text))
        wanted = {**self.keys, name: text}
        right = self.holds(self.rows, wanted)
        self.compare(right, lambda: self.dataset.add_constraint(name, text))
        if right:
            self.keys = wanted

    def drop(self) -> None:
        if self.keys:
            name = self.draw.choice(sorted(self.keys))
            self.steps.append(("drop", name))
            del self.keys[name]
            self.dataset.drop_constraint(name)

    def run(self, steps: int) -> None:
        often = (self.append, self.append, self.append, self.update, self.upsert, self.overwrite)
        for _ in range(steps):
            self.draw.choice((*often, self.delete, self.compact, self.add, self.add, self.drop))()
            assert content(self.dataset.refresh()) == sorted(self.rows, key=repr), self.steps
            assert dict(self.dataset.constraints) == self.keys


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(30)
def test_a_dataset_refuses_what_sqlite_refuses(seed: int, tmp_path: Path) -> None:
    Program(seed, str(tmp_path / "data")).run(25)


@pytest.mark.parametrize("type_", [pa.binary(), pa.string()], ids=str)
def test_keys_that_end_with_a_nul_are_found(tmp_path: Path, type_: pa.DataType) -> None:
    uri = str(tmp_path / "data")

    def rows(v: int, *b: str) -> pa.Table:
        texts = pa.array(b, pa.string()).cast(type_)
        return pa.table({"a": [False] * len(b), "b": texts, "v": [v] * len(b)})

    for number, text in enumerate(("\0", "a\0", "z")):
        lake.write_dataset(rows(number, text), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_constraint("both", "UNIQUE (a, b)")
    for text in ("\0", "a\0"):
        with pytest.raises(ConstraintViolationError):
            lake.write_dataset(rows(7, text, "new"), uri)
    done = dataset.refresh().upsert(rows(9, "\0", "a\0", "", "a"), on=["a", "b"])
    assert (done.rows_updated, done.rows_inserted) == (2, 2)
