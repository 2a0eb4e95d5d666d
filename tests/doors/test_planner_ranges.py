"""Conditions on functions of dates and times prune, and select what Spark selects by itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake

pytestmark = pytest.mark.spark

# Zones, and a day at which their clocks change: at midnight, by a day, by half an hour, never.
ZONES = {
    "UTC": dt.date(2024, 1, 1),
    "America/New_York": dt.date(2024, 11, 3),
    "America/Sao_Paulo": dt.date(2018, 11, 4),
    "America/Havana": dt.date(2024, 11, 3),
    "Pacific/Apia": dt.date(2011, 12, 31),
    "Australia/Lord_Howe": dt.date(2024, 4, 7),
    "-09:30": dt.date(2024, 9, 30),
}


def conditions(day: dt.date) -> list[str]:
    """Conditions with a border at, or near, a day."""
    d, t = f"DATE '{day}'", f"TIMESTAMP '{day} 00:00:00'"
    year = day.year
    functions = [
        ("year(ts)", year),
        ("cast(ts AS DATE)", d),
        ("date_trunc('month', ts)", f"date_trunc('month', {t})"),
        ("date_trunc('hour', ts)", f"TIMESTAMP '{day} 01:30:00'"),
        ("trunc(d, 'quarter')", d),
    ]
    operators = ("=", "<", "<=", ">", ">=")
    return [
        *(f"{f} {op} {v}" for i, (f, v) in enumerate(functions) for op in operators[i % 2 :: 2]),
        f"{t} <= date_trunc('DAY', ts)",
        f"to_date(ts) = {d}",
        f"year(tn) > {year}",
        f"cast(tn AS DATE) <= {d}",
        f"date_trunc('week', ts) = date_trunc('week', {t})",
        f"trunc(d, 'MM') = trunc({d}, 'MM')",
        f"year(ts) IN ({year - 1}, {year})",
        f"year(ts) IN ({', '.join(str(year - i) for i in range(12))})",
        f"NOT (cast(ts AS DATE) <= {d})",
        f"year(d) = {year} OR cast(ts AS DATE) = {d}",
        f"cast(d AS TIMESTAMP) > {t}",
        f"date_trunc('day', d) <= {t}",
        f"trunc(cast(tn AS DATE), 'year') = trunc({d}, 'year')",
        f"year(trunc(cast(ts AS DATE), 'month')) < {year}",
        f"cast(cast(ts AS TIMESTAMP_NTZ) AS DATE) >= {d}",
        f"cast(ts AS DATE) <=> {d}",
        f"year(st.ts) = {year} AND month(ts) = {day.month}",
        "year(ts) > 12000",
        "year(d) = NULL",
    ]


def instants() -> list[dt.datetime]:
    found = {dt.datetime(1, 1, 2), dt.datetime(1880, 6, 1), dt.datetime(9998, 12, 31, 23)}
    for day in ZONES.values():
        start = dt.datetime.combine(day, dt.time()) - dt.timedelta(days=2)
        found |= {start + dt.timedelta(minutes=30 * i) for i in range(5 * 48)}
    return sorted(found)


@pytest.fixture(scope="module")
def tables(
    spark_planner: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("ranges")
    times: list[Any] = [*instants(), None]
    ts = pa.array(times, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "d": pa.array([None if t is None else t.date() for t in times]),
            "ts": ts,
            "tn": pa.array(times, pa.timestamp("us")),
            "st": pa.StructArray.from_arrays([ts], ["ts"]),
        }
    )
    lake.write_dataset(table, folder / "plake", row_group_rows=25)
    parquet.write_table(table, folder / "native.parquet")
    spark = spark_planner
    spark.read.parquet(f"{folder}/native.parquet").createOrReplaceTempView("ranges_native")
    spark.read.format("plake").load(f"{folder}/plake").createOrReplaceTempView("ranges_plake")
    before = spark.conf.get("spark.sql.session.timeZone")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def counts(spark: SparkSession, table: str, texts: list[str]) -> list[tuple[str, int]]:
    """How many rows each condition selects, as a condition of a query of its own."""
    queries = [
        f"SELECT {i} AS i, count(*) AS n FROM {table} WHERE {c}" for i, c in enumerate(texts)
    ]
    rows = spark.sql(" UNION ALL ".join(queries)).collect()
    return [(texts[row["i"]], row["n"]) for row in sorted(rows)]


def truth(spark: SparkSession, texts: list[str]) -> list[tuple[str, int]]:
    """The same, computed row by row: nothing is a condition."""
    columns = ", ".join(f"count_if({c}) AS c{i}" for i, c in enumerate(texts))
    (row,) = spark.sql(f"SELECT {columns} FROM ranges_native").collect()
    return [(text, row[f"c{i}"]) for i, text in enumerate(texts)]


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES)
def test_ranges_select_what_the_functions_select(zone: str, tables: SparkSession) -> None:
    tables.conf.set("spark.sql.session.timeZone", zone)
    texts = conditions(ZONES[zone])
    expected = truth(tables, texts)
    assert len({count for _text, count in expected}) > 8
    assert counts(tables, "ranges_plake", texts) == expected


def test_the_zone_is_the_frame_s_not_the_session_s_of_later(tables: SparkSession) -> None:
    """Spark puts the zone into the expression when it analyses the query."""
    text = "SELECT ts FROM {} WHERE cast(ts AS DATE) = DATE '2024-09-30'"
    tables.conf.set("spark.sql.session.timeZone", "Pacific/Apia")
    frames = [tables.sql(text.format(name)) for name in ("ranges_plake", "ranges_native")]
    tables.conf.set("spark.sql.session.timeZone", "America/New_York")
    ours, native = (sorted(row["ts"] for row in frame.collect()) for frame in frames)
    assert ours == native
    assert len(ours) == 48
