"""Many sessions change one table at once: its history is one series of what each of them did."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark import enable
from tests.doors.conftest import unshared_session

pytestmark = pytest.mark.spark
CATALOG = "spark.sql.catalog.plake"
TABLE = "plake.many_sessions.t"
STATEMENTS = 6
CONFLICT = "PLAKE_COMMIT_CONFLICT"


@dataclass
class Done:
    """What one session did: its rows, and how many of its statements made a version."""

    rows: dict[int, int] = field(default_factory=dict)
    versions: int = 0
    columns: list[str] = field(default_factory=list)
    conflicts: int = 0


@pytest.mark.parametrize("sessions", [3, pytest.param(10, marks=pytest.mark.long)])
def test_the_history_is_serial(spark_catalog: SparkSession, sessions: int) -> None:
    spark_catalog.sql("CREATE NAMESPACE plake.many_sessions")
    try:
        spark_catalog.sql(f"CREATE TABLE {TABLE} (id INT, owner INT, n INT)")
        with ThreadPoolExecutor(sessions) as pool:
            done = list(pool.map(lambda number: work(spark_catalog, number), range(sessions)))
        check(spark_catalog, done)
    finally:
        spark_catalog.sql(f"DROP TABLE {TABLE} PURGE")
        spark_catalog.sql("DROP NAMESPACE plake.many_sessions")


def work(spark: SparkSession, number: int) -> Done:
    """Insert, change and delete rows of one owner, and add columns, beside the other sessions."""
    session = enable(
        unshared_session(spark),
        catalog=spark.conf.get(f"{CATALOG}.catalog"),
        warehouse=spark.conf.get(f"{CATALOG}.warehouse"),
    )
    done = Done()
    for turn in range(STATEMENTS):
        new, old = number * 1000 + turn, number * 1000 + turn - 1
        kind = (turn + number) % 4
        if kind == 0:
            column = f"c{number}_{turn}"
            if tried(session, f"ALTER TABLE {TABLE} ADD COLUMN {column} INT", done):
                done.columns.append(column)
        elif kind == 1 and old in done.rows:
            where = f"owner = {number} AND id = {old}"
            if tried(session, f"UPDATE {TABLE} SET n = n + 1 WHERE {where}", done):
                done.rows[old] += 1
        elif kind == 2 and old in done.rows:
            if tried(session, f"DELETE FROM {TABLE} WHERE id = {old}", done):
                del done.rows[old]
        else:
            insert = f"INSERT INTO {TABLE} (id, owner, n) VALUES ({new}, {number}, {turn})"
            if tried(session, insert, done):
                done.rows[new] = turn
    return done


def tried(session: SparkSession, statement: str, done: Done) -> bool:
    """Run a statement; only a conflict with another session may stop it."""
    try:
        session.sql(statement)
    except PySparkException as error:
        if CONFLICT not in str(error):
            raise
        done.conflicts += 1
        return False
    done.versions += 1
    return True


def check(spark: SparkSession, done: list[Done]) -> None:
    expected = {row: n for one in done for row, n in one.rows.items()}
    found = spark.sql(f"SELECT id, n FROM {TABLE}").collect()
    assert len(found) == len(expected)
    assert {row.id: row.n for row in found} == expected
    columns = {name for one in done for name in one.columns}
    assert set(spark.table(TABLE).columns) == {"id", "owner", "n"} | columns
    with lake.open_catalog(spark.conf.get(f"{CATALOG}.catalog")) as catalog:
        dataset = catalog.dataset("many_sessions.t")
        versions = [entry.version for entry in dataset.history()]
        assert versions == list(range(dataset.version, 0, -1))
        assert dataset.version == 1 + sum(one.versions for one in done)
        assert dataset.verify(checksums=True).ok
