"""Expressions mean what Spark means: values, result types and errors, over awkward rows.

Where a row has no result here, Spark is not asked for its value in the same job, which it
would stop; some of these rows are asked for alone, and Spark must raise an error too.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampNTZType

import lakehouse_source as lake
from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import Expression, PredicateSet, Scope
from lakehouse_source.language.row_filter import matching_mask
from lakehouse_source.language.types import spark_name
from tests.doors.test_types import setting
from tests.expression_cases import ROWS, drawn, table, written
from tests.implied_conditions import Conditions

# Expressions in one Spark job: with more its generated code grows too large to be compiled.
AT_ONCE = 25
ZONES = ("UTC", "America/New_York")
# Rules by which Spark computes constants that no row asks for, and has other text for
# `upper(CASE WHEN TRUE THEN lower(s) END)` than it computes without them.
SIMPLIFYING = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in (
        "ConstantFolding",
        "NullPropagation",
        "BooleanSimplification",
        "SimplifyConditionals",
        "SimplifyCaseConversionExpressions",
    )
)
# Spark computes a part that stands in a text twice, as that of BETWEEN does, once and on every
# row. So it fails on rows that do not ask for the part, and have a value. With these settings it
# computes it where a row asks for it.
LAZY = {
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.alwaysInlineCommonExpr": "true",
}
EXCLUDED = "spark.sql.optimizer.excludedRules"
# Errors that say that plake gives up, not that there is no result.
REFUSALS = ("not supported", "print it differently", "Spark rounds it", "another upper case")


@dataclass(frozen=True)
class Answer:
    """What plake says: a type, values as `comparable` makes them, rows without a result."""

    text: str
    type: pa.DataType
    values: list[Any]
    failed: dict[int, str]


def comparable(values: pa.ChunkedArray) -> list[Any]:
    type_ = values.type
    if pa.types.is_date32(type_):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(type_):
        values = values.cast(pa.int64())
    return [_bits(value) for value in values.to_pylist()]


def _bits(value: Any) -> Any:
    """Floats by their bits: -0.0 is not 0.0, and NaN is NaN."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: _bits(inner) for name, inner in value.items()}
    return [_bits(inner) for inner in value] if isinstance(value, list) else value


def answer(text: str, rows: pa.Table, zone: str) -> Answer | None:
    """None: plake refuses the expression as a whole."""
    try:
        bound = Expression.parse(text).bind(Scope({"v": rows.schema}, timezone=zone))
    except InvalidExpressionError:
        return None
    failed: dict[int, str] = {}
    try:
        values = comparable(bound.evaluate({"v": rows}, ROWS))
    except InvalidExpressionError:
        values = []
        for place in range(ROWS):
            try:
                values += comparable(bound.evaluate({"v": rows.slice(place, 1)}, 1))
            except InvalidExpressionError as error:
                values.append(None)
                failed[place] = error.reason
        assert failed, f"{text} fails for all rows together and for none of them alone"
    return Answer(text, bound.type, values, failed)


class Oracle:
    """Spark, asked for many expressions at once."""

    def __init__(self, spark: SparkSession, rows: pa.Table) -> None:
        read = spark.createDataFrame(rows.slice(0, 1)).schema
        fields = [
            StructField(one.name, TimestampNTZType() if one.name == "k" else one.dataType)
            for one in read
        ]
        self.spark = spark
        self.frame: DataFrame = spark.createDataFrame(rows, schema=StructType(fields))
        self.frame = self.frame.coalesce(1).cache()

    def differences(self, answers: list[Answer]) -> Iterator[str]:
        for start in range(0, len(answers), AT_ONCE):
            doubtful = [one for one, _ in self._compare(answers[start : start + AT_ONCE])]
            if doubtful:
                with ExitStack() as settings:
                    for name, value in (*LAZY.items(), (EXCLUDED, SIMPLIFYING)):
                        settings.enter_context(setting(self.spark, name, value))
                    yield from (text for _, text in self._compare(doubtful))

    def _compare(self, answers: list[Answer]) -> Iterator[tuple[Answer, str]]:
        try:
            found = self.frame.selectExpr("id", *(_without_failed(one) for one in answers))
            table_ = found.toArrow().sort_by("id")
        except PySparkException as error:
            if len(answers) == 1:
                yield answers[0], f"{answers[0].text}: Spark says {str(error)[:300]}"
                return
            middle = len(answers) // 2
            yield from self._compare(answers[:middle])
            yield from self._compare(answers[middle:])
            return
        for place, one in enumerate(answers, start=1):
            theirs = found.schema[place].dataType.simpleString().upper()
            if not pa.types.is_nested(one.type) and theirs != spark_name(one.type):
                yield one, f"{one.text}: {spark_name(one.type)}, and {theirs} in Spark"
                continue
            for row, (mine, spark) in enumerate(zip(one.values, comparable(table_.column(place)))):
                if mine != spark and not _zeros_of_an_extreme(one.text, mine, spark):
                    yield one, f"{one.text}: {mine!r}, and {spark!r} in Spark, in row {row}"
                    break

    def raises(self, text: str, row: int) -> bool:
        try:
            self.frame.where(f"id = {row}").selectExpr(text).collect()
        except PySparkException:
            return True
        return False


def _zeros_of_an_extreme(text: str, mine: Any, spark: Any) -> bool:
    """Spark's compiled and interpreted code take different zeros of -0.0 and 0.0."""
    zeros = {struct.pack("<d", 0.0), struct.pack("<d", -0.0)}
    extreme = "greatest" in text or "least" in text
    return extreme and isinstance(mine, bytes) and {mine, spark} == zeros


