"""Schema changes against a model in plain Python, and through every reader, one by one."""

from __future__ import annotations

import copy
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.language import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.aggregates import Aggregate, aggregate
from lakehouse_source.write.commit.commit import commit
from tests.postgres_server import PostgresServer
from tests.verbs.cutting_proxy import AFTER, ANSWERED, BEFORE, Cut, CuttingProxy
from tests.verbs.test_commit_protocol import stage
from tests.verbs.test_overtaken import commit_overtaken
from tests.versions import bloom_filters, writes_bloom_filters

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2), pytest.mark.one_catalog]

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def rows(uri: str, **how: Any) -> list[dict[str, Any]]:
    return sorted(lake.read_dataset(uri, **how).to_pylist(), key=repr)


def files_below(uri: str) -> dict[str, tuple[int, int]]:
    """Every data file with its size and time of change."""
    found = Path(uri).rglob("*.parquet")
    return {str(f): (f.stat().st_size, f.stat().st_mtime_ns) for f in found}


# --- random programs ------------------------------------------------------------

# Which types a column may have, and which it may become.
TYPES = {
    "int32": (pa.int32(), ("int64", "string")),
    "int64": (pa.int64(), ("string",)),
    "float": (pa.float32(), ("double",)),
    "double": (pa.float64(), ()),
    "string": (pa.string(), ()),
}
VALUES = {"int32": (0, 1, 2), "int64": (0, 2, 2**40), "float": (0.5, -0.0, float("nan")),
          "double": (0.5, 0.1), "string": ("", "1", "a")}  # fmt: skip
KEYS = count()


@dataclass
class Column:
    """A column of the model: `key` never changes. A struct has fields, another column none.

    `initial` is the value of rows that were written before it, `write` that of new rows whose
    data lacks it.
    """

    name: str
    kind: str
    key: int = field(default_factory=lambda: next(KEYS))
    fields: list[Column] = field(default_factory=list)
    initial: Any = None
    write: Any = None

    @property
    def type(self) -> pa.DataType:
        if self.kind == "struct":
            return pa.struct([(one.name, one.type) for one in self.fields])
        return TYPES[self.kind][0]


@dataclass
class Version:
    columns: list[Column]
    rows: list[dict[int, Any]]

    def shown(self) -> list[dict[str, Any]]:
        return [_shown(self.columns, row) for row in self.rows]

    def named(self, name: str) -> list[Any]:
        return [row[name] for row in self.shown()]


def _shown(columns: list[Column], row: dict[int, Any]) -> dict[str, Any]:
    """A row as a reader should give it: values that a column never had are its default."""
    found: dict[str, Any] = {}
    for column in columns:
        value = row.get(column.key, column.initial)
        if value is not None and column.kind == "struct":
            value = _shown(column.fields, value)
        elif value is not None and column.kind == "string":
            value = str(value)
        found[column.name] = value
    return found


