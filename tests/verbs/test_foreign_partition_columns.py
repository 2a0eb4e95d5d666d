"""Data files that also contain their partition column, as those of other writers do."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

FOREIGN = {
    "of the same name and type": ("p", pa.array(["wrong"] * 3), None),
    "with the column's own field id": ("p", pa.array(["wrong"] * 3), b"2"),
    "in another case": ("P", pa.array(["wrong"] * 3), None),
    "of another type": ("p", pa.array([7, 8, 9]), None),
    "with the value of another partition": ("p", pa.array(["b"] * 3), b"2"),
    "with a field id of nobody": ("p", pa.array([None] * 3, pa.string()), b"77"),
}


@pytest.fixture(params=FOREIGN, ids=lambda name: name.replace(" ", "-"))
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> lake.Dataset:
    """Partitions a, b and NULL; the file of each is written anew with a column p in front."""
    uri, database = tmp_path / "t", tmp_path / "catalog.db"
    table = pa.table({"n": range(9), "p": ["a"] * 3 + ["b"] * 3 + [None] * 3})
    catalog = f"sqlite://{database}"
    lake.write_dataset(table, uri, catalog=catalog, partition_by="p")
    name, values, identity = FOREIGN[request.param]
    metadata = None if identity is None else {b"PARQUET:field_id": identity}
    for file in uri.rglob("*.parquet"):
        written = pq.ParquetFile(file).read()
        field = pa.field(name, values.type, metadata=metadata)
        both = pa.schema([field, *written.schema])
        pq.write_table(pa.table([values, *written.columns], schema=both), file)
        # The catalog gets the size that it would have had from importing this file.
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute(
                "UPDATE files SET file_size_bytes = ? WHERE file_path = ?",
                (file.stat().st_size, file.relative_to(uri).as_posix()),
            )
    return lake.open_dataset(uri, catalog=catalog)


ROWS = {n: None if n > 5 else "ab"[n // 3] for n in range(9)}
CONDITIONS = {
    "p = 'a'": [0, 1, 2],
    "p = 'wrong'": [],
    "p IS NULL": [6, 7, 8],
    "p IS NOT NULL AND n > 1": [2, 3, 4, 5],
    "p = 'b' OR n = 8": [3, 4, 5, 8],
    "NOT (p = 'b')": [0, 1, 2],
    "p <=> NULL AND n < 7": [6],
    "n = 4": [4],
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_catalogs_partition_value_wins_over_the_files(
    dataset: lake.Dataset, condition: str
) -> None:
    expected = {n: ROWS[n] for n in CONDITIONS[condition]}
    scan = dataset.scan(condition)
    table = scan.to_table()
    assert table.column_names == ["n", "p"]
    assert dict(zip(table["n"].to_pylist(), table["p"].to_pylist())) == expected
    assert scan.count_rows() == len(expected)
    narrow = dataset.scan(condition, columns=["p"]).to_table()
    assert sorted(narrow["p"].to_pylist(), key=str) == sorted(expected.values(), key=str)
    assert narrow.column_names == ["p"]


def test_engines_get_the_catalogs_partition_value(dataset: lake.Dataset) -> None:
    found = dataset.scan().to_dataset().to_table()
    assert found.column_names == ["n", "p"]
    assert dict(zip(found["n"].to_pylist(), found["p"].to_pylist())) == ROWS
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        dataset.scan("p = 'a'").to_duckdb(connection, "t")
        assert connection.execute("SELECT n, p FROM t ORDER BY n").fetchall() == [
            (0, "a"), (1, "a"), (2, "a"),
        ]  # fmt: skip


def test_rewriting_keeps_the_catalogs_partition_value(dataset: lake.Dataset) -> None:
    nothing = pa.table({"n": pa.array([], pa.int64()), "p": pa.array([], pa.string())})
    lake.write_dataset(
        nothing,
        dataset.uri,
        catalog=dataset._address.catalog,
        mode="overwrite",
        overwrite_where="n = 1 OR n = 7",
    )
    table = dataset.refresh().scan().to_table()
    left = {n: p for n, p in ROWS.items() if n not in (1, 7)}
    assert dict(zip(table["n"].to_pylist(), table["p"].to_pylist())) == left


def test_dropping_the_empty_text_leaves_the_partition_of_null(tmp_path: Path) -> None:
    """Paimon #6662: an overwrite of p = '' deleted the rows without a value."""
    table = pa.table({"n": range(4), "p": ["", None, "x", "__HIVE_DEFAULT_PARTITION__"]})
    lake.write_dataset(table, tmp_path, partition_by="p")
    for condition, left in (("p = ''", [1, 2, 3]), ("p IS NULL", [2, 3]), ("p = 'x'", [3])):
        lake.write_dataset(
            table.slice(0, 0),
            tmp_path,
            mode="overwrite",
            overwrite_where=condition,
        )
        assert sorted(lake.read_dataset(tmp_path)["n"].to_pylist()) == left