def _without_failed(one: Answer) -> str:
    if not one.failed:
        return one.text
    rows = ", ".join(map(str, one.failed))
    return f"CASE WHEN id NOT IN ({rows}) THEN {one.text} END"


def check(
    spark: SparkSession, texts: list[str], *, zone: str, errors: int, rows: pa.Table | None = None
) -> None:
    rows = table() if rows is None else rows
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        oracle = Oracle(spark, rows)
        answers = [found for text in texts if (found := answer(text, rows, zone)) is not None]
        assert len(answers) > len(texts) // 2, "most expressions are refused"
        assert list(oracle.differences(answers)) == []
        failed = [
            (one.text, row)
            for one in answers
            for row, reason in one.failed.items()
            # Spark's `div` of decimals wraps around where plake raises an error.
            if not any(word in reason for word in REFUSALS) and " div " not in one.text
        ]
        asked = random.Random(1).sample(failed, min(errors, len(failed)))
        assert [case for case in asked if not oracle.raises(*case)] == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_sample_of_all_operators_casts_and_functions(spark: SparkSession) -> None:
    texts = random.Random(7).sample(written(), 220)
    check(spark, texts, zone="UTC", errors=25)


@pytest.mark.long
def test_drawn_expressions(spark: SparkSession) -> None:
    check(spark, drawn(seed=1, count=90), zone="UTC", errors=0)


@pytest.mark.long
def test_functions_of_arrays(spark: SparkSession) -> None:
    texts = [text for text in written() if "split(" in text or "array_" in text or "get(" in text]
    texts += ["element_at(array(l, i), y)", "element_at(array(s), i)", "get(array(t), h)"]
    texts += [f"size(split({name}, '{by}'))" for name in "snm" for by in ("a", "[ab]", "-", "a.c")]
    check(spark, texts, zone="UTC", errors=10)


def test_dates_and_timestamps_in_a_zone_with_summer_time(spark: SparkSession) -> None:
    texts = [
        *("CAST(z AS DATE)", "CAST(z AS STRING)", "CAST(z AS TIMESTAMP_NTZ)", "hour(z)", "t = z"),
        *("CAST(t AS TIMESTAMP)", "CAST(k AS TIMESTAMP)", "CAST(m AS TIMESTAMP)", "k < z"),
        *("TRY_CAST(m AS TIMESTAMP)", "TRY_CAST(m AS TIMESTAMP_NTZ)", "year(z)", "minute(z)"),
        *("z + INTERVAL 1 DAY", "z - INTERVAL 40 DAYS", "z + INTERVAL 30 HOURS", "z || ''"),
        *("TIMESTAMP '2024-11-03 01:30:00'", "TIMESTAMP '2024-03-10 02:30:00'"),
        "TIMESTAMP '2024-03-09 02:30:00' + INTERVAL 1 DAY",
        "TIMESTAMP '2024-11-02 01:30:00' + INTERVAL 1 DAY",
        "t + INTERVAL 5 HOURS",
    ]
    check(spark, texts, zone="America/New_York", errors=5)


UNITS = ("year", "YYYY", "quarter", "mon", "MM", "week", "day", "DD", "Hour", "minute", "second")


@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo"])
def test_parts_and_beginnings_of_dates(spark: SparkSession, zone: str) -> None:
    names = ("quarter", "dayofyear", "dayofweek", "weekday", "last_day", "unix_date")
    texts = [f"{name}({column})" for name in names for column in "tzk"]
    texts += [f"trunc({column}, '{unit}')" for unit in (*UNITS[:7], "x") for column in "tz"]
    units = (*UNITS, "millisecond", "MICROSECOND", "decade")
    texts += [f"date_trunc('{unit}', {column})" for unit in units for column in "tzk"]
    check(spark, texts, zone=zone, errors=0)


def scans(spark: SparkSession, folder: Path, seed: int, count: int, zone: str) -> None:
    """Conditions find the rows by a scan of files that Spark finds in the same rows."""
    rows, draw = table(seed), Conditions(seed)
    for start in range(0, ROWS, 6):
        lake.write_dataset(rows.slice(start, 6), folder / "t", row_group_rows=2)
    texts = [draw.condition(at % 4, rows, zone) for at in range(count)]
    check(spark, texts, zone=zone, errors=0, rows=rows)
    dataset = lake.open_dataset(folder / "t")
    schema = dataset.schema
    for text in texts:
        found = answer(text, rows, zone)
        if found is None or found.failed or found.type not in (pa.bool_(), pa.null()):
            continue
        try:
            condition = PredicateSet.of(text)
            bound = condition.bind(schema, zone)
        except InvalidPredicateError:
            continue  # a part of it fails on every row, and no row asks for it
        wanted = [place for place, value in enumerate(found.values) if value is True]
        if zone == "UTC":
            kept = sorted(dataset.scan(condition, columns=["id"]).to_table()["id"].to_pylist())
        else:
            mask = matching_mask(dataset.scan().to_table().sort_by("id"), bound)
            kept = [place for place, truth in enumerate(mask.to_pylist()) if truth]
        assert kept == wanted, text


@pytest.mark.long
def test_scans_by_drawn_conditions(spark: SparkSession, tmp_path: Path) -> None:
    scans(spark, tmp_path, 3, 150, "UTC")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_scans_by_more_drawn_conditions(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    zone = ("UTC", "America/Sao_Paulo", "UTC", "Asia/Kathmandu")[seed % 4]
    scans(spark, tmp_path, seed, 500, zone)


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES)
def test_all_operators_casts_and_functions(spark: SparkSession, zone: str) -> None:
    check(spark, written(), zone=zone, errors=150)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_more_drawn_expressions(spark: SparkSession, seed: int) -> None:
    check(spark, drawn(seed, 1500), zone=ZONES[seed % 2], errors=0)
