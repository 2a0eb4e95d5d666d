"""Every Spark type through plake and back; Spark's own Parquet is the oracle."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import lakehouse_source as lake
from lakehouse_source.schema.fields import SPARK_METADATA, SPARK_TYPE
from lakehouse_source.spark.types import arrow_schema, batch_schema, spark_schema
from tests.doors.conftest import activate
from tests.doors.frames import literals, load, nullable, quoted, rows, save, through_parquet

WHOLE = {
    "byte": ["CAST(-128 AS BYTE)", "127Y", "0Y"],
    "short": ["CAST(-32768 AS SHORT)", "32767S"],
    "int": ["CAST(-2147483648 AS INT)", "2147483647"],
    "long": ["CAST('-9223372036854775808' AS LONG)", "9223372036854775807L"],
    "bool": ["TRUE", "FALSE"],
    "float": ["float('NaN')", "float('-0.0')", "float('0.0')", "float('-Infinity')", "1.1F"],
    "double": ["double('NaN')", "-0.0D", "0.0D", "double('Infinity')", "4.9E-324D", "0.1D"],
    "d38": [f"CAST('{'9' * 38}' AS DECIMAL(38,0))", f"CAST('-{'9' * 38}' AS DECIMAL(38,0))"],
    "d38s": [f"CAST('-0.{'0' * 37}1' AS DECIMAL(38,38))", "CAST(0 AS DECIMAL(38,38))"],
    "d1": ["CAST(-9 AS DECIMAL(1,0))", "CAST(9 AS DECIMAL(1,0))"],
    "d9": ["CAST('-9999999.99' AS DECIMAL(9,2))", "CAST('0.01' AS DECIMAL(9,2))"],
    "d18": ["CAST('999999999999.999999' AS DECIMAL(18,6))"],
    "string": ["''", "'a'", "'\\u0000x'", "'e\\u0301 \\uD83D\\uDE00'", "repeat('long', 5000)"],
    "binary": ["X''", "X'00FF80'", "X'DEADBEEF'"],
}
CALENDAR = {
    "date": [
        f"DATE'{d}'"
        for d in (
            "0001-01-01",
            "1582-10-04",
            "1582-10-15",
            "1969-12-31",
            "2024-02-29",
            "9999-12-31",
        )
    ],
    "ts": [
        f"TIMESTAMP'{t}'"
        for t in (
            "0001-01-01 00:00:00 UTC",
            "1582-10-10 12:00:00 UTC",
            "1850-06-01 00:00:00.000001 America/New_York",
            "1969-12-31 23:59:59.999999 UTC",
            "2024-03-10 02:30:00 Asia/Kolkata",
            "2024-11-03 01:30:00-05:00",
            "2024-11-03 01:30:00-04:00",
            "9999-12-31 23:59:59.999999 UTC",
        )
    ],
    "ntz": [
        f"TIMESTAMP_NTZ'{t}'"
        for t in (
            "0001-01-01 00:00:00",
            "1850-06-01 00:00:00.000001",
            "2024-03-10 02:30:00",
            "9999-12-31 23:59:59.999999",
        )
    ],
}
INTERVALS = {
    "d": ["INTERVAL '-3' DAY", "INTERVAL '106751990' DAY"],
    "dh": ["INTERVAL '1 02' DAY TO HOUR"],
    "dm": ["INTERVAL '-1 02:03' DAY TO MINUTE"],
    "ds": [
        "INTERVAL '1 02:03:04.000005' DAY TO SECOND",
        "INTERVAL '-0 00:00:00.000001' DAY TO SECOND",
    ],
    "h": ["INTERVAL '25' HOUR"],
    "hm": ["INTERVAL '02:03' HOUR TO MINUTE"],
    "hs": ["INTERVAL '02:03:04' HOUR TO SECOND"],
    "m": ["INTERVAL '61' MINUTE"],
    "ms": ["INTERVAL '03:04.5' MINUTE TO SECOND"],
    "s": ["INTERVAL '0.000001' SECOND"],
}
NESTED = {
    "id": ["1", "2", "3", "4"],
    "list": ["array(1, NULL, 3)", "CAST(array() AS ARRAY<INT>)", "CAST(NULL AS ARRAY<INT>)"],
    "deep": [
        "array(map('k', named_struct('a', array(1.5D, double('NaN'), NULL))))",
        "array(map('k', CAST(NULL AS STRUCT<a: ARRAY<DOUBLE>>)), NULL)",
        "array(map('k', named_struct('a', CAST(NULL AS ARRAY<DOUBLE>))))",
    ],
    "map": ["map(1, 'x', 2, NULL)", "CAST(map() AS MAP<INT, STRING>)"],
    "keys": ["map(named_struct('k', 1), array(DATE'2024-01-01'))"],
    "struct": [
        "named_struct('x', 1, 'In Ner', named_struct('y', X'00', 'z.z', TRUE))",
        "named_struct('x', NULL, 'In Ner', CAST(NULL AS STRUCT<y: BINARY, `z.z`: BOOLEAN>))",
    ],
    "moment": [
        "named_struct('t', array(TIMESTAMP'2024-01-01 00:00:00Z'), 'n', TIMESTAMP_NTZ'1850-01-01')",
    ],
    "span": ["array(INTERVAL '1' DAY)"],
}
MATRIX = {"simple": WHOLE, "calendar": CALENDAR, "intervals": INTERVALS, "nested": NESTED}


def instants(frame: DataFrame) -> DataFrame:
    """Timestamps as numbers and texts: Python's datetime cannot say all of them."""
    columns = []
    for field in frame.schema.fields:
        column = F.col(quoted(field.name))
        if isinstance(field.dataType, TimestampType):
            column = F.unix_micros(column)
        elif isinstance(field.dataType, (TimestampNTZType, DayTimeIntervalType)):
            column = column.cast("string")
        columns.append(column.alias(field.name))
    return frame.select(columns)


