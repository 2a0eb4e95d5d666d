"""The queries of TPC-H over small tables, by both readers. The oracle is DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakehouse_source as lake
from integration.tpch import differences, of_duckdb, of_spark, queries
from tests.tpch_rows import tpch_tables

pytestmark = pytest.mark.spark

QUERIES = queries()
# A correlated subquery, an outer join, IN over groups, NOT EXISTS, and one join of six tables.
SAMPLE = (2, 13, 18, 21, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as Parquet, and as datasets in which rows were deleted and a column renamed."""
    made = tmp_path_factory.mktemp("tpch")
    for name, table in tpch_tables().items():
        pq.write_table(table, made / f"{name}.parquet")
        uri = made / name
        key = table.column_names[0]
        other = pa.concat_tables([table, table.slice(0, 20)]).rename_columns(
            ["key", *table.column_names[1:]]
        )
        keys = [*table[key].to_pylist(), *range(-20, 0)][: len(other)]
        other = other.set_column(0, "key", pa.array(keys, table[key].type))
        lake.write_dataset(other, uri, row_group_rows=700)
        dataset = lake.open_dataset(uri)
        dataset.set_properties(rewrite_threshold=1.0)
        dataset.refresh().rename_column("key", key)
        dataset.refresh().delete(f"{key} < 0")
    return made


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Callable[[str], list[Any]]:
    return of_duckdb({path.stem: path for path in folder.glob("*.parquet")})


@pytest.fixture(scope="module", params=["spark_reader", "spark_planner"])
def ask(request: pytest.FixtureRequest, folder: Path) -> Callable[[str], Any]:
    session: SparkSession = request.getfixturevalue(request.param)
    datasets = {path.stem: path.with_suffix("") for path in folder.glob("*.parquet")}
    return of_spark(session, datasets, native=False)


def test_there_are_all_queries() -> None:
    assert list(QUERIES) == list(range(1, 23))


@pytest.mark.parametrize(
    "number",
    [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.long) for n in QUERIES],
)
@pytest.mark.cases(4)
def test_a_query_gives_what_duckdb_gives(
    number: int, ask: Callable[[str], Any], oracle: Callable[[str], list[Any]]
) -> None:
    expected = oracle(QUERIES[number])
    assert expected
    assert differences(ask(QUERIES[number]), expected) == []
