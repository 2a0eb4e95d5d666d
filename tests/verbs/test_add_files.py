"""Files that others wrote become part of a dataset where they stand."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.names import own_name
from lakehouse_source.write import add_files as verb

pytestmark = pytest.mark.slow

ODD = ["a", "two words", "100%", "a=b", "ü€😀", "x/y", "%41", "+", None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "lake"
    path.mkdir()
    return path


def rows(table: pa.Table | Iterable[dict[str, Any]]) -> list[str]:
    """Rows in one order; text, so that NaN equals NaN."""
    found = table.to_pylist() if isinstance(table, pa.Table) else list(table)
    return sorted(
        repr(sorted((name, _in_utc(value)) for name, value in row.items())) for row in found
    )


def _in_utc(value: Any) -> Any:
    """The value; a moment with one object for UTC, of which there are several in Python."""
    moment = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(timezone.utc) if moment else value


def write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def snapshot_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "_plake" not in path.parts
    }


# --- folders of other writers --------------------------------------------------------


def by_pyarrow(table: pa.Table, folder: Path) -> None:
    partitioning = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
    ds.write_dataset(table, folder, format="parquet", partitioning=partitioning)


def by_duckdb(table: pa.Table, folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("rows", table)
    connection.execute(
        f"COPY rows TO '{folder}' (FORMAT parquet, PARTITION_BY (k), OVERWRITE_OR_IGNORE)"
    )


def by_polars(table: pa.Table, folder: Path) -> None:
    polars = pytest.importorskip("polars")
    polars.from_arrow(table).write_parquet(folder, partition_by="k")


def by_pandas(table: pa.Table, folder: Path) -> None:
    frame = table.filter(pa.compute.is_valid(table["k"])).to_pandas()
    frame.to_parquet(folder, partition_cols=["k"])


@pytest.mark.parametrize("writer", [by_pyarrow, by_duckdb, by_polars, by_pandas])
def test_a_hive_folder_of_another_writer_has_its_rows(
    folder: Path, writer: Callable[[pa.Table, Path], None]
) -> None:
    table = pa.table({"k": ODD * 2, "v": list(range(2 * len(ODD)))})
    writer(table, folder)
    before = snapshot_of(folder)
    dataset = lake.convert(folder)
    expected = [row for row in table.to_pylist() if row["k"] is not None or writer is not by_pandas]
    assert rows(dataset.scan().to_table()) == rows(expected)
    assert dataset.partition_by == ("k",)
    for value in ODD[:-1]:
        found = dataset.scan(("k", "=", value))
        assert rows(found.to_table()) == rows(r for r in expected if r["k"] == value)
        assert found.explain().files_read == 1
    assert rows(dataset.scan("k IS NULL").to_table()) == rows(r for r in expected if r["k"] is None)
    assert snapshot_of(folder) == before


@pytest.mark.parametrize(
    ("texts", "type_", "values"),
    [
        (["1", "02", "-3"], pa.int32(), [1, 2, -3]),
        (["1", "3000000000"], pa.int64(), [1, 3_000_000_000]),
        (["2024-02-29", "1999-12-31"], pa.date32(), [date(2024, 2, 29), date(1999, 12, 31)]),
        (["2024-02-30", "x"], pa.string(), ["2024-02-30", "x"]),
        (["1.5", "2"], pa.string(), ["1.5", "2"]),
        (["", "x"], pa.string(), ["", "x"]),
    ],
)
def test_types_of_partition_columns_are_inferred_from_all_folders(
    folder: Path, texts: list[str], type_: pa.DataType, values: list[Any]
) -> None:
    for number, text in enumerate(texts):
        write(folder / f"k={text}" / "part", v=[number])
    dataset = lake.convert(folder)
    assert dataset.schema.field("k").type == type_
    table = dataset.scan().to_table().sort_by("v")
    assert table["k"].to_pylist() == values


def test_types_of_partition_columns_can_be_given(folder: Path) -> None:
    write(folder / "k=01" / "a.parquet", v=[1])
    dataset = lake.convert(folder, partition_types={"k": pa.string()})
    assert dataset.scan("k = '01'").to_table().to_pylist() == [{"v": 1, "k": "01"}]
    with pytest.raises(lake.InvalidOptionError, match="no partition key"):
        lake.convert(folder.parent / "lake" / "k=01", partition_types={"z": pa.string()})


def test_hidden_files_of_a_folder_are_passed_over(folder: Path) -> None:
    write(folder / "a.parquet", v=[1])
    for hidden in ("_SUCCESS", ".a.parquet.crc", "_temporary/0/b.parquet"):
        (folder / hidden).parent.mkdir(parents=True, exist_ok=True)
        (folder / hidden).write_bytes(b"no parquet")
    write(folder / "_k=1" / "c.parquet", v=[2])
    with pytest.raises(lake.InvalidOptionError, match="partitioning=None"):
        lake.convert(folder)
    dataset = lake.convert(folder, partitioning=None)
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 2]


def test_a_bad_file_is_named_and_nothing_is_committed(folder: Path) -> None:
    write(folder / "a.parquet", v=[1])
    (folder / "bad.parquet").write_bytes(b"PAR1 no footer PAR1")
    with pytest.raises(lake.CorruptDatasetError, match=r"bad\.parquet"):
        lake.convert(folder)
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(folder)
    dataset = lake.Dataset
    (folder / "bad.parquet").unlink()
    dataset = lake.convert(folder)
    (folder / "bad.parquet").write_bytes(b"")
    with pytest.raises(lake.CorruptDatasetError, match=r"bad\.parquet"):
        dataset.add_files(folder / "bad.parquet")
    assert lake.open_dataset(folder).version == 1
    with pytest.raises(lake.DatasetExistsError):
        lake.convert(folder)


# --- files that differ from the dataset's schema ---------------------------------------

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 4)),
        ("ratio", pa.float64()),
        ("who", pa.struct([("first", pa.string()), ("age", pa.int64())])),
        ("tags", pa.list_(pa.string())),
    ]
)
NOON = datetime(2024, 1, 2, 12, tzinfo=ZoneInfo("UTC"))


def own_rows() -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": 1,
                "name": "own",
                "at": NOON,
                "price": Decimal("1.5000"),
                "ratio": 0.5,
                "who": {"first": "Ada", "age": 36},
                "tags": ["x"],
            }
        ],
        schema=SCHEMA,
    )


def other_files(folder: Path) -> list[dict[str, Any]]:
    """Files whose schemas differ from SCHEMA in every way that is read exactly; their rows."""
    many = {"AT": [NOON, None], "Name": ["é", "z"], "ID": [2, 3]}  # other order and case
    pq.write_table(
        pa.table(
            {
                "AT": pa.array(many["AT"], pa.timestamp("ms", "UTC")),
                "Name": pa.array(many["Name"], pa.large_string()),
                "ID": pa.array(many["ID"], pa.int32()),
            }
        ),
        folder / "narrow.parquet",
    )
    pq.write_table(
        pa.table(
            {
                "ratio": pa.array([float("nan"), 0.25, None], pa.float32()),
                "name": pa.array(["d", "d", None]).dictionary_encode(),
                "price": pa.array([Decimal("2.25"), None, Decimal("-3.10")], pa.decimal128(5, 2)),
                "id": pa.array([4, 5, 6], pa.uint8()),
            }
        ),
        folder / "dictionary.parquet",
        store_decimal_as_integer=True,
    )
    pq.write_table(
        pa.table(
            {
                "tags": pa.array([["a", None], None], pa.large_list(pa.string_view())),
                "who": pa.array(
                    [{"AGE": 7, "first": "B"}, None],
                    pa.struct([("AGE", pa.int16()), ("first", pa.string())]),
                ),
                "id": [7, 8],
                "at": pa.array([NOON, None], pa.timestamp("us", "America/New_York")),
            }
        ),
        folder / "nested.parquet",
    )
    pq.write_table(
        pa.table({"who": pa.array([{"first": "C"}], pa.struct([("first", pa.string())]))}),
        folder / "lacking.parquet",
    )
    pq.write_table(
        pa.table({"id": [9], "at": pa.array([NOON], pa.timestamp("us"))}),
        folder / "int96.parquet",
        use_deprecated_int96_timestamps=True,
    )
    nothing = dict.fromkeys(SCHEMA.names)
    given: list[dict[str, Any]] = [
        {"id": 2, "name": "é", "at": NOON},
        {"id": 3, "name": "z"},
        {"id": 4, "name": "d", "price": Decimal("2.2500"), "ratio": float("nan")},
        {"id": 5, "name": "d", "ratio": 0.25},
        {"id": 6, "price": Decimal("-3.1000")},
        {"id": 7, "who": {"first": "B", "age": 7}, "tags": ["a", None], "at": NOON},
        {"id": 8},
        {"who": {"first": "C", "age": None}},
        {"id": 9, "at": NOON},
    ]
    return [{**nothing, **row} for row in given]


@pytest.fixture
def mixed(folder: Path) -> tuple[lake.Dataset, list[dict[str, Any]]]:
    """A dataset of one own file and files of others, and its rows."""
    own = own_rows()
    lake.write_dataset(own, folder)
    expected = own.to_pylist() + other_files(folder)
    dataset = lake.open_dataset(folder)
    result = dataset.add_files(folder)
    assert (result.files, result.row_count, result.version) == (5, len(expected) - 1, 2)
    assert dataset.version == 2
    return dataset, expected


def test_columns_are_found_by_name_and_read_in_the_datasets_types(
    mixed: tuple[lake.Dataset, list[dict[str, Any]]],
) -> None:
    dataset, expected = mixed
    assert dataset.schema.equals(SCHEMA)
    assert rows(dataset.scan().to_table()) == rows(expected)
    assert rows(dataset.scan().to_dataset().to_table()) == rows(expected)
    for column in SCHEMA.names:
        only = [{column: row[column]} for row in expected]
        assert rows(dataset.scan(columns=[column]).to_table()) == rows(only)
    assert dataset.scan().count_rows() == len(expected)
    assert dataset.verify(checksums=True).ok


def greater(a: float | None, b: float) -> bool:
    """SQL's order of floats: NaN is the greatest."""
    if a is None or math.isnan(b):
        return False
    return math.isnan(a) or a > b


