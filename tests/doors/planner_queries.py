"""Queries that must mean the same on a plake frame and on a Parquet frame of the same rows.

Data for `test_planner_queries.py`: conditions, and queries that take a `Side` and
return rows, which are compared as multisets. Most of them run on one frame that
all share, because that is where Spark's shared read plan loses rows.

    python -m tests.doors.planner_queries

writes what Parquet answers to `planner_answers.json`, a digest for each.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

ANSWERS = Path(__file__).with_name("planner_answers.json")
PARTS = 3  # appends, hence versions and, at least, files
ROWS_PER_PART = 40

FACTS = StructType(
    [
        StructField("id", LongType()),
        StructField("k", IntegerType()),
        StructField("Tiny", ShortType()),
        StructField("g", StringType()),
        StructField("s", StringType()),
        StructField("f", DoubleType()),
        StructField("r", FloatType()),
        StructField("d", DateType()),
        StructField("ts", TimestampType()),
        StructField("tn", TimestampNTZType()),
        StructField("dec", DecimalType(12, 2)),
        StructField("ok", BooleanType()),
        StructField("raw", BinaryType()),
        StructField(
            "st",
            StructType(
                [
                    StructField("x", IntegerType()),
                    StructField("y", StringType()),
                    StructField("deep", StructType([StructField("z", DoubleType())])),
                ]
            ),
        ),
        StructField("arr", ArrayType(IntegerType())),
        StructField("mp", MapType(StringType(), IntegerType())),
        StructField("st.x", IntegerType()),  # beside field x of struct st
        StructField("void", StringType()),  # null throughout
    ]
)
GROUPS = StructType(
    [
        StructField("g", StringType()),
        StructField("k", IntegerType()),
        StructField("label", StringType()),
    ]
)

_FLOATS = (0.0, -0.0, 1.5, float("nan"), None, float("inf"), float("-inf"), -2.25, 1e300, 3.0)
_STRINGS = ("plum", "pear", "Peach", "", None, "ananas", "aé", "az", "b%c_d", "\U0001f600x")


def fact_rows(part: int) -> list[tuple[Any, ...]]:
    """The rows of one append: ids ascend from part to part, the rest repeats with gaps."""
    rows: list[tuple[Any, ...]] = []
    for i in range(part * ROWS_PER_PART, (part + 1) * ROWS_PER_PART):
        gap = i % 11 == 3
        instant = dt.datetime(2023, 1, 1) + dt.timedelta(
            days=i * 5, seconds=i * 3601, microseconds=i
        )
        rows.append(
            (
                i,
                None if gap else i % 7,
                i % 100 - 50,
                None if i % 13 == 5 else "abcde"[i % 5],
                _STRINGS[i % len(_STRINGS)],
                _FLOATS[i % len(_FLOATS)],
                _FLOATS[(i // 2) % 4],
                None if gap else instant.date(),
                instant.replace(tzinfo=dt.timezone.utc),
                None if i % 17 == 1 else instant,
                None if gap else decimal.Decimal(i * 37 - 900).scaleb(-2),
                None if i % 9 == 4 else i % 3 == 0,
                None if i % 19 == 2 else bytes([i % 256, 255 - i % 256]),
                None if i % 14 == 6 else (i % 10, f"y{i % 4}", (_FLOATS[i % 10],)),
                None if i % 15 == 7 else list(range(i % 4)),
                None if i % 16 == 8 else {"a": i % 3, "b": i},
                i % 5,
                None,
            )
        )
    return rows


def group_rows() -> list[tuple[Any, ...]]:
    """A small table to join with: keys that match several times, once, never and NULL."""
    return [
        ("a", 1, "first"),
        ("a", 2, "again"),
        ("b", 1, "second"),
        ("zz", 9, "nowhere"),
        (None, 3, "null key"),
        ("c", None, "null k"),
    ]


def frozen(value: Any) -> Any:
    """A hashable stand-in for a value: NaN equals NaN, -0.0 differs from 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else ("float", repr(value))
    if isinstance(value, dict):
        return ("map", *sorted((frozen(item) for item in value.items()), key=repr))
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    return value


def multiset(rows: Iterable[Any]) -> Counter[Any]:
    """Rows without their order."""
    return Counter(frozen(row) for row in rows)