class Program:
    """Runs the same random changes on a dataset and on the model, and compares them."""

    def __init__(self, uri: str, chance: random.Random) -> None:
        self.uri = uri
        self.chance = chance
        self.partition = Column("p", "int32")
        columns = [
            Column("a", "int32"),
            self.partition,
            Column("b", "float"),
            Column("s", "struct", fields=[Column("a", "int32"), Column("b", "string")]),
        ]
        self.now = Version(columns, [])
        self.versions: list[Version] = []
        self.append(partition_by=["p"], **bloom_filters("a"))

    def step(self) -> None:
        steps: list[Callable[[], bool | None]] = [
            self.append, self.append, self.rename, self.rename, self.drop, self.add, self.add,
            self.promote, self.reorder, self.restore, self.overwrite_where, self.set_default,
        ]  # fmt: skip
        if self.chance.choice(steps)() is not False:
            self.check_newest()

    def done(self) -> None:
        self.versions.append(copy.deepcopy(self.now))
        assert self.dataset().version == len(self.versions)

    def dataset(self) -> lake.Dataset:
        return lake.open_dataset(self.uri)

    # --- steps

    def value(self, column: Column) -> Any:
        if self.chance.random() < 0.25:
            return None
        if column.kind == "struct":
            return {one.key: self.value(one) for one in column.fields}
        return self.chance.choice(VALUES[column.kind])

    def new_rows(self) -> tuple[list[dict[int, Any]], pa.Table]:
        new = [
            {column.key: self.value(column) for column in self.now.columns}
            for _ in range(self.chance.choice((1, 2, 5)))
        ]
        given = self.without_some(self.now.columns, new) if self.versions else self.now.columns
        schema = pa.schema([(column.name, column.type) for column in given])
        table = pa.Table.from_pylist([_shown(given, row) for row in new], schema)
        order = list(table.column_names)
        if self.versions:
            self.chance.shuffle(order)
        return new, table.select(order)

    def without_some(self, columns: list[Column], rows: list[dict[int, Any]]) -> list[Column]:
        """The columns but some that the data lacks: in these the rows get the write default."""
        given = []
        for column in columns:
            if column is not self.partition and self.chance.random() < 0.2:
                for row in rows:
                    row[column.key] = column.write
                continue
            if column.kind == "struct":
                below = [row[column.key] for row in rows if row[column.key] is not None]
                column = copy.copy(column)
                column.fields = self.without_some(column.fields, below) or column.fields
            given.append(column)
        return given

    def append(self, **options: Any) -> None:
        new, table = self.new_rows()
        lake.write_dataset(table, self.uri, row_group_rows=2, **options)
        self.now.rows += new
        self.done()

    def overwrite_where(self) -> bool:
        key, name = self.partition.key, self.partition.name
        new, table = self.new_rows()
        for row in new:
            row[key] = 1
        place = table.column_names.index(name)
        ones = pa.array([1] * table.num_rows, self.partition.type)
        table = table.set_column(place, table.schema.field(name), ones)
        where = f"`{name}` = 1"
        lake.write_dataset(table, self.uri, mode="overwrite", overwrite_where=where)
        self.now.rows = [row for row in self.now.rows if row[key] != 1] + new
        self.done()
        return True

    def somewhere(self) -> tuple[list[Column], str]:
        """The top-level columns or the fields of a struct, and the beginning of their paths."""
        structs = [column for column in self.now.columns if column.kind == "struct"]
        if structs and self.chance.random() < 0.4:
            chosen = self.chance.choice(structs)
            return chosen.fields, chosen.name + "."
        return self.now.columns, ""

    def free_name(self, columns: list[Column]) -> str | None:
        free = [name for name in "abcdpq" if name not in [column.name for column in columns]]
        return self.chance.choice(free) if free else None

    def rename(self) -> bool:
        columns, above = self.somewhere()
        column, name = self.chance.choice(columns), self.free_name(columns)
        if name is None:
            return False
        self.dataset().rename_column(above + column.name, name)
        column.name = name
        self.done()
        return True

    def drop(self) -> bool:
        columns, above = self.somewhere()
        left = [column for column in columns if column is not self.partition]
        if len(left) < 2:
            return False
        column = self.chance.choice(left)
        self.dataset().drop_column(above + column.name)
        columns.remove(column)
        self.done()
        return True

    def add(self) -> bool:
        columns, above = self.somewhere()
        name = self.free_name(columns)
        if name is None:
            return False
        column = Column(name, self.chance.choice(list(TYPES)))
        if self.chance.random() < 0.7:
            column.initial = column.write = self.chance.choice(VALUES[column.kind])
        self.dataset().add_column(above + name, column.type, default=column.initial)
        columns.append(column)
        self.done()
        return True

    def set_default(self) -> bool:
        columns, above = self.somewhere()
        column = self.chance.choice(columns)
        if column is self.partition or column.kind == "struct":
            return False
        value = self.chance.choice([None, *VALUES[column.kind]])
        before = self.dataset().version
        self.dataset().set_default(above + column.name, value)
        column.write = value
        if self.dataset().version == before:
            return False  # it was the default already
        self.done()
        return True

    def promote(self) -> bool:
        columns, above = self.somewhere()
        column = self.chance.choice(columns)
        kinds = TYPES[column.kind][1] if column.kind in TYPES else ()
        if above or column is self.partition:
            kinds = tuple(kind for kind in kinds if kind != "string")
        if not kinds:
            return False
        kind = self.chance.choice(kinds)
        self.dataset().promote_column(above + column.name, TYPES[kind][0])
        column.kind = kind
        self.done()
        return True

    def reorder(self) -> bool:
        columns, above = self.somewhere()
        before = list(columns)
        self.chance.shuffle(columns)
        if before == columns:
            return False
        self.dataset().reorder_columns([above + column.name for column in columns])
        self.done()
        return True

    def restore(self) -> bool:
        version = self.chance.randint(1, len(self.versions))
        self.dataset().restore(version)
        self.now = copy.deepcopy(self.versions[version - 1])
        key = self.partition.key
        self.partition = next(column for column in self.now.columns if column.key == key)
        self.done()
        return True

    # --- checks

    def check_newest(self) -> None:
        self.check(len(self.versions))
        dataset = self.dataset()
        assert dataset.partition_by == (self.partition.name,)
        assert {tuple(file.partitions) for file in dataset.files()} <= {(self.partition.name,)}
        expected = self.versions[-1]
        for column in expected.columns:
            if column.kind in ("int32", "int64", "string"):
                value = self.chance.choice(VALUES[column.kind])
                self.check_condition(column.name, value)
            elif column.kind == "struct":
                self.check_nested_condition(column)
        self.check_aggregates()
        self.check_engines()

    def check(self, version: int) -> None:
        expected = self.versions[version - 1]
        table = lake.read_dataset(self.uri, version=version)
        assert table.schema == pa.schema([(c.name, c.type) for c in expected.columns])
        assert same(table.to_pylist(), expected.shown())
        scan = self.dataset().scan(version=version)
        assert scan.count_rows() == len(expected.rows)
        assert same(scan.to_dataset().to_table().to_pylist(), expected.shown())

    def check_condition(self, name: str, value: Any) -> None:
        quoted = f"'{value}'" if isinstance(value, str) else str(value)
        where = f"`{name}` = {quoted}"
        expected = [row for row in self.versions[-1].shown() if row[name] == value]
        assert same(rows(self.uri, predicates=where), expected), where
        scan = self.dataset().scan(where)
        assert scan.count_rows() == len(expected)
        arrow = scan.to_dataset().to_table(filter=pc.field(name) == value).to_pylist()
        assert same(arrow, expected), where
        missing = [row for row in self.versions[-1].shown() if row[name] is None]
        assert same(rows(self.uri, predicates=f"`{name}` IS NULL"), missing)

    def check_nested_condition(self, column: Column) -> None:
        for inner in column.fields:
            if inner.kind in ("int32", "int64"):
                name, leaf = column.name, inner.name
                expected = [
                    row for row in self.versions[-1].shown()
                    if row[name] is not None and row[name][leaf] == 1
                ]  # fmt: skip
                assert same(rows(self.uri, predicates=f"`{name}`.`{leaf}` = 1"), expected)

    def check_engines(self) -> None:
        """The rows, also those of a condition on one column, through each engine."""
        shown = self.versions[-1].shown()
        numbers = [c.name for c in self.versions[-1].columns if c.kind in ("int32", "int64")]
        conditions: list[str | None] = [None, *(f"`{name}` >= 1" for name in numbers[:1])]
        for where in conditions:
            expected = shown
            if where is not None:
                expected = [row for row in shown if row[numbers[0]] and row[numbers[0]] >= 1]
            scan = self.dataset().scan(where)
            with duckdb.connect() as connection:
                found = scan.to_duckdb(connection).to_arrow_table().to_pylist()
            assert same(found, expected), ("duckdb", where)
            assert same(scan.to_polars().collect().to_arrow().to_pylist(), expected), "polars"
            frame = scan.to_datafusion(datafusion.SessionContext())
            assert same(frame.to_arrow_table().to_pylist(), expected), "datafusion"

    def check_aggregates(self) -> None:
        """Counts, minima and maxima from the catalog, in groups of the partition column."""
        name = self.partition.name
        columns = [c.name for c in self.versions[-1].columns if c.kind in ("int32", "int64")]
        asked = [Aggregate("count", None)]
        for one in columns:
            asked += [Aggregate(function, one) for function in ("count", "min", "max")]
        address = Address(self.uri, None)
        with address.open() as catalog, catalog.read() as reader:
            snapshot = address.snapshot(catalog, reader)
            bound = PredicateSet.of(None).bind(snapshot.schema)
            found = aggregate(reader, snapshot, bound, [name], asked)
        if found is None:
            return  # a promoted column
        shown = self.versions[-1].shown()
        expected = []
        for group in {row[name] for row in shown}:
            line: list[Any] = [group, sum(row[name] == group for row in shown)]
            for one in columns:
                given = [r[one] for r in shown if r[name] == group and r[one] is not None]
                line += [len(given), min(given, default=None), max(given, default=None)]
            expected.append(tuple(line))
        assert sorted(found, key=repr) == sorted(expected, key=repr)


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Compare rows in no order, told apart by type, sign of zero and NaN."""
    return sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.long
@settings(max_examples=200 if THOROUGH else 4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_order_of_changes_gives_the_rows_that_a_model_in_python_gives(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(f"{folder}/data", random.Random(seed))
        for _ in range(12):
            program.step()
        for version in range(1, len(program.versions) + 1):
            program.check(version)
        assert program.dataset().verify().ok


# --- one by one -------------------------------------------------------------------


def numbers(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


def test_no_file_is_read_or_written_by_a_change(uri: str) -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "p": ["x", None]})
    lake.write_dataset(table, uri, partition_by="p")
    before = files_below(uri)
    kept = {path: Path(path).read_bytes() for path in before}
    for path in before:
        Path(path).unlink()
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        schema.add_column("n", pa.string(), comment="a note")
        schema.rename_column("n", "note")
        schema.rename_column("p", "part")
        schema.promote_column("a", pa.int64())
        schema.reorder_columns(["note"])
        schema.set_nullable("a", False)
    assert schema.committed.version == dataset.version == 2
    assert dataset.history()[0].operation == "schema change"
    assert dataset.history()[0].metadata["changes"][0] == "add n string"
    assert not files_below(uri)
    for path, content in kept.items():
        Path(path).write_bytes(content)
    assert dataset.schema == pa.schema(
        [("note", pa.string()), pa.field("a", pa.int64(), False), ("part", pa.string())]
    )
    assert dataset.comments == {"note": "a note"}
    assert rows(uri) == [
        {"note": None, "a": 1, "part": "x"},
        {"note": None, "a": 2, "part": None},
    ]
    assert rows(uri, version=1) == [{"a": 1, "p": "x"}, {"a": 2, "p": None}]


def test_a_name_that_is_used_again_does_not_show_the_old_values(uri: str) -> None:
    lake.write_dataset(numbers(a=[1, 2], b=[3, 4]), uri)
    dataset = lake.open_dataset(uri)
    dataset.drop_column("b")
    dataset.add_column("b", pa.int64())
    assert rows(uri, predicates="b IS NULL") == [{"a": 1, "b": None}, {"a": 2, "b": None}]
    assert rows(uri, predicates="b = 3") == []
    assert dataset.scan().to_dataset().to_table()["b"].null_count == 2
    lake.write_dataset(numbers(a=[3], b=[3]), uri)
    assert rows(uri, predicates="b = 3") == [{"a": 3, "b": 3}]
    assert rows(uri, version=1, predicates="b = 3") == [{"a": 1, "b": 3}]
    dataset.refresh().restore(1)
    assert rows(uri, predicates="b = 3") == [{"a": 1, "b": 3}]
    dataset.add_column("c", pa.int64())
    assert dataset.properties["last_field_id"] == 4


@pytest.mark.parametrize("dropped", ["before", "after"])
def test_a_search_finds_the_rows_of_a_column_that_returns_in_another_type(
    uri: str, dropped: str
) -> None:
    """The file that a restore brought back has keys of the column's first type."""
    lake.write_dataset({"id": [0, 1], "x": pa.array([10, 11], pa.int32())}, uri)
    dataset = lake.open_dataset(uri)
    dataset.promote_column("x", pa.string())
    if dropped == "before":
        dataset.drop_column("x")
        lake.write_dataset({"id": [5]}, uri, mode="overwrite")
        dataset.refresh().restore(3)
    else:
        lake.write_dataset({"id": [5], "x": ["a"]}, uri, mode="overwrite")
        dataset.refresh().restore(1)
        dataset.drop_column("x")
    dataset.restore(2)
    assert rows(uri, predicates="x = '10'") == [{"id": 0, "x": "10"}]
    assert dataset.scan("x = '10'").count_rows() == 1


