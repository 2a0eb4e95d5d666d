"""Engines read the files of a scan by themselves, and get the rows that plake reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.engines import datafusion as datafusion_files
from lakehouse_source.engines import files as engine_files
from lakehouse_source.storage import Storage

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

NAN = float("nan")
NOON = datetime(2020, 1, 1, 12, tzinfo=timezone.utc)


def in_duckdb(scan: lake.Scan) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute("SET default_collation = 'nocase'")
        return scan.to_duckdb(connection).to_arrow_table()


def in_polars(scan: lake.Scan) -> pa.Table:
    frame = scan.to_polars()
    assert isinstance(frame, pl.LazyFrame)
    return frame.collect().to_arrow()


def in_datafusion(scan: lake.Scan) -> pa.Table:
    return scan.to_datafusion(datafusion.SessionContext()).to_arrow_table()


def in_datafusion_by_arrow(scan: lake.Scan) -> pa.Table:
    """As for files whose columns DataFusion reads as other types."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datafusion_files, "_has_columns", lambda *_schemas: False)
        return in_datafusion(scan)


ENGINES: dict[str, Callable[[lake.Scan], pa.Table]] = {
    "duckdb": in_duckdb,
    "polars": in_polars,
    "datafusion": in_datafusion,
    "datafusion by arrow": in_datafusion_by_arrow,
}


@pytest.fixture(params=sorted(ENGINES))
def read_in(request: pytest.FixtureRequest) -> Callable[[lake.Scan], pa.Table]:
    return ENGINES[request.param]


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


def check(read_in: Callable[[lake.Scan], pa.Table], scan: lake.Scan) -> pa.Table:
    expected = scan.to_table()
    found = read_in(scan)
    assert found.column_names == expected.column_names
    assert rows(found.cast(expected.schema)) == rows(expected)
    return expected