def digest(rows: Counter[Any]) -> str:
    """A short text that tells one multiset from another."""
    return sha256("\n".join(sorted(map(repr, rows.items()))).encode()).hexdigest()[:16]


_numbers = count()


@dataclass
class Side:
    """One of the two formats under comparison, in one session.

    `t` and `u` are frames that all queries of this side share; `load` makes new
    ones of the same rows.
    """

    spark: SparkSession
    format: str
    facts: list[str]  # one path per part for Parquet, one dataset for plake
    groups: str
    scratch: Path
    t: DataFrame = field(init=False)
    u: DataFrame = field(init=False)

    def __post_init__(self) -> None:
        self.t = self.load()
        self.u = self.spark.read.format(self.format).load(self.groups)
        self.t.createOrReplaceTempView(f"t_{self.format}")
        self.u.createOrReplaceTempView(f"u_{self.format}")

    def load(self, schema: str | None = None) -> DataFrame:
        """A new frame over the facts."""
        reader = self.spark.read.format(self.format)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load(self.facts if len(self.facts) > 1 else self.facts[0])

    def version(self, number: int) -> DataFrame:
        """A frame over the first `number` appends."""
        if self.format == "plake":
            return self.spark.read.format("plake").option("versionAsOf", number).load(self.facts[0])
        return self.spark.read.format(self.format).load(self.facts[:number])

    def sql(self, text: str) -> list[Any]:
        """Rows of a statement in which {t} and {u} are the views of the frames."""
        return self.spark.sql(
            text.replace("{t}", f"t_{self.format}").replace("{u}", f"u_{self.format}")
        ).collect()

    def new_path(self) -> str:
        """A path of this side where nothing has been written."""
        return str(self.scratch / f"{self.format}-{next(_numbers)}")


Query = Callable[[Side], Iterable[Any]]
QUERIES: dict[str, Query] = {}
VERSIONED: dict[str, Query] = {}


def query(function: Query) -> Query:
    """Add a function to the list under its own name."""
    name = function.__name__.replace("_", " ")
    assert name not in QUERIES
    QUERIES[name] = function
    return function


def write_sides(spark: SparkSession, folder: Path) -> dict[str, tuple[list[str], str]]:
    """The same rows as Parquet folders and as plake datasets of three appends: facts, groups."""
    parquet = []
    for part in range(PARTS):
        frame = spark.createDataFrame(fact_rows(part), FACTS).coalesce(1)
        frame.write.format("plake").mode("append").save(f"{folder}/facts")
        parquet.append(f"{folder}/parquet/{part}")
        frame.write.parquet(parquet[-1])
    groups = spark.createDataFrame(group_rows(), GROUPS).coalesce(1)
    groups.write.format("plake").mode("append").save(f"{folder}/groups")
    groups.write.parquet(f"{folder}/parquet/groups")
    return {
        "parquet": (parquet, f"{folder}/parquet/groups"),
        "plake": ([f"{folder}/facts"], f"{folder}/groups"),
    }


# --- conditions, one after the other on one frame ------------------------------