def test_two_columns_change_their_names_with_each_other(uri: str) -> None:
    table = numbers(a=[1, 2], b=[2, 3], p=[1, 2], q=[5, 5])
    lake.write_dataset(table, uri, partition_by=["p", "q"], index_columns=["a"])
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        for one, other in (("a", "b"), ("p", "q")):
            schema.rename_column(one, "x")
            schema.rename_column(other, one)
            schema.rename_column("x", other)
    assert dataset.partition_by == ("q", "p")
    assert dataset.properties["index_columns"] == ["b"]
    lake.write_dataset(numbers(a=[9], b=[9], p=[5], q=[9]), uri, partition_by=["q", "p"])
    expected = [
        {"b": 1, "a": 2, "q": 1, "p": 5},
        {"b": 2, "a": 3, "q": 2, "p": 5},
        {"b": 9, "a": 9, "q": 9, "p": 5},
    ]
    assert rows(uri) == expected
    for name in "abpq":
        for value in (1, 2, 3, 5, 9):
            found = rows(uri, predicates=f"{name} = {value}")
            assert found == [row for row in expected if row[name] == value]
    assert rows(uri, version=1, predicates="p = 1 AND q = 5") == [{"a": 1, "b": 2, "p": 1, "q": 5}]
    assert dataset.scan("q = 1").explain().files_pruned_by_partition == 1
    assert lake.open_dataset(uri).scan("q = 1").explain().files_pruned_by_partition == 2
    dataset.restore(1)
    assert dataset.partition_by == ("p", "q")
    assert dataset.properties["index_columns"] == ["a"]
    assert rows(uri, predicates="p = 1 AND q = 5") == [{"a": 1, "b": 2, "p": 1, "q": 5}]


