"""SQL expressions as conditions at every door: the rows that DuckDB finds, and fewer files."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError

pytestmark = pytest.mark.slow

FIRST = dt.date(2022, 1, 1)
ROWS = 1000


def sample() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int32()),
            "day": [None if n % 97 == 5 else FIRST + dt.timedelta(n) for n in range(ROWS)],
            "i": pa.array([n % 50 - 20 for n in range(ROWS)], pa.int64()),
            "back": pa.array([ROWS - n for n in range(ROWS)], pa.int64()),
            "x": pa.array([(n * 7919 % 1000) / 8 for n in range(ROWS)]),
            "name": [f"{chr(97 + n // 100)}{n % 7}" for n in range(ROWS)],
        }
    )


# Text, the same for DuckDB, and at most how many of the ten files are read.
CONDITIONS = [
    ("year(day) = 2023", "year(day) = 2023", 5),
    ("NOT (year(day) = 2023)", "NOT (year(day) = 2023)", 8),
    ("year(day) = 2022 AND month(day) IN (2, 3)", "year(day) = 2022 AND month(day) IN (2, 3)", 1),
    ("trunc(day, 'month') = DATE '2024-02-01'", "date_trunc('month', day) = DATE '2024-02-01'", 2),
    ("date_add(day, 30) < DATE '2022-03-01'", "day + 30 < DATE '2022-03-01'", 1),
    ("left(name, 1) >= 'i'", "left(name, 1) >= 'i'", 2),
    ("substring(name, 1, 1) = 'c' AND i > 3", "substring(name, 1, 1) = 'c' AND i > 3", 1),
    ("id * 2 + 1 > 1900", "id * 2 + 1 > 1900", 1),
    ("coalesce(day, DATE '2030-01-01') > DATE '2024-09-01'",
     "coalesce(day, DATE '2030-01-01') > DATE '2024-09-01'", 10),
    ("length(name) = 2 AND i % 7 = 3", "length(name) = 2 AND i % 7 = 3", 10),
    ("id > back", "id > back", 5),
    ("CASE WHEN id < 100 THEN i > 0 ELSE id > 950 END",
     "CASE WHEN id < 100 THEN i > 0 ELSE id > 950 END", 2),
    ("upper(name) = 'B3' OR day = '2022-01-02'", "upper(name) = 'B3' OR day = '2022-01-02'", 10),
    ("i <> 0 AND 100 div i > 20", "i <> 0 AND 100 // nullif(i, 0) > 20 AND i > 0", 10),
]  # fmt: skip


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("conditions") / "t")
    for start in range(0, ROWS, 100):
        lake.write_dataset(sample().slice(start, 100), uri, row_group_rows=50)
    return uri


def expected(sql: str) -> list[int]:
    table = sample()
    connection = duckdb.connect()
    connection.register("rows", table)
    found = connection.execute(f"SELECT id FROM rows WHERE {sql} ORDER BY id").fetchall()
    return [row[0] for row in found]


def ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("text", "sql", "files"), CONDITIONS)
def test_scans_find_the_rows_and_leave_files_out(uri: str, text: str, sql: str, files: int) -> None:
    wanted = expected(sql)
    assert 0 < len(wanted) < ROWS
    scan = lake.open_dataset(uri).scan(text)
    assert ids(scan.to_table()) == wanted
    assert scan.count_rows() == len(wanted)
    assert ids(lake.read_dataset(uri, predicates=text, columns=["id"])) == wanted
    assert sum(batch.num_rows for batch in scan.to_batches()) == len(wanted)
    assert scan.explain().files_read <= files


@pytest.mark.parametrize(("text", "sql", "files"), CONDITIONS[:8])
def test_engines_get_the_rows(uri: str, text: str, sql: str, files: int) -> None:
    scan = lake.open_dataset(uri).scan(text)
    wanted = expected(sql)
    assert ids(scan.to_polars().collect().to_arrow()) == wanted
    connection = duckdb.connect()
    assert sorted(r[0] for r in scan.to_duckdb(connection).project("id").fetchall()) == wanted


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("text", "sql", "files"), CONDITIONS)
def test_statements_change_the_rows(tmp_path: Path, text: str, sql: str, files: int) -> None:
    wanted = expected(sql)
    uri = str(tmp_path / "t")
    lake.write_dataset(sample(), uri, row_group_rows=100)
    dataset = lake.open_dataset(uri)
    dataset.update({"x": "-1"}, where=text)
    assert ids(dataset.scan("x = -1").to_table()) == wanted
    dataset = lake.open_dataset(uri)
    assert dataset.delete(text).rows_deleted == len(wanted)
    left = lake.open_dataset(uri)
    assert left.scan().count_rows() == ROWS - len(wanted)
    assert left.scan(text).count_rows() == 0


def test_an_overwrite_replaces_the_rows_of_a_condition(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lake.write_dataset(sample(), uri, row_group_rows=100)
    new = sample().slice(0, 3)
    lake.write_dataset(new, uri, mode="overwrite", overwrite_where="year(day) = 2022")
    stays = ROWS - len(expected("year(day) = 2022"))
    assert lake.open_dataset(uri).scan().count_rows() == stays + 3


def test_a_row_without_a_value_is_an_error_that_names_it(uri: str) -> None:
    with pytest.raises(InvalidExpressionError, match="zero"):
        lake.read_dataset(uri, predicates="100 div i > 20")


def test_what_is_no_condition_is_refused_at_once(uri: str) -> None:
    for text in ("yeer(day) = 2024", "id > rand()", "id + 1", "id IN (SELECT 1)"):
        with pytest.raises(InvalidPredicateError):
            lake.read_dataset(uri, predicates=text)