CONDITIONS = [
    "id = 5",
    "id = 77",
    "id > 100",
    "id BETWEEN 38 AND 41",
    "id <= 0 OR id >= 119",
    "id IN (1, 50, 119, 5000)",
    "k IN (1, NULL)",
    "k NOT IN (1, 2)",
    "k NOT IN (1, NULL)",
    "NOT (k = 3)",
    "NOT (k = 3 OR id < 90)",
    "k <=> NULL",
    "NOT (k <=> 3)",
    "k IS NULL",
    "k IS NOT NULL AND g IS NULL",
    "void IS NULL",
    "void IS NOT NULL",
    "void = 'x' OR id = 3",
    "f = double('NaN')",
    "f > 1.5",
    "f <= 0.0",
    "f = 0.0",
    "f < -0.0",
    "f <> 1.5",
    "NOT (f > 1.5)",
    "f IN (0.0, double('NaN'))",
    "isnan(f)",
    "r = float('NaN') AND id > 60",
    "r >= 1.5",
    "s LIKE 'p%'",
    "s LIKE '%a%'",
    "s LIKE '%s'",
    "s NOT LIKE 'p%'",
    "s LIKE 'b\\\\%c\\\\_d'",
    "s = ''",
    "s > 'az'",
    "s >= '\U0001f600'",
    "upper(s) = 'PEACH'",
    "length(s) = 2 AND s > 'az'",
    "d = DATE '2023-02-05'",
    "d >= DATE '2024-01-01'",
    "year(d) = 2023 AND month(d) = 3",
    "d > '2024-06-01'",
    "ts < TIMESTAMP '2023-03-01 00:00:00'",
    "ts >= TIMESTAMP '2024-01-01 00:00:00+02:00'",
    "tn BETWEEN TIMESTAMP_NTZ '2023-05-01 00:00:00' AND TIMESTAMP_NTZ '2023-09-01 00:00:00'",
    "dec = 2.10",
    "dec > 20 AND dec <= 30.5",
    "dec = 0.375",
    "cast(id AS STRING) LIKE '1%'",
    "try_cast(s AS INT) IS NULL AND id < 12",
    "id = 5.0",
    "id > 4.5 AND id < 6.5",
    "k = '3'",
    "ok",
    "NOT ok",
    "ok IS NULL OR id % 2 = 0",
    "raw = X'05FA'",
    "raw > X'60'",
    "st.x = 4",
    "st.x > 7 AND st.y = 'y1'",
    "st IS NULL",
    "st.deep.z = double('NaN')",
    "st.y IS NULL",
    "`st.x` = 4",
    "`st.x` = 4 AND st.x = 4",
    "arr IS NULL",
    "arr = array(0, 1)",
    "array_contains(arr, 2)",
    "mp['a'] = 2",
    "tiny = -50",
    "TINY > 40 AND ID > 20",
    "G = 'a' AND g >= 'a'",
    "(k = 1 AND id < 20) OR (k = 2 AND id > 100)",
    "(g = 'a' OR g = 'b') AND NOT (g = 'b' AND k = 2)",
    "coalesce(k, -1) = -1",
    "id + k = 12",
    "true",
    "false",
    "cast(NULL AS BOOLEAN)",
    "k = NULL",
    "id = k",
]


def truth_table(side: Side) -> dict[str, list[Any]]:
    """What each condition selects, found in one pass that pushes nothing down."""
    columns = [F.expr(text).alias(f"c{i}") for i, text in enumerate(CONDITIONS)]
    rows = side.t.select("id", "g", *columns).collect()
    return {
        text: [(row["id"], row["g"]) for row in rows if row[f"c{i}"] is True]
        for i, text in enumerate(CONDITIONS)
    }


# --- one frame, several scans -----------------------------------------------------


@query
def filtered_count_then_full_count(side: Side) -> Iterable[Any]:
    frame = side.load()
    return [
        frame.where("id = 5").count(),
        frame.count(),
        frame.where("id > 110").count(),
        frame.count(),
        frame.where("k = 1 OR id = 3").count(),
    ]


@query
def full_count_then_filtered_counts(side: Side) -> Iterable[Any]:
    frame = side.load()
    return [frame.count(), *(frame.where(f"id = {i}").count() for i in (1, 41, 81, 5000))]


@query
def union_of_two_filters(side: Side) -> Iterable[Any]:
    return side.t.where("id = 5").union(side.t.where("id = 77")).drop("mp").collect()


@query
def union_of_filtered_and_full(side: Side) -> Iterable[Any]:
    return side.t.where("k = 1").select("id").unionAll(side.t.select("id")).collect()


@query
def union_by_name_of_different_columns(side: Side) -> Iterable[Any]:
    left, right = (
        side.t.where("id < 3").select("id", "g"),
        side.t.where("id > 116").select("id", "s"),
    )
    return left.unionByName(right, allowMissingColumns=True).collect()


@query
def intersect_and_except(side: Side) -> Iterable[Any]:
    low, high = side.t.where("id < 60").select("k", "g"), side.t.where("id >= 60").select("k", "g")
    return [*low.intersect(high).collect(), *low.exceptAll(high).collect()]


@query
def projections_of_one_filtered_frame(side: Side) -> Iterable[Any]:
    frame = side.t.where("k = 2")
    return [*frame.select("id").collect(), *frame.select("s").collect(), frame.count()]


@query
def count_only(side: Side) -> Iterable[Any]:
    return side.sql("SELECT count(*), count(1) FROM {t}")


@query
def count_of_a_null_column(side: Side) -> Iterable[Any]:
    return side.sql("SELECT count(void), count(k), count(*) FROM {t}")