CONDITIONS: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    ("id = 2", lambda r: r["id"] == 2),
    ("id > 4 AND id < 7", lambda r: r["id"] in (5, 6)),
    ("id = 300", lambda r: False),
    ("id IS NULL", lambda r: r["id"] is None),
    ("id IS NOT NULL", lambda r: r["id"] is not None),
    ("NOT (id <= 3)", lambda r: r["id"] is not None and r["id"] > 3),
    ("name = 'é'", lambda r: r["name"] == "é"),
    ("name LIKE 'd%'", lambda r: (r["name"] or "").startswith("d")),
    ("name IS NULL", lambda r: r["name"] is None),
    ("at = TIMESTAMP '2024-01-02 12:00:00'", lambda r: r["at"] == NOON),
    ("at > TIMESTAMP '2024-01-02 12:00:00'", lambda r: False),
    ("at IS NULL", lambda r: r["at"] is None),
    ("price > 2", lambda r: r["price"] is not None and r["price"] > 2),
    ("price = -3.1", lambda r: r["price"] == Decimal("-3.1")),
    ("ratio > 0.3", lambda r: greater(r["ratio"], 0.3)),
    ("ratio = 0.25", lambda r: r["ratio"] == 0.25),
    ("NOT (ratio <= 1)", lambda r: greater(r["ratio"], 1)),
    ("ratio IS NULL", lambda r: r["ratio"] is None),
    ("who.age = 7", lambda r: r["who"] is not None and r["who"]["age"] == 7),
    ("who.first = 'C'", lambda r: r["who"] is not None and r["who"]["first"] == "C"),
    ("who.age IS NULL", lambda r: r["who"] is None or r["who"]["age"] is None),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("condition", "holds"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_conditions_over_files_of_others_equal_a_filter_of_their_rows(
    mixed: tuple[lake.Dataset, list[dict[str, Any]]],
    condition: str,
    holds: Callable[[dict[str, Any]], bool],
) -> None:
    dataset, expected = mixed
    wanted = rows(row for row in expected if holds(row))
    scan = dataset.scan(condition)
    assert rows(scan.to_table()) == wanted
    assert scan.count_rows() == len(wanted)


def test_statistics_of_narrower_types_prune(
    mixed: tuple[lake.Dataset, list[dict[str, Any]]],
) -> None:
    dataset, _ = mixed
    assert dataset.scan("id = 2").explain().files_read == 1
    assert dataset.scan("price = -3.1").explain().files_read == 1
    assert dataset.scan("id = 300").explain().files_read == 0
    # Only the narrow, the nested and the INT96 file can hold it: the own one ends before.
    assert dataset.scan("at > TIMESTAMP '2024-01-02 12:00:00'").explain().files_read == 1


def test_restore_and_overwrite_where_keep_rows_of_files_of_others(
    mixed: tuple[lake.Dataset, list[dict[str, Any]]], folder: Path
) -> None:
    dataset, expected = mixed
    before = snapshot_of(folder)
    changed = own_rows().set_column(0, "id", pa.array([2]))
    lake.write_dataset(changed, folder, mode="overwrite", overwrite_where="id = 2")
    kept = [row for row in expected if row["id"] != 2] + changed.to_pylist()
    assert rows(lake.read_dataset(folder)) == rows(kept)
    dataset.refresh().restore(2)
    assert rows(dataset.scan().to_table()) == rows(expected)
    assert rows(dataset.scan("id IS NULL").to_table()) == rows(
        row for row in expected if row["id"] is None
    )
    assert before.items() <= snapshot_of(folder).items()


def test_a_restored_version_has_the_values_of_a_file_that_was_added_again_under_another_schema(
    folder: Path,
) -> None:
    lake.write_dataset({"id": [0], "x": [5]}, folder)
    file = write(folder / "f.parquet", id=[1, 2], x=[10, 20])
    dataset = lake.open_dataset(folder)
    dataset.add_files(file)
    columns = ["id", "x", "_row_id"]
    before = dataset.scan(columns=columns).to_table()
    lake.write_dataset({"id": [7], "x": [5]}, folder, mode="overwrite")
    dataset.refresh().drop_column("x")
    dataset.add_column("x", pa.int64())
    dataset.add_files(file)
    dataset.restore(2)
    assert rows(dataset.scan(columns=columns).to_table()) == rows(before)
    assert dataset.scan("x = 10").count_rows() == 1
    assert dataset.history()[0].summary["live_rows"] == 3


def test_field_ids_of_another_system_mean_nothing(folder: Path) -> None:
    lake.write_dataset(pa.table({"a": [1], "b": [2]}), folder)
    fields = [
        pa.field(name, pa.int64(), metadata={"PARQUET:field_id": number})
        for name, number in (("b", "1"), ("a", "2"))
    ]
    pq.write_table(pa.table([[20], [10]], schema=pa.schema(fields)), folder / "x.parquet")
    dataset = lake.open_dataset(folder)
    dataset.add_files(folder / "x.parquet")
    assert rows(dataset.scan().to_table()) == rows([{"a": 1, "b": 2}, {"a": 10, "b": 20}])
    assert dataset.scan("a = 10").to_table().to_pylist() == [{"a": 10, "b": 20}]


def test_schemas_of_a_folder_are_merged_by_name(folder: Path) -> None:
    write(folder / "1.parquet", a=pa.array([1], pa.int32()), b=["x"])
    write(folder / "2.parquet", c=[True], A=pa.array([2], pa.int64()))
    dataset = lake.convert(folder)
    assert dataset.schema == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    expected = [{"a": 1, "b": "x", "c": None}, {"a": 2, "b": None, "c": True}]
    assert rows(dataset.scan().to_table()) == rows(expected)
    write(folder / "3.parquet", d=[1.5])
    with pytest.raises(lake.SchemaMismatchError, match=r"3\.parquet.*schema_merge=True"):
        dataset.add_files(folder / "3.parquet")
    dataset.add_files(folder / "3.parquet", schema_merge=True)
    assert rows(dataset.scan("d > 1").to_table()) == rows(
        [{"a": None, "b": None, "c": None, "d": 1.5}]
    )


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (pa.int32(), pa.int64()),
        (pa.float64(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.decimal128(5, 2), pa.decimal128(6, 2)),
        (pa.time64("us"), pa.int64()),
    ],
)
def test_types_whose_values_may_not_fit_are_refused(
    folder: Path, own: pa.DataType, theirs: pa.DataType
) -> None:
    lake.write_dataset(pa.table({"v": pa.array([None], own)}), folder)
    write(folder / "x.parquet", v=pa.array([None], theirs))
    with pytest.raises(lake.SchemaMismatchError, match="'v'"):
        lake.open_dataset(folder).add_files(folder / "x.parquet")
    assert lake.open_dataset(folder).version == 1
    assert (folder / "x.parquet").exists()


