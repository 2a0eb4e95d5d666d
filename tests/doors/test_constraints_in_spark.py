"""Constraints through Spark: its tasks check the rows that they write, the driver their keys."""

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

ROWS = 9
TABLE = "plake.kept.t"


@pytest.fixture
def table(spark_catalog: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """In a folder of its own: a task that Spark ends late may leave a file behind."""
    spark_catalog.sql("CREATE NAMESPACE IF NOT EXISTS plake.kept")
    spark_catalog.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, v INT, p INT, CONSTRAINT positive CHECK (v > 0), "
        "CONSTRAINT pk PRIMARY KEY (id)) "
        f"PARTITIONED BY (p) LOCATION '{tmp_path}/t'"
    )
    rows(spark_catalog, None, 0).writeTo(TABLE).append()
    yield spark_catalog
    spark_catalog.sql(f"DROP TABLE {TABLE} PURGE")


def rows(
    spark: SparkSession, bad: int | None, start: int = 100, key: int | None = None
) -> DataFrame:
    """Rows in two tasks, one with NULL, one that breaks a constraint: its `v`, or its key `key`."""
    values: list[Any] = [(start + n, None if n == 3 else n + 1, n % 2) for n in range(ROWS)]
    if bad is not None:
        values[bad] = (start + bad, -7, bad % 2) if key is None else (key, 50, bad % 2)
    return spark.createDataFrame(values, "id BIGINT, v INT, p INT").repartition(2)


def dataset(spark: SparkSession) -> lake.Dataset:
    url = spark.conf.get("spark.sql.catalog.plake.catalog")
    with lake.open_catalog(url) as catalog:
        uri = catalog.locate("kept.t")
    return lake.open_dataset(uri, catalog=url)


def _by_path(frame: DataFrame, **options: Any) -> None:
    by_path(frame, dataset(frame.sparkSession), **options)


def _sql(statement: str) -> Callable[[DataFrame], None]:
    def run(frame: DataFrame) -> None:
        frame.createOrReplaceTempView("given")
        frame.sparkSession.sql(statement.format(TABLE))

    return run


def _stream(frame: DataFrame) -> None:
    by_stream(frame, dataset(frame.sparkSession), TABLE)


_KEYS = "t.id = g.id - 100"
DOORS: dict[str, Callable[[DataFrame], None]] = {
    "append by name": lambda frame: frame.writeTo(TABLE).append(),
    "append by path": _by_path,
    "overwrite by path": lambda frame: _by_path(frame, mode="overwrite"),
    "overwrite a condition": lambda frame: _by_path(
        frame, mode="overwrite", overwriteWhere="id >= 100"
    ),
    "overwrite partitions": lambda frame: frame.writeTo(TABLE).overwritePartitions(),
    "insert": _sql("INSERT INTO {} SELECT * FROM given"),
    "merge updates": _sql(
        f"MERGE INTO {{}} t USING given g ON {_KEYS} WHEN MATCHED THEN UPDATE SET v = g.v"
    ),
    "merge inserts": _sql(
        "MERGE INTO {} t USING given g ON t.id = g.id WHEN NOT MATCHED THEN INSERT *"
    ),
    "merge does both": _sql(
        f"MERGE INTO {{}} t USING given g ON {_KEYS} AND g.p = 0 "
        "WHEN MATCHED THEN UPDATE SET v = g.v WHEN NOT MATCHED THEN INSERT *"
    ),
    "stream": _stream,
}


