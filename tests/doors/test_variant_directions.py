"""VARIANT in nine directions: who wrote it, and who reads it."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests.doors.frames import load
from tests.doors.test_variant_in_spark import SHREDDING

duckdb = pytest.importorskip("duckdb", "2.0", reason="DuckDB 1.5 shreds nothing by itself")

# By kind: the Python object, and how Spark and DuckDB write it.
KINDS: dict[str, tuple[Any, str, str]] = {
    "small": (7, "7", "7"),
    "large": (-(2**63) + 1, "-9223372036854775807L", "-9223372036854775807"),
    "double": (1.5, "1.5D", "1.5::DOUBLE"),
    "infinite": (float("-inf"), "double('-inf')", "'-inf'::DOUBLE"),
    "decimal": (Decimal("-1.25"), "-1.25BD", "-1.25::DECIMAL(9, 2)"),
    "digits": (Decimal(10**37) / 8, f"{10**37 // 8}BD", f"{10**37 // 8}::DECIMAL(38, 0)"),
    "text": ("é" * 70, "repeat('é', 70)", "repeat('é', 70)"),
    "empty": ("", "''", "''"),
    "yes": (True, "true", "true"),
    "day": (date(2020, 2, 29), "DATE'2020-02-29'", "DATE '2020-02-29'"),
    "wall": (
        datetime(1969, 12, 31, 23, 59, 59, 999999),
        "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'",
        "TIMESTAMP '1969-12-31 23:59:59.999999'",
    ),
    "instant": (
        datetime(2024, 2, 29, 1, 2, 3, tzinfo=timezone.utc),
        "TIMESTAMP'2024-02-29 01:02:03Z'",
        "TIMESTAMPTZ '2024-02-29 01:02:03+00'",
    ),
    "bytes": (b"\0\xff", "X'00FF'", "'\\x00\\xFF'::BLOB"),
    "nothing": (None, "parse_json('null')", "'null'::JSON"),
    "list": ([1, 2], "array(1, 2)", "[1, 2]"),
    "object": (
        {"b": [{"c": 1.5}], "a": "x"},
        "named_struct('b', array(named_struct('c', 1.5D)), 'a', 'x')",
        "{'b': [{'c': 1.5::DOUBLE}], 'a': 'x'}",
    ),
}
DOCUMENT = {kind: value for kind, (value, _, _) in KINDS.items()}
DOCUMENTS: list[Any] = [DOCUMENT, DOCUMENT, DOCUMENT, {"small": "7", "day": [1]}, {}, None]
# `v` has the documents, and `w` each kind by itself.
EXPECTED = [(one, None) for one in DOCUMENTS] + [(None, value) for value in DOCUMENT.values()]


def by_spark(spark: SparkSession, folder: Path, is_shredded: bool) -> None:
    fields = ", ".join(f"'{kind}', {text}" for kind, (_, text, _) in KINDS.items())
    documents = [f"to_variant_object(named_struct({fields}))"] * 3
    documents += ["to_variant_object(named_struct('small', '7', 'day', array(1)))"]
    documents += ["parse_json('{}')", "NULL"]
    made = [f"SELECT 's' AS by, {n} AS n, {v} AS v, NULL AS w" for n, v in enumerate(documents)]
    for n, (value, text, _) in enumerate(KINDS.values()):
        nested = isinstance(value, (list, dict))
        one = f"to_variant_object({text})" if nested else f"CAST({text} AS VARIANT)"
        made.append(f"SELECT 's', {len(documents) + n}, NULL, {one}")
    for key in SHREDDING:
        spark.conf.set(key, str(is_shredded).lower())
    try:
        spark.sql(" UNION ALL ".join(made)).coalesce(1).write.parquet(str(folder))
    finally:
        for key in SHREDDING:
            spark.conf.unset(key)


def by_duckdb(_spark: SparkSession, folder: Path, is_shredded: bool) -> None:
    document = ", ".join(f"'{kind}': {text}" for kind, (_, _, text) in KINDS.items())
    documents = [f"{{{document}}}"] * 3 + ["{'small': '7', 'day': [1]}", "'{}'::JSON", "NULL"]
    values = [(one, "NULL") for one in documents] + [("NULL", one[2]) for one in KINDS.values()]
    made = [
        f"SELECT 'd' AS by, {n} AS n, ({v})::VARIANT AS v, ({w})::VARIANT AS w"
        for n, (v, w) in enumerate(values)
    ]
    shredding = "" if is_shredded else ", SHREDDING {v: 'VARIANT', w: 'VARIANT'}"
    folder.mkdir()
    query = f"COPY ({' UNION ALL '.join(made)}) TO '{folder}/x.parquet' (FORMAT parquet{shredding})"
    duckdb.connect().execute(query)


def by_plake(_spark: SparkSession, folder: Path, is_shredded: bool) -> None:
    v, w = map(list, zip(*EXPECTED))
    w[len(DOCUMENTS) + [*KINDS].index("nothing")] = lake.variant(["null"], json=True)[0]
    paths = [f"v:{kind}" for kind in KINDS if kind != "nothing"] if is_shredded else []
    rows = {"by": ["p"] * len(v), "n": pa.array(range(len(v)), pa.int32())}
    values = {"v": lake.variant(v), "w": lake.variant(w)}
    lake.write_dataset({**rows, **values}, folder, variant_paths=paths)


def in_spark(spark: SparkSession, paths: list[str], _dataset: Path) -> list[Any]:
    return [*map(tuple, spark.read.parquet(*paths).collect())]


def in_duckdb(_spark: SparkSession, paths: list[str], _dataset: Path) -> list[Any]:
    return [*duckdb.sql(f"SELECT * FROM read_parquet({paths})").fetchall()]


def in_plake(_spark: SparkSession, _paths: list[str], dataset: Path) -> list[Any]:
    return [tuple(row.values()) for row in lake.read_dataset(dataset).to_pylist()]


def in_plakes_spark(spark: SparkSession, _paths: list[str], dataset: Path) -> list[Any]:
    return [*map(tuple, load(spark, dataset).collect())]


def in_plakes_duckdb(_spark: SparkSession, _paths: list[str], dataset: Path) -> list[Any]:
    return [*lake.open_dataset(dataset).scan().to_duckdb(duckdb.connect()).fetchall()]


def plain(value: Any) -> Any:
    """The value with its type, in one form for all readers."""
    if hasattr(value, "toPython"):
        value = value.toPython()
    if isinstance(value, dict):
        return sorted((key, plain(one)) for key, one in value.items())
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(timezone.utc)
    if isinstance(value, Decimal):
        value = value.normalize()
    return type(value).__name__, str(value)


@pytest.mark.parametrize("is_shredded", [True, pytest.param(False, marks=pytest.mark.long)])
def test_whoever_wrote_a_value_everyone_reads_the_same(
    spark: SparkSession, spark_auto: SparkSession, tmp_path: Path, is_shredded: bool
) -> None:
    paths = []
    for write in (by_spark, by_duckdb, by_plake):
        write(spark, tmp_path / write.__name__, is_shredded)
        paths += map(str, (tmp_path / write.__name__).glob("*.parquet"))
        assert ("typed_value" in str(pq.ParquetFile(paths[-1]).schema)) == is_shredded
    dataset = tmp_path / "by_plake"
    lake.open_dataset(dataset).add_files(paths[:2], copy=True)
    wanted = [(by, n, plain(v), plain(w)) for by in "dps" for n, (v, w) in enumerate(EXPECTED)]
    readers: tuple[Any, ...] = (in_spark, in_duckdb, in_plake, in_plakes_spark, in_plakes_duckdb)
    for read in readers:
        session = spark_auto if read is in_plakes_spark else spark
        found = sorted(read(session, paths, dataset), key=lambda row: row[:2])
        assert [(by, n, plain(v), plain(w)) for by, n, v, w in found] == wanted, read.__name__