def test_a_coarser_unit_is_taken_where_statistics_show_that_values_fit(folder: Path) -> None:
    lake.write_dataset(pa.table({"t": pa.array([None], pa.timestamp("ns"))}), folder)
    dataset = lake.open_dataset(folder)
    times = [datetime(2024, 1, 2), None, datetime(2262, 1, 1)]
    column = pa.array(times, pa.timestamp("us"))
    pq.write_table(pa.table({"t": column}), folder / "fits.parquet")
    pq.write_table(pa.table({"t": column}), folder / "unknown.parquet", write_statistics=False)
    write(folder / "late.parquet", t=pa.array([datetime(2263, 1, 1)], pa.timestamp("us")))
    for name in ("unknown", "late"):
        with pytest.raises(lake.SchemaMismatchError, match=f"{name}.*do not show"):
            dataset.add_files(folder / f"{name}.parquet")
    dataset.add_files(folder / "fits.parquet")
    assert dataset.scan("t > TIMESTAMP '2200-01-01 00:00:00'").count_rows() == 1
    assert dataset.scan().to_table()["t"].null_count == 2
    both = folder.parent / "both"
    write(both / "1.parquet", t=pa.array([datetime(2024, 1, 2)], pa.timestamp("ms")))
    write(both / "2.parquet", t=pa.array([datetime(2024, 1, 3)], pa.timestamp("us")))
    converted = lake.convert(both)
    assert converted.schema.field("t").type == pa.timestamp("us")
    assert converted.scan("t >= TIMESTAMP '2024-01-03 00:00:00'").count_rows() == 1


