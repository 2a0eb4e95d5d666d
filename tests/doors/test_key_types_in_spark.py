"""Keys that a MERGE in Python finds equal are those that Spark finds equal; MERGE in Spark too."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from tests.key_types import KEYS, compared, joined, matches, stored

pytestmark = pytest.mark.spark

TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "decimal128(4, 2)": "DECIMAL(4,2)",
    "decimal128(20, 6)": "DECIMAL(20,6)",
    "decimal128(38, 10)": "DECIMAL(38,10)",
    "string": "STRING",
    "text of numbers": "STRING",
    "text of moments": "STRING",
    "text of truth": "STRING",
    "binary": "BINARY",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP_NTZ",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
}


@pytest.mark.long
def test_a_merge_in_python_finds_the_keys_that_spark_finds(spark: SparkSession) -> None:
    """One query for every pair of types, and the analysis of each pair."""
    frame = spark.createDataFrame(
        pa.table(
            {
                name: pa.array([KEYS[name][1].to_pylist()], pa.list_(KEYS[name][1].type))
                for name in TYPES
            }
        )
    )
    frame.createOrReplaceTempView("keys")
    asked, columns = [], []
    for left, right in product(TYPES, TYPES):
        if compared(left, right) is False:
            with pytest.raises(AnalysisException, match="DATATYPE_MISMATCH"):
                spark.sql(f"SELECT CAST(NULL AS {TYPES[left]}) = CAST(NULL AS {TYPES[right]})")
        elif compared(left, right):
            for op in ("=", "<=>"):
                asked.append((left, right, op))
                inner = f"transform(`{right}`, y -> coalesce(x {op} y, false))"
                columns.append(f"transform(`{left}`, x -> {inner}) AS c{len(columns)}")
    answers = spark.sql(f"SELECT {', '.join(columns)} FROM keys").collect()[0]
    assert spark.sql(
        "SELECT x = CAST(0 AS DECIMAL(38, 0)) FROM VALUES (CAST(0.4 AS DECIMAL(38, 38))), "
        "(CAST(0.6 AS DECIMAL(38, 38))) AS v(x)"
    ).collect() == [(True,), (False,)]
    for (left, right, op), rows in zip(asked, answers):
        wanted = {(a, b) for a, row in enumerate(rows) for b, equal in enumerate(row) if equal}
        assert joined(stored(KEYS[left][1]), stored(KEYS[right][1]), op) == wanted, (left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("timestamp[us]", "timestamp[us, tz=UTC]"),
        ("date32[day]", "timestamp[us]"),
        ("timestamp[ms]", "timestamp[us]"),
        ("decimal128(4, 2)", "decimal128(20, 6)"),
        ("int64", "double"),
        ("uint8", "int64"),
    ],
)
def test_a_merge_in_spark_finds_keys_of_other_types(
    left: str, right: str, spark_catalog: SparkSession, tmp_path: Path
) -> None:
    spark, values = spark_catalog, KEYS[left][1]
    table = pa.table({"k": values, "row": range(len(values))})
    lake.write_dataset(table, tmp_path / "t", row_group_rows=1)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW target USING plake OPTIONS (path '{tmp_path}/t')")
    spark.createDataFrame(pa.table({"k": KEYS[right][1]})).createOrReplaceTempView("source")
    merge = "MERGE INTO target USING source ON target.k {} source.k WHEN MATCHED THEN DELETE"
    for number, op in enumerate(("=", "<=>")):
        spark.sql(merge.format(op))
        kept = lake.read_dataset(tmp_path / "t", columns=["row"])["row"].to_pylist()
        gone = set(range(len(values))) - set(kept)
        assert gone == {row for row, _ in matches(left, right)[number]}, op
        lake.open_dataset(tmp_path / "t").restore(1)
