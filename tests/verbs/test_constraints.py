"""CHECK constraints: no writer of Python commits a row that breaks one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import (
    CommitConflictError,
    ConstraintViolationError,
    InvalidOptionError,
    InvalidPredicateError,
    SchemaMismatchError,
)
from lakehouse_source.write.commit.commit import commit
from lakehouse_source.write.commit.stored_rows import Suspects
from lakehouse_source.write.rows import stage, write_options
from tests.verbs.adding_doors import ADDING

ROWS = 9
# Several row groups in a file, two partitions.
LAYOUT = {"partition_by": "p", "row_group_rows": 2}


def rows(bad: int | None = None, start: int = 100) -> pa.Table:
    """Rows whose `v` is positive, NULL in one, but for one that breaks the constraint."""
    values: list[int | None] = [n + 1 for n in range(ROWS)]
    values[4] = None
    if bad is not None:
        values[bad] = -7
    return pa.table(
        {
            "id": pa.array(range(start, start + ROWS), pa.int64()),
            "v": pa.array(values, pa.int64()),
            "p": pa.array([n % 2 for n in range(ROWS)], pa.int64()),
        }
    )


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    lake.write_dataset(rows(start=0), tmp_path / "data", **LAYOUT)
    dataset = lake.open_dataset(tmp_path / "data")
    dataset.add_constraint("positive", "v > 0")
    return dataset


def _restore(dataset: lake.Dataset, table: pa.Table) -> None:
    dataset.drop_constraint("positive")
    lake.write_dataset(table, dataset.uri)
    dataset.refresh().delete("id >= 100")
    dataset.add_constraint("positive", "v > 0")
    dataset.restore(4)


DOORS: dict[str, Callable[[lake.Dataset, pa.Table], Any]] = {
    **ADDING,
    "overwrite": lambda d, t: lake.write_dataset(t, d.uri, mode="overwrite"),
    "overwrite where": lambda d, t: lake.write_dataset(
        t, d.uri, mode="overwrite", overwrite_where="id >= 100"
    ),
    "overwrite partitions": lambda d, t: lake.write_dataset(
        t, d.uri, mode="overwrite", partition_overwrite_mode="dynamic"
    ),
    "overwrite schema": lambda d, t: lake.write_dataset(
        t, d.uri, mode="overwrite", overwrite_schema=True
    ),
    "update": lambda d, t: (
        d.merge(t, "target.id = source.id - 100").when_matched_update({"v": "source.v"}).execute()
    ),
    "upsert inserts": lambda d, t: d.upsert(t, on="id"),
    "upsert updates": lambda d, t: d.upsert(
        t.set_column(0, "id", pa.array(range(ROWS), pa.int64())), on="id"
    ),
    "restore": _restore,
}


@pytest.mark.parametrize("bad", [0, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(19)
def test_no_door_commits_a_bad_row(door: str, bad: int, dataset: lake.Dataset) -> None:
    if door == "update" and bad == ROWS // 2:
        bad -= 1
    before = sorted(dataset.scan().to_table().to_pylist(), key=str)
    branch = dataset.branch("b") if door == "branch" else dataset
    version, files = branch.version, {file.path for file in branch.files()}
    with pytest.raises(ConstraintViolationError) as caught:
        DOORS[door](dataset, rows(bad))
    error = caught.value
    assert (error.constraint, error.expression) == ("positive", "v > 0")
    assert str(error.row).startswith("v = -7, ")
    assert f"p = {bad % 2}" in str(error.row)
    if door == "restore":
        return
    branch.refresh()
    assert (branch.version, {file.path for file in branch.files()}) == (version, files)
    assert sorted(dataset.refresh().scan().to_table().to_pylist(), key=str) == before
    on_disk = {
        path.name
        for path in Path(dataset.uri.removeprefix("file://")).rglob("*.parquet")
        if "exports" not in path.parts
    }
    assert on_disk == {path.rpartition("/")[2] for path in files}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_commits_good_rows(door: str, dataset: lake.Dataset) -> None:
    DOORS[door](dataset, rows())
    dataset = dataset.branch("b") if door == "branch" else dataset.refresh()
    assert dataset.scan().count_rows() in (ROWS, 2 * ROWS)
    assert dict(dataset.constraints) == {"positive": "v > 0"}


# These two make the column nullable; a restore takes the columns of its version.
RELAXING = {"more columns", "overwrite schema", "restore"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("bad", [0, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize("door", sorted(DOORS.keys() - RELAXING))
def test_no_door_commits_a_null_in_a_column_that_is_not_null(
    door: str, bad: int, tmp_path: Path
) -> None:
    schema = rows().schema.set(1, pa.field("v", pa.int64(), nullable=False))
    good = [n + 1 for n in range(ROWS)]
    first = rows(start=0).set_column(1, "v", pa.array(good, pa.int64()))
    lake.write_dataset(first.cast(schema), tmp_path / "data", **LAYOUT)
    dataset = lake.open_dataset(tmp_path / "data")
    values = pa.array([None if n == bad else v for n, v in enumerate(good)], pa.int64())
    with pytest.raises(SchemaMismatchError, match=r"'v'.*(?i:not null)"):
        DOORS[door](dataset, rows().set_column(1, "v", values))
    branch = dataset.branch("b") if door == "branch" else dataset.refresh()
    assert branch.version == 1
    assert branch.scan("v IS NULL").count_rows() == 0


def test_an_update_and_what_moves_rows(dataset: lake.Dataset) -> None:
    with pytest.raises(ConstraintViolationError, match=r"v = 0, id = 0"):
        dataset.update({"v": "v - 1"}, where="id < 3")
    dataset.update({"v": "v + 1"})
    lake.write_dataset(rows(), dataset.uri)
    dataset.refresh().delete("id = 101")
    dataset.compact(rewrite_deleted=True)
    dataset.set_properties(cluster_by=["v"])
    dataset.cluster(full=True)
    dataset.erase("id = 102")
    assert dataset.refresh().scan().count_rows() == 2 * ROWS - 2


def test_the_first_bad_row_of_several_is_told(dataset: lake.Dataset) -> None:
    dataset.add_constraint("small", "v < 1000")
    table = pa.table({"id": [1, 2, 3, 4], "v": [5, None, 5000, -1], "p": [0, 0, 0, 0]})
    with pytest.raises(ConstraintViolationError) as caught:
        lake.write_dataset(table, dataset.uri)
    assert (caught.value.constraint, caught.value.row) == ("small", "v = 5000, id = 3, p = 0")


def test_a_row_without_a_value_is_refused(dataset: lake.Dataset) -> None:
    dataset.add_constraint("share", "100 div v > 0")
    table = pa.table({"id": [1], "v": [2**62], "p": [0]})
    with pytest.raises(ConstraintViolationError, match="'share'"):
        lake.write_dataset(table, dataset.uri)
    dataset.drop_constraint("share")
    dataset.drop_constraint("positive")
    lake.write_dataset(pa.table({"id": [1], "v": [0], "p": [0]}), dataset.uri)
    with pytest.raises(ConstraintViolationError, match="has no value on a row: division"):
        dataset.refresh().add_constraint("share", "100 div v > 0")


class TestAdding:
    def test_only_what_every_row_satisfies(self, tmp_path: Path) -> None:
        for bad in (0, 4, 8):
            uri = str(tmp_path / str(bad))
            lake.write_dataset(rows(bad), uri, **LAYOUT)
            dataset = lake.open_dataset(uri)
            with pytest.raises(ConstraintViolationError, match="v = -7"):
                dataset.add_constraint("positive", "v > 0")
            dataset.delete("v < 0")  # by a vector: statistics still show the row
            assert dataset.add_constraint("positive", "v > 0").version == 3

    def test_statistics_decide_where_they_suffice(self, dataset: lake.Dataset) -> None:
        for file in dataset.files():
            (Path(dataset.uri.removeprefix("file://")) / file.path).unlink()
        dataset.add_constraint("small", "v < 10 AND p IN (0, 1)")
        with pytest.raises(lake.StorageError):
            dataset.add_constraint("odd", "v % 100 < 50")

    @pytest.mark.parametrize(
        ("name", "expression", "error"),
        [
            ("POSITIVE", "v > 1", InvalidOptionError),
            ("", "v > 1", InvalidOptionError),
            ("n\0", "v > 1", InvalidOptionError),
            ("x" * 256, "v > 1", InvalidOptionError),
            ("n", "v >", InvalidPredicateError),
            ("n", "w > 1", InvalidPredicateError),
            ("n", "v + 1", InvalidPredicateError),
            ("n", "v > 1) OR (v < 1", InvalidPredicateError),
            ("n", "v > unix_date(current_date())", InvalidOptionError),
            ("n", ("v", ">", 1), InvalidOptionError),
        ],
    )
    def test_what_is_refused(
        self, name: str, expression: Any, error: type[lake.PlakeError], dataset: lake.Dataset
    ) -> None:
        with pytest.raises(error):
            dataset.add_constraint(name, expression)
        assert dataset.refresh().version == 2

    def test_it_is_listed_and_dropped(self, dataset: lake.Dataset) -> None:
        assert dataset.inspect.constraints().to_pylist() == [
            {"name": "positive", "expression": "v > 0", "since": 2}
        ]
        with pytest.raises(InvalidOptionError, match="Known: positive"):
            dataset.drop_constraint("other")
        assert dataset.drop_constraint("Positive").version == 3
        lake.write_dataset(rows(3), dataset.uri)
        details = [entry.metadata for entry in dataset.refresh().history()]
        assert {"constraints": {"positive": None}} in details

    def test_a_new_dataset_has_them(self, tmp_path: Path) -> None:
        with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
            made = catalog.create_dataset(
                "t", rows().schema, location=tmp_path / "t", constraints={"positive": "v > 0"}
            )
            with pytest.raises(ConstraintViolationError):
                lake.write_dataset(rows(8), made.uri, catalog=catalog)
            for wrong in ({"n": "w > 0"}, {"n": "v > 0", "N": "v > 1"}):
                with pytest.raises((InvalidOptionError, InvalidPredicateError)):
                    catalog.create_dataset(
                        "u", rows().schema, location=tmp_path / "u", constraints=wrong
                    )


class TestBesideOthers:
    def test_an_append_that_did_not_check_it_conflicts(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset(rows(), uri)
        address = lake.open_dataset(uri)._address
        with address.open() as catalog:
            for table in (rows(0), rows()):
                staged, files = stage(catalog, address, table.to_reader(), write_options())
                dataset = lake.open_dataset(uri)
                dataset.add_constraint("positive", "v > 0")
                with pytest.raises(CommitConflictError, match="'positive' was added"):
                    commit(catalog, staged, files)
                dataset.drop_constraint("positive")

    def test_an_overwrite_and_an_update_conflict_too(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset(rows(), uri)
        address = lake.open_dataset(uri)._address
        with address.open() as catalog:
            options = write_options(mode="overwrite")
            staged, files = stage(catalog, address, rows(0).to_reader(), options)
            lake.open_dataset(uri).add_constraint("positive", "v > 0")
            with pytest.raises(CommitConflictError, match="'positive' was added"):
                commit(catalog, staged, files)

    def test_a_drop_lets_a_checked_append_go_on(self, dataset: lake.Dataset) -> None:
        with dataset._address.open() as catalog:
            staged, files = stage(catalog, dataset._address, rows().to_reader(), write_options())
            dataset.drop_constraint("positive")
            assert commit(catalog, staged, files).version == 4

    @pytest.mark.parametrize("busy", [1, 10])
    def test_rows_that_come_while_rows_are_checked(
        self, busy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uri, left = str(tmp_path / "data"), [*([None] * (busy - 1)), 0]
        lake.write_dataset(rows(), uri)
        found, under_lock = Suspects.of, []

        def of(reader: Any, *arguments: Any) -> list[Suspects]:
            under_lock.append(hasattr(reader, "lock_dataset"))
            return found(reader, *arguments)

        def beside(suspects: Suspects, storage: Any) -> None:
            check(suspects, storage)
            if left and not under_lock[-1]:
                lake.write_dataset(rows(left.pop(0)), uri)

        check = Suspects.check
        monkeypatch.setattr(Suspects, "of", of)
        monkeypatch.setattr(Suspects, "check", beside)
        dataset = lake.open_dataset(uri)
        if busy == 1:
            with pytest.raises(ConstraintViolationError, match="v = -7"):
                dataset.add_constraint("positive", "v > 0")
            return
        # Others never stop: in the end it is checked under the lock.
        dataset.add_constraint("positive", "v > 0")
        assert under_lock[-1]
        assert dataset.scan("v <= 0").count_rows() == 0


def _swap(dataset: lake.Dataset) -> None:
    with dataset.update_schema() as schema:
        schema.rename_column("a", "b")
        schema.rename_column("other", "a")


class TestSchemas:
    def test_a_column_of_a_constraint_stays(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset({"a": [1], "s": [{"x": 1, "y": 1}], "other": [1]}, uri)
        dataset = lake.open_dataset(uri)
        dataset.add_constraint("nested", "s.x > 0 OR A = 1")
        for change in (
            lambda: dataset.rename_column("a", "b"),
            lambda: dataset.drop_column("a"),
            lambda: dataset.rename_column("s.x", "z"),
            lambda: dataset.drop_column("s"),
        ):
            with pytest.raises(SchemaMismatchError, match=r"'nested'.*drop_constraint"):
                change()
        with pytest.raises(SchemaMismatchError, match="another column"):
            _swap(dataset)
        dataset.rename_column("s.y", "z")
        dataset.rename_column("other", "more")
        dataset.drop_constraint("nested")
        dataset.rename_column("a", "b")

    def test_a_promotion_checks_the_rows_again(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset({"a": pa.array([0.1, 16777216.0], pa.float32())}, uri)
        dataset = lake.open_dataset(uri)
        # In floats 16777216 + 1 is 16777216 again.
        dataset.add_constraint("sum", "a + CAST(1 AS FLOAT) < CAST(16777217 AS FLOAT) OR a > 0")
        dataset.promote_column("a", pa.float64())
        dataset.drop_constraint("sum")
        lake.write_dataset({"n": pa.array([9, 10], pa.int32())}, tmp_path / "texts")
        texts = lake.open_dataset(tmp_path / "texts")
        texts.add_constraint("long", "length(CAST(n AS STRING)) < 3 AND n IN (9, 10)")
        texts.promote_column("n", pa.int64())
        texts.drop_constraint("long")
        texts.add_constraint("below", "n < 11 AND substr(CAST(n AS STRING), 1) >= '1'")
        texts.promote_column("n", pa.decimal128(20, 0))

    def test_a_promotion_that_rows_forbid(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset({"n": pa.array([9, 10], pa.int64())}, uri)
        dataset = lake.open_dataset(uri)
        dataset.add_constraint("text", "CAST(n AS STRING) = '9' OR n > 9 OR n < '10'")
        dataset.drop_constraint("text")
        dataset.add_constraint("order", "NOT (n < least(n, 10))")
        with pytest.raises(SchemaMismatchError, match="'order'"):
            dataset.promote_column("n", pa.string())

    @pytest.mark.parametrize("constraint", ["n > 0", "UNIQUE (n)", "PRIMARY KEY (n)"])
    def test_a_write_does_not_promote_a_column_of_a_constraint(
        self, tmp_path: Path, constraint: str
    ) -> None:
        uri = str(tmp_path / "data")
        lake.write_dataset({"n": pa.array([9], pa.int32())}, uri)
        dataset = lake.open_dataset(uri)
        dataset.add_constraint("positive", constraint)
        wide = pa.table({"n": pa.array([10], pa.int64())})
        with pytest.raises(SchemaMismatchError, match=r"column 'n'.*'positive'.*promote_column"):
            lake.write_dataset(wide, uri, schema_merge=True)
        dataset.promote_column("n", pa.int64())
        lake.write_dataset(wide, uri)

    def test_another_schema_must_fit(self, dataset: lake.Dataset) -> None:
        other = pa.table({"v": ["a"], "q": [1]})
        with pytest.raises(lake.PlakeError):
            lake.write_dataset(other, dataset.uri, mode="overwrite", overwrite_schema=True)
        with pytest.raises(SchemaMismatchError, match="'positive'"):
            lake.write_dataset(
                other.drop_columns("v"), dataset.uri, mode="overwrite", overwrite_schema=True
            )


class TestOldVersions:
    @pytest.fixture
    def corrected(self, tmp_path: Path) -> lake.Dataset:
        """Version 1 has a bad row, 2 is without it, 3 has the constraint, 4 and 5 more rows."""
        lake.write_dataset(rows(0), tmp_path / "data")
        dataset = lake.open_dataset(tmp_path / "data")
        dataset.delete("v < 0")
        dataset.add_constraint("positive", "v > 0")
        lake.write_dataset(rows(start=200), dataset.uri)
        lake.write_dataset(rows(start=300), dataset.uri)
        return dataset.refresh()

    def test_a_restore_checks_what_returns(self, corrected: lake.Dataset) -> None:
        with pytest.raises(ConstraintViolationError, match="v = -7"):
            corrected.restore(1)
        assert corrected.restore(2).version == 6
        assert corrected.restore(4).version == 7
        assert dict(corrected.constraints) == {"positive": "v > 0"}
        corrected.drop_constraint("positive")
        assert corrected.restore(1).version == 9

    def test_a_restore_to_versions_since_then_reads_nothing(self, corrected: lake.Dataset) -> None:
        corrected.drop_constraint("positive")
        corrected.add_constraint("odd", "v % 100 < 50 OR id < 0")  # version 7
        lake.write_dataset(rows(start=400), corrected.uri)
        for file in corrected.files():
            (Path(corrected.uri.removeprefix("file://")) / file.path).unlink()
        with pytest.raises(lake.StorageError):
            corrected.refresh().restore(5)
        corrected.restore(7)

    def test_a_branch_of_such_a_version(self, corrected: lake.Dataset) -> None:
        with pytest.raises(ConstraintViolationError, match="v = -7"):
            corrected.branch("old", version=1)
        branch = corrected.branch("new")
        branch.add_constraint("small", "v < 100")
        with pytest.raises(ConstraintViolationError):
            lake.write_dataset(pa.table({"id": [1], "v": [100], "p": [1]}), branch.uri)
        corrected.fast_forward("new")
        assert dict(corrected.constraints) == {"positive": "v > 0", "small": "v < 100"}

    @pytest.mark.parametrize("deep", [False, True])
    def test_a_clone_of_such_a_version(self, deep: bool, tmp_path: Path) -> None:
        """It had a constraint that its rows break."""
        with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
            lake.write_dataset(rows(0), tmp_path / "t", catalog=catalog)
            dataset = lake.open_dataset(tmp_path / "t", catalog=catalog)
            dataset.delete("v < 0")
            dataset.add_constraint("positive", "v > 0")
            with pytest.raises(ConstraintViolationError, match="v = -7"):
                dataset.clone(tmp_path / "old", version=1, deep=deep)
            clone = dataset.clone(tmp_path / "new", version=2, deep=deep)
            assert dict(clone.constraints) == {"positive": "v > 0"}
            with pytest.raises(ConstraintViolationError):
                lake.write_dataset(rows(3), clone.uri, catalog=catalog)

    def test_a_constraint_that_comes_meanwhile_stops_a_restore(
        self, corrected: lake.Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from lakehouse_source.write.metadata import restore

        other = lake.open_dataset(corrected.uri)
        other.drop_constraint("positive")
        check = restore.check_older

        def beside(*arguments: Any) -> Any:
            checked = check(*arguments)
            other.add_constraint("positive", "v > 0")
            return checked

        monkeypatch.setattr(restore, "check_older", beside)
        with pytest.raises(CommitConflictError, match="'positive'"):
            corrected.refresh().restore(1)


# --- random programs, and SQLite with the same constraints --------------------------------

CHECKS = (
    "a > 0",
    "a + b < 20",
    "length(s) < 4",
    "s <> 'bad'",
    "a IS NOT NULL OR b IS NULL",
    "a BETWEEN -2 AND 9 OR b = 3",
    "coalesce(a, b) <> 7",
    "NOT (a = 5 AND s = 'x')",
    "a % 3 <> 2",
    "s LIKE 'x%' OR b >= 0",
    "CASE WHEN a > 3 THEN b ELSE 1 END > 0",
)
UPDATES = ({"a": "a + 1"}, {"b": "a"}, {"a": "b - 3", "s": "'bad'"}, {"s": "NULL"}, {"b": "-b"})
WHERE = ("a > 2", "b IS NULL", "s = 'x'", "a < b", "a IN (1, 4, 6)")


SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])


class Program:
    """Statements that a dataset and a table of SQLite carry out, or both refuse."""

    def __init__(self, seed: int, uri: str) -> None:
        self.draw = random.Random(seed)
        self.uri = uri
        self.checks: dict[str, str] = {}
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("CREATE TABLE t (a INTEGER, b INTEGER, s TEXT)")
        lake.write_dataset(SCHEMA.empty_table(), uri)
        self.dataset = lake.open_dataset(uri)
        self.steps: list[object] = []
        self.names = 0

    def both(self, statements: list[tuple[str, Any]], ours: Callable[[], Any]) -> bool:
        """Carry out a statement, and say whether it was not refused."""
        refused = False
        try:
            with self.connection:
                self.connection.execute("BEGIN")
                for sql, values in statements:
                    self.connection.executemany(sql, values)
        except sqlite3.IntegrityError:
            refused = True
        try:
            ours()
        except ConstraintViolationError:
            assert refused, (self.steps, self.checks)
        else:
            assert not refused, (self.steps, self.checks)
        return not refused

    def append(self) -> None:
        values = [
            (
                self.draw.choice([None, *range(-3, 12)]),
                self.draw.choice([None, *range(-3, 12)]),
                self.draw.choice([None, "", "x", "xyz", "xyzw", "bad"]),
            )
            for _ in range(self.draw.randint(1, 3))
        ]
        table = pa.table([list(column) for column in zip(*values)], schema=SCHEMA)
        mode = self.draw.choice(["append", "append", "overwrite"])
        writer = self.draw.choice(["pyarrow", "pyarrow", "duckdb"])
        self.steps.append((mode, writer, values))
        statements = [("DELETE FROM t", [()])] if mode == "overwrite" else []
        statements.append(("INSERT INTO t VALUES (?, ?, ?)", values))
        self.both(statements, lambda: lake.write_dataset(table, self.uri, mode=mode, writer=writer))

    def update(self) -> None:
        assignments, where = self.draw.choice(UPDATES), self.draw.choice(WHERE)
        self.steps.append((assignments, where))
        text = ", ".join(f"{name} = {value}" for name, value in assignments.items())
        self.both(
            [(f"UPDATE t SET {text} WHERE {where}", [()])],
            lambda: self.dataset.update(assignments, where=where),
        )

    def delete(self) -> None:
        where = self.draw.choice(WHERE)
        self.steps.append(("delete", where))
        self.both([(f"DELETE FROM t WHERE {where}", [()])], lambda: self.dataset.delete(where))

    def add(self) -> None:
        self.names += 1
        name, check = f"c{self.names}", self.draw.choice(CHECKS)
        self.steps.append((name, check))
        checks = {**self.checks, name: check}
        if self.both(_anew(checks), lambda: self.dataset.add_constraint(name, check)):
            self.checks = checks

    def drop(self) -> None:
        if self.checks:
            name = self.draw.choice(sorted(self.checks))
            self.steps.append(("drop", name))
            del self.checks[name]
            self.both(_anew(self.checks), lambda: self.dataset.drop_constraint(name))

    def run(self, steps: int) -> None:
        kinds = (self.append, self.append, self.append, self.update, self.delete, self.add)
        for _ in range(steps):
            self.draw.choice((*kinds, self.add, self.drop))()
            found = self.dataset.refresh().scan().to_table().to_pylist()
            rows = self.connection.execute("SELECT a, b, s FROM t").fetchall()
            ours = sorted((tuple(row.values()) for row in found), key=repr)
            assert ours == sorted(rows, key=repr), self.steps
            assert dict(self.dataset.constraints) == self.checks


def _anew(checks: dict[str, str]) -> list[tuple[str, Any]]:
    """SQLite adds no constraint to a table: the rows move to a new one."""
    texts = "".join(f", CONSTRAINT {name} CHECK ({text})" for name, text in checks.items())
    return [
        (f"CREATE TABLE u (a INTEGER, b INTEGER, s TEXT{texts})", [()]),
        ("INSERT INTO u SELECT * FROM t", [()]),
        ("DROP TABLE t", [()]),
        ("ALTER TABLE u RENAME TO t", [()]),
    ]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(20)
def test_a_dataset_refuses_what_sqlite_refuses(seed: int, tmp_path: Path) -> None:
    program = Program(seed, str(tmp_path / "data"))
    with closing(program.connection):
        program.run(25)