@query
def literal_projection(side: Side) -> Iterable[Any]:
    return side.sql("SELECT 1 AS one FROM {t}")


@query
def no_columns_with_a_filter(side: Side) -> Iterable[Any]:
    return side.sql("SELECT count(*) FROM {t} WHERE k = 3 AND f > 0")


@query
def every_column(side: Side) -> Iterable[Any]:
    return side.t.collect()


@query
def each_column_alone(side: Side) -> Iterable[Any]:
    names = ("id", "s", "ts", "dec", "st", "mp", "`st.x`", "void")
    return [row for name in names for row in side.t.select(name).collect()]


@query
def columns_in_another_order(side: Side) -> Iterable[Any]:
    return side.t.select("s", "id", "d", "k").where("k > 4").collect()


@query
def columns_by_another_case(side: Side) -> Iterable[Any]:
    return side.t.select("ID", "tInY", "G").where("TINY = 7 OR Id = 9").collect()


@query
def renamed_columns(side: Side) -> Iterable[Any]:
    frame = side.t.withColumnRenamed("k", "kk").withColumn("k", F.col("id") * 2)
    return frame.where("k = 20 OR kk = 6").select("k", "kk", "id").collect()


@query
def swapped_names(side: Side) -> Iterable[Any]:
    return side.t.selectExpr("id AS k", "k AS id").where("id = 3 AND k > 50").collect()


@query
def a_schema_given_by_the_user(side: Side) -> Iterable[Any]:
    frame = side.load("id BIGINT, g STRING")
    return [frame.where("g = 'a'").count(), frame.count(), *frame.where("id < 4").collect()]


@query
def dropped_and_filled_columns(side: Side) -> Iterable[Any]:
    return side.t.drop("arr", "mp", "st").na.fill({"g": "none"}).where("g = 'none'").collect()


# --- joins ------------------------------------------------------------------------


@query
def self_join_with_two_filters(side: Side) -> Iterable[Any]:
    left, right = side.t.where("id < 20").alias("l"), side.t.where("id > 100").alias("r")
    return left.join(right, F.col("l.k") == F.col("r.k")).select("l.id", "r.id").collect()


@query
def self_join_without_filters(side: Side) -> Iterable[Any]:
    return side.sql("SELECT a.id, b.id FROM {t} a JOIN {t} b ON a.id = b.k AND b.id < 30")


@query
def self_join_of_the_same_filter(side: Side) -> Iterable[Any]:
    frame = side.t.where("k = 1")
    return frame.alias("l").join(frame.alias("r"), "g").select("l.id", "r.id").collect()


@query
def self_left_anti_join(side: Side) -> Iterable[Any]:
    late = side.t.where("id > 60").select("k", "g")
    return side.t.join(late, ["k", "g"], "left_anti").select("id").collect()


@query
def self_left_semi_join(side: Side) -> Iterable[Any]:
    return (
        side.t.join(side.t.where("f > 1e100").select("k"), "k", "left_semi").select("id").collect()
    )


@query
def self_full_outer_join(side: Side) -> Iterable[Any]:
    left, right = (
        side.t.where("id < 50").select("id", "k"),
        side.t.where("id > 40").select("id", "s"),
    )
    return left.join(right, "id", "full_outer").collect()


@query
def three_scans_of_one_frame(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT a.id, b.id, c.id FROM {t} a JOIN {t} b ON a.id + 1 = b.id "
        "JOIN {t} c ON b.id + 1 = c.id WHERE a.k = 1 AND c.id < 100"
    )


@query
def join_with_another_frame(side: Side) -> Iterable[Any]:
    return side.sql("SELECT t.id, u.label FROM {t} t JOIN {u} u ON t.g = u.g WHERE u.k = 1")


@query
def left_join_and_filter_on_the_right(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT t.id, u.label FROM {t} t LEFT JOIN {u} u ON t.g = u.g AND u.k > 1 WHERE t.id < 30"
    )


@query
def null_safe_join(side: Side) -> Iterable[Any]:
    return side.sql("SELECT t.id, u.label FROM {t} t JOIN {u} u ON t.g <=> u.g AND t.id < 60")


@query
def cross_join(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT t.id, u.label FROM {t} t CROSS JOIN {u} u WHERE t.id < 5 AND u.k IS NULL"
    )


