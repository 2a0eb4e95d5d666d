"""Generated columns through Spark, which itself is the oracle of what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakehouse_source as lake
from tests.doors.frame_doors import by_path, by_stream

pytestmark = pytest.mark.spark

TABLE = "plake.gens.t"
ROWS = 6
EXPRESSIONS = {
    "day": "CAST(ts AS DATE)",
    "hour": "date_trunc('HOUR', ts)",
    "word": "upper(concat(name, '-', CAST(id AS STRING)))",
    "part": "id % 2",
    "ratio": "price / 4",
}
TYPES = {"day": "DATE", "hour": "TIMESTAMP", "word": "STRING", "part": "BIGINT", "ratio": "DOUBLE"}
SOURCES = "id BIGINT, ts TIMESTAMP, name STRING, price DOUBLE"


@pytest.fixture
def table(spark_catalog: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """In a folder of its own: a task that Spark ends late may leave a file behind."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.gens")
    columns = (f"{n} {TYPES[n]} GENERATED ALWAYS AS ({text})" for n, text in EXPRESSIONS.items())
    spark_catalog.sql(
        f"CREATE TABLE {TABLE} ({SOURCES}, {', '.join(columns)}, "
        "twice BIGINT NOT NULL GENERATED ALWAYS AS (id * 2) COMMENT 'two, of it') "
        f"PARTITIONED BY (day) LOCATION '{tmp_path}/t'"
    )
    yield spark_catalog
    spark_catalog.sql(f"DROP TABLE {TABLE} PURGE")


def rows(spark: SparkSession, start: int = 0, given: str | None = None) -> DataFrame:
    """Rows in two tasks. `given`: the value of `day` in the fourth row; None: no `day`."""
    values = [
        (n, f"2024-03-{n % 28 + 1:02d} 23:30:00", None if n % 4 == 1 else f"n{n}", n / 2)
        for n in range(start, start + ROWS)
    ]
    found = spark.createDataFrame(values, "id BIGINT, at STRING, name STRING, price DOUBLE")
    columns = ["id", "CAST(at AS TIMESTAMP) AS ts", "name", "price"]
    if given is not None:
        right = "CAST(CAST(at AS TIMESTAMP) AS DATE)"
        columns.append(f"CASE WHEN id = {start + 3} THEN {given} ELSE {right} END AS day")
    return found.repartition(2).selectExpr(*columns)


def dataset(spark: SparkSession) -> lake.Dataset:
    url = spark.conf.get("spark.sql.catalog.plake.catalog")
    with lake.open_catalog(url) as catalog:
        uri = catalog.locate("gens.t")
    return lake.open_dataset(uri, catalog=url)


def check(spark: SparkSession, count: int) -> None:
    """Spark computes what the columns have to hold."""
    wrong = " OR ".join(f"NOT ({name} <=> {text})" for name, text in EXPRESSIONS.items())
    found = spark.sql(f"SELECT count(*), count_if({wrong} OR twice <> id * 2) FROM {TABLE}")
    assert tuple(found.first()) == (count, 0)


def _by_path(frame: DataFrame, **options: Any) -> None:
    by_path(frame, dataset(frame.sparkSession), **options)


def _sql(statement: str) -> Callable[[DataFrame], None]:
    def run(frame: DataFrame) -> None:
        frame.createOrReplaceTempView("given")
        columns = ", ".join(frame.columns)
        frame.sparkSession.sql(statement.format(TABLE, columns))

    return run


def _stream(frame: DataFrame) -> None:
    by_stream(frame, dataset(frame.sparkSession), TABLE)


