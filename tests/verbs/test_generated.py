"""Generated columns: no writer of Python commits a row with another value than is computed."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import GeneratedColumnError, SchemaMismatchError
from lakehouse_source.generated import generated
from lakehouse_source.language import PredicateSet
from lakehouse_source.read.candidates import candidates
from lakehouse_source.storage import Storage

ROWS = 6
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("name", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("half", pa.int64(), nullable=False),
    ]
)
GENERATED = {"day": "CAST(ts AS DATE)", "half": "coalesce(length(name), 0) + id div 2"}
BEGIN = datetime(2024, 3, 1, 23, 30, tzinfo=timezone.utc)


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[lake.Dataset]:
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
        dataset = catalog.create_dataset(
            "t",
            SCHEMA,
            location=tmp_path / "t",
            partition_by="day",
            generated=GENERATED,
            properties={"row_group_rows": 2},
        )
        lake.write_dataset(rows(), dataset.uri, catalog=catalog)
        yield dataset.refresh()


def rows(start: int = 0, given: str | None = None) -> pa.Table:
    """Rows without generated columns. `given`: with `day`: right, NULL, or wrong in the fourth."""
    numbers = list(range(start, start + ROWS))
    moments = [BEGIN + timedelta(days=n % 3) for n in numbers]
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "ts": pa.array(moments, SCHEMA.field("ts").type),
        "name": pa.array([None if n % 4 == 1 else "é" * (n % 5) for n in numbers]),
    }
    if given is not None:
        days: list[date | None] = [one.date() for one in moments]
        days[3] = {"right": days[3], "null": None, "wrong": date(2020, 2, 2)}[given]
        columns["day"] = pa.array(days, pa.date32())
    return pa.table(columns)


def check(dataset: lake.Dataset, count: int) -> None:
    """SQLite computes what the columns have to hold."""
    found = dataset.refresh().scan().to_table().to_pylist()
    assert len(found) == count
    with closing(sqlite3.connect(":memory:")) as oracle, oracle:
        for row in found:
            day, half = oracle.execute(
                "SELECT date(?), coalesce(length(?), 0) + ? / 2",
                (row["ts"].strftime("%Y-%m-%d %H:%M:%S"), row["name"], row["id"]),
            ).fetchone()
            assert (row["day"].isoformat(), row["half"]) == (day, half)


def write(**options: Any) -> Callable[[lake.Dataset, pa.Table], Any]:
    return lambda d, t: lake.write_dataset(t, d.uri, catalog=d._address.catalog, **options)


def _transaction(dataset: lake.Dataset, table: pa.Table) -> None:
    with lake.transaction(catalog=dataset._address.catalog) as transaction:
        transaction.write(table, dataset.uri)


DOORS: dict[str, Callable[[lake.Dataset, pa.Table], Any]] = {
    "append": write(),
    "overwrite": write(mode="overwrite"),
    "overwrite where": write(mode="overwrite", overwrite_where="id >= 0"),
    "overwrite partitions": write(mode="overwrite", partition_overwrite_mode="dynamic"),
    "more columns": lambda d, t: write(schema_merge=True)(d, t.append_column("w", t["id"])),
    "duckdb": write(writer="duckdb"),
    "duckdb relation": lambda d, t: write(writer="duckdb")(d, duckdb.connect().from_arrow(t)),
    "transaction": _transaction,
    "upsert": lambda d, t: d.upsert(t, on="id"),
    "merge": lambda d, t: (
        d.merge(t, "target.id = source.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
    "branch": lambda d, t: write()(d.branch("b"), t),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_computes_checks_and_refuses(door: str, dataset: lake.Dataset) -> None:
    seen = dataset.branch("b") if door == "branch" else dataset
    version, before = seen.version, seen.scan().count_rows()
    with pytest.raises(GeneratedColumnError) as caught:
        DOORS[door](dataset, rows(100, "wrong"))
    error = caught.value
    assert (error.column, error.expression) == ("day", "CAST(ts AS DATE)")
    assert str(error.row).startswith("day = datetime.date(2020, 2, 2), ts = datetime")
    assert error.expected == f"day = {(BEGIN + timedelta(days=103 % 3)).date()!r}"
    assert (seen.refresh().version, seen.scan().count_rows()) == (version, before)
    for number, given in enumerate((None, "null", "right")):
        DOORS[door](dataset, rows(200 + 100 * number, given))
    replaces = door.startswith("overwrite")
    check(seen, ROWS if replaces else before + 3 * ROWS)


CONDITIONS: dict[str, tuple[Callable[[int], bool], int]] = {
    "id = 17": (lambda n: n == 17, 1),
    "id = 17 AND name >= ''": (lambda n: n == 17, 1),
    "id IN (1, 5, 9, NULL)": (lambda n: n in (1, 5, 9), 1),
    "id IN (1, 6)": (lambda n: n in (1, 6), 2),
    "id <=> 18 AND NOT id > 20": (lambda n: n == 18, 1),
    "id = 17 AND id = 18": (lambda n: False, 1),
    "id = 17.5": (lambda n: False, 0),
    "id = 17 OR id = 18": (lambda n: n in (17, 18), 4),
    "NOT id = 17": (lambda n: n != 17, 4),
    "id < 30": (lambda n: n < 30, 4),
    "id = 9 AND rest = 2": (lambda n: False, 0),
    "name = 'n7'": (lambda n: n == 7, 4),
    "name IN ('n7', 'n10') AND id IN (7, 10)": (lambda n: n in (7, 10), 2),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_prunes_through_a_generated_column(
    condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of the source columns rule out no file: each has some of all."""
    matches, most = CONDITIONS[condition]
    schema = pa.schema(
        {"id": pa.int64(), "name": pa.string(), "rest": pa.int64(), "size": pa.int32()}
    )
    computed = {"rest": "id % 4", "size": "length(name) + CAST(id AS INT) % 2"}
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
        dataset = catalog.create_dataset(
            "t", schema, location=tmp_path / "t", partition_by="rest", generated=computed
        )
        numbers = [*range(0, 40, 2), *range(39, 0, -2), None]
        names = [None if n is None else f"n{n}" for n in numbers]
        table = pa.table({"id": pa.array(numbers, pa.int64()), "name": names})
        lake.write_dataset(table, dataset.uri, catalog=catalog)
        scan = dataset.refresh().scan(condition)
        found = sorted(scan.to_table()["id"].to_pylist())
        assert found == [n for n in range(40) if matches(n)]
        assert scan.explain().files_total == 5
        assert scan.explain().files_read <= most
        # What counts, summarises, rewrites and reads changes prunes by the same condition.
        opened: set[str] = set()
        open_input = Storage.open_input

        def spy(storage: Storage, path: str, *given: Any) -> Any:
            opened.add(path)
            return open_input(storage, path, *given)

        monkeypatch.setattr(Storage, "open_input", spy)
        assert scan.count_rows() == len(found)
        changes = dataset.refresh().changes(1, where=condition).to_table()
        assert sorted(changes["id"].to_pylist()) == found
        assert len(opened) <= most
        with catalog.read() as reader:
            record = reader.dataset(dataset.uri)
            assert record is not None
            snapshot = dataset._address.snapshot(catalog, reader)
            bound = PredicateSet.of(condition).bind(snapshot.schema)
            kept = {one.file.path for one in candidates(reader, snapshot, bound)}
            assert len(kept) <= most