def test_a_file_with_nulls_is_refused_in_a_column_that_is_not_nullable(folder: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    lake.write_dataset(pa.table([[1], [1]], schema=schema), folder)
    dataset = lake.open_dataset(folder)
    write(folder / "nulls.parquet", a=[1, None], b=[1, 2])
    write(folder / "missing.parquet", b=[1])
    for name in ("nulls", "missing"):
        with pytest.raises(lake.SchemaMismatchError, match="not nullable"):
            dataset.add_files(folder / f"{name}.parquet")
    write(folder / "full.parquet", a=[7], b=[1])
    dataset.add_files(folder / "full.parquet")
    assert sorted(dataset.scan().to_table()["a"].to_pylist()) == [1, 7]


def test_int96_outside_of_what_nanoseconds_reach_is_read_in_microseconds(folder: Path) -> None:
    times = [datetime(2024, 1, 2), datetime(2000, 2, 3, 4, 5, 6, 7)]
    pq.write_table(
        pa.table({"t": pa.array(times, pa.timestamp("us"))}),
        folder / "x.parquet",
        use_deprecated_int96_timestamps=True,
    )
    dataset = lake.convert(folder)
    assert dataset.schema.field("t").type == pa.timestamp("us", "UTC")
    expected = [time.replace(tzinfo=timezone.utc) for time in times]
    assert dataset.scan().to_table()["t"].to_pylist() == expected
    assert dataset.scan().to_dataset().to_table()["t"].to_pylist() == expected
    assert dataset.scan("t < TIMESTAMP '2001-01-01 00:00:00'").count_rows() == 1


# --- partition columns -----------------------------------------------------------------


def test_a_partition_column_in_the_file_must_equal_the_folder(folder: Path) -> None:
    write(folder / "k=1" / "a.parquet", k=pa.array([1, 1], pa.int64()), v=[1, 2])
    dataset = lake.convert(folder)
    expected = [{"v": 1, "k": 1}, {"v": 2, "k": 1}]
    assert rows(dataset.scan().to_table()) == rows(expected)
    assert rows(dataset.scan("k = 1").to_dataset().to_table()) == rows(expected)
    write(folder / "k=2" / "b.parquet", k=[2, 3], v=[1, 2])
    with pytest.raises(lake.SchemaMismatchError, match=r"b\.parquet is in the file too"):
        dataset.add_files(folder / "k=2")
    pq.write_table(
        pa.table({"k": [4], "v": [1]}), folder / "k=2" / "b.parquet", write_statistics=False
    )
    with pytest.raises(lake.SchemaMismatchError, match="is in the file too"):
        dataset.add_files(folder / "k=2")


def test_folders_must_have_the_partition_columns_of_the_dataset(folder: Path) -> None:
    lake.write_dataset(pa.table({"k": [1], "v": [1]}), folder, partition_by="k")
    dataset = lake.open_dataset(folder)
    write(folder / "loose.parquet", v=[2])
    write(folder / "j=2" / "a.parquet", v=[2])
    write(folder / "k=x" / "a.parquet", v=[2])
    for path in ("loose.parquet", "j=2", "k=x"):
        with pytest.raises(lake.InvalidOptionError):
            dataset.add_files(folder / path)
    with pytest.raises(lake.InvalidOptionError):
        dataset.add_files(folder / "loose.parquet", partitioning=None)
    with pytest.raises(lake.InvalidOptionError, match="partitioning"):
        dataset.add_files(folder / "k=x", partitioning="directory")
    write(folder / "K=5" / "a.parquet", v=[2])
    dataset.add_files(folder / "K=5")
    assert rows(dataset.scan("k = 5").to_table()) == rows([{"k": 5, "v": 2}])


# --- which files -----------------------------------------------------------------------


def test_the_same_file_twice_is_refused(folder: Path) -> None:
    path = write(folder / "a.parquet", v=[1])
    dataset = lake.convert(folder)
    with pytest.raises(lake.InvalidOptionError, match="in the dataset already"):
        dataset.add_files(path)
    other = write(folder / "b.parquet", v=[2])
    os.symlink(other, folder / "link.parquet")
    for twice in (
        [other, other],
        [folder / "link.parquet", other],
        [folder / "." / "b.parquet", other],
    ):
        with pytest.raises(lake.InvalidOptionError, match="given twice"):
            dataset.add_files(twice)
    dataset.add_files([str(other)])
    assert dataset.scan().count_rows() == 2
    with pytest.raises(lake.InvalidOptionError, match="not there"):
        dataset.add_files(folder / "c.parquet")
    (folder / "empty").mkdir()
    with pytest.raises(lake.InvalidOptionError, match="no data file"):
        dataset.add_files(folder / "empty")


def test_files_of_plake_are_not_added_in_place(folder: Path) -> None:
    result = lake.write_dataset(pa.table({"v": [1]}), folder)
    dataset = lake.open_dataset(folder)
    with pytest.raises(lake.InvalidOptionError, match="vacuum may delete"):
        dataset.add_files(folder / result.metadata[0].path)


def test_files_elsewhere_are_refused_or_copied(folder: Path, tmp_path: Path) -> None:
    lake.write_dataset(pa.table({"k": [1], "v": [1]}), folder, partition_by="k")
    dataset = lake.open_dataset(folder)
    given = write(tmp_path / "else" / "k=2" / "a.parquet", V=pa.array([2], pa.int32()))
    with pytest.raises(lake.InvalidOptionError, match="copy=True"):
        dataset.add_files(tmp_path / "else")
    dataset.add_files(tmp_path / "else", copy=True)
    dataset.add_files(given, copy=True)
    shutil.rmtree(tmp_path / "else")
    assert rows(dataset.scan("k = 2").to_table()) == rows([{"k": 2, "v": 2}] * 2)
    assert all(own_name(file.path) for file in dataset.files())
    assert dataset.verify(checksums=True).ok


def test_the_folder_of_another_dataset_of_plake_is_not_copied(folder: Path, tmp_path: Path) -> None:
    """Rows that it had replaced and deleted came back."""
    for number in range(2):
        lake.write_dataset(pa.table({"v": [number]}), tmp_path / "other", mode="overwrite")
    lake.write_dataset(pa.table({"v": [7]}), folder)
    dataset = lake.open_dataset(folder)
    with pytest.raises(lake.InvalidOptionError, match="part of another dataset of plake"):
        dataset.add_files(tmp_path / "other", copy=True)
    (file,) = lake.open_dataset(tmp_path / "other").files()
    dataset.add_files(tmp_path / "other" / file.path, copy=True)
    assert rows(dataset.scan().to_table()) == rows([{"v": 1}, {"v": 7}])


# --- what happens to the files ---------------------------------------------------------


def interrupted_by(monkeypatch: pytest.MonkeyPatch, event: Callable[[], Any]) -> None:
    """Something is committed after the next `add_files` has begun, before it commits."""
    real = verb._stage

    def late(*args: Any) -> Any:
        monkeypatch.setattr(verb, "_stage", real)
        event()
        return real(*args)

    monkeypatch.setattr(verb, "_stage", late)


def test_a_commit_that_fails_deletes_no_file_of_others(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write_dataset(pa.table({"v": [1]}), folder)
    dataset = lake.open_dataset(folder)
    path = write(folder / "a.parquet", v=[2])
    outside = write(tmp_path / "b.parquet", v=[3])
    before = set(snapshot_of(folder))
    interrupted_by(monkeypatch, lambda: lake.write_dataset(pa.table({"v": [4]}), folder))
    with pytest.raises(lake.CommitConflictError):
        dataset.add_files([path, outside], copy=True, expected_version=1)
    assert path.exists()
    assert outside.exists()
    # The copy is deleted; the file of the other commit is there.
    left = set(snapshot_of(folder)) - before
    assert left == {file.path for file in dataset.refresh().files()} - before
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 4]
    dataset.add_files(path)
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 2, 4]