def types(schema: StructType) -> list[tuple[str, Any]]:
    return [(field.name, nullable(field.dataType)) for field in schema.fields]


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


def assert_round_trips(
    frame: DataFrame, tmp_path: Path, planner: SparkSession | None = None
) -> DataFrame:
    """Through plake as through Parquet, and with the schema that was written."""
    path = save(frame, tmp_path / "plake")
    back = load(frame.sparkSession, path)
    oracle = through_parquet(frame, tmp_path / "parquet")
    assert types(back.schema) == types(frame.schema)
    assert rows(instants(back)) == rows(instants(oracle)) == rows(instants(frame))
    if planner is not None:
        assert rows(instants(load(planner, path))) == rows(instants(oracle))
    return back


@pytest.mark.long
@pytest.mark.parametrize("group", MATRIX)
@pytest.mark.cases(2)
def test_every_type_comes_back_as_parquet_gives_it(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path, group: str
) -> None:
    frame = literals(spark, MATRIX[group])
    back = assert_round_trips(frame, tmp_path, spark_planner)
    assert [f.dataType for f in back.schema] == [nullable(f.dataType) for f in frame.schema]


@pytest.mark.parametrize("group", MATRIX)
def test_every_type_goes_through_python_and_back(
    spark: SparkSession, tmp_path: Path, group: str
) -> None:
    frame = literals(spark, MATRIX[group])
    table = lake.read_dataset(save(frame, tmp_path / "first"))
    lake.write_dataset(table, tmp_path / "second")
    back = load(spark, tmp_path / "second")
    if group == "intervals":  # Arrow has one duration: DAY TO SECOND.
        frame = frame.select([F.col(n).cast("interval day to second") for n in frame.columns])
        back = back.toDF(*frame.columns)
    elif group == "nested":
        frame, back = frame.drop("span"), back.drop("span")
    assert types(back.schema) == types(frame.schema)
    assert rows(instants(back)) == rows(instants(frame))