def test_a_partition_column_takes_the_name_of_a_column_that_old_files_store(uri: str) -> None:
    lake.write_dataset(numbers(a=[1, 2], b=[2, 1], p=[1, 2]), uri, partition_by="p")
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        schema.drop_column("b")
        schema.rename_column("p", "b")
        schema.add_column("p", pa.int64())
    expected = [{"a": 1, "b": 1, "p": None}, {"a": 2, "b": 2, "p": None}]
    assert rows(uri) == expected
    arrow = dataset.scan().to_dataset()
    assert arrow.to_table().sort_by("a").to_pylist() == expected
    for value in (1, 2):
        found = arrow.to_table(filter=pc.field("b") == value).to_pylist()
        assert found == rows(uri, predicates=f"b = {value}") == [expected[value - 1]]
    assert rows(uri, predicates="p = 1") == []


def test_a_column_of_nulls_becomes_numbers(uri: str) -> None:
    lake.write_dataset(pa.table({"a": [1], "n": pa.nulls(1)}), uri)
    dataset = lake.open_dataset(uri)
    dataset.promote_column("n", pa.int64())
    lake.write_dataset(numbers(a=[2], n=[5]), uri)
    assert rows(uri) == [{"a": 1, "n": None}, {"a": 2, "n": 5}]
    assert rows(uri, predicates="n = 5") == [{"a": 2, "n": 5}]
    assert rows(uri, predicates="n IS NULL") == [{"a": 1, "n": None}]


def test_dynamic_overwrite_replaces_files_from_before_a_rename(uri: str) -> None:
    lake.write_dataset(numbers(a=[1, 2], p=["x", "y"]), uri, partition_by="p")
    lake.open_dataset(uri).rename_column("p", "q")
    new = numbers(a=[3], q=["x"])
    lake.write_dataset(new, uri, mode="overwrite", partition_overwrite_mode="dynamic")
    assert rows(uri) == [{"a": 2, "q": "y"}, {"a": 3, "q": "x"}]


def test_vacuum_knows_the_folders_of_a_renamed_partition_column(uri: str) -> None:
    lake.write_dataset(numbers(a=[1, 2], p=["x", "y"]), uri, partition_by="p")
    dataset = lake.open_dataset(uri)
    dataset.rename_column("p", "q")
    lake.write_dataset(numbers(a=[3], q=["x"]), uri, mode="overwrite")
    dataset.refresh().expire_versions(keep_last=1)
    report = dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert report.folders_removed == 2
    assert rows(uri) == [{"a": 3, "q": "x"}]
    orphan = next(Path(uri).rglob("*.parquet"))
    Path(uri, "p=x").mkdir()
    old = Path(uri, "p=x", orphan.name[:37] + "0" * 8 + orphan.name[45:])
    old.write_bytes(orphan.read_bytes())
    found = dataset.vacuum(retention_seconds=0, allow_short_retention=True, dry_run=True)
    assert "where this dataset puts files" not in str(found)


