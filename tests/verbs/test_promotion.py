"""Data of other types through a write and a read: exact, or refused with nothing committed."""

from __future__ import annotations

import datetime
import decimal
import uuid
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.read.address import Address
from lakehouse_source.write.commit.apply import summary

pytestmark = pytest.mark.slow

D = decimal.Decimal
NAN, INFINITY = float("nan"), float("inf")
FIRST, LAST = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
MIDNIGHT = datetime.time()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def column(values: list[Any], type_: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.array(values, type_)})


def stored(uri: str) -> list[str]:
    """The values of the newest version, told apart by type, sign of zero and NaN."""
    return [repr(value) for value in lake.read_dataset(uri)["c"].to_pylist()]


def test_a_float_appended_to_a_decimal_column_was_rounded(uri: str) -> None:
    lake.write_dataset(column([D("1.25")], pa.decimal128(10, 2)), uri)
    for merge in (False, True):
        with pytest.raises(lake.SchemaMismatchError, match=r"'c' .*decimal128.* has double"):
            lake.write_dataset(column([1.259], pa.float64()), uri, schema_merge=merge)
    assert stored(uri) == ["Decimal('1.25')"]


def test_decimals_merged_into_a_column_of_doubles_made_it_unreadable(uri: str) -> None:
    lake.write_dataset(column([1e300, NAN], pa.float64()), uri)
    with pytest.raises(lake.SchemaMismatchError, match=r"'c' .*double.* has decimal128"):
        lake.write_dataset(column([D("1.25")], pa.decimal128(10, 2)), uri, schema_merge=True)
    assert stored(uri) == ["1e+300", "nan"]


TAKEN = [
    (pa.float64(), pa.float32(), [NAN, INFINITY, -INFINITY, -0.0, 1.5], None),
    (pa.float64(), pa.int64(), [2**53, -(2**53)], [2**53 * 1.0, -(2.0**53)]),
    (pa.float64(), pa.uint8(), [255], [255.0]),
    (pa.decimal128(20, 0), pa.uint64(), [2**64 - 1], [D(2**64 - 1)]),
    (pa.decimal128(12, 4), pa.decimal128(10, 2), [D("-99999999.99")], [D("-99999999.9900")]),
    (pa.timestamp("us"), pa.date32(), [FIRST, LAST],
     [datetime.datetime.combine(day, MIDNIGHT) for day in (FIRST, LAST)]),
    (pa.time64("us"), pa.time32("ms"), [datetime.time(23, 59, 59, 999_000)], None),
    (pa.binary(), pa.binary(2), [b"\x00\xff"], None),
]  # fmt: skip


@pytest.mark.parametrize(("wide", "narrow", "values", "expected"), TAKEN, ids=str)
def test_values_are_exact_in_a_column_of_a_wider_type(
    uri: str, wide: pa.DataType, narrow: pa.DataType, values: list[Any], expected: list[Any] | None
) -> None:
    lake.write_dataset(column([None], wide), uri)
    lake.write_dataset(column(values, narrow), uri)
    assert stored(uri) == ["None", *map(repr, expected or values)]


@pytest.mark.parametrize(
    ("wide", "narrow", "values", "expected"),
    [
        *TAKEN,
        (pa.time64("ns"), pa.time32("s"), [datetime.time(23, 59, 59)], None),
        (pa.duration("us"), pa.duration("s"), [datetime.timedelta(days=-1, seconds=1)], None),
    ],
    ids=str,
)
def test_an_upsert_takes_the_types_that_an_append_takes(
    uri: str, wide: pa.DataType, narrow: pa.DataType, values: list[Any], expected: list[Any] | None
) -> None:
    new = column(values, narrow).append_column("key", pa.array(range(len(values))))
    lake.write_dataset(column([None], wide).append_column("key", pa.array([0])), uri)
    lake.open_dataset(uri).upsert(new, on="key")
    assert stored(uri) == [*map(repr, expected or values)]