def test_a_file_that_another_commit_added_meanwhile_is_not_added_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write_dataset(pa.table({"v": [1]}), folder)
    dataset = lake.open_dataset(folder)
    path = write(folder / "a.parquet", v=[2])
    interrupted_by(monkeypatch, lambda: lake.open_dataset(folder).add_files(path))
    with pytest.raises(lake.CommitConflictError, match="since version 2"):
        dataset.add_files(path)
    assert path.exists()
    assert sorted(lake.read_dataset(folder)["v"].to_pylist()) == [1, 2]


def test_a_file_whose_rows_a_compaction_moved_is_not_added_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(folder / f"{name}.parquet", v=[name]) for name in (1, 2)]
    dataset = lake.convert(folder)
    dataset.compact()
    with pytest.raises(lake.InvalidOptionError, match="written rows of it to other files"):
        dataset.add_files(paths[0])
    lake.write_dataset(pa.table({"v": [7]}), folder, mode="overwrite")
    dataset.refresh().add_files(paths[0])  # its rows were replaced
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 7]
    path = write(folder / "c.parquet", v=[9])

    def meanwhile() -> None:
        other = lake.open_dataset(folder)
        other.add_files(path)
        other.compact()

    interrupted_by(monkeypatch, meanwhile)
    with pytest.raises(lake.CommitConflictError, match="a compaction has written them"):
        dataset.add_files(path)
    assert sorted(lake.read_dataset(folder)["v"].to_pylist()) == [1, 7, 9]