def test_arrow_filters_and_engines_see_the_new_names(uri: str) -> None:
    table = numbers(a=[1, 2, None], b=[0.5, float("nan"), None])
    lake.write_dataset(table, uri)
    dataset = lake.open_dataset(uri)
    dataset.rename_column("a", "b2")
    dataset.rename_column("b", "a")
    lake.write_dataset(numbers(b2=[7], a=[1.5]), uri)
    arrow = dataset.refresh().scan().to_dataset()
    assert arrow.to_table(filter=pc.field("b2") == 7).to_pylist() == [{"b2": 7, "a": 1.5}]
    assert arrow.to_table(filter=pc.field("b2") == 1).to_pylist() == [{"b2": 1, "a": 0.5}]
    assert arrow.to_table(filter=pc.field("a") > 100).num_rows == 1  # NaN
    connection = duckdb.connect()
    connection.register("arrow_dataset", arrow)
    assert connection.execute("SELECT sum(b2) FROM arrow_dataset WHERE a > 0").fetchone() == (10,)


def test_a_file_from_before_not_null_still_reads_everywhere(uri: str) -> None:
    lake.write_dataset(numbers(a=[1, 2], b=[1, None]), uri)
    dataset = lake.open_dataset(uri)
    dataset.set_nullable("a", False)
    with pytest.raises(lake.SchemaMismatchError, match="'b' cannot become NOT NULL"):
        dataset.set_nullable("b", False)
    assert dataset.version == 2
    assert not dataset.schema.field("a").nullable
    assert rows(uri) == [{"a": 1, "b": 1}, {"a": 2, "b": None}]
    assert dataset.scan().to_dataset().to_table(filter=pc.field("a") == 2).num_rows == 1
    with pytest.raises(lake.SchemaMismatchError, match="'a' is not nullable"):
        lake.write_dataset(numbers(a=[None], b=[1]), uri)
    dataset.set_nullable("a", True)
    lake.write_dataset(pa.table({"a": pa.nulls(1, pa.int64()), "b": [1]}), uri)
    assert len(rows(uri)) == 3


def test_not_null_needs_a_null_count_of_every_file(uri: str) -> None:
    table = pa.table(
        {
            "p": ["x", "y"],
            "s": [{"a": 1, "b": None}, {"a": 2, "b": 3}],
            "l": [[1], [2]],
        }
    )
    lake.write_dataset(table, uri, partition_by="p")
    dataset = lake.open_dataset(uri)
    for name in ("s.b", "l", "l.element"):
        with pytest.raises(lake.SchemaMismatchError, match="do not show that"):
            dataset.set_nullable(name, False)
    for name in ("p", "s.a", "s"):
        dataset.set_nullable(name, False)
    assert rows(uri)[0] == {"p": "x", "s": {"a": 1, "b": None}, "l": [1]}
    assert dataset.scan().to_dataset().to_table().num_rows == 2
    dataset.add_column("late", pa.int64())
    with pytest.raises(lake.SchemaMismatchError, match="'late' cannot become NOT NULL"):
        dataset.set_nullable("late", False)
    other = uri + "2"
    lake.write_dataset(numbers(a=[1], p=[None]).cast(pa.schema([("a", "int64"), ("p", "string")])),
                       other, partition_by="p")  # fmt: skip
    with pytest.raises(lake.SchemaMismatchError, match="'p' cannot become NOT NULL"):
        lake.open_dataset(other).set_nullable("p", False)


NESTED = pa.table(
    {
        "id": [1, 2, 3],
        "s": pa.array([{"x": 1, "t": {"y": 1}}, None, {"x": None, "t": None}]),
        "l": pa.array([[{"e": 1, "f": 2}, None], None, []]),
        "m": pa.array(
            [[("k", {"v": 1})], None, []],
            pa.map_(pa.string(), pa.struct([("v", pa.int32())])),
        ),
        "n": pa.array([[1], None, [None]], pa.list_(pa.int32())),
    }
)


def test_fields_inside_of_structs_lists_and_maps_change(uri: str) -> None:
    lake.write_dataset(NESTED, uri)
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        schema.rename_column("s.t.y", "z")
        schema.add_column("s.t.y", pa.string())
        schema.add_column("l.element.g", pa.int64())
        schema.drop_column("l.element.e")
        schema.rename_column("l.element.f", "e")
        schema.promote_column("m.value.v", pa.int64())
        schema.rename_column("m.value.v", "w")
        schema.promote_column("n.element", pa.int64())
        schema.reorder_columns(["s.t"])
    expected = [
        {"id": 1, "s": {"t": {"z": 1, "y": None}, "x": 1}, "l": [{"e": 2, "g": None}, None],
         "m": [("k", {"w": 1})], "n": [1]},
        {"id": 2, "s": None, "l": None, "m": None, "n": None},
        {"id": 3, "s": {"t": None, "x": None}, "l": [], "m": [], "n": [None]},
    ]  # fmt: skip
    assert rows(uri) == expected
    assert dataset.scan().to_dataset().to_table().sort_by("id").to_pylist() == expected
    assert rows(uri, predicates="s.t.z = 1") == expected[:1]
    assert rows(uri, predicates="s.t.y IS NULL") == expected
    assert rows(uri, predicates="s.t.y = '1'") == []
    lake.write_dataset(lake.read_dataset(uri), uri)
    assert rows(uri) == sorted(expected * 2, key=repr)
    assert rows(uri, version=1) == NESTED.to_pylist()


def test_a_struct_whose_stored_fields_were_all_dropped_is_null_where_it_was(uri: str) -> None:
    lake.write_dataset(pa.table({"id": [1, 2], "s": [{"x": 1}, None]}), uri)
    dataset = lake.open_dataset(uri)
    dataset.add_column("s.y", pa.int64())
    dataset.drop_column("s.x")
    expected = [{"id": 1, "s": {"y": None}}, {"id": 2, "s": None}]
    assert rows(uri) == expected
    assert dataset.scan().to_dataset().to_table().to_pylist() == expected