def test_an_upsert_refuses_a_duration_that_a_finer_unit_cannot_hold(uri: str) -> None:
    lake.write_dataset(column([None], pa.duration("us")).append_column("key", pa.array([0])), uri)
    new = column([2**62], pa.duration("s")).append_column("key", pa.array([0]))
    with pytest.raises(lake.SchemaMismatchError, match="cannot store a value"):
        lake.open_dataset(uri).upsert(new, on="key")


@pytest.mark.parametrize(("wide", "narrow", "values", "expected"), TAKEN, ids=str)
def test_a_promoted_column_keeps_its_values_and_is_searched(
    uri: str, wide: pa.DataType, narrow: pa.DataType, values: list[Any], expected: list[Any] | None
) -> None:
    lake.write_dataset(column(values, narrow), uri)
    if pa.types.is_int64(narrow):
        with pytest.raises(lake.SchemaMismatchError):
            lake.write_dataset(column([None], wide), uri, schema_merge=True)
        return
    lake.write_dataset(column([None], wide), uri, schema_merge=True)
    assert lake.read_dataset(uri).schema.field("c").type == wide
    assert stored(uri) == [*map(repr, expected or values), "None"]
    everything = lake.read_dataset(uri)
    connection = duckdb.connect()
    # Its own table: DuckDB before 2.0 lets PyArrow filter others, which loses NaN.
    connection.execute("CREATE TABLE own AS FROM everything")
    for value in everything["c"].to_pylist()[:-1]:
        for op in ("=", "<=", ">", "!="):
            found = lake.read_dataset(uri, predicates=[("c", op, value)])
            own = connection.execute(f"SELECT c FROM own WHERE c {op} ?", [value])
            assert repr(found["c"].to_pylist()) == repr([row[0] for row in own.fetchall()])
    assert lake.open_dataset(uri).scan("c IS NULL").count_rows() == 1


REFUSED = [
    (pa.float64(), pa.int64(), [2**53 + 1], "int64 value 9007199254740993 does not fit"),
    (pa.float64(), pa.uint64(), [1, 2**63], "uint64 value 9223372036854775808 does not fit"),
    (pa.float32(), pa.int32(), [2**24 + 1], "int32 value 16777217 does not fit"),
    (pa.float32(), pa.float64(), [0.1], "has double"),
    (pa.int32(), pa.int64(), [1], "has int64"),
    (pa.decimal128(10, 2), pa.float32(), [0.5], "has float"),
    (pa.timestamp("ns"), pa.date32(), [LAST], "value 9999-12-31 does not fit"),
    (pa.timestamp("ns"), pa.timestamp("us"), [2**62], "does not fit"),
    (pa.timestamp("us"), pa.timestamp("ns"), [1001], r"has timestamp\[ns\]"),
    (pa.timestamp("us"), pa.date32(), [2**31 - 1], "count 2147483647 does not fit"),
]


@pytest.mark.parametrize(("wide", "narrow", "values", "message"), REFUSED, ids=str)
def test_values_that_would_change_are_refused_and_nothing_is_committed(
    uri: str, wide: pa.DataType, narrow: pa.DataType, values: list[Any], message: str
) -> None:
    lake.write_dataset(column([None], wide), uri)
    with pytest.raises(lake.SchemaMismatchError, match=f"'c'.*{message}"):
        lake.write_dataset(column(values, narrow), uri)
    assert lake.open_dataset(uri).version == 1


# --- promotions that are exact for some values only ---------------------------


def days(*counts: int | None) -> pa.Table:
    return pa.table({"c": pa.array(counts, pa.int32()).cast(pa.date32()), "v": [1] * len(counts)})


def moments(unit: str, *counts: int | None) -> pa.Table:
    return pa.table({"c": pa.array(counts, pa.timestamp(unit)), "v": [2] * len(counts)})