@pytest.fixture
def by_plake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files that plake opens."""
    opened: list[str] = []
    open_input = Storage.open_input

    def counted(self: Storage, relative: str) -> pa.NativeFile:
        opened.append(relative)
        return open_input(self, relative)

    monkeypatch.setattr(Storage, "open_input", counted)
    return opened


def every_type() -> pa.Table:
    """Two row groups of four rows each."""
    return pa.table(
        {
            "id": pa.array(range(8), pa.int32()),
            "i": pa.array([1, None, -5, 2**62, 7, 7, None, 0]),
            "u": pa.array([0, 2**64 - 1, 2**63, None, 1, 2, 3, 4], pa.uint64()),
            "b": pa.array([True, False, None, True, None, None, False, False]),
            "s": ["a", "B", "b", None, "", "é", "\U0001f600", "o'\"x"],
            "raw": pa.array([b"", b"\x00\xff", None, b"a", b"b", b"c", b"d", None]),
            "d": [date(1850, 2, 3), None, date(2020, 1, 1), date(1, 1, 1), *[date(2021, 1, 1)] * 4],
            "t": pa.array([NOON.replace(microsecond=i) if i != 3 else None for i in range(8)]),
            "wall": pa.array([datetime(1969, 12, 31, 23, 0, i) for i in range(8)]),
            "n": pa.array([Decimal("-1.25"), None, *map(Decimal, range(6))], pa.decimal128(38, 10)),
            "f": pa.array([-0.0, 0.0, 1.5, None, float("inf"), 2.0, 0.0, -0.0]),
            "x": pa.array([1.0, NAN, 1.0, None, 0.5, -0.0, None, 2.0]),
            "nested": [{"p": 1, "q": [1, None]}, None, {"p": None, "q": None}, *[{"q": []}] * 5],
            "ns": pa.array(range(8), pa.timestamp("ns")),
        }
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("files") / "it's odd")
    lake.write_dataset(every_type(), uri, row_group_rows=4)
    return uri


PLAIN = ["id", "i", "u", "b", "s", "raw", "d", "t", "wall", "n", "f", "nested"]
PORTABLE = [
    f"{negation}({condition})"
    for condition in (
        "i = 7", "i <> 7", "i > 0", "i <= -5", "i IN (7, 0, NULL)", "i <=> NULL", "i <=> 7",
        "i IS NULL", "i = 9223372036854775808", "u >= 9223372036854775808", "b", "b = false",
        "s = 'b'", "s < 'b'", "s > 'é'", "s <= 'B'", "s IN ('a', 'é')", "s = 'o\\'\"x'",
        "s LIKE 'o%'", "s LIKE '%x'", "contains(s, '\\'')", "d < DATE '1900-01-01'",
        "d = DATE '0001-01-01'", "t > TIMESTAMP '2020-01-01 12:00:00.000004Z'",
        "t = TIMESTAMP '2020-01-01 12:00:00.000002Z'", "wall < TIMESTAMP_NTZ '1969-12-31 23:00:04'",
        "n = -1.25", "n > 2", "n IN (0, 3)", "f IS NULL", "raw IS NULL",
        "i > 0 AND s IS NOT NULL", "i > 0 OR d IS NULL", "i > 0 AND NOT (s = 'b' OR b)",
        "id < 2 OR (id > 5 AND i IS NULL)", "true", "false", "id >= 4",
    )
    for negation in ("", "NOT ")
]  # fmt: skip
BY_PLAKE = [
    f"{negation}({condition})"
    for condition in (
        "x = 1", "x > 0.5", "x = 'NaN'", "x <> 1", "x IN (1, 0.0)", "x IS NULL", "f = 0.0",
        "f < 0.5", "f = -0.0", "s LIKE 'o_%x'", "raw = X'61'", "nested.p = 1", "nested IS NULL",
        "ns > TIMESTAMP_NTZ '1970-01-01 00:00:00.000000004'", "x > 0.5 OR i = 7",
        "x <> 1 AND id > 2",
    )
    for negation in ("", "NOT ")
]  # fmt: skip


@pytest.mark.parametrize("condition", PORTABLE)
@pytest.mark.sampled(8)
def test_conditions_that_the_engine_applies(
    uri: str, read_in: Any, condition: str, by_plake: list[str]
) -> None:
    scan = lake.open_dataset(uri).scan(condition, PLAIN)
    read_in(scan)
    assert by_plake == []
    check(read_in, scan)


@pytest.mark.parametrize("condition", BY_PLAKE)
@pytest.mark.sampled(8)
def test_conditions_that_plake_applies(uri: str, read_in: Any, condition: str) -> None:
    check(read_in, lake.open_dataset(uri).scan(condition))
    check(read_in, lake.open_dataset(uri).scan(condition, ["s", "id"]))


def test_whole_scans_and_projections(uri: str, read_in: Any, by_plake: list[str]) -> None:
    dataset = lake.open_dataset(uri)
    for columns in (PLAIN, ["t", "id"], ["n"]):
        read_in(dataset.scan(None, columns))
        assert by_plake == []
        check(read_in, dataset.scan(None, columns))
        check(read_in, dataset.scan("id = 2 OR s = 'a'", columns))
        by_plake.clear()
    check(read_in, dataset.scan())
    assert by_plake  # `x` may hold NaN


@pytest.mark.long
def test_conditions_of_thousands_of_terms(uri: str, read_in: Any) -> None:
    dataset = lake.open_dataset(uri)
    keys = [[("id", "=", n), ("i", ">", n)] for n in range(3000)]
    check(read_in, dataset.scan(keys, PLAIN))
    check(read_in, dataset.scan([("id", "in", list(range(2, 20_000)))], PLAIN))
    check(read_in, dataset.scan([("s", "not in", [str(n) for n in range(20_000)])], PLAIN))


def test_arrow_expressions_stay_with_plake(uri: str, read_in: Any) -> None:
    check(read_in, lake.open_dataset(uri).scan(pc.field("x") > 0.5))
    check(read_in, lake.open_dataset(uri).scan(pc.field("id") * 2 > 3, ["id"]))


@pytest.mark.parametrize("by_arrow", [False, True])
def test_filters_that_a_query_adds_in_datafusion(
    uri: str, monkeypatch: pytest.MonkeyPatch, by_arrow: bool
) -> None:
    """Of columns of every type, against the same rows in memory."""
    if by_arrow:
        monkeypatch.setattr(datafusion_files, "_has_columns", lambda *_schemas: False)
    context = datafusion.SessionContext()
    columns = [name for name in PLAIN if name != "nested"]
    scan = lake.open_dataset(uri).scan(None, columns)
    scan.to_datafusion(context, "scanned")
    context.register_record_batches("whole", [scan.to_table().to_batches()])
    for added in (
        "i = 7", "i <> 7", "i IN (7, 0)", "i NOT IN (7, 8, 9, 10, 11, 12)", "b", "NOT b",
        "u > 9223372036854775807", "s NOT IN ('a', 'b', 'c', 'd', 'e', 'f')",
        "s = 'b'", "s < 'b'", "s LIKE 'o%'", "s IN ('a', 'é')", "d < DATE '1900-01-01'",
        "d <> DATE '2021-01-01'", "t > TIMESTAMP '2020-01-01 12:00:00.000004'",
        "wall < TIMESTAMP '1969-12-31 23:00:04'", "n = -1.25", "n > 2", "n IN (0, 3)", "f = 0.0",
        "f > -0.0", "f IS NULL OR i > 0", "i BETWEEN 0 AND 7", "NOT (i > 0 OR s = 'a')",
        "coalesce(i, 7) = 7", "b IS NOT TRUE", "raw = X'61'", "id % 2 = 0 AND d IS NOT NULL",
    ):  # fmt: skip
        found, expected = (
            rows(context.sql(f"SELECT * FROM {name} WHERE {added}").to_arrow_table())
            for name in ("scanned", "whole")
        )
        assert found == expected, added


class TestFiltersThatAQueryAdds:
    """They keep rows with NaN, which footer statistics leave out."""

    X = (1.0, NAN, 1.0, NAN, NAN, NAN, None, None, None, -0.0, 0.0, float("inf"))
    Y = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0, None, None, -0.0, -0.0, -0.0, -0.0)
    FILTERS = (
        "x = 1", "x <> 1", "NOT (x < 5)", "x > 0.5", "isnan(x)", "x = 'NaN'", "x > 'inf'",
        "x = 0.0", "x >= -0.0", "x < 0.0", "x IS NULL", "NOT (x IN (1, 2))", "y <> 1", "y = -0.0",
        "y > -0.0", "s > 'a' AND id < 9", "s IS NULL OR id = 3",
    )  # fmt: skip

    @pytest.fixture(params=[pa.float32(), pa.float64()], ids=str)
    def table(self, request: pytest.FixtureRequest) -> pa.Table:
        return pa.table(
            {
                "id": range(12),
                "x": pa.array(self.X, request.param),
                "y": pa.array(self.Y, request.param),
                "p": [{"f": value} for value in self.X],
                "s": ["a", "b", None] * 4,
            }
        )

    @pytest.fixture
    def scan(self, table: pa.Table, tmp_path: Path) -> lake.Scan:
        lake.write_dataset(table.slice(0, 9), tmp_path, row_group_rows=3)
        lake.write_dataset(table.slice(9), tmp_path)
        return lake.open_dataset(tmp_path).scan()

    def test_in_duckdb(self, table: pa.Table, scan: lake.Scan) -> None:
        with duckdb.connect() as connection:
            connection.register("whole", table)
            scan.to_duckdb(connection, "scanned")
            for added in (*self.FILTERS, "p.f <> 1", "NOT (p.f < 5)"):
                found, expected = (
                    rows(connection.sql(f"FROM {name} WHERE {added}").to_arrow_table())
                    for name in ("scanned", "whole")
                )
                assert found == expected, added

    @pytest.mark.parametrize("by_arrow", [False, True])
    def test_in_datafusion(
        self, table: pa.Table, scan: lake.Scan, monkeypatch: pytest.MonkeyPatch, by_arrow: bool
    ) -> None:
        if by_arrow:
            monkeypatch.setattr(datafusion_files, "_has_columns", lambda *_schemas: False)
        context = datafusion.SessionContext()
        context.register_record_batches("whole", [table.to_batches()])
        scan.to_datafusion(context, "scanned")
        for added in self.FILTERS:
            found, expected = (
                rows(context.sql(f"SELECT * FROM {name} WHERE {added}").to_arrow_table())
                for name in ("scanned", "whole")
            )
            assert found == expected, added

    def test_in_polars(self, table: pa.Table, scan: lake.Scan) -> None:
        x, y, s = (pl.col(name) for name in "xys")
        added = [
            *(x == 1, x != 1, x < 5, x > 0.5, x.is_nan(), x == NAN, x > float("inf"), x == 0.0),
            *(x >= -0.0, x < 0.0, x.is_null(), x.is_in([1.0, 2.0]), y != 1, y == -0.0, y > -0.0),
            *((s > "a") & (pl.col("id") < 9), s.is_null() | (pl.col("id") == 3)),
        ]
        for one in (*added, *(~one for one in added)):
            found, expected = (
                rows(frame.filter(one).collect().to_arrow())
                for frame in (scan.to_polars(), pl.DataFrame(table).lazy())
            )
            assert found == expected, str(one)

    def test_only_files_with_nan_are_read_by_plake(
        self, tmp_path: Path, read_in: Any, by_plake: list[str]
    ) -> None:
        lake.write_dataset(pa.table({"x": [1.0, 2.0]}), tmp_path)
        lake.write_dataset(pa.table({"x": [1.0, NAN]}), tmp_path)
        dataset = lake.open_dataset(tmp_path)
        check(read_in, dataset.scan())
        by_plake.clear()
        read_in(dataset.scan())
        assert len(by_plake) == 1


ODD = ["", " ", "a/b", "100%", "k=v", "é", "\U0001f600", "__HIVE_DEFAULT_PARTITION__", "o'\"x",
       ".", "[ab]", "*", "{a,b}", "?", "a" * 300, None]  # fmt: skip


@pytest.mark.parametrize("groups", [0, 256])
def test_partition_values(
    tmp_path: Path, read_in: Any, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    monkeypatch.setattr(engine_files, "_MOST_GROUPS", groups)
    table = pa.table({"k": [*ODD, "é"], "n": range(len(ODD) + 1)})
    lake.write_dataset(table, tmp_path, partition_by="k")
    dataset = lake.open_dataset(tmp_path)
    for columns in (None, ["n"], ["k", "n"]):
        check(read_in, dataset.scan(None, columns))
        check(read_in, dataset.scan("k IS NULL", columns))
        check(read_in, dataset.scan("k = 'é' AND n > 5", columns))
        check(read_in, dataset.scan("k <> '' OR n = 0", columns))
    check(read_in, dataset.scan(None, ["k"]))


def test_more_partitions_than_an_engine_plans_well(
    tmp_path: Path, read_in: Any, monkeypatch: pytest.MonkeyPatch, by_plake: list[str]
) -> None:
    monkeypatch.setattr(engine_files, "_MOST_GROUPS", 3)
    table = pa.table({"k": [1, 2, 3, 4, 5, 5, None], "s": ["x"] * 6 + [str(3**9000)]})
    lake.write_dataset(table, tmp_path, partition_by="k")
    dataset = lake.open_dataset(tmp_path)
    by_plake.clear()
    read_in(dataset.scan())
    assert by_plake == []
    check(read_in, dataset.scan())
    check(read_in, dataset.scan("k > 1 AND s = 'x'"))
    check(read_in, dataset.scan("k IS NULL OR s = 'x'", ["s"]))
    check(read_in, dataset.scan(None, ["s"]))
    dataset.delete("s = 'x' AND k IN (3, 5)")
    dataset.rename_column("k", "s2")
    dataset.rename_column("s", "k")
    dataset.add_column("added", pa.int64(), default=7)
    lake.write_dataset({"s2": [1, 9], "k": ["y", None], "added": [1, None]}, tmp_path)
    check(read_in, dataset.refresh().scan())
    check(read_in, dataset.scan("k = 'x' OR added = 7"))


def test_queries_over_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a query adds is applied, and a view that is made again has nothing of the one before."""
    monkeypatch.setattr(engine_files, "_MOST_GROUPS", 1)
    table = pa.table({"k": [*range(9), None], "n": range(10)})
    lake.write_dataset(table, tmp_path, partition_by="k")
    dataset = lake.open_dataset(tmp_path)
    context = datafusion.SessionContext()
    query = "SELECT n FROM scanned WHERE k > 3 AND n <> 5"
    with duckdb.connect() as connection:
        for where in ("k < 8", None):
            dataset.scan(where).to_duckdb(connection, "scanned")
            most = 8 if where else 9
            expected = [n for n in range(4, most) if n != 5]
            assert sorted(row[0] for row in connection.sql(query).fetchall()) == expected
    dataset.scan().to_datafusion(context, "scanned")
    assert sorted(context.sql(query).to_pydict()["n"]) == expected
    frame = dataset.scan().to_polars().filter((pl.col("k") > 3) & (pl.col("n") != 5))
    assert sorted(frame.collect()["n"].to_list()) == expected


