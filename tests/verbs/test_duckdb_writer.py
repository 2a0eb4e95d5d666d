"""The DuckDB writer: the same rows and the same catalog rows as the PyArrow writer gives.

What the two writers record is compared, and PyArrow and DuckDB read the files themselves.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import (
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
)
from lakehouse_source.parquet.names import own_name
from lakehouse_source.schema.fields import field_id
from lakehouse_source.schema.paths import walk

pytestmark = pytest.mark.slow

UTC = dt.timezone.utc
NAN, INF = math.nan, math.inf

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False, None]),
    "i8": (pa.int8(), [-128, 127, None]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "u8": (pa.uint8(), [0, 255, None]),
    "u16": (pa.uint16(), [1, 2**16 - 1, None]),
    "u32": (pa.uint32(), [2**31, 2**32 - 1, None]),
    "u64": (pa.uint64(), [2**63, 2**64 - 1, 1]),
    "f32": (pa.float32(), [-0.0, 1.5, None]),
    "zero": (pa.float64(), [0.0, -0.0, None]),
    "infinite": (pa.float64(), [INF, -INF, 0.1]),
    "nan": (pa.float64(), [NAN, -2.5, 7.0]),
    "only nan": (pa.float32(), [NAN, None, NAN]),
    "nan and zero": (pa.float64(), [NAN, 0.0, None]),
    "text": (pa.string(), ["", "é\0'\"", "x" * 300]),
    "bytes": (pa.binary(), [b"", b"\xff\x00", None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 4)]),
    "clock": (pa.time64("us"), [dt.time(23, 59, 59, 999999), dt.time(0), None]),
    "ms": (pa.timestamp("ms"), [dt.datetime(1850, 1, 1), dt.datetime(9999, 12, 31), None]),
    "us": (pa.timestamp("us"), [dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime.max, None]),
    "ns": (pa.timestamp("ns"), [dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1), None]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1850, 1, 1, tzinfo=UTC), dt.datetime(2050, 6, 1, 1, tzinfo=UTC), None],
    ),
    "d4": (pa.decimal128(4, 2), [Decimal("-99.99"), Decimal("0.01"), None]),
    "d18": (pa.decimal128(18, 3), [Decimal("-1.001"), Decimal("9" * 15), None]),
    "d38": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("9" * 28), Decimal(0)]),
    "list": (pa.list_(pa.int32()), [[1, None], None, []]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string()), ("f", pa.float64())]),
        [{"a": 1, "b": None, "f": NAN}, None, {"a": None, "b": "", "f": 3.0}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], None, []]),
    "deep": (
        pa.list_(
            pa.struct([("q", pa.list_(pa.float64())), ("m", pa.map_(pa.int8(), pa.date32()))])
        ),
        [[{"q": [1.0, NAN, -0.0], "m": [(1, None)]}, None], None, [{"q": None, "m": None}]],
    ),
    "a.b": (pa.int32(), [1, 2, 3]),
    "it's \"odd\"": (pa.int32(), [None, None, None]),
}  # fmt: skip
EVERYTHING = pa.table({name: pa.array(values, type_) for name, (type_, values) in VALUES.items()})


def write(uri: Path, data: Any, **options: Any) -> lake.Dataset:
    lake.write_dataset(data, uri, writer="duckdb", progress=False, **options)
    return lake.open_dataset(uri)


def recorded(dataset: lake.Dataset) -> list[Any]:
    """What the catalog says of the files, without their names and sizes in bytes."""
    snapshot = dataset._snapshot
    with dataset._address.open() as catalog, catalog.read() as reader:
        files = reader.files(snapshot.dataset.id, snapshot.version)
        groups = reader.row_groups([file.id for file in files])
        rows = reader._session.query(
            "SELECT file_id, column_id, level, upper, lower, null_count, row_count, "
            "may_contain_nan FROM column_bounds ORDER BY column_id"
        )
    found = [
        (
            sorted(file.partitions.items()),
            file.path.rpartition("/")[0],
            (file.row_count, file.schema_version, file.stats_complete),
            [
                (g.index, g.row_count, g.stats_min_json, g.stats_max_json, g.null_counts_json)
                for g in groups[file.id]
            ],
            [json.loads(g.nan_json) for g in groups[file.id]],
            [row[1:] for row in rows if row[0] == file.id],
        )
        for file in files
    ]
    return sorted(found, key=repr)


def shape(dataset: lake.Dataset) -> Any:
    snapshot = dataset._snapshot
    return [
        (path, field.type, field.nullable, field_id(field)) for path, field in walk(snapshot.schema)
    ], snapshot.dataset.properties


def texts(table: pa.Table) -> list[str]:
    """The rows in no order; `repr` tells the zeros apart and shows NaN."""
    return sorted(repr(row) for row in table.to_pylist())


def check_same(one: lake.Dataset, other: lake.Dataset) -> None:
    assert shape(one) == shape(other)
    assert recorded(one) == recorded(other)
    assert texts(one.scan().to_table()) == texts(other.scan().to_table())


# --- the same as the other writer ------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.sampled(4)
def test_each_type_is_recorded_as_by_the_other_writer(tmp_path: Path, name: str) -> None:
    data = EVERYTHING.select([name])
    mine = write(tmp_path / "mine", data)
    lake.write_dataset(data, tmp_path / "other")
    check_same(mine, lake.open_dataset(tmp_path / "other"))
    # PyArrow, which knows nothing of plake, reads the file that DuckDB wrote.
    file = tmp_path / "mine" / mine.files()[0].path
    stored = pq.read_table(file)
    assert stored.column(0).type == data.column(0).type
    assert texts(stored) == texts(data)


def test_all_columns_together_with_field_ids(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine", EVERYTHING)
    lake.write_dataset(EVERYTHING, tmp_path / "other")
    other = lake.open_dataset(tmp_path / "other")
    check_same(mine, other)

    def stored_ids(dataset: lake.Dataset) -> list[Any]:
        path = Path(dataset.uri.removeprefix("file://")) / dataset.files()[0].path
        return [field_id(field) for _, field in walk(pq.ParquetFile(path).schema_arrow)]

    assert stored_ids(mine) == stored_ids(other)
    assert own_name(mine.files()[0].path) is not None
    assert mine.verify(checksums=True).ok


PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (
        pa.string(),
        ["", "a", None, "n", "v61", "a/b", "a=b", "%2F", "..", "é😀", "\0", "NULL",
         "__HIVE_DEFAULT_PARTITION__", " ", "x" * 100],
    ),
    "truth": (pa.bool_(), [True, False, None]),
    "number": (pa.int64(), [-(2**63), 2**63 - 1, 0, None]),
    "small": (pa.uint8(), [0, 255, None]),
    "i8": (pa.int8(), [-128, 127, None]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "u16": (pa.uint16(), [0, 2**16 - 1]),
    "u32": (pa.uint32(), [0, 2**32 - 1, None]),
    "u64": (pa.uint64(), [0, 2**63, 2**64 - 1, None]),
    "d38": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("9" * 28), None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1850, 2, 3), dt.date(9999, 12, 31), None]),
    "money": (pa.decimal128(20, 2), [Decimal("-0.01"), Decimal(10**17), Decimal("1.50"), None]),
    "wall": (
        pa.timestamp("us"),
        [dt.datetime(1850, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59), None],
    ),
    "wall ms": (pa.timestamp("ms"), [dt.datetime(1850, 1, 1), dt.datetime(2024, 1, 1), None]),
    "instant": (pa.timestamp("us", "UTC"), [dt.datetime(1850, 1, 1, tzinfo=UTC), None]),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values_are_those_of_the_other_writer(tmp_path: Path, name: str) -> None:
    type_, values = PARTITIONS[name]
    table = pa.table({name: pa.array(values * 3, type_), "n": range(3 * len(values))})
    mine = write(tmp_path / "mine", table, partition_by=name)
    lake.write_dataset(table, tmp_path / "other", partition_by=name)
    check_same(mine, lake.open_dataset(tmp_path / "other"))
    for folder in (tmp_path / "mine").iterdir():
        assert any(folder.iterdir()), "an empty folder is left"


BEYOND = 2**63 - 1  # DuckDB calls this moment, and its negative, infinite


@pytest.mark.parametrize(
    ("type_", "number"),
    [
        *((pa.timestamp("us", zone), n) for zone in (None, "UTC") for n in (BEYOND, -BEYOND)),
        *((pa.timestamp("ms"), n) for n in (BEYOND, 10**17, BEYOND // 1000)),
        *((pa.date32(), n) for n in (2**31 - 1, -(2**31))),
    ],
)
def test_a_moment_that_cannot_partition_is_refused_as_by_the_other_writer(
    tmp_path: Path, type_: pa.DataType, number: int
) -> None:
    number_type = pa.int32() if type_ == pa.date32() else pa.int64()
    table = pa.table({"p": pa.array([number], number_type).cast(type_), "n": [1]})
    if number == 10**17 and duckdb.__version__ < "2":
        pytest.skip("DuckDB 1 refuses it by an error of its own, TRY_CAST or not")
    for writer in ("duckdb", "pyarrow"):
        with pytest.raises(SchemaMismatchError, match=r"p'.*outside of the years 1 to 9999"):
            lake.write_dataset(
                table, tmp_path / writer, partition_by="p", writer=writer, progress=False
            )
    assert list(tmp_path.rglob("*.parquet")) == []


def test_two_partition_columns_and_an_odd_name(tmp_path: Path) -> None:
    table = pa.table(
        {"a b=c": ["x", "y", None] * 4, "n": range(12), "q\"'": [1, 1, 2, 2] * 3, "s": ["t"] * 12}
    )
    by = ["q\"'", "a b=c"]
    mine = write(tmp_path / "mine", table, partition_by=by)
    lake.write_dataset(table, tmp_path / "other", partition_by=by)
    check_same(mine, lake.open_dataset(tmp_path / "other"))


def test_a_text_too_long_for_a_folder_is_refused(tmp_path: Path) -> None:
    table = pa.table({"p": ["x" * 101], "n": [1]})
    with pytest.raises(StorageError, match=r"partition column p is longer.*writer='pyarrow'"):
        write(tmp_path / "t", table, partition_by="p")
    assert list((tmp_path / "t").rglob("*.parquet")) == []


# --- every input --------------------------------------------------------------------------

ROWS = pa.table({"id": [3, 1, None, 2], "name": ["a", None, "ü", ""], "x": [0.5, -1.0, None, INF]})


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS.to_reader(max_chunksize=1),
        lambda: ROWS.to_batches()[0],
        lambda: pl.from_arrow(ROWS).lazy(),
        lambda: ROWS.to_pylist(),
        lambda: iter(ROWS.to_batches(max_chunksize=2)),
        lambda: duckdb.connect().from_arrow(ROWS),
    ],
)
def test_every_input_gives_the_same_dataset(tmp_path: Path, make: Any) -> None:
    mine = write(tmp_path / "mine", make())
    lake.write_dataset(make(), tmp_path / "other")
    check_same(mine, lake.open_dataset(tmp_path / "other"))


def test_the_rows_of_a_relation_do_not_pass_through_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if int(duckdb.__version__.split(".")[0]) < 2:
        pytest.skip("DuckDB 1 does not tell which files a relation's COPY wrote")
    from lakehouse_source.write import rows as stage

    def forbidden(*_: Any) -> Any:
        raise AssertionError("rows were streamed")

    monkeypatch.setattr(stage, "write_files_by_duckdb", forbidden)
    connection = duckdb.connect()
    relation = connection.sql(
        "SELECT range AS n, range % 3 AS p, 'x' || range AS s, range / 7 AS f, "
        "TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (range) SECOND AS t FROM range(10000)"
    )
    mine = write(tmp_path / "mine", relation, partition_by="p")
    monkeypatch.undo()
    lake.write_dataset(relation, tmp_path / "other", partition_by="p")
    check_same(mine, lake.open_dataset(tmp_path / "other"))
    # A later write without one column, and with the others in another order.
    less = connection.sql("SELECT 'y' AS S, 5::BIGINT AS p, 1::BIGINT AS n")
    lake.write_dataset(less, tmp_path / "mine", writer="duckdb")
    assert mine.refresh().scan("s = 'y'").to_table().to_pylist() == [
        {"n": 1, "p": 5, "s": "y", "f": None, "t": None}
    ]


def test_a_relation_of_types_that_plake_converts_is_streamed(tmp_path: Path) -> None:
    sql = "SELECT 'a'::ENUM('a', 'b') AS e, uuid() AS u, [range] AS l, range AS n FROM range(9)"
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t AS {sql}")
    mine = write(tmp_path / "mine", connection.sql("FROM t"))
    lake.write_dataset(connection.sql("FROM t"), tmp_path / "other")
    check_same(mine, lake.open_dataset(tmp_path / "other"))


@pytest.mark.parametrize("second", ["n", "N"])
def test_a_relation_with_two_columns_of_one_name_is_refused(tmp_path: Path, second: str) -> None:
    """A second column of the name had another one in the dataset, and only NULL in it."""
    relation = duckdb.connect().sql(f"SELECT 1::BIGINT AS n, 2::BIGINT AS {second}")
    with pytest.raises(SchemaMismatchError, match="collides with 'n'"):
        write(tmp_path / "t", relation)
    assert not list(tmp_path.rglob("*.parquet"))


# --- data is checked, and options are followed ------------------------------------------------


def required(values: list[int | None]) -> pa.Table:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    return pa.Table.from_arrays([pa.array(values, pa.int64())], schema=schema)


def test_a_column_that_a_relation_lacks_has_its_default(tmp_path: Path) -> None:
    lake.write_dataset({"k": [1]}, tmp_path)
    lake.open_dataset(tmp_path).add_column("note", pa.string(), default="none yet")
    with duckdb.connect() as connection:
        relation = connection.sql("SELECT 2::BIGINT AS k")
        lake.write_dataset(relation, tmp_path, writer="duckdb")
    found = lake.read_dataset(tmp_path).sort_by("k").to_pylist()
    assert found == [{"k": 1, "note": "none yet"}, {"k": 2, "note": "none yet"}]


def test_null_in_a_required_column_is_refused(tmp_path: Path) -> None:
    dataset = write(tmp_path / "t", required([1, 2]))
    assert not dataset.schema.field("n").nullable
    for data in (pa.table({"n": [1, None]}), duckdb.sql("SELECT NULL::BIGINT AS n")):
        with pytest.raises(SchemaMismatchError, match="not nullable"):
            write(tmp_path / "t", data)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
    assert dataset.refresh().version == 1


def test_rows_outside_of_the_condition_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", pa.table({"n": [1, 2, 3]}))
    outside = duckdb.connect().sql("SELECT unnest([2, 4])::BIGINT AS n")
    with pytest.raises(SchemaMismatchError, match="1 incoming rows"):
        write(tmp_path / "t", outside, mode="overwrite", overwrite_where="n < 3")
    inside = duckdb.connect().sql("SELECT 0::BIGINT AS n")
    dataset = write(tmp_path / "t", inside, mode="overwrite", overwrite_where="n < 3")
    assert sorted(dataset.scan().to_table()["n"].to_pylist()) == [0, 3]


def test_types_are_promoted_and_columns_are_added(tmp_path: Path) -> None:
    for uri, writer in ((tmp_path / "mine", "duckdb"), (tmp_path / "other", "pyarrow")):
        lake.write_dataset(pa.table({"a": pa.array([1], pa.int32())}), uri, writer=writer)
        wider = pa.table({"A": pa.array([2**40]), "b": [dt.date(2024, 1, 1)]})
        lake.write_dataset(wider, uri, writer=writer, schema_merge=True)
        narrow = duckdb.sql("SELECT 7::TINYINT AS a")
        lake.write_dataset(narrow, uri, writer=writer)
    check_same(lake.open_dataset(tmp_path / "mine"), lake.open_dataset(tmp_path / "other"))


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "brotli", "lz4", "none"])
def test_the_codec_is_followed(tmp_path: Path, codec: str) -> None:
    dataset = write(tmp_path / "t", pa.table({"n": ["x" * 100] * 5000}), compression=codec)
    footer = pq.read_metadata(tmp_path / "t" / dataset.files()[0].path)
    stored = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert footer.row_group(0).column(0).compression == stored
    assert dataset.scan().count_rows() == 5000


def test_row_groups_and_files_have_about_the_size_asked_for(tmp_path: Path) -> None:
    relation = duckdb.sql("SELECT range AS n, random() AS r FROM range(200000)")
    dataset = write(tmp_path / "t", relation, row_group_rows=20480, target_file_size_bytes=500_000)
    files = dataset.files()
    assert len(files) >= 3
    assert sum(file.row_count for file in files) == 200_000
    for file in files:
        footer = pq.read_metadata(tmp_path / "t" / file.path)
        assert max(footer.row_group(i).num_rows for i in range(footer.num_row_groups)) <= 22_528


@pytest.mark.parametrize("partition_by", [None, "p"])
def test_rows_are_sorted_as_the_dataset_says(tmp_path: Path, partition_by: str | None) -> None:
    values = [(i * 7919) % 30_011 for i in range(30_000)]
    x = [None if v % 97 == 0 else NAN if v % 89 == 0 else float(v) for v in values]
    table = pa.table({"x": x, "p": [v % 3 for v in values]})
    dataset = write(tmp_path / "t", table, sort_by="x", partition_by=partition_by)
    for file in dataset.files():
        stored = pq.read_table(tmp_path / "t" / file.path, partitioning=None)["x"].to_pylist()
        keys = [(v is None, v is not None and math.isnan(v), v or 0.0) for v in stored]
        ranks = [(a, b, 0.0 if b else c) for a, b, c in keys]
        assert ranks == sorted(ranks)
    assert dataset.scan().count_rows() == 30_000


def test_nan_is_known_for_each_row_group(tmp_path: Path) -> None:
    values = [float(i) for i in range(6144)]
    values[3000] = NAN
    dataset = write(tmp_path / "t", pa.table({"x": values}), row_group_rows=2048)
    said = recorded(dataset)[0][4]
    assert said == [{"1": False}, {"1": True}, {"1": False}]
    assert dataset.scan("x > 6143").count_rows() == 1
    assert dataset.scan("x = 2049").count_rows() == 1


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    for data in (ROWS.slice(0, 0), duckdb.from_arrow(ROWS).filter("id > 10")):
        dataset = write(tmp_path / "t", data)
    assert dataset.version == 2
    assert dataset.files() == []
    assert list((tmp_path / "t").glob("*.parquet")) == []


def test_a_stream_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from pa.table({"n": range(300_000)}).to_batches(max_chunksize=10_000)
        raise ValueError("the source broke")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), broken())
    with pytest.raises(ValueError, match="the source broke"):
        write(tmp_path / "t", reader)
    assert list((tmp_path / "t").rglob("*.parquet")) == []
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(tmp_path / "t")


def test_a_query_that_fails_leaves_nothing(tmp_path: Path) -> None:
    # By one thread: with more, DuckDB 2.0 waited for ever once, for tasks that had ended.
    relation = duckdb.connect(config={"threads": 1}).sql(
        "SELECT CASE WHEN range = 250000 THEN error('broken here') ELSE range::VARCHAR END AS n "
        "FROM range(300000)"
    )
    # Before 2.0 the rows are streamed, and DuckDB's own error of the query comes out.
    errors = (StorageError, pa.ArrowException, OSError, duckdb.Error)
    with pytest.raises(errors, match="broken here"):
        write(tmp_path / "t", relation)
    assert list((tmp_path / "t").rglob("*.parquet")) == []


def test_transactions_and_mixed_writers(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/c.db"
    with lake.transaction(catalog) as tx:
        tx.write(ROWS, tmp_path / "a", writer="duckdb")
        tx.write(duckdb.from_arrow(ROWS), tmp_path / "b", writer="duckdb")
    assert [result.row_count for result in tx.results] == [4, 4]
    lake.write_dataset(ROWS, tmp_path / "a", catalog=catalog)
    dataset = lake.open_dataset(tmp_path / "a", catalog=catalog)
    dataset.rename_column("name", "label")
    assert dataset.scan("label = 'ü'").count_rows() == 2
    lake.write_dataset(duckdb.sql("SELECT 9 AS id, 'z' AS label"), tmp_path / "a",
                       catalog=catalog, writer="duckdb")  # fmt: skip
    assert dataset.refresh().scan("id = 9").to_table()["label"].to_pylist() == ["z"]


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type_",
    [
        pa.timestamp("ms", "UTC"),
        pa.timestamp("ns", "UTC"),
        pa.time32("ms"),
        pa.time64("ns"),
        pa.binary(3),
        pa.duration("us"),
        pa.float16(),
        pa.decimal256(50, 2),
        pa.null(),
        pa.list_(pa.int32(), 2),
        pa.list_(pa.float16()),
        pa.struct([("a", pa.time32("ms"))]),
    ],
)
def test_a_type_that_duckdb_does_not_write_exactly_is_refused(
    tmp_path: Path, type_: pa.DataType
) -> None:
    table = pa.table({"n": [1], "odd": pa.nulls(1, type_)})
    with pytest.raises(SchemaMismatchError, match=r"'odd'.*writer='pyarrow'"):
        write(tmp_path / "t", table)
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(tmp_path / "t")


def test_what_duckdb_cannot_follow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"bloom_filter_columns.*writer='pyarrow'"):
        write(tmp_path / "t", ROWS, bloom_filter_columns="id")
    with pytest.raises(InvalidOptionError, match="is not a writer"):
        lake.write_dataset(ROWS, tmp_path / "t", writer="spark")
    with pytest.raises(InvalidOptionError, match="local datasets only"):
        lake.write_dataset(ROWS, "memory://t", writer="duckdb", catalog=f"sqlite:///{tmp_path}/c")


def test_a_missing_duckdb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InvalidOptionError, match=r"pip install 'plake\[duckdb\]'"):
        write(tmp_path / "t", ROWS)