def counts(uri: str) -> list[int | None]:
    return lake.read_dataset(uri)["c"].cast(pa.int64()).to_pylist()


def test_dates_become_timestamps_where_all_of_them_have_one(uri: str) -> None:
    lake.write_dataset(days(-719_162, None, 2_932_896), uri)
    lake.write_dataset(moments("us", 7), uri, schema_merge=True)
    assert counts(uri) == [-62_135_596_800_000_000, None, 253_402_214_400_000_000, 7]
    with pytest.raises(lake.SchemaMismatchError, match="do not show that every value fits"):
        lake.write_dataset(moments("ns", 7), uri, schema_merge=True)
    assert lake.open_dataset(uri).version == 2


@pytest.mark.parametrize("far", [2**31 - 1, -(2**31)])
def test_a_date_that_no_timestamp_can_hold_made_the_newest_version_unreadable(
    uri: str, far: int
) -> None:
    lake.write_dataset(days(1, far), uri)
    with pytest.raises(lake.SchemaMismatchError, match="do not show that every value fits"):
        lake.write_dataset(moments("us", 7), uri, schema_merge=True)
    assert lake.read_dataset(uri).num_rows == 2
    # Milliseconds reach further than dates do.
    lake.write_dataset(moments("ms", 7), uri, schema_merge=True)
    assert sorted(counts(uri)) == sorted([86_400_000, far * 86_400_000, 7])


def test_partition_dates_become_timestamps_where_all_of_them_have_one(uri: str) -> None:
    lake.write_dataset(days(1, 2_932_896, None), uri, partition_by="c")
    with pytest.raises(lake.SchemaMismatchError, match="do not show that every value fits"):
        lake.write_dataset(moments("ns", 7), uri, schema_merge=True)
    lake.write_dataset(moments("us", 7), uri, schema_merge=True)
    found = lake.read_dataset(uri, predicates="c >= TIMESTAMP '1970-01-02' OR c IS NULL")
    assert set(found["c"].cast(pa.int64()).to_pylist()) == {
        86_400_000_000, 253_402_214_400_000_000, None
    }  # fmt: skip


class TestPartitionsOfPromotedColumns:
    """A date and its midnight are one partition, also of files that were written as dates."""

    @pytest.fixture
    def dataset(self, uri: str) -> lake.Dataset:
        days = pa.array([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1), None])
        lake.write_dataset(pa.table({"n": [1, 2, 3], "day": days}), uri, partition_by="day")
        dataset = lake.open_dataset(uri)
        dataset.promote_column("day", pa.timestamp("ms"))
        self.write(uri, 4)
        return dataset.refresh()

    def write(self, uri: str, number: int, **options: Any) -> None:
        noon = pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("ms"))
        lake.write_dataset(pa.table({"n": [number], "day": noon}), uri, **options)

    def test_a_dynamic_overwrite_replaces_both(self, dataset: lake.Dataset) -> None:
        self.write(dataset.uri, 9, mode="overwrite", partition_overwrite_mode="dynamic")
        assert sorted(lake.read_dataset(dataset.uri)["n"].to_pylist()) == [2, 3, 9]

    def test_a_compaction_brings_both_together(self, dataset: lake.Dataset) -> None:
        assert dataset.compact().files_removed == 2
        found = dataset.scan("day = TIMESTAMP_NTZ '2020-01-01'").to_table()
        assert sorted(found["n"].to_pylist()) == [1, 4]

    def test_the_partitions_are_counted_together(self, dataset: lake.Dataset) -> None:
        partitions = dataset.inspect.partitions().to_pylist()
        assert {one["partitions"][0][1]: one["rows"] for one in partitions} == {
            "2020-01-01T00:00:00": 2,
            "2021-01-01T00:00:00": 1,
            None: 1,
        }