@pytest.mark.parametrize(
    "moved_by", ["delete", "update", "merge", "overwrite", "compact", "on a branch", "fast-forward"]
)
def test_a_file_is_added_again_only_when_none_of_its_rows_is_left(
    folder: Path, moved_by: str
) -> None:
    """A row that was deleted after a compaction let the others be added twice."""
    path = write(folder / "a.parquet", v=[1, 2, 3])
    write(folder / "b.parquet", v=[7])
    dataset = lake.convert(folder)
    dataset.set_properties(rewrite_threshold=0.0)
    if moved_by == "update":
        dataset.update({"v": "v + 10"}, "v <= 3")
    elif moved_by == "merge":
        dataset.upsert(pa.table({"v": [1]}), "v")
    elif moved_by == "overwrite":
        lake.write_dataset({"v": []}, folder, mode="overwrite", overwrite_where="v = 1")
    elif moved_by != "delete":
        dataset.compact()
    if moved_by in ("on a branch", "fast-forward"):
        dataset = dataset.branch("b")
    dataset.refresh().delete("v = 1")
    if moved_by == "fast-forward":
        dataset = lake.open_dataset(folder)
        dataset.fast_forward("b")
    before = dataset.refresh().version
    for pair in ({}, {"txn_app_id": "loader", "txn_version": 1}):
        with pytest.raises(lake.InvalidOptionError, match="written rows of it to other files"):
            dataset.add_files(path, **pair)
    assert dataset.refresh().version == before
    dataset.delete("v != 7")
    dataset.add_files(path)
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 2, 3, 7]
    dataset.delete("v = 2")
    dataset.compact()
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 3, 7]
    with pytest.raises(lake.InvalidOptionError, match="written rows of it to other files"):
        dataset.add_files(path)
    dataset.restore(before)
    with pytest.raises(lake.InvalidOptionError, match="written rows of it to other files"):
        dataset.add_files(path)