@writes_bloom_filters
def test_a_promoted_column_gives_the_same_rows_by_index_and_bloom_filter(uri: str) -> None:
    table = pa.table({"a": pa.array(range(10), pa.int32()), "b": list(range(10))})
    lake.write_dataset(table, uri, bloom_filter_columns=["a"], row_group_rows=2)
    dataset = lake.open_dataset(uri)
    for type_, three in ((pa.int64(), "3"), (pa.decimal128(21, 2), "3.00"), (pa.string(), "'3'")):
        if not pa.types.is_string(type_):
            dataset.promote_column("a", type_)
        else:
            with pytest.raises(lake.SchemaMismatchError, match="cannot become float"):
                dataset.promote_column("a", pa.float32())
        assert [row["b"] for row in rows(uri, predicates=f"a = {three.strip(chr(39))}")] == [3]
    assert dataset.schema.field("a").type == pa.decimal128(21, 2)


def test_dates_become_timestamps_only_where_the_statistics_allow_it(uri: str) -> None:
    dates = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
    lake.write_dataset(pa.table({"d": dates}), uri)
    dataset = lake.open_dataset(uri)
    with pytest.raises(lake.SchemaMismatchError, match="do not show that every value fits"):
        dataset.promote_column("d", pa.timestamp("us"))
    dataset.promote_column("d", pa.timestamp("ms"))
    assert dataset.scan("d = TIMESTAMP '1970-01-01'").count_rows() == 1