@query
def broadcast_join_with_a_selective_side(side: Side) -> Iterable[Any]:
    few = F.broadcast(side.u.where("label = 'first'"))
    return side.t.join(few, "g").groupBy("label").count().collect()


@query
def join_with_native_parquet_filters(side: Side) -> Iterable[Any]:
    other = side.spark.range(0, 200, 3).withColumnRenamed("id", "n")
    return side.t.join(other, F.col("id") == F.col("n")).where("n > 90").select("id", "k").collect()


# --- subqueries, CTEs, views --------------------------------------------------------


@query
def scalar_subquery(side: Side) -> Iterable[Any]:
    return side.sql("SELECT id FROM {t} WHERE id > (SELECT max(id) - 3 FROM {t} WHERE k = 2)")


@query
def two_scalar_subqueries_over_one_view(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT (SELECT count(*) FROM {t} WHERE k = 1), (SELECT count(*) FROM {t} WHERE k = 2), "
        "(SELECT max(s) FROM {t}), (SELECT count(*) FROM {t} WHERE k = 1 OR id = 3)"
    )


@query
def in_subquery(side: Side) -> Iterable[Any]:
    return side.sql("SELECT id FROM {t} WHERE g IN (SELECT g FROM {u} WHERE k = 1)")


@query
def not_in_subquery_with_nulls(side: Side) -> Iterable[Any]:
    return side.sql("SELECT id FROM {t} WHERE g NOT IN (SELECT g FROM {u})")


@query
def in_subquery_over_the_same_view(side: Side) -> Iterable[Any]:
    return side.sql("SELECT id FROM {t} WHERE k IN (SELECT id FROM {t} WHERE id < 3)")


@query
def exists_subquery(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT id FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE b.k = a.k AND b.id = 100)"
    )


@query
def not_exists_subquery(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT id FROM {t} a WHERE NOT EXISTS (SELECT 1 FROM {u} u WHERE u.g = a.g) AND id < 50"
    )


@query
def correlated_scalar_subquery(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT label, (SELECT max(id) FROM {t} t WHERE t.g = u.g AND t.k = u.k) FROM {u} u"
    )


@query
def cte_used_twice_with_two_filters(side: Side) -> Iterable[Any]:
    return side.sql(
        "WITH c AS (SELECT id, k, g FROM {t} WHERE id < 90) "
        "SELECT a.id, b.id FROM c a JOIN c b ON a.k = b.k WHERE a.g = 'a' AND b.g = 'b'"
    )


@query
def cte_of_a_random_column_used_twice(side: Side) -> Iterable[Any]:
    return side.sql(
        "WITH c AS (SELECT id, k, rand(3) > 2 AS never FROM {t}) "
        "SELECT id FROM c WHERE k = 1 AND NOT never UNION ALL SELECT id FROM c WHERE k = 2"
    )


@query
def one_view_with_different_filters(side: Side) -> Iterable[Any]:
    return [
        row
        for condition in ("k = 1", "id > 100", "g = 'c' AND id < 50", "true", "k = 1")
        for row in side.sql(f"SELECT id, k FROM {{t}} WHERE {condition}")
    ]


@query
def view_over_a_filtered_view(side: Side) -> Iterable[Any]:
    name = f"inner_{side.format}"
    side.t.where("k > 2").createOrReplaceTempView(name)
    return [
        *side.sql(f"SELECT id FROM {name} WHERE id < 40"),
        *side.sql(f"SELECT count(*) FROM {name}"),
        *side.sql("SELECT count(*) FROM {t}"),
    ]


@query
def view_created_in_sql(side: Side) -> Iterable[Any]:
    name = f"sql_view_{side.format}"
    path = side.groups.replace("'", "")
    side.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {name} USING {side.format} OPTIONS (path '{path}')"
    )
    return [
        *side.spark.sql(f"SELECT label FROM {name} WHERE k = 1").collect(),
        *side.spark.sql(f"SELECT * FROM {name}").collect(),
    ]


@query
def lateral_subquery(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT u.label, x.n FROM {u} u, LATERAL "
        "(SELECT count(*) AS n FROM {t} t WHERE t.g = u.g AND t.id < 80) x"
    )


# --- caching, threads, checkpoints ----------------------------------------------------