def test_a_file_is_not_added_again_whose_rows_moved_before_it_was_removed(folder: Path) -> None:
    path = write(folder / "a.parquet", v=list(range(10)))
    dataset = lake.convert(folder)
    dataset.set_properties(rewrite_threshold=1.0)
    dataset.refresh().update({"v": "-1"}, "v = 3")
    dataset.refresh().delete("v >= 0")  # the file with the others
    dataset.refresh()
    with pytest.raises(lake.InvalidOptionError, match="rows of it"):
        dataset.add_files(path)
    dataset.delete()
    dataset.refresh().add_files(path)
    assert sorted(dataset.refresh().scan().to_table()["v"].to_pylist()) == list(range(10))


def test_a_file_without_rows_is_added_again_after_a_compaction(folder: Path) -> None:
    path = write(folder / "a.parquet", v=pa.array([], pa.int64()))
    write(folder / "b.parquet", v=[1])
    write(folder / "c.parquet", v=[2])
    dataset = lake.convert(folder)
    dataset.compact()
    assert path.name not in {file.path for file in dataset.files()}
    dataset.add_files(path)
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("schema_merge", [False, True])
@pytest.mark.parametrize("change", ["drop", "rename", "require"])
def test_a_column_that_the_file_lacks_is_changed_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: str, schema_merge: bool
) -> None:
    """With schema_merge a column came back that another commit had dropped or made NOT NULL."""
    lake.write_dataset(pa.table({"v": [1], "w": [1]}), folder)
    path = write(folder / "a.parquet", v=[2])
    real = verb.begin

    def late(*args: Any) -> Any:
        other = lake.open_dataset(folder)
        if change == "drop":
            other.drop_column("w")
        elif change == "rename":
            other.rename_column("w", "z")
        else:
            other.set_nullable("w", False)
        return real(*args)

    monkeypatch.setattr(verb, "begin", late)
    dataset = lake.open_dataset(folder)
    if change == "require":
        with pytest.raises(lake.SchemaMismatchError, match=r"'w' .* is not nullable"):
            dataset.add_files(path, schema_merge=schema_merge)
        assert lake.read_dataset(folder).to_pylist() == [{"v": 1, "w": 1}]
        return
    dataset.add_files(path, schema_merge=schema_merge)
    assert dataset.schema.names == (["v"] if change == "drop" else ["v", "z"])
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 2]


def test_an_append_that_comes_first_is_rebased_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write_dataset(pa.table({"v": [1]}), folder)
    path = write(folder / "a.parquet", v=pa.array([2], pa.int16()))
    more = pa.table({"v": [3], "w": ["new"]})
    interrupted_by(monkeypatch, lambda: lake.write_dataset(more, folder, schema_merge=True))
    assert lake.open_dataset(folder).add_files(path).version == 3
    expected = [{"v": 1, "w": None}, {"v": 2, "w": None}, {"v": 3, "w": "new"}]
    assert rows(lake.read_dataset(folder)) == rows(expected)