@pytest.mark.parametrize("bad", [0, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(8)
def test_no_door_commits_a_bad_row(door: str, bad: int, table: SparkSession) -> None:
    before = dataset(table)
    with pytest.raises(PySparkException, match=r"'positive', CHECK \(v > 0\), is broken") as caught:
        DOORS[door](rows(table, bad))
    assert "a row with v = -7, " in str(caught.value)
    after = dataset(table)
    assert (after.version, after.scan("v < 0").count_rows()) == (before.version, 0)
    assert after.scan().count_rows() == ROWS


INSERTS = ["append by name", "append by path", "insert", "merge inserts", "stream"]
REPLACES = ["overwrite by path", "overwrite partitions"]


@pytest.mark.parametrize("bad", [0, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize(
    ("door", "key"),
    [*((door, 5) for door in INSERTS[:3] + INSERTS[4:]), *((d, 103) for d in INSERTS + REPLACES)],
)
@pytest.mark.sampled(7)
def test_no_door_commits_a_key_twice(door: str, key: int, bad: int, table: SparkSession) -> None:
    """The dataset has key 5; another row of the commit, mostly of another task, has key 103."""
    before = dataset(table)
    with pytest.raises(PySparkException, match=r"'pk', PRIMARY KEY \(id\), is broken") as caught:
        DOORS[door](rows(table, bad, key=key))
    assert f"a row with id = {key}, " in str(caught.value)
    after = dataset(table)
    assert (after.version, after.scan().count_rows()) == (before.version, ROWS)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(3)
def test_every_door_commits_good_rows(door: str, table: SparkSession) -> None:
    before = dataset(table).version
    DOORS[door](rows(table, None))
    assert dataset(table).version == before + 1


@pytest.mark.long
def test_update_is_checked(table: SparkSession) -> None:
    with pytest.raises(PySparkException, match="v = 0, id = 0, p = 0"):
        table.sql(f"UPDATE {TABLE} SET v = v - 1")
    table.sql(f"UPDATE {TABLE} SET v = v + 1")
    table.sql(f"DELETE FROM {TABLE} WHERE id < 3")
    assert dataset(table).scan().count_rows() == ROWS - 3


def test_spark_shows_adds_and_drops_them(table: SparkSession) -> None:
    table.sql(f"ALTER TABLE {TABLE} ADD CONSTRAINT `sma)ll` CHECK (v < 100 AND p IN (0, 1))")
    created = table.sql(f"SHOW CREATE TABLE {TABLE}").first()[0]
    assert "CONSTRAINT `positive` CHECK (v > 0) ENFORCED" in created
    assert "CONSTRAINT `pk` PRIMARY KEY (id) ENFORCED" in created
    described = {row[0]: row[1] for row in table.sql(f"DESCRIBE EXTENDED {TABLE}").collect()}
    assert described["sma)ll"] == "CHECK (v < 100 AND p IN (0, 1)) ENFORCED"
    names = [row["name"] for row in table.sql(f"SELECT * FROM {TABLE}.constraints").collect()]
    assert names == ["positive", "pk", "sma)ll"]
    table.sql(f"ALTER TABLE {TABLE} DROP CONSTRAINT `sma)ll`")
    table.sql(f"ALTER TABLE {TABLE} DROP CONSTRAINT IF EXISTS `sma)ll`")
    with pytest.raises(AnalysisException, match="Known: positive, pk"):
        table.sql(f"ALTER TABLE {TABLE} DROP CONSTRAINT `sma)ll`")
    table.sql(f"ALTER TABLE {TABLE} DROP CONSTRAINT pk")
    table.sql(f"ALTER TABLE {TABLE} ADD CONSTRAINT pk PRIMARY KEY (ID, `p`)")
    table.sql(f"ALTER TABLE {TABLE} ADD CONSTRAINT u UNIQUE (v)")
    keys = {"pk": "PRIMARY KEY (id, p)", "u": "UNIQUE (v)"}
    assert dict(dataset(table).constraints) == {"positive": "v > 0", **keys}
    table.sql("CREATE TABLE plake.kept.u (id INT PRIMARY KEY, v INT UNIQUE, w INT)")
    made = table.table("plake.kept.u.constraints").select("expression").collect()
    assert {row[0] for row in made} == {"PRIMARY KEY (id)", "UNIQUE (v)"}
    table.sql("INSERT INTO plake.kept.u VALUES (1, NULL, 1), (2, NULL, 1)")
    with pytest.raises(PySparkException, match=r"UNIQUE \(v\), is broken by a row with v = 3"):
        table.sql("INSERT INTO plake.kept.u VALUES (4, 3, 1), (5, 3, 1)")
    table.sql("UPDATE plake.kept.u SET id = 3 - id")
    with pytest.raises(PySparkException, match=r"PRIMARY KEY \(id\), is broken by a row with id"):
        table.sql("UPDATE plake.kept.u SET id = 1")
    table.sql("DROP TABLE plake.kept.u PURGE")


def test_what_is_refused_of_a_constraint(table: SparkSession) -> None:
    def said(statement: str) -> str:
        with pytest.raises(PySparkException) as caught:
            table.sql(statement)
        return str(caught.value)

    add = f"ALTER TABLE {TABLE} ADD CONSTRAINT"
    assert "broken by a row with v = 9, " in said(f"{add} n CHECK (v < 9)")
    assert "PLAKE_INVALID_PREDICATE" in said(f"{add} n CHECK (w > 0)")
    assert "is taken" in said(f"{add} POSITIVE CHECK (v > 1)")
    assert "another time" in said(f"{add} n CHECK (v > unix_date(current_date()))")
    assert "second primary key beside 'pk'" in said(f"{add} n PRIMARY KEY (v)")
    assert "broken by a row with p = " in said(f"{add} n UNIQUE (p)")
    assert "is not a column" in said(f"{add} n UNIQUE (w)")
    assert "not CONSTRAINT" in said(f"{add} n FOREIGN KEY (id) REFERENCES {TABLE} (id)")
    assert "type double" in said("CREATE TABLE plake.kept.u (id DOUBLE PRIMARY KEY)")
    assert "'pk'" in said(f"ALTER TABLE {TABLE} DROP COLUMN id")
    assert "'positive'" in said(f"ALTER TABLE {TABLE} RENAME COLUMN v TO w")
    assert "'positive'" in said(f"ALTER TABLE {TABLE} DROP COLUMN v")
    table.sql(f"ALTER TABLE {TABLE} ALTER COLUMN v TYPE BIGINT")


def test_a_replaced_table_has_the_constraints_of_the_statement(table: SparkSession) -> None:
    table.sql(f"CREATE OR REPLACE TABLE {TABLE} (id BIGINT, v INT, CONSTRAINT n CHECK (id < 9))")
    assert dict(dataset(table).constraints) == {"n": "id < 9"}
    with pytest.raises(PySparkException, match="'n', CHECK"):
        table.sql(f"INSERT INTO {TABLE} VALUES (9, 1)")
    table.sql(f"INSERT INTO {TABLE} VALUES (8, -1)")


def test_a_constraint_that_spark_s_optimizer_knows_is_added(table: SparkSession) -> None:
    """Spark had no plan for it."""
    table.sql(f"ALTER TABLE {TABLE} ADD CONSTRAINT known CHECK (1 = 1 OR id > 0)")
    assert "known" in dataset(table).constraints


@pytest.mark.long
def test_an_append_conflicts_with_a_constraint_that_comes_meanwhile(
    table: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The constraint is added after the write began and before its tasks run."""
    frame = rows(table, None)
    url, uri = table.conf.get("spark.sql.catalog.plake.catalog"), dataset(table).uri
    table.sql(f"ALTER TABLE {TABLE} DROP CONSTRAINT positive")

    def late(batches: Iterator[Any]) -> Iterator[Any]:
        found = lake.open_dataset(uri, catalog=url)
        if "late" not in found.constraints:
            found.add_constraint("late", "v < 1000")
        yield from batches

    slow = frame.coalesce(1).mapInArrow(late, frame.schema)
    with pytest.raises(PySparkException, match="constraint 'late' was added"):
        slow.writeTo(TABLE).append()
    assert dataset(table).scan().count_rows() == ROWS