@query
def cached_frame_then_filters(side: Side) -> Iterable[Any]:
    frame = side.load().select("id", "k", "g").cache()
    try:
        return [
            frame.count(),
            *frame.where("k = 1").collect(),
            *frame.where("id = 50").select("g").collect(),
        ]
    finally:
        frame.unpersist(blocking=True)


@query
def cached_filter_beside_the_uncached_frame(side: Side) -> Iterable[Any]:
    base = side.load()
    frame = base.where("k = 1").persist()
    try:
        return [
            frame.count(),
            base.count(),
            base.where("k = 2").count(),
            *frame.join(base.where("id < 60"), "id").select("id").collect(),
            base.where("k = 1").count(),
        ]
    finally:
        frame.unpersist(blocking=True)


@query
def several_threads_on_one_frame(side: Side) -> Iterable[Any]:
    frame = side.load()

    def rows(k: int) -> list[Any]:
        return [
            frame.where(f"k = {k}").count(),
            *frame.where(f"id = {k * 17}").select("s").collect(),
        ]

    with ThreadPoolExecutor(6) as pool:
        return [value for part in pool.map(rows, range(7)) for value in part] + [frame.count()]


@query
def several_threads_with_a_user_schema(side: Side) -> Iterable[Any]:
    frame = side.load("id BIGINT, k INT")
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda k: (k, frame.where(f"k = {k}").count()), range(5)))


@query
def local_checkpoint_of_a_filter(side: Side) -> Iterable[Any]:
    frame = side.t.where("id > 100").select("id", "k").localCheckpoint()
    return [*frame.where("k = 1").collect(), side.t.count()]


@query
def an_explained_query_still_runs(side: Side) -> Iterable[Any]:
    frame = side.t.where("k = 4").select("id")
    frame._jdf.queryExecution().toString()
    return [*frame.collect(), frame.count(), *frame.collect()]


# --- aggregates, windows, order -----------------------------------------------------------


@query
def aggregates(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT g, count(*), sum(id), avg(k), min(d), max(s), count(DISTINCT k), sum(dec) "
        "FROM {t} WHERE id > 10 GROUP BY g"
    )


@query
def aggregate_with_filters_inside(side: Side) -> Iterable[Any]:
    return side.sql("SELECT count(*) FILTER (WHERE k = 1), sum(id) FILTER (WHERE g = 'a') FROM {t}")


@query
def having_and_rollup(side: Side) -> Iterable[Any]:
    return side.sql("SELECT g, ok, count(*) c FROM {t} GROUP BY ROLLUP (g, ok) HAVING c > 3")


@query
def group_by_floats(side: Side) -> Iterable[Any]:
    return side.sql("SELECT f, count(*) FROM {t} GROUP BY f")


@query
def min_and_max_with_nan(side: Side) -> Iterable[Any]:
    return side.sql("SELECT g, max(f), min(f) FROM {t} WHERE f <> 0 GROUP BY g")


@query
def distinct_rows(side: Side) -> Iterable[Any]:
    return side.t.select("k", "g", "ok").where("id < 100").distinct().collect()


@query
def drop_duplicates_on_a_key(side: Side) -> Iterable[Any]:
    return side.t.select("k").dropDuplicates(["k"]).collect()


@query
def order_and_limit(side: Side) -> Iterable[Any]:
    rows = side.t.where("k IS NOT NULL").orderBy(F.desc("k"), F.asc("id")).select("id").limit(9)
    return list(enumerate(rows.collect()))


@query
def order_offset_and_limit(side: Side) -> Iterable[Any]:
    return list(enumerate(side.sql("SELECT id, s FROM {t} ORDER BY s, id LIMIT 8 OFFSET 5")))


@query
def head_of_a_filtered_frame(side: Side) -> Iterable[Any]:
    return [len(side.t.where("g = 'a'").take(3)), side.t.where("id = 64").first()["s"]]


@query
def is_empty(side: Side) -> Iterable[Any]:
    return [side.t.where("id = -1").isEmpty(), side.t.where("id = 1").isEmpty(), side.t.isEmpty()]


@query
def window_functions(side: Side) -> Iterable[Any]:
    window = Window.partitionBy("g").orderBy("id")
    columns = [
        "id",
        F.row_number().over(window).alias("n"),
        F.lag("k").over(window).alias("before"),
    ]
    return side.t.where("k < 4").select(*columns).where("n <= 4").collect()