@pytest.mark.parametrize("groups", [0, 256])
def test_partition_values_of_other_types(
    tmp_path: Path, read_in: Any, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    monkeypatch.setattr(engine_files, "_MOST_GROUPS", groups)
    table = every_type().select(["b", "d", "t", "wall", "n", "u", "id", "s"])
    lake.write_dataset(table, tmp_path, partition_by=["b", "d", "t", "wall", "n", "u"])
    dataset = lake.open_dataset(tmp_path)
    check(read_in, dataset.scan())
    check(read_in, dataset.scan("d > DATE '1900-01-01' AND id < 5"))
    check(read_in, dataset.scan("u IS NULL OR t > TIMESTAMP '2020-01-01 12:00:00.000004Z'"))


def test_files_of_another_time(tmp_path: Path, read_in: Any) -> None:
    old = {
        "i": pa.array([1, None, 2**31 - 1], pa.int32()),
        "f": pa.array([0.1, 0.5, None], pa.float32()),
        "u": pa.array([0, 255, None], pa.uint8()),
        "same": ["a", "b", None],
    }
    new = {
        "late": ["new", None],
        "i": pa.array([2**40, 1], pa.int64()),
        "f": pa.array([0.1, 1e300], pa.float64()),
        "u": pa.array([-1, 7], pa.int64()),
        "deep": [{"a": [1]}, None],
    }
    lake.write_dataset(pa.table(old), tmp_path)
    lake.write_dataset(pa.table(new), tmp_path, schema_merge=True)
    dataset = lake.open_dataset(tmp_path)
    check(read_in, dataset.scan())
    check(read_in, dataset.scan("i > 2147483646 OR late IS NULL", ["f", "deep"]))
    check(read_in, dataset.scan("i = 1", ["late"]))
    check(read_in, dataset.scan(None, ["late"]))
    check(read_in, dataset.scan(None, version=1))


def test_a_list_column_that_older_files_lack(tmp_path: Path, read_in: Any) -> None:
    lake.write_dataset({"id": [1, 2]}, tmp_path)
    lake.write_dataset({"id": [3, 4], "tags": [["a", None], None]}, tmp_path, schema_merge=True)
    check(read_in, lake.open_dataset(tmp_path).scan())


def test_promotions_that_engines_cast_differently(tmp_path: Path, read_in: Any) -> None:
    old = {
        "n": pa.array([7, None]),
        "d": pa.array([0, 1], pa.date32()),
        "t": [NOON, None],
        "f": [1e20, 0.1],
        "k": [1, 2],
    }
    new = {
        "n": ["x", "8"],
        "d": pa.array([5, 86_400_000_000], pa.timestamp("us")),
        "t": ["y", None],
        "f": ["z", None],
        "k": [3, 4],
    }
    lake.write_dataset(pa.table(old), tmp_path)
    lake.write_dataset(pa.table(new), tmp_path, schema_merge=True, promote_to_string=True)
    dataset = lake.open_dataset(tmp_path)
    check(read_in, dataset.scan())
    check(read_in, dataset.scan("n = '7' OR k = 4"))


def test_remote_stores_are_read_by_plake(tmp_path: Path, read_in: Any) -> None:
    uri = f"memory://engines/{uuid4()}"
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    lake.write_dataset(every_type(), uri, catalog=catalog, row_group_rows=4)
    dataset = lake.open_dataset(uri, catalog=catalog)
    check(read_in, dataset.scan())
    check(read_in, dataset.scan("i = 7", ["s", "id"]))


def test_empty_datasets_and_scans_without_matches(tmp_path: Path, read_in: Any) -> None:
    lake.write_dataset(every_type().slice(0, 0), tmp_path)
    check(read_in, lake.open_dataset(tmp_path).scan())
    check(read_in, lake.open_dataset(tmp_path).scan("i = 5", ["s"]))
    lake.write_dataset(every_type(), tmp_path)
    check(read_in, lake.open_dataset(tmp_path).scan("i = 5", ["s"]))
    check(read_in, lake.open_dataset(tmp_path).scan("i = 5", ["x"]))


def test_columns_named_like_those_that_engines_add(tmp_path: Path, read_in: Any) -> None:
    names = ["filename", "file_row_number", "rowid", 'a "b"', "select", "a.b", "Ä"]
    lake.write_dataset(pa.table({name: [1, 2, i] for i, name in enumerate(names)}), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    check(read_in, dataset.scan())
    check(read_in, dataset.scan("filename = 1 OR rowid = 2"))


@pytest.mark.parametrize(
    ("engine", "type_"),
    [
        ("duckdb", pa.decimal256(50, 1)),
        ("duckdb", pa.list_(pa.float16())),
        ("polars", pa.struct([("x", pa.decimal256(50, 1))])),
    ],
)
def test_a_type_that_an_engine_lacks_is_named(
    tmp_path: Path, engine: str, type_: pa.DataType
) -> None:
    """Polars ended with a panic, and DuckDB named no column."""
    lake.write_dataset(pa.table({"n": [1, 2], "x": pa.nulls(2, type_)}), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    with pytest.raises(lake.SchemaMismatchError, match=r"column 'x' is .* has no type"):
        ENGINES[engine](dataset.scan())
    check(ENGINES[engine], dataset.scan("x IS NULL AND n = 1", ["n"]))


@pytest.mark.parametrize("name", ["*", "^a$", "^.*$"])
def test_columns_named_like_patterns(tmp_path: Path, read_in: Any, name: str) -> None:
    """Polars gave the values of the column `a` for those of `^a$`."""
    lake.write_dataset(pa.table({name: [1, 2], "a": [3, 4]}), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    check(read_in, dataset.scan())
    check(read_in, dataset.scan([((name,), "=", 1)]))
    check(read_in, dataset.scan([((name,), "=", 1)], ["a"]))


@pytest.mark.parametrize("damage", ["missing", "longer"])
def test_a_file_that_is_not_the_committed_one(tmp_path: Path, read_in: Any, damage: str) -> None:
    lake.write_dataset(pa.table({"n": [1]}), tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    if damage == "missing":
        path.unlink()
        with pytest.raises(lake.StorageError, match=f"{path.name}.*missing"):
            read_in(lake.open_dataset(tmp_path).scan())
    else:
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(lake.CorruptDatasetError, match=path.name):
            read_in(lake.open_dataset(tmp_path).scan())


def test_a_file_without_a_column_of_its_schema(tmp_path: Path, read_in: Any) -> None:
    """Another commit added the column while the file was written."""
    lake.write_dataset(pa.table({"a": [1]}), tmp_path)
    lake.write_dataset(pa.table({"a": [2], "b": ["x"]}), tmp_path, schema_merge=True)
    dataset = lake.open_dataset(tmp_path)
    (newer,) = [file for file in dataset.files() if file.version == 2]
    path = tmp_path / newer.path
    table = pq.ParquetFile(path).read(["a"])
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
    with closing(sqlite3.connect(tmp_path / "_plake" / "catalog.db")) as database, database:
        size = (path.stat().st_size, newer.id)
        database.execute("UPDATE files SET file_size_bytes = ? WHERE id = ?", size)
    check(read_in, lake.open_dataset(tmp_path).scan())


class TestViewsOfDuckDB:
    def test_two_scans_are_joined_in_one_connection(self, uri: str) -> None:
        dataset = lake.open_dataset(uri)
        with duckdb.connect() as connection:
            dataset.scan("id < 5").to_duckdb(connection, "a")
            dataset.scan("id > 2", ["id", "s"]).to_duckdb(connection, 'b "of" it')
            joined = connection.sql('SELECT a.id FROM a JOIN "b ""of"" it" b USING (id) ORDER BY 1')
            assert joined.fetchall() == [(3,), (4,)]

    def test_a_name_is_used_again(self, uri: str) -> None:
        dataset = lake.open_dataset(uri)
        with duckdb.connect() as connection:
            connection.register("plake", pa.table({"mine": [1]}))
            for scan in (dataset.scan("x > 0"), dataset.scan("i = 7", ["id"]), dataset.scan()) * 2:
                scan.to_duckdb(connection)
                assert len(connection.table("plake")) == scan.count_rows()

    def test_a_connection_that_may_not_open_files(self, uri: str) -> None:
        scan = lake.open_dataset(uri).scan("i = 7", ["id"])
        with duckdb.connect(config={"enable_external_access": False}) as connection:
            assert rows(scan.to_duckdb(connection).to_arrow_table()) == rows(scan.to_table())

    def test_filters_reach_the_reader_of_files(self, uri: str) -> None:
        with duckdb.connect() as connection:
            lake.open_dataset(uri).scan("s > 'a'", PLAIN).to_duckdb(connection, "things")
            plan = connection.sql("EXPLAIN SELECT i FROM things WHERE id = 3").fetchall()[0][1]
        scan = plan.replace(" ", "")
        assert "READ_PARQUET" in scan
        assert "id=3" in scan
        assert "s>'a'" in scan
        assert "FILTER─" not in scan


def test_many_files_are_one_table_in_datafusion(tmp_path: Path) -> None:
    """A union of a scan for each file took seconds; the session keeps nothing but the view."""
    folder = tmp_path / "it's a place"
    for number in range(70):
        lake.write_dataset({"id": [number], "s": ["a" * number]}, folder)
    scan, context = lake.open_dataset(folder).scan("id >= 3"), datafusion.SessionContext()
    scan.to_datafusion(context, "t")
    found = context.sql("SELECT * FROM t WHERE id < 66")
    plan = str(found.execution_plan())
    assert plan.count("file_groups") == 1
    assert sorted(row["id"] for row in found.to_pylist()) == list(range(3, 66))
    assert context.catalog().schema().names() == {"t"}
    assert context.table("t").schema().field("s").type == pa.string()