DOORS: dict[str, Callable[[DataFrame], None]] = {
    "append by name": lambda frame: frame.writeTo(TABLE).append(),
    "append by path": _by_path,
    "overwrite by path": lambda frame: _by_path(frame, mode="overwrite"),
    "overwrite a condition": lambda frame: _by_path(
        frame, mode="overwrite", overwriteWhere="id >= 0"
    ),
    "overwrite partitions": lambda frame: frame.writeTo(TABLE).overwritePartitions(),
    "more columns": lambda frame: _by_path(frame.selectExpr("*", "1 AS w"), mergeSchema="true"),
    "insert": _sql("INSERT INTO {0} ({1}) SELECT * FROM given"),
    "insert by name": _sql("INSERT INTO {0} BY NAME SELECT * FROM given"),
    "merge inserts": _sql(
        "MERGE WITH SCHEMA EVOLUTION INTO {0} t USING given g ON t.id = g.id "
        "WHEN NOT MATCHED THEN INSERT *"
    ),
    "stream": _stream,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(4)
def test_every_door_computes_checks_and_refuses(door: str, table: SparkSession) -> None:
    if door == "stream":
        DOORS[door](rows(table))
        check(table, ROWS)
        return
    DOORS[door](rows(table))
    check(table, ROWS)
    before = dataset(table).version
    with pytest.raises(PySparkException, match="'day', GENERATED ALWAYS AS") as caught:
        DOORS[door](rows(table, 100, "DATE'2020-02-02'"))
    assert "datetime.date(2020, 2, 2)" in str(caught.value)
    assert "the expression gives day = datetime.date(2024, " in str(caught.value)
    assert dataset(table).version == before
    DOORS[door](rows(table, 202, "NULL"))
    check(table, ROWS if door.startswith("overwrite by") or "condition" in door else 2 * ROWS)


def test_updates_and_merges_compute_anew(table: SparkSession) -> None:
    rows(table).writeTo(TABLE).append()
    table.sql(f"UPDATE {TABLE} SET ts = ts + INTERVAL 40 DAYS, id = id + 1000 WHERE id < 2")
    check(table, ROWS)
    table.sql(f"UPDATE {TABLE} t SET t.day = DEFAULT, price = day(t.day) WHERE t.id > 1000")
    check(table, ROWS)
    with pytest.raises(PySparkException, match="'day', GENERATED ALWAYS AS"):
        table.sql(f"UPDATE {TABLE} SET day = DATE'2020-01-01' WHERE id = 3")
    rows(table, 3).createOrReplaceTempView("given")
    table.sql(
        f"MERGE INTO {TABLE} t USING given g ON t.id = g.id "
        "WHEN MATCHED AND t.id = 4 THEN UPDATE SET ts = g.ts + INTERVAL 1 YEAR, name = 'x' "
        "WHEN MATCHED AND t.id = 5 THEN UPDATE SET ts = g.ts, day = CAST(g.ts AS DATE) "
        "WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, ts, name, price) VALUES (g.id, g.ts, g.name, 7) "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'gone'"
    )
    check(table, ROWS + 2)
    url = table.conf.get("spark.sql.catalog.plake.catalog")
    frame = table.read.format("plake").option("catalog", url).load(dataset(table).uri)
    frame.createOrReplaceTempView("updated")
    table.sql("UPDATE updated SET ts = ts - INTERVAL 3 DAYS, name = 'v' WHERE id = 7")
    check(table, ROWS + 2)
    for view in ("given", "updated"):
        table.catalog.dropTempView(view)


def test_spark_shows_them_and_makes_tables_like_them(table: SparkSession) -> None:
    created = table.sql(f"SHOW CREATE TABLE {TABLE}").first()[0]
    assert "day DATE GENERATED ALWAYS AS (CAST(ts AS DATE)),\n" in created
    twice = "twice BIGINT NOT NULL GENERATED ALWAYS AS (id * 2) COMMENT 'two, of it')\n"
    assert twice in created
    described = {row[0]: row[2] for row in table.sql(f"DESCRIBE {TABLE}").collect()}
    assert described["twice"] == "GENERATED ALWAYS AS (id * 2) COMMENT two, of it"
    again = created.replace(TABLE, "plake.gens.u").partition("LOCATION")[0]
    table.sql(again)
    assert table.sql("SHOW CREATE TABLE plake.gens.u").first()[0].startswith(again.strip())
    table.sql("DROP TABLE plake.gens.u PURGE")
    # The columns of a query have the values, and are not computed.
    rows(table).writeTo(TABLE).append()
    table.sql(f"CREATE TABLE plake.gens.u AS SELECT * FROM {TABLE}")
    assert "GENERATED" not in table.sql("SHOW CREATE TABLE plake.gens.u").first()[0]
    table.sql("DROP TABLE plake.gens.u PURGE")


def test_what_is_refused(table: SparkSession) -> None:
    def said(statement: str) -> str:
        with pytest.raises(PySparkException) as caught:
            table.sql(statement)
        return str(caught.value)

    for change in ("RENAME COLUMN ts TO x", "DROP COLUMN ts"):
        assert "column 'ts' cannot be" in said(f"ALTER TABLE {TABLE} {change}")
    create = "CREATE TABLE plake.gens.u (id BIGINT, ts TIMESTAMP, g {} GENERATED ALWAYS AS ({}))"
    assert "another value at another time" in said(create.format("DATE", "current_date()"))
    assert "cannot be GENERATED" in said(create.format("STRING", "soundex(CAST(id AS STRING))"))
    for other in ("day", "hour"):
        table.sql(f"ALTER TABLE {TABLE} RENAME COLUMN {other} TO {other}2")
        table.sql(f"ALTER TABLE {TABLE} RENAME COLUMN {other}2 TO {other}")
    table.sql(f"ALTER TABLE {TABLE} DROP COLUMN twice")
    table.sql(f"ALTER TABLE {TABLE} ALTER COLUMN id COMMENT 'key'")


def test_a_replaced_table_has_those_of_the_statement(table: SparkSession) -> None:
    table.sql(f"CREATE OR REPLACE TABLE {TABLE} (a INT, b INT GENERATED ALWAYS AS (a + 1))")
    table.sql(f"INSERT INTO {TABLE} (a) VALUES (1)")
    assert tuple(table.table(TABLE).first()) == (1, 2)
    assert dict(dataset(table).generated) == {"b": "GENERATED ALWAYS AS (a + 1)"}
    with pytest.raises(AnalysisException, match="NOT_ENOUGH_DATA_COLUMNS"):
        table.sql(f"INSERT INTO {TABLE} VALUES (1)")
    with pytest.raises(PySparkException, match=r"\(a \+ 1\), has no value on a row"):
        table.sql(f"INSERT INTO {TABLE} (a) VALUES (2147483647)")


def test_numbers_are_unique_over_tasks_and_writers(table: SparkSession) -> None:
    table.sql(
        f"CREATE OR REPLACE TABLE {TABLE} (v BIGINT, "
        "id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 10))"
    )
    for _ in range(2):
        table.range(0, 40, 1, 4).selectExpr("id AS v").writeTo(TABLE).append()
    lake.write_dataset({"v": [1, 2]}, dataset(table).uri, catalog=dataset(table)._address.catalog)
    _by_path(table.range(3).selectExpr("id AS v"))
    table.sql(f"INSERT INTO {TABLE} (v) VALUES (-1), (-2)")
    table.sql(f"INSERT INTO {TABLE} VALUES (-3, DEFAULT)")
    table.sql(f"UPDATE {TABLE} SET v = v - 100 WHERE v < 0")
    table.sql(
        f"MERGE INTO {TABLE} t USING (SELECT -101 AS v UNION ALL SELECT 777) g ON t.v = g.v "
        "WHEN MATCHED THEN UPDATE SET v = 0 WHEN NOT MATCHED THEN INSERT (v) VALUES (g.v)"
    )
    found = [row[0] for row in table.sql(f"SELECT id FROM {TABLE}").collect()]
    assert len(found) == 89 == len(set(found))
    assert all(number >= 100 and number % 10 == 0 for number in found)
    for statement, said in (
        (f"INSERT INTO {TABLE} VALUES (1, 5)", "and a row brings 5"),
        (f"UPDATE {TABLE} SET id = 5 WHERE v = 0", "ALWAYS AS IDENTITY"),
    ):
        with pytest.raises(PySparkException, match=said):
            table.sql(statement)
    clause = "id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 10)"
    assert clause in table.sql(f"SHOW CREATE TABLE {TABLE}").first()[0]


@pytest.mark.long
def test_a_number_that_a_row_brings_stays(table: SparkSession) -> None:
    table.sql(
        f"CREATE OR REPLACE TABLE {TABLE} (id BIGINT GENERATED BY DEFAULT AS IDENTITY, v INT)"
    )
    table.sql(f"INSERT INTO {TABLE} VALUES (50, 1), (DEFAULT, 2)")
    table.sql(f"UPDATE {TABLE} SET id = 60 WHERE id = 50")
    found = {row.v: row.id for row in table.table(TABLE).collect()}
    assert found[1] == 60
    assert found[2] % (1 << 20) == 1  # the first number of its task
    with pytest.raises(PySparkException, match=r"BIGINT|DATA_TYPE"):
        table.sql("CREATE TABLE plake.gens.u (id INT GENERATED ALWAYS AS IDENTITY)")