def test_a_far_date_committed_by_another_writer_stops_a_promotion(uri: str) -> None:
    lake.write_dataset(days(1), uri)

    def rows() -> Any:
        lake.write_dataset(days(2**31 - 1), uri)  # after the promoting write began
        yield from moments("us", 7).to_batches()

    stream = pa.RecordBatchReader.from_batches(moments("us", 7).schema, rows())
    with pytest.raises(lake.PlakeError):
        lake.write_dataset(stream, uri, schema_merge=True)
    assert lake.read_dataset(uri).num_rows == 2
    assert lake.read_dataset(uri).schema.field("c").type == pa.date32()


def test_a_column_that_an_earlier_version_made_decimal_stays_readable(uri: str) -> None:
    """Version 0.1 promoted doubles to decimals; their files still hold doubles."""
    lake.write_dataset(column([1.25, -0.5, None], pa.float64()), uri)
    address = Address(uri, None)
    with address.open() as catalog, catalog.write() as tx:
        record = tx.lock_dataset(address.key)
        assert record is not None
        before = tx.schema_at(record.id, 1)[1]
        after = pa.schema([before.field("c").with_type(pa.decimal128(10, 2))])
        tx.insert_schema(record.id, 2, after)
        tx.invalidate_bounds(record.id, 1)
        counts = summary(tx, record, [], [])
        tx.insert_transaction(record.id, 2, "append", {}, counts, str(uuid.uuid4()))
    assert stored(uri) == ["Decimal('1.25')", "Decimal('-0.50')", "None"]
    lake.write_dataset(column([D("7.50")], pa.decimal128(10, 2)), uri)
    found = lake.read_dataset(uri, predicates="c > 1")
    assert found["c"].to_pylist() == [D("1.25"), D("7.50")]


# --- NOT NULL -----------------------------------------------------------------

FRAMES = {
    "pandas": lambda value: pa.table({"id": pa.array([value], pa.int64())}).to_pandas(
        types_mapper={pa.int64(): __import__("pandas").Int64Dtype()}.get
    ),
    "polars": lambda value: pl.DataFrame({"id": [value]}, schema={"id": pl.Int64}),
    "duckdb": lambda value: duckdb.sql(f"SELECT {value or 'NULL'}::BIGINT AS id"),
    "stream": lambda value: Stream(
        pa.table(
            {"id": pa.array([value], pa.int64())},
            schema=pa.schema([pa.field("id", pa.int64(), nullable=value is None)]),
        )
    ),
}


class Stream:
    """A frame of some other library that declares its columns NOT NULL."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("library", FRAMES)
def test_a_frame_without_nulls_made_columns_that_refused_null_for_ever(
    uri: str, library: str
) -> None:
    frame = FRAMES[library]
    lake.write_dataset(frame(5), uri)
    lake.write_dataset(frame(None), uri)
    assert lake.read_dataset(uri)["id"].to_pylist() == [5, None]
    assert lake.open_dataset(uri).schema.field("id").nullable


@pytest.mark.parametrize("library", FRAMES)
def test_not_null_of_an_arrow_schema_holds_for_frames_too(uri: str, library: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lake.write_dataset(pa.table({"id": [1]}, schema=schema), uri)
    frame = FRAMES[library]
    lake.write_dataset(frame(5), uri)
    told = "'id' is not nullable and the data has 1 NULL values, the first .* id = None"
    with pytest.raises(lake.SchemaMismatchError, match=told):
        lake.write_dataset(frame(None), uri)
    assert lake.open_dataset(uri).schema == schema
    assert lake.read_dataset(uri)["id"].to_pylist() == [1, 5]


def test_lists_of_polars_came_back_in_other_rows(uri: str) -> None:
    frame = pl.DataFrame({"l": [[1, 2], [3], None], "s": [{"a": [1]}, None, {"a": [2, 3]}]})
    lake.write_dataset(frame, uri)
    assert lake.read_dataset(uri).to_pylist() == pa.table(frame).to_pylist()