def test_values_that_are_equal_and_differ_do_not_prune(tmp_path: Path) -> None:
    schema = pa.schema({"x": pa.float64(), "shown": pa.string()})
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
        dataset = catalog.create_dataset(
            "t",
            schema,
            location=tmp_path / "t",
            partition_by="shown",
            generated={"shown": "CAST(x AS STRING)"},
        )
        lake.write_dataset({"x": [0.0, -0.0, 1.0]}, dataset.uri, catalog=catalog)
        assert dataset.refresh().scan("x = 0.0").to_table().num_rows == 2


def test_an_update_computes_anew(dataset: lake.Dataset) -> None:
    dataset.update({"ts": "ts + interval 10 days", "id": "id + 1"}, where="id < 3")
    dataset.update({"day": "cast(ts as date)", "name": "'xyz'"}, where="id = 4")
    check(dataset, ROWS)
    with pytest.raises(GeneratedColumnError, match="the expression gives"):
        dataset.update({"day": "ts + interval 1 day"})
    dataset.merge(rows(3, "right"), "target.id = source.id").when_matched_update(
        {"ts": "source.ts + interval 5 days"}
    ).when_not_matched_by_source_update({"name": "'gone'"}).execute()
    dataset.refresh().compact()
    check(dataset, ROWS)