REFUSED: list[tuple[Callable[[lake.Dataset], object], str]] = [
    (lambda d: d.add_column("a", pa.int64()), "'a' collides with 'a'"),
    (lambda d: d.add_column("A", pa.int64()), "'A' collides with 'a'"),
    (lambda d: d.add_column("s.X", pa.int64()), "collides with 'x'"),
    (lambda d: d.add_column("a.x", pa.int64()), "not a struct"),
    (lambda d: d.add_column("l.x", pa.int64()), "not a struct"),
    (lambda d: d.add_column("n", pa.month_day_nano_interval()), "Parquet cannot hold"),
    (lambda d: d.add_column("n", "int64"), "is not an Arrow type"),  # type: ignore[arg-type]
    (lambda d: d.rename_column("a", "P"), "collides with 'p'"),
    (lambda d: d.rename_column("a", ""), "empty name"),
    (lambda d: d.rename_column("zz", "y"), "'zz' is not in the dataset. It has: a, p, s, s.x, l"),
    (lambda d: d.rename_column("l.element", "e"), "part of a list or map"),
    (lambda d: d.drop_column("p"), "is a partition column and cannot be dropped"),
    (lambda d: d.drop_column("s.x"), "is the only field"),
    (lambda d: d.drop_column("l.element"), "part of a list or map"),
    (lambda d: d.promote_column("a", pa.int32()), "not every value survives"),
    (lambda d: d.promote_column("p", pa.string()), "is a partition column"),
    (lambda d: d.promote_column("p", pa.decimal128(20, 0)), "is a partition column"),
    (lambda d: d.promote_column("s", pa.string()), "nested"),
    (lambda d: d.promote_column("s.x", pa.string()), "not every value survives"),
    (lambda d: d.reorder_columns(["a", "s.x"]), "is not in the struct of"),
    (lambda d: d.reorder_columns(["a", "A"]), "is named twice"),
    (lambda d: d.reorder_columns([]), "is not a list of names"),
    (lambda d: d.set_comment("a", 1), "is not a text"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_a_change_that_cannot_be_made_is_refused_and_nothing_is_committed(
    uri: str, change: Callable[[lake.Dataset], object], message: str
) -> None:
    table = pa.table({"a": [1], "p": [2], "s": [{"x": 1}], "l": [[1]]})
    lake.write_dataset(table, uri, partition_by="p")
    dataset = lake.open_dataset(uri)
    before = dataset.properties
    with pytest.raises((lake.SchemaMismatchError, lake.InvalidOptionError), match=message):
        change(dataset)
    assert lake.open_dataset(uri).version == 1
    assert lake.open_dataset(uri).properties == before


def test_a_change_that_changes_nothing_makes_no_version(uri: str) -> None:
    lake.write_dataset(numbers(a=[1], b=[2]), uri)
    dataset = lake.open_dataset(uri)
    assert dataset.reorder_columns(["a"]).version == 1
    assert dataset.set_nullable("a", True).version == 1
    with dataset.update_schema() as schema:
        schema.rename_column("a", "x")
        schema.rename_column("x", "a")
    assert (schema.committed.version, schema.committed.schema_version) == (1, 1)


def test_nothing_is_committed_when_the_block_raises(uri: str) -> None:
    lake.write_dataset(numbers(a=[1], b=[2]), uri)
    dataset = lake.open_dataset(uri)

    def interrupted() -> None:
        with update:
            update.rename_column("a", "x")
            raise ZeroDivisionError

    update = dataset.update_schema()
    with pytest.raises(ZeroDivisionError):
        interrupted()
    with pytest.raises(lake.InvalidOptionError, match="has committed nothing"):
        _ = update.committed
    assert lake.open_dataset(uri).version == 1


def test_a_column_whose_name_has_a_dot_is_named_by_a_tuple(uri: str) -> None:
    lake.write_dataset(pa.table({"a.b": [1], "a": [{"b": 2}]}), uri)
    dataset = lake.open_dataset(uri)
    with pytest.raises(lake.SchemaMismatchError, match="means several fields"):
        dataset.rename_column("a.b", "c")
    dataset.rename_column(("a", "b"), "c")
    dataset.rename_column(("a.b",), "d")
    dataset.add_column(("e.f",), pa.int64())
    assert rows(uri) == [{"d": 1, "a": {"c": 2}, "e.f": None}]


def test_many_columns_may_be_dropped_and_new_ones_still_join_the_index(uri: str) -> None:
    lake.write_dataset(pa.table({f"c{i}": [i] for i in range(33)}), uri)
    dataset = lake.open_dataset(uri)
    with dataset.update_schema() as schema:
        for i in range(32):
            schema.drop_column(f"c{i}")
    dataset.add_column("new", pa.int64())
    for i in (1, 2, 3):
        lake.write_dataset(pa.table({"c32": [i], "new": [i]}), uri)
    explained = dataset.refresh().scan("new = 2").explain()
    assert (explained.files_total, explained.files_read) == (4, 1)


# --- beside other writers -----------------------------------------------------------

Change = Callable[[lake.Dataset], object]
START = pa.table({"a": [1, 2], "b": [3, 4], "s": [{"x": 5, "y": 6}, {"x": 7, "y": 8}]})
LATE = pa.table({"a": [9], "b": [8], "s": [{"x": 7, "y": 6}]})

# The change, and the rows of `LATE` after it; None: the append conflicts.
WHILE_APPENDING: list[tuple[Change, dict[str, Any] | None]] = [
    (lambda d: d.rename_column("a", "c"), None),
    (lambda d: d.drop_column("b"), None),
    (lambda d: (d.drop_column("b"), d.refresh().add_column("b", pa.int64())), None),
    (lambda d: (d.rename_column("a", "c"), d.rename_column("b", "a"), d.rename_column("c", "b")),
     None),
    (lambda d: d.rename_column("s.x", "z"), None),
    (lambda d: d.reorder_columns(["s.y"]), None),
    (lambda d: d.add_column("s.z", pa.int64()), None),
    (lambda d: d.promote_column("a", pa.decimal128(19, 0)), None),
    (lambda d: d.set_nullable("a", False), None),
    (lambda d: d.add_column("c", pa.int64()), {"a": 9, "b": 8, "s": {"x": 7, "y": 6}, "c": None}),
    (lambda d: d.reorder_columns(["b"]), {"b": 8, "a": 9, "s": {"x": 7, "y": 6}}),
    (lambda d: d.set_comment("a", "text"), {"a": 9, "b": 8, "s": {"x": 7, "y": 6}}),
]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schema_merge", [False, True])
@pytest.mark.parametrize(("change", "expected"), WHILE_APPENDING)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_that_began_before_a_schema_change_is_right_or_conflicts(
    catalog: lake.Catalog,
    uri: str,
    change: Change,
    expected: dict[str, Any] | None,
    schema_merge: bool,
    mode: str,
) -> None:
    lake.write_dataset(START, uri, catalog=catalog)
    staged, files = stage(catalog, uri, LATE, schema_merge=schema_merge, mode=mode)
    change(lake.open_dataset(uri, catalog=catalog))
    newest = lake.open_dataset(uri, catalog=catalog)
    before = rows(uri, catalog=catalog)
    if expected is None and not (schema_merge and newest.version == 2 and is_not_null(newest)):
        with pytest.raises(lake.CommitConflictError, match="schema changed"):
            commit(catalog, staged, files)
        assert rows(uri, catalog=catalog) == before
        return
    commit(catalog, staged, files)
    late = expected or LATE.to_pylist()[0]
    kept = before if mode == "append" else []
    assert rows(uri, catalog=catalog) == sorted([*kept, late], key=repr)
    assert rows(uri, catalog=catalog, predicates="a = 9") == [late]


def is_not_null(dataset: lake.Dataset) -> bool:
    """With `schema_merge` an append makes a NOT NULL column nullable again."""
    return not dataset.schema.field(0).nullable


def test_an_append_under_the_names_that_a_partition_column_had_conflicts(
    catalog: lake.Catalog, uri: str
) -> None:
    table = pa.table({"a": [1], "p": [1]})
    lake.write_dataset(table, uri, catalog=catalog, partition_by="p")
    for merge in (False, True):
        staged, files = stage(catalog, uri, lake.read_dataset(uri, catalog=catalog),
                              schema_merge=merge)  # fmt: skip
        dataset = lake.open_dataset(uri, catalog=catalog)
        dataset.rename_column(dataset.partition_by[0], f"q{merge}")
        with pytest.raises(lake.CommitConflictError, match=r"partition columns are \(q"):
            commit(catalog, staged, files)
    assert rows(uri, catalog=catalog) == [{"a": 1, "qTrue": 1}]


def test_a_schema_change_rebases_over_rows_and_conflicts_with_another(
    catalog: lake.Catalog, uri: str
) -> None:
    lake.write_dataset(START, uri, catalog=catalog)
    first, second = (lake.open_dataset(uri, catalog=catalog) for _ in range(2))
    lake.write_dataset(LATE, uri, catalog=catalog)
    lake.write_dataset(LATE.append_column("late", pa.array([1])), uri, catalog=catalog,
                       schema_merge=True)  # fmt: skip
    with first.update_schema() as schema:
        schema.add_column("c", pa.int64())
        schema.rename_column("c", "d")
        schema.rename_column("a", "A2")
    assert first.schema.names == ["A2", "b", "s", "late", "d"]
    with pytest.raises(lake.CommitConflictError, match="did 'schema change'"):
        second.drop_column("b")
    second.refresh().drop_column("b")
    assert lake.open_dataset(uri, catalog=catalog).schema.names == ["A2", "s", "late", "d"]


def test_a_name_that_means_another_column_by_now_conflicts(uri: str) -> None:
    lake.write_dataset(numbers(a=[1], b=[2]), uri)
    dataset = lake.open_dataset(uri)
    dataset.drop_column("b")
    dataset.add_column("b", pa.int64())
    stale = lake.open_dataset(uri)
    dataset.restore(1)
    with pytest.raises(lake.CommitConflictError, match="means another column by now"):
        stale.rename_column("b", "c")
    late = lake.open_dataset(uri)
    lake.write_dataset(numbers(a=[1], c=[2]), uri, schema_merge=True)
    with pytest.raises(lake.CommitConflictError, match="the schema changed"):
        late.add_column("c", pa.int64())


def test_the_files_are_still_plain_parquet_with_field_ids(uri: str) -> None:
    lake.write_dataset(numbers(a=[1], b=[2]), uri)
    dataset = lake.open_dataset(uri)
    dataset.rename_column("a", "c")
    lake.write_dataset(numbers(c=[3], b=[4]), uri)
    names: Iterator[tuple[str, bytes]] = (
        (one.name, one.metadata[b"PARQUET:field_id"])
        for path in files_below(uri)
        for one in pq.read_schema(path)
    )
    assert set(names) == {("a", b"1"), ("b", b"2"), ("c", b"1")}


@pytest.mark.long
def test_a_change_whose_acknowledgement_was_lost_is_made_once(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.fresh_database()
    uri = str(tmp_path / "data")
    chance = random.Random(11)
    lake.write_dataset(numbers(a=[1]), uri, catalog=url)

    def decide(_: int) -> Cut:
        return chance.choice([None, BEFORE, AFTER, ANSWERED])

    with CuttingProxy(postgres_server.socket_folder, decide) as proxy:
        through = url.partition("?")[0] + f"?host={proxy.folder}"
        dataset = lake.open_dataset(uri, catalog=through)
        results = [dataset.add_column(f"c{n}", pa.int64()) for n in range(12)]
        assert proxy.cuts > 5
    newest = lake.open_dataset(uri, catalog=url)
    assert [one.version for one in results] == list(range(2, 14))
    assert newest.version == 13
    assert newest.schema.names == ["a", *(f"c{n}" for n in range(12))]
    assert newest.properties["last_field_id"] == 13


@pytest.mark.parametrize("partition_by", [None, "a"])
def test_a_change_made_while_an_append_records_its_files_is_seen(
    postgres_server: PostgresServer, tmp_path: Path, partition_by: str | None
) -> None:
    uri = str(tmp_path / "data")
    with lake.open_catalog(postgres_server.fresh_database()) as catalog:
        lake.write_dataset(numbers(a=[1], b=[2]), uri, catalog=catalog, partition_by=partition_by)
        mine = stage(catalog, uri, numbers(a=[3], b=[4]))
        commit_overtaken(
            catalog,
            mine,
            lambda: lake.open_dataset(uri, catalog=catalog).add_column("c", pa.int64()),
        )
        assert rows(uri, catalog=catalog) == [
            {"a": 1, "b": 2, "c": None},
            {"a": 3, "b": 4, "c": None},
        ]
        assert rows(uri, catalog=catalog, predicates="a = 3") == [{"a": 3, "b": 4, "c": None}]
        mine = stage(catalog, uri, numbers(a=[5], b=[6]))
        with pytest.raises(lake.CommitConflictError):
            commit_overtaken(
                catalog,
                mine,
                lambda: lake.open_dataset(uri, catalog=catalog).rename_column("a", "d"),
            )
        assert rows(uri, catalog=catalog, predicates="d > 2") == [{"d": 3, "b": 4, "c": None}]
        assert lake.open_dataset(uri, catalog=catalog).verify().ok


def test_a_column_gets_any_type_where_the_version_has_no_file(tmp_path: Path) -> None:
    """A pipeline truncates a table, and then gives a column the type of its new rows."""
    uri = str(tmp_path / "t")
    lake.write_dataset({"a": ["x"], "b": [1]}, uri, cluster_by=["a"])
    dataset = lake.open_dataset(uri)
    with pytest.raises(lake.SchemaMismatchError, match="not every value survives"):
        dataset.promote_column("a", pa.int64())
    late = lake.open_dataset(uri)
    dataset.delete()
    emptied = lake.open_dataset(uri)
    lake.write_dataset({"a": ["y"], "b": [2]}, uri)
    with pytest.raises(lake.SchemaMismatchError, match="not every value survives"):
        emptied.promote_column("a", pa.int64())  # rows came since
    late.refresh().delete()
    late.refresh().promote_column("a", pa.int64())
    assert late.refresh().schema.field("a").type == pa.int64()
    assert late.properties["cluster_by"] == ["a"]
    lake.write_dataset({"a": [5], "b": [3]}, uri)
    assert lake.read_dataset(uri).to_pylist() == [{"a": 5, "b": 3}]
    assert lake.read_dataset(uri, version=1).to_pylist() == [{"a": "x", "b": 1}]
