"""The flights data through every pair of doors, on both catalogs: nothing is lost or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from integration.flights import ROWS, load
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load()


@pytest.fixture(scope="module")
def source(flights: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("source") / "flights.parquet"
    pq.write_table(flights, path)
    return str(path)


CATALOGS = ("sqlite", "postgres")


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest, catalog: str, tmp_path: Path) -> str:
    if catalog == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.fresh_database()


def truth(flights: pa.Table) -> dict[str, Any]:
    """Per column: the sum of numbers, the number of distinct values and of NULLs of the rest."""
    answer: dict[str, Any] = {"rows": flights.num_rows}
    for field in flights.schema:
        column = flights[field.name]
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            answer[field.name] = pc.sum(column).as_py()
        else:
            answer[field.name] = (pc.count_distinct(column).as_py(), column.null_count)
    return answer


def by_spark(frame: Any) -> dict[str, Any]:
    """The same figures, computed by Spark."""
    from pyspark.sql import functions as F

    wanted = [F.count(F.lit(1)).alias("rows")]
    for field in frame.schema.fields:
        name = field.name
        if field.dataType.typeName() in ("integer", "double"):
            wanted.append(F.sum(name).alias(name))
        else:
            nulls = F.count(F.when(F.col(name).isNull(), 1))
            # Several count_distinct in one query multiply the rows by their number.
            wanted.append(F.struct(F.size(F.collect_set(name)), nulls).alias(name))
    row = frame.agg(*wanted).first().asDict()
    return {key: tuple(value) if isinstance(value, tuple) else value for key, value in row.items()}


@pytest.mark.parametrize(
    ("reader", "catalog"),
    [
        ("spark", "sqlite"),
        ("spark_planner", "postgres"),
        pytest.param("spark", "postgres", marks=pytest.mark.long),
        pytest.param("spark_planner", "sqlite", marks=pytest.mark.long),
    ],
)
def test_spark_to_spark_and_to_python(
    request: pytest.FixtureRequest,
    spark: Any,
    reader: str,
    flights: pa.Table,
    source: str,
    catalog_url: str,
    tmp_path: Path,
) -> None:
    uri = str(tmp_path / "flights")
    frame = spark.read.parquet(source).repartition(3)
    writer = frame.write.format("plake").option("catalog", catalog_url)
    writer.option("partitionBy", "month").mode("append").save(uri)
    session = request.getfixturevalue(reader)
    back = session.read.format("plake").option("catalog", catalog_url).load(uri)
    expected = truth(flights)
    assert expected["rows"] == ROWS
    assert by_spark(back) == expected
    assert truth(lake.read_dataset(uri, catalog=catalog_url)) == expected


@pytest.mark.long
@pytest.mark.parametrize("catalog", CATALOGS)
def test_python_to_spark(
    spark_planner: Any, flights: pa.Table, catalog_url: str, tmp_path: Path
) -> None:
    uri = str(tmp_path / "flights")
    lake.write_dataset(flights, uri, catalog=catalog_url, partition_by="month")
    back = spark_planner.read.format("plake").option("catalog", catalog_url).load(uri)
    assert by_spark(back) == truth(flights)


@pytest.mark.parametrize("reader", ["spark", "spark_planner"])
def test_one_frame_serves_any_filters_in_any_order(
    request: pytest.FixtureRequest, reader: str, flights: pa.Table, tmp_path: Path
) -> None:
    """Stock Spark shares one read plan among the scans of a frame."""
    session = request.getfixturevalue(reader)
    uri = str(tmp_path / "flights")
    lake.write_dataset(flights, uri, partition_by="month")
    frame = session.read.format("plake").load(uri)
    per_month = {m: flights.filter(pc.field("month") == m).num_rows for m in (1, 5, 7)}
    assert frame.where("month = 1").count() == per_month[1]
    assert frame.count() == ROWS
    both = frame.where("month = 5").union(frame.where("month = 7"))
    assert both.count() == per_month[5] + per_month[7]
    assert frame.where("month = 1").count() == per_month[1]


@pytest.mark.long
@pytest.mark.parametrize("nullable", [True, False])
def test_counting_a_file_that_is_divided_counts_every_row_once(
    spark_planner: Any, nullable: bool, tmp_path: Path
) -> None:
    """Rows are counted without reading, whatever the number of Spark partitions."""
    schema = pa.schema([pa.field("n", pa.int64(), nullable), pa.field("t", pa.string(), nullable)])
    table = pa.table({"n": range(100_001), "t": ["x"] * 100_001}, schema=schema)
    uri = str(tmp_path / "counted")
    lake.write_dataset(table, uri, row_group_rows=9_999)
    frame = spark_planner.read.format("plake").option("splitSize", "10k").load(uri)
    assert frame.count() == 100_001
    assert frame.select("t").count() == 100_001
    assert frame.where("n < 50").count() == 50
    narrowed = spark_planner.read.format("plake").options(where="n >= 100").load(uri)
    assert narrowed.count() == 99_901
