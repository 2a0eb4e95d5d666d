"""Transactions of a Spark session: its statements become visible together, or not at all."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Setting
from tests.doors.conftest import activate
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]
FIRST: Rows = [(1, 1), (2, 2)]
URL = "spark.sql.catalog.plake.catalog"


class Shop:
    """Tables `a` and `b` of one catalog, which begin with the rows `FIRST`.

    `place`: how statements name a table.
    """

    def __init__(
        self, spark: SparkSession, url: str, folder: Path, place: str = "plake.`{path}`"
    ) -> None:
        self.spark, self.url = spark, url
        activate(spark)
        self.paths = {name: f"{folder}/{name}" for name in "ab"}
        self.names = {name: place.format(name=name, path=path) for name, path in self.paths.items()}
        for path in self.paths.values():
            lake.write_dataset({"id": [1, 2], "v": [1, 2]}, path, catalog=url)

    def sql(self, text: str) -> Rows:
        return sorted(tuple(row) for row in self.spark.sql(text.format(**self.names)).collect())

    def save(self, name: str, mode: str, *rows: tuple[int, int]) -> None:
        frame = self.spark.createDataFrame(rows, "id BIGINT, v BIGINT")
        writer = frame.write.format("plake").mode(mode).option("catalog", self.url)
        writer.save(self.paths[name])

    def opened(self, name: str) -> lake.Dataset:
        """The table as others see it."""
        return lake.open_dataset(self.paths[name], catalog=self.url)

    def seen(self) -> tuple[Rows, Rows]:
        """The rows that others see."""
        found = (self.opened(name).scan().to_table().to_pylist() for name in "ab")
        a, b = (sorted(tuple(row.values()) for row in rows) for rows in found)
        return a, b

    def commit(self, name: str, id: int = 9) -> None:
        """Commit as another writer."""
        lake.write_dataset({"id": [id], "v": [9]}, self.paths[name], catalog=self.url)

    def refusal(self, text: str) -> str:
        with pytest.raises(PySparkException) as caught:
            self.sql(text)
        return str(caught.value)

    def branches(self) -> list[str]:
        return [branch for name in "ab" for branch in self.opened(name).branches()]


@pytest.fixture
def shop(spark_catalog: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    yield Shop(spark_catalog, str(spark_catalog.conf.get(URL)), tmp_path)
    assert spark_catalog.conf.get(Setting.TRANSACTION, None) is None


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_catalog()


def test_rows_of_two_tables_become_visible_together(shop: Shop) -> None:
    with lake.spark.transaction(shop.spark):
        shop.sql("INSERT INTO {a} VALUES (3, 3)")
        shop.sql("INSERT INTO {b} SELECT id + 1, v FROM {a} WHERE id = 3")
        assert shop.seen() == (FIRST, FIRST)
    assert shop.seen() == ([*FIRST, (3, 3)], [*FIRST, (4, 3)])


@pytest.mark.long
def test_statements_on_two_tables_are_seen_inside_at_once_and_by_others_at_the_end(
    shop: Shop,
) -> None:
    with lake.spark.transaction(shop.spark):
        shop.sql("INSERT INTO {a} VALUES (3, 3)")
        shop.sql("DELETE FROM {b} WHERE id + 2 IN (SELECT id FROM {a})")
        found = shop.sql("SELECT id FROM {a} UNION ALL SELECT -id FROM {b}")
        assert found == [(-2,), (1,), (2,), (3,)]
        assert shop.seen() == (FIRST, FIRST)
    assert shop.seen() == ([*FIRST, (3, 3)], [(2, 2)])
    assert shop.branches() == []


@pytest.mark.long
def test_an_error_in_the_block_leaves_nothing(shop: Shop) -> None:
    class MineError(Exception):
        pass

    def block() -> None:
        with lake.spark.transaction(shop.spark):
            shop.sql("UPDATE {a} SET v = 7")
            shop.save("b", "overwrite", (5, 5))
            assert shop.sql("SELECT v FROM {a} UNION ALL SELECT v FROM {b}") == [(5,), (7,), (7,)]
            raise MineError

    with pytest.raises(MineError):
        block()
    assert (shop.seen(), shop.branches()) == ((FIRST, FIRST), [])
    assert shop.sql("SELECT * FROM {a}") == FIRST


@pytest.mark.long
def test_a_commit_of_another_writer_leaves_nothing_of_the_block(shop: Shop) -> None:
    def block() -> None:
        with lake.spark.transaction(shop.spark):
            shop.sql("UPDATE {a} SET v = 7")
            shop.sql("UPDATE {b} SET v = 7")
            shop.commit("b")
            assert shop.sql("SELECT v FROM {b}") == [(7,), (7,)]

    with pytest.raises(PySparkException, match=r"PLAKE_COMMIT_CONFLICT.*/b"):
        block()
    assert (shop.seen(), shop.branches()) == ((FIRST, [*FIRST, (9, 9)]), [])


@pytest.mark.long
def test_a_block_that_loses_its_setting_ends_with_an_error(shop: Shop) -> None:
    def block() -> None:
        with lake.spark.transaction(shop.spark):
            shop.sql("UPDATE {a} SET v = 7")
            shop.sql(f"RESET {Setting.TRANSACTION}")

    with pytest.raises(lake.InvalidOptionError, match="changed in the block"):
        block()
    assert (shop.seen(), shop.branches()) == ((FIRST, FIRST), [])


@pytest.mark.long
def test_what_the_block_only_read_is_of_one_moment_and_may_change(shop: Shop) -> None:
    def block(isolation: str | None) -> None:
        with lake.spark.transaction(shop.spark, isolation=isolation):
            before = shop.sql("SELECT * FROM {b}")
            shop.commit("b")
            assert shop.sql("SELECT * FROM {b}") == before
            shop.sql("INSERT INTO {a} VALUES (3, 3)")

    with pytest.raises(PySparkException, match=r"PLAKE_COMMIT_CONFLICT.*/b"):
        block("serializable")
    assert shop.seen()[0] == FIRST
    block(None)
    assert shop.seen() == ([*FIRST, (3, 3)], [*FIRST, (9, 9), (9, 9)])


# Statements of Spark, and what they are in SQLite.
MERGE = """MERGE INTO {a} t USING {b} s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET t.v = s.v WHEN NOT MATCHED THEN INSERT *"""
MERGED = """UPDATE a SET v = (SELECT v FROM b WHERE b.id = a.id) WHERE id IN (SELECT id FROM b);
    INSERT INTO a SELECT * FROM b WHERE id NOT IN (SELECT id FROM a)"""
PLACES = {
    "name": "plake.trading.{name}",
    "path": "plake.`{path}`",
    "spark_catalog": "spark_catalog.trading.{name}",
}


@pytest.mark.long
@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("place", PLACES)
def test_random_blocks_against_sqlite(
    spark_catalog: SparkSession, tmp_path: Path, url: str, place: str
) -> None:
    spark, draw = spark_catalog, random.Random(place + url[:6])
    before = {
        key: spark.conf.get(key)
        for key in (URL, URL.replace(".catalog.c", ".warehouse.c"))
        if spark.conf.get(key, None) is not None
    }
    shop = Shop(spark, url, tmp_path, PLACES[place])
    oracle = sqlite3.connect(":memory:", isolation_level=None)
    for name in "ab":
        oracle.execute(f"CREATE TABLE {name} (id INTEGER, v INTEGER)")
        oracle.executemany(f"INSERT INTO {name} VALUES (?, ?)", FIRST)
    numbers = iter(range(10, 1000))

    def step() -> None:
        t, n, v = draw.choice("ab"), next(numbers), draw.randint(0, 9)
        kind = draw.choice(("insert", "delete", "update", "merge", "append", "overwrite"))
        texts = {
            "insert": (f"INSERT INTO {{{t}}} VALUES ({n}, {v})",) * 2,
            "delete": (f"DELETE FROM {{{t}}} WHERE v = {v}",) * 2,
            "update": (f"UPDATE {{{t}}} SET v = v + {v} WHERE id % 2 = {v % 2}",) * 2,
            "merge": (MERGE, MERGED),
            "append": ("", f"INSERT INTO {t} VALUES ({n}, {v})"),
            "overwrite": ("", f"DELETE FROM {t}; INSERT INTO {t} VALUES ({n}, {v})"),
        }
        ours, theirs = texts[kind]
        shop.sql(ours) if ours else shop.save(t, kind, (n, v))
        for one in theirs.format(a="a", b="b").split(";"):
            oracle.execute(one)

    def expected() -> tuple[Rows, Rows]:
        a, b = (sorted(oracle.execute(f"SELECT * FROM {name}").fetchall()) for name in "ab")
        return a, b

    try:
        spark.conf.set(URL, url)
        if place == "spark_catalog":
            spark.sql("CREATE DATABASE trading")
        elif place == "name":
            spark.sql("CREATE NAMESPACE plake.trading")
        for name, path in shop.paths.items() if place != "path" else ():
            option = f"USING plake OPTIONS (catalog '{url}')" if place == "spark_catalog" else ""
            spark.sql(f"CREATE TABLE {shop.names[name]} {option} LOCATION '{path}'")
        for _ in range(6):
            oracle.execute("BEGIN")
            committed, end = shop.seen(), draw.choice(("commit", "commit", "error", "conflict"))
            try:
                with lake.spark.transaction(spark):
                    for _ in range(draw.randint(1, 4)):
                        step()
                        read = tuple(shop.sql(f"SELECT * FROM {{{name}}}") for name in "ab")
                        assert read == expected()
                        assert shop.seen() == committed
                    if end == "error":
                        raise KeyboardInterrupt
                    if end == "conflict":
                        step()
                        for name in "ab":
                            shop.commit(name, last := next(numbers))
                found = "commit"
            except KeyboardInterrupt:
                found = "error"
            except PySparkException as error:
                found = "conflict" if "PLAKE_COMMIT_CONFLICT" in str(error) else str(error)
            assert found == end
            oracle.execute("COMMIT" if end == "commit" else "ROLLBACK")
            if end == "conflict":
                oracle.execute(f"INSERT INTO a VALUES ({last - 1}, 9)")
                oracle.execute(f"INSERT INTO b VALUES ({last}, 9)")
            assert (shop.seen(), shop.branches()) == (expected(), [])
        assert all(shop.opened(name).verify().ok for name in "ab")
    finally:
        oracle.close()
        if place == "spark_catalog":
            spark.sql("DROP DATABASE IF EXISTS trading CASCADE")
        for key in before:
            spark.conf.set(key, before[key])


@pytest.mark.long
def test_keys_checks_identities_and_the_change_feed(shop: Shop) -> None:
    name = "plake.default.promised"
    spark = shop.spark
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT GENERATED ALWAYS AS IDENTITY, k INT, "
        "CONSTRAINT pk PRIMARY KEY (k), CONSTRAINT positive CHECK (k > 0))"
    )
    try:
        spark.sql(f"INSERT INTO {name} (k) VALUES (1), (2)")
        with lake.spark.transaction(spark):
            spark.sql(f"INSERT INTO {name} (k) VALUES (3)")
            for k, error in ((3, "pk"), (1, "pk"), (0, "positive")):
                with pytest.raises(PySparkException, match=f"{error}.* is broken"):
                    spark.sql(f"INSERT INTO {name} (k) VALUES ({k})")
            spark.sql(f"UPDATE {name} SET k = 7 WHERE k = 2")
            spark.sql(f"ALTER TABLE {name} ADD COLUMN note STRING")
            spark.sql(f"INSERT INTO {name} (k, note) VALUES (2, 'again')")
        spark.sql(f"INSERT INTO {name} (k) VALUES (4)")
        rows = spark.sql(f"SELECT k, note, id, _row_id FROM {name} ORDER BY k").collect()
        assert [tuple(row)[:2] for row in rows] == [
            *((1, None), (2, "again"), (3, None)),
            *((4, None), (7, None)),
        ]
        assert len({row.id for row in rows}) == len({row._row_id for row in rows}) == 5
        feed = spark.read.option("readChangeFeed", True).option("startingVersion", 3).table(name)
        assert sorted(
            map(tuple, feed.select("_commit_version", "k", "_change_type").collect())
        ) == [
            (3, 3, "insert"),
            (4, 2, "update_preimage"),
            (4, 7, "update_postimage"),
            (6, 2, "insert"),
            (7, 4, "insert"),
        ]
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.long
def test_views_caches_old_versions_and_frames_in_a_block(shop: Shop) -> None:
    spark, given = shop.spark, f"path '{shop.paths['a']}', catalog '{shop.url}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW shown USING plake OPTIONS ({given})")
    frame = spark.table(shop.names["a"])
    frame.createOrReplaceTempView("kept")
    shop.sql("CACHE TABLE {a}")
    shop.commit("a")
    try:
        with lake.spark.transaction(spark):
            assert shop.sql("SELECT * FROM {a}") == [*FIRST, (9, 9)]  # and not what is cached
            shop.sql("INSERT INTO shown VALUES (3, 3)")
            shop.sql("UPDATE shown SET v = 0 WHERE id = 9")
            mine = [*FIRST, (3, 3), (9, 0)]
            assert shop.sql("SELECT * FROM shown") == shop.sql("SELECT * FROM {a}") == mine
            assert sorted(map(tuple, frame.collect())) == FIRST  # as everywhere
            assert shop.sql("SELECT * FROM {a} VERSION AS OF 1") == FIRST
            shop.sql("INSERT INTO {a} VALUES (4, 4)")  # Spark caches it anew
            assert shop.sql("SELECT * FROM {a}") == sorted([*mine, (4, 4)])
            assert len(shop.sql("SELECT * FROM {a} VERSION AS OF 3")) == 4
            shop.commit("a")  # which is version 3 of the table, as others see it
            assert len(shop.sql("SELECT * FROM {a} VERSION AS OF 3")) == 4
            text = shop.refusal("DELETE FROM kept")
            assert "a statement on a view of a frame is not for a transaction" in text
            inside = spark.table(shop.names["a"])
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    after = [*FIRST, (9, 9), (9, 9)]
    assert shop.sql("SELECT * FROM shown") == shop.sql("SELECT * FROM {a}") == after
    with pytest.raises(PySparkException, match="transaction of the Spark session has ended"):
        inside.where("id > 0").collect()
    spark.catalog.clearCache()


REFUSED = (
    "CREATE TABLE plake.default.other (id INT)",
    "CREATE TABLE plake.default.other AS SELECT 1 AS id",
    "CREATE OR REPLACE TABLE {a} (id INT)",
    "CREATE TABLE other_plain (id INT) USING plake",
    "DROP TABLE {a}",
    "CREATE NAMESPACE plake.other",
    "CREATE VIEW plake.default.other AS SELECT 1 AS id",
    "CALL plake.system.vacuum('{a}')",
    "OPTIMIZE {a}",
    "RESTORE TABLE {a} TO VERSION AS OF 1",
    "ALTER TABLE {a} CREATE BRANCH audit",
)


@pytest.mark.long
def test_what_a_block_does_not_take_is_refused_by_name(shop: Shop, tmp_path: Path) -> None:
    spark, path = shop.spark, shop.paths["a"]
    spark.sql(f"CREATE TABLE plain (id BIGINT) USING plake LOCATION '{tmp_path}/plain'")
    spark.sql("CREATE TABLE plake.default.named (id BIGINT)")
    plain = [
        "DROP TABLE plain",
        "ALTER TABLE plain RENAME TO plainer",
        "ALTER TABLE plake.default.named RENAME TO plake.default.other",
    ]
    shop.opened("a").branch("audit")
    try:
        with lake.spark.transaction(spark):
            for statement in (*REFUSED, *plain):
                text = shop.refusal(statement)  # Spark 4.1 has no views of catalogs
                assert "option 'transaction'" in text or "not support views" in text, statement
            assert "is a branch" in shop.refusal("SELECT * FROM {a}.branch_audit")
            with pytest.raises(lake.InvalidOptionError, match="another transaction"):
                lake.spark.transaction(spark).__enter__()
            with pytest.raises(lake.InvalidOptionError, match="'convert'"):
                lake.spark.convert(spark, tmp_path / "plain")
            shop.sql("INSERT INTO {a} VALUES (3, 3)")
            assert "in another catalog than" in shop.refusal("SELECT * FROM plain")
            rows = spark.range(1).selectExpr("id", "id AS v")
            for place in (f"{tmp_path}/new", f"{tmp_path}/c#branch=audit"):
                with pytest.raises(PySparkException, match="on tables that exist"):
                    rows.write.format("plake").mode("append").save(place)
            with pytest.raises(PySparkException, match=r"is not in spark\.jars"):
                spark.read.format("plake").option("catalog", shop.url).load(path)
            for query in (
                spark.readStream.table(shop.names["a"]).writeStream.format("noop"),
                spark.readStream.format("rate")
                .load()
                .selectExpr("value AS id", "value AS v")
                .writeStream.format("plake")
                .option("path", path)
                .option("catalog", shop.url),
            ):
                started = query.option("checkpointLocation", f"{tmp_path}/checkpoint{id(query)}")
                with pytest.raises(PySparkException, match=r"transaction.*\(given: 'stream'\)"):
                    started.trigger(availableNow=True).start().awaitTermination()
        assert shop.seen()[0] == [*FIRST, (3, 3)]
        assert not (tmp_path / "new").exists()
    finally:
        spark.sql("DROP TABLE plain")
        spark.sql("DROP TABLE plake.default.named")


KILLED = """
import sys
import lakehouse_source as lake
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = lake.spark.configure(builder, sys.argv[1]).getOrCreate()
# With the jar in spark.jars, by path as everywhere.
a, b = ((spark.read.format("plake").option("catalog", sys.argv[1]), path) for path in sys.argv[2:])
with lake.spark.transaction(spark):
    a[0].load(a[1]).selectExpr("id + 10 AS id", "v").write.format("plake").mode("append").option(
        "catalog", sys.argv[1]).save(a[1])
    assert a[0].load(a[1]).count() == 4
with lake.spark.transaction(spark):
    for reader, path in (a, b):
        reader.load(path).selectExpr("id + 20 AS id", "v").write.format("plake").mode(
            "overwrite").option("catalog", sys.argv[1]).save(path)
    assert (a[0].load(a[1]).count(), b[0].load(b[1]).count()) == (4, 2)
    print("inside", flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
def test_a_process_that_is_killed_in_the_block_leaves_nothing_that_is_seen(
    shop: Shop, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", KILLED, shop.url, *shop.paths.values()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "inside\n"
        killed.send_signal(signal.SIGKILL)
    first = [*FIRST, (11, 1), (12, 2)]
    assert shop.seen() == (first, FIRST)
    left, other = shop.branches()
    assert left == other
    with lake.spark.transaction(shop.spark):
        shop.sql("INSERT INTO {b} VALUES (3, 3)")
    assert shop.seen() == (first, [*FIRST, (3, 3)])
    for name in "ab":
        shop.opened(name).vacuum(abandoned_after_seconds=0, allow_short_retention=True)
    assert shop.branches() == []
