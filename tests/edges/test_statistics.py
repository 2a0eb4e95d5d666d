"""Statistics of files as writers of the world leave them: each test is named by what went wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.footer import file_metadata, ordinal
from lakehouse_source.pruning.bounds import decode_row_group
from lakehouse_source.schema.merge import initial
from tests.edges.parquet_edit import Node, chunk, edited, file_of

SUITE = Path(__file__).parents[3] / "shared" / "testdata" / "parquet-testing" / "data"
needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="the public test files are not here")
NAN = float("nan")


def written(tmp_path: Path, values: list[Any], type_: pa.DataType, **options: Any) -> str:
    path = str(tmp_path / "one.parquet")
    pq.write_table(pa.table({"c": pa.array(values, type_)}), path, **options)
    return path


def kept(path: str, condition: Any) -> bool:
    return bool(lake.prune_file(path, condition).row_groups)


# --- numbers ---


def test_unsigned_values_beyond_the_sign_bit(tmp_path: Path) -> None:
    for type_, big in ((pa.uint32(), 2**32 - 1), (pa.uint64(), 2**64 - 1), (pa.uint8(), 255)):
        path = written(tmp_path, [3, big], type_)
        assert kept(path, f"c = {big}")
        assert kept(path, f"c > {big - 1}")
        assert not kept(path, "c < 3")
        path = written(tmp_path, [big - 1, big], type_)
        assert kept(path, f"c = {big}")
        assert not kept(path, "c < 5")


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("precision", [4, 9, 18, 38])
def test_decimals_of_both_signs_in_every_storage(
    tmp_path: Path, precision: int, integers: bool
) -> None:
    values = [Decimal("-1.50"), Decimal("0.00"), Decimal("2.50")]
    type_ = pa.decimal128(precision, 2)
    path = written(tmp_path, values, type_, store_decimal_as_integer=integers)
    for value in values:
        assert kept(path, [("c", "=", value)])
    assert not kept(path, "c < -1.50")
    assert not kept(path, "c > 2.50")
    assert kept(path, "c < -1.49")
    assert ordinal(b"\xff\x6a", "BYTE_ARRAY", type_) == -150
    assert ordinal(b"\x00\xfa", "FIXED_LEN_BYTE_ARRAY", type_) == 250


def test_bounds_of_bytes_by_an_old_parquet_mr_are_not_believed(tmp_path: Path) -> None:
    """PARQUET-251: they were wrong. From version 1.10 on they are right."""
    values = pa.table({"c": pa.array([Decimal(n) for n in range(1, 9)], pa.decimal128(20, 2))})
    data = file_of(values)
    for version, known in (("1.8.1", False), ("1.9.0", False), ("1.10.0", True)):

        def change(footer: Node, version: str = version) -> None:
            footer[6] = f"parquet-mr version {version} (build abc)".encode()
            chunk(footer)[3][12][6] = (500).to_bytes(9, "big")  # a minimum of 5.00

        path = tmp_path / f"{version}.parquet"
        path.write_bytes(edited(data, change))
        assert kept(str(path), "c = 1") is not known
        assert kept(str(path), "c = 6")


@needs_suite
@pytest.mark.parametrize(
    "name", ["int32_decimal", "int64_decimal", "fixed_length_decimal", "byte_array_decimal"]
)
def test_decimals_of_other_writers(name: str) -> None:
    path = str(SUITE / f"{name}.parquet")
    for value in range(1, 25):
        assert kept(path, f"value = {value}")
    # No statistics, or ones that leave 1 out.
    unknown = name in ("byte_array_decimal", "fixed_length_decimal")
    assert kept(path, "value > 24") is unknown


# --- NaN ---


def test_a_nan_bound_is_no_value() -> None:
    assert ordinal(NAN, "DOUBLE", pa.float64()) is None
    assert ordinal(NAN, "FLOAT", pa.float32()) is None
    assert ordinal(b"\x00\x7e", "FIXED_LEN_BYTE_ARRAY", pa.float16()) is None


def test_a_file_whose_writer_left_nan_as_a_bound_loses_no_row(tmp_path: Path) -> None:
    data = file_of(pa.table({"c": [1.0, NAN, 3.0]}))
    for bounds in ((NAN, 3.0), (1.0, NAN), (NAN, NAN), (3.0, 1.0)):

        def change(footer: Node, bounds: tuple[float, float] = bounds) -> None:
            statistics = chunk(footer)[3][12]
            statistics[6], statistics[5] = (struct.pack("<d", bound) for bound in bounds)

        path = tmp_path / "nan.parquet"
        path.write_bytes(edited(data, change))
        for condition in ("c = 1D", "c = 3D", "c > 100D", "c = CAST('nan' AS DOUBLE)", "c <> 1D"):
            assert kept(str(path), condition), (bounds, condition)


@needs_suite
@pytest.mark.parametrize(
    "name",
    ["nan_in_stats", "single_nan", "float16_nonzeros_and_nans", "floating_orders_nan_count"],
)
def test_files_with_nan_of_other_writers_lose_no_row(name: str) -> None:
    table = pq.read_table(SUITE / f"{name}.parquet")
    for column in table.column_names:
        if not pa.types.is_floating(table.schema.field(column).type):
            continue
        values = [v for v in table[column].to_pylist() if v is not None]
        matches: dict[str, Callable[[float], bool]] = {
            f"`{column}` = CAST('nan' AS DOUBLE)": lambda v: v != v,
            f"`{column}` > 100000D": lambda v: v != v or v > 100000,
            f"NOT (`{column}` < 5D)": lambda v: v != v or v >= 5,
            f"`{column}` <> 1D": lambda v: v != 1,
            f"`{column}` = 0D": lambda v: v == 0,
        }
        for condition, matching in matches.items():
            if any(map(matching, values)):
                assert kept(str(SUITE / f"{name}.parquet"), condition), condition


@pytest.mark.parametrize("known", [True, False])
def test_where_nobody_looked_for_nan_there_may_be_one(tmp_path: Path, known: bool) -> None:
    path = written(tmp_path, [1.0, 2.0], pa.float64())
    schema = initial(pa.schema([("c", pa.float64())]))
    footer = pq.read_metadata(path)
    described = file_metadata(
        footer,
        path="one.parquet",
        file_size_bytes=1,
        schema=schema,
        partitions={},
        nan_columns=[frozenset() if known else None],
    )
    bounds = decode_row_group(described.row_groups[0], 1, pa.float64(), pa.float64())
    assert bounds.may_contain_nan is not known


# --- text ---


def test_legacy_statistics_of_text_are_ignored(tmp_path: Path) -> None:
    """Old writers compared bytes with a sign: `aé` came out below `az`, and bounds were wrong."""
    path = written(tmp_path, ["aé", "az", "b"], pa.string(), compression="none")
    data = Path(path).read_bytes()
    low, high = b"az", b"b"
    # null count, max_value, min_value (fields 3, 5, 6) and what follows from field 7 on.
    modern = (
        b"\x36\x00\x28" + bytes([len(high)]) + high + b"\x18" + bytes([len(low)]) + low + b"\x11"
    )
    # The same as max, min (fields 1, 2), null count; the minimum is the one of signed bytes.
    wrong = "aé".encode()
    legacy = b"\x18\x02az\x18" + bytes([len(wrong)]) + wrong + b"\x16\x00\x41"
    at = data.rindex(modern)  # the footer comes last
    growth = len(legacy) - len(modern)
    data = data[:at] + legacy + data[at + len(modern) :]
    length = int.from_bytes(data[-8:-4], "little") + growth
    Path(path).write_bytes(data[:-8] + length.to_bytes(4, "little") + b"PAR1")
    assert pq.read_table(path)["c"].to_pylist() == ["aé", "az", "b"]
    for value in ("aé", "az", "b"):
        assert kept(path, [("c", "=", value)])
    assert kept(path, "c > 'b'")  # nothing is known, so nothing is pruned


AROUND_THE_CUT = [
    "x" * 31, "x" * 32, "x" * 33, "x" * 31 + "é", "x" * 63, "x" * 64, "x" * 65, "x" * 64 + "y",
    "x" * 5000, "x" * 63 + "\ud7ff" + "y", "x" * 63 + "\U0010ffff" + "y", "\U0010ffff" * 70,
    "\uffee", "\U0001f600", "",
]  # fmt: skip


def test_text_around_the_cut_of_bounds_is_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "texts")
    for value in AROUND_THE_CUT:
        lake.write_dataset(pa.table({"c": [value]}), uri)
    dataset = lake.open_dataset(uri)
    compare: dict[str, Callable[[bytes, bytes], bool]] = {
        "=": lambda a, b: a == b,
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        "starts with": lambda a, b: a.startswith(b),
    }
    for literal in [*AROUND_THE_CUT[5:12], AROUND_THE_CUT[1]]:
        for op, holds in compare.items():
            expected = sorted(v for v in AROUND_THE_CUT if holds(v.encode(), literal.encode()))
            found = dataset.scan([("c", op, literal)]).to_table()["c"].to_pylist()
            assert sorted(found) == expected


def test_binary_around_the_cut_of_bounds_is_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "bytes")
    values = [b"\xff" * n for n in (1, 31, 32, 33, 64, 65, 70)] + [
        b"a" * 40 + b"\xff",
        b"\x80",
        b"",
    ]
    for value in values:
        lake.write_dataset(pa.table({"c": pa.array([value], pa.binary())}), uri)
    dataset = lake.open_dataset(uri)
    for literal in values:
        found = dataset.scan([("c", ">=", literal)]).to_table()["c"].to_pylist()
        assert sorted(found) == sorted(value for value in values if value >= literal)


def test_bounds_that_were_cut_are_no_values(tmp_path: Path) -> None:
    """The lower bound is cut, the upper one cut and raised, as the format allows."""
    texts = ["mmmmmm", "mmmnnn"]
    data = file_of(pa.table({"c": texts}))

    def change(footer: Node) -> None:
        statistics = chunk(footer)[3][12]
        statistics[6], statistics[5] = b"mmm", b"mmn"

    path = tmp_path / "cut.parquet"
    path.write_bytes(edited(data, change))
    for text in texts:
        for op in ("=", ">=", "<="):
            assert kept(str(path), [("c", op, text)])
    assert not kept(str(path), "c > 'mmn'")
    assert not kept(str(path), "c < 'mmm'")


def test_a_null_count_that_cannot_be_is_unknown(tmp_path: Path) -> None:
    for count in (-1, 4, 2**40):

        def change(footer: Node, count: int = count) -> None:
            chunk(footer)[3][12][3] = count

        path = tmp_path / "nulls.parquet"
        path.write_bytes(edited(file_of(pa.table({"c": [1, None, 3]})), change))
        assert kept(str(path), "c IS NULL")
        assert kept(str(path), "c IS NOT NULL")


@needs_suite
def test_bounds_that_their_writer_cut_are_no_values() -> None:
    path = SUITE / "binary_truncated_min_max.parquet"
    table = pq.read_table(path)
    for name in table.column_names:
        values = table[name].to_pylist()
        for value in values[:5]:
            assert kept(str(path), [(name, "=", value)])
            assert kept(str(path), [(name, ">=", max(values))])


# --- time ---


def test_int96_timestamps_are_never_pruned_by(tmp_path: Path) -> None:
    moments = [datetime(2020, 1, 1), datetime(1850, 1, 1)]
    path = written(tmp_path, moments, pa.timestamp("ns"), use_deprecated_int96_timestamps=True)
    assert pq.read_metadata(path).row_group(0).column(0).physical_type == "INT96"
    for condition in ("c = '2020-01-01 00:00:00'", "c > '2200-01-01 00:00:00'"):
        assert kept(path, condition)
    assert ordinal(5, "INT96", pa.timestamp("ns")) is None


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("year", [1850, 1969, 2020])
def test_timestamps_below_the_millisecond_are_found(
    tmp_path: Path, year: int, zone: str | None
) -> None:
    uri = str(tmp_path / "moments")
    noon = datetime(year, 6, 1, 12)
    moments = [noon + timedelta(microseconds=n) for n in (0, 1, 499, 999)]
    for moment in moments:
        lake.write_dataset(pa.table({"c": pa.array([moment], pa.timestamp("us", zone))}), uri)
    dataset = lake.open_dataset(uri)
    for moment in moments:
        for op, count in (("=", 1), (">=", sum(m >= moment for m in moments))):
            assert dataset.scan([("c", op, moment)]).count_rows() == count


# --- columns ---


def test_a_column_that_an_old_file_lacks_is_null_there(tmp_path: Path) -> None:
    uri = str(tmp_path / "grown")
    lake.write_dataset(pa.table({"a": [1, 2]}), uri)
    lake.write_dataset(pa.table({"a": [3], "b": [0]}), uri, schema_merge=True)
    dataset = lake.open_dataset(uri)
    for condition, ids in [
        ("b = 0", [3]),
        ("b IS NULL", [1, 2]),
        ("b IS NOT NULL", [3]),
        ("NOT (b = 1)", [3]),
        ("b <=> NULL OR b > 5", [1, 2]),
    ]:
        assert sorted(dataset.scan(condition).to_table()["a"].to_pylist()) == ids
        assert dataset.scan(condition).count_rows() == len(ids)


def test_rows_for_which_a_condition_is_null_are_not_deleted(tmp_path: Path) -> None:
    uri = str(tmp_path / "kept")
    table = pa.table({"x": [1, None, 3], "f": [1.0, NAN, None]})
    for condition, left in [("x = 1", 2), ("x != 1", 2), ("f > 0.5", 1), ("f NOT IN (1.0)", 2)]:
        lake.write_dataset(table, uri, mode="overwrite")
        nothing = table.slice(0, 0)
        lake.write_dataset(nothing, uri, mode="overwrite", overwrite_where=condition)
        assert lake.read_dataset(uri).num_rows == left, condition


def test_nulls_of_list_elements_are_no_nulls_of_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "lists")
    lists = pa.array([[None, None], [], None, [1]], pa.list_(pa.int32()))
    structs = pa.array([{"v": None}, None, {"v": 1}, {"v": None}], pa.struct([("v", pa.int32())]))
    lake.write_dataset(pa.table({"id": range(4), "l": lists, "st": structs}), uri, row_group_rows=1)
    dataset = lake.open_dataset(uri)
    for condition, ids in [
        ("l IS NULL", [2]),
        ("l IS NOT NULL", [0, 1, 3]),
        ("st IS NULL", [1]),
        ("st IS NOT NULL", [0, 2, 3]),
        ("st.v IS NULL", [0, 1, 3]),
    ]:
        assert dataset.scan(condition).to_table()["id"].to_pylist() == ids


def test_a_file_whose_names_differ_by_case_only(tmp_path: Path) -> None:
    path = str(tmp_path / "twins.parquet")
    pq.write_table(pa.table({"col": [1], "COL": [2]}), path)
    assert kept(path, "col = 1")
    assert kept(path, "COL = 2")
    assert not kept(path, "col = 2")
    with pytest.raises(lake.InvalidPredicateError, match="may mean"):
        lake.prune_file(path, "Col = 1")
