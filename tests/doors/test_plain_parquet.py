"""Data files are plain Parquet: other engines' own readers give the rows that PyArrow gives.

Each file is read by itself, without the catalog. What an engine cannot read or cuts is listed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests import strategies
from tests.versions import bloom_filters

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3)]

T = pa.types
ROWS = 24
# Moments that every engine's calendar holds.
FIRST, LAST = -62_135_596_800, 253_402_300_799  # seconds of the years 1 and 9999


def values(type_: pa.DataType) -> list[Any]:
    """Awkward values of a type, and NULL."""
    found = strategies.pool(type_)
    if T.is_timestamp(type_):
        per_second = strategies.NS["s"] // strategies.NS[type_.unit]
        found = [v for v in found if FIRST * per_second <= v <= LAST * per_second]
        if type_.unit == "ns":
            found = [v for v in found if abs(v) < 2**63 - 1]
    elif T.is_date(type_):
        found = [v for v in found if FIRST <= v * 86_400 <= LAST]
    elif T.is_duration(type_):
        found = [v for v in found if abs(v) < 2**62]
    return [None, *found]


def column(type_: pa.DataType) -> pa.Array:
    pool = values(type_)
    return pa.array([pool[i % len(pool)] for i in range(ROWS)], type_)


def every_type() -> pa.Table:
    types = dict.fromkeys(type_ for type_ in strategies.TYPES if not T.is_null(type_))
    columns = {f"{number} {type_}": column(type_) for number, type_ in enumerate(types)}
    return pa.table({"row": pa.array(range(ROWS), pa.int32()), **columns})


def nested() -> pa.Table:
    struct = [{"p": i, "q": [i, None], "r": {"s": f"text {i}"}} for i in range(ROWS)]
    return pa.table(
        {
            "row": pa.array(range(ROWS), pa.int32()),
            "struct": [None if i % 5 == 0 else one for i, one in enumerate(struct)],
            "list": [None if i % 4 == 0 else [None, *range(i % 3)] for i in range(ROWS)],
            "lists": [[[i], None, []] for i in range(ROWS)],
            "structs": [[one, None][: i % 3] for i, one in enumerate(struct)],
            "map": pa.array(
                [None if i % 3 == 0 else [("a", i), ("b", None)] for i in range(ROWS)],
                pa.map_(pa.string(), pa.int64()),
            ),
            "deep": pa.array(
                [[("k", [{"x": float(i)}, None])] for i in range(ROWS)],
                pa.map_(pa.string(), pa.list_(pa.struct({"x": pa.float64()}))),
            ),
        }
    )


def many_rows() -> pa.Table:
    """Whole numbers as differences, dictionaries, and plain values."""
    rows = 5_000
    return pa.table(
        {
            "row": pa.array(range(rows), pa.int32()),
            "few": [f"text {i % 7}" for i in range(rows)],
            "many": [f"text {i * 7919 % rows}" for i in range(rows)],
            "key": [i * 7919 % rows for i in range(rows)],
            "x": [i / 7 if i % 11 else None for i in range(rows)],
        }
    )


LAYOUTS: dict[str, tuple[Callable[[], pa.Table], dict[str, Any]]] = {
    "every type": (every_type, {}),
    "every type, small row groups": (every_type, {"row_group_rows": 5}),
    "every type, partitioned": (every_type, {"partition_by": "0 bool"}),
    "nested": (nested, {"row_group_rows": 7}),
    "many rows, sorted": (many_rows, {"sort_by": ["few", "key"], "row_group_rows": 1_000}),
    "many rows, partitioned": (many_rows, {"partition_by": ["few"], "sort_by": ["key"]}),
    **{
        f"many rows, {codec}": (many_rows, {"compression": codec, "row_group_rows": 2_000})
        for codec in ("none", "snappy", "gzip", "lz4")
    },
    "bloom filters": (
        every_type,
        {**bloom_filters("row", "4 int64", "14 string"), "row_group_rows": 10},
    ),
}


def duckdb_lacks(type_: pa.DataType) -> bool:
    """Wide decimals come as floats, and before DuckDB 1.3 half floats as bytes."""
    old = duckdb.__version__ < "1.3"
    return bool(T.is_decimal256(type_) or (old and T.is_float16(type_)))


def polars_lacks(type_: pa.DataType) -> bool:
    return bool(T.is_decimal256(type_))


def spark_lacks(type_: pa.DataType) -> bool:
    """Types that Spark's own reader refuses; format `plake` reads half floats and nanoseconds."""
    nanoseconds = T.is_timestamp(type_) and type_.unit == "ns"
    return bool(nanoseconds or T.is_float16(type_) or T.is_time(type_) or T.is_decimal256(type_))