def test_python_reads_what_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    frame = literals(spark, WHOLE | CALENDAR)
    table = lake.read_dataset(save(frame, tmp_path / "plake"))
    expected = frame.toArrow()
    assert table.num_rows == expected.num_rows
    for name in frame.columns:
        ours, theirs = table.column(name), expected.column(name)
        if pa.types.is_timestamp(ours.type):
            ours, theirs = ours.cast(pa.int64()), theirs.cast(pa.int64())
        assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist())), name


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_instants_are_the_same_in_every_session_time_zone(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path, zone: str
) -> None:
    utc = rows(instants(literals(spark, CALENDAR)))
    with setting(spark, "spark.sql.session.timeZone", zone):
        frame = literals(spark, CALENDAR)
        path = save(frame, tmp_path / "plake")
        assert rows(instants(load(spark, path))) == utc
    assert rows(instants(load(spark, path))) == utc
    with setting(spark_planner, "spark.sql.session.timeZone", zone):
        late = "ts >= TIMESTAMP'2024-11-03 01:30:00-05:00'"
        assert load(spark_planner, path).where(late).count() == 2
        assert (
            load(spark_planner, path).where("ntz = TIMESTAMP_NTZ'2024-03-10 02:30:00'").count() == 1
        )


@pytest.mark.long
def test_char_and_varchar_come_back_as_in_sparks_own_tables(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    activate(spark)
    with setting(spark, "spark.sql.preserveCharVarcharTypeInfo", "true"):
        frame = spark.sql(
            "SELECT CAST(c AS CHAR(4)) c, CAST(v AS VARCHAR(3)) v, array(CAST(v AS VARCHAR(9))) a "
            "FROM VALUES ('ab', 'x'), ('abcd', 'yz '), (NULL, NULL) AS t(c, v)"
        )
        assert frame.schema["c"].dataType.simpleString() == "char(4)"
        path = save(frame, tmp_path / "plake")
        expected = rows(through_parquet(frame, tmp_path / "parquet"))
        assert rows(load(spark, path)) == expected
    oracle = spark.read.parquet(str(tmp_path / "parquet"))
    for session in (spark, spark_planner):
        back = load(session, path)
        assert types(back.schema) == types(oracle.schema)
        assert [f.metadata for f in back.schema] == [f.metadata for f in oracle.schema]
        assert back.schema["a"].metadata == {"__CHAR_VARCHAR_TYPE_STRING": "array<varchar(9)>"}
        assert rows(back) == expected
        # Spark pads what a CHAR column is compared with.
        assert back.where("c = 'ab'").count() == oracle.where("c = 'ab'").count() == 1
        assert back.where("c IN ('ab', 'x')").count() == 1


@pytest.mark.long
def test_char_and_varchar_without_type_info_are_strings(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT CAST('ab' AS CHAR(4)) c, CAST('x' AS VARCHAR(3)) v")
    back = assert_round_trips(frame, tmp_path)
    assert back.collect() == frame.collect()


@pytest.mark.long
def test_collations_come_back_and_are_compared_by_spark(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql(
        "SELECT s COLLATE UTF8_LCASE s, array(s COLLATE UNICODE_CI) a, "
        "named_struct('q', s COLLATE UTF8_LCASE) n FROM VALUES ('Ada'), ('BOB'), ('ada') AS t(s)"
    )
    path = save(frame, tmp_path / "plake", targetFileSize="1")
    for session in (spark, spark_planner):
        back = load(session, path)
        assert [f.dataType for f in back.schema] == [nullable(f.dataType) for f in frame.schema]
        assert back.where("s = 'ADA'").count() == 2
        assert back.where("n.q = 'bob'").count() == 1
        assert back.where("s > 'ada'").count() == 1
        ends = back.selectExpr("lower(min(s))", "lower(max(s))", "count(s)")
        assert ends.collect() == [("ada", "bob", 3)]


DAY = DayTimeIntervalType(DayTimeIntervalType.DAY, DayTimeIntervalType.DAY)
REQUIRED = StructType(
    [
        StructField("id", IntegerType(), False),
        StructField("list", ArrayType(IntegerType(), False), False),
        StructField("map", MapType(StringType(), DoubleType(), False), False),
        StructField("struct", StructType([StructField("s", StringType(), False)]), True),
        StructField(
            "structs",
            ArrayType(StructType([StructField("l", ArrayType(IntegerType(), False), False)])),
        ),
        StructField(
            "maps",
            MapType(StringType(), StructType([StructField("d", DoubleType(), False)]), True),
        ),
    ]
)


@pytest.mark.long
def test_what_a_frame_declares_not_null_is_nullable_as_in_plain_parquet(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = StructType([*REQUIRED.fields, StructField("day", ArrayType(DAY, False), False)])
    data = [(1, [1], {"a": 1.0}, ("x",), [([1],)], {"k": (1.5,)}, [datetime.timedelta(2)])]
    frame = spark.createDataFrame(data, schema)
    assert_round_trips(frame, tmp_path)
    back = load(spark, tmp_path / "plake").schema
    assert back == nullable(schema)
    nulls = spark.createDataFrame(
        [(None, [None], {"a": None}, (None,), [([None],)], {"k": (None,)}, [None])], back
    )
    save(nulls, tmp_path / "plake")
    assert load(spark, tmp_path / "plake").where("id IS NULL AND list[0] IS NULL").count() == 1


@pytest.mark.long
def test_columns_and_nested_fields_that_an_arrow_schema_declares_not_null_stay_so(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    data = [
        (1, [1, 2], {"a": 1.0}, ("x",), [([1],), None], {"k": (1.5,), "n": None}),
        (2, [], {}, None, None, None),
        (3, [3], {"b": 2.0}, ("y",), [None, ([],)], {}),
    ]
    frame = spark.createDataFrame(data, REQUIRED)
    lake.write_dataset(batch_schema(REQUIRED).empty_table(), tmp_path / "plake")
    save(frame, tmp_path / "plake")
    for session in (spark, spark_planner):
        back = load(session, tmp_path / "plake")
        assert back.schema == REQUIRED
        assert rows(back) == rows(frame)
    nulls = spark.createDataFrame([(4, [None], {}, None, None, None)], nullable(REQUIRED))
    with pytest.raises(PySparkException, match=r"'list\.element' is not nullable"):
        save(nulls, tmp_path / "plake")
    assert lake.read_dataset(tmp_path / "plake").sort_by("id").column("struct").to_pylist() == [
        {"s": "x"},
        None,
        {"s": "y"},
    ]


@pytest.mark.long
def test_metadata_of_columns_and_nested_fields_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    inner = StructType([StructField("a", IntegerType(), True, {"comment": "inner"})])
    schema = StructType([StructField("s", inner, True, {"comment": "outer", "n": 1})])
    back = assert_round_trips(spark.createDataFrame([((1,),)], schema), tmp_path)
    assert back.schema == schema
    assert back.schema["s"].metadata == {"comment": "outer", "n": 1}
    assert back.schema["s"].dataType["a"].metadata == {"comment": "inner"}


@pytest.mark.long
def test_column_names_are_taken_as_they_are(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql(
        "SELECT 1 `a.b`, named_struct('b', 2, 'b.c', 3) a, 4 `c d`, 5 `q``q`, 6 `ü€😀`, 7 `x,y`, "
        "8 `p=1/%`, 9 ` lead`, 10 `select`, 11 `__row`, 12 `_metadata`"
    )
    back = assert_round_trips(frame, tmp_path, spark_planner)
    assert back.columns == frame.columns
    for session in (spark, spark_planner):
        read = load(session, tmp_path / "plake")
        assert read.where("`a.b` = 1 AND a.b = 2 AND a.`b.c` = 3 AND `q``q` = 5").count() == 1
        assert read.where("`a.b` = 2").count() == 0
        assert read.where("a.b = 1").count() == 0
        assert read.select("`ü€😀`", "`x,y`").collect() == [(6, 7)]


@pytest.mark.long
def test_three_hundred_columns_and_one(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    wide = spark.range(3).selectExpr(*[f"IF(id = 1, NULL, id + {i}) AS c{i}" for i in range(300)])
    assert_round_trips(wide, tmp_path / "wide")
    assert load(spark_planner, tmp_path / "wide" / "plake").where("c299 = 301").count() == 1
    assert_round_trips(spark.range(1), tmp_path / "narrow")


@pytest.mark.long
def test_frames_without_rows_make_a_version_with_their_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = literals(spark, NESTED | {"text": ["'x'"]}).where("id > 99")
    back = assert_round_trips(frame, tmp_path)
    assert back.count() == 0
    assert lake.open_dataset(tmp_path / "plake").version == 1
    assert lake.open_dataset(tmp_path / "plake").files() == []


@pytest.mark.long
def test_more_partitions_than_rows_leave_no_empty_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(3).repartition(7)
    back = assert_round_trips(frame, tmp_path)
    assert 1 <= len(lake.open_dataset(tmp_path / "plake").files()) <= 3
    assert back.where("id >= 0").count() == 3


def test_types_of_users_are_kept_as_the_types_that_they_are_made_of(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.testing.objects import ExamplePoint

    frame = spark.createDataFrame([(ExamplePoint(1.0, 2.0),)], ["point"])
    back = load(spark, save(frame, tmp_path / "plake"))
    assert back.schema["point"].dataType == ArrayType(DoubleType())
    assert back.first().point == [1.0, 2.0]


UDT = {
    "type": "udt",
    "class": "org.apache.spark.ml.linalg.VectorUDT",
    "pyClass": "pyspark.ml.linalg.VectorUDT",
    "sqlType": "string",
}


@pytest.mark.parametrize(
    "changed",
    [
        {"class": None, "pyClass": "planted.Type", "serializedClass": "Y29zCnN5c3RlbQo="},
        {"pyClass": "planted.Type"},
        {"pyClass": "planted.VectorUDT", "class": UDT["class"]},
        {"class": "java.lang.Runtime"},
        {"serializedClass": "Y29zCnN5c3RlbQo="},
        {"pyClass": "pyspark.ml.linalg.MatrixUDT"},
        {"pyClass": ["planted.Type"]},
    ],
)
def test_a_catalog_cannot_make_spark_import_a_class(
    changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('a class of strangers was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    spelled = UDT | changed
    inside = {"name": "f", "type": spelled, "nullable": True, "metadata": {}}
    for document in (
        spelled,
        {"type": "array", "elementType": spelled, "containsNull": True},
        {"type": "struct", "fields": [inside]},
        UDT | {"sqlType": spelled},
    ):
        text = json.dumps(document).encode()
        field = pa.field("x", pa.string(), metadata={SPARK_TYPE: text})
        assert spark_schema(pa.schema([field])) == StructType([StructField("x", StringType())])


@pytest.mark.parametrize("text", [b"{", b'"string of the future"', b'{"no": "type"}', b"[1]", b"7"])
def test_a_type_of_a_later_spark_is_read_as_what_arrow_says(text: bytes) -> None:
    field = pa.field("x", pa.string(), metadata={SPARK_TYPE: text})
    assert spark_schema(pa.schema([field])) == StructType([StructField("x", StringType())])


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.timestamp("s", "Asia/Kolkata"), "timestamp"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.duration("ms"), "interval day to second"),
        (pa.binary(3), "binary"),
        (pa.large_list(pa.string_view()), "array<string>"),
        (pa.list_(pa.uint32(), 2), "array<bigint>"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.map_(pa.uint8(), pa.uint64()), "map<smallint,decimal(20,0)>"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.date64(), "date"),
    ],
)
def test_arrow_types_that_spark_lacks_are_widened(type_: pa.DataType, expected: str) -> None:
    from lakehouse_source.schema.merge import initial

    schema = spark_schema(initial(pa.schema([pa.field("x", type_)])))
    assert schema["x"].dataType.simpleString() == expected


@pytest.mark.long
def test_spark_reads_what_python_wrote_in_types_of_its_own(
    spark: SparkSession, spark_planner: SparkSession, tmp_path: Path
) -> None:
    top = 2**64 - 1
    table = pa.table(
        {
            "u8": pa.array([0, 255, None], pa.uint8()),
            "u32": pa.array([0, 2**32 - 1, None], pa.uint32()),
            "u64": pa.array([0, top, None], pa.uint64()),
            "half": pa.array([0.5, float("nan"), None], pa.float16()),
            "fixed": pa.array([b"abc", b"\0\0\0", None], pa.binary(3)),
            "s": pa.array([1, -1, None], pa.timestamp("s", "UTC")),
            "list": pa.array([[1], [top], None], pa.list_(pa.uint64(), 1)),
        }
    )
    lake.write_dataset(table, tmp_path)
    for session in (spark, spark_planner):
        back = load(session, tmp_path)
        assert [int(r.u64) for r in back.where(f"u64 = {top}BD").collect()] == [top]
        assert back.where("u32 > 4000000000L").count() == 1
        assert back.where("half > 1").count() == 1  # NaN is above all numbers
        assert back.where("fixed = X'000000'").count() == 1
        assert back.where("s < TIMESTAMP'1970-01-01 00:00:00Z'").count() == 1
        assert back.count() == 3
        assert back.selectExpr("max(list)").first()[0] == [top]


REFUSED = [
    ("array(parse_json('{}'))", "variant"),
    ("TIME'12:00:00'", "time(6)"),
    ("named_struct('t', TIME'12:00:00')", "time(6)"),
    ("INTERVAL '1-2' YEAR TO MONTH", "interval year to month"),
    ("map('k', INTERVAL '1' YEAR)", "interval year"),
    ("NULL", "void"),
    ("array()", "void"),
]


@pytest.mark.parametrize(("expression", "name"), REFUSED)
def test_types_that_cannot_be_stored_are_refused_by_name_before_any_task(
    spark: SparkSession, tmp_path: Path, expression: str, name: str
) -> None:
    context, group = spark.sparkContext, f"refused {expression}"
    context.setJobGroup(group, group)
    frame = spark.range(5).selectExpr("id", f"{expression} AS culprit")
    with pytest.raises(AnalysisException) as refused:
        save(frame, tmp_path / "never")
    assert f"column 'culprit' has type {name}, which plake cannot store" in str(refused.value)
    assert list(context.statusTracker().getJobIdsForGroup(group)) == []
    assert not (tmp_path / "never").exists()


def test_calendar_intervals_are_refused_by_spark_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match='Cannot use "INTERVAL" type'):
        save(spark.sql("SELECT make_interval(1, 2, 3) x"), tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_schemas_that_parquet_cannot_hold_are_refused() -> None:
    with pytest.raises(lake.SchemaMismatchError, match="struct without fields"):
        arrow_schema(StructType([StructField("s", StructType([]))]))


@pytest.mark.parametrize(
    ("names", "words"),
    [(["a", "A"], "'A' collides with 'a'"), (["a", "a"], "collides"), (["a", ""], "empty name")],
)
def test_names_that_cannot_be_told_apart_are_refused_before_any_task(
    spark: SparkSession, tmp_path: Path, names: list[str], words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        save(spark.createDataFrame([(1, 2)], names), tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_frames_without_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="has no columns"):
        save(spark.range(3).select(), tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_expressions_of_a_strangers_catalog_are_no_defaults() -> None:
    told = b'{"EXISTS_DEFAULT": "uuid()", "CURRENT_DEFAULT": "uuid()", "comment": "c"}'
    field = pa.field("x", pa.string(), metadata={SPARK_METADATA: told})
    assert spark_schema(pa.schema([field]))["x"].metadata == {"comment": "c"}
