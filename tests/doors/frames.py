"""What the tests of the Spark door share: frames from SQL literals, and how frames compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

# Reads a dataset by its URI, and with `version=` one of its versions.
Read: TypeAlias = Callable[..., DataFrame]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literals(spark: SparkSession, columns: Mapping[str, Sequence[str]]) -> DataFrame:
    """A frame of SQL literals per column; NULLs fill the shorter columns, and each ends in one."""
    height = max(len(values) for values in columns.values()) + 1
    padded = [[*values, *["NULL"] * (height - len(values))] for values in columns.values()]
    rows = ", ".join("(" + ", ".join(row) + ")" for row in zip(*padded))
    names = ", ".join(quoted(name) for name in columns)
    return spark.sql(f"SELECT * FROM VALUES {rows} AS t({names})")


def save(frame: DataFrame, path: Path | str, mode: str = "append", **options: Any) -> str:
    frame.write.format("plake").mode(mode).options(**options).save(str(path))
    return str(path)


def load(spark: SparkSession, path: Path | str, **options: Any) -> DataFrame:
    return spark.read.format("plake").options(**options).load(str(path))


def through_parquet(frame: DataFrame, path: Path | str) -> DataFrame:
    """The same rows as Spark itself writes and reads them."""
    frame.write.mode("overwrite").parquet(str(path))
    return frame.sparkSession.read.parquet(str(path))


def collected(frame: DataFrame) -> list[str]:
    """The rows in no order, with the names of their columns; compare them with `shown` ones."""
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def rows(frame: DataFrame) -> list[str]:
    """The rows in no order, told apart by type, sign of zero and NaN."""
    return sorted(repr(tuple(row)) for row in frame.collect())


def nullable(type_: DataType) -> Any:
    """The type with every nested value nullable, as Spark's Parquet reader gives it."""
    if isinstance(type_, StructType):
        return StructType(
            [StructField(f.name, nullable(f.dataType), True, f.metadata) for f in type_.fields]
        )
    if isinstance(type_, ArrayType):
        return ArrayType(nullable(type_.elementType), True)
    if isinstance(type_, MapType):
        return MapType(nullable(type_.keyType), nullable(type_.valueType), True)
    return type_


def data_files(path: Path | str) -> list[Path]:
    """Every file below a dataset's folder except the catalog's own."""
    return sorted(
        found
        for found in Path(path).rglob("*")
        if found.is_file() and "_plake" not in found.relative_to(path).parts
    )


def message_of(error: BaseException) -> str:
    """What a user reads at the end of a failed Spark call."""
    return str(error)