def write(layout: str, uri: Path, lacks: Callable[[pa.DataType], bool]) -> list[Path]:
    make, options = LAYOUTS[layout]
    table = make()
    table = table.select([field.name for field in table.schema if not lacks(field.type)])
    written = lake.write_dataset(table, uri, **options)
    return [uri / file.path for file in written.metadata]


def compare(found: pa.Table, path: Path) -> None:
    """Each column has the values that PyArrow reads."""
    expected = pq.read_table(path, partitioning=None)
    assert found.column_names == expected.column_names
    for field in expected.schema:
        mine, theirs = found.column(field.name), expected.column(field.name)
        if field.type == pa.timestamp("ns", "UTC") and mine.type.unit == "us":  # DuckDB 1
            theirs = theirs.cast(pa.timestamp("us", "UTC"), safe=False)
        if field.type != mine.type and not T.is_nested(field.type):
            mine = mine.cast(theirs.type)
        assert _text(mine.to_pylist()) == _text(theirs.to_pylist()), field


def _text(values: list[Any]) -> str:
    """The values as text; Polars has no maps and makes lists of structs of them."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, tuple):
            return {"key": plain(value[0]), "value": plain(value[1])}
        return value

    return repr(plain(values))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_duckdb_reads_the_same_rows(layout: str, tmp_path: Path) -> None:
    for path in write(layout, tmp_path, duckdb_lacks):
        with duckdb.connect() as connection:
            rows = f"SELECT * FROM read_parquet('{path}', hive_partitioning = false)"
            compare(connection.sql(rows).to_arrow_table(), path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_polars_reads_the_same_rows(layout: str, tmp_path: Path) -> None:
    for path in write(layout, tmp_path, polars_lacks):
        compare(pl.read_parquet(path, hive_partitioning=False).to_arrow(), path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_datafusion_reads_the_same_rows(layout: str, tmp_path: Path) -> None:
    for path in write(layout, tmp_path, lambda _type: False):
        compare(datafusion.SessionContext().read_parquet(str(path)).to_arrow_table(), path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_spark_reads_the_same_rows(spark: SparkSession, layout: str, tmp_path: Path) -> None:
    for path in write(layout, tmp_path, spark_lacks):
        compare(spark.read.parquet(str(path)).toArrow(), path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_field_has_an_id_of_its_own_in_the_file(layout: str, tmp_path: Path) -> None:
    fields = (
        "SELECT field_id FROM (FROM parquet_schema(?) OFFSET 1) WHERE repetition_type <> 'REPEATED'"
    )
    for path in write(layout, tmp_path, lambda _type: False):
        with duckdb.connect() as connection:
            found = [id_ for (id_,) in connection.execute(fields, [str(path)]).fetchall()]
        assert None not in found
        assert len(set(found)) == len(found) >= len(pq.read_schema(path))
        if layout == "nested":
            assert found == list(range(1, 28))


def test_the_layouts_have_what_their_names_say(tmp_path: Path) -> None:
    """So that the tests above read such files."""
    files = {
        layout: pq.read_metadata(write(layout, tmp_path / layout, lambda _type: False)[0])
        for layout in LAYOUTS
    }
    for layout, footer in files.items():
        chunk = footer.row_group(0).column(0)
        assert chunk.has_offset_index, layout
        if hasattr(chunk, "bloom_filter_offset"):  # PyArrow 24 writes them, and does not tell
            assert (chunk.bloom_filter_offset is not None) == (layout == "bloom filters"), layout
        assert bool(footer.row_group(0).sorting_columns) == ("sort_by" in LAYOUTS[layout][1])
    assert files["every type, small row groups"].num_row_groups == 5
    codecs = {
        layout.split()[-1]: footer.row_group(0).column(0).compression
        for layout, footer in files.items()
        if "compression" in LAYOUTS[layout][1]
    }
    assert codecs == {"none": "UNCOMPRESSED", "snappy": "SNAPPY", "gzip": "GZIP", "lz4": "LZ4"}
