"""Every door subtracts deleted rows, and reads no more than it has to."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

import lakehouse_source as lake
from lakehouse_source.engines import duckdb as duckdb_files
from lakehouse_source.engines import files as engine_files
from lakehouse_source.engines import polars as polars_files

pytestmark = pytest.mark.slow

# Row groups of 100,000 rows, which are read by pages where few rows match.
ROWS = 200_000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "x": pa.array([number % 7 for number in range(ROWS)], pa.int64()),
        "s": [f"text {number % 1000}" for number in range(ROWS)],
    }
)


def stays(number: int) -> bool:
    """The rows that the fixture does not delete: in later row groups and on their edges too."""
    return not (number % 7 == 3 or number in (0, 99_999, 100_000, ROWS - 1))


LEFT = [number for number in range(ROWS) if stays(number)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lake.Dataset:
    uri = tmp_path_factory.mktemp("deleted") / "data"
    lake.write_dataset(TABLE, uri, row_group_rows=100_000)
    dataset = lake.open_dataset(uri)
    dataset.delete("x = 3")
    dataset.delete(f"id IN (0, 99999, 100000, {ROWS - 1})")
    return dataset


def ids(table: pa.Table) -> list[int]:
    found: list[int] = table["id"].to_pylist()
    return found


CONDITIONS = {
    "id >= 99990 AND id < 100010": lambda n: 99_990 <= n < 100_010,
    "id >= 150000 AND id < 150020": lambda n: 150_000 <= n < 150_020,
    "s = 'text 500'": lambda n: n % 1000 == 500,
    "id IN (0, 1, 3, 99999, 100001, 199999)": lambda n: n in (0, 1, 3, 99_999, 100_001, 199_999),
    "id > 40000": lambda n: n > 40_000,
    "id >= 100000": lambda n: n >= 100_000,  # one of the two row groups, whole
    "x = 3": lambda n: False,
    "NOT (id < 199000)": lambda n: n >= 199_000,
}


def test_a_whole_scan_has_every_other_row_once(dataset: lake.Dataset) -> None:
    assert ids(dataset.scan().to_table()) == LEFT
    assert sum(batch.num_rows for batch in dataset.scan().to_batches()) == len(LEFT)
    assert dataset.scan().count_rows() == len(LEFT)
    assert dataset.history()[0].summary["live_rows"] == len(LEFT)
    assert ids(dataset.scan(version=1).to_table()) == list(range(ROWS))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filtered_scan(condition: str, dataset: lake.Dataset) -> None:
    expected = [number for number in LEFT if CONDITIONS[condition](number)]
    scan = dataset.scan(condition)
    assert ids(scan.to_table()) == expected
    assert scan.count_rows() == len(expected)
    assert ids(dataset.scan(condition, columns=["id"]).to_table()) == expected
    connection = duckdb.connect()
    scan.to_duckdb(connection, "v")
    assert [row[0] for row in connection.sql("SELECT id FROM v ORDER BY id").fetchall()] == expected
    assert scan.to_polars().sort("id").collect()["id"].to_list() == expected
    assert set(ids(scan.to_dataset().to_table())) >= set(expected)
    assert {n for f in scan.fragments() for n in ids(f.to_table())} >= set(expected)


def test_explain_tells_of_deleted_rows(dataset: lake.Dataset) -> None:
    pruning = dataset.scan("id > 40000").explain()
    assert pruning.rows_deleted == ROWS - len(LEFT)
    assert f"deleted by vectors: {ROWS - len(LEFT):,}" in str(pruning)
    assert "by vectors" not in str(dataset.scan(version=1).explain())


def test_positions_are_those_of_the_file(dataset: lake.Dataset) -> None:
    for condition, holds in CONDITIONS.items():
        table = dataset.scan(condition, columns=["id", "_pos", "_row_id"]).to_table()
        assert table["_pos"].to_pylist() == [n for n in LEFT if holds(n)], condition
        assert table["_row_id"] == table["_pos"]


def test_engines_read_files_with_deleted_rows_by_themselves(
    dataset: lake.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []
    hand_over = engine_files.hand_over

    def spy(*arguments: Any, **options: Any) -> Any:
        handed.append(hand_over(*arguments, **options))
        return handed[-1]

    monkeypatch.setattr(engine_files, "hand_over", spy)
    connection = duckdb.connect()
    dataset.scan().to_duckdb(connection, "v")
    frame = dataset.scan().to_polars()
    assert [one.rows.num_rows for one in handed] == [0, 0]
    # What a query adds to the scan reaches the engine's own reader.
    wanted = [number for number in LEFT if number % 1000 == 500 and number > 15_000]
    query = "SELECT id FROM v WHERE s = 'text 500' AND id > 15000 ORDER BY id"
    assert [row[0] for row in connection.sql(query).fetchall()] == wanted
    added = frame.filter(pl.col("s") == "text 500").filter(pl.col("id") > 15_000).sort("id")
    assert added.collect()["id"].to_list() == wanted
    assert connection.sql("SELECT count(*) FROM v").fetchall() == [(len(LEFT),)]
    assert frame.select(pl.len()).collect().item() == len(LEFT)


@pytest.mark.parametrize("module", [duckdb_files, polars_files])
def test_a_column_named_like_the_engines_position(module: Any, tmp_path: Path) -> None:
    name = module.ENGINE.position
    lake.write_dataset({"id": [1, 2, 3, 4], name: [9, 8, 7, 6]}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    dataset.delete("id = 2")
    if module is polars_files:
        found = dataset.scan().to_polars().sort("id").collect().rows()
    else:
        connection = duckdb.connect()
        dataset.scan().to_duckdb(connection, "v")
        found = connection.sql("SELECT * FROM v ORDER BY id").fetchall()
    assert found == [(1, 9), (3, 7), (4, 6)]


def test_aggregates_trust_no_bound_of_a_file_with_deleted_rows(tmp_path: Path) -> None:
    from lakehouse_source.language import PredicateSet
    from lakehouse_source.read.aggregates import Aggregate, aggregate

    lake.write_dataset(
        {"k": [1, 2, 3], "p": [0, 0, 0]}, tmp_path / "data", partition_by="p", rewrite_threshold=1.0
    )
    lake.write_dataset({"k": [5], "p": [1]}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")

    def asked(where: str | None, *aggregates: Aggregate, by: tuple[str, ...] = ()) -> Any:
        scan = dataset.scan()
        with scan._snapshot() as (reader, snapshot):
            bound = PredicateSet.of(where).bind(snapshot.schema)
            return aggregate(reader, snapshot, bound, by, aggregates)

    assert asked(None, Aggregate("max", "k")) == [(5,)]
    dataset.delete("k = 3")
    assert asked(None, Aggregate("min", "k")) is None
    assert asked(None, Aggregate("count", "k")) is None
    assert asked(None, Aggregate("count", None)) == [(3,)]
    assert sorted(asked(None, Aggregate("count", None), by=("p",))) == [(0, 2), (1, 1)]
    assert asked("p = 1", Aggregate("max", "k")) == [(5,)]
    assert asked("p = 0", Aggregate("count", None)) == [(2,)]
    assert asked("k < 10", Aggregate("count", None)) == [(3,)]


def test_counts_of_whole_files_leave_out_deleted_rows(tmp_path: Path) -> None:
    """The catalog sums the rows of files that lie within the condition, and opens none."""
    for start in (0, 10):
        lake.write_dataset({"id": list(range(start, start + 10))}, tmp_path / "data")
    dataset = lake.open_dataset(tmp_path / "data")
    dataset.delete("id = 3")
    for path in (tmp_path / "data").glob("*.parquet"):
        path.unlink()
    assert dataset.scan("id < 10").count_rows() == 9
    assert dataset.scan("id >= 10").count_rows() == 10
    assert dataset.scan("id < 10", version=1 + 1).count_rows() == 10


def test_a_limit_counts_no_deleted_row(dataset: lake.Dataset) -> None:
    from lakehouse_source.read.plan import plan

    with dataset.scan()._snapshot() as (reader, snapshot):
        found = plan(reader, snapshot, limit=len(LEFT) + 1)
    assert sum(task.certain_row_count or 0 for task in found.tasks) == len(LEFT)


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_a_damaged_vector_is_an_error_that_names_its_file(damage: str, tmp_path: Path) -> None:
    uri = tmp_path / "data"
    lake.write_dataset({"id": list(range(100_000))}, uri)
    dataset = lake.open_dataset(uri)
    # Scattered, so that the vector is too large for the catalog.
    dataset.delete("id % 11 = 3")
    (puffin,) = uri.glob("*.puffin")
    content = bytearray(puffin.read_bytes())
    assert len(content) > 8192
    if damage == "missing":
        puffin.unlink()
    elif damage == "cut":
        puffin.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        puffin.write_bytes(content)
    for read in (dataset.scan().to_table, lambda: dataset.scan("id < 5").to_table()):
        with pytest.raises((lake.CorruptDatasetError, lake.StorageError), match=puffin.name):
            read()
    report = dataset.verify()
    assert [one.path for one in report.differences] == [puffin.name] * len(report.differences)
    assert not report.ok


def test_a_vector_file_has_the_layout_of_iceberg_s_specification(dataset: lake.Dataset) -> None:
    with dataset._address.open() as catalog, catalog.read() as reader:
        record = reader.dataset(dataset._address.key)
        assert record is not None
        (one,) = reader.all_vectors(record.id, dataset.version)
    root = Path(dataset.uri.removeprefix("file://"))
    content = (root / one.vector.path).read_bytes()
    assert content[:4] == content[-4:] == b"PFA1"
    blob = content[one.vector.offset : one.vector.offset + one.vector.length]
    assert struct.unpack(">I", blob[:4])[0] == len(blob) - 8
    assert blob[4:8] == bytes.fromhex("d1d33964")
    assert one.vector.cardinality == ROWS - len(LEFT)


def test_pyiceberg_reads_the_vectors(tmp_path: Path) -> None:
    uri = str(tmp_path / "data")
    for begin, end in ((0, 1_000), (1_000, 1_500)):
        lake.write_dataset({"id": list(range(begin, end))}, uri)
    dataset = lake.open_dataset(uri)
    dataset.delete("id % 7 = 3")
    (puffin,) = tmp_path.rglob("*.puffin")
    found = {
        vector.referenced_data_file: vector.to_vector().to_pylist()
        for vector in deletion_vectors_from_puffin_file(PuffinFile(puffin.read_bytes()))
    }
    assert found == {
        file.path: [at for at, number in enumerate(_ids_in(uri, file.path)) if number % 7 == 3]
        for file in dataset.files()
    }


def _ids_in(uri: str, path: str) -> list[int]:
    found: list[int] = pq.read_table(f"{uri}/{path}")["id"].to_pylist()
    return found