@query
def ranked_within_a_filter(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT id FROM (SELECT id, rank() OVER (PARTITION BY k ORDER BY id DESC) r FROM {t}) "
        "WHERE r = 1"
    )


@query
def pivot(side: Side) -> Iterable[Any]:
    return side.t.where("id < 70").groupBy("k").pivot("g", ["a", "b"]).agg(F.count("id")).collect()


# --- nested data, expressions -----------------------------------------------------------


@query
def one_field_of_a_struct(side: Side) -> Iterable[Any]:
    return side.t.where("st.x = 3").select("st.y", "id").collect()


@query
def deep_field_of_a_struct(side: Side) -> Iterable[Any]:
    return side.t.where("st.deep.z > 1").select("st.deep.z", "`st.x`").collect()


@query
def struct_star(side: Side) -> Iterable[Any]:
    return side.t.where("id < 8").select("st.*", "id").collect()


@query
def exploded_array(side: Side) -> Iterable[Any]:
    return side.t.select("id", F.explode("arr").alias("a")).where("a = 2 AND id < 60").collect()


@query
def exploded_map(side: Side) -> Iterable[Any]:
    return side.t.where("id > 90").select("id", F.explode_outer("mp")).collect()


@query
def higher_order_functions(side: Side) -> Iterable[Any]:
    return side.sql("SELECT id, transform(arr, x -> x * k) FROM {t} WHERE exists(arr, x -> x > 1)")


@query
def case_when_over_a_filter(side: Side) -> Iterable[Any]:
    return side.sql(
        "SELECT CASE WHEN k = 1 THEN 'one' WHEN f > 0 THEN 'plus' END c, count(*) "
        "FROM {t} WHERE d < '2024-01-01' GROUP BY 1"
    )


@query
def python_udf_after_a_filter(side: Side) -> Iterable[Any]:
    double = F.udf(lambda x: None if x is None else x * 2, "long")
    return (
        side.t.where("k = 5")
        .select("id", double("id").alias("twice"))
        .where("twice > 50")
        .collect()
    )


def _even(evaluation: str) -> Any:
    """A condition by a Python function: of rows, of Arrow arrays, of pandas series."""
    if evaluation == "pandas":
        return F.pandas_udf(lambda ids: ids % 2 == 0, "boolean")
    return F.udf(lambda i: i is not None and i % 2 == 0, "boolean", useArrow=evaluation == "arrow")


@query
def python_functions_as_filters_of_a_count(side: Side) -> Iterable[Any]:
    found = []
    for evaluation in ("pickle", "arrow", "pandas"):
        even = _even(evaluation)
        found += [
            side.t.where(even("id")).count(),
            side.t.select(even("id").alias("even")).where("even").count(),
            *side.t.where(even("id")).where("k = 1").groupBy("g").count().collect(),
            *side.t.where(even("id") & even("k")).agg(F.max("s")).collect(),
        ]
    return found


@query
def python_functions_over_scans_without_columns(side: Side) -> Iterable[Any]:
    found = []
    for evaluation in ("pickle", "arrow"):
        always = F.udf(lambda: True, "boolean", useArrow=evaluation == "arrow")
        found += [side.t.where(always()).count(), len(side.t.select(always()).collect())]
        found += [side.t.where(always.asNondeterministic()()).count()]
    return found


@query
def python_functions_over_columns_of_many_kinds(side: Side) -> Iterable[Any]:
    even = _even("arrow")
    kinds = ("s", "ts", "dec", "raw", "st", "arr", "mp", "void")
    return [row for kind in kinds for row in side.t.where(even("id")).select(kind).collect()]


@query
def frames_mapped_through_arrow(side: Side) -> Iterable[Any]:
    rows = side.t.select("id", "s").mapInArrow(lambda batches: batches, "id LONG, s STRING")
    pandas = side.t.select("id").mapInPandas(lambda frames: frames, "id LONG")
    sums = side.t.groupBy("g").applyInPandas(lambda one: one[["id"]].sum().to_frame().T, "id LONG")
    return [rows.count(), *rows.where("s > 'b'").collect(), pandas.count(), *sums.collect()]


@query
def sample_with_a_seed_keeps_known_rows(side: Side) -> Iterable[Any]:
    kept = side.t.select("id").sample(0.5, seed=1).count()
    return [0 < kept < PARTS * ROWS_PER_PART]