def test_the_same_idempotency_pair_adds_once(folder: Path) -> None:
    lake.write_dataset(pa.table({"v": [1]}), folder)
    dataset = lake.open_dataset(folder)
    path = write(folder / "a.parquet", v=[2])
    first = dataset.add_files(path, txn_app_id="loader", txn_version=1)
    again = dataset.add_files(path, txn_app_id="loader", txn_version=1)
    assert (first.version, again.version) == (2, 2)
    assert path.exists()
    assert dataset.scan().count_rows() == 2
    with pytest.raises(lake.InvalidOptionError, match="is in the dataset already"):
        dataset.add_files(path, txn_app_id="loader", txn_version=2)
    assert path.exists()


def test_vacuum_never_deletes_a_file_of_others(folder: Path, tmp_path: Path) -> None:
    path = write(folder / "sub" / "a.parquet", v=[1])
    dataset = lake.convert(folder, partitioning=None)
    dataset.add_files(write(tmp_path / "b.parquet", v=[2]), copy=True)
    (copied,) = [file.path for file in dataset.files() if own_name(file.path)]
    lake.write_dataset(pa.table({"v": [3]}), folder, mode="overwrite")
    dataset.expire_versions(keep_last=1)
    report = dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    assert report.files_removed == 1
    assert path.exists()
    assert not (folder / copied).exists()
    assert lake.read_dataset(folder)["v"].to_pylist() == [3]
    dataset.refresh().add_files(path, partitioning=None)
    assert sorted(dataset.scan().to_table()["v"].to_pylist()) == [1, 3]


# --- what else reads and changes a dataset with such files -----------------------------


def three_layouts(folder: Path) -> lake.Dataset:
    """A dataset of its own files and of two that others wrote, each laid out otherwise."""
    own = pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", None], "x": [0.5, math.nan]})
    lake.write_dataset(own, folder)
    write(folder / "more" / "b.parquet", S=["c"], ID=pa.array([3], pa.int32()))
    write(folder / "c.parquet", x=[-0.0], id=pa.array([4], pa.int64()), s=pa.array(["d"]))
    dataset = lake.open_dataset(folder)
    dataset.add_files(folder / "more")
    dataset.add_files([folder / "c.parquet"])
    return dataset.refresh()


MIXED = [
    {"id": 1, "s": "a", "x": 0.5},
    {"id": 2, "s": None, "x": math.nan},
    {"id": 3, "s": "c", "x": None},
    {"id": 4, "s": "d", "x": -0.0},
]


def test_engines_read_files_of_others_as_plake_does(folder: Path) -> None:
    scan = three_layouts(folder).scan()
    assert rows(scan.to_table()) == rows(MIXED)
    with duckdb.connect() as connection:
        assert rows(scan.to_duckdb(connection).to_arrow_table()) == rows(MIXED)
    assert rows(scan.to_polars().collect().to_arrow()) == rows(MIXED)
    context = datafusion.SessionContext()
    assert rows(scan.to_datafusion(context).to_arrow_table()) == rows(MIXED)


def test_a_change_of_the_schema_holds_for_files_of_others(folder: Path) -> None:
    dataset = three_layouts(folder)
    with dataset.update_schema() as schema:
        schema.rename_column("s", "text")
        schema.drop_column("x")
        schema.reorder_columns(["text", "id"])
    dataset.refresh()
    dataset.add_column("s", pa.string())  # a name that the files still have
    renamed = [{"text": row["s"], "id": row["id"], "s": None} for row in MIXED]
    assert rows(dataset.refresh().scan().to_table()) == rows(renamed)
    assert rows(dataset.scan("text = 'c'").to_table()) == rows([renamed[2]])
    assert dataset.scan("s IS NOT NULL").count_rows() == 0
    assert rows(dataset.scan(version=3).to_table()) == rows(MIXED)
    dataset.restore(3)
    assert rows(dataset.scan().to_table()) == rows(MIXED)


@pytest.mark.parametrize(
    ("log", "kind"),
    [("_delta_log/00000000000000000000.json", "Delta"), ("metadata/v1.metadata.json", "Iceberg")],
)
def test_the_folder_of_another_table_format_is_refused(folder: Path, log: str, kind: str) -> None:
    """Its removed files would come back as rows."""
    there = write(folder / "part-0.parquet", id=[1])
    write(folder / "removed.parquet", id=[1])
    (folder / log).parent.mkdir()
    (folder / log).write_text("{}")
    with pytest.raises(lake.InvalidOptionError, match=f"part of a {kind} table"):
        lake.convert(folder, format="parquet")
    lake.write_dataset(pa.table({"id": [2]}), folder)
    dataset = lake.open_dataset(folder)
    dataset.add_files([there])
    assert rows(dataset.refresh().scan().to_table()) == rows([{"id": 1}, {"id": 2}])