def test_files_of_others_are_checked(dataset: lake.Dataset, tmp_path: Path) -> None:
    whole = rows(50, "right")
    pairs = zip(whole["id"].to_pylist(), whole["name"].to_pylist())
    half = pa.array([len(name or "") + id // 2 for id, name in pairs])
    for kind, table in (
        ("right", whole.append_column("half", half)),
        ("wrong", whole.append_column("half", pa.compute.add(half, 1))),
        ("without", whole),
    ):
        for day in table["day"].unique():
            folder = tmp_path / kind / f"day={day}"
            folder.mkdir(parents=True)
            part = table.filter(pa.compute.equal(table["day"], day)).drop_columns("day")
            pq.write_table(part, folder / "1.parquet")
    with pytest.raises(GeneratedColumnError, match=r"'half'.*the expression gives half = "):
        dataset.add_files(tmp_path / "wrong", copy=True)
    with pytest.raises(SchemaMismatchError, match="half"):
        dataset.add_files(tmp_path / "without", copy=True)
    dataset.add_files(tmp_path / "right", copy=True)
    check(dataset, 2 * ROWS)


def test_what_is_refused_of_a_new_one(tmp_path: Path) -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "s": pa.struct({"x": pa.int64()})})
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
        for given, said in (
            ({"c": "a"}, "not in the schema"),
            ({"b": "c + 1"}, "no column c"),
            ({"b": "a +"}, "cannot be GENERATED"),
            ({"b": "b + 1"}, "generated too"),
            ({"b": "a", "a": "b"}, "generated too"),
            ({"b": "unix_date(current_date())"}, "another time"),
            ({"b": "cast(a as date)"}, "cast"),
            ({"b": "cast(a as string)"}, "assigned"),
            ({"s": "named_struct('x', a)"}, "not nested"),
            ({"b": 1}, "to be generated as 1"),
        ):
            with pytest.raises(SchemaMismatchError, match=said):
                catalog.create_dataset("t", schema, location=tmp_path / "t", generated=given)
        made = catalog.create_dataset("t", schema, location=tmp_path / "t", generated={"b": "s.x"})
        lake.write_dataset({"a": [1], "s": [{"x": 5}]}, made.uri, catalog=catalog)
        assert made.refresh().scan().to_table()["b"].to_pylist() == [5]
        with pytest.raises(SchemaMismatchError, match=r"s\.x.*cannot be renamed"):
            made.rename_column("s.x", "y")


def test_changes_of_the_schema(dataset: lake.Dataset) -> None:
    for change in (
        lambda: dataset.rename_column("ts", "at"),
        lambda: dataset.drop_column("ts"),
        lambda: dataset.promote_column("id", pa.decimal128(20, 0)),
        lambda: dataset.promote_column("half", pa.decimal128(20, 0)),
        lambda: dataset.rename_column("id", "key"),
    ):
        with pytest.raises(SchemaMismatchError, match="is GENERATED ALWAYS AS"):
            change()
    wide = rows(10).set_column(0, "id", pa.array(range(ROWS), pa.decimal128(20, 0)))
    with pytest.raises(SchemaMismatchError, match="is GENERATED ALWAYS AS"):
        write(schema_merge=True)(dataset, wide)
    dataset.rename_column("day", "date")
    dataset.add_column("more", pa.int64(), default=1)
    write()(dataset, rows(10))
    dataset.refresh().rename_column("date", "day")
    check(dataset, 2 * ROWS)
    assert dict(dataset.generated)["day"] == "GENERATED ALWAYS AS (CAST(ts AS DATE))"
    dataset.drop_column("half")
    dataset.rename_column("name", "word")
    assert list(dataset.generated) == ["day"]


def test_versions_branches_clones_and_overwrites_have_them(
    dataset: lake.Dataset, tmp_path: Path
) -> None:
    clone = dataset.clone(tmp_path / "clone")
    with pytest.raises(GeneratedColumnError):
        write()(clone, rows(30, "wrong"))
    write()(clone, rows(30))
    check(clone, 2 * ROWS)
    # Columns of the same names and types stay what they are, as constraints do.
    write(mode="overwrite", overwrite_schema=True, partition_by="day")(dataset, rows(40, "right"))
    assert list(dataset.refresh().generated) == ["day"]
    with pytest.raises(GeneratedColumnError):
        write()(dataset, rows(50, "wrong"))
    with pytest.raises(SchemaMismatchError, match="no column ts"):
        write(mode="overwrite", overwrite_schema=True)(
            dataset, rows(60, "right").drop_columns("ts")
        )
    dataset.restore(2)
    write()(dataset, rows(70))
    check(dataset, 2 * ROWS)


def test_iceberg_reads_them_as_plain_columns(dataset: lake.Dataset) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.table import StaticTable

    path = dataset.export_iceberg()
    found = StaticTable.from_metadata(str(getattr(path, "metadata", path))).scan().to_arrow()
    assert sorted(found["half"].to_pylist()) == sorted(
        dataset.scan().to_table()["half"].to_pylist()
    )


def test_a_column_is_pickled_without_what_it_is_bound_to(dataset: lake.Dataset) -> None:
    """Executors get it with the write."""
    with dataset._address.open() as catalog, catalog.read() as reader:
        one = generated(dataset._address.snapshot(catalog, reader).schema)[0]
    table = rows(0, "null").append_column("half", pa.nulls(ROWS, pa.int64()))
    expected = one.of_rows(table).to_pylist()
    assert pickle.loads(pickle.dumps(one)).of_rows(table).to_pylist() == expected