@query
def repartitioned_frame(side: Side) -> Iterable[Any]:
    frame = side.t.where("k = 1").repartition(3, "g").select("id", "g")
    return [*frame.where("g = 'a'").collect(), frame.count()]


@query
def to_pandas_through_arrow(side: Side) -> Iterable[Any]:
    return side.t.where("k = 6").select("id").toArrow().column("id").to_pylist()


# --- writes and streams beside reads -----------------------------------------------------


def _write(side: Side, frame: DataFrame, path: str) -> DataFrame:
    frame.write.format(side.format).mode("append").save(path)
    return side.spark.read.format(side.format).load(path)


@query
def frame_read_again_after_a_write(side: Side) -> Iterable[Any]:
    path = side.new_path()
    first = _write(side, side.t.where("k = 1").select("id", "k"), path)
    before = [first.where("id < 50").count(), first.count()]
    second = _write(side, side.t.where("k = 2").select("id", "k"), path)
    return [*before, second.where("k = 2").count(), *second.collect()]


@query
def dataset_made_from_a_filtered_read_of_itself(side: Side) -> Iterable[Any]:
    path = side.new_path()
    first = _write(side, side.t.where("id < 30").select("id", "g"), path)
    second = _write(side, first.where("g = 'b'").selectExpr("id + 1000 AS id", "g"), path)
    return second.collect()


@query
def insert_from_a_self_join(side: Side) -> Iterable[Any]:
    joined = side.sql("SELECT count(*) FROM {t} a JOIN {t} b ON a.k = b.id")
    frame = side.spark.sql(
        f"SELECT a.id, b.s FROM t_{side.format} a JOIN t_{side.format} b ON a.k = b.id"
    )
    return [*joined, *_write(side, frame, side.new_path()).collect()]


@query
def stream_beside_a_batch(side: Side) -> Iterable[Any]:
    """A file stream, joined in each micro-batch with two filters of the frame."""
    source = side.new_path() + "-stream"
    side.spark.range(0, 60, 2).write.parquet(source)
    stream = side.spark.readStream.schema("id BIGINT").parquet(source)
    found: list[Any] = []

    def collect(batch: DataFrame, _number: int) -> None:
        found.extend(batch.collect())

    joined = stream.join(side.t.where("k = 1").select("id", "g"), "id").union(
        stream.join(side.t.where("id > 40").select("id", "g"), "id")
    )
    run = joined.writeStream.foreachBatch(collect).trigger(availableNow=True).start()
    try:
        during = side.t.where("k = 3").count()
        run.processAllAvailable()
        run.awaitTermination(60)
    finally:
        run.stop()
    return [*found, during, side.t.count()]


# --- two versions in one query ---------------------------------------------------------------


def _versioned(function: Query) -> Query:
    VERSIONED[function.__name__.replace("_", " ")] = function
    return function


@_versioned
def union_of_two_versions(side: Side) -> Iterable[Any]:
    old, new = side.version(1), side.version(3)
    return [
        *old.where("k = 1").select("id").union(new.where("k = 1").select("id")).collect(),
        old.count(),
        new.count(),
    ]


@_versioned
def rows_added_between_two_versions(side: Side) -> Iterable[Any]:
    old, new = side.version(1), side.version(2)
    return new.join(old, "id", "left_anti").where("k = 1").select("id", "g").collect()


@_versioned
def same_filter_on_two_versions_shares_no_exchange(side: Side) -> Iterable[Any]:
    frames = [side.version(v).where("k = 1").groupBy("g").count() for v in (1, 2, 3)]
    return frames[0].union(frames[1]).union(frames[2]).collect()


# --- what Parquet answers ----------------------------------------------------------------------


def answers(side: Side) -> dict[str, dict[str, str]]:
    """The digest of the rows of each query, and of those that each condition selects."""
    asked = {**QUERIES, **VERSIONED}
    truth = {text: multiset(rows) for text, rows in truth_table(side).items()}
    return {
        "conditions": {text: f"{rows.total()} {digest(rows)}" for text, rows in truth.items()},
        "queries": {name: digest(multiset(query(side))) for name, query in asked.items()},
    }


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        facts, groups = write_sides(spark, Path(folder))["parquet"]
        found = answers(Side(spark, "parquet", facts, groups, Path(folder)))
    ANSWERS.write_text(json.dumps(found, indent=0) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
