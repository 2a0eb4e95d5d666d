"""Writes that add columns to tables of Spark's catalogs: `mergeSchema`, WITH SCHEMA EVOLUTION."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lakehouse_source.spark.protocol.vocabulary import Setting
from tests.doors.conftest import activate

pytestmark = pytest.mark.spark

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


@pytest.fixture(params=["plake", pytest.param("spark_catalog", marks=pytest.mark.long)])
def table(spark_catalog: SparkSession, request: pytest.FixtureRequest) -> str:
    """The name of a table that is not there."""
    activate(spark_catalog)
    name = f"{request.param}.default.evolving"
    spark_catalog.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    return name


def create(spark: SparkSession, table: str, columns: str, rows: str = "") -> None:
    spark.sql(f"CREATE TABLE {table} ({columns}) USING plake")
    if rows:
        spark.sql(f"INSERT INTO {table} VALUES {rows}")


def plain(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: plain(one) for name, one in value.asDict().items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def rows(spark: SparkSession, table: str) -> list[Any]:
    return sorted((plain(row) for row in spark.table(table).collect()), key=repr)


def operations(spark: SparkSession, table: str) -> list[str]:
    location = {
        row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {table}").collect() if row[0]
    }["Location"]
    path = location.removeprefix("file://").removeprefix("file:")
    found = spark.sql(f"SELECT version, operation FROM plake.`{path}`.history ORDER BY version")
    return [row.operation for row in found.collect()]


def append(frame: DataFrame, table: str) -> None:
    frame.writeTo(table).option("mergeSchema", "true").append()


@pytest.mark.long
def test_columns_that_a_table_lacks_are_added_in_the_commit_of_the_rows(
    spark_catalog: SparkSession, table: str
) -> None:
    first = "SELECT 1 AS id, 'x' AS s"
    writes = [
        "SELECT 7 AS n, 2 AS id",
        "SELECT 'y' AS S, 3 AS Id, 4.5 AS d, date '2024-01-02' AS day",
        "SELECT 4 AS id, array(named_struct('a', 1)) AS l",
        "SELECT 5 AS id, array(named_struct('b', 'q', 'a', 2)) AS l",
        "SELECT 6 AS id, NULL AS n",
    ]
    in_duckdb = [
        text.replace("array(named_struct('a', 1))", "[{'a': 1, 'b': NULL::VARCHAR}]").replace(
            "array(named_struct('b', 'q', 'a', 2))", "[{'a': 2, 'b': 'q'}]"
        )
        for text in (first, *writes)
    ]
    create(spark_catalog, table, "id INT, s STRING", "(1, 'x')")
    for count, text in enumerate(writes, 2):
        frame = spark_catalog.sql(text)
        if count % 2:
            append(frame, table)
        else:
            writer = frame.write.format("plake").mode("append").option("mergeSchema", True)
            writer.saveAsTable(table)
        assert len(operations(spark_catalog, table)) == count + 1
    assert set(operations(spark_catalog, table)[1:]) == {"append"}
    expected = duckdb.sql(" UNION ALL BY NAME ".join(in_duckdb))
    assert expected is not None
    assert [name.lower() for name in spark_catalog.table(table).columns] == [
        name.lower() for name in expected.columns
    ]
    found = rows(spark_catalog, table)
    wanted = [dict(zip(spark_catalog.table(table).columns, row)) for row in expected.fetchall()]
    assert found == sorted(wanted, key=repr)


@pytest.mark.long
def test_all_else_is_as_in_other_writes(spark_catalog: SparkSession, table: str) -> None:
    """Casts, defaults and the padding of CHAR: the rows of a table that had the column before."""
    columns = "id INT NOT NULL, c CHAR(3), s STRING DEFAULT 'd', st STRUCT<a: INT>"
    create(spark_catalog, table, columns)
    frame = spark_catalog.sql(
        "SELECT 2L AS id, 'z' AS c, named_struct('a', 5S, 'b', 'q') AS st, 1 AS n"
    )
    append(frame, table)
    columns = columns.replace("<a: INT>", "<a: INT, b: STRING>") + ", n INT"
    spark_catalog.sql("DROP TABLE IF EXISTS plake.default.before PURGE")
    create(spark_catalog, "plake.default.before", columns)
    frame.writeTo("plake.default.before").append()
    assert rows(spark_catalog, table) == rows(spark_catalog, "plake.default.before")
    assert rows(spark_catalog, table)[0]["c"] == "z  "
    assert spark_catalog.table(table).dtypes == spark_catalog.table("plake.default.before").dtypes
    by_place = spark_catalog.sql("SELECT 3, 'c', 's', named_struct('a', 1, 'b', 'r'), 9, 4.5 AS m")
    by_place.write.format("plake").option("mergeSchema", "true").insertInto(table)
    assert {
        "id": 3,
        "c": "c  ",
        "s": "s",
        "st": {"a": 1, "b": "r"},
        "n": 9,
        "m": Decimal("4.5"),
    } in (rows(spark_catalog, table))
    spark_catalog.sql("SELECT 3 AS id, 1 AS o").writeTo(table).option(
        "mergeSchema", "true"
    ).overwrite(F.col("id") == 3)
    assert [(row["id"], row["o"]) for row in rows(spark_catalog, table)] == [(2, None), (3, 1)]


@pytest.mark.long
def test_a_write_that_is_refused_adds_no_column(spark_catalog: SparkSession, table: str) -> None:
    create(spark_catalog, table, "id INT NOT NULL, s STRING", "(1, 'x')")
    for text, reason in (
        ("SELECT 5000000000L AS id, 1 AS n", "CAST_OVERFLOW"),
        ("SELECT 'no' AS id, 1 AS n", "CANNOT_SAFELY_CAST"),
        ("SELECT 1 AS id, 1 AS n, 2 AS N", "AMBIGUOUS"),
        ("SELECT 's' AS s, 1 AS n", "id"),
        ("SELECT 1 AS id, NULL AS n", "n"),
        ("SELECT id, CAST(raise_error('no') AS INT) AS n FROM range(3)", "no"),
    ):
        with pytest.raises(PySparkException, match=reason):
            append(spark_catalog.sql(text), table)
    with pytest.raises(PySparkException, match="has the name of another column"):
        spark_catalog.sql("SELECT 1, 's', 2 AS ID").write.format("plake").option(
            "mergeSchema", "true"
        ).insertInto(table)
    with pytest.raises(PySparkException, match=r"EXTRA_COLUMNS|TOO_MANY_DATA_COLUMNS"):
        spark_catalog.sql("SELECT 1 AS id, 's' AS s, 2 AS n").writeTo(table).append()
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        append(spark_catalog.range(1).toDF("id"), f"{table}_not")
    assert spark_catalog.table(table).columns == ["id", "s"]
    assert operations(spark_catalog, table) == ["create", "append"]


# --- WITH SCHEMA EVOLUTION -----------------------------------------------------


Rows = Sequence[Mapping[str, Any]]


def merged(target: Rows, source: Rows) -> list[dict[str, Any]]:
    """UPDATE SET * and INSERT *, by `id`."""
    columns = list(dict.fromkeys(name for row in (*target, *source) for name in row))
    new = {row["id"]: row for row in source}
    kept = [{**row, **new.pop(row["id"], {})} for row in target]
    return [{name: row.get(name) for name in columns} for row in (*kept, *new.values())]


def source(spark: SparkSession, rows: Rows, schema: str) -> None:
    texts = [(json.dumps(row),) for row in rows]
    frame = spark.createDataFrame(texts, "text STRING")
    frame.select(F.from_json("text", schema).alias("row")).select("row.*").createOrReplaceTempView(
        "source"
    )


EVERYTHING = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def merge(spark: SparkSession, table: str, clauses: str = EVERYTHING) -> None:
    spark.sql(f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING source s ON t.id = s.id {clauses}")


@pytest.mark.long
def test_a_merge_adds_the_columns_of_its_source(spark_catalog: SparkSession, table: str) -> None:
    create(spark_catalog, table, "id BIGINT, a STRING", "(1, 'a'), (2, 'b')")
    expected: Rows = [{"id": 1, "a": "a"}, {"id": 2, "a": "b"}]
    sources: Sequence[tuple[str, Rows]] = (
        ("id BIGINT, a STRING, n INT", [{"id": 2, "a": "c", "n": 5}, {"id": 3, "a": None, "n": 6}]),
        ("n INT, id BIGINT", [{"n": 7, "id": 1}, {"n": 8, "id": 4}]),
        ("id BIGINT, st STRUCT<x: INT>", [{"id": 1, "st": {"x": 1}}, {"id": 5, "st": None}]),
        ("id BIGINT, l ARRAY<DOUBLE>", [{"id": 6, "l": [1.5, None]}]),
        ("id BIGINT, n INT", [{"id": 6, "n": None}]),
        ("id BIGINT, z STRING", []),
    )
    for schema, given in sources:
        before = len(operations(spark_catalog, table))
        source(spark_catalog, given, schema)
        merge(spark_catalog, table)
        known = dict.fromkeys((*expected[0], *(one.split()[0] for one in schema.split(", "))))
        is_new = len(known) > len(expected[0])
        expected = merged(expected, given)
        expected = [{name: row.get(name) for name in known} for row in expected]
        assert rows(spark_catalog, table) == sorted(expected, key=repr)
        added = operations(spark_catalog, table)[before:]
        wanted = ["merge"] * (is_new or bool(given))  # neither rows nor columns, no commit
        assert added == wanted


@pytest.mark.long
def test_clauses_name_columns_of_the_source_that_are_new(
    spark_catalog: SparkSession, table: str
) -> None:
    create(spark_catalog, table, "id BIGINT, a STRING", "(1, 'a'), (2, 'b'), (9, 'z')")
    source(spark_catalog, [{"id": 2, "n": 5}, {"id": 3, "n": 6}], "id BIGINT, n INT, unused STRING")
    merge(
        spark_catalog,
        table,
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (id, n) "
        "WHEN NOT MATCHED BY SOURCE AND t.id > 5 THEN DELETE",
    )
    assert rows(spark_catalog, table) == [
        {"id": 1, "a": "a", "n": None},
        {"id": 2, "a": "b", "n": 5},
        {"id": 3, "a": None, "n": 6},
    ]
    (
        spark_catalog.table("source")
        .selectExpr("id", "n * 2 AS n2")
        .alias("s")
        .mergeInto(table, F.expr(f"s.id = {table}.id"))
        .withSchemaEvolution()
        .whenMatched()
        .updateAll()
        .merge()
    )
    assert [(row["id"], row["n2"]) for row in rows(spark_catalog, table)] == [
        (1, None),
        (2, 10),
        (3, 12),
    ]


@pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.1 does not ask which types may change")
def test_numbers_become_wider_and_others_are_cast(spark_catalog: SparkSession, table: str) -> None:
    columns = "id INT, f FLOAT, d DECIMAL(4, 2), wide BIGINT, s STRING, day DATE, whole INT"
    create(spark_catalog, table, columns, "(1, 1.5, 1.25, 1, 's', DATE'2026-01-31', 3)")
    row = {"id": 1, "f": 0.1, "d": 12345.678, "wide": 7, "s": 5}
    moment = datetime(2026, 2, 1, 12)
    given = {**row, "day": f"{moment}", "whole": 2.0}
    types = "d DECIMAL(9, 3), wide INT, s INT, day TIMESTAMP_NTZ, whole DOUBLE"
    source(spark_catalog, [given], f"id BIGINT, f DOUBLE, {types}")
    merge(spark_catalog, table)
    assert [kind for _, kind in spark_catalog.table(table).dtypes] == (
        ["bigint", "double", "decimal(9,3)", "bigint", "string", "timestamp_ntz", "int"]
    )
    expected = {**row, "d": Decimal("12345.678"), "s": "5", "day": moment, "whole": 2}
    assert rows(spark_catalog, table) == [expected]
    if SPARK >= (4, 2):
        spark_catalog.sql(
            f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 2 AS id, true AS extra"
        )
        added = dict.fromkeys((*expected, "extra"))
        assert {**added, "id": 2, "extra": True} in rows(spark_catalog, table)


def test_columns_are_added_beside_char_and_varchar(spark_catalog: SparkSession, table: str) -> None:
    """Spark checked the lengths of the checked texts again, until its 100 iterations were over."""
    create(spark_catalog, table, "id INT, c CHAR(3), v VARCHAR(4), s STRUCT<v: VARCHAR(4)>")
    given = {"id": 1, "c": "c", "v": "v", "s": {"v": "w"}, "x": 5}
    source(spark_catalog, [given], "id INT, c STRING, v STRING, s STRUCT<v: STRING>, x INT")
    merge(spark_catalog, table)
    merge(spark_catalog, table)
    assert rows(spark_catalog, table) == [{**given, "c": "c  "}]
    long = {**given, "v": "12345", "y": 6}
    source(spark_catalog, [long], "id INT, c STRING, v STRING, s STRUCT<v: STRING>, y INT")
    with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
        merge(spark_catalog, table)
    if SPARK >= (4, 2):
        spark_catalog.sql(
            f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 2 AS id, 'd' AS c, 7 AS z"
        )
        assert spark_catalog.table(table).where("c = 'd'").select("c", "z").collect() == [
            ("d  ", 7)
        ]


@pytest.mark.long
@pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.1 has no INSERT WITH SCHEMA EVOLUTION")
@pytest.mark.parametrize("by", ["MERGE", "INSERT"])
def test_lists_and_maps_get_fields_and_wider_numbers(
    spark_catalog: SparkSession, table: str, by: str
) -> None:
    columns = (
        "id BIGINT, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, ARRAY<STRUCT<f: FLOAT>>>, n ARRAY<INT>"
    )
    old = (
        "(1, array(named_struct('a', 7)), map('k', array(named_struct('f', 1.5f))), array(1, NULL))"
    )
    create(spark_catalog, table, columns, old)
    before = {"id": 1, "l": [{"a": 7, "b": None}], "m": {"k": [(1.5, None)]}, "n": [1, None]}
    new = {"id": 2, "l": [{"b": "q", "a": 8}, None], "m": {"k": [{"g": True, "f": 0.1}]}}
    columns = (
        "id BIGINT, l ARRAY<STRUCT<b: STRING, a: INT>>, m MAP<STRING, ARRAY<STRUCT<g: BOOLEAN, "
        "f: DOUBLE>>>, n ARRAY<BIGINT>"
    )
    source(spark_catalog, [{**new, "n": [5_000_000_000]}], columns)
    if by == "MERGE":
        merge(spark_catalog, table)
    else:
        spark_catalog.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME TABLE source")
    assert dict(spark_catalog.table(table).dtypes) == {
        "id": "bigint",
        "l": "array<struct<a:int,b:string>>",
        "m": "map<string,array<struct<f:double,g:boolean>>>",
        "n": "array<bigint>",
    }
    found = rows(spark_catalog, table)
    assert found == [before, {**new, "m": {"k": [(0.1, True)]}, "n": [5_000_000_000]}]
    source(spark_catalog, [{"id": 3, "k": []}], "id BIGINT, k ARRAY<MAP<STRING, INT>>")
    merge(spark_catalog, table)
    assert len(rows(spark_catalog, table)) == 3


@pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.1 does not ask which types may change")
def test_keys_of_maps_do_not_change(spark_catalog: SparkSession, table: str) -> None:
    create(spark_catalog, table, "id BIGINT, m MAP<STRUCT<a: INT>, INT>")
    keys = "SELECT 1L AS id, map(named_struct('a', 1, 'b', 2), 1) AS m"
    spark_catalog.sql(keys).createOrReplaceTempView("source")
    for statement in (
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING source s ON t.id = s.id {EVERYTHING}",
        f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME TABLE source",
    ):
        with pytest.raises(PySparkException, match=r"cannot cast|EXTRA_STRUCT_FIELDS"):
            spark_catalog.sql(statement)
    assert operations(spark_catalog, table) == ["create"]


def test_a_statement_that_fails_leaves_neither_rows_nor_columns(
    spark_catalog: SparkSession, table: str
) -> None:
    """The columns were a commit of their own, before that of the rows. EXPLAIN made it too."""
    create(spark_catalog, table, "id BIGINT, a STRING", "(1, 'a'), (2, 'b')")
    source(spark_catalog, [{"id": 1, "n": 1}, {"id": 1, "n": 2}], "id BIGINT, n INT")
    target = f"MERGE WITH SCHEMA EVOLUTION INTO {table} t"
    spark_catalog.sql(f"EXPLAIN {target} USING source s ON t.id = s.id {EVERYTHING}").collect()
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        merge(spark_catalog, table)
    if SPARK >= (4, 2):
        insert = f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT id, id / (id - 1) AS q"
        spark_catalog.sql(f"EXPLAIN {insert} FROM source").collect()
        with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
            spark_catalog.sql(f"{insert} FROM source")
    assert rows(spark_catalog, table) == [{"id": 1, "a": "a"}, {"id": 2, "a": "b"}]
    assert operations(spark_catalog, table) == ["create", "append"]
    spark_catalog.sql(f"{target} USING (SELECT 1L id, 1 n) s ON t.id = s.id {EVERYTHING}")
    assert operations(spark_catalog, table) == ["create", "append", "merge"]
    assert rows(spark_catalog, table)[0] == {"id": 1, "a": "a", "n": 1}
    if SPARK >= (4, 2):
        spark_catalog.sql(f"{insert} FROM VALUES (3) AS s (id)")
        assert {"id": 3, "a": None, "n": None, "q": 1.5} in rows(spark_catalog, table)
        assert operations(spark_catalog, table)[2:] == ["merge", "append"]
    with pytest.raises(PySparkException, match="nosuch"):
        merge(spark_catalog, table, "WHEN MATCHED AND s.nosuch = 1 THEN DELETE")
    with pytest.raises(PySparkException, match="n2"):
        spark_catalog.sql(
            f"MERGE INTO {table} t USING (SELECT id, n AS n2 FROM source) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET *"
        )
    assert spark_catalog.table(table).columns[:3] == ["id", "a", "n"]


def test_the_evolution_needs_no_pushdown(spark_catalog: SparkSession, table: str) -> None:
    """A MERGE is refused then, and its table stays as it is."""
    create(spark_catalog, table, "id BIGINT", "(1)")
    spark_catalog.conf.set(Setting.PLANNER, "false")
    try:
        append(spark_catalog.sql("SELECT 2L AS id, 3 AS n"), table)
        assert rows(spark_catalog, table) == [{"id": 1, "n": None}, {"id": 2, "n": 3}]
    finally:
        spark_catalog.conf.set(Setting.PLANNER, "true")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "value"),
    [("_row_id", "7L"), ("_FILE", "'f'"), ("_pos", "struct(1 AS a)"), ("_commit_version", "'x'")],
)
@pytest.mark.parametrize("clause", ["MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *"])
def test_a_column_that_is_named_like_a_hidden_one_is_added_or_refused_by_its_name(
    spark_catalog: SparkSession, table: str, name: str, value: str, clause: str
) -> None:
    """A MERGE left it out, ended in a NullPointerException, or spoke of the target."""
    spark = spark_catalog
    create(spark, table, "id BIGINT, v STRING", "(1, 'a')")
    source = f"SELECT explode(array(1L, 2L)) AS id, 'new' AS v, {value} AS {name}"
    target = f"MERGE WITH SCHEMA EVOLUTION INTO {table} t"
    merge = f"{target} USING ({source}) s ON t.id = s.id WHEN {clause}"
    # Spark resolves a view before it has looked for the target.
    spark.sql(source).createOrReplaceTempView("resolved_at_once")
    of_view = f"{target} USING resolved_at_once s ON t.id = s.id WHEN "
    for statement in (
        merge,
        of_view + clause,
        of_view + f"MATCHED THEN UPDATE SET {name} = s.{name}",
        of_view + f"NOT MATCHED THEN INSERT (id, {name}) VALUES (s.id, s.{name})",
    ):
        with pytest.raises(PySparkException, match=f"(?i)has a column {name}.*ADD COLUMN {name}"):
            spark.sql(statement)
    assert spark.table(table).columns == ["id", "v"]
    assert rows(spark, table) == [{"id": 1, "v": "a"}]
    # A statement that takes other columns of such a source by their names does not need it.
    spark.sql(of_view + "MATCHED THEN UPDATE SET v = s.v")
    assert rows(spark, table) == [{"id": 1, "v": "new"}]
    spark.sql(f"ALTER TABLE {table} ADD COLUMN {name} {spark.sql(source).dtypes[2][1]}")
    spark.sql(merge)  # what the error says to do
    assert {"7", "f", "x", "Row(a=1)"} & {str(row[2]) for row in spark.table(table).collect()}
    # The other doors add it.
    spark.sql(f"DROP TABLE {table} PURGE")
    create(spark, table, "id BIGINT, v STRING", "(1, 'a')")
    if SPARK >= (4, 2):
        spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME {source}")
    else:
        append(spark.sql(source), table)
    assert spark.table(table).columns == ["id", "v", name]
