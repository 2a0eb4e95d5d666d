"""Names of columns with odd characters, and scans of no columns, through every engine."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from tests.verbs.test_engine_files import ENGINES, check, rows

pytestmark = [pytest.mark.slow, pytest.mark.sampled(8)]

# Every ASCII character that is no letter or digit, and some of others.
ODD = [
    *(f"a{char}b" for char in string.punctuation),
    *(f"a{chr(code)}b" for code in (1, 9, 10, 13, 27, 31, 127)),
    *("\u00a0", "\u2028", "\ufeff", "ü", "u\u0308", "名", "\U0001f600", "\x85", "İ", "ß"),
    *("*", "^.*$", "a.b.c", "1", "-1", " ", "select", "None", "NULL", "true", "_file_x", "a" * 200),
    *(
        ".other",
        "..",
        "[0]",
        "plake path",
        "plake position",
        "plake 0",
        "file_row_number",
        "filename",
        "count(*)",
        "x\\",
    ),
]


def uses(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.sampled(24)
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_an_odd_name_goes_through_every_engine(
    tmp_path: Path, name: str, partitioned: bool
) -> None:
    data = pa.table({name: [1, 2, None], "other": ["x", "y", None]})
    lake.write_dataset(data, tmp_path, partition_by=[name] if partitioned else None)
    dataset = lake.open_dataset(tmp_path)
    dataset.delete("other = 'y'")
    dataset = dataset.refresh()
    assert dataset.schema.names == data.column_names
    expected = [repr({name: 1, "other": "x"}), repr({name: None, "other": None})]
    assert rows(dataset.scan().to_table()) == sorted(expected)
    for scan in (
        dataset.scan(),
        dataset.scan(columns=[name]),
        dataset.scan([(name, "=", 1)]),
        dataset.scan(f"{uses(name)} IS NULL", columns=["other"]),
    ):
        for engine, read_in in ENGINES.items():
            try:
                check(read_in, scan)
            except Exception as error:
                raise AssertionError(f"{engine}: {scan}") from error
    assert dataset.scan(f"{uses(name)} = 1").count_rows() == 1


# Arrow takes the first three for paths where a column to sort by is given as a text.
@pytest.mark.parametrize("name", [".other", "..", "[0]", "a b"])
def test_rows_are_sorted_by_a_column_with_an_odd_name(tmp_path: Path, name: str) -> None:
    data = pa.table({name: [3, 1, 2], "other": ["x", "y", "z"]})
    lake.write_dataset(data, tmp_path, sort_by=[name])
    assert lake.read_dataset(tmp_path)["other"].to_pylist() == ["y", "z", "x"]
    lake.write_dataset(data, tmp_path, sort_by=[name])
    lake.open_dataset(tmp_path).set_properties(cluster_by=[name])
    lake.open_dataset(tmp_path).cluster(full=True)
    assert lake.read_dataset(tmp_path)[name].to_pylist() == [1, 1, 2, 2, 3, 3]


NUL = "a\0b"


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([(NUL, pa.int64())]),
        pa.schema([("\0", pa.int64())]),
        pa.schema([("s", pa.struct([(NUL, pa.int64())]))]),
        pa.schema([("l", pa.list_(pa.struct([(NUL, pa.int64())])))]),
        pa.schema([("m", pa.map_(pa.string(), pa.struct([(NUL, pa.int64())])))]),
    ],
    ids=["column", "nothing else", "struct", "list", "map"],
)
def test_a_name_with_nul_is_refused_at_every_door(tmp_path: Path, schema: pa.Schema) -> None:
    lake.write_dataset({"n": [1]}, tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    empty = schema.empty_table()
    (tmp_path / "files").mkdir()
    field = schema.field(0)
    doors: list[Callable[[], object]] = [
        lambda: lake.write_dataset(empty, tmp_path / "new"),
        lambda: lake.write_dataset(empty, tmp_path / "d", schema_merge=True),
        lambda: lake.write_dataset(empty, tmp_path / "d", mode="overwrite", overwrite_schema=True),
        lambda: dataset.add_column(field.name, field.type),
    ]
    pq.write_table(empty, tmp_path / "files" / "a.parquet")
    doors += [
        lambda: dataset.add_files(tmp_path / "files", copy=True, schema_merge=True),
        lambda: lake.convert(tmp_path / "files"),
    ]
    if "\0" in field.name:
        doors.append(lambda: dataset.rename_column("n", field.name))
    for door in doors:
        with pytest.raises(lake.SchemaMismatchError, match="NUL"):
            door()
    assert dataset.refresh().version == 1
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(tmp_path / "new")


@pytest.mark.parametrize(
    "condition", [None, "n > 1", "p = 1", "n = 2 OR p = 2", "n > 100", "1 = 1"]
)
def test_a_scan_of_no_columns_has_rows(tmp_path: Path, condition: str | None) -> None:
    """It had none, or the file was called corrupt."""
    lake.write_dataset({"n": [1, 2, 3, 4], "p": [1, 1, 2, 2]}, tmp_path, partition_by="p")
    lake.write_dataset({"n": [5] * 20_000, "p": [1] * 20_000}, tmp_path)
    lake.open_dataset(tmp_path).delete("n = 3")
    dataset = lake.open_dataset(tmp_path)
    scan = dataset.scan(condition, columns=[])
    count = dataset.scan(condition).to_table().num_rows
    assert scan.count_rows() == count
    table = scan.to_table()
    assert (table.num_rows, table.column_names) == (count, [])
    batches = list(scan.to_batches())
    assert sum(batch.num_rows for batch in batches) == count
    assert all(batch.num_columns == 0 for batch in batches)
    assert lake.read_dataset(tmp_path, predicates=condition, columns=[]).num_rows == count
    polars = scan.to_polars()
    assert isinstance(polars, pl.LazyFrame)
    assert polars.collect().shape == (count, 0)
    assert scan.to_datafusion(datafusion.SessionContext()).count() == count
    with (
        duckdb.connect() as connection,
        pytest.raises(lake.InvalidOptionError, match="DuckDB has no tables without columns"),
    ):
        scan.to_duckdb(connection)


def test_changes_without_columns_have_rows(tmp_path: Path) -> None:
    lake.write_dataset({"n": [1, 2]}, tmp_path)
    lake.write_dataset({"n": [3]}, tmp_path)
    found = lake.open_dataset(tmp_path).read_changes(0, columns=[])
    assert [(version, batch.num_rows) for version, batch in found] == [(1, 2), (2, 1)]
